#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs between two processes by each interface without a store, on the fake driver: mooncake.engine, TENT's and the older C
library. The bytes go by nvlink, which route and figures say; who owns the memory copies nothing."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Failure, build_dir, check, check_equal, check_in, free_port, main, test
from python_kit import folder

PROGRAM = r"""
import ctypes as c, os, random, sys, urllib.request
build, python, interface, kind = sys.argv[1:5]
SIZE, OTHER = 4 << 20, 1 << 16
cuda = c.CDLL("libcuda.so.1")
cuda.fake_cuda_control.restype = c.c_long
cuda.fake_cuda_shadow.restype = c.c_void_p

def ok(result):
    assert result == 0, (result, engine.why() if "engine" in globals() else "")

class Place(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]
class Properties(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("place", Place), ("windows", c.c_void_p), ("flags", c.c_uint64)]
class Access(c.Structure):
    _fields_ = [("place", Place), ("flags", c.c_int)]

class Memory:
    # Of cudaMalloc, or of the driver's virtual memory (PyTorch's expandable segments).
    def __init__(self, gpu, virtual):
        context, pointer, allocation = c.c_void_p(), c.c_uint64(), c.c_uint64()
        ok(cuda.cuInit(0))
        ok(cuda.cuDevicePrimaryCtxRetain(c.byref(context), gpu))
        ok(cuda.cuCtxPushCurrent_v2(context))
        if virtual:
            place = Place(1, gpu)
            ok(cuda.cuMemCreate(c.byref(allocation), c.c_size_t(SIZE), c.byref(Properties(1, 1, place, None, 0)), c.c_uint64(0)))
            ok(cuda.cuMemAddressReserve(c.byref(pointer), c.c_size_t(SIZE), c.c_size_t(0), c.c_uint64(0), c.c_uint64(0)))
            ok(cuda.cuMemMap(pointer, c.c_size_t(SIZE), c.c_size_t(0), allocation, c.c_uint64(0)))
            ok(cuda.cuMemSetAccess(pointer, c.c_size_t(SIZE), c.byref(Access(place, 3)), c.c_size_t(1)))
        else:
            ok(cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(SIZE)))
        self.address = pointer.value
        self.shadow = cuda.fake_cuda_shadow(c.c_void_p(self.address), c.c_size_t(SIZE))
    def fill(self, data):
        c.memmove(self.shadow, data, SIZE)
    def bytes(self):
        return c.string_at(self.shadow, SIZE)

def pattern(seed):
    return random.Random(seed).randbytes(SIZE)

class Request(c.Structure):
    _fields_ = [("opcode", c.c_int), ("source", c.c_void_p), ("target", c.c_uint64), ("offset", c.c_uint64), ("length", c.c_uint64),
                ("priority", c.c_int), ("hint", c.c_int)]
class OldRequest(c.Structure):
    _fields_ = Request._fields_[:5]
class Status(c.Structure):
    _fields_ = [("status", c.c_int), ("bytes", c.c_uint64)]

class Module:
    def __init__(self):
        sys.path.insert(0, python)
        import mooncake.engine
        self.module = mooncake.engine
        self.engine = mooncake.engine.TransferEngine()
        ok(self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma" if interface == "rdma" else "tcp", ""))
        self.name = "127.0.0.1:%d" % self.engine.get_rpc_port()
    def register(self, address, size):
        ok(self.engine.register_memory(address, size))
    def why(self):
        return self.module.last_error()
    def move(self, opcode, local, name, remote, size):
        call = self.engine.transfer_sync_write if opcode else self.engine.transfer_sync_read
        ok(call(name, local, remote, size))
    def close(self):
        del self.engine

class Library:
    def call(self, name, *args, result=c.c_int):
        function = getattr(self.library, name)
        function.restype = result
        return function(*args)
    def why(self):
        return self.call("yolk_last_error", result=c.c_char_p)

class Tent(Library):
    def __init__(self):
        self.library = c.CDLL(os.path.join(build, "libtent_shared.so"))
        self.engine = c.c_void_p(self.call("tent_create_engine", result=c.c_void_p))
        name = c.create_string_buffer(256)
        ok(self.call("tent_segment_name", self.engine, name, c.c_size_t(256)))
        self.name = name.value.decode()
    def register(self, address, size):
        ok(self.call("tent_register_memory", self.engine, c.c_void_p(address), c.c_size_t(size)))
    def move(self, opcode, local, name, remote, size):
        target, status = c.c_uint64(), Status(1, 0)
        ok(self.call("tent_open_segment", self.engine, c.byref(target), name.encode()))
        request = Request(opcode, local, target.value, remote, size, 0, 0)
        text = c.c_void_p(self.call("tent_describe_route", self.engine, c.byref(request), result=c.c_void_p))
        self.route = c.string_at(text).decode()
        batch = c.c_uint64(self.call("tent_allocate_batch", self.engine, c.c_size_t(1), result=c.c_uint64))
        ok(self.call("tent_submit", self.engine, batch, c.byref(request), c.c_size_t(1)))
        while status.status == 1:
            ok(self.call("tent_overall_status", self.engine, batch, c.byref(status)))
        assert status.status == 4, (status.status, self.why())
        ok(self.call("tent_free_batch", self.engine, batch))
    def close(self):
        self.call("tent_destroy_engine", self.engine)

class Old(Library):
    def __init__(self):
        self.library = c.CDLL(os.path.join(build, "libtransfer_engine.so"))
        self.engine = c.c_void_p(self.call("createTransferEngine", b"P2PHANDSHAKE", b"127.0.0.1", b"", c.c_uint64(0), 1,
                                           result=c.c_void_p))
        name = c.create_string_buffer(256)
        ok(self.call("getLocalIpAndPort", self.engine, name, c.c_size_t(256)))
        self.name = name.value.decode()
    def register(self, address, size):
        ok(self.call("registerLocalMemory", self.engine, c.c_void_p(address), c.c_size_t(size), b"*", 1))
    def move(self, opcode, local, name, remote, size):
        status = Status(1, 0)
        target = self.call("openSegment", self.engine, name.encode(), result=c.c_int64)
        assert target >= 0, self.why()
        request = OldRequest(opcode, local, target, remote, size)
        batch = c.c_uint64(self.call("allocateBatchID", self.engine, c.c_size_t(1), result=c.c_uint64))
        ok(self.call("submitTransfer", self.engine, batch, c.byref(request), c.c_size_t(1)))
        while status.status == 1:
            ok(self.call("getTransferStatus", self.engine, batch, c.c_size_t(0), c.byref(status)))
        assert status.status == 4, (status.status, self.why())
        ok(self.call("freeBatchID", self.engine, batch))
    def close(self):
        self.call("destroyTransferEngine", self.engine)

def moved(way):
    # By the process's own figures over HTTP.
    with urllib.request.urlopen("http://127.0.0.1:%s/metrics" % os.environ["TENT_METRICS_HTTP_PORT"], timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return [sum(int(line.split()[-1]) for line in lines if line.startswith('tent_%s_bytes_total{transport="%s"' % (what, way)))
            for what in ("read", "write")]

engine = {"mooncake": Module, "rdma": Module, "tent": Tent, "c": Old}[interface]()
memory = Memory(1 if len(sys.argv) > 5 else 0, kind == "virtual")
ordinary = c.create_string_buffer(b"x" * OTHER, OTHER)
engine.register(memory.address, SIZE)
engine.register(c.addressof(ordinary), OTHER)
if len(sys.argv) == 5:
    memory.fill(pattern(1))
    before = [cuda.fake_cuda_control(b"calls " + name) for name in (b"cuMemcpyAsync", b"cuMemcpyBatchAsync", b"cuLaunchKernel")]
    print(engine.name, memory.address, c.addressof(ordinary), flush=True)
    sys.stdin.readline()
    assert memory.bytes() == pattern(2)
    after = [cuda.fake_cuda_control(b"calls " + name) for name in (b"cuMemcpyAsync", b"cuMemcpyBatchAsync", b"cuLaunchKernel")]
    assert before == after, (before, after)
else:
    name, address, other = sys.argv[5], int(sys.argv[6]), int(sys.argv[7])
    engine.move(0, memory.address, name, address, SIZE)
    assert memory.bytes() == pattern(1)
    if interface == "tent":
        assert "nvlink: runs it" in engine.route, engine.route
    memory.fill(pattern(2))
    engine.move(1, memory.address, name, address, SIZE)
    assert moved("nvlink") == [SIZE, SIZE] and moved("tcp") == [0, 0], (moved("nvlink"), moved("tcp"))
    # What has no handle goes another way, and is told of it.
    engine.move(0, memory.address, name, other, OTHER)
    assert memory.bytes() == b"x" * OTHER + pattern(2)[OTHER:]
    if interface == "tent":
        assert "nvlink: no: " in engine.route and "has no handle" in engine.route, engine.route
    assert moved("nvlink") == [SIZE, SIZE] and moved("tcp") == [OTHER, 0], (moved("nvlink"), moved("tcp"))
engine.close()
print("done", flush=True)
"""


class Peer:
    def __init__(self, context, python, *args):
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build_dir(), "fakes"), FAKE_CUDA="set gpus 2",
                   TENT_METRICS_ENABLED="true", TENT_METRICS_HTTP_HOST="127.0.0.1", TENT_METRICS_HTTP_PORT=str(free_port()))
        self.args = ["peer", *args]
        self.popen = subprocess.Popen([sys.executable, "-c", PROGRAM, build_dir(), python, *args], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        context.processes.append(self)

    def output(self):
        return ""  # a failure has it

    def kill(self):
        self.popen.kill()
        self.popen.communicate()

    def end(self, what):
        out, err = self.popen.communicate("\n", timeout=100)
        check_equal((self.popen.returncode, out.splitlines()[-1:]), (0, ["done"]), what + ":\n" + err)
        return err


def between(context, interface, python=""):
    for kind in ("plain", "virtual"):
        owner = Peer(context, python, interface, kind)
        line = owner.popen.stdout.readline().split()
        if len(line) != 3:
            raise Failure("the owner did not start:\n" + owner.popen.communicate()[1])
        Peer(context, python, interface, kind, *line).end("who reads and writes")
        said = owner.end("who owns the memory")
    return said


@test("nvlink.mooncake_engine")
def _(c):
    between(c, "mooncake", folder())


@test("nvlink.tent")
def _(c):
    between(c, "tent")


@test("nvlink.transfer_engine")
def _(c):
    between(c, "c")


@test("nvlink.c144_no_dma_buf_is_exported")
def _(c):
    """Whoever asks for RDMA, the one use of it, is told; and the driver, which could, is not asked for one."""
    check_in("nor is a GPU's memory exported as a DMA-buf", between(c, "rdma", folder()))
    log = c.path("calls")
    code, out, err = c.run("doctor", env={"LD_LIBRARY_PATH": os.path.join(build_dir(), "fakes"), "FAKE_CUDA_LOG": log})
    check_in("exports no DMA-buf of a GPU's memory", out.decode(), err)
    with open(log, encoding="utf-8") as file:
        calls = file.read()
    check_in("cuMemCreate", calls)
    check("cuMemGetHandleForAddressRange" not in calls, "it was asked for one")


if __name__ == "__main__":
    sys.exit(main())
