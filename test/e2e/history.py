#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What real clients of a real cluster see, key by key, is what one register that forgets could have shown, while
nodes and the master are killed and anybody is stopped. The checker has to find what is put into such a history on
purpose. See history_check.py for what is allowed."""

import copy
import json
import os
import random
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import history_check
from harness import Failure, build_dir, check, check_equal, eventually, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = float(os.environ.get("YOLK_HISTORY_SECONDS", "4"))
SEED = int(os.environ.get("YOLK_HISTORY_SEED", "1"))
KEYS, CLIENTS = 4, 4
# Removes this long before a master's death may be undone by it.
UNDONE_NS = 3 * 10**9
# Answers after which a put certainly left nothing.
REFUSED = ("YOLK_ERR_NO_SPACE", "YOLK_ERR_TOO_LARGE", "YOLK_ERR_INVALID")
MASTER_FLAGS = ("--session-ttl=1500ms", "--heartbeat=200ms", "--put-timeout=1s", "--guard-ttl=1s", "--lease-ttl=1s")


# ---- the checker itself ----

def put(value, begin, end):
    return {"kind": "put", "value": value, "begin": begin, "end": end}


def upsert(value, begin, end):
    return {"kind": "upsert", "value": value, "begin": begin, "end": end}


def again(value, begin, end):
    return {"kind": "again", "value": value, "begin": begin, "end": end}


def get(value, begin, end):
    return {"kind": "get", "value": value, "begin": begin, "end": end}


def exist(begin, end):
    return {"kind": "exist", "begin": begin, "end": end}


def remove(begin, end, undoable=False):
    return {"kind": "remove", "begin": begin, "end": end, "undoable": undoable}


def undo(begin, end):
    return {"kind": "undo", "begin": begin, "end": end}


GOOD = {
    "nothing": [],
    "a value and its readers": [put("a", 0, 1), get("a", 2, 3), get("a", 2, 9)],
    "read while it is put": [put("a", 0, 9), get("a", 1, 2)],
    "evicted, and another one put": [put("a", 0, 1), get("a", 2, 3), put("b", 4, 5), get("b", 6, 7)],
    "a put that finds it taken": [put("a", 0, 1), put("b", 2, 3), get("a", 4, 5)],
    "removed, then another one": [put("a", 0, 1), remove(2, 3), put("b", 4, 5), get("b", 6, 7)],
    "a reader beside a remove": [put("a", 0, 1), remove(2, 8), get("a", 3, 9)],
    "an unanswered put comes late": [put("a", 0, None), get("a", 50, 51)],
    "an unanswered put never comes": [put("a", 0, None), put("b", 3, 4), get("b", 5, 6)],
    "an unanswered remove": [put("a", 0, 1), remove(2, None), get("a", 3, 4)],
    "two puts at once, the second to begin wins": [put("a", 0, 9), put("b", 1, 8), get("b", 10, 11)],
    "both were there, one after the other": [put("a", 0, 9), put("b", 1, 8), get("a", 3, 4), get("b", 10, 11)],
    "it exists": [put("a", 0, 1), exist(2, 3)],
    "it exists while it is put": [put("a", 0, 9), exist(2, 3)],
    "put in its place": [put("a", 0, 1), upsert("b", 2, 3), get("b", 4, 5)],
    "a reader beside an upsert": [put("a", 0, 1), upsert("b", 2, 8), get("a", 3, 9), get("b", 4, 9)],
    "an unanswered upsert": [put("a", 0, 1), upsert("b", 2, None), get("a", 3, 4), get("b", 5, 6)],
    "put again after a death": [put("a", 0, 9), get("a", 1, 2), remove(3, 4), again("a", 5, 9), get("a", 10, 11)],
    "not put again": [put("a", 0, 9), get("a", 1, 2), put("b", 3, 4), again("a", 2, 9), get("b", 10, 11)],
    "undone by the master's death": [put("a", 0, 1), remove(2, 3, True), undo(4, 9), get("a", 6, 7)],
}
BAD = {
    "never put": [put("a", 0, 1), get("b", 2, 3)],
    "read before it was put": [get("a", 0, 1), put("a", 2, 3)],
    "removed and back": [put("a", 0, 1), remove(2, 3), get("a", 4, 5)],
    "replaced and back": [put("a", 0, 1), get("a", 2, 3), put("b", 4, 5), get("b", 6, 7), get("a", 8, 9)],
    "an upsert that is not seen": [put("a", 0, 1), upsert("b", 2, 3), get("a", 4, 5)],
    "an upsert seen, and then not": [put("a", 0, 1), upsert("b", 2, 9), get("b", 3, 4), get("a", 5, 6)],
    "an upsert undone by a death": [put("a", 0, 1), upsert("b", 2, 3), undo(4, 9), get("a", 6, 7)],
    "put again before a death": [put("a", 0, 9), get("a", 1, 2), remove(3, 4), get("a", 5, 6), again("a", 7, 9)],
    "put again twice": [put("a", 0, 9), remove(1, 2), get("a", 3, 4), remove(5, 6), get("a", 7, 8), remove(9, 10),
                        again("a", 7, 9), get("a", 11, 12)],
    "two values in turn": [put("a", 0, 1), put("b", 0, 1), get("a", 2, 3), get("b", 4, 5), get("a", 6, 7)],
    "removed, read by another at once": [put("a", 0, 1), remove(2, 3), remove(2, 9), get("a", 4, 5)],
    "nothing that could exist": [exist(0, 1), put("a", 2, 3)],
    "exists after its remove": [put("a", 0, 1), remove(2, 3), exist(4, 5)],
    "undone without a death": [put("a", 0, 1), remove(2, 3, True), get("a", 6, 7)],
    "undone, though too long ago": [put("a", 0, 1), remove(2, 3, False), undo(4, 9), get("a", 6, 7)],
    "undone before the death": [put("a", 0, 1), remove(2, 3, True), get("a", 4, 5), undo(6, 9)],
    "late beyond all bounds": [put("a", 0, None), remove(2 * history_check.LATE_NS, 2 * history_check.LATE_NS + 1),
                               get("a", 2 * history_check.LATE_NS + 2, 2 * history_check.LATE_NS + 3)],
}


def is_wrong(history):
    try:
        history_check.check_key(history)
    except history_check.Wrong:
        return True
    return False


@test("history.checker_takes_what_can_have_been")
def checker_takes(_):
    for name, history in GOOD.items():
        history_check.check_key(history)
        dice = random.Random(name)
        for _ in range(5):  # the order in which it is told does not matter
            dice.shuffle(history)
            history_check.check_key(history)


@test("history.checker_finds_what_cannot_have_been")
def checker_finds(_):
    for name, history in BAD.items():
        check(is_wrong(history), f"not found: {name}")


def effects(op, state):
    value, removed = state
    kind = op["kind"]
    if kind in history_check.WRITES:
        return [(op["value"], removed)]
    if kind == "remove":
        return [(None, removed | {value} if op["undoable"] and value is not None else removed)]
    if kind == "undo":
        return [(back, frozenset()) for back in removed]
    seen = value == op["value"] if kind == "get" else value is not None
    return [state] if seen else []


def all_orders_explain(history):
    """The definition, on a few operations: some order that respects time, with each optional one in or out."""
    ops = history_check.normal(history)

    def go(left, state):
        if not left:
            return True
        limit = min(op["end"] for op in left)
        for i, op in enumerate(left):
            if op["begin"] > limit:
                continue
            rest = left[:i] + left[i + 1:]
            if not op["must"] and go(rest, state):
                return True
            if any(go(rest, new) for new in effects(op, state)):
                return True
        return False

    try:
        history_check.check_known(ops)
    except history_check.Wrong:
        return False
    return go(ops, (None, frozenset()))


@test("history.checker_agrees_with_the_definition")
def checker_agrees(_):
    dice = random.Random(7)
    answers = [0, 0]
    for _ in range(3000):
        history, values = [], ["a", "b", "c"]
        for _ in range(dice.randrange(1, 7)):
            begin = dice.randrange(20)
            end = begin + dice.randrange(1, 8)
            kind = dice.choice(("put", "put", "again", "upsert", "get", "get", "get", "exist", "remove", "remove", "undo"))
            if kind in history_check.WRITES and values:
                write = {"put": put, "again": again, "upsert": upsert}[kind]
                history.append(write(values.pop(), begin, dice.choice((end, end, None))))
            elif kind == "get":
                history.append(get(dice.choice("abc"), begin, end))
            elif kind == "exist":
                history.append(exist(begin, end))
            elif kind == "undo":
                history.append(undo(begin, end))
            else:
                history.append(remove(begin, end, dice.random() < 0.5))
        expected = all_orders_explain(history)
        # The checker lets pass that an unanswered put is what exists, and does not ask which remove was undone.
        kinds = {e["kind"] for e in history}
        passes = "undo" in kinds or "exist" in kinds and any(
            e["kind"] in history_check.WRITES and e["end"] is None for e in history)
        if expected or not passes:
            check_equal(not is_wrong(history), expected, f"{history}")
        answers[expected] += expected or not passes
    check(min(answers) > 200, f"both answers occur often: {answers}")


# ---- real processes ----

def library():
    for folder, _, files in os.walk(build_dir()):
        if "libyolk.so" in files:
            return os.path.join(folder, "libyolk.so")
    raise Failure(f"no libyolk.so in {build_dir()}")


class Client:
    def __init__(self, context, number, master, seed, prefix=(), **settings):
        self.name = f"client-{number}-{seed}"
        self.path = context.path(self.name)
        self.settings = dict({"keys": KEYS}, **settings)
        self.popen = subprocess.Popen(
            [*prefix, sys.executable, os.path.join(HERE, "history_worker.py"), library(), master, self.path,
             self.name, str(seed), json.dumps(self.settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.args, self.text = self.popen.args, ""
        context.processes.append(self)

    def wait_ready(self):
        check(select.select([self.popen.stdout], [], [], 30)[0], f"{self.name} says nothing")
        line = self.popen.stdout.readline().decode("utf-8", "replace")
        if not line.startswith("client ready"):
            self.kill()
            raise Failure(f"{self.name}: {line}{self.read_rest()}")

    def read_rest(self):
        self.text += self.popen.stdout.read().decode("utf-8", "replace")
        return self.text

    def output(self):
        return self.text

    def finish(self, timeout_s=30):
        self.popen.stdin.close()
        try:
            code = self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} did not end in {timeout_s} s")
        self.read_rest()
        check_equal(code, 0, f"exit code of {self.name}: {self.text}")

    def kill(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()

    def records(self):
        """Operations as they were written down; the last one may have no end."""
        ops = {}
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    record = json.loads(line)
                    op = ops.setdefault(record["number"], {"client": self.name})
                    if "end" in record and op["kind"] == "get":
                        op.update(record)
                    else:
                        op.update({k: v for k, v in record.items() if k != "value" or "value" not in op})
        return list(ops.values())


def history_of(records, deaths=()):
    """What check() wants; deaths: (killed, ready again) of the master. Fails at bytes that nobody put."""
    history = []
    for op in records:
        kind, ok = op["kind"], op.get("ok")
        event = {"kind": kind, "key": op["key"], "begin": op["begin"], "end": op.get("end"), "by": op["client"]}
        if kind in history_check.WRITES:
            if ok is False and op["answer"] in REFUSED:
                continue
            event["value"] = op["value"]
        elif kind == "get":
            if not ok:
                continue
            check(op["value"] is not None, f"a get returned bytes that nobody put: {op}")
            check(op["value"].startswith(op["key"] + "/"), f"a get returned another key's value: {op}")
            event["value"] = op["value"]
        elif kind == "exist":
            if not ok or op["answer"] != 1:
                continue
        elif ok is False and op["answer"] in ("YOLK_ERR_NOT_FOUND", "YOLK_ERR_HAS_LEASE"):
            continue
        if ok is False:
            event["end"] = None  # an error: it may have been done, or still be
        if kind == "remove":
            ended = event["end"] or event["begin"] + history_check.LATE_NS
            event["undoable"] = any(event["begin"] < ready and ended > died - UNDONE_NS for died, ready in deaths)
        history.append(event)
        within = [died for died, _ in deaths if event["begin"] < died and (event["end"] or died + 1) > died]
        if kind == "put" and within:
            history.append(dict(event, kind="again", begin=within[0]))
    for died, ready in deaths:
        for key in {event["key"] for event in history}:
            history += [{"kind": "undo", "key": key, "begin": died, "end": ready + 2 * 10**9}]
    return history


class Cluster:
    """A master and two nodes that are started anew when they die."""

    def __init__(self, context, dram, *node_flags):
        self.context, self.dram, self.node_flags = context, dram, node_flags
        self.master, self.address = context.master(*MASTER_FLAGS)
        self.port = self.address.rsplit(":", 1)[1]
        self.nodes = [self.new_node() for _ in range(2)]
        self.deaths = []

    def new_node(self):
        return self.context.node(self.address, *self.node_flags, dram=self.dram)

    def kill_node(self, dice):
        index = dice.randrange(2)
        self.nodes[index].kill()
        self.nodes[index] = self.new_node()

    def kill_master(self, _):
        died = time.monotonic_ns()
        self.master.kill()
        self.master, _ = self.context.master(*MASTER_FLAGS, port=self.port)
        self.deaths.append((died, time.monotonic_ns()))

    def recount(self):
        return self.context.run("stat", "--master", self.address, "--recount")[0] == 0


def stand_still(process, seconds):
    os.kill(process.popen.pid, signal.SIGSTOP)
    try:
        select.select([], [], [], seconds)  # the time itself is the fault
    finally:
        os.kill(process.popen.pid, signal.SIGCONT)


def pause(seconds):
    """What the clients do meanwhile is what the test is about."""
    select.select([], [], [], seconds)


def judge(clients, deaths=()):
    """Checks what they saw, and that the check would see a lie in it."""
    records = [op for client in clients for op in client.records()]
    history = history_of(records, deaths)
    try:
        history_check.check(history)
    except history_check.Wrong as wrong:
        raise Failure(str(wrong))
    hits = sum(event["kind"] == "get" for event in history)
    print(f"# {len(records)} operations, {hits} hits, {len(deaths)} deaths of the master")
    check(hits > 50, f"only {hits} gets found something")
    check(any(event["kind"] == "remove" for event in history), "nothing was removed")
    lies = told_lies(history)
    check(len(lies) >= 4, "too few lies could be told")
    for name, lie in lies:
        try:
            history_check.check(lie)
        except history_check.Wrong:
            continue
        raise Failure(f"the check does not see: {name}")
    return records


def told_lies(history):
    """The history, each time with one thing in it that cannot have been."""
    lies = []
    gets = [i for i, event in enumerate(history) if event["kind"] == "get"]
    last = max(event["end"] or 0 for event in history)

    def changed(name, index, **changes):
        lie = copy.deepcopy(history)
        lie[index].update(changes)
        lies.append((name, lie))

    middle = gets[len(gets) // 2]
    changed("a value that nobody put", middle, value=history[middle]["key"] + "/nobody/0")
    other = next(e for e in history if e["kind"] in history_check.WRITES and e["key"] != history[middle]["key"])
    changed("another key's value", middle, value=other["value"])
    first = history[gets[0]]
    value_put = next(e for e in history if e["kind"] in history_check.WRITES and e["value"] == first["value"])
    changed("a value before it was put", gets[0], begin=value_put["begin"] - 9, end=value_put["begin"] - 5)
    # A value that was followed by another one is read again at the very end.
    by_key = {}
    for i in sorted(gets, key=lambda i: history[i]["end"]):
        by_key.setdefault(history[i]["key"], []).append(history[i])
    for key, seen in by_key.items():
        old = seen[0]
        if seen[-1]["value"] == old["value"]:
            continue
        # Twice in turn, so that no death of a master explains it.
        again = [dict(e, begin=last + 10 * n, end=last + 10 * n + 5)
                 for n, e in enumerate((seen[-1], old, seen[-1], old), 1)]
        lies.append((f"values of {key} that come back", history + again))
        break
    twice = {event["value"] for event in history if event["kind"] == "again"}
    seen = next(history[i] for i in reversed(gets) if history[i]["value"] not in twice)
    gone = [dict(seen, kind="remove", undoable=False, begin=last + 10, end=last + 20),
            dict(seen, begin=last + 30, end=last + 40)]
    lies.append(("a value that was removed", history + gone))
    return lies


def run(context, faults, dram="64MiB", node_flags=(), **settings):
    """The clients work for SECONDS at least, and until all faults are over."""
    dice = random.Random(SEED)
    cluster = Cluster(context, dram, *node_flags)
    clients = [Client(context, n, cluster.address, SEED * 100 + n, **settings) for n in range(CLIENTS)]
    for client in clients:
        client.wait_ready()
    until = time.monotonic() + SECONDS
    pause(0.5)
    for fault in faults:
        fault(cluster, clients, dice)
        pause(0.7)
    pause(max(0.0, until - time.monotonic()))
    for client in clients:
        if client.popen.returncode is None:
            client.finish()
    records = judge(clients, cluster.deaths)
    eventually(cluster.recount, text="yolk stat --recount agrees")
    return records


@test("history.calm")
def calm(context):
    records = run(context, [])
    failed = [op for op in records if op.get("ok") is False and op["answer"] not in
              ("YOLK_ERR_NOT_FOUND", "YOLK_ERR_NOT_READY", "YOLK_ERR_NO_SPACE", "YOLK_ERR_HAS_LEASE")]
    check_equal(failed[:1], [], f"{len(failed)} failures where nothing happened")


@test("history.nodes_and_clients_die")
def nodes_die(context):
    def new_client(cluster, clients, dice):
        clients[0].kill()
        client = Client(context, len(clients), cluster.address, SEED * 100 + 50 + len(clients))
        client.wait_ready()
        clients.append(client)

    def node(cluster, _clients, dice):
        cluster.kill_node(dice)
    run(context, [node, new_client, node])


@test("history.master_dies")
def master_dies(context):
    def master(cluster, _clients, dice):
        cluster.kill_master(dice)
    run(context, [master, master])


@test("history.somebody_stands_still")
def stands_still(context):
    def client(_cluster, clients, _dice):
        stand_still(clients[1], 2.5)

    def node(cluster, _clients, dice):
        stand_still(cluster.nodes[dice.randrange(2)], 1.0)
    # With so little memory that space is taken anew all the time.
    run(context, [client, node], dram="1MiB", node_flags=("--transport", "tcp"), transport="tcp", keys=96)


if __name__ == "__main__":
    sys.exit(main())
