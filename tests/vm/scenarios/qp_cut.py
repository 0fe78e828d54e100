"""Moves one queue pair of a running process into the error state, as a fault of the network or the device does.

usage: qp_cut.py PID N; takes the N-th (modulo their number) of those that can send; prints how many there are

The process does not take part: its open device is borrowed (pidfd_getfd), and the queue pair modified through it with
the kernel's own interface (ib_user_verbs.h, ib_user_ioctl_cmds.h, rdma_user_ioctl_cmds.h).
"""

import ctypes
import os
import struct
import sys

PIDFD_GETFD, RDMA_VERBS_IOCTL = 438, 0xC0181B01
OBJECT_DEVICE, METHOD_INVOKE_WRITE = 0, 0
ATTR_CORE_IN, ATTR_CORE_OUT, ATTR_WRITE_CMD, ATTR_MANDATORY = 0, 1, 2, 1
QUERY_QP, MODIFY_QP = 25, 26
RXE = 14  # of enum rdma_driver_id: soft-RoCE
QP_STATE, READY_TO_SEND, ERROR = 1, 3, 6
# Handles number all objects of a device's user; those looked through are far more than a test makes.
HANDLES_MAX = 4096

libc = ctypes.CDLL(None, use_errno=True)


def borrowed_device(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/dev/infiniband/uverbs"):
            fd = libc.syscall(PIDFD_GETFD, os.pidfd_open(pid), int(name), 0)
            if fd < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            return fd
    sys.exit(f"process {pid} has no RDMA device open")


def invoke(fd, command, core_in, out_bytes):
    """One command; its answer, or None when the kernel refuses it."""
    given, answer = ctypes.create_string_buffer(core_in, len(core_in)), ctypes.create_string_buffer(max(out_bytes, 1))
    attributes = [(ATTR_CORE_IN, len(core_in), ctypes.addressof(given)), (ATTR_WRITE_CMD, 8, command)]
    if out_bytes:
        attributes.append((ATTR_CORE_OUT, out_bytes, ctypes.addressof(answer)))
    body = b"".join(struct.pack("=HHHHQ", kind, size, ATTR_MANDATORY, 0, data) for kind, size, data in attributes)
    head = struct.pack("=HHHHQII", 24 + len(body), OBJECT_DEVICE, METHOD_INVOKE_WRITE, len(attributes), 0, RXE, 0)
    request = ctypes.create_string_buffer(head + body, len(head) + len(body))
    return answer.raw if libc.ioctl(fd, ctypes.c_ulong(RDMA_VERBS_IOCTL), request) == 0 else None


def state(fd, handle):
    # struct ib_uverbs_query_qp and its answer, where the state stands behind two paths, ten words and two halves
    answer = invoke(fd, QUERY_QP, struct.pack("=QII", 0, handle, QP_STATE), 128)
    return answer[2 * 32 + 10 * 4 + 2 * 2] if answer else None


def cut(fd, handle):
    # struct ib_uverbs_modify_qp: two paths, seven words, two halves, the state and fifteen bytes that do not count
    words = struct.pack("=7I", handle, QP_STATE, 0, 0, 0, 0, 0)
    request = bytes(2 * 32) + words + struct.pack("=HH", 0, 0) + bytes([ERROR]) + bytes(15)
    return invoke(fd, MODIFY_QP, request, 0) is not None


def main():
    pid, number = map(int, sys.argv[1:])
    fd = borrowed_device(pid)
    sending = [handle for handle in range(HANDLES_MAX) if state(fd, handle) == READY_TO_SEND]
    if not sending:
        sys.exit(f"no queue pair can send; the last answer was errno {ctypes.get_errno()}")
    victim = sending[number % len(sending)]
    if not cut(fd, victim) or state(fd, victim) not in (ERROR, None):
        sys.exit(f"the queue pair with handle {victim} could not be cut: errno {ctypes.get_errno()}")
    print(len(sending))


main()
