from benchmarks.pipeline import main

main()
