# SPDX-License-Identifier: Apache-2.0
"""The transfer engine, as programs written for mooncake.engine use it.

Calls answer 0, a number of a transfer or an address, or a negative code (docs/python.md); they raise TypeError for
arguments of a wrong type and ValueError for an unknown transport only. last_error() says in a sentence what a
negative code of this thread was about. Any number of threads may use one engine; the GIL is released in every call
that can wait.
"""
import ctypes
import enum
import logging
import mmap
import os
import threading

from mooncake import _store
from mooncake._store import last_error

__all__ = ["TransferEngine", "TransferNotify", "TransferOpcode", "last_error"]

_log = logging.getLogger("mooncake.engine")

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_MNNVL = False
SUPPORT_INTRA_NVLINK = False

_READ, _WRITE = 1, 2  # of enum yolk_opcode
_PROBE_TIMEOUT_MS = 3000
_TIMEOUT_MAX_S = 10 ** 9
_left_behind = []  # memory of engines that ended before it was quiet
# The names of upstream's transports, and what they are here; None: no preference.
_HINTS = {"": None, "unspec": None, "tcp": "tcp", "rdma": "tcp", "shm": "shm", "io_uring": "uring", "nvlink": "nvlink",
          "mnnvl": "nvlink", "gds": "gds", "ascend": "ascend", "sunrise_link": "sunrise_link"}
_PROTOCOLS = ("tcp", "rdma", "")


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """What is told to the other side once a transfer is complete."""

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg

    def __repr__(self):
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


def _direction(opcode):
    if not isinstance(opcode, int) or opcode not in (Read, Write):
        raise TypeError(f"opcode must be TransferOpcode.Read or TransferOpcode.Write, not {opcode!r}")
    return _WRITE if opcode == Write else _READ


def _timeout_ms():
    """MC_TRANSFER_TIMEOUT, in seconds, at least 5; 30 without it."""
    text = os.environ.get("MC_TRANSFER_TIMEOUT", "")
    if text == "":
        return 30000
    try:
        return min(max(5, int(text)), _TIMEOUT_MAX_S) * 1000
    except ValueError:
        _log.warning("MC_TRANSFER_TIMEOUT is %r: must be seconds; 30 are used", text)
        return 30000


def _check_length(length):
    if length < 0:
        raise TypeError(f"addresses and sizes are 0 to 2**64 - 1, not {length}")


def _check_place(address, length):
    _check_length(length)
    if address == 0 and length > 0:
        raise ValueError(f"{length} bytes at address 0: there is no memory")


class TransferEngine(_store.Engine):
    """Moves bytes between registered memory of this process and of others, by address."""

    def __init__(self):
        self._targets = {}
        self._managed = {}
        self._lock = threading.Lock()
        self._limit_ms = _timeout_ms()
        self._preferred = None

    def __del__(self):
        # Before the managed buffers go, which others may be using until then.
        managed = getattr(self, "_managed", {})
        if not self._close() and managed:
            _left_behind.append(managed)

    # -- beginning --

    def initialize(self, local_hostname, metadata_server, protocol, device_name):
        """Begins, as `local_hostname` ("host" or "host:port") with "P2PHANDSHAKE" or a metadata service's address.
        protocol: "tcp", or the name of a plug-in, which is tried first then; "rdma" is served by tcp, with a warning.
        device_name has no effect. 0 or a negative code."""
        if protocol == "rdma":
            _log.warning("protocol rdma: no RDMA transport is built in; tcp is used")
        if device_name:
            _log.info("device_name %r has no effect", device_name)
        code = self._open(local_hostname, metadata_server)
        if code == 0 and protocol not in _PROTOCOLS:
            if self.has_transport(protocol):
                self._preferred = protocol
            else:
                _log.warning("protocol %r is neither built in nor that of a plug-in; tcp is used", protocol)
        return code

    def initialize_ext(self, local_hostname, metadata_server, protocol, device_name, metadata_type):
        """As initialize(), for a metadata service whose kind ("etcd", "redis", "http") is told apart."""
        if metadata_server != "P2PHANDSHAKE" and "://" not in metadata_server and metadata_type:
            metadata_server = f"{metadata_type}://{metadata_server}"
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def get_engine(self):
        """A number that stands for this engine; 0 before initialize()."""
        return self._pointer() or 0

    get_engine_ptr = get_engine

    def get_local_topology(self, device_name=None):
        """This machine as JSON, in upstream's form: {"cpu:0": [[preferred devices], [others]]} for each NUMA node and GPU.
        The devices are those of RDMA; device_name, a comma list, chooses among them."""
        return self._topology(device_name or None)

    # -- memory --

    def register_memory(self, buffer_addr, capacity, location="*"):
        """Lets this and other processes use `capacity` bytes at the address in transfers. 0 or a negative code."""
        return self._register(buffer_addr, capacity, location)

    def unregister_memory(self, buffer_addr):
        """Undoes register_memory() with the same address. 0 or a negative code."""
        return self._unregister(buffer_addr)

    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        """register_memory() of all, or of none. 0 or the first negative code."""
        addresses, sizes = list(buffer_addresses), list(capacities)
        if len(addresses) != len(sizes):
            return _store._fail(-1, f"{len(addresses)} addresses, but {len(sizes)} capacities")
        for i, (address, size) in enumerate(zip(addresses, sizes)):
            code = self._register(address, size, location)
            if code != 0:
                for done in reversed(addresses[:i]):
                    self._unregister(done)
                return code
        return 0

    def batch_unregister_memory(self, buffer_addresses):
        """unregister_memory() of each. 0 or the first negative code."""
        codes = [self._unregister(address) for address in buffer_addresses]
        return next((code for code in codes if code != 0), 0)

    def allocate_managed_buffer(self, length):
        """The address of `length` bytes, zeroed and registered; 0 if there are not so many."""
        if length < 0:
            return 0
        try:
            memory = mmap.mmap(-1, max(int(length), 1))
        except (OSError, ValueError, OverflowError):
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if self._register(address, len(memory), "*") != 0:
            return 0
        with self._lock:
            self._managed[address] = memory
        return address

    def free_managed_buffer(self, buffer_addr, length):
        """Undoes allocate_managed_buffer(). 0 or a negative code."""
        memory = self._managed.get(buffer_addr)
        code = self._unregister(buffer_addr)
        if code != 0 or memory is None:
            return code
        if self._is_registered(buffer_addr):
            # Somebody registered it, or a part of it, once more: it may be in use.
            return self._register(buffer_addr, len(memory), "*") or -4
        with self._lock:
            self._managed.pop(buffer_addr, None)
        return 0

    def write_bytes_to_buffer(self, dest_address, src_ptr, length):
        """Copies the first `length` bytes of bytes-like `src_ptr` to the address. 0, or -1 if there are not so many."""
        _check_place(dest_address, length)
        data = bytes(memoryview(src_ptr).cast("B")[:length])
        if len(data) < length:
            return -1
        ctypes.memmove(dest_address, data, length)
        return 0

    def read_bytes_from_buffer(self, source_address, length):
        """The `length` bytes at the address."""
        _check_place(source_address, length)
        return ctypes.string_at(source_address, length)

    def get_first_buffer_address(self, segment_name):
        """The lowest address that a peer lets others use; 0 if there is none, or no answer."""
        segment = self._target(segment_name)
        buffers = self._buffers(segment) if segment >= 0 else []
        return buffers[0][0] if isinstance(buffers, list) and buffers else 0

    # -- peers --

    def _target(self, name):
        segment = self._targets.get(name)
        if segment is None:
            segment = self._segment(name)
            if segment >= 0:
                self._targets[name] = segment
        return segment

    def send_probe(self, peer_server_name):
        """0 if the peer answers within 3 s, or a negative code."""
        segment = self._target(peer_server_name)
        return segment if segment < 0 else self._probe(segment, _PROBE_TIMEOUT_MS)

    def get_notifies(self):
        """Every TransferNotify that came since the last call."""
        got = self._notifications()
        return [TransferNotify(name, message) for name, message in got] if isinstance(got, list) else []

    def warmup_efa_segment(self, segment_name):
        """0: there is nothing to warm up."""
        return 0

    def _hint(self, name):
        if name == "":
            return self._preferred
        if name in _HINTS:
            return _HINTS[name]
        if self.has_transport(name):
            return name
        raise ValueError(f"Unknown transport_hint {name!r} (valid: {', '.join(sorted(filter(None, _HINTS)))}, the name "
                         "of a plug-in that is loaded, or an empty string for no hint)")

    # -- transfers that wait --

    def _sync(self, target, opcode, buffers, peers, lengths, notify, transport_hint):
        direction = _direction(opcode)
        hint = self._hint(transport_hint)
        segment = self._target(target)
        if segment < 0:
            return segment
        name, message = (None, None) if notify is None else (notify.name, notify.msg)
        return self._transfer(segment, direction, buffers, peers, lengths, hint, self._limit_ms, name, message)

    def transfer_sync(self, target_hostname, buffer, peer_buffer_address, length, opcode, notify=None,
                      transport_hint=""):
        """Moves `length` bytes between the address `buffer` here and `peer_buffer_address` there; 0 once they are in
        place, or a negative code: then, too, neither is touched any more, unless it is -4."""
        return self._sync(target_hostname, opcode, (buffer,), (peer_buffer_address,), (length,), notify,
                          transport_hint)

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        """transfer_sync() from here to there."""
        return self._sync(target_hostname, Write, (buffer,), (peer_buffer_address,), (length,), None, transport_hint)

    def transfer_sync_read(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        """transfer_sync() from there to here."""
        return self._sync(target_hostname, Read, (buffer,), (peer_buffer_address,), (length,), None, transport_hint)

    def batch_transfer_sync(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None,
                            transport_hint=""):
        """transfer_sync() of all of them together. 0, or the worst negative code."""
        return self._sync(target_hostname, opcode, buffers, peer_buffer_addresses, lengths, notify, transport_hint)

    def batch_transfer_sync_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        """batch_transfer_sync() from here to there."""
        return self._sync(target_hostname, Write, buffers, peer_buffer_addresses, lengths, None, transport_hint)

    def batch_transfer_sync_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        """batch_transfer_sync() from there to here."""
        return self._sync(target_hostname, Read, buffers, peer_buffer_addresses, lengths, None, transport_hint)

    # -- transfers that are looked at later --

    def batch_transfer_async(self, target_hostname, buffers, peer_buffer_addresses, lengths, opcode,
                             transport_hint=""):
        """Begins what batch_transfer_sync() does. A number for get_batch_transfer_status(), or 0."""
        direction = _direction(opcode)
        hint = self._hint(transport_hint)
        segment = self._target(target_hostname)
        if segment < 0:
            return 0
        return self._submit(segment, direction, buffers, peer_buffer_addresses, lengths, hint, self._limit_ms, None,
                            None)

    def batch_transfer_async_write(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        """batch_transfer_async() from here to there."""
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Write,
                                         transport_hint)

    def batch_transfer_async_read(self, target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint=""):
        """batch_transfer_async() from there to here."""
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Read,
                                         transport_hint)

    def get_batch_transfer_status(self, batch_ids):
        """Waits for all of them, and uses their numbers up. 0, or -1 if one failed or took too long."""
        codes = [self._finish(batch, True) for batch in batch_ids]
        return 0 if all(code == 0 for code in codes) else -1

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        """Begins what transfer_sync_write() does. A number for transfer_check_status(), or -1."""
        return self.batch_transfer_async(target_hostname, (buffer,), (peer_buffer_address,), (length,), Write,
                                         transport_hint) or -1

    def transfer_check_status(self, batch_id):
        """1: complete; 0: in flight; -1: failed; -2: took too long. The number is used up unless it is 0."""
        code = self._finish(batch_id, False)
        if code == 0:
            return 1
        if code == 1:
            return 0
        return code if code == -2 else -1
