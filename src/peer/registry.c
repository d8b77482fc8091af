/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that others may touch. The engine asks before each access (begin) and tells its end, so a
 * range goes only when no access of it is under way. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/internal.h"
#include "wire/msg.h"

void peer_registry_init(struct peer_registry *registry)
{
    pthread_rwlock_init(&registry->lock, NULL);
    base_imap_init(&registry->map);
    mutex_init(&registry->quiet_lock);
    condition_init(&registry->quiet);
    registry->removals = 0;
}

static void range_free(struct peer_range *range)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&range->parts)) != NULL)
        free(BASE_CONTAINER(node, struct peer_part, node));
    free(range);
}

void peer_registry_free(struct peer_registry *registry)
{
    struct base_range found;
    for (uint64_t from = 0; base_imap_next(&registry->map, from, &found); from = found.start + 1)
        range_free(found.value);
    base_imap_free(&registry->map);
    condition_destroy(&registry->quiet);
    mutex_destroy(&registry->quiet_lock);
    pthread_rwlock_destroy(&registry->lock);
}

static enum yolk_status add_new(struct peer_registry *registry, uint64_t start, uint64_t size,
                                const char *location, enum yolk_permission permission)
{
    struct peer_range *range;
    if (base_imap_count(&registry->map) >= PEER_BUFFERS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "%d ranges are registered already", PEER_BUFFERS_MAX);
    range = calloc(1, sizeof(*range));
    if (range == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to register a range");
    range->start = start;
    range->size = size;
    range->permission = permission;
    range->references = range->whole = 1;
    base_list_init(&range->parts);
    memcpy(range->location, location, strlen(location) + 1);
    enum yolk_status status = base_imap_insert(&registry->map, start, size, range);
    if (status != YOLK_OK)
        free(range);
    return status;
}

static enum yolk_status add_again(struct peer_range *range, uint64_t start, uint64_t size)
{
    if (start == range->start && size == range->size) {
        range->whole++;
        range->references++;
        return YOLK_OK;
    }
    struct peer_part *part = calloc(1, sizeof(*part));
    if (part == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to register a range");
    part->start = start;
    part->size = size;
    base_list_push_front(&range->parts, &part->node);
    range->references++;
    return YOLK_OK;
}

/* size 0: any that begins there. NULL: none. */
static struct peer_part *find_part(struct peer_range *range, uint64_t start, uint64_t size)
{
    BASE_LIST_FOREACH(node, &range->parts)
    {
        struct peer_part *part = BASE_CONTAINER(node, struct peer_part, node);
        if (part->start == start && (size == 0 || part->size == size))
            return part;
    }
    return NULL;
}

static enum yolk_status add(struct peer_registry *registry, uint64_t start, uint64_t size,
                            const char *location, enum yolk_permission permission, bool *leaving)
{
    enum yolk_status status = YOLK_OK;
    struct base_range found;
    *leaving = false;
    pthread_rwlock_wrlock(&registry->lock);
    if (!base_imap_overlap(&registry->map, start, size, &found)) {
        status = add_new(registry, start, size, location, permission);
    } else if (!base_imap_contains(&registry->map, start, size, &found)) {
        status = base_fail(YOLK_ERR_OVERLAP, 0, "0x%llx+%llu cuts or contains a registered range",
                           (unsigned long long)start, (unsigned long long)size);
    } else {
        struct peer_range *range = found.value;
        *leaving = range->leaving;
        if (range->leaving)
            status = base_fail(YOLK_ERR_BUSY, 0, "the range is just being unregistered");
        else if (permission > range->permission)
            status = base_fail(YOLK_ERR_ACCESS, 0,
                               "the range lies in one that is registered with less permission");
        else
            status = add_again(range, start, size);
    }
    pthread_rwlock_unlock(&registry->lock);
    return status;
}

static uint64_t removals(struct peer_registry *registry)
{
    mutex_lock(&registry->quiet_lock);
    uint64_t count = registry->removals;
    mutex_unlock(&registry->quiet_lock);
    return count;
}

/* False: the deadline came first. */
static bool wait_removal(struct peer_registry *registry, uint64_t since, uint64_t deadline_ns)
{
    bool in_time = true;
    mutex_lock(&registry->quiet_lock);
    while (registry->removals == since && in_time)
        in_time = condition_wait_until(&registry->quiet, &registry->quiet_lock, deadline_ns);
    mutex_unlock(&registry->quiet_lock);
    return in_time;
}

enum yolk_status peer_registry_add(struct peer_registry *registry, uint64_t start, uint64_t size,
                                   const char *location, enum yolk_permission permission,
                                   uint64_t deadline_ns)
{
    for (;;) {
        bool leaving;
        uint64_t since = removals(registry);
        enum yolk_status status = add(registry, start, size, location, permission, &leaving);
        if (!leaving || deadline_ns == 0 || !wait_removal(registry, since, deadline_ns))
            return status;
    }
}

/* Until the accesses of others that were allowed are over. The range takes no new ones. */
static bool wait_quiet(struct peer_registry *registry, struct peer_range *range,
                       uint64_t deadline_ns)
{
    bool in_time = true;
    mutex_lock(&registry->quiet_lock);
    while (atomic_load(&range->accesses) > 0 && in_time)
        in_time = condition_wait_until(&registry->quiet, &registry->quiet_lock, deadline_ns);
    mutex_unlock(&registry->quiet_lock);
    return atomic_load(&range->accesses) == 0;
}

static enum yolk_status not_registered(uint64_t start, uint64_t size)
{
    return base_fail(YOLK_ERR_NOT_REGISTERED, 0, "0x%llx+%llu is not registered",
                     (unsigned long long)start, (unsigned long long)size);
}

/* Under the lock. What was registered as start and size (0: whatever begins there); *part: NULL if
 * it is the whole range. NULL: nothing. */
static struct peer_range *find_registered(struct peer_registry *registry, uint64_t start,
                                          uint64_t size, struct peer_part **part)
{
    struct base_range found;
    *part = NULL;
    if (!base_imap_contains(&registry->map, start, size == 0 ? 1 : size, &found))
        return NULL;
    struct peer_range *range = found.value;
    bool is_whole = start == range->start && (size == 0 || size == range->size);
    if (is_whole && range->whole > 0)
        return range;
    *part = find_part(range, start, size);
    return *part != NULL ? range : NULL;
}

enum yolk_status peer_registry_find(struct peer_registry *registry, uint64_t start, uint64_t *size,
                                    bool *leaving)
{
    struct peer_part *part;
    pthread_rwlock_rdlock(&registry->lock);
    const struct peer_range *range = find_registered(registry, start, *size, &part);
    *leaving = range != NULL && range->leaving;
    if (range != NULL)
        *size = part != NULL ? part->size : range->size;
    pthread_rwlock_unlock(&registry->lock);
    return range != NULL ? YOLK_OK : not_registered(start, *size);
}

/* Under the lock. False: it was the last one, which stays until it is quiet. */
static bool take_one(struct peer_range *range, struct peer_part *part)
{
    if (range->references == 1)
        return false;
    range->references--;
    if (part == NULL) {
        range->whole--;
    } else {
        base_list_remove(&part->node);
        free(part);
    }
    return true;
}

enum yolk_status peer_registry_remove(struct peer_registry *registry, uint64_t start, uint64_t size,
                                      uint64_t deadline_ns)
{
    struct peer_part *part;
    pthread_rwlock_wrlock(&registry->lock);
    struct peer_range *range = find_registered(registry, start, size, &part);
    bool last = range != NULL && !take_one(range, part);
    if (last) {
        range->leaving = true;
        range->waiting++;
    }
    pthread_rwlock_unlock(&registry->lock);
    if (range == NULL)
        return not_registered(start, size);
    if (!last)
        return YOLK_OK;
    bool quiet = wait_quiet(registry, range, deadline_ns);
    pthread_rwlock_wrlock(&registry->lock);
    if (quiet && !range->gone)
        range->gone = base_imap_remove(&registry->map, range->start, NULL);
    bool free_it = --range->waiting == 0 && range->gone;
    pthread_rwlock_unlock(&registry->lock);
    mutex_lock(&registry->quiet_lock);
    registry->removals++;
    condition_broadcast(&registry->quiet);
    mutex_unlock(&registry->quiet_lock);
    if (free_it)
        range_free(range);
    return quiet ? YOLK_OK
                 : base_fail(YOLK_ERR_BUSY, 0, "others are still using 0x%llx+%llu",
                             (unsigned long long)start, (unsigned long long)size);
}

enum yolk_status peer_registry_describe(struct peer_registry *registry, struct base_buf *out)
{
    enum yolk_status status = YOLK_OK;
    struct base_range found;
    pthread_rwlock_rdlock(&registry->lock);
    for (uint64_t from = 0; status == YOLK_OK && base_imap_next(&registry->map, from, &found);
         from = found.start + 1) {
        const struct peer_range *range = found.value;
        if (range->leaving || range->permission == YOLK_LOCAL)
            continue;
        uint8_t *record = base_buf_extend(out, WIRE_PEER_BUFFER_SIZE);
        if (record == NULL) {
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to list ranges");
            break;
        }
        base_store_u64(record, range->start);
        base_store_u64(record + 8, range->size);
        base_store_u32(record + 16, (uint32_t)range->permission);
        memcpy(record + 20, range->location, PEER_LOCATION_MAX);
    }
    pthread_rwlock_unlock(&registry->lock);
    return status;
}

/* ---- what the engine asks ---- */

static struct peer_range *find(struct peer_registry *registry,
                               const struct yolk_access_request *request)
{
    struct base_range found;
    return base_imap_contains(&registry->map, request->offset, request->size, &found) ? found.value
                                                                                      : NULL;
}

static enum yolk_status begin(void *self, const struct yolk_access_request *request)
{
    struct peer_registry *registry = self;
    if (request->size == 0)
        return YOLK_OK; /* touches nothing; the address of nothing is often NULL */
    enum yolk_permission needed =
        request->opcode == YOLK_WRITE ? YOLK_REMOTE_WRITE : YOLK_REMOTE_READ;
    enum yolk_status status = YOLK_OK;
    pthread_rwlock_rdlock(&registry->lock);
    struct peer_range *range = find(registry, request);
    if (range == NULL || range->leaving)
        status = YOLK_ERR_NOT_REGISTERED;
    else if (range->permission < needed)
        status = YOLK_ERR_ACCESS;
    else
        atomic_fetch_add(&range->accesses, 1);
    pthread_rwlock_unlock(&registry->lock);
    return status;
}

static void end(void *self, const struct yolk_access_request *request)
{
    struct peer_registry *registry = self;
    if (request->size == 0)
        return;
    pthread_rwlock_rdlock(&registry->lock);
    struct peer_range *range = find(registry, request);
    bool wake = range->leaving;
    /* The lock keeps the range from being freed between the two. */
    if (atomic_fetch_sub(&range->accesses, 1) == 1 && wake) {
        mutex_lock(&registry->quiet_lock);
        condition_broadcast(&registry->quiet);
        mutex_unlock(&registry->quiet_lock);
    }
    pthread_rwlock_unlock(&registry->lock);
}

struct yolk_owner peer_registry_owner(struct peer_registry *registry)
{
    return (struct yolk_owner){.self = registry, .begin = begin, .end = end};
}
