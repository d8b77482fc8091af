#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public failure cases of class J (start, stop, signals, fork) at the Python module. YOLK_CASES_FULL=1: at full size."""

import glob
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, check_in, eventually, free_port, main, test
from python_kit import MIB, Memory, available_bytes, folder, metrics, module, open_store, pattern

FULL = os.environ.get("YOLK_CASES_FULL") == "1"
HERE = os.path.dirname(os.path.abspath(__file__))

# The head of programs that run beside the test: a store by the name of `store`, set up.
PROGRAM = """import os, signal, sys, threading
sys.path[:0] = [%r, %r]
from python_kit import MIB, Memory, pattern
from mooncake.store import MooncakeDistributedStore, last_error
store = MooncakeDistributedStore()
code = store.setup({"local_hostname": "localhost", "master_server_addr": %r, "global_segment_size": %d, "timeout_ms": 60000})
assert code == 0, last_error()
"""


def program(context, address, segment, body):
    """A Python process with a store, that has run `body`."""
    process = context.start(sys.executable, "-c", PROGRAM % (HERE, folder(), address, segment) + body +
                            "\nprint('ready', flush=True)\nsignal.pause()\n")
    process.wait_line("^ready")
    return process


class Readers:
    """Threads that read keys for as long as they may; what is wrong with an answer is noted."""

    def __init__(self, store, values, allowed, count=8):
        self.store, self.values, self.allowed = store, values, allowed
        self.stop, self.reads, self.wrong = False, 0, []
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        size = max(len(value) for value in self.values.values())
        keys = list(self.values)
        memory = Memory(size * len(keys))
        pointers = [memory.address + i * size for i in range(len(keys))]
        while not self.stop:
            got = self.store.batch_get_into(keys, pointers, [size] * len(keys))
            for i, (key, code) in enumerate(zip(keys, got)):
                value = self.values[key]
                if code == len(value):
                    if memory.bytes(i * size, len(value)) != value:
                        self.wrong.append((key, "other bytes"))
                elif code not in self.allowed:
                    self.wrong.append((key, code, module().last_error()))
            self.reads += 1

    def wait(self, more):
        wanted = self.reads + more
        eventually(lambda: self.reads >= wanted or self.wrong, text="%d reads" % more)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join(60)
            check(not thread.is_alive(), "a read does not end")
        check_equal(self.wrong[:3], [])


@test("c145 a node that is told to end finishes its readers, leaves and ends well")
def sigterm_of_node(context):
    master, address = context.master()
    store = open_store(address, 0)
    for i in range(50 if FULL else 6):
        node = context.node(address, "--drain-grace", "5s", dram="32MiB")
        values = {"round%d key%d" % (i, k): pattern(k, 100000) for k in range(16)}
        eventually(lambda: store.put_batch(list(values), list(values.values())) == 0, text="a put to the new node")
        readers = Readers(store, values, {-704})
        readers.wait(8)
        node.terminate()
        check_equal(node.wait(), 0, node.output())
        readers.wait(8)
        readers.end()
        check_equal(store.batch_is_exist(list(values)), [0] * 16)
        check_equal(metrics(master)["master_segments"], 0)
    check_equal(store.close(), 0)


@test("c145 a Python process that is told to end while threads read from it gets away")
def sigterm_of_python(context):
    _, address = context.master("--session-ttl", "2s")
    store = open_store(address, 0, timeout_ms=20000)
    for handler, code in (("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n", 0)):
        process = program(context, address, 32 * MIB, handler + (
            "v = {'key%d' % k: pattern(k, 100000) for k in range(16)}\nassert store.put_batch(list(v), list(v.values())) == 0\n"
            "t = [threading.Thread(target=lambda: [store.get('key1') for _ in iter(int, 1)], daemon=True) for _ in range(8)]\n"
            "[x.start() for x in t]"))
        values = {"key%d" % k: pattern(k, 100000) for k in range(16)}
        # Without a handler it ends without a farewell; the master takes its values back when it notices.
        readers = Readers(store, values, {-704, -800, -900, -901, -712}, 4)
        readers.wait(4)
        process.terminate()
        check_equal(process.wait(), code, process.output())
        eventually(lambda: store.batch_is_exist(list(values)) == [0] * 16, text="its values are gone")
        readers.end()
    check_equal(store.close(), 0)


def leftovers():
    """What a process may leave on the machine: shared memory, sockets, temporary files."""
    found = set(glob.glob("/dev/shm/*yolk*") + glob.glob("/tmp/*yolk*") + glob.glob("/dev/shm/*mooncake*"))
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        found |= {line.split()[-1] for line in file if "yolk" in line}
    return {name for name in found if "yolk-e2e-" not in name}


@test("c147 of a client that was killed nothing stays: not at the master, not on the machine")
def killed_client(context):
    size = (8 << 30) if FULL else 512 * MIB
    if available_bytes() < 2 * size:
        raise Skip("it takes %d MiB of memory" % (2 * size // MIB))
    master, address = context.master("--session-ttl", "2s")
    store = open_store(address, 0)
    before = metrics(master)
    process = program(context, address, size, (
        "memory = Memory(100 * 65536)\n"
        "assert [store.register_buffer(memory.address + i * 65536, 65536) for i in range(100)] == [0] * 100\n"
        "assert store.put_batch(['k%d' % i for i in range(100)], [bytes(65536)] * 100) == 0\n"))
    own = re.compile(r"(?<!\d)%d(?!\d)" % process.pid)  # other processes' numbers may contain this one's digits
    with open("/proc/net/unix", encoding="ascii", errors="replace") as file:
        sockets = {line.split()[-1] for line in file if "yolk" in line and own.search(line.split()[-1])}
    check_equal(store.batch_is_exist(["k0"]), [1])
    process.kill()
    # A segment whose owner is gone is remembered, as lost, for the case that it comes back.
    names = ("master_sessions", "master_segments_open", "master_total_capacity_bytes", "master_allocated_bytes",
             "master_read_guards")

    def changed():
        now = metrics(master)
        return {name: (before[name], now[name]) for name in names if now[name] != before[name]}

    eventually(lambda: not changed(), text="the master's figures are as before")
    check_equal(store.batch_is_exist(["k%d" % i for i in range(100)]), [0] * 100)
    check_equal({name for name in leftovers() if own.search(name) or name in sockets}, set())
    code, out, _ = context.run("stat", "--master", address, "--recount")
    check_equal(code, 0, out.decode())
    # Another one of the same size finds room, and nothing of the first.
    again = program(context, address, size, "assert store.put('mine', bytes(65536)) == 0")
    check_equal(store.get("mine"), bytes(65536))
    again.kill()
    check_equal(store.close(), 0)


@test("c148 two of four nodes leave, one with a farewell and one without; the others go on")
def nodes_leave(context):
    master, address = context.master("--session-ttl", "2s")
    nodes = [context.node(address, dram="64MiB") for _ in range(4)]
    store = open_store(address, 0)
    values = {}
    for i in range(64):
        values["key%d" % i] = pattern(i, 200000)
    eventually(lambda: store.put_batch(list(values), list(values.values())) == 0, text="puts")
    check(metrics(master)["master_segments"] == 4, "four segments")
    lost = {-704, -800, -712}
    readers = Readers(store, values, lost, 6)
    failed, stop = [], threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            code = store.put("more%d" % number, pattern(number, 50000))
            if code not in lost | {0, -200}:
                failed.append((code, module().last_error()))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    readers.wait(10)
    nodes[0].terminate()
    check_equal(nodes[0].wait(), 0, nodes[0].output())
    readers.wait(10)
    nodes[1].kill()
    eventually(lambda: metrics(master)["master_segments_open"] == 2, text="the master knows")
    readers.wait(10)
    stop.set()
    writer.join()
    readers.end()
    check_equal(failed[:3], [])
    there = store.batch_is_exist(list(values))
    check(0 < sum(there) < len(there), "%d of %d are there" % (sum(there), len(there)))
    for key, found in zip(values, there):
        check(store.get(key) == (values[key] if found else b""), key)
    check([node.alive() for node in nodes] == [False, False, True, True] and master.alive(), "who lives")
    check_equal(store.close(), 0)


class Sleeper(threading.Thread):
    """How late a process is woken at worst: in one of its own, so that no interpreter's lock is in the way."""

    def __init__(self, context):
        super().__init__(daemon=True)
        self.process = context.start(sys.executable, "-c", (
            "import sys, time\nworst = 0.0\n"
            "while True:\n  t = time.monotonic()\n  time.sleep(0.002)\n  late = time.monotonic() - t - 0.002\n"
            "  if late > worst: worst = late; print('%.6f' % worst, flush=True)\n"))

    def worst(self):
        return max([float(line) for line in self.process.output().split()] or [0.0])


@test("c149 closing and killing a client with much memory keeps no other process from running")
def large_segment(context):
    size = (16 if FULL else 4) << 30
    if available_bytes() < size + (3 << 30):
        raise Skip("it takes %d GiB of memory, of which %d are available" % ((size >> 30) + 3, available_bytes() >> 30))
    m = module()
    master, address = context.master()
    worst = []
    for way in ("close", "kill") * 3:
        process = program(context, address, size, (
            "def end(*_):\n  import time\n  t = time.monotonic()\n  assert store.close() == 0, last_error()\n"
            "  print('closed in %.3f s' % (time.monotonic() - t), flush=True)\n  os._exit(0)\n"
            "signal.signal(signal.SIGUSR1, end)"))
        eventually(lambda: resident(process.pid) > size * 9 // 10, 120, "its memory is present")
        sleeper = Sleeper(context)
        sleeper.process.wait_line("0")
        if way == "close":
            process.signal(signal.SIGUSR1)
            took = float(process.wait_line(r"closed in ([0-9.]+) s", 60).group(1))
            check_equal(process.wait(60), 0)
            print("# %d GiB closed in %.2f s" % (size >> 30, took))
        else:
            start = time.monotonic()
            process.kill()
            print("# %d GiB gone %.2f s after SIGKILL" % (size >> 30, time.monotonic() - start))
        late = sleeper.worst()
        sleeper.process.kill()
        print("# another process was woken %.1f ms late at worst (%s)" % (late * 1e3, way))
        worst.append((way, late))
        # A busy machine is late by itself: one good try of each way is enough.
        if {name for name, each in worst if each < 0.1} == {"close", "kill"}:
            return
    check(False, "woken late: %s, %s" % (worst, m.last_error()))


def resident(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@test("c150 in a forked child a store refuses, closes and is set up anew; exec and spawn begin afresh; the parent's goes on")
def forks(context):
    m = module()
    master, address = context.master()
    store = open_store(address)
    value = pattern(1, 100000)
    check_equal(store.put("k", value), 0)
    handle = store.get_buffer("k")
    memory = Memory(len(value))
    check_equal(store.register_buffer(memory.address, memory.size), 0)
    open_fds = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            open_fds[int(name)] = os.get_inheritable(int(name))
        except OSError:
            pass
    check_equal([fd for fd, inherited in open_fds.items() if inherited and fd > 2 and not known_to_test(fd)], [])

    def child(body):
        pid = os.fork()
        if pid == 0:
            try:
                code = 0 if body() else 1
            except BaseException:
                code = 2
            os._exit(code)
        check_equal(os.waitpid(pid, 0)[1], 0, body.__name__)
        check_equal((store.get("k"), metrics(master)["master_segments"]), (value, 1), "the parent's, after " + body.__name__)

    def only_exits():
        return True

    def closes():
        return (store.close(), store.close()) == (0, 0)

    def reads():
        refused = m.ERROR_CODES["YOLK_ERR_FORKED"]
        codes = (store.get_into("k", memory.address, memory.size), store.put("x", b"1"), store.is_exist("k"), store.remove("k", True),
                 store.get_size("k"), store.remove_all(True), store.register_buffer(memory.address, 8),
                 store.unregister_buffer(memory.address))
        good = codes == (refused,) * 8 and "opened by process" in m.last_error()
        return good and store.get("k") == b"" and store.batch_get_buffer(["k"]) == [None] and store.health_check() == 2

    def looks_at_handles():
        return handle.size() == len(value) and bytes(memoryview(handle)) == value

    def sets_up():
        own = m.MooncakeDistributedStore()
        settings = {"master_server_addr": address, "global_segment_size": 0, "local_hostname": "localhost"}
        good = own.setup(settings) == 0 and own.get("k") == value and own.close() == 0
        return good and store.close() == 0 and store.setup(settings) == 0 and store.get("k") == value and store.close() == 0

    def executes():
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM % (HERE, folder(), address, 0) +
                                  "assert store.get('k') == pattern(1, 100000)\nassert store.close() == 0\n"])

    def ends_interpreter():
        sys.exit = None  # what this process would run at its end is not this child's
        import atexit

        atexit._run_exitfuncs()
        return True

    for body in (only_exits, closes, reads, looks_at_handles, sets_up, executes, ends_interpreter):
        child(body)
    # Through multiprocessing, in both ways, from a file as a user's program is.
    script = context.write("user.py", PROGRAM % (HERE, folder(), address, 0) + (
        "import multiprocessing\n"
        "def work(queue):\n"
        "  own = MooncakeDistributedStore()\n"
        "  code = own.setup({'master_server_addr': %r, 'global_segment_size': 0, 'local_hostname': 'localhost'})\n"
        "  queue.put((code, own.get('k') == pattern(1, 100000), own.close()))\n"
        "if __name__ == '__main__':\n"
        "  for way in ('fork', 'spawn', 'forkserver'):\n"
        "    context = multiprocessing.get_context(way)\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    assert queue.get(timeout=60) == (0, True, 0), way\n"
        "    process.join()\n"
        "    assert process.exitcode == 0, way\n"
        "  assert store.get('k') == pattern(1, 100000) and store.close() == 0\n" % address))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    check_equal(done.returncode, 0, done.stdout + done.stderr)
    check_equal((store.unregister_buffer(memory.address), store.put("after", b"1"), store.get("after")), (0, 0, b"1"))
    del handle
    check_equal(store.close(), 0)


def known_to_test(fd):
    """Of the interpreter and of what started this test."""
    target = os.readlink("/proc/self/fd/%d" % fd)
    return not any(word in target for word in ("yolk", "memfd", "socket", "eventfd", "eventpoll", "timerfd", "io_uring"))


@test("c151 a master that is interrupted ends at once and can be started at the same place")
def interrupted_master(context):
    port, admin_port = free_port(), free_port()
    for load in (False, True):
        master, address = context.master(port=port, admin_port=admin_port)
        store = open_store(address, 32 * MIB, timeout_ms=30000)
        threads, stop, codes = [], threading.Event(), set()

        def work(number):
            while not stop.is_set():
                codes.add(store.put("k%d" % number, bytes(10000)))
                store.get("k%d" % number)

        if load:
            threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
            for thread in threads:
                thread.start()
            eventually(lambda: metrics(master)["master_requests_total"] > 200, text="load")
        master.signal(signal.SIGINT)
        check(master.wait() in (0, 130, -signal.SIGINT), "exit status %s" % master.popen.returncode)
        for number in (port, admin_port):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", number))
        start = time.monotonic()
        again, _ = context.master(port=port, admin_port=admin_port)
        print("# started again in %.3f s, %s load" % (time.monotonic() - start, "under" if load else "without"))
        stop.set()
        for thread in threads:
            thread.join()
        check(codes <= {0, -900, -901, -1010}, "codes %s" % codes)
        eventually(lambda: store.put("after", b"1") == 0 and store.get("after") == b"1", text="a put at the master started again")
        check_equal(store.close(), 0)
        again.terminate()
        check_equal(again.wait(), 0)


@test("closed twice, set up again a hundred times, by many threads at once")
def again_and_again(context):
    m = module()
    master, address = context.master()
    store = m.MooncakeDistributedStore()
    settings = {"master_server_addr": address, "local_hostname": "localhost", "global_segment_size": 4 * MIB}
    check_equal((store.close(), store.close()), (0, 0))

    def cycle(i):
        check_equal(store.setup(settings), 0, m.last_error())
        check_equal((store.put("k", pattern(i, 5000)), store.get("k") == pattern(i, 5000)), (0, True), m.last_error())
        check_equal((store.close(), store.close(), store.get("k"), store.put("k", b"")), (0, 0, b"", -600))

    for i in range(10):
        cycle(i)
    before = len(os.listdir("/proc/self/fd")), threading_count()
    for i in range(100):
        cycle(i)
    eventually(lambda: (len(os.listdir("/proc/self/fd")), threading_count()) == before, text="files and threads as before")
    # All at once: one is set up, the others are told so.
    codes, start = [], threading.Barrier(16)

    def at_once():
        start.wait()
        codes.append(store.setup(settings))
        codes.append(store.close())

    threads = [threading.Thread(target=at_once) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(set(codes) <= {0, -600} and codes.count(0) >= 17, "%s" % codes)
    eventually(lambda: metrics(master)["master_sessions"] == 0, text="no sessions are left")


def threading_count():
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    sys.exit(main())
