# SPDX-License-Identifier: Apache-2.0
"""What the README shows works as it stands there."""

import os
import re
import shutil
import subprocess
import sys

from harness import (ROOT, Skip, build_dir, check, check_equal, check_in, free_port, main, test,
                     yolk_path)

MASTER = "127.0.0.1:50051"


def block(heading):
    """The first indented block under a heading."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.split(r"^## ", file.read(), flags=re.M)
    text = next(s for s in section if s.startswith(heading + "\n"))
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)
    return re.sub(r"^    ", "", blocks[0].strip("\n"), flags=re.M) + "\n"


@test("readme.library")
def _(c):
    """The lines of C compile without a warning, put and get."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("no C compiler")
    _, address = c.master()
    c.node(address)
    lines = block("The library")
    check_in(MASTER, lines)
    source = c.write("example.c", (
        "#include <stdio.h>\n#include <yolk/store.h>\n"
        "int main(void)\n{\nstatic char buffer[] = \"hello\";\nsize_t size = 5;\n"
        + lines.replace(MASTER, address)
        + "return yolk_store_close(store) == YOLK_OK && kv.result == 5 ? 0 : 1;\n}\n"))
    program = c.path("example")
    subprocess.run([compiler, "-std=c17", "-Wall", "-Wextra", "-Werror", "-I",
                    os.path.join(ROOT, "include"), source, "-L", build_dir(), "-lyolk",
                    f"-Wl,-rpath,{build_dir()}", "-o", program], check=True)
    check_equal(subprocess.run([program], check=False, timeout=60).returncode, 0)
    code, out, err = c.run("get", "--master", address, "k")
    check_equal((code, out), (0, b"hello"), err)


@test("readme.cluster_by_hand")
def _(c):
    """The lines after the build, one by one as a shell gets them, only at other addresses."""
    lines = block("A cluster by hand").splitlines()
    check_equal(lines[0], "scripts/build")
    os.mkdir(c.path("build"))
    os.symlink(yolk_path(), c.path("build/yolk"))
    address = f"127.0.0.1:{free_port()}"
    env = dict(os.environ, YOLK_LISTEN=address, YOLK_MASTER=address, YOLK_METRICS_LISTEN="127.0.0.1:0")
    script = "set -e\n" + "\n".join(lines[1:]) + "\nkill $(jobs -p)\nwait\n"
    done = subprocess.run(["bash", "-c", script], cwd=c.dir, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, text=True,
                          check=False)
    check_equal(done.returncode, 0, done.stdout)
    for part in ("yolk master ready", "yolk node ready", "recount_differences 0"):
        check_in(part, done.stdout)
    check(re.search(r"^hello$", done.stdout, re.M), done.stdout)


if __name__ == "__main__":
    sys.exit(main())
