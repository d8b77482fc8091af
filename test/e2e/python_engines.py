#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the store connectors of three serving engines call, in their order and with their sizes or a known part of
them: recorded from reading vLLM's store worker, SGLang's HiCache back end and LMCache's remote connector."""

import asyncio
import ctypes
import hashlib
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, check_in, free_port, main, test
from python_kit import MIB, Memory, available_bytes, module, open_store, pattern


def hash_of(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


def vllm_key(block, rank=0):
    return "Llama-3.1-8B-Instruct@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:0@%s" % (rank, hash_of(block))


@test("vllm: 32768 scatter entries a put, load threads, lookups of 65536 keys")
def vllm(context):
    m = module()
    _, address = context.master()
    store = m.MooncakeDistributedStore()
    # Llama-8B: K and V of 32 layers, 32 KiB of each in a block of 16 tokens, 512 new blocks in a step: 1 GiB.
    blocks, layers, piece = 512, 64, 32768
    if available_bytes() < 6 << 30:
        raise Skip("it takes 6 GiB of memory")
    segment = blocks * layers * piece * 5 // 4
    check_equal(store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 * MIB, "tcp", "", address), 0, m.last_error())
    # One registration of the whole cache; blocks are pieces at their place in each of 64 layer tensors.
    cache = Memory(2 * blocks * layers * piece)
    check_equal(store.register_buffer(cache.address, cache.size), 0, m.last_error())
    unit = pattern(1, 61 * MIB + 24)  # of no size that a wrong place could be a multiple of
    for at in range(0, cache.size // 2, len(unit)):
        cache.fill(unit[: min(len(unit), cache.size // 2 - at)], at)

    def places(block, half):
        return [cache.address + half * (cache.size // 2) + (layer * blocks + block) * piece for layer in range(layers)]

    keys = [vllm_key(block) for block in range(blocks)]
    sizes = [[piece] * layers for _ in range(blocks)]
    config = m.ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    check_equal(store.batch_is_exist(keys), [0] * blocks)
    first = [places(block, 0) for block in range(blocks)]
    check_equal(store.batch_put_from_multi_buffers(keys, first, sizes, config), [0] * blocks)
    check_equal(store.batch_is_exist(keys), [1] * blocks)
    # Loading threads share the store and a queue; each has its keys rotated by the rank.
    work, failed = queue.SimpleQueue(), []
    for start in range(0, blocks, 64):
        work.put([(start + (i + 3) % 64) for i in range(64)])

    def load():
        while True:
            try:
                chosen = work.get_nowait()
            except queue.Empty:
                return
            got = store.batch_get_into_multi_buffers([keys[b] for b in chosen], [places(b, 1) for b in chosen],
                                                     [sizes[b] for b in chosen])
            failed.extend(b for b, size in zip(chosen, got) if size != layers * piece)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_equal(failed, [])
    compare = ctypes.CDLL(None).memcmp
    half = cache.size // 2
    differ = compare(ctypes.c_void_p(cache.address), ctypes.c_void_p(cache.address + half), ctypes.c_size_t(half))
    check_equal(differ, 0, "loaded blocks differ from those saved")
    # A block that is not there is a negative number at its place, and vLLM computes it.
    got = store.batch_get_into_multi_buffers([keys[0], vllm_key(9999), keys[1]], [places(b, 1) for b in (0, 1, 2)], sizes[:3])
    check_equal(got, [layers * piece, -704, layers * piece])
    # The scheduler looks up every block of 128k tokens for each of 8 ranks.
    wanted = [vllm_key(block, rank) for block in range(8192) for rank in range(8)]
    start = time.monotonic()
    found = store.batch_is_exist(wanted)
    print("# %d keys of %d bytes looked up in %.0f ms" % (len(wanted), len(wanted[0]), (time.monotonic() - start) * 1e3))
    check_equal((len(found), sum(found), set(found)), (65536, blocks, {0, 1}))
    descriptors = store.batch_get_replica_desc([keys[0], vllm_key(9999)])
    check_equal(list(descriptors), [keys[0]])
    check(descriptors[keys[0]][0].is_memory_replica(), "not in memory")
    check_equal(store.remove_all(force=True), blocks)
    check_equal(store.unregister_buffer(cache.address), 0)
    check_equal(store.close(), 0)


@test("vllm: a full store says -200, and is of use again when there is room")
def vllm_pressure(context):
    m = module()
    _, address = context.master()
    store = open_store(address, 16 * MIB, put_wait_ms=50)
    memory = Memory(MIB)
    keys = [vllm_key(block) for block in range(32)]
    held = []
    for key in keys:
        check_equal(store.batch_put_from_multi_buffers([key], [[memory.address]], [[MIB]]), [0])
        handle = store.get_buffer(key)
        if handle is None:
            break  # it was the only one not being read, and so it went
        held.append(handle)
    check(8 <= len(held) <= 16, "%d of 16 MiB are in use" % len(held))
    got = store.batch_put_from_multi_buffers(["large"], [[memory.address] * 8], [[MIB] * 8])
    check_equal(got, [-200], m.last_error())
    check_in("no segment has room", m.last_error())
    held.clear()
    check_equal(store.remove_all(force=True) > 0, True)
    check_equal(store.batch_put_from_multi_buffers(keys[-1:], [[memory.address]], [[MIB]]), [0], m.last_error())
    check_equal(store.close(), 0)


@test("sglang: set-up with keywords it tries, warm-up, pages of two keys, clear")
def sglang(context):
    m = module()
    _, address = context.master()
    store = m.MooncakeDistributedStore()
    # What this version does not know is tried once and left out, going by the text of the TypeError.
    extra = {"enable_ssd_offload": False, "tenant_id": "default", "a_later_option": 1}
    for _ in range(2):
        try:
            code = store.setup("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, 16 * MIB, "tcp", "", address, None, **extra)
            break
        except TypeError as error:
            unknown = [name for name in extra if name in str(error)]
            check_equal(unknown, ["a_later_option"], str(error))
            extra.pop(unknown[0])
    check_equal(code, 0, m.last_error())
    warm = "sglang_mooncake_store_warmup_key" + hash_of(1)
    check_equal(store.put(warm, bytes(4096)), 0)
    check_equal(store.is_exist(warm), 1)
    check_equal(store.get(warm), bytes(4096))
    # 128 pages, a key for K and one for V each, from the host's pool.
    page, keys = 16384, []
    pool = Memory(2 * 256 * page)
    check_equal(store.register_buffer(pool.address, pool.size), 0)
    pool.fill(pattern(2, 256 * page))
    for i in range(128):
        keys += ["Qwen3-8B_%s_0_k" % hash_of(i), "Qwen3-8B_%s_0_v" % hash_of(i)]
    pointers = [pool.address + i * page for i in range(256)]
    config = m.ReplicateConfig()
    config.group_ids = ["sglang-hicache:%s" % key[:-2] for key in keys[:100]]
    check_equal(store.batch_is_exist(keys), [0] * 256)
    check_equal(store.batch_put_from(keys[:100], pointers[:100], [page] * 100, config), [0] * 100)
    exist = store.batch_is_exist(keys)
    missing = [i for i in range(256) if exist[i] != 1]
    check_equal(missing, list(range(100, 256)))
    got = store.batch_put_from([keys[i] for i in missing], [pointers[i] for i in missing], [page] * 156)
    check_equal(got, [0] * 156)
    # A prefix: the first failure ends it.
    target = [pool.address + (256 + i) * page for i in range(256)]
    got = store.batch_get_into(keys[:200] + ["absent"] + keys[201:], target, [page] * 256)
    check_equal((got[:200], got[200]), ([page] * 200, -704))
    check_equal(store.batch_get_into(keys, target, [page] * 256), [page] * 256)
    check(pool.bytes(0, 256 * page) == pool.bytes(256 * page), "pages differ")
    # Embeddings of varying size, without a configuration.
    sizes = [[1000, 24], [7], [50000]]
    pieces = [[pointers[0], pointers[1]], [pointers[2]], [pointers[3]]]
    check_equal(store.batch_put_from_multi_buffers(["emb_1", "emb_2", "emb_3"], pieces, sizes), [0, 0, 0])
    check_equal(store.batch_get_into_multi_buffers(["emb_1", "emb_3"], [pieces[0], pieces[2]], [sizes[0], sizes[2]]), [1024, 50000])
    removed = store.remove_all()  # what was just read is leased
    check(removed >= 0, m.last_error())
    check_equal(removed + store.remove_all(force=True), 260)
    # It never closes its store: the end of the object does.
    del store
    again = open_store(address)
    check_equal(again.close(), 0)


@test("lmcache: a failed set-up, both ways to keep metadata, exist in an event loop, a client without memory")
def lmcache(context):
    m = module()
    _, address = context.master()
    failed = m.MooncakeDistributedStore()
    failed.setup({"master_server_addr": "127.0.0.1:%d" % free_port(), "timeout_ms": 300})  # the result is not looked at
    check_in("127.0.0.1", m.last_error())
    check_equal((failed.put_parts("k", b"1", b"2"), failed.is_exist("k"), failed.batch_get_buffer(["k", "l"]),
                 failed.batch_get_into(["k"], [0], [0]), failed.close()), (-600, -600, [None, None], [-600], 0))

    store = m.MooncakeDistributedStore()
    check_equal(store.setup("localhost", "P2PHANDSHAKE", 256 * MIB, 64 * MIB, "tcp", "", address), 0, m.last_error())
    chunk = 32 * MIB  # 256 tokens of Llama-8B
    pool = Memory(4 * chunk)
    check_equal(store.register_buffer(pool.address, pool.size), 0)
    keys = ["meta/llama@2@%d@%s@bfloat16" % (i, hash_of(i)) for i in range(4)]

    async def with_metadata():
        meta, values = b"\x01" * 28, [pattern(i, chunk) for i in range(2)]
        for key, value in zip(keys, values):
            check_equal(store.is_exist(key), 0)
            check_equal(await asyncio.to_thread(store.put_parts, key, meta, memoryview(value)), 0)
            check_equal(store.is_exist(key), 1)
        found = await asyncio.to_thread(store.batch_get_buffer, keys[:2] + ["absent"])
        check_equal(found[2], None)
        for handle, value in zip(found, values):
            view = memoryview(handle)
            check_equal((bytes(view[:28]), view[28:] == value), (meta, True))

    async def without_metadata():
        config = m.ReplicateConfig()
        config.preferred_segment = store.get_hostname()
        pool.fill(pattern(7, chunk) + pattern(8, chunk // 2))
        at = pool.address
        check_equal(await asyncio.to_thread(store.put_from, keys[2], at, chunk, config), 0)
        check_equal(await asyncio.to_thread(store.batch_put_from, keys[3:], [at + chunk], [chunk // 2], config), [0])
        # The last chunk is shorter than its buffer.
        got = await asyncio.to_thread(store.batch_get_into, keys[2:] + ["absent"], [at + 2 * chunk, at + 3 * chunk, at],
                                      [chunk, chunk, chunk])
        check_equal(got, [chunk, chunk // 2, -704])
        check(pool.bytes(2 * chunk, chunk + chunk // 2) == pool.bytes(0, chunk + chunk // 2), "chunks differ")

    asyncio.run(with_metadata())
    asyncio.run(without_metadata())
    # The scheduler's client gives no memory.
    lookup = m.MooncakeDistributedStore()
    check_equal(lookup.setup("localhost", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", address), 0, m.last_error())
    check_equal(lookup.batch_is_exist(keys + ["absent"]), [1, 1, 1, 1, 0])
    check_equal((lookup.close(), store.unregister_buffer(pool.address), store.close()), (0, 0, 0))


if __name__ == "__main__":
    sys.exit(main())
