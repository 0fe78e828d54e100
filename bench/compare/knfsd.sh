#!/usr/bin/env bash
# Compare with the kernel's NFS server. To be run as root inside the test machine, where both servers can be
# had: the kernel client mounts each in turn, fio puts the same load on both, round by round.
# usage: knfsd.sh OURS_BINARY RESULTS_DIRECTORY
#   ADDRESS     of the RDMA device (default $VM_ADDR without its prefix length)
#   TRANSPORTS  default "rdma tcp"
#   ROUNDS      default 3
#   SECONDS_PER_RUN  default 5
#   CASES       only those whose name matches this expression, as "4k-qd1$" (default: all)
# Both serve the same directory on the same file system. Prints ratios ours/knfsd as JSON, and leaves them in
# RESULTS_DIRECTORY/knfsd.json with the raw figures beside it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ours=$1 results=$2
address=${ADDRESS:-${VM_ADDR%/*}}
transports=${TRANSPORTS:-rdma tcp} rounds=${ROUNDS:-3} seconds=${SECONDS_PER_RUN:-5}
data=${DATA:-/srv/compare} mount=/mnt/compare
our_rdma=20050 our_tcp=12049 knfsd_rdma=20049
raw=$results/knfsd.raw.jsonl
mkdir -p "$data" "$mount" "$results"
: >"$raw"
server=

cleanup() {
    umount -f -l "$mount" 2>/dev/null || true
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    exportfs -u "*:$data" 2>/dev/null || true
}
trap cleanup EXIT

start_knfsd() {
    modprobe nfsd
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /run/rpc_pipefs /var/lib/nfs
    pgrep -x rpcbind >/dev/null || rpcbind
    exportfs -o rw,sync,no_root_squash,insecure,fsid=1 "*:$data"
    rpc.nfsd 8
    pgrep -x rpc.mountd >/dev/null || rpc.mountd
    case " $transports " in *" rdma "*)
        modprobe svcrdma 2>/dev/null || modprobe rpcrdma
        grep -q "rdma $knfsd_rdma" /proc/fs/nfsd/portlist || echo "rdma $knfsd_rdma" >/proc/fs/nfsd/portlist
    esac
}

start_ours() {
    local rdma=off
    case " $transports " in *" rdma "*) rdma=$address:$our_rdma; esac
    "$ours" serve --export "/compare=$data" --squash none --clients '*' --tcp "0.0.0.0:$our_tcp" --rdma "$rdma" \
        --portmap off --state-dir "$results/state" --io "${IO:-buffered}" >"$results/aqueduct.log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        # It names the mounts when it listens on every transport.
        if grep -q 'mount -t nfs' "$results/aqueduct.log"; then return; fi
        sleep 0.1
    done
    cat "$results/aqueduct.log" >&2
    echo "knfsd.sh: our server did not start" >&2
    exit 1
}

mount_of() { # SERVER TRANSPORT
    local options=vers=3,nolock,hard path=$data
    if [ "$1" = aqueduct ]; then path=/compare; fi
    case "$1.$2" in
        aqueduct.rdma) options+=,proto=rdma,port=$our_rdma,mountproto=tcp,mountport=$our_tcp ;;
        aqueduct.tcp) options+=,proto=tcp,port=$our_tcp,mountproto=tcp,mountport=$our_tcp ;;
        knfsd.rdma) options+=,proto=rdma,port=$knfsd_rdma ;;
        knfsd.tcp) options+=,proto=tcp,port=2049 ;;
    esac
    mount -t nfs -o "$options" "$address:$path" "$mount"
}

# NAME RW SIZE DEPTH; the value is a rate: IOPS for small requests, bytes per second for large ones.
jobs_list='
seqread-1M-qd8 read 1M 8
seqwrite-1M-qd8 write 1M 8
randread-4k-qd1 randread 4k 1
randread-4k-qd32 randread 4k 32
randwrite-4k-qd1 randwrite 4k 1
randwrite-4k-qd32 randwrite 4k 32'

run_fio() { # RW SIZE DEPTH: prints the rate
    fio --name=compare --filename="$mount/compare.dat" --size=64M --direct=1 --ioengine=libaio \
        --rw="$1" --bs="$2" --iodepth="$3" --time_based --runtime="$seconds" --ramp_time=1 \
        --output-format=json --randseed=7 |
        python3 -c '
import json, sys
job = json.load(sys.stdin)["jobs"][0]
side = job["write" if "write" in sys.argv[1] else "read"]
if job["error"]:
    sys.exit("fio reports error %d" % job["error"])
print(side["bw_bytes"] if sys.argv[2] == "1M" else side["iops"])' "$1" "$2"
}

start_knfsd
start_ours
for transport in $transports; do
    for round in $(seq "$rounds"); do
        # Who goes first changes from round to round, so that a drift of the machine favours nobody.
        order='aqueduct knfsd'
        if [ $((round % 2)) = 0 ]; then order='knfsd aqueduct'; fi
        while read -r name rw size depth; do
            if [ -z "$name" ] || ! [[ $name =~ ${CASES:-.} ]]; then continue; fi
            for who in $order; do
                mount_of "$who" "$transport"
                value=$(run_fio "$rw" "$size" "$depth" </dev/null)
                umount "$mount"
                printf '{"case":"%s.%s","server":"%s","round":%d,"value":%s}\n' \
                    "$name" "$transport" "$who" "$round" "$value" | tee -a "$raw" >&2
            done
        done <<<"$jobs_list"
    done
done
python3 "$here/paired.py" aqueduct <"$raw" | tee "$results/knfsd.json"
