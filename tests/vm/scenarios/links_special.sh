# deadline: 60 60
# Hard links, symbolic links, pipes, sockets and device nodes; renames over each other; times.
. /host/vm/lib.sh

serve_and_mount
echo data >one
ln one two
expect_equal 'links' "$(stat -c %h one)" 2
expect_equal 'the same file' "$(stat -c %i one)" "$(stat -c %i two)"
echo more >>two
expect_equal 'through the other name' "$(cat $EXPORT/one | tr '\n' ' ')" 'data more '
rm one
expect_equal 'links left' "$(stat -c %h two)" 1
expect_error 'File exists' ln two two

ln -s two soft
expect_equal 'target' "$(readlink soft)" two
expect_equal 'through the link' "$(head -n 1 soft)" data
ln -s "$(printf 'x%.0s' {1..1000})" long
expect_equal 'length of a long target' "$(readlink long | tr -d '\n' | wc -c)" 1000
ln -s ../outside/./x dangling
expect_equal 'a target is kept as it is' "$(readlink $EXPORT/dangling)" ../outside/./x
expect_error 'No such file' cat dangling
ln -s loop loop
expect_error 'Too many levels' cat loop

mkfifo pipe
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
mknod null c 1 3
mknod disk b 8 1
expect_equal 'kinds' "$(stat -c %F pipe socket null disk | tr '\n' ',')" 'fifo,socket,character special file,block special file,'
expect_equal 'device numbers' "$(stat -c '%t:%T' null disk | tr '\n' ' ')" '1:3 8:1 '
expect_equal 'on the server' "$(stat -c '%F %t:%T' $EXPORT/disk)" 'block special file 8:1'
(echo through >pipe &) && expect_equal 'through the pipe' "$(timeout 10 cat pipe)" through
echo x >null

mkdir -p a/b c
expect_error 'Invalid argument' python3 -c 'import os; os.rename("a", "a/b/c")'
echo old >a/file; echo new >c/file
mv -f c/file a/file
expect_equal 'replaced' "$(cat $EXPORT/a/file)" new
expect_error 'Is a directory' python3 -c 'import os; os.rename("a/file", "c")'
expect_error 'Not a directory' python3 -c 'import os; os.rename("c", "a/file")'
expect_error 'Directory not empty' python3 -c 'import os; os.rename("c", "a")'

# a file that is removed while it is open stays readable (the client renames it), and goes when it is closed
exec 5<>a/open && echo kept >&5
rm a/open
expect_equal 'read after remove' "$(python3 -c 'import os; print(os.pread(5, 10, 0).decode(), end="")')" kept
exec 5>&-
within 10 'the removed file is gone' test ! -e $EXPORT/a/open
expect_equal 'no left-over' "$(find $EXPORT -name '.nfs*' | wc -l)" 0

touch -d '2001-02-03 04:05:06.789012345 UTC' two
expect_equal 'time set by the client' "$(stat -c %y $EXPORT/two)" '2001-02-03 04:05:06.789012345 +0000'
before=$(stat -c %Z two); sleep 1.1; chmod 640 two
[ "$(stat -c %Z two)" -gt "$before" ] || fail 'the change time stood still'
