/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of others: a table of slots with generations; a segment lives while its handle or a task
 * does. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/served.h"

/* "name=text;name=text": copies the text of each transport in use; others are not ours to judge. */
static enum yolk_status parse_endpoints(struct yolk_engine *engine, struct segment *segment,
                                        const char *endpoints)
{
    const char *place = endpoints;
    while (*place != '\0') {
        size_t length = strcspn(place, ";");
        const char *equals = memchr(place, '=', length);
        if (equals == NULL && length > 0)
            return base_fail(YOLK_ERR_INVALID, 0, "endpoint \"%.*s\" is not name=text", (int)length,
                             place);
        for (uint32_t i = 0; equals != NULL && i < engine->transport_count; i++) {
            const char *name = engine->transports[i].ops.name;
            size_t name_length = (size_t)(equals - place);
            if (strlen(name) != name_length || memcmp(name, place, name_length) != 0 ||
                segment->routes[i].text != NULL)
                continue;
            segment->routes[i].text = strndup(equals + 1, length - name_length - 1);
            if (segment->routes[i].text == NULL)
                return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for endpoints");
        }
        place += length;
        place += *place == ';';
    }
    return YOLK_OK;
}

/* One that a transport of files reaches here; of another machine's nothing says that it is one. */
static bool is_file(const struct yolk_engine *engine, const struct segment *segment)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        uint64_t caps = engine->transports[i].ops.caps & YOLK_CAPS_MEMORY;
        if (segment->routes[i].text != NULL && caps != 0 &&
            (caps & ~(YOLK_CAP_DRAM_TO_FILE | YOLK_CAP_GPU_TO_FILE)) == 0)
            return true;
    }
    return false;
}

static void segment_destroy(struct segment *segment)
{
    struct yolk_engine *engine = segment->engine;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct route *route = &segment->routes[i];
        if (route->target != NULL)
            engine->transports[i].ops.close_target(engine->transports[i].endpoint, route->target);
        pthread_cond_destroy(&route->opened);
        pthread_mutex_destroy(&route->lock);
        free(route->text);
    }
    if (segment->own != NULL)
        engine_served_destroy(segment->own);
    free(segment->device);
    free(segment);
}

void segment_release(struct segment *segment)
{
    segment_release_many(segment, 1);
}

void segment_release_many(struct segment *segment, uint64_t times)
{
    if (atomic_fetch_sub(&segment->references, times) == times)
        segment_destroy(segment);
}

static enum yolk_status take_slot(struct segment_table *table, struct segment *segment,
                                  uint64_t *out)
{
    pthread_rwlock_wrlock(&table->lock);
    enum yolk_status status = slots_take(&table->slots, segment, out);
    pthread_rwlock_unlock(&table->lock);
    return status == YOLK_OK ? YOLK_OK : base_fail(status, 0, "no memory for a segment");
}

enum yolk_status yolk_engine_segment_open(struct yolk_engine *engine,
                                          const struct yolk_segment_descriptor *descriptor,
                                          uint64_t session, uint64_t *out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || descriptor == NULL || out == NULL || descriptor->endpoints == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "a segment needs a descriptor with endpoints");
    if (strnlen(descriptor->endpoints, MAX_ENDPOINTS + 1) > MAX_ENDPOINTS)
        return base_fail(YOLK_ERR_TOO_LARGE, 0, "endpoints are longer than %u bytes",
                         MAX_ENDPOINTS);
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a segment");
    segment->engine = engine;
    segment->references = 1;
    segment->id = descriptor->id;
    segment->size = descriptor->size;
    segment->session = session;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        pthread_mutex_init(&segment->routes[i].lock, NULL);
        pthread_cond_init(&segment->routes[i].opened, NULL);
    }
    enum yolk_status status = parse_endpoints(engine, segment, descriptor->endpoints);
    segment->file = is_file(engine, segment);
    segment->memory = segment->file ? POLICY_FILE : POLICY_CPU;
    if (status == YOLK_OK)
        status = take_slot(&engine->segments, segment, out);
    if (status != YOLK_OK)
        segment_destroy(segment);
    return status;
}

/* The table's lock is held alone. */
static struct segment *drop_slot(struct segment_table *table, uint32_t index)
{
    struct segment *segment = slots_drop(&table->slots, index);
    if (segment != NULL)
        atomic_store(&segment->closed, true);
    return segment;
}

enum yolk_status yolk_engine_segment_close(struct yolk_engine *engine, uint64_t handle)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_ERR_INVALID;
    struct segment *segment = NULL;
    pthread_rwlock_wrlock(&engine->segments.lock);
    if (slots_find(&engine->segments.slots, handle) != NULL)
        segment = drop_slot(&engine->segments, (uint32_t)handle);
    pthread_rwlock_unlock(&engine->segments.lock);
    if (segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the segment handle was closed");
    segment_release(segment);
    return YOLK_OK;
}

struct segment *segment_acquire(struct yolk_engine *engine, uint64_t handle)
{
    pthread_rwlock_rdlock(&engine->segments.lock);
    struct segment *segment = slots_find(&engine->segments.slots, handle);
    if (segment != NULL)
        atomic_fetch_add(&segment->references, 1);
    pthread_rwlock_unlock(&engine->segments.lock);
    return segment;
}

struct segment *segment_take(struct segment *segment)
{
    if (atomic_load_explicit(&segment->closed, memory_order_relaxed) ||
        atomic_load_explicit(&segment->stale, memory_order_relaxed))
        return NULL;
    atomic_fetch_add_explicit(&segment->references, 1, memory_order_relaxed);
    return segment;
}

enum yolk_status yolk_engine_segment_size(struct yolk_engine *engine, uint64_t handle,
                                          uint64_t *size)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || size == NULL)
        return YOLK_ERR_INVALID;
    struct segment *segment = segment_acquire(engine, handle);
    if (segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the segment handle was closed");
    *size = segment->size;
    segment_release(segment);
    return YOLK_OK;
}

void engine_segment_own(struct yolk_engine *engine, uint64_t handle, struct yolk_served *served,
                        const char *path)
{
    struct segment *segment = segment_acquire(engine, handle);
    if (segment == NULL) { /* closed by somebody who guessed the handle */
        engine_served_destroy(served);
        return;
    }
    segment->own = served;
    pthread_rwlock_wrlock(&engine->segments.lock);
    segment->device = strdup(path); /* without it the report names the file less well */
    pthread_rwlock_unlock(&engine->segments.lock);
    segment_release(segment);
}

void segments_close_all(struct yolk_engine *engine)
{
    struct segment_table *table = &engine->segments;
    for (uint32_t i = 0; i < table->slots.count; i++) {
        pthread_rwlock_wrlock(&table->lock);
        struct segment *segment = drop_slot(table, i);
        pthread_rwlock_unlock(&table->lock);
        if (segment != NULL)
            segment_release(segment);
    }
}

static enum yolk_status map_segment(struct yolk_engine *engine, uint64_t handle, bool gpu,
                                    const void **base, uint64_t *size)
{
    uint64_t cap = gpu ? YOLK_CAP_MAP_GPU : YOLK_CAP_MAP;
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || base == NULL || size == NULL)
        return YOLK_ERR_INVALID;
    struct segment *segment = segment_acquire(engine, handle);
    if (segment == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the segment handle was closed");
    uint32_t mappable = 0;
    for (uint32_t i = 0; i < engine->transport_count; i++)
        if ((engine->transports[i].ops.caps & cap) != 0)
            mappable |= UINT32_C(1) << i;
    enum yolk_status status = YOLK_ERR_UNSUPPORTED;
    uint32_t tried = ~mappable;
    for (;;) {
        const struct route_query query = {
            .segment = segment,
            .opcode = YOLK_READ,
            .accepted = UINT32_MAX,
            .tried = tried,
            .wish = {.policy = ENGINE_NO_POLICY, .hint = ENGINE_NO_TRANSPORT},
            .wait = true};
        uint8_t index = ENGINE_NO_TRANSPORT;
        enum yolk_status picked =
            engine_route_pick(engine, &query, engine_now(engine), NULL, &index);
        if (picked != YOLK_OK) {
            status = picked == YOLK_ERR_STALE ? picked : status;
            break;
        }
        struct transport *transport = &engine->transports[index];
        struct route *route = &segment->routes[index];
        void *target = engine_target_enter(route, engine_now(engine));
        if (target == NULL)
            continue; /* it was just closed for another one */
        status = gpu ? transport->ops.target_map_gpu(transport->endpoint, target, base, size)
                     : transport->ops.target_map(transport->endpoint, target, base, size);
        if (status == YOLK_OK)
            break; /* used as long as the segment is open */
        engine_target_leave(route);
        tried |= UINT32_C(1) << index;
    }
    segment_release(segment);
    return status;
}

enum yolk_status yolk_engine_segment_map(struct yolk_engine *engine, uint64_t handle,
                                         const void **base, uint64_t *size)
{
    return map_segment(engine, handle, false, base, size);
}

enum yolk_status yolk_engine_segment_map_gpu(struct yolk_engine *engine, uint64_t handle,
                                             const void **base, uint64_t *size)
{
    return map_segment(engine, handle, true, base, size);
}
