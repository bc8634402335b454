"""``python -m benchmarks.encode``"""

from benchmarks.encode import main

main()
