# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python module share: the module of the build, memory by address, and stores."""

import ctypes
import mmap
import os
import sys

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
