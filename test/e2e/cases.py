#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cases of registration and network that need processes, limits of the system, or hosts with addresses of one family
only. Their sizes are those of a small machine; with YOLK_CASES_FULL=1 those of the reports."""

import itertools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Failure, Skip, build_dir, check, check_equal, check_in, free_port, main, test, yolk_path
from python_kit import MIB, folder

FULL = os.environ.get("YOLK_CASES_FULL") == "1"


def python(context, code, *args, prefix=(), env=None):
    """Python with the module of the build, in the background."""
    more = dict(env or {}, PYTHONPATH=folder())
    return context.start(*prefix, sys.executable, "-c", code, *args, env=more)


def ended(process, timeout_s=150):
    check_equal(process.wait(timeout_s), 0, process.output())
    return process.output()


class Host:
    """A network of its own; `address` commands of ip make it. Commands run inside have `prefix` before them."""

    def __init__(self, *commands, hosts=None, context=None):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        for tool in ("ip", "nsenter", "unshare", "mount"):
            if shutil.which(tool) is None:
                raise Skip(f"{tool} is not installed")
        script = "mount --bind \"$1\" /etc/hosts && echo ready && exec sleep infinity"
        path = context.write("hosts", hosts or "127.0.0.1 localhost\n::1 localhost\n")
        self.process = context.start("unshare", "-n", "-m", "sh", "-c", script, "sh", path)
        try:
            self.process.wait_line("^ready")
        except Failure as why:
            raise Skip(f"no network namespace can be made here: {why}") from None
        self.prefix = ("nsenter", "-t", self.process.pid, "-n", "-m")
        for command in commands:
            done = subprocess.run([*map(str, self.prefix), "sh", "-c", command], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT, check=False)
            check_equal(done.returncode, 0, f"{command}: {done.stdout}")

    def start(self, context, *args, env=None):
        return context.start(*self.prefix, *args, env=env)


# -- C46 --

@test("c46_a_segment_that_the_system_refuses")
def _(c):
    """Too large for the limit of the process: says what it asked for, and nothing is left mounted at the master."""
    _, address = c.master()

    def limits():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    done = subprocess.run([yolk_path(), "node", "--master", address, "--dram", "2GiB"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, preexec_fn=limits, timeout=60, check=False)
    check(done.returncode not in (0, -9), done.stdout)
    check(re.search(r"no segment of 2147483648 bytes|cannot map .*2147483648", done.stdout), done.stdout)
    check_in("Cannot allocate memory", done.stdout)
    code, out, err = c.run("stat", "--master", address)
    check_equal(code, 0, err)
    check_equal(re.search(rb"^segments (\d+)", out, re.M).group(1), b"0", out)
    # A limit on locked memory is none on memory: what fits works under it.
    small = subprocess.Popen([yolk_path(), "node", "--master", address, "--dram", "32MiB"], stdout=subprocess.PIPE, text=True,
                             preexec_fn=limits)
    try:
        check_in("yolk node ready", small.stdout.readline())
        check_equal(c.run("put", "--master", address, "k", stdin=os.urandom(1 << 20))[0], 0)
    finally:
        small.kill()
        small.wait()
        small.stdout.close()


# -- C47 --

@test("c47_others_are_served_while_a_large_segment_is_mounted")
def _(c):
    """Its pages are made present by several threads, and neither heartbeats nor the calls of others wait for it."""
    master, address = c.master("--heartbeat", "100ms", "--session-ttl", "2s")
    c.node(address, dram="64MiB")
    check_equal(c.run("put", "--master", address, "k", stdin=b"x" * 4096)[0], 0)
    size = "64GiB" if FULL else "768MiB"
    large = c.yolk("node", "--master", address, "--dram", size, "--log-level", "info")
    slowest, calls = 0, 0
    client = python(c, r"""
import sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
print("set up", flush=True)
slowest = calls = 0
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    begun = time.monotonic()
    assert store.get("k") == b"x" * 4096
    slowest, calls = max(slowest, time.monotonic() - begun), calls + 1
print("slowest", slowest, calls, flush=True)
store.close()
""", address, "60" if FULL else "2")
    text = large.wait_line(r"were made present in (\d+) ms|made present in advance", 150).group(0)
    large.wait_line(r"^yolk node ready", 150)
    slowest, calls = map(float, re.search(r"slowest (\S+) (\S+)", ended(client)).groups())
    print(f"# {text}; {calls:.0f} gets of another client meanwhile, the slowest {slowest * 1000:.0f} ms")
    check(slowest < 2.0, f"a get took {slowest:.1f} s")
    check("expired" not in master.output() and "gone" not in master.output(), master.output())


# -- C48 --

@test("c48_pages_of_2_mib")
def _(c):
    """Asked for, the segment has them, or a line says why not; either way its last, partial page works."""
    _, address = c.master()
    node = c.node(address, "--huge-pages", dram="20000KiB")
    with open(f"/proc/{node.pid}/smaps", encoding="ascii") as file:
        parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", file.read(), flags=re.M)
    segment = next(part for part in parts if "yolk-segment" in part)
    size_kb = int(re.search(r"^KernelPageSize: +(\d+) kB", segment, re.M).group(1))
    if size_kb == 2048:
        check("not of 2 MiB pages" not in node.output(), node.output())
    else:
        check_equal(size_kb, 4)
        check(re.search(r"warn.*\d+ bytes of memory are not of 2 MiB pages: \w+", node.output()), node.output())
    for number in range(30):  # until it is full, and beyond: what goes first is the master's choice
        value = bytes([number]) * 999_937
        code, _, err = c.run("put", "--master", address, f"k{number}", "--put-wait", "0" if number >= 19 else "10s", stdin=value)
        if number < 19:  # the last one lies on the last, partial page
            check_equal((code, c.run("get", "--master", address, f"k{number}")[1] == value), (0, True), err)
    for number in range(30):
        code, value, err = c.run("get", "--master", address, f"k{number}")
        check_equal(code != 0 or value == bytes([number]) * 999_937, True, err)


# -- C116 --

PARALLEL = r"""
import ctypes, sys, threading, time
from mooncake.engine import TransferEngine, last_error
SIZE = 1 << 20
a, b = TransferEngine(), TransferEngine()
for engine in (a, b):
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, last_error()
remote = ctypes.create_string_buffer(bytes(range(256)) * (SIZE // 256), SIZE)
assert b.register_memory(ctypes.addressof(remote), SIZE) == 0
name = "127.0.0.1:%d" % b.get_rpc_port()
local = [ctypes.create_string_buffer(SIZE) for _ in range(16)]
for buffer in local:
    assert a.register_memory(ctypes.addressof(buffer), SIZE) == 0
def rate(callers, seconds):
    counts, wrong = [0] * callers, []
    end = time.monotonic() + seconds
    def run(n):
        while time.monotonic() < end:
            if a.transfer_sync_read(name, ctypes.addressof(local[n]), ctypes.addressof(remote), SIZE) != 0:
                wrong.append(last_error())
            counts[n] += 1
    threads = [threading.Thread(target=run, args=(n,)) for n in range(callers)]
    begun = time.monotonic()
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong, wrong[:3]
    return sum(counts) / (time.monotonic() - begun)
rate(16, 0.3)
rounds = [{n: rate(n, float(sys.argv[1])) for n in (1, 4, 16)} for _ in range(4)]  # in turn: others use the machine too
best = {n: max(round[n] for round in rounds) for n in (1, 4, 16)}
assert all(buffer.raw == remote.raw for buffer in local)
print(*(best[n] for n in (1, 4, 16)))
"""


@test("c116_parallel_callers")
def _(c):
    """With 16 processors four callers get 2.5 times as much as one, sixteen 5 times; with less nobody is in the way."""
    env = {"YOLK_TRANSPORTS_OFF": "loop"}  # two engines of one process: over TCP all the same
    one, four, sixteen = map(float, ended(python(c, PARALLEL, "1" if FULL else "0.3", env=env)).split())
    cores = len(os.sched_getaffinity(0))
    print(f"# MiB/s of 1, 4, 16 callers on {cores} processors: {one:.0f} {four:.0f} {sixteen:.0f}")
    if FULL and cores >= 16:
        check(four >= 2.5 * one and sixteen >= 5 * one, f"{four / one:.1f} times, {sixteen / one:.1f} times")
    else:  # a caller and its peer's thread have a processor each already, and the interpreter is one for all
        check(four >= 0.3 * one and sixteen >= 0.3 * one, f"{four / one:.2f} times, {sixteen / one:.2f} times")


# -- C113 --

TOGETHER = r"""
import ctypes, sys
from mooncake.engine import TransferEngine, last_error
from mooncake.store import MooncakeDistributedStore
import mooncake.store
number, count, master = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("here", flush=True)
sys.stdin.readline()
stores, engines = [], []
for i in range(count):
    store = MooncakeDistributedStore()
    code = store.setup("localhost", "P2PHANDSHAKE", 4 << 20, 1 << 20, "tcp", "", master)
    assert code == 0, (code, mooncake.store.last_error())
    stores.append(store)
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, last_error()
    memory = ctypes.create_string_buffer(("%d-%d" % (number, i)).encode(), 64)
    assert engine.register_memory(ctypes.addressof(memory), 64) == 0
    engines.append((engine, memory))
    assert store.put("value-%d-%d" % (number, i), b"%d-%d" % (number, i) * 1000) == 0
for store, (engine, memory) in zip(stores, engines):
    print("own", store.get_hostname(), engine.get_rpc_port(), ctypes.addressof(memory), memory.value.decode(), flush=True)
print("all", flush=True)
others = [line.split() for line in iter(sys.stdin.readline, "go\n")]
for store, (engine, memory) in zip(stores, engines):
    into = ctypes.create_string_buffer(64)
    assert engine.register_memory(ctypes.addressof(into), 64) == 0
    for port, address, name in others:
        assert store.get("value-" + name) == name.encode() * 1000, name
        code = engine.transfer_sync_read("127.0.0.1:" + port, ctypes.addressof(into), int(address), 64)
        assert code == 0, (code, last_error())
        assert into.value.decode() == name, (into.value, name)
print("right", flush=True)
sys.stdin.readline()
"""


@test("c113_started_together_without_a_port")
def _(c):
    """Each of them has a name and a port of its own, and each reads what is the other's."""
    processes, each = (16, 4) if FULL else (5, 4)
    _, address = c.master()
    where = folder()
    running = [subprocess.Popen([sys.executable, "-c", TOGETHER, str(n), str(each), address], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONPATH=where))
               for n in range(processes)]

    def say(text):
        for process in running:
            process.stdin.write(text)
            process.stdin.flush()

    try:
        for process in running:
            check_equal(process.stdout.readline(), "here\n")
        say("start\n")  # all within a moment
        found = []
        for process in running:
            for line in iter(process.stdout.readline, "all\n"):
                if not line:
                    raise Failure("one of them ended")
                found.append(line.split()[1:])
        check_equal(len(found), processes * each)
        for column, what in ((0, "names of stores"), (1, "ports of engines")):
            check_equal(len({row[column] for row in found}), len(found), f"{what}: {found}")
        say("".join(" ".join(row[1:]) + "\n" for row in found) + "go\n")
        for process in running:
            check_equal(process.stdout.readline(), "right\n")
        say("end\n")
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@test("c113_a_port_that_is_taken_is_named")
def _(c):
    _, address = c.master()
    port = address.rsplit(":", 1)[1]
    code, _, err = c.run("master", "--listen", address)
    check(code != 0, "two masters at one address")
    check_in(port, err)
    check_in("Address already in use", err)
    out = ended(python(c, r"""
import sys
from mooncake.engine import TransferEngine, last_error
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0
print(last_error())
""", env={"MC_MIN_RPC_PORT": port, "MC_MAX_RPC_PORT": port}))
    check_in(port, out)


# -- C114 --

MANY = r"""
import ctypes, sys, threading
from mooncake.engine import TransferEngine, last_error
target, address, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 64
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, last_error()
memory = ctypes.create_string_buffer(threads * 64)
at = ctypes.addressof(memory)
assert engine.register_memory(at, threads * 64) == 0
wrong = []
def run(n):
    for i in range(count // threads):
        code = engine.transfer_sync_read(target, at + n * 64, address, 64)
        if code != 0 or memory[n * 64:n * 64 + 4] != b"peer":
            wrong.append((code, last_error()))
            return
def all_of_them():
    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running: thread.start()
    for thread in running: thread.join()
    print("wrong", wrong[:3], flush=True)
all_of_them()
sys.stdin.readline()
# The peer was started again, at its port: the first transfer finds it.
ctypes.memset(at, 0, threads * 64)
code = engine.transfer_sync_read(target, at, int(sys.argv[4]), 64)
print("again", code, memory[0:4], last_error(), flush=True)
sys.stdin.readline()
"""
LASTING = r"""
import mmap, ctypes, sys
from mooncake.engine import TransferEngine, last_error
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0, last_error()
memory = ctypes.CDLL(None).mmap
memory.restype = ctypes.c_void_p
memory.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = memory(int(sys.argv[1]), 4096, 3, 0x100022, -1, 0)  # private, anonymous, at that address
assert at == int(sys.argv[1])
ctypes.memmove(at, b"peer", 4)
assert engine.register_memory(at, 4096) == 0
print("port", engine.get_rpc_port(), flush=True)
sys.stdin.readline()
"""
PLACE = 0x7a0000000000


@test("c114_few_ports_and_many_transfers")
def _(c):
    """A hundred local ports are enough for any number of transfers; a peer has a bounded number of connections."""
    host = Host("ip link set lo up", "echo 40000 40099 >/proc/sys/net/ipv4/ip_local_port_range", context=c)
    env = {"PYTHONPATH": folder(), "MC_MIN_RPC_PORT": "15001", "MC_MAX_RPC_PORT": "15001"}

    def peer():
        process = host.start(c, "sh", "-c", "exec \"$@\" </dev/zero", "sh", sys.executable, "-c",
                             LASTING.replace("sys.stdin.readline()", "import signal; signal.pause()"), PLACE, env=env)
        return process, process.wait_line(r"^port (\d+)").group(1)

    first, port = peer()
    args = [*map(str, host.prefix), sys.executable, "-c", MANY, f"127.0.0.1:{port}", str(PLACE),
            str(50000 if FULL else 6400), str(PLACE)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, PYTHONPATH=folder())) as many:
        try:
            check_equal(many.stdout.readline(), "wrong []\n")
            sockets = subprocess.run([*map(str, host.prefix), "cat", "/proc/net/tcp"], stdout=subprocess.PIPE, text=True,
                                     check=True).stdout.splitlines()[1:]
            to_peer = [line.split() for line in sockets if line.split()[3] == "01"]
            local = {row[1] for row in to_peer}
            print(f"# {len(to_peer)} ends of connections at the end, {len(sockets)} sockets in all")
            check(len(to_peer) <= 2 * 16, f"{len(to_peer)} ends of connections to one peer")
            check(len(sockets) <= 100, f"{len(sockets)} sockets, of {len(local)} local addresses")
            first.kill()
            peer()
            many.stdin.write("on\n")
            many.stdin.flush()
            check_in("again 0 b'peer'", many.stdout.readline())
        finally:
            many.kill()


# -- C117, C118 --

LINK = ("ip link set lo up", "ip link add d0 type veth peer name d1", "ip link set d0 up", "ip link set d1 up")

NAMES = "::1 localhost six.test both.test\n127.0.0.1 localhost both.test\nfd00::7 far.test\n"

BOTH_WAYS = r"""
import ctypes, subprocess, sys
from mooncake.engine import TransferEngine, last_error
from mooncake.store import MooncakeDistributedStore
import mooncake.store
own, master, metadata, program = sys.argv[1:5]
store = MooncakeDistributedStore()
code = store.setup(own, "P2PHANDSHAKE", 4 << 20, 1 << 20, "tcp", "", master)
assert code == 0, (own, master, code, mooncake.store.last_error())
assert store.put("k", b"value") == 0 and store.get("k") == b"value"
# And from another process, over TCP.
assert subprocess.check_output([program, "get", "--master", master, "--transport", "tcp", "k"]) == b"value"
a, b = TransferEngine(), TransferEngine()
host = own.strip("[]")
named = metadata != "P2PHANDSHAKE"  # then by the port too that is given
form = "[%s]:%d" if ":" in host else "%s:%d"
assert a.initialize(form % (host, 7001) if named else own, metadata, "tcp", "") == 0, last_error()
assert b.initialize(form % (host, 7002) if named else own, metadata, "tcp", "") == 0, last_error()
memory = ctypes.create_string_buffer(b"left", 64), ctypes.create_string_buffer(b"right", 64)
for engine, buffer in zip((a, b), memory):
    assert engine.register_memory(ctypes.addressof(buffer), 64) == 0
name = form % (host, 7002 if named else b.get_rpc_port())
code = a.transfer_sync_read(name, ctypes.addressof(memory[0]), ctypes.addressof(memory[1]), 64)
assert code == 0, (name, code, last_error())
assert memory[0].value == b"right"
store.close()
print("works")
"""

REFUSED = r"""
import sys
from mooncake.engine import TransferEngine, last_error
from mooncake.store import MooncakeDistributedStore
import mooncake.store
for text in sys.argv[1:-1]:
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", text) != 0, text
    assert text in mooncake.store.last_error(), (text, mooncake.store.last_error())
    engine = TransferEngine()
    assert engine.initialize(text, "P2PHANDSHAKE", "tcp", "") != 0, text
    host = text.lstrip("[").split("]")[0].removesuffix(":1")  # a port may be judged before it, or after
    assert host in last_error(), (text, last_error())
print("all refused")
"""


def inside(context, host, code, *args):
    env = {"PYTHONPATH": folder(), "YOLK_TRANSPORTS_OFF": "loop"}  # two engines of one process: over TCP all the same
    return ended(host.start(context, sys.executable, "-c", code, *args, yolk_path(), env=env))


def master_in(context, host, *args):
    process = host.start(context, yolk_path(), "master", "--port", "0", "--admin-port", "0", *args)
    return process, process.wait_line(r"^yolk master ready (\S+)").group(1)


@test("c117_addresses_of_ipv6")
def _(c):
    """As literals, bracketed or not, with a scope, and as names that have one family or both."""
    host = Host(*LINK,
                "ip addr add fd00::7/64 dev d0 nodad", "ip addr add fe80::7/64 dev d0 nodad", hosts=NAMES, context=c)
    _, at = master_in(c, host, "--host", "::1")
    check(re.fullmatch(r"\[::1\]:\d+", at), at)
    port = at.rsplit(":", 1)[1]
    for own, master in (("::1", at), ("[::1]", f"six.test:{port}"), ("six.test", at), ("both.test", f"localhost:{port}")):
        check_in("works", inside(c, host, BOTH_WAYS, own, master, "P2PHANDSHAKE"))
    _, wide = master_in(c, host, "--host", "::", "--metadata-listen", "[::1]:8123")
    port = wide.rsplit(":", 1)[1]
    check_in("works", inside(c, host, BOTH_WAYS, "fd00::7", f"[fd00::7]:{port}", "http://[::1]:8123/metadata"))
    check_in("works", inside(c, host, BOTH_WAYS, "far.test", f"far.test:{port}", "P2PHANDSHAKE"))
    check_in("works", inside(c, host, BOTH_WAYS, "fe80::7%d0", f"[fe80::7%d0]:{port}", "P2PHANDSHAKE"))
    check_in("all refused", inside(c, host, REFUSED, "[::1", "::1::2", "[::g]:1", "nowhere.test:1", "[::1]:70000"))


@test("c118_hosts_with_one_family")
def _(c):
    """The master binds by default on each, and a literal address needs no resolver."""
    v4, v6 = "ip addr add 10.9.9.1/24 dev d0", "ip addr add fd00::9/64 dev d0 nodad"
    for commands, hosts in (((*LINK, v6), ("::", "fd00::9", "0.0.0.0")), ((*LINK, v4), ("0.0.0.0", "10.9.9.1")),
                            (("ip link set lo up",), ("0.0.0.0", "::"))):
        host = Host(*commands, hosts="# no name at all\n", context=c)
        master, at = master_in(c, host)
        code = host.start(c, yolk_path(), "stat", "--master", at)
        check_equal(code.wait(), 0, code.output())
        master.kill()
        for address in hosts:
            master, at = master_in(c, host, "--host", address)
            port = at.rsplit(":", 1)[1]
            to = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
            own = to.strip("[]")
            check_in("works", inside(c, host, BOTH_WAYS, own, f"{to}:{port}", "P2PHANDSHAKE"))
            master.kill()


# -- C122 --

STOPPED = r"""
import ctypes, os, re, signal, sys, time, urllib.request
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
import mooncake.store
store = MooncakeDistributedStore()
code = store.setup({"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0,
                    "local_buffer_size": 1 << 20, "protocol": "tcp", "master_server_addr": sys.argv[1],
                    "timeout_ms": 1000, "put_wait_ms": 0})
assert code == 0, mooncake.store.last_error()
words = ("here", "gone")
def elsewhere():
    text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[3]).read().decode()
    return re.search(r"^master_put_not_preferred_total (\d+)", text, re.M).group(1)
for word in words:
    config = ReplicateConfig()
    config.preferred_segments = [word]
    before = None
    while before != elsewhere():  # a segment takes nothing before its owner knows this session
        before = elsewhere()
        assert store.put("probe", b"x", config) == 0 and store.remove("probe", True) == 0
    for n in range(50):
        assert store.put("%s-%d" % (word, n), word[:1].encode() * 4096, config) == 0
keys = ["%s-%d" % (word, n) for n in range(50) for word in words]
buffers = [ctypes.create_string_buffer(4096) for _ in keys]
def get(wanted):
    begun = time.monotonic()
    sizes = store.batch_get_into([keys[i] for i in wanted], [ctypes.addressof(buffers[i]) for i in wanted],
                                 [4096] * len(wanted))
    return sizes, time.monotonic() - begun
every = range(len(keys))
assert get(every)[0] == [4096] * len(keys)
for buffer in buffers:
    ctypes.memset(buffer, 0, 4096)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
while "State:\tT" not in open("/proc/%s/status" % sys.argv[2]).read():
    pass
sizes, both = get(every)
for key, size, buffer in zip(keys, sizes, buffers):
    if key.startswith("here"):
        assert size == 4096 and buffer.raw == b"h" * 4096, (key, size)
    else:
        assert size < 0, (key, size)
sizes, one = get([1])
assert sizes[0] < 0, sizes
print("took", both, one)
"""


@test("c122_a_stopped_node_costs_one_timeout")
def _(c):
    """A hundred gets, half of them of a node that says nothing any more: the others come, and it takes one timeout."""
    master, address = c.master("--session-ttl", "60s", "--heartbeat", "1s", "--guard-ttl", "30s")
    gone = c.node(address, "--transport", "tcp", "--name", "gone")
    c.node(address, "--transport", "tcp", "--name", "here")
    both, one = map(float, re.search(r"^took (\S+) (\S+)$", ended(python(c, STOPPED, address, str(gone.pid),
                                                                                 str(master.admin_port))), re.M).groups())
    print(f"# a batch with them took {both:.1f} s, one of them alone {one:.1f} s; the timeout is 1 s")
    check(both < 4 and one < 4, "a timeout of 1 s")


# -- C129 --

@test("c129_rdma_where_there_is_none")
def _(c):
    """Asked for by name alone it is refused; as the word that programs give by default it is TCP, with one warning."""
    _, address = c.master()
    code, _, err = c.run("node", "--master", address, "--transport", "rdma")
    check(code != 0, "a node of rdma alone")
    check_in("rdma", err)
    out = ended(python(c, r"""
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s")
from mooncake.engine import TransferEngine, last_error
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("localhost", "P2PHANDSHAKE", 4 << 20, 1 << 20, "rdma", "", sys.argv[1]) == 0
assert store.put("k", b"v") == 0 and store.get("k") == b"v"
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0, last_error()
assert not engine.has_transport("rdma") and last_error(), "it says that it has rdma"
assert engine.has_transport("tcp")
""", address))
    check_equal(len(re.findall(r"WARNING.*rdma", out)), 2, out)  # one of each
    code, out, err = c.run("doctor", "--json")
    check_in("rdma", json.dumps(json.loads(out)).lower(), "yolk doctor says nothing of rdma")


# -- C131 --

CLASHES = """
#include <stdlib.h>
#define CLASH(name) void name(void); void name(void) { abort(); }
"""
NAMES_THAT_CLASH = """yolk_engine_create yolk_peer_create yolk_store_open yolk_last_error yolk_strerror base_fail base_malloc
base_calloc base_crc32c base_log clock_real_now_ns engine_transport_adopt sodium_init crypto_auth_hmacsha256
msgpack_unpack_next msgpack_sbuffer_write io_uring_queue_init io_uring_submit event_base_new event_base_loop json_loads
json_object yaml_parser_initialize transport_tcp_ops transport_shm_ops wire_encode net_address_parse memory_map
file_open copy_stream argument_parse store_open_disk createTransferEngine destroyTransferEngine openSegment
registerLocalMemory mooncake_store_create""".split()


@test("c131_any_order_of_imports")
def _(c):
    """With a library of the same names in the global space, in any order, from threads."""
    if shutil.which("cc") is None:
        raise Skip("no C compiler")
    source = c.write("clash.c", CLASHES + "\n".join(f"CLASH({name})" for name in NAMES_THAT_CLASH))
    library = c.path("clash.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
    code = r"""
import ctypes, importlib, os, sys, threading
def load(what):
    if what.endswith(".so"):
        ctypes.CDLL(what, mode=ctypes.RTLD_GLOBAL)
    else:
        importlib.import_module(what)
order = sys.argv[3:]
if sys.argv[2] == "threads":
    running = [threading.Thread(target=load, args=(what,)) for what in order]
    for thread in running: thread.start()
    for thread in running: thread.join()
else:
    for what in order: load(what)
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
store = MooncakeDistributedStore()
assert store.setup("localhost", "P2PHANDSHAKE", 4 << 20, 1 << 20, "tcp", "", sys.argv[1]) == 0
key = "k%d" % os.getpid()  # the last process's may still be known
assert store.put(key, b"v") == 0 and store.get(key) == b"v"
buffer = ctypes.create_string_buffer(64)
assert engine.register_memory(ctypes.addressof(buffer), 64) == 0
print("fine")
"""
    _, address = c.master()
    things = [library, "mooncake.engine", "mooncake.store", *(["torch"] if FULL else ["ssl"])]
    orders = list(itertools.permutations(things)) if FULL else list(itertools.permutations(things[:3]))
    running = [python(c, code, address, "threads" if n % 2 else "in turn", *order) for n, order in enumerate(orders)]
    for process in running:
        check_in("fine", ended(process))
    # What a library defines for itself alone is nobody else's to meet.
    inner = re.compile(r"(base|platform|net|wire|engine|peer|transport|storage|master|compat|clock|sodium|crypto|msgpack|"
                       r"io_uring|event|json|yaml)_|store_")
    for library, public in (("libyolk.so", "yolk_|YOLK_"), ("libmooncake_store.so", "mooncake_store_"),
                            ("libtransfer_engine.so", "(?!store_)"), ("python/mooncake/_store.abi3.so", "PyInit_")):
        done = subprocess.run(["nm", "-D", "--defined-only", os.path.join(build_dir(), library)], stdout=subprocess.PIPE,
                              text=True, check=True)
        names = [line.split()[-1].split("@")[0] for line in done.stdout.splitlines()]
        bad = [name for name in names if inner.match(name) or not re.match(public, name)]
        check(names and not bad, f"{library} exports {bad[:9]}")


if __name__ == "__main__":
    sys.exit(main())
