# SPDX-License-Identifier: Apache-2.0
"""Decides whether what several clients saw of one key can have been one register that forgets.

An operation is a dict with `kind`, `begin` and `end` (nanoseconds of one clock; end None: no answer, so it may take
effect late or never) and, by kind:
    put     value, ok: an answered put may have found the key taken, or its value may have been evicted since: whether
            it took effect is never certain, only that it did at most once, between begin and end
    again   value: a put whose answer a master's death may have taken is made a second time if the key is free then;
            whether that took effect is not certain either
    upsert  value; answered, it took effect between begin and end, whatever was there before
    get     value it returned (misses say nothing and are not told)
    exist   it said yes (a no says nothing)
    remove  ok (all copies are gone at one moment between begin and end); without an answer it may be
    undo    a master died: what removes of the last moments before it took away may be back (ARCHITECTURE.md, «Master
            restart»); those removes have `undoable`
A value may vanish at any moment, but it comes back only by `undo`. Values are unique, so what was removed or
replaced, another key's, or never put, is seen. The search is Wing and Gong's with the memory of Lowe."""

LATE_NS = 15 * 10**9  # so long after its begin an unanswered operation may take effect
WRITES = ("put", "again", "upsert")


class Wrong(Exception):
    """The history cannot be explained; the text says what is the matter."""


def normal(history):
    """What was seen and what may have been done, in the order of time; `must`: it certainly took effect."""
    ops = []
    for op in history:
        op = dict(op)
        op["must"] = op["end"] is not None and op["kind"] not in ("put", "again", "undo")
        if op["kind"] in ("get", "exist") and op["end"] is None:
            continue  # nothing was seen
        op["answered"] = op["end"] is not None
        if op["end"] is None:
            op["end"] = op["begin"] + LATE_NS
        ops.append(op)
    return sorted(ops, key=lambda op: (op["begin"], op["end"]))


def _pruned(ops):
    """Leaves out what no explanation needs, so that the search stays short: a value that was read was put; one that
    was not is like all others of the kind; an unanswered remove need not have been; nor an undo of nothing."""
    read = {op["value"] for op in ops if op["kind"] == "get"}
    undoable = any(op.get("undoable") for op in ops)
    loose = [op for op in ops if op["kind"] in WRITES and op["value"] not in read and not op["answered"]]
    kept = []
    for op in ops:
        kind = op["kind"]
        if kind in WRITES and op["value"] in read:
            op["must"] |= kind != "again"
        elif kind in WRITES:
            op["value"] = "unread"
        if kind == "remove" and not op["answered"] or kind == "undo" and not undoable:
            continue
        # Answered by any of the unanswered puts around it, if need be.
        if kind == "exist" and any(put["begin"] <= op["end"] and op["begin"] <= put["end"] for put in loose):
            continue
        if any(op is put for put in loose):
            continue
        kept.append(op)
    return kept


def _effects(op, value):
    """The values after op took effect; none: it cannot here."""
    kind = op["kind"]
    if kind in WRITES:
        return [op["value"]]
    if kind == "get":
        return [value] if value == op["value"] else []
    if kind == "exist":
        return [value] if value is not None else []
    return [None] if kind == "remove" else op["values"]


def _tell_what_may_be_back(ops, undos):
    """Any value that an undoable remove may have taken, and that somebody reads afterwards, and one of the others, which
    may only exist: which ones they were exactly would have to be known for each order, and is not worth the search."""
    removes = [op["end"] for op in ops if op.get("undoable")]
    begun = {}
    for op in ops:
        if op["kind"] in WRITES:
            begun.setdefault(op["value"], op["begin"])
    for undo in undos:
        read = {op["value"] for op in ops if op["kind"] == "get" and op["end"] >= undo["begin"]}
        taken = [value for value in sorted(begun) if any(begun[value] <= end for end in removes)]
        undo["values"] = [value for value in taken if value in read] + [v for v in taken if v not in read][:1]


def check_known(ops):
    put = {}
    for op in ops:  # in the order of their begin
        if op["kind"] in WRITES:
            put.setdefault(op["value"], op)
    for op in ops:
        if op["kind"] != "get":
            continue
        if op["value"] not in put:
            raise Wrong(f"a get returned {op['value']!r}, which nobody put or whose put had failed: {op}")
        if op["end"] < put[op["value"]]["begin"]:
            raise Wrong(f"a get returned {op['value']!r} before it was put: {op}")


def _settle(ops, done, low, latest, state):
    """Takes all that only looks and sees what is there: to put it off is never better."""
    while True:
        while low < len(ops) and done >> low & 1:
            low += 1
        moved = [i for i in _next(ops, done, low)[0] if ops[i]["kind"] in ("get", "exist") and _effects(ops[i], state)]
        if not moved:
            return done, low, latest
        for i in moved:
            done |= 1 << i
            latest = max(latest, ops[i]["begin"])


def _next(ops, done, low):
    """The operations that may come next: those that began before any other one had ended; and when that is."""
    limit = None
    found = []
    for i in range(low, len(ops)):
        op = ops[i]
        if limit is not None and op["begin"] > limit:
            break
        if done >> i & 1:
            continue
        found.append(i)
        limit = op["end"] if limit is None else min(limit, op["end"])
    return [i for i in found if ops[i]["begin"] <= limit], limit


def check_key(history, steps_max=2_000_000):
    """Returns the number of steps; raises Wrong."""
    ops = normal(history)
    check_known(ops)
    ops = _pruned(ops)
    # An undo lasts for seconds; apart from the others it does not make the search wide.
    undos = [op for op in ops if op["kind"] == "undo"]
    ops = [op for op in ops if op["kind"] != "undo"]
    _tell_what_may_be_back(ops, undos)
    every = (1 << len(ops)) - 1
    seen = set()
    stack = [(0, 0, 0, None, 0)]
    furthest, steps = 0, 0
    while stack:
        done, low, latest, state, undone = stack.pop()
        done, low, latest = _settle(ops, done, low, latest, state)
        if done == every:
            return steps
        if (done, state, undone) in seen:
            continue
        seen.add((done, state, undone))
        furthest = max(furthest, low)
        steps += 1
        if steps > steps_max:
            raise Wrong(f"no answer after {steps_max} steps: too many operations at once")
        following, limit = _next(ops, done, low)
        for i in following:
            op = ops[i]
            after, later = done | 1 << i, max(latest, op["begin"])
            if not op["must"]:
                stack.append((after, low, latest, state, undone))  # it never took effect
            if op["kind"] not in ("get", "exist"):
                stack.extend((after, low, later, new, undone) for new in _effects(op, state))
        for i, undo in enumerate(undos):
            if not undone >> i & 1 and undo["begin"] <= limit and latest <= undo["end"]:
                stack.extend((done, low, max(latest, undo["begin"]), new, undone | 1 << i)
                             for new in _effects(undo, state))
    around = [op for op in ops[max(0, furthest - 6):furthest + 3]]
    raise Wrong("no order of the operations explains what was seen; it ends near\n"
                + "\n".join(f"    {op}" for op in around))


def check(history):
    """history: operations with `key`. Returns how many operations were judged."""
    keys = {}
    for op in history:
        keys.setdefault(op["key"], []).append(op)
    for key, ops in sorted(keys.items()):
        try:
            check_key(ops)
        except Wrong as wrong:
            raise Wrong(f"key {key}: {wrong}") from None
    return len(history)
