/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: registered buffers of the caller, and values used where they lie. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "engine/bulk.h"
#include "platform/clock.h"
#include "store/internal.h"
#include "store/message.h"

/* What stands behind a struct yolk_buffer. */
struct pin {
    uint64_t op;               /* holds the value in place; 0: it is a copy */
    const void *base;          /* of the mapped segment; NULL: it is a copy */
    uint64_t segment, session; /* it was mapped as */
    void *copy;
};

enum yolk_status yolk_store_register_buffer(struct yolk_store *store, void *pointer, size_t size)
{
    if (pointer == NULL || size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "register_buffer needs memory of at least one byte");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    struct store_registration *made = calloc(1, sizeof(*made));
    status = made == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a registration")
                          : (int)yolk_engine_register(store->engine, pointer, size);
    if (status == YOLK_OK) {
        made->pointer = pointer;
        made->size = size;
        mutex_lock(&store->lock);
        made->next = store->registrations;
        store->registrations = made;
        mutex_unlock(&store->lock);
    } else {
        free(made);
    }
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_unregister_buffer(struct yolk_store *store, void *pointer)
{
    struct store_registration *found = NULL;
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    mutex_lock(&store->lock);
    for (struct store_registration **at = &store->registrations; *at != NULL; at = &(*at)->next) {
        if ((*at)->pointer != pointer)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    mutex_unlock(&store->lock);
    status = found == NULL
                 ? base_fail(YOLK_ERR_NOT_REGISTERED, 0, "no buffer registered at %p", pointer)
                 : (int)yolk_engine_unregister(store->engine, pointer, found->size);
    if (found != NULL && status == YOLK_ERR_BUSY) {
        mutex_lock(&store->lock);
        found->next = store->registrations;
        store->registrations = found;
        mutex_unlock(&store->lock);
    } else {
        free(found);
    }
    store_leave(store);
    return status;
}

/* One GET_START for one key, tried again while there is no session. On success the op lives on and
 * the places are in *granted and replicas[]. */
struct place {
    uint64_t op;
    uint64_t session;
    uint64_t epoch;
    uint64_t size;
    uint32_t replica_count;
    struct store_replica replicas[STORE_REPLICAS_MAX];
};

static int try_locate(struct yolk_store *store, const struct store_item *item, uint32_t flags,
                      uint64_t deadline_ns, struct place *place)
{
    struct store_message message;
    struct store_stamp stamp;
    struct store_grants grants;
    struct base_buf reply;
    uint32_t index = 0;
    uint16_t kind = 0;

    store_message_init(&message);
    base_buf_init(&reply, MAX_FRAME_BODY);
    place->op = store_holds_begin(store->holds);
    store_holds_stamp(store->holds, &stamp);
    int status = YOLK_OK;
    if (stamp.session == 0 || place->op == 0)
        status = base_fail(YOLK_ERR_LINK, 0, "no session with the master at %s", store->master);
    if (status == YOLK_OK)
        status = store_message_get_start(&message, &stamp, place->op, item, &index, 1, flags);
    if (status == YOLK_OK)
        status = store_client_call(store->client, WIRE_GET_START, message.body.data,
                                   message.body.size, deadline_ns, &kind, &reply);
    if (status == YOLK_OK)
        status = store_message_refused(WIRE_GET_START_REPLY, kind, reply.data, reply.size);
    if (status == YOLK_OK) {
        store_holds_acknowledge(store->holds, &stamp);
        status = store_message_grants(WIRE_GET_START_REPLY, reply.data, reply.size, &grants);
    }
    if (status == YOLK_OK && grants.count != 1)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "the master answered %u places for one key",
                           grants.count);
    if (status == YOLK_OK) {
        struct wire_result result = wire_result_at(grants.results, 0);
        place->session = stamp.session;
        place->epoch = stamp.epoch;
        place->size = result.size;
        place->replica_count =
            result.replica_count < STORE_REPLICAS_MAX ? result.replica_count : STORE_REPLICAS_MAX;
        status = result.first == 0
                     ? store_message_replicas(&grants, place->replicas, place->replica_count)
                     : (int)YOLK_ERR_PROTOCOL;
        /* The key's own answer: NOT_FOUND is final, not a lost session. */
        if (status == YOLK_OK && result.status != YOLK_OK) {
            status = base_fail(result.status, 0, "%s", yolk_strerror(result.status));
            place->session = 0;
        }
    } else {
        place->session = 0;
        place->replica_count = UINT32_MAX; /* the message failed, not the key */
    }
    if (status != YOLK_OK)
        store_holds_finish(store->holds, place->op);
    base_buf_free(&reply);
    store_message_free(&message);
    return status;
}

static int locate(struct yolk_store *store, const void *key, size_t key_size, uint32_t flags,
                  uint64_t deadline_ns, struct place *place)
{
    if (key == NULL || key_size == 0 || key_size > MAX_KEY_SIZE)
        return base_fail(YOLK_ERR_INVALID, 0, "a key has 1 to %u bytes", MAX_KEY_SIZE);
    struct store_item item = {.key = key, .key_size = (uint32_t)key_size};
    uint8_t *arena = NULL;
    int status = store_qualify(store, &item, 1, &arena);
    if (status == YOLK_OK && item.key_size == 0)
        status = base_fail(YOLK_ERR_INVALID, 0,
                           "a key of %zu bytes is too long beside what names its tenant", key_size);
    while (status == YOLK_OK) {
        uint64_t now = clock_real_now_ns();
        uint64_t try_ns = now + store->tuning.reply_timeout_ns;
        status =
            try_locate(store, &item, flags, try_ns < deadline_ns ? try_ns : deadline_ns, place);
        int transient = place->replica_count == UINT32_MAX &&
                        (store_status_is_session(status) || status == YOLK_ERR_TIMEOUT ||
                         yolk_status_scope(status) == YOLK_SCOPE_LINK);
        if (status == YOLK_OK || !transient || clock_real_now_ns() >= deadline_ns)
            break;
        status = YOLK_OK;
        usleep(2000); /* the control thread is getting a session */
    }
    free(arena);
    return status;
}

enum yolk_status yolk_store_size(struct yolk_store *store, const void *key, size_t key_size,
                                 uint64_t *size)
{
    struct place place;
    if (size == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "size without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
    status = locate(store, key, key_size, WIRE_GET_PEEK, deadline_ns, &place);
    if (status == YOLK_OK) {
        *size = place.size;
        store_holds_finish(store->holds, place.op);
    }
    store_leave(store);
    return status;
}

static struct yolk_gds_descriptor descriptor_of(const struct wire_gds *gds)
{
    struct yolk_gds_descriptor out = {
        .storage_generation = gds->storage_generation,
        .value_offset = gds->value_offset,
        .value_size = gds->value_size,
        .allocated_size = gds->allocated_size,
    };
    memcpy(out.owner_client_id, gds->owner_client_id, sizeof(out.owner_client_id));
    memcpy(out.storage_id, gds->storage_id, sizeof(out.storage_id));
    return out;
}

enum yolk_status yolk_store_locate(struct yolk_store *store, const void *key, size_t key_size,
                                   struct yolk_replica *replicas, size_t room, size_t *count)
{
    struct place place;
    if (count == NULL || (replicas == NULL && room > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "locate without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
    status = locate(store, key, key_size, WIRE_GET_PEEK, deadline_ns, &place);
    if (status == YOLK_OK) {
        for (size_t i = 0; i < place.replica_count && i < room; i++) {
            const struct store_replica *replica = &place.replicas[i];
            replicas[i] = (struct yolk_replica){
                .segment = replica->segment,
                .offset = replica->offset,
                .size = place.size,
                .medium = (int32_t)replica->medium,
            };
            if (replica->medium == WIRE_MEDIUM_GDS)
                replicas[i].gds = descriptor_of(&replica->gds);
        }
        *count = place.replica_count;
        store_holds_finish(store->holds, place.op);
    }
    store_leave(store);
    return status;
}

/* Maps the first replica that can be; UNSUPPORTED when none can. */
static int map_place(struct yolk_store *store, const struct place *place, uint64_t deadline_ns,
                     bool gpu, struct pin *pin, struct yolk_buffer *out)
{
    struct store_replica_choice choice = store_segments_choice(store->segments);
    uint64_t tried = 0;
    int status = YOLK_ERR_UNSUPPORTED;
    for (;;) {
        int index =
            store_replica_choose(&choice, place->replicas, place->replica_count, tried, place->op);
        if (index < 0)
            return status;
        tried |= 1ull << index;
        const struct store_replica *replica = &place->replicas[index];
        if (replica->medium != WIRE_MEDIUM_MEMORY)
            continue; /* a disk is read, not mapped */
        const void *base = NULL;
        uint64_t mapped = 0;
        status = store_holds_extent(store->holds, place->op, place->epoch, replica->segment,
                                    replica->offset, place->size);
        if (status == YOLK_OK)
            status = store_segments_map(store->segments, replica->segment, place->session,
                                        deadline_ns, gpu, &base, &mapped);
        if (status != YOLK_OK)
            continue;
        if (replica->offset > mapped || place->size > mapped - replica->offset) {
            store_segments_unmap(store->segments, base);
            status = base_fail(YOLK_ERR_PROTOCOL, 0, "the master named a place outside a segment");
            continue;
        }
        pin->op = place->op;
        pin->base = base;
        pin->segment = replica->segment;
        pin->session = place->session;
        out->data = (const uint8_t *)base + replica->offset;
        out->size = place->size;
        out->mapped = 1;
        return YOLK_OK;
    }
}

/* Into memory of ours. The value may be replaced by one of another size between the two questions.
 */
static int copy_value(struct yolk_store *store, const void *key, size_t key_size, uint64_t size,
                      struct pin *pin, struct yolk_buffer *out)
{
    for (int round = 0; round < 4; round++) {
        void *memory = malloc(size == 0 ? 1 : size);
        if (memory == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a value of %llu bytes",
                             (unsigned long long)size);
        struct yolk_slice slice = {memory, size};
        struct yolk_kv kv = {.key = key, .key_size = key_size, .slices = &slice, .slice_count = 1};
        int status = yolk_store_get(store, &kv, 1);
        if (status == YOLK_OK) {
            pin->copy = memory;
            out->data = memory;
            out->size = (uint64_t)kv.result;
            out->mapped = 0;
            return YOLK_OK;
        }
        if (status != YOLK_ERR_STUCK) /* else a transfer may still write to it */
            free(memory);
        if (status != YOLK_ERR_BUFFER_SMALL)
            return status;
        status = yolk_store_size(store, key, key_size, &size);
        if (status != YOLK_OK)
            return status;
    }
    return base_fail(YOLK_ERR_AGAIN, 0, "the value changes faster than it can be read");
}

static enum yolk_status get_buffer(struct yolk_store *store, const void *key, size_t key_size,
                                   bool gpu, struct yolk_buffer *out)
{
    struct place place;
    if (out == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "get_buffer without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    struct yolk_buffer made = {.data = NULL};
    struct pin *pin = calloc(1, sizeof(*pin));
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
    status = pin == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a handle")
                         : locate(store, key, key_size, WIRE_GET_PIN, deadline_ns, &place);
    if (status == YOLK_OK) {
        int mapped = place.size == 0 ? YOLK_ERR_UNSUPPORTED
                                     : map_place(store, &place, deadline_ns, gpu, pin, &made);
        if (mapped != YOLK_OK)
            store_holds_finish(store->holds, place.op);
        if (mapped != YOLK_OK && gpu) {
            status = mapped == YOLK_ERR_UNSUPPORTED
                         ? base_fail(mapped, 0, "no GPU reaches the value where it lies")
                         : mapped;
        } else if (mapped != YOLK_OK) {
            status = copy_value(store, key, key_size, place.size, pin, &made);
        }
    }
    if (status == YOLK_OK) {
        made.internal = pin;
        *out = made;
        mutex_lock(&store->lock);
        store->pins++;
        mutex_unlock(&store->lock);
    } else {
        free(pin);
    }
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_get_buffer(struct yolk_store *store, const void *key, size_t key_size,
                                       struct yolk_buffer *out)
{
    return get_buffer(store, key, key_size, false, out);
}

enum yolk_status yolk_store_get_device_buffer(struct yolk_store *store, const void *key,
                                              size_t key_size, struct yolk_buffer *out)
{
    return get_buffer(store, key, key_size, true, out);
}

enum yolk_status yolk_store_check_buffer(struct yolk_store *store, const struct yolk_buffer *buffer)
{
    if (store == NULL || buffer == NULL || buffer->internal == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "check_buffer without a buffer");
    if (store->pid != getpid())
        return base_fail(YOLK_ERR_FORKED, 0, "the store was opened by another process");
    const struct pin *pin = buffer->internal;
    return pin->base == NULL
               ? YOLK_OK
               : store_segments_check(store->segments, pin->segment, pin->session, pin->base);
}

void yolk_store_release_buffer(struct yolk_store *store, struct yolk_buffer *buffer)
{
    if (store == NULL || buffer == NULL || buffer->internal == NULL || store->pid != getpid())
        return;
    struct pin *pin = buffer->internal;
    if (pin->base != NULL)
        store_segments_unmap(store->segments, pin->base);
    /* The master hears of it with the next message, a heartbeat at the latest. */
    if (pin->op != 0)
        store_holds_finish(store->holds, pin->op);
    free(pin->copy);
    free(pin);
    memset(buffer, 0, sizeof(*buffer));
    mutex_lock(&store->lock);
    store->pins--;
    mutex_unlock(&store->lock);
}

enum yolk_status yolk_store_describe_route(struct yolk_store *store, const void *key,
                                           size_t key_size, char **text)
{
    struct place place;
    uint64_t handle = 0;
    if (text == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "describe_route without a result");
    int status = store_enter(store);
    if (status != YOLK_OK)
        return status;
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), store->options.timeout_ms);
    status = locate(store, key, key_size, WIRE_GET_PEEK, deadline_ns, &place);
    if (status == YOLK_OK) {
        if (place.replica_count == 0) {
            *text = strdup("a value of no bytes: nothing is moved\n");
            status = *text != NULL ? YOLK_OK : YOLK_ERR_NO_MEMORY;
        } else {
            status = store_segments_get(store->segments, place.replicas[0].segment, place.session,
                                        deadline_ns, &handle);
        }
        if (status == YOLK_OK && place.replica_count > 0) {
            struct yolk_request request = {
                .opcode = YOLK_READ,
                .segment = handle,
                .offset = place.replicas[0].offset,
            };
            status = yolk_engine_describe_route(store->engine, &request, text);
        }
        store_holds_finish(store->holds, place.op);
    }
    store_leave(store);
    return status;
}

enum yolk_status yolk_store_copy_out(struct yolk_store *store, const struct yolk_buffer *buffer,
                                     uint64_t offset, void *to, size_t size)
{
    if (buffer == NULL || offset > buffer->size || size > buffer->size - offset ||
        (to == NULL && size > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "%zu bytes at %llu: the value has %llu", size,
                         (unsigned long long)offset,
                         (unsigned long long)(buffer == NULL ? 0 : buffer->size));
    int status = store_enter(store);
    if (status != YOLK_OK || size == 0) {
        if (status == YOLK_OK)
            store_leave(store);
        return status;
    }
    status = engine_memory_write(store->engine, to, (const uint8_t *)buffer->data + offset, size);
    store_leave(store);
    return status;
}
