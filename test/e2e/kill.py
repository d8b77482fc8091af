#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A replay whose processes are killed and stopped: no wrong byte, it goes on by itself, and the master's books
agree with a full recount afterwards."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Failure, check, check_equal, eventually, main, test, yolk_path

REQUESTS = int(os.environ.get("YOLK_KILL_REQUESTS", "1500"))
ROUNDS = int(os.environ.get("YOLK_KILL_ROUNDS", "2"))
TIMEOUT_S = 180
# Short, so that a stopped process outlives all of them within seconds.
MASTER_FLAGS = (
    "--session-ttl=1500ms",
    "--heartbeat=200ms",
    "--put-timeout=1s",
    "--guard-ttl=1s",
    "--lease-ttl=1s",
)
STOPPED_S = 4.0


class Replay:
    """`yolk replay --processes --respawn --hold` with its lines read as they come."""

    def __init__(self, context, *args, requests=REQUESTS):
        self.requests = requests
        self.json_path = context.path("replay.json")
        trace = ("--synthetic", "--requests", str(requests))
        folder = os.environ.get("YOLK_TRACE_DIR")
        if folder and os.path.exists(os.path.join(folder, "conversation_trace.jsonl")):
            path = os.path.join(folder, "conversation_trace.jsonl")
            trace = ("--trace", path, "--requests", str(requests))
        command = [
            yolk_path(), "replay", *trace, "--block-size", "16KiB", "--nodes", "2", "--dram",
            "1GiB", "--processes", "--respawn", "--hold", "--report-every", "25", "--put-wait",
            "5s", "--timeout", "8s", "--json", self.json_path, *args,
        ]
        for flag in MASTER_FLAGS:
            command += ["--master-flag", flag]
        self.args = command
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.lines = []
        self.pids = {}
        self.progress = 0
        self.master = None
        self.done = False
        self.ended = False
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        context.processes.append(self)

    def _read(self):
        for raw in self.popen.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            with self.changed:
                self.lines.append(line)
                process = re.match(r"process (\S+) pid (\d+) ports (\d*)", line)
                progress = re.match(r"progress (\d+) of", line)
                if process:
                    self.pids[process[1]] = int(process[2])
                    if process[1] == "master":
                        self.master = "127.0.0.1:" + process[3]
                elif progress:
                    self.progress = int(progress[1])
                elif line == "done":
                    self.done = True
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def output(self):
        lines = [line for line in self.lines if not line.startswith("progress")]
        return f"progress {self.progress}\n" + "\n".join(lines)

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def wait(self, condition, text, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self.ended:
                    raise Failure(f"{text}: not reached")
                self.changed.wait(left)

    def wait_progress(self, requests):
        self.wait(lambda: self.done or self.progress >= requests, f"progress {requests}")

    def signal(self, role, number):
        os.kill(self.pids[role], number)

    def finish(self, context):
        """Waits for the end, checks the result, and lets the cluster go."""
        self.wait(lambda: self.done, "the end of the replay")
        with open(self.json_path) as f:
            result = json.load(f)
        check_equal(result["wrong_bytes"], 0, "wrong_bytes")
        check_equal(result["requests"], self.requests, "requests")
        print(
            f"# hit rate {result['hit_rate']:.4f}, restarts {result['restarts']}, failed gets "
            f"{result['failed_gets']}, failed puts {result['failed_puts']}, {result['seconds']:.1f} s"
        )

        # Of an endless cache that nothing happens to: what the trace itself allows.
        unbounded = re.search(r"^ +an unbounded cache +([\d.]+)", self.output(), re.M)
        result["unbounded_hit_rate"] = float(unbounded[1])

        def agrees():
            return context.run("stat", "--master", self.master, "--recount")[0] == 0

        eventually(agrees, text="yolk stat --recount agrees")
        self.popen.stdin.close()
        check_equal(self.popen.wait(60), 0, "exit code of the replay")
        return result


def try_kills(context, roles, requests, *args):
    """The result; None: the replay was over before all kills."""
    replay = Replay(context, *args, requests=requests)
    total = len(roles) * ROUNDS
    for i in range(total):
        replay.wait_progress((i + 1) * requests // (total + 1))
        role = roles[i % len(roles)]
        before = replay.pids[role]
        replay.signal(role, signal.SIGKILL)
        replay.wait(lambda: replay.done or replay.pids[role] != before, f"restart of {role}", 30)
        if replay.done:
            replay.kill()
            return None
    result = replay.finish(context)
    check_equal(result["restarts"], total, "restarts")
    check(result["blocks_hit"] > 0, "there are hits")
    return result


def kill_in_turn(context, roles, *args):
    """Each of the roles dies ROUNDS times, spread over the replay, each at a moment of its own. On a machine so busy that
    this one sees the progress too late, the replay is a longer one."""
    for requests in (REQUESTS, 4 * REQUESTS):
        result = try_kills(context, roles, requests, *args)
        if result is not None:
            return result
    raise Failure("the replay was over before all kills")


@test("kill.node")
def kill_node(context):
    kill_in_turn(context, ["node-0", "node-1"])


@test("kill.master")
def kill_master(context):
    result = kill_in_turn(context, ["master"])
    # What lies in the nodes is served again after it: a cold cache would lose most of the hits.
    wanted = 0.75 * result["unbounded_hit_rate"]
    check(result["hit_rate"] > wanted, f"hit rate {result['hit_rate']} after the master's deaths, not {wanted}")


@test("kill.writer")
def kill_writer(context):
    kill_in_turn(context, ["writer-0"])


@test("kill.reader")
def kill_reader(context):
    kill_in_turn(context, ["reader-0"])


@test("kill.writer_tcp")
def kill_writer_tcp(context):
    kill_in_turn(context, ["writer-0", "reader-0"], "--transport", "tcp")


STOP_REQUESTS = max(REQUESTS, 10000)  # so many that the other client is at work all the time
STOP_ARGS = ("--unordered", "--clients", "2", "--dram", "64MiB", "--put-wait", "2s", "--timeout", "3s")


@test("kill.node_terminated_drains")
def node_terminated(context):
    """SIGTERM: the node leaves within its drain grace (5s), and no reader sees a wrong byte or waits for it."""
    replay = Replay(context)
    for i, role in enumerate(["node-0", "node-1"]):
        replay.wait_progress((i + 1) * REQUESTS // 3)
        before = replay.pids[role]
        start = time.monotonic()
        replay.signal(role, signal.SIGTERM)
        replay.wait(lambda: replay.pids[role] != before, f"end and restart of {role}", 30)
        took_s = time.monotonic() - start
        check(took_s < 7, f"{role} took {took_s:.1f} s to leave")
    result = replay.finish(context)
    check_equal(result["restarts"], 2, "restarts")


def stop_in_turn(context, roles, *args):
    """Each role stands still longer than every timeout, and then goes on as if nothing had been. Meanwhile the
    other client keeps evicting, so that space of the stopped one would be reused if that were allowed."""
    replay = Replay(context, *STOP_ARGS, *args, requests=STOP_REQUESTS)
    for i, role in enumerate(roles):
        replay.wait_progress((2 * i + 1) * 500)
        if i and replay.done:
            break
        before = replay.progress
        replay.signal(role, signal.SIGSTOP)
        try:
            # Not a wait for something: the time itself is the fault.
            select.select([], [], [], STOPPED_S)
        finally:
            replay.signal(role, signal.SIGCONT)
        if i == 0:
            check(replay.progress > before, "the other client did not go on meanwhile")
        check(not replay.done, "the replay ended without the stopped process")
    result = replay.finish(context)
    # A call that was under way has no time left when the process goes on: it alone may fail, and says so.
    failure = re.search(r"first failure +.*, put: (?:(\d+) of \d+ keys failed, the first with )?(.*)", replay.output())
    if failure:
        check(failure[2].startswith("deadline passed"), f"why puts failed: {failure[2]}")
    check_equal(result["failed_puts"], int(failure[1] or 1) if failure else 0, "failed puts")


@test("kill.stopped_writer")
def stopped_writer(context):
    stop_in_turn(context, ["writer-0"])


@test("kill.stopped_reader")
def stopped_reader(context):
    stop_in_turn(context, ["reader-0"])


@test("kill.stopped_tcp")
def stopped_tcp(context):
    stop_in_turn(context, ["writer-0", "reader-0"], "--transport", "tcp")


@test("kill.stopped_node_and_master")
def stopped_node_and_master(context):
    """Nobody is to be blamed for standing still: not the master (its sessions live on), not a node."""
    replay = Replay(context)
    for i, role in enumerate(["master", "node-0"]):
        replay.wait_progress((i + 1) * REQUESTS // 3)
        replay.signal(role, signal.SIGSTOP)
        try:
            select.select([], [], [], STOPPED_S)
        finally:
            replay.signal(role, signal.SIGCONT)
    replay.finish(context)


@test("kill.small_memory")
def small_memory(context):
    """With eviction all the time, so that space is reused while its users die."""
    kill_in_turn(
        context, ["writer-0", "reader-0", "node-0", "master"], "--dram", "64MiB", "--unordered",
        "--clients", "2",
    )


if __name__ == "__main__":
    sys.exit(main())
