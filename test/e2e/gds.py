#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GDS tier from outside: Python with the environment of the proposal, replays, kills. On the fakes, or on a GPU (see
gds_kit.py)."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gds_kit
from harness import ROOT, Skip, check, check_equal, check_in, main, test
from python_kit import folder

KIB, MIB = 1 << 10, 1 << 20
WORKER = os.path.join(ROOT, "test", "e2e", "gds_worker.py")


def files_folder(c):
    """Where the GDS file lies: on a disk, for direct I/O."""
    wished = os.environ.get("MOONCAKE_GDS_TEST_PATH")
    return os.path.join(wished, os.path.basename(c.dir)) if wished else c.dir


def worker(c, what, master, environment, *args, code=0):
    """Another Python; what it says, as JSON a line."""
    done = subprocess.run([sys.executable, WORKER, folder(), what, master, *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False,
                          env={**os.environ, **environment})
    check_equal(done.returncode, code, f"{what}: {done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@test("gds.the_proposals_environment")
def the_proposals_environment(c):
    """vLLM's calls with pointers of a GPU: one copy in memory and one in the file; without the former the latter, to the
    byte."""
    _, master = c.master("--lease-ttl", "50ms")
    path = os.path.join(files_folder(c), "gds_offload")
    said, _ = worker(c, "vllm", master, gds_kit.environment(path))
    check_equal(said[0]["put"], [0] * 4, "puts")
    check_equal(said[0]["media"], [["gds", "memory"]] * 4)
    check_equal(said[0]["cleared"], said[0]["keys"])
    check_equal(said[0]["left"], [["gds"]] * 4)
    check_equal(said[0]["sizes"], said[0]["got"], "sizes")
    check_equal(said[0]["exact"], [True] * 4)
    for size, one in zip(said[0]["sizes"], said[0]["descriptors"]):
        check_equal((one["value_size"], one["allocated_size"]), (size, (size + 4095) // 4096 * 4096))
        check_equal((len(one["owner_client_id"]), len(one["storage_id"])), (32, 32))
        check(one["storage_generation"] > 0 and one["value_offset"] % 4096 == 0, one)
    check(os.path.getsize(path + ".slot0") >= gds_kit.CAPACITY, "the file is smaller than its capacity")
    # Another process finds all of it again.
    said, _ = worker(c, "vllm_again", master, gds_kit.environment(path))
    check_equal((said[0]["exact"], said[0]["media"]), ([True] * 4, [["gds"]] * 4))


@test("gds.c60_a_python_may_just_end")
def a_python_may_just_end(c):
    """C60: however it ends with its store open, it ends as asked: cuFile's own end harms nobody."""
    _, master = c.master()
    path = os.path.join(files_folder(c), "gds_offload")
    ways = {"return": 0, "late": 0, "exit": 3, "exit-busy": 3, "thread": 3, "underscore": 3, "exception": 1, "signal": -15,
            "handled": 3, "handled-busy": 3}
    for way, code in ways.items():
        said, log = worker(c, "just_ends", master, gds_kit.environment(path), way, code=code)
        check_equal(said[0]["put"], [0] * 4, way)
        check("cuFile open" not in log, log)


@test("gds.off_is_as_it_was")
def off_is_as_it_was(c):
    _, master = c.master("--lease-ttl", "50ms")
    path = os.path.join(files_folder(c), "gds_offload")
    for environment in ({}, gds_kit.environment(path, MOONCAKE_GDS_OFFLOAD_ENABLED="0")):
        said, _ = worker(c, "vllm", master, environment)
        check_equal(said[0]["media"], [["memory"]] * 4)
        check_equal((said[0]["cleared"], said[0]["left"]), (said[0]["keys"], [[]] * 4))
        check(not os.path.exists(path + ".slot0"), "there is a file")


@test("gds.each_wrong_setting_is_named")
def each_wrong_setting_is_named(c):
    _, master = c.master()
    good = gds_kit.environment(os.path.join(files_folder(c), "gds_offload"))
    conf = json.loads(good["MC_TENT_CONF"])

    def tent(**transports):
        return json.dumps({"transports": {**conf["transports"], **transports}})

    without = {name: value for name, value in good.items() if name != "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES"}
    wrong = [
        ("MOONCAKE_GDS_OFFLOAD_ENABLED", {**good, "MOONCAKE_GDS_OFFLOAD_ENABLED": "yes"}),
        ("MOONCAKE_GDS_OFFLOAD_PATH", {**good, "MOONCAKE_GDS_OFFLOAD_PATH": "relative/file"}),
        ("MOONCAKE_GDS_OFFLOAD_PATH", {**good, "MOONCAKE_GDS_OFFLOAD_PATH": ""}),
        ("MOONCAKE_GDS_OFFLOAD_PATH", {**good, "MOONCAKE_GDS_OFFLOAD_PATH": "/no/such/folder/file"}),
        ("MOONCAKE_GDS_OFFLOAD_PATH", {**good, "MOONCAKE_GDS_OFFLOAD_PATH": good["MOONCAKE_GDS_OFFLOAD_PATH"] + "/"}),
        ("/no/such/folder", {**good, "MOONCAKE_GDS_OFFLOAD_PATH": "/no/such/folder/file"}),
        ("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", {**good, "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES": "much"}),
        ("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", {**good, "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES": "0"}),
        ("MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES", {**good, "MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES": "-1"}),
        ("MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES", {**good, "MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES": "100TiB"}),
        ("MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES", {**good, "MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES": "1"}),
        ("MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES", without),
        ("MOONCAKE_GDS_OFFLOAD_OPTIONAL", {**good, "MOONCAKE_GDS_OFFLOAD_OPTIONAL": "2"}),
        ("MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK", {**good, "MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK": "true"}),
        ("MOONCAKE_GDS_OFFLOAD_START_EMPTY", {**good, "MOONCAKE_GDS_OFFLOAD_START_EMPTY": "x"}),
        ("MC_STORE_MEMCPY", {**good, "MC_STORE_MEMCPY": "maybe"}),
        ("MC_TENT_CONF", {**good, "MC_TENT_CONF": "{"}),
        ("transports/gds/enable", {**good, "MC_TENT_CONF": tent(gds={"enable": False})}),
        ("transports/gds/io_batch_depth", {**good, "MC_TENT_CONF": tent(gds={"enable": True, "io_batch_depth": 0})}),
        ("transports/gds/io_batch_depth", {**good, "MC_TENT_CONF": tent(gds={"enable": True, "io_batch_depth": 129})}),
        ("transports/gds/depth", {**good, "MC_TENT_CONF": tent(gds={"enable": True, "depth": 64})}),
        ("io_uring", {**good, "MC_TENT_CONF": tent(io_uring={"enable": True})}),
    ]
    for name, environment in wrong:
        said, _ = worker(c, "open", master, environment)
        check(said[0]["code"] < 0, f"{name}: accepted")
        check_in(name, said[0]["error"])
    link = good["MOONCAKE_GDS_OFFLOAD_PATH"] + ".slot0"
    os.symlink("/no/such/disk", link)
    said, _ = worker(c, "open", master, good)
    check(said[0]["code"] < 0, "a link to nothing: accepted")
    check_in(link + " is a symbolic link, and what it names is not there", said[0]["error"])
    check(os.path.islink(link), "the link was replaced")
    os.unlink(link)
    said, _ = worker(c, "open", master, {**good, "MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES": str(MIB * 32)})
    check_equal(said[0], {"code": 0, "error": ""})


@test("gds.without_a_driver_set_up_fails_with_the_reason")
def without_a_driver(c):
    if gds_kit.real():
        raise Skip("there is a driver")
    _, master = c.master()
    environment = gds_kit.environment(os.path.join(files_folder(c), "gds_offload"))
    said, _ = worker(c, "open", master, {**environment, "LD_LIBRARY_PATH": ""})
    check(said[0]["code"] < 0, said[0])
    check(re.search(r"libcuda|libcufile|CUDA|cuFile", said[0]["error"]), said[0]["error"])


@test("gds.replay")
def replay(c):
    """Far more than memory holds: read back from the files, no byte wrong, none lost while they have room."""
    out = c.path("replay.json")
    gpu = ["--gpu", "0"]
    for how in (["--embedded"], ["--processes"]):
        path = os.path.join(files_folder(c), "replay" + how[0][2:])
        code, stdout, stderr = c.run("replay", "--synthetic", "--requests", 300, "--block-size", "16KiB", "--dram", "16MiB",
                                     "--gds-path", path, "--gds", "512MiB", "--json", out, *how, *gpu, timeout_s=240)
        text = stdout.decode() + stderr
        check_equal(code, 0, text)
        with open(out, encoding="utf-8") as file:
            result = json.load(file)
        check_equal((result["wrong_bytes"], result["failed_puts"], result["failed_gets"]), (0, 0, 0), text)
        check(result["hits_by_tier"]["gds"] > 0, text)
        # As many hits as a cache without bounds has: nothing was lost.
        unbounded = int(re.search(r"an unbounded cache .*\((\d+) blocks\)", text).group(1))
        check_equal(result["blocks_hit"], unbounded, text)
        check_in("from memory, SSD, GDS", text)


@test("gds.replay_needs_both_flags")
def replay_flags(c):
    for arguments, words in (
        (("--gds", "1GiB"), "--gds SIZE (not 0) and --gds-path FILE"),
        (("--gds-path", "/x"), "--gds SIZE (not 0) and --gds-path FILE"),
        (("--gds", "0", "--gds-path", "/x"), "--gds SIZE (not 0) and --gds-path FILE"),
        (("--gds", "1GiB", "--gds-path", "x"), "--gds-path: \"x\": must be the absolute path of a file"),
        (("--gpu", "77"), "--gpu"),
    ):
        code, _, stderr = c.run("replay", "--synthetic", *arguments)
        check_equal(code, 2, stderr)
        check_in(words, stderr)


@test("gds.writers_faster_than_the_drain")
def writers_faster(c):
    """256 MiB of memory, 512 MiB in one go, a disk with room: how many keys are lost without the tier is printed; with it
    all that were put are there."""
    lost = {}
    for tier in ("ssd", "gds"):
        process, master = c.master("--lease-ttl", "50ms")
        environment = {}
        if tier == "gds":
            environment = gds_kit.environment(os.path.join(files_folder(c), "faster"), 1536 * MIB)
        said, _ = worker(c, "faster", master, environment, tier, os.path.join(files_folder(c), "ssd"))
        lost[tier] = said[0]
        process.kill()
    print("# of %d keys without the tier %d were refused and %d lost; with it %d and %d" % (
        lost["ssd"]["keys"], lost["ssd"]["refused"], lost["ssd"]["lost"], lost["gds"]["refused"], lost["gds"]["lost"]))
    check_equal((lost["gds"]["refused"], lost["gds"]["lost"], lost["gds"]["wrong"]), (0, 0, 0), lost)
    check_equal(lost["ssd"]["wrong"], 0)


def defined_in(suite):
    """Names of the tests of a suite, and where they stand; none if there is no such suite."""
    room, name = suite.split(".", 1)
    if room == "e2e":
        path, pattern = f"test/e2e/{name}.py", r'^@test\("([^"]+)"\)'
    else:
        pattern = r"^static void (\w+)\(void \*\*state\)"
        folder_of = {"gpu": "device"}.get(room, room)
        places = (f"src/{room}/{name}_test.c", f"test/{folder_of}/{name}_test.c",
                  f"src/{room}/{name.replace('.', '/')}_test.c")
        path = next((p for p in places if os.path.exists(os.path.join(ROOT, p))), "none")
    path = os.path.join(ROOT, path)
    if not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as file:
        return set(re.findall(pattern, file.read(), re.M)) | {""}


@test("gds.each_statement_has_its_test")
def each_statement_has_its_test(_c):
    """The table of docs/gds.md: each row names a test that is there, or a command."""
    with open(os.path.join(ROOT, "docs", "gds.md"), encoding="utf-8") as page:
        table = page.read().split("| statement | test or command |")[1]
    rows = re.findall(r"^\| ((?:RFC|ART)[^|]*) \| (.*) \|$", table, re.M)
    named = 0
    for statement, cell in rows:
        items = re.findall(r"`([^`]+)`([^`;]*)", cell)
        check(items, statement + ": nothing shows it")
        for item, names in items:
            if re.match(r"(yolk|yolk-sim|scripts/check)( |$)", item):
                continue
            there = defined_in(item)
            check(there, f"{statement}: there is no suite {item}")
            for name in re.findall(r"[\w.]+", names):
                check(name in there, f"{statement}: {item} has no {name}")
                named += 1
    check(len(rows) > 35 and named > 50, f"only {len(rows)} rows name {named} tests")


if __name__ == "__main__":
    gds_kit.begin()
    sys.exit(main())
