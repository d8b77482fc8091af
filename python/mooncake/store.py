# SPDX-License-Identifier: Apache-2.0
"""The store, as programs written for mooncake.store use it.

Calls answer 0, a count or a size, or a negative code (ERROR_CODES); they raise TypeError for arguments of a
wrong type only. last_error() says in a sentence what a negative code of this thread was about.
"""
import asyncio
import ctypes
import enum
import functools
import inspect
import logging
import mmap
import operator
import os
import re
import secrets
import shutil
import socket

from mooncake import _store
from mooncake._store import BufferHandle, DeviceBuffer, last_error

__all__ = ["BufferHandle", "Descriptor", "DeviceBuffer", "DiskDescriptor", "ERROR_CODES", "GdsDescriptor", "MemoryDescriptor",
           "MooncakeDistributedStore", "MooncakeDistributedStoreAsync", "MooncakeHostMemAllocator", "ObjectDataType",
           "ReplicaDescriptor", "ReplicaStatus", "ReplicateConfig", "SoftPinAction", "bind_to_numa_node", "last_error"]

_log = logging.getLogger("mooncake.store")

_MIB = 1 << 20

# Of setup()'s dict: the variable with the same meaning, and the default, at most timeout_ms.
_TIMES = {"timeout_ms": ("YOLK_TIMEOUT", 30000), "put_wait_ms": ("YOLK_PUT_WAIT", 1000), "exist_timeout_ms": (None, 1000),
          "connect_wait_ms": (None, 2000)}
_U64_MAX = (1 << 64) - 1
_MEMORY, _LOCAL_DISK, _GDS = 0, 2, 5  # of enum yolk_medium
_INVALID, _UNSUPPORTED, _NO_MEMORY, _CONFIG = -1, -16, -20, -303  # of enum yolk_status
# Ports that upstream's clients take if none is given. Here it only tells clients of one host apart.
_PORTS = (12300, 14300)
_HOST_MAX = 240  # the name of a segment has 255 bytes at most

_NUMA_NODES_MAX = 1024
_MPOL_PREFERRED = 1
_SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}

#: {name of the library's status: the code that calls answer}.
ERROR_CODES = {name: code for _, name, code in _store._codes()}


class SoftPinAction(enum.IntEnum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(enum.IntEnum):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class ReplicaStatus(enum.IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class ReplicateConfig:
    """How a put stores its values. Its content is read during the call: one object may be changed and used again.

    replica_num: copies, each in the memory of another node. preferred_segment, preferred_segments: nodes, by their
    get_hostname(), to be tried first. prefer_alloc_in_same_node: keys of one call go where the first does, if there is
    room. soft_pin_action, soft_pin_ttl_ms: for so long (None: the master's default) others are evicted first.
    with_hard_pin: never evicted, only removed. group_ids: one a key (None: none); keys of a group are evicted together.
    data_type is a label that nothing reads here. A put is refused (-1012) with nof_replica_num, preferred_nof_segments or
    dfs_replica_num: there are no such copies.
    """

    __slots__ = ("replica_num", "nof_replica_num", "dfs_replica_num", "soft_pin_action", "_soft_pin_ttl_ms",
                 "with_hard_pin", "preferred_segments", "preferred_segment", "preferred_nof_segments",
                 "prefer_alloc_in_same_node", "data_type", "group_ids")

    def __init__(self):
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms = None
        self.with_hard_pin = False
        self.preferred_segments = []
        self.preferred_segment = ""
        self.preferred_nof_segments = []
        self.prefer_alloc_in_same_node = False
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids = None

    @property
    def soft_pin_ttl_ms(self):
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value):
        number = None if value is None else _index("soft_pin_ttl_ms", value)
        if number is not None and not 0 <= number <= _U64_MAX:
            raise TypeError("soft_pin_ttl_ms must be None or 0 to 2**64 - 1, not %d" % number)
        self._soft_pin_ttl_ms = number

    @property
    def with_soft_pin(self):
        """The older name of soft_pin_action == SoftPinAction.ENABLE."""
        return self.soft_pin_action == SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, value):
        self.soft_pin_action = SoftPinAction.ENABLE if value else SoftPinAction.PRESERVE

    def __str__(self):
        names = [name.lstrip("_") for name in self.__slots__]
        return "ReplicateConfig{%s}" % ", ".join("%s: %s" % (name, getattr(self, name)) for name in names)

    __repr__ = __str__


class Descriptor:
    """Where a copy lies: transport_endpoint names the segment, buffer_address is the offset in it."""

    __slots__ = ("size", "buffer_address", "transport_endpoint")

    def __init__(self, size, buffer_address, transport_endpoint):
        self.size, self.buffer_address, self.transport_endpoint = size, buffer_address, transport_endpoint


class MemoryDescriptor:
    __slots__ = ("buffer_descriptor",)

    def __init__(self, buffer_descriptor):
        self.buffer_descriptor = buffer_descriptor


class DiskDescriptor:
    __slots__ = ("file_path", "object_size")

    def __init__(self, file_path, object_size):
        self.file_path, self.object_size = file_path, object_size


class GdsDescriptor:
    """Where a copy lies in the GDS file of a client: value_offset counts from the start of the file's extents; ids are
    text of 32 hexadecimal digits."""

    __slots__ = ("owner_client_id", "storage_id", "storage_generation", "value_offset", "value_size", "allocated_size")

    def __init__(self, owner_client_id, storage_id, storage_generation, value_offset, value_size, allocated_size):
        self.owner_client_id, self.storage_id = owner_client_id, storage_id
        self.storage_generation, self.value_offset = storage_generation, value_offset
        self.value_size, self.allocated_size = value_size, allocated_size


class ReplicaDescriptor:
    """One complete copy of a value, in memory, on the disk of a node or in the GDS file of a client."""

    __slots__ = ("status", "_medium", "_descriptor", "_gds")

    def __init__(self, medium, segment, offset, size, gds=None):
        self.status = ReplicaStatus.COMPLETE
        self._medium = medium
        self._descriptor = Descriptor(size, offset, "segment:%d" % segment)
        self._gds = gds

    def is_memory_replica(self):
        return self._medium == _MEMORY

    def is_disk_replica(self):
        """Of a shared file system: there are none."""
        return False

    def is_local_disk_replica(self):
        return self._medium == _LOCAL_DISK

    def is_gds_replica(self):
        return self._medium == _GDS

    def get_memory_descriptor(self):
        if self._medium != _MEMORY:
            raise RuntimeError("the copy is on a disk, not in memory")
        return MemoryDescriptor(self._descriptor)

    def get_gds_descriptor(self):
        if self._gds is None:
            raise RuntimeError("the copy is not in a GDS file")
        owner, storage, *numbers = self._gds
        return GdsDescriptor(owner.hex(), storage.hex(), *numbers)

    def get_disk_descriptor(self):
        raise RuntimeError("no copy lies in a shared file system")


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": _MIB, "mb": _MIB, "mib": _MIB,
          "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40}


class _Refused(Exception):
    """An argument of setup() that is no good: (status, sentence)."""


def _index(name, value):
    """An int, or what stands for one as numpy's numbers do."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError("%s must be an int, not %s" % (name, type(value).__name__)) from None


def _milliseconds(name, value):
    """A time: a number of milliseconds, or text with a unit, like "5s"."""
    if not isinstance(value, str):
        return _bytes(name, value)
    found = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|)", value.strip())
    if not found:
        raise _Refused(_CONFIG, "%s is %.40r: must be a whole number with a unit of ms, s, m, h or none (milliseconds)" % (name, value))
    return int(found[1]) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "": 1}[found[2]]


def _times(given):
    """What is given goes before the environment, that before the defaults."""
    times = {}
    for name, (variable, default) in _TIMES.items():
        text = os.environ.get(variable, "") if variable else ""
        if name in given:
            times[name] = _milliseconds(name, given[name])
        elif text:
            times[name] = _milliseconds(variable, text)
        else:
            times[name] = min(default, times.get("timeout_ms", default))
    return times


def _bytes(name, value):
    """A size: a number, or text like "16MB" (of 2**20 bytes, as upstream's)."""
    if isinstance(value, str):
        text = value.strip().lower()
        digits = len(text) - len(text.lstrip("0123456789."))
        try:
            number, unit = float(text[:digits]), _UNITS[text[digits:].strip()]
            value = int(text[:digits]) if text[:digits].isdigit() else number
            value = int(value * unit)
        except (ValueError, KeyError, OverflowError):
            raise _Refused(_INVALID, "%s is %.40r: must be a number of bytes, or like \"16MB\"" % (name, value)) from None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("%s must be an int or a str, not %s" % (name, type(value).__name__))
    value = operator.index(value)
    if not 0 <= value <= _U64_MAX:
        raise _Refused(_INVALID, "%s is %d: must be 0 to 2**64 - 1" % (name, value))
    return value


def _flag(name, value):
    if isinstance(value, str):
        if value.lower() in ("1", "true", "yes", "on"):
            return True
        if value.lower() in ("", "0", "false", "no", "off"):
            return False
        raise _Refused(_INVALID, "%s is %r: must be true or false" % (name, value))
    return bool(value)


# Variables that this module reads, and those that the programs around it do (connectors, launchers, Yolk's own programs).
_OWN_VARIABLES = {"MC_MAX_MR_SIZE", "MC_STORE_USE_HUGEPAGE", "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
                  "MC_USE_TENT", "MC_STORE_MEMCPY", "MC_TENT_CONF"}
_OTHERS_VARIABLES = {"MOONCAKE_CHECK_SERVER", "MOONCAKE_CLIENT", "MOONCAKE_CONFIG_PATH", "MOONCAKE_DEVICE",
                     "MOONCAKE_ENABLE_SSD_OFFLOAD", "MOONCAKE_GLOBAL_SEGMENT_SIZE", "MOONCAKE_LOCAL_HOSTNAME", "MOONCAKE_MASTER",
                     "MOONCAKE_MASTER_METRICS_PORT", "MOONCAKE_PREFERRED_SEGMENT", "MOONCAKE_PROTOCOL",
                     "MOONCAKE_STANDALONE_STORAGE", "MOONCAKE_STORAGE_ROOT_DIR", "MOONCAKE_TENANT_ID",
                     "MOONCAKE_TE_META_DATA_SERVER", "MC_YLT_LOG_LEVEL", "MC_RPC_TIMEOUT_MS"}
_warned_of = set()


def _warn_of_variables():
    """Once of each: a setting that changes nothing should not go by unseen."""
    unknown = sorted(name for name in os.environ if name.startswith(("MOONCAKE_", "MC_"))
                     and not name.startswith("MOONCAKE_GDS_OFFLOAD_") and name not in _OWN_VARIABLES | _OTHERS_VARIABLES | _warned_of)
    _warned_of.update(unknown)
    if unknown:
        _log.warning("these environment variables mean nothing here and are ignored: %s", ", ".join(unknown))


def _text(name, value):
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("%s must be a str, not %s" % (name, type(value).__name__))
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _Refused(_INVALID, "%s is %.80r: NUL characters and halves of surrogate pairs are no text" % (name, value))
    return value


def _master(text):
    if "://" in text:
        raise _Refused(_CONFIG, "master_server_addr is %.80r: must be the host:port of the one master; there is no service that "
                       "elects one" % text)
    return text


def _host_and_port(text):
    """("host", port), the port 0 if there is none: of "host", "host:port", "[v6]:port", "v6"."""
    if len(text) > _HOST_MAX:
        raise _Refused(_INVALID, "local_hostname has %d characters: must be at most %d" % (len(text), _HOST_MAX))
    if text.count("[") != text.count("]") or "[" in text[1:]:
        raise _Refused(_INVALID, "local_hostname is %r: an IPv6 address stands in [ and ], or in neither" % text)
    if text.endswith("]"):
        return text[1:-1], 0
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return text.strip("[]"), 0
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise _Refused(_INVALID, "local_hostname is %r: the port must be 1 to 65535" % text)
    return host.strip("[]"), int(port)


def _ssd(path):
    """(bytes, file) of enable_ssd_offload: the folder and the size may also come from upstream's variables."""
    folder = path or os.environ.get("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "")
    if not folder:
        raise _Refused(_CONFIG, "enable_ssd_offload needs ssd_offload_path, or MOONCAKE_OFFLOAD_FILE_STORAGE_PATH")
    folder = os.path.abspath(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        free = shutil.disk_usage(folder).free
        before = os.path.join(folder, "yolk.slot0")  # the file of the last time is taken again
        free += os.stat(before).st_blocks * 512 if os.path.exists(before) else 0
    except OSError as error:
        raise _Refused(_CONFIG, "ssd_offload_path %r: %s" % (folder, error.strerror)) from None
    size = _bytes("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", os.environ.get("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", "0"))
    if size == 0:
        size = free // 2 // _MIB * _MIB
        if size == 0:
            raise _Refused(_CONFIG, "ssd_offload_path %r: its disk is full" % folder)
        _log.warning("enable_ssd_offload: taking %d MiB at %s, half of what is free there; "
                     "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES says how much to take", size // _MIB, folder)
    return size, os.path.join(folder, "yolk")


_TRANSPORTS = {"": "auto", "auto": "auto", "tcp": "auto", "rdma": "auto", "shm": "shm", "loop": "loop",
               "nvlink": "nvlink"}


def _own_port():
    """One of _PORTS that no other store of this host has, and what keeps it from them."""
    first, count = _PORTS[0], _PORTS[1] - _PORTS[0] + 1
    start = secrets.randbelow(count)
    for i in range(count):
        port = first + (start + i) % count
        keeper = socket.socket(socket.AF_UNIX)
        try:
            keeper.bind("\0yolk-store-%d" % port)
            return port, keeper
        except OSError:
            keeper.close()
    return first + start, None


_EGM = ("enable_egm_store_pool", "egm_numa_nodes", "egm_handle_type")


def _egm(settings, protocol, transport, buffer_size):
    """What _open is told of an EGM pool. The library has the other rules; it does not know of these two settings."""
    if not _flag("enable_egm_store_pool", settings.get("enable_egm_store_pool", False)):
        return False, None, None, 0
    if transport != "nvlink":
        raise _Refused(_CONFIG, "enable_egm_store_pool needs protocol nvlink: it is %r" % protocol)
    if buffer_size != 0:
        raise _Refused(_CONFIG, "enable_egm_store_pool needs local_buffer_size 0: it is %d" % buffer_size)
    most = os.environ.get("MC_MAX_MR_SIZE")
    return (True, _text("egm_numa_nodes", settings.get("egm_numa_nodes", "auto")),
            _text("egm_handle_type", settings.get("egm_handle_type", "fabric")),
            _bytes("MC_MAX_MR_SIZE", most) if most else 0)


def _transport(protocol):
    if protocol not in _TRANSPORTS and os.environ.get("YOLK_PLUGIN_PATHS"):
        return protocol  # of a plug-in; the store knows when it is loaded
    if protocol not in _TRANSPORTS:
        raise _Refused(_UNSUPPORTED, "protocol is %r: must be one of %s" % (protocol, ", ".join(
            sorted(name for name in _TRANSPORTS if name))))
    if protocol == "rdma":
        _log.warning("protocol rdma: there is no RDMA transport yet; TCP between hosts, shared memory on one")
    return _TRANSPORTS[protocol]


def _is_loopback(host):
    return host in ("localhost", "::1") or host.startswith("127.")


def _host_for_peers(host, master):
    """What peers are told; None: the address that faces the master."""
    if not host:
        return None
    if host in ("0.0.0.0", "::"):
        _log.warning("local_hostname %s is no address of this host: taking the one that faces the master", host)
        return None
    if _is_loopback(host) and not master.startswith("unix:") and master != "embedded":
        master_host, _, _ = master.rpartition(":")
        if not _is_loopback(master_host.strip("[]")):
            _log.warning("local_hostname %s is of no use to other hosts, and the master is at %s: taking the address that "
                         "faces the master", host, master)
            return None
    return host


class MooncakeDistributedStore(_store.Store):
    """A store of immutable values by key, in the memory and on the disks of several processes.

    Any number of threads may use one object at a time. After a failed or missing setup() every call answers -600 (or
    nothing found). In a forked child every call answers -1010: close() and set up again there.
    """

    _hostname = ""
    _port_keeper = None

    def setup(self, local_hostname="", metadata_server="P2PHANDSHAKE", global_segment_size=16 * _MIB,
              local_buffer_size=16 * _MIB, protocol="tcp", rdma_devices="", master_server_addr="127.0.0.1:50051",
              engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
              enable_client_http_server=False, client_http_port=9300):
        """Joins the cluster of the master at master_server_addr; 0 or a negative code.

        Also as setup({name: value}), the values text or numbers; "16MB" is 16 * 2**20 bytes. There, and only there,
        timeout_ms, put_wait_ms (how long a call, and a put for space, may take), exist_timeout_ms (the same of
        is_exist, which event loops call) and connect_wait_ms (how long setup() tries on where nothing listens) are
        accepted as well, and enable_egm_store_pool, egm_numa_nodes and egm_handle_type (docs/egm.md).

        local_hostname: "host" or "host:port", how other hosts reach this process; empty: by the address that faces the
        master. global_segment_size: memory that this process gives; 0: it only uses others'. local_buffer_size: 0
        refuses the puts that copy, no other effect. protocol: tcp, or rdma, which falls back to TCP; shared memory is
        used on one host. enable_ssd_offload, ssd_offload_path: a folder on a disk that values go to when the memory is
        full, MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES of it, or half of what is free. tenant_id: whose keys this store
        sees. Without effect: metadata_server, rdma_devices, engine, enable_client_http_server, client_http_port.
        """
        values = (local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices,
                  master_server_addr, engine, enable_ssd_offload, ssd_offload_path, tenant_id, enable_client_http_server,
                  client_http_port)
        of = dict(zip(_SETTINGS, values))
        if isinstance(local_hostname, dict):
            more = [name for name in _SETTINGS[1:] if of[name] is not _DEFAULTS[name]]
            if more:
                raise TypeError("setup() of a dict takes no other argument: %s" % ", ".join(more))
            return self._setup_from(local_hostname)
        return self._join({}, {}, of)

    def _setup_from(self, settings):
        values, others = dict(settings), {"device_name": "rdma_devices", "master_server_address": "master_server_addr"}
        for name in set(others) & set(values):
            value = values.pop(name)
            if values.setdefault(others[name], value) != value:
                return _store._fail(_INVALID, "setup() is given %s and %s, which mean the same, with two values" % (name, others[name]))
        times = {name: values.pop(name) for name in _TIMES if name in values}
        egm = {name: values.pop(name) for name in _EGM if name in values}
        for name in values:
            if name not in _SETTINGS:
                return _store._fail(_INVALID, "setup() does not know %r; it knows %s" % (name, ", ".join(_SETTINGS)))
        return self._join(times, egm, {**_DEFAULTS, **values})

    def _join(self, times, egm, of):
        _warn_of_variables()
        engine = of["engine"]
        try:
            host, port = _host_and_port(_text("local_hostname", of["local_hostname"]))
            for name in ("metadata_server", "rdma_devices"):
                _text(name, of[name])
            master = _master(_text("master_server_addr", of["master_server_addr"]))
            segment_size = _bytes("global_segment_size", of["global_segment_size"])
            buffer_size = _bytes("local_buffer_size", of["local_buffer_size"])
            transport = _transport(_text("protocol", of["protocol"]))
            ssd_size, ssd_file = 0, None
            if _flag("enable_ssd_offload", of["enable_ssd_offload"]):
                ssd_size, ssd_file = _ssd(_text("ssd_offload_path", of["ssd_offload_path"]))
            tenant = _text("tenant_id", of["tenant_id"]) or "default"
            times = _times(times)
            egm = _egm(egm, of["protocol"], transport, buffer_size)
            if _bytes("client_http_port", of["client_http_port"]) > 65535:
                raise _Refused(_INVALID, "client_http_port is %s: must be 0 to 65535" % of["client_http_port"])
            if _flag("enable_client_http_server", of["enable_client_http_server"]):
                _log.warning("enable_client_http_server: there is no HTTP server in clients; see the master's /metrics")
        except _Refused as refused:
            return _store._fail(*refused.args)
        if engine is not None:
            _log.warning("engine: the store uses a transfer engine of its own")
        port, keeper = (port, None) if port else _own_port()
        name = ("[%s]:%d" if ":" in host else "%s:%d") % (host or os.uname().nodename, port)
        code = self._open(master, name, _host_for_peers(host, master), segment_size, ssd_size, ssd_file, transport,
                          os.environ.get("YOLK_SECRET_FILE"), times["timeout_ms"], times["put_wait_ms"], buffer_size == 0,
                          times["exist_timeout_ms"], tenant, None, 0, times["connect_wait_ms"], *egm)
        return self._named(code, name, keeper)

    def _named(self, code, name, keeper):
        """The end of setup(): one that fails leaves the name of a store that was set up before."""
        if code == 0:
            self._hostname, self._port_keeper = name, keeper
        elif keeper is not None:
            keeper.close()
        return code

    def close(self):
        """Waits for the calls in progress, takes this process's memory out of the cluster and ends the session. 0, also if
        it was closed before; setup() may follow."""
        code = super().close()
        if code == 0:
            self._port_keeper = None
        return code

    def setup_dummy(self, mem_pool_size, local_buffer_size, server_address):
        """Joins through a client on this machine that answers others at server_address ("host:port"): it says which
        cluster, and its memory serves. mem_pool_size: what alloc_from_mem_pool() gives from; local_buffer_size: 0 refuses
        the puts that copy. The environment's YOLK_TIMEOUT and YOLK_PUT_WAIT limit its calls ("5s"; 30 s and 1 s). 0 or a
        negative code."""
        try:
            pool_size = _bytes("mem_pool_size", mem_pool_size)
            buffer_size = _bytes("local_buffer_size", local_buffer_size)
            server = _text("server_address", server_address)
            times = _times({})
            if not server:
                raise _Refused(_INVALID, "server_address is empty: must be the host:port of a real client on this machine")
        except _Refused as refused:
            return _store._fail(*refused.args)
        _warn_of_variables()
        port, keeper = _own_port()
        name = "%s:%d" % (os.uname().nodename, port)
        code = self._open(None, name, None, 0, 0, None, "auto", os.environ.get("YOLK_SECRET_FILE"), times["timeout_ms"],
                          times["put_wait_ms"], buffer_size == 0, times["exist_timeout_ms"], None, server, pool_size,
                          times["connect_wait_ms"])
        return self._named(code, name, keeper)

    def get_hostname(self):
        """"host:port" that this process goes by; "" before setup()."""
        return self._hostname

    def remove_by_regex(self, regex_pattern, force=False):
        """Removes the keys in which the pattern (of Python's re) is found, those leased to readers only with `force`. How
        many, or a negative code."""
        if not isinstance(regex_pattern, (str, re.Pattern)):
            raise TypeError("regex_pattern must be a str, not %s" % type(regex_pattern).__name__)
        try:
            pattern = re.compile(regex_pattern)
            pattern.search("")
        except TypeError:
            raise TypeError("regex_pattern must be a pattern of a str, not of bytes") from None
        except (re.error, OverflowError, RecursionError) as error:
            return _store._fail(_INVALID, "regex_pattern %.80r: %s" % (regex_pattern, error))
        keys = self._keys()
        if isinstance(keys, int):
            return keys
        results = self.batch_remove([key for key in keys if pattern.search(key)], force)
        removed = results.count(0)
        failed = [code for code in results if code not in (0, ERROR_CODES["YOLK_ERR_NOT_FOUND"],
                                                           ERROR_CODES["YOLK_ERR_HAS_LEASE"])]
        return failed[0] if failed and not removed else removed

    def get_replica_desc(self, key):
        """A list with a ReplicaDescriptor for each copy; [] if the key is not there."""
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys):
        """{key: what get_replica_desc() gives}, without the keys that are not there. One question a key."""
        if isinstance(keys, (str, bytes)) or not hasattr(keys, "__iter__"):
            raise TypeError("keys must be a sequence, not %s" % type(keys).__name__)
        keys = list(keys)
        return {key: [ReplicaDescriptor(*place) for place in places]
                for key, places in zip(keys, self._places(keys)) if places is not None}


# The arguments of setup() and their defaults.
_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(MooncakeDistributedStore.setup).parameters.items()
             if name != "self"}
_SETTINGS = tuple(_DEFAULTS)


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """The same store; each method NAME is also there as async_NAME, which runs it in the default executor."""

    def __getattr__(self, name):
        if not name.startswith("async_"):
            raise AttributeError("%s has no attribute %r" % (type(self).__name__, name))
        method = getattr(self, name[len("async_"):])

        @functools.wraps(method)
        async def call(*args, **named):
            return await asyncio.get_running_loop().run_in_executor(None, functools.partial(method, *args, **named))

        return call


def bind_to_numa_node(node):
    """Has the calling thread, and those it starts from now on, run on the processors of a NUMA node and take new memory
    from there as long as it has some. Without effect, which is logged, where there is no such node or it is forbidden."""
    why = _numa_refusal(_index("node", node))
    if why:
        _log.warning("bind_to_numa_node(%d): %s; nothing is bound", node, why)


def _numa_refusal(node):
    if not 0 <= node < _NUMA_NODES_MAX:
        return "nodes are 0 to %d" % (_NUMA_NODES_MAX - 1)
    try:
        with open("/sys/devices/system/node/node%d/cpulist" % node, encoding="ascii") as file:
            ranges = [part.split("-") for part in file.read().strip().split(",") if part]
    except OSError as error:
        return "this machine has no such node (%s)" % error
    cpus = {cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)} & os.sched_getaffinity(0)
    if not cpus:
        return "none of its processors may be used"
    number = _SYS_SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return "not known how on %s" % os.uname().machine
    mask = (ctypes.c_ulong * (_NUMA_NODES_MAX // 64))()
    mask[node // 64] = 1 << node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel looks at one bit less than it is told.
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(_MPOL_PREFERRED), mask, ctypes.c_ulong(_NUMA_NODES_MAX + 1)) != 0:
        return "set_mempolicy: %s" % os.strerror(ctypes.get_errno())
    os.sched_setaffinity(0, cpus)
    return None


class MooncakeHostMemAllocator:
    """Page-aligned memory, given by its address, that processes started by fork share."""

    def __init__(self):
        self._maps = {}

    def alloc(self, size):
        """The address of `size` bytes; 0 if there is not so much."""
        size = _index("size", size)
        if size <= 0:
            _store._fail(_INVALID, "alloc needs a size of at least 1, not %d" % size)
            return 0
        try:
            memory = mmap.mmap(-1, size)
        except (OSError, OverflowError) as error:
            _store._fail(_NO_MEMORY, "cannot allocate %d bytes: %s" % (size, error))
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._maps[address] = memory
        return address

    def free(self, address):
        """0, or a negative code: the address is none that alloc() gave. Unregister the memory first."""
        memory = self._maps.pop(_index("address", address), None)
        if memory is None:
            return _store._fail(_INVALID, "free: %d is not of this allocator" % address)
        memory.close()
        return 0
