#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three hosts, each in a network namespace of its own, joined by a bridge: a master, a node, and clients that reach
it by TCP alone, over links that are cut, in one direction or both, slow, lossy, or come and go. No byte is wrong, no
call lasts beyond its deadline, everything works again soon after the link does, and nobody was started anew."""

import os
import select
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import history
import history_check
from harness import Failure, Skip, check, check_equal, check_in, eventually, main, test, yolk_path

TIMEOUT_S = 1.5
LATE_S = 8.0  # so much more than its deadline a call may last: its memory has to be quiet (5 s), the machine is busy
RECOVERED_S = 20.0
FAULT_S = 2.5
CLIENTS = 3
TAKES_EFFECT_S = 0.4
HOSTS = ("master", "node", "client")


def command(*args):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(args)}: {done.stdout.strip()}")


class Net:
    """The hosts and the bridge; close() takes all away again."""

    def __init__(self, v6):
        self.prefix = f"yolk{os.getpid()}"
        self.v6 = v6
        self.made = []
        for tool in ("ip", "tc", "nft"):
            if shutil.which(tool) is None:
                raise Skip(f"{tool} is not installed")
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        try:
            self._make()
        except Failure as why:
            self.close()
            raise Skip(f"no network of namespaces can be made here: {why}")

    def space(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        number = HOSTS.index(host) + 1
        return f"fd77::{number}" if self.v6 else f"10.77.0.{number}"

    def at(self, host, port):
        return f"[{self.address(host)}]:{port}" if self.v6 else f"{self.address(host)}:{port}"

    def inside(self, host):
        return ["ip", "netns", "exec", self.space(host)]

    def _make(self):
        for host in ("bridge", *HOSTS):
            command("ip", "netns", "add", self.space(host))
            self.made.append(host)
            command("ip", "-n", self.space(host), "link", "set", "lo", "up")
        bridge = self.space("bridge")
        command("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        command("ip", "-n", bridge, "link", "set", "br0", "up")
        for host in HOSTS:
            space = self.space(host)
            command("ip", "-n", bridge, "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", space)
            command("ip", "-n", bridge, "link", "set", f"to-{host}", "master", "br0", "up")
            size = ("64", "nodad") if self.v6 else ("24",)
            command("ip", "-n", space, "addr", "add", f"{self.address(host)}/{size[0]}", "dev", "eth0", *size[1:])
            command("ip", "-n", space, "link", "set", "eth0", "up")
            command(*self.inside(host), "nft", "add table inet yolk; add chain inet yolk in "
                    "{ type filter hook input priority 0; }")

    def close(self):
        for host in self.made:
            subprocess.run(["ip", "netns", "del", self.space(host)], stderr=subprocess.DEVNULL)

    # -- faults, by the host that packets come to --

    def drop(self, to, source, share=100):
        family = "ip6" if self.v6 else "ip"
        chance = [] if share == 100 else ["numgen", "random", "mod", "100", "<", str(share)]
        command(*self.inside(to), "nft", "add", "rule", "inet", "yolk", "in", family, "saddr", self.address(source),
                *chance, "drop")

    def cut(self, a, b):
        self.drop(a, b)
        self.drop(b, a)

    def slow(self, host):
        """What the host sends: 16 Mbit/s, and 20 ms later where the kernel can do that."""
        tc = [*self.inside(host), "tc", "qdisc", "add", "dev", "eth0", "root"]
        if subprocess.run([*tc, "netem", "delay", "20ms", "rate", "16mbit"], stderr=subprocess.DEVNULL).returncode != 0:
            print("# this kernel has no netem: the link gets a rate, no delay")
            command(*tc, "tbf", "rate", "16mbit", "burst", "32kb", "latency", "400ms")

    def link(self, host, state):
        command("ip", "-n", self.space("bridge"), "link", "set", f"to-{host}", state)

    def heal(self):
        for host in HOSTS:
            command(*self.inside(host), "nft", "flush chain inet yolk in")
            subprocess.run([*self.inside(host), "tc", "qdisc", "del", "dev", "eth0", "root"],
                           stderr=subprocess.DEVNULL)
            self.link(host, "up")


class World:
    """A cluster on the net with clients at work."""

    def __init__(self, context, v6=False):
        self.context = context
        self.net = net = Net(v6)
        try:
            secret = context.write("secret", b"0123456789abcdef0123456789abcdef")
            os.chmod(secret, 0o600)
            self.secret = secret
            self.master = self.start("master", "master", "--listen", net.at("master", 5000), "--admin-port", "0",
                                     "--secret-file", secret, *history.MASTER_FLAGS)
            self.master.wait_line(r"^yolk master ready")
            self.address = net.at("master", 5000)
            self.node = self.start("node", "node", "--master", self.address, "--dram", "64MiB", "--host",
                                   net.address("node"), "--transport", "tcp", "--secret-file", secret)
            self.node.wait_line(r"^yolk node ready")
            self.clients = [history.Client(context, n, self.address, n + 1, net.inside("client"), transport="tcp",
                                           timeout_ms=int(TIMEOUT_S * 1000), put_wait_ms=500, secret_file=secret)
                            for n in range(CLIENTS)]
            for client in self.clients:
                client.wait_ready()
            self.works_again("at the beginning")
        except BaseException:
            self.close()
            raise

    def start(self, host, *args):
        return self.context.start(*self.net.inside(host), yolk_path(), *args)

    def close(self):
        for process in self.context.processes:
            process.kill()
        self.net.close()

    def works_again(self, when):
        """Each client puts something and gets something, both begun from now on."""
        now = time.monotonic_ns()

        def goes(client, kind):
            return any(op["kind"] == kind and op.get("ok") and op["begin"] > now for op in client.records())

        eventually(lambda: all(goes(c, kind) for c in self.clients for kind in ("put", "get")), RECOVERED_S,
                   f"puts and gets {when}")
        print(f"# {when}: works after {(time.monotonic_ns() - now) / 1e9:.1f} s")

    def fault(self, name, begin, seconds=FAULT_S):
        """(begun, ended) of what begin() does to the net; everything works again afterwards."""
        begin()
        begun = time.monotonic_ns()
        select.select([], [], [], seconds)  # the time itself is the fault
        ended = time.monotonic_ns()
        self.net.heal()
        self.works_again(f"after {name}")
        return begun, ended

    def finish(self):
        """Checks all that was seen, and that nobody had to be started anew."""
        for client in self.clients:
            client.finish()
        records = [op for client in self.clients for op in client.records()]
        try:
            history_check.check(history.history_of(records))
        except history_check.Wrong as wrong:
            raise Failure(str(wrong))
        slowest = max(records, key=lambda op: op["end"] - op["begin"])
        took_s = (slowest["end"] - slowest["begin"]) / 1e9
        print(f"# {len(records)} operations, the slowest, a {slowest['kind']}, took {took_s:.2f} s")
        check(took_s < TIMEOUT_S + LATE_S, f"{took_s:.1f} s for {slowest}")
        check(self.master.alive() and self.node.alive(), "master and node are as they were")

        def agrees():
            stat = self.start("client", "stat", "--master", self.address, "--secret-file", self.secret, "--recount")
            return stat.wait() == 0

        eventually(agrees, text="yolk stat --recount agrees")
        return records


def begun_within(records, begun, ended):
    """What began inside the fault."""
    return [op for op in records if begun + int(TAKES_EFFECT_S * 1e9) < op["begin"] < ended]


def gets_within(records, begun, ended):
    return [op for op in begun_within(records, begun, ended) if op["kind"] == "get"]


def no_hits(records, begun, ended):
    """How many operations were tried meanwhile: the clients may have been at puts all the time."""
    hits = [op for op in gets_within(records, begun, ended) if op.get("ok") and op["end"] < ended]
    check_equal(hits, [], "gets over a link that is cut")
    return len(begun_within(records, begun, ended))


def on_net(name, v6=False):
    """A test with a world that is taken away again."""
    def add(function):
        def wrapped(context):
            world = World(context, v6)
            try:
                function(world)
            finally:
                world.close()
        wrapped.__module__ = function.__module__
        return test(name)(wrapped)
    return add


def cut_everything(world):
    net = world.net
    data = world.fault("no way between client and node", lambda: net.cut("client", "node"))
    control = world.fault("no way between client and master", lambda: net.cut("client", "master"))
    world.fault("no way between node and master", lambda: net.cut("node", "master"))
    records = world.finish()
    check(no_hits(records, *data) + no_hits(records, *control) > 0, "nothing was tried without a way")


@on_net("network.partition")
def partition(world):
    cut_everything(world)


@on_net("network.partition_ipv6", v6=True)
def partition_ipv6(world):
    cut_everything(world)


@on_net("network.one_way")
def one_way(world):
    net = world.net
    asked = world.fault("no way from client to node", lambda: net.drop("node", "client"))
    told = world.fault("no way from node to client", lambda: net.drop("client", "node"))
    world.fault("no way from node to master", lambda: net.drop("master", "node"))
    records = world.finish()
    check(no_hits(records, *asked) + no_hits(records, *told) > 0, "nothing was tried without a way")


@on_net("network.slow_and_lossy")
def slow_and_lossy(world):
    net = world.net

    def slow():
        net.slow("node")
        net.slow("client")

    def lossy():
        for to, source in (("client", "node"), ("node", "client"), ("master", "client"), ("client", "master")):
            net.drop(to, source, 5)
    slow_time = world.fault("a slow link", slow)
    lossy_time = world.fault("a lossy link", lossy)
    records = world.finish()
    for name, times in (("slow", slow_time), ("lossy", lossy_time)):
        hits = [op for op in gets_within(records, *times) if op.get("ok")]
        check(hits, f"nothing came over the {name} link")


@on_net("network.flaps")
def flaps(world):
    def come_and_go():
        for _ in range(4):
            for host in ("node", "client"):
                world.net.link(host, "down")
                select.select([], [], [], 0.2)
                world.net.link(host, "up")
                select.select([], [], [], 0.2)
    world.fault("links that came and went", come_and_go, 0)
    world.finish()


@test("network.a_sick_peer_slows_no_other")
def sick_peer(context):
    """Three hosts: who reads, a healthy peer, and one that is killed and comes back with other memory."""
    program = os.path.join(os.path.dirname(yolk_path()), "tests", "sick.sick")
    if not os.path.exists(program):
        raise Skip("tests/sick.sick is not built")
    net = Net(False)
    try:
        where = [part for host in ("master", "node") for part in (net.space(host), net.address(host))]
        load = context.start(*net.inside("client"), program, "load", net.address("client"), *where)
        check_equal(load.wait(120), 0, "exit status")
        print("".join(f"# {line}\n" for line in load.output().splitlines() if "p99" in line or "answers" in line), end="")
    finally:
        for process in context.processes:
            process.kill()
        net.close()


@test("network.a_skip_says_why")
def skip_says_why(_):
    def skips(why, *prefix, **more):
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **more)
        done = subprocess.run([*prefix, sys.executable, os.path.abspath(__file__), "network.flaps"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        check_equal(done.returncode, 0, done.stdout)
        check_in(f"skip network.flaps {why}", done.stdout)

    skips("ip is not installed", PATH="/nonexistent")
    if os.geteuid() != 0:
        skips("network namespaces need root")
    elif shutil.which("setpriv") and shutil.which("ip") and shutil.which("nft"):
        # A root that may not, as in most containers.
        skips("no network of namespaces can be made here", "setpriv", "--bounding-set=-sys_admin",
              "--inh-caps=-sys_admin")


if __name__ == "__main__":
    sys.exit(main())
