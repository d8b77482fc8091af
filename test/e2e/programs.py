#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program under upstream's names, what it serves over HTTP, and what people see when something is wrong."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, build_dir, check, check_equal, check_in, eventually, free_port, main, test, yolk_path
from python_kit import folder

# Runs a program in a network of its own ("new") or in that of another process; only loopback is there.
NETWORK = """
import ctypes, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
if sys.argv[1] == "new":
    if libc.unshare(0x40000000) != 0:
        print("no network"); sys.exit(77)
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14s", b"lo", 65, b""))
else:
    if libc.setns(os.open("/proc/%s/ns/net" % sys.argv[1], 0), 0x40000000) != 0:
        sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
"""
VERSION_STATUS = -202  # YOLK_ERR_VERSION


def program(name):
    return os.path.join(build_dir(), name)


def run(name, *args, env=None, timeout_s=30):
    done = subprocess.run([program(name), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", env={**os.environ, **(env or {})}, timeout=timeout_s)
    return done.returncode, done.stdout, done.stderr


def mooncake_master(c, *args, env=None):
    """A mooncake_master at free ports of 127.0.0.1 unless told otherwise."""
    process = c.start(program("mooncake_master"), "--rpc_address=127.0.0.1", "--rpc_port", 0 or free_port(),
                      "--metrics_host=127.0.0.1", f"--metrics_port={free_port()}", *args, env=env)
    process.address = process.wait_line(r"^mooncake_master ready (\S+)").group(1)
    process.admin = process.wait_line(r"^health: curl http://(\S+)/health").group(1)
    return process


def http(address, target, method="GET", body=None, headers=None):
    """(code, body as text) of one request."""
    request = urllib.request.Request(f"http://{address}{target}", method=method, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def raw(address, data, shut=False):
    """What comes back of these bytes, to the end."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            try:
                piece = s.recv(65536)
            except ConnectionResetError:
                return got
            if not piece:
                return got
            got += piece


def put(address, key, value=b"v", *args):
    done = subprocess.run([yolk_path(), "put", "--master", address, *args, key], input=value, capture_output=True)
    check_equal(done.returncode, 0, done.stderr.decode())


@test("programs.master_without_flags")
def without_flags(c):
    """Upstream's addresses; and the lines it prints work as they are: the one for Python and the one for curl."""
    wrap = [sys.executable, "-c", NETWORK]
    process = c.start(*wrap, "new", program("mooncake_master"))
    try:
        process.wait_line("^mooncake_master ready 127.0.0.1:50051$")
    except AssertionError:
        if "no network" in process.output():
            raise Skip("a network of its own needs root")
        raise
    process.wait_line("^client: mooncake_client --master_server_address 127.0.0.1:50051$")
    line = process.wait_line("^python: (.*)$").group(1)
    health = process.wait_line("^health: curl (.*)$").group(1)
    process.wait_line("^access: WARNING: everybody")
    bound = set()
    with open(f"/proc/{process.pid}/net/tcp") as table:
        for row in table.readlines()[1:]:
            fields = row.split()
            if fields[3] == "0A":
                host, port = fields[1].split(":")
                bound.add((int(host, 16), int(port, 16)))
    check_equal(bound, {(0, 50051), (0, 9003)}, "what it listens on: all addresses")
    script = "import urllib.request; print(urllib.request.urlopen(%r, timeout=20).read().decode())" % health
    out = subprocess.run([*wrap, str(process.pid), sys.executable, "-c", script], capture_output=True, text=True)
    check_equal(json.loads(out.stdout)["status"], "ok", out.stderr)
    script = line + "; assert store.put('k', b'value') == 0 and store.get('k') == b'value'; print('works')"
    out = subprocess.run([*wrap, str(process.pid), sys.executable, "-c", script], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": folder()}, timeout=60)
    check_in("works", out.stdout, out.stderr)
    process.terminate()
    check_equal(process.wait(), 0, "exit code")


@test("programs.flags_of_gflags")
def flags(c):
    flagfile = c.write("flags", "# a file of flags\n--default_kv_lease_ttl=3s\nother_program\n--nonsense\n")
    config = c.write("master.json", json.dumps({"eviction_high_watermark_ratio": 0.8, "enable_ha": True,
                                                "cluster_id": "mooncake_cluster", "client_live_ttl_sec": 20}))
    process = mooncake_master(c, f"--flagfile={flagfile}", f"-config_path={config}", "-v=1", "--max_threads", "8",
                              "--nologtostderr", "--enable_http_metadata_server=1", "--http_metadata_server_host",
                              "127.0.0.1", "--http_metadata_server_port", free_port())
    check_equal(len(re.findall("warning: .* has no effect", process.output())), 2, process.output())
    check_in("enable_ha (true) has no effect", process.output())
    metadata = process.wait_line(r"^metadata: http://(\S+)/metadata").group(1)
    check_equal(http(metadata, "/health")[0], 200)
    process.terminate()
    check_equal(process.wait(), 0, "exit code")
    for args, says in (
        (["--rcp_port=1"], "did you mean --rpc_port"),
        (["--flagfile=/nonexistent"], "/nonexistent"),
        (["--config_path=/nonexistent"], "/nonexistent"),
        (["--rpc_port"], "needs a value"),
        (["--rpc_address=no.such.host.invalid"], "no.such.host.invalid"),
        (["--rpc_address=198.51.100.7"], "198.51.100.7"),
    ):
        code, _, err = run("mooncake_master", *args)
        check(code in (1, 2), f"{args}: exit code {code}")
        check_in(says, err, str(args))
    for flag in ("--help", "--helpfull", "-helpshort"):
        code, out, err = run("mooncake_client", flag)
        check_equal((code, err), (0, ""), flag)
        check_in("--global_segment_size", out)
    check_in("Yolk", run("mooncake_master", "--version")[1])


@test("programs.port_in_use")
def port_in_use(c):
    """A sentence that names the port and the flag."""
    process = mooncake_master(c)
    taken, admin = process.address.rsplit(":", 1)[1], process.admin.rsplit(":", 1)[1]
    base = ["--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--http_metadata_server_host=127.0.0.1"]
    for args, port, flag in (
        (["--rpc_port", taken, f"--metrics_port={free_port()}"], taken, "--rpc_port"),
        (["--rpc_port", free_port(), "--metrics_port", admin], admin, "--metrics_port"),
        (["--rpc_port", free_port(), f"--metrics_port={free_port()}", "--enable_http_metadata_server",
          f"--http_metadata_server_port={admin}"], admin, "--http_metadata_server_port"),
    ):
        code, _, err = run("mooncake_master", *base, *args)
        check_equal(code, 1, err)
        for part in (port, flag, "in use"):
            check_in(part, err)


@test("programs.admin_pages")
def admin_pages(c):
    master = mooncake_master(c, "--default_kv_lease_ttl=200")
    at = master.admin
    check_equal(http(at, "/get_all_segments"), (200, ""), "before there is a segment")
    c.node(master.address, "--name", "host-a:1", dram="32MiB")
    c.node(master.address, "--name", "host-b:2", dram="16MiB")
    check_equal(sorted(http(at, "/get_all_segments")[1].splitlines()), ["host-a:1", "host-b:2"])
    put(master.address, "plain", b"x" * 1000)
    put(master.address, "a/b c%,@:é", b"y" * 10, "--replica-num", "2")
    check_equal([http(at, page) for page in ("/role", "/ha_status")], [(200, "leader"), (200, "serving")])
    check_equal(json.loads(http(at, "/leader")[1]), {"present": False})
    health = json.loads(http(at, "/health")[1])
    check_equal([health[k] for k in ("status", "role", "ha_state", "service_ready")], ["ok", "leader", "serving", True])
    events = json.loads(http(at, "/kv_events/status")[1])
    check_equal(events, {"enabled": False, "published_batches": 0, "published_events": 0, "dropped_events": 0,
                         "skipped_unparsed_keys": 0})
    code, text = http(at, "/query_key?key=plain")
    data = json.loads(text)
    check_equal((code, data["success"], len(data["data"])), (200, True, 1))
    check_equal(sorted(data["data"][0]), ["buffer_address_", "protocol_", "size_", "transport_endpoint_"])
    check_equal(data["data"][0]["size_"], 1000)
    check(":" in data["data"][0]["transport_endpoint_"], text)
    code, text = http(at, "/query_key?key=missing")
    check_equal((code, json.loads(text)), (404, {"success": False, "error_code": -704,
                                                 "error_message": "OBJECT_NOT_FOUND"}))
    check_equal(http(at, "/query_key")[0], 400)
    odd = urllib.parse.quote("a/b c%,@:é", safe="")
    replicas = json.loads(http(at, "/query_key?key=" + odd)[1])["data"]
    # A second copy is made where there is a second segment that is ready for it.
    check(1 <= len(replicas) == len({r["transport_endpoint_"] for r in replicas}) <= 2, str(replicas))
    data = json.loads(http(at, f"/batch_query_keys?keys=plain,missing,{odd}")[1])
    check_equal({k: v["ok"] for k, v in data["data"].items()}, {"plain": True, "missing": False, "a/b c%,@:é": True})
    check_equal(data["data"]["a/b c%,@:é"]["values"], replicas)
    check_equal(data["data"]["missing"]["error"], "OBJECT_NOT_FOUND")
    code, text = http(at, "/batch_query_keys")
    check_equal((code, json.loads(text)["success"]), (400, False))
    detail = json.loads(http(at, "/get_segments_detail")[1])
    check_equal(detail["total_segments"], 2)
    one = {s["segment_name"]: s for s in detail["segments"]}["host-a:1"]
    check_equal((one["size_bytes"], one["size_human"], one["status"], one["allocator_capacity_bytes"]),
                (32 << 20, "0.03125 GiB", "OK", 32 << 20))
    check(0 <= one["allocator_usage_percent"] <= 100 and re.fullmatch(r"\d+-\d+", one["segment_id"]), str(one))
    code, text = http(at, "/query_segment?segment=host-b%3A2")
    check(re.fullmatch(r"host-b:2\nUsed\(bytes\): \d+\nCapacity\(bytes\) : 16777216\n", text), repr(text))
    check_equal(http(at, "/query_segment?segment=nobody")[0], 404)
    status = json.loads(http(at, "/api/v1/segments/status?segment=host-a:1")[1])
    check_equal([status[k] for k in ("success", "segment", "status", "status_name")], [True, "host-a:1", 1, "OK"])
    check_equal(sorted(http(at, "/get_all_keys")[1].splitlines()), ["a/b c%,@:é", "plain"])
    metrics = http(at, "/metrics")[1]
    for name in ("master_key_count 2", "master_active_clients 2", "valid_get_nums_ 0",
                 r"master_batch_put_start_requests_total [2-9]\d*", "master_mount_segment_requests_total 2",
                 "master_total_capacity_bytes 50331648", "master_exist_key_requests_total 0"):
        check(re.search("^" + name + "$", metrics, re.M), f"no line {name!r}")
    names = [line.split("{")[0].split()[0] for line in metrics.splitlines() if not line.startswith("#")]
    runs = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    check_equal(len(runs), len(set(runs)), "lines of one name stand together")
    check_in('segment_total_capacity_bytes{segment="host-a:1"', metrics)
    for page, method in (("/api/v1/drain_jobs", "POST"), ("/api/v1/drain_jobs/query?job_id=1", "GET")):
        code, text = http(at, page, method)
        check_equal((code, json.loads(text)["success"]), (501, False), page)
        check(len(json.loads(text)["error_message"]) > 20, "a reason")
    check_equal(http(at, "/api/v1/remove_all")[0], 405, "GET changes nothing")
    for force in ("maybe", "", "TRUE", "2"):
        code, text = http(at, "/api/v1/remove_all?force=" + force, "POST")
        check_equal((code, json.loads(text)["error_code"]), (400, -600), force)
        check_in("force", text)
    check_equal(http(at, "/api/v1/remove_all", "POST", headers={"Origin": "http://evil"})[0], 403)
    check_equal(json.loads(http(at, "/query_key?key=plain")[1])["success"], True, "leases plain")
    check(json.loads(http(at, "/api/v1/remove_all", "POST")[1])["removed_count"] <= 1, "a leased key was removed")
    check_equal(http(at, "/query_key?key=plain")[0], 200, "it has a lease")
    code, text = http(at, "/api/v1/remove_all?force=true", "POST")
    check_equal((code, json.loads(text)["success"]), (200, True))
    check_equal(http(at, "/get_all_keys"), (200, ""))


@test("programs.tenants")
def tenants(c):
    """Quotas over HTTP: looked at, set, removed; and what one tenant has is not seen or removed for another."""
    master = mooncake_master(c)
    at, page = master.admin, "/api/v1/tenant_quotas"
    c.node(master.address, dram="32MiB")
    check_equal(json.loads(http(at, page)[1])["success"], True)
    check_equal(http(at, page + "?tenant_id=red")[0], 404)
    code, text = http(at, page + "?tenant_id=red", "PUT", b' { "requested_quota_bytes" : 1048576 } ')
    check_equal((code, json.loads(text)["data"]["requested_quota_bytes"]), (200, 1048576), text)
    for body in (b"", b"{}", b'{"requested_quota_bytes":0}', b'{"requested_quota_bytes":-1}',
                 b'{"requested_quota_bytes":1}x', b'{"requested_quota_bytes":99999999999999999999999}'):
        check_equal(http(at, page + "?tenant_id=blue", "PUT", body)[0], 400, repr(body))
    check_equal(http(at, page, "PUT", b'{"requested_quota_bytes":1}')[0], 400, "whose?")
    check_equal(http(at, page + "?tenant_id=_x", "PUT", b'{"requested_quota_bytes":1}')[0], 400, "no name")
    put(master.address, "k", b"default's")
    put(master.address, "k", b"that of red", "--tenant", "red")
    one = json.loads(http(at, page + "?tenant_id=red")[1])["data"]
    check(one["charged_bytes"] >= 11 and one["has_explicit_policy"] and not one["over_quota"], str(one))
    check_in('mooncake_tenant_quota_requested_bytes{tenant_id="red"} 1048576', http(at, "/metrics")[1])
    sizes = [json.loads(http(at, f"/query_key?key=k{more}")[1])["data"][0]["size_"] for more in ("", "&tenant_id=red")]
    check_equal(sizes, [9, 11])
    check_equal(http(at, "/get_all_keys")[1], "k\nk\n")
    check_equal(http(at, page + "?tenant_id=red", "DELETE")[0], 409, "it has keys")
    code, text = http(at, "/api/v1/remove_all?force=true&tenant_id=red", "POST")
    check_equal(json.loads(text), {"success": True, "removed_count": 1})
    check_equal([http(at, f"/query_key?key=k{more}")[0] for more in ("", "&tenant_id=red")], [200, 404])
    # A name of nothing (a shell's variable that is not set) is the default one's, not everybody's.
    put(master.address, "k", b"that of red", "--tenant", "red")
    code, text = http(at, "/api/v1/remove_all?force=true&tenant_id=", "POST")
    check_equal(json.loads(text), {"success": True, "removed_count": 1})
    check_equal([http(at, f"/query_key?key=k{more}")[0] for more in ("", "&tenant_id=red")], [404, 200])
    check_equal(json.loads(http(at, "/api/v1/remove_all?force=true", "POST")[1])["removed_count"], 1)
    check_equal(http(at, page + "?tenant_id=red", "DELETE")[0], 200)
    check_equal(http(at, page + "?tenant_id=red", "DELETE")[0], 404)


@test("programs.long_answers")
def long_answers(c):
    """Every key of many, in pieces."""
    master = mooncake_master(c)
    c.node(master.address, dram="64MiB")
    done = subprocess.run([yolk_path(), "replay", "--synthetic", "--requests", "2000", "--block-size", "64", "--master",
                           master.address], capture_output=True, text=True, timeout=120)
    check_equal(done.returncode, 0, done.stderr)
    listed = subprocess.run([yolk_path(), "ls", "--master", master.address], capture_output=True, text=True)
    wanted = sorted(line.split(None, 1)[1] for line in listed.stdout.splitlines())
    check(len(wanted) > 3000, f"only {len(wanted)} keys")
    got = http(master.admin, "/get_all_keys")[1].splitlines()
    check_equal(sorted(got), wanted)
    old = raw(master.admin, b"GET /get_all_keys HTTP/1.0\r\n\r\n")
    head, _, body = old.partition(b"\r\n\r\n")
    check(b"chunked" not in head, "no chunks for HTTP/1.0")
    check_equal(sorted(body.decode().splitlines()), wanted)
    check_equal(raw(master.admin, b"HEAD /get_all_keys HTTP/1.1\r\n\r\n").split(b"\r\n\r\n")[1], b"")


@test("programs.admin_with_a_secret")
def with_a_secret(c):
    """Who has no secret may look at figures, not at objects."""
    secret = c.write("secret", b"0123456789abcdef0123456789abcdef")
    os.chmod(secret, 0o600)
    master = mooncake_master(c, "--secret-file", secret)
    check("python:" not in master.output(), "a line that would not work")
    for page, method, code in (("/metrics", "GET", 200), ("/get_all_segments", "GET", 200), ("/health", "GET", 200),
                               ("/query_key?key=k", "GET", 403), ("/batch_query_keys?keys=k", "GET", 403),
                               ("/get_all_keys", "GET", 403), ("/api/v1/remove_all?force=1", "POST", 403)):
        check_equal(http(master.admin, page, method)[0], code, page)


@test("programs.metadata")
def metadata(c):
    master = c.yolk("master", "--port", "0", "--admin-port", "0", "--metadata-listen", "127.0.0.1:0")
    at = master.wait_line(r"^metadata: http://(\S+)/metadata").group(1)
    check_equal(http(at, "/metadata?key=mooncake/ram/a")[0], 404)
    check_equal(http(at, "/metadata?key=mooncake/ram/a", "PUT", b'{"a": 1}')[0], 200)
    check_equal(http(at, "/metadata?key=mooncake%2Fram%2Fa"), (200, '{"a": 1}'))
    check_equal(http(at, "/metadata?key=mooncake/ram/a", "PUT", b'{"a": 2}')[0], 200)
    check_equal(http(at, "/metadata?key=mooncake/ram/a")[1], '{"a": 2}')
    rpc = "/metadata?key=mooncake/rpc_meta/host:1"
    check_equal(http(at, rpc, "PUT", b"one")[0], 200)
    check_equal(http(at, rpc, "PUT", b"one")[0], 200, "the same again")
    check_equal(http(at, rpc, "PUT", b"two")[0], 400, "another process of this name")
    check_equal(http(at, rpc)[1], "one")
    check_equal(http(at, rpc, "DELETE")[0], 200)
    check_equal(http(at, rpc, "DELETE")[0], 404)
    check_equal(http(at, rpc, "PUT", b"two")[0], 200)
    big = os.urandom(512 << 10).hex().encode()
    check_equal(http(at, "/metadata?key=big", "PUT", big)[0], 200)
    check_equal(http(at, "/metadata?key=big")[1], big.decode())
    refused = raw(at, b"PUT /metadata?key=x HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n")
    check_in(b" 413 ", refused)
    check_equal(http(at, "/metadata", "PUT", b"x")[0], 400)
    check_equal(http(at, "/metadata?key=" + "k" * 4097, "PUT", b"x")[0], 400)
    check_equal(http(at, "/metadata?key=a", "POST", b"x")[0], 405)
    # All of it is bounded: the 65th MiB is refused, and what is there stays.
    codes = [http(at, f"/metadata?key=fill{i}", "PUT", big)[0] for i in range(66)]
    check_equal((codes[0], codes[-1], codes.index(507)), (200, 507, 62))
    check_equal(http(at, "/metadata?key=fill0")[1], big.decode())
    answer = raw(at, b"PUT /metadata?key=fill0 HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
    check(answer.startswith((b"HTTP/1.1 100", b"HTTP/1.1 200")), repr(answer))
    check_equal(http(at, "/metadata?key=fill0")[1], "abc")


@test("programs.client")
def client(c):
    master = mooncake_master(c)
    port = free_port()
    process = c.start(program("mooncake_client"), "--master_server_address", master.address, "--global_segment_size",
                      "32 MB", "--host=127.0.0.1", "--protocol=rdma", "--metadata_server=P2PHANDSHAKE",
                      "--enable_http_server", "--http_port", port, "--device_names", "mlx5_0", "--port", free_port())
    process.wait_line("^mooncake_client ready .* 32MiB$")
    at = process.wait_line(r"^health: curl http://(\S+)/health").group(1)
    check_equal(len(re.findall("warning: --(device_names|protocol)", process.output())), 2, process.output())
    check_in("no RDMA device", process.output())
    put(master.address, "k", b"z" * 5000)
    code, text = http(at, "/health")
    check_equal((code, json.loads(text)), (200, {"status": "ok", "master_connected": True}))
    code, text = http(at, "/metrics")
    check_equal(code, 200)
    check_in("\nmooncake_transfer_read_bytes 0\n", text)
    check_in("\ntent_read_bytes_total{transport=\"none\"} 0\n", text)  # the engine's
    for line in text.splitlines():
        check(line.startswith("#") or re.fullmatch(r"[a-z_]+(\{[^}]*\})? [\d.e+-]+", line), f"metric line {line!r}")
    master.kill()
    eventually(lambda: http(at, "/health")[0] == 503, text="the node says that there is no master")
    check_equal(http(at, "/metrics")[0], 503)
    process.terminate()
    process.wait()
    code, _, err = run("mooncake_client", "--enable_offload", env={"MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": c.dir})
    check_equal(code, 2)
    check_in("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", err)


@test("programs.http_attacked")
def attacked(c):
    """Slow, huge, many and malformed requests end within bounds, and a health check beside them is answered."""
    master = mooncake_master(c)
    host, port = master.admin.rsplit(":", 1)
    where = (host, int(port))
    for data, code in (
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 65536, b"431"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 65536, b"431"),
        (b"GET /%00metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /metrics\0 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /query_key?key=%zz HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /query_key?key=a%00b HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /query_key?key=" + b"k" * 4097 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /batch_query_keys?keys=" + b"a," * 4096 + b"a HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /batch_query_keys?keys=a,,b HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /api/v1/drain_jobs HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", b"413"),
        (b"POST /api/v1/drain_jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST /health HTTP/1.1\r\nContent-Length: 10\r\n\r\n", b"405"),
        (b"TRACE /health HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET /role HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n" * 100, b"200"),
    ):
        answer = raw(master.admin, data)
        check_equal(answer[9:12], code, repr(data[:80]))
        check_equal(b"\r\nAllow: GET, HEAD\r\n" in answer, code == b"405", repr(data[:80]))
        check_equal(answer.count(b"HTTP/1.1 "), 1, "one answer a connection")
    # Slow ones: a byte now and then does not buy time.
    slow = socket.create_connection(where, timeout=30)
    begun = time.monotonic()
    held = [socket.create_connection(where, timeout=30) for _ in range(40)]
    for s in held:
        s.sendall(b"GET /health HTTP/1.1\r\nX: ")
    ended = False
    while not ended and time.monotonic() - begun < 25:
        try:
            slow.sendall(b"G")
            slow.settimeout(0.3)
            ended = slow.recv(100) == b""
        except socket.timeout:
            pass
        except OSError:
            ended = True
        check_equal(http(master.admin, "/health")[0], 200)
    check(ended, "a request that never ends was waited for 25 s")
    answer = b"".join(iter(lambda: held[-1].recv(4096), b""))
    check_in(b"HTTP/1.1 408 Request Timeout\r\n", answer[:30])
    check_in(b"\r\n\r\nThe request did not come whole in time.", answer)
    for s in held:
        s.close()
    slow.close()
    check(master.alive(), "the master ended")
    with open(f"/proc/{master.pid}/status") as status:
        rss = int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))
    check(rss < 200 << 10, f"{rss} KiB resident")


class FakeMaster:
    """Accepts and answers each connection with these bytes."""

    def __init__(self, answer):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.answer = answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
                peer.recv(4096)
                peer.sendall(self.answer)
                peer.close()
            except OSError:
                return


def of_another_version(text):
    body = b"\x82\x01\xd1" + struct.pack(">h", VERSION_STATUS) + b"\x02\xd9" + bytes([len(text)]) + text.encode()
    return struct.pack("<HHIQ", 0x4B59, 2, len(body), 0) + body


@test("programs.first_ten_minutes")
def first_ten_minutes(c):
    """What is commonly wrong at first is said in a sentence, within the time limit."""
    skew = "no common protocol version: the server speaks 7 to 9, the client 1 to 1"
    versions = FakeMaster(of_another_version(skew))
    stranger = FakeMaster(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    pages = "127.0.0.1:%d" % c.master()[0].admin_port
    closed = f"127.0.0.1:{free_port()}"
    for address, says in ((closed, ["refused", closed]), ("no.such.host.invalid:50051", ["no.such.host.invalid"]),
                          ("127.0.0.1:123456", ["123456"]), (versions.address, [skew, versions.address]),
                          (stranger.address, [stranger.address]), (pages, [pages, "does not speak"])):
        for command in (["mooncake_client", "--master_server_address", address, "--global_segment_size=16MB"],
                        ["yolk", "node", "--master", address, "--dram", "16MiB"], ["yolk", "ls", "--master", address]):
            begun = time.monotonic()
            code, _, err = run(command[0], *command[1:], "--timeout=2s", timeout_s=60)
            check(time.monotonic() - begun < 30, "far over its time limit")
            check_equal(code, 1, f"{command}: {err}")
            for part in says:
                check(part.lower() in err.lower(), f"{command}: {part!r} is not in {err!r}")


@test("programs.first_ten_minutes_in_python")
def first_ten_minutes_in_python(c):
    """setup() with nothing but the master's address; and what it says when that is wrong."""
    versions = FakeMaster(of_another_version("no common protocol version: the server speaks 7 to 9, the client 1 to 1"))
    script = """
import sys
import mooncake.store as m
store = m.MooncakeDistributedStore()
code = store.setup(master_server_addr=sys.argv[1]) if len(sys.argv) == 2 else store.setup(
    {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "master_server_addr": sys.argv[1], "timeout_ms": 2000})
print(code, m.last_error())
if code == 0:
    print(store.put("k", b"v"), store.get("k"))
"""
    env = {**os.environ, "PYTHONPATH": folder()}

    def setup(*args):
        done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, env=env, timeout=60)
        return done.stdout + done.stderr

    master = mooncake_master(c)
    check_in("0 b'v'", setup(master.address))
    closed = f"127.0.0.1:{free_port()}"
    check_in(closed, setup(closed, "short"))
    check_in("speaks 7 to 9", setup(versions.address, "short"))
    check_in("no.such.host.invalid", setup("no.such.host.invalid:1", "short"))


@test("programs.nothing_listens")
def nothing_listens(c):
    """setup() does not wait its whole time limit of 30 s where the connection is refused, nor does setup_dummy()."""
    script = """
import sys
import mooncake.store as m
for segment in (0, 16 << 20):
    print(m.MooncakeDistributedStore().setup(master_server_addr=sys.argv[1], global_segment_size=segment), m.last_error())
print(m.MooncakeDistributedStore().setup_dummy(1 << 20, 1 << 20, sys.argv[1]), m.last_error())
print(m.MooncakeDistributedStore().setup({"master_server_addr": sys.argv[1], "connect_wait_ms": 60000, "timeout_ms": 20000}))
"""
    closed = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", script, closed], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": folder()})
    lines = [process.stdout.readline() for _ in range(3)]
    check(time.monotonic() - begun < 25, "one of three waited to its time limit")
    for line in lines:
        check_in("-900", line)
        check_in("refused", line.lower())
        check_in(closed, line)
    # With the time for it, a master that starts later is met.
    c.master(port=int(closed.rsplit(":", 1)[1]))
    check_equal(process.stdout.readline().strip(), "0")
    check_equal(process.wait(timeout=60), 0)


@test("programs.waiting_is_said")
def waiting(c):
    """Whoever waits for a master says so at once, not at the end."""
    closed = f"127.0.0.1:{free_port()}"
    for args in (["node", "--dram", "16MiB"], ["replay", "--synthetic", "--requests", "1"], ["ls"]):
        process = c.yolk(*args, "--master", closed, "--timeout", "60s")
        process.wait_line(f"^yolk {args[0]}: waiting for the master at {closed}, for at most (60s|1m)$")
        check(process.alive(), "it said so at its end")
        process.kill()


def own_address():
    """One of this machine that is no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            raise Skip("this machine has loopback addresses only")
        return s.getsockname()[0]


@test("programs.loopback_in_a_cluster")
def loopback(c):
    """127.0.0.1 told to others where not all are on this machine: the node and the master warn of it."""
    master, address = c.master()
    c.node(address, "--name", "here")
    check("127.0.0.1, and not all" not in master.output(), "a warning without a reason")
    # As one of another machine: the address that it gives is what counts.
    c.node(address, "--name", "there", "--host", own_address())
    master.wait_line("node here gives its address as 127.0.0.1, and not all of this cluster is on this machine.*--host")
    elsewhere = c.yolk("node", "--master", address, "--dram", "16MiB", "--host", "198.51.100.7")
    elsewhere.wait_line("no TCP address could be taken at --host 198.51.100.7: only processes of this machine")
    code, _, err = run("yolk", "node", "--master", "198.51.100.7:1", "--host", "127.0.0.1", "--dram", "16MiB",
                       "--timeout", "200ms")
    check_equal(code, 1)
    check_in("--host 127.0.0.1 is of no use to other machines", err)


@test("programs.ready_line_of_a_wildcard")
def ready_line(c):
    """With a secret the master listens everywhere: the address it prints is a number, which needs no resolver."""
    secret = c.write("secret", b"0123456789abcdef0123456789abcdef")
    os.chmod(secret, 0o600)
    master = c.yolk("master", "--port", "0", "--admin-port", "0", "--secret-file", secret)
    address = master.wait_line(r"^yolk master ready (\S+)").group(1)
    host, port = address.rsplit(":", 1)
    socket.getaddrinfo(host.strip("[]"), int(port), flags=socket.AI_NUMERICHOST)
    done = subprocess.run([yolk_path(), "ls", "--master", address, "--secret-file", secret], capture_output=True)
    check_equal(done.returncode, 0, done.stderr.decode())


# A name of the metadata service: made, and taken out by whatever ends the process in order.
NAMED_ENGINE = """
import ctypes, os, signal, sys
library, metadata, name, end = sys.argv[1:5]
te = ctypes.CDLL(library)
te.createTransferEngine.restype = ctypes.c_void_p
te.createTransferEngine.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_uint64, ctypes.c_int]
te.enableGracefulShutdown.argtypes = [ctypes.c_void_p]
engine = te.createTransferEngine(metadata.encode(), name.encode(), b"", 0, 1)
assert engine
te.enableGracefulShutdown(engine)
print("ready", flush=True)
if end == "exit":
    sys.stdin.read()
    sys.exit(3)
signal.pause()
"""


@test("programs.an_engine_that_is_asked_to_end")
def asked_to_end(c):
    """Its name goes with it (enableGracefulShutdown); one that is killed leaves it."""
    master = c.yolk("master", "--port", "0", "--admin-port", "0", "--metadata-listen", "127.0.0.1:0")
    at = master.wait_line(r"^metadata: (http://\S+)").group(1)
    key = "/metadata?key=mooncake/yolk/"
    host = at[len("http://"):].split("/")[0]
    script = c.write("named.py", NAMED_ENGINE.encode())
    for end, number, code in (("signal", signal.SIGTERM, 128 + signal.SIGTERM), ("signal", signal.SIGINT, 128 + 2),
                              ("signal", signal.SIGKILL, -signal.SIGKILL), ("exit", None, 3)):
        name = f"127.0.0.1:{free_port()}"
        engine = subprocess.Popen([sys.executable, script, program("libtransfer_engine.so"), at, name, end],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            check_equal(engine.stdout.readline(), "ready\n")
            check_equal(http(host, key + name)[0], 200, name)
            if number is None:
                engine.stdin.close()
            else:
                engine.send_signal(number)
            check_equal(engine.wait(30), code, end)
        finally:
            engine.kill()
        check_equal(http(host, key + name)[0], 200 if number == signal.SIGKILL else 404, f"{end} {number}")


if __name__ == "__main__":
    sys.exit(main())
