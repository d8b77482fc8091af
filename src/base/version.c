/* SPDX-License-Identifier: Apache-2.0 */
#include "yolk/yolk.h"

const char *yolk_version(void)
{
    return YOLK_VERSION;
}
