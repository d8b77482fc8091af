/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_driver.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/hash.h"
#include "master/state.h"
#include "wire/msg.h"

enum { SESSION = 1 };

struct driver {
    const struct master_policy *policy;
    void *state, *order;
    struct master_object *objects; /* by block */
    struct master_extent *extents;
    bool *stored;
    struct master_object **asked; /* of one lookup */
    uint64_t *hashes;
    size_t used, capacity;
};

static bool make(struct driver *driver, const struct policy_trace *dense)
{
    size_t longest = 1;
    for (size_t i = 0; i < dense->trace->count; i++)
        if (dense->trace->requests[i].count > longest)
            longest = dense->trace->requests[i].count;
    const struct master_policy *policy = driver->policy;
    driver->state = calloc(1, policy->state_size != NULL ? policy->state_size(UINT64_MAX) : 1);
    driver->order = calloc(1, driver->policy->order_size);
    driver->objects = calloc(dense->unique + 1, sizeof *driver->objects);
    driver->extents = calloc(dense->unique + 1, sizeof *driver->extents);
    driver->stored = calloc(dense->unique + 1, sizeof *driver->stored);
    driver->asked = calloc(longest, sizeof(void *));
    driver->hashes = calloc(longest, sizeof *driver->hashes);
    if (!driver->state || !driver->order || !driver->objects || !driver->extents ||
        !driver->stored || !driver->asked || !driver->hashes)
        return false;
    for (size_t i = 0; i < dense->unique; i++) {
        driver->objects[i].entry.hash = base_mix64(i + 1);
        driver->extents[i].object = &driver->objects[i];
        base_list_init(&driver->extents[i].order);
    }
    if (policy->state_init != NULL)
        policy->state_init(driver->state, UINT64_MAX);
    policy->order_init(driver->order, driver->state);
    return true;
}

static void discard(struct driver *driver)
{
    free(driver->state);
    free(driver->order);
    free(driver->objects);
    free(driver->extents);
    free(driver->stored);
    free(driver->asked);
    free(driver->hashes);
}

static void tell(struct driver *driver, uint16_t kind, const uint32_t *blocks, size_t count)
{
    if (driver->policy->looked_up == NULL || count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        driver->asked[i] = driver->stored[blocks[i]] ? &driver->objects[blocks[i]] : NULL;
        driver->hashes[i] = driver->objects[blocks[i]].entry.hash;
    }
    struct master_lookup lookup = {.kind = kind,
                                   .session = SESSION,
                                   .count = (uint32_t)count,
                                   .objects = driver->asked,
                                   .hashes = driver->hashes};
    driver->policy->looked_up(driver->state, &lookup);
}

/* False: all that is stored is in use by this request. */
static bool evict(struct driver *driver)
{
    struct master_extent *victim = driver->policy->victim(driver->order);
    if (victim == NULL)
        return false;
    size_t block = (size_t)(victim - driver->extents);
    driver->policy->withdrawn(driver->order, victim);
    driver->stored[block] = false;
    if (driver->policy->removed != NULL)
        driver->policy->removed(driver->state, &driver->objects[block]);
    driver->objects[block].note = (struct master_note){0};
    driver->used--;
    return true;
}

/* Starts a put of what is missing; `being_put` marks it, as a master would. */
static void start_put(struct driver *driver, struct master_put *being_put, const uint32_t *blocks,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (driver->stored[blocks[i]])
            continue;
        if (driver->used == driver->capacity && !evict(driver))
            continue;
        driver->used++;
        driver->stored[blocks[i]] = true;
        driver->objects[blocks[i]].put = being_put;
    }
    tell(driver, WIRE_PUT_START, blocks, count);
}

/* The end of reads, leases and puts. */
static void finish(struct driver *driver, const uint32_t *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct master_object *object = &driver->objects[blocks[i]];
        struct master_extent *extent = &driver->extents[blocks[i]];
        if (!driver->stored[blocks[i]] || extent->list == IN_ORDER)
            continue;
        extent->list = IN_ORDER;
        if (object->put != NULL)
            driver->policy->inserted(driver->order, extent);
        else
            driver->policy->touched(driver->order, extent);
        object->put = NULL;
    }
}

static size_t run_request(struct driver *driver, const uint32_t *blocks, size_t count)
{
    size_t prefix = 0;
    while (prefix < count && driver->stored[blocks[prefix]])
        prefix++;
    for (size_t i = 0; i < count; i++) {
        struct master_extent *extent = &driver->extents[blocks[i]];
        if (driver->stored[blocks[i]] && extent->list == IN_ORDER)
            driver->policy->withdrawn(driver->order, extent);
        extent->list = IN_NO_LIST;
    }
    tell(driver, WIRE_EXIST, blocks, count);
    tell(driver, WIRE_GET_START, blocks, prefix);
    struct master_put being_put = {.state = PUT_OPEN};
    start_put(driver, &being_put, blocks + prefix, count - prefix);
    finish(driver, blocks, count);
    return prefix;
}

int policy_drive(const struct master_policy *policy, const struct policy_trace *dense,
                 size_t capacity, uint64_t *hits)
{
    struct driver driver = {.policy = policy, .capacity = capacity};
    *hits = 0;
    bool made = make(&driver, dense);
    for (size_t i = 0; made && i < dense->trace->count; i++)
        *hits +=
            run_request(&driver, policy_trace_blocks(dense, i), dense->trace->requests[i].count);
    discard(&driver);
    return made ? 0 : -1;
}
