/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: objects of one tenant that are of use only together. */
#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

enum { SKIPS_MAX = 64 }; /* then a lease withholds a group no longer */

static struct master_group **chain_of(struct master_core *core, uint64_t hash)
{
    return &core->extras.groups[hash & (core->extras.group_buckets - 1)];
}

static void grow(struct master_core *core)
{
    struct master_extras *extras = &core->extras;
    struct master_group **old = extras->groups;
    uint64_t old_buckets = extras->group_buckets;
    struct master_group **table = base_calloc(old_buckets * 2, sizeof(struct master_group *));
    if (table == NULL)
        return; /* longer chains, nothing worse */
    extras->groups = table;
    extras->group_buckets *= 2;
    for (uint64_t i = 0; i < old_buckets; i++)
        for (struct master_group *group = old[i], *next; group != NULL; group = next) {
            next = group->hash_next;
            struct master_group **at = chain_of(core, group->hash);
            group->hash_next = *at;
            *at = group;
        }
    free(old);
}

static bool is_named(const struct master_group *group, uint64_t hash, struct wire_view prefix,
                     struct wire_view id)
{
    return group->hash == hash && group->name_size == prefix.size + id.size &&
           (prefix.size == 0 || memcmp(group->name, prefix.data, prefix.size) == 0) &&
           memcmp(group->name + prefix.size, id.data, id.size) == 0;
}

/* Two tenants' groups of one name are two: the name has the tenant's prefix. */
static struct master_group *named(struct master_core *core, struct wire_view prefix,
                                  struct wire_view id)
{
    uint64_t hash = base_hash64(id.data, id.size);
    if (prefix.size > 0)
        hash = base_mix64(hash ^ base_hash64(prefix.data, prefix.size));
    struct master_group *group = *chain_of(core, hash);
    while (group != NULL && !is_named(group, hash, prefix, id))
        group = group->hash_next;
    if (group != NULL)
        return group;
    group = base_calloc(1, sizeof *group + prefix.size + id.size);
    if (group == NULL)
        return NULL;
    if (core->extras.group_count >= core->extras.group_buckets)
        grow(core);
    base_list_init(&group->members);
    group->hash = hash;
    group->name_size = (uint32_t)(prefix.size + id.size);
    if (prefix.size > 0)
        memcpy(group->name, prefix.data, prefix.size);
    memcpy(group->name + prefix.size, id.data, id.size);
    struct master_group **at = chain_of(core, hash);
    group->hash_next = *at;
    *at = group;
    core->extras.group_count++;
    return group;
}

static void reap(struct master_core *core, struct master_group *group)
{
    if (group->count > 0 || group->going)
        return;
    struct master_group **at = chain_of(core, group->hash);
    while (*at != group)
        at = &(*at)->hash_next;
    *at = group->hash_next;
    core->extras.group_count--;
    free(group);
}

enum yolk_status master_group_adopt(struct master_core *core, struct master_object *object,
                                    struct master_group *group)
{
    struct master_extra *extra = master_extra_need(core, object);
    enum yolk_status status = extra == NULL ? YOLK_ERR_NO_MEMORY : YOLK_OK;
    if (status == YOLK_OK && group->count >= MASTER_GROUP_MEMBERS)
        core->stats.group_overflows++; /* it goes alone */
    else if (status == YOLK_OK) {
        extra->group = group;
        group->count++;
        base_list_push_back(&group->members, &extra->group_link);
    }
    reap(core, group);
    return status;
}

enum yolk_status master_group_join(struct master_core *core, struct master_object *object,
                                   struct wire_view id)
{
    struct master_group *group = named(core, core->prefix, id);
    return group == NULL ? YOLK_ERR_NO_MEMORY : master_group_adopt(core, object, group);
}

void master_group_leave(struct master_core *core, struct master_extra *extra)
{
    struct master_group *group = extra->group;
    if (group == NULL)
        return;
    extra->group = NULL;
    base_list_remove(&extra->group_link);
    group->count--;
    reap(core, group);
}

static struct master_group *group_of(const struct master_core *core,
                                     const struct master_object *object)
{
    const struct master_extra *extra = master_extra_of(core, object);
    return extra == NULL ? NULL : extra->group;
}

void master_group_leased(struct master_core *core, const struct master_object *object)
{
    struct master_group *group = group_of(core, object);
    if (group != NULL && group->lease_until < object->lease_until)
        group->lease_until = object->lease_until;
}

uint64_t master_lease_until(const struct master_core *core, const struct master_object *object)
{
    const struct master_group *group = group_of(core, object);
    return group != NULL && group->lease_until > object->lease_until ? group->lease_until
                                                                     : object->lease_until;
}

static bool is_guarded(const struct master_group *group)
{
    BASE_LIST_FOREACH(node, &group->members)
    if (master_object_guarded(BASE_CONTAINER(node, struct master_extra, group_link)->object))
        return true;
    return false;
}

bool master_group_may_go(struct master_core *core, const struct master_extent *extent)
{
    const struct master_group *group = group_of(core, extent->object);
    if (group == NULL || extent->object->extent_count > 1)
        return true;
    bool leased = group->lease_until > core->now && core->extras.group_skips < SKIPS_MAX;
    if (!leased && !is_guarded(group)) {
        core->extras.group_skips = 0;
        return true;
    }
    core->extras.group_skips++;
    core->stats.group_withheld++;
    return false;
}

struct master_group *master_group_begin(struct master_core *core,
                                        const struct master_object *object)
{
    struct master_group *group = group_of(core, object);
    if (group == NULL || group->going || object->extent_count > 1)
        return NULL;
    group->going = true;
    return group;
}

void master_group_evict(struct master_core *core, struct master_group *group)
{
    BASE_LIST_FOREACH_SAFE(node, &group->members)
    {
        struct master_object *object =
            BASE_CONTAINER(node, struct master_extra, group_link)->object;
        if (object->put != NULL || object->pin == PIN_HARD)
            continue;
        core->stats.evictions++;
        core->stats.group_evictions++;
        MASTER_EXTENTS_FOREACH(extent, object)
        if (!master_segment_is_disk(extent->segment))
            core->stats.evicted_bytes += master_extent_size(extent);
        master_object_drop(core, object, GHOST_EVICTED);
    }
    group->going = false;
    reap(core, group);
}
