#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module mooncake.engine: the call patterns of those who transfer without a store, with their sizes and
numbers of threads."""

import ast
import concurrent.futures
import contextlib
import ctypes
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Failure, check, check_equal, check_in, eventually, free_port, main, test
from python_kit import MIB, Counter, Memory, folder, module, pattern
from services import etcd, redis

# A peer in a process of its own: prints its address and that of its memory, then answers lines.
PEER = r"""
import ctypes, mmap, sys
sys.path.insert(0, sys.argv[1])
from mooncake.engine import TransferEngine
size, port = int(sys.argv[2]), sys.argv[3]
engine = TransferEngine()
memory = mmap.mmap(-1, size)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
memory[:] = bytes(sys.argv[4].encode()) * size
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
assert engine.register_memory(address, size) == 0
print(engine.get_rpc_port(), address, flush=True)
for line in sys.stdin:
    word, *args = line.split()
    if word == "read":
        at, n = map(int, args)
        print(memory[at:at + n].hex(), flush=True)
    elif word == "notifies":
        print([(n.name, n.msg) for n in engine.get_notifies()], flush=True)
"""


def engine_module():
    module()
    import mooncake.engine
    return mooncake.engine


def make_engine(size=0):
    """An engine of this process with registered memory of `size` bytes."""
    engine = engine_module().TransferEngine()
    check_equal(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0, "initialize")
    check(15000 <= engine.get_rpc_port() <= 17000, f"port {engine.get_rpc_port()}")
    memory = Memory(size) if size else None
    if memory:
        check_equal(engine.register_memory(memory.address, size), 0, "register_memory")
    return engine, memory


class Peer:
    def __init__(self, context, size, fill="x"):
        self.popen = subprocess.Popen([sys.executable, "-c", PEER, folder(), str(size), "0", fill], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.args = ["peer"]
        context.processes.append(self)
        line = self.popen.stdout.readline().split()
        if len(line) != 2:
            raise Failure("the peer did not start")
        self.name = "127.0.0.1:" + line[0]
        self.address = int(line[1])

    def ask(self, line):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        return self.popen.stdout.readline().strip()

    def output(self):
        return ""

    def kill(self):
        if self.popen.poll() is None:
            os.kill(self.popen.pid, signal.SIGCONT)
            self.popen.kill()
        self.popen.wait()


@test("names, signatures and words that programs look for")
def names(context):
    m = engine_module()
    e = m.TransferEngine
    wanted = {
        "initialize": "(self, local_hostname, metadata_server, protocol, device_name)",
        "register_memory": "(self, buffer_addr, capacity, location='*')",
        "batch_register_memory": "(self, buffer_addresses, capacities, location='*')",
        "transfer_sync_write": "(self, target_hostname, buffer, peer_buffer_address, length, transport_hint='')",
        "batch_transfer_sync_read":
            "(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint='')",
        "transfer_sync": "(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, "
                         "transport_hint='')",
    }
    for name, signature in wanted.items():
        check_equal(str(inspect.signature(getattr(e, name))), signature, name)
    for name in ("get_rpc_port", "get_engine", "send_probe", "get_notifies", "get_batch_transfer_status",
                 "transfer_submit_write", "transfer_check_status", "allocate_managed_buffer", "free_managed_buffer",
                 "get_first_buffer_address", "write_bytes_to_buffer", "read_bytes_from_buffer",
                 "get_local_topology", "unregister_memory", "batch_unregister_memory", "batch_transfer_async_write"):
        check(callable(getattr(e, name, None)), name)
    check_equal((int(m.TransferOpcode.Read), int(m.TransferOpcode.Write)), (0, 1))
    topology = json.loads(e().get_local_topology())
    check_in("cpu:0", topology)
    check(all(len(ranks) == 2 for ranks in topology.values()), "%s" % topology)
    check_equal(json.loads(e().get_local_topology("no_such_device")), {place: [[], []] for place in topology})


@test("the stubs say what there is")
def stubs(context):
    m = engine_module()
    with open(os.path.join(folder(), "mooncake", "engine.pyi"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    stub = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TransferEngine")
    told = {node.name: [a.arg for a in node.args.posonlyargs + node.args.args] for node in stub.body}
    there = {name for name in dir(m.TransferEngine) if not name.startswith("_")}
    check_equal(set(told) - {"__init__"}, there)
    for name in there - {"get_rpc_port", "has_transport", "get_engine_ptr"}:
        check_equal(told[name], list(inspect.signature(getattr(m.TransferEngine, name)).parameters), name)


@test("an engine that is not there answers")
def not_there(context):
    m = engine_module()
    engine = m.TransferEngine()
    check_equal(engine.get_rpc_port(), 0)
    check(engine.register_memory(4096, 4096) < 0)
    check_in("initialize()", m.last_error())
    check(engine.transfer_sync_write("127.0.0.1:1", 4096, 4096, 1) < 0)
    check(engine.initialize("127.0.0.1", "gopher://x", "tcp", "") != 0)
    check_in("gopher://x", m.last_error())
    check_equal(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0)
    check(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0, "twice")
    start = time.monotonic()
    check(engine.transfer_sync_write("127.0.0.1:1", 4096, 4096, 1) < 0)
    check(time.monotonic() - start < 5, "a closed port is told at once")
    check_in("127.0.0.1:1", m.last_error())
    for call in (lambda: engine.register_memory("x", 1), lambda: engine.transfer_sync_write(1, 2, 3, 4),
                 lambda: engine.batch_transfer_sync_write("", 5, [1], [1])):
        try:
            call()
        except TypeError:
            continue
        raise Failure("no TypeError")
    try:
        engine.transfer_sync_write("127.0.0.1:1", 1, 2, 3, transport_hint="warp")
        raise Failure("no ValueError")
    except ValueError as error:
        check_in("warp", str(error))


@test("vllm: ten threads write thousands of blocks through one engine")
def vllm(context):
    peer = Peer(context, 64 * MIB, "0")
    engine, memory = make_engine(64 * MIB)
    memory.fill(pattern(1, 64 * MIB))
    block, count = 8192, 800

    def write(thread):
        base = thread * block * count
        order = [(i * 7) % count for i in range(count)]
        return engine.batch_transfer_sync_write(
            peer.name, [memory.address + base + i * block for i in order],
            [peer.address + base + i * block for i in order], [block] * count)

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        check_equal(list(pool.map(write, range(10))), [0] * 10)
    for at in (0, 5 * block * count + 17 * block, 10 * block * count - 64):
        check_equal(bytes.fromhex(peer.ask(f"read {at} 64")), memory.bytes(at, 64), f"at {at}")
    check_equal(peer.ask(f"read {10 * block * count} 64"), b"0".hex() * 64, "behind what was written")


@test("sglang: 100000 descriptors of one token slot in a call, and a peer that dies")
def sglang(context):
    size, piece = 64 * MIB, 512
    peer = Peer(context, size, "0")
    engine, memory = make_engine(size)
    memory.fill(pattern(2, size))
    count = 100_000
    slots = [(i * 3) % (size // piece) for i in range(count)]
    check_equal(engine.batch_transfer_sync_write(
        peer.name, [memory.address + s * piece for s in slots], [peer.address + s * piece for s in slots],
        [piece] * count), 0)
    for s in (slots[0], slots[777], slots[-1]):
        check_equal(bytes.fromhex(peer.ask(f"read {s * piece} {piece}")), memory.bytes(s * piece, piece))
    check_equal(engine.send_probe(peer.name), 0)
    peer.kill()
    start = time.monotonic()
    code = engine.batch_transfer_sync_write(peer.name, [memory.address], [peer.address], [piece])
    check(code != 0, "a dead peer")
    check(engine.send_probe(peer.name) != 0)
    check(time.monotonic() - start < 20, f"told after {time.monotonic() - start:.1f} s")


@test("a peer that is started again at its port is found, and nothing of its earlier life")
def restarted(context):
    m = engine_module()
    engine, memory = make_engine(MIB)
    first, target = make_engine(MIB)
    port = first.get_rpc_port()
    name = f"127.0.0.1:{port}"
    target.fill(b"1" * MIB)
    check_equal(engine.transfer_sync_read(name, memory.address, target.address, MIB), 0)
    check_equal(memory.bytes(0, 8), b"1" * 8)
    del first
    check(engine.transfer_sync_read(name, memory.address, target.address, MIB) != 0, "gone")
    os.environ["MC_MIN_RPC_PORT"] = os.environ["MC_MAX_RPC_PORT"] = str(port)
    second = m.TransferEngine()
    try:
        eventually(lambda: second.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, text="the same port")
        taken = m.TransferEngine()
        check(taken.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0, "a port that is taken")
        check_in(str(port), m.last_error())
    finally:
        del os.environ["MC_MIN_RPC_PORT"], os.environ["MC_MAX_RPC_PORT"]
    other = Memory(MIB)
    other.fill(b"2" * MIB)
    check_equal(second.register_memory(other.address, MIB), 0)
    eventually(lambda: engine.transfer_sync_read(name, memory.address, other.address, MIB) == 0, text="found again")
    check_equal(memory.bytes(0, 8), b"2" * 8)
    check(engine.transfer_sync_read(name, memory.address, target.address, 16) != 0, "memory of the earlier life")


@test("lmdeploy: one engine for each peer in a process, one call for each block")
def lmdeploy(context):
    engines = [make_engine(MIB) for _ in range(4)]
    peer_engine, peer_memory = make_engine(4 * MIB)
    peer_memory.fill(pattern(3, 4 * MIB))
    name = f"127.0.0.1:{peer_engine.get_rpc_port()}"
    check_equal(len({e.get_rpc_port() for e, _ in engines}), 4)
    for number, (engine, memory) in enumerate(engines):
        for i in range(16):
            check_equal(engine.transfer_sync_read(name, memory.address + i * 65536,
                                                  peer_memory.address + number * MIB + i * 65536, 65536), 0)
        check_equal(memory.bytes(0, MIB), peer_memory.bytes(number * MIB, MIB))


@test("checkpoint engine: registered in batches, read in batches, all or none")
def checkpoint(context):
    engine, _ = make_engine()
    other, _ = make_engine()
    buffers = [Memory(3 * MIB) for _ in range(8)]
    targets = [Memory(3 * MIB) for _ in range(8)]
    sizes = [3 * MIB] * 8
    for i, target in enumerate(targets):
        target.fill(pattern(10 + i, 3 * MIB))
    check_equal(engine.batch_register_memory([b.address for b in buffers], sizes), 0)
    check_equal(other.batch_register_memory([t.address for t in targets], sizes), 0)
    name = f"127.0.0.1:{other.get_rpc_port()}"
    check_equal(engine.get_first_buffer_address(name), min(t.address for t in targets))
    check_equal(engine.batch_transfer_sync_read(name, [b.address for b in buffers], [t.address for t in targets],
                                                sizes), 0)
    for b, t in zip(buffers, targets):
        check_equal(b.bytes(0, 3 * MIB), t.bytes(0, 3 * MIB))
    check_equal(other.batch_unregister_memory([t.address for t in targets]), 0)
    check(other.batch_unregister_memory([targets[0].address]) != 0, "twice")
    check(engine.batch_transfer_sync_read(name, [buffers[0].address], [targets[0].address], [16]) != 0)
    half = Memory(MIB)
    check(engine.batch_register_memory([half.address, buffers[0].address + MIB], [MIB, 4 * MIB]) != 0)
    check(engine.unregister_memory(half.address) != 0, "all or none")
    check(engine.batch_register_memory([1, 2], [3]) != 0, "lengths differ")
    check_in("2 addresses, but 1 capacities", engine_module().last_error(), "why")


@test("transfers that are looked at later, notifications, managed buffers")
def later(context):
    m = engine_module()
    engine, _ = make_engine()
    other, target = make_engine(4 * MIB)
    name = f"127.0.0.1:{other.get_rpc_port()}"
    address = engine.allocate_managed_buffer(4 * MIB)
    check(address != 0)
    data = pattern(5, 4 * MIB)
    check_equal(engine.write_bytes_to_buffer(address, data, len(data)), 0)
    ids = [engine.batch_transfer_async_write(name, [address + i * MIB], [target.address + i * MIB], [MIB])
           for i in range(4)]
    check(all(ids) and len(set(ids)) == 4, ids)
    check_equal(engine.get_batch_transfer_status(ids), 0)
    check_equal(target.bytes(0, 4 * MIB), data)
    check_equal(engine.get_batch_transfer_status(ids), -1, "used up")
    bad = engine.batch_transfer_async_read(name, [address], [64], [MIB])
    check_equal(engine.get_batch_transfer_status([bad]), -1, "an address of nobody")
    number = engine.transfer_submit_write(name, address, target.address, MIB)
    states = set()
    eventually(lambda: states.add(engine.transfer_check_status(number)) or 1 in states, text="complete")
    check_equal(states - {0, 1}, set())
    notify = m.TransferNotify("tag", "grüße")
    check_equal(engine.transfer_sync(name, address, target.address, 64, m.TransferOpcode.Write, notify), 0)
    check_equal([(n.name, n.msg) for n in other.get_notifies()], [("tag", "grüße")])
    check_equal(other.get_notifies(), [])
    check_equal(engine.read_bytes_from_buffer(address, 16), data[:16])
    check_equal(engine.free_managed_buffer(address, 4 * MIB), 0)
    check(engine.free_managed_buffer(address, 4 * MIB) != 0)
    check_equal(engine.allocate_managed_buffer(1 << 60), 0)


@test("other threads run while a call waits, and a call ends in time")
def waits(context):
    os.environ["MC_TRANSFER_TIMEOUT"] = "5"
    try:
        engine, memory = make_engine(16 * MIB)
    finally:
        del os.environ["MC_TRANSFER_TIMEOUT"]
    peer = Peer(context, 16 * MIB)
    check_equal(engine.transfer_sync_read(peer.name, memory.address, peer.address, MIB), 0)
    # Its kernel takes what fits the sockets' buffers; the rest waits.
    os.kill(peer.popen.pid, signal.SIGSTOP)
    counter = Counter()
    counter.start()
    codes = []
    shares, took = counter.shares(
        lambda: codes.append(engine.transfer_sync_read(peer.name, memory.address, peer.address, 16 * MIB)))
    counter.stop = True
    check(all(codes), "a stopped peer")
    check(3 < took < 15, f"took {took:.1f} s")
    check(max(shares) >= 0.8, f"the other thread had {shares} of its rate")
    os.kill(peer.popen.pid, signal.SIGCONT)
    eventually(lambda: engine.transfer_sync_read(peer.name, memory.address, peer.address, 16 * MIB) == 0,
               text="works again")
    check_equal(memory.bytes(0, 16), b"x" * 16)


def through(url, what):
    """Two engines find each other by names that a metadata service keeps."""
    m = engine_module()
    engines = []
    for _ in range(2):
        engine = m.TransferEngine()
        code = engine.initialize("127.0.0.1:" + str(free_port()), url, "tcp", "")
        check_equal(code, 0, f"{what}: {m.last_error()}")
        engines.append(engine)
    first, second = engines
    mine, theirs = Memory(MIB), Memory(MIB)
    theirs.fill(pattern(21, MIB))
    check_equal(first.register_memory(mine.address, MIB), 0)
    check_equal(second.register_memory(theirs.address, MIB), 0)
    name = f"127.0.0.1:{second.get_rpc_port()}"
    check_equal(first.transfer_sync_read(name, mine.address, theirs.address, MIB), 0, what + ": " + m.last_error())
    check_equal(mine.bytes(), theirs.bytes(), what)
    check(first.transfer_sync_read("127.0.0.1:1", mine.address, 0, 1) == -200, what + ": a name of nobody")
    del second, engine, engines
    third = m.TransferEngine()
    check_equal(third.initialize("127.0.0.1:" + str(free_port()), url, "tcp", ""), 0)
    check_equal(third.register_memory(mine.address, MIB), 0)
    check_equal(third.transfer_sync_read(name, mine.address, theirs.address, 1), -200, what + ": the name went with it")


@test("names in the HTTP service of a master")
def names_http(context):
    port = free_port()
    context.master("--metadata-listen", f"127.0.0.1:{port}")
    through(f"http://127.0.0.1:{port}/metadata", "http")
    m = engine_module()
    closed = m.TransferEngine()
    start = time.monotonic()
    check(closed.initialize("127.0.0.1:0", f"http://127.0.0.1:{free_port()}/metadata", "tcp", "") != 0)
    check(time.monotonic() - start < 5)
    check_in("metadata service http://127.0.0.1", m.last_error())


@test("names in etcd")
def names_etcd(context):
    port = etcd(context)
    eventually(lambda: engine_module().TransferEngine().initialize("127.0.0.1:" + str(free_port()),
                                                                   f"etcd://127.0.0.1:{port}", "tcp", "") == 0,
               text="etcd answers")
    through(f"etcd://127.0.0.1:{port}", "etcd")
    through(f"127.0.0.1:{port}", "etcd without its scheme")
    through(f"etcd://127.0.0.1:{free_port()},127.0.0.1:{port}", "etcd with a member that is down")


@test("names in redis, with a password and a database")
def names_redis(context):
    port = redis(context, "geheim")
    through(f"redis://:geheim@127.0.0.1:{port}/3", "redis")
    m = engine_module()
    wrong = m.TransferEngine()
    check(wrong.initialize("127.0.0.1:0", f"redis://:falsch@127.0.0.1:{port}", "tcp", "") != 0)
    check_in("AUTH", m.last_error())


@test("a child process is told, and ends without harm")
def forked(context):
    engine, memory = make_engine(MIB)
    pid = os.fork()
    if pid == 0:
        code = engine.register_memory(memory.address, 4096)
        os._exit(0 if code < 0 else 1)
    check_equal(os.waitpid(pid, 0)[1], 0, "the child's call")
    check_equal(engine.transfer_sync_read(f"127.0.0.1:{engine.get_rpc_port()}", memory.address,
                                          memory.address + 4096, 4096), 0)


@test("parts of a range, lengths and reasons")
def parts(context):
    m = engine_module()
    engine, memory = make_engine(MIB)
    check_equal(engine.register_memory(memory.address + 4096, 64), 0, "a part")
    check_equal(engine.unregister_memory(memory.address + 4096), 0, "a part goes as it came")
    check_equal(engine.unregister_memory(memory.address + 4096), -3, "once")
    managed = engine.allocate_managed_buffer(4096)
    check_equal(engine.write_bytes_to_buffer(managed, b"abc", 3), 0)
    for call in (lambda: engine.write_bytes_to_buffer(managed, b"xyz", -1),
                 lambda: engine.read_bytes_from_buffer(managed, -1), lambda: engine.allocate_managed_buffer(-1)):
        try:
            raise Failure(f"a negative length gave {call()!r}")
        except TypeError as error:
            check_in("-1", str(error))
    check_equal(engine.read_bytes_from_buffer(managed, 4), b"abc\0")
    check_equal(engine.register_memory(managed + 16, 16), 0, "a part of a managed buffer")
    check(engine.free_managed_buffer(managed, 4096) != 0, "its part is registered still")
    check_equal(engine.read_bytes_from_buffer(managed, 3), b"abc", "so it is there")
    check_equal(engine.unregister_memory(managed + 16), 0)
    check_equal(engine.free_managed_buffer(managed, 4096), 0)
    own = f"127.0.0.1:{engine.get_rpc_port()}"
    check_equal(engine.transfer_sync_read(own, memory.address, memory.address + 64, 64, "nvlink"), -6)
    check_in("nvlink", m.last_error())
    check_equal(engine.batch_transfer_sync_read(own, [memory.address] * 2, [memory.address] * 2, [64, 2**64 - 1]), -1)


@test("a service of names that answers something else, or nothing")
def strange_names(context):
    m = engine_module()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port = listener.getsockname()[1]
        answers = [b"+OK\r\n", b"+OK\r\n", b"+OK\r\n"]  # to SET, GET and DEL

        def serve():
            for answer in answers:
                with listener.accept()[0] as connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        engine = m.TransferEngine()
        check_equal(engine.initialize("127.0.0.1", f"redis://127.0.0.1:{port}", "tcp", ""), 0)
        check_equal(engine.send_probe("somebody"), -104, "a line is no value")
        check_in("+OK", m.last_error())
        del engine
        thread.join(20)
        # One that says nothing is asked once: the answer comes in time, and nothing listens on all addresses for it.
        start = time.monotonic()
        check(m.TransferEngine().initialize("127.0.0.1", f"http://127.0.0.1:{port}/metadata", "tcp", "") != 0)
        check(time.monotonic() - start < 5.5, f"it took {time.monotonic() - start:.1f} s")
        listener.settimeout(1)
        listener.accept()[0].close()
        try:
            listener.accept()
            raise Failure("it was asked twice")
        except TimeoutError:
            pass


@test("a service of names that hangs up, answers rubbish or more than there can be is blamed for it, not the caller")
def garbage_names(context):
    m = engine_module()
    head = b"HTTP/1.1 %s\r\nContent-Length: %s\r\n\r\nx"
    wanted = {  # what it answers, and what http, etcd and redis make of it
        b"": (-104, -104, -102), b"\xff" * 100: (-104, -104, -102), b"\xff" * 20000: (-104, -104, -104),
        head % (b"500 x", b"1"): (-102, -102, -104), head % (b"200 OK", b"9" * 11): (-104, -104, -104),
        head % (b"200 OK", b"-1"): (-104, -104, -104), b"-ERR no\r\n": (-104, -104, -102), b"$99999999999\r\n": (-104, -104, -104)}
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port, kinds = listener.getsockname()[1], ("http://127.0.0.1:%d/metadata", "etcd://127.0.0.1:%d", "redis://127.0.0.1:%d")

        def serve():
            for answer in wanted:
                for _ in kinds:
                    with listener.accept()[0] as connection, contextlib.suppress(OSError):  # who hears rubbish may hang up first
                        connection.recv(4096)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        for answer, codes in wanted.items():
            for kind, code in zip(kinds, codes):
                check_equal(m.TransferEngine().initialize("127.0.0.1", kind % port, "tcp", ""), code, "%s %.40r" % (kind, answer))
                check_in("metadata service " + kind[:4], m.last_error())
        thread.join(20)


@test("a peer that does not answer is named, whatever was said before")
def silent(context):
    m = engine_module()
    engine, _ = make_engine()
    peer = Peer(context, 4096)
    check_equal(engine.send_probe(peer.name), 0, m.last_error())
    check(engine.send_probe("127.0.0.1:1") != 0)
    peer.popen.send_signal(signal.SIGSTOP)
    check(os.WIFSTOPPED(os.waitpid(peer.popen.pid, os.WUNTRACED)[1]))
    check_equal(engine.send_probe(peer.name), -102)
    check_in(peer.name, m.last_error())
    check_in("in time", m.last_error())
    peer.popen.send_signal(signal.SIGCONT)
    eventually(lambda: engine.send_probe(peer.name) == 0, text="it answers again")


@test("why a transfer failed is said")
def why(context):
    m = engine_module()
    engine, memory = make_engine(4096)
    other, target = make_engine(4096)
    peer = f"127.0.0.1:{other.get_rpc_port()}"
    beyond = target.address + 4096
    check(engine.transfer_sync_read(peer, memory.address, beyond, 16) < 0)
    for part in (f"a read of 16 bytes, local {memory.address:#x}, remote {beyond:#x}: ",
                 ": the remote side refused: the memory is not registered"):
        check_in(part, m.last_error(), "of a call that waits")
    check(engine.transfer_sync_write(peer, beyond, target.address, 16) < 0)
    check_in(f"local {beyond:#x} + 16 is not inside a registered range", m.last_error(), "of the local side")
    # The first that failed, whatever the others did.
    number = engine.batch_transfer_async_write(peer, [memory.address + at for at in (0, 99, 200)],
                                               [target.address, beyond + 64, beyond + 512], [16, 17, 18])
    check(number > 0, m.last_error())
    check_equal(engine.get_batch_transfer_status([number]), -1)
    for part in (f"a write of 17 bytes, local {memory.address + 99:#x}, remote {beyond + 64:#x}: ",
                 ": the remote side refused: the memory is not registered"):
        check_in(part, m.last_error(), "of one that is asked for later")


@test("what is no direction and no address is refused")
def no_direction(context):
    m = engine_module()
    engine, memory = make_engine(4096)
    own = f"127.0.0.1:{engine.get_rpc_port()}"
    ctypes.memset(memory.address, 7, 64)
    place = (memory.address, memory.address + 64)
    for opcode in (2, 7, -1, "Read", None, [], 1.0, object()):
        for call in (lambda: engine.transfer_sync(own, *place, 4, opcode),
                     lambda: engine.batch_transfer_sync(own, [place[0]], [place[1]], [4], opcode),
                     lambda: engine.batch_transfer_async(own, [place[0]], [place[1]], [4], opcode)):
            try:
                call()
                raise Failure(f"opcode {opcode!r} was taken")
            except TypeError as error:
                check_in(repr(opcode), str(error))
    check_equal(ctypes.string_at(memory.address, 64), bytes([7]) * 64)
    check_equal(engine.transfer_sync(own, *place, 4, 1), 0, "the number of TransferOpcode.Write")
    check_equal(ctypes.string_at(place[1], 5), bytes([7]) * 4 + bytes(1))
    for call in (lambda: engine.read_bytes_from_buffer(0, 6), lambda: engine.write_bytes_to_buffer(0, b"abc", 3)):
        try:
            call()
            raise Failure("address 0 was taken")
        except ValueError as error:
            check_in("address 0", str(error))
    check_equal(engine.read_bytes_from_buffer(memory.address, 3), b"\7\7\7")


@test("a limit of nonsense is still a limit")
def limit_of_nonsense(context):
    try:
        for text in ("9" * 30, "-7", "soon", "0"):
            os.environ["MC_TRANSFER_TIMEOUT"] = text
            engine, memory = make_engine(MIB)
            own = f"127.0.0.1:{engine.get_rpc_port()}"
            check_equal(engine.transfer_sync_read(own, memory.address, memory.address + 64, 64), 0, text)
    finally:
        del os.environ["MC_TRANSFER_TIMEOUT"]


@test("what took too long touches memory no more")
def late(context):
    os.environ["MC_TRANSFER_TIMEOUT"] = "5"
    try:
        engine, memory = make_engine(64 * MIB)
    finally:
        del os.environ["MC_TRANSFER_TIMEOUT"]
    peer = Peer(context, 64 * MIB, "l")
    check_equal(engine.transfer_sync_read(peer.name, memory.address, peer.address, 4096), 0)
    peer.popen.send_signal(signal.SIGSTOP)
    number = engine.batch_transfer_async_read(peer.name, [memory.address], [peer.address], [64 * MIB])
    check(number > 0)
    check_equal(engine.get_batch_transfer_status([number]), -1)
    check_equal(engine.unregister_memory(memory.address), 0, "nothing uses it")
    ctypes.memset(memory.address, 7, 64 * MIB)
    peer.popen.send_signal(signal.SIGCONT)
    check_equal(engine.register_memory(memory.address, 64 * MIB), 0)
    # Where the machine was slow enough for a second connection, its breaker keeps the way closed for a moment.
    eventually(lambda: engine.transfer_sync_read(peer.name, memory.address, peer.address, 1) == 0, text="a read")
    check_equal(ctypes.string_at(memory.address, 64 * MIB), b"l" + bytes([7]) * (64 * MIB - 1))


# Peers use a managed buffer until the engine has ended, and only then does it go.
ENDING = r"""
import sys
sys.path.insert(0, sys.argv[1])
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
address = engine.allocate_managed_buffer(8 << 20)
print(engine.get_rpc_port(), address, flush=True)
sys.stdin.readline()
del engine
print("over", flush=True)
"""


@test("an engine ends while others read its managed buffer")
def ending(context):
    popen = subprocess.Popen([sys.executable, "-c", ENDING, folder()], text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    port, address = popen.stdout.readline().split()
    engine, memory = make_engine(8 * MIB)
    reads = []

    def read():
        while engine.transfer_sync_read(f"127.0.0.1:{port}", memory.address, int(address), 8 * MIB) == 0:
            reads.append(1)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(reads) > 3, text="they read")
    popen.stdin.write("end\n")
    popen.stdin.flush()
    output = popen.communicate(timeout=60)[0]
    for thread in threads:
        thread.join(60)
    check_equal((output.strip(), popen.returncode), ("over", 0))


if __name__ == "__main__":
    sys.exit(main())
