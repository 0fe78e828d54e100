# deadline: 120 120
# The first minute of a user: mount, look, create, write, read back, rename, remove, unmount.
. /host/vm/lib.sh

serve_and_mount
grep -q " $MOUNT nfs .*proto=$TRANSPORT" /proc/mounts || fail "not mounted over $TRANSPORT: $(grep nfs /proc/mounts)"
expect_equal 'names in a new export' "$(ls)" ''
echo hello >greeting
expect_equal 'what the server stored' "$(cat $EXPORT/greeting)" hello
echo from the server >$EXPORT/answer
expect_equal 'what the client reads' "$(cat answer)" 'from the server'
mkdir folder
mv greeting folder/renamed
expect_equal 'the tree' "$(find . | sort | tr '\n' ' ')" '. ./answer ./folder ./folder/renamed '
dd if=/dev/urandom of=/tmp/random bs=64k count=32 status=none
cp /tmp/random big
expect_same /tmp/random $EXPORT/big
drop_caches
expect_same /tmp/random big
expect_equal 'size' "$(stat -c %s big)" 2097152
df . | grep -q "$SERVER_HOST:$EXPORT" || fail "df does not show the mount"
expect_error 'No such file' cat missing
expect_error 'Directory not empty' rmdir folder
rm -r folder answer big
expect_equal 'names left' "$(ls -A $EXPORT)" ''
cd /
unmount
stop_server
