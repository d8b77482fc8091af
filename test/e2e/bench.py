# SPDX-License-Identifier: Apache-2.0
"""`yolk bench`: that it measures, not how fast this machine is."""

import json
import os
import sys

from harness import Skip, check, check_equal, check_in, main, test


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
    for figure in report["figures"]:
        check(figure["bare_mb_per_s"] > 0 and figure["yolk_mb_per_s"] > 0, figure)
        check(0.3 < figure["ratio"] < 3, f"they do not move the same: {figure}")
    check_equal(os.listdir(c.dir), [], "files left")


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
