"""Writes files, syncs them and reads them back from the server, until /run/load.stop exists; any error ends it.

usage: steady_load.py FOLDER NAME; the number of rounds done so far is in /run/load.NAME
"""

import os
import sys
import time


def main():
    folder, name = sys.argv[1:]
    rounds, slowest = 0, 0.0
    while not os.path.exists("/run/load.stop"):
        started = time.monotonic()
        path, data = f"{folder}/{rounds % 8}", os.urandom(1 << 20)
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        assert os.pwrite(fd, data, 0) == len(data), path
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, len(data), 0) == data, path
        os.close(fd)
        rounds += 1
        slowest = max(slowest, time.monotonic() - started)
        with open(f"/run/load.{name}.new", "w", encoding="ascii") as out:
            out.write(f"{rounds}")
        os.rename(f"/run/load.{name}.new", f"/run/load.{name}")
    print(f"{name}: {rounds} rounds, the slowest {slowest:.1f} s")


main()
