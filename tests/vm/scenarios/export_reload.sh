# deadline: 90 90
# SIGHUP: exports come, go and change without a mount of another export noticing; a broken file changes nothing.
. /host/vm/lib.sh

gateway_only
file=/run/reload.toml
rm -f /run/reload.stop
mkdir -p $EXPORT/one $EXPORT/two
write_exports() { # READ_ONLY_OF_ONE [two]
  cat >$file <<T
[[export]]
path = "/one"
id = 1
directory = "$EXPORT/one"
squash = "none"
read_only = $1
T
  [ $# -lt 2 ] || cat >>$file <<T
[[export]]
path = "/two"
id = 2
directory = "$EXPORT/two"
squash = "none"
T
}
reload() { kill -HUP "$(server_pid)"; }
mount_export() { # NAME: over this run's transport, on /mnt/NAME
  mkdir -p "/mnt/$1"
  timeout 60 mount -t nfs -o "$(mount_options "$TRANSPORT" noac)" "$SERVER_HOST:/$1" "/mnt/$1"
}

write_exports false
start_server --config $file
mount_export one
if mount_export two 2>/dev/null; then fail 'an export that is not in the file was mounted'; fi
echo before >/mnt/one/file
# a writer that must not notice any of what follows
python3 -c '
import os, time
with open("/mnt/one/steady", "wb", buffering=0) as file:
    while not os.path.exists("/run/reload.stop"):
        file.write(b"x"); time.sleep(0.05)
' & writer=$!

write_exports false two
reload
within 15 'the new export can be mounted' mount_export two
echo second >/mnt/two/file
expect_equal 'in the new export' "$(cat $EXPORT/two/file)" second

echo 'path = [' >>$file
reload
sleep 1
kill -0 "$(server_pid)" || fail 'the gateway ended over a broken file'
expect_equal 'after a broken file' "$(cat /mnt/two/file)" second

touch /run/reload.stop
wait $writer || fail 'a writer in another export met an error'
[ -s $EXPORT/one/steady ] || fail 'the writer wrote nothing'

write_exports true two
reload
within 15 'the export is read-only' sh -c '! touch /mnt/one/new 2>/dev/null'
expect_error 'Read-only file system' touch /mnt/one/new
expect_equal 'reading goes on' "$(cat /mnt/one/file)" before

write_exports true
reload
within 15 'the removed export gives no more' sh -c '! cat /mnt/two/file 2>/dev/null'
expect_equal 'the other export is still there' "$(cat /mnt/one/file)" before
