# SPDX-License-Identifier: Apache-2.0
"""The commands of the wheel: each becomes the program `yolk`, which knows them by name."""
import os
import sys

import _yolk_mooncake
import yolk


def _become(name):
    try:
        os.execv(yolk.program(), [name] + sys.argv[1:])
    except OSError as error:
        sys.exit("%s: cannot run %s: %s" % (name, yolk.program(), error))


def main():
    _become("yolk")


def _become_upstreams(name):
    text = _yolk_mooncake.refusal()
    if text is not None:
        sys.exit("%s: %s" % (name, text))
    _become(name)


def mooncake_master():
    _become_upstreams("mooncake_master")


def mooncake_client():
    _become_upstreams("mooncake_client")
