"""The writer and the judge of the crash scenario.

write FOLDER   appends records to FOLDER/log, some with fsync, and makes files, until /run/crash.stop exists; the number
               of the last record that fsync has acknowledged is in /run/crash.acknowledged
check FOLDER   every record and file acknowledged so far is there
all FOLDER     every record that was written at all is there, and nothing else
"""

import os
import random
import sys

ACKNOWLEDGED, WRITTEN = "/run/crash.acknowledged", "/run/crash.written"


def record(number):
    rng = random.Random(number)
    return rng.randbytes(rng.choice((1, 100, 4096, 5000, 70_000)))


def publish(path, number):
    with open(path + ".new", "w", encoding="ascii") as out:
        out.write(str(number))
    os.rename(path + ".new", path)


def published(path):
    with open(path, encoding="ascii") as source:
        return int(source.read())


def write(folder):
    number = 0
    os.mkdir(f"{folder}/files")
    log = os.open(f"{folder}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while not os.path.exists("/run/crash.stop"):
        number += 1
        data = record(number)
        while data:
            data = data[os.write(log, data):]
        if number % 3 == 0:
            os.fsync(log)
            # The name is durable when the call has returned: v3 has no way to say otherwise.
            with open(f"{folder}/files/{number}", "w", encoding="ascii") as file:
                file.write(str(number))
            publish(ACKNOWLEDGED, number)
    os.fsync(log)
    os.close(log)
    publish(WRITTEN, number)
    publish(ACKNOWLEDGED, number)


def judge(folder, last, whole):
    wanted = b"".join(record(number) for number in range(1, last + 1))
    with open(f"{folder}/log", "rb") as source:
        got = source.read()
    if whole and len(got) != len(wanted):
        return f"{len(got)} bytes instead of {len(wanted)}"
    if got[:len(wanted)] != wanted:
        at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), len(got))
        return f"byte {at} is wrong of {len(wanted)} that had been acknowledged (the file has {len(got)})"
    names = {f"{number}" for number in range(3, last + 1, 3)}
    missing = names - set(os.listdir(f"{folder}/files"))
    return f"{len(missing)} files are missing" if missing else None


def main():
    mode, folder = sys.argv[1:]
    if mode == "write":
        return write(folder)
    reason = judge(folder, published(ACKNOWLEDGED if mode == "check" else WRITTEN), mode == "all")
    if reason:
        with open("/run/crash.reason", "w", encoding="utf-8") as out:
            out.write(reason)
        sys.exit(1)
    return None


main()
