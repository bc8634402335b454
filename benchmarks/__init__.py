"""Benchmarks of Penstock against the alternatives. `benchmarks/README.md` says what each measures and how to run it."""
