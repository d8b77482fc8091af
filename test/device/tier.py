#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tier.py FOLDER: the GDS tier from Python on a real GPU, with tensors of torch and the environment that the proposal names;
the installed `mooncake` package and torch are all it needs. Ends with 77 and the reason where there is no torch or GPU."""

import os
import re
import socket
import subprocess
import sys
import sysconfig
import time

GIB, MIB = 1 << 30, 1 << 20
LAYERS, BLOCK, BLOCKS = 64, 32 << 10, 256  # an 8B model's block: one slice a layer

try:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
except Exception as error:  # whatever torch lacks
    print("SKIP: %s" % error)
    sys.exit(77)

path = os.path.join(os.path.abspath(sys.argv[1]), "gds_offload")
os.environ.update({
    "MOONCAKE_GDS_OFFLOAD_ENABLED": "1",
    "MOONCAKE_GDS_OFFLOAD_PATH": path,
    "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES": str(2 * GIB),
    "MC_USE_TENT": "1",
    "MC_STORE_MEMCPY": "0",
    "MC_TENT_CONF": '{"transports": {"tcp": {"enable": true}, "gds": {"enable": true, "io_batch_depth": 128}, '
                    '"io_uring": {"enable": false}}}',
})


def start_master():
    ports = []
    for _ in range(2):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    program = os.environ.get("YOLK_MOONCAKE_MASTER") or os.path.join(sysconfig.get_path("scripts"), "mooncake_master")
    master = subprocess.Popen([program, "--port=%d" % ports[0], "--metrics_port=%d" % ports[1]], stdout=subprocess.PIPE,
                              text=True)
    if not any(re.match("mooncake_master ready ", line) for line in master.stdout):
        sys.exit("mooncake_master ended")
    return master, "127.0.0.1:%d" % ports[0]


def slices(tensor, block):
    """Addresses of one block's slices, layer by layer, as a paged KV cache lays them out."""
    return [tensor.data_ptr() + (layer * BLOCKS + block) * BLOCK for layer in range(LAYERS)]


def timed(what, action):
    torch.cuda.synchronize()
    began = time.perf_counter()
    answer = action()
    seconds = time.perf_counter() - began
    print("FIGURE %s: %.2f GB/s" % (what, LAYERS * BLOCK * BLOCKS / seconds / 1e9))
    return answer


def clear(store, keys, last_error):
    """Without the copies in memory, as soon as the leases of the gets before have ended."""
    left, deadline = set(keys), time.monotonic() + 30
    while left:
        left -= set(store.batch_replica_clear(sorted(left), store.get_hostname()))
        assert not left or time.monotonic() < deadline, (len(left), last_error())


def run(store, last_error):
    cache = torch.randint(0, 256, (LAYERS, BLOCKS, BLOCK), dtype=torch.uint8, device="cuda")
    back = torch.zeros_like(cache)
    for tensor in (cache, back):
        assert store.register_buffer(tensor.data_ptr(), tensor.numel()) == 0, last_error()
    keys = ["block-%d" % i for i in range(BLOCKS)]
    sizes = [[BLOCK] * LAYERS] * BLOCKS

    def get():
        return store.batch_get_into_multi_buffers(keys, [slices(back, i) for i in range(BLOCKS)], sizes)

    codes = timed("put into memory and the file", lambda: store.batch_put_from_multi_buffers(
        keys, [slices(cache, i) for i in range(BLOCKS)], sizes))
    assert codes == [0] * BLOCKS, (codes[:4], last_error())
    for copies in store.batch_get_replica_desc(keys).values():
        assert sorted(c.is_memory_replica() for c in copies) == [False, True], copies
        assert [c.get_gds_descriptor().value_size for c in copies if c.is_gds_replica()] == [LAYERS * BLOCK]
    for where in ("memory", "the file"):
        if where == "the file":
            clear(store, keys, last_error)
            assert all(c.is_gds_replica() for copies in store.batch_get_replica_desc(keys).values() for c in copies)
        back.zero_()
        codes = timed("get from %s" % where, get)
        assert codes == [LAYERS * BLOCK] * BLOCKS, (codes[:4], last_error())
        assert torch.equal(cache, back), "other bytes from %s" % where
    for tensor in (cache, back):
        assert store.unregister_buffer(tensor.data_ptr()) == 0, last_error()


def main():
    from mooncake.store import MooncakeDistributedStore, last_error

    master, address = start_master()
    try:
        store = MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", GIB, 16 * MIB, "tcp", "", address) == 0, last_error()
        run(store, last_error)
        assert store.close() == 0, last_error()
    finally:
        master.terminate()
        master.wait(30)
        for slot in range(64):
            if os.path.exists("%s.slot%d" % (path, slot)):
                os.unlink("%s.slot%d" % (path, slot))
    print("passed: %d values of %d bytes, each in memory and in the file" % (BLOCKS, LAYERS * BLOCK))


main()
