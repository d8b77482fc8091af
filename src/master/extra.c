/* SPDX-License-Identifier: Apache-2.0 */
/* The side records, found by the object's address. */
#include "base/alloc.h"
#include "base/hash.h"
#include "master/state.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 64 };

enum yolk_status master_extras_init(struct master_core *core)
{
    struct master_extras *extras = &core->extras;
    base_list_init(&extras->soft);
    base_list_init(&extras->tenants);
    extras->buckets = extras->group_buckets = FIRST_BUCKETS;
    extras->table = base_calloc(FIRST_BUCKETS, sizeof(struct master_extra *));
    extras->groups = base_calloc(FIRST_BUCKETS, sizeof(struct master_group *));
    if (extras->table == NULL || extras->groups == NULL)
        return YOLK_ERR_NO_MEMORY;
    return master_tenants_parse(core, core->config.tenants);
}

void master_extras_free(struct master_core *core)
{
    struct base_list *node;
    if (core->extras.tenants.next != NULL)
        while ((node = base_list_pop_front(&core->extras.tenants)) != NULL)
            free(BASE_CONTAINER(node, struct master_tenant, link));
    free(core->extras.table);
    free(core->extras.groups);
}

static uint64_t bucket(const struct master_extras *extras, const struct master_object *object)
{
    return base_mix64((uint64_t)(uintptr_t)object) & (extras->buckets - 1);
}

struct master_extra *master_extra_of(const struct master_core *core,
                                     const struct master_object *object)
{
    if (!object->has_extra)
        return NULL;
    struct master_extra *extra = core->extras.table[bucket(&core->extras, object)];
    while (extra->object != object)
        extra = extra->hash_next;
    return extra;
}

static void grow(struct master_extras *extras)
{
    struct master_extra **old = extras->table;
    uint64_t old_buckets = extras->buckets;
    struct master_extra **table = base_calloc(old_buckets * 2, sizeof(struct master_extra *));
    if (table == NULL)
        return; /* longer chains, nothing worse */
    extras->table = table;
    extras->buckets *= 2;
    for (uint64_t i = 0; i < old_buckets; i++)
        for (struct master_extra *extra = old[i], *next; extra != NULL; extra = next) {
            next = extra->hash_next;
            struct master_extra **at = &table[bucket(extras, extra->object)];
            extra->hash_next = *at;
            *at = extra;
        }
    free(old);
}

static struct master_extra *make(struct master_core *core, struct master_object *object)
{
    struct master_extras *extras = &core->extras;
    struct master_extra *extra = base_calloc(1, sizeof *extra);
    if (extra == NULL)
        return NULL;
    if (extras->count >= extras->buckets)
        grow(extras);
    extra->object = object;
    base_list_init(&extra->tenant_link);
    base_list_init(&extra->group_link);
    base_list_init(&extra->soft_link);
    struct master_extra **at = &extras->table[bucket(extras, object)];
    extra->hash_next = *at;
    *at = extra;
    extras->count++;
    object->has_extra = 1;
    return extra;
}

struct master_extra *master_extra_need(struct master_core *core, struct master_object *object)
{
    struct master_extra *extra = master_extra_of(core, object);
    return extra != NULL ? extra : make(core, object);
}

enum yolk_status master_extra_begin(struct master_core *core, struct master_object *object)
{
    struct wire_view key = wire_view_of(object->key, object->entry.key_size);
    struct master_tenant *tenant = master_tenant_of(core, key);
    if (tenant == NULL)
        return YOLK_OK;
    struct master_extra *extra = make(core, object);
    if (extra == NULL)
        return YOLK_ERR_NO_MEMORY;
    extra->tenant = tenant;
    tenant->object_count++;
    base_list_push_back(&tenant->objects, &extra->tenant_link);
    return YOLK_OK;
}

void master_extra_end(struct master_core *core, struct master_object *object)
{
    struct master_extra *extra = master_extra_of(core, object);
    if (extra == NULL)
        return;
    struct master_extra **at = &core->extras.table[bucket(&core->extras, object)];
    while (*at != extra)
        at = &(*at)->hash_next;
    *at = extra->hash_next;
    core->extras.count--;
    if (extra->tenant != NULL)
        extra->tenant->object_count--;
    base_list_remove(&extra->tenant_link);
    master_pin_forget(core, extra);
    master_group_leave(core, extra);
    object->has_extra = 0;
    free(extra);
}

void master_extra_count(struct master_core *core, const struct master_extent *extent,
                        const struct master_object *object, int sign)
{
    if (extent->segment->medium == WIRE_MEDIUM_LOCAL_DISK)
        return;
    uint64_t size = (uint64_t)sign * master_extent_size(extent);
    if (object->pin == PIN_HARD)
        extent->segment->hard_bytes += size;
    if (extent->segment->medium == WIRE_MEDIUM_GDS)
        return;
    const struct master_extra *extra = master_extra_of(core, object);
    if (extra != NULL && extra->tenant != NULL)
        extra->tenant->used_bytes += size;
}
