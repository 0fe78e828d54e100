# deadline: 200 500
# The server is killed in the middle of writes, again and again: what was acknowledged as durable is there before the
# restart, the client carries on without an error, and in the end every byte is in place.
. /host/vm/lib.sh

rounds=$(quick_or_full 3 8 20)
serve_and_mount
rm -f /run/crash.*
python3 /host/vm/scenarios/crash.py write "$MOUNT" 2>/run/crash.errors &
writer=$!
for round in $(seq "$rounds"); do
  before=$(cat /run/crash.acknowledged 2>/dev/null || echo 0)
  within 60 "round $round: the client makes progress" sh -c "[ \$(cat /run/crash.acknowledged) -gt $((before + 5)) ]"
  sleep "0.$((RANDOM % 10))"
  crash_server
  python3 /host/vm/scenarios/crash.py check "$EXPORT" || fail "round $round: $(cat /run/crash.reason)"
  start_server
done
touch /run/crash.stop
wait $writer || fail "the writer met an error: $(tail -n 1 /run/crash.errors)"
drop_caches
for side in "$MOUNT" "$EXPORT"; do
  python3 /host/vm/scenarios/crash.py all "$side" || fail "at the end in $side: $(cat /run/crash.reason)"
done
note "$(cat /run/crash.acknowledged) records made durable over $rounds crashes"
