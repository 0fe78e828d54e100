# deadline: 300 600
# Every size from nothing to 4 MiB around the limits of the transport, in both directions, buffered and O_DIRECT, at even
# and odd offsets; each result is compared byte for byte on the other side.
. /host/vm/lib.sh

for IO in buffered direct; do
  [ "$SERVER" = gateway ] || [ "$IO" = buffered ] || break
  note "server opens files: $IO"
  serve_and_mount
  python3 /host/vm/scenarios/size_sweep.py "$MOUNT" "$EXPORT" "$LEVEL" || fail "with --io $IO: $(cat /run/size_sweep.reason)"
  cd /
  unmount
  stop_server
  rm -rf "${EXPORT:?}"/*
done
