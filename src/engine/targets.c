/* SPDX-License-Identifier: Apache-2.0 */
/* Which targets are open: those that are used, and as many of the others as the transport has room
 * for. */
#include "engine/internal.h"

/* The user counts itself before it looks, the one that closes takes the target away before it looks
 * for users: whichever is second sees the other. */
void *engine_target_enter(struct route *route, uint64_t now_ns)
{
    atomic_fetch_add(&route->users, 1);
    void *target = atomic_load(&route->target);
    if (target == NULL)
        atomic_fetch_sub(&route->users, 1);
    else
        atomic_store_explicit(&route->used_ns, now_ns, memory_order_relaxed);
    return target;
}

void engine_target_leave(struct route *route)
{
    atomic_fetch_sub(&route->users, 1);
}

/* The table's lock is held. NULL: none is idle. */
static struct route *longest_idle(struct yolk_engine *engine, uint8_t transport, bool *any)
{
    struct segment_table *table = &engine->segments;
    struct route *found = NULL;
    *any = false;
    for (uint32_t i = 0; i < table->slots.count; i++) {
        struct segment *segment = table->slots.slots[i].thing;
        struct route *route = segment != NULL ? &segment->routes[transport] : NULL;
        if (route == NULL || atomic_load(&route->target) == NULL)
            continue;
        *any = true;
        if (atomic_load(&route->users) == 0 &&
            (found == NULL || atomic_load(&route->used_ns) < atomic_load(&found->used_ns)))
            found = route;
    }
    return found;
}

enum engine_room engine_targets_make_room(struct yolk_engine *engine, uint8_t transport)
{
    bool any;
    void *target = NULL;
    pthread_rwlock_rdlock(&engine->segments.lock);
    struct route *route = longest_idle(engine, transport, &any);
    if (route != NULL) {
        pthread_mutex_lock(&route->lock);
        target = atomic_exchange(&route->target, NULL);
        if (target != NULL && atomic_load(&route->users) > 0) {
            atomic_store(&route->target, target);
            target = NULL;
        }
        pthread_mutex_unlock(&route->lock);
    }
    pthread_rwlock_unlock(&engine->segments.lock);
    if (target == NULL)
        return any ? ENGINE_ROOM_IN_USE : ENGINE_ROOM_NONE;
    engine->transports[transport].ops.close_target(engine->transports[transport].endpoint, target);
    return ENGINE_ROOM_MADE;
}
