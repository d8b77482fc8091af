#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang's own HiCache back end for Mooncake, unmodified, on our store. Its files are taken from the package registry when
the test runs; stubs stand for the framework around them only (tensors, the host's memory pool, metrics). What the file
calls, with which arguments and answers, is recorded in python_sglang.json (YOLK_SGLANG_RECORD=1 writes it anew), which is
replayed where the registry is out of reach too."""

import ctypes
import dataclasses
import glob
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import types
import urllib.request
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, eventually, main, test
from python_kit import MIB, Memory, metrics, module, pattern

# The first one with this back end's calls, one between, and the newest of the day.
VERSIONS = ("0.5.5", "0.5.12", "0.5.23")
MOONCAKE = "sglang.srt.mem_cache.storage.mooncake_store"
OWN = {"sglang.srt.mem_cache.hicache_storage", "sglang.srt.environ", MOONCAKE + ".mooncake_store",
       MOONCAKE + ".mooncake_embedding_store"}
TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_sglang.json")


def fetch(version, directory):
    """Puts the files under `directory`."""
    package = "sglang==" + version
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--dest", directory, package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Skip(package + " did not come from the package registry in 120 s")
    wheels = glob.glob(os.path.join(directory, "sglang-*.whl"))
    if done.returncode != 0 or not wheels:
        raise Skip("%s is not to be had: %s" % (package, " ".join(done.stderr.split())[-200:]))
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py") and name[:-3].replace("/", ".") in OWN:
                wheel.extract(name, directory)


class Stub(types.ModuleType):
    """Any name of it is a class of its own."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {}))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The files that were fetched as they are; stubs for the packages they are in and for the framework."""

    def __init__(self, directory):
        self.directory = directory

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ("sglang", "torch", "requests", "numpy"):
            return None
        file = os.path.join(self.directory, name.replace(".", "/") + ".py")
        if name in OWN and os.path.exists(file):
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, stub):
        if stub.__name__ == "torch":
            stub.tensor = lambda *_, **__: types.SimpleNamespace(element_size=lambda: 1)
        if stub.__name__ == "sglang.srt.distributed.parallel_state":
            stub.get_mooncake_transfer_engine = lambda: None
        if stub.__name__ == "requests":
            stub.get = lambda url, timeout: types.SimpleNamespace(
                text=urllib.request.urlopen(url, timeout=timeout).read().decode())


def load(version, context):
    """(the module of the back end, the one with its configuration) of a version."""
    module()
    fetch(version, context.dir)
    sys.meta_path.insert(0, Finder(context.dir))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("sglang", "torch", "requests")]:
        del sys.modules[name]
    store = importlib.import_module(MOONCAKE + ".mooncake_store")
    check(store.__file__.startswith(context.dir), store.__file__)
    return store, importlib.import_module("sglang.srt.mem_cache.hicache_storage")


def unload():
    del sys.meta_path[0]


class Pool:
    """What the host's memory pool answers: two buffers a page, for K and V."""

    layout, page_size, page_bytes = "page_first", 64, 16384

    def __init__(self, pages, address=None):
        size = 2 * pages * self.page_bytes
        self.memory = Memory(size) if address is None else None
        self.address, self.size = (self.memory.address if address is None else address), size
        self.kv_buffer = types.SimpleNamespace(data_ptr=lambda: self.address, numel=lambda: size, element_size=lambda: 1)

    def get_page_buffer_meta(self, indices):
        pointers = []
        for at in indices[:: self.page_size]:
            page = at // self.page_size
            pointers += [self.address + (2 * page + half) * self.page_bytes for half in (0, 1)]
        return pointers, [self.page_bytes] * len(pointers)

    def get_ksize_per_token(self):
        return self.page_bytes // self.page_size

    def fill(self, data):
        ctypes.memmove(self.address, data, len(data))

    def bytes(self, offset, size):
        return ctypes.string_at(self.address + offset, size)


def configuration(cache, **extra):
    known = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "is_mla_model": False,
             "enable_storage_metrics": False, "is_page_first_layout": True, "model_name": "meta/Llama", "extra_config": extra}
    fields = {field.name for field in dataclasses.fields(cache.HiCacheStorageConfig)}
    return cache.HiCacheStorageConfig(**{name: value for name, value in known.items() if name in fields})


def exercise(store, pool, pages):
    """Exist, set, get and clear of a back end that is set up, over a pool of 2 * pages."""
    store.register_mem_pool_host(pool)
    half = pool.size // 2
    pool.fill(pattern(1, half))
    keys = ["page%064x" % i for i in range(pages)]
    first, second = list(range(pages * 64)), list(range(pages * 64, 2 * pages * 64))
    some = pages * 3 // 4
    check_equal(store.batch_exists(keys), 0)
    check_equal(store.batch_set_v1(keys[:some], first[: some * 64]), [True] * some)
    check_equal(store.batch_exists(keys), some)
    check_equal(store.batch_set_v1(keys, first), [True] * pages)
    check_equal(store.batch_get_v1(keys, second), [True] * pages)
    check(pool.bytes(0, half) == pool.bytes(half, half), "pages differ")
    check_equal(store.batch_get_v1([keys[0], "absent"], second[:128]), [True, False])
    at = pool.address
    check_equal((store.exists("one"), store.set("one", target_location=at, target_sizes=1000), store.exists("one")),
                (False, True, True))
    check_equal(store.get("one", target_location=at + half, target_sizes=1000), True)
    check_equal(store.batch_set(["one", "two"], target_locations=[at, at], target_sizes=[1000, 10]), True)
    check_equal(store.batch_get(["one", "two"], target_locations=[at, at + 1000], target_sizes=[1000, 10]), 1)
    if hasattr(store, "_uses_multi_buffer"):
        several_buffers(store, at)
    store.clear()
    store.close()


def several_buffers(store, at):
    """As pools with one layer after the other have them for a key."""
    pieces, sizes = [[at, at + 5000], [at + 7000]], [[1000, 24], [7]]
    check_equal(store._put_batch_zero_copy_impl(["emb_1", "emb_2"], pieces, sizes), [0, 0])
    check_equal(store._get_batch_zero_copy_impl(["emb_1", "emb_2"], pieces, sizes), [1024, 7])


def run_version(context, version, pages=128, **extra):
    master, address = context.master("--lease-ttl", "1s")
    # It waits until a node is there.
    nodes = [context.node(address, dram="16MiB")] if extra.get("check_server") else []
    try:
        backend, cache = load(version, context)
        config = configuration(cache, master_server_address=address, global_segment_size=64 * MIB,
                               master_metrics_port=master.admin_port, **extra)
        store = backend.MooncakeStore(config)  # sets up and warms up, or raises
        exercise(store, Pool(2 * pages), pages)
        # clear() leaves what was just read; when its lease is over that goes too.
        eventually(lambda: store.clear() or metrics(master)["master_key_count"] == 0, text="clear")
        del store
        eventually(lambda: metrics(master)["master_segments"] == len(nodes), text="the end of the object closes it")
    finally:
        unload()


@test("sglang's own file of 0.5.5: warm-up, exist, set, get, batches, clear")
def first_version(context):
    run_version(context, "0.5.5")


@test("sglang's own file of 0.5.12: warm-up, exist, set, get, batches, clear")
def middle_version(context):
    run_version(context, "0.5.12")


@test("sglang's own file of 0.5.23: the same, with groups and the check of the master's pages")
def newest_version(context):
    run_version(context, "0.5.23", enable_group_semantics=True, check_server=True, tenant_id="", device_name='{"0": "mlx5_0"}')


@test("sglang's own file of 0.5.23, standalone: memory of its host pool, a client of another process on this machine")
def standalone(context):
    _, address = context.master("--lease-ttl", "1s")
    node = context.node(address, "--clients-listen", "127.0.0.1:0", dram="64MiB")
    port = node.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    try:
        backend, cache = load("0.5.23", context)
        pages = 32
        allocator = backend.MooncakeHostTensorAllocator()
        pool = Pool(2 * pages, allocator.allocator.alloc(4 * pages * Pool.page_bytes))
        check(pool.address != 0, module().last_error())
        pool.allocator = allocator
        config = configuration(cache, client_server_address="127.0.0.1:" + port, standalone_storage=True)
        store = backend.MooncakeStore(config, pool)
        exercise(store, pool, pages)
        del store
    finally:
        unload()


# ---- the record of what it calls ----


class Recorder:
    """Between the file and a store: what goes through, addresses as places in the pool."""

    def __init__(self, store, pool):
        self.store, self.pool, self.calls = store, pool, []

    def plain(self, value):
        if isinstance(value, int) and self.pool.address <= value < self.pool.address + self.pool.size:
            return {"at": value - self.pool.address}
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        if isinstance(value, bytes):
            return {"bytes": value.hex() if any(value) else len(value)}
        if type(value).__name__ == "ReplicateConfig":
            return {"group_ids": value.group_ids}
        return value

    def __getattr__(self, name):
        method = getattr(self.store, name)

        def call(*args, **named):
            result = method(*args, **named)
            self.calls.append([name, self.plain(args), self.plain(result), self.plain(list(named.items()))])
            return result

        return call


def record(context):
    pages = 8
    pool = Pool(2 * pages)
    _, address = context.master()
    real, recorders = module().MooncakeDistributedStore, []
    try:
        backend, cache = load("0.5.23", context)

        def recorded():
            recorders.append(Recorder(real(), pool))
            return recorders[0]

        module().MooncakeDistributedStore = recorded
        store = backend.MooncakeStore(configuration(cache, master_server_address=address, global_segment_size=16 * MIB,
                                                    enable_group_semantics=True))
        exercise(store, pool, pages)
    finally:
        module().MooncakeDistributedStore = real
        unload()
    calls = [call for call in recorders[0].calls if call[0] not in ("setup", "remove_all")]
    with open(TRACE, "w", encoding="utf-8") as file:
        file.write('{"of": "sglang 0.5.23", "pages": %d, "calls": [\n%s\n]}\n' % (pages, ",\n".join(map(json.dumps, calls))))


@test("what sglang's own file was recorded to call, with the answers it had")
def replay(context):
    if os.environ.get("YOLK_SGLANG_RECORD") == "1":
        record(context)
    m = module()
    with open(TRACE, encoding="utf-8") as file:
        recorded = json.load(file)
    pool = Pool(2 * recorded["pages"])
    pool.fill(pattern(1, pool.size // 2))
    _, address = context.master()
    store = m.MooncakeDistributedStore()
    check_equal(store.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", address, None), 0, m.last_error())

    def real(value):
        if isinstance(value, list):
            return [real(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "at" in value:
            return pool.address + value["at"]
        if "bytes" in value:
            return bytes(value["bytes"]) if isinstance(value["bytes"], int) else bytes.fromhex(value["bytes"])
        config = m.ReplicateConfig()
        config.group_ids = value["group_ids"]
        return config

    for name, args, result, named in recorded["calls"]:
        check_equal(getattr(store, name)(*real(args), **dict(real(named))), real(result), name)
    check_equal(len({call[0] for call in recorded["calls"]}), 9, "kinds of calls")
    check(store.remove_all() >= 0 and store.remove_all(force=True) >= 0, m.last_error())
    check_equal(store.close(), 0)


if __name__ == "__main__":
    sys.exit(main())
