# Every target installs what it needs (see scripts/setup); a second run finds it there.
#   make demo ARGS="…"    make bench-relay ARGS="--quick"    make test ARGS="-k …" (pytest's)

.DEFAULT_GOAL := help
.NOTPARALLEL:
BENCHES := bench $(addprefix bench-,encode decode relay pipeline render fan-out capture sound machines all compare report)
.PHONY: help build demo docs docs-serve test test-all test-exhaustive test-windows soak sanitize fuzz findings corpus $(BENCHES) wheel wheel-windows release-check check check-workflows fmt clean

ARGS ?=
VENV := .venv
READY := $(VENV)/.ready

# rustup's place, for shells that have not read its profile. Last: a cargo on the PATH comes first.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Paths and not names, so that nothing depends on which Python is first on the PATH.
PYTHON_HERE := $(CURDIR)/$(VENV)/bin/python
IN_VENV := VIRTUAL_ENV="$(CURDIR)/$(VENV)" PYO3_PYTHON="$(PYTHON_HERE)" PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

NATIVE_SOURCES := Cargo.toml $(wildcard Cargo.lock) pyproject.toml \
	$(shell find crates -name '*.rs' -o -name Cargo.toml)

help:
	@echo "make build        the native module, into python/penstock; the package is in .venv then"
	@echo "make demo         render a video with a progress bar"
	@echo "make docs         the documentation's site, in build/site; a warning or a dead link is an error"
	@echo "make docs-serve   the same on localhost:8000, built again whenever a page changes"
	@echo "make test         the tests: Rust, loom with bounds, and Python's but for those that are marked slow"
	@echo "make test-all     the slow tests too, those of benchmarks and scripts, and the site; prints the 20 slowest"
	@echo "make test-exhaustive  all tests, with every case of every table and all examples of property tests"
	@echo "make test-windows  tests for Windows, by Wine (as root on Debian 12; 4 GB, an hour)"
	@echo "make sanitize     the core's tests with AddressSanitizer and LeakSanitizer, some by Miri (needs a nightly Rust)"
	@echo "make fuzz         hostile and random input, a minute each; SECONDS_EACH=600 (needs a nightly Rust)"
	@echo "make soak         everything at random, with kills, forks and signals; ARGS=\"--seed 5 --minutes 30\""
	@echo "make bench        frames into FFmpeg, by every transport; ARGS=\"--quick\" for half a minute"
	@echo "make bench-encode  frames into video files, by every library; ARGS=\"--quick\" for half a minute"
	@echo "make bench-decode  videos into arrays, by every library; ARGS=\"--quick\" for two minutes"
	@echo "make bench-relay  descriptor to descriptor; ARGS=\"--quick\" for half a minute"
	@echo "make bench-pipeline  compressed assets under load; ARGS=\"--quick\" for a look"
	@echo "make bench-render  one video by several processes, and by Ray; ARGS=\"--quick\" for half a minute"
	@echo "make bench-fan-out  frames to several programs at once; ARGS=\"--quick\" for a minute"
	@echo "make bench-capture  pictures of OpenGL into a video; ARGS=\"--quick\" for half a minute"
	@echo "make bench-sound  sound and frames from memory into files; ARGS=\"--quick\" for a minute"
	@echo "make bench-machines  the hot paths as on other machines: one core, 512 MB, old kernels; ARGS=\"--quick\""
	@echo "make bench-all    all of them, with records: 105 minutes; ARGS=\"--quick\" for a look"
	@echo "make bench-compare BASE=HEAD~1  the hot paths of a commit against those of this tree, in turn: 4 minutes"
	@echo "make bench-report  the kept records as pictures, in build/bench-report; ARGS=\"mine.json\" for your own"
	@echo "make wheel-windows  a wheel for Windows in dist, whose first video is made by Wine (as root on Debian 12)"
	@echo "make wheel        a wheel in dist for this processor, or for TARGET=aarch64-unknown-linux-gnu, and glibc 2.17 or newer; checked"
	@echo "make findings     whether other software still does what findings/ says; ARGS=\"nut-without-a-tag.sh\" for one only"
	@echo "make corpus FOLDER=~/videos  every file of a folder, read in all ways beside FFmpeg and PyAV: what differs"
	@echo "make release-check  what a release needs: wheels, sdist, crates, links and more; ARGS=\"links version\" for these only"
	@echo "make check        formatting, lints, types, circles of imports and refused phrases, of Rust and Python"
	@echo "make check-workflows  .github/workflows, by actionlint (needs Go)"
	@echo "make fmt          format, and fix what the linters can"
	@echo "make clean        remove everything that was built or installed here"

$(READY)-%: scripts/setup scripts/requirements.py pyproject.toml
	@scripts/setup $*
	@touch $@

# After one of the above, whichever it was, for it needs no more than maturin.
$(READY)-native: $(NATIVE_SOURCES)
	@$(IN_VENV) scripts/setup native
	@touch $@

build: $(READY)-build $(READY)-native

demo: $(READY)-demo $(READY)-native
	@$(IN_VENV) python examples/demo.py $(ARGS)

docs: $(READY)-docs $(READY)-native
	@$(IN_VENV) python scripts/docs.py

docs-serve: $(READY)-docs $(READY)-native
	@$(IN_VENV) python scripts/docs.py --serve

# What each needs. The native module comes last, as above.
bench bench-relay bench-pipeline bench-fan-out bench-machines bench-compare bench-all: $(READY)-bench
bench-encode bench-sound bench-all: $(READY)-bench-encode
bench-decode bench-all: $(READY)-bench-decode
bench-render bench-all: $(READY)-bench-render
# With OpenGL.
bench-capture bench-all: $(READY)-demo
bench-report: $(READY)-bench-report
$(BENCHES): $(READY)-native
$(BENCHES): BENCHMARK = $(subst -,_,$(@:bench-%=%))
bench: BENCHMARK = pipe
$(BENCHES):
	@$(IN_VENV) python -m benchmarks.$(BENCHMARK) $(ARGS)

# One more than there are cores, for most tests wait for programs.
WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
# Of two -m the last one holds, so that ARGS can ask for others. pytest itself, called by hand, leaves none out.
test: SELECTED := -m "not slow"
# Loom explores the orders with at most three preemptions; make test-exhaustive, every order.
test test-all: export LOOM_MAX_PREEMPTIONS := 3
# The benchmarks' and scripts' own tests too, which do not test the package.
ALL_TESTS := --durations=20 --override-ini="testpaths=tests benchmarks/tests scripts/tests"
test-all: SELECTED := $(ALL_TESTS) -m "not exhaustive"
test-exhaustive: SELECTED := $(ALL_TESTS)
# Property tests try all their examples, not a fifth.
test-exhaustive: export PENSTOCK_THOROUGH := 1
# Pixels on other processors.
test-all test-exhaustive: PROCESSORS := scripts/test_processors
test-all: docs
# The native module comes last, as above.
TESTS := test test-all test-exhaustive
test: $(READY)-test
test-all test-exhaustive: $(READY)-test-all
$(TESTS): $(READY)-native
# Compiled modules are kept, whatever the caller's environment says: the tests start hundreds of interpreters, and pytest
# rewrites each of their modules.
$(TESTS): export PYTHONDONTWRITEBYTECODE :=
# Without features the core's sums wrap, as in a release. Its settings alone differ, so that what it uses is compiled already.
AS_IN_RELEASE := $(patsubst %,--config profile.dev.package.penstock-core.%=false,overflow-checks debug-assertions)
# Loom's build is another program: in a folder of its own, neither throws away what the other has compiled.
$(TESTS):
	$(IN_VENV) cargo test --quiet --workspace --exclude penstock-python --exclude penstock-benches --all-features
	cargo test --quiet --package penstock-core --package penstock-pipeline --no-default-features --lib $(AS_IN_RELEASE)
	RUSTFLAGS="$$RUSTFLAGS --cfg loom" cargo test --quiet --package penstock-core --package penstock-frames --profile loom --lib --target-dir target/loom
	$(IN_VENV) python -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(SELECTED) $(ARGS)
	$(PROCESSORS)

# The crates that are for Windows whole; of the core, the Reader and the Writer are.
ON_WINDOWS := penstock-cpu penstock-pixels
# Of the slow tests: the pages that people begin with, and a render whose driver was killed.
SLOW_ON_WINDOWS = first-video or read-change-write or simulation or stream-assets or driver
test-windows: $(READY)-build
	@$(IN_VENV) python -m scripts.windows.kit
	scripts/windows/cargo test --quiet --package penstock-core --lib --test=all $(ARGS)
	scripts/windows/cargo test --quiet $(ON_WINDOWS:%=--package %) $(ARGS)
	scripts/windows/cargo test --quiet --package penstock-frames --package penstock-pipeline --lib $(ARGS)
	scripts/windows/cargo build --quiet --package penstock-python
	cp target/windows/x86_64-pc-windows-gnu/debug/_native.dll python/penstock/_native.pyd
	scripts/windows/python -m pytest -q -p scripts.windows.functions --numprocesses=$(WORKERS) --dist=worksteal -m "not slow" tests
	scripts/windows/python -m pytest -q tests/house/test_docs.py tests/render/test_render_faults.py -k "$(SLOW_ON_WINDOWS)"

soak: $(READY)-test $(READY)-native
	@$(IN_VENV) python tests/soak $(ARGS)

# A folder of its own, for everything is compiled anew. Without the tests of the examples, which start cargo themselves, and those
# that limit the memory, which the sanitizer needs itself.
# ARGS are those of the tests: ARGS="relay::"
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
SANITIZED_CRATES := penstock-core penstock-cpu penstock-frames penstock-pipeline
# Guessed: 16 examples of each property, for Miri is some hundred times slower.
sanitize:
	@scripts/setup sanitize
	RUSTFLAGS="$$RUSTFLAGS -Zsanitizer=address" ASAN_OPTIONS="detect_leaks=1:$$ASAN_OPTIONS" \
		CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo +nightly test --quiet $(SANITIZED_CRATES:%=--package %) \
		--lib --test=all --target $(HOST) --target-dir target/sanitize -- --skip examples:: --skip take_neither_memory $(ARGS)
	PROPTEST_CASES=16 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test --quiet \
		--package penstock-core --package penstock-frames --lib --target-dir target/miri -- \
		memory:: sync:: float_frame:: parts:: strided:: $(ARGS)

# Each target for so many seconds. libdeflate has a constant of one name in several files, which is no fault.
SECONDS_EACH ?= 60
FUZZED := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
fuzz: $(READY)-test $(READY)-native
	@scripts/setup fuzz
	for target in $(FUZZED); do \
		mkdir -p target/fuzz-corpus/$$target && \
		ASAN_OPTIONS="detect_odr_violation=0:$$ASAN_OPTIONS" \
		PATH="$(CURDIR)/target/cargo-tools/bin:$$PATH" cargo +nightly fuzz run --target-dir target/fuzz $$target \
			target/fuzz-corpus/$$target -- -max_total_time=$(SECONDS_EACH) -rss_limit_mb=4096 -timeout=30 \
			-print_final_stats=1 $(ARGS) || exit 1; \
	done
	PENSTOCK_FUZZ_S=$(SECONDS_EACH) $(IN_VENV) python -m pytest -q tests/decode/test_hostile_words.py

findings:
	@scripts/run_findings $(ARGS)

corpus: $(READY)-test $(READY)-native
	@$(IN_VENV) python -m scripts.corpus $(FOLDER)

# Against glibc 2.17 by zig, whatever the system's is, and for TARGET, whatever the processor is.
wheel: TARGET = $(HOST)
wheel: WHEEL = dist/*_$(firstword $(subst -, ,$(TARGET))).whl
wheel: $(READY)-wheel
	rm -f $(WHEEL)
	$(IN_VENV) python scripts/licenses.py target/licenses/THIRD-PARTY.txt $(TARGET)
	$(IN_VENV) maturin build --release --zig --compatibility manylinux_2_17 --target $(TARGET) --out dist
	$(IN_VENV) scripts/check_wheel $(WHEEL)

# For Windows, by the kit's Rust and MinGW.
WINDOWS_LINKS = $(patsubst %,build/windows/rust/usr/share/doc/%/copyright,libstd-rust-web-dev mingw-w64-x86-64-dev gcc-mingw-w64-base)
wheel-windows: WHEEL = dist/*-win_amd64.whl
wheel-windows: $(READY)-wheel
	@$(IN_VENV) python -m scripts.windows.kit
	rm -f $(WHEEL)
	$(IN_VENV) python scripts/licenses.py target/licenses/THIRD-PARTY.txt x86_64-pc-windows-gnu $(WINDOWS_LINKS)
	$(IN_VENV) scripts/windows/with_rust maturin build --release --target x86_64-pc-windows-gnu --out dist
	$(IN_VENV) python -m scripts.windows.check_wheel $(WHEEL)

release-check: $(READY)-release
	@$(IN_VENV) python -m scripts.release_check $(ARGS)

AARCH64 := aarch64-unknown-linux-gnu
CRATES_WITHOUT_C := penstock-core penstock-cpu penstock-frames penstock-pixels
check: $(READY)-check $(READY)-native
	cargo fmt --all --check
	$(IN_VENV) cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(IN_VENV) cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	for codec in "" deflate lz4 zstd; do \
		cargo clippy --quiet --package penstock-pipeline --no-default-features --features "$$codec" -- -D warnings || exit 1; \
	done
	@# The numbers of system calls differ. Where release-check has added that standard library; no C compiler is needed.
	if test -d "$$(rustc --print sysroot)/lib/rustlib/$(AARCH64)"; then \
		cargo check --quiet $(CRATES_WITHOUT_C:%=--package %) --all-features --target $(AARCH64); \
	fi
	RUSTDOCFLAGS="-D warnings" $(IN_VENV) cargo doc --quiet --workspace --all-features --no-deps --document-private-items
	RUSTDOCFLAGS="-D warnings" $(IN_VENV) cargo doc --quiet --workspace --all-features --no-deps --exclude penstock-python
	$(IN_VENV) ruff check .
	$(IN_VENV) ruff format --check .
	$(IN_VENV) mypy
	$(IN_VENV) python scripts/check_imports.py
	$(IN_VENV) python -m scripts.check_platform
	$(IN_VENV) python scripts/check_voice.py
	$(IN_VENV) python scripts/stubtest.py
	$(IN_VENV) python scripts/stub_docs.py --check
	$(IN_VENV) python scripts/arguments.py --check
	$(IN_VENV) python scripts/reference_table.py --check
	$(IN_VENV) python scripts/formats_table.py --check
	@# Last, for its last line says what could not be checked.
	@scripts/check_systems

# Apart from check, for Go is needed: actionlint's package for Python downloads it from GitHub, and does not build without.
check-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml

fmt: $(READY)-check $(READY)-native
	cargo fmt --all
	$(IN_VENV) python scripts/stub_docs.py
	$(IN_VENV) python scripts/arguments.py
	$(IN_VENV) python scripts/reference_table.py
	$(IN_VENV) python scripts/formats_table.py
	$(IN_VENV) ruff check --fix .
	$(IN_VENV) ruff format .

clean:
	rm -rf $(VENV) target build dist __pycache__ .cache docs/benchmarks.md docs/pictures/silk.webp docs/rust .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find benchmarks python tests examples scripts -name __pycache__ -prune -exec rm -rf {} +
	find python -name '*.so' -delete
