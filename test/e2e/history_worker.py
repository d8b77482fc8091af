# SPDX-License-Identifier: Apache-2.0
"""One client of a cluster: does operations as they come from a seed until its standard input ends, and writes each
one down, before and after it, in a file of its own.

    history_worker.py LIBRARY MASTER FILE CLIENT SEED OPTIONS-AS-JSON
"""
import ctypes
import hashlib
import json
import os
import random
import select
import sys
import time

NOT_FOUND, NO_SPACE, HAS_LEASE = "not found", "no space", "leased"


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)]
    _fields_ += [(n, ctypes.c_char_p) for n in ("master", "name", "host", "secret_file", "transport")]
    _fields_ += [(n, ctypes.c_uint64) for n in ("segment_size_bytes", "put_wait_ms", "timeout_ms", "drain_grace_ms")]
    _fields_ += [("rest", ctypes.c_uint8 * 1024)]


class Slice(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Kv(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("key_size", ctypes.c_size_t), ("slices", ctypes.POINTER(Slice)),
                ("slice_count", ctypes.c_size_t), ("result", ctypes.c_int64), ("rest", ctypes.c_uint8 * 256)]


def content(value, size):
    """Differs from place to place and from value to value, and says whose it is."""
    head = value.encode().ljust(32)
    return (head + hashlib.shake_128(head).digest(size))[:size]


def size_of(value):
    return 64 + int.from_bytes(hashlib.sha256(value.encode()).digest()[:2], "big")


def value_in(data):
    """What was put with these bytes; None: nobody can have put them."""
    value = bytes(data[:32]).decode("ascii", "replace").rstrip()
    return value if len(data) == size_of(value) and content(value, len(data)) == data else None


class Store:
    def __init__(self, library, master, timeout_ms=2000, put_wait_ms=1000, transport=None, secret_file=None):
        self.lib = ctypes.CDLL(library)
        self.lib.yolk_last_error.restype = ctypes.c_char_p
        self.lib.yolk_status_name.restype = ctypes.c_char_p
        options = Options()
        self.lib.yolk_store_options_init(ctypes.byref(options))
        options.master = master.encode()
        options.timeout_ms, options.put_wait_ms = timeout_ms, put_wait_ms
        options.transport = transport.encode() if transport else None
        options.secret_file = secret_file.encode() if secret_file else None
        self.handle = ctypes.c_void_p()
        status = self.lib.yolk_store_open(ctypes.byref(options), ctypes.byref(self.handle))
        if status != 0:
            raise RuntimeError(self.lib.yolk_last_error().decode("utf-8", "replace"))
        self.buffer = ctypes.create_string_buffer(1 << 17)

    def _call(self, function, key, size=0, *more):
        piece = Slice(ctypes.addressof(self.buffer), size)
        kv = Kv(key=key.encode(), key_size=len(key), slices=ctypes.pointer(piece), slice_count=1 if size else 0)
        status = getattr(self.lib, function)(self.handle, ctypes.byref(kv), ctypes.c_size_t(1), *more)
        result = kv.result if kv.result >= 0 and status == 0 else min(kv.result, status)
        return result if result >= 0 else self.lib.yolk_status_name(int(result)).decode()

    def put(self, key, data):
        ctypes.memmove(self.buffer, data, len(data))
        return self._call("yolk_store_put", key, len(data))

    def upsert(self, key, data):
        ctypes.memmove(self.buffer, data, len(data))
        return self._call("yolk_store_upsert", key, len(data), None)

    def get(self, key):
        result = self._call("yolk_store_get", key, len(self.buffer))
        return self.buffer.raw[:result] if isinstance(result, int) else result

    def exist(self, key):
        return self._call("yolk_store_exist", key)

    def remove(self, key):
        return self._call("yolk_store_remove", key, 0, ctypes.c_int(1))

    def recount(self):
        differences = ctypes.c_uint64(1)
        status = self.lib.yolk_store_recount(self.handle, ctypes.byref(differences))
        return differences.value if status == 0 else None

    def close(self):
        return self.lib.yolk_store_close(self.handle)


def write(fd, record):
    os.write(fd, (json.dumps(record) + "\n").encode())


def operation(store, dice, client, number, keys):
    """(what is known before, the call): the call answers with what is known after."""
    key = "key-%d" % dice.randrange(keys)
    kind = dice.choices(("put", "upsert", "get", "exist", "remove"), (25, 12, 45, 8, 10))[0]
    before = {"kind": kind, "key": key}
    if kind in ("put", "upsert"):
        before["value"] = "%s/%s/%d" % (key, client, number)

    def call():
        if kind in ("put", "upsert"):
            value = before["value"]
            result = getattr(store, kind)(key, content(value, size_of(value)))
            return {"ok": isinstance(result, int), "answer": result}
        if kind == "get":
            data = store.get(key)
            if isinstance(data, str):
                return {"ok": False, "answer": data}
            return {"ok": True, "value": value_in(data), "size": len(data)}
        result = store.exist(key) if kind == "exist" else store.remove(key)
        return {"ok": isinstance(result, int), "answer": result}
    return before, call


def main():
    library, master, path, client, seed, settings = sys.argv[1:7]
    settings = json.loads(settings)
    keys, pause_s = settings.pop("keys", 4), settings.pop("pause_s", 0.002)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    dice = random.Random(int(seed))
    store = Store(library, master, **settings)
    print("client ready", flush=True)
    number = 0
    # The pause is the pace of the load; the end of the input ends it.
    while not select.select([0], [], [], pause_s)[0]:
        before, call = operation(store, dice, client, number, keys)
        before["number"], before["begin"] = number, time.monotonic_ns()
        write(fd, before)
        after = call()
        after["number"], after["end"] = number, time.monotonic_ns()
        write(fd, after)
        number += 1
    print("client done %d" % number, flush=True)
    store.close()


if __name__ == "__main__":
    main()
