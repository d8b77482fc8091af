/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport runs a request, and for people: why not each of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/internal.h"

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
    route->opening = true;
    pthread_mutex_unlock(&route->lock);
    base_error_clear();
    enum yolk_status status = transport->ops.open_target(
        transport->endpoint, route->text, segment->id, segment->size, segment->session, &target);
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
    atomic_store(&route->troubled, true);
    if (breaker_failure(&route->breaker, &engine->breaker_rule, now_ns, status))
        ENGINE_COUNT(engine, breakers, 1);
    return status;
}

static enum yolk_status look_at(struct yolk_engine *engine, const struct route_query *query,
                                uint8_t index, uint64_t now_ns, bool open, const char **why,
                                char *text, size_t text_size)
{
    struct transport *transport = &engine->transports[index];
    struct route *route = &query->segment->routes[index];
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
    if ((query->accepted & UINT32_C(1) << index) == 0) {
        *why = "it refused the local memory";
        return YOLK_ERR_UNSUPPORTED;
    }
    if ((query->tried & UINT32_C(1) << index) != 0) {
        *why = "it was tried";
        return YOLK_ERR_NO_ROUTE;
    }
    enum yolk_status status = YOLK_OK;
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
    if (status != YOLK_OK && (*why)[0] == '\0') {
        snprintf(text, text_size, "%.240s", route->reason);
        *why = text;
    }
    pthread_mutex_unlock(&route->lock);
    return status;
}

static uint8_t place_in_order(const struct yolk_engine *engine, uint8_t hint, uint32_t n)
{
    if (hint >= engine->transport_count)
        return engine->order[n];
    if (n == 0)
        return hint;
    for (uint32_t i = 0, k = 1; i < engine->transport_count; i++)
        if (engine->order[i] != hint && k++ == n)
            return engine->order[i];
    return hint;
}

enum yolk_status engine_route_pick(struct yolk_engine *engine, const struct route_query *query,
                                   uint64_t now_ns, struct base_buf *reasons, uint8_t *transport)
{
    enum yolk_status result = YOLK_ERR_NO_ROUTE;
    *transport = ENGINE_NO_TRANSPORT;
    for (uint32_t n = 0; n < engine->transport_count; n++) {
        uint8_t index = place_in_order(engine, query->hint, n);
        char text[256];
        const char *why;
        bool open = *transport == ENGINE_NO_TRANSPORT;
        enum yolk_status status =
            look_at(engine, query, index, now_ns, open, &why, text, sizeof(text));
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
    if (*transport != ENGINE_NO_TRANSPORT)
        return YOLK_OK;
    return base_fail(result, 0, "no transport reaches the segment");
}

void engine_route_result(struct yolk_engine *engine, struct segment *segment, uint8_t transport,
                         enum yolk_status status, uint64_t now_ns)
{
    struct route *route = &segment->routes[transport];
    bool failed = batch_status_blames_route(status);
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

enum yolk_status yolk_engine_describe_route(struct yolk_engine *engine,
                                            const struct yolk_request *request, char **text)
{
    if (engine == NULL || request == NULL || text == NULL)
        return YOLK_ERR_INVALID;
    struct segment *segment = segment_acquire(engine, request->segment);
    if (segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the segment handle was closed");
    uint32_t accepted = UINT32_MAX;
    if (request->local != NULL) {
        struct registration *registration = registry_acquire(engine, request->local, request->size);
        accepted = registration != NULL ? registration->accepted : 0;
        if (registration != NULL)
            registry_release(registration);
    }
    struct route_query query = {
        segment, request->opcode, accepted, 0, engine_transport_by_name(engine, request->hint),
        false};
    struct base_buf reasons;
    base_buf_init(&reasons, 8192);
    uint8_t transport;
    (void)!engine_route_pick(engine, &query, engine_now(engine), &reasons, &transport);
    segment_release(segment);
    *text = reasons.data != NULL ? strndup((const char *)reasons.data, reasons.size) : NULL;
    base_buf_free(&reasons);
    return *text != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a text");
}
