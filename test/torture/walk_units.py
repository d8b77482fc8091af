#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs unit tests with the N-th allocation refused, once and for ever after: walk_units.py SECONDS EXECUTABLE...

SECONDS bounds one executable, 0 walks over all N. A test may fail then, because it expects that there is memory,
but nothing may crash, hang or be found by a sanitizer. (Leaks are not looked for: a test that fails frees nothing.)
A finding is repeated with YOLK_TEST_REFUSE=N or N+ EXECUTABLE.
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
    """-> (how many allocations there were or None, what is wrong or None)"""
    env = dict(os.environ, YOLK_TEST_REFUSE=wish, ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")
    try:
        done = subprocess.run([executable], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=HANG_S)
    except subprocess.TimeoutExpired:
        return None, "no end within %d s" % HANG_S
    bad = BAD.search(done.stdout)
    count = re.search(r"^YOLK_TEST_REFUSE: (\d+) allocations$", done.stdout, re.M)
    if bad or done.returncode < 0 or not count:
        return None, "%s\nexit status %d" % (bad.group(0) if bad else done.stdout[-2000:], done.returncode)
    return int(count.group(1)), None


def walk(executable, seconds):
    """-> what is wrong"""
    total, wrong = refuse(executable, "0")
    if wrong:
        return ["without a refusal: " + wrong]
    end, done, found = time.monotonic() + seconds, 0, []
    # Spread out, so that a cut walk has looked everywhere: odd numbers apart by the golden ratio.
    order = sorted(range(1, total + 1), key=(lambda n: n) if seconds == 0 else (lambda n: n * 0.6180339887 % 1))
    for n in order:
        if seconds and time.monotonic() > end:
            break
        for wish in ("%d" % n, "%d+" % n):
            _, wrong = refuse(executable, wish)
            if wrong:
                found.append("YOLK_TEST_REFUSE=%s %s\n%s" % (wish, executable, wrong))
        done += 1
    print("%s: %d of %d allocations refused" % (os.path.basename(executable), done, total), flush=True)
    return found


def main():
    seconds = float(sys.argv[1])
    found = [line for executable in sys.argv[2:] for line in walk(executable, seconds)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
