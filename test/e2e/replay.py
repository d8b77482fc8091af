#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job: a prefix-cache trace replayed against a cluster, each byte verified.

The published conversation trace is not part of this repository: YOLK_TRACE_DIR names the folder that holds
conversation_trace.jsonl (Mooncake FAST'25 release). Without it those tests are skipped.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Skip, check, check_equal, check_in, main, test

REPLAY_TIMEOUT_S = 240
MIB = 1 << 20


def trace_path():
    folder = os.environ.get("YOLK_TRACE_DIR")
    if not folder:
        raise Skip("YOLK_TRACE_DIR is not set")
    path = os.path.join(folder, "conversation_trace.jsonl")
    if not os.path.exists(path):
        raise Skip(f"{path} is not there")
    return path


def replay(context, *args):
    out = context.path("replay.json")
    code, stdout, stderr = context.run(
        "replay", *args, "--json", out, timeout_s=REPLAY_TIMEOUT_S
    )
    text = stdout.decode() + stderr
    check(os.path.exists(out), f"no JSON (exit code {code}):\n{text}")
    with open(out) as f:
        result = json.load(f)
    check_equal(result["wrong_bytes"], 0, text + "\nwrong_bytes")
    check_equal(result["failed_puts"], 0, text + "\nfailed_puts")
    return code, result, text


def full_capacity(context, *args):
    """With room for everything the hit count is a property of the trace alone."""
    code, result, text = replay(
        context, "--trace", trace_path(), "--block-size", "16KiB", "--nodes", 2, "--dram", "4GiB",
        "--verify", *args,
    )
    check_equal(result["failed_gets"], 0, text + "\nfailed_gets")
    check_equal(result["requests"], 12031, "requests")
    check_equal(result["blocks_referenced"], 288500, "blocks_referenced")
    check_equal(result["blocks_hit"], 105710, text + "\nblocks_hit")
    check_equal(code, 0, text + "\nexit code")


@test("replay.conversation_embedded")
def conversation_embedded(context):
    full_capacity(context, "--embedded")


@test("replay.conversation_processes")
def conversation_processes(context):
    full_capacity(context, "--processes")


@test("replay.conversation_processes_tcp")
def conversation_tcp(context):
    full_capacity(context, "--processes", "--transport", "tcp")


@test("replay.conversation_processes_shm")
def conversation_shm(context):
    full_capacity(context, "--processes", "--transport", "shm", "--clients", 2)


@test("replay.conversation_512mib")
def conversation_small(context):
    _, result, text = replay(
        context, "--trace", trace_path(), "--block-size", "16KiB", "--nodes", 2, "--dram",
        "512MiB", "--processes", "--verify",
    )
    check(result["hit_rate"] >= 0.315, f"{text}\nhit rate {result['hit_rate']}")
    check_in("LRU of     32768 blocks 0.3349", text)
    check_in("LRU of     29492 blocks 0.324", text)
    # A node: its segment of 256 MiB, buffers of 32 MiB, and 256 MiB for all else.
    check(result["rss_max_bytes"] <= (256 + 32 + 256) * MIB, f"{text}\nresident memory")


SMALL = ("--synthetic", "--requests", 600, "--block-size", "8KiB", "--dram", "256MiB")


@test("replay.synthetic_is_the_same_everywhere")
def synthetic_everywhere(context):
    hits = set()
    for how in (
        ("--embedded",),
        ("--embedded", "--nodes", 1),
        ("--processes",),
        ("--processes", "--transport", "tcp", "--clients", 3),
    ):
        code, result, text = replay(context, *SMALL, *how)
        check_equal(code, 0, text)
        hits.add(result["blocks_hit"])
    check_equal(len(hits), 1, f"blocks hit {hits}")


@test("replay.synthetic_with_eviction")
def synthetic_evicts(context):
    for how in ("--embedded", "--processes"):
        _, result, text = replay(
            context, "--synthetic", "--requests", 600, "--block-size", "8KiB", "--dram", "32MiB", how
        )
        check(result["blocks_hit"] > 0, text)


@test("replay.unordered")
def unordered(context):
    code, result, text = replay(context, *SMALL, "--processes", "--clients", 3, "--unordered")
    check_equal(code, 0, text)
    check_equal(result["unordered"], True, "unordered in the JSON")
    check_in("(unordered)", text)


@test("replay.running_cluster")
def running_cluster(context):
    _, address = context.master()
    context.node(address, dram="64MiB")
    context.node(address, dram="64MiB")
    arguments = ("--synthetic", "--requests", 200, "--block-size", "8KiB", "--master", address)
    first = replay(context, *arguments)[1]
    second = replay(context, *arguments)[1]
    check(first["hit_rate"] < 1, "the first replay finds not everything")
    check_equal(second["hit_rate"], 1.0, "the second replay finds everything")
    check_equal(context.run("stat", "--master", address, "--recount")[0], 0, "recount")


@test("replay.demo")
def demo(context):
    code, stdout, stderr = context.run("demo", timeout_s=REPLAY_TIMEOUT_S)
    check_equal(code, 0, stdout.decode() + stderr)
    check_in("wrong bytes           0", stdout.decode())


@test("replay.bad_usage_is_named")
def bad_usage(context):
    bad_line = context.write("bad.jsonl", '{"hash_ids":[1]}\n{"hash_ids":[1.5]}\n')
    for arguments, words, wanted in (
        (("--bogus",), "bogus", 2),
        (("--synthetic", "--dram", "12Q"), "--dram", 2),
        (("--synthetic", "--nodes", "0"), "--nodes: \"0\"", 2),
        (("--synthetic", "--respawn"), "--respawn needs --processes", 2),
        ((), "--trace FILE and --synthetic", 2),
        (("--trace", "/nonexistent"), "/nonexistent", 1),
        (("--trace", bad_line), "bad.jsonl:2: a hash_id is not", 1),
        (("--synthetic", "--master", "127.0.0.1:1", "--timeout", "1s"), "127.0.0.1:1", 1),
    ):
        code, _, stderr = context.run("replay", *arguments)
        check_equal(code, wanted, f"{arguments}: {stderr}")
        check_in(words, stderr, str(arguments))


if __name__ == "__main__":
    sys.exit(main())
