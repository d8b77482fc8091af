/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that were looked up once: a table of slots with generations, as of segments. One lives
 * while its handle does or a submit of it is under way. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/internal.h"

struct prepared {
    _Atomic uint32_t references;
    uint32_t count; /* entries that hold something */
    struct yolk_request *requests;
    struct prepared_entry *entries;
    char *texts; /* that the requests name */
};

static void destroy(struct prepared *prepared)
{
    for (uint32_t i = 0; i < prepared->count; i++)
        engine_forget(&prepared->entries[i]);
    free(prepared->requests);
    free(prepared->entries);
    free(prepared->texts);
    free(prepared);
}

static void drop(struct prepared *prepared)
{
    if (atomic_fetch_sub(&prepared->references, 1) == 1)
        destroy(prepared);
}

static size_t text_size(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static void keep_text(const char **text, char **place)
{
    size_t size = text_size(*text);
    if (size == 0)
        return;
    memcpy(*place, *text, size);
    *text = *place;
    *place += size;
}

/* With requests of its own, and no entries yet. */
static struct prepared *copy_requests(const struct yolk_request *requests, uint32_t count)
{
    size_t size = 1;
    for (uint32_t i = 0; i < count; i++)
        size += text_size(requests[i].hint) + text_size(requests[i].policy) +
                text_size(requests[i].tenant);
    struct prepared *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->references = 1;
    made->requests = base_malloc(count * sizeof(*made->requests));
    made->entries = base_malloc(count * sizeof(*made->entries));
    made->texts = base_malloc(size);
    if (made->requests == NULL || made->entries == NULL || made->texts == NULL) {
        destroy(made);
        return NULL;
    }
    memcpy(made->requests, requests, count * sizeof(*requests));
    char *place = made->texts;
    for (uint32_t i = 0; i < count; i++) {
        keep_text(&made->requests[i].hint, &place);
        keep_text(&made->requests[i].policy, &place);
        keep_text(&made->requests[i].tenant, &place);
    }
    return made;
}

static enum yolk_status take_slot(struct prepared_table *table, struct prepared *prepared,
                                  uint64_t *out)
{
    pthread_mutex_lock(&table->lock);
    enum yolk_status status = slots_take(&table->slots, prepared, out);
    pthread_mutex_unlock(&table->lock);
    return status == YOLK_OK ? YOLK_OK : base_fail(status, 0, "no memory to prepare requests");
}

enum yolk_status yolk_engine_prepare(struct yolk_engine *engine,
                                     const struct yolk_request *requests, uint32_t count,
                                     enum yolk_status *verdicts, uint64_t *out)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL || requests == NULL || verdicts == NULL || out == NULL || count == 0 ||
        count > ENGINE_BATCH_TASKS_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "1 to %d requests, and verdicts, are required",
                         ENGINE_BATCH_TASKS_MAX);
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    enum yolk_status result = YOLK_OK;
    struct prepared *made = copy_requests(requests, count);
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to prepare %u requests", count);
    for (uint32_t i = 0; i < count; i++) {
        /* The entries are those before the first that is refused; later ones are only judged. */
        struct prepared_entry entry;
        verdicts[i] = engine_find(engine, &made->requests[i], &entry);
        if (verdicts[i] == YOLK_OK && result == YOLK_OK)
            made->entries[made->count++] = entry;
        else if (verdicts[i] == YOLK_OK)
            engine_forget(&entry);
        else if (result == YOLK_OK)
            result = verdicts[i];
    }
    if (result == YOLK_OK)
        result = take_slot(&engine->prepared, made, out);
    if (result != YOLK_OK)
        drop(made);
    return result;
}

enum yolk_status yolk_engine_batch_submit_prepared(struct yolk_engine *engine, uint64_t batch,
                                                   uint64_t handle, const uint32_t *indices,
                                                   uint32_t count, uint64_t deadline_ns,
                                                   enum yolk_status *verdicts, uint32_t *first)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_ERR_INVALID;
    pthread_mutex_lock(&engine->prepared.lock);
    struct prepared *prepared = slots_find(&engine->prepared.slots, handle);
    if (prepared != NULL)
        atomic_fetch_add(&prepared->references, 1);
    pthread_mutex_unlock(&engine->prepared.lock);
    if (prepared == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the prepared requests were released");
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; indices != NULL && i < count && status == YOLK_OK; i++)
        if (indices[i] >= prepared->count)
            status = base_fail(YOLK_ERR_INVALID, 0, "index %u is %u: %u requests are prepared", i,
                               indices[i], prepared->count);
    const struct submission from = {.requests = prepared->requests,
                                    .given = prepared->entries,
                                    .indices = indices,
                                    .count = indices != NULL ? count : prepared->count,
                                    .deadline_ns = deadline_ns};
    if (status == YOLK_OK)
        status = engine_submit(engine, batch, &from, verdicts, first);
    drop(prepared);
    return status;
}

enum yolk_status yolk_engine_prepared_release(struct yolk_engine *engine, uint64_t handle)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_ERR_INVALID;
    pthread_mutex_lock(&engine->prepared.lock);
    struct prepared *prepared = slots_find(&engine->prepared.slots, handle);
    if (prepared != NULL)
        (void)slots_drop(&engine->prepared.slots, (uint32_t)handle);
    pthread_mutex_unlock(&engine->prepared.lock);
    if (prepared == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "the prepared requests were released before");
    drop(prepared);
    return YOLK_OK;
}

void prepared_release_all(struct yolk_engine *engine)
{
    for (uint32_t i = 0; i < engine->prepared.slots.count; i++) {
        struct prepared *prepared = slots_drop(&engine->prepared.slots, i);
        if (prepared != NULL)
            drop(prepared);
    }
}
