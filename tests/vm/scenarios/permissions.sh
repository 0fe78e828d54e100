# deadline: 120 120
# The server's kernel decides: users, supplementary groups, modes, ACLs, root squashed and not.
. /host/vm/lib.sh

serve_and_mount
mkdir -m 777 shared; mkdir -m 700 private; mkdir -m 770 team; chgrp 5000 team
as_user 1001 sh -c 'umask 027; echo mine >shared/mine'
expect_equal 'owner and mode' "$(stat -c '%u:%g %a' $EXPORT/shared/mine)" '1001:1001 640'
expect_error 'Permission denied' as_user 1002 cat shared/mine
expect_error 'Permission denied' as_user 1002 ls private
expect_error 'Permission denied' as_user 1002 touch private/x
expect_error 'Operation not permitted' as_user 1002 chmod 666 shared/mine
expect_error 'Operation not permitted' as_user 1001 chown 1002 shared/mine
as_user 1001:1001 cat shared/mine >/dev/null
as_user 1002:1001 cat shared/mine >/dev/null
expect_error 'Permission denied' as_user 1002 touch team/x
as_user 1002:1002,4000,5000 touch team/x
expect_equal 'group of a plain directory' "$(stat -c %g $EXPORT/team/x)" 1002
chmod 2770 team
as_user 1002:1002,5000 touch team/y
expect_equal 'group of a set-group directory' "$(stat -c %g $EXPORT/team/y)" 5000
as_user 1001 chgrp 1001 shared/mine
# sixteen groups are what AUTH_SYS carries: the sixteenth counts
as_user "1003:1003,$(seq -s, 6001 6015),5000" touch team/z

mkdir -m 1777 sticky
as_user 1001 touch sticky/file
expect_error 'Operation not permitted' as_user 1002 rm -f sticky/file
as_user 1001 rm sticky/file

# an ACL on the server that the mode alone does not show
echo secret >shared/acl; chmod 644 shared/acl; setfacl -m u:1002:--- $EXPORT/shared/acl
as_user 1001 cat shared/acl >/dev/null
expect_error 'Permission denied' as_user 1002 cat shared/acl

# who has a file open for writing may go on after its mode is changed, as on a local file system
as_user 1001 python3 - <<'P'
import os
fd = os.open("shared/open", os.O_CREAT | os.O_RDWR, 0o644)
os.fchmod(fd, 0o400)
os.write(fd, b"still mine")
os.fsync(fd)
os.close(fd)
P
expect_equal 'written after chmod' "$(cat $EXPORT/shared/open)" 'still mine'
# a new file without the permission to write it: open(O_CREAT, 0400) gives a writable descriptor all the same
as_user 1001 sh -c 'umask 0; python3 -c "import os; f = os.open(\"shared/born\", os.O_CREAT | os.O_WRONLY, 0o400); os.write(f, b\"x\" * 9000); os.close(f)"'
expect_equal 'size of a file born read-only' "$(stat -c %s $EXPORT/shared/born)" 9000
# writing takes the set-user bit away
install -m 4755 /bin/true shared/setuid; chmod 4777 shared/setuid
as_user 1002 sh -c 'echo x >>shared/setuid'
expect_equal 'mode after a stranger wrote' "$(stat -c %a $EXPORT/shared/setuid)" 777
cd /; unmount; stop_server

SQUASH=root
serve_and_mount
expect_error 'Permission denied' ls private
expect_error 'Permission denied' touch private/x
touch shared/from-root
[ "$(stat -c %u $EXPORT/shared/from-root)" != 0 ] || fail 'root was not squashed'
expect_error 'Operation not permitted' chown 0 shared/from-root
expect_error 'Operation not permitted' mknod shared/device c 1 3
as_user 1001 touch shared/user
expect_equal 'users are not squashed' "$(stat -c %u $EXPORT/shared/user)" 1001
