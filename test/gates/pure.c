/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of the pure parts: what a message costs the master, and what it is made of. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/extents.h"
#include "base/hash.h"
#include "base/imap.h"
#include "base/limits.h"
#include "master/core.h"
#include "master/index.h"
#include "paths.h"
#include "platform/random.h"
#include "wire/msg.h"

enum {
    RESIDENT = 20000, /* objects at the master */
    VALUE = 4096,
    MANY = 128, /* keys of an EXIST */
    SOME = 32,  /* keys of a put or get */
    KEY_MAX = 32,
    FRAMES = GATE_CALLS + GATE_WARM_UP + 8,
    ENTRIES = 50000,
    LOOKUPS = 1024,
    TURNS = 1024,
    CHECKED = 1 << 20,
    FIRST_OP = 10000, /* of the messages that are measured */
};

/* ---- a master with objects ---- */
struct frame {
    struct wire_header header;
    struct base_buf body;
};

static struct {
    struct master_core *core;
    uint64_t now, session;
    struct frame frames[FRAMES];
    uint32_t next;
    struct {
        uint16_t kind;
        size_t size;
        uint8_t body[16384];
    } reply;
    struct wire_facts_ack due[8]; /* what the owner is to acknowledge */
    uint32_t due_count;
} master;

static void on_send(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                    const uint8_t *body, size_t size)
{
    (void)self, (void)connection;
    if (request_id != 0) {
        if (size > sizeof(master.reply.body))
            gate_must(YOLK_ERR_TOO_LARGE, "an answer of the master");
        master.reply.kind = kind;
        master.reply.size = size;
        memcpy(master.reply.body, body, size);
    } else if (kind == WIRE_FACTS) {
        struct wire_facts facts;
        gate_must(wire_decode(WIRE_FACTS, body, size, &facts), "facts");
        if (master.due_count == sizeof(master.due) / sizeof(master.due[0]))
            gate_must(YOLK_ERR_LIMIT, "facts without an answer");
        master.due[master.due_count++] = (struct wire_facts_ack){facts.segment, facts.seq};
    }
}

static void encode(struct frame *out, uint16_t kind, uint64_t id, const void *msg)
{
    base_buf_init(&out->body, MAX_FRAME_BODY);
    gate_must(wire_encode(kind, msg, &out->body), "encoding");
    out->header = (struct wire_header){kind, (uint32_t)out->body.size, id};
}

static void deliver(const struct frame *frame)
{
    const struct master_sink sink = {.send = on_send};
    gate_must(
        master_core_input(master.core, master.now, 1, &frame->header, frame->body.data, &sink),
        "a message");
}

/* As the owner does, so that the core's windows are open. */
static void acknowledge(void)
{
    while (master.due_count > 0) {
        const struct wire_facts_ack ack = master.due[0];
        struct frame frame;
        master.due_count--;
        memmove(&master.due[0], &master.due[1], master.due_count * sizeof(master.due[0]));
        encode(&frame, WIRE_FACTS_ACK, 0, &ack);
        deliver(&frame);
        base_buf_free(&frame.body);
    }
}

static void ask(uint16_t kind, const void *msg, void *reply)
{
    struct frame frame;
    encode(&frame, kind, 1, msg);
    deliver(&frame);
    base_buf_free(&frame.body);
    gate_must(wire_decode(kind + 1, master.reply.body, master.reply.size, reply), "an answer");
    acknowledge();
}

/* `count` keys from number `first` on. */
static struct base_buf key_list(uint32_t first, uint32_t count)
{
    static char texts[MANY][KEY_MAX];
    struct wire_view views[MANY];
    struct base_buf out;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(texts[i], KEY_MAX, "model/layer-7/block-%06u", first + i);
        views[i] = wire_view_text(texts[i]);
    }
    base_buf_init(&out, MAX_FRAME_BODY);
    gate_must(wire_keys_build(&out, views, count), "keys");
    return out;
}

/* What is measured stays live; what was put before does not. */
static uint64_t floor_of(uint64_t op)
{
    return op < FIRST_OP ? op : FIRST_OP;
}

static void encode_put_start(struct frame *out, uint64_t op, const struct base_buf *keys,
                             uint32_t count)
{
    uint8_t sizes[MANY][8];
    for (uint32_t i = 0; i < count; i++)
        wire_set_u64(sizes[i], VALUE);
    const struct wire_put_start start = {
        .request = {.session = master.session, .op = op, .floor = floor_of(op)},
        .keys = wire_view_buf(keys),
        .sizes = wire_view_of(sizes, (size_t)count * 8),
        .replica_num = 1};
    encode(out, WIRE_PUT_START, op, &start);
}

static void encode_keys(struct frame *out, uint16_t kind, uint64_t op, const struct base_buf *keys)
{
    const struct wire_keys_request request = {
        .request = {.session = master.session, .op = op, .floor = floor_of(op)},
        .keys = wire_view_buf(keys)};
    encode(out, kind, op, &request);
}

static void put_all(uint64_t first_op, uint32_t first, uint32_t count)
{
    for (uint32_t done = 0; done < count; done += SOME) {
        struct base_buf keys = key_list(first + done, SOME);
        struct frame start, end;
        encode_put_start(&start, first_op + done / SOME, &keys, SOME);
        encode_keys(&end, WIRE_PUT_END, first_op + done / SOME, &keys);
        deliver(&start);
        deliver(&end);
        acknowledge();
        base_buf_free(&start.body);
        base_buf_free(&end.body);
        base_buf_free(&keys);
    }
}

static void set_up_master(void)
{
    memset(&master, 0, sizeof(master));
    master.now = NS_PER_S;
    gate_must(master_core_create(NULL, master.now, 42, &master.core), "a master");
    struct wire_session_open open = {.generation = 1, .client_id = {1}};
    struct wire_session_open_reply opened;
    ask(WIRE_SESSION_OPEN, &open, &opened);
    gate_must(opened.status, "a session");
    master.session = opened.session;
    struct wire_segment_mount mount = {
        .request = {.session = master.session}, .name = wire_view_text("s"), .size = GIB};
    struct wire_segment_mount_reply mounted;
    ask(WIRE_SEGMENT_MOUNT, &mount, &mounted);
    gate_must(mounted.status, "a segment");
    put_all(1, 0, RESIDENT);
    struct master_stats stats;
    master_core_stats(master.core, &stats);
    gate_must(stats.objects == RESIDENT ? YOLK_OK : YOLK_ERR_CORRUPT, "resident objects");
}

static void set_up_exist(void)
{
    set_up_master();
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct base_buf keys = key_list(i * MANY, MANY);
        encode_keys(&master.frames[i], WIRE_EXIST, FIRST_OP + i, &keys);
        base_buf_free(&keys);
    }
}

static void set_up_get_start(void)
{
    set_up_master();
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct base_buf keys = key_list(i * SOME * 3, SOME);
        const struct wire_get_start start = {
            .request = {.session = master.session, .op = FIRST_OP + i, .floor = FIRST_OP},
            .keys = wire_view_buf(&keys)};
        encode(&master.frames[i], WIRE_GET_START, FIRST_OP + i, &start);
        base_buf_free(&keys);
    }
}

static void set_up_put_start(void)
{
    set_up_master();
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct base_buf keys = key_list(RESIDENT + i * SOME, SOME);
        encode_put_start(&master.frames[i], FIRST_OP + i, &keys, SOME);
        base_buf_free(&keys);
    }
}

static void set_up_put_end(void)
{
    set_up_put_start();
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct base_buf keys = key_list(RESIDENT + i * SOME, SOME);
        deliver(&master.frames[i]);
        base_buf_free(&master.frames[i].body);
        encode_keys(&master.frames[i], WIRE_PUT_END, FIRST_OP + i, &keys);
        base_buf_free(&keys);
    }
}

static enum yolk_status call_master(void *self)
{
    const struct master_sink sink = {.send = on_send};
    const struct frame *frame = &master.frames[master.next++];
    (void)self;
    if (master.next >= FRAMES)
        return YOLK_ERR_LIMIT;
    return master_core_input(master.core, master.now, 1, &frame->header, frame->body.data, &sink);
}

static void tear_down_master(void)
{
    for (uint32_t i = 0; i < FRAMES; i++)
        base_buf_free(&master.frames[i].body);
    master_core_destroy(master.core);
}

/* ---- what messages are made of ---- */
static struct {
    struct base_buf keys, body;
    struct wire_keys_request request;
} wire;

static void set_up_wire(void)
{
    wire.keys = key_list(0, MANY);
    wire.request = (struct wire_keys_request){
        .request = {.session = UINT64_C(0x1122334455667788), .op = 900, .floor = 890},
        .keys = wire_view_buf(&wire.keys)};
    base_buf_init(&wire.body, MAX_FRAME_BODY);
    gate_must(wire_encode(WIRE_EXIST, &wire.request, &wire.body), "encoding");
}

static enum yolk_status call_encode(void *self)
{
    (void)self;
    base_buf_clear(&wire.body);
    return (enum yolk_status)wire_encode(WIRE_EXIST, &wire.request, &wire.body);
}

static enum yolk_status call_decode(void *self)
{
    struct wire_keys_request request;
    struct wire_keys keys;
    struct wire_view key;
    uint32_t count = 0;
    (void)self;
    int status = wire_decode(WIRE_EXIST, wire.body.data, wire.body.size, &request);
    if (status == YOLK_OK)
        status = wire_keys_open(request.keys, MANY, &keys);
    while (status == YOLK_OK && wire_keys_next(&keys, &key))
        count++;
    return status == YOLK_OK && count == MANY ? YOLK_OK : YOLK_ERR_CORRUPT;
}

static void tear_down_wire(void)
{
    base_buf_free(&wire.keys);
    base_buf_free(&wire.body);
}

/* ---- tables ---- */
static struct {
    struct master_index *index;
    struct entry {
        struct master_index_entry head;
        char key[KEY_MAX];
    } * entries;
    struct base_extents *extents;
    uint32_t handles[TURNS];
    struct base_imap map;
    struct random_sim seeded;
    struct random random;
    uint8_t *bytes;
} table;

static void set_up_index(void)
{
    memset(&table, 0, sizeof(table));
    gate_must(master_index_create(&table.index), "an index");
    table.entries = calloc(ENTRIES, sizeof(*table.entries));
    gate_must(table.entries ? YOLK_OK : YOLK_ERR_NO_MEMORY, "entries");
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct entry *entry = &table.entries[i];
        int size = snprintf(entry->key, KEY_MAX, "block-%u", i);
        entry->head.hash = base_hash64_seed(entry->key, (size_t)size, 7);
        entry->head.key_size = (uint32_t)size;
        entry->head.key_at = offsetof(struct entry, key);
        gate_must(master_index_insert(table.index, &entry->head), "an entry");
    }
}

static enum yolk_status call_index(void *self)
{
    static uint32_t at;
    (void)self;
    for (uint32_t i = 0; i < LOOKUPS; i++, at = (at + 7919) % ENTRIES) {
        struct entry *entry = &table.entries[at];
        uint64_t hash = base_hash64_seed(entry->key, entry->head.key_size, 7);
        if (master_index_find(table.index, hash, entry->key, entry->head.key_size) != &entry->head)
            return YOLK_ERR_NOT_FOUND;
    }
    return YOLK_OK;
}

static void tear_down_index(void)
{
    master_index_destroy(table.index);
    free(table.entries);
}

static uint64_t drawn_size(void)
{
    return 64 * KIB + random_below(&table.random, 8 * MIB);
}

static void set_up_extents(void)
{
    memset(&table, 0, sizeof(table));
    random_sim_init(&table.seeded, 11);
    table.random = random_sim_random(&table.seeded);
    gate_must(base_extents_create(16 * GIB, &table.extents), "an allocator");
    for (uint32_t i = 0; i < TURNS; i++)
        table.handles[i] = base_extents_take(table.extents, drawn_size(), NULL);
}

static enum yolk_status call_extents(void *self)
{
    (void)self;
    for (uint32_t i = 0; i < TURNS; i++) {
        uint32_t at = (uint32_t)random_below(&table.random, TURNS);
        base_extents_release(table.extents, table.handles[at]);
        table.handles[at] = base_extents_take(table.extents, drawn_size(), NULL);
        if (table.handles[at] == BASE_EXTENTS_NONE)
            return YOLK_ERR_NO_SPACE;
    }
    return YOLK_OK;
}

static void tear_down_extents(void)
{
    base_extents_destroy(table.extents);
}

static void set_up_map(void)
{
    memset(&table, 0, sizeof(table));
    base_imap_init(&table.map);
    for (uint32_t i = 0; i < 4096; i++)
        gate_must(base_imap_insert(&table.map, (uint64_t)(i * 2731 % 4096) * 8192, 4096, &table),
                  "a range");
}

static enum yolk_status call_map(void *self)
{
    static uint32_t at;
    struct base_range found;
    (void)self;
    for (uint32_t i = 0; i < LOOKUPS; i++, at = (at + 1021) % 4096)
        if (!base_imap_contains(&table.map, (uint64_t)at * 8192 + 100, 1000, &found))
            return YOLK_ERR_NOT_FOUND;
    return YOLK_OK;
}

static void tear_down_map(void)
{
    base_imap_free(&table.map);
}

static void set_up_checksum(void)
{
    table.bytes = malloc(CHECKED);
    gate_must(table.bytes ? YOLK_OK : YOLK_ERR_NO_MEMORY, "bytes");
    for (uint32_t i = 0; i < CHECKED; i++)
        table.bytes[i] = (uint8_t)(i * 7 + i / 255);
}

static enum yolk_status call_checksum(void *self)
{
    (void)self;
    return base_crc32c(0, table.bytes, CHECKED) != 0 ? YOLK_OK : YOLK_ERR_CORRUPT;
}

static enum yolk_status call_checksum_table(void *self)
{
    (void)self;
    return base_crc32c_table(0, table.bytes, CHECKED) != 0 ? YOLK_OK : YOLK_ERR_CORRUPT;
}

static void tear_down_checksum(void)
{
    free(table.bytes);
}

const struct gate_path gate_pure_paths[] = {
    {"master.exist_128", "batch", 1, 0, set_up_exist, call_master, tear_down_master, false},
    {"master.get_start_32", "batch", 1, 0, set_up_get_start, call_master, tear_down_master, false},
    {"master.put_start_32", "batch", 1, 0, set_up_put_start, call_master, tear_down_master, false},
    {"master.put_end_32", "batch", 1, 0, set_up_put_end, call_master, tear_down_master, false},
    {"master.index_find", "key", LOOKUPS, 4, set_up_index, call_index, tear_down_index, false},
    {"wire.encode_exist_128", "message", 1, 0, set_up_wire, call_encode, tear_down_wire, false},
    {"wire.decode_exist_128", "message", 1, 0, set_up_wire, call_decode, tear_down_wire, false},
    {"base.extents_turn", "release and take", TURNS, 4, set_up_extents, call_extents,
     tear_down_extents, false},
    {"base.imap_contains", "look-up", LOOKUPS, 4, set_up_map, call_map, tear_down_map, false},
    {"base.crc32c", "KiB", CHECKED / KIB, 2, set_up_checksum, call_checksum, tear_down_checksum,
     false},
    {"base.crc32c_table", "KiB", CHECKED / KIB, 2, set_up_checksum, call_checksum_table,
     tear_down_checksum, false},
};
const uint32_t gate_pure_path_count = sizeof(gate_pure_paths) / sizeof(gate_pure_paths[0]);
