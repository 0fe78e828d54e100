# deadline: 90 90
# transports: once
# A mount without ports: the server has registered with the machine's rpcbind, and takes its names back when it stops.
. /host/vm/lib.sh

pidof rpcbind >/dev/null || rpcbind -w || rpcbind
within 10 'rpcbind answers' rpcinfo -p "$VM_ADDR"
start_server
within 10 'nfs is registered' sh -c "rpcinfo -p $VM_ADDR | grep -q '100003 *3 *tcp *2049'"
rpcinfo -p "$VM_ADDR" | grep -q '100005 *3 *tcp' || fail 'the mount protocol is not registered'
timeout 60 mount -t nfs -o vers=3,nolock "$VM_ADDR:$EXPORT" "$MOUNT" || fail 'a mount without ports failed'
echo hello >"$MOUNT/file"
expect_equal 'stored' "$(cat $EXPORT/file)" hello
umount "$MOUNT"
stop_server
rpcinfo -p "$VM_ADDR" | grep -q '100003 *3 *tcp *2049' && fail 'nfs is still registered after the stop'
true
