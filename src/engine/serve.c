/* SPDX-License-Identifier: Apache-2.0 */
/* The provider side: one grant, served by each transport that can. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/served.h"
#include "platform/file.h"
#include "platform/memory.h"

static enum yolk_status check(void *self, const struct yolk_access_request *request)
{
    struct yolk_served *served = self;
    pthread_rwlock_rdlock(&served->lock);
    enum yolk_status status = access_check(&served->grant, request);
    pthread_rwlock_unlock(&served->lock);
    return status;
}

static enum yolk_status begin(void *self, const struct yolk_access_request *request)
{
    const struct yolk_served *served = self;
    enum yolk_status status = check(self, request);
    if (status != YOLK_OK)
        return status;
    if (request->whole_map)
        return YOLK_ERR_UNSUPPORTED;
    if (request->opcode == YOLK_WRITE && served->read_only)
        return YOLK_ERR_ACCESS;
    return served->owner.begin == NULL ? YOLK_OK : served->owner.begin(served->owner.self, request);
}

static void end(void *self, const struct yolk_access_request *request)
{
    const struct yolk_served *served = self;
    if (served->owner.end != NULL)
        served->owner.end(served->owner.self, request);
}

struct yolk_access engine_served_access(struct yolk_served *served)
{
    return (struct yolk_access){.self = served, .begin = begin, .end = end};
}

struct yolk_served *engine_served_make(struct yolk_engine *engine)
{
    struct yolk_served *served = calloc(1, sizeof(*served));
    if (served == NULL)
        return NULL;
    served->engine = engine;
    pthread_rwlock_init(&served->lock, NULL);
    return served;
}

void engine_served_destroy(struct yolk_served *served)
{
    struct yolk_engine *engine = served->engine;
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((served->by & UINT32_C(1) << i) != 0)
            engine->transports[i].ops.unserve(engine->transports[i].endpoint, served->served[i]);
    pthread_rwlock_destroy(&served->lock);
    access_grant_free(&served->grant);
    file_close(served->opened);
    free(served);
}

static bool text_is_fit(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL && strchr(text, ';') == NULL;
}

static enum yolk_status serve_each(struct yolk_served *served, const struct yolk_serve *given,
                                   char *reasons, size_t reasons_size)
{
    struct yolk_engine *engine = served->engine;
    size_t used = 0;
    size_t length = 0;
    bool made_by_other = false; /* the first one with memory_alloc made it */
    for (uint32_t n = 0; n < engine->transport_count; n++) {
        uint32_t i = engine->order[n];
        struct transport *transport = &engine->transports[i];
        const char *why = transport->reason;
        if (transport->endpoint != NULL) {
            const struct yolk_memory *memory = given->allocation;
            /* Only the transport that made the memory knows what its internal part means. */
            bool its =
                memory != NULL && !made_by_other && (transport->ops.caps & YOLK_CAP_ALLOC) != 0;
            made_by_other = made_by_other || (transport->ops.caps & YOLK_CAP_ALLOC) != 0;
            struct yolk_serve serve = *given;
            serve.allocation = its ? memory : NULL;
            char text[1024] = "";
            base_error_clear();
            enum yolk_status status = transport->ops.serve(transport->endpoint, &serve,
                                                           &served->served[i], text, sizeof(text));
            if (status == YOLK_OK && !text_is_fit(text, sizeof(text))) {
                transport->ops.unserve(transport->endpoint, served->served[i]);
                status =
                    base_fail(YOLK_ERR_PROTOCOL, 0, "its endpoint text does not end, or has a ';'");
            }
            if (status == YOLK_OK) {
                served->by |= UINT32_C(1) << i;
                size_t room = sizeof(served->endpoints) - length;
                int n_text = snprintf(served->endpoints + length, room, "%s%s=%s",
                                      length > 0 ? ";" : "", transport->ops.name, text);
                if (n_text < 0 || (size_t)n_text >= room)
                    return base_fail(YOLK_ERR_TOO_LARGE, 0, "the endpoints' text is too long");
                length += (size_t)n_text;
                continue;
            }
            why = yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status);
        }
        if (used < reasons_size)
            used += (size_t)snprintf(reasons + used, reasons_size - used, "%s%s: %s",
                                     used > 0 ? "; " : "", transport->ops.name, why);
    }
    if (served->by == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "no transport serves this %s: %s",
                         given->file != NULL ? "file" : "memory", reasons);
    return YOLK_OK;
}

enum yolk_status engine_served_start(struct yolk_served *served, struct yolk_serve serve)
{
    char reasons[900] = "";
    return serve_each(served, &serve, reasons, sizeof(reasons));
}

enum yolk_status yolk_engine_serve(struct yolk_engine *engine,
                                   const struct yolk_serve_options *options,
                                   struct yolk_served **out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || options == NULL || out == NULL || options->memory == NULL ||
        options->size == 0 || options->struct_size < sizeof(*options))
        return base_fail(YOLK_ERR_INVALID, 0, "serving needs memory, its size and struct_size");
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct yolk_served *served = engine_served_make(engine);
    if (served == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    access_grant_init(&served->grant, options->segment, options->size, options->ticket_key,
                      options->require_tickets);
    enum yolk_status status = engine_served_start(
        served, (struct yolk_serve){.memory = options->memory,
                                    .size = options->size,
                                    .segment = options->segment,
                                    .allocation = options->allocation,
                                    .access = {.self = served, .check = check}});
    if (status != YOLK_OK) {
        engine_served_destroy(served);
        return status;
    }
    atomic_fetch_add(&engine->served_count, 1);
    *out = served;
    return YOLK_OK;
}

enum yolk_status yolk_engine_serve_addresses(struct yolk_engine *engine, uint64_t segment,
                                             const struct yolk_owner *owner,
                                             struct yolk_served **out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    static const uint8_t no_key[ACCESS_TICKET_KEY_SIZE] = {0};
    if (engine == NULL || owner == NULL || owner->begin == NULL || owner->end == NULL ||
        out == NULL)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "serving addresses needs an owner who says which of them");
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct yolk_served *served = engine_served_make(engine);
    if (served == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve addresses");
    served->owner = *owner;
    access_grant_init(&served->grant, segment, YOLK_ADDRESSES_SIZE, no_key, 0);
    enum yolk_status status =
        engine_served_start(served, (struct yolk_serve){.size = YOLK_ADDRESSES_SIZE,
                                                        .segment = segment,
                                                        .access = engine_served_access(served)});
    if (status != YOLK_OK) {
        engine_served_destroy(served);
        return status;
    }
    atomic_fetch_add(&engine->served_count, 1);
    *out = served;
    return YOLK_OK;
}

const char *yolk_served_endpoints(const struct yolk_served *served)
{
    return served->endpoints;
}

void yolk_served_set_segment(struct yolk_served *served, uint64_t segment,
                             const uint8_t ticket_key[32])
{
    struct yolk_engine *engine = served->engine;
    pthread_rwlock_wrlock(&served->lock);
    access_grant_set_segment(&served->grant, segment, ticket_key);
    pthread_rwlock_unlock(&served->lock);
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((served->by & UINT32_C(1) << i) != 0)
            engine->transports[i].ops.set_segment_id(engine->transports[i].endpoint,
                                                     served->served[i], segment);
}

enum yolk_status yolk_served_fence_session(struct yolk_served *served, uint64_t session)
{
    struct yolk_engine *engine = served->engine;
    pthread_rwlock_wrlock(&served->lock);
    enum yolk_status result = access_grant_fence(&served->grant, session);
    pthread_rwlock_unlock(&served->lock);
    if (result != YOLK_OK)
        return result;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        if ((served->by & UINT32_C(1) << i) == 0)
            continue;
        enum yolk_status status = engine->transports[i].ops.fence_session(
            engine->transports[i].endpoint, served->served[i], session);
        if (status != YOLK_OK)
            result = status; /* all are asked, so that each begins to let go */
    }
    return result;
}

void yolk_engine_unserve(struct yolk_engine *engine, struct yolk_served *served)
{
    if (engine_is_forked(engine))
        return; /* it is the parent's */
    if (served == NULL)
        return;
    engine_served_destroy(served);
    atomic_fetch_sub(&engine->served_count, 1);
}

/* The first transport in order that makes memory makes all of it, so freeing needs no note of it.
 */
enum yolk_status yolk_engine_memory_alloc(struct yolk_engine *engine, uint64_t size,
                                          struct yolk_memory *out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || out == NULL || size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "memory needs a size");
    for (uint32_t n = 0; n < engine->transport_count; n++) {
        struct transport *transport = &engine->transports[engine->order[n]];
        if (transport->endpoint == NULL || (transport->ops.caps & YOLK_CAP_ALLOC) == 0)
            continue;
        return transport->ops.memory_alloc(transport->endpoint, size, out);
    }
    memset(out, 0, sizeof(*out));
    uint64_t rounded = (size + 4095) & ~UINT64_C(4095);
    if (rounded < size)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a segment of %llu bytes",
                         (unsigned long long)size);
    enum yolk_status status = (enum yolk_status)memory_pages_create(rounded, &out->pointer);
    if (status == YOLK_OK)
        out->size = rounded;
    return status;
}

void yolk_engine_memory_free(struct yolk_engine *engine, struct yolk_memory *memory)
{
    if (memory == NULL || memory->pointer == NULL)
        return;
    bool freed = false;
    for (uint32_t n = 0; n < engine->transport_count && !freed; n++) {
        struct transport *transport = &engine->transports[engine->order[n]];
        if (transport->endpoint == NULL || (transport->ops.caps & YOLK_CAP_ALLOC) == 0)
            continue;
        transport->ops.memory_free(transport->endpoint, memory);
        freed = true;
    }
    if (!freed)
        memory_pages_destroy(memory->pointer, memory->size);
    memset(memory, 0, sizeof(*memory));
}
