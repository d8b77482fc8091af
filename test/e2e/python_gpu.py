#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python modules with addresses of a GPU's memory in place of the processor's, as torch's data_ptr() gives them; on
the fake driver, whose memory ends whoever touches it with the processor."""

import ctypes
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import build_dir, check, check_equal, check_in, main, test
from python_kit import MIB, folder, module, open_store, pattern

_driver = None


def driver():
    """The driver, with a context of GPU 0 current in this thread."""
    global _driver
    if _driver is None:
        # As torch does: whoever looks for libcuda.so.1 afterwards finds this one.
        _driver = ctypes.CDLL(os.path.join(build_dir(), "fakes", "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        context = ctypes.c_void_p()
        check_equal(_driver.cuInit(0), 0, "cuInit")
        check_equal(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0, "cuDevicePrimaryCtxRetain")
        check_equal(_driver.cuCtxPushCurrent_v2(context), 0, "cuCtxPushCurrent")
    return _driver


class GpuMemory:
    def __init__(self, size):
        pointer = ctypes.c_uint64()
        check_equal(driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), 0, "cuMemAlloc")
        self.address, self.size = pointer.value, size

    def fill(self, data, offset=0):
        check_equal(driver().cuMemcpyHtoD_v2(ctypes.c_uint64(self.address + offset), data, ctypes.c_size_t(len(data))), 0)

    def bytes(self, offset=0, size=None):
        size = self.size - offset if size is None else size
        room = ctypes.create_string_buffer(size)
        check_equal(driver().cuMemcpyDtoH_v2(room, ctypes.c_uint64(self.address + offset), ctypes.c_size_t(size)), 0)
        return room.raw

    def free(self):
        check_equal(driver().cuMemFree_v2(ctypes.c_uint64(self.address)), 0, "cuMemFree")


def each_call(m, store, memory, prefix):
    """Every call that takes addresses."""
    data = pattern(len(prefix), MIB)
    memory.fill(data)
    at = memory.address

    def key(name):
        return prefix + name

    check_equal(store.put_from(key("a"), at + 3, 100001), 0, m.last_error())
    check_equal(store.get(key("a")), data[3:100004])
    check_equal(store.batch_put_from([key("b"), key("c")], [at, at + 5000], [5000, 77]), [0, 0], m.last_error())
    check_equal(store.get_batch([key("b"), key("c")]), [data[:5000], data[5000:5077]])
    check_equal(store.batch_put_from_multi_buffers([key("d")], [[at + 10, at + 60000, at]], [[1000, 2000, 7]]), [0])
    check_equal(store.get(key("d")), data[10:1010] + data[60000:62000] + data[:7])
    check_equal(store.upsert_from(key("a"), at + 1, 50), 0)
    check_equal(store.batch_upsert_from([key("b")], [at + 2], [60]), [0])
    check_equal(store.get_batch([key("a"), key("b")]), [data[1:51], data[2:62]])
    check_equal(store.put(key("host"), data[:200000]), 0)

    memory.fill(bytes(memory.size))
    model = bytearray(memory.size)

    def same(what):
        check(memory.bytes() == model, what + ": other bytes")

    check_equal(store.get_into(key("host"), at + 1, 200000), 200000, m.last_error())
    model[1:200001] = data[:200000]
    same("get_into")
    check_equal(store.batch_get_into([key("c"), key("a")], [at + 300000, at + 300100], [77, 100]), [77, 50])
    model[300000:300077], model[300100:300150] = data[5000:5077], data[1:51]
    same("batch_get_into")
    check_equal(store.batch_get_into_multi_buffers([key("d")], [[at + 400000, at + 410000]], [[1007, 2000]]), [3007])
    model[400000:401007] = data[10:1010] + data[60000:60007]
    model[410000:412000] = data[60007:62000] + data[:7]
    same("batch_get_into_multi_buffers")
    got = store.get_into_ranges([at + 500000], [[key("host")]], [[[0, 9000]]], [[[50, 150000]]], [[[8000, 1000]]])
    check_equal(got, [[[8000, 1000]]], m.last_error())
    model[500000:508000], model[509000:510000] = data[50:8050], data[150000:151000]
    same("get_into_ranges")
    check_equal(store.get_into(key("host"), at, 100), -600)
    same("a buffer that is too small")


@test("each call that takes addresses, in this process, over shared memory and over sockets")
def calls(context):
    m = module()
    driver()
    _, address = context.master()
    node = open_store(address)
    client = open_store(address, 0)
    memory = GpuMemory(MIB)
    for name, store in (("own", node), ("client", client)):
        each_call(m, store, memory, name + " unregistered ")
        check_equal(store.register_buffer(memory.address, memory.size), 0, m.last_error())
        each_call(m, store, memory, name + " ")
        check_equal(store.unregister_buffer(memory.address), 0)
    check_equal((client.close(), node.close()), (0, 0))
    memory.free()


@test("c42 what is no whole piece of a GPU's memory is refused, with the reason")
def refused(context):
    m = module()
    driver()
    _, address = context.master()
    store = open_store(address)
    memory = GpuMemory(MIB)
    check(store.register_buffer(memory.address + 1000, MIB) < 0, "longer than its allocation")
    check_in("leaves its allocation", m.last_error())
    check(store.put_from("k", memory.address + 1000, MIB) < 0, "longer than its allocation")
    check_equal(store.is_exist("k"), 0)
    check_equal(store.register_buffer(memory.address, MIB), 0)
    check_equal(store.put_from("k", memory.address, MIB), 0)
    check_equal(store.unregister_buffer(memory.address), 0)
    check_equal(store.close(), 0)
    memory.free()


# In a process of its own, for what a fork leaves is the test's too.
FORKS = r"""
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
sys.path.insert(0, sys.argv[2])
import python_gpu, python_kit
from python_kit import module, open_store, pattern
m = module()
python_gpu.driver()
store, memory = open_store(sys.argv[3]), python_gpu.GpuMemory(4096)
memory.fill(pattern(1, 4096))
assert store.register_buffer(memory.address, 4096) == 0
assert store.put_from("k", memory.address, 4096) == 0
child = os.fork()
if child == 0:
    code = store.put_from("child", memory.address, 4096)
    ok = code < 0 and "process" in m.last_error()
    own = m.MooncakeDistributedStore()
    ok = ok and store.get("k") == b""
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert store.get("k") == pattern(1, 4096)
assert store.get_into("k", memory.address, 4096) == 4096
assert store.close() == 0
print("fine")
"""


@test("c150 a child of fork is told, and the parent goes on")
def forks(context):
    _, address = context.master()
    env = dict(os.environ, YOLK_BUILD=build_dir())
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, "-c", FORKS, folder(), here, address], env=env, capture_output=True,
                          text=True, timeout=60, check=False)
    check_equal((done.returncode, done.stdout), (0, "fine\n"), done.stderr)


@test("two engines move a GPU's memory")
def engines(context):
    del context
    module()
    driver()
    import mooncake.engine

    one, other = mooncake.engine.TransferEngine(), mooncake.engine.TransferEngine()
    here, there = GpuMemory(MIB), GpuMemory(MIB)
    for engine, memory in ((one, here), (other, there)):
        check_equal(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0)
        check_equal(engine.register_memory(memory.address, memory.size), 0)
    data = pattern(5, MIB)
    here.fill(data)
    target = "127.0.0.1:%d" % other.get_rpc_port()
    check_equal(one.transfer_sync_write(target, here.address + 7, there.address + 1, 500000), 0)
    check(there.bytes(1, 500000) == data[7:500007], "other bytes")
    there.fill(pattern(6, MIB))
    check_equal(one.transfer_sync_read(target, here.address, there.address + 9, 600000), 0)
    check(here.bytes(0, 600000) == pattern(6, MIB)[9:600009], "other bytes")
    check_equal((one.unregister_memory(here.address), other.unregister_memory(there.address)), (0, 0))
    here.free()
    there.free()


if __name__ == "__main__":
    sys.exit(main())
