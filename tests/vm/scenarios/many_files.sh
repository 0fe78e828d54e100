# deadline: 240 900
# A directory with very many names: created, listed without a loss or a double, removed.
. /host/vm/lib.sh

count=$(quick_or_full 1500 20000 100000)
# The soak is about the size of the directory. A flush of the drive for each of 200,000 changes, one after the other,
# as the shorter levels have it, would take hours here and show nothing more.
file=/run/many.toml
cat >$file <<T
[[export]]
path = "$EXPORT"
id = 1
directory = "$EXPORT"
squash = "none"
sync = $(quick_or_full true true false)
T
start_server --config $file
mount_nfs
cd $MOUNT
mkdir many
python3 - "$count" <<'P'
import os, sys
for i in range(int(sys.argv[1])):
    os.close(os.open(f"many/entry-{i:07}", os.O_CREAT | os.O_WRONLY))
P
expect_equal 'files on the server' "$(find $EXPORT/many -type f | wc -l)" "$count"
drop_caches
find many -type f -printf '%f\n' | sort >/tmp/listed
expect_equal 'names listed' "$(wc -l </tmp/listed)" "$count"
expect_equal 'names listed twice' "$(uniq -d /tmp/listed | wc -l)" 0
expect_equal 'first and last name' "$(sed -n '1p;$p' /tmp/listed | tr '\n' ' ')" "entry-0000000 $(printf 'entry-%07d' $((count - 1))) "
drop_caches
expect_equal 'lines of ls -l' "$(ls -l many | grep -c '^-')" "$count"
# names removed while the directory is being read: none that stays may be missed
python3 - <<'P'
import os
seen = set()
with os.scandir("many") as entries:
    for n, entry in enumerate(entries):
        seen.add(entry.name)
        if n % 10 == 0:
            os.unlink(f"many/{entry.name}")
missed = {name for name in os.listdir("/data/many")} - seen
assert not missed, f"{len(missed)} names that stayed were not listed, such as {sorted(missed)[0]}"
P
rm -r many
expect_equal 'names left' "$(ls -A $EXPORT)" ''
