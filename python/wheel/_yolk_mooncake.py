# SPDX-License-Identifier: Apache-2.0
"""Refuses `import mooncake` where the package of another distribution would be taken in place of Yolk's, unsaid.

pip copies files of one distribution over those of another, and Python prefers a folder mooncake/ to our mooncake.py.
Loaded at each start of Python by yolk_mooncake.pth, so it only looks for one file.
"""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def refusal():
    """A sentence if there is another distribution's package; else None."""
    if not os.path.exists(os.path.join(_HERE, "mooncake", "__init__.py")):
        return None
    import importlib.metadata

    owners = []
    for distribution in importlib.metadata.distributions(path=[_HERE]):
        if any(str(file) == "mooncake/__init__.py" for file in distribution.files or ()):
            owners.append("%s %s" % (distribution.metadata["Name"], distribution.version))
    whose = " and ".join(sorted(owners)) or "an unknown distribution"
    names = " ".join(owner.split()[0] for owner in sorted(owners))
    remedy = "pip uninstall %s" % names if names else "remove that folder"
    return ("there are two packages named mooncake in %s: the folder mooncake/ of %s, and that of Yolk. Keep one of "
            "them: `%s`, or `pip uninstall yolk mooncake-transfer-engine`; then install the other one again, for both "
            "have programs of the same names." % (_HERE, whose, remedy))


class _Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mooncake":
            text = refusal()
            if text is not None:
                raise ImportError(text, name=name)
        return None


if os.path.exists(os.path.join(_HERE, "mooncake", "__init__.py")):
    sys.meta_path.insert(0, _Refuse)
