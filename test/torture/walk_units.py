#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs unit tests with the N-th call of a kind failing, once and for ever after:

  walk_units.py FULL_SECONDS STRIDED_SECONDS KIND EXECUTABLE...

KIND is "allocations" (of the pure parts) or one of test/torture/faults.c: memory, file, socket, map, thread. An executable
is walked over in full where that takes at most FULL_SECONDS, else with strides for STRIDED_SECONDS; 0 FULL_SECONDS: in
full whatever it takes. A test may fail then, because it expects that the call works, but nothing may crash, hang or be
found by a sanitizer. (Leaks are not looked for: a test that fails frees nothing.) A finding is repeated with
YOLK_TEST_REFUSE=WHAT EXECUTABLE, as is said.
"""
import os
import re
import subprocess
import sys
import time

BAD = re.compile(r"^.*(?:ERROR: AddressSanitizer|runtime error:|exception: |Sanitizer:DEADLYSIGNAL|Assertion .* failed).*$",
                 re.M)
HANG_S = 120


def refuse(executable, wish):
    """-> (how many calls there were or None, what is wrong or None)"""
    env = dict(os.environ, YOLK_TEST_REFUSE=wish, ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")
    try:
        done = subprocess.run([executable], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=HANG_S)
    except subprocess.TimeoutExpired:
        return None, "no end within %d s" % HANG_S
    bad = BAD.search(done.stdout)
    count = re.search(r"^YOLK_TEST_REFUSE: (\d+) calls$", done.stdout, re.M)
    if bad or done.returncode < 0 or not count:
        return None, "%s\nexit status %d" % (bad.group(0) if bad else done.stdout[-2000:], done.returncode)
    return int(count.group(1)), None


def walk(executable, kind, full_seconds, strided_seconds):
    """-> what is wrong"""
    prefix = "" if kind == "allocations" else kind + ":"
    begin = time.monotonic()
    total, wrong = refuse(executable, prefix + "0")
    if wrong:
        return ["%s, nothing fails: %s" % (executable, wrong)]
    full = full_seconds == 0 or 2 * total * (time.monotonic() - begin) <= full_seconds
    end, done, found = time.monotonic() + strided_seconds, 0, []
    # Spread out, so that a walk with strides has looked everywhere: odd numbers apart by the golden ratio.
    for n in sorted(range(1, total + 1), key=(lambda n: n) if full else (lambda n: n * 0.6180339887 % 1)):
        if not full and time.monotonic() > end:
            break
        for wish in ("%s%d" % (prefix, n), "%s%d+" % (prefix, n)):
            _, wrong = refuse(executable, wish)
            if wrong:
                found.append("YOLK_TEST_REFUSE=%s %s\n%s" % (wish, executable, wrong))
        done += 1
    print("%s, %s: %s" % (os.path.basename(executable), kind, "all %d calls" % total if full or done == total else
                          "strided, %d of %d calls" % (done, total)), flush=True)
    return found


def main():
    full_seconds, strided_seconds, kind = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    found = [line for executable in sys.argv[4:] for line in walk(executable, kind, full_seconds, strided_seconds)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
