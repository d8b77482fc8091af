#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzzers for a time each and keeps what they found: scripts/fuzz [--seconds N] [--jobs N] [NAME...]

Each fuzzer begins with its kept inputs (test/fuzz/corpus/NAME). Afterwards those new inputs that reach code or states
which the kept ones do not reach are added to them (--no-merge: not), and a line says how many inputs were executed.
An input that shows a mistake is left in findings/ of the build, its name is printed, and the exit status is 1.

On a machine without a compiler: --pack FILE.tar.gz writes the fuzzers (which need glibc 2.34 or newer and nothing
else), the kept inputs and this program. There: tar xzf FILE.tar.gz && python3 fuzz/campaign.py --seconds 3600 --jobs 8
--binaries fuzz/fuzzers --corpus fuzz/corpus; `tar czf back.tar.gz fuzz/corpus` brings home what was found, and
scripts/fuzz --take back.tar.gz adds of it what is new here.

--tally FILE adds what ran without a finding to a table: for each fuzzer, as it is now (another source of it begins anew),
the processor time that it really had, on a busy machine much less than --seconds, and its inputs. Those that have least of
their hour run first, those that have it do not run unless named; so an hour each comes together over several runs.
"""
import argparse
import base64
import concurrent.futures
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CORPUS = os.path.join(HERE, "corpus")
LIMITS = ("-len_control=0", "-max_len=4096", "-timeout=20", "-rss_limit_mb=2048")
BUILD_OPTIONS = ["-DCMAKE_C_COMPILER=clang", "-DYOLK_TESTS=OFF", "-DYOLK_FUZZ=ON", "-DYOLK_SANITIZE=address"]


SAID_LINES = 100
HOUR = 3600
TALLY_HEAD = "# fuzzer\tsource\tprocessor seconds\tmissing of an hour\tinputs\tlast run\n"


def sources():
    """Of all fuzzers: {name: path}."""
    return {file[:-len("_fuzz.c")]: os.path.join(folder, file) for top in ("src", "test")
            for folder, _, files in os.walk(os.path.join(ROOT, top)) for file in files if file.endswith("_fuzz.c")}


def names():
    return sorted(sources())


class Tally:
    """The table of --tally: seconds and inputs that each fuzzer had since it last changed. Written by one run at a time."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.rows = {name: [self.identity(source), 0, 0, "never"] for name, source in sources().items()}
        if os.path.exists(path):
            for number, line in enumerate(open(path), 1):
                fields = line.rstrip("\n").split("\t")
                if line.startswith("#"):
                    continue
                if len(fields) != 6 or not fields[2].isdigit() or not fields[4].isdigit():
                    raise SystemExit("%s:%d: not a line of --tally: %r" % (path, number, line))
                if fields[0] in self.rows and self.rows[fields[0]][0] == fields[1]:
                    self.rows[fields[0]][1:] = [int(fields[2]), int(fields[4]), fields[5]]

    @staticmethod
    def identity(source):
        with open(source, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:12]

    def missing(self, name):
        return max(0, HOUR - self.rows[name][1])

    def add(self, name, seconds, inputs):
        with self.lock:
            row = self.rows[name]
            row[1:] = [row[1] + round(seconds), row[2] + inputs, datetime.date.today().isoformat()]
            with open(self.path + ".new", "w") as file:
                file.write(TALLY_HEAD)
                for each in sorted(self.rows):
                    identity, spent, done, last = self.rows[each]
                    file.write("%s\t%s\t%d\t%d\t%d\t%s\n" % (each, identity, spent, self.missing(each), done, last))
            os.replace(self.path + ".new", self.path)


def executable(binaries, name):
    return os.path.join(binaries, name + "_fuzz")


def diagnosis(binaries, name, artifacts, before):
    """Of each new input that shows a mistake: what the fuzzer says of it with its own words, which -close_fd_mask hides, and
    the input itself, which libFuzzer prints only where it is short. So a run whose folders are gone can be repeated."""
    text = ""
    for file in sorted(set(os.listdir(artifacts)) - before):
        if not file.startswith(name + "-"):
            continue
        path = os.path.join(artifacts, file)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            try:
                said = "exit status %s" % subprocess.run([executable(binaries, name), *LIMITS, path], stdout=output,
                                                         stderr=subprocess.STDOUT, timeout=120, check=False).returncode
            except subprocess.TimeoutExpired:
                said = "no end within 120 s"
            output.seek(0)
            lines = output.read().splitlines()
        if len(lines) > 2 * SAID_LINES:
            lines[SAID_LINES:-SAID_LINES] = ["... %d lines ..." % (len(lines) - 2 * SAID_LINES)]
        with open(path, "rb") as shown:
            text += "\n%s again, alone: %s\n%s\n%s as base64, to be kept in test/fuzz/corpus/%s:\n%s\n" % (
                file, said, "\n".join(lines), file, name, base64.b64encode(shown.read()).decode())
    return text


def fuzz(binaries, name, seconds, kept, found, artifacts):
    """New inputs go to the folder `found`. -> (exit status, executions or None, processor seconds it had, output)"""
    command = [executable(binaries, name), "-max_total_time=%d" % seconds, *LIMITS, "-close_fd_mask=3",
               "-print_final_stats=1", "-artifact_prefix=%s/%s-" % (artifacts, name), found, kept]
    before = set(os.listdir(artifacts))
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        watch = threading.Timer(seconds + 300, child.kill)
        watch.start()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        watch.cancel()
        output.seek(0)
        text = output.read()
    if child.returncode != 0:
        text += diagnosis(binaries, name, artifacts, before)
    executed = re.search(r"^stat::number_of_executed_units: +(\d+)$", text, re.M)
    return (child.returncode, int(executed.group(1)) if executed else None, usage.ru_utime + usage.ru_stime, text)


def merge(binaries, name, kept, found):
    """Adds to `kept` what of `found` is new. -> how many, or what went wrong"""
    before = len(os.listdir(kept))
    done = subprocess.run([executable(binaries, name), "-merge=1", *LIMITS, "-close_fd_mask=3", kept, found],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        return done.stdout
    return len(os.listdir(kept)) - before


def campaign(arguments, binaries, wanted):
    findings = os.path.join(os.path.dirname(os.path.abspath(binaries)), "findings")
    os.makedirs(findings, exist_ok=True)
    tally = Tally(arguments.tally) if arguments.tally else None
    if tally:
        wanted = sorted((name for name in wanted if name in arguments.names or tally.missing(name) > 0),
                        key=tally.missing, reverse=True)

    def one(name):
        kept = os.path.join(arguments.corpus, name)
        os.makedirs(kept, exist_ok=True)
        with tempfile.TemporaryDirectory() as found:
            status, executed, took, output = fuzz(binaries, name, arguments.seconds, kept, found, findings)
            if status != 0:
                return name, took, executed, 0, output
            if tally:
                tally.add(name, took, executed or 0)
            added = 0 if arguments.no_merge else merge(binaries, name, kept, found)
            return (name, took, executed, added, None) if isinstance(added, int) else (name, took, executed, 0, added)

    wrong, total, spent = [], 0, 0.0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for run in concurrent.futures.as_completed([pool.submit(one, name) for name in wanted]):
            name, took, executed, added, trouble = run.result()
            print("%-14s %6.0f s of a processor %12s inputs, %4d kept%s" % (name, took, executed if executed is not None else "?", added,
                                                            "  FOUND SOMETHING" if trouble else ""), flush=True)
            total, spent = total + (executed or 0), spent + took
            if trouble:
                wrong.append(name)
                print(trouble)
    print("%d fuzzers, %.0f s of a processor, %d inputs, %d found something" % (len(wanted), spent, total, len(wrong)))
    if wrong:
        print("inputs that show it: %s" % ", ".join(sorted(os.path.join(findings, f) for f in os.listdir(findings))))
    return 1 if wrong else 0


def pack(path, binaries, corpus, wanted):
    with tarfile.open(path, "w:gz") as out:
        out.add(os.path.abspath(__file__), "fuzz/campaign.py")
        for name in wanted:
            out.add(executable(binaries, name), "fuzz/fuzzers/%s_fuzz" % name)
            if os.path.isdir(os.path.join(corpus, name)):
                out.add(os.path.join(corpus, name), "fuzz/corpus/%s" % name)
    print("%s: %d fuzzers, %d bytes" % (path, len(wanted), os.path.getsize(path)))


def take(path, binaries, corpus, wanted):
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(path) as packed:
            for member in packed.getmembers():
                parts = member.name.split("/")
                if member.isfile() and len(parts) == 4 and parts[:2] == ["fuzz", "corpus"] and parts[2] in wanted:
                    os.makedirs(os.path.join(folder, parts[2]), exist_ok=True)
                    with open(os.path.join(folder, parts[2], os.path.basename(member.name)), "wb") as out:
                        shutil.copyfileobj(packed.extractfile(member), out)
        failed = 0
        for name in sorted(os.listdir(folder)):
            os.makedirs(os.path.join(corpus, name), exist_ok=True)
            added = merge(binaries, name, os.path.join(corpus, name), os.path.join(folder, name))
            print("%-14s %s" % (name, "%d kept" % added if isinstance(added, int) else added))
            failed += not isinstance(added, int)
    return 1 if failed else 0


def build(directory):
    for command in (["cmake", "-S", ROOT, "-B", directory, "-G", "Ninja", *BUILD_OPTIONS],
                    ["ninja", "-C", directory, "fuzzers"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit("%s\n%s failed" % (done.stdout[-4000:], " ".join(command)))
    return os.path.join(directory, "fuzzers")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these fuzzers")
    parser.add_argument("--seconds", type=int, default=60, help="of each (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (all processors)")
    parser.add_argument("--no-merge", action="store_true", help="leave the kept inputs as they are")
    parser.add_argument("--tally", metavar="FILE", help="add the time and inputs of each to this table")
    parser.add_argument("--corpus", default=CORPUS, help="the folder of kept inputs")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(ROOT, "build-fuzz"))
    parser.add_argument("--binaries", metavar="DIR", help="fuzzers that are built already")
    parser.add_argument("--pack", metavar="FILE", help="write an archive for another machine, and do nothing else")
    parser.add_argument("--take", metavar="FILE", help="add the kept inputs of another machine, and do nothing else")
    parser.add_argument("--list", action="store_true", help="print the names")
    arguments = parser.parse_args()
    if arguments.seconds < 1 or arguments.jobs < 1:
        parser.error("--seconds and --jobs must be at least 1")
    if arguments.binaries:
        known = sorted(f[:-len("_fuzz")] for f in os.listdir(arguments.binaries) if f.endswith("_fuzz"))
    else:
        known = names()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error("%s: no such fuzzer; there are %s" % (", ".join(unknown), " ".join(known)))
    if arguments.tally and not set(known) <= set(names()):
        parser.error("--tally needs the sources of the fuzzers, to know when one changed")
    wanted = arguments.names or known
    if arguments.list:
        print("\n".join(known))
        return 0
    binaries = arguments.binaries or build(arguments.build)
    if arguments.pack:
        pack(arguments.pack, binaries, arguments.corpus, wanted)
        return 0
    if arguments.take:
        return take(arguments.take, binaries, arguments.corpus, wanted)
    return campaign(arguments, binaries, wanted)


if __name__ == "__main__":
    sys.exit(main())
