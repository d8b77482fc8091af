# SPDX-License-Identifier: Apache-2.0
"""Yolk under the names of Mooncake's Python package: see mooncake.store.

A module that is a package, the parts of which lie in yolk/mooncake: so the wheel holds no file that the package of
another distribution has too, and installing or removing either leaves the other whole.
"""
import os as _os

__path__ = [_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "yolk", "mooncake")]
__spec__.submodule_search_locations = __path__

with open(_os.path.join(__path__[0], "__init__.py"), encoding="utf-8") as _file:
    exec(compile(_file.read(), _file.name, "exec"))  # pylint: disable=exec-used
