# SPDX-License-Identifier: Apache-2.0
"""`yolk bench gpu`, `yolk bench gds` and `yolk doctor --gpu`, on the fake drivers: that each byte is right and each reason is told."""

import json
import os
import re
import subprocess
import sys
import tempfile

from harness import check, check_equal, check_in, main, test, yolk_path


def fakes(**more):
    folder = os.path.join(os.path.dirname(yolk_path()), "fakes")
    return {"LD_LIBRARY_PATH": folder, **more}


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    for row in report["rows"]:
        check(row.get("right") is True, f"not measured: {row}")
        check_equal(set(row), {"name", "right"}, "keys of a row that tells no speed")
    return report, [row["name"] for row in report["rows"]]


@test("gpu.bench")
def _(c):
    """Copies of all kinds, beside a kernel that computes, and gets of a store into GPU memory."""
    path = c.path("rows.json")
    code, out, err = c.run("bench", "gpu", "--check", "--json", path, env=fakes(), timeout_s=100)
    check_equal(code, 0, f"exit code\n{out.decode()}{err}")
    _, names = rows_of(path)
    for way in ("to the GPU", "from the GPU"):
        for row in (f"large copies {way}", f"scattered 4 KiB blocks {way}", f"scattered 16 KiB blocks {way}",
                    f"scattered 64 KiB blocks {way}", f"compute kernel beside 16 KiB blocks {way}"):
            check_in("gpu " + row, names, "row")
    check_in("gpu store get of 128 x 64 x 32 KiB into the GPU", names, "row")
    check_in("gpu store put of 128 x 64 x 32 KiB from the GPU", names, "row")
    code, out, err = c.run("bench", "gpu", "--gpu", "7", "--check", env=fakes())
    check_equal(code, 1, "exit code for a GPU that is not there")
    check_in("--gpu 7", err, "message")
    code, out, err = c.run("bench", "gpu", "--check", env={"LD_LIBRARY_PATH": ""})
    if code != 0:  # as on any machine without a GPU
        check_in("no CUDA driver", err, "message")


@test("gpu.bench_gds")
def _(c):
    """Each mode is told as it is, and nothing is left behind."""
    for mode, word in (("compat", "compatibility"), ("direct", "direct")):
        path = c.path(mode + ".json")
        folder = c.path(mode)
        os.mkdir(folder)
        code, out, err = c.run("bench", "gds", "--check", "--path", folder, "--json", path,
                               env=fakes(FAKE_CUFILE=f"set mode {mode}"), timeout_s=100)
        check_equal(code, 0, f"exit code\n{out.decode()}{err}")
        report, names = rows_of(path)
        check_equal(report["mode"], word, "mode")
        for row in ("gds write 256 KiB, depth 32", "gds read 1024 KiB, depth 8", "cuFile read 1024 KiB, depth 8, not registered",
                    "gds write of 512 objects of 64 x 32 KiB, packed", "gds read of 512 objects of 64 x 32 KiB, packed"):
            check_in(row, names, "row")
        check_equal(os.listdir(folder), [], "files left")
    code, out, err = c.run("bench", "gds", "--check", "--path", c.dir, env=fakes(FAKE_CUFILE="set udev 0"))
    check_equal(code, 1, "exit code")
    check_in("5027", err, "message")
    code, _, err = c.run("bench", "gds", "--path", "", env=fakes())
    check_equal(code, 2, "exit code")
    check_in('--path: ""', err, "message")


def doctor(c, path=None, **env):
    path = path or c.dir
    code, out, err = c.run("doctor", "--gpu", "0", "--path", path, "--json", env=fakes(**env), timeout_s=100)
    check_equal(code, 0, f"exit code\n{err}")
    items = json.loads(out)["gpu_file"]
    check(all(item["found"] and item["use"] for item in items), f"an empty entry: {items}")
    check_equal(sorted(set(os.listdir(path))), [], "files left")
    return {item["name"]: item for item in items}


@test("gpu.doctor")
def _(c):
    """The whole way, with what a real try got and how fast it was."""
    items = doctor(c)
    check_equal(list(items), ["GPU driver", "cuFile library", "nvidia-fs", "file system", "mount options", "udev entry",
                              "alignment", "GPU file try", "GPU file speed"], "items")
    check_in("Fake H200", items["GPU driver"]["found"])
    check_in("compatibility", items["GPU file try"]["found"])
    check_in("GB/s", items["GPU file speed"]["found"])


@test("gpu.doctor_refused")
def _(c):
    """A library that knows the disk from udev only; the reason is its own, and what to do is beside it."""
    items = doctor(c, FAKE_CUFILE="set udev 0")
    check_in("unavailable: ", items["GPU file try"]["found"])
    check_in("5027", items["GPU file try"]["found"])
    check_in("/run/udev/data/b", items["udev entry"]["found"])


@test("gpu.c66_a_mount_is_told_as_it_is")
def _(c):
    """C66: the mount, its options, what of them is in the way, and cuFile's own refusal of its files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        items = doctor(c, path, FAKE_CUFILE="fail cuFileHandleRegister 1 5018 0")
    with open("/proc/self/mounts") as mounts:
        kind, options = next(line.split()[2:4] for line in mounts if line.split()[1] == "/dev/shm")
    check_in(f"{kind} on ", items["file system"]["found"])
    check_in("mounted at /dev/shm", items["file system"]["found"])
    check_in("ext4, xfs", items["file system"]["use"])
    check_in(options.split(",")[0], items["mount options"]["found"])
    check_in("unavailable: ", items["GPU file try"]["found"])
    check_in("CU_FILE_INVALID_FILE_TYPE (5018)", items["GPU file try"]["found"])


@test("gpu.doctor_abort")
def _(c):
    """A library that ends its process ends neither this one nor the report."""
    items = doctor(c, FAKE_CUFILE="set open abort")
    check_in("unavailable: ", items["GPU file try"]["found"])
    check_in("signal", items["GPU file try"]["found"])


@test("gpu.device_plan")
def _(c):
    """What scripts/device-tests carries to a machine with GPUs says what it will show; each test that it names is there."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    script, tests = os.path.join(root, "scripts", "device-run"), os.path.join(root, "test", "device")
    plan = subprocess.run(["bash", script, "--plan"], stdout=subprocess.PIPE, check=True, timeout=30, text=True).stdout
    check_in("1, 127, 128, 129, 256, 1000 entries", plan)
    seconds = int(re.search(r"^(\d+) s in all", plan, re.M).group(1))
    check(seconds <= 1500, f"{seconds} s in all, on a machine that is lent for 25 minutes")
    with open(script, encoding="utf-8") as file:
        table = re.search(r"cat <<'END'\n(.*?)\nEND\n", file.read(), re.S).group(1)
    for line in table.splitlines():
        stage, _, what, evidence = line.split("|")
        check_in(what, plan, "line of the plan")
        source = os.path.join(tests, stage + "_test.c")
        if not os.path.exists(source):
            check_in(stage, ("doctor", "bench-gpu", "bench-gds", "replay", "wheels", "python", "two-gpus"), "stage")
            continue
        with open(source, encoding="utf-8") as file:
            text = file.read()
        for name in filter(None, evidence.split(";")):
            begin = name.removeprefix("FIGURE ") if name.startswith("FIGURE ") else name
            check_in("FIGURE " + begin.split(" of ")[0] if name != begin else begin.split(", ")[0], text, f"{stage}: {name}")


@test("gpu.doctor_without")
def _(c):
    code, out, err = c.run("doctor", "--gpu", "0", "--path", c.dir, env={"LD_LIBRARY_PATH": ""}, timeout_s=100)
    check_equal(code, 0, f"exit code\n{err}")
    text = out.decode()
    check_in("Between the GPU and files:", text)
    check_in("GPU file try", text)
    if "no CUDA driver" in text:
        check_in("not tried", text)


if __name__ == "__main__":
    sys.exit(main())
