# SPDX-License-Identifier: Apache-2.0
"""yolk fsck on the files that a node leaves: good, spoilt, foreign and in use."""

import fcntl
import os
import struct
import sys

from harness import check, check_equal, check_in, main, test

OPEN_FILE_LOCK = 37  # F_OFD_SETLK of Linux


def made(c):
    """The extent file of a replay that put some values into it."""
    folder = os.path.join(c.dir, "disk")
    code, out, err = c.run("replay", "--synthetic", "--requests", "100", "--nodes", "1", "--embedded", "--dram", "16MiB",
                           "--ssd", "64MiB", "--ssd-path", folder, timeout_s=120)
    check_equal(code, 0, f"exit code of the replay\n{out!r}\n{err}")
    files = os.listdir(folder)
    check_equal(len(files), 1, f"files in {files}")
    return os.path.join(folder, files[0])


def spoil(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def fsck(c, *args):
    code, out, err = c.run("fsck", *args, timeout_s=60)
    return code, out.decode() + err


@test("fsck.says-what-differs")
def _(c):
    path = made(c)
    code, text = fsck(c, "--data", path)
    check_equal(code, 0, text)
    check_in("differences: 0", text)
    check("extents:    0," not in text, text)
    with open(path, "rb") as file:
        journal_bytes, = struct.unpack_from("<Q", file.read(4096), 72)

    # The first value: only reading it tells.
    spoil(path, 65536 + 2 * journal_bytes)
    code, text = fsck(c, path)
    check_equal(code, 0, text)
    code, text = fsck(c, "--data", path)
    check_equal(code, 1, text)
    check_in("does not match its checksum", text)
    check_in("differences: 1", text)

    # One superblock, then both.
    spoil(path, 40)
    code, text = fsck(c, path)
    check_equal(code, 1, text)
    check_in("superblock 0 is not valid", text)
    spoil(path, 32768 + 40)
    code, text = fsck(c, path)
    check_equal(code, 1, text)
    check_in("both of its superblocks are damaged", text)


@test("fsck.refuses")
def _(c):
    path = made(c)
    with open(path, "r+b") as file:
        fcntl.fcntl(file, OPEN_FILE_LOCK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        code, text = fsck(c, path)
    check_equal(code, 1, text)
    check_in("a process has it open", text)
    foreign = os.path.join(c.dir, "foreign")
    for content, what in ((b"x" * 100000, "not an extent file"), (b"", "too few"), (bytes(100000), "only zeros")):
        with open(foreign, "wb") as file:
            file.write(content)
        code, text = fsck(c, foreign)
        check_equal(code, 1, text)
        check_in(what, text)
        check_in(foreign, text)
        with open(foreign, "rb") as file:
            check_equal(file.read(), content, "a foreign file is left alone")
    code, text = fsck(c, os.path.join(c.dir, "none"))
    check_equal(code, 1, text)
    code, text = fsck(c, c.dir)
    check_equal(code, 1, text)
    check_in("neither a regular file nor a block device", text)
    for args, what in (((), "FILE is missing"), (("",), "FILE is empty")):
        code, text = fsck(c, *args)
        check_equal(code, 2, text)
        check_in(what, text)


@test("fsck.may-only-read")
def _(c):
    """A file that may only be read can be checked, and more than one at a time may do so."""
    path = made(c)
    os.chmod(path, 0o400)
    with open(path, "rb") as file:
        fcntl.fcntl(file, OPEN_FILE_LOCK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        code, text = fsck(c, "--data", path)
        check_equal(code, 0, text)
        check_in("values:", text)


if __name__ == "__main__":
    sys.exit(main())
