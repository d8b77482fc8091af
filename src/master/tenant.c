/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: who may open a session, what the values of each may take, and what goes when that is
 * too much. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/tenant.h"
#include "base/units.h"
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

static struct master_tenant *find(const struct master_core *core, const void *name, size_t size)
{
    BASE_LIST_FOREACH(node, &core->extras.tenants)
    {
        struct master_tenant *tenant = BASE_CONTAINER(node, struct master_tenant, link);
        if (strlen(tenant->name) == size && memcmp(tenant->name, name, size) == 0)
            return tenant;
    }
    return NULL;
}

/* The name is a good one, and new. */
static struct master_tenant *add(struct master_core *core, const void *name, size_t size,
                                 uint64_t quota)
{
    if (core->extras.tenant_count >= MASTER_TENANTS)
        return NULL;
    struct master_tenant *tenant = base_calloc(1, sizeof *tenant);
    if (tenant == NULL)
        return NULL;
    base_list_init(&tenant->objects);
    memcpy(tenant->name, name, size);
    tenant->prefix_size = (uint8_t)base_tenant_prefix(name, size, tenant->prefix);
    tenant->quota_bytes = quota;
    tenant->registered = quota > 0;
    base_list_push_back(&core->extras.tenants, &tenant->link);
    core->extras.tenant_count++;
    return tenant;
}

struct adoption {
    struct master_core *core;
    bool failed;
};

static void adopt(void *self, struct master_index_entry *entry)
{
    struct adoption *adoption = self;
    struct master_object *object = (struct master_object *)entry;
    struct master_core *core = adoption->core;
    struct wire_view key = wire_view_of(object->key, object->entry.key_size);
    if (!master_tenant_owns(NULL, 0, key))
        return;
    struct master_extra *extra = master_extra_need(core, object);
    adoption->failed |= extra == NULL;
    if (extra == NULL || extra->tenant != NULL)
        return;
    struct master_tenant *tenant = core->extras.standard;
    extra->tenant = tenant;
    tenant->object_count++;
    base_list_push_back(&tenant->objects, &extra->tenant_link);
    MASTER_EXTENTS_FOREACH(extent, object)
    tenant->used_bytes += master_segment_is_disk(extent->segment) ? 0 : master_extent_size(extent);
}

/* While it has no quota the default tenant's values are not counted. Now they are, all in one turn:
 * what is put meanwhile would be missed otherwise, and this is asked for by hand. */
static bool adopt_all(struct master_core *core)
{
    struct adoption adoption = {core, false};
    uint64_t cursor = 0;
    while (core->index != NULL && master_index_walk(core->index, &cursor, adopt, &adoption))
        ;
    return !adoption.failed;
}

enum yolk_status master_tenant_set(struct master_core *core, const char *name, uint64_t quota_bytes)
{
    int status = base_tenant_check(name, strlen(name));
    if (status != YOLK_OK)
        return status;
    if (quota_bytes == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "the quota of tenant %s is 0", name);
    struct master_tenant *tenant = find(core, name, strlen(name));
    if (tenant == NULL)
        tenant = add(core, name, strlen(name), quota_bytes);
    if (tenant == NULL)
        return base_fail(YOLK_ERR_LIMIT, 0, "no room for tenant %s: there are %u of at most %u",
                         name, core->extras.tenant_count, MASTER_TENANTS);
    if (tenant == core->extras.standard && tenant->quota_bytes == UINT64_MAX && !adopt_all(core))
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to count the values of tenant %s", name);
    tenant->quota_bytes = quota_bytes;
    tenant->registered = true;
    core->extras.tenants_on = true;
    return YOLK_OK;
}

static enum yolk_status parse_one(struct master_core *core, const char *text, size_t size)
{
    char name[MAX_TENANT_SIZE + 1], amount[32];
    const char *equals = memchr(text, '=', size);
    size_t name_size = equals == NULL ? 0 : (size_t)(equals - text);
    size_t amount_size = equals == NULL ? 0 : size - name_size - 1;
    uint64_t quota = 0;
    if (equals == NULL || name_size >= sizeof name || amount_size >= sizeof amount)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "tenants: \"%.*s\" is not NAME=SIZE with a name of at most %u bytes",
                         (int)size, text, MAX_TENANT_SIZE);
    memcpy(name, text, name_size);
    name[name_size] = 0;
    memcpy(amount, equals + 1, amount_size);
    amount[amount_size] = 0;
    int status = base_parse_size("tenants", amount, &quota);
    if (status != YOLK_OK)
        return status;
    if (strcmp(name, "*") == 0) {
        if (quota == 0)
            return base_fail(YOLK_ERR_CONFIG, 0, "tenants: the quota of * is 0");
        core->extras.other_quota = quota;
        core->extras.tenants_on = true;
        return YOLK_OK;
    }
    if (find(core, name, name_size) != NULL && find(core, name, name_size) != core->extras.standard)
        return base_fail(YOLK_ERR_CONFIG, 0, "tenants: %s is named twice", name);
    status = master_tenant_set(core, name, quota);
    return status == YOLK_OK ? YOLK_OK : base_fail_context(YOLK_ERR_CONFIG, "tenants");
}

enum yolk_status master_tenants_parse(struct master_core *core, const char *text)
{
    core->extras.standard = add(core, TENANT_DEFAULT, strlen(TENANT_DEFAULT), UINT64_MAX);
    if (core->extras.standard == NULL)
        return YOLK_ERR_NO_MEMORY;
    enum yolk_status status = YOLK_OK;
    while (status == YOLK_OK && text != NULL && *text != 0) {
        size_t size = strcspn(text, ",");
        status = parse_one(core, text, size);
        text += size + (text[size] == ',');
    }
    return status;
}

struct master_tenant *master_tenant_admit(struct master_core *core, struct wire_view name,
                                          const char **why)
{
    *why = "";
    if (name.size == 0)
        return core->extras.standard;
    if (base_tenant_check(name.data, name.size) != YOLK_OK) {
        *why = yolk_last_error();
        return NULL;
    }
    struct master_tenant *tenant = find(core, name.data, name.size);
    if (tenant == core->extras.standard)
        return tenant;
    if (!core->extras.tenants_on) {
        *why = "this master has no tenants but \"default\": its setting `tenants` is empty";
        return NULL;
    }
    if (tenant != NULL && tenant->registered)
        return tenant;
    if (core->extras.other_quota == 0) {
        *why = "the master does not know this tenant: its setting `tenants` names neither it nor *";
        return NULL;
    }
    if (tenant == NULL)
        tenant = add(core, name.data, name.size, core->extras.other_quota);
    if (tenant == NULL) {
        *why = "the master has as many tenants as there may be";
        return NULL;
    }
    tenant->quota_bytes = core->extras.other_quota;
    tenant->registered = true;
    return tenant;
}

struct master_tenant *master_tenant_of(struct master_core *core, struct wire_view key)
{
    struct master_tenant *standard = core->extras.standard;
    size_t skip = base_tenant_skip(key.data, key.size);
    if (skip == 0 || (skip == 2 && key.data[1] == 0))
        return standard->quota_bytes == UINT64_MAX ? NULL : standard;
    if (skip == SIZE_MAX || base_tenant_check(key.data + 2, skip - 2) != YOLK_OK)
        return NULL;
    /* An owner offers values of a tenant that nobody has named in this life of the master: counted,
     * for when it is. */
    struct master_tenant *tenant = find(core, key.data + 2, skip - 2);
    return tenant != NULL ? tenant : add(core, key.data + 2, skip - 2, 0);
}

bool master_tenant_owns(const uint8_t *prefix, uint32_t prefix_size, struct wire_view key)
{
    if (prefix_size > 0)
        return key.size > prefix_size && memcmp(key.data, prefix, prefix_size) == 0;
    return key.size == 0 || key.data[0] != TENANT_MARK || (key.size > 2 && key.data[1] == 0);
}

/* What it has in memory goes; with a copy in a file it stays readable there. */
static uint64_t evict(struct master_core *core, struct master_object *object)
{
    uint64_t freed = 0;
    struct master_group *group =
        master_object_on_file(object) ? NULL : master_group_begin(core, object);
    bool on_disk = master_object_on_file(object);
    uint32_t replicas = object->extent_count;
    for (struct master_extent *extent = object->extents, *next; extent != NULL && replicas-- > 0;
         extent = next) {
        next = extent->next;
        if (master_segment_is_disk(extent->segment))
            continue;
        freed += master_extent_size(extent);
        core->stats.evicted_bytes += master_extent_size(extent);
        core->stats.memory_evictions += on_disk;
        if (on_disk)
            master_extent_drop(core, extent);
    }
    if (!on_disk) {
        core->stats.evictions++;
        master_object_drop(core, object, GHOST_EVICTED);
    }
    if (group != NULL)
        master_group_evict(core, group);
    return freed;
}

static bool may_evict(const struct master_core *core, const struct master_object *object,
                      bool soft_too)
{
    if (object->put != NULL || object->size == 0 || object->pin == PIN_HARD ||
        (object->pin == PIN_SOFT && !soft_too) || master_object_guarded(object))
        return false;
    bool in_memory = false;
    MASTER_EXTENTS_FOREACH(extent, object)
    in_memory |= !master_segment_is_disk(extent->segment) && extent->task_refs == 0;
    return in_memory && master_lease_until(core, object) <= core->now;
}

/* One round over the oldest; those that stay go to the end. */
static uint64_t make_room(struct master_core *core, struct master_tenant *tenant, uint64_t bytes,
                          bool soft_too)
{
    uint64_t freed = 0;
    uint64_t rounds =
        tenant->object_count < core->config.step ? tenant->object_count : core->config.step;
    while (rounds-- > 0 && freed < bytes && !base_list_empty(&tenant->objects)) {
        struct base_list *node = base_list_pop_front(&tenant->objects);
        struct master_extra *extra = BASE_CONTAINER(node, struct master_extra, tenant_link);
        base_list_push_back(&tenant->objects, node);
        if (may_evict(core, extra->object, soft_too))
            freed += evict(core, extra->object);
    }
    tenant->evicted_bytes += freed;
    return freed;
}

bool master_tenant_room(struct master_core *core, const struct master_object *object, uint64_t size,
                        uint64_t credit)
{
    const struct master_extra *extra = master_extra_of(core, object);
    struct master_tenant *tenant = extra == NULL ? NULL : extra->tenant;
    if (tenant == NULL)
        return true;
    uint64_t room = (size + BASE_EXTENTS_UNIT - 1) / BASE_EXTENTS_UNIT * BASE_EXTENTS_UNIT;
    uint64_t quota =
        tenant->quota_bytes > UINT64_MAX - credit ? UINT64_MAX : tenant->quota_bytes + credit;
    if (room <= quota && tenant->used_bytes <= quota - room)
        return true;
    if (room <= quota) {
        uint64_t bytes = tenant->used_bytes - (quota - room);
        uint64_t freed = make_room(core, tenant, bytes, false);
        if (freed < bytes)
            freed += make_room(core, tenant, bytes - freed, true);
        if (tenant->used_bytes <= quota - room)
            return true;
    }
    tenant->rejects++;
    return false;
}

enum yolk_status master_tenant_remove(struct master_core *core, const char *name)
{
    struct master_tenant *tenant = find(core, name, strlen(name));
    if (tenant == NULL || !tenant->registered)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no tenant %s", name);
    if (tenant == core->extras.standard) { /* it stays, and has as much as there is */
        tenant->quota_bytes = UINT64_MAX;
        return YOLK_OK;
    }
    if (tenant->object_count > 0)
        return base_fail(YOLK_ERR_BUSY, 0, "tenant %s still has %llu keys", name,
                         (unsigned long long)tenant->object_count);
    tenant->registered = false; /* sessions that are open go on */
    return YOLK_OK;
}

bool master_tenant_at(const struct master_core *core, uint32_t index,
                      struct master_tenant_info *out)
{
    BASE_LIST_FOREACH(node, &core->extras.tenants)
    {
        const struct master_tenant *tenant = BASE_CONTAINER(node, struct master_tenant, link);
        if (index-- > 0)
            continue;
        *out = (struct master_tenant_info){
            tenant->name,    tenant->quota_bytes,   tenant->used_bytes, tenant->object_count,
            tenant->rejects, tenant->evicted_bytes, tenant->registered};
        return true;
    }
    return false;
}
