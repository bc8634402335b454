"""``python -m benchmarks.decode``"""

from benchmarks.decode import main

main()
