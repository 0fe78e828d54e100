# deadline: 240 300
# hosts: 2
# Server and client on two machines with one wire between them: nothing in this path is a shortcut through one kernel.
. /host/vm/lib.sh

meeting=/host/meeting/$TRANSPORT
mkdir -p "$meeting"
if [ "$ROLE" = server ]; then
  start_server
  echo "from the other host" >$EXPORT/greeting
  touch "$meeting/served"
  within "$(quick_or_full 220 280)" 'the client is done' test -e "$meeting/done"
  expect_same "$meeting/random" $EXPORT/copy
  stop_server
  touch "$meeting/stopped"
  exit 0
fi

within 120 'the server is up' test -e "$meeting/served"
mount_nfs
cd $MOUNT
expect_equal 'what the server made' "$(cat greeting)" 'from the other host'
dd if=/dev/urandom of="$meeting/random" bs=64k count="$(quick_or_full 64 512)" status=none
cp "$meeting/random" copy
drop_caches
expect_same "$meeting/random" copy
for size in 0 1 1000 4096 65537; do
  head -c $size "$meeting/random" >/tmp/piece
  cp /tmp/piece "size-$size"
  drop_caches
  expect_same /tmp/piece "size-$size"
done
files=$(quick_or_full 100 1000)
for i in $(seq "$files"); do echo "$i" >"file-$i"; done
drop_caches
expect_equal 'names' "$(ls | wc -l)" $((files + 7))
cd /
umount $MOUNT
touch "$meeting/done"
within 60 'the server has compared and stopped' test -e "$meeting/stopped"
