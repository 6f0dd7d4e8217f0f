#!/usr/bin/env bash
# Reports in one sentence what this machine is missing for a build or, with the word `tests`, for a test run, and what to install. Changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
    echo "make: $1" >&2
    exit 1
}

declared=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
disk_gib_min=6

[ "$(uname -s)" = Linux ] || stop "Loom builds on Linux only; this is $(uname -s)."
case "$(uname -m)" in
x86_64 | aarch64) ;;
*) stop "Loom builds on x86-64 and AArch64 only; this is $(uname -m)." ;;
esac

command -v cc >/dev/null || stop "no C compiler (cc); install gcc (Debian, Ubuntu: build-essential)."
if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    stop "no Rust toolchain; install rustup from https://rustup.rs, which then fetches Rust $declared by itself."
fi
found=$(rustc --version | cut -d' ' -f2)
oldest=$(printf '%s\n%s\n' "$declared" "${found%%-*}" | sort -V | head -n 1)
[ "$oldest" = "$declared" ] || stop "rustc $found is older than $declared; install rustup from https://rustup.rs, or run 'rustup update'."

command -v python3 >/dev/null || stop "no python3; install Python 3.11 or later (Debian, Ubuntu: python3)."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "$(python3 --version) is older than 3.11, which the DuckDB packages need; install a later one."
python3 -c 'import venv, ensurepip' 2>/dev/null ||
    stop "this Python has no venv module; install it (Debian, Ubuntu: python3-venv)."

target=${CARGO_TARGET_DIR:-$PWD/target}
disk=$target
while [ ! -d "$disk" ]; do disk=$(dirname "$disk"); done
free_gib=$(($(df --output=avail -k "$disk" | tail -n 1) / 1048576))
if [ ! -d "$target/release" ] && [ "$free_gib" -lt "$disk_gib_min" ]; then
    stop "$free_gib GiB are free at $disk and a build with its tests needs $disk_gib_min GiB; free some, or set CARGO_TARGET_DIR to another disk."
fi

# A daemon makes room when less than a twentieth of its disk is free, and the tests' daemons write to this one.
place=${TMPDIR:-/tmp}
read -r size free < <(df --output=size,avail -k "$place" | tail -n 1)
if [ "${1:-}" = tests ] && [ $((free * 100)) -lt $((size * 5)) ]; then
    stop "$((free / 1048576)) GiB are free at $place and the tests need 5 % of the disk; free some, or set TMPDIR to a folder of another disk."
fi
