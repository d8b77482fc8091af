/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that have nvlink alone. */
#ifndef DEVICE_LINKS_H
#define DEVICE_LINKS_H

#include "memory.h"

#define SEGMENT UINT64_C(0x500000001)

static struct yolk_engine *open_engine(const char *host)
{
    static char cuda[512];
    struct yolk_engine_options options;
    struct yolk_engine *engine = NULL;
    const struct yolk_transport_ops *ops = transport_nvlink_ops();
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    yolk_engine_options_init(&options);
    options.transports = &ops;
    options.transport_count = 1;
    options.transport.cuda_library = kit_real() ? NULL : cuda;
    options.transport.host = host;
    CHECK_OK(yolk_engine_create(&options, &engine));
    return engine;
}

#endif
