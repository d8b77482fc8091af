# SPDX-License-Identifier: Apache-2.0
"""The commands of the program, end to end, with good and bad input."""

import glob
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request

from harness import (Skip, check, check_equal, check_in, eventually, free_port, main, test,
                     yolk_path)


def wanted(c, code, *args, **kwargs):
    """Runs yolk and checks its exit code; (stdout, stderr)."""
    got, out, err = c.run(*args, **kwargs)
    check_equal(got, code, f"exit code of yolk {' '.join(map(str, args))}\n{out[:500]!r}\n{err}")
    return out, err


def refused(c, *args, says=(), code=2, **kwargs):
    """A call that must fail with one clear sentence that holds all of `says`."""
    _, err = wanted(c, code, *args, **kwargs)
    for part in says:
        check_in(part, err, f"message of yolk {' '.join(map(str, args))[:200]}")
    check("Assert" not in err and "core dumped" not in err, err)


def http(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def cluster(c, nodes=2, *master_args):
    master, address = c.master(*master_args)
    for i in range(nodes):
        c.node(address, "--name", f"node{i}")
    return master, address


def metric(text, name):
    for line in text.splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise AssertionError(f"no metric {name}")


@test("cli.help")
def _(c):
    out, _ = wanted(c, 0, "--help")
    for name in "master node put get exist ls rm stat demo replay sim doctor config".split():
        check_in(name, out.decode())
        text, err = wanted(c, 0, "help", name)
        if name not in ("config", "demo"):
            check_in("--", text.decode() + err, f"help of {name}")
    wanted(c, 0, "--version")
    out, _ = wanted(c, 0, "config")
    check_in("lease-ttl", out.decode())


@test("cli.put_get_exist_ls_rm_stat")
def _(c):
    _, address = cluster(c)
    at = ("--master", address)
    big = os.urandom(3_000_000)
    wanted(c, 0, "put", *at, "small", stdin=b"hello")
    wanted(c, 0, "put", *at, "big", c.write("big", big))
    wanted(c, 0, "put", *at, "empty", c.write("empty", b""))
    check_equal(wanted(c, 0, "get", *at, "small")[0], b"hello")
    check_equal(wanted(c, 0, "get", *at, "empty")[0], b"")
    wanted(c, 0, "get", *at, "big", c.path("copy"))
    with open(c.path("copy"), "rb") as f:
        check(f.read() == big, "big came back different")
    out, _ = wanted(c, 0, "exist", *at, "small", "big")
    check_equal(out.decode().split(), ["yes", "small", "yes", "big"])
    out, _ = wanted(c, 1, "exist", *at, "small", "missing")
    check_equal(out.decode().split(), ["yes", "small", "no", "missing"])
    out, _ = wanted(c, 0, "ls", *at)
    check_equal(
        sorted(line.split() for line in out.decode().splitlines()),
        [["0", "empty"], ["3000000", "big"], ["5", "small"]],
        "ls",
    )
    # A second put of the same key keeps the first value.
    wanted(c, 0, "put", *at, "small", stdin=b"other")
    check_equal(wanted(c, 0, "get", *at, "small")[0], b"hello")
    out, _ = wanted(c, 0, "stat", *at, "--recount")
    check_in("recount_differences 0", out.decode())
    wanted(c, 0, "rm", *at, "--force", "small")
    refused(c, "get", *at, "small", code=1, says=["small", "NOT_FOUND"])
    refused(c, "rm", *at, "small", code=1, says=["small", "NOT_FOUND"])
    out, _ = wanted(c, 0, "rm", *at, "--all", "--force")
    check_in("2 removed", out.decode())
    check_equal(wanted(c, 0, "ls", *at)[0], b"")
    wanted(c, 0, "stat", *at, "--recount")


@test("cli.transports")
def _(c):
    _, address = cluster(c)
    data = os.urandom(1_500_000)
    for transport in ("shm", "tcp"):
        at = ("--master", address, "--transport", transport)
        wanted(c, 0, "put", *at, transport, stdin=data)
        check(wanted(c, 0, "get", *at, transport)[0] == data, f"{transport} came back different")


@test("cli.unix_socket_and_spin")
def _(c):
    path = "unix:" + c.path("master.sock")
    process = c.yolk("master", "--listen", path, "--admin-port", "0", "--spin", "50")
    check_equal(process.wait_line(r"^yolk master ready (\S+)").group(1), path)
    c.node(path)
    wanted(c, 0, "put", "--master", path, "k", stdin=b"v")
    check_equal(wanted(c, 0, "get", "--master", path, "k")[0], b"v")
    refused(c, "master", "--listen", path, "--admin-port", "0", code=1, says=[path, "in use"])
    process.terminate()
    check_equal(process.wait(), 0)
    check(not os.path.exists(path[5:]), "the socket is left behind")


@test("cli.unix_socket_at_a_file")
def _(c):
    """A file that is no socket is never taken for a left-over one."""
    path = c.write("precious", b"data")
    refused(c, "master", "--listen", "unix:" + path, "--admin-port", "0", code=1,
            says=[path, "in use"])
    with open(path, "rb") as f:
        check_equal(f.read(), b"data")
    # The socket of a killed master is taken over.
    path = "unix:" + c.path("left.sock")
    for _ in range(2):
        process = c.yolk("master", "--listen", path, "--admin-port", "0")
        process.wait_line(r"^yolk master ready")
        process.kill()


@test("cli.strange_keys")
def _(c):
    _, address = cluster(c, 1)
    at = ("--master", address)
    keys = ["/../", "a\nb", "../../etc/passwd", "x" * 4096, "ключ", "%s%n", "a\\b"]
    for i, key in enumerate(keys):
        wanted(c, 0, "put", *at, "--", key, stdin=f"value {i}".encode())
    for i, key in enumerate(keys):
        check_equal(wanted(c, 0, "get", *at, "--", key)[0], f"value {i}".encode())
    out, _ = wanted(c, 0, "ls", *at)
    check_equal(len(out.decode().splitlines()), len(keys), "one line a key")
    refused(c, "put", *at, "", says=["0 bytes", "4096"])
    refused(c, "put", *at, "x" * 5000, says=["5000 bytes", "4096"])
    refused(c, "get", *at, "x" * 5000, says=["5000 bytes", "4096"])


@test("cli.value_too_large")
def _(c):
    _, address = cluster(c, 1)
    path = c.path("huge")
    with open(path, "wb") as f:
        f.truncate(5 << 30)  # sparse
    refused(c, "put", "--master", address, "--put-wait", "100ms", "huge", path, code=1,
            says=["huge", str(5 << 30)])
    wanted(c, 0, "put", "--master", address, "small", stdin=b"still serving")
    check_equal(wanted(c, 0, "get", "--master", address, "small")[0], b"still serving")


@test("cli.wrong_usage")
def _(c):
    refused(c, says=["yolk COMMAND"])
    refused(c, "fetch", says=['"fetch"'])
    refused(c, "help", "fetch", says=['"fetch"'])
    refused(c, "master", "--nonsense", says=["nonsense"])
    refused(c, "master", "--port", "99999", says=["--port", "99999", "65535"])
    refused(c, "master", "--port", "http", says=["--port", "http"])
    refused(c, "master", "--port", says=["--port"])
    refused(c, "master", "--lease-ttl", "soon", says=["lease-ttl", "soon"])
    refused(c, "master", "--max-connections", "0", says=["--max-connections", "0"])
    refused(c, "master", "extra", says=["extra"])
    refused(c, "node", "--dram", "many", says=["--dram", "many"])
    refused(c, "node", "--dram", "1KiB", says=["--dram", "1KiB", "1MiB"])
    refused(c, "node", "--dram", "60TiB", says=["--dram", "60TiB", "memory"])
    refused(c, "node", "--segment-size", "4GX", says=["segment-size", "4GX"])
    refused(c, "node", "--transport", "pigeon", says=["transport", "pigeon"])
    refused(c, "node", "--master", "embedded", says=["embedded"])
    refused(c, "put", says=["KEY"])
    refused(c, "put", "a", "b", "c", says=['"c"'])
    refused(c, "rm", says=["KEY"])
    refused(c, "rm", "--all", "key", says=["--all"])
    refused(c, "ls", "--limit", "-1", says=["limit", "-1"])
    refused(c, "doctor", "--path", "/nowhere", says=["/nowhere"])
    refused(c, "put", "--put-wait", "5s", "--timeout", "1s", "k", c.write("f", b"x"), code=1,
            says=["put_wait", "timeout"])
    refused(c, "put", "key", "/nowhere/file", code=1, says=["/nowhere/file"])


# What no value of a type is, and what has to be said of it. (Of a number with another bound than 64 bits
# one above it is tried too.)
HUGE = "99999999999999999999999"
WRONG_VALUES = {
    "number": ("", "-1", "many", "1.5", "0x10", HUGE, "7KiB"),
    "size": ("", "-1", "lots", "4GX", "1.5GiB", HUGE, HUGE + "GiB"),
    "time": ("", "-1", "soon", "5 parsecs", "1.5s", HUGE, HUGE + "h"),
    "ratio": ("", "-0.5", "half", "1.1", "nan", "0x1", HUGE),
    "bool": ("maybe", "2", "-1"),
}
# Of texts, by command or "": arguments, and what is said of them. None: each text means something, or
# is tried elsewhere (a name that nobody has, a file that is not there).
WRONG_TEXTS = {
    "--config": [("/nowhere/c.yaml", "/nowhere/c.yaml")],
    "--master": [("", "HOST:PORT")],
    "--secret-file": {"master": [("/nowhere/secret", "/nowhere/secret")]},
    "--transport": [("", "--transport")],
    "--listen": [("", "HOST:PORT"), ("127.0.0.1:70000", "70000"), ("127.0.0.1:x", "x")],
    "--metrics-listen": [("127.0.0.1:70000", "70000"), ("127.0.0.1:x", "x")],
    "--metadata-listen": [("127.0.0.1:70000", "70000"), ("127.0.0.1:x", "x")],
    "--tenants": [("a", "NAME=SIZE"), ("a=-1", "-1"), ("a=1,a=1", "twice"), ("x" * 65 + "=1", "64 bytes")],
    "--gds-path": [("/dev/null", "file"), ("/dev", "file"), ("here", "absolute"), ("/tmp/", "file")],
    "--seeds": [("", "A..B"), ("1", "A..B"), ("2..1", "A..B"), ("a..b", "A..B"), ("1.." + HUGE, "A..B"), ("-1..2", "A..B")],
    "--path": {"doctor": [("", "--path"), ("/nowhere", "/nowhere"), ("/dev/null", "directory")]},
    "--capacity": {"bench policy": [("x", "x"), ("-1", "-1"), ("101", "101"), (HUGE, HUGE)]},
    "--egm-numa-nodes": [("x", "\"x\""), ("-1", "-1"), ("0,,1", "numbers"), (HUGE, HUGE)],
    "--plugin-paths": {"node": [("/nowhere/plugin.so", "/nowhere/plugin.so")]},
    "--name": None, "--tenant": None, "--ssd-path": None, "--host": None, "--trace": None, "--json": None,
    "--clients-listen": None, "--http-listen": None, "--master-flag": None, "--node-flag": None, "--target-seg-name": None,
}
# Without these another rule comes first.
NEEDS = {
    ("node", "--egm-numa-nodes"): ("--enable-egm-store-pool", "--transport", "nvlink"),
    ("replay", "--gds-path"): ("--synthetic", "--requests", "3", "--gds", "64MiB"),
    ("replay", ""): ("--synthetic", "--requests", "3"),
    ("master", "--listen"): ("--admin-port", "0"),
    ("master", "--metrics-listen"): ("--port", "0"),
    ("master", ""): ("--port", "0", "--admin-port", "0"),
}


def settings_by_command(c):
    """{command: {flag: (type, choices)}} of `yolk config`."""
    found = {}
    for row in wanted(c, 0, "config")[0].decode().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        if len(cells) != 7 or not cells[0].startswith("`--"):
            continue
        for command in cells[5].split(", "):
            found.setdefault(command, {})[cells[0].strip("`")] = (cells[1], "One of: " in cells[6])
    everywhere = found.pop("every command")
    return {command: {**everywhere, **flags} for command, flags in found.items() if command not in ("engine", "yolk-sim")}


def letters(text):
    return re.sub(r"[^a-z0-9]", "", text)


def wrong_values(command, flag, kind, choices):
    if kind != "text":
        return [(value, "must be" if value and not value.startswith(HUGE) else "") for value in WRONG_VALUES[kind]]
    if choices:
        return [("", "one of"), ("no such choice", "one of")]
    check(flag in WRONG_TEXTS, f"{flag} is new: say in WRONG_TEXTS what it refuses")
    row = WRONG_TEXTS[flag]
    return row.get(command, []) if isinstance(row, dict) else row or []


@test("cli.each_wrong_value_of_each_flag")
def _(c):
    """One sentence that names flag, value and rule; nothing is begun."""
    commands = settings_by_command(c)
    listed = re.findall(r"^  (\w+) ", wanted(c, 0, "help")[0].decode(), re.M)
    check_equal(sorted({name.split()[0] for name in commands} | {"config", "demo"}), sorted(listed), "commands")
    tried, wrong = 0, []
    for command, flags in sorted(commands.items()):
        shown = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", wanted(c, 0, *command.split(), "--help")[0].decode(), re.M))
        if "--plugin-paths" in shown:  # it stands with the engine's settings
            flags["--plugin-paths"] = ("text", False)
        check_equal(shown ^ set(flags), set(), f"flags that yolk {command} --help or the table of settings leaves out")
        for flag, (kind, choices) in sorted(flags.items()):
            for value, rule in wrong_values(command, flag, kind, choices):
                words = NEEDS.get((command, flag), NEEDS.get((command, ""), ()))
                code, out, err = c.run(*command.split(), *words, f"{flag}={value}", timeout_s=5)
                lines = [line for line in err.splitlines() if line and not line.startswith("(")]
                named = letters(flag) in letters("".join(lines))
                # Of a list the message may name the member alone.
                valued = value[:64] in "".join(lines) or kind == "text"
                if code not in (1, 2) or out or len(lines) != 1 or not named or not valued or rule not in lines[0]:
                    wrong.append(f"yolk {command} {flag}={value[:80]}: exit {code}, wanted {rule!r}\n{err}")
                tried += 1
    check(not wrong, "\n".join(wrong))
    check(tried > 300, f"only {tried} values tried")


@test("cli.replay_wrong_usage")
def _(c):
    replay = ("replay", "--synthetic", "--requests", "5")
    refused(c, *replay, "extra", says=["extra"])
    refused(c, *replay, "--transport", "pigeon", says=["--transport", "pigeon", "shm"])
    refused(c, *replay, "--block-size", "2GiB", says=["--block-size", "2GiB", "1GiB"])
    refused(c, *replay, "--block-size", "0", says=["--block-size", '"0"', "1GiB"])
    refused(c, *replay, "--transport", "loop", says=["--transport loop", "shm"])
    refused(c, "replay", "--synthetic", "--trace", "x", says=["--trace", "--synthetic"])
    refused(c, "replay", says=["--trace", "--synthetic"])
    refused(c, *replay, "--embedded", "--processes", says=["--embedded", "--processes"])
    refused(c, *replay, "--respawn", says=["--respawn", "--processes"])
    refused(c, *replay, "--no-verify", says=["verify"])
    refused(c, *replay, "--put-wait", "9s", "--timeout", "1s", says=["--put-wait", "--timeout"])
    refused(c, *replay, "--nodes", "65", says=["--nodes", "65", "64"])
    refused(c, *replay, env={"YOLK_DRAM": "lots"}, says=["YOLK_DRAM", "lots"])
    refused(c, *replay, "--dram", "100KiB", says=["--dram", "100KiB", "64KiB", "2 nodes"])
    for mode in ("--embedded", "--processes"):
        refused(c, *replay, mode, "--dram", "60TiB", says=["--dram", "60TiB", "memory"])
    refused(c, *replay, "--processes", "--dram", "1MiB", says=["--dram", "1MiB", "2 nodes"])
    refused(c, *replay, "--secret-file", "/nowhere", says=["--secret-file", "--processes"])
    # An unwritable result is said before the replay, not after it.
    out, err = wanted(c, 1, *replay, "--json", "/nowhere/out.json")
    check_equal(out, b"")
    check_in("/nowhere/out.json", err)
    refused(c, "replay", "--trace", "/dev/zero", code=1, says=["/dev/zero:1", "4 MiB"])


@test("cli.replay_settings_of_all_origins")
def _(c):
    """Environment and file reach the replay; what the command line says wins; what is meant for
    other commands does no harm."""
    path = c.write("replay.yaml", "block-size: 16KiB\nnodes: 3\nlimit: lots\n")
    replay = ("replay", "--synthetic", "--requests", "5", "--config", path)
    env = {"YOLK_DRAM": "96MiB", "YOLK_LEASE_TTL": "never", "YOLK_SECRET_FILE": "/nowhere"}
    out = wanted(c, 0, *replay, env=env)[0].decode()
    for part in ("3, 96 MiB together", "16384 bytes", "embedded"):
        check_in(part, out)
    out = wanted(c, 0, *replay, "--dram", "64MiB", "--nodes=1", env=env)[0].decode()
    check_in("1, 64 MiB together", out)
    # A running cluster that is named in the environment gives way to the command line.
    master = {"YOLK_MASTER": f"127.0.0.1:{free_port()}", "YOLK_DRAM": "96MiB"}
    wanted(c, 0, *replay, "--embedded", env=master)
    out = wanted(c, 0, *replay, "--processes", env=master)[0].decode()
    check_in("process node-2 ", out)
    refused(c, *replay, "--timeout", "1s", env=master, code=1, says=[master["YOLK_MASTER"]])
    # The processes of a replay read the same file.
    path = c.write("all.yaml", "lease_ttl: 0\n")
    _, err = wanted(c, 1, "replay", "--synthetic", "--processes", "--config", path)
    check_in("all.yaml:1", err)


@test("cli.sim_usage")
def _(c):
    wanted(c, 0, "sim", "--help")
    wanted(c, 0, "sim", "--seeds", "3..4", "--steps", "200")
    refused(c, "sim", "--steps", "0", says=["--steps", '"0"', "from 1"])
    refused(c, "sim", "--seeds", "4..3", says=["--seeds", "4..3"])
    refused(c, "sim", "--seed", "1", "--seeds", "1..2", says=["--seed", "--seeds"])
    refused(c, "sim", "--mutation", "skip-guard-check", says=["--mutation"])
    refused(c, "sim", "7", says=['"7"'])


@test("cli.replay_stopped_by_a_signal")
def _(c):
    """Its processes end in order and leave no folder of a socket behind."""
    runtime = c.path("run")
    os.mkdir(runtime, 0o700)
    for number in (signal.SIGTERM, signal.SIGINT):
        replay = c.start(yolk_path(), "replay", "--synthetic", "--requests", "100000",
                         "--dram", "64MiB", "--processes", env={"XDG_RUNTIME_DIR": runtime})
        pids = []
        for role in ("master", "node-0", "node-1", "reader-0", "writer-0"):
            pids.append(int(replay.wait_line(rf"^process {role} pid (\d+)").group(1)))
        check_equal(len(os.listdir(runtime)), 2, "folders of running nodes")
        replay.signal(number)
        check_equal(replay.wait(), 1, "exit code")
        check_in("stopped by a signal", replay.output())
        check_equal(os.listdir(runtime), [], "left behind")
        for pid in pids:
            check(not os.path.exists(f"/proc/{pid}/fd/0"), f"process {pid} is left")


@test("cli.replay_second_signal")
def _(c):
    """A second signal does not wait for anything, and still leaves no file on the disk."""
    disk = c.path("disk")
    os.mkdir(disk)
    replay = c.start(yolk_path(), "replay", "--synthetic", "--requests", "100000", "--dram", "64MiB", "--ssd", "64MiB",
                     "--processes", "--node-flag", "--drain-grace=30s", env={"TMPDIR": disk})
    replay.wait_line(r"^disk files are in " + disk)
    node = int(replay.wait_line(r"^process node-0 pid (\d+)").group(1))
    replay.wait_line(r"^process writer-0 pid (\d+)")
    check(os.listdir(disk) != [], "no folder for the disk's files")
    check_equal(os.getpgid(node), node, "a terminal's signals are not for a node of a replay")
    os.kill(node, signal.SIGSTOP)  # the end in order would wait for it
    replay.signal(signal.SIGINT)
    replay.signal(signal.SIGTERM)
    check(replay.wait() != 0, "exit code")
    check_equal(os.listdir(disk), [], "left on the disk")
    eventually(lambda: not os.path.exists(f"/proc/{node}/fd/0"), text="the node's end")


@test("cli.node_that_nobody_reaches")
def _(c):
    """It would take keys that no client can then write or read."""
    master, address = c.master()
    refused(c, "node", "--master", address, "--dram", "16MiB", "--transport", "loop", code=1,
            says=["no transport", "other processes"])
    health = json.loads(http(f"127.0.0.1:{master.admin_port}", "/health")[1])
    check_equal(health["segments"], 0)


@test("cli.no_master")
def _(c):
    port = free_port()
    for args in (["get", "k"], ["ls"], ["node", "--dram", "16MiB"]):
        refused(c, *args, "--master", f"127.0.0.1:{port}", "--timeout", "1s", code=1,
                says=[str(port)])
    refused(c, "ls", "--master", "127.0.0.1:notaport", says=["notaport"], code=1)


@test("cli.node_waiting_for_a_master_ends_at_once")
def _(c):
    process = c.yolk("node", "--master", f"127.0.0.1:{free_port()}", "--timeout", "60s",
                     "--dram", "16MiB", "--log-level", "info")
    eventually(lambda: os.path.exists(f"/proc/{process.pid}/fd/0"))
    process.terminate()
    check_equal(process.wait(10), -signal.SIGTERM, "exit code")


@test("cli.config_file")
def _(c):
    yaml = c.write("master.yaml", "# comment\nlease_ttl: 3s\nlisten: 127.0.0.1:0\n")
    process = c.yolk("master", "--config", yaml, "--admin-port", "0")
    process.wait_line("^yolk master ready")
    path = c.write("master.json", json.dumps({"listen": "127.0.0.1:0", "max_sessions": 5}))
    process = c.yolk("master", "--config", path, "--admin-port", "0")
    process.wait_line("^yolk master ready")
    for name, text, says in (
        ("a.yaml", "lease_ttl: 3s\nleash: 4\n", ["a.yaml:2", "leash"]),
        ("b.yaml", "lease_ttl: never\n", ["b.yaml:1", "never"]),
        ("c.yaml", "lease_ttl: [1, 2]\n", ["c.yaml:1"]),
        ("d.yaml", "a: b: c: {\n", ["d.yaml"]),
        ("e.json", "{", ["e.json"]),
        ("f.json", '{"lease_ttl": null}', ["f.json", "lease_ttl"]),
        ("g.json", "[]", ["g.json"]),
    ):
        refused(c, "master", "--config", c.write(name, text), says=says)
    refused(c, "master", "--config", c.path("missing.yaml"), says=["missing.yaml"])


@test("cli.port_in_use")
def _(c):
    master, address = c.master()
    port = address.rsplit(":", 1)[1]
    refused(c, "master", "--port", port, "--admin-port", "0", code=1,
            says=[port, "in use"])
    refused(c, "master", "--port", "0", "--admin-port", master.admin_port, code=1,
            says=[str(master.admin_port), "--admin-port", "in use"])
    wanted(c, 0, "ls", "--master", address)


@test("cli.limit_of_open_files")
def _(c):
    """Both servers take what the hard limit gives, and say so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        master, address = c.master("--log-level", "info")
        node = c.node(address, "--log-level", "info")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for process in (master, node):
        check_equal(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), (hard, hard))
        check_in("open files, raised from 256", process.output())


@test("cli.secret")
def _(c):
    secret = c.write("secret", "correct horse\n")
    other = c.write("other", "battery staple\n")
    os.chmod(secret, 0o600)
    os.chmod(other, 0o600)
    _, address = c.master("--host", "127.0.0.1", "--secret-file", secret)
    c.node(address, "--secret-file", secret)
    at = ("--master", address)
    wanted(c, 0, "put", *at, "--secret-file", secret, "k", stdin=b"v")
    check_equal(wanted(c, 0, "get", *at, "--secret-file", secret, "k")[0], b"v")
    wanted(c, 0, "get", *at, "k", env={"YOLK_SECRET_FILE": secret})
    refused(c, "get", *at, "--secret-file", other, "--timeout", "2s", "k", code=1,
            says=["secret"])
    refused(c, "get", *at, "--timeout", "2s", "k", code=1, says=["secret"])
    os.chmod(other, 0o644)
    refused(c, "master", "--secret-file", other, says=[other, "chmod 600"])
    refused(c, "get", *at, "--secret-file", other, "k", code=1, says=[other, "chmod 600"])
    refused(c, "node", *at, "--secret-file", other, code=1, says=[other, "chmod 600"])
    refused(c, "master", "--secret-file", c.path("missing"), says=["missing"])


@test("cli.garbage_on_each_port")
def _(c):
    master, address = c.master()
    node = c.node(address)
    host, port = address.rsplit(":", 1)
    check(node.ports, "the node says no port")
    out, _ = wanted(c, 0, "stat", "--master", address)
    garbage = [
        b"GET / HTTP/1.0\r\n\r\n",
        os.urandom(4096),
        b"\x00" * 4096,
        struct.pack("<HHIQ", 0x4B59, 1, 0xFFFFFFFF, 1),
        b"Y",
    ]
    for where in (int(port), master.admin_port, *node.ports):
        for bytes_ in garbage:
            with socket.create_connection((host, where), timeout=10) as s:
                s.sendall(bytes_)
                s.shutdown(socket.SHUT_WR)
                try:
                    while s.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
    wanted(c, 0, "put", "--master", address, "k", stdin=b"v")
    for transport in ("shm", "tcp"):
        out, _ = wanted(c, 0, "get", "--master", address, "--transport", transport, "k")
        check_equal(out, b"v")
    check(master.alive() and node.alive(), "a process died")


@test("cli.admin_endpoints")
def _(c):
    master, address = cluster(c)
    admin = f"127.0.0.1:{master.admin_port}"
    wanted(c, 0, "put", "--master", address, "k", stdin=b"v" * 1000)
    code, text = http(admin, "/health")
    check_equal(code, 200)
    health = json.loads(text)
    check_equal((health["status"], health["segments"], health["keys"]), ("ok", 2, 1))
    code, text = http(admin, "/metrics")
    check_equal(code, 200)
    check_equal(metric(text, "master_key_count"), 1)
    check_equal(metric(text, "master_total_capacity_bytes"), 2 * 64 << 20)
    check(metric(text, "master_allocated_bytes") >= 1000)
    for line in text.splitlines():
        check(line.startswith("#") or len(line.split()) == 2, f"metric line {line!r}")
    code, text = http(admin, "/metrics/summary")
    check_equal((code, len(text.splitlines())), (200, 1))
    check_in("keys 1", text)
    check_equal(http(admin, "/nothing")[0], 404)
    with socket.create_connection(("127.0.0.1", master.admin_port), timeout=10) as s:
        s.sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
        check_in(b"405", s.recv(4096))
    with socket.create_connection(("127.0.0.1", master.admin_port), timeout=10) as s:
        s.sendall(b"GET /" + b"a" * 70000)
        check_in(b"431", s.recv(4096))


@test("cli.admin_port_held_by_idle_connections")
def _(c):
    master, _ = c.master()
    where = ("127.0.0.1", master.admin_port)
    held = [socket.create_connection(where, timeout=10) for _ in range(200)]
    code, text = http(f"127.0.0.1:{master.admin_port}", "/health")
    check_equal((code, json.loads(text)["status"]), (200, "ok"))
    for s in held:
        s.close()


@test("cli.sigterm")
def _(c):
    for number in (signal.SIGTERM, signal.SIGINT):
        master, address = c.master()
        node = c.node(address)
        other = c.node(address)
        wanted(c, 0, "put", "--master", address, "k", stdin=b"v")
        node.signal(number)
        check_equal(node.wait(), 0, "exit code of the node")
        check_in("stopped", node.output())
        check(other.alive() and master.alive())
        out, _ = wanted(c, 0, "stat", "--master", address, "--recount")
        health = json.loads(http(f"127.0.0.1:{master.admin_port}", "/health")[1])
        check_equal(health["segments"], 1, "segments after the node left")
        master.signal(number)
        check_equal(master.wait(), 0, "exit code of the master")
        check_in("stopped", master.output())
        other.kill()


@test("cli.master_killed_and_restarted")
def _(c):
    master, address = c.master("--session-ttl", "2s", "--heartbeat", "200ms")
    c.node(address)
    data = os.urandom(200_000)
    wanted(c, 0, "put", "--master", address, "k", stdin=data)
    master.kill()
    port = address.rsplit(":", 1)[1]
    again = c.yolk("master", "--port", port, "--admin-port", "0", "--session-ttl", "2s",
                   "--heartbeat", "200ms")
    again.wait_line("^yolk master ready")
    eventually(lambda: c.run("exist", "--master", address, "k")[0] == 0, text="the key is back")
    check(wanted(c, 0, "get", "--master", address, "k")[0] == data, "came back different")
    wanted(c, 0, "stat", "--master", address, "--recount")


@test("cli.node_without_master_ends")
def _(c):
    master, address = c.master()
    node = c.node(address, "--drain-grace", "1s")
    wanted(c, 0, "put", "--master", address, "k", stdin=b"v")
    master.kill()
    node.terminate()
    check(node.wait() in (0, 1), "exit code")
    check_in("draining", node.output())


@test("cli.second_signal")
def _(c):
    master, address = c.master()
    node = c.node(address, "--drain-grace", "60s")
    wanted(c, 0, "put", "--master", address, "k", stdin=b"v")
    # A stopped master keeps the drain from ending.
    master.signal(signal.SIGSTOP)
    node.terminate()
    node.wait_line("draining")
    node.terminate()
    check(node.wait(10) in (0, 128 + signal.SIGTERM), "exit code")


@test("cli.log_is_rate_limited")
def _(c):
    master, address = c.master()
    host, port = address.rsplit(":", 1)
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall(b"garbage that is no frame")
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    lines = [line for line in master.output().splitlines() if "closed the connection" in line]
    check(1 <= len(lines) <= 20, f"{len(lines)} lines")
    code, text = http(f"127.0.0.1:{master.admin_port}", "/metrics")
    check(metric(text, "master_handshakes_failed_total") >= 200)


@test("cli.slow_hello")
def _(c):
    master, address = c.master("--handshake-timeout", "300ms", "--max-connections", "20")
    host, port = address.rsplit(":", 1)
    held = [socket.create_connection((host, int(port)), timeout=10) for _ in range(20)]
    for s in held:
        s.sendall(b"Y")
    for s in held:
        check_equal(s.recv(1), b"", "a silent connection is closed")
        s.close()
    wanted(c, 0, "ls", "--master", address)


@test("cli.replicas")
def _(c):
    _, address = cluster(c, 2)
    at = ("--master", address)
    data = os.urandom(300_000)
    wanted(c, 0, "put", *at, "--replica-num", "2", "k", stdin=data)
    # Both nodes are there, so it has two copies, however little time they have been there.
    out, _ = wanted(c, 0, "stat", *at)
    check_in(b"put_short 0\n", out)
    check_equal(wanted(c, 0, "get", *at, "k")[0] == data, True)
    # One of the two nodes may go without a loss.
    c.processes[1].kill()
    check(wanted(c, 0, "get", *at, "k")[0] == data, "came back different")


@test("cli.many_clients")
def _(c):
    _, address = cluster(c, 2)
    at = ("--master", address)
    runs = []
    for i in range(12):
        path = c.write(f"v{i}", os.urandom(50_000 + i))
        runs.append((i, path, c.yolk("put", *at, f"key{i}", path)))
    for i, path, process in runs:
        check_equal(process.wait(), 0, process.output())
    for i, path, _ in runs:
        with open(path, "rb") as f:
            check(wanted(c, 0, "get", *at, f"key{i}")[0] == f.read(), f"key{i}")
    wanted(c, 0, "stat", *at, "--recount")


@test("cli.unprivileged")
def _(c):
    """Everything works as uid 65534 without capabilities."""
    if os.getuid() != 0:
        raise Skip("only root can become uid 65534; this user has no privileges anyway")
    os.chmod(c.dir, 0o777)
    c.user = 65534
    try:
        wanted(c, 0, "doctor", "--path", "/tmp")
    except PermissionError:
        raise Skip(f"uid 65534 may not run {yolk_path()}")
    _, address = cluster(c)
    data = os.urandom(500_000)
    for transport in ("shm", "tcp"):
        at = ("--master", address, "--transport", transport)
        wanted(c, 0, "put", *at, transport, c.write("v", data))
        check(wanted(c, 0, "get", *at, transport)[0] == data, f"{transport} came back different")
    # Another user of this machine reaches it as well, there being no secret.
    c.user = None
    check(wanted(c, 0, "get", "--master", address, "shm")[0] == data, "as root")


@test("cli.doctor")
def _(c):
    out, _ = wanted(c, 0, "doctor", "--path", c.dir)
    for item in ("kernel", "io_uring", "direct I/O", "locked memory", "huge pages", "NUMA", "GPU",
                 "cuFile", "IMEX", "RDMA"):
        check_in(item, out.decode())
    check_in("\nnear *", out.decode())
    out, _ = wanted(c, 0, "doctor", "--json", "--path", c.dir)
    found = json.loads(out)
    check(all(item["found"] and item["use"] for item in found["items"]), "an empty entry")
    topology = found["topology"]
    places = [memory["name"] for memory in topology["mems"]]
    check("*" in places and all("cpu:%d" % node["id"] in places for node in topology["nodes"]),
          "memories %s of nodes %s" % (places, topology["nodes"]))
    online = [name for name in os.listdir("/sys/devices/system/node") if name[:4] == "node" and name[4:].isdigit()] \
        if os.path.isdir("/sys/devices/system/node") else []
    check(len(topology["nodes"]) == len(online), "%d nodes, %s" % (len(topology["nodes"]), online))
    for nic in topology["nics"]:
        check(nic["type"] != 1 or os.path.exists("/sys/class/net/" + nic["name"]), nic["name"])


@test("c159_why_memory_of_a_neighbour_is_not_reached")
def _(c):
    """Each reason in its own words, with that of the system; with other transports allowed it is said, and the value comes."""
    _, address = c.master()
    run = c.path("run")
    os.mkdir(run)
    node = c.yolk("node", "--master", address, "--dram", "16MiB", env={"XDG_RUNTIME_DIR": run})
    node.wait_line("^yolk node ready")
    check_equal(c.run("put", "--master", address, "k", stdin=b"value")[0], 0)
    (socket_path,) = glob.glob(run + "/*/*.sock")

    def fails(words, *args):
        code, out, err = c.run("get", "--master", address, "k", "--transport", "shm", *args)
        check_equal((code != 0, out), (True, b""), err)
        check_in(words, err)

    os.rename(socket_path, socket_path + ".away")
    fails(socket_path + " is not here (another machine or container): No such file or directory")
    check_equal(c.run("get", "--master", address, "k"), (0, b"value", ""))
    os.rename(socket_path + ".away", socket_path)
    node.signal(signal.SIGSTOP)
    fails(socket_path + " does not answer: Connection timed out", "--timeout", "5s")
    node.signal(signal.SIGCONT)
    # So few files that there is a place for the connection, but none for what comes through it.
    told = "the client says: shm: no room for the descriptors that came: Too many open files"

    def short_of_files(files):
        done = subprocess.run([yolk_path(), "get", "--master", address, "k", "--timeout", "1s"], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)), check=False)
        return "no room for the descriptors that came: Too many open files" in done.stderr

    few = next((files for files in range(16, 3, -1) if short_of_files(files)), None)
    check(few, "no number of files is that few")
    eventually(lambda: told in node.output() or short_of_files(few) and False, text="the node says it too, at most once a second")


if __name__ == "__main__":
    sys.exit(main())
