# SPDX-License-Identifier: Apache-2.0
"""The metadata services of others, started for one test; skips it where one is not installed."""

import shutil
import socket


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def server(context, program, *args):
    from harness import Skip

    path = shutil.which(program)
    if path is None:
        raise Skip(f"{program} is not installed")
    return context.start(path, *args)


def etcd(context):
    """The port that it listens on; it may take a while until it answers."""
    from harness import eventually, free_port

    port, peers = free_port(), free_port()
    server(context, "etcd", "--data-dir", context.path("etcd"), "--listen-client-urls", f"http://127.0.0.1:{port}",
           "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peers}",
           "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}", "--initial-cluster",
           f"default=http://127.0.0.1:{peers}")
    eventually(lambda: listens(port), text="etcd listens")
    return port


def redis(context, password):
    from harness import eventually, free_port

    port = free_port()
    server(context, "redis-server", "--port", port, "--bind", "127.0.0.1", "--requirepass", password, "--dir", context.dir,
           "--save", "")
    eventually(lambda: listens(port), text="redis listens")
    return port
