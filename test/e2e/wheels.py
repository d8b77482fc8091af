#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheels of scripts/wheels: what is in them, where they can be installed and used, what they leave alone. They are
built once into the build folder, in a folder of objects of their own; so is the Debian 12 without a compiler."""

import base64
import contextlib
import csv
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ROOT, Skip, build_dir, check, check_equal, check_in, free_port, main, test

BUILD_S, INSTALL_S, USE_S, DEBIAN_S = 600, 180, 120, 600
DATE = 1700000000  # SOURCE_DATE_EPOCH of what is built here
SOURCES = ("CMakeLists.txt", "include", "python", "scripts/wheels", "src", "docs/install.md", "LICENSE")
LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
FUNCTIONS = """create destroy setup init_all health_check put put_from batch_put_from get_into batch_get_into is_exist
batch_is_exist get_size get_hostname remove remove_by_regex remove_all register_buffer unregister_buffer""".split()
DISTRIBUTION = "mooncake-transfer-engine"


def run(*command, timeout_s=USE_S, env=None, cwd="/", code=0, **more):
    """What it prints; fails unless it ends with `code`."""
    full = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_", "YOLK_"))}
    try:
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=timeout_s, env={**full, **(env or {})}, cwd=cwd,
                              check=False, **more)
    except subprocess.TimeoutExpired as late:
        raise AssertionError("%s did not end in %d s:\n%s" % (command[0], timeout_s, late.output)) from None
    check_equal(done.returncode, code, "%s:\n%s\nexit status" % (" ".join(map(str, command)), done.stdout[-3000:]))
    return done.stdout


def newest_source():
    times = []
    for name in SOURCES:
        path = os.path.join(ROOT, name)
        for folder, _, files in os.walk(path) if os.path.isdir(path) else [(ROOT, [], [name])]:
            times += [os.stat(os.path.join(folder, file)).st_mtime for file in files
                      if not file.endswith((".pyc", "_test.c", "_fuzz.c"))]
    return max(times)


@contextlib.contextmanager
def locked(name):
    with open(os.path.join(build_dir(), name + ".lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wheels():
    """The folder with the wheels, built if a source is newer."""
    folder = os.path.join(build_dir(), "wheels")
    with locked("wheels"):
        found = glob.glob(os.path.join(folder, "*.whl"))
        if len(found) != 3 or min(os.stat(path).st_mtime for path in found) < newest_source():
            shutil.rmtree(folder, ignore_errors=True)
            run(os.path.join(ROOT, "scripts", "wheels"), folder, timeout_s=BUILD_S, cwd=ROOT,
                env={"YOLK_WHEEL_BUILD": os.path.join(build_dir(), "for-wheels"), "SOURCE_DATE_EPOCH": str(DATE)})
    return folder


def wheel(tag):
    (path,) = glob.glob(os.path.join(wheels(), "*-%s.whl" % tag))
    return path


ABI3, PY310, THIN = "cp311-abi3-manylinux_2_34_x86_64", "cp310-cp310-manylinux_2_34_x86_64", "py3-none-any"


def environment(context, python=sys.executable, name="venv"):
    """-> the folder of its programs"""
    folder = context.path(name)
    try:
        run(python, "-m", "venv", folder, timeout_s=INSTALL_S)
    except AssertionError as error:
        if "ensurepip" in str(error):
            raise Skip("%s cannot make environments (Debian: python3-venv)" % python) from None
        raise
    return os.path.join(folder, "bin")


def install(binaries, *what, code=0, folder=None):
    return run(os.path.join(binaries, "pip"), "--disable-pip-version-check", "--isolated", "install", "--no-index",
               "--find-links", folder or wheels(), *what, timeout_s=INSTALL_S, code=code)


def site(binaries):
    (folder,) = glob.glob(os.path.join(os.path.dirname(binaries), "lib", "python3*", "site-packages"))
    return folder


def use(context, binaries):
    """Fails unless a master and a program of few lines run with what is installed there."""
    with open(os.path.join(ROOT, "scripts", "try-wheels"), encoding="utf-8") as file:
        (script,) = re.findall(r"<<'EOF'\n(.*?)^EOF$", file.read(), re.M | re.S)
    return run(os.path.join(binaries, "python"), context.write("use.py", script))


def use_as_documented(context, binaries):
    """What the program of docs/install.md prints, with a master as it is started there, but for its ports."""
    with open(os.path.join(ROOT, "docs", "install.md"), encoding="utf-8") as file:
        (script,) = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
    port = free_port()
    master = context.start(os.path.join(binaries, "mooncake_master"), "--port=%d" % port, "--metrics_port=%d" % free_port())
    master.wait_line(r"^mooncake_master ready ")
    master.wait_line(r"^python: .*\.setup\(.*:%d\"" % port)
    master.wait_line(r"^health: curl http://\S+/health")
    return run(os.path.join(binaries, "python"), context.write("documented.py", script.replace("50051", str(port))))


# ---- what is in them ----


@test("names_and_metadata")
def names_and_metadata(context):
    version = re.search(r"^project\(yolk VERSION ([\d.]+)", open(os.path.join(ROOT, "CMakeLists.txt")).read(), re.M)
    names = sorted(os.listdir(wheels()))
    check_equal(len(names), 3, str(names))
    for tag, distribution in ((ABI3, "yolk"), (PY310, "yolk"), (THIN, "mooncake_transfer_engine")):
        path = wheel(tag)
        own = os.path.basename(path)[: -len("-%s.whl" % tag)]
        check_equal(own.split("-")[0], distribution)
        with zipfile.ZipFile(path) as archive:
            info = own + ".dist-info/"
            about = archive.read(info + "METADATA").decode()
            check_in("\nVersion: %s\n" % own.split("-")[1], about)
            check_in("\nRequires-Python: >=3.10\n", about)
            check_in("\nTag: %s\n" % tag, archive.read(info + "WHEEL").decode())
            check(archive.read(info + "licenses/LICENSE"), "no licence")
            if tag == THIN:
                check_in("\nRequires-Dist: yolk==%s\n" % version.group(1), about)
                check(tuple(map(int, re.match(r"(\d+)\.(\d+)\.(\d+)", own.split("-")[1]).groups())) >= (0, 3, 12), own)
                outside = [name for name in archive.namelist() if not name.startswith(info)]
                check_equal(outside, [], "files of the thin wheel")
            else:
                check_equal(own, "yolk-" + version.group(1))
                check_in("libsodium", archive.read(info + "licenses/THIRD-PARTY").decode())


@test("records_are_right")
def records_are_right(_):
    for tag in (ABI3, PY310, THIN):
        with zipfile.ZipFile(wheel(tag)) as archive:
            (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
            rows = {row[0]: row[1:] for row in csv.reader(archive.read(record).decode().splitlines())}
            check_equal(sorted(rows), sorted(archive.namelist()), "files in RECORD of " + tag)
            for name in archive.namelist():
                data = archive.read(name)
                if name == record:
                    check_equal(rows[name], ["", ""])
                    continue
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                check_equal(rows[name], ["sha256=" + digest, str(len(data))], name)
            dates = {entry.date_time for entry in archive.infolist()}
            check_equal(dates, {time.gmtime(DATE)[:6][:5] + (time.gmtime(DATE)[5] // 2 * 2,)}, "dates in " + tag)


@test("c130_binaries_need_nothing_else")
def c130_binaries_need_nothing_else(context):
    seen = 0
    for tag in (ABI3, PY310):
        folder = context.path(tag)
        with zipfile.ZipFile(wheel(tag)) as archive:
            archive.extractall(folder)
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        check(modes["yolk/bin/yolk"] & 0o111, "the program is not executable")
        for name in modes:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                data = file.read()
            for place in {ROOT, build_dir(), os.path.expanduser("~")}:
                check(len(place) < 4 or place.encode() + b"/" not in data, "%s holds the path %s" % (name, place))
            if data[:4] != b"\x7fELF":
                continue
            seen += 1
            dynamic = run("readelf", "-d", "-W", path)
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
            check(needed and needed <= LIBRARIES, "%s needs %s" % (name, sorted(needed - LIBRARIES)))
            check("RPATH" not in dynamic and "RUNPATH" not in dynamic, name + " has a search path")
            versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", run("readelf", "-V", "-W", path))
            check(versions and max((int(a), int(b)) for a, b in versions) <= (2, 34), "%s: %s" % (name, versions))
            sections = run("readelf", "-S", "-W", path)
            check(" .symtab " not in sections and " .debug_info " not in sections, name + " is not stripped")
    check_equal(seen, 10, "programs and libraries in both wheels")


@test("c_library_exports_its_functions_alone")
def c_library_exports_its_functions_alone(context):
    with zipfile.ZipFile(wheel(ABI3)) as archive:
        path = archive.extract("yolk/lib/libmooncake_store.so", context.path("x"))
    exported = re.findall(r" T (\w+)$", run("nm", "-D", "--defined-only", path), re.M)
    check_equal(sorted(exported), sorted("mooncake_store_" + name for name in FUNCTIONS))
    check_equal(len(run("nm", "-D", "--defined-only", path).splitlines()), 19, "symbols of any kind")


@test("same_source_same_bytes")
def same_source_same_bytes(context):
    """Packed once more with another time zone, order of files, umask and folder."""
    first = wheels()
    run(sys.executable, os.path.join(ROOT, "python", "wheel", "build.py"), os.path.join(build_dir(), "for-wheels"),
        context.path("again"), env={"SOURCE_DATE_EPOCH": str(DATE), "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}, umask=0o077)
    for name in os.listdir(first):
        with open(os.path.join(first, name), "rb") as one, open(context.path(os.path.join("again", name)), "rb") as other:
            check(one.read() == other.read(), name + " differs")


@test("builder_refuses_what_would_not_run_elsewhere")
def builder_refuses_what_would_not_run_elsewhere(context):
    if not shutil.which("cc"):
        raise Skip("no C compiler")
    broken = context.path("build")
    os.makedirs(broken)
    source = context.write("needy.c", "int main(void) { return 0; }\n")
    run("cc", source, "-Wl,--no-as-needed", "-lgcc_s", "-o", os.path.join(broken, "yolk"))
    text = run(sys.executable, os.path.join(ROOT, "python", "wheel", "build.py"), broken, context.path("out"), code=1)
    check_in("yolk needs libgcc_s.so.1", text)
    os.remove(os.path.join(broken, "yolk"))
    text = run(sys.executable, os.path.join(ROOT, "python", "wheel", "build.py"), broken, context.path("out"), code=1)
    check_in("there is no " + os.path.join(broken, "yolk"), text)


# ---- installing and using them ----


@test("installs_and_runs")
def installs_and_runs(context):
    if sys.version_info < (3, 11):
        raise Skip("this is Python %d.%d; python_3_10 is the test of that wheel" % sys.version_info[:2])
    binaries = environment(context)
    install(binaries, DISTRIBUTION)
    check_in("used: mooncake-transfer-engine", use(context, binaries))
    check_equal(use_as_documented(context, binaries), "b'hello' 1 b''\n")
    for name in ("yolk", "mooncake_master", "mooncake_client"):
        check_in("Yolk" if name != "yolk" else "yolk", run(os.path.join(binaries, name), "--help"), name)
    check_equal(run(os.path.join(binaries, "yolk"), "no-such-command", code=2).count("\n"), 1)
    python = os.path.join(binaries, "python")
    check_in("site-packages", run(python, "-c", "import mooncake; print(mooncake.__path__[0])"))
    run(python, "-c", "from mooncake.store import *; import mooncake.store, pickle, inspect; "
                      "assert inspect.getsource(mooncake.store); pickle.loads(pickle.dumps(SoftPinAction.ENABLE))")
    run(os.path.join(binaries, "pip"), "--isolated", "check")
    run(os.path.join(binaries, "pip"), "--isolated", "uninstall", "-y", DISTRIBUTION, "yolk", timeout_s=INSTALL_S)
    left = [name for name in os.listdir(site(binaries)) if "yolk" in name or "mooncake" in name]
    check_equal(left, [], "left after pip uninstall")
    check_equal(glob.glob(os.path.join(binaries, "*yolk*")) + glob.glob(os.path.join(binaries, "mooncake*")), [])


@test("python_3_10")
def python_3_10(context):
    wanted = os.environ.get("YOLK_PYTHON310")
    found = [path for path in [wanted] + glob.glob("/root/.pyenv/versions/3.10*/bin/python3.10") +
             [shutil.which("python3.10")] if path and subprocess.run(
                 [path, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 10))"], check=False,
                 stderr=subprocess.DEVNULL).returncode == 0]
    if not found:
        raise Skip("no Python 3.10 (YOLK_PYTHON310 names one)")
    binaries = environment(context, found[0])
    text = install(binaries, DISTRIBUTION)
    check_in("with Python 3.10", use(context, binaries))
    check(glob.glob(os.path.join(site(binaries), "yolk", "mooncake", "_store.cpython-310-*.so")), text)
    include = run(found[0], "-c", "import sysconfig; print(sysconfig.get_paths()['include'])").strip()
    if not os.path.exists(os.path.join(include, "Python.h")):
        return
    # What the wheel's extension took from headers of a later version is the same in those of 3.10.
    layout = r'''
#ifdef LATER
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include "buffer_3_10.h"
#else
#include <Python.h>
#endif
#include <stddef.h>
#include <stdio.h>
#define AT(field) printf("%s %zu\n", #field, offsetof(Py_buffer, field))
int main(void)
{
    AT(buf); AT(obj); AT(len); AT(itemsize); AT(readonly); AT(ndim); AT(format); AT(shape); AT(strides);
    AT(suboffsets); AT(internal);
    printf("%zu %d %d %d %d\n", sizeof(Py_buffer), Py_bf_getbuffer, Py_bf_releasebuffer, PyBUF_WRITABLE, PyBUF_FORMAT);
    return 0;
}
'''
    source = context.write("layout.c", layout)
    later = "/usr/include/python3.11"
    if shutil.which("cc") and os.path.exists(later + "/Python.h"):
        out = []
        for flags in (["-I" + include], ["-DLATER", "-I" + later, "-I" + os.path.join(ROOT, "python", "yolk_store")]):
            run("cc", "-Wall", "-Werror", *flags, source, "-o", context.path("layout"))
            out.append(run(context.path("layout")))
        check_equal(out[0], out[1], "the buffer protocol of 3.10 and of 3.11")


@test("c_program_with_the_wheel_s_library")
def c_program_with_the_wheel_s_library(context):
    if not shutil.which("cc"):
        raise Skip("no C compiler")
    with zipfile.ZipFile(wheel(ABI3)) as archive:
        archive.extractall(context.path("x"))
    include, lib = context.path("x/yolk/include"), context.path("x/yolk/lib")
    master, address = context.master()
    example = os.path.join(ROOT, "examples", "store_c.c")
    run("cc", "-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", example, "-I" + include, "-L" + lib,
        "-Wl,-rpath," + lib, "-lmooncake_store", "-o", context.path("example"))
    wanted = ("greeting: 6 bytes\nput block/0: 0\nput block/1: 0\nput block/2: 0\n"
              "get block/0: there 1, 262144, begins with 'a'\nget block/1: there 1, 262144, begins with 'b'\n"
              "get block/2: there 1, 262144, begins with 'c'\nget block/missing: there 0, -704, begins with '-'\n"
              "removed 3\n")
    check_equal(run(context.path("example")), wanted, "with no master")
    check_equal(run(context.path("example"), address), wanted, "with a master")
    check(master.alive(), "the master ended")
    # Also as upstream's names are found: the header beside, the library by dlopen.
    text = run(sys.executable, "-c", "import ctypes, sys; s = ctypes.CDLL(sys.argv[1]); "
               "s.mooncake_store_create.restype = ctypes.c_void_p; h = ctypes.c_void_p(s.mooncake_store_create()); "
               "print(s.mooncake_store_setup(h, b'localhost', b'', ctypes.c_uint64(0), ctypes.c_uint64(1), b'tcp', b'', "
               "sys.argv[2].encode()), s.mooncake_store_is_exist(h, b'greeting'))",
               os.path.join(lib, "libmooncake_store.so"), address)
    check_equal(text, "0 0\n")  # what lay in the example's own memory went with it
    # A wheel has no links, so -lyolk is -l:libyolk.so.0.
    source = context.write("own.c", '#include <yolk/store.h>\nint main(void) { return yolk_strerror(0) == 0; }\n')
    run("cc", source, "-I" + include, "-L" + lib, "-Wl,-rpath," + lib, "-l:libyolk.so.0", "-o", context.path("own"))
    run(context.path("own"))


# ---- the package of another distribution ----

FOREIGN = {
    "mooncake/__init__.py": "WHOSE = 'theirs'\n",
    "mooncake/store.py": "class MooncakeDistributedStore:\n    whose = 'theirs'\n",
}


def foreign_wheel(context, distribution, version):
    """As upstream's: the package, and programs of the same names."""
    name = distribution.replace("-", "_")
    info = "%s-%s.dist-info/" % (name, version)
    files = dict(FOREIGN)
    files[info + "METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (distribution, version)
    files[info + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[info + "RECORD"] = "".join(path + ",,\n" for path in list(files) + [info + "RECORD"])
    folder = context.path("foreign")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "%s-%s-py3-none-any.whl" % (name, version))
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in files.items():
            archive.writestr(entry, text)
    return path


def check_refused(binaries, whose):
    python = os.path.join(binaries, "python")
    for name in ("mooncake", "mooncake.store"):
        text = run(python, "-c", "import " + name, code=1)
        check_in("ImportError: there are two packages named mooncake in " + site(binaries), text, name)
        check_in(whose, text, "whose it is")
        check_in("pip uninstall yolk", text, "what to do")
    check_in("two packages named mooncake", run(os.path.join(binaries, "mooncake_master"), code=1))
    run(python, "-c", "import yolk")


def check_untouched(binaries):
    for path, text in FOREIGN.items():
        with open(os.path.join(site(binaries), path), encoding="utf-8") as file:
            check_equal(file.read(), text, path)


@test("foreign_package_is_not_overwritten")
def foreign_package_is_not_overwritten(context):
    foreign = foreign_wheel(context, "mooncake-transfer-engine-cuda13", "0.3.14")
    binaries = environment(context)
    pip = os.path.join(binaries, "pip")
    install(binaries, foreign)
    install(binaries, DISTRIBUTION)
    check_untouched(binaries)
    check_refused(binaries, "mooncake-transfer-engine-cuda13 0.3.14")
    # Either one can go, and the other one is whole.
    run(pip, "--isolated", "uninstall", "-y", "mooncake-transfer-engine-cuda13", timeout_s=INSTALL_S)
    check_in("used: mooncake-transfer-engine", use(context, binaries))
    # The other way round: theirs comes later.
    install(binaries, foreign)
    check_refused(binaries, "mooncake-transfer-engine-cuda13 0.3.14")
    run(pip, "--isolated", "uninstall", "-y", "yolk", DISTRIBUTION, timeout_s=INSTALL_S)
    check_untouched(binaries)
    text = run(os.path.join(binaries, "python"), "-c", "import mooncake.store as s; print(s.MooncakeDistributedStore.whose)")
    check_equal(text, "theirs\n")


@test("foreign_distribution_of_the_same_name_is_replaced")
def foreign_distribution_of_the_same_name_is_replaced(context):
    """pip removes its files after ours have come; none of them is ours."""
    binaries = environment(context)
    install(binaries, foreign_wheel(context, DISTRIBUTION, "0.3.10"))
    install(binaries, "--upgrade", DISTRIBUTION)
    check(not os.path.exists(os.path.join(site(binaries), "mooncake")), "theirs is still there")
    check_in("used: mooncake-transfer-engine", use(context, binaries))


@test("foreign_files_of_nobody_are_told")
def foreign_files_of_nobody_are_told(context):
    binaries = environment(context)
    install(binaries, DISTRIBUTION)
    folder = os.path.join(site(binaries), "mooncake")
    os.makedirs(folder)
    with open(os.path.join(folder, "__init__.py"), "w", encoding="utf-8"):
        pass
    check_refused(binaries, "an unknown distribution")
    # Remains without modules are no package.
    os.remove(os.path.join(folder, "__init__.py"))
    check_in("used: mooncake-transfer-engine", use(context, binaries))


# ---- a machine without a compiler ----


def debian():
    """A tar archive of Debian 12 with Python only, made once a build folder."""
    archive = os.path.join(build_dir(), "debian-12.tar")
    if os.getuid() != 0:
        raise Skip("debootstrap and chroot need root")
    if not shutil.which("debootstrap") or not shutil.which("unshare"):
        raise Skip("no debootstrap (Debian: debootstrap)")
    with locked("debian-12"):
        if os.path.exists(archive):
            return archive
        # In memory: dpkg waits for a disk after each file.
        script = r"""
set -eu
mount -t tmpfs -o size=2g none "$1"
debootstrap --variant=minbase --include=python3,python3-venv bookworm "$1/root" http://deb.debian.org/debian
rm -rf "$1"/root/var/cache/apt/* "$1"/root/var/lib/apt/lists/* "$1"/root/usr/share/doc "$1"/root/usr/share/locale
tar -C "$1/root" -cf "$2.new" . && mv "$2.new" "$2"
"""
        place = archive + ".d"
        os.makedirs(place, exist_ok=True)
        try:
            done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", place, archive], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=DEBIAN_S, check=False)
        except subprocess.TimeoutExpired:
            raise Skip("debootstrap did not end in %d s" % DEBIAN_S) from None
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if done.returncode != 0:
            raise Skip("debootstrap: " + " | ".join(done.stdout.strip().splitlines()[-2:]))
    return archive


@test("c130_debian_12_without_a_compiler")
def c130_debian_12_without_a_compiler(context):
    archive, folder = debian(), wheels()
    script = r"""
set -eu
place=$1
mount -t tmpfs -o size=2g none "$place"
tar -C "$place" -xf "$2"
mkdir "$place/wheels"
cp "$3"/*.whl "$place/wheels"
cp "$4" "$place/try-wheels"
mount -t proc none "$place/proc"
unset TMPDIR # of this machine
exec chroot "$place" /try-wheels /wheels
"""
    place = context.path("debian")
    os.makedirs(place)
    text = run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", place, archive, folder,
               os.path.join(ROOT, "scripts", "try-wheels"), timeout_s=INSTALL_S + USE_S,
               env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    check_in("machine: Debian GNU/Linux 12", text)
    check_in("compilers: none", text)
    check_in("used: mooncake-transfer-engine", text)
    check_in("with Python 3.11", text)


if __name__ == "__main__":
    sys.exit(main())
