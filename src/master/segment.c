/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: mount, loss, unmount, and when a recovered one may take new objects. */
#include "master/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct master_segment *master_segment_find(const struct master_core *core, uint64_t id)
{
    uint64_t slot = id >> 32;
    if (slot >= MAX_SEGMENTS)
        return NULL;
    struct master_segment *segment = core->by_slot[slot];
    return segment != NULL && segment->id == id ? segment : NULL;
}

/* Random generations: a restarted master must not give an id that an earlier one gave. */
static void new_id(struct master_core *core, struct master_segment *segment)
{
    uint64_t old = segment->id;
    do
        segment->id = (uint64_t)segment->slot << 32 | (uint32_t)(master_random(core) >> 32);
    while ((uint32_t)segment->id == 0 || segment->id == old || segment->id == segment->prior_id);
}

struct master_segment *master_segment_create(struct master_core *core, uint64_t size,
                                             uint64_t prior_id)
{
    uint32_t slot = 0;
    while (slot < core->config.max_segments && core->by_slot[slot] != NULL)
        slot++;
    if (slot == core->config.max_segments)
        return NULL;
    struct master_segment *segment = base_calloc(1, sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->order = base_calloc(1, core->config.policy->order_size);
    if (segment->order == NULL || base_extents_create(size, &segment->alloc) != YOLK_OK) {
        free(segment->order);
        free(segment);
        return NULL;
    }
    segment->size = size;
    segment->extent_slab = &core->extent_slab;
    segment->policy = core->config.policy;
    segment->policy->order_init(segment->order, core->policy_state);
    segment->slot = slot;
    segment->prior_id = prior_id;
    segment->dirty_head = &core->dirty;
    segment->trusting = true;
    segment->state = SEGMENT_LOST;
    segment->lost_at = core->now;
    master_tier_init(&segment->tier);
    base_list_init(&segment->dirty_link);
    base_list_init(&segment->probed);
    base_list_init(&segment->soft);
    base_list_init(&segment->hard);
    base_list_init(&segment->queue);
    base_list_init(&segment->freed);
    base_list_init(&segment->batches);
    base_list_init(&segment->fences);
    new_id(core, segment);
    core->by_slot[slot] = segment;
    core->segment_count++;
    base_list_push_back(&core->segments, &segment->link);
    return segment;
}

static void drop_fences(struct master_segment *segment)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&segment->fences)) != NULL)
        free(BASE_CONTAINER(node, struct master_fence, link));
}

void master_segment_destroy(struct master_core *core, struct master_segment *segment)
{
    master_facts_restart(segment);
    drop_fences(segment);
    base_list_remove(&segment->link);
    base_list_remove(&segment->dirty_link);
    core->by_slot[segment->slot] = NULL;
    core->segment_count--;
    core->gds_count -= segment->medium == WIRE_MEDIUM_GDS;
    base_extents_destroy(segment->alloc);
    free(segment->session_facts);
    free(segment->waits);
    free(segment->endpoints);
    free(segment->name);
    free(segment->order);
    free(segment);
}

static void set_state(struct master_core *core, struct master_segment *segment,
                      enum master_segment_state state)
{
    uint64_t capacity = master_segment_is_disk(segment) ? 0 : segment->size; /* for puts */
    if (segment->state == SEGMENT_OPEN)
        core->open_capacity -= capacity;
    if (state == SEGMENT_OPEN)
        core->open_capacity += capacity;
    segment->state = state;
}

void master_segment_lose(struct master_core *core, struct master_segment *segment)
{
    if (segment->unmount_pending && !master_segment_is_disk(segment)) {
        master_segment_go(core, segment);
        return;
    }
    master_tier_part(core, segment);
    set_state(core, segment, SEGMENT_LOST);
    segment->owner = NULL;
    segment->lost_at = core->now;
    segment->sweeping = false;
}

void master_segment_go(struct master_core *core, struct master_segment *segment)
{
    if (segment->state == SEGMENT_GONE)
        return;
    master_tier_part(core, segment);
    set_state(core, segment, SEGMENT_GONE);
    segment->owner = NULL;
    segment->epoch++;
    segment->sweeping = true;
    segment->sweep_at = 0;
    master_facts_restart(segment);
    drop_fences(segment);
    if (core->sink != NULL && core->sink->fact != NULL) {
        struct master_fact fact = {.kind = MASTER_FACT_UNMOUNTED, .segment = segment->id};
        core->sink->fact(core->sink->self, &fact);
    }
    /* Its memory is not given out again, so nothing has to be known of its writers. */
    BASE_LIST_FOREACH_SAFE(node, &core->zombies)
    {
        struct master_session *session = BASE_CONTAINER(node, struct master_session, link);
        master_session_fenced(core, session, segment);
    }
}

static char *copy_text(struct wire_view view)
{
    char *text = base_malloc(view.size + 1);
    if (text == NULL)
        return NULL;
    if (view.size > 0)
        memcpy(text, view.data, view.size);
    text[view.size] = 0;
    return text;
}

/* The segment which this memory was before, as far as this master knows. The answer to an earlier
 * mount may have been lost: then the owner still names the id from before that. */
static struct master_segment *find_prior(struct master_core *core,
                                         const struct master_session *session,
                                         const struct wire_segment_mount *msg)
{
    if (msg->generation == 0)
        return NULL;
    bool ours = memcmp(msg->prior_master, core->instance, WIRE_ID_SIZE) == 0;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state == SEGMENT_GONE || segment->size != msg->size ||
            segment->unmount_pending || master_segment_is_disk(segment))
            continue;
        if (segment->replayed && segment->id == msg->generation)
            return segment;
        if (memcmp(segment->client_id, session->client_id, WIRE_ID_SIZE) != 0)
            continue;
        if (ours && segment->id == msg->generation)
            return segment;
        if (segment->prior_id == msg->generation &&
            memcmp(segment->prior_master, msg->prior_master, WIRE_ID_SIZE) == 0)
            return segment;
    }
    return NULL;
}

/* A disk is known by its content, whoever had it before, and however large it was. */
static struct master_segment *find_disk(struct master_core *core,
                                        const struct wire_segment_mount *msg)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->state != SEGMENT_GONE && segment->medium == msg->medium &&
            memcmp(segment->storage_id, msg->storage_id, WIRE_ID_SIZE) == 0)
            return segment;
    }
    return NULL;
}

static struct master_segment *find_repeated(struct master_core *core,
                                            const struct master_session *session,
                                            const struct wire_segment_mount *msg)
{
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *segment = BASE_CONTAINER(node, struct master_segment, link);
        if (segment->owner == session && segment->mount_op == msg->request.op &&
            segment->mount_prior == msg->generation && segment->size == msg->size &&
            segment->medium == msg->medium &&
            segment->storage_generation == msg->storage_generation &&
            strlen(segment->name) == msg->name.size &&
            (msg->name.size == 0 || memcmp(segment->name, msg->name.data, msg->name.size) == 0))
            return segment;
    }
    return NULL;
}

/* Which sessions of before have to come back or be fenced. */
static bool set_waits(struct master_core *core, struct master_segment *segment,
                      const struct wire_segment_mount *msg)
{
    uint32_t count = wire_u64s_count(msg->old_sessions);
    free(segment->waits);
    segment->waits = NULL;
    segment->wait_count = 0;
    if (count == 0 || msg->medium != WIRE_MEDIUM_MEMORY) /* its owner alone writes there */
        return true;
    segment->waits = base_calloc(count, sizeof *segment->waits);
    if (segment->waits == NULL)
        return false;
    segment->wait_count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = wire_u64s_at(msg->old_sessions, i);
        /* One that this master knows, alive or not, has its guards and writers recorded here. */
        segment->waits[i] = (struct master_wait){
            .session = id, .registered = master_session_find(core, id) != NULL};
    }
    return true;
}

static void answer_mount(struct master_core *core, enum yolk_status status, uint64_t segment,
                         const char *text)
{
    struct wire_segment_mount_reply reply = {
        .status = status, .segment = segment, .text = wire_view_text(text)};
    master_reply(core, WIRE_SEGMENT_MOUNT_REPLY, &reply);
}

static const char *bad_mount(const struct master_core *core, const struct wire_segment_mount *msg)
{
    if (msg->size < BASE_EXTENTS_UNIT || msg->size > MAX_SEGMENT_SIZE ||
        msg->size % BASE_EXTENTS_UNIT != 0)
        return "size is not a multiple of 64 or out of range";
    if (msg->name.size > MAX_NAME_SIZE || msg->endpoints.size > MAX_ENDPOINTS)
        return "name or endpoints too long";
    if (wire_u64s_count(msg->old_sessions) > core->config.max_sessions * 2)
        return "too many old sessions";
    if (msg->medium == WIRE_MEDIUM_MEMORY)
        return NULL;
    if (!wire_medium_known(msg->medium))
        return "medium is neither memory (0) nor local disk (2) nor GDS (5)";
    static const uint8_t none[WIRE_ID_SIZE];
    if (memcmp(msg->storage_id, none, WIRE_ID_SIZE) == 0)
        return "a local disk or a GDS file without a storage_id";
    if (msg->size % MASTER_DISK_UNIT != 0)
        return "size of a local disk or a GDS file is not a multiple of 4096";
    if (msg->medium == WIRE_MEDIUM_GDS && msg->storage_generation == 0)
        return "a GDS file without a storage_generation";
    return NULL;
}

/* A session has at most one GDS file: whose descriptors are meant is never a question. */
static bool has_other(const struct master_core *core, const struct master_session *session,
                      const struct wire_segment_mount *msg)
{
    const struct master_segment *file =
        msg->medium == WIRE_MEDIUM_GDS ? master_gds_file(core, session) : NULL;
    return file != NULL && memcmp(file->storage_id, msg->storage_id, WIRE_ID_SIZE) != 0;
}

static void answer_unmount(struct master_core *core, struct master_segment *segment,
                           enum yolk_status status)
{
    struct wire_status_reply reply = {.status = status};
    if (segment->unmount_pending)
        master_send(core, segment->unmount_connection, segment->unmount_request,
                    WIRE_SEGMENT_UNMOUNT_REPLY, &reply);
    segment->unmount_pending = false;
}

/* Everything that can fail is done; from here the segment belongs to `session` under a new id. */
static void adopt(struct master_core *core, struct master_segment *segment,
                  struct master_session *session, const struct wire_segment_mount *msg, bool known)
{
    if (known) {
        segment->trusting = segment->trusting && !segment->offers_done;
        segment->prior_id = msg->generation;
        segment->epoch++;
        new_id(core, segment);
    }
    master_tier_part(core, segment);
    answer_unmount(core, segment, YOLK_OK); /* of a disk */
    set_state(core, segment, SEGMENT_RECOVERING);
    segment->owner = session;
    segment->size = msg->size;
    segment->mount_op = msg->request.op;
    segment->mount_prior = msg->generation;
    segment->mounted_at = core->now;
    segment->replayed = false;
    segment->sweeping = false;
    segment->offers_done = msg->mirror_count == 0;
    memcpy(segment->client_id, session->client_id, WIRE_ID_SIZE);
    memcpy(segment->prior_master, msg->prior_master, WIRE_ID_SIZE);
    memcpy(segment->ticket_key, msg->ticket_key, sizeof segment->ticket_key);
    master_facts_restart(segment);
    if (master_segment_is_disk(segment)) {
        master_facts_void(core, segment);
    } else {
        BASE_LIST_FOREACH(node, &segment->fences)
        BASE_CONTAINER(node, struct master_fence, link)->next_send = 0;
        master_facts_sessions(core, segment);
    }
    master_tier_pair(core, segment);
}

/* NULL without room for it. A disk is believed what it offers unless this master knew it. */
static struct master_segment *create_for(struct master_core *core,
                                         const struct wire_segment_mount *msg)
{
    struct master_segment *segment = master_segment_create(core, msg->size, msg->generation);
    if (segment == NULL || msg->medium == WIRE_MEDIUM_MEMORY)
        return segment;
    segment->medium = msg->medium;
    segment->storage_generation = msg->storage_generation;
    core->gds_count += segment->medium == WIRE_MEDIUM_GDS;
    memcpy(segment->storage_id, msg->storage_id, WIRE_ID_SIZE);
    segment->trusting = !master_storage_seen(core, msg->storage_id);
    if (master_storage_note(core, msg->storage_id) == YOLK_OK)
        return segment;
    master_segment_destroy(core, segment);
    return NULL;
}

void master_segment_mount(struct master_core *core, const struct wire_segment_mount *msg)
{
    struct master_session *session =
        master_session_enter(core, &msg->request, WIRE_SEGMENT_MOUNT_REPLY);
    if (session == NULL)
        return;
    const char *bad = bad_mount(core, msg);
    if (bad != NULL) {
        answer_mount(core, YOLK_ERR_INVALID, 0, bad);
        return;
    }
    struct master_segment *segment = find_repeated(core, session, msg);
    if (segment != NULL) {
        answer_mount(core, YOLK_OK, segment->id, "");
        return;
    }
    bool disk = msg->medium != WIRE_MEDIUM_MEMORY;
    if (disk && has_other(core, session, msg)) {
        answer_mount(core, YOLK_ERR_EXISTS, 0, "the session has registered another GDS file");
        return;
    }
    segment = disk ? find_disk(core, msg) : find_prior(core, session, msg);
    bool known = segment != NULL;
    /* Two processes cannot have it: the other one is dead, and its memory with it. */
    if (disk && known && segment->owner != NULL && segment->owner != session)
        master_session_expire(core, segment->owner);
    if (known && segment->storage_generation != msg->storage_generation) {
        master_segment_go(core, segment); /* the file was made anew: what it held is gone */
        known = false;
    }
    if (!known) {
        segment = create_for(core, msg);
        if (segment == NULL) {
            answer_mount(core, YOLK_ERR_LIMIT, 0, "too many segments");
            return;
        }
    }
    char *endpoints = copy_text(msg->endpoints), *name = copy_text(msg->name);
    if (endpoints == NULL || name == NULL || !set_waits(core, segment, msg) ||
        base_extents_grow(segment->alloc, msg->size) != YOLK_OK) {
        free(endpoints);
        free(name);
        if (!known)
            master_segment_destroy(core, segment);
        answer_mount(core, YOLK_ERR_NO_MEMORY, 0, "");
        return;
    }
    free(segment->endpoints);
    free(segment->name);
    segment->endpoints = endpoints;
    segment->name = name;
    master_spread_mounted(core, segment);
    adopt(core, segment, session, msg, known);
    BASE_LIST_FOREACH_SAFE(node, &core->sessions)
    {
        struct master_session *holder = BASE_CONTAINER(node, struct master_session, link);
        if (msg->generation != 0 && !disk &&
            master_held_apply(core, holder, segment, msg->generation) != YOLK_OK)
            master_session_expire(core, holder);
    }
    if (core->sink->fact != NULL) {
        struct master_fact fact = {.kind = MASTER_FACT_MOUNTED,
                                   .segment = segment->id,
                                   .size = segment->size,
                                   .key = segment->name,
                                   .key_size = strlen(segment->name),
                                   .medium = segment->medium,
                                   .storage_id = segment->storage_id,
                                   .storage_generation = segment->storage_generation};
        core->sink->fact(core->sink->self, &fact);
    }
    answer_mount(core, YOLK_OK, segment->id, "");
    if (segment->offers_done)
        segment->sweeping = known;
    segment->sweep_at = 0;
    master_segment_try_open(core, segment);
}

void master_segment_try_open(struct master_core *core, struct master_segment *segment)
{
    if (segment->state != SEGMENT_RECOVERING || !segment->offers_done)
        return;
    uint64_t ttl = core->config.guard_ttl_ms + core->config.guard_margin_ms;
    if (ttl < core->config.session_ttl_ms)
        ttl = core->config.session_ttl_ms;
    bool ttl_over = core->now - segment->mounted_at >= master_ms(ttl);
    bool ready = true;
    for (uint32_t i = 0; i < segment->wait_count; i++) {
        struct master_wait *wait = &segment->waits[i];
        if (wait->registered || (wait->fenced && ttl_over))
            continue;
        ready = false;
        if (ttl_over && !wait->fenced)
            master_fence_add(core, segment, wait->session);
    }
    if (!ready)
        return;
    set_state(core, segment, SEGMENT_OPEN);
    free(segment->waits);
    segment->waits = NULL;
    segment->wait_count = 0;
}

/* Drops what the last mount did not confirm, or everything of a segment that is gone. */
static bool sweep(struct master_core *core, struct master_segment *segment, uint32_t budget)
{
    while (budget-- > 0) {
        uint32_t handle = base_extents_seek(segment->alloc, segment->sweep_at);
        if (handle == BASE_EXTENTS_NONE) {
            segment->sweeping = false;
            return false;
        }
        struct master_extent *extent = base_extents_owner(segment->alloc, handle);
        segment->sweep_at = master_extent_offset(extent) + master_extent_size(extent);
        if (extent->state == EXTENT_DEAD)
            master_extent_settle(core, extent);
        else if (extent->epoch != segment->epoch)
            master_replica_drop(core, extent, GHOST_EXPIRED);
    }
    return true;
}

bool master_segment_tick(struct master_core *core, struct master_segment *segment)
{
    bool more = segment->sweeping && sweep(core, segment, core->config.step);
    if (segment->state == SEGMENT_GONE) {
        bool empty = base_extents_used_count(segment->alloc) == 0;
        if (empty)
            answer_unmount(core, segment, YOLK_OK);
        else if (!segment->sweeping && segment->unmount_pending &&
                 core->now >= segment->unmount_deadline)
            answer_unmount(core, segment, YOLK_ERR_BUSY);
        if (empty)
            master_segment_destroy(core, segment);
        return more && !empty;
    }
    if (segment->state == SEGMENT_LOST) {
        bool disk = master_segment_is_disk(segment);
        uint64_t keep = disk ? core->config.disk_lost_keep_ms : core->config.lost_keep_ms;
        if (segment->guarded == 0)
            answer_unmount(core, segment, YOLK_OK);
        else if (core->now >= segment->unmount_deadline)
            answer_unmount(core, segment, YOLK_ERR_BUSY);
        if (core->now - segment->lost_at >= master_ms(keep))
            master_segment_go(core, segment);
        return false;
    }
    master_segment_try_open(core, segment);
    more |= master_evict_background(core, segment, core->config.step);
    if (segment->unmount_pending && !master_tier_leaves(core, segment, 0)) {
        master_segment_go(core, segment);
        return true;
    }
    more |= master_tier_ahead(core, segment, core->config.step);
    master_facts_resend(core, segment, false);
    master_tier_resend(core, segment, false);
    master_fence_push(core, segment, false);
    return more;
}

void master_segment_unmount(struct master_core *core, const struct wire_segment_unmount *msg)
{
    struct master_session *session =
        master_session_enter(core, &msg->request, WIRE_SEGMENT_UNMOUNT_REPLY);
    if (session == NULL)
        return;
    struct master_segment *segment = master_segment_find(core, msg->segment);
    if (segment == NULL) {
        master_reply_status(core, WIRE_SEGMENT_UNMOUNT_REPLY, YOLK_OK, "not mounted any more");
        return;
    }
    if (memcmp(segment->client_id, session->client_id, WIRE_ID_SIZE) != 0) {
        master_reply_status(core, WIRE_SEGMENT_UNMOUNT_REPLY, YOLK_ERR_ACCESS, "not its owner");
        return;
    }
    uint64_t grace = msg->grace_ms > 3600000 ? 3600000 : msg->grace_ms;
    if (!segment->unmount_pending)
        segment->unmount_deadline = core->now + master_ms(grace);
    segment->unmount_pending = true;
    segment->unmount_connection = core->connection;
    segment->unmount_request = core->request_id;
    if (master_segment_is_disk(segment))
        master_segment_lose(core, segment); /* its content comes back with its next owner */
    else if (!master_tier_leaves(core, segment, grace))
        master_segment_go(core, segment);
}

void master_segment_info(struct master_core *core, const struct wire_segment_info *msg)
{
    if (master_session_enter(core, &msg->request, WIRE_SEGMENT_INFO_REPLY) == NULL)
        return;
    struct master_segment *segment = master_segment_find(core, msg->segment);
    struct wire_segment_info_reply reply = {.status = YOLK_ERR_NOT_FOUND, .segment = msg->segment};
    if (segment != NULL && segment->owner != NULL) {
        reply.status = YOLK_OK;
        reply.size = segment->size;
        reply.generation = segment->id & UINT32_MAX;
        reply.endpoints = wire_view_text(segment->endpoints);
        reply.owner_session = segment->owner->id;
        reply.medium = segment->medium;
    }
    master_reply(core, WIRE_SEGMENT_INFO_REPLY, &reply);
}
