#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs all tests.

Each cmocka test of the executables that ctest knows counts once, and passes only if it passes in the release
build and in the one with ASan and UBSan. (An executable that fills its table of tests by other means counts as
one.) Each test of a file test/e2e/*.py that uses harness.py counts once; other files there are helpers. The
simulator's seeds and mutations run when it is there. Each fuzzer runs for YOLK_FUZZ_SECONDS (5; 0: not at all), from
its kept inputs in test/fuzz/corpus. Allocations and calls that fail are sampled; YOLK_TORTURE_FULL=1 takes each. A test finds the build in YOLK_BUILD, the sanitized one in
YOLK_ASAN_BUILD, traces in YOLK_TRACE_DIR. Exit status 77 with a line "SKIP: reason" is a skip. The last line is
"N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
E2E = os.path.join(ROOT, "test", "e2e")
CORPUS = os.path.join(ROOT, "test", "fuzz", "corpus")
FUZZ_SECONDS = 5
REFUSAL_SECONDS = "1"  # of each executable
REFUSAL_TARGETS = {
    "base": ("base.buf", "base.config", "base.extents"),
    "wire": ("wire.codec", "wire.hello"),
    "engine": ("engine.access", "engine.batch_state"),
    "master": ("master.disk", "master.guard", "master.index", "master.list", "master.put", "master.session",
               "master.tier"),
    "store": ("store.get", "store.holds", "store.mirror", "store.put", "store.session", "store.tier"),
    "storage": ("storage.storage", "storage.files"),
}
SIM_SEEDS = ("1..100", "101..200")
MUTATION_SEEDS = ("1..5", "6..20", "21..60", "61..120", "121..200")
MUTATIONS = ("skip-guard-check", "accept-stale", "complete-twice", "reuse-under-writer", "lose-journal-record",
             "reuse-under-read")
PASS, FAIL, SKIP = "passed", "failed", "skipped"
TAIL_LINES = 60


def run(command, timeout, env=None, cwd=None):
    """Runs in a session of its own, so that a test's left-over children end with it. -> (code, output)"""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd,
                               text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        code, output = "timeout", ""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if code == "timeout":
        # Whatever left the group may still hold the pipe.
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            output = ""
        output += "\nno end within %d s\n" % timeout
    return code, output


def skip_reason(output):
    match = re.search(r"^SKIP: *(.*)$", output, re.M)
    return match.group(1) if match else "no reason given"


class Results:
    def __init__(self):
        self.count = {PASS: 0, FAIL: 0, SKIP: 0}
        self.failed = []
        self.skipped = []

    def add(self, name, result, detail, seconds):
        self.count[result] += 1
        if result == FAIL:
            self.failed.append(name)
            sys.stdout.write("".join("    | %s\n" % line for line in detail.splitlines()[-TAIL_LINES:]))
        if result == SKIP:
            self.skipped.append((name, detail))
        print("%-7s %-60s %6.1f s%s" % (result, name, seconds, "  (%s)" % detail if result == SKIP else ""),
              flush=True)

    def close(self):
        for name, reason in self.skipped:
            print("skipped: %s: %s" % (name, reason))
        for name in self.failed:
            print("failed: %s" % name)
        print("%d passed, %d failed, %d skipped" % (self.count[PASS], self.count[FAIL], self.count[SKIP]))
        return 1 if self.count[FAIL] or not self.count[PASS] else 0


def build(directory, options, targets=()):
    print("building %s" % directory, file=sys.stderr, flush=True)
    for command in (["cmake", "-S", ROOT, "-B", directory, "-G", "Ninja"] + options, ["ninja", "-C", directory, *targets]):
        code, output = run(command, 1200)
        if code != 0:
            print("\n".join(output.splitlines()[-TAIL_LINES:]))
            raise SystemExit("building %s failed" % directory)


def ctest_names(directory):
    code, output = run(["ctest", "--test-dir", directory, "--show-only=json-v1"], 60)
    if code != 0:
        raise SystemExit("ctest cannot list the tests of %s:\n%s" % (directory, output))
    tests = json.loads(output[output.index("{"):])["tests"]
    # Without a command it is not built; it is listed, and would fail to run.
    return {test["name"]: test.get("command", [test["name"] + ": not built"]) for test in tests}


# CASE is what suites that run over several set-ups call their own macro.
CMOCKA_TEST = re.compile(r"\b(?:cmocka_unit_test(?:_setup_teardown|_setup|_teardown|_prestate\w*)?|CASE)\(\s*(\w+)\s*[,)]")


def cmocka_names_in(directory, files):
    names = []
    for name in files:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            names += CMOCKA_TEST.findall(re.sub(r"#define(?:.*\\\n)*.*", "", file.read()))
    return list(dict.fromkeys(names))


def cmocka_names(target):
    """The names in the source of the test executable ROOM.x, in order; [] if its table is made otherwise."""
    suite, _, rest = target.partition(".")
    name = rest.split(".")[-1] + "_test.c"
    for top in ("src", "test"):
        for directory, _, files in sorted(os.walk(os.path.join(ROOT, top, suite))):
            if name in files and (rest.count(".") == 0 or directory.endswith(rest.split(".")[0])):
                shared = [file for file in sorted(files) if file.endswith(".c") and not file.endswith("_test.c")]
                names = cmocka_names_in(directory, [name])
                # A suite's table may stand in the code its executables share.
                return names or (cmocka_names_in(directory, shared) if top == "test" else [])
    return []


class Test:
    def __init__(self, name, action):
        self.name = name
        self.action = action  # () -> (result, detail)


class Executable:
    """Runs a test executable of both builds once, and answers for each of its tests."""

    def __init__(self, target, commands, env):
        self.target, self.commands, self.env = target, commands, env
        self.runs = None

    def result(self, name):
        if self.runs is None:
            self.runs = [run(command, 300, self.env) for command in self.commands]
        for command, (code, output) in zip(self.commands, self.runs):
            if code == 77:
                return SKIP, skip_reason(output)
            if name is None:
                if code == 0:
                    continue
                return FAIL, "%s\n%s\nexit status %s" % (" ".join(command), output, code)
            # A table may run under several set-ups: one failure is enough.
            parts = re.findall(r"^\[ RUN +\] %s$(.*?)^\[ *(OK|FAILED|SKIPPED) *\] %s$" %
                               (re.escape(name), re.escape(name)), output, re.M | re.S)
            outcomes = [outcome for _, outcome in parts]
            if "FAILED" in outcomes:
                return FAIL, "%s\n%s" % (" ".join(command), "\n".join(text for text, o in parts if o == "FAILED"))
            # A crash, or a leak found at the end, fails whatever no assertion explains.
            explained = code == 0 or re.search(r"^\[ *FAILED *\] [1-9][0-9]* test", output, re.M)
            if not outcomes or not explained:
                return FAIL, "%s\n%s\nexit status %s" % (" ".join(command), output, code)
            if "OK" not in outcomes:
                return SKIP, skip_reason(parts[0][0])
        return PASS, ""


def unit_tests(target, commands, env):
    executable = Executable(target, commands, env)
    names = cmocka_names(target)
    if not names:
        return [Test(target, lambda: executable.result(None))]
    return [Test("%s.%s" % (target, name), lambda name=name: executable.result(name)) for name in names]


def e2e_tests(env):
    tests = []
    for file in sorted(os.listdir(E2E)) if os.path.isdir(E2E) else []:
        path = os.path.join(E2E, file)
        if not file.endswith(".py") or file in ("harness.py", "__init__.py"):
            continue
        with open(path, encoding="utf-8") as source:
            if not re.search(r"^(?:from|import) +harness\b", source.read(), re.M):
                continue
        code, output = run([sys.executable, path, "--list"], 60, env, E2E)
        names = output.split("\n") if code == 0 else []
        if not any(names):
            tests.append(Test("e2e.%s" % file[:-3], lambda output=output: (FAIL, "--list failed\n" + output)))
        tests += [Test("e2e.%s.%s" % (file[:-3], name), e2e_test(path, name, env)) for name in names if name]
    return tests


def e2e_test(path, name, env):
    def action():
        code, output = run([sys.executable, path, name], 900, env, E2E)
        skip = re.search(r"^skip %s *(.*)$" % re.escape(name), output, re.M)
        if code == 0 and skip:
            return SKIP, skip.group(1) or "no reason given"
        if code == 0 and re.search(r"^ok %s *$" % re.escape(name), output, re.M):
            return PASS, ""
        return FAIL, "%s\nexit status %s" % (output, code)
    return action


def sim_tests(directory, env):
    simulator = os.path.join(directory, "yolk-sim")
    tests = []

    def clean():
        # A hundred seeds or more also fail when some fault or transition never occurred. Two at a time: it takes minutes.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda seeds: run([simulator, "--seeds", seeds], 1200, env), SIM_SEEDS))
        bad = ["%s\nexit status %s" % (output, code) for code, output in runs if code != 0]
        return (FAIL, bad[0]) if bad else (PASS, "")

    def caught(mutation):
        def action():
            # In small steps, as one catch is enough.
            for seeds in MUTATION_SEEDS:
                code, output = run([simulator, "--seeds", seeds, "--mutation", mutation], 600, env)
                if code != 0:
                    return (PASS, "") if code == 1 else (FAIL, "%s\nexit status %s" % (output, code))
            return FAIL, "%s\nnot caught by any seed" % output
        return action

    if os.path.exists(os.path.join(ROOT, "src", "sim", "main.c")):
        tests.append(Test("sim.seeds_1_to_200", clean))
        tests += [Test("sim.mutation_%s_is_caught" % m.replace("-", "_"), caught(m)) for m in MUTATIONS]
    return tests


def fuzzers():
    """The names of all, from their sources."""
    return sorted(file[:-len("_fuzz.c")] for top in ("src", "test") for _, _, files in os.walk(os.path.join(ROOT, top))
                  for file in files if file.endswith("_fuzz.c"))


def fuzz_test(name, directory, seconds, env):
    def action():
        executable = os.path.join(directory, "fuzzers", name + "_fuzz")
        if not os.path.exists(executable):
            return SKIP, "not built: it needs clang, and no --no-asan"
        with tempfile.TemporaryDirectory() as found:
            # A finding is printed as base64, so it is not lost with its folder. What the program itself says is not of use.
            code, output = run([executable, "-max_total_time=%d" % seconds, "-len_control=0", "-max_len=4096",
                                "-timeout=20", "-rss_limit_mb=2048", "-close_fd_mask=3", "-print_final_stats=1",
                                "-artifact_prefix=%s/" % found, found, os.path.join(CORPUS, name)],
                               seconds + 120, env)
        return (PASS, "") if code == 0 else (FAIL, "%s\nexit status %s" % (output, code))
    return Test("fuzz.%s" % name, action)


def refusal_tests(targets, env):
    """The unit tests of the rooms that are pure, with allocations refused."""
    walker = os.path.join(ROOT, "test", "torture", "walk_units.py")
    seconds = "0" if os.environ.get("YOLK_TORTURE_FULL") else REFUSAL_SECONDS

    def test(room, commands):
        def action():
            code, output = run([sys.executable, walker, seconds, *commands], None if seconds == "0" else 600, env)
            return (PASS, "") if code == 0 else (FAIL, output)
        return Test("torture.allocations_of_%s" % room, action)
    rooms = {room: [command[0] for target, command in sorted(targets.items()) if target in names]
             for room, names in REFUSAL_TARGETS.items()}
    return [test(room, commands) for room, commands in rooms.items() if commands]


def all_tests(release, asan):
    env = dict(os.environ, YOLK_BUILD=release, YOLK_BIN=os.path.join(release, "yolk"), PYTHONDONTWRITEBYTECODE="1",
               ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:handle_abort=1", UBSAN_OPTIONS="print_stacktrace=1")
    if asan:
        env["YOLK_ASAN_BUILD"] = asan
    commands = [ctest_names(directory) for directory in (release, asan) if directory]
    tests = []
    for target in sorted(commands[0]):
        tests += unit_tests(target, [each[target] for each in commands if target in each], env)
    tests += refusal_tests(commands[-1], env)
    seconds = int(os.environ.get("YOLK_FUZZ_SECONDS", FUZZ_SECONDS))
    if seconds > 0:
        tests += [fuzz_test(name, release + "-fuzz", seconds, env) for name in fuzzers()]
    return tests + sim_tests(release, env) + e2e_tests(env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names of the tests and do not run them")
    parser.add_argument("--filter", metavar="REGEX", default="", help="only tests whose name matches")
    parser.add_argument("--no-asan", action="store_true", help="release build only")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build"))
    arguments = parser.parse_args()
    release = os.path.abspath(arguments.build)
    asan = None if arguments.no_asan else release + "-asan"
    if arguments.list:
        # Names need no compiling, only the build system's view of the tree.
        code, output = run(["cmake", "-S", ROOT, "-B", release, "-G", "Ninja", "-DYOLK_TESTS=ON"], 120)
        if code != 0:
            raise SystemExit(output)
    else:
        build(release, ["-DYOLK_TESTS=ON"])
        if asan:
            build(asan, ["-DYOLK_TESTS=ON", "-DYOLK_SANITIZE=address"])
            if shutil.which("clang") and os.environ.get("YOLK_FUZZ_SECONDS") != "0":
                build(release + "-fuzz", ["-DCMAKE_C_COMPILER=clang", "-DYOLK_TESTS=OFF", "-DYOLK_FUZZ=ON",
                                          "-DYOLK_SANITIZE=address"], ["fuzzers"])
    if arguments.build_only:
        return 0
    tests = [test for test in all_tests(release, None if arguments.list else asan)
             if re.search(arguments.filter, test.name)]
    if arguments.list:
        print("\n".join(test.name for test in tests))
        return 0
    results = Results()
    for test in tests:
        start = time.monotonic()
        result, detail = test.action()
        results.add(test.name, result, detail, time.monotonic() - start)
    return results.close()


if __name__ == "__main__":
    sys.exit(main())
