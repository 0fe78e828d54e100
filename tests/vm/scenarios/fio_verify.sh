# deadline: 200 600
# fio writes blocks that carry their own checksum and reads them back: direct at depth 32, buffered with fsync, two writers.
. /host/vm/lib.sh

size=$(quick_or_full 32m 64m 1g)
fio_job() { # NAME OPTION...
  local name=$1
  shift
  fio --name="$name" --directory="$MOUNT" --size="$size" --verify=crc32c --verify_fatal=1 --verify_dump=0 --randrepeat=1 \
    --output="$LOGS/fio.$name" "$@" >"$LOGS/fio.$name.errors" 2>&1 ||
    fail "$name: $(grep -hm1 -E 'verify|error|err=' "$LOGS/fio.$name.errors" "$LOGS/fio.$name")"
  note "$name: $(grep -m1 -oE 'WRITE: bw=[^ ]+' "$LOGS/fio.$name")"
}
for IO in buffered direct; do
  [ "$SERVER" = gateway ] || [ "$IO" = buffered ] || break
  serve_and_mount
  fio_job direct-4k --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --size=8m
  fio_job direct-mixed --rw=randwrite --bsrange=512-1m --bs_unaligned=1 --direct=1 --ioengine=libaio --iodepth=32
  fio_job buffered --rw=randwrite --bsrange=1k-256k --bs_unaligned=1 --ioengine=psync --fsync=64 --end_fsync=1
  fio_job sequential --rw=write --bs=1m --direct=1 --ioengine=libaio --iodepth=8 --numjobs=2
  cd /
  unmount
  stop_server
  rm -rf "${EXPORT:?}"/*
done
