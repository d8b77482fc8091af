# SPDX-License-Identifier: Apache-2.0
"""Where the parts of Yolk lie that are not Python: for the module itself see mooncake.store."""
import os

_HERE = os.path.dirname(os.path.abspath(__file__))

__version__ = "@VERSION@"


def include_dir():
    """The folder for the compiler: <yolk/store.h>, <mooncake/store_c.h>, <mooncake/transfer_engine_c.h>."""
    return os.path.join(_HERE, "include")


def library_dir():
    """The folder with libyolk.so.0, libmooncake_store.so and libtransfer_engine.so."""
    return os.path.join(_HERE, "lib")


def program():
    """The path of the program `yolk`."""
    return os.path.join(_HERE, "bin", "yolk")
