# SPDX-License-Identifier: Apache-2.0
"""`yolk bench`: that it measures, not how fast this machine is."""

import json
import os
import shutil
import subprocess
import sys

from harness import Skip, check, check_equal, check_in, eventually, main, test


def check_rows(report, pairs):
    """The rows of the shared frame say what the report says in its own: pairs of value and ceiling."""
    for row, (value, ceiling) in zip(report["rows"], pairs, strict=True):
        check_equal(set(row), {"name", "unit", "value", "ceiling_name", "ceiling", "ratio"}, "keys of a row")
        check(row["name"] and row["unit"] and row["ceiling_name"], row)
        check_equal((row["value"], row["ceiling"]), (value, ceiling), f"value and ceiling of {row['name']}")
        check(abs(row["ratio"] - value / ceiling) < 1e-9, row)


@test("bench.ssd")
def _(c):
    """C68: the file is read and written around the page cache where the report says so; nothing is left behind."""
    code, out, err = c.run("bench", "ssd", "--path", c.dir, "--json", timeout_s=170)
    if "io_uring_setup" in err:
        raise Skip("nothing to compare with, io_uring is refused: " + err.strip().splitlines()[-1])
    check_equal(code, 0, f"exit code\n{err}")
    report = json.loads(out)
    check_in(report["transport"], ("uring", "posix"), "transport")
    if report["direct"]:
        check(report["resident"] < 0.05, f"{report['resident']} of the file is in the page cache")
    else:
        check_in("direct I/O was refused", err, "the reason")
    check_equal([(f["operation"], f["object_bytes"]) for f in report["figures"]],
                [("write", 1 << 20), ("read", 1 << 20), ("write", 128 << 10), ("read", 128 << 10)], "figures")
    check_rows(report, [(f["yolk_mb_per_s"], f["bare_mb_per_s"]) for f in report["figures"]])
    for figure in report["figures"]:
        check(figure["bare_mb_per_s"] > 0 and figure["yolk_mb_per_s"] > 0, figure)
        check(0.3 < figure["ratio"] < 3, f"they do not move the same: {figure}")
    check_equal(os.listdir(c.dir), [], "files left")


def has_nameless_file(pid):
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        try:
            name = os.readlink(f"{folder}/{fd}")
        except FileNotFoundError:
            continue  # closed meanwhile
        if "yolk-bench" in name and name.endswith(" (deleted)"):
            return True
    return False


@test("bench.ssd_killed")
def _(c):
    """Whenever it ends, its file is gone; and it makes none where nobody said."""
    process = c.yolk("bench", "ssd", "--path", c.dir)
    # Its file is open, and already without a name.
    eventually(lambda: has_nameless_file(process.pid), text="an open file")
    check_equal(os.listdir(c.dir), [], "files while it runs")
    process.kill()
    process.wait()
    check_equal(os.listdir(c.dir), [], "files left")
    code, _, err = c.run("bench", "ssd", "--path", "")
    check_equal(code, 2, "exit code")
    check_in('--path: ""', err, "message")


def fio(folder, operation, size):
    """MB/s of fio that does the same as bench ssd: 256 MiB at random places of a file of 1 GiB, at depth 16."""
    job = ["fio", "--name=bench", f"--filename={folder}/fio", "--size=1G", "--io_size=256M", f"--bs={size}",
           f"--rw=rand{operation}", "--ioengine=io_uring", "--iodepth=16", "--direct=1", "--output-format=json"]
    run = subprocess.run(job, capture_output=True, text=True, timeout=120, check=False)
    check_equal(run.returncode, 0, f"fio\n{run.stderr}")
    return json.loads(run.stdout)["jobs"][0][operation]["bw_bytes"] / 1e6


@test("bench.ssd_beside_fio")
def _(c):
    """The bare loop that bench ssd compares with is a fair one: fio is of the same order."""
    if shutil.which("fio") is None:
        raise Skip("fio is not installed")
    code, out, err = c.run("bench", "ssd", "--path", c.dir, "--json", timeout_s=170)
    report = json.loads(out) if code == 0 else {}
    if not report.get("direct"):
        raise Skip("no direct I/O with io_uring here: " + err.strip())
    for figure in report["figures"]:
        speeds = [fio(c.dir, figure["operation"], figure["object_bytes"]) for _ in range(3)]
        median = sorted(speeds)[1]
        print(f"# {figure['operation']} {figure['object_bytes']}: yolk {figure['yolk_mb_per_s']:.0f}, bare loop "
              f"{figure['bare_mb_per_s']:.0f}, fio {median:.0f} MB/s; yolk/bare {figure['ratio']:.2f}")
        check(0.3 < figure["yolk_mb_per_s"] / median < 4, f"fio {speeds} and {figure}")


@test("bench.policy")
def _(c):
    """The master's policy is above LRU on made-up chats, and both below Belady's bound; at 100 % all read the same."""
    code, out, err = c.run("bench", "policy", "--synthetic", "--requests", "4000", "--capacity", "2,5,10,20,100", "--json")
    check_equal(code, 0, f"exit code\n{err}")
    report = json.loads(out)
    check_equal([f["percent"] for f in report["capacities"]], [2, 5, 10, 20, 100], "capacities")
    check_rows(report, [(f["prefix"], f["belady"]) for f in report["capacities"]])
    for figures in report["capacities"][:-1]:
        check(figures["lru"] < figures["prefix"] < figures["belady"], figures)
        check(figures["fifo"] < figures["belady"] and figures["s3fifo"] < figures["belady"], figures)
    everything = 1 - report["unique_blocks"] / report["blocks"]
    for name in ("prefix", "lru", "fifo", "s3fifo", "belady"):
        check(abs(report["capacities"][-1][name] - everything) < 1e-9, f"{name} with room for all")
    for wrong in ("0", "101", "5,", "5;6", "x"):
        code, _, err = c.run("bench", "policy", "--synthetic", "--capacity", wrong)
        check_equal(code, 2, f"exit code for --capacity {wrong}")
        check_in("--capacity " + wrong, err, "message")
    code, _, err = c.run("bench", "policy")
    check_equal(code, 2, "exit code")
    check_in("one of --trace FILE and --synthetic", err, "message")


@test("bench.rows")
def _(c):
    """Rows of the report and of its JSON say the same; counts that do not depend on the machine are as promised."""
    path = c.path("rows.json")
    code, out, err = c.run("bench", "--quick", "null", "messages", "--json", path, timeout_s=170)
    check_equal(code, 0, f"exit code\n{err}")
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    rows = {row["name"]: row for row in report["rows"]}
    check(report["quick"], "quick")
    for name in ("null request", "null request, allocations", "null request, system calls", "exist, master sleeps",
                 "exist, master polls 50 us", "exist, system calls", "exist, allocations"):
        check_in(name, rows, "row")
        check_in(name.encode(), out, "report")
    check_equal(rows["null request, allocations"]["value"], 0, "allocations of a request")
    if rows["null request, system calls"]["value"] is not None:  # the kernel lets us count
        check_equal(rows["null request, system calls"]["value"], 0, "system calls of a request")
        check(rows["exist, system calls"]["value"] >= 2, "an exist sends and receives")
    for row in report["rows"]:
        check(row["value"] is None or row["value"] >= 0, row)
        check_equal(row["ratio"] is None, row["ceiling"] is None, f"ratio and ceiling of {row}")
    echo = rows["exist, master sleeps"]
    check(abs(echo["ratio"] - echo["ceiling"] / echo["value"]) < 1e-9, f"less is better: {echo}")
    check_equal(echo["holds"], echo["ratio"] >= 1 / 1.3, "holds")


@test("bench.wrong-use")
def _(c):
    """A wrong name or folder is refused and named."""
    code, _, err = c.run("bench", "sdd")
    check_equal(code, 2, "exit code")
    check_in('"sdd" is no measurement', err, "message")
    code, _, err = c.run("bench", "ssd", "--path", c.path("nowhere"))
    check_equal(code, 1, "exit code")
    check_in(c.path("nowhere"), err, "message")


ENGINE = ("bench", "engine", "--total-buffer-size", "4MiB", "--duration", "20ms")


def engine_rows(c, *args):
    path = c.path("rows.json")
    code, out, err = c.run(*ENGINE, "--json", path, *args, timeout_s=170)
    if "io_uring_setup" in err:
        raise Skip("io_uring is refused: " + err.strip().splitlines()[-1])
    check_equal(code, 0, f"exit code\n{err}")
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    for row in rows.values():
        check_equal(set(row), {"name", "unit", "value", "ceiling_name", "ceiling", "ratio"}, "keys of a row")
        check_equal(row["ratio"] is None, row["ceiling"] is None, f"ratio and ceiling of {row}")
        check(row["value"] is None or row["value"] >= 0, row)
    return rows, out.decode()


@test("bench.engine")
def _(c):
    """Blocks over each transport, each byte looked at, beside the bare loop of the same run; sizes, batches and
    callers are doubled as said, and what does not fit is left out and said so."""
    ceilings = {"shm": ("streaming copy",), "loop": ("streaming copy",), "uring": ("bare io_uring",),
                "tcp": ("bare sockets, sleeping", "bare sockets, polling", "bare sockets, polling, 4 connections"),
                "null": (None,)}
    for transport, expected in ceilings.items():
        checked = [] if transport == "null" else ["--check-consistency"]
        rows, out = engine_rows(c, "--xport-type", transport, "--op_type", "mix", "--start_block_size", "4KiB",
                                "--max_block_size", "8KiB", "--start_batch_size", "2", "--max_batch_size", "4",
                                "--max_num_threads", "2", "--offsets", "random", "--path", c.dir, *checked)
        for threads in (1, 2):
            for batch in (2, 4):
                for block in (4096, 8192):
                    name = f"engine {transport} mix random {block} x {batch}, {threads} threads"
                    row = rows[name]
                    check(row["value"] > 0, row)
                    check_in(row["ceiling_name"], expected, name)
                    p50, p999 = (rows[f"{name}, latency, {p}"]["value"] for p in ("p50", "p999"))
                    check(0 < p50 <= p999, f"{name}: {p50} and {p999} us")
                    for what in ("processor", "bytes copied", "system calls", "allocations", "instructions"):
                        check_in(f"{name}, {what}", rows, "row")
        copied = rows[f"engine {transport} mix random 8192 x 4, 1 threads, bytes copied"]["value"]
        least = {"shm": 1, "loop": 1, "tcp": 2, "uring": 0, "null": 0}[transport]
        check(copied >= least, f"{transport} copies {copied} bytes a byte")
        check_equal(out.count("4KiB"), 4, "cases of 4 KiB in the table")
    _, out = engine_rows(c, "--xport-type", "null", "--start-block-size", "1MiB", "--max-block-size", "8MiB",
                         "--start-batch-size", "2", "--max-batch-size", "2")
    check_in("2 cases left out", out, "what does not fit")
    check_equal(os.listdir(c.dir), ["rows.json"], "files left")


@test("bench.engine_target")
def _(c):
    """A target in a process of its own is found by the name that it prints, over shm and over tcp; killed, it is
    missed; a file is a target too."""
    target = c.yolk(*ENGINE[:4], "--role", "target", "--xport-type", "shm")
    name = target.wait_line(r"^--target-seg-name='(.*)'$").group(1)
    for transport in ("shm", "tcp"):
        args = ["--xport-type", transport, "--target-seg-name", name, "--max-block-size", "4KiB", "--check-consistency"]
        for op in ("read", "write"):
            rows, _ = engine_rows(c, *args, "--op-type", op)
            check(rows[f"engine {transport} {op} fixed 4096 x 1, 1 threads"]["value"] > 0, "rate")
            if op == "write":  # so that the next one may read
                target.terminate()
                check_equal(target.wait(), 0, "exit code of the target")
                target = c.yolk(*ENGINE[:4], "--role", "target", "--xport-type", "shm")
                name = target.wait_line(r"^--target-seg-name='(.*)'$").group(1)
    target.kill()
    code, _, err = c.run(*ENGINE, "--xport-type", "tcp", "--target-seg-name", name, "--max-block-size", "4KiB")
    check_equal(code, 1, "exit code without a target")
    check_in("--xport-type tcp", err, "message")
    path = c.write("file", bytes(4 << 20))
    rows, _ = engine_rows(c, "--xport-type", "posix", "--target-seg-name", f"file://{path}", "--op-type", "write",
                          "--check-consistency", "--max-block-size", "4KiB")
    check(rows["engine posix write fixed 4096 x 1, 1 threads"]["value"] > 0, "rate")


@test("bench.engine_wrong_use")
def _(c):
    """What makes no sense is refused before anything is measured, and named."""
    for args, text in (
            (["--op-type", "erase"], '--op-type: "erase": must be one of read|write|mix'),
            (["--xport-type", "pigeon"], '--xport-type: "pigeon"'),
            (["--seg-type", "VRAM"], "--seg-type VRAM"),
            (["--start-block-size", "0"], '--start-block-size: "0"'),
            (["--start-block-size", "8KiB", "--max-block-size", "4KiB"], "not more than --max-block-size 4096"),
            (["--start-block-size", "8MiB"], "not more than --total-buffer-size 4194304"),
            (["--start-batch-size", "4", "--max-batch-size", "2"], "not more than --max-batch-size 2"),
            (["--start-num-threads", "65", "--max-num-threads", "65"], '--start-num-threads: "65"'),
            (["--duration", "soon"], '--duration: "soon"'),
            (["--xport-type", "uring", "--target-seg-name", "4096/tcp=x"], "--target-seg-name 4096/tcp=x"),
            (["--xport-type", "tcp", "--target-seg-name", "file:///tmp/x"], "--target-seg-name file:///tmp/x"),
            (["--xport-type", "loop", "--target-seg-name", "4096/loop=x"], "reaches this process only"),
            (["--role", "target", "--xport-type", "uring"], "--role target --xport-type uring"),
            (["--role", "target", "--target-seg-name", "x"], "a target has none"),
            (["--role", "target", "--host", "10.1.2.3"], "--secret-file"),
            (["--xport-type", "posix", "--target-seg-name", "file:///x", "--check-consistency"],
             "nobody knows what is in it")):
        code, out, err = c.run(*ENGINE, *args)
        check_equal(code, 2, f"exit code of {args}\n{err}")
        check_in(text, err, f"message of {args}")
        check_equal(out, b"", f"output of {args}")
    code, _, err = c.run(*ENGINE, "--target-seg-name", "nowhere:1")
    check_equal(code, 1, "exit code")
    check_in('target "nowhere:1"', err, "message")


if __name__ == "__main__":
    sys.exit(main())
