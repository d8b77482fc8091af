/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations that calls made for themselves and could not end, because other calls had found
 * them and held them (engine_hold): whoever gives back the last hold ends them. */
#ifndef YOLK_STORE_LEFTOVERS_H
#define YOLK_STORE_LEFTOVERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "platform/thread.h"

struct store_registration;
struct yolk_engine;

struct store_leftovers {
    struct mutex lock;
    _Atomic uint32_t count; /* of those below and of those that are being ended */
    struct store_registration *first;
};

void store_leftovers_init(struct store_leftovers *leftovers);
void store_leftovers_destroy(struct store_leftovers *leftovers);

/* Ends a registration; what is in use (the answer is BUSY) is kept for store_leftovers_look. */
int store_leftovers_end(struct store_leftovers *leftovers, struct yolk_engine *engine,
                        void *pointer, uint64_t size);
/* To be called after holds were given back. */
void store_leftovers_look(struct store_leftovers *leftovers, struct yolk_engine *engine);

#endif
