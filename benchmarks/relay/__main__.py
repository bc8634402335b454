from benchmarks.relay import main

main()
