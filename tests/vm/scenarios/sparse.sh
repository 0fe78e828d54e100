# deadline: 120 120
# Holes stay holes, offsets beyond 4 GiB are whole, files grow and shrink exactly.
. /host/vm/lib.sh

serve_and_mount
truncate -s 10G big
for offset in 0 4294967295 4294967296 4294967301 8589934591; do
  printf 'at %s' $offset | dd of=big bs=1 seek=$offset conv=notrunc status=none
done
expect_equal 'size' "$(stat -c %s $EXPORT/big)" 10737418240
[ "$(du -k $EXPORT/big | cut -f1)" -lt 1024 ] || fail "the holes were filled: $(du -k $EXPORT/big | cut -f1) KiB"
drop_caches
for offset in 4294967301 8589934591; do
  expect_equal "read at $offset" "$(dd if=big bs=1 skip=$offset count=13 status=none)" "at $offset"
done
expect_equal 'the hole reads as zeros' "$(dd if=big bs=1M skip=100 count=1 status=none | tr -d '\0' | wc -c)" 0

dd if=/dev/urandom of=/tmp/source bs=64k count=1 seek=100 status=none
dd if=/dev/urandom of=/tmp/source bs=64k count=1 seek=3 conv=notrunc status=none
cp --sparse=always /tmp/source copy
expect_same /tmp/source $EXPORT/copy
cp --sparse=always copy /tmp/back
expect_same /tmp/source /tmp/back

echo 0123456789 >short
truncate -s 4 short
expect_equal 'cut' "$(cat $EXPORT/short)" 0123
truncate -s 8 short
expect_equal 'grown with zeros' "$(od -An -c $EXPORT/short | tr -s ' ')" ' 0 1 2 3 \0 \0 \0 \0'
expect_error 'File too large' truncate -s 9223372036854775807 short
expect_equal 'unchanged by the failure' "$(stat -c %s $EXPORT/short)" 8
