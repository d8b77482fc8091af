#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs all tests.

Each cmocka test of the executables that ctest knows counts once, and passes only if it passes in the release
build and in the one with ASan and UBSan. Executables whose tests have threads run once more in a build with TSan
(tsan.x; a report of it is a failure, and what test/tsan.suppressions leaves out has its reason there). (An executable that fills its table of tests by other means counts as
one.) Each test of a file test/e2e/*.py that uses harness.py counts once; other files there are helpers. The
simulator's seeds and mutations run when it is there. Each fuzzer runs for YOLK_FUZZ_SECONDS (60; 0: not at all), from
its kept inputs in test/fuzz/corpus, two at a time. So are the two builds' runs of an executable, and tests of e2e files that mostly wait. Allocations and calls that fail are walked over as far as a bounded
time allows, which is said; YOLK_TORTURE_FULL=1 takes each. What hot paths cost is compared with a table (scripts/gates).
A test finds the build in YOLK_BUILD, the sanitized one in
YOLK_ASAN_BUILD, traces in YOLK_TRACE_DIR. Exit status 77 with a line "SKIP: reason" is a skip. The last line is
"N passed, N failed, N skipped".
"""
import argparse
import atexit
import base64
import concurrent.futures
import itertools
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
sys.path.insert(0, os.path.join(ROOT, "test", "fuzz"))
import campaign  # noqa: E402

E2E = os.path.join(ROOT, "test", "e2e")
CORPUS = os.path.join(ROOT, "test", "fuzz", "corpus")
GATES = os.path.join(ROOT, "scripts", "gates")
FUZZ_SECONDS = 60
# Of each executable, for each kind of call: so long at most for each call of it to fail, else with strides for so long.
WALK_SECONDS = ("6", "1.5")
CALL_KINDS = ("file", "socket", "map", "thread")  # not memory, which the tests themselves ask for without a look
REFUSAL_TARGETS = {
    "base": ("base.buf", "base.config", "base.extents", "base.json"),
    "wire": ("wire.codec", "wire.hello"),
    "engine": ("engine.access", "engine.batch_state"),
    "master": ("master.disk", "master.gds", "master.guard", "master.index", "master.list", "master.put",
               "master.session", "master.tier"),
    "store": ("store.get", "store.holds", "store.mirror", "store.put", "store.session", "store.tier"),
    "storage": ("storage.storage", "storage.files"),
}
CALL_TARGETS = {
    "platform": ("platform.file", "platform.memory", "platform.net", "platform.process"),
}
# Those with threads, but for what is the same code with other files (transport.file.*), mostly processes, or mostly
# about time (cases.leases, cases.disk_read) or a suite over and over (conformance.wrong): all is ten times as slow here.
TSAN_TARGETS = re.compile(r"platform\.\w+|behaviour\.\w+|peer\.\w+|engine\.(engine|plugin|report|telemetry|metrics)|transport\.(null|shm|tcp|tcp\.disk|trace|uring|fault)|"
                          r"server\.\w+|admin\.\w+|compat\.\w+|cluster\.\w+|conformance\.(loop|posix|shm|tcp|trace|uring)|"
                          r"cases\.capacity|storage\.(files|storage)|store\.(disk|embedded|network|ssd)")
# Of these two at a time: they mostly wait, have ports and folders of their own, and compare no times.
E2E_BESIDE = {"disk.py", "history.py", "network.py", "replay.py", "ssd.py"}
PLANTED = "wire.encode_exist_128"
# The last one shows copies made ahead that take each other's place for ever, where nothing stops them.
SIM_SEEDS = ("1..100", "101..200", "9289..9289")
# Of the engine among peers.
PEER_SEEDS = "1..1500"
PEER_MUTATIONS = ("free-at-cancel", "end-before-quiet", "ignore-deadline", "resubmit-alias")
MUTATION_SEEDS = ("1..5", "6..20", "21..60", "61..120", "121..200")
MUTATIONS = ("skip-guard-check", "accept-stale", "complete-twice", "reuse-under-writer", "lose-journal-record",
             "reuse-under-read", "keep-replaced", "gds-free-early", "gds-any-extent", "gds-commit-early")
PASS, FAIL, SKIP = "passed", "failed", "skipped"
HEAD_LINES, TAIL_LINES = 12, 60


class Scratch:
    """TMPDIR of each command that is run, so that nothing is left of one that is killed. Its name is short, for
    sockets lie there too, and it is not in memory, as /tmp may be: disks are tested."""
    folder, numbers = None, itertools.count()

    def __enter__(self):
        if Scratch.folder is None:
            Scratch.folder = tempfile.mkdtemp(prefix="yolk-", dir=os.environ.get("TMPDIR", "/var/tmp"))
            os.chmod(Scratch.folder, 0o755)
            atexit.register(shutil.rmtree, Scratch.folder, ignore_errors=True)
        self.own = os.path.join(Scratch.folder, str(next(Scratch.numbers)))
        os.mkdir(self.own)
        os.chmod(self.own, 0o1777)  # some tests are other users
        return self.own

    def __exit__(self, *_):
        shutil.rmtree(self.own, ignore_errors=True)


def run(command, timeout, env=None, cwd=None):
    """Runs in a session of its own, so that a test's left-over children end with it. -> (code, output)"""
    with Scratch() as folder:
        return run_in(dict(os.environ if env is None else env, TMPDIR=folder), command, timeout, cwd)


def run_in(env, command, timeout, cwd):
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


def ends_of(text):
    """What was wrong often stands first, how it ended last."""
    lines = text.splitlines()
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    return lines if left_out <= 0 else [*lines[:HEAD_LINES], "... %d lines" % left_out, *lines[-TAIL_LINES:]]


class Results:
    def __init__(self):
        self.count = {PASS: 0, FAIL: 0, SKIP: 0}
        self.failed = []
        self.skipped = []

    def add(self, name, result, detail, seconds):
        self.count[result] += 1
        if result == FAIL:
            self.failed.append(name)
        if result != SKIP:  # one that passed may say how far it went
            sys.stdout.write("".join("    | %s\n" % line for line in ends_of(detail) if line))
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
    def __init__(self, name, action, beside=None):
        self.name = name
        self.action = action  # () -> (result, detail)
        self.beside = beside  # of those with the same word here, two run at a time


# They compare times, so nothing else of ours runs meanwhile.
ALONE = re.compile(r"sick\.|gates\.")


class Executable:
    """Runs a test executable of both builds once, side by side, and answers for each of its tests."""

    def __init__(self, target, commands, env):
        self.target, self.commands, self.env = target, commands, env
        self.runs = None

    def result(self, name):
        if self.runs is None:
            with concurrent.futures.ThreadPoolExecutor(1 if ALONE.match(self.target) else 2) as pool:
                self.runs = list(pool.map(lambda command: run(command, 300, self.env), self.commands))
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
        for name in filter(None, names):
            beside = "e2e." + file if file in E2E_BESIDE and "sick" not in name else None
            tests.append(Test("e2e.%s.%s" % (file[:-3], name), e2e_test(path, name, env), beside))
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


def tsan_names(release):
    return [name for name in sorted(ctest_names(release)) if TSAN_TARGETS.fullmatch(name)]


def tsan_tests(names, directory, env):
    # Its processes are of the same build, and so are watched too.
    env = dict(env, YOLK_BUILD=directory, YOLK_BIN=os.path.join(directory, "yolk"),
               TSAN_OPTIONS="exitcode=66:die_after_fork=0:history_size=7:suppressions=" + os.path.join(ROOT, "test", "tsan.suppressions"))

    def test(name):
        def action():
            command = [os.path.join(directory, "tests", name)]
            code, output = run(command, 400, env)
            if code == 77:
                return SKIP, skip_reason(output)
            # What took too long for a test's own limits is for the other builds to judge; a crash or a report is not.
            # That threads of a test which gave up are left is no report of its own.
            reports = [kind for kind in re.findall(r"Sanitizer: ?(.*)", output) if not re.match(r"thread leak|reported ", kind)]
            late = re.search(r"^ *\d+ FAILED TEST\(S\)$", output, re.M) and not reports
            if code == 0 or late and code != "timeout":
                return PASS, "" if code == 0 else "too slow with TSan, no report: " + ", ".join(
                    sorted(set(re.findall(r"^\[ *FAILED *\] (\w+)$", output, re.M))))
            return FAIL, "%s\n%s\nexit status %s" % (" ".join(command), output, code)
        return Test("tsan." + name, action, "tsan")
    return [test(name) for name in names]


def gate_tests(directory, env):
    def gates(*options):
        return run([sys.executable, GATES, "--build", directory, *options], 600, env)

    def counts():
        code, output = gates()
        if code == 77:
            return SKIP, skip_reason(output)
        return (PASS if code == 0 else FAIL), output

    def planted():
        code, output = gates("--plant", PLANTED, PLANTED)
        if code == 77:
            return SKIP, skip_reason(output)
        missing = [what for what in ("instructions", "system_calls", "allocations")
                   if "not counted here: " + what not in output
                   and not re.search(r"^%s: %s: .* the table says" % (re.escape(PLANTED), what), output, re.M)]
        return (FAIL, "not noticed: %s\n%s" % (missing, output)) if code != 1 or missing else (PASS, "")
    return [Test("gates.hot_paths_cost_what_the_table_says", counts), Test("gates.planted_costs_are_noticed", planted)]


def sim_tests(directory, env):
    simulator = os.path.join(directory, "yolk-sim")
    tests = []

    def clean():
        # A hundred seeds or more also fail when some fault or transition never occurred. Two at a time: it takes minutes.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda seeds: run([simulator, "--seeds", seeds], 1200, env), SIM_SEEDS))
        bad = ["%s\nexit status %s" % (output, code) for code, output in runs if code != 0]
        return (FAIL, bad[0]) if bad else (PASS, "")

    def peers():
        code, output = run([simulator, "--peers", "--seeds", PEER_SEEDS], 600, env)
        return (PASS if code == 0 else FAIL), "%s\nexit status %s" % (output, code)

    def caught(mutation, *world):
        def action():
            # In small steps, as one catch is enough.
            for seeds in MUTATION_SEEDS:
                code, output = run([simulator, *world, "--seeds", seeds, "--mutation", mutation], 600, env)
                if code != 0:
                    return (PASS, "") if code == 1 else (FAIL, "%s\nexit status %s" % (output, code))
            return FAIL, "%s\nnot caught by any seed" % output
        return action

    if os.path.exists(os.path.join(ROOT, "src", "sim", "main.c")):
        tests.append(Test("sim.seeds_1_to_200", clean))
        tests += [Test("sim.mutation_%s_is_caught" % m.replace("-", "_"), caught(m)) for m in MUTATIONS]
        tests.append(Test("sim.peers", peers))
        tests += [Test("sim.peers_mutation_%s_is_caught" % m.replace("-", "_"), caught(m, "--peers"))
                  for m in PEER_MUTATIONS]
    return tests


def fuzz_test(name, directory, seconds):
    def action():
        binaries = os.path.join(directory, "fuzzers")
        if not os.path.exists(campaign.executable(binaries, name)):
            return SKIP, "not built: it needs clang, and no --no-asan"
        with tempfile.TemporaryDirectory() as found:
            # What shows a mistake is in the output, so it is not lost with its folder.
            code, executed, _, output = campaign.fuzz(binaries, name, seconds, os.path.join(CORPUS, name), found, found)
        if code == 0 and executed:
            return PASS, ""
        return FAIL, "%s\nexit status %s" % (output, code)
    return Test("fuzz.%s" % name, action, "fuzz")


# It has a mistake, of which it says nothing until it runs the one input that shows it.
PLANTED_FUZZER = r"""#!/bin/sh
for argument; do
    case $argument in -artifact_prefix=*) printf '\377planted' > "${argument#*=}crash-1" ;; esac
done
test -d "$argument" || echo 'does not hold: planted' >&2
exit 77
"""


def planted_fuzzer_test():
    def action():
        with tempfile.TemporaryDirectory() as folder:
            path = campaign.executable(folder, "planted")
            with open(path, "w") as file:
                file.write(PLANTED_FUZZER)
            os.chmod(path, 0o755)
            code, _, _, output = campaign.fuzz(folder, "planted", 1, folder, folder, folder)
        wanted = ("does not hold: planted", base64.b64encode(b"\xffplanted").decode(), "exit status 77")
        return (PASS if code == 77 and all(each in output for each in wanted) else FAIL), output
    return Test("fuzz.what_shows_a_mistake_is_in_the_output", action)


def refusal_tests(targets, env):
    """Unit tests with allocations of the pure parts refused, and with calls of the system and the C library failing."""
    walker = os.path.join(ROOT, "test", "torture", "walk_units.py")
    seconds = ("0", "0") if os.environ.get("YOLK_TORTURE_FULL") else WALK_SECONDS

    def test(name, kinds, wanted):
        commands = [command[0] for target, command in sorted(targets.items()) if target in wanted]

        def action():
            runs = [run([sys.executable, walker, *seconds, kind, *commands], None if seconds[0] == "0" else 900, env)
                    for kind in kinds]
            output = "".join(output for _, output in runs)
            return (PASS if all(code == 0 for code, _ in runs) else FAIL), output
        return Test("torture." + name, action, "torture")
    return ([test("allocations_of_" + room, ("allocations",), wanted) for room, wanted in REFUSAL_TARGETS.items()] +
            [test("calls_of_" + room, CALL_KINDS, wanted) for room, wanted in CALL_TARGETS.items()])


def all_tests(release, asan, tsan):
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
        tests += [fuzz_test(name, release + "-fuzz", seconds) for name in campaign.names()] + [planted_fuzzer_test()]
    tests += tsan_tests(tsan_names(release), tsan, env) if tsan else []
    return tests + gate_tests(release, env) + sim_tests(release, env) + e2e_tests(env)


def timed(action):
    start = time.monotonic()
    result, detail = action()
    return result, detail, time.monotonic() - start


def outcomes(tests):
    """(name, (result, detail, seconds)) of each, in order."""
    for beside, group in itertools.groupby(tests, lambda test: test.beside):
        group = list(group)
        if beside is None:
            yield from ((test.name, timed(test.action)) for test in group)
            continue
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield from zip([test.name for test in group], pool.map(timed, [test.action for test in group]))


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
    tsan = None if arguments.no_asan else release + "-tsan"
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
                build(release + "-fuzz", campaign.BUILD_OPTIONS, ["fuzzers"])
            build(tsan, ["-DYOLK_TESTS=ON", "-DYOLK_SANITIZE=thread"], ["yolk", *["tests/" + name for name in tsan_names(release)]])
    if arguments.build_only:
        return 0
    tests = [test for test in all_tests(release, None if arguments.list else asan, tsan)
             if re.search(arguments.filter, test.name)]
    if arguments.list:
        print("\n".join(test.name for test in tests))
        return 0
    results = Results()
    for name, outcome in outcomes(tests):
        results.add(name, *outcome)
    return results.close()


if __name__ == "__main__":
    sys.exit(main())
