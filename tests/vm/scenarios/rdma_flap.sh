# deadline: 200 400
# transports: once
# The RDMA device goes away and comes back under load: I/O over RDMA waits and ends without an error, and a TCP mount of
# the same export beside it never notices.
. /host/vm/lib.sh

gateway_only
start_server
mount_rdma /mnt/rdma
mount_tcp /mnt/tcp
mkdir /mnt/tcp/by-tcp /mnt/tcp/by-rdma
load() { # FOLDER NAME: files written and read back until told to stop
  python3 - "$1" "$2" <<'P'
import os, sys, time
folder, name = sys.argv[1:]
data, rounds, slowest = os.urandom(1 << 20), 0, 0.0
while not os.path.exists("/run/flap.stop"):
    started = time.monotonic()
    path = f"{folder}/{rounds % 8}"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, data, 0)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(fd, len(data), 0) == data, path
    os.close(fd)
    rounds += 1
    slowest = max(slowest, time.monotonic() - started)
    with open(f"/run/flap.{name}", "w") as out:
        out.write(f"{rounds}")
print(f"{name}: {rounds} rounds, the slowest {slowest:.1f} s")
P
}
rm -f /run/flap.*
load /mnt/rdma/by-rdma rdma >"$LOGS/load.rdma" 2>&1 &
rdma_load=$!
load /mnt/tcp/by-tcp tcp >"$LOGS/load.tcp" 2>&1 &
tcp_load=$!
more() { [ "$(cat "/run/flap.$1" 2>/dev/null || echo 0)" -gt "$2" ]; }
for flap in $(seq "$(quick_or_full 2 4 20)"); do
  rdma_before=$(cat /run/flap.rdma 2>/dev/null || echo 0)
  within 60 "flap $flap: I/O over RDMA before it" more rdma $((rdma_before + 2))
  rdma link del rxe0
  tcp_before=$(cat /run/flap.tcp)
  within 20 "flap $flap: I/O over TCP while the device is gone" more tcp $((tcp_before + 2))
  rdma link add rxe0 type rxe netdev "$NETDEV"
  rdma_before=$(cat /run/flap.rdma)
  within 90 "flap $flap: I/O over RDMA goes on" more rdma $((rdma_before + 2))
done
touch /run/flap.stop
wait $rdma_load || fail "I/O over RDMA met an error: $(tail -n 1 "$LOGS/load.rdma")"
wait $tcp_load || fail "I/O over TCP met an error: $(tail -n 1 "$LOGS/load.tcp")"
note "$(cat "$LOGS/load.rdma" "$LOGS/load.tcp")"
