#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How values are put at the Python module: each field of ReplicateConfig, values in place of others, tenants."""

import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import check, check_equal, check_in, eventually, main, test
from python_kit import MIB, Memory, metrics, module, open_store, pattern


def config_of(m, **fields):
    config = m.ReplicateConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def segment_of(store, key):
    places = store.get_replica_desc(key)
    check_equal(len(places), 1, key)
    return places[0].get_memory_descriptor().buffer_descriptor.transport_endpoint


@test("values go to the preferred node, by its host name, as long as it has room")
def preferred(context):
    m = module()
    process, address = context.master()
    nodes = [open_store(address, 16 * MIB, local_hostname="localhost:%d" % port) for port in (12401, 12402, 12403)]
    client = open_store(address, 0)
    check_equal([node.get_hostname() for node in nodes], ["localhost:12401", "localhost:12402", "localhost:12403"])

    def on(fields, count=8):
        config = config_of(m, **fields)
        keys = ["%s %d" % (fields, i) for i in range(count)]
        check_equal(client.put_batch(keys, [bytes(100000)] * count, config), 0, m.last_error())
        return {segment_of(client, key) for key in keys}

    # A new node is given nothing before it knows the sessions of the others.
    eventually(lambda: client.remove_all(True) >= 0 and len(on({"preferred_segment": "localhost:12402"})) == 1
               and len(on({"preferred_segment": "localhost:12403"})) == 1, text="nodes that take values")
    check_equal(client.remove_all(True) > 0, True)
    found = [on({"preferred_segment": node.get_hostname()}) for node in nodes]
    check_equal([len(each) for each in found], [1, 1, 1])
    check_equal(len(set.union(*found)), 3, "each in its own")
    check_equal(on({"preferred_segments": ["nowhere:1", nodes[1].get_hostname()]}), found[1])
    check_equal(on({"preferred_segment": nodes[2].get_hostname(), "preferred_segments": [nodes[0].get_hostname()]}), found[2])
    # The keys of one call together.
    check_equal(len(on({"prefer_alloc_in_same_node": True}, 32)), 1)
    # A preferred node that is full, or not there, is no reason to fail.
    before = metrics(process).get("master_put_not_preferred_total", 0)
    check_equal(client.put("elsewhere", b"1", config_of(m, preferred_segment="nowhere:1")), 0, m.last_error())
    check(metrics(process)["master_put_not_preferred_total"] > before, "not counted")
    check_equal(client.put("many", b"1", config_of(m, preferred_segments=["n:%d" % i for i in range(17)])), -600)
    check("16" in m.last_error(), m.last_error())
    check_equal([store.close() for store in [client, *nodes]], [0] * 4)


@test("pinned values outlive the others: soft pins for their time, hard pins until they are removed")
def pins(context):
    m = module()
    _, address = context.master("--lease-ttl", "100ms")
    store = open_store(address, 16 * MIB)
    size = 256 * 1024
    soft = config_of(m, soft_pin_action=m.SoftPinAction.ENABLE)
    old = config_of(m, with_soft_pin=True)
    hard = config_of(m, with_hard_pin=True)
    brief = config_of(m, soft_pin_action=m.SoftPinAction.ENABLE, soft_pin_ttl_ms=0)
    pinned = {"soft": soft, "old name": old, "hard": hard}
    for key, config in pinned.items():
        check_equal(store.put(key, pattern(len(key), size), config), 0, m.last_error())
    check_equal(store.put("brief", pattern(1, size), brief), 0, m.last_error())
    check_equal(store.put("plain", pattern(1, size)), 0)
    for i in range(200):
        check_equal(store.put("fill%d" % i, bytes(size)), 0, m.last_error())
    check_equal(store.batch_is_exist(list(pinned) + ["brief", "plain"]), [1, 1, 1, 0, 0])
    for key in pinned:
        check(store.get(key) == pattern(len(key), size), key)
    # What is pinned hard is more than a segment may have of that: refused, with a code of its own.
    codes = [store.put("hard%d" % i, bytes(size), hard) for i in range(70)]
    check(codes[0] == 0 and codes[-1] == m.ERROR_CODES["YOLK_ERR_PIN_LIMIT"] and set(codes) == {0, codes[-1]}, "%s" % codes)
    check_in("pin", m.last_error())
    kept = [i for i, code in enumerate(codes) if code == 0]
    for i in range(200):
        store.put("again%d" % i, bytes(size))
    check_equal(store.batch_is_exist(["hard%d" % i for i in kept]), [1] * len(kept))
    check_equal(store.put("wrong", b"1", config_of(m, soft_pin_action=m.SoftPinAction.ENABLE, soft_pin_ttl_ms=1 << 62)), -600)
    check_equal((store.remove("hard", True), store.is_exist("hard")), (0, 0))
    check_equal(store.close(), 0)


@test("the keys of a group go together")
def groups(context):
    m = module()
    _, address = context.master("--lease-ttl", "100ms", "--eviction-policy", "lru")
    store = open_store(address, 16 * MIB)
    size = 256 * 1024
    keys = ["g%d" % i for i in range(16)]
    config = config_of(m, group_ids=["group %d" % (i // 4) for i in range(16)])
    check_equal(store.put_batch(keys, [bytes(size)] * 16, config), 0, m.last_error())
    mixed = config_of(m, group_ids=["", None])
    check_equal(store.put_batch(["none1", "none2"], [b"1", b"2"], mixed), 0, m.last_error())
    partly = 0
    for i in range(100):
        check_equal(store.put("fill%d" % i, bytes(size)), 0, m.last_error())
        # A listing is no use of a key.
        listed = context.run("ls", "--master", address)[1].decode().split()
        there = [key in listed for key in keys]
        partly += any(len(set(there[g : g + 4])) > 1 for g in range(0, 16, 4))
    check_equal(partly, 0, "groups of which a part was evicted")
    check_equal(store.batch_is_exist(keys), [0] * 16)
    check_equal(store.put("alone", b"1", config_of(m, group_ids=["a", "b"])), -600)
    check_in("2 group_ids for 1 keys", m.last_error())
    for wrong in ([1], "text", ["a\0b"], 3):
        try:
            store.put("k", b"1", config_of(m, group_ids=wrong))
        except TypeError:
            continue
        check(False, "group_ids = %r" % (wrong,))
    check_equal(store.put("k", b"1", config_of(m, group_ids=["x" * 256])), -600)
    check_equal(store.close(), 0)


@test("fields of which nothing can be kept are refused with a sentence, and the object is read anew each time")
def refused(context):
    m = module()
    _, address = context.master()
    store = open_store(address)
    for fields, code, words in (({"nof_replica_num": 1}, -1012, "nof_replica_num"), ({"dfs_replica_num": 1}, -1012, "dfs_replica_num"),
                                ({"preferred_nof_segments": ["a"]}, -1012, "preferred_nof_segments"),
                                ({"replica_num": 0}, -600, "1 to 4"), ({"replica_num": 5}, -600, "1 to 4")):
        check_equal(store.put("k", b"1", config_of(m, **fields)), code, str(fields))
        check_in(words, m.last_error(), str(fields))
        check_equal(store.batch_put_from(["k", "l"], [0, 0], [0, 0], config_of(m, **fields)), [code] * 2, str(fields))
    check_equal(store.is_exist("k"), 0)
    for fields in ({"replica_num": "2"}, {"replica_num": -1}, {"soft_pin_action": 7}, {"preferred_segment": 1},
                   {"preferred_segments": "text"}, {"preferred_segments": [1]}, {"preferred_segment": "a\0"}):
        try:
            store.put("k", b"1", config_of(m, **fields))
        except TypeError:
            continue
        check(False, "%s is taken" % fields)
    for wrong in (object(), 1, {"replica_num": 1}):
        try:
            store.put("k", b"1", wrong)
        except (TypeError, AttributeError):
            continue
        check(False, "%r is taken for a configuration" % (wrong,))
    config = config_of(m, nof_replica_num=1)
    check_equal(store.put("k", b"1", config), -1012)
    config.nof_replica_num = 0
    check_equal(store.put("k", b"1", config), 0, m.last_error())
    check_equal(store.put("data", b"1", config_of(m, data_type=m.ObjectDataType.KVCACHE)), 0)
    check_equal(store.close(), 0)


@test("values in the place of others: the old one or the new one, whole, in each way to put them")
def upsert(context):
    m = module()
    process, address = context.master()
    store, other = open_store(address), open_store(address, 0)
    memory = Memory(300)
    memory.fill(pattern(9, 300))
    at = memory.address
    check_equal(store.upsert("new", b"1"), 0, m.last_error())
    check_equal((store.get("new"), store.put("new", b"2"), store.get("new")), (b"1", 0, b"1"))
    check_equal((store.upsert("new", b"three"), other.get("new"), other.get_size("new")), (0, b"three", 5))
    check_equal((store.upsert_parts("new", b"a", b"", b"bc"), other.get("new")), (0, b"abc"))
    check_equal((store.upsert_from("new", at, 300), other.get("new")), (0, pattern(9, 300)))
    check_equal((store.upsert_batch(["new", "x"], [b"n", b"x"]), other.get_batch(["new", "x"])), (0, [b"n", b"x"]))
    got = store.batch_upsert_from(["new", "x", "new", ""], [at, at + 100, at + 200, at], [100, 100, 50, 1])
    check_equal(got, [0, 0, 0, -600])
    check_equal(other.get_batch(["new", "x"]), [pattern(9, 300)[200:250], pattern(9, 300)[100:200]])
    check_equal((store.upsert("new", b""), other.get_size("new"), other.is_exist("new")), (0, 0, 1))
    # Who reads the old one in place goes on reading it.
    check_equal(store.upsert("held", pattern(1, 50000)), 0)
    handle = store.get_buffer("held")
    check_equal(store.upsert("held", pattern(2, 60000)), 0, m.last_error())
    check_equal((bytes(memoryview(handle)) == pattern(1, 50000), store.get("held") == pattern(2, 60000)), (True, True))
    del handle
    # Readers and writers at once.
    values = [pattern(i, 100000 + i) for i in range(16)]
    check_equal(store.upsert("hot", values[0]), 0)
    wrong, stop = [], threading.Event()

    def read(reader):
        room = Memory(200000)
        while not stop.is_set():
            size = reader.get_into("hot", room.address, 200000)
            if size < 0 or room.bytes(0, size) != values[size - 100000]:
                wrong.append(size)

    threads = [threading.Thread(target=read, args=(reader,)) for reader in (store, other) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(200):
        code = store.upsert("hot", values[i % 16])
        if code != 0:
            wrong.append(code)
    stop.set()
    for thread in threads:
        thread.join()
    check_equal(wrong, [])
    check_equal(store.remove_all(True), 4)
    check_equal(metrics(process)["master_key_count"], 0)
    check_equal((other.close(), store.close(), store.upsert("k", b""), store.upsert_batch(["k"], [b""])), (0, 0, -600, -600))
    check_equal(store.batch_upsert_from(["k"], [at], [1]), [-600])


if __name__ == "__main__":
    sys.exit(main())
