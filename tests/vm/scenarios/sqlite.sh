# deadline: 120 240
# SQLite in its rollback-journal modes from one client (the mount has no lock protocol: nolock=1): thousands of small
# transactions, the same as on a local file; integrity holds after a reload from the server.
. /host/vm/lib.sh

serve_and_mount
rows=$(quick_or_full 200 2000)
statements() { # MODE
  python3 - "$1" "$rows" <<'P'
import sys
print(f"PRAGMA journal_mode={sys.argv[1]}; CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); CREATE INDEX i ON t (v);")
for i in range(int(sys.argv[2])):
    print(f"INSERT INTO t (v) VALUES ('{i * 7919:x}-{'y' * (i * 37 % 900)}');")
print("BEGIN; UPDATE t SET v = v || v WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0; COMMIT;")
print("BEGIN; DELETE FROM t; ROLLBACK; VACUUM;")
P
}
for mode in delete truncate persist; do
  statements $mode >/tmp/statements
  rm -f /tmp/local.db
  sqlite3 /tmp/local.db >/dev/null </tmp/statements
  sqlite3 "file:$MOUNT/$mode.db?nolock=1" >/dev/null </tmp/statements
  drop_caches
  expect_equal "integrity ($mode)" "$(sqlite3 "file:$MOUNT/$mode.db?nolock=1" 'PRAGMA integrity_check')" ok
  expect_equal "content ($mode)" "$(sqlite3 "file:$MOUNT/$mode.db?nolock=1" .dump | sha256sum)" "$(sqlite3 /tmp/local.db .dump | sha256sum)"
  expect_equal "integrity as the server sees it ($mode)" "$(sqlite3 "file:$EXPORT/$mode.db?mode=ro&immutable=1" 'PRAGMA integrity_check')" ok
done
