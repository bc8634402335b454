from benchmarks.sound import main

main()
