#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TENT's C interface as programs link it: the example, alone, as two processes, by names of each metadata service."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ROOT, Skip, build_dir, check, check_equal, check_in, eventually, free_port, main, test
from services import etcd, redis

ALONE = "1048576 bytes, all of it\nread 's' to 's'\n1572864 bytes, all of it\n"
HEARD = "copy: half of it is new\nmemory is 'w' to 's'\n"


def example(context, library="transfer_engine"):
    """The program, built against the library of the build."""
    if shutil.which("cc") is None:
        raise Skip("no C compiler")
    path = context.path("tent")
    if not os.path.exists(path):
        done = subprocess.run(["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I",
                               os.path.join(ROOT, "include"), os.path.join(ROOT, "examples", "tent.c"), "-L", build_dir(),
                               "-Wl,-rpath," + build_dir(), "-l" + library, "-o", path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        if "undefined reference to `__asan" in done.stdout or "undefined reference to `__tsan" in done.stdout:
            raise Skip("the library of this build needs a sanitizer's own program")
        check_equal(done.returncode, 0, done.stdout)
    return path


def run(context, *args, code=0, **env):
    done = subprocess.run([example(context), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, env=dict(os.environ, **env), check=False)
    check_equal(done.returncode, code, done.stdout + done.stderr)
    return done.stdout, done.stderr


class Server:
    """The example as the one that offers memory."""

    def __init__(self, context, *settings, **env):
        self.process = subprocess.Popen([example(context), "serve", *settings], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=dict(os.environ, **env))
        line = self.process.stdout.readline()
        check(re.fullmatch(r"\S+ \d+\n", line), f"the server said {line!r}")
        self.name, self.address = line.split()

    def end(self):
        said, _ = self.process.communicate("", timeout=60)
        check_equal(self.process.returncode, 0)
        return said


def between(context, *settings, wanted_name=None, **env):
    """Two processes, the second one finds the first by its name."""
    server = Server(context, *settings, *([f"local_segment_name={wanted_name}"] if wanted_name else []), **env)
    try:
        if wanted_name:
            check_equal(server.name, wanted_name)
        check_equal(run(context, "copy", server.name, server.address, *settings, **env)[0], ALONE)
    finally:
        said = server.end()
    check_equal(said, HEARD)


@test("tent.the_example")
def _(c):
    check_equal(run(c)[0], ALONE + HEARD)
    # Under the name of upstream's own build too.
    os.unlink(example(c))
    example(c, "tent_shared")
    check_equal(run(c)[0], ALONE + HEARD)


@test("tent.the_library_has_what_its_headers_say")
def _(_c):
    """Each function of both headers, and nothing else; of upstream's each one."""
    if shutil.which("nm") is None:
        raise Skip("nm is not installed")
    text = subprocess.run(["nm", "-D", "--defined-only", os.path.join(build_dir(), "libtransfer_engine.so")],
                          stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    exported = {line.split()[2] for line in text.splitlines() if line.split()[1] == "T"}
    declared = {"yolk_last_error"}
    for header, mark in (("mooncake/transfer_engine_c.h", "MOONCAKE_ENGINE_API"), ("tent/transfer_engine.h", "TENT_API")):
        with open(os.path.join(ROOT, "include", header), encoding="utf-8") as file:
            declared |= set(re.findall(r"^" + mark + r"\s[^;(]*?(\w+)\(", file.read(), re.M))
    check_equal(sorted(exported), sorted(declared))
    upstream = """load_config_from_file set_config create_engine destroy_engine available segment_name rpc_server_addr_port
        open_segment close_segment get_segment_info free_segment_info allocate_memory allocate_memory_ex free_memory
        register_memory register_memory_with_perm register_memory_ex register_memory_batch register_memory_batch_ex
        unregister_memory unregister_memory_batch allocate_batch free_batch submit submit_notif send_notifs recv_notifs
        free_notifs task_status task_status_list overall_status cancel_task get_nic_load_stats"""
    check_equal({"tent_" + name for name in upstream.split()} - exported, set())


@test("tent.two_processes")
def _(c):
    between(c)
    # Both sides say who they are; a wrong secret is told apart from everything else.
    c.write("secret", "a" * 32 + "\n")
    c.write("other", "b" * 32 + "\n")
    for name in ("secret", "other"):
        os.chmod(c.path(name), 0o600)
    between(c, YOLK_SECRET_FILE=c.path("secret"))
    server = Server(c, YOLK_SECRET_FILE=c.path("secret"))
    check_in("secret", run(c, "copy", server.name, server.address, code=1, YOLK_SECRET_FILE=c.path("other"))[1])
    server.end()


@test("tent.one_configuration_for_all")
def _(c):
    """MC_TENT_CONF as a file and as JSON; the environment goes before it; a wrong one is told."""
    c.write("conf.json", '{"rpc_server_hostname": "127.0.0.2", "transports": {"io_uring": {"enable": false}}}')
    server = Server(c, MC_TENT_CONF=c.path("conf.json"))
    check(server.name.startswith("127.0.0.2:"), server.name)
    server.end()
    server = Server(c, MC_TENT_CONF='{"rpc_server_hostname": "127.0.0.3"}', MOONCAKE_LOCAL_HOSTNAME="127.0.0.4")
    check(server.name.startswith("127.0.0.4:"), server.name)
    server.end()
    server = Server(c, "rpc_server_hostname=127.0.0.5", MC_TENT_CONF=c.path("conf.json"))
    check(server.name.startswith("127.0.0.5:"), server.name)
    server.end()
    # What the page shows is one that works.
    with open(os.path.join(ROOT, "docs", "transfer.md"), encoding="utf-8") as page:
        shown = re.search(r'^    \{"transports".*?\}\n\n', page.read(), re.M | re.S).group(0)
    check_equal(run(c, MC_TENT_CONF=shown), (ALONE + HEARD, ""))
    check_in("line 1, column 2", run(c, code=1, MC_TENT_CONF="{")[1])
    check_in("MC_TENT_CONF: merge_requests", run(c, code=1, MC_TENT_CONF='{"merge_requests": 7}')[1])
    said = run(c, MC_TENT_CONF='{"transports": {"rdma": {"enable": true}}}', MC_GID_INDEX="3")[1]
    check_in("transports/rdma/enable", said)
    check_equal(said.count("MC_GID_INDEX has no effect: there is no RDMA transport"), 1, said)


@test("tent.names_in_http")
def _(c):
    port = free_port()
    c.master("--metadata-listen", f"127.0.0.1:{port}")
    between(c, "metadata_type=http", f"metadata_servers=127.0.0.1:{port}/metadata", wanted_name="prefill/0")
    check_in("knows no peer", run(c, "copy", "nobody", 0, "metadata_type=http",
                                  f"metadata_servers=http://127.0.0.1:{port}/metadata", code=1)[1])


@test("tent.names_in_etcd")
def _(c):
    port = etcd(c)
    settings = ("metadata_type=etcd", f"metadata_servers=127.0.0.1:{free_port()};127.0.0.1:{port}")
    eventually(lambda: "bytes" in subprocess.run([example(c), *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                 text=True, timeout=60, check=False).stdout, text="etcd answers")
    between(c, *settings, wanted_name="prefill-0")


@test("tent.names_in_redis")
def _(c):
    port = redis(c, "geheim")
    between(c, "metadata_type=redis", f"metadata_servers=127.0.0.1:{port}", wanted_name="prefill-0",
            MC_REDIS_PASSWORD="geheim", MC_REDIS_DB_INDEX="3")
    check_in("AUTH", run(c, "serve", "metadata_type=redis", f"metadata_servers=127.0.0.1:{port}", code=1,
                         MC_REDIS_PASSWORD="falsch")[1])


class Request(ctypes.Structure):
    _fields_ = [("opcode", ctypes.c_int), ("source", ctypes.c_void_p), ("target_id", ctypes.c_uint64),
                ("target_offset", ctypes.c_uint64), ("length", ctypes.c_uint64), ("priority", ctypes.c_int),
                ("transport_hint", ctypes.c_int)]


class Status(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("transferred_bytes", ctypes.c_uint64)]


def stopped(pid):
    """All of its threads: a signal takes a while to reach each."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
            if file.read().rsplit(")", 1)[1].split()[0] != "T":
                return False
    return True


@test("tent.what_is_stuck_stays_pending")
def _(c):
    """A write to a process that is stopped: given up, it is never told as over while it may still happen, and its memory
    is the engine's until it is."""
    path = os.path.join(build_dir(), "libtransfer_engine.so")
    with open(path, "rb") as file:
        if re.search(rb"__asan_|__tsan_", file.read()):
            raise Skip("Python cannot load a library with a sanitizer")
    tent = ctypes.CDLL(path)
    tent.tent_create_engine.restype = ctypes.c_void_p
    tent.tent_last_error.restype = tent.tent_metrics.restype = ctypes.c_char_p
    tent.tent_allocate_batch.restype = ctypes.c_uint64
    server = Server(c)
    tent.tent_set_config(b"drain_limit_ms", b"100")
    engine = ctypes.c_void_p(tent.tent_create_engine())
    check(engine.value, tent.tent_last_error())
    memory, peer, status = ctypes.create_string_buffer(1 << 20), ctypes.c_uint64(), Status()
    check_equal(tent.tent_register_memory(engine, memory, ctypes.c_size_t(1 << 20)), 0)
    check_equal(tent.tent_open_segment(engine, ctypes.byref(peer), server.name.encode()), 0)
    batch = ctypes.c_uint64(tent.tent_allocate_batch(engine, ctypes.c_size_t(4)))

    def submit(length):
        request = Request(1, ctypes.addressof(memory), peer.value, int(server.address), length, 0, 0)
        check_equal(tent.tent_submit(engine, batch, ctypes.byref(request), ctypes.c_size_t(1)), 0)

    def state(task):
        check_equal(tent.tent_task_status(engine, batch, ctypes.c_size_t(task), ctypes.byref(status)), 0)
        return status.status

    submit(4096)  # the way is open
    eventually(lambda: state(0) == 4, text="the first write is over")
    os.kill(server.process.pid, signal.SIGSTOP)
    eventually(lambda: stopped(server.process.pid), text="the server is stopped")
    try:
        submit(1 << 20)
        check_equal(state(1), 1)
        check_equal(tent.tent_cancel_task(engine, batch, ctypes.c_size_t(1)), 0)
        stuck = r"^yolk_engine_stuck_requests(?:\{[^}]*\})? 1$"
        eventually(lambda: state(1) != 1 or re.search(stuck, tent.tent_metrics(engine).decode(), re.M), text="it is stuck")
        check_equal(state(1), 1, "what is stuck")
        submit(4096)
        eventually(lambda: state(2) != 1, text="the next one on its memory is over")
        check_equal(state(2), 6, "the next one on its memory")
        check_equal(tent.tent_overall_status(engine, batch, ctypes.byref(status)), 0)
        check_equal(status.status, 1, "all of them")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    check_equal(tent.tent_free_batch(engine, batch), 0)
    tent.tent_destroy_engine(engine)
    server.end()


def source_of(suite):
    """The text of a unit test's source, by the name that it runs under."""
    room, name = suite.split(".", 1)
    for path in (f"src/{room}/{name}_test.c", f"test/{room}/{name}_test.c", f"src/{room}/{name}/{name}_test.c"):
        if os.path.exists(os.path.join(ROOT, path)):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                return file.read()
    check(False, f"docs/transfer.md names the test {suite}, which there is not")


@test("tent.each_behaviour_has_its_test")
def _(_c):
    """The table of the page: each test that it names is there."""
    with open(os.path.join(ROOT, "docs", "transfer.md"), encoding="utf-8") as page:
        table = page.read().split("## TENT's behaviours")[1].split("\n\n")[2]
    named = 0
    for cell in re.findall(r"^\|[^|]*\| (.*?) \|$", table, re.M)[2:]:
        for suite, names in re.findall(r"`([a-z_.]+)`([^`;]*)", cell):
            if suite.startswith("e2e.") or suite.endswith("."):
                continue
            source = source_of(suite)
            for name in re.findall(r"\w+_\w*\*?", names):
                check(re.search(r"cmocka_unit_test\(" + name.replace("*", r"\w+") + r"\)", source), f"{suite} has no {name}")
                named += 1
    check(named > 25, f"only {named} tests are named")


if __name__ == "__main__":
    sys.exit(main())
