from benchmarks.encode import main

main()
