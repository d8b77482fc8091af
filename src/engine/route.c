/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport runs a request, and for people: why not each of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/internal.h"
#include "engine/way.h"

/* What a caller must hear if no route is left: an old identity before a dead peer before the rest.
 */
static enum yolk_status tell_most(enum yolk_status a, enum yolk_status b)
{
    static const enum yolk_status order[] = {YOLK_ERR_STALE, YOLK_ERR_AUTH, YOLK_ERR_VERSION,
                                             YOLK_ERR_PEER_DEAD};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (a == order[i] || b == order[i])
            return order[i];
    if (a == YOLK_OK || a == YOLK_ERR_NO_ROUTE)
        return b == YOLK_OK ? a : b;
    return a;
}

/* These say something about the pair of ends that time does not change. */
static bool is_lasting(enum yolk_status status)
{
    return status == YOLK_ERR_NO_ROUTE || status == YOLK_ERR_UNSUPPORTED ||
           status == YOLK_ERR_STALE || status == YOLK_ERR_VERSION || status == YOLK_ERR_AUTH ||
           status == YOLK_ERR_INVALID;
}

/* The route's lock is held, but not while the transport works. */
static enum yolk_status open_route(struct yolk_engine *engine, struct segment *segment,
                                   uint8_t index, uint64_t now_ns)
{
    struct route *route = &segment->routes[index];
    struct transport *transport = &engine->transports[index];
    void *target = NULL;
    enum engine_room room = ENGINE_ROOM_MADE;
    enum yolk_status status;
    route->opening = true;
    pthread_mutex_unlock(&route->lock);
    do {
        base_error_clear();
        status = transport->ops.open_target(transport->endpoint, route->text, segment->id,
                                            segment->size, segment->session, &target);
        if (status == YOLK_ERR_LIMIT)
            room = engine_targets_make_room(engine, index);
    } while (status == YOLK_ERR_LIMIT && room == ENGINE_ROOM_MADE);
    pthread_mutex_lock(&route->lock);
    route->opening = false;
    pthread_cond_broadcast(&route->opened);
    if (status == YOLK_OK) {
        route->target = target;
        return YOLK_OK;
    }
    const char *why = yolk_last_error();
    snprintf(route->reason, sizeof(route->reason), "%.240s",
             why[0] != '\0' ? why : yolk_strerror(status));
    if (is_lasting(status)) {
        route->unfit = status;
        return status;
    }
    if (status == YOLK_ERR_LIMIT && room == ENGINE_ROOM_IN_USE) {
        atomic_store(&segment->crowded, true);
        return YOLK_ERR_AGAIN; /* no fault of the route's: one that is used now will be idle */
    }
    atomic_store(&route->troubled, true);
    if (breaker_failure(&route->breaker, &engine->breaker_rule, now_ns, status))
        ENGINE_COUNT(engine, breakers, 1);
    return status;
}

enum yolk_status engine_route_unfit(struct yolk_engine *engine, const struct route_query *query,
                                    uint8_t index, const char **why)
{
    const struct transport *transport = &engine->transports[index];
    const struct route *route = &query->segment->routes[index];
    uint64_t cap = query->opcode == YOLK_WRITE ? YOLK_CAP_WRITE : YOLK_CAP_READ;
    *why = "";
    if (transport->endpoint == NULL) {
        *why = transport->reason;
        return YOLK_ERR_NO_ROUTE;
    }
    if (route->text == NULL) {
        *why = "the segment is not served by it";
        return YOLK_ERR_NO_ROUTE;
    }
    if ((transport->ops.caps & cap) == 0) {
        *why = "it cannot do this direction";
        return YOLK_ERR_UNSUPPORTED;
    }
    if (!policy_caps_cover(transport->ops.caps, query->memory, query->segment->memory)) {
        *why = "it does not move between these kinds of memory";
        return YOLK_ERR_UNSUPPORTED;
    }
    if ((query->accepted & UINT32_C(1) << index) == 0) {
        *why = "it refused the local memory";
        return YOLK_ERR_UNSUPPORTED;
    }
    return YOLK_OK;
}

/* Once the target is open. */
static enum yolk_status look_for_buffers(struct yolk_engine *engine,
                                         const struct route_query *query, uint8_t index, char *text,
                                         size_t text_size)
{
    const struct transport *transport = &engine->transports[index];
    void *target = query->segment->routes[index].target;
    if (!query->wish.direct || target == NULL || query->size == 0)
        return YOLK_OK;
    base_error_clear();
    enum yolk_status status = transport->ops.check_direct(transport->endpoint, target, query->local,
                                                          query->offset, query->size);
    uint64_t piece = transport->limits.slice_bytes_max;
    if (status == YOLK_OK && query->size > piece) /* nor may the cuts make it worse */
        status = transport->ops.check_direct(transport->endpoint, target, query->local,
                                             query->offset, piece);
    if (status != YOLK_OK)
        snprintf(text, text_size, "not direct: %.230s",
                 yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status));
    return status;
}

bool engine_route_copies(struct yolk_engine *engine, struct segment *segment, uint8_t index,
                         const void *local, uint64_t size)
{
    const struct transport *transport = &engine->transports[index];
    struct route *route = &segment->routes[index];
    pthread_mutex_lock(&route->lock);
    void *target = route->target;
    bool copies = target != NULL && transport->ops.check_direct(transport->endpoint, target, local,
                                                                0, size) == YOLK_ERR_UNSUPPORTED;
    pthread_mutex_unlock(&route->lock);
    base_error_clear();
    return copies;
}

/* For people: what is found out here an io finds out by itself. */
static enum yolk_status look_for_reach(struct yolk_engine *engine, const struct route_query *query,
                                       uint8_t index, char *text, size_t text_size)
{
    const struct transport *transport = &engine->transports[index];
    void *target = query->segment->routes[index].target;
    if (target == NULL || query->size == 0)
        return YOLK_OK;
    base_error_clear();
    enum yolk_status status =
        transport->ops.check_reach(transport->endpoint, target, query->offset, query->size);
    if (status != YOLK_OK)
        snprintf(text, text_size, "%.240s",
                 yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status));
    return status;
}

static enum yolk_status look_at(struct yolk_engine *engine, const struct route_query *query,
                                uint8_t index, uint64_t now_ns, bool open, bool describes,
                                const char **why, char *text, size_t text_size)
{
    struct route *route = &query->segment->routes[index];
    enum yolk_status status = engine_route_unfit(engine, query, index, why);
    if (status != YOLK_OK)
        return status;
    if ((query->tried & UINT32_C(1) << index) != 0) {
        *why = "it was tried";
        return YOLK_ERR_NO_ROUTE;
    }
    pthread_mutex_lock(&route->lock);
    while (query->wait && route->opening)
        pthread_cond_wait(&route->opened, &route->lock); /* as long as open_target may block */
    if (route->unfit != YOLK_OK) {
        status = route->unfit;
    } else if (open && route->opening) {
        status = YOLK_ERR_AGAIN;
        *why = "it is just being reached for the first time";
    } else if (open ? !breaker_allows(&route->breaker, &engine->breaker_rule, now_ns)
                    : breaker_is_open(&route->breaker, now_ns)) {
        status = route->breaker.last;
        snprintf(text, text_size, "%u failures in a row, skipped for %llu ms more: %.160s",
                 route->breaker.failures,
                 (unsigned long long)((route->breaker.open_until_ns - now_ns) / 1000000u),
                 yolk_strerror(status));
        *why = text;
    } else if (open && route->target == NULL) {
        status = open_route(engine, query->segment, index, now_ns);
    }
    if (status == YOLK_OK) {
        status = look_for_buffers(engine, query, index, text, text_size);
        if (status == YOLK_OK && describes)
            status = look_for_reach(engine, query, index, text, text_size);
        if (status != YOLK_OK)
            *why = text;
    }
    if (status != YOLK_OK && (*why)[0] == '\0') {
        snprintf(text, text_size, "%.240s", route->reason);
        *why = text;
    }
    pthread_mutex_unlock(&route->lock);
    return status;
}

/* Those that the policy leaves out. */
static void tell_left_out(const struct yolk_engine *engine, struct engine_wish wish,
                          const uint8_t *order, uint32_t count, struct base_buf *reasons)
{
    uint32_t in = 0;
    for (uint32_t n = 0; n < count; n++)
        in |= UINT32_C(1) << order[n];
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((in & UINT32_C(1) << i) == 0)
            (void)!base_buf_printf(reasons, "%s: no: policy \"%s\" has not got it\n",
                                   engine->transports[i].ops.name,
                                   engine_policy_name(engine, wish));
}

/* With nothing but trouble of the moment, or what was tried before, in its way. */
static bool could_do_it(struct yolk_engine *engine, const struct route_query *query, uint8_t index)
{
    const char *why;
    struct route *route = &query->segment->routes[index];
    if (engine_route_unfit(engine, query, index, &why) != YOLK_OK)
        return false;
    pthread_mutex_lock(&route->lock);
    bool unfit = route->unfit != YOLK_OK;
    pthread_mutex_unlock(&route->lock);
    return !unfit;
}

enum yolk_status engine_route_pick(struct yolk_engine *engine, const struct route_query *query,
                                   uint64_t now_ns, struct base_buf *reasons, uint8_t *transport)
{
    enum yolk_status result = YOLK_ERR_NO_ROUTE;
    uint8_t order[ENGINE_TRANSPORTS_MAX];
    uint32_t count = engine_wish_order(engine, query->wish, order);
    bool closed = false; /* no other may come in for one that could do it */
    *transport = ENGINE_NO_TRANSPORT;
    for (uint32_t n = 0; n < count; n++) {
        uint8_t index = order[n];
        char text[256];
        const char *why;
        bool open = *transport == ENGINE_NO_TRANSPORT && !closed;
        enum yolk_status status =
            look_at(engine, query, index, now_ns, open, reasons != NULL, &why, text, sizeof(text));
        if (status == YOLK_OK && closed) {
            why = "the tenant's contract allows no fallback_transport";
            status = YOLK_ERR_NO_ROUTE;
        }
        closed = closed || (query->wish.first_only && could_do_it(engine, query, index));
        if (reasons != NULL)
            (void)!base_buf_printf(reasons, "%s: %s%s%s\n", engine->transports[index].ops.name,
                                   status != YOLK_OK ? "no"
                                   : open            ? "runs it"
                                                     : "would come next",
                                   status != YOLK_OK ? ": " : "", why);
        /* A worse route for the moment that this takes would be no gain. */
        if (status == YOLK_ERR_AGAIN && reasons == NULL)
            return status;
        if (status == YOLK_OK && open) {
            *transport = index;
            if (reasons == NULL)
                return YOLK_OK;
        }
        if (status != YOLK_OK)
            result = tell_most(result, status);
    }
    if (reasons != NULL && count < engine->transport_count)
        tell_left_out(engine, query->wish, order, count, reasons);
    if (*transport != ENGINE_NO_TRANSPORT)
        return YOLK_OK;
    if (query->wish.direct)
        return base_fail(result, 0, "no transport reaches the segment without a buffer in between");
    return base_fail(result, 0, "no transport reaches the segment");
}

void engine_route_result(struct yolk_engine *engine, struct segment *segment, uint8_t transport,
                         enum yolk_status status, uint64_t now_ns)
{
    struct route *route = &segment->routes[transport];
    bool failed = failover_blames_route(status);
    if (status == YOLK_ERR_STALE)
        atomic_store(&segment->stale, true);
    if (!failed && !atomic_load_explicit(&route->troubled, memory_order_relaxed))
        return;
    if (!failed && status != YOLK_OK)
        return; /* the request was wrong: says nothing about the route */
    pthread_mutex_lock(&route->lock);
    if (!failed) {
        breaker_success(&route->breaker);
        atomic_store(&route->troubled, false);
    } else {
        atomic_store(&route->troubled, true);
        snprintf(route->reason, sizeof(route->reason), "%.240s", yolk_strerror(status));
        if (breaker_failure(&route->breaker, &engine->breaker_rule, now_ns, status))
            ENGINE_COUNT(engine, breakers, 1);
    }
    pthread_mutex_unlock(&route->lock);
}

enum yolk_status yolk_engine_segment_health(struct yolk_engine *engine, uint64_t handle)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_ERR_INVALID;
    struct segment *segment = segment_acquire(engine, handle);
    if (segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the segment handle was closed");
    enum yolk_status result = YOLK_ERR_NO_ROUTE;
    bool sound = false;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct route *route = &segment->routes[i];
        if (route->text == NULL)
            continue;
        pthread_mutex_lock(&route->lock);
        bool troubled = atomic_load(&route->troubled);
        sound = sound || (route->unfit == YOLK_OK && !troubled);
        result = tell_most(result, route->unfit != YOLK_OK ? route->unfit : route->breaker.last);
        pthread_mutex_unlock(&route->lock);
    }
    if (sound)
        result = YOLK_OK;
    if (atomic_load(&segment->stale))
        result = YOLK_ERR_STALE;
    segment_release(segment);
    return result;
}

static void tell_routes(struct yolk_engine *engine, const struct engine_task *task,
                        struct base_buf *reasons)
{
    const struct registration *registration = task->registration;
    uint8_t transport;
    struct route_query query = {.segment = task->segment,
                                .opcode = task->opcode,
                                .accepted = registration != NULL ? registration->accepted
                                                                 : UINT32_MAX, /* no bytes */
                                .wish = task->wish,
                                .memory = registration != NULL ? registration->memory : POLICY_CPU,
                                .local = task->local,
                                .offset = task->offset,
                                .size = task->size};
    const char *policy = engine_policy_name(engine, task->wish);
    if (policy != NULL)
        (void)!base_buf_printf(reasons, "policy: %s\n", policy);
    (void)!engine_route_pick(engine, &query, engine_now(engine), reasons, &transport);
    if (registration == NULL || task->wish.direct)
        return;
    if (transport != ENGINE_NO_TRANSPORT)
        way_tell(engine, task, transport, reasons);
    query.accepted = stage_accepted(engine, registration);
    query.memory = POLICY_CPU;
    if (query.accepted == 0)
        return;
    (void)!base_buf_printf(reasons, transport == ENGINE_NO_TRANSPORT
                                        ? "staged through the engine's memory:\n"
                                        : "after them, through the engine's memory:\n");
    (void)!engine_route_pick(engine, &query, engine_now(engine), reasons, &transport);
}

enum yolk_status yolk_engine_describe_route(struct yolk_engine *engine,
                                            const struct yolk_request *request, char **text)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    struct engine_task task;
    struct base_buf reasons;
    if (engine == NULL || request == NULL || text == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "a route is of an engine's request, as a text");
    base_buf_init(&reasons, 8192);
    enum yolk_status status = engine_would_admit(engine, request, &task);
    if (status != YOLK_OK) {
        (void)!base_buf_printf(&reasons, "refused: %s: %.300s\n", yolk_status_name(status),
                               yolk_last_error());
    } else {
        tell_routes(engine, &task, &reasons);
        engine_unadmit(engine, &task);
    }
    *text = reasons.data != NULL ? strndup((const char *)reasons.data, reasons.size) : NULL;
    base_buf_free(&reasons);
    return *text != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a text");
}
