# SPDX-License-Identifier: Apache-2.0
"""What the tests of the GDS tier share: memory of a GPU by ctypes on the CUDA driver, and the environment that the tier is
turned on with. YOLK_TEST_DEVICE=real (or MOONCAKE_RUN_GDS_TEST=1) takes the GPU and cuFile that the machine has, and
MOONCAKE_GDS_TEST_PATH the folder of the file; else both are fakes."""

import ctypes
import json
import os
import sys

CAPACITY = 64 << 20


def real():
    return os.environ.get("YOLK_TEST_DEVICE") == "real" or os.environ.get("MOONCAKE_RUN_GDS_TEST") == "1"


def begin():
    """Begins the program anew, so that it and its children find the fakes. To be called before anything else."""
    if real() or "GDS_KIT_BEGUN" in os.environ:
        return
    build = os.environ.get("YOLK_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build"))
    if "--build" in sys.argv[:-1]:
        build = sys.argv[sys.argv.index("--build") + 1]
    os.environ["GDS_KIT_BEGUN"] = "1"
    os.environ["LD_LIBRARY_PATH"] = os.path.join(os.path.abspath(build), "fakes")
    os.execv(sys.executable, [sys.executable, *sys.argv])


def environment(path, capacity=CAPACITY, **more):
    """The proposal's, word for word but for the path and the capacity."""
    return {
        "MOONCAKE_GDS_OFFLOAD_ENABLED": "1",
        "MOONCAKE_GDS_OFFLOAD_PATH": path,
        "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES": str(capacity),
        "MC_USE_TENT": "1",
        "MC_STORE_MEMCPY": "0",
        "MC_TENT_CONF": """{
  "transports": {
    "tcp": {"enable": true},
    "gds": {"enable": true, "io_batch_depth": 128},
    "io_uring": {"enable": false}
  }
}""",
        **more,
    }


class Gpu:
    """The first GPU, by the driver alone."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def call(self, name, *arguments):
        self.cuda[name].restype = ctypes.c_int
        code = self.cuda[name](*arguments)
        if code != 0:
            raise AssertionError(f"{name}: CUDA error {code}")

    def inside(self, *calls):
        self.call("cuCtxPushCurrent_v2", self.context)
        for name, *arguments in calls:
            self.call(name, *arguments)
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def alloc(self, size):
        pointer = ctypes.c_uint64()
        self.inside(("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size)))
        return pointer.value

    def _copy(self, to, source, size):
        self.inside(("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), None),
                    ("cuStreamSynchronize", None))

    def put(self, pointer, data):
        room = ctypes.create_string_buffer(data, len(data))
        self._copy(pointer, ctypes.addressof(room), len(data))

    def get(self, pointer, size):
        room = ctypes.create_string_buffer(size)
        self._copy(ctypes.addressof(room), pointer, size)
        return room.raw


def media(descriptors):
    """Which kinds of replica there are."""
    return sorted("gds" if d.is_gds_replica() else "memory" if d.is_memory_replica() else "other" for d in descriptors)


def dump(value):
    print(json.dumps(value), flush=True)
