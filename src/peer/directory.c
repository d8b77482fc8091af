/* SPDX-License-Identifier: Apache-2.0 */
/* Other peers and files by handle. What is known of a peer may be old: when its engine segment
 * turns out dead or of an earlier life, the peer is asked anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/internal.h"
#include "platform/clock.h"
#include "wire/msg.h"

#define ASK_AGAIN_NS NS_PER_S

void peer_directory_init(struct peer_directory *directory)
{
    memset(directory, 0, sizeof(*directory));
    mutex_init(&directory->lock);
}

static void entry_destroy(struct yolk_peer *peer, struct peer_entry *entry)
{
    if (entry->engine_segment != 0)
        base_ignore(yolk_engine_segment_close(peer->engine, entry->engine_segment));
    peer_call_free(&entry->call);
    mutex_destroy(&entry->lock);
    free(entry);
}

void peer_directory_free(struct yolk_peer *peer)
{
    struct peer_directory *directory = &peer->directory;
    for (size_t i = 0; i < directory->count; i++)
        entry_destroy(peer, directory->entries[i]);
    free(directory->entries);
    mutex_destroy(&directory->lock);
}

/* ---- asking ---- */

void peer_metadata_key(const char *name, char key[PEER_KEY_MAX])
{
    snprintf(key, PEER_KEY_MAX, "mooncake/yolk/%s", name);
}

/* host:port of the handshake. */
static enum yolk_status address_of(struct yolk_peer *peer, const char *name, uint64_t deadline_ns,
                                   char address[METADATA_VALUE_MAX])
{
    char key[PEER_KEY_MAX];
    if (peer->metadata == NULL) {
        snprintf(address, METADATA_VALUE_MAX, "%s", name);
        return YOLK_OK;
    }
    peer_metadata_key(name, key);
    enum yolk_status status =
        peer->metadata->ops->get(peer->metadata, key, address, METADATA_VALUE_MAX, deadline_ns);
    return status == YOLK_ERR_NOT_FOUND
               ? base_fail(status, 0, "the metadata service knows no peer \"%s\"", name)
               : status;
}

static enum yolk_status describe(struct yolk_peer *peer, struct peer_entry *entry, bool buffers,
                                 uint64_t deadline_ns, struct base_buf *body,
                                 struct wire_peer_describe_reply *reply)
{
    char address[METADATA_VALUE_MAX];
    const struct wire_peer_describe request = {.buffers = buffers};
    enum yolk_status status = address_of(peer, entry->name, deadline_ns, address);
    if (status == YOLK_OK)
        status = peer_call(&entry->call, &peer->call, address, WIRE_PEER_DESCRIBE, &request,
                           deadline_ns, body);
    if (status == YOLK_OK)
        status = wire_decode(WIRE_PEER_DESCRIBE_REPLY, body->data, body->size, reply);
    if (status == YOLK_OK && (reply->segment == 0 || reply->endpoints.size >= MAX_ENDPOINTS))
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "the peer %s describes no segment", entry->name);
    return status;
}

static void forget(struct yolk_peer *peer, struct peer_entry *entry)
{
    if (entry->engine_segment != 0)
        base_ignore(yolk_engine_segment_close(peer->engine, entry->engine_segment));
    entry->engine_segment = 0;
    entry->remote_segment = 0;
}

static enum yolk_status adopt(struct yolk_peer *peer, struct peer_entry *entry,
                              const struct wire_peer_describe_reply *reply)
{
    char endpoints[MAX_ENDPOINTS];
    uint64_t segment;
    memcpy(endpoints, reply->endpoints.data, reply->endpoints.size);
    endpoints[reply->endpoints.size] = '\0';
    const struct yolk_segment_descriptor descriptor = {
        .id = reply->segment, .size = YOLK_ADDRESSES_SIZE, .endpoints = endpoints};
    enum yolk_status status =
        yolk_engine_segment_open(peer->engine, &descriptor, peer->segment, &segment);
    if (status != YOLK_OK)
        return status;
    forget(peer, entry);
    entry->engine_segment = segment;
    entry->remote_segment = reply->segment;
    return YOLK_OK;
}

/* The entry's lock is held. */
static enum yolk_status ask(struct yolk_peer *peer, struct peer_entry *entry)
{
    struct base_buf body;
    uint64_t now = clock_real_now_ns();
    /* Of itself a process knows all: its address may be one that only others can use. */
    struct wire_peer_describe_reply reply = {
        .segment = peer->segment, .endpoints = wire_view_text(yolk_served_endpoints(peer->served))};
    enum yolk_status status = YOLK_OK;
    base_buf_init(&body, MAX_FRAME_BODY);
    if (strcmp(entry->name, peer->name) != 0)
        status = describe(peer, entry, false, clock_after_ms(now, peer->timeout_ms), &body, &reply);
    /* The same life with troubled routes is adopted too: they begin anew. One that is sound stays
     * as it is, because others may be using it since the caller found an earlier one out of date.
     */
    bool sound = status == YOLK_OK && reply.segment == entry->remote_segment &&
                 entry->engine_segment != 0 &&
                 yolk_engine_segment_health(peer->engine, entry->engine_segment) == YOLK_OK;
    if (status == YOLK_OK && !sound)
        status = adopt(peer, entry, &reply);
    base_buf_free(&body);
    entry->asked_ns = clock_real_now_ns();
    entry->last = status;
    return status;
}

static enum yolk_status open_file(struct yolk_peer *peer, struct peer_entry *entry)
{
    enum yolk_status status =
        yolk_engine_file_open(peer->engine, entry->name, 1, &entry->engine_segment, NULL);
    if (status == YOLK_OK)
        return status;
    return yolk_engine_file_open(peer->engine, entry->name, 0, &entry->engine_segment, NULL);
}

enum yolk_status peer_entry_segment(struct yolk_peer *peer, struct peer_entry *entry, bool now,
                                    uint64_t *engine_segment)
{
    enum yolk_status status = YOLK_OK;
    mutex_lock(&entry->lock);
    if (!entry->is_file) {
        bool sound = entry->engine_segment != 0 &&
                     yolk_engine_segment_health(peer->engine, entry->engine_segment) == YOLK_OK;
        bool soon = entry->asked_ns != 0 && clock_real_now_ns() - entry->asked_ns < ASK_AGAIN_NS;
        if ((!sound && !soon) || now)
            status = ask(peer, entry);
        else if (entry->engine_segment == 0)
            status =
                base_fail(entry->last, 0, "the peer %s did not answer a moment ago", entry->name);
        /* What is known of one that does not answer is tried all the same: the engine says what it
         * finds, and a peer with a sick handshake may still move bytes. */
        if (status != YOLK_OK && entry->engine_segment != 0 && !now)
            status = YOLK_OK;
    }
    *engine_segment = entry->engine_segment;
    mutex_unlock(&entry->lock);
    return status;
}

/* ---- handles ---- */

static size_t place_of(const struct peer_directory *directory, uint64_t number)
{
    size_t low = 0, high = directory->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (directory->entries[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct peer_entry *find_locked(const struct peer_directory *directory, uint64_t number)
{
    size_t place = place_of(directory, number);
    return place < directory->count && directory->entries[place]->number == number
               ? directory->entries[place]
               : NULL;
}

struct peer_entry *peer_directory_find(struct yolk_peer *peer, uint64_t segment,
                                       enum yolk_status *status)
{
    *status = peer_check(peer);
    if (*status != YOLK_OK)
        return NULL;
    mutex_lock(&peer->directory.lock);
    struct peer_entry *entry = find_locked(&peer->directory, segment);
    if (entry != NULL)
        atomic_fetch_add(&entry->users, 1);
    mutex_unlock(&peer->directory.lock);
    if (entry == NULL)
        *status =
            base_fail(YOLK_ERR_STALE, 0, "segment %llu is not open", (unsigned long long)segment);
    return entry;
}

void peer_entry_release(struct yolk_peer *peer, struct peer_entry *entry)
{
    if (atomic_fetch_sub(&entry->users, 1) == 1)
        entry_destroy(peer, entry);
}

static enum yolk_status insert(struct peer_directory *directory, struct peer_entry *entry)
{
    if (directory->count >= PEER_SEGMENTS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "%d segments are open already", PEER_SEGMENTS_MAX);
    if (directory->last_number == INT32_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "every segment number was used once");
    if (directory->count == directory->room) {
        size_t room = directory->room == 0 ? 16 : directory->room * 2;
        struct peer_entry **entries = realloc(directory->entries, room * sizeof(*entries));
        if (entries == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a segment");
        directory->entries = entries;
        directory->room = room;
    }
    entry->number = ++directory->last_number; /* the greatest: the array stays sorted */
    directory->entries[directory->count++] = entry;
    return YOLK_OK;
}

static struct peer_entry *find_name(struct peer_directory *directory, const char *name)
{
    for (size_t i = 0; i < directory->count; i++)
        if (strcmp(directory->entries[i]->name, name) == 0)
            return directory->entries[i];
    return NULL;
}

static enum yolk_status make(const char *name, struct peer_entry **out)
{
    struct peer_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a segment");
    mutex_init(&entry->lock);
    peer_call_init(&entry->call);
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->is_file = strncmp(name, "file://", 7) == 0;
    entry->opened = 1;
    entry->users = 1;
    *out = entry;
    return YOLK_OK;
}

enum yolk_status yolk_peer_open(struct yolk_peer *peer, const char *name, uint64_t *segment)
{
    if (peer == NULL || name == NULL || segment == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "opening a peer needs its name");
    enum yolk_status status = peer_check(peer);
    if (status != YOLK_OK)
        return status;
    if (name[0] == '\0')
        name = peer->name;
    if (strlen(name) >= PEER_NAME_MAX)
        return base_fail(YOLK_ERR_TOO_LARGE, 0, "a peer's name has at most %d bytes",
                         PEER_NAME_MAX - 1);
    struct peer_directory *directory = &peer->directory;
    mutex_lock(&directory->lock);
    struct peer_entry *known = find_name(directory, name);
    if (known != NULL) {
        known->opened++;
        *segment = known->number;
    }
    mutex_unlock(&directory->lock);
    if (known != NULL)
        return YOLK_OK;
    struct peer_entry *entry = NULL;
    status = make(name, &entry);
    if (status != YOLK_OK)
        return status;
    status = entry->is_file ? open_file(peer, entry) : ask(peer, entry);
    mutex_lock(&directory->lock);
    known = status == YOLK_OK ? find_name(directory, name) : NULL; /* another thread was faster */
    if (known != NULL) {
        known->opened++;
        *segment = known->number;
    } else if (status == YOLK_OK) {
        status = insert(directory, entry);
        *segment = entry->number;
    }
    mutex_unlock(&directory->lock);
    if (known != NULL || status != YOLK_OK)
        entry_destroy(peer, entry);
    return status;
}

enum yolk_status yolk_peer_close(struct yolk_peer *peer, uint64_t segment)
{
    if (peer == NULL)
        return YOLK_ERR_INVALID;
    struct peer_directory *directory = &peer->directory;
    mutex_lock(&directory->lock);
    struct peer_entry *entry = find_locked(directory, segment);
    bool last = entry != NULL && --entry->opened == 0;
    if (last) {
        size_t place = place_of(directory, segment);
        memmove(&directory->entries[place], &directory->entries[place + 1],
                (--directory->count - place) * sizeof(struct peer_entry *));
    }
    mutex_unlock(&directory->lock);
    if (entry == NULL)
        return base_fail(YOLK_ERR_STALE, 0, "segment %llu is not open",
                         (unsigned long long)segment);
    if (last)
        peer_entry_release(peer, entry);
    return YOLK_OK;
}

/* ---- looking at others ---- */

static enum yolk_status take_buffers(const struct wire_peer_describe_reply *reply,
                                     struct yolk_peer_buffer **out, size_t *count)
{
    *count = reply->buffers.size / WIRE_PEER_BUFFER_SIZE;
    *out = calloc(*count + 1, sizeof(**out));
    if (*out == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to list %zu buffers", *count);
    for (size_t i = 0; i < *count; i++) {
        const uint8_t *record = reply->buffers.data + i * WIRE_PEER_BUFFER_SIZE;
        struct yolk_peer_buffer *buffer = &(*out)[i];
        buffer->address = base_load_u64(record);
        buffer->size = base_load_u64(record + 8);
        buffer->permission =
            base_load_u32(record + 16) >= YOLK_REMOTE_WRITE ? YOLK_REMOTE_WRITE : YOLK_REMOTE_READ;
        memcpy(buffer->location, record + 20, sizeof(buffer->location));
        buffer->location[sizeof(buffer->location) - 1] = '\0';
    }
    return YOLK_OK;
}

static enum yolk_status file_buffer(struct yolk_peer *peer, struct peer_entry *entry,
                                    struct yolk_peer_buffer **out, size_t *count)
{
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to list a file");
    (*out)->permission = YOLK_REMOTE_WRITE;
    snprintf((*out)->location, sizeof((*out)->location), "file");
    *count = 1;
    return yolk_engine_segment_size(peer->engine, entry->engine_segment, &(*out)->size);
}

enum yolk_status yolk_peer_buffers(struct yolk_peer *peer, uint64_t segment,
                                   struct yolk_peer_buffer **buffers, size_t *count)
{
    if (peer == NULL || buffers == NULL || count == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "listing buffers needs room for the answer");
    enum yolk_status status;
    struct peer_entry *entry = peer_directory_find(peer, segment, &status);
    if (entry == NULL)
        return status;
    *buffers = NULL;
    *count = 0;
    if (entry->is_file) {
        status = file_buffer(peer, entry, buffers, count);
    } else {
        struct base_buf body;
        struct wire_peer_describe_reply reply;
        base_buf_init(&body, MAX_FRAME_BODY);
        status = describe(peer, entry, true, clock_after_ms(clock_real_now_ns(), peer->timeout_ms),
                          &body, &reply);
        if (status == YOLK_OK)
            status = take_buffers(&reply, buffers, count);
        base_buf_free(&body);
    }
    peer_entry_release(peer, entry);
    return status;
}

enum yolk_status yolk_peer_probe(struct yolk_peer *peer, uint64_t segment, uint64_t timeout_ms)
{
    if (peer == NULL)
        return YOLK_ERR_INVALID;
    enum yolk_status status;
    struct peer_entry *entry = peer_directory_find(peer, segment, &status);
    if (entry == NULL)
        return status;
    if (!entry->is_file) {
        struct base_buf body;
        struct wire_peer_describe_reply reply;
        base_buf_init(&body, MAX_FRAME_BODY);
        status = describe(peer, entry, false, clock_after_ms(clock_real_now_ns(), timeout_ms),
                          &body, &reply);
        mutex_lock(&entry->lock);
        bool other = status == YOLK_OK && reply.segment != entry->remote_segment;
        if (other)
            status = adopt(peer, entry, &reply);
        mutex_unlock(&entry->lock);
        if (other && status == YOLK_OK)
            status = base_fail(YOLK_ERR_STALE, 0, "another process answers as %s now", entry->name);
        base_buf_free(&body);
    }
    peer_entry_release(peer, entry);
    return status;
}

enum yolk_status peer_entry_notify(struct yolk_peer *peer, struct peer_entry *entry,
                                   const char *name, const void *message, size_t message_size)
{
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), peer->timeout_ms);
    const struct wire_peer_notify request = {.name = wire_view_text(name),
                                             .message = wire_view_of(message, message_size)};
    char address[METADATA_VALUE_MAX];
    struct wire_status_reply reply;
    struct base_buf body;
    base_buf_init(&body, MAX_FRAME_BODY);
    enum yolk_status status =
        entry->is_file ? base_fail(YOLK_ERR_UNSUPPORTED, 0, "a file takes no notification")
                       : address_of(peer, entry->name, deadline_ns, address);
    if (status == YOLK_OK)
        status = peer_call(&entry->call, &peer->call, address, WIRE_PEER_NOTIFY, &request,
                           deadline_ns, &body);
    if (status == YOLK_OK)
        status = wire_decode(WIRE_PEER_NOTIFY_REPLY, body.data, body.size, &reply);
    if (status == YOLK_OK && reply.status != YOLK_OK) {
        char text[MAX_LAST_ERROR / 2];
        wire_view_copy_text(reply.text, text, sizeof(text));
        status = base_fail(reply.status, 0, "the peer %s: %s", entry->name, text);
    }
    base_buf_free(&body);
    return status;
}

enum yolk_status yolk_peer_notify(struct yolk_peer *peer, uint64_t segment, const char *name,
                                  const void *message, size_t message_size)
{
    if (peer == NULL || name == NULL || (message == NULL && message_size > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "a notification needs a name and a message");
    enum yolk_status status = peer_notification_check(name, message_size);
    if (status != YOLK_OK)
        return status;
    struct peer_entry *entry = peer_directory_find(peer, segment, &status);
    if (entry == NULL)
        return status;
    status = peer_entry_notify(peer, entry, name, message, message_size);
    peer_entry_release(peer, entry);
    return status;
}
