# deadline: 120 240
# transports: once
# TCP connections are cut under load: the client connects again and sends again, and every byte is in place.
. /host/vm/lib.sh
TRANSPORT=tcp

serve_and_mount
dd if=/dev/urandom of=/tmp/random bs=1M count="$(quick_or_full 16 64)" status=none
for round in $(seq "$(quick_or_full 3 10)"); do
  cp /tmp/random "copy-$round" &
  copy=$!
  for cut in 1 2 3; do
    sleep 0.3
    ss -K dport = 2049 >/dev/null
    ss -K sport = 2049 >/dev/null
  done
  wait $copy || fail "round $round: the copy failed after $cut cuts"
  expect_same /tmp/random "$EXPORT/copy-$round"
  drop_caches
  expect_same /tmp/random "copy-$round"
  rm "copy-$round"
done
