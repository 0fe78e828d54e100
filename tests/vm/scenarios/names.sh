# deadline: 60 60
# A name is any bytes but '/' and NUL, up to 255 of them.
. /host/vm/lib.sh

serve_and_mount
python3 - "$MOUNT" "$EXPORT" <<'P'
import errno, os, sys
mount, export = (os.fsencode(word) for word in sys.argv[1:])
names = [b"plain", b"with space", b" leading", b"trailing ", b"new\nline", b"tab\there", b"-rf", b"*?[x]", b"\\back\\slash",
         b"'\"`$(x)", b"\xff\xfe\x80", b"caf\xc3\xa9", b"cafe\xcc\x81", b"\xe2\x80\xae", b"...", b".hidden", b"UPPER", b"upper",
         b"\x01\x02\x7f", b"x" * 255, b"\xc3\xa9" * 127, b"CON", b"a:b", b"#"]
for name in names:
    with open(mount + b"/" + name, "wb") as file:
        file.write(name)
for side in (mount, export):
    assert sorted(os.listdir(side)) == sorted(names), (side, set(os.listdir(side)) ^ set(names))
for name in names:
    with open(export + b"/" + name, "rb") as file:
        assert file.read() == name, name
for call in (lambda: os.open(mount + b"/" + b"x" * 256, os.O_CREAT | os.O_WRONLY), lambda: os.mkdir(mount + b"/" + b"y" * 256),
             lambda: os.stat(mount + b"/" + b"z" * 256)):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.ENAMETOOLONG, error
    else:
        raise AssertionError("a name of 256 bytes was taken")
for index, name in enumerate(names):
    target = mount + b"/renamed-" + bytes([index + 33]) if index + 33 != 47 else mount + b"/renamed-slash"
    os.rename(mount + b"/" + name, target)
    os.rename(target, mount + b"/" + name)
    os.unlink(mount + b"/" + name)
assert os.listdir(export) == [], os.listdir(export)
# a path as deep as the client lets it be
folder = mount
for _ in range(100):
    folder += b"/deep"
    os.mkdir(folder)
open(folder + b"/file", "wb").close()
assert os.path.exists(export + b"/deep" * 100 + b"/file")
P
