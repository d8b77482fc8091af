/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/thread.h"
#include "store/message.h"

/* A segment whose transfers failed is tried last for so long. */
#define SICK_NS (2 * NS_PER_S)
/* Of a segment unused for so long the master is asked whether it is still there, when another is
 * opened: what is mapped keeps the memory of its owner, even of one that is dead. */
#define IDLE_NS NS_PER_S
enum { ASK_MAX = 8 }; /* at a time */

struct entry {
    struct entry *next;
    uint64_t id;
    uint64_t handle;
    uint64_t session;
    const void *bases[2]; /* of the map for the processor, and for GPUs; NULL: none */
    uint64_t map_size;
    uint32_t maps; /* users of the map */
    int dropped;   /* closed when the last map is given back */
    int near;      /* a transport of this machine served it */
    uint64_t sick_until_ns;
    uint64_t used_ns; /* last, or when the master was asked about it */
};

struct store_segments {
    struct yolk_engine *engine;
    struct store_client *client;
    struct store_holds *holds;
    const char *transport;
    struct mutex lock; /* protects the list; held over no I/O */
    struct entry *entries;
    uint64_t own; /* memory */
    uint64_t own_disk;
    uint64_t own_gds;
};

int store_segments_create(struct yolk_engine *engine, struct store_client *client,
                          struct store_holds *holds, const char *transport,
                          struct store_segments **out)
{
    struct store_segments *segments = calloc(1, sizeof(*segments));
    if (segments == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the table of segments");
    segments->engine = engine;
    segments->client = client;
    segments->holds = holds;
    segments->transport = transport;
    mutex_init(&segments->lock);
    *out = segments;
    return YOLK_OK;
}

static void close_entry(struct store_segments *segments, struct entry *entry)
{
    /* STALE means that it is closed already, which is what is wanted. */
    if (yolk_engine_segment_close(segments->engine, entry->handle) != YOLK_OK)
        entry->handle = 0;
    free(entry);
}

void store_segments_destroy(struct store_segments *segments)
{
    if (segments == NULL)
        return;
    while (segments->entries != NULL) {
        struct entry *entry = segments->entries;
        segments->entries = entry->next;
        close_entry(segments, entry);
    }
    mutex_destroy(&segments->lock);
    free(segments);
}

static struct entry *find(struct store_segments *segments, uint64_t id, uint64_t session)
{
    for (struct entry *entry = segments->entries; entry != NULL; entry = entry->next)
        if (entry->id == id && !entry->dropped && (session == 0 || entry->session == session))
            return entry;
    return NULL;
}

void store_endpoints_allowed(char *endpoints, const char *transport)
{
    size_t size = strlen(transport);
    if (strcmp(transport, "auto") == 0)
        return;
    for (char *at = endpoints; at[0] != '\0';) {
        char *end = strchr(at, ';');
        if (strncmp(at, transport, size) == 0 && at[size] == '=') {
            size_t length = end == NULL ? strlen(at) : (size_t)(end - at);
            memmove(endpoints, at, length);
            endpoints[length] = '\0';
            return;
        }
        at = end == NULL ? at + strlen(at) : end + 1;
    }
    endpoints[0] = '\0';
}

/* Where the segment is, as the master says; the views of `info` are in `reply`. */
static int ask(struct store_segments *segments, uint64_t id, uint64_t deadline_ns,
               struct wire_segment_info_reply *info, struct base_buf *reply)
{
    struct store_stamp stamp;
    struct store_message message;
    uint16_t kind = 0;

    store_message_init(&message);
    store_holds_stamp(segments->holds, &stamp);
    struct wire_segment_info question = {
        .request = store_message_request(&stamp, 0),
        .segment = id,
    };
    int status = wire_encode(WIRE_SEGMENT_INFO, &question, &message.body);
    if (status == YOLK_OK)
        status = store_client_call(segments->client, WIRE_SEGMENT_INFO, message.body.data,
                                   message.body.size, deadline_ns, &kind, reply);
    if (status == YOLK_OK)
        status = store_message_refused(WIRE_SEGMENT_INFO_REPLY, kind, reply->data, reply->size);
    if (status == YOLK_OK)
        status = wire_decode(WIRE_SEGMENT_INFO_REPLY, reply->data, reply->size, info);
    /* An id that the master does not know (any more) names a mount that is over. */
    if (status == YOLK_OK && info->status != YOLK_OK)
        status = info->status == YOLK_ERR_NOT_FOUND ? YOLK_ERR_STALE : info->status;
    store_message_free(&message);
    return status;
}

static int open_segment(struct store_segments *segments, uint64_t id, uint64_t session,
                        uint64_t deadline_ns, uint64_t *handle)
{
    struct wire_segment_info_reply info;
    struct base_buf reply;

    base_buf_init(&reply, MAX_FRAME_BODY);
    int status = ask(segments, id, deadline_ns, &info, &reply);
    if (status == YOLK_OK) {
        char endpoints[MAX_ENDPOINTS + 1];
        wire_view_copy_text(info.endpoints, endpoints, sizeof(endpoints));
        if (info.medium == WIRE_MEDIUM_MEMORY)
            store_endpoints_allowed(endpoints, segments->transport);
        struct yolk_segment_descriptor descriptor = {
            .id = id,
            .generation = info.generation,
            .size = info.size,
            .endpoints = endpoints,
        };
        status = yolk_engine_segment_open(segments->engine, &descriptor, session, handle);
    }
    base_buf_free(&reply);
    return status;
}

/* Segments that are no more are closed, a few at a time. */
static void close_gone(struct store_segments *segments, uint64_t deadline_ns)
{
    uint64_t ids[ASK_MAX], now_ns = clock_real_now_ns();
    size_t count = 0;
    mutex_lock(&segments->lock);
    for (struct entry *entry = segments->entries; entry != NULL && count < ASK_MAX;
         entry = entry->next) {
        if (entry->dropped || entry->used_ns + IDLE_NS > now_ns)
            continue;
        entry->used_ns = now_ns;
        ids[count++] = entry->id;
    }
    mutex_unlock(&segments->lock);
    for (size_t i = 0; i < count; i++) {
        struct wire_segment_info_reply info;
        struct base_buf reply;
        base_buf_init(&reply, MAX_FRAME_BODY);
        if (ask(segments, ids[i], deadline_ns, &info, &reply) == YOLK_ERR_STALE)
            store_segments_drop(segments, ids[i]);
        base_buf_free(&reply);
    }
    base_error_clear();
}

int store_segments_get(struct store_segments *segments, uint64_t id, uint64_t session,
                       uint64_t deadline_ns, uint64_t *handle)
{
    mutex_lock(&segments->lock);
    struct entry *entry = find(segments, id, session);
    if (entry != NULL) {
        *handle = entry->handle;
        entry->used_ns = clock_real_now_ns();
    }
    mutex_unlock(&segments->lock);
    if (entry != NULL)
        return YOLK_OK;

    struct entry *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a segment");
    int status = open_segment(segments, id, session, deadline_ns, &made->handle);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    close_gone(segments, deadline_ns);
    made->id = id;
    made->session = session;
    made->used_ns = clock_real_now_ns();
    mutex_lock(&segments->lock);
    entry = find(segments, id, session);
    if (entry == NULL) {
        made->next = segments->entries;
        segments->entries = made;
        entry = made;
        made = NULL;
    }
    *handle = entry->handle;
    mutex_unlock(&segments->lock);
    if (made != NULL)
        close_entry(segments, made); /* another thread was first */
    return YOLK_OK;
}

int store_segments_map(struct store_segments *segments, uint64_t id, uint64_t session,
                       uint64_t deadline_ns, bool gpu, const void **base, uint64_t *size)
{
    uint64_t handle, map_size = 0;
    const void *mapped = NULL;
    int status = store_segments_get(segments, id, session, deadline_ns, &handle);
    mutex_lock(&segments->lock);
    struct entry *entry = status == YOLK_OK ? find(segments, id, session) : NULL;
    if (entry != NULL && entry->handle == handle) {
        mapped = entry->bases[gpu];
        map_size = entry->map_size;
    }
    mutex_unlock(&segments->lock);
    /* Not under the lock, for it may have to connect. Whoever asks again is given the same. */
    if (status == YOLK_OK && mapped == NULL)
        status = gpu ? yolk_engine_segment_map_gpu(segments->engine, handle, &mapped, &map_size)
                     : yolk_engine_segment_map(segments->engine, handle, &mapped, &map_size);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&segments->lock);
    entry = find(segments, id, session);
    if (entry == NULL || entry->handle != handle) {
        status = YOLK_ERR_STALE; /* dropped meanwhile, and the mapping with it */
    } else {
        entry->bases[gpu] = mapped;
        entry->map_size = map_size;
        entry->maps++;
        *base = mapped;
        *size = map_size;
    }
    mutex_unlock(&segments->lock);
    return status;
}

int store_segments_check(struct store_segments *segments, uint64_t id, uint64_t session,
                         const void *base)
{
    uint64_t handle = 0, size;
    const void *now = NULL;
    bool gpu = false;
    mutex_lock(&segments->lock);
    const struct entry *entry = find(segments, id, session);
    if (entry != NULL && entry->maps > 0) {
        handle = entry->handle;
        gpu = entry->bases[1] == base;
    }
    mutex_unlock(&segments->lock);
    if (handle == 0)
        return base_fail(YOLK_ERR_LEASE_EXPIRED, 0,
                         "the session that held the value in place is over");
    /* Whoever asks again is given the same, unless the provider has ended. */
    int status = gpu ? yolk_engine_segment_map_gpu(segments->engine, handle, &now, &size)
                     : yolk_engine_segment_map(segments->engine, handle, &now, &size);
    if (status == YOLK_OK && now == base)
        return YOLK_OK;
    char why[256];
    (void)snprintf(why, sizeof(why), "%s", yolk_last_error());
    return base_fail(YOLK_ERR_PEER_DEAD, 0,
                     "the segment of the value is over: its provider ended, or mounted it anew%s%s",
                     why[0] != '\0' ? ": " : "", why);
}

void store_segments_unmap(struct store_segments *segments, const void *base)
{
    struct entry *closing = NULL;
    mutex_lock(&segments->lock);
    for (struct entry **at = &segments->entries; *at != NULL; at = &(*at)->next) {
        struct entry *entry = *at;
        if ((entry->bases[0] != base && entry->bases[1] != base) || entry->maps == 0)
            continue;
        if (--entry->maps == 0 && entry->dropped) {
            *at = entry->next;
            closing = entry;
        }
        break;
    }
    mutex_unlock(&segments->lock);
    if (closing != NULL)
        close_entry(segments, closing);
}

static void drop_where(struct store_segments *segments, int all, uint64_t id)
{
    struct entry *closing = NULL;
    mutex_lock(&segments->lock);
    struct entry **at = &segments->entries;
    while (*at != NULL) {
        struct entry *entry = *at;
        if (!all && entry->id != id) {
            at = &entry->next;
            continue;
        }
        entry->dropped = 1;
        if (entry->maps > 0) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        entry->next = closing;
        closing = entry;
    }
    mutex_unlock(&segments->lock);
    while (closing != NULL) {
        struct entry *entry = closing;
        closing = entry->next;
        close_entry(segments, entry);
    }
}

void store_segments_drop(struct store_segments *segments, uint64_t id)
{
    drop_where(segments, 0, id);
}

void store_segments_drop_all(struct store_segments *segments)
{
    drop_where(segments, 1, 0);
}

void store_segments_note(struct store_segments *segments, uint64_t id, int status,
                         const char *transport)
{
    int sick = yolk_status_scope(status) == YOLK_SCOPE_LINK ||
               yolk_status_scope(status) == YOLK_SCOPE_PEER;
    mutex_lock(&segments->lock);
    struct entry *entry = find(segments, id, 0);
    if (entry != NULL) {
        entry->sick_until_ns = sick ? clock_real_now_ns() + SICK_NS : 0;
        if (status == YOLK_OK && transport[0] != '\0')
            entry->near = strcmp(transport, "shm") == 0 || strcmp(transport, "loop") == 0;
    }
    mutex_unlock(&segments->lock);
}

void store_segments_set_own(struct store_segments *segments, uint64_t memory, uint64_t disk)
{
    mutex_lock(&segments->lock);
    segments->own = memory;
    segments->own_disk = disk;
    mutex_unlock(&segments->lock);
}

void store_segments_set_gds(struct store_segments *segments, uint64_t gds)
{
    mutex_lock(&segments->lock);
    segments->own_gds = gds;
    mutex_unlock(&segments->lock);
}

static uint32_t cost(void *self, const struct store_replica *replica)
{
    struct store_segments *segments = self;
    int memory = replica->medium == WIRE_MEDIUM_MEMORY;
    uint32_t result = memory                               ? STORE_COST_MEMORY
                      : replica->medium == WIRE_MEDIUM_GDS ? STORE_COST_GDS
                                                           : STORE_COST_DISK;
    mutex_lock(&segments->lock);
    struct entry *entry = find(segments, replica->segment, 0);
    if (replica->segment == segments->own)
        result = STORE_COST_OWN_MEMORY;
    else if (entry != NULL && entry->sick_until_ns > clock_real_now_ns())
        result = memory ? STORE_COST_SICK_MEMORY : STORE_COST_SICK_DISK;
    else if (replica->segment == segments->own_gds)
        result = STORE_COST_OWN_GDS;
    else if (replica->segment == segments->own_disk)
        result = STORE_COST_OWN_DISK;
    else if (entry != NULL && entry->near && memory)
        result = STORE_COST_NEAR_MEMORY;
    mutex_unlock(&segments->lock);
    return result;
}

struct store_replica_choice store_segments_choice(struct store_segments *segments)
{
    return (struct store_replica_choice){.self = segments, .cost = cost};
}
