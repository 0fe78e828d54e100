# deadline: 150 200
# Sixty-four connections, most of them idle: all are served, and none is forgotten after a pause.
. /host/vm/lib.sh

start_server
base=${VM_ADDR%.*}
for i in 1 2 3 4; do
  [ $i = 1 ] || ip addr add "$base.$((100 + i))/24" dev "$NETDEV" 2>/dev/null || true
done
host() { if [ "$1" = 1 ]; then echo "$VM_ADDR"; else echo "$base.$((100 + $1))"; fi; }
for i in 1 2 3 4; do
  SERVER_HOST=$(host $i)
  mount_nfs "/mnt/many-$i" nconnect=16
done
expect_equal 'connections' "$(grep -c 'xprt:' /proc/self/mountstats)" 64
dd if=/dev/urandom of=/tmp/random bs=1M count=4 status=none
for round in 1 2; do
  for i in 1 2 3 4; do (for j in 1 2 3; do cp /tmp/random "/mnt/many-$i/$i-$j-$round"; done) & done
  wait
  for i in 1 2 3 4; do for j in 1 2 3; do expect_same /tmp/random "$EXPORT/$i-$j-$round"; done; done
  sleep "$(quick_or_full 5 40)"
done
for i in 1 2 3 4; do expect_equal "files seen over mount $i" "$(ls "/mnt/many-$i" | wc -l)" 24; done
