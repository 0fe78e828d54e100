#!/usr/bin/env bash
# Instructions per RPC of the whole server over the soft fabric, client included and lanes by themselves.
# Two runs that differ only in their number of calls: the difference is what the calls cost.
# usage: bench/callgrind.sh [OP [SIZE]]      (default: read 4KiB)
# Needs valgrind. Prints one line of JSON.
set -euo pipefail
cd "$(dirname "$0")/.."
op=${1:-read} size=${2:-4KiB}
few=2000 many=6000
profile=${PROFILE:-vm}
folder=$profile
if [ "$profile" = dev ]; then folder=debug; fi
cargo build --quiet --profile "$profile" -p aqueduct-bench --bin aqueduct-bench --no-default-features
binary=${CARGO_TARGET_DIR:-target}/$folder/aqueduct-bench
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

run() { # CALLS: prints instructions of all threads and of the lanes
    valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file="$out/$1" \
        "$binary" soft --op "$op" --size "$size" --file-size 8MiB --random --depth 32 --calls "$1" \
        >"$out/report.$1" 2>"$out/log.$1" || { cat "$out/log.$1" "$out/report.$1" >&2; exit 1; }
    # One file for each thread. The lane is the one in which the lane's loop ran.
    local all=0 lane=0 file instructions
    for file in "$out/$1"-*; do
        instructions=$(sed -n 's/^\(totals\|summary\): *\([0-9]*\).*/\2/p' "$file" | tail -1)
        all=$((all + ${instructions:-0}))
        if grep -q 'driver::lane::Reactor' "$file"; then lane=$((lane + ${instructions:-0})); fi
    done
    echo "$all $lane"
}

counts=$(run $few)
read -r all_few lane_few <<<"$counts"
counts=$(run $many)
read -r all_many lane_many <<<"$counts"
if [ "$lane_many" -le "$lane_few" ]; then
    echo "callgrind.sh: no thread with the lane's loop was found" >&2
    exit 1
fi
calls=$((many - few))
printf '{"op":"%s","size":"%s","calls":%d,"instructions_per_rpc":%d,"lane_instructions_per_rpc":%d}\n' \
    "$op" "$size" "$calls" $(((all_many - all_few) / calls)) $(((lane_many - lane_few) / calls))
