# deadline: 240 240
# Payload goes between the drive and the wire without a copy by the gateway: over RDMA it copies not one byte of large and of
# 4 KiB reads and writes, and with --io direct no byte goes through the page cache either. Over TCP it copies at most what
# had arrived in the stream's buffer before it was known to be payload. The counters in the log say what was moved.
. /host/vm/lib.sh

gateway_only
lines() { grep -c 'totals since the start' "$LOGS/gateway.log" || true; }
more_lines() { [ "$(lines)" -gt "$1" ]; }
totals() { # FIELD...: their values, as SIGUSR1 brings them into the log
  local before field
  before=$(lines)
  kill -USR1 "$(server_pid)"
  within 10 'SIGUSR1 brings the totals' more_lines "$before"
  for field in "$@"; do
    grep 'totals since the start' "$LOGS/gateway.log" | tail -n 1 | grep -oE "\b$field=[0-9]+" | cut -d= -f2
  done
}
# measured WHAT FILE SIZE COUNT: sets read_bytes, written_bytes and copied_bytes to what that I/O took
measured() {
  local -a before after
  mapfile -t before < <(totals read_bytes written_bytes copied_bytes)
  python3 /host/vm/scenarios/copies.py "$@" 2>"$LOGS/error" || fail "$*: $(tail -n 1 "$LOGS/error")"
  mapfile -t after < <(totals read_bytes written_bytes copied_bytes)
  [ ${#after[@]} = 3 ] || fail 'the totals have no counters of bytes'
  read_bytes=$((after[0] - before[0])) written_bytes=$((after[1] - before[1])) copied_bytes=$((after[2] - before[2]))
}

for IO in direct buffered; do
  serve_and_mount
  for size in 1048576 4096; do
    count=$((size == 4096 ? 64 : 16))
    measured write "file-$size" $size $count
    expect_equal "$IO: bytes written in pieces of $size" $written_bytes $((size * count))
    note "$IO: $copied_bytes of $written_bytes written bytes copied, in pieces of $size"
    case $TRANSPORT in
      rdma) expect_equal "$IO: bytes copied by writes of $size" $copied_bytes 0 ;;
      tcp) [ $copied_bytes -le $written_bytes ] || fail "$IO: $copied_bytes bytes copied by $written_bytes bytes of writes of $size" ;;
    esac
    # what went past the page cache is not in it; what went through it is (small writes over TCP always go through it)
    cached=$(python3 /host/vm/scenarios/copies.py cached "$EXPORT/file-$size")
    case $IO.$TRANSPORT.$size in
      direct.tcp.4096) ;;
      direct.*) expect_equal "$IO: pages in the cache after writes of $size" "$cached" 0 ;;
      *) [ "$cached" -gt 0 ] || fail "$IO: nothing of the writes of $size is in the page cache" ;;
    esac
    measured read "file-$size" $size $count
    expect_equal "$IO: bytes read in pieces of $size" $read_bytes $((size * count))
    expect_equal "$IO: bytes copied by reads of $size" $copied_bytes 0
  done
  # a write that cannot go past the page cache is copied there, and counted: else the zeros above would say nothing
  measured write small 777 3
  [ $IO = buffered ] || [ $copied_bytes -ge $((777 * 3)) ] || fail "only $copied_bytes bytes were counted as copied"
  cd /
  unmount
  stop_server
  more_lines 0 || fail 'no totals at the end'
done
