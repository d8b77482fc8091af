#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documents tell a reader to type: every command and flag is there, and what can run here does. (What a bug or a
measurement of the past was seen with, in docs/bugs.md and docs/measurements/, may be gone.)"""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ROOT, Skip, build_dir, check, check_equal, check_in, free_port, main, test

PAGES = ["README.md", "CONTRIBUTING.md", "CAVEATS.md", "ARCHITECTURE.md"]
PAGES += sorted("docs/" + name for name in os.listdir(os.path.join(ROOT, "docs"))
                if name.endswith(".md") and name != "bugs.md")
SET = r'(?:[A-Z_]+=(?:"[^"]*"|\S+) )*'
OURS = r"(?:build/)?(?:yolk(?:-\w+)?|tests/[\w.]+)|scripts/[\w-]+"
# What a line of a block for a shell begins with.
TYPED = re.compile(SET + r"(?:export [A-Z_]+=|%s|\.?/?[a-z_]\w* -|cc|cp|cat|echo|tar|python3|pip|\./\w+)" % OURS)
# Programs of the system, of which nothing is checked, and those of Mooncake, whose flags docs/programs.md has.
SYSTEM = set(". cat cc cd cmake cp curl echo export git grep mkdir modprobe mv nvidia-smi perf pip python python3 tar".split())
MOONCAKE = {"mooncake_master", "mooncake_client"}
PLACEHOLDER = re.compile(r"[A-Z]+|NAME…|\[.*\]|…|\.\.\.")


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache(None)
def said(*command):
    """Help, or what it says of wrong usage."""
    done = subprocess.run([os.path.join(build_dir(), command[0]), *command[1:]], stdin=subprocess.DEVNULL, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return done.stdout


def blocks(page):
    """Those for a shell, each a list of lines without their comments."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
    text = text_of(page)
    found = [inside for kind, inside in fence.findall(text) if kind == "sh"]
    indented = re.findall(r"(?:^    .*\n)+", fence.sub("", text), re.M)
    found += [block for block in (re.sub(r"^    ", "", block, flags=re.M) for block in indented) if TYPED.match(block)]
    return [[re.sub(r"\s+#(?= ).*", "", line).strip() for line in block.splitlines()] for block in found]


def quoted(page):
    """What stands in backticks in its sentences and begins with a program of ours."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.S | re.M)
    return [code for code in re.findall(r"`([^`\n]+)`", text)
            if re.match(SET + r"(?:%s|mooncake_(?:master|client))(?: |$)" % OURS, code)]


def commands(line):
    """Of one line, each a list of words."""
    one = []
    for word in shlex.split(line.replace("\\|", "|").replace(";", " ; ")):
        if word in (";", "|", "&", "&&"):
            yield one
            one = []
        else:
            one.append(word)
    yield one


def flags_in(words):
    return [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]


def unknown_of_yolk(program, words):
    """A command of the program and its flags, as its help has them."""
    if not words or words[0].startswith("-"):
        wanted, help_text = words, said(program, "--help")
    elif words[0] == "help":
        return [] if PLACEHOLDER.match(words[1]) else unknown_of_yolk(program, words[1:])
    elif not re.search(r"^  %s +\S" % re.escape(words[0]), said("yolk", "help"), re.M):
        return ["there is no command %s" % words[0]]
    else:
        deeper = words[0] == "bench" and len(words) > 1 and words[1] in ("engine", "ssd", "policy", "gpu", "gds")
        wanted, help_text = words[1:], said(program, words[0], *words[1:1 + deeper], "--help")
    columns = re.findall(r"^  +(-.*?)(?:  |$)", help_text, re.M) + re.findall(r" Also (--.*?)\.", help_text)
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(columns)))
    return ["%s is no flag of it" % flag for flag in flags_in(wanted)
            if not {flag, re.sub("^--no-", "--", flag)} & known]


def unknown_of_script(path, words):
    if not os.path.exists(os.path.join(ROOT, path)):
        return ["there is no such script"]
    text = text_of(path)
    text += "".join(text_of(other) for other in re.findall(r"test/[\w/]+\.py", text))
    return ["it takes no %s" % flag for flag in flags_in(words)
            if flag not in text and not (path == "scripts/build" and flag.startswith("-D"))]


def unknown(command):
    """What nobody knows in one command."""
    words = [word for word in command if not re.match(r"\d?[<>]", word)]
    bad = []
    while words and re.match(r"(?:[A-Z_]+=|export$)", words[0]):
        variable = re.match(r"([A-Z_0-9]+)=", words[0])
        if variable and variable.group(1) not in everything() | {"CC"}:
            bad.append("nothing reads %s" % variable.group(1))
        words = words[1:]
    if not words:
        return bad
    program, words = re.sub(r"^build/(?=yolk)", "", words[0]), words[1:]
    if program == "yolk":
        return bad + unknown_of_yolk(program, words)
    if re.fullmatch(r"yolk-\w+", program):
        return bad + ["there is no flag %s" % flag for flag in flags_in(words) if flag not in said(program, "--help")]
    if program.startswith("scripts/"):
        return bad + unknown_of_script(program, words)
    if program in MOONCAKE:
        names = text_of("docs/programs.md").replace("-", "_")
        return bad + ["%s is no flag of it" % flag for flag in flags_in(words)
                      if flag.lstrip("-").replace("-", "_") not in names]
    if re.match(r"(?:build/)?tests/", program):
        parts = program.split("tests/")[1].replace("gpu.", "device.").split(".")
        names = ["/".join(parts), "/".join(parts + parts[-1:])]  # src/transport/tcp/tcp_test.c is transport.tcp
        there = [os.path.exists(os.path.join(ROOT, top, name + "_test.c")) for top in ("src", "test") for name in names]
        return bad + ([] if any(there) else ["there is no such test"])
    if program in SYSTEM or PLACEHOLDER.match(program) or program.startswith("./"):
        return bad
    return bad + ["nobody knows the program %s" % program]


@functools.lru_cache(None)
def everything():
    """The words that code, scripts and tests have."""
    words = set()
    for top in ("src", "test", "scripts", "python", "CMakeLists.txt"):
        path = os.path.join(ROOT, top)
        files = [path] if os.path.isfile(path) else [os.path.join(d, n) for d, _, names in os.walk(path) for n in names]
        for name in files:
            if name != os.path.abspath(__file__):
                with open(name, encoding="utf-8", errors="replace") as file:
                    words.update(re.findall(r"[A-Z][A-Z_0-9]{3,}", file.read()))
    return words


def stale(lines):
    return ["%s: %s" % (line, why) for line in lines for command in commands(line) for why in unknown(command)]


@test("documents.commands_are_there")
def commands_are_there(_c):
    """Each command of ours that a page names exists and takes the flags that stand with it."""
    counted = 0
    for page in PAGES:
        lines = quoted(page) + [line for block in blocks(page) for line in block]
        counted += len(lines)
        check_equal(stale(lines), [], page)
    check(counted > 140, f"only {counted} commands were found: are they written in another way now?")
    for line in ("yolk node --pigeons 3", "yolk fly", "build/yolk bench engine --pigeon-size 1", "yolk-sim --pigeon",
                 "scripts/pigeon", "scripts/gates --pigeon", "YOLK_PIGEON=1 scripts/test", "pigeon --help",
                 "mooncake_master --pigeon", "scripts/build && yolk fly", "build/tests/gpu.pigeon", "tests/store.pigeon"):
        check_equal(len(stale([line])), 1, f"nobody noticed that there is no such thing: {line}")


# Each block of each page, by its first line: what it must say when it is run here, or where else it is.
ELSEWHERE = {
    "scripts/demo": "each test run begins with what it does; replay.demo runs the program's",
    "scripts/build": "readme.cluster_by_hand runs it",
    "scripts/wheels && pip install --no-index --find-links build/wheels mooncake-transfer-engine": "test/e2e/wheels.py runs it",
    "scripts/wheels": "test/e2e/wheels.py runs it",
    "python3 -m venv venv && . venv/bin/activate": "test/e2e/wheels.py runs it",
    "pip uninstall mooncake-transfer-engine-cuda13": "test/e2e/wheels.py runs it",
    "yolk doctor --gpu 0 --path DIR --json >doctor.json": "it needs a GPU; gpu.doctor and gpu.bench_gds run it on the fakes",
    "export MOONCAKE_GDS_OFFLOAD_ENABLED=1 MOONCAKE_GDS_OFFLOAD_PATH=DIR/kv MOONCAKE_GDS_OFFLOAD_CAPACITY_BYTES=68719476736":
        "it needs a GPU; gds.replay runs it on the fakes",
    "scripts/device-tests DIR": "it needs a GPU, and builds for minutes",
    'FAKE_CUDA="set bus 0" LD_LIBRARY_PATH=build/fakes YOLK_TEST_CUFILE=/path/libcufile.so.0 YOLK_TEST_PATH=/a/folder '
    "build/tests/gpu.cufile": "it needs NVIDIA's cuFile",
    "yolk-conformance --plugin /absolute/path/yolk_mine.so": "the block before it ends with it",
    "scripts/fuzz --pack fuzz.tar.gz": "it needs hours",
}


def shell(c, lines, **env):
    """What the lines say, typed in a checkout with its build."""
    for name in ("examples", "include", "scripts"):
        if not os.path.exists(c.path(name)):
            os.symlink(os.path.join(ROOT, name), c.path(name))
    if not os.path.exists(c.path("build")):
        os.symlink(build_dir(), c.path("build"))
    full = {**os.environ, "PATH": build_dir() + ":" + os.environ["PATH"], **env}
    done = subprocess.run(["bash", "-e", "-c", "\n".join(lines)], cwd=c.dir, env=full, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=150,
                          check=False)
    check_equal(done.returncode, 0, done.stdout[-4000:])
    return done.stdout


def run_c(c, lines):
    """docs/c.md: the example against the library of the build folder; the other way is test/e2e/wheels.py's."""
    check_equal((lines[0], lines[1].split()[0]), ("scripts/build", "python3"))
    check_in("greeting: 6 bytes", shell(c, lines[2:]))


def run_tent(c, lines):
    check_in("copy: half of it is new", shell(c, lines))


def run_plugin(c, lines):
    """docs/plugins.md: with what its comment says to change, and the headers that an installation would have."""
    if shutil.which("cmake") is None:
        raise Skip("cmake is not installed")
    check_in('foreach(name mine)', text_of("docs/plugins.md"))
    edit = ["sed -i 's/define NAME \"template\"/define NAME \"mine\"/' mine.c",
            "sed -i 's/foreach(name template unix)/foreach(name mine)/' CMakeLists.txt"]
    lines = [lines[0], *edit, lines[1].replace("/usr/local/include", os.path.join(ROOT, "include")), *lines[2:]]
    check_in("[  PASSED  ]", shell(c, lines))


def run_whole(c, lines):
    """docs/plugins.md: the second example, as the sentence after it says; at other addresses."""
    plugin = os.path.join(build_dir(), "tests", "plugins", "unix.so")
    if not os.path.exists(plugin):
        raise Skip("no plug-ins were built: YOLK_TESTS is off")
    address = f"127.0.0.1:{free_port()}"
    lines = [line.replace("$PWD/build/yolk_mine.so", plugin).replace("--transport mine", "--transport unix") for line in lines]
    check_in(plugin, "\n".join(lines))
    shell(c, [*lines, "yolk get greeting --plugin-paths " + plugin + " | grep -qx hello", "kill $(jobs -p)", "wait"],
          YOLK_LISTEN=address, YOLK_MASTER=address, YOLK_METRICS_LISTEN="127.0.0.1:0")


def run_replay(c, lines):
    """README.md: with fewer requests."""
    out = shell(c, [lines[0] + " --requests 60", *lines[1:]])
    for part in ("hit rate", "LRU of", "wrong bytes           0"):
        check_in(part, out)


HERE = {
    "scripts/build": {"docs/c.md": run_c},
    "cc examples/tent.c -I include -L build -Wl,-rpath,build -ltransfer_engine -o tent && ./tent": {"docs/transfer.md": run_tent},
    "cp -r examples/plugin mine && cd mine && mv template.c mine.c": {"docs/plugins.md": run_plugin},
    "yolk master &  yolk node --dram 64MiB --plugin-paths $PWD/build/yolk_mine.so &": {"docs/plugins.md": run_whole},
    "build/yolk replay --synthetic --processes --respawn": {"README.md": run_replay},
}


def here(page, block):
    return HERE.get(block[0], {}).get(page)


@test("documents.each_block_is_run_somewhere")
def each_block_is_run_somewhere(_c):
    found = [(page, block[0]) for page in PAGES for block in blocks(page)]
    check_equal([(page, line) for page, line in found if not HERE.get(line, {}).get(page) and line not in ELSEWHERE], [])
    lines = {line for _, line in found}
    check_equal([line for line in [*HERE, *ELSEWHERE] if line not in lines], [], "no page has it any more")


@test("documents.blocks_run_as_they_stand")
def blocks_run_as_they_stand(c):
    if shutil.which("cc") is None:
        raise Skip("no C compiler")
    done = [run(c, block) for page in PAGES for block in blocks(page) for run in [here(page, block)] if run]
    check_equal(len(done), 5)


if __name__ == "__main__":
    sys.exit(main())
