"""Direct I/O of one kind on one file, checked byte for byte; and what of a file is in the page cache.

usage: copies.py write|read FILE SIZE COUNT: COUNT pieces of SIZE bytes, aligned in memory
       copies.py cached FILE: prints how many of its pages are in memory
"""

import ctypes
import mmap
import os
import random
import sys


def cached(path):
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    view = mmap.mmap(fd, size)
    pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(view))
    if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), pages) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in pages)


def transfer(what, path, size, count):
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, size)
    for index in range(count):
        wanted = random.Random(index).randbytes(size)
        if what == "write":
            page[:] = wanted
            assert os.pwritev(fd, [page], index * size) == size, index
        else:
            page[:] = bytes(size)
            assert os.preadv(fd, [page], index * size) == size, index
            assert page[:] == wanted, f"piece {index} of {path} differs"
    os.close(fd)


def main():
    what, path, *numbers = sys.argv[1:]
    if what == "cached":
        print(cached(path))
    else:
        transfer(what, path, *map(int, numbers))


main()
