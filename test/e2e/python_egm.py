# SPDX-License-Identifier: Apache-2.0
"""mooncake.store with an EGM pool, on the fake driver: its settings and their rules, values by GPU pointers, a close()
that fails and the one that finishes it."""

import json
import os
import re
import sys
import urllib.request

from harness import check, check_equal, check_in, main, test, yolk_path
from python_kit import folder

COMMON = r"""
import ctypes, os, sys, time
import mooncake.store as m
MASTER = sys.argv[1]
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")

def fake(command):
    cuda.fake_cuda_control.restype = ctypes.c_long
    return cuda.fake_cuda_control(command.encode())

def check(result, wanted=0):
    assert result == wanted, (result, wanted, m.last_error())

def settings(**more):
    return {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 64 * MIB,
            "local_buffer_size": 0, "protocol": "nvlink", "master_server_addr": MASTER, "enable_egm_store_pool": "true",
            "egm_numa_nodes": "auto", "egm_handle_type": "posix_fd", **more}

def gpu_memory(gpu, size):
    # Its address, and that of its bytes for the processor.
    check(cuda.cuInit(0))
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu))
    check(cuda.cuCtxPushCurrent_v2(context))
    check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    cuda.fake_cuda_shadow.restype = ctypes.c_void_p
    return pointer.value, cuda.fake_cuda_shadow(ctypes.c_void_p(pointer.value), ctypes.c_size_t(size))
"""

PROGRAM = COMMON + r"""
def refused(part, **more):
    store = m.MooncakeDistributedStore()
    code = store.setup(settings(**more))
    assert code < 0, code
    assert part in m.last_error(), (part, m.last_error())
    assert store.health_check() == 1 and store.close() == 0
    assert fake("count vmm") == 0 and fake("count handles") == 0

refused("protocol nvlink", protocol="tcp")
refused("global_segment_size", global_segment_size=0)
refused("local_buffer_size 0", local_buffer_size=MIB)
refused("egm_numa_nodes", egm_numa_nodes="0,x")
refused("NUMA node 9", egm_numa_nodes="9")
refused("egm_handle_type", egm_handle_type="rdma")
refused("enable_egm_store_pool", enable_egm_store_pool="perhaps")
refused("800", egm_handle_type="fabric")
os.environ["MC_MAX_MR_SIZE"] = "1048576"
refused("max_mr_size")
os.environ["MC_MAX_MR_SIZE"] = str(16 * MIB)

provider = m.MooncakeDistributedStore()
check(provider.setup(settings()))
check(fake("count vmm"), 4)  # two nodes of 32 MiB in chunks of 16
consumer = m.MooncakeDistributedStore()
check(consumer.setup(settings(global_segment_size=0, enable_egm_store_pool=False)))

pointer, shadow = gpu_memory(1, 4 * MIB)
value = bytes(range(256)) * (MIB // 256)
ctypes.memmove(shadow, value, MIB)
check(consumer.register_buffer(pointer, 4 * MIB))
for i in range(8):
    check(consumer.put_from("key%d" % i, pointer, MIB))
for i in range(8):
    ctypes.memset(shadow + MIB, 0xee, MIB)
    check(consumer.get_into("key%d" % i, pointer + MIB, MIB), MIB)
    assert ctypes.string_at(shadow + MIB, MIB) == value
# Chosen ranges of all of them, by one call and few launches of a kernel, whatever their number.
ctypes.memset(shadow, 0xee, 4 * MIB)
keys, step, width = ["key%d" % i for i in range(8)], 256, 64
starts = [[(i * 131 + k) % (MIB - width) for i in range(1250)] for k in range(8)]
places = [[(k * 1250 + i) * step for i in range(1250)] for k in range(8)]
before = fake("calls cuLaunchKernel"), fake("calls cuMemcpyDtoDAsync_v2") + fake("calls cuMemcpyAsync")
got = consumer.get_into_ranges([pointer], [keys], [places], [starts], [[[width] * 1250] * 8])
assert got == [[[width] * 1250] * 8], m.last_error()
launches = fake("calls cuLaunchKernel") - before[0]
copies = fake("calls cuMemcpyDtoDAsync_v2") + fake("calls cuMemcpyAsync") - before[1]
assert 0 < launches and launches + copies < 200, (launches, copies)
model = bytearray(b"\xee" * (4 * MIB))
for k in range(8):
    for place, start in zip(places[k], starts[k]):
        model[place : place + width] = value[start : start + width]
assert ctypes.string_at(shadow, 4 * MIB) == model
check(consumer.unregister_buffer(pointer))

# A value where it lies, as kernels of a GPU load it.
class Tensor(ctypes.Structure):  # DLPack's
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]

def loaded(address, size):
    ctypes.memset(shadow, 0xee, size)
    check(cuda.cuMemcpy(ctypes.c_uint64(pointer), ctypes.c_uint64(address), ctypes.c_size_t(size)))
    return ctypes.string_at(shadow, size)

def held(buffer, part=None):
    # The sentence of the BufferError; None if it holds.
    try:
        buffer.ptr(), buffer.check(), buffer.__cuda_array_interface__, buffer.__dlpack__()
    except BufferError as error:
        return str(error)

assert consumer.get_device_buffer("none") is None and "not" in m.last_error()
for wrong in (-1, 5000):
    try:
        consumer.get_device_buffer("key0", device=wrong)
        raise SystemExit("a GPU that is none was taken")
    except ValueError as error:
        assert str(wrong) in str(error)
with consumer.get_device_buffer("key3", device=1) as buffer:
    assert (buffer.size(), len(buffer), buffer.device) == (MIB, MIB, 1) and held(buffer) is None
    assert loaded(buffer.ptr(), MIB) == value
    array = buffer.__cuda_array_interface__
    assert (array["shape"], array["typestr"], array["data"], array["version"], array["strides"]) == (
        (MIB,), "|u1", (buffer.ptr(), False), 3, None), array
    assert buffer.__dlpack_device__() == (2, 1)
    for wrong in ({"dl_device": (1, 0)}, {"dl_device": (2, 0)}, {"copy": True}):
        try:
            buffer.__dlpack__(**wrong)
            raise SystemExit("a copy was promised: %r" % wrong)
        except BufferError as error:
            assert "no copy" in str(error)
    capsule = buffer.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 1), copy=False)
    tensor = Tensor.from_address(capsule_pointer(capsule, b"dltensor"))
    assert (tensor.data, tensor.device_type, tensor.device_id, tensor.ndim, tensor.code, tensor.bits, tensor.lanes,
            tensor.shape[0], tensor.strides, tensor.byte_offset) == (buffer.ptr(), 2, 1, 1, 1, 8, 1, MIB, None, 0)
    del capsule  # nobody took it: it ends with its capsule
    capsule = buffer.__dlpack__()
    at = capsule_pointer(capsule, b"dltensor")
    rename(capsule, b"used_dltensor")  # a string of the code, which lasts
    try:
        buffer.release()
        raise SystemExit("released under a tensor")
    except BufferError as error:
        assert "1 tensors" in str(error)
    Tensor.from_address(at).deleter(at)
assert "released" in held(buffer) and buffer.size() == MIB
buffer.release()
# It holds the value: removed by force, its bytes stay until it is let go.
buffer = consumer.get_device_buffer("key4")
check(provider.remove("key4", True))
for i in range(60):
    check(consumer.put_from("fill%d" % i, pointer, MIB))
assert held(buffer) is None and loaded(buffer.ptr(), MIB) == value
del buffer
check(consumer.close())

fake("fail cuMemUnmap 1 999")
code = provider.close()
assert code < 0, code
assert "close again" in m.last_error(), m.last_error()
check(provider.health_check(), 4)
assert provider.put("x", b"y") < 0
check(provider.close())
check(provider.health_check(), 1)
check(fake("count vmm"), 0)
check(fake("count handles"), 0)
print("all is well")
"""


# Holds a value of a node that dies, then one under a master that is restarted.
HOLDER = COMMON + r"""
pointer, shadow = gpu_memory(0, MIB)
ctypes.memset(shadow, 0x5a, MIB)
consumer = m.MooncakeDistributedStore()
check(consumer.setup(settings(global_segment_size=0, enable_egm_store_pool=False)))
check(consumer.register_buffer(pointer, MIB))
# The node may have mounted its memory anew before the session here goes on, or after that.
for key, why in (("first", "provider ended"), ("second", " is over")):
    until = time.monotonic() + 30
    while consumer.put_from(key, pointer, MIB) != 0:  # until there is a node
        assert time.monotonic() < until, m.last_error()
    buffer = consumer.get_device_buffer(key)
    address = buffer.ptr()
    print("holding", key, flush=True)
    error = ""
    while not error:
        assert time.monotonic() < until, "nothing was lost"
        try:
            buffer.check()
        except BufferError as lost:
            error = str(lost)
    assert why in error, error
    for read in (buffer.ptr, lambda: buffer.__cuda_array_interface__, buffer.__dlpack__, buffer.__enter__):
        try:
            read()
            raise SystemExit("an address was told of what is lost")
        except BufferError:
            pass
    check(cuda.cuMemcpy(ctypes.c_uint64(pointer), ctypes.c_uint64(address), ctypes.c_size_t(MIB)))  # mapped all the same
    buffer.release()
    print("lost", key, flush=True)
print("all is well")
"""


def fakes(**more):
    return {"LD_LIBRARY_PATH": os.path.join(os.path.dirname(yolk_path()), "fakes"), "PYTHONPATH": folder(),
            "FAKE_CUDA": "set gpus 2; set nodes 2", **more}


EGM = ("--transport", "nvlink", "--enable-egm-store-pool", "--egm-handle-type", "posix_fd")


def egm_node(c, address, *args):
    node = c.yolk("node", "--master", address, "--dram", "64MiB", "--drain-grace", "1s", *EGM, *args, env=fakes())
    node.wait_line(r"^yolk node ready .*64MiB of NUMA nodes \(EGM\)")
    return node


@test("python.egm_lease")
def _(c):
    """A device buffer says when its provider died, and when the session that pinned it is over."""
    master, address = c.master()
    node = egm_node(c, address)
    holder = c.start(sys.executable, "-c", HOLDER, address, env=fakes())
    holder.wait_line("^holding first")
    node.kill()
    holder.wait_line("^lost first")
    egm_node(c, address)
    holder.wait_line("^holding second")
    master.kill()
    c.yolk("master", "--port", address.rsplit(":", 1)[1], "--admin-port", "0").wait_line("^yolk master ready")
    check_equal(holder.wait(), 0, "exit code")
    check_in("all is well", holder.output(), "output")


@test("cli.egm_node")
def _(c):
    """`yolk node` gives an EGM pool, by the rules that Python has, and tells its figures; nothing of it is left when it ends."""
    _, address = c.master()
    for part, args in (("needs the protocol nvlink (the transport): it is \"auto\"", EGM[2:]), ("egm_numa_nodes: \"x\"", (*EGM, "--egm-numa-nodes", "0,x")),
                       ("NUMA node 9", (*EGM, "--egm-numa-nodes", "9")), ("800", (*EGM, "--egm-handle-type", "fabric")),
                       ("max_mr_size", (*EGM, "--max-mr-size", "1MiB")), ("must be one of", (*EGM, "--egm-handle-type", "rdma")),
                       ("SSD", (*EGM, "--ssd", "64MiB", "--ssd-path", c.dir)), ("embedded", (*EGM, "--master", "embedded")), ("need --enable-egm-store-pool", ("--egm-numa-nodes", "0"))):
        code, _, err = c.run("node", "--master", address, "--dram", "64MiB", *args, env=fakes())
        check(code != 0, f"exit code 0: {args}")
        check_in(part, err, "message")
    node = egm_node(c, address, "--egm-numa-nodes", "1, 0,1", "--max-mr-size", "16MiB", "--http-listen", "127.0.0.1:0")
    port = node.wait_line(r"^health: .*:(\d+)/health").group(1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    for line in ("capacity_bytes 67108864", "chunks 4", "nodes 2", "fabric 0", "health 0", 'node_bytes{node="0"} 33554432',
                 'node_bytes{node="1"} 33554432'):
        check_in("\nmooncake_egm_store_pool_" + line + "\n", "\n" + text, "figures")
    _, out, _ = c.run("stat", "--master", address)
    check_equal(out.decode().count("segment_puts{"), 4, "segments")
    node.terminate()
    check_equal(node.wait(), 0, "exit code")
    _, out, _ = c.run("stat", "--master", address)
    check_equal(out.decode().count("segment_puts{"), 0, "segments that are left")


@test("cli.egm_placement")
def _(c):
    """Where the master is told to, values go evenly to the memory controllers of a pool, and stat shows their load."""
    _, address = c.master("--placement", "numa")
    egm_node(c, address, "--egm-numa-nodes", "0,1", "--max-mr-size", "16MiB")
    for i in range(12):
        code, _, err = c.run("put", "--master", address, f"k{i}", stdin=bytes(100000))
        check_equal(code, 0, err)
    _, out, _ = c.run("stat", "--master", address)
    nodes = dict(re.findall(r'^numa_node_used_bytes\{node="([0-9a-f]{16}\.[01])"\} (\d+)$', out.decode(), re.M))
    check_equal(len(nodes), 2, f"controllers in\n{out.decode()}")
    used = sorted(map(int, nodes.values()))
    check(used[0] >= 600000 and used[1] - used[0] <= 100096, f"{used} bytes")
    for line in ("numa_node_bytes", "numa_node_puts"):
        check_equal(out.decode().count(line + "{"), 2, line)


@test("cli.egm_doctor")
def _(c):
    """What a pool would get here, and why not more."""
    for fake, found, use in (("set gpus 2; set nodes 2", "auto: 0,1; in units of 16MiB; by fabric handle: ", "posix_fd or auto"),
                             ("set gpus 2; set nodes 2; set fabric 1", "by fabric handle: yes", "all of the NVLink domain")):
        code, out, err = c.run("doctor", "--json", env=fakes(FAKE_CUDA=fake))
        check_equal(code, 0, err)
        item = next(item for item in json.loads(out)["items"] if item["name"] == "EGM pool")
        check_in(found, item["found"], "found")
        check_in(use, item["use"], "use")
        check_equal("800" in item["found"], "fabric 1" not in fake, "the driver's code")


@test("python.egm")
def _(c):
    """C142: set up from a dict, each broken rule told; a failed close() keeps the client, a second one finishes."""
    _, address = c.master()
    process = c.start(sys.executable, "-c", PROGRAM, address, env=fakes())
    code = process.wait()
    check_in("all is well", process.output(), "output")
    check_equal(code, 0, "exit code")


if __name__ == "__main__":
    sys.exit(main())
