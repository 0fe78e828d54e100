"""Writes and reads every size through the mount and compares with what lies in the served folder.

usage: size_sweep.py MOUNT EXPORT quick|full
"""

import mmap
import os
import random
import sys

MOUNT, EXPORT, LEVEL = sys.argv[1:]
KIB, MIB = 1024, 1024 * 1024
EDGES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 511, 512, 513, 995, 1023, 1024, 1025, 2048, 3000, 3967, 4000, 4095, 4096, 4097,
         8191, 8192, 8193, 65535, 65536, 65537, 100003, 262144, MIB - 1, MIB, MIB + 1, 2 * MIB + 13, 4 * MIB]
rng = random.Random(20049)


def fail(text):
    with open("/run/size_sweep.reason", "w", encoding="utf-8") as out:
        out.write(text)
    sys.exit(1)


def same(what, got, wanted):
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    fail(f"{what}: {len(got)} bytes instead of {len(wanted)}, first difference at byte {at}")


def drop(path):
    """Forgets the client's cached pages of the file."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def stored(name):
    with open(f"{EXPORT}/{name}", "rb") as file:
        return file.read()


def buffered(size):
    name, data = f"buffered-{size}", rng.randbytes(size)
    with open(f"{MOUNT}/{name}", "wb") as file:
        file.write(data)
    same(f"write of {size} bytes", stored(name), data)
    drop(f"{MOUNT}/{name}")
    with open(f"{MOUNT}/{name}", "rb") as file:
        same(f"read of {size} bytes", file.read(), data)
    os.unlink(f"{MOUNT}/{name}")


def served(size):
    """A file that the server made: read at odd offsets and lengths, past its end too."""
    name, data = f"served-{size}", rng.randbytes(size)
    with open(f"{EXPORT}/{name}", "wb") as file:
        file.write(data)
    fd = os.open(f"{MOUNT}/{name}", os.O_RDONLY)
    same(f"read of a served file of {size} bytes", b"".join(iter(lambda: os.read(fd, MIB), b"")), data)
    for _ in range(4):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        offset, length = rng.randrange(size + 2), rng.randrange(1, size + 10)
        same(f"read of {length} bytes at {offset} of {size}", os.pread(fd, length, offset), data[offset:offset + length])
    os.close(fd)
    os.unlink(f"{MOUNT}/{name}")


def pwrite_all(fd, view, offset):
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def direct(size, offset):
    """O_DIRECT on NFS takes any length and offset: what is sent is exactly what is asked for."""
    name, data = f"direct-{size}-{offset}", rng.randbytes(size)
    buffer = mmap.mmap(-1, max(size, 1))
    buffer[:size] = data
    fd = os.open(f"{MOUNT}/{name}", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    pwrite_all(fd, memoryview(buffer)[:size], offset)
    same(f"direct write of {size} bytes at {offset}", stored(name), (b"\0" * offset + data) if size else b"")
    back = mmap.mmap(-1, size + 4096)
    got = os.preadv(fd, [memoryview(back)[:size + 100]], offset) if size else 0
    same(f"direct read of {size} bytes at {offset}", back[:got], data)
    os.close(fd)
    os.unlink(f"{MOUNT}/{name}")


def scattered():
    """Small writes at odd places into one file, as databases do, against a model in memory."""
    model = bytearray(rng.randbytes(300_000))
    with open(f"{MOUNT}/scattered", "wb") as file:
        file.write(model)
    fd = os.open(f"{MOUNT}/scattered", os.O_RDWR)
    for step in range(100 if LEVEL == "quick" else 1000):
        offset = rng.randrange(len(model) - 1)
        data = rng.randbytes(rng.choice((1, 3, 511, 4096, 5000)))[:len(model) - offset]
        model[offset:offset + len(data)] = data
        os.pwrite(fd, data, offset)
        if step % 20 == 0:
            os.fsync(fd)
            same(f"after {step} scattered writes", stored("scattered"), bytes(model))
    os.close(fd)
    same("after all scattered writes", stored("scattered"), bytes(model))


sizes = EDGES if LEVEL == "quick" else EDGES + [rng.randrange(4 * MIB) for _ in range(40)] + list(range(4080, 4112))
for size in sizes:
    buffered(size)
    served(size)
    direct(size, 0)
for size in (1, 511, 4096, 65537, MIB):
    for offset in (1, 4095, 4096, 123457):
        direct(size, offset)
scattered()
