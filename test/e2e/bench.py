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
    check_in('--path ""', err, "message")


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


if __name__ == "__main__":
    sys.exit(main())
