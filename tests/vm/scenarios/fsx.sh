# deadline: 300 900
# fsx: random reads, writes, truncations and mappings, each read checked against a model; several files at once, with the
# server's files opened both ways. The soak is a million operations.
. /host/vm/lib.sh

count=$(quick_or_full 1000 5000 100000)
# SEEDS and IO_MODES: a part of the soak, for who has not the hours for all of it at once
seeds=${SEEDS:-$(seq "$(quick_or_full 2 2 5)")}

settings() { # LENGTH_OF_FILE LONGEST_OPERATION
  cat <<T
flen = $1
[opsize]
max = $2
[weights]
close_open = 2
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 2
truncate = 3
fsync = 1
fdatasync = 1
sendfile = 2
posix_fadvise = 2
T
}

run() { # SEED: every fifth on a long file, the others on a short one, where operations meet more often
  local kind=short
  [ $(($1 % 5)) != 1 ] || kind=long
  "$BIN/fsx" -f /tmp/fsx.$kind -N "$count" -S "$1" -P "$LOGS" "$MOUNT/fsx-$1" >"$LOGS/fsx.$IO.$1" 2>&1
}

settings 1048576 131072 >/tmp/fsx.long
settings 262144 65536 >/tmp/fsx.short
for IO in ${IO_MODES:-buffered direct}; do
  [ "$SERVER" = gateway ] || [ "$IO" = buffered ] || break
  serve_and_mount
  declare -A running=()
  for seed in $seeds; do
    run "$seed" &
    running[$seed]=$!
  done
  for seed in $seeds; do
    wait "${running[$seed]}" || fail "seed $seed, --io $IO: $(grep -m1 -iE 'error|mismatch|miscompare|bad|panick' \
      "$LOGS/fsx.$IO.$seed" || tail -n 1 "$LOGS/fsx.$IO.$seed")"
    # what the server has is what the client has
    expect_same "fsx-$seed" "$EXPORT/fsx-$seed"
  done
  note "$(wc -w <<<"$seeds") x $count operations, --io $IO"
  cd /
  unmount
  stop_server
  rm -rf "${EXPORT:?}"/*
done
