# deadline: 300 900
# fsx: random reads, writes, truncations and mappings on one file, each read checked against a model.
. /host/vm/lib.sh

serve_and_mount
cat >/tmp/fsx.toml <<'T'
flen = 1048576
[opsize]
max = 131072
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
for seed in 1 2 3; do
  "$BIN/fsx" -f /tmp/fsx.toml -N "$(quick_or_full 1000 5000 100000)" -S $seed -P "$LOGS" "$MOUNT/fsx-$seed" >"$LOGS/fsx.$seed" 2>&1 ||
    fail "seed $seed: $(grep -m1 -iE 'error|mismatch|miscompare|bad|panick' "$LOGS/fsx.$seed" || tail -n 1 "$LOGS/fsx.$seed")"
done
