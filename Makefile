# `make` checks for what a build needs, then builds. README.md lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: check build test lint bench demo clean

CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
CARGO ?= cargo

check:
	@tests/prerequisites.sh

build: check
	$(CARGO) build --release --locked --workspace
	python3 duckdb-ext/package.py "$(CARGO_TARGET_DIR)/release/libloom_duckdb.so" dist

test: build .venv/complete
	$(CARGO) test --release --locked --workspace --no-fail-fast

lint: check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --release --locked --package loom-tests --test style --test dependencies

bench: build .venv/complete
	"$(CARGO_TARGET_DIR)/release/bench"

demo:
	@[ -e "$(CARGO_TARGET_DIR)/release/ingestd" ] || echo "The first build takes five to ten minutes on two cores."
	@$(MAKE) --no-print-directory build .venv/complete
	.venv/bin/python tests/demo.py "$(CARGO_TARGET_DIR)/release/ingestd"

clean:
	$(CARGO) clean
	rm -rf dist .venv

.venv/complete: tests/requirements.txt
	@tests/prerequisites.sh
	python3 -m venv --clear .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
	@touch $@
