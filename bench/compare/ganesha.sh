#!/usr/bin/env bash
# Compare with NFS-Ganesha (VFS) and with a server on the nfsserve crate, over TCP on this machine, with the
# same userspace client and the same directory, round by round.
# usage: ganesha.sh RESULTS_DIRECTORY
#   ROUNDS           default 5
#   SECONDS_PER_RUN  default 4
#   DATA             directory to serve (default: a new one in /var/tmp)
#   PROFILE          cargo profile of what is built here (default release)
# Needs root: Debian's nfs-ganesha and nfs-ganesha-vfs are installed when they are missing, and Ganesha's VFS
# wants file handles. Prints ratios ours/other as JSON, and leaves them in RESULTS_DIRECTORY/ganesha.json with
# the full reports of the client beside it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=$(mkdir -p "$1" && cd "$1" && pwd)
rounds=${ROUNDS:-5} seconds=${SECONDS_PER_RUN:-4} profile=${PROFILE:-release}
folder=$profile
if [ "$profile" = dev ]; then folder=debug; fi
data=${DATA:-$(mktemp -d /var/tmp/aqueduct-compare.XXXXXX)}
port_ours=12049 port_nfsserve=12050 port_ganesha=12051 port_ganesha_mount=12052
reports=$results/ganesha.reports.jsonl raw=$results/ganesha.raw.jsonl
pids=()

policy=/usr/sbin/policy-rc.d policy_kept= policy_ours=

# Services are not started when they are installed, until `services_as_before`. A policy that is there already is set aside.
services_stay_down() {
    if [ -e "$policy" ] || [ -L "$policy" ]; then
        policy_kept=$(mktemp -d "$policy.XXXXXX")
        mv "$policy" "$policy_kept/policy"
    fi
    policy_ours=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

services_as_before() {
    if [ -n "$policy_ours" ]; then rm -f "$policy"; fi
    if [ -n "$policy_kept" ]; then mv "$policy_kept/policy" "$policy" && rmdir "$policy_kept"; fi
    policy_ours= policy_kept=
}

cleanup() {
    services_as_before
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    if [ -z "${DATA:-}" ]; then rm -rf "$data"; fi
}
trap cleanup EXIT

# The package would start its own service; ours is a process of this script.
if ! command -v ganesha.nfsd >/dev/null; then
    services_stay_down
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
        nfs-ganesha nfs-ganesha-vfs >&2
    services_as_before
fi

cd "$here/../.."
cargo build --quiet --profile "$profile" -p aqueduct-gateway -p aqueduct-bench --bins --examples
bin=${CARGO_TARGET_DIR:-target}/$folder

wait_for() { # PORT LOG
    for _ in $(seq 200); do
        if [ -n "$(ss -Hltn "sport = :$1")" ]; then return; fi
        sleep 0.1
    done
    cat "$2" >&2
    echo "ganesha.sh: nobody listens on port $1" >&2
    exit 1
}

"$bin/aqueduct" serve --export "/data=$data" --squash none --tcp "127.0.0.1:$port_ours" --rdma off --portmap off \
    --state-dir "$results/state" >"$results/aqueduct.log" 2>&1 &
pids+=($!)
wait_for $port_ours "$results/aqueduct.log"

"$bin/examples/nfsserve_dir" "127.0.0.1:$port_nfsserve" "$data" >"$results/nfsserve.log" 2>&1 &
pids+=($!)
wait_for $port_nfsserve "$results/nfsserve.log"

cat >"$results/ganesha.conf" <<T
NFS_CORE_PARAM {
    Protocols = 3; NFS_Port = $port_ganesha; MNT_Port = $port_ganesha_mount; NLM_Port = 0; Rquota_Port = 0;
    Enable_NLM = false; Enable_RQUOTA = false; Bind_addr = 127.0.0.1;
}
EXPORT {
    Export_Id = 1; Path = $data; Pseudo = /data; Protocols = 3; Transports = TCP; SecType = sys, none;
    Access_Type = RW; Squash = No_Root_Squash; Disable_ACL = true;
    FSAL { Name = VFS; }
}
T
# Ganesha wants to register with rpcbind and gives up without one.
if ! pgrep -x rpcbind >/dev/null && command -v rpcbind >/dev/null; then rpcbind -w; fi
mkdir -p /var/run/ganesha /var/lib/nfs/ganesha
ganesha.nfsd -F -f "$results/ganesha.conf" -L "$results/ganesha.log" -p "$results/ganesha.pid" -N EVENT &
pids+=($!)
wait_for $port_ganesha "$results/ganesha.log"

: >"$reports"
: >"$raw"
load() { # SERVER CASE ROUND ARGS...
    local who=$1 name=$2 round=$3 line
    shift 3
    local where
    case $who in
        aqueduct) where=(--target "tcp:127.0.0.1:$port_ours" --export /data) ;;
        nfsserve) where=(--target "tcp:127.0.0.1:$port_nfsserve" --export /) ;;
        ganesha) where=(--target "tcp:127.0.0.1:$port_ganesha" --export "$data" --mount-port $port_ganesha_mount) ;;
    esac
    line=$("$bin/aqueduct-bench" load "${where[@]}" --file-size 256MiB --seconds "$seconds" "$@")
    printf '%s\n' "$line" >>"$reports"
    python3 -c '
import json, sys
report = json.loads(sys.argv[1])
row = {"case": sys.argv[2], "server": sys.argv[3], "round": int(sys.argv[4]), "value": report["ops_per_second"]}
print(json.dumps(row))' "$line" "$name" "$who" "$round" | tee -a "$raw" >&2
}

servers=(aqueduct nfsserve ganesha)
for round in $(seq "$rounds"); do
    # Who goes first changes from round to round, so that a drift of the machine favours nobody.
    order=()
    for i in 0 1 2; do order+=("${servers[$(((i + round) % 3))]}"); done
    for who in "${order[@]}"; do load "$who" getattr-qd32 "$round" --op getattr --depth 32; done
    for who in "${order[@]}"; do load "$who" randread-4k-qd1 "$round" --op read --size 4KiB --depth 1 --random; done
    for who in "${order[@]}"; do load "$who" randread-4k-qd32 "$round" --op read --size 4KiB --depth 32 --random; done
    for who in "${order[@]}"; do load "$who" randwrite-4k-qd32 "$round" --op write --size 4KiB --depth 32 --random; done
    for who in "${order[@]}"; do load "$who" seqread-1M-qd8 "$round" --op read --size 1MiB --depth 8; done
    # The client's copy of the data bounds the fastest server there; here the system throws the data away.
    for who in "${order[@]}"; do load "$who" seqread-1M-qd8-discarded "$round" --op read --size 1MiB --depth 8 --discard; done
    for who in "${order[@]}"; do load "$who" seqwrite-1M-qd8 "$round" --op write --size 1MiB --depth 8; done
done
python3 "$here/paired.py" aqueduct <"$raw" | tee "$results/ganesha.json"
