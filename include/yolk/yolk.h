/* SPDX-License-Identifier: Apache-2.0 */
/* Everything public. */
#ifndef YOLK_YOLK_H
#define YOLK_YOLK_H

#include <yolk/status.h>
#include <yolk/transport.h>
#include <yolk/engine.h>
#include <yolk/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For example "0.1.0". */
YOLK_API const char *yolk_version(void);

#ifdef __cplusplus
}
#endif

#endif
