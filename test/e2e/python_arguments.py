#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module given what it should not be given, and told to wait for what does not come: each method and argument."""

import copy
import ctypes
import gc
import inspect
import mmap
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import urllib.request
import weakref

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import check, check_equal, check_in, eventually, main, test
from python_kit import MIB, Memory, available_bytes, module, open_store

GOOD = {"key": "k", "keys": ["k"], "value": b"", "values": [b""], "buffer_ptr": 0, "size": 0, "buffer_ptrs": [0], "sizes": [0],
        "all_buffer_ptrs": [[0]], "all_sizes": [[0]], "config": None, "force": False, "prefer_alloc_in_same_node": False,
        "regex_pattern": "a+", "segment_name": "", "all_keys": [["k"]], "all_dst_offsets": [[[0]]], "all_src_offsets": [[[0]]]}
ODD = [None, 1.5, "x", b"x", object(), [1], {}, -1, 1 << 70, True]


def arguments_of(name, method):
    given = {p: GOOD[p] for p in inspect.signature(method).parameters}
    if name == "get_into_ranges":
        given["all_sizes"] = [[[0]]]
    return given


def nested(value, odd):
    """The odd value in place of the good one, and as what lies in it."""
    return [odd] + ([[each] for each in nested(value[0], odd)] if isinstance(value, list) else [])


@test("whatever is wrong with an argument, the TypeError names it, and nothing else is raised")
def wrong_types(context):
    m = module()
    _, address = context.master()
    tried = 0
    for store in (m.MooncakeDistributedStore(), open_store(address, 16 * MIB)):
        for name in sorted(n for n in dir(m.MooncakeDistributedStore) if not n.startswith("_")):
            method = getattr(store, name)
            if name in ("setup", "setup_dummy", "close", "health_check", "get_hostname", "get_device_buffer"):
                continue
            if name in ("put_parts", "upsert_parts"):
                for odd in (None, 1.5, "x", object(), [1], memoryview(b"abcd")[::2]):
                    try:
                        method("k", b"x", odd)
                    except TypeError as error:
                        check_in("parts", str(error), name)
                continue
            if name == "alloc_from_mem_pool":
                given = {"size": 0}
            else:
                given = arguments_of(name, method)
            for argument, value in given.items():
                for odd in ODD:
                    for wrong in nested(value, odd):
                        tried += 1
                        text = "%s(%s=%.40r)" % (name, argument, wrong)
                        try:
                            method(**{**given, argument: wrong})
                        except TypeError as error:
                            check_in(argument.rstrip("s"), str(error), text)
                        except Exception as error:
                            check(False, "%s raised %r" % (text, error))
    check(tried > 1000, tried)


def place_of(engine, length):
    address = engine.allocate_managed_buffer(length)
    check(address > 0, module().last_error())
    return address


@test("engine: whatever is wrong with an argument, the TypeError names it; whatever is refused has a sentence of its own")
def wrong_types_engine(context):
    m = module()
    from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

    engines = TransferEngine(), TransferEngine()
    check_equal(engines[1].initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0, m.last_error())
    here = place_of(engines[1], 4096)
    name = "127.0.0.1:%d" % engines[1].get_rpc_port()
    good = {"target_hostname": name, "buffer": here, "peer_buffer_address": here + 64, "length": 8, "opcode": TransferOpcode.Write,
            "notify": None, "transport_hint": "", "buffers": [here], "peer_buffer_addresses": [here + 64], "lengths": [8],
            "batch_ids": [1], "batch_id": 1, "buffer_addr": here, "capacity": 4096, "location": "*", "buffer_addresses": [here],
            "capacities": [4096], "dest_address": here, "src_ptr": b"abcdefgh", "source_address": here, "segment_name": name,
            "peer_server_name": name, "device_name": "", "name": "tcp", "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
            "protocol": "tcp", "metadata_type": ""}
    fresh, tried = "127.0.0.1:1", 0
    odds = [odd for odd in ODD if odd is not True and odd != [1]] + ["a\0b"]  # True is the number 1, where no memory is
    for engine in engines:  # the first begins by a device_name of None
        for called in sorted(n for n in dir(TransferEngine) if not n.startswith("_")):
            method = getattr(engine, called)
            places = list(inspect.signature(method).parameters)
            for argument in places if called != "get_rpc_port" else ():
                for wrong in [each for odd in odds for each in nested(good[argument], odd)]:
                    check(engines[1].send_probe(fresh) < 0)
                    before, text = m.last_error(), "%s(%s=%.40r)" % (called, argument, wrong)
                    given = {**good, argument: wrong}
                    tried += 1
                    try:
                        got = method(given["name"]) if called == "has_transport" else method(**{p: given[p] for p in places})
                        if isinstance(got, int) and got < 0:
                            check(m.last_error() != before, "%s: %d without a sentence" % (text, got))
                    except TypeError as error:
                        named = {"target_hostname": "peer", "segment_name": "peer", "peer_server_name": "peer", "buffer": "buffers",
                                 "peer_buffer_address": "peer_buffer_addresses", "length": "length"}.get(argument, argument.rstrip("s"))
                        check_in(named, str(error), text)
                    except ValueError as error:
                        check("transport_hint" in str(error) or "there is no memory" in str(error), "%s raised %r" % (text, error))
                    except Exception as error:
                        check(False, "%s raised %r" % (text, error))
    check(tried > 500, tried)
    engine = engines[1]
    check(engine.allocate_managed_buffer(8) > 0, "it still works")
    # Numbers that only look wrong are of the engine's table; what was refused left nothing behind.
    memory = Memory(8192)
    check_equal(engine.batch_register_memory([1, 2], [3]), -1)
    for wrong in ([memory.address, "x"], [memory.address, -1]):
        try:
            engine.batch_register_memory(wrong, [4096, 4096])
        except TypeError:
            check_equal(engine.unregister_memory(memory.address), -3, "all or none")
            continue
        check(False, wrong)
    for notify in (3, TransferNotify(5, "x"), TransferNotify("x", None)):
        try:
            engine.transfer_sync(name, here, here + 64, 8, TransferOpcode.Write, notify)
        except TypeError as error:
            check_in("notify", str(error))
            continue
        check(False, notify)
    # ctypes.string_at() would have taken 2**32 + 5 for 5.
    for length in ((1 << 62), (1 << 63) + 5, (1 << 64) - 1):
        try:
            check(False, "%d bytes" % len(engine.read_bytes_from_buffer(here, length)))
        except (MemoryError, ValueError):
            pass
    if available_bytes() > 6 << 30:
        far = mmap.mmap(-1, (1 << 31) + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(far))
        far[(1 << 31) + 5] = 7
        check_equal((len(got := engine.read_bytes_from_buffer(start, (1 << 31) + 6)), got[-2:]), ((1 << 31) + 6, b"\0\7"))


@test("each field of a ReplicateConfig that is wrong is named; nothing is put")
def wrong_configs(context):
    m = module()
    _, address = context.master()
    store = open_store(address, 16 * MIB)
    for field, value, code in (
            ("replica_num", -1, None), ("replica_num", "2", None), ("replica_num", None, None), ("replica_num", 0, -600),
            ("replica_num", 5, -600), ("replica_num", 1 << 40, -600), ("nof_replica_num", "x", None), ("nof_replica_num", 1, -1012),
            ("dfs_replica_num", 1, -1012), ("soft_pin_action", 7, None), ("soft_pin_action", None, None),
            ("preferred_segment", 5, None), ("preferred_segment", "a\0", None), ("preferred_segments", "abc", None),
            ("preferred_segments", [5], None), ("group_ids", "abc", None), ("group_ids", [5], None), ("group_ids", ["\0"], None),
            ("group_ids", ["a", "b"], -600), ("group_ids", ["x" * 300], -600), ("preferred_segment", "x" * 300, -600),
            ("preferred_nof_segments", ["a"], -1012), ("preferred_nof_segments", 5, None)):
        config = m.ReplicateConfig()
        setattr(config, field, value)
        text = "%s = %r" % (field, value)
        try:
            check_equal(store.put("k", b"v", config), code, text)
        except TypeError as error:
            check(code is None, "%s: %s" % (text, error))
            check_in(field.rstrip("s").replace("_segment", ""), str(error).replace("_segment", ""), text)
        check_equal(store.is_exist("k"), 0, text)
    config = m.ReplicateConfig()
    for wrong in (1.5, "5", -1, 1 << 64):
        try:
            config.soft_pin_ttl_ms = wrong
        except TypeError as error:
            check_in("soft_pin_ttl_ms", str(error))
            continue
        check(False, "soft_pin_ttl_ms = %r" % wrong)


class Index:
    """A number as numpy and torch have them."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@test("numbers that are none of Python's own, and bytes in whatever holds them, are taken")
def like_numbers(context):
    m = module()
    _, address = context.master()
    memory = Memory(64)
    memory.fill(bytes(range(64)))
    store = m.MooncakeDistributedStore()
    check_equal(store.setup("", "P2PHANDSHAKE", Index(16 * MIB), Index(MIB), "tcp", "", address), 0, m.last_error())
    at, size = Index(memory.address), Index(8)
    check_equal((store.register_buffer(at, Index(64)), store.put_from("a", at, size), store.batch_put_from(("b",), (at,), (size,)),
                 store.batch_put_from_multi_buffers(("c",), ((at, at),), ((size, size),)), store.get_into("a", at, size),
                 store.batch_get_into({"b": 0}, [at], (n for n in [size])), store.unregister_buffer(at)),
                (0, 0, [0], [0], 8, [8], 0), m.last_error())
    config = m.ReplicateConfig()
    config.replica_num, config.soft_pin_ttl_ms = Index(1), Index(5)
    for i, value in enumerate((b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], (ctypes.c_char * 3)(*b"abc"))):
        check_equal((store.put("v%d" % i, value, config), store.get("v%d" % i)), (0, b"abc"))
    check_equal(store.batch_replica_clear(key for key in ("no", "such")), [])
    check_equal((store.put_parts("none"), store.get_size("none"), store.put_parts("some", b"", b"a", b"", b"b"), store.get("some")),
                (0, 0, 0, b"ab"))


@test("keys of every kind: what was put under one is found under it alone")
def odd_keys(context):
    _, address = context.master()
    store = open_store(address, 16 * MIB)
    keys = ["\0", "a", "a\0", "a\0b", "a\nb", " ", "%s%n", "../../etc/passwd", "ключ/%@:-_", "\U0001f642" * 1024, "x" * 4096, "x" * 4095, "A"]
    check_equal(store.put_batch(keys, [key.encode() for key in keys]), 0)
    check_equal(store.get_batch(keys), [key.encode() for key in keys])
    check_equal(store.batch_is_exist([key + "!" for key in keys[:8]]), [0] * 8)
    check_equal(sorted(store._keys()), sorted(keys))
    for key in keys:
        check_equal(store.remove_by_regex("^%s$" % re.escape(key) if "\n" not in key else "a\nb", True), 1, repr(key[:20]))
    for key in ("", "x" * 4097, "é" * 2049):
        check_equal((store.put(key, b""), store.is_exist(key), store.get(key), store.get_size(key), store.remove(key),
                     store.batch_is_exist([key, "good"])), (-600, -600, b"", -600, -600, [-600, 0]), repr(key[:5]))
    try:
        store.put("\ud800", b"")
    except UnicodeEncodeError:
        return
    check(False, "half a surrogate pair is a key")


@test("whatever setup() is given, it answers or raises a TypeError that names it")
def odd_setups(context):
    m = module()
    _, address = context.master()
    good = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0, "local_buffer_size": MIB,
            "protocol": "tcp", "rdma_devices": "", "master_server_addr": address, "engine": None, "enable_ssd_offload": False,
            "ssd_offload_path": "", "tenant_id": "default", "enable_client_http_server": False, "client_http_port": 9300}
    huge = "9" * 400 + ".5", "9" * 5000, "-1", "", "1..5MB", "5 PB", -1, 1 << 70
    refused = [(name, value) for name in ("global_segment_size", "local_buffer_size") for value in huge]
    refused += [("local_hostname", value) for value in ("localhost:\u00b2", "localhost:" + "9" * 5000, "localhost:", "h:0", "[::1", "a\0b",
                                                         "\ud800", "x" * 5000)]
    refused += [("master_server_addr", value) for value in ("", None, "127.0.0.1", "127.0.0.1:99999", "a\0b:5", "\ud800:1",
                                                            "etcd://127.0.0.1:2379", "http://" + address)]
    refused += [("tenant_id", value) for value in ("a\0", "_x", "x" * 1000)]
    refused += [("client_http_port", "x"), ("client_http_port", 65536), ("enable_ssd_offload", "maybe")]
    wrong = [(name, value) for name in good for value in (5, b"x") if isinstance(good[name], str) and name != "ssd_offload_path"]
    wrong += [(name, value) for name in ("global_segment_size", "local_buffer_size", "client_http_port")
              for value in (None, 1.5, True, b"1", [])]
    for name, value in refused:
        store = m.MooncakeDistributedStore()
        check_equal(store.setup(**{**good, name: value}), -600, "%s=%.40r" % (name, value))
        words = {"master_server_addr": ("host:port", "port", name), "tenant_id": ("tenant",)}.get(name, (name,))
        check(any(word in m.last_error() for word in words), "%s=%.40r: %s" % (name, value, m.last_error()))
        check_equal((store.get_hostname(), store.close()), ("", 0))
    for name, value in wrong:
        try:
            m.MooncakeDistributedStore().setup(**{**good, name: value})
        except TypeError as error:
            check_in(name, str(error))
            continue
        check(False, "%s=%r is taken" % (name, value))
    check_equal(m.MooncakeDistributedStore().setup(**{**good, "ssd_offload_path": "a\0b", "enable_ssd_offload": True}), -600)
    # No key is missing where a host is.
    check_equal(m.MooncakeDistributedStore().setup(**{**good, "master_server_addr": "no.such.host.invalid:50051"}), -900)
    check_in("no.such.host.invalid", m.last_error())
    for name in ("16777216.0", " 16 mb ", "0x", "0.5kb"):
        check_equal(m.MooncakeDistributedStore().setup(**{**good, "local_buffer_size": name}), -600 if name == "0x" else 0, name)


@test("the dict of setup(): times with units, both spellings of a name, nothing beside it")
def setup_dicts(context):
    m = module()
    _, address = context.master()

    def code(**settings):
        store = m.MooncakeDistributedStore()
        found = store.setup({"global_segment_size": "0", **settings})
        check_equal(store.close(), 0)
        return found

    check_equal(code(master_server_addr=address, timeout_ms="5s", put_wait_ms="100ms", exist_timeout_ms=7, connect_wait_ms="1500"), 0)
    for wrong in ("1MB", "5 minutes", "9" * 30 + "h", "-5s", -1, 1 << 70, 0):
        check_equal(code(master_server_addr=address, timeout_ms=wrong), -600, repr(wrong))
        check_in("timeout_ms", m.last_error())
    check_equal(code(master_server_address=address, device_name=""), 0, m.last_error())
    check_equal(code(master_server_address=address, master_server_addr=address), 0, "the same twice")
    check_equal(code(master_server_address=address, master_server_addr="127.0.0.1:1"), -600)
    check_in("mean the same", m.last_error())
    for name in ("nope", 5, "self", ""):
        check_equal(m.MooncakeDistributedStore().setup({name: 1}), -600)
        check_in(repr(name), m.last_error())
    try:
        m.MooncakeDistributedStore().setup({"master_server_addr": address}, "P2P", 5)
    except TypeError as error:
        check_in("global_segment_size", str(error))
    else:
        check(False, "what stands beside the dict is dropped")
    os.environ["YOLK_TIMEOUT"] = "9" * 30 + "h"
    try:
        check_equal(code(master_server_addr=address), -600)
        check_in("YOLK_TIMEOUT", m.last_error())
    finally:
        del os.environ["YOLK_TIMEOUT"]


@test("a setup() that is refused leaves the store, its name and its port as they were; close() gives them back")
def name_is_kept(context):
    m = module()
    _, address = context.master()
    store = m.MooncakeDistributedStore()
    check_equal((store.get_hostname(), store.close()), ("", 0))
    check_equal(store.setup("", "", 16 * MIB, MIB, "tcp", "", address), 0, m.last_error())
    name = store.get_hostname()

    def is_kept():
        with socket.socket(socket.AF_UNIX) as other:
            try:
                other.bind("\0yolk-store-%s" % name.rsplit(":", 1)[1])
                return False
            except OSError:
                return True

    check(is_kept(), "another store may take the name")
    check_equal(store.setup("", "", 0, MIB, "tcp", "", address), -600)
    check_in("close() it first", m.last_error())
    check_equal(store.setup_dummy(MIB, MIB, "127.0.0.1:1"), -600)
    check_equal((store.get_hostname(), is_kept(), store.put("k", b"v"), store.get("k")), (name, True, 0, b"v"))
    check_equal((store.close(), is_kept(), store.close()), (0, False, 0))
    check_equal(store.setup("", "", 0, MIB, "tcp", "", address), 0)


@test("patterns that are none")
def patterns(context):
    m = module()
    _, address = context.master()
    store = open_store(address, 16 * MIB)
    check_equal(store.put_batch(["a1", "a2", "b"], [b""] * 3), 0)
    for pattern in ("(", "a{99999999999999999999}", "(" * 5000, "(?P<n>x)(?P<n>y)", "[", "*"):
        check_equal(store.remove_by_regex(pattern, True), -600, pattern[:30])
        check_in("regex_pattern", m.last_error())
    for pattern in (b"a", re.compile(b"a"), 5, None, ["a"]):
        try:
            store.remove_by_regex(pattern)
        except TypeError as error:
            check_in("regex_pattern", str(error))
            continue
        check(False, repr(pattern))
    check_equal((store.batch_is_exist(["a1", "a2", "b"]), store.remove_by_regex(re.compile("^a"), True), store.is_exist("b")),
                ([1, 1, 1], 2, 1))


@test("objects of the module: no copies of what cannot be copied, weak references, cycles")
def objects(context):
    m = module()
    master, address = context.master()
    store = open_store(address, 16 * MIB)
    check_equal(store.put("k", b"value"), 0)
    handle = store.get_buffer("k")
    for what in (store, handle):
        for make in (pickle.dumps, copy.copy, copy.deepcopy):
            try:
                make(what)
            except TypeError:
                continue
            check(False, "%s of %r" % (make.__name__, what))
        check(weakref.ref(what)() is what, repr(what))
    gone = []
    weakref.finalize(handle, gone.append, "handle")
    view = memoryview(handle)
    del handle
    check_equal((gone, bytes(view)), ([], b"value"), "a view holds its handle")
    view.release()
    del view, what
    gc.collect()
    check_equal(gone, ["handle"])
    for kind in (m.BufferHandle, lambda: m.MooncakeDistributedStore(5), lambda: m.ReplicateConfig(2)):
        try:
            kind()
        except TypeError:
            continue
        check(False, "%r can be made" % kind)
    config = m.ReplicateConfig()
    config.group_ids, config.replica_num = ["g"], 2
    for again in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        check_equal((again.group_ids, again.replica_num, str(again)), (["g"], 2, str(config)))

    class Careless(m.MooncakeDistributedStore):
        def __init__(self):
            self.me = self  # a cycle, and no super().__init__()

    careless = Careless()
    check_equal((careless.get_hostname(), careless.setup("", "", 16 * MIB, MIB, "tcp", "", address)), ("", 0))
    alive = weakref.ref(careless)
    name = careless.get_hostname()
    eventually(lambda: name in segments(master), text="its segment")
    del careless
    gc.collect()
    check_equal(alive(), None)
    eventually(lambda: name not in segments(master), text="the segment of a store that is gone")


def segments(master):
    with urllib.request.urlopen("http://127.0.0.1:%d/get_all_segments" % master.admin_port, timeout=30) as answer:
        return answer.read().decode().splitlines()


@test("calls of many keys wait no longer than one, and Ctrl-C is heard")
def many_keys_wait_once(context):
    m = module()
    master, address = context.master()
    store = open_store(address, 16 * MIB, timeout_ms=700)
    keys = ["k%d" % i for i in range(50)]
    memory = Memory(4096)
    check_equal(store.put_batch(keys, [b"value"] * 50), 0)
    many = {
        "get_batch": (lambda: store.get_batch(keys), [b""] * 50),
        "batch_get_buffer": (lambda: store.batch_get_buffer(keys), [None] * 50),
        "batch_get_replica_desc": (lambda: store.batch_get_replica_desc(keys), {}),
        "get_into_ranges": (lambda: store.get_into_ranges([memory.address], [keys], [[[0]] * 50], [[[0]] * 50], [[[5]] * 50]), None),
    }
    for name, (call, _) in many.items():
        check(len(call()) > 0, name)
    os.kill(master.pid, signal.SIGSTOP)
    try:
        for name, (call, wanted) in many.items():
            start = time.monotonic()
            found = call()
            took = time.monotonic() - start
            check(took < 10, "%s of 50 keys took %.1f s with timeout_ms 700" % (name, took))
            if wanted is not None:
                check_in("49 keys were not asked for", m.last_error(), name)
                check_equal(found, wanted, name)
            else:
                check(all(result < 0 for of_key in found[0] for result in of_key), str(found))
        # A process that a shell started in the background ignores the signal, and so do its children.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        heard = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        heard.start()
        try:
            store.get_batch(keys)
        except KeyboardInterrupt:
            pass
        else:
            check(False, "Ctrl-C was not heard")
        finally:
            heard.join()
            signal.signal(signal.SIGINT, before)
    finally:
        os.kill(master.pid, signal.SIGCONT)
    eventually(lambda: store.get_batch(keys) == [b"value"] * 50, text="the values again")


if __name__ == "__main__":
    sys.exit(main())
