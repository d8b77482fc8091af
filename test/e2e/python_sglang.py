#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang's own HiCache back end for Mooncake, unmodified, on our store. Its two files are taken from the package
registry when the test runs; stubs stand for the framework around them only (tensors, the host's memory pool)."""

import glob
import os
import subprocess
import sys
import types
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, main, test
from python_kit import MIB, Memory, module, pattern

PACKAGE = "sglang==0.5.5"
FILES = (
    "sglang/srt/mem_cache/hicache_storage.py",
    "sglang/srt/mem_cache/storage/mooncake_store/mooncake_store.py",
)


def fetch(directory):
    """Puts the files under `directory`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--dest", directory, PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Skip(PACKAGE + " did not come from the package registry in 120 s")
    wheels = glob.glob(os.path.join(directory, "sglang-*.whl"))
    if done.returncode != 0 or not wheels:
        raise Skip("%s is not to be had: %s" % (PACKAGE, " ".join(done.stderr.split())[-200:]))
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in FILES:
            wheel.extract(name, directory)


class Pool:
    """What the host's memory pool answers: two buffers a page, for K and V."""

    layout, page_size, page_bytes = "page_first", 64, 16384

    def __init__(self, pages):
        self.memory = Memory(2 * pages * self.page_bytes)
        self.kv_buffer = types.SimpleNamespace(data_ptr=lambda: self.memory.address, numel=lambda: self.memory.size,
                                               element_size=lambda: 1)

    def get_page_buffer_meta(self, indices):
        pointers = []
        for at in indices[:: self.page_size]:
            page = at // self.page_size
            pointers += [self.memory.address + (2 * page + half) * self.page_bytes for half in (0, 1)]
        return pointers, [self.page_bytes] * len(pointers)


def stub(name, **names):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)


@test("sglang's own file: warm-up, exist, set, get, batches, clear")
def own_file(context):
    module()
    fetch(context.dir)
    stub("torch", Tensor=object)
    stub("requests")
    sys.path.insert(0, context.dir)
    stub("sglang.srt.mem_cache.memory_pool_host", HostKVCache=object)
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

    _, address = context.master()
    config = HiCacheStorageConfig(tp_rank=0, tp_size=1, is_mla_model=False, is_page_first_layout=True, model_name="m",
                                  extra_config={"master_server_address": address, "global_segment_size": 64 * MIB})
    store = MooncakeStore(config)  # sets up and warms up, or raises
    pool = Pool(256)
    store.register_mem_pool_host(pool)
    half = pool.memory.size // 2
    pool.memory.fill(pattern(1, half))
    keys = ["page%064x" % i for i in range(128)]
    first, second = list(range(128 * 64)), list(range(128 * 64, 256 * 64))
    check_equal(store.batch_exists(keys), 0)
    check_equal(store.batch_set_v1(keys[:100], first[: 100 * 64]), [True] * 100)
    check_equal(store.batch_exists(keys), 100)
    check_equal(store.batch_set_v1(keys, first), [True] * 128)
    check_equal(store.batch_get_v1(keys, second), [True] * 128)
    check(pool.memory.bytes(0, half) == pool.memory.bytes(half), "pages differ")
    check_equal(store.batch_get_v1([keys[0], "absent"], second[:128]), [True, False])
    at = pool.memory.address
    check_equal((store.exists("one"), store.set("one", target_location=at, target_sizes=1000), store.exists("one")),
                (False, True, True))
    check_equal(store.get("one", target_location=at + half, target_sizes=1000), True)
    check_equal(store.batch_set(["one", "two"], target_locations=[at, at], target_sizes=[1000, 10]), True)
    check_equal(store.batch_get(["one", "two"], target_locations=[at, at + 1000], target_sizes=[1000, 10]), 1)
    store.clear()
    store.close()


if __name__ == "__main__":
    sys.exit(main())
