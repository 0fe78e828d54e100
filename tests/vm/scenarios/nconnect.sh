# deadline: 120 200
# Several connections for one mount: the requests of one file go over all of them.
. /host/vm/lib.sh

start_server
for connections in 4 16; do
  mount_nfs "$MOUNT" nconnect=$connections
  cd "$MOUNT"
  expect_equal "connections" "$(grep -c 'xprt:' /proc/self/mountstats)" $connections
  for i in 1 2 3 4; do
    dd if=/dev/urandom of=/tmp/random-$i bs=1M count="$(quick_or_full 4 16)" status=none
    cp /tmp/random-$i file-$i &
  done
  wait
  for i in 1 2 3 4; do expect_same /tmp/random-$i $EXPORT/file-$i; done
  drop_caches
  for i in 1 2 3 4; do expect_same /tmp/random-$i file-$i; done
  rm file-*
  cd /
  unmount
done
