# deadline: 200 400
# The gateway's memory stays within the sum of its limits that it printed at its start, under more load than it has
# buffers for: many connections that write and read large blocks at once.
. /host/vm/lib.sh

gateway_only
start_server
# It listens before it prints them.
within 30 'the gateway prints the sum of its limits' grep -Eq '\bsum +[0-9]' "$LOGS/gateway.log"
limit_kib=$(python3 - "$LOGS/gateway.log" <<'P'
import re, sys
unit = {"B": 1 / 1024, "KiB": 1, "MiB": 1024, "GiB": 1024 ** 2, "TiB": 1024 ** 3}
found = re.findall(r"\bsum\s+([\d.]+)\s*(B|KiB|MiB|GiB|TiB)\b", open(sys.argv[1]).read())
print(int(float(found[-1][0]) * unit[found[-1][1]]) if found else "")
P
)
[ -n "$limit_kib" ] || fail 'the gateway printed no sum of its limits'
ip addr add "${VM_ADDR%.*}.102/24" dev "$NETDEV" 2>/dev/null || true
mount_nfs /mnt/load-1 nconnect=16
SERVER_HOST=${VM_ADDR%.*}.102
mount_nfs /mnt/load-2 nconnect=16
peak=0
measure() { local now; now=$(server_rss_kib); [ "$now" -le $peak ] || peak=$now; }
for i in 1 2; do
  fio --name=load$i --directory=/mnt/load-$i --rw=randrw --bs=1m --direct=1 --ioengine=libaio --iodepth=64 --size=64m \
    --numjobs=4 --time_based --runtime="$(quick_or_full 15 60)" --output="$LOGS/fio.$i" >/dev/null 2>&1 &
done
while [ -n "$(jobs -rp)" ]; do measure; sleep 0.5; done
for i in 1 2; do
  if grep 'err=' "$LOGS/fio.$i" | grep -qv 'err= 0'; then fail "fio met an error: $(grep -m1 'err=' "$LOGS/fio.$i")"; fi
  grep -q 'err= 0' "$LOGS/fio.$i" || fail 'fio did not run'
done
note "peak $((peak / 1024)) MiB of $((limit_kib / 1024)) MiB"
[ $peak -gt 0 ] || fail 'nothing was measured'
[ $peak -le "$limit_kib" ] || fail "the gateway took $peak KiB, its limits allow $limit_kib KiB"
