/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a put or a get machine in the caller's thread: its messages through the client, its
 * transfers through the engine. */
#ifndef YOLK_STORE_MOVER_H
#define YOLK_STORE_MOVER_H

#include <yolk/store.h>

#include "store/gds.h"
#include "store/get.h"
#include "store/leftovers.h"
#include "store/put.h"
#include "store/segments.h"

struct store_reason {
    int status; /* YOLK_OK: none failed */
    char text[400];
};

struct store_mover_context {
    struct yolk_engine *engine;
    struct store_client *client;
    struct store_segments *segments;
    struct store_gds *gds; /* NULL: none */
    struct store_leftovers *leftovers;
    struct store_reason *reason; /* what the last transfer that failed said */
};

/* What the machine works on: item i of the machine is kvs[i]. Returns when the machine is done and
 * no memory of the caller is touched any more (but for items that ended STUCK). */
void store_mover_put(const struct store_mover_context *context, struct store_put *put,
                     const struct yolk_kv *kvs);
void store_mover_get(const struct store_mover_context *context, struct store_get *get,
                     const struct yolk_kv *kvs);
#endif
