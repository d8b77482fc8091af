#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Transport plug-ins as their authors build them: out of the tree, against installed headers, with the guide in hand; and
as their users name them: to the program, to Python, to Mooncake's C library."""

import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ROOT, Skip, build_dir, check, check_equal, check_in, main, test
from python_kit import folder

SANITIZED = re.compile(rb"__asan_|__tsan_")


def plugin(name):
    path = os.path.join(build_dir(), "tests", "plugins", name + ".so")
    if not os.path.exists(path):
        raise Skip("no plug-ins were built: YOLK_TESTS is off")
    return path


def command(*args, **more):
    done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=170, check=False, **more)
    check_equal(done.returncode, 0, f"{' '.join(map(str, args))}:\n{done.stdout[-6000:]}")
    return done.stdout


def install(context):
    """The headers, where an installation has them."""
    for tool in ("cmake", "cc"):
        if shutil.which(tool) is None:
            raise Skip(f"{tool} is not installed")
    shutil.copytree(os.path.join(ROOT, "include", "yolk"), context.path("prefix/include/yolk"))
    return context.path("prefix/include")


def conforms(path):
    program = os.path.join(build_dir(), "yolk-conformance")
    with open(program, "rb") as file:
        if SANITIZED.search(file.read()):
            raise Skip("a plug-in that is built without the sanitizer is not run in a program with it")
    return command(program, "--plugin", path)


@test("plugins.built_out_of_the_tree")
def _(c):
    """The folder alone, copied elsewhere, against nothing but installed headers; what comes out passes the suite."""
    include = install(c)
    shutil.copytree(os.path.join(ROOT, "examples", "plugin"), c.path("mine"))
    command("cmake", "-S", c.path("mine"), "-B", c.path("build"), f"-DYOLK_INCLUDE={include}")
    command("cmake", "--build", c.path("build"))
    for name in ("template", "unix"):
        path = c.path(f"build/yolk_{name}.so")
        symbols = command("nm", "-D", "--defined-only", path)
        check_equal(re.findall(r" T (\S+)", symbols), ["yolk_transport_plugin"], symbols)
        check("yolk" not in command("nm", "-D", "--undefined-only", path), "it needs symbols of Yolk's")
    check_in("[  PASSED  ]", conforms(c.path("build/yolk_unix.so")))


@test("plugins.the_guide_is_the_template")
def _(c):
    """The guide's code, joined, is the template to the byte, and what it compiles to is a plug-in that works."""
    with open(os.path.join(ROOT, "docs", "plugins.md"), encoding="utf-8") as file:
        code = "".join(re.findall(r"^```c\n(.*?)^```$", file.read(), re.S | re.M))
    with open(os.path.join(ROOT, "examples", "plugin", "template.c"), encoding="utf-8") as file:
        check_equal(code, file.read(), "docs/plugins.md and examples/plugin/template.c")
    include = install(c)
    source = c.write("guide.c", code)
    command("cc", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fPIC", "-shared",
            "-Wl,-z,defs", "-I", include, source, "-o", c.path("guide.so"), "-pthread")
    check_in("[  PASSED  ]", conforms(c.path("guide.so")))


@test("plugins.in_a_store")
def _(c):
    """The program, with the plug-in as the only transport: by flag, by file and by variable."""
    path = plugin("unix")
    _, address = c.master()
    c.node(address, "--plugin-paths", path, "--transport", "unix")
    value = os.urandom(3 << 20)
    settings = c.write("client.yaml", f"transports/plugins: {path}\ntransport: unix\n")
    code, _, err = c.run("put", "--config", settings, "--master", address, "k", stdin=value)
    check_equal(code, 0, err)
    code, out, err = c.run("get", "--master", address, "k", env={"YOLK_PLUGIN_PATHS": path, "YOLK_TRANSPORT": "unix"})
    check_equal((code, out == value), (0, True), err)
    code, _, err = c.run("get", "--master", address, "k", "--transport", "tcp")
    check(code != 0, "the node is reached by tcp, which it does not serve")
    code, _, err = c.run("get", "--master", address, "k", "--transport", "pigeon", "--plugin-paths", path)
    check_equal(code != 0, True)
    check_in("must be one of auto, shm, tcp, loop, nvlink, unix", err)
    code, _, err = c.run("get", "--master", address, "k", "--plugin-paths", "unix.so")
    check_equal(code != 0, True)
    check_in("plugin_paths: transport plug-in: \"unix.so\": the path must be absolute", err)


PEER = r"""
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from mooncake.engine import TransferEngine
from mooncake.engine import last_error
engine = TransferEngine()
memory = ctypes.create_string_buffer(1 << 20)
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "unix", "") == 0, last_error()
assert engine.has_transport("unix") and not engine.has_transport("pigeon")
assert engine.register_memory(ctypes.addressof(memory), 1 << 20) == 0
if len(sys.argv) == 2:
    memory[:] = b"p" * (1 << 20)
    print(engine.get_rpc_port(), ctypes.addressof(memory), flush=True)
    sys.stdin.read()
    sys.exit(0)
for hint in ("", "unix"):
    code = engine.transfer_sync_read(sys.argv[2], ctypes.addressof(memory), int(sys.argv[3]), 1 << 20, hint)
    assert code == 0, (code, last_error())
try:
    engine.transfer_sync_read(sys.argv[2], ctypes.addressof(memory), int(sys.argv[3]), 1 << 20, "pigeon")
    assert False
except ValueError as why:
    assert "pigeon" in str(why)
assert memory.raw == b"p" * (1 << 20)
print("read it")
"""


@test("plugins.in_python")
def _(c):
    """mooncake.engine takes the protocol of a plug-in; two processes, and nothing but the plug-in between them."""
    where = folder()
    env = dict(os.environ, YOLK_PLUGIN_PATHS=plugin("unix"), YOLK_TRANSPORTS_OFF="tcp")
    with subprocess.Popen([sys.executable, "-c", PEER, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
                          text=True) as peer:
        port, address = peer.stdout.readline().split()
        check_equal(command(sys.executable, "-c", PEER, where, f"127.0.0.1:{port}", address, env=env), "read it\n")
        peer.stdin.close()
    done = subprocess.run([sys.executable, "-c", PEER, where], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(env, YOLK_PLUGIN_PATHS=plugin("other_abi")), check=False, timeout=60)
    check(done.returncode != 0, "a plug-in of another interface was loaded")
    check_in("other_abi.so: a transport of interface 77, not 1", done.stdout)


@test("plugins.in_tents_configuration")
def _(c):
    """Loaded by a key of its JSON, and turned off by another one, like any transport."""
    code = ("from mooncake.engine import TransferEngine, last_error as why; e = TransferEngine(); "
            "assert e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '') == 0, why(); "
            "print(e.has_transport('unix'), why())")
    for more, says in (({}, "True"), ({"unix": {"enable": False}}, "False it is turned off")):
        config = json.dumps({"transports": {"plugins": plugin("unix"), **more}})
        env = dict(os.environ, PYTHONPATH=folder(), MC_USE_TENT="1", MC_TENT_CONF=config)
        check_equal(command(sys.executable, "-c", code, env=env).strip(), says)


@test("plugins.in_mooncakes_c_library")
def _(c):
    """installTransport takes its name."""
    env = dict(os.environ, YOLK_PLUGIN_PATHS=plugin("unix"), LIBRARY=os.path.join(build_dir(), "libtransfer_engine.so"))
    script = r"""
import ctypes, os
lib = ctypes.CDLL(os.environ["LIBRARY"])
lib.createTransferEngine.restype = lib.installTransport.restype = ctypes.c_void_p
lib.createTransferEngine.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int]
lib.installTransport.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
lib.destroyTransferEngine.argtypes = [ctypes.c_void_p]
engine = lib.createTransferEngine(b"P2PHANDSHAKE", b"127.0.0.1", b"127.0.0.1", 0, 0)
assert engine
assert lib.installTransport(engine, b"unix", None) and not lib.installTransport(engine, b"pigeon", None)
lib.destroyTransferEngine(engine)
assert "unix.so" not in open("/proc/self/maps").read()
print("ok")
"""
    with open(env["LIBRARY"], "rb") as file:
        if SANITIZED.search(file.read()):
            raise Skip("Python cannot load a library with a sanitizer")
    check_in("ok\n", command(sys.executable, "-c", script, env=env))
    # By TENT's interface: its own key turns it off, and a policy takes its name.
    script = r"""
import ctypes, os
lib = ctypes.CDLL(os.environ["LIBRARY"])
lib.tent_create_engine.restype = ctypes.c_void_p
lib.tent_last_error.restype = ctypes.c_char_p
policy = b'[{"name": "all", "segment_type": "memory", "transports": ["unix", "tcp"]}]'
for off in (b"true", b"false"):
    lib.tent_set_config(b"transports/unix/enable", off)
    lib.tent_set_config(b"policy", policy)
    engine = ctypes.c_void_p(lib.tent_create_engine())
    assert engine.value, lib.tent_last_error()
    assert lib.tent_has_transport(engine, b"unix") == (off == b"true")
    assert off == b"true" or b"turned off" in lib.tent_last_error(), lib.tent_last_error()
    lib.tent_destroy_engine(engine)
lib.tent_set_config(b"policy", policy.replace(b"unix", b"pigeon"))
assert lib.tent_create_engine() is None and b"pigeon" in lib.tent_last_error()
print("ok")
"""
    check_in("ok\n", command(sys.executable, "-c", script, env=env))


if __name__ == "__main__":
    sys.exit(main())
