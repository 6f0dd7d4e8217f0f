#!/usr/bin/env bash
# A fleet of three on one machine: sql/fleet_of_three.sh [FOLDER]...
#
# Three daemons record the demonstration's traffic, and each directory is served. One host then gets two hundred slow requests. A fourth
# process, which has no directory, finds the host, the time and the records with sql/fleet_of_three.sql. The folders hold files of the
# extensions loom, httpfs and quack, as for `ingestd serve`; INGESTD and DUCKDB name the programs, PORT is the first of three ports.
set -euo pipefail
here=$(dirname "$0")
ingestd=${INGESTD:-ingestd} duckdb=${DUCKDB:-duckdb} port=${PORT:-9494}
for program in "INGESTD=$ingestd" "DUCKDB=$duckdb"; do
    if ! command -v "${program#*=}" >/dev/null; then
        echo "fleet_of_three: no program '${program#*=}'; set ${program%%=*} to its path" >&2
        exit 1
    fi
done
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$place"' EXIT
(umask 077 && head -c 24 /dev/urandom | base64 >"$place/token")

# Repeats a command until it succeeds, for at most a minute.
await() {
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "fleet_of_three: no success within a minute: $*" >&2
    exit 1
}

has_requests() {
    "$ingestd" status "$1" | grep -q redis_request
}

# A server prints its address once it listens, and the reason if it ends.
serves_or_ended() {
    grep -q " at $1" "$2" || ! kill -0 "$3"
}

# The statement that loads an extension: from a folder that has its file, else from DuckDB's own.
load() {
    local name=$1 folder
    shift
    for folder in "$@"; do
        if [ -e "$folder/$name.duckdb_extension" ]; then
            echo "LOAD '$folder/$name.duckdb_extension';"
            return
        fi
    done
    echo "LOAD $name;"
}

for host in ada bob eve; do
    "$ingestd" demo "$place/$host.loom" --seconds 600 --rate 3000 >/dev/null 2>&1 &
done
for host in ada bob eve; do
    await has_requests "$place/$host.loom"
    "$ingestd" serve "$place/$host.loom" --listen "localhost:$port" --token-file "$place/token" ${DUCKDB:+--duckdb "$DUCKDB"} \
        "${@/#/--extensions=}" 2>"$place/$host.log" &
    await serves_or_ended "quack:localhost:$port" "$place/$host.log" $!
    if ! grep -q " at quack:localhost:$port" "$place/$host.log"; then
        cat "$place/$host.log" >&2
        exit 1
    fi
    echo "CREATE SECRET $host (TYPE quack, TOKEN '$(cat "$place/token")', SCOPE 'quack:localhost:$port');"
    hosts="${hosts:-}${hosts:+, }'$host': 'quack:localhost:$port'"
    port=$((port + 1))
done >"$place/secrets.sql"

# The fault: requests of 80 ms, where an ordinary one takes less than 1 ms.
"$duckdb" -csv -c "SELECT i AS id, 80_000_000 + i AS latency_ns, 0 AS key_hash, 40000 AS client_port, 'GET' AS op, true AS hit,
    60 AS request_bytes, 60 AS response_bytes, 1 AS tid, 'slow' AS key FROM range(200) AS numbers(i)" |
    "$ingestd" load "$place/eve.loom" --source redis_request --format csv - >/dev/null

{
    echo ".mode trash"
    load httpfs "$@"
    load quack "$@"
    cat "$place/secrets.sql"
    echo "SET VARIABLE fleet_hosts = MAP {$hosts};"
    cat "$here/fleet.sql" "$here/fleet_of_three.sql"
} | "$duckdb" -unsigned -bail
