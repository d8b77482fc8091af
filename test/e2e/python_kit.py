# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python module share: the module of the build, memory by address, and stores."""

import ctypes
import mmap
import os
import re
import sys
import threading
import time

MIB = 1 << 20


def folder():
    """Where the package lies; skips the test if it was not built."""
    from harness import Skip, build_dir

    path = os.path.join(build_dir(), "python")
    if not os.path.exists(os.path.join(path, "mooncake", "_store.abi3.so")):
        raise Skip("mooncake.store is not built: no headers of Python 3.11 or later")
    if sys.version_info < (3, 11):
        raise Skip("this is Python %d.%d: mooncake.store needs 3.11" % sys.version_info[:2])
    return path


def module():
    path = folder()
    if path not in sys.path:
        sys.path.insert(0, path)
    import mooncake.store

    return mooncake.store


def open_store(master, segment=64 * MIB, **more):
    store = module().MooncakeDistributedStore()
    settings = {
        "local_hostname": "localhost",
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": segment,
        "local_buffer_size": 16 * MIB,
        "protocol": "tcp",
        "master_server_addr": master,
        **more,
    }
    code = store.setup(settings)
    if code != 0:
        raise AssertionError("setup: %d: %s" % (code, module().last_error()))
    return store


class Memory:
    """Bytes at an address, the end of which is the end of what may be touched: an unreadable page follows."""

    def __init__(self, size):
        page = mmap.PAGESIZE
        whole = (size + page - 1) // page * page
        self.size = size
        self.map = mmap.mmap(-1, whole + page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = base + whole - size
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(base + whole), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def fill(self, data, offset=0):
        ctypes.memmove(self.address + offset, data, len(data))

    def bytes(self, offset=0, size=None):
        return ctypes.string_at(self.address + offset, self.size - offset if size is None else size)


def pattern(number, size):
    """Bytes that differ from number to number and from place to place."""
    unit = b"%016x" % (number * 0x9E3779B97F4A7C15 % (1 << 64))
    return b"".join(b"%s%08x" % (unit, i) for i in range(size // 24 + 1))[:size]


def available_bytes():
    """Memory that can be had without others losing theirs."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"^MemAvailable: *([0-9]+) kB", file.read(), re.M).group(1)) << 10


def metrics(process):
    """The figures of a master's /metrics, by name."""
    import urllib.request

    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % process.admin_port, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


class Counter(threading.Thread):
    """Counts as fast as it may, in a thread of this interpreter."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.stop = 0, False

    def run(self):
        while not self.stop:
            self.count += 1

    def _waited(self):
        """Seconds for which it could run but had no processor: a matter of the machine, not of the interpreter's lock."""
        with open("/proc/self/task/%d/schedstat" % self.native_id, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9

    def during(self, action):
        """Counts a second while action() runs, and how long that took."""
        count, waited, start = self.count, self._waited(), time.monotonic()
        action()
        took = time.monotonic() - start
        return (self.count - count) / max(took - (self._waited() - waited), 1e-9), took

    def shares(self, action, tries=4, enough=0.8):
        """What part of its rate without action() it has during it, by try, until one is enough; and how long the last one
        took. Whatever holds the interpreter's lock gets nowhere in any try."""
        nothing, found = threading.Event(), []
        while len(found) < tries and (not found or found[-1] < enough):
            before, _ = self.during(lambda: nothing.wait(0.15))
            rate, took = self.during(action)
            after, _ = self.during(lambda: nothing.wait(0.15))
            found.append(rate / min(before, after))
        return found, took


def maps_count():
    with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
        return len(file.readlines())


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
