#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""build.py BUILD DIR: packs what scripts/wheels has built in BUILD as wheels in DIR."""
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# What Mooncake's distribution says whose interface this is. The part after + tells people that it is not that one.
UPSTREAM_VERSION = "0.3.12.post1"
GLIBC = (2, 34)  # the newest symbols that may be needed
NEEDED = re.compile(r"^(libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2)$")
# Linked from archives, so that their licences travel too: Debian's packages of them.
LINKED = ("libevent-dev", "libmsgpack-dev", "libjansson-dev", "libyaml-dev", "libsodium-dev", "liburing-dev")
PROGRAMS = {"yolk": "main", "mooncake_master": "mooncake_master", "mooncake_client": "mooncake_client"}
EXTENSIONS = {
    "cp311-abi3": ("python/mooncake/_store.abi3.so", "_store.abi3.so"),
    "cp310-cp310": ("python/3.10/_store.cpython-310-x86_64-linux-gnu.so", "_store.cpython-310-x86_64-linux-gnu.so"),
}
SUMMARY = "A KV-cache store for LLM inference; import name mooncake, program yolk"


class Refused(Exception):
    pass


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def version():
    return re.search(r"^project\(yolk VERSION ([0-9.]+)", text_of("CMakeLists.txt"), re.M).group(1)


def output_of(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Refused("%s: %s" % (" ".join(command), done.stdout.strip()))
    return done.stdout


def binary(build, name):
    """The bytes of a program or library without symbols and debug information, once it is seen to run elsewhere."""
    path = os.path.join(build, name)
    if not os.path.exists(path):
        raise Refused("there is no %s: build it first (scripts/wheels does)" % path)
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", output_of(["readelf", "-d", "-W", path])):
        if not NEEDED.match(library):
            raise Refused("%s needs %s, which is not on every machine" % (name, library))
    newest = max((tuple(map(int, found.split("."))) for found in
                  re.findall(r"\bGLIBC_(\d+\.\d+)", output_of(["readelf", "-V", "-W", path]))), default=(2, 17))
    if newest > GLIBC:
        raise Refused("%s needs glibc %d.%d, the wheel promises %d.%d" % ((name,) + newest + GLIBC))
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "stripped")
        # The build id is one of what was cut off, and so differs from folder to folder.
        output_of(["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id", "--remove-section=.comment",
                   "-o", stripped, path])
        with open(stripped, "rb") as file:
            data = file.read()
    for place in {ROOT, os.path.abspath(build)}:
        if place.encode() + b"/" in data:
            raise Refused("%s holds the path %s of the build" % (name, place))
    return data


class Wheel:
    def __init__(self, name, version_text, tags, requires=()):
        self.name, self.version, self.tags = name.replace("-", "_"), version_text, tags
        self.info = "%s-%s.dist-info" % (self.name, version_text)
        self.files = {}  # path: (bytes, mode)
        metadata = ["Metadata-Version: 2.1", "Name: " + name, "Version: " + version_text, "Summary: " + SUMMARY,
                    "License: Apache-2.0", "Requires-Python: >=3.10", "Classifier: Operating System :: POSIX :: Linux",
                    "Classifier: Programming Language :: Python :: 3", "Description-Content-Type: text/markdown"]
        metadata += ["Requires-Dist: " + required for required in requires]
        self.add(self.info + "/METADATA", "\n".join(metadata) + "\n\n" + text_of("docs", "install.md"))
        self.add(self.info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: yolk (python/wheel/build.py)\n"
                 "Root-Is-Purelib: %s\n%s" % (str(tags[0].endswith("any")).lower(),
                                              "".join("Tag: %s\n" % tag for tag in tags)))
        self.add(self.info + "/licenses/LICENSE", text_of("LICENSE"))

    def add(self, path, data, mode=0o644):
        self.files[path] = (data.encode() if isinstance(data, str) else data, mode)

    def write(self, folder, date):
        """The same files give the same bytes. -> the file's name"""
        record = self.info + "/RECORD"
        lines = []
        for path, (data, _) in sorted(self.files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append("%s,sha256=%s,%d\n" % (path, digest, len(data)))
        self.add(record, "".join(lines) + record + ",,\n")
        name = "%s-%s-%s.whl" % (self.name, self.version, self.tags[0])
        target = os.path.join(folder, name)
        with zipfile.ZipFile(target + ".new", "w", zipfile.ZIP_DEFLATED) as archive:
            # The metadata stands at the end, as the specification wishes.
            for path in sorted(self.files, key=lambda path: (path.startswith(self.info), path == record, path)):
                data, mode = self.files[path]
                entry = zipfile.ZipInfo(path, date)
                entry.external_attr = (0o100000 | mode) << 16
                entry.create_system = 3
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data, compresslevel=9)
        os.replace(target + ".new", target)
        return name


def licences():
    """Of what is linked in: the binaries hold their code."""
    parts = []
    for package in LINKED:
        path = os.path.join("/usr/share/doc", package, "copyright")
        if not os.path.exists(path):
            raise Refused("there is no %s: the licence of what is linked in must go with it" % path)
        with open(path, encoding="utf-8") as file:
            parts.append("%s\n%s\n\n%s" % (package, "=" * len(package), file.read()))
    return "\n\n".join(parts)


def python_files(folder, *suffixes):
    return sorted(name for name in os.listdir(os.path.join(ROOT, folder)) if name.endswith(suffixes))


def yolk_wheel(build, abi, shared):
    wheel = Wheel("yolk", version(), ["%s-manylinux_%d_%d_x86_64" % ((abi,) + GLIBC)])
    for path, (data, mode) in shared.items():
        wheel.add(path, data, mode)
    source, name = EXTENSIONS[abi]
    wheel.add("yolk/mooncake/" + name, binary(build, source), 0o755)
    wheel.add(wheel.info + "/licenses/THIRD-PARTY", licences())
    wheel.add(wheel.info + "/entry_points.txt", "[console_scripts]\n" + "".join(
        "%s = yolk.programs:%s\n" % item for item in PROGRAMS.items()))
    return wheel


def shared_files(build):
    """What is the same for every version of Python."""
    files = {}
    for name in ("mooncake.py", "_yolk_mooncake.py", "yolk_mooncake.pth", "yolk/__init__.py", "yolk/programs.py"):
        files[name] = (text_of("python/wheel", name).replace("@VERSION@", version()).encode(), 0o644)
    for name in python_files("python/mooncake", ".py"):
        files["yolk/mooncake/" + name] = (text_of("python/mooncake", name).encode(), 0o644)
    # mooncake.py hides them from type checkers, which look here first.
    files["mooncake-stubs/__init__.pyi"] = (b"", 0o644)
    for name in python_files("python/mooncake", ".pyi"):
        files["mooncake-stubs/" + name] = (text_of("python/mooncake", name).encode(), 0o644)
    for room in ("yolk", "mooncake", "tent"):
        for name in python_files("include/" + room, ".h"):
            files["yolk/include/%s/%s" % (room, name)] = (text_of("include", room, name).encode(), 0o644)
    files["yolk/bin/yolk"] = (binary(build, "yolk"), 0o755)
    files["yolk/lib/libyolk.so.0"] = (binary(build, "libyolk.so.0"), 0o755)
    for name in ("libmooncake_store.so", "libtransfer_engine.so"):
        files["yolk/lib/" + name] = (binary(build, name), 0o755)
    return files


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, folder = sys.argv[1:]
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "315532800")
    if not seconds.isdigit():
        sys.exit("SOURCE_DATE_EPOCH is %r: must be seconds since 1970" % seconds)
    date = max(time.gmtime(int(seconds))[:6], (1980, 1, 1, 0, 0, 0))  # a zip archive knows no earlier one
    os.makedirs(folder, exist_ok=True)
    try:
        shared = shared_files(build)
        wheels = [yolk_wheel(build, abi, shared) for abi in EXTENSIONS]
    except Refused as refused:
        sys.exit("wheels: %s" % refused)
    wheels.append(Wheel("mooncake-transfer-engine", "%s+yolk.%s" % (UPSTREAM_VERSION, version()), ["py3-none-any"],
                        ["yolk==" + version()]))
    for wheel in wheels:
        print(os.path.join(folder, wheel.write(folder, date)))


if __name__ == "__main__":
    main()
