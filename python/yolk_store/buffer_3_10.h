/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer protocol for the extension of CPython 3.10: that version has it under the same names
 * and with the same layout as 3.11, where it became part of the stable ABI; decision 13 has the
 * reasons. Included after Python.h of 3.11 or later with Py_LIMITED_API 0x030a0000, which left it
 * out. */
#ifndef YOLK_STORE_BUFFER_3_10_H
#define YOLK_STORE_BUFFER_3_10_H

#undef Py_BUFFER_H
#undef Py_LIMITED_API
#include <pybuffer.h>
#define Py_LIMITED_API 0x030a0000

#endif
