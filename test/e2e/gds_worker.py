# SPDX-License-Identifier: Apache-2.0
"""A Python with a store of its own, for gds.py: PACKAGES WHAT MASTER ARG... One JSON object a line is what it has to say."""

import os
import random
import signal
import sys
import threading
import time

import gds_kit
from python_kit import MIB, pattern

sys.path.insert(0, sys.argv[1])
import mooncake.store as m

# Layers of blocks as vLLM hands them over: several pieces a key, one of odd size.
SIZES = [[32768] * 8, [16384, 65536, 4096], [1048576, 1048576, 12345], [777]]
KEYS = ["block-%d" % i for i in range(len(SIZES))]


def open_store(master, segment=64 * MIB, **more):
    store = m.MooncakeDistributedStore()
    settings = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "global_segment_size": segment,
                "local_buffer_size": 16 * MIB, "protocol": "tcp", "master_server_addr": master, **more}
    return store, store.setup(settings)


def opened(master, **more):
    store, code = open_store(master, **more)
    if code != 0:
        raise AssertionError("setup: %d: %s" % (code, m.last_error()))
    return store


def open_only(master):
    store, code = open_store(master)
    gds_kit.dump({"code": code, "error": m.last_error() if code else ""})
    store.close()


class Pool:
    """A registered allocation of the GPU, cut into pieces: interior pointers."""

    def __init__(self, store, size):
        self.gpu = gds_kit.Gpu()
        self.base, self.size, self.next = self.gpu.alloc(size), size, 0
        code = store.register_buffer(self.base, size)
        if code != 0:
            raise AssertionError("register_buffer: %d: %s" % (code, m.last_error()))

    def take(self, size):
        at = self.base + self.next
        self.next += (size + 4095) // 4096 * 4096
        assert self.next <= self.size
        return at

    def pieces(self, sizes):
        return [[self.take(size) for size in of] for of in sizes]

    def fill(self, pointers, sizes, data):
        at = 0
        for pointer, size in zip(pointers, sizes):
            self.gpu.put(pointer, data[at:at + size])
            at += size

    def read(self, pointers, sizes):
        return b"".join(self.gpu.get(pointer, size) for pointer, size in zip(pointers, sizes))


def values():
    return [pattern(i + 1, sum(of)) for i, of in enumerate(SIZES)]


def read_back(store, pool):
    pieces = pool.pieces(SIZES)
    got = store.batch_get_into_multi_buffers(KEYS, pieces, SIZES)
    exact = [pool.read(of, sizes) == value for of, sizes, value in zip(pieces, SIZES, values())]
    return got, exact


def clear(store):
    """The copies in this process's memory; once no lease is in the way."""
    cleared, end = set(), time.monotonic() + 30
    while len(cleared) < len(KEYS) and time.monotonic() < end:
        cleared |= set(store.batch_replica_clear(KEYS, store.get_hostname()))
    return sorted(cleared)


def vllm(master):
    store = opened(master)
    pool = Pool(store, 16 * MIB)
    pieces = pool.pieces(SIZES)
    for pointers, sizes, value in zip(pieces, SIZES, values()):
        pool.fill(pointers, sizes, value)
    put = store.batch_put_from_multi_buffers(KEYS, pieces, SIZES, m.ReplicateConfig())
    places = store.batch_get_replica_desc(KEYS)
    descriptors = [d.get_gds_descriptor() for key in KEYS for d in places.get(key, []) if d.is_gds_replica()]
    media = [gds_kit.media(places.get(key, [])) for key in KEYS]
    cleared = clear(store)
    left = [gds_kit.media(store.get_replica_desc(key)) for key in KEYS]
    got, exact = read_back(store, pool)
    gds_kit.dump({"put": put, "media": media, "cleared": cleared, "keys": KEYS, "left": left, "got": got, "exact": exact,
                  "error": m.last_error(), "sizes": [sum(of) for of in SIZES],
                  "descriptors": [{name: getattr(d, name) for name in d.__slots__} for d in descriptors]})
    store.unregister_buffer(pool.base)
    assert store.close() == 0, m.last_error()


def vllm_again(master):
    store = opened(master)
    pool = Pool(store, 16 * MIB)
    media = [gds_kit.media(store.get_replica_desc(key)) for key in KEYS]
    got, exact = read_back(store, pool)
    gds_kit.dump({"got": got, "exact": exact, "media": media})
    store.unregister_buffer(pool.base)
    assert store.close() == 0, m.last_error()


def noise(number, size):
    return random.Random(number).randbytes(size)


def faster(master, tier, ssd_path):
    """Puts as fast as it can what is twice the memory, then looks for it."""
    size, count, batch = 4 * MIB, 128, 8
    more = {}
    if tier == "ssd":
        os.makedirs(ssd_path, exist_ok=True)
        os.environ["MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES"] = str(1536 * MIB)
        more = {"enable_ssd_offload": True, "ssd_offload_path": ssd_path}
    # A producer does not wait: what has no room is thrown away.
    store = opened(master, segment=256 * MIB, put_wait_ms=0, **more)
    pool = Pool(store, batch * size)
    pointers = [[pool.take(size)] for _ in range(batch)]
    refused, kept = 0, []
    for first in range(0, count, batch):
        keys = ["fast-%d" % i for i in range(first, first + batch)]
        for i, key in enumerate(keys):
            pool.gpu.put(pointers[i][0], noise(first + i, size))
        codes = store.batch_put_from_multi_buffers(keys, pointers, [[size]] * batch)
        refused += sum(code < 0 for code in codes)
        kept += [first + i for i, code in enumerate(codes) if code == 0]
    lost = wrong = 0
    for i in kept:
        code = store.batch_get_into_multi_buffers(["fast-%d" % i], [pointers[0]], [[size]])[0]
        lost += code < 0
        wrong += code >= 0 and pool.gpu.get(pointers[0][0], size) != noise(i, size)
    gds_kit.dump({"keys": count, "refused": refused, "lost": lost, "wrong": wrong})
    store.unregister_buffer(pool.base)
    assert store.close() == 0, m.last_error()


def just_ends(master, way):
    """With the store open, its file in use and memory of the GPU registered."""
    store = opened(master)
    pool = Pool(store, 16 * MIB)
    pieces = pool.pieces(SIZES)
    put = store.batch_put_from_multi_buffers(KEYS, pieces, SIZES, m.ReplicateConfig())
    gds_kit.dump({"put": put})
    sys.stdout.flush()

    def use():
        while True:
            store.batch_get_into_multi_buffers(KEYS, pieces, SIZES)

    if way.endswith("-busy"):
        threading.Thread(target=use, daemon=True).start()
        time.sleep(0)
    way = way.removesuffix("-busy")
    if way == "exception":
        raise RuntimeError("as asked")
    if way == "thread":
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
        sys.exit(3)
    if way == "exit":
        sys.exit(3)
    if way == "underscore":
        os._exit(3)
    if way == "handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    if way in ("handled", "signal"):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    if way == "late":
        globals()["kept"] = store  # goes when Python takes the module apart


{"just_ends": just_ends, "open": open_only, "vllm": vllm, "vllm_again": vllm_again, "faster": faster}[sys.argv[2]](*sys.argv[3:])
