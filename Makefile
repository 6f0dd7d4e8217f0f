# `make` checks for what a build needs, then builds. engine/CONTRIBUTING.md lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: check check-duckdb build compile test test-clients test-beside test-cases test-dashboards test-fleet test-otlp test-wheel test-arm test-arm-packages test-without-avx2 test-versions environments downloads arm-downloads docs package package-test release release-check wheel probes fuzz lint check-elsewhere deny bench bench-cases bench-live bench-page demo clean

CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
CARGO ?= cargo
# ARCH=x86_64 or ARCH=aarch64: `build`, `wheel` and `package` are for that processor and every Linux with glibc 2.28 or later, in a folder of their own.
ifdef ARCH
$(if $(filter x86_64 aarch64,$(ARCH)),,$(error no packages for ARCH=$(ARCH); give x86_64 or aarch64))
export ARCH
TARGET := $(ARCH)-unknown-linux-gnu
PROGRAMS := $(CARGO_TARGET_DIR)/$(TARGET)/release
DIST := dist/$(ARCH)
PLATFORM := manylinux_2_28_$(ARCH)
else
PROGRAMS := $(CARGO_TARGET_DIR)/release
DIST := dist
PLATFORM := linux_$(shell uname -m)
endif
INGESTD ?= $(PROGRAMS)/ingestd
EXTENSIONS := $(patsubst %,$(DIST)/%/loom.duckdb_extension,$(shell python3 duckdb-ext/versions.py folders))
# The requirements of the tests' environments name it.
export DUCKDB := $(shell python3 duckdb-ext/versions.py newest)
EARLIER := $(shell python3 duckdb-ext/versions.py earlier)
WHEEL := $(DIST)/loom_duckdb-$(shell python3 duckdb-ext/versions.py loom)-py3-none-$(PLATFORM).whl

check:
	@tests/prerequisites.sh

build: check $(if $(ARCH),.zig-venv/complete)
ifdef ARCH
	@command -v rustup >/dev/null || { echo "make: no rustup, which has Rust's library for $(TARGET); install it from https://rustup.rs." >&2; exit 1; }
	rustup --quiet target add $(TARGET)
# Zig links with the symbols of that glibc. Its part of the debug information names the folder of Zig, which may be anywhere.
	PATH="$(abspath .zig-venv/bin):$$PATH" CARGO_PROFILE_RELEASE_STRIP=$(or $(CARGO_PROFILE_RELEASE_STRIP),debuginfo) \
		cargo-zigbuild zigbuild --release --locked --target $(TARGET).2.28 -p ingestd -p loom-client-c -p loom-duckdb
else
	$(CARGO) build --release --locked --workspace
endif
	python3 duckdb-ext/package.py "$(PROGRAMS)/libloom_duckdb.so" $(DIST)

# Most tests wait for daemons and disks more than they compute.
test: export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc))
test: build .venv/complete
	@tests/prerequisites.sh tests
	$(CARGO) test --release --locked --workspace --no-fail-fast
	$(CARGO) test --release --locked --manifest-path engine/model/Cargo.toml

# What `test` and `fuzz` run, for CI to compile while it installs what they use.
compile: build
	$(CARGO) test --release --locked --workspace --no-run
	$(CARGO) test --release --locked --manifest-path engine/model/Cargo.toml --no-run
	engine/fuzz/run compile

# The Python package, with the extension files and the explorer's page; `make build` first makes the files that are missing.
wheel: .clients-venv/complete $(EXTENSIONS) duckdb-ext/python/page/node_modules/.package-lock.json
	cd duckdb-ext/python/page && npm run --silent build
	cd duckdb-ext/python && ../../.clients-venv/bin/hatchling build --target wheel --directory ../../$(DIST)

$(EXTENSIONS) &:
	$(MAKE) --no-print-directory build

# The wheel of now, in an environment.
.clients-venv/wheel .clients-venv-v1/wheel .superset-venv/wheel .fleet-venv/wheel: %/wheel: wheel %/complete
	$*/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(WHEEL)

# The pages as a site with search.
docs: .clients-venv/complete
	python3 ingestd/packaging/book.py .clients-venv/bin/mdbook dist/html

# The Debian package and the tarball, beside the wheel. INGESTD: another daemon than the release build. LOOM_SIGNING_KEY: the key that
# signs the extension; see ingestd/docs/install.md.
package: wheel docs
	python3 ingestd/packaging/package.py "$(INGESTD)" $(DIST)

# All files of a release, and those for AArch64 if Zig is installed (`make .zig-venv/complete`). A commit has the same bytes wherever it is
# built with the same tools: compilers and packers see no path and no time of the build, and programs have no symbols, because LLVM names some
# of them by a hash that differs from build to build. LOOM_SIGNING_KEY: as for `package`.
BUILT_IN := $(CURDIR)=/loom $(CARGO_TARGET_DIR)=/target $(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: export RUSTFLAGS = $(BUILT_IN:%=--remap-path-prefix=%)
release: export CFLAGS = $(BUILT_IN:%=-ffile-prefix-map=%)
release: export CXXFLAGS = $(CFLAGS)
release: export CARGO_PROFILE_RELEASE_STRIP = symbols
release:
	@[ -z "$$(git status --porcelain --untracked-files=no)" ] || { echo "make: a release is built from a commit; commit the changes first." >&2; exit 1; }
	rm -rf dist
	$(MAKE) build
	$(MAKE) package
	$(if $(wildcard .zig-venv/complete),$(MAKE) build ARCH=aarch64 && $(MAKE) package ARCH=aarch64)

# Whether two clones of the commit in different folders give the same release: half an hour on two cores.
release-check:
	python3 ingestd/packaging/reproduce.py

# A key of the tests signs if there is no other.
TEST_KEY := $(CARGO_TARGET_DIR)/test-signing-key.pem
package-test test-arm-packages: export LOOM_SIGNING_KEY := $(abspath $(or $(LOOM_SIGNING_KEY),$(TEST_KEY)))
$(TEST_KEY):
	mkdir -p $(@D)
	openssl genrsa -out "$@" 2048

# Each package in a place that holds nothing else.
package-test: wheel docs .venv/complete .fleet-venv/complete $(TEST_KEY)
	python3 ingestd/packaging/package.py "$(INGESTD)" dist
	.clients-venv/bin/ruff check ingestd/packaging
	.clients-venv/bin/ruff format --check ingestd/packaging
	INGESTD="$(abspath $(INGESTD))" .clients-venv/bin/python -m pytest -c duckdb-ext/python/pyproject.toml ingestd/packaging/tests

# First what loads the whole machine, then the others, two at a time, each with its output in one piece.
test-clients: test-cases
	$(MAKE) --no-print-directory --jobs 2 --output-sync test-beside

# The longest first.
test-beside: test-fleet test-dashboards test-wheel package-test test-otlp

# The wheel in environments of its own, with the newest DuckDB 2 and 1. INGESTD: another daemon than the release build.
test-wheel: .clients-venv/wheel .clients-venv-v1/wheel
	.clients-venv/bin/ruff check duckdb-ext/python
	.clients-venv/bin/ruff format --check duckdb-ext/python
	INGESTD="$(INGESTD)" .clients-venv-v1/bin/python -m pytest duckdb-ext/python/tests/test_wheel.py duckdb-ext/python/tests/test_guard.py
	INGESTD="$(INGESTD)" .clients-venv/bin/python -m pytest duckdb-ext/python/tests

# The eBPF programs' objects, which are kept beside their sources; needs clang, llvm-strip and libbpf's headers.
probes:
	@for program in clang llvm-strip; do \
		command -v $$program >/dev/null || { echo "make: no $$program; install clang, llvm and libbpf-dev." >&2; exit 1; }; \
	done
	ingestd/probes/build

# The corpus, then each fuzz target for 15 seconds; `make fuzz SECONDS=3600 TARGETS='bytes duckdb'` for longer, or some.
fuzz: check .venv/complete
	engine/fuzz/run $(or $(SECONDS),15) $(TARGETS)

lint: check
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path engine/model/Cargo.toml --check
	$(CARGO) fmt --all --manifest-path engine/fuzz/Cargo.toml --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --release --locked --manifest-path engine/model/Cargo.toml --tests -- -D warnings
	$(CARGO) clippy --release --locked --manifest-path engine/fuzz/Cargo.toml --bins --examples --tests -- -D warnings
	$(CARGO) test --release --locked --workspace --test repository

# What reads off Linux, for macOS and Windows, as far as a check goes. Zig has the C headers of both.
check-elsewhere: .zig-venv/complete
	@for target in aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-gnu; do \
		rustup --quiet target add $$target && PATH="$(abspath .zig-venv/bin):$$PATH" \
			cargo-zigbuild clippy --release --locked -p loom-duckdb --target $$target -- -D warnings || exit 1; \
	done

# Whether PyPI has a release of DuckDB that Loom has no file for.
check-duckdb:
	@python3 duckdb-ext/versions.py check

# What may be depended on. `make deny CHECKS=advisories` asks the database of known flaws, where it can be reached.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "make: no cargo-deny; run 'cargo install cargo-deny --locked'." >&2; exit 1; }
	@for manifest in Cargo.toml engine/model/Cargo.toml engine/fuzz/Cargo.toml; do \
		$(CARGO) deny --locked --manifest-path $$manifest --config deny.toml check $(or $(CHECKS),licenses bans sources) || exit 1; \
	done

# Superset, Grafana's SQL, Streamlit, notebooks, Java, Node.js and Go on a live directory: a part of test-clients.
test-dashboards: .clients-venv/wheel .superset-venv/wheel
	.clients-venv/bin/ruff check sql/dashboards
	.clients-venv/bin/ruff format --check sql/dashboards
	INGESTD="$(INGESTD)" .clients-venv/bin/python -m pytest sql/dashboards

# A fleet, with DuckDB 1.5.5, the latest that Quack has a build for; and Spark: a part of test-clients.
test-fleet: .clients-venv/complete .fleet-venv/wheel
	.clients-venv/bin/ruff check tests/fleet
	.clients-venv/bin/ruff format --check tests/fleet
	INGESTD="$(INGESTD)" .fleet-venv/bin/python -m pytest tests/fleet

# OpenTelemetry's SDKs, its telemetrygen and a Collector send over gRPC and HTTP: a part of test-clients.
test-otlp: $(EXTENSIONS) .clients-venv/complete tests/otlp/node/node_modules/.package-lock.json
	@command -v go >/dev/null || { echo "make: no go; install Go 1.25 or later (Debian, Ubuntu: golang-go)." >&2; exit 1; }
	.clients-venv/bin/ruff check tests/otlp
	.clients-venv/bin/ruff format --check tests/otlp
	cd tests/otlp/go && go build -o "$(CARGO_TARGET_DIR)/otlp/" ./collector tool
	INGESTD="$(abspath $(INGESTD))" OTLP_SENDERS="$(CARGO_TARGET_DIR)/otlp" .clients-venv/bin/python -m pytest tests/otlp

# Redis, RocksDB and a processor that is taken away, recorded live and looked at in the explorer, as root: a part of test-clients.
test-cases: $(EXTENSIONS) .venv/complete .clients-venv/wheel
	.clients-venv/bin/ruff check tests/cases
	.clients-venv/bin/ruff format --check tests/cases
	INGESTD="$(INGESTD)" .venv/bin/python tests/cases/redis/run.py
	INGESTD="$(INGESTD)" .venv/bin/python tests/cases/rocksdb/run.py
	INGESTD="$(INGESTD)" .venv/bin/python tests/cases/offcpu/run.py

# The codecs and schemas on a processor without AVX2: Intel's of 2008.
test-without-avx2: check
	@command -v qemu-x86_64 >/dev/null || { echo "make: no qemu-x86_64; install qemu-user (Debian, Ubuntu)." >&2; exit 1; }
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="qemu-x86_64 -cpu Nehalem" \
		$(CARGO) test --release --locked --workspace --lib --quiet -- format:: schema:: --skip is_read_in_time

# Unit tests and the programs for AArch64, under QEMU.
test-arm: $(EXTENSIONS) .clients-venv/complete
	.clients-venv/bin/ruff check tests/arm
	.clients-venv/bin/ruff format --check tests/arm
	CARGO="$(CARGO)" tests/arm/run

# The packages for AArch64, under QEMU.
test-arm-packages: $(EXTENSIONS) .clients-venv/complete $(TEST_KEY)
	$(MAKE) build ARCH=aarch64
	$(MAKE) package ARCH=aarch64
	CARGO="$(CARGO)" tests/arm/run packages

# This release together with that of the commit OLD, which it builds.
test-versions: .clients-venv/complete
	.clients-venv/bin/ruff check tests/versions
	.clients-venv/bin/ruff format --check tests/versions
	OLD="$(OLD)" CARGO="$(CARGO)" tests/versions/run

.bench-venv/complete .clients-venv/complete .superset-venv/complete .fleet-venv/complete .zig-venv/complete: .%-venv/complete: tests/%-requirements.txt duckdb-ext/versions.toml
	@tests/prerequisites.sh
	python3 -m venv --clear .$*-venv
	.$*-venv/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement $<
	@touch $@

# Small by default, within three minutes on a quiet machine; `make bench FULL=1` takes far longer and keeps its table in the repository.
# OPTIONS: see `bench --help`.
bench: build .bench-venv/complete .clients-venv-v1/complete
	"$(CARGO_TARGET_DIR)/release/bench" $(if $(FULL),--full --out tests/BENCHMARKS.md) $(OPTIONS)

# Two minutes at 8 M records a second, with queries: 60 GB of disk, or less with OPTIONS='--seconds 30 --rate 2000000'.
bench-live: build .bench-venv/complete
	"$(CARGO_TARGET_DIR)/release/bench" --only lookback $(OPTIONS)

# What recording costs Redis, RocksDB and a switch of threads, and the rate up to which each recorder has all: 30 minutes on a quiet machine, as root.
bench-cases: build .venv/complete
	.venv/bin/python tests/cases/probe_effect.py $(OPTIONS)
	.venv/bin/python tests/cases/completeness.py
	.venv/bin/python tests/cases/completeness.py --threads 4
	.venv/bin/python tests/cases/switches.py

# How fast the explorer's page is while a million records a second arrive: two minutes, 8 GB of disk.
bench-page: build .clients-venv/wheel
	.clients-venv/bin/ruff check --config tests/cases/pyproject.toml tests/page_speed.py
	INGESTD="$(INGESTD)" .clients-venv/bin/python tests/page_speed.py $(OPTIONS)

demo:
	@[ -e "$(CARGO_TARGET_DIR)/release/ingestd" ] || echo "The first build takes five to ten minutes on two cores."
	@$(MAKE) --no-print-directory build .venv/complete
	.venv/bin/python tests/demo.py "$(CARGO_TARGET_DIR)/release/ingestd"

clean:
	$(CARGO) clean
	rm -rf dist .venv .bench-venv .clients-venv .clients-venv-v1 .superset-venv .fleet-venv .zig-venv

# What a package in JavaScript depends on.
%/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { echo "make: no npm; install Node.js 18 or later with npm (Debian, Ubuntu: nodejs npm)." >&2; exit 1; }
	cd $* && npm ci --no-audit --no-fund --ignore-scripts --loglevel error
	@touch $@

# What the clients' tests download, apart from the environments.
downloads: duckdb-ext/python/page/node_modules/.package-lock.json tests/otlp/node/node_modules/.package-lock.json \
		sql/dashboards/node/node_modules/.package-lock.json
	cd tests/otlp/go && go mod download
	cd sql/dashboards/go && go mod download

# Debian and DuckDB for AArch64, which `test-arm` runs under QEMU.
arm-downloads: .clients-venv/complete
	tests/arm/run download

# The environments of Python that the tests use.
environments: .venv/complete .clients-venv/complete .clients-venv-v1/complete .superset-venv/complete .fleet-venv/complete

# The SQL tests also run the earlier releases of DuckDB 2, each in a folder of its own.
.venv/complete: tests/requirements.txt duckdb-ext/versions.toml
	@tests/prerequisites.sh
	python3 -m venv --clear .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement tests/requirements.txt
	for release in $(EARLIER); do \
		.venv/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps --target .venv/duckdb-$$release duckdb==$$release || exit 1; \
	done
	@touch $@

.clients-venv-v1/complete: tests/clients-v1-requirements.txt
	@tests/prerequisites.sh
	python3 -m venv --clear .clients-venv-v1
	.clients-venv-v1/bin/pip install --quiet --disable-pip-version-check --no-compile --requirement tests/clients-v1-requirements.txt
	@touch $@

