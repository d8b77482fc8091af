# SPDX-License-Identifier: Apache-2.0
"""The disk of a node: its flags, and what lies on it, end to end."""

import json
import os
import signal
import sys

from harness import check, check_equal, check_in, eventually, main, test


def refused(c, *args, says=()):
    code, out, err = c.run(*args)
    check_equal(code, 2, f"exit code of yolk {' '.join(args)}\n{out[:300]!r}\n{err}")
    for part in says:
        check_in(part, err, f"message of yolk {' '.join(args)}")


@test("ssd.flags")
def _(c):
    """What cannot work is refused, and says which flag and why."""
    folder = os.path.join(c.dir, "ssd")
    refused(c, "node", "--ssd", "64MiB", "--ssd-path", "relative/ssd", says=["--ssd-path", "absolute"])
    refused(c, "node", "--ssd", "64MiB", "--ssd-path", folder + "/a/b", says=["--ssd-path", "above it does not exist"])
    refused(c, "node", "--ssd", "64MiB", "--ssd-path", "/" + "a" * 5000, says=["--ssd-path", "5001 bytes", "at most"])
    refused(c, "node", "--ssd", "4095", "--ssd-path", folder, says=["--ssd 4095", "at least 4KiB"])
    check(not os.path.exists(folder), "nothing is made for a refused size")
    refused(c, "node", "--ssd-path", folder, says=["--ssd-path", "--ssd SIZE"])
    refused(c, "node", "--ssd", "lots", "--ssd-path", folder, says=["ssd", "lots"])
    with open(folder, "w", encoding="utf-8") as file:
        file.write("mine")
    refused(c, "node", "--ssd", "64MiB", "--ssd-path", folder, says=["--ssd-path", "is no folder"])
    check_equal(open(folder, encoding="utf-8").read(), "mine", "a file in the way is left alone")
    refused(c, "replay", "--synthetic", "--ssd-path", "/var/tmp", says=["--ssd-path", "--ssd SIZE"])
    refused(c, "replay", "--synthetic", "--ssd", "1KiB", says=["--ssd", "less than one block"])
    refused(c, "replay", "--synthetic", "--ssd", "1GiB", "--master", "127.0.0.1:9", says=["--ssd", "running cluster"])


def replay(c, *args, faults=""):
    """(what it says, its report); `faults`: how its files go wrong."""
    report = os.path.join(c.dir, "report.json")
    code, out, err = c.run("replay", "--synthetic", "--requests", "1500", "--block-size", "16KiB", "--json", report, *args,
                           env={"YOLK_TEST_FILE_FAULTS": faults}, timeout_s=300)
    check_equal(code, 0, f"exit code of the replay\n{out.decode()}\n{err}")
    with open(report, encoding="utf-8") as file:
        return out.decode() + err, json.load(file)


def check_good(report):
    for name in ("wrong_bytes", "failed_puts", "failed_gets"):
        check_equal(report[name], 0, name)
    tiers = report["hits_by_tier"]
    check_equal(tiers["memory"] + tiers["ssd"], report["blocks_hit"], "hits by tier together")


@test("ssd.replay")
def _(c):
    """What memory cannot hold is read from the disk: no hit is lost while the disk has room."""
    _, roomy = replay(c, "--dram", "2GiB")
    for mode in ("--embedded", "--processes"):
        out, report = replay(c, mode, "--dram", "32MiB", "--ssd", "2GiB")
        check_good(report)
        check_equal(report["blocks_hit"], roomy["blocks_hit"], f"{mode}: blocks hit beside those of a large memory")
        check(report["hits_by_tier"]["ssd"] > 0 and report["hits_by_tier"]["memory"] > 0, report)
        where = out.split("disk files are in ", 1)[1].split(",", 1)[0]
        check(not os.path.exists(where), f"{where} is left")


@test("ssd.replay-stopped")
def _(c):
    """A replay that a signal ends fails, soon, and leaves none of its disk's files."""
    for mode in ("--embedded", "--processes"):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            process = c.yolk("replay", "--synthetic", "--requests", "20000", "--dram", "32MiB", "--ssd", "64MiB", mode,
                             "--report-every", "1")
            where = process.wait_line("disk files are in ([^,]*),")[1]
            process.wait_line("progress 1 of")
            check(os.path.isdir(where), f"{where} is not there")
            process.signal(number)
            check_equal(process.wait(30), 1, f"exit code of {mode} after {number}")
            check(not os.path.exists(where), f"{mode}: {where} is left after {number}")


@test("ssd.faults")
def _(c):
    """A disk that fails costs hits, never an operation or a byte; it is said why, and used again when it works."""
    small = ("--embedded", "--nodes", "1", "--dram", "32MiB", "--ssd", "1GiB")
    _, good = replay(c, *small)
    for faults, says, hits in (
            ("write:100=eio", "", "most"),
            ("write:100+=eio", "takes no more values for now, what is there is still read", "some"),
            ("write:100+8=enospc", "", "most"),
            ("sync:8=eio", "takes values again", "most"),
            ("read:20+20=eio", "", "most"),
            ("open:0+=nodirect", "through the page cache", "all"),
            ("allocate:0+=eopnotsupp", "cannot reserve blocks", "all"),
            ("allocate:0+=enospc", "this node has no disk for now", "none"),
            ("open:0+=eio", "this node has no disk for now", "none")):
        said, report = replay(c, *small, faults=faults)
        check_good(report)
        check_in(says, said, faults)
        from_disk = report["hits_by_tier"]["ssd"]
        check(report["blocks_hit"] <= good["blocks_hit"], f"{faults}: more hits than without")
        check({"all": report["blocks_hit"] == good["blocks_hit"], "most": from_disk > 0, "some": True,
               "none": from_disk == 0}[hits], f"{faults}: {report} beside {good}")


@test("ssd.full")
def _(c):
    """A disk too small for all: what does not fit goes, nothing fails."""
    folder = os.path.join(c.dir, "ssd")
    out, report = replay(c, "--processes", "--dram", "32MiB", "--ssd", "64MiB", "--ssd-path", folder)
    check_good(report)
    check(report["hits_by_tier"]["ssd"] > 0, report)
    check_in(f"disk files are in {folder}\n", out)
    check_equal(sorted(os.listdir(folder)), ["yolk.slot0", "yolk.slot1"], "files of the two nodes")


VALUES = 40
SIZE = 1 << 20


def value(i):
    return bytes([i + 1]) * 1000 + str(i).encode() * 97 + bytes(range(256)) * ((SIZE - 1000) // 256)


def put_all(c, address):
    for i in range(VALUES):
        code, _, err = c.run("put", "--master", address, f"key {i}", stdin=value(i))
        check_equal(code, 0, f"put of value {i}: {err}")


def found(c, address):
    """The values that are there; a wrong byte fails the test. What lay only in the memory of a node that was killed is
    refused by nobody's address until the master gives that node up."""
    there = set()
    for i in range(VALUES):
        code, out, err = c.run("get", "--master", address, f"key {i}")
        if code == 0:
            check(out == value(i), f"wrong bytes in value {i}")
            there.add(i)
        else:
            check("not_found" in err.lower() or "refused" in err.lower() or "link" in err.lower(), err)
    return there


def node_with_disk(c, address, folder):
    return c.node(address, "--ssd", "256MiB", "--ssd-path", folder, dram="16MiB")


@test("ssd.restart")
def _(c):
    """What lies on the disk outlives its node, however that ends, its master, and both."""
    folder = c.path("ssd")
    master, address = c.master()
    node = node_with_disk(c, address, folder)
    put_all(c, address)
    check_equal(len(found(c, address)), VALUES, "values before")
    on_disk = VALUES - 16

    node.kill()
    node = node_with_disk(c, address, folder)
    there = found(c, address)
    check(len(there) >= on_disk, f"only {len(there)} values after a kill of the node")

    port = int(address.rsplit(":", 1)[1])
    master.kill()
    master, address = c.master(port=port)
    eventually(lambda: len(found(c, address)) >= len(there), text="the values are back at another master")

    master.kill()
    node.kill()
    master, address = c.master(port=port)
    node = node_with_disk(c, address, folder)
    check(len(found(c, address)) >= on_disk, "values after a kill of both")

    node.terminate()
    check_equal(node.wait(), 0, "exit code of a node that ends in order")
    check_equal(found(c, address), set(), "values without a node")
    node_with_disk(c, address, folder)
    check(len(found(c, address)) >= on_disk, "values after an end in order")
    check_equal(os.listdir(folder), ["yolk.slot0"], "files")


@test("ssd.late")
def _(c):
    """A disk that fails at the start is tried again, and then mounted beside the memory, which is left as it is."""
    _, address = c.master()
    node = c.yolk("node", "--master", address, "--dram", "16MiB", "--ssd", "256MiB", "--ssd-path", c.path("ssd"),
                  env={"YOLK_TEST_FILE_FAULTS": "open:0+2=eio"})
    node.wait_line(r"^yolk node ready")
    check_equal(c.run("put", "--master", address, "early", stdin=b"bird")[0], 0, "put before the disk is there")
    node.wait_line(r"this node has its disk now")
    check_equal(c.run("get", "--master", address, "early")[1], b"bird", "value of before")
    put_all(c, address)
    check_equal(len(found(c, address)), VALUES, "values")


@test("ssd.removed")
def _(c):
    """What was removed does not come back with the disk."""
    folder = c.path("ssd")
    _, address = c.master()
    node = node_with_disk(c, address, folder)
    put_all(c, address)
    for i in range(0, VALUES, 2):
        check_equal(c.run("rm", "--force", "--master", address, f"key {i}")[0], 0, f"rm of value {i}")
    node.kill()
    node_with_disk(c, address, folder)
    there = found(c, address)
    check(there and all(i % 2 for i in there), f"values after the restart: {sorted(there)}")


if __name__ == "__main__":
    sys.exit(main())
