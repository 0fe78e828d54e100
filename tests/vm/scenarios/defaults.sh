# deadline: 150 150
# Without a word about addresses the gateway serves every address of the machine, IPv4 and IPv6, over both transports.
. /host/vm/lib.sh

gateway_only
modprobe ipv6 2>/dev/null || true
six=fd77::1
ip -6 addr add $six/64 dev "$NETDEV" nodad 2>/dev/null || six=
mkdir -p "$MOUNT"
"$BIN/aqueduct" serve --export "$EXPORT=$EXPORT" --squash none --state-dir /var/lib/aqueduct >>"$LOGS/gateway.log" 2>&1 &
echo $! >$SERVER_PID_FILE
disown
within 40 'the gateway accepts TCP connections' tcp_open 2049
if has_rdma; then within 40 'the gateway listens for RDMA' rdma_listens; fi
for host in "$SERVER_HOST" ${six:+"[$six]"}; do
  options=$(mount_options "$TRANSPORT")
  case $host in *:*) options=${options/proto=$TRANSPORT/proto=${TRANSPORT}6}; options=${options/mountproto=tcp/mountproto=tcp6} ;; esac
  timeout 60 mount -t nfs -o "$options" "$host:$EXPORT" "$MOUNT" || fail "mount of $host over $TRANSPORT failed"
  echo "$host" >"$MOUNT/file"
  expect_equal "stored through $host" "$(cat $EXPORT/file)" "$host"
  umount "$MOUNT"
done
[ -n "$six" ] || echo 'no IPv6 on this kernel: IPv4 alone was tried'
