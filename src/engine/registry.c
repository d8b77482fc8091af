/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory. Writers (register, unregister) are rare and take the lock alone; each submit
 * looks a range up under the shared lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/bulk.h"
#include "engine/internal.h"

struct alias {
    struct base_list node;
    uint64_t start;
    uint64_t size;
    uint64_t count;
};

static struct alias *find_alias(struct registration *registration, uint64_t start, uint64_t size)
{
    BASE_LIST_FOREACH(node, &registration->aliases)
    {
        struct alias *alias = BASE_CONTAINER(node, struct alias, node);
        if (alias->start == start && alias->size == size)
            return alias;
    }
    return NULL;
}

static enum yolk_status add_reference(struct registration *registration, uint64_t start,
                                      uint64_t size)
{
    if (start != registration->start || size != registration->size) {
        struct alias *alias = find_alias(registration, start, size);
        if (alias == NULL) {
            alias = calloc(1, sizeof(*alias));
            if (alias == NULL)
                return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to register a range");
            alias->start = start;
            alias->size = size;
            /* Newest first: a buffer registered for one call is given up soon. */
            base_list_push_front(&registration->aliases, &alias->node);
        }
        alias->count++;
    }
    registration->references++;
    return YOLK_OK;
}

/* What was registered may have been freed since, and its addresses given out anew. */
static enum yolk_status check_life(const struct registration *registration,
                                   const struct engine_memory *memory)
{
    if (registration->memory == memory->kind && registration->gpu == memory->gpu &&
        registration->allocation == memory->allocation)
        return YOLK_OK;
    return base_fail(YOLK_ERR_STALE, 0,
                     "the registered range %#llx + %llu is another allocation now: unregister it, "
                     "then register anew",
                     (unsigned long long)registration->start,
                     (unsigned long long)registration->size);
}

static void remove_keys(struct yolk_engine *engine, struct registration *registration)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        if ((registration->accepted & UINT32_C(1) << i) != 0)
            transport->ops.remove_buffer(transport->endpoint, registration->keys[i]);
    }
    registration->accepted = 0;
}

static void destroy_registration(struct yolk_engine *engine, struct registration *registration)
{
    remove_keys(engine, registration);
    struct base_list *node;
    while ((node = base_list_pop_front(&registration->aliases)) != NULL)
        free(BASE_CONTAINER(node, struct alias, node));
    free(registration);
}

/* Only those that say that they move a GPU's memory are given such. */
static bool is_offered(const struct transport *transport, const struct registration *registration)
{
    const uint64_t gpu = YOLK_CAP_GPU_TO_DRAM | YOLK_CAP_GPU_TO_GPU | YOLK_CAP_GPU_TO_FILE;
    return registration->gpu == 0 || (transport->ops.caps & gpu) != 0;
}

static enum yolk_status add_keys(struct yolk_engine *engine, struct registration *registration)
{
    char reasons[900] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct transport *transport = &engine->transports[i];
        const char *why = transport->reason;
        if (transport->endpoint != NULL && !is_offered(transport, registration)) {
            why = "it does not move a GPU's memory";
        } else if (transport->endpoint != NULL) {
            base_error_clear();
            enum yolk_status status = transport->ops.add_buffer(
                transport->endpoint, (void *)(uintptr_t)registration->start, registration->size,
                &registration->keys[i]);
            if (status == YOLK_OK) {
                registration->accepted |= UINT32_C(1) << i;
                continue;
            }
            why = yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status);
        }
        if (used < sizeof(reasons))
            used += (size_t)snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s",
                                     used > 0 ? "; " : "", transport->ops.name, why);
    }
    if (registration->accepted == 0 && stage_accepted(engine, registration) == 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "no transport takes this memory: %s; nor can it be staged: %s", reasons,
                         stage_reason(engine));
    return YOLK_OK;
}

static enum yolk_status register_new(struct yolk_engine *engine, uint64_t start, uint64_t size,
                                     const struct engine_memory *memory)
{
    struct registration *registration = calloc(1, sizeof(*registration));
    if (registration == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to register a range");
    registration->start = start;
    registration->size = size;
    registration->references = 1;
    base_list_init(&registration->aliases);
    registration->memory = memory->kind;
    registration->gpu = memory->gpu;
    registration->allocation = memory->allocation;
    enum yolk_status status = add_keys(engine, registration);
    if (status == YOLK_OK)
        status = base_imap_insert(&engine->registry.map, start, size, registration);
    if (status != YOLK_OK)
        destroy_registration(engine, registration);
    return status;
}

enum yolk_status yolk_engine_register(struct yolk_engine *engine, void *pointer, uint64_t size)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    uint64_t start = (uint64_t)(uintptr_t)pointer;
    if (engine == NULL || pointer == NULL || size == 0 || size > UINT64_MAX - start)
        return base_fail(YOLK_ERR_INVALID, 0, "a registered range has an address and a length");
    if (atomic_load(&engine->closing))
        return YOLK_ERR_CLOSED;
    struct engine_memory memory;
    enum yolk_status status = engine_memory_look(engine, pointer, size, &memory);
    if (status != YOLK_OK)
        return status;
    pthread_rwlock_wrlock(&engine->registry.lock);
    struct base_range found;
    if (base_imap_contains(&engine->registry.map, start, size, &found)) {
        status = check_life(found.value, &memory);
        if (status == YOLK_OK)
            status = add_reference(found.value, start, size);
    } else if (base_imap_overlap(&engine->registry.map, start, size, &found))
        status = base_fail(YOLK_ERR_OVERLAP, 0,
                           "%p + %llu cuts or contains the registered range %#llx + %llu", pointer,
                           (unsigned long long)size, (unsigned long long)found.start,
                           (unsigned long long)found.size);
    else
        status = register_new(engine, start, size, &memory);
    pthread_rwlock_unlock(&engine->registry.lock);
    return status;
}

static enum yolk_status unregister_locked(struct yolk_engine *engine, uint64_t start, uint64_t size)
{
    struct base_range found;
    if (size == 0 || !base_imap_contains(&engine->registry.map, start, size, &found))
        return base_fail(YOLK_ERR_NOT_REGISTERED, 0, "the range is not registered");
    struct registration *registration = found.value;
    bool exact = start == registration->start && size == registration->size;
    struct alias *alias = exact ? NULL : find_alias(registration, start, size);
    uint64_t inside = 0;
    BASE_LIST_FOREACH(node, &registration->aliases)
    inside += BASE_CONTAINER(node, struct alias, node)->count;
    if (exact ? registration->references == inside : alias == NULL)
        return base_fail(YOLK_ERR_NOT_REGISTERED, 0, "the range is not registered as such");
    if (registration->references == 1 && atomic_load(&registration->in_flight) > 0)
        return base_fail(YOLK_ERR_BUSY, 0, "requests on this memory are in flight or prepared");
    if (alias != NULL && --alias->count == 0) {
        base_list_remove(&alias->node);
        free(alias);
    }
    if (--registration->references == 0) {
        (void)base_imap_remove(&engine->registry.map, registration->start, NULL);
        destroy_registration(engine, registration);
    }
    return YOLK_OK;
}

enum yolk_status yolk_engine_unregister(struct yolk_engine *engine, void *pointer, uint64_t size)
{
    if (engine_is_forked(engine))
        return engine_refuse_forked();
    if (engine == NULL)
        return YOLK_ERR_INVALID;
    pthread_rwlock_wrlock(&engine->registry.lock);
    enum yolk_status status = unregister_locked(engine, (uint64_t)(uintptr_t)pointer, size);
    pthread_rwlock_unlock(&engine->registry.lock);
    return status;
}

int yolk_engine_is_registered(struct yolk_engine *engine, const void *pointer, uint64_t size)
{
    struct registration *registration = registry_acquire(engine, pointer, size);
    if (registration == NULL)
        return 0;
    registry_release(registration);
    return 1;
}

struct registration *registry_acquire(struct yolk_engine *engine, const void *pointer,
                                      uint64_t size)
{
    struct base_range found;
    struct registration *registration = NULL;
    pthread_rwlock_rdlock(&engine->registry.lock);
    if (base_imap_contains(&engine->registry.map, (uint64_t)(uintptr_t)pointer, size, &found)) {
        registration = found.value;
        atomic_fetch_add(&registration->in_flight, 1);
    }
    pthread_rwlock_unlock(&engine->registry.lock);
    return registration;
}

struct registration *engine_hold(struct yolk_engine *engine, const void *pointer, uint64_t size,
                                 uint64_t *start, uint64_t *end)
{
    struct registration *held = registry_acquire(engine, pointer, size);
    if (held != NULL) {
        *start = held->start;
        *end = held->start + held->size;
    }
    return held;
}

uint32_t engine_held_gpu(const struct registration *held)
{
    return held->gpu;
}

void engine_give_back(struct registration *held)
{
    registry_release(held);
}

struct registration *registry_take(struct registration *registration)
{
    atomic_fetch_add_explicit(&registration->in_flight, 1, memory_order_relaxed);
    return registration;
}

void registry_release(struct registration *registration)
{
    registry_release_many(registration, 1);
}

void registry_release_many(struct registration *registration, uint64_t times)
{
    atomic_fetch_sub(&registration->in_flight, times);
}

void registry_clear(struct yolk_engine *engine)
{
    struct base_range found;
    while (base_imap_next(&engine->registry.map, 0, &found)) {
        (void)base_imap_remove(&engine->registry.map, found.start, NULL);
        destroy_registration(engine, found.value);
    }
    base_imap_free(&engine->registry.map);
}
