#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public failure cases of a node's disk, by the programs alone: direct I/O and io_uring refused, files that are not
ours or not whole, and what the replay of the published trace finds on it."""

import ctypes
import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, check_in, eventually, main, test, yolk_path
from kill import kill_in_turn
from replay import replay, trace_path

MIB = 1 << 20
FULL = os.environ.get("YOLK_CASES_FULL") == "1"


@contextmanager
def disk_folder():
    """On a disk, as /tmp may be memory."""
    with tempfile.TemporaryDirectory(prefix="yolk-e2e-", dir="/var/tmp") as folder:
        yield folder


def value(i, size=MIB):
    return (b"%08d" % i) * (size // 8) + b"z" * (size % 8)


def put(c, address, numbers, size=MIB):
    for i in numbers:
        code, _, err = c.run("put", "--master", address, f"key{i}", stdin=value(i, size))
        check_equal(code, 0, f"put of {i}: {err}")


def check_values(c, address, numbers, size=MIB):
    for i in numbers:
        code, out, err = c.run("get", "--master", address, f"key{i}")
        check_equal(code, 0, f"get of {i}: {err}")
        check(out == value(i, size), f"wrong bytes in value {i}")


def figure(c, address, name):
    code, out, err = c.run("stat", "--master", address)
    check_equal(code, 0, err)
    return int(re.search(rf"^{name} (\d+)$", out.decode(), re.M)[1])


def disk_works(c, address):
    """Values are pushed out to the disk and read back from it."""
    put(c, address, range(24))
    eventually(lambda: figure(c, address, "tasks") == 0, text="all copies made")
    check_values(c, address, range(24))
    check(figure(c, address, "get_hits_disk") > 0, "nothing was read from the disk")
    check_equal(figure(c, address, "offloads_failed"), 0, "failed copies")


def residency(path):
    """The share of the file's pages that is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as pages:
        count = (len(pages) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        vector = (ctypes.c_ubyte * count)()
        # The address of a mapping that is read only: by its line in the list of mappings.
        begin = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps", encoding="utf-8")
                     if line.rstrip().endswith(path))
        check_equal(libc.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(len(pages)), vector), 0, "mincore")
        return sum(page & 1 for page in vector) / count


@test("disk.c68_direct_io_is_direct")
def _(c):
    with disk_folder() as folder:
        _, address = c.master()
        node = c.node(address, "--ssd", "4GiB" if FULL else "512MiB", "--ssd-path", folder, dram="64MiB")
        put(c, address, range(64 if FULL else 6), size=32 * MIB)
        eventually(lambda: figure(c, address, "tasks") == 0, text="all copies made")
        check_values(c, address, range(4), size=32 * MIB)
        check(figure(c, address, "get_hits_disk") > 0, "nothing was read from the disk")
        path = os.path.join(folder, "yolk.slot0")
        if "through the page cache" in node.output():
            raise Skip("the file system of /var/tmp refuses direct I/O, and the node said so")
        flags = []
        for fd in os.listdir(f"/proc/{node.pid}/fd"):
            if os.path.realpath(f"/proc/{node.pid}/fd/{fd}") == path:
                with open(f"/proc/{node.pid}/fdinfo/{fd}", encoding="utf-8") as info:
                    flags.append(int(re.search(r"^flags:\s+(\d+)", info.read(), re.M)[1], 8))
        check(flags and all(each & os.O_DIRECT for each in flags), f"flags of {path}: {flags}")
        share = residency(path)
        check(share < 0.05, f"{share:.1%} of {path} is in the page cache")


def is_told_once(node, text):
    check_equal(node.output().count(text), 1, f"how often it says {text!r}")


@test("disk.c69_direct_io_refused_at_open")
def _(c):
    """ramfs knows none. It cannot reserve blocks either."""
    if os.geteuid() != 0:
        raise Skip("only root mounts a ramfs")
    at = c.path("ram")
    os.mkdir(at)
    done = subprocess.run(["mount", "-t", "ramfs", "none", at], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"no ramfs can be mounted: {done.stderr.strip()}")
    try:
        _, address = c.master()
        node = c.node(address, "--ssd", "64MiB", "--ssd-path", os.path.join(at, "ssd"), dram="8MiB")
        disk_works(c, address)
        is_told_once(node, "direct I/O was refused")
        node.kill()
    finally:
        subprocess.run(["umount", "-l", at], check=False)


@test("disk.c69_direct_io_refused_at_read_and_write")
def _(c):
    for kind in ("read", "write"):
        with disk_folder() as folder:
            _, address = c.master()
            node = c.yolk("node", "--master", address, "--dram", "8MiB", "--ssd", "64MiB", "--ssd-path", folder,
                          env={"YOLK_TEST_FILE_FAULTS": f"{kind}:0+=einval"})
            node.wait_line("^yolk node ready")
            disk_works(c, address)
            is_told_once(node, "direct I/O was refused")
            node.kill()


# Runs the rest of its arguments with io_uring_setup refused by the error number in the first, 0: not refused,
# and with so many bytes of memory that may be locked as the second says.
CONFINED = textwrap.dedent("""
    import ctypes, os, resource, struct, sys
    number, locked = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    if number:
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
        code = b"".join(struct.pack("HBBI", *each) for each in (
            (0x20, 0, 0, 0),                       # the system call's number
            (0x15, 0, 1, 425),                     # io_uring_setup?
            (0x06, 0, 0, 0x00050000 | number),     # then this error
            (0x06, 0, 0, 0x7fff0000)))             # else go on
        program = Program(4, code)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
            sys.exit("no seccomp filter: " + os.strerror(ctypes.get_errno()))
    os.execv(sys.argv[3], sys.argv[3:])
    """)


def confined_node(c, address, folder, error, locked):
    node = c.start(sys.executable, "-c", CONFINED, error, locked, yolk_path(), "node", "--master", address, "--dram",
                   "8MiB", "--ssd", "64MiB", "--ssd-path", folder)
    node.wait_line("^yolk node ready")
    return node


def without_io_uring(c, error, text):
    with disk_folder() as folder:
        _, address = c.master()
        node = confined_node(c, address, folder, error, 8 * MIB)
        disk_works(c, address)
        reasons = [line for line in node.lines if "io_uring" in line]
        check_equal(len(reasons), 1, f"lines about io_uring: {reasons}")
        check_in(text, reasons[0], "why")
        node.kill()


@test("disk.c74_io_uring_not_permitted")
def _(c):
    without_io_uring(c, 1, "not permitted")


@test("disk.c74_io_uring_not_there")
def _(c):
    without_io_uring(c, 38, "not implemented")


@test("disk.c75_little_memory_may_be_locked")
def _(c):
    with disk_folder() as folder:
        _, address = c.master()
        nodes = [confined_node(c, address, folder, 0, 64 << 10) for _ in range(4)]
        eventually(lambda: figure(c, address, "disk_segments") == len(nodes), text="four disks")
        put(c, address, range(80))
        eventually(lambda: figure(c, address, "tasks") == 0, text="all copies made")
        check_values(c, address, range(80))
        check(figure(c, address, "get_hits_disk") > 0, "nothing was read from the disk")
        check(all(node.alive() for node in nodes), "a node died")


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def with_superblocks(whole, offset, layout, new):
    """The file with this field of both superblocks changed, and their checksums right."""
    whole = bytearray(whole)
    for at in (0, 32768):
        struct.pack_into(layout, whole, at + offset, new)
        struct.pack_into("<I", whole, at + 12, 0)
        struct.pack_into("<I", whole, at + 12, crc32c(bytes(whole[at:at + 4096])))
    return bytes(whole)


def refused_node(c, address, folder, says):
    code, out, err = c.run("node", "--master", address, "--dram", "8MiB", "--ssd", "32MiB", "--ssd-path", folder)
    check(code != 0, f"the node takes {says}:\n{out.decode()}{err}")
    check_in(says, err, "message")
    check_in("yolk.slot0", err, "the file is named")


@test("disk.c84_files_that_are_not_ours_or_not_whole")
def _(c):
    """Each is refused each time, with the reason, and never touched; put right, it serves what it holds."""
    _, address = c.master()
    folder = c.path("ssd")
    path = os.path.join(folder, "yolk.slot0")
    node = c.node(address, "--ssd", "32MiB", "--ssd-path", folder, dram="8MiB")
    put(c, address, range(16))
    node.terminate()
    check_equal(node.wait(), 0, "exit code of the node")
    with open(path, "rb") as file:
        good = file.read()
    elsewhere = c.path("elsewhere")
    cases = (
        ("text of somebody", b"my diary\n" * 20000, "not an extent file"),
        ("zeros", bytes(len(good)), "only zeros"),
        ("an empty file", b"", "too few"),
        ("cut in its superblocks", good[:20000], "too few"),
        ("cut in its journal", good[:200000], "bytes"),
        ("cut in its extents", good[:len(good) // 2], "bytes"),
        ("both superblocks damaged", bytes(4096) + good[4096:32768] + bytes(4096) + good[36864:], "zeros"),
        ("a newer version", with_superblocks(good, 8, "<I", 2), "format version 2"),
        ("a feature of later", with_superblocks(good, 16, "<Q", 1), "features 1"),
    )
    for name, content, says in cases:
        for link in (False, True):
            os.unlink(path)
            if link:
                os.symlink(elsewhere, path)
            with open(elsewhere if link else path, "wb") as file:
                file.write(content)
            for _ in range(1 if link else 3):
                refused_node(c, address, folder, says)
            with open(path, "rb") as file:
                check(file.read() == content, f"{name}: the file was changed")
            check_equal(os.listdir(folder), ["yolk.slot0"], f"{name}: files")
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(good)
    totals = set()
    for _ in range(3):
        node = c.node(address, "--ssd", "32MiB", "--ssd-path", folder, dram="8MiB")
        check_values(c, address, range(16))
        totals.add(figure(c, address, "disk_live_bytes"))
        node.kill()
    check_equal(totals, {16 * MIB}, "bytes on the disk after each start")


@test("disk.c84_one_superblock_is_enough")
def _(c):
    _, address = c.master()
    folder = c.path("ssd")
    path = os.path.join(folder, "yolk.slot0")
    for spoilt in (0, 32768):
        node = c.node(address, "--ssd", "32MiB", "--ssd-path", folder, dram="8MiB")
        put(c, address, range(16))
        node.terminate()
        check_equal(node.wait(), 0, "exit code of the node")
        with open(path, "r+b") as file:
            file.seek(spoilt)
            file.write(bytes(4096))
        node = c.node(address, "--ssd", "32MiB", "--ssd-path", folder, dram="8MiB")
        check_in("superblock", node.output(), "what it says")
        check_values(c, address, range(16))
        node.terminate()
        node.wait()


@test("disk.c96_a_block_device_is_refused")
def _(c):
    _, address = c.master()
    for target in ("/dev/null", "/dev/zero"):
        code, _, err = c.run("node", "--master", address, "--ssd", "32MiB", "--ssd-path", target)
        check_equal(code, 2, f"exit code for {target}")
        check_in(f"--ssd-path {target}: is no folder", err, "message")


@test("disk.killed_nodes_keep_what_is_on_the_disk")
def _(c):
    """Nodes and master die in turn while a replay runs; what their files hold afterwards is whole."""
    with disk_folder() as folder:
        result = kill_in_turn(c, ["node-0", "node-1", "master"], "--dram", "64MiB", "--ssd", "1GiB", "--ssd-path", folder)
        check(result["hits_by_tier"]["ssd"] > 0, f"hits by tier: {result['hits_by_tier']}")
        # What was only in memory dies with its node, six times.
        wanted = 0.5 * result["unbounded_hit_rate"]
        check(result["hit_rate"] > wanted, f"hit rate {result['hit_rate']}, not {wanted}")
        for name in os.listdir(folder):
            code, out, err = c.run("fsck", "--data", os.path.join(folder, name))
            check_equal(code, 0, f"fsck of {name}:\n{out.decode()}{err}")


def conversation(c, ssd):
    _, result, text = replay(c, "--trace", trace_path(), "--block-size", "16KiB", "--nodes", 2, "--dram", "256MiB",
                             "--ssd", ssd, "--verify", "--processes")
    check_equal(result["requests"], 12031, "requests")
    tiers = result["hits_by_tier"]
    check_equal(tiers["memory"] + tiers["ssd"], result["blocks_hit"], f"{text}\nhits by tier together")
    check(tiers["memory"] > 0 and tiers["ssd"] > 0, f"{text}\nhits by tier")
    return result, text


@test("disk.conversation_finds_all_on_a_large_disk")
def _(c):
    result, text = conversation(c, "4GiB")
    check_equal(result["blocks_hit"], 105710, f"{text}\nblocks_hit")
    check_equal(result["failed_gets"], 0, f"{text}\nfailed_gets")


@test("disk.conversation_on_a_small_disk")
def _(c):
    conversation(c, "512MiB")


if __name__ == "__main__":
    sys.exit(main())
