# SPDX-License-Identifier: Apache-2.0
"""The transfer engine, as programs written for mooncake.engine use it.

Calls answer 0, a number of a transfer or an address, or a negative code (docs/transfer.md); they raise TypeError, which
names the argument, for one of a wrong type, and ValueError for an unknown transport and for bytes at address 0 only.
last_error() says in a sentence what the last call of this thread that failed was about. Any number of threads may use one engine; the GIL is released in every call
that can wait.
"""
import ctypes
import enum
import logging
import mmap
import os
import threading

from mooncake import _store
from mooncake._store import _bytes_at, _number, _numbers, _text, last_error

__all__ = ["TransferEngine", "TransferNotify", "TransferOpcode", "last_error"]

_log = logging.getLogger("mooncake.engine")

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_MNNVL = False
SUPPORT_INTRA_NVLINK = False

_READ, _WRITE = 1, 2  # of enum yolk_opcode
_INVALID, _BUSY, _NO_MEMORY = -1, -14, -20  # of enum yolk_status
_PROBE_TIMEOUT_MS = 3000
_TIMEOUT_MAX_S = 10 ** 9
_ADDRESS_MAX = 1 << 56  # what a process on x86-64 has at most
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


def _notification(notify):
    """The name and the message of a TransferNotify, or of what is like one; none of None."""
    if notify is None:
        return None, None
    if not hasattr(notify, "name") or not hasattr(notify, "msg"):
        raise TypeError(f"notify must be a TransferNotify, not {type(notify)}")
    return _text(notify.name, "the name of notify"), _text(notify.msg, "the msg of notify")


def _place(address, what, length):
    """Both as numbers; refused where there can be no memory."""
    address, length = _number(address, what), _number(length, "length")
    if length > 0 and (address == 0 or address + length > _ADDRESS_MAX):
        raise ValueError(f"{length} bytes at address {address}: there is no memory")
    return address, length


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
        _text(protocol, "protocol"), device_name and _text(device_name, "device_name")
        if protocol == "rdma":
            _log.warning("protocol rdma: no RDMA transport is built in, nor is a GPU's memory exported as a DMA-buf; tcp is used")
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
        _text(metadata_server, "metadata_server"), metadata_type and _text(metadata_type, "metadata_type")
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
        return self._topology(_text(device_name, "device_name") if device_name else None)

    # -- memory --

    def register_memory(self, buffer_addr, capacity, location="*"):
        """Lets this and other processes use `capacity` bytes at the address in transfers. 0 or a negative code."""
        return self._register(buffer_addr, capacity, location)

    def unregister_memory(self, buffer_addr):
        """Undoes register_memory() with the same address. 0 or a negative code."""
        return self._unregister(buffer_addr)

    def batch_register_memory(self, buffer_addresses, capacities, location="*"):
        """register_memory() of all, or of none. 0 or the first negative code."""
        addresses, sizes = _numbers(buffer_addresses, "buffer_addresses"), _numbers(capacities, "capacities")
        if len(addresses) != len(sizes):
            return self._refuse(_INVALID, f"{len(addresses)} addresses, but {len(sizes)} capacities")
        for i, (address, size) in enumerate(zip(addresses, sizes)):
            code = self._register(address, size, location)
            if code != 0:
                for done in reversed(addresses[:i]):
                    self._unregister(done)
                return code
        return 0

    def batch_unregister_memory(self, buffer_addresses):
        """unregister_memory() of each. 0 or the first negative code."""
        codes = [self._unregister(address) for address in _numbers(buffer_addresses, "buffer_addresses")]
        return next((code for code in codes if code != 0), 0)

    def allocate_managed_buffer(self, length):
        """The address of `length` bytes, zeroed and registered; 0 if there are not so many."""
        length = _number(length, "length")
        try:
            memory = mmap.mmap(-1, max(length, 1))
        except (OSError, ValueError, OverflowError) as error:
            self._refuse(_NO_MEMORY, f"cannot allocate {length} bytes: {error}")
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if self._register(address, len(memory), "*") != 0:
            return 0
        with self._lock:
            self._managed[address] = memory
        return address

    def free_managed_buffer(self, buffer_addr, length):
        """Undoes allocate_managed_buffer(). 0 or a negative code."""
        buffer_addr = _number(buffer_addr, "buffer_addr")
        _number(length, "length")
        memory = self._managed.get(buffer_addr)
        code = self._unregister(buffer_addr)
        if code != 0 or memory is None:
            return code
        if self._is_registered(buffer_addr):
            # Somebody registered it, or a part of it, once more: it may be in use.
            return self._register(buffer_addr, len(memory), "*") or self._refuse(
                _BUSY, f"{buffer_addr:#x} or a part of it is registered once more")
        with self._lock:
            self._managed.pop(buffer_addr, None)
        return 0

    def write_bytes_to_buffer(self, dest_address, src_ptr, length):
        """Copies the first `length` bytes of bytes-like `src_ptr` to the address. 0, or -1 if there are not so many."""
        dest_address, length = _place(dest_address, "dest_address", length)
        try:
            given = memoryview(src_ptr).cast("B")
        except TypeError:
            raise TypeError(f"src_ptr must be a bytes-like object in one piece, not {type(src_ptr)}") from None
        if len(given) < length:
            return self._refuse(_INVALID, f"src_ptr has {len(given)} bytes, not {length}")
        ctypes.memmove(dest_address, bytes(given[:length]), length)
        return 0

    def read_bytes_from_buffer(self, source_address, length):
        """The `length` bytes at the address."""
        source_address, length = _place(source_address, "source_address", length)
        return _bytes_at(source_address, length)  # string_at() takes the length for an int of C, and says nothing

    def get_first_buffer_address(self, segment_name):
        """The lowest address that a peer lets others use; 0 if there is none, or no answer."""
        segment = self._target(segment_name)
        buffers = self._buffers(segment) if segment >= 0 else segment
        if buffers == []:
            self._refuse(_INVALID, f"{segment_name} lets others use no memory")
        return buffers[0][0] if isinstance(buffers, list) and buffers else 0

    # -- peers --

    def _target(self, name):
        segment = self._targets.get(_text(name, "the peer's name"))
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
        if _text(name, "transport_hint") == "":
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
        name, message = _notification(notify)
        segment = self._target(target)
        if segment < 0:
            return segment
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
        codes = [self._finish(batch, True) for batch in _numbers(batch_ids, "batch_ids")]
        return 0 if all(code == 0 for code in codes) else -1

    def transfer_submit_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        """Begins what transfer_sync_write() does. A number for transfer_check_status(), or -1."""
        return self.batch_transfer_async(target_hostname, (buffer,), (peer_buffer_address,), (length,), Write,
                                         transport_hint) or -1

    def transfer_check_status(self, batch_id):
        """1: complete; 0: in flight; -1: failed; -2: took too long. The number is used up unless it is 0."""
        code = self._finish(_number(batch_id, "batch_id"), False)
        if code == 0:
            return 1
        if code == 1:
            return 0
        return code if code == -2 else -1
