#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public failure cases of class C (calls, batches, sizes) at the Python module. YOLK_CASES_FULL=1: at full size."""

import os
import random
import signal
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, check_in, eventually, main, test
from python_kit import MIB, Counter, Memory, available_bytes, maps_count, module, open_store, pattern, resident_bytes

FULL = os.environ.get("YOLK_CASES_FULL") == "1"


def putters(store, config=None):
    """Each way to put one value: {name: function(key, value) -> code}."""
    kept = []  # memory stays until the store is gone

    def lay(value):
        memory = Memory(len(value))
        memory.fill(value)
        kept.append(memory)
        return memory.address

    def halves(value):
        at, half = lay(value), len(value) // 2
        return [at, at + half], [half, len(value) - half]

    def multi(key, value):
        pointers, sizes = halves(value)
        return store.batch_put_from_multi_buffers([key], [pointers], [sizes], config)[0]

    return {
        "put": lambda key, value: store.put(key, value, config),
        "put_parts": lambda key, value: store.put_parts(key, value[:7], value[7:], config=config),
        "put_batch": lambda key, value: store.put_batch([key], [value], config),
        "put_from": lambda key, value: store.put_from(key, lay(value), len(value), config),
        "batch_put_from": lambda key, value: store.batch_put_from([key], [lay(value)], [len(value)], config)[0],
        "batch_put_from_multi_buffers": multi,
        **upserters(store, config, lay),
    }


def upserters(store, config, lay):
    if not hasattr(store, "upsert"):
        return {}
    return {
        "upsert": lambda key, value: store.upsert(key, value, config),
        "upsert_parts": lambda key, value: store.upsert_parts(key, value[:7], value[7:], config=config),
        "upsert_batch": lambda key, value: store.upsert_batch([key], [value], config),
        "upsert_from": lambda key, value: store.upsert_from(key, lay(value), len(value), config),
        "batch_upsert_from": lambda key, value: store.batch_upsert_from([key], [lay(value)], [len(value)], config)[0],
    }


@test("c26 empty values, alone and among others, in every way to put")
def empty_values(context):
    m = module()
    _, address = context.master()
    store, other = open_store(address), open_store(address, 0)
    for name, put in putters(store).items():
        check_equal(put(name, b""), 0, name + ": " + m.last_error())
        for reader in (store, other):
            memory = Memory(8)
            memory.fill(b"\x5a" * 8)
            check_equal((reader.is_exist(name), reader.get_size(name), reader.get(name)), (1, 0, b""), name)
            check_equal((reader.get_into(name, memory.address, 8), reader.get_into(name, 0, 0)), (0, 0), name)
            check_equal(reader.batch_get_into_multi_buffers([name], [[]], [[]]), [0], name)
            check_equal(memory.bytes(), b"\x5a" * 8, name + " writes")
            handle = reader.get_buffer(name)
            check_equal((handle.size(), bytes(memoryview(handle))), (0, b""), name)
            check_equal(reader.batch_get_replica_desc([name, "none"]), {name: []}, "nothing of it lies anywhere")
    # Among others: they are as if it were not there.
    memory = Memory(200)
    memory.fill(pattern(1, 200))
    at = memory.address
    check_equal(store.batch_put_from(["a", "e", "b"], [at, at, at + 100], [100, 0, 100]), [0, 0, 0])
    check_equal(other.get_batch(["a", "e", "b"]), [pattern(1, 200)[:100], b"", pattern(1, 200)[100:]])
    check_equal(other.batch_is_exist(["a", "e", "b", "none"]), [1, 1, 1, 0])
    check_equal((store.remove("e", True), store.is_exist("e"), store.get_size("e")), (0, 0, -704))
    check_equal((other.close(), store.close()), (0, 0))


@test("c27 a get answers how many bytes, 0 for an empty value only, and nothing past the end of a buffer")
def get_contract(context):
    m = module()
    _, address = context.master()
    store, other = open_store(address), open_store(address, 0, protocol="tcp")
    for size in (0, 1, 4095, 4096, 4097, MIB + 1):
        key, value = "k%d" % size, pattern(size, size)
        check_equal(store.put(key, value), 0)
        for reader in (store, other):
            for room in sorted({0, 1, max(size - 1, 0), size, size + 4096}):
                memory = Memory(room)
                memory.fill(b"\xa5" * room)
                whole = room >= size
                wanted = size if whole else m.ERROR_CODES["YOLK_ERR_BUFFER_SMALL"]
                left = value + b"\xa5" * (room - size) if whole else b"\xa5" * room
                for name, call in (
                    ("get_into", lambda: reader.get_into(key, memory.address, room)),
                    ("batch_get_into", lambda: reader.batch_get_into([key], [memory.address], [room])[0]),
                    ("batch_get_into_multi_buffers", lambda: reader.batch_get_into_multi_buffers(
                        [key], [[memory.address, memory.address + room // 2]], [[room // 2, room - room // 2]])[0]),
                ):
                    check_equal(call(), wanted, "%s of %d bytes into %d: %s" % (name, size, room, m.last_error()))
                    check(memory.bytes() == left, "%s of %d bytes into %d: other bytes" % (name, size, room))
        check_equal(store.get_into("absent", 0, 0), -704)
    check_equal((other.close(), store.close()), (0, 0))


@test("c28 of 100 keys of a batch the five bad ones fail, each with its own code")
def partial_batch(context):
    m = module()
    _, address = context.master()
    store = open_store(address)
    size = 3000
    keys = ["key%d" % i for i in range(100)]
    check_equal(store.put_batch(keys, [pattern(i, size) for i in range(100)]), 0)
    absent, small, null = (7, 50, 99), 13, 61
    check_equal(store.batch_remove([keys[i] for i in absent], True), [0, 0, 0])
    memory = Memory(100 * size)
    pointers, sizes = [memory.address + i * size for i in range(100)], [size] * 100
    sizes[small] -= 1
    pointers[null] = 0
    wanted = [size] * 100
    for i in absent:
        wanted[i] = m.ERROR_CODES["YOLK_ERR_NOT_FOUND"]
    wanted[small], wanted[null] = m.ERROR_CODES["YOLK_ERR_BUFFER_SMALL"], m.ERROR_CODES["YOLK_ERR_INVALID"]

    def run(name, call):
        memory.fill(b"\x5a" * memory.size)
        check_equal(call(), wanted, name)
        check_in("5 of 100 keys failed", m.last_error(), name)
        for i in range(100):
            content = pattern(i, size) if wanted[i] == size else b"\x5a" * size
            check(memory.bytes(i * size, size) == content, "%s: the bytes of key %d" % (name, i))

    run("batch_get_into", lambda: store.batch_get_into(keys, pointers, sizes))
    run("batch_get_into_multi_buffers",
        lambda: store.batch_get_into_multi_buffers(keys, [[p] for p in pointers], [[s] for s in sizes]))
    check_equal(store.close(), 0)


class Proxy(threading.Thread):
    """Between clients and a master; ends a connection in place of passing a message of one of `kinds` on."""

    def __init__(self, master, kinds=()):
        super().__init__(daemon=True)
        host, port = master.rsplit(":", 1)
        self.master, self.kinds, self.cut = (host, int(port)), set(kinds), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.master)
            threading.Thread(target=self.up, args=(client, server), daemon=True).start()
            threading.Thread(target=self.down, args=(client, server), daemon=True).start()

    def up(self, client, server):
        try:
            while True:
                head = self.read(client, 16)
                kind, size = struct.unpack("<HI", head[2:8])
                body = self.read(client, size)
                if kind in self.kinds:
                    self.cut += 1
                    break
                server.sendall(head + body)
        except OSError:
            pass
        self.end(client, server)

    def down(self, client, server):
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass
        self.end(client, server)

    @staticmethod
    def read(client, size):
        data = b""
        while len(data) < size:
            part = client.recv(size - len(data))
            if not part:
                raise OSError("closed")
            data += part
        return data

    @staticmethod
    def end(*sockets):
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


PUT_END = 46  # docs/wire.md


@test("c29 a put that did not come to be is never told as done, whatever failed")
def failed_puts(context):
    m = module()

    value = pattern(1, 9 * MIB)

    def run(name, store, wanted=None):
        for way, put in putters(store).items():
            key = "%s %s" % (name, way)
            code = put(key, value)
            check(code < 0 and (wanted is None or code == wanted), "%s: %d: %s" % (key, code, m.last_error()))
            check(m.last_error() != "", key)
            yield key

    def absent(keys):
        for key in keys:
            eventually(lambda: witness.is_exist(key) == 0, text=key + " is not there")
            check_equal((witness.get(key), witness.get_size(key)), (b"", -704), key)

    # No space: what fills it is being read.
    _, address = context.master()
    witness = store = open_store(address, 16 * MIB, put_wait_ms=20)
    check_equal(store.put("large", bytes(9 * MIB)), 0, m.last_error())
    held = store.get_buffer("large")
    absent(list(run("no space", store, -200)))
    held = None
    check_equal(store.close(), 0)

    master, address = context.master("--put-timeout", "2s")
    node = context.node(address, "--transport", "tcp", dram="16MiB")
    witness = open_store(address, 0)
    # The end of the put does not come through.
    proxy = Proxy(address, {PUT_END})
    cut = open_store(proxy.address, 0, timeout_ms=400, put_wait_ms=50)
    keys = list(run("no end", cut))
    check(proxy.cut >= len(keys), "%d of %d ends were cut" % (proxy.cut, len(keys)))
    absent(keys)
    proxy.kinds = set()
    eventually(lambda: cut.put("after", b"1") == 0, text="a put once messages pass")
    check_equal((cut.get("after"), cut.close()), (b"1", 0))

    # Bytes do not get to the node, which stands still.
    stuck = open_store(address, 0, timeout_ms=400, put_wait_ms=50)
    node.signal(signal.SIGSTOP)
    keys = list(run("no transfer", stuck))
    node.signal(signal.SIGCONT)
    absent(keys)
    eventually(lambda: stuck.put("again", b"1") == 0, text="a put when the node goes on")

    # The segment goes.
    node.kill()
    absent(list(run("no segment", stuck)))
    check_equal((stuck.close(), witness.close()), (0, 0))
    check(master.alive(), "the master is gone")


@test("c32 16 threads put parts of 32 MiB with a local buffer of 64 MiB")
def large_parts(context):
    m = module()
    threads, rounds, size = 16, 4 if FULL else 2, 32 * MIB
    segment = 768 * MIB
    if available_bytes() < 3 * segment:
        raise Skip("it takes %d MiB of memory" % (3 * segment // MIB))
    _, address = context.master()
    store = open_store(address, segment, local_buffer_size=64 * MIB, put_wait_ms=30000)
    head, value = b"\x01" * 28, memoryview(pattern(5, size))
    failures = []

    def work(number):
        for i in range(rounds):
            key = "chunk%d.%d" % (number, i)
            code = store.put_parts(key, head, value)
            if code != 0:
                failures.append((key, code, m.last_error()))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check_equal(failures, [])
    check_equal(store.put_parts("last", head, value), 0, m.last_error())
    found = store.get_buffer("last")
    check(bytes(memoryview(found)) == head + bytes(value), "another value")
    found = None
    check_equal(store.close(), 0)


@test("c33 20000 times register, get, unregister leave nothing behind")
def register_cycles(context):
    m = module()
    _, address = context.master()
    owner = open_store(address)
    check_equal(owner.put("k", pattern(3, 4096)), 0)
    for name, store in clients(context, owner, address):
        memory = Memory(64 * 4096)

        def cycle(i):
            at = memory.address + i % 64 * 4096
            codes = (store.register_buffer(at, 4096), store.get_into("k", at, 4096), store.unregister_buffer(at))
            check_equal(codes, (0, 4096, 0), "%s, cycle %d: %s" % (name, i, m.last_error()))

        for i in range(1000):
            cycle(i)
        before = maps_count(), len(os.listdir("/proc/self/fd")), resident_bytes()
        for i in range(20000):
            cycle(i)
        after = maps_count(), len(os.listdir("/proc/self/fd")), resident_bytes()
        check(after[0] <= before[0] + 8 and after[1] <= before[1] + 2, "%s: maps and files from %s to %s" % (name, before, after))
        check(after[2] <= before[2] + 8 * MIB, "%s: from %d to %d bytes resident" % (name, before[2], after[2]))
        check_equal(memory.bytes(0, 4096), pattern(3, 4096))
        check_equal(store.close(), 0)
    check_equal(owner.close(), 0)


def clients(context, owner, address):
    """A client of each kind."""
    yield "a client", open_store(address, 0)
    node = context.node(address, "--clients-listen", "127.0.0.1:0", dram="1MiB")
    store = module().MooncakeDistributedStore()
    port = node.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    check_equal(store.setup_dummy(MIB, MIB, "127.0.0.1:" + port), 0, module().last_error())
    yield "a client that joined through another", store


@test("c34 other threads run while memory is made, registered, filled, read, removed and closed")
def interpreter_lock(context):
    m = module()
    size = (8 << 30) if FULL else (1 << 30)
    if available_bytes() < 2 * size + (1 << 30):
        raise Skip("it takes %d MiB of memory" % (2 * size // MIB + 1024))
    _, address = context.master()
    store = m.MooncakeDistributedStore()
    half = size // 4
    memory = Memory(half)
    keys = ["part%d" % i for i in range(16)]
    step = half // 16
    pointers, sizes = [memory.address + i * step for i in range(16)], [step] * 16
    calls = (
        ("setup", lambda: store.setup("localhost", "P2PHANDSHAKE", size, MIB, "tcp", "", address), None, 0),
        ("register_buffer", lambda: store.register_buffer(memory.address, half), lambda: store.unregister_buffer(memory.address), 0),
        ("batch_put_from", lambda: sum(store.batch_put_from(keys, pointers, sizes)), lambda: store.remove_all(True), 0),
        ("batch_get_into", lambda: sum(store.batch_get_into(keys, pointers, sizes)), lambda: 0, half),
        ("get", lambda: len(store.get(keys[0])), lambda: 0, step),
        ("put", lambda: store.put("bytes", memoryview(bytes(step))), lambda: store.remove("bytes", True), 0),
        ("get_buffer", lambda: store.get_buffer(keys[0]).size(), lambda: 0, step),
        ("unregister_buffer", lambda: store.unregister_buffer(memory.address),
         lambda: store.register_buffer(memory.address, half), 0),
        ("remove_all", lambda: store.remove_all(True), lambda: store.put_batch(keys + ["bytes"], [b"1"] * 17), 17),
        ("close", store.close, None, 0),
    )
    counter = Counter()
    counter.start()
    try:
        for name, call, undo, wanted in calls:
            results = []

            def timed():
                if results and undo is not None:
                    undo()
                results.append(call())

            tries, took = counter.shares(timed, tries=1 if undo is None else 6)
            check_equal(results, [wanted] * len(results), name + ": " + m.last_error())
            # A call that is over before the lock could have been handed over says nothing.
            check(max(tries) >= 0.8 or took < 0.01, "%s, %.3f s: a counter ran at %s of its rate" % (name, took, tries))
    finally:
        counter.stop = True


@test("c37 of ten chunks one cannot be registered: it says so, and the others are of use")
def chunked_registration(context):
    m = module()
    _, address = context.master()
    store = open_store(address)
    size = MIB
    memory = Memory(10 * size)
    chunks = [memory.address + i * size for i in range(10)]
    # What is in the way of the sixth is a registration over a part of it and of more.
    check_equal(store.register_buffer(chunks[5] + size // 2, size // 4), 0)
    codes = [store.register_buffer(chunk, size) for chunk in chunks]
    check_equal(codes, [0] * 5 + [m.ERROR_CODES["YOLK_ERR_OVERLAP"]] + [0] * 4)
    check_in("cuts or contains the registered range", m.last_error())
    keys = ["chunk%d" % i for i in range(10)]
    memory.fill(pattern(1, 10 * size))
    # Memory that is not registered is registered for the call: the sixth is of use too, if not in the fastest way.
    check_equal(store.batch_put_from(keys, chunks, [size] * 10), [0] * 10, m.last_error())
    memory.fill(bytes(10 * size))
    check_equal(store.batch_get_into(keys, chunks, [size] * 10), [size] * 10, m.last_error())
    check(memory.bytes() == pattern(1, 10 * size), "other bytes")
    check_equal([store.unregister_buffer(chunk) for chunk in chunks], codes)
    check_in("no buffer registered", m.last_error())
    check_equal(store.unregister_buffer(chunks[5] + size // 2), 0)
    check_equal(store.close(), 0)


@test("parts of values go to places in several buffers")
def ranges(context):
    m = module()
    _, address = context.master()
    store, other = open_store(address), open_store(address, 0)
    values = {"k%d" % i: pattern(i, 10000 + i) for i in range(4)}
    check_equal(store.put_batch(list(values), list(values.values())), 0)
    rng = random.Random(1)
    for reader in (store, other):
        memories = [Memory(5000), Memory(7000)]
        for memory in memories:
            memory.fill(bytes(memory.size))
        model = [bytearray(memory.size) for memory in memories]
        keys, to, come, sizes = [[], []], [[], []], [[], []], [[], []]
        for b in range(2):
            for key in rng.sample(list(values), 3):
                rows = [[], [], []]
                for _ in range(5):
                    size = rng.randrange(0, 300)
                    at, start = rng.randrange(0, memories[b].size - size), rng.randrange(0, len(values[key]) - size)
                    model[b][at : at + size] = values[key][start : start + size]
                    for row, number in zip(rows, (at, start, size)):
                        row.append(number)
                keys[b].append(key)
                for of, row in zip((to, come, sizes), rows):
                    of[b].append(row)
        got = reader.get_into_ranges([memory.address for memory in memories], keys, to, come, sizes)
        check_equal(got, sizes, m.last_error())
        check_equal([memory.bytes() for memory in memories], [bytes(b) for b in model])
    # Ten thousand in one call, whose sources overlap; and those that come to the same bytes: the last ones stay.
    memory, value, count, width = Memory(10000 * 16), values["k3"], 10000, 16
    for reader in (store, other):
        memory.fill(bytes(memory.size))
        places, starts = list(range(0, memory.size, width)), [rng.randrange(0, len(value) - width) for _ in range(count)]
        rng.shuffle(places)
        got = reader.get_into_ranges([memory.address], [["k3"]], [[places]], [[starts]], [[[width] * count]])
        check_equal(got, [[[width] * count]], m.last_error())
        model = bytearray(memory.size)
        for place, start in zip(places, starts):
            model[place : place + width] = value[start : start + width]
        check(memory.bytes() == model, "other bytes")
        got = reader.get_into_ranges([memory.address], [["k0", "k1"]], [[[0, 5], [8]]], [[[0, 100], [7]]], [[[10, 10], [4]]])
        check_equal(got, [[[10, 10], [4]]])
        check_equal(memory.bytes()[:15], values["k0"][:5] + values["k0"][100:103] + values["k1"][7:11] + values["k0"][107:110])
    memory = Memory(10)
    at = memory.address
    # Of no bytes: at the end of the value, past it; of a key that is not there; beside one that is wanted.
    got = other.get_into_ranges([at], [["k0", "none"]], [[[0, 0, 0], [0]]], [[[10000, 10001, 3], [0]]], [[[0, 0, 2], [0]]])
    check_equal(got, [[[0, -600, 2], [-704]]])
    check_equal(other.get_into_ranges([at], [["k0"], []][:1], [[[]]], [[[]]], [[[]]]), [[[]]])
    # The end of the value, one past it, far past it, a key that is not there.
    got = store.get_into_ranges([at], [["k0", "none"]], [[[0, 0, 0], [0]]], [[[9990, 9991, 1 << 63], [0]]], [[[10, 10, 1], [1]]])
    check_equal(got, [[[10, -600, -600], [-704]]])  # and nothing of those was written
    check_equal(memory.bytes(), values["k0"][9990:])
    check_equal(store.get_into_ranges([0], [["k0"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]])
    check_equal(store.get_into_ranges([at], [["k0"]], [[[0]]], [[[0, 1]]], [[[1]]]), [[[-600]]])
    check_in("differ in their lengths", m.last_error())
    check_equal(store.get_into_ranges([], [], [], [], []), [])
    check_equal((other.close(), store.close()), (0, 0))
    check_equal(store.get_into_ranges([at], [["k0"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]])
    check_in("not set up", m.last_error())


@test("keys are removed by a pattern")
def by_pattern(context):
    m = module()
    _, address = context.master()
    store = open_store(address)
    keys = ["a/%d" % i for i in range(300)] + ["b/1", "b/2", "ünï"]
    check_equal(store.put_batch(keys, [b"1"] * len(keys)), 0)
    check_equal(store.remove_by_regex("^a/[0-9]$"), 10)
    check_equal((store.is_exist("a/9"), store.is_exist("a/10")), (0, 1))
    # What is leased stays, and goes by force.
    check_equal(store.is_exist("b/1"), 1)
    check_equal((store.remove_by_regex("b/"), store.batch_is_exist(["b/1", "b/2"])), (1, [1, 0]))
    check_equal((store.remove_by_regex("b/", True), store.remove_by_regex("b/", force=True)), (1, 0))
    check_equal(store.remove_by_regex("ï$"), 1)
    check_equal(store.remove_by_regex("("), -600)
    check_in("regex_pattern '('", m.last_error())
    check_equal((store.close(), store.remove_by_regex("a")), (0, -600))


if __name__ == "__main__":
    sys.exit(main())
