#!/usr/bin/env bash
# Serves a Loom directory by Quack until it is stopped: sql/serve.sh DIR PORT TOKEN_FILE LOAD_FILE
#
# LOAD_FILE holds the LOADs of loom, httpfs and quack. DUCKDB names the command line to use, if it is not `duckdb`. It listens on
# loopback; sql/README.md, Many hosts, says how other machines reach it.
set -euo pipefail
here=$(dirname "$0")

stop() {
    echo "serve: $1" >&2
    exit 1
}

[ $# = 4 ] || stop "usage: serve.sh DIR PORT TOKEN_FILE LOAD_FILE"
duckdb=${DUCKDB:-duckdb}
command -v "$duckdb" >/dev/null || stop "cannot find the DuckDB command line '$duckdb'; install it, or set DUCKDB to its path"
export LOOM_DIR=$1 LOOM_LISTEN=quack:localhost:$2 LOOM_TOKEN_FILE=$3

# Quack lets a second server listen on the port, and each would get a part of the questions.
if (exec 3<>"/dev/tcp/localhost/$2") 2>/dev/null; then
    stop "cannot serve $1: another program listens on port $2; stop it, or choose another port"
fi

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat "$4" "$here/host.sql" | "$duckdb" -unsigned -bail "$place/host.duckdb"
# The server's standard input stays open as long as this script lives, so it ends with the script, however that ends.
exec {input}> >(exec "$duckdb" -unsigned -bail -readonly "$place/host.duckdb")
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$place"' EXIT
trap 'exit 0' TERM INT
cat "$4" "$here/serve.sql" >&"$input"
wait "$server"
