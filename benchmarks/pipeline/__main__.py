"""``python -m benchmarks.pipeline``"""

from benchmarks.pipeline import main

main()
