#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs all tests.

Unit and suite tests are executables that ctest knows; each counts once and passes only if it passes in the
release build and in the one with ASan and UBSan. Files test/e2e/*.py are either unittest modules (each method
counts) or scripts (exit status 0 passed, 77 skipped with a line "SKIP: reason", else failed). Files that start
with "_" or hold neither a main part nor a TestCase are helpers. The simulator's seeds and mutations run when
it is built. A test finds the build in YOLK_BUILD, the sanitized one in YOLK_ASAN_BUILD, traces in
YOLK_TRACE_DIR. The last line is "N passed, N failed, N skipped".
"""
import argparse
import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
E2E = os.path.join(ROOT, "test", "e2e")
SIM_SEEDS = "1..200"
MUTATIONS = ("skip-guard-check", "accept-stale", "complete-twice", "reuse-under-writer")
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


def build(directory, options):
    print("building %s" % directory, file=sys.stderr, flush=True)
    for command in (["cmake", "-S", ROOT, "-B", directory, "-G", "Ninja"] + options, ["ninja", "-C", directory]):
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


def is_unittest(source):
    return "unittest" in source and "TestCase" in source


def e2e_files():
    """-> [(file, is a unittest module)]"""
    files = []
    for name in sorted(os.listdir(E2E)) if os.path.isdir(E2E) else []:
        path = os.path.join(E2E, name)
        if not name.endswith(".py") or name.startswith("_"):
            continue
        with open(path, encoding="utf-8") as file:
            source = file.read()
        if is_unittest(source) and test_methods(source):
            files.append((path, True))
        elif "__main__" in source and not is_unittest(source):
            files.append((path, False))
    return files


def test_methods(source):
    return [(node.name, item.name) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
            for item in node.body if isinstance(item, ast.FunctionDef) and item.name.startswith("test")]


def stem(path):
    name = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r"^test_|_test$", "", name)


class Test:
    def __init__(self, name, action):
        self.name = name
        self.action = action  # () -> (result, detail)


def unit_test(commands, env):
    def action():
        for command in commands:
            code, output = run(command, 300, env)
            if code == 77:
                return SKIP, skip_reason(output)
            if code != 0:
                return FAIL, "%s\n%s\nexit status %s" % (" ".join(command), output, code)
        return PASS, ""
    return action


def script_test(path, env):
    def action():
        code, output = run([sys.executable, path], 900, env, E2E)
        if code == 77:
            return SKIP, skip_reason(output)
        return (PASS, "") if code == 0 else (FAIL, "%s\nexit status %s" % (output, code))
    return action


def method_test(path, method, env):
    def action():
        code, output = run([sys.executable, os.path.abspath(__file__), "--one", path, method], 900, env, E2E)
        match = re.search(r"^SKIP: *(.*)$", output, re.M) if code == 77 else None
        if match:
            return SKIP, match.group(1)
        return (PASS, "") if code == 0 else (FAIL, "%s\nexit status %s" % (output, code))
    return action


def run_one(path, method):
    """In a process of its own: one method of a unittest module, with our exit status."""
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromName("%s.%s" % (name, method)))
    if result.skipped and result.wasSuccessful():
        print("SKIP: %s" % result.skipped[0][1])
        return 77
    return 0 if result.wasSuccessful() and result.testsRun else 1


def sim_tests(directory, env):
    simulator = os.path.join(directory, "yolk-sim")
    tests = []

    def clean():
        code, output = run([simulator, "--seeds", SIM_SEEDS], 1200, env)
        return (PASS, "") if code == 0 else (FAIL, "%s\nexit status %s" % (output, code))

    def caught(mutation):
        def action():
            code, output = run([simulator, "--seeds", SIM_SEEDS, "--mutation", mutation], 1200, env)
            return (PASS, "") if code == 1 else (FAIL, "%s\nnot caught: exit status %s" % (output, code))
        return action

    if os.path.exists(os.path.join(ROOT, "src", "sim", "main.c")):
        tests.append(Test("sim.seeds_" + SIM_SEEDS.replace("..", "_to_"), clean))
        tests += [Test("sim.mutation_%s_is_caught" % m.replace("-", "_"), caught(m)) for m in MUTATIONS]
    return tests


def all_tests(release, asan):
    env = dict(os.environ, YOLK_BUILD=release, YOLK_BIN=os.path.join(release, "yolk"), PYTHONDONTWRITEBYTECODE="1",
               ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:handle_abort=1", UBSAN_OPTIONS="print_stacktrace=1")
    if asan:
        env["YOLK_ASAN_BUILD"] = asan
    commands = [ctest_names(directory) for directory in (release, asan) if directory]
    tests = [Test(name, unit_test([each[name] for each in commands if name in each], env))
             for name in sorted(commands[0])]
    tests += sim_tests(release, env)
    for path, module in e2e_files():
        if not module:
            tests.append(Test("e2e." + stem(path), script_test(path, env)))
            continue
        with open(path, encoding="utf-8") as file:
            methods = test_methods(file.read())
        tests += [Test("e2e.%s.%s" % (stem(path), method), method_test(path, "%s.%s" % (cls, method), env))
                  for cls, method in methods]
    return tests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the names of the tests and do not run them")
    parser.add_argument("--filter", metavar="REGEX", default="", help="only tests whose name matches")
    parser.add_argument("--no-asan", action="store_true", help="release build only")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build"))
    parser.add_argument("--one", nargs=2, metavar=("FILE", "METHOD"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return run_one(*arguments.one)
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
