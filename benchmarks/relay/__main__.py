"""``python -m benchmarks.relay``"""

from benchmarks.relay import main

main()
