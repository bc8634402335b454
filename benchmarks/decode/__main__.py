from benchmarks.decode import main

main()
