#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How values are put at the Python module: each field of ReplicateConfig, values in place of others, tenants."""

import ctypes
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import check, check_equal, check_in, eventually, main, test, yolk_path
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
    check_in("soft-pin-ttl-max", m.last_error(), "the master's own words")
    for wrong in (5, "x", {}):
        try:
            store.put("wrong", b"1", wrong)
            check(False, "a config of %r" % wrong)
        except TypeError as error:
            check_in("ReplicateConfig", str(error))
    check_equal(store.put("wrong", b"1", config_of(m, replica_num=1 << 40)), -600)
    check_in("replica_num", m.last_error())
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


@test("tenants: keys do not meet, quotas hold, who is not known is not let in")
def tenants(context):
    m = module()
    process, address = context.master("--tenants", "one=8MiB,two=8MiB,default=32MiB")
    node = open_store(address, 64 * MIB)
    one, two = open_store(address, 0, tenant_id="one", put_wait_ms=50), open_store(address, 0, tenant_id="two", put_wait_ms=50)
    stores = {"default": node, "one": one, "two": two}
    for name, store in stores.items():
        check_equal(store.put("key", name.encode()), 0, m.last_error())
    check_equal([store.get("key") for store in stores.values()], [name.encode() for name in stores])
    check_equal((one.remove("key", True), one.is_exist("key"), two.is_exist("key")), (0, 0, 1))
    check_equal((two.remove_all(True), two.get("key"), node.get("key")), (1, b"", b"default"))
    check_equal((one.put("a", b"1"), one.put("b", b"1"), two.put("a", b"2"), one.remove_by_regex("^a$", True)), (0, 0, 0, 1))
    check_equal((two.get("a"), one.get("b")), (b"2", b"1"))
    # What is being read cannot make room: the quota says no, with its own code. Others are not touched by that.
    held = []
    codes = []
    for i in range(20):
        codes.append(one.put("large%d" % i, bytes(MIB)))
        said = m.last_error()
        held.append(one.get_buffer("large%d" % i))
    quota = m.ERROR_CODES["YOLK_ERR_QUOTA"]
    check_equal((quota, set(codes), codes[0]), (-1700, {0, quota}, 0))
    check_in("quota", said)
    there = [one.is_exist("large%d" % i) for i in range(20)]
    check_equal(there, [1 if code == 0 else 0 for code in codes], "what was told as done is there")
    check_equal(two.put("large", bytes(4 * MIB)), 0, m.last_error())
    held.clear()
    eventually(lambda: one.put("again", bytes(MIB)) == 0, text="room in the quota")
    other = m.MooncakeDistributedStore()
    check_equal(other.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", address, tenant_id="three"), -1701)
    check_in("tenant", m.last_error())
    check_equal([store.close() for store in (one, two, node)], [0] * 3)


@test("clients without memory of their own join through one on this machine")
def dummy(context):
    m = module()
    _, address = context.master()
    node = context.node(address, "--clients-listen", "127.0.0.1:0", dram="64MiB")
    server = "127.0.0.1:" + node.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    store = m.MooncakeDistributedStore()
    check_equal(store.setup_dummy(8 * MIB, 16 * MIB, server), 0, m.last_error())
    check(":" in store.get_hostname(), store.get_hostname())
    check_equal((store.setup_dummy(0, 0, server), store.health_check()), (-600, 0))
    check_equal((store.put("k", b"value"), store.is_exist("k"), store.get("k")), (0, 1, b"value"), m.last_error())
    # Memory of the pool, of the allocator and of nobody in particular.
    pool, allocator, plain = store.alloc_from_mem_pool(2 * MIB), m.MooncakeHostMemAllocator(), Memory(MIB)
    check(pool != 0 and pool % 4096 == 0, "address %d: %s" % (pool, m.last_error()))
    own = allocator.alloc(MIB)
    check_equal((store.register_buffer(own, MIB), store.register_buffer(plain.address, MIB)), (0, 0), m.last_error())
    for name, at in (("pool", pool), ("own", own), ("plain", plain.address)):
        ctypes.memmove(at, pattern(len(name), 100000), 100000)
        check_equal(store.put_from(name, at, 100000), 0, m.last_error())
        ctypes.memset(at, 0, 100000)
        check_equal(store.get_into(name, at, 100000), 100000, m.last_error())
        check(ctypes.string_at(at, 100000) == pattern(len(name), 100000), name)
    check(store.alloc_from_mem_pool(6 * MIB) != 0, m.last_error())
    check_equal(store.alloc_from_mem_pool(1), 0)
    check_in("pool has 0 bytes left", m.last_error())
    # It gives no memory: its values stay when it goes; another client sees them.
    other = open_store(address, 0)
    check_equal((store.unregister_buffer(own), store.unregister_buffer(plain.address), store.close()), (0, 0, 0))
    check_equal((other.get("k"), other.alloc_from_mem_pool(1), allocator.free(own)), (b"value", 0, 0))
    check_equal((store.alloc_from_mem_pool(1), store.put("k", b"")), (0, -600))
    # 0 bytes of local buffer refuse what is copied.
    check_equal((store.setup_dummy("1MB", 0, server), store.put("x", b"1")), (0, -600))
    check_equal((store.put_from("x", store.alloc_from_mem_pool(10), 10), store.close(), other.close()), (0, 0, 0))


@test("c159 what keeps a client from joining through another is said, each in its own words")
def dummy_refusals(context):
    m = module()
    secret = context.write("secret", b"0123456789abcdef0123456789abcdef")
    os.chmod(secret, 0o600)
    master, address = context.master()
    guarded_master, _ = context.master("--secret-file", secret)
    guarded_address = "127.0.0.1:" + guarded_master.address.rsplit(":", 1)[1]
    node = context.node(address, "--clients-listen", "127.0.0.1:0", dram="16MiB")
    guarded = context.node(guarded_address, "--secret-file", secret, "--clients-listen", "127.0.0.1:0", dram="16MiB")
    port = node.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    guarded_port = guarded.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    store = m.MooncakeDistributedStore()
    said = {}

    def fails(name, code, *arguments):
        got = store.setup_dummy(*arguments)
        check_equal(got, code, name + ": " + m.last_error())
        said[name] = m.last_error()

    fails("no address", -600, MIB, MIB, "")
    fails("no port", -600, MIB, MIB, "127.0.0.1")
    fails("a size", -600, "lots", MIB, "127.0.0.1:" + port)
    fails("a secret", -601, MIB, MIB, "127.0.0.1:" + guarded_port)
    fails("a pool larger than any", -600, 1 << 50, MIB, "127.0.0.1:" + port)
    check_in("127.0.0.1:" + guarded_port, said["a secret"])
    # How long it may take is the environment's: there is no place for it among the arguments.
    node.signal(signal.SIGSTOP)
    os.environ["YOLK_TIMEOUT"], begun = "1500ms", time.monotonic()
    fails("nobody answers", -901, MIB, MIB, "127.0.0.1:" + port)
    took = time.monotonic() - begun
    check(took < 10, "%.1f s" % took)
    os.environ["YOLK_TIMEOUT"] = "soon"
    fails("a time", -600, MIB, MIB, "127.0.0.1:" + port)
    check_in("YOLK_TIMEOUT is 'soon'", said["a time"])
    del os.environ["YOLK_TIMEOUT"]
    node.signal(signal.SIGCONT)
    check_equal(len(set(said.values())), len(said), "%s" % said)
    # A port that is taken, at the program under upstream's name; the default one is nobody's wish.
    taken = context.start(os.path.join(os.path.dirname(yolk_path()), "mooncake_client"), "--master_server_address", address,
                          "--global_segment_size", "16MB", "--port", str(master.admin_port))
    check(taken.wait() != 0, taken.output())
    check("Address already in use" in taken.output() and str(master.admin_port) in taken.output(), taken.output())
    served = context.start(os.path.join(os.path.dirname(yolk_path()), "mooncake_client"), "--master_server_address", address,
                           "--global_segment_size", "16MB", "--port", "0")
    at = served.wait_line(r"dummy clients.* port ([0-9]+)").group(1)
    check_equal((store.setup_dummy(MIB, MIB, "127.0.0.1:" + at), store.close()), (0, 0), m.last_error())
    # On the other side too, and nothing of GPUs where there are none.
    check_equal(store.setup_dummy(MIB, MIB, "127.0.0.1:" + port), 0, m.last_error())
    check_equal(store.close(), 0)
    for process in (node, guarded, master):
        check(not any(word in process.output().lower() for word in ("cuda", "gpu")), process.output())


if __name__ == "__main__":
    sys.exit(main())
