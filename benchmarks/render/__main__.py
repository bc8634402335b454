from benchmarks.render import main

main()
