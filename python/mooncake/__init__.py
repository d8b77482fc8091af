# SPDX-License-Identifier: Apache-2.0
"""Yolk under the names of Mooncake's Python package: see mooncake.store."""
