# deadline: 300 300
# pjdfstest: what POSIX asks of a file system, as root and as other users. Expected failures are in pjdfstest.toml, each
# with its reason; a failure that is not listed, and a listed one that passes, fail the scenario.
. /host/vm/lib.sh

serve_and_mount
grep -q '^tests:' /etc/passwd || echo 'tests:x:2000:2000::/:/usr/sbin/nologin' >>/etc/passwd
grep -q '^tests:' /etc/group || echo 'tests:x:2000:' >>/etc/group
mkdir -p /tmp/other-file-system
status=0
"$BIN/pjdfstest" -c /host/vm/scenarios/pjdfstest.toml -p "$MOUNT" -s /tmp/other-file-system >"$LOGS/pjdfstest" 2>&1 || status=$?
note "$(grep Summary "$LOGS/pjdfstest")"
[ $status = 0 ] || fail "$(grep Summary "$LOGS/pjdfstest"): $(grep -E '(FAILED|UNEXPECTEDLY)$' "$LOGS/pjdfstest" | awk '{ print $1 }' | tr '\n' ' ')"
passed=$(sed -n 's/^Summary:.* \([0-9]*\) passed.*/\1/p' "$LOGS/pjdfstest")
[ "$passed" -gt 350 ] || fail "only $passed tests ran"
