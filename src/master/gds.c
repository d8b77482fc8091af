/* SPDX-License-Identifier: Apache-2.0 */
#include "master/gds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mutation.h"
#include "base/tenant.h"
#include "master/state.h"

enum { KEY_SHOWN = 64, WHY_MAX = 320 };

struct wire_gds master_gds_of(const struct master_extent *extent)
{
    const struct master_segment *segment = extent->segment;
    struct wire_gds gds = {.storage_generation = segment->storage_generation,
                           .value_offset = master_extent_offset(extent),
                           .value_size = extent->object->size,
                           .allocated_size = master_extent_size(extent)};
    memcpy(gds.owner_client_id, segment->client_id, WIRE_ID_SIZE);
    memcpy(gds.storage_id, segment->storage_id, WIRE_ID_SIZE);
    return gds;
}

/* ---- reasons ---- */

/* Notes why the key is refused. Without memory for it, it is refused all the same. */
__attribute__((format(printf, 5, 6))) static enum yolk_status
refuse(struct master_core *core, struct master_gdss *all, const struct master_key *key,
       enum yolk_status status, const char *format, ...)
{
    char name[KEY_SHOWN + 1], text[WHY_MAX];
    size_t skip = base_tenant_skip(key->bytes.data, key->bytes.size);
    struct wire_view shown = key->bytes;
    if (skip <= shown.size)
        shown = wire_view_of(shown.data + skip, shown.size - skip);
    wire_view_copy_text(shown, name, sizeof name);
    int size = snprintf(text, sizeof text, "key \"%s\": ", name);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text + size, sizeof text - (size_t)size, format, args);
    va_end(args);
    size += more < 0 ? 0 : more;
    if ((size_t)size >= sizeof text)
        size = sizeof text - 1;
    core->stats.gds_refused++;
    size_t before = all->why.size;
    if (base_buf_put_u32(&all->why, key->index) != YOLK_OK ||
        base_buf_put_u32(&all->why, (uint32_t)size) != YOLK_OK ||
        base_buf_append(&all->why, text, (size_t)size) != YOLK_OK)
        all->why.size = before;
    return status;
}

struct reasons {
    const struct base_buf *why;
    size_t at;
};

static struct wire_view reason_at(void *arg, uint32_t i)
{
    struct reasons *reasons = arg;
    const struct base_buf *why = reasons->why;
    if (i == 0)
        reasons->at = 0;
    if (reasons->at == why->size || wire_get_u32(why->data + reasons->at) != i)
        return (struct wire_view){NULL, 0};
    uint32_t size = wire_get_u32(why->data + reasons->at + 4);
    reasons->at += 8 + (size_t)size;
    return wire_view_of(why->data + reasons->at - size, size);
}

enum yolk_status master_gds_end(struct master_gdss *all, uint32_t count, struct base_buf *out)
{
    struct reasons reasons = {.why = &all->why};
    enum yolk_status status =
        all->why.size == 0 ? YOLK_OK : wire_keys_build_by(out, count, reason_at, &reasons);
    base_buf_free(&all->why);
    return status;
}

/* ---- descriptors ---- */

struct master_segment *master_gds_file(const struct master_core *core,
                                       const struct master_session *session)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->owner == session && segment->medium == WIRE_MEDIUM_GDS)
            return segment;
    }
    return NULL;
}

const char *master_gds_begin(const struct master_core *core, struct master_gdss *all,
                             const struct wire_put_start *msg, uint32_t count)
{
    base_buf_init(&all->why, 2 * MIB);
    if (msg->gds.size == 0)
        return NULL;
    if (wire_gdss_open(msg->gds, core->config.max_keys, &all->list) != YOLK_OK ||
        all->list.count != count)
        return "not one GDS descriptor, or nil, a key";
    all->file = master_gds_file(core, all->session);
    return NULL;
}

void master_gds_next(struct master_gdss *all)
{
    all->given = false;
    if (all->list.count > 0)
        (void)wire_gdss_next(&all->list, &all->gds, &all->given);
}

static bool is_id(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, WIRE_ID_SIZE) == 0;
}

static void id_text(const uint8_t id[WIRE_ID_SIZE], char out[2 * WIRE_ID_SIZE + 1])
{
    for (size_t i = 0; i < WIRE_ID_SIZE; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static enum yolk_status check_identity(struct master_core *core, struct master_gdss *all,
                                       const struct master_key *key)
{
    const struct wire_gds *gds = &all->gds;
    const struct master_segment *file = all->file;
    char id[2 * WIRE_ID_SIZE + 1], own[2 * WIRE_ID_SIZE + 1];
    if (!is_id(gds->owner_client_id, all->session->client_id)) {
        id_text(gds->owner_client_id, id);
        id_text(all->session->client_id, own);
        return refuse(core, all, key, YOLK_ERR_ACCESS,
                      "owner_client_id %s of its GDS descriptor is not the asking client, %s", id,
                      own);
    }
    id_text(gds->storage_id, id);
    if (file == NULL)
        return refuse(core, all, key, YOLK_ERR_NOT_FOUND,
                      "storage_id %s of its GDS descriptor is of no storage that this client has "
                      "registered",
                      id);
    if (!is_id(gds->storage_id, file->storage_id)) {
        id_text(file->storage_id, own);
        return refuse(core, all, key, YOLK_ERR_STALE,
                      "storage_id %s of its GDS descriptor is not the registered one, %s", id, own);
    }
    if (gds->storage_generation != file->storage_generation && !mutated(MUT_ANY_GENERATION))
        return refuse(core, all, key, YOLK_ERR_STALE,
                      "storage_generation %llu of its GDS descriptor is not the registered one, "
                      "%llu",
                      (unsigned long long)gds->storage_generation,
                      (unsigned long long)file->storage_generation);
    return YOLK_OK;
}

static enum yolk_status check_place(struct master_core *core, struct master_gdss *all,
                                    const struct master_key *key, uint64_t size)
{
    const struct wire_gds *gds = &all->gds;
    const struct master_segment *file = all->file;
    if (gds->value_size == 0)
        return refuse(core, all, key, YOLK_ERR_INVALID,
                      "value_size of its GDS descriptor is 0, and an empty value takes no extent");
    if (gds->value_size != size)
        return refuse(core, all, key, YOLK_ERR_INVALID,
                      "value_size %llu of its GDS descriptor is not the size of the value, %llu",
                      (unsigned long long)gds->value_size, (unsigned long long)size);
    if (gds->allocated_size < gds->value_size)
        return refuse(core, all, key, YOLK_ERR_INVALID,
                      "allocated_size %llu of its GDS descriptor is less than its value_size, %llu",
                      (unsigned long long)gds->allocated_size, (unsigned long long)gds->value_size);
    if (gds->allocated_size % MASTER_DISK_UNIT != 0 || gds->value_offset % MASTER_DISK_UNIT != 0)
        return refuse(
            core, all, key, YOLK_ERR_INVALID,
            "%s %llu of its GDS descriptor is not a multiple of %u",
            gds->allocated_size % MASTER_DISK_UNIT != 0 ? "allocated_size" : "value_offset",
            (unsigned long long)(gds->allocated_size % MASTER_DISK_UNIT != 0 ? gds->allocated_size
                                                                             : gds->value_offset),
            MASTER_DISK_UNIT);
    if (gds->allocated_size > file->size || gds->value_offset > file->size - gds->allocated_size)
        return refuse(core, all, key, YOLK_ERR_INVALID,
                      "value_offset %llu and allocated_size %llu of its GDS descriptor lie outside "
                      "of the file, which has %llu bytes",
                      (unsigned long long)gds->value_offset,
                      (unsigned long long)gds->allocated_size, (unsigned long long)file->size);
    return YOLK_OK;
}

enum yolk_status master_gds_check(struct master_core *core, struct master_gdss *all,
                                  const struct master_key *key, uint64_t size)
{
    if (!all->given)
        return YOLK_OK;
    enum yolk_status status = check_identity(core, all, key);
    return status != YOLK_OK ? status : check_place(core, all, key, size);
}

static struct master_extent *extent_from(const struct master_segment *segment, uint64_t offset)
{
    uint32_t handle = base_extents_seek(segment->alloc, offset);
    return handle == BASE_EXTENTS_NONE ? NULL : base_extents_owner(segment->alloc, handle);
}

/* INVALID: another value lies there. What the last mount did not confirm is not there any more, and
 * what the owner was told of as freed, it has freed: it allocates there. AGAIN: somebody was told
 * of a value of an earlier mount there, and is not known to be done; he reads nothing, as the owner
 * refuses him. */
static enum yolk_status make_way(struct master_core *core, struct master_segment *file,
                                 uint64_t offset, uint64_t size)
{
    struct master_extent *other;
    while ((other = extent_from(file, offset)) != NULL &&
           master_extent_offset(other) < offset + size) {
        bool dead = other->state == EXTENT_DEAD;
        if (!dead && other->epoch == file->epoch)
            return YOLK_ERR_INVALID;
        if (!dead) {
            master_replica_drop(core, other, GHOST_EXPIRED);
        } else if (other->refs > 0 || other->put != NULL) {
            return other->epoch == file->epoch ? YOLK_ERR_INVALID : YOLK_ERR_AGAIN;
        } else if (other->fact_state == FACT_FREED_SENT) {
            base_list_remove(&other->fact);
            other->fact_state = FACT_NONE;
            master_extent_settle(core, other);
        } else {
            return YOLK_ERR_INVALID;
        }
    }
    return YOLK_OK;
}

enum yolk_status master_gds_take(struct master_core *core, struct master_gdss *all,
                                 const struct master_key *key, struct master_put *put,
                                 const struct master_object *replaced)
{
    if (!all->given)
        return YOLK_OK;
    struct master_segment *file = all->file;
    uint64_t offset = all->gds.value_offset, size = all->gds.allocated_size;
    if (put->object->pin == PIN_HARD && !master_pin_fits(core, file, replaced, size)) {
        core->stats.put_pin_limit++;
        return refuse(core, all, key, YOLK_ERR_PIN_LIMIT,
                      "hard pins have %llu of the %llu bytes that they may take of the GDS file",
                      (unsigned long long)file->hard_bytes,
                      (unsigned long long)((double)file->size * core->config.hard_pin_ratio));
    }
    enum yolk_status status = make_way(core, file, offset, size);
    if (status != YOLK_OK)
        return refuse(core, all, key, status,
                      status == YOLK_ERR_AGAIN
                          ? "a reader of a value that lay at value_offset %llu of its GDS "
                            "descriptor is not known to be done"
                          : "another value lies at value_offset %llu of its GDS descriptor, or was "
                            "there and is not freed yet",
                      (unsigned long long)offset);
    struct master_extent *extent = master_extent_reserve(file, offset, size, EXTENT_OPEN);
    if (extent == NULL)
        return YOLK_ERR_NO_MEMORY;
    extent->fact_state = FACT_PLACED_SENT; /* the owner has just said so */
    extent->put = put;
    master_extent_attach(core, extent, put->object);
    put->extents[put->extent_count++] = extent;
    file->put_count++;
    core->stats.gds_starts++;
    return YOLK_OK;
}

enum yolk_status master_gds_same(struct master_core *core, struct master_gdss *all,
                                 const struct master_key *key, const struct master_put *put)
{
    const struct master_extent *own = NULL;
    for (uint32_t i = 0; i < put->extent_count; i++)
        if (put->extents[i]->segment->medium == WIRE_MEDIUM_GDS)
            own = put->extents[i];
    if (put->state != PUT_OPEN || (own == NULL && !all->given))
        return YOLK_OK;
    struct wire_gds gds = {0};
    if (own != NULL && own->object != NULL)
        gds = master_gds_of(own);
    if (all->given && wire_gds_equal(&gds, &all->gds))
        return YOLK_OK;
    return refuse(core, all, key, YOLK_ERR_INVALID,
                  "the operation began with %s GDS descriptor of this key",
                  own == NULL ? "no" : "another");
}

/* ---- room ---- */

/* What is given up for it is on its way as soon as its readers and writers end: the owner asks
 * again until it has an extent, or no time left. */
void master_gds_room(struct master_core *core, const struct wire_gds_room *msg)
{
    struct master_session *session = master_session_enter(core, &msg->request, WIRE_GDS_ROOM_REPLY);
    if (session == NULL)
        return;
    struct master_segment *file = master_segment_find(core, msg->segment);
    struct wire_gds_room_reply reply = {.status = YOLK_OK};
    char text[160];
    core->stats.gds_rooms++;
    if (file == NULL || file->owner != session || file->medium != WIRE_MEDIUM_GDS) {
        reply.status = YOLK_ERR_STALE;
        reply.text = wire_view_text("not a GDS file that this client has registered");
    } else if (msg->size == 0 || msg->size > file->size) {
        reply.status = msg->size == 0 ? YOLK_ERR_INVALID : YOLK_ERR_TOO_LARGE;
        snprintf(text, sizeof text, "size %llu is not between 1 and the file's %llu bytes",
                 (unsigned long long)msg->size, (unsigned long long)file->size);
        reply.text = wire_view_text(text);
    } else {
        uint64_t room = master_disk_room(msg->size);
        if (file->dead_bytes < room)
            (void)master_evict(core, file, room - file->dead_bytes, core->config.step);
        reply.pending = file->dead_bytes;
        if (reply.pending == 0) {
            core->stats.gds_no_room++;
            reply.status = YOLK_ERR_NO_SPACE;
            snprintf(text, sizeof text,
                     "nothing can be evicted from the GDS file now: of %llu bytes %llu are being "
                     "written, and the rest is read or pinned",
                     (unsigned long long)file->live_bytes + file->open_bytes,
                     (unsigned long long)file->open_bytes);
            reply.text = wire_view_text(text);
        }
    }
    master_reply(core, WIRE_GDS_ROOM_REPLY, &reply);
}
