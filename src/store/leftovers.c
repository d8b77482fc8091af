/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "store"
#include "store/leftovers.h"

#include <stdlib.h>

#include "base/log.h"
#include "store/internal.h"

void store_leftovers_init(struct store_leftovers *leftovers)
{
    atomic_init(&leftovers->count, 0);
    leftovers->first = NULL;
    mutex_init(&leftovers->lock);
}

void store_leftovers_destroy(struct store_leftovers *leftovers)
{
    while (leftovers->first != NULL) {
        struct store_registration *gone = leftovers->first;
        leftovers->first = gone->next;
        free(gone);
    }
    mutex_destroy(&leftovers->lock);
}

/* Counted before it is tried: who gives the last hold back meanwhile sees the count and waits for
 * the lock, or we see that nobody holds it any more. */
int store_leftovers_end(struct store_leftovers *leftovers, struct yolk_engine *engine,
                        void *pointer, uint64_t size)
{
    struct store_registration *kept = NULL;
    mutex_lock(&leftovers->lock);
    atomic_fetch_add(&leftovers->count, 1);
    int status = yolk_engine_unregister(engine, pointer, size);
    if (status == YOLK_ERR_BUSY)
        kept = malloc(sizeof(*kept));
    if (kept != NULL) {
        *kept = (struct store_registration){leftovers->first, pointer, size};
        leftovers->first = kept;
    } else {
        atomic_fetch_sub(&leftovers->count, 1);
    }
    mutex_unlock(&leftovers->lock);
    if (status == YOLK_ERR_BUSY && kept == NULL)
        log_warn("%p + %llu stays registered: no memory to note that it should not be", pointer,
                 (unsigned long long)size);
    return status;
}

void store_leftovers_look(struct store_leftovers *leftovers, struct yolk_engine *engine)
{
    if (atomic_load(&leftovers->count) == 0)
        return;
    mutex_lock(&leftovers->lock);
    for (struct store_registration **at = &leftovers->first; *at != NULL;) {
        struct store_registration *kept = *at;
        if (yolk_engine_unregister(engine, kept->pointer, kept->size) == YOLK_ERR_BUSY) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        free(kept);
        atomic_fetch_sub(&leftovers->count, 1);
    }
    mutex_unlock(&leftovers->lock);
}
