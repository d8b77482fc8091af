# SPDX-License-Identifier: Apache-2.0
"""Tiny harness of the end-to-end tests: Python's standard library only.

A test file defines functions decorated with @test("name") and ends with `sys.exit(main())`.
Every test prints one line: `ok NAME`, `not ok NAME` (with the reason on lines that start with #) or
`skip NAME reason`. The exit code is 1 if any test failed.

    python3 test/e2e/cli.py [--build DIR] [--list] [NAME...]
"""

import argparse
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WAIT_S = float(os.environ.get("YOLK_TEST_WAIT_S", "30"))


class Skip(Exception):
    """Raised by a test that cannot run here."""


class Failure(AssertionError):
    pass


_tests = []
_build = os.environ.get("YOLK_BUILD", os.path.join(ROOT, "build"))


def test(name):
    def add(function):
        _tests.append((name, function))
        return function

    return add


def yolk_path():
    return os.path.join(_build, "yolk")


def build_dir():
    return _build


def check(condition, text="check failed"):
    if not condition:
        raise Failure(text)


def check_equal(got, wanted, text=""):
    if got != wanted:
        raise Failure(f"{text}: got {got!r}, wanted {wanted!r}")


def check_in(part, whole, text=""):
    if part not in whole:
        raise Failure(f"{text}: {part!r} is not in {whole!r}")


def free_port():
    """A TCP port of 127.0.0.1 that is free now; another process may still take it first."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def as_user(user):
    """Arguments of Popen that run it under another user id without capabilities; None: the same."""
    return {"user": user, "group": user, "extra_groups": []} if user is not None else {}


class Process:
    """A program with its output collected line by line; killed at the end of the test."""

    def __init__(self, args, env=None, cwd=None, user=None):
        self.args = args
        full_env = dict(os.environ)
        full_env.update(env or {})
        self.popen = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=full_env,
            cwd=cwd,
            start_new_session=True,
            **as_user(user),
        )
        self.lines = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for raw in self.popen.stdout:
            with self._changed:
                self.lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def pid(self):
        return self.popen.pid

    def output(self):
        with self._changed:
            return "\n".join(self.lines)

    def wait_line(self, pattern, timeout_s=WAIT_S):
        """The match of the first line in which the pattern is found; fails if the program ends or time runs out."""
        deadline = time.monotonic() + timeout_s
        seen = 0
        with self._changed:
            while True:
                while seen < len(self.lines):
                    match = re.search(pattern, self.lines[seen])
                    seen += 1
                    if match:
                        return match
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "it ended" if self._ended else f"{timeout_s} s passed"
                    raise Failure(
                        f"no line like {pattern!r} from {' '.join(self.args)} ({why}):\n"
                        + "\n".join(self.lines)
                    )
                self._changed.wait(left)

    def wait(self, timeout_s=WAIT_S):
        """The exit code."""
        try:
            code = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{' '.join(self.args)} did not end in {timeout_s} s:\n{self.output()}")
        self._reader.join(5)
        return code

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def terminate(self):
        self.signal(signal.SIGTERM)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()


class Context:
    """What one test uses: a temporary folder and processes, all gone when it ends."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="yolk-e2e-")
        self.processes = []
        self.user = None  # what is started runs under this user id

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data):
        if isinstance(data, str):
            data = data.encode()
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def start(self, *args, env=None):
        process = Process([str(a) for a in args], env=env, user=self.user)
        self.processes.append(process)
        return process

    def yolk(self, *args, env=None):
        """Starts `yolk ARGS` in the background."""
        return self.start(yolk_path(), *args, env=env)

    def run(self, *args, stdin=b"", env=None, timeout_s=WAIT_S):
        """Runs `yolk ARGS` to its end: (exit code, stdout bytes, stderr text)."""
        full_env = dict(os.environ)
        full_env.update(env or {})
        try:
            done = subprocess.run(
                [yolk_path(), *[str(a) for a in args]],
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=full_env,
                timeout=timeout_s,
                **as_user(self.user),
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"yolk {' '.join(map(str, args))} did not end in {timeout_s} s")
        return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")

    def master(self, *args, port=None, admin_port=None):
        """A running master: (process, "127.0.0.1:port"); process.admin_port is its HTTP port."""
        process = self.yolk(
            "master", "--port", port or 0, "--admin-port", admin_port or 0, *args
        )
        process.address = process.wait_line(r"^yolk master ready (\S+)").group(1)
        process.admin_port = int(process.wait_line(r"^health: .*:(\d+)/health").group(1))
        return process, process.address

    def node(self, master, *args, dram="64MiB"):
        process = self.yolk("node", "--master", master, "--dram", dram, *args)
        ports = process.wait_line(r"^yolk node ready (\S+)").group(1)
        process.ports = [int(p.rsplit(":", 1)[1]) for p in ports.split(",") if ":" in p]
        return process

    def close(self):
        for process in self.processes:
            process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def eventually(function, timeout_s=WAIT_S, text="condition"):
    """Polls until function() is true; for what no line announces."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = function()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"{text} did not come true in {timeout_s} s")
        select.select([], [], [], 0.02)


def main():
    global _build
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=_build, help="folder with the built yolk")
    parser.add_argument("--list", action="store_true", help="print test names")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    _build = os.path.abspath(options.build)
    # Not those of another file that was imported for what it shares.
    own = [(n, f) for n, f in _tests if f.__module__ == "__main__"]
    chosen = [(n, f) for n, f in own if not options.names or n in options.names]
    if options.list:
        for name, _ in chosen:
            print(name)
        return 0
    if not os.access(yolk_path(), os.X_OK):
        print(f"# {yolk_path()} is not there: build first, or give --build DIR")
        for name, _ in chosen:
            print(f"not ok {name}")
        return 1
    failed = 0
    for name, function in chosen:
        context = Context()
        try:
            function(context)
            print(f"ok {name}", flush=True)
        except Skip as reason:
            print(f"skip {name} {reason}", flush=True)
        except Exception as error:  # any other exception is a failure of this test only
            failed += 1
            if isinstance(error, Failure):
                text = str(error)
            else:
                text = traceback.format_exc()
            for process in context.processes:
                text += f"\n-- output of {' '.join(process.args)}\n{process.output()}"
            for line in text.splitlines():
                print(f"# {line}")
            print(f"not ok {name}", flush=True)
        finally:
            context.close()
    return 1 if failed else 0
