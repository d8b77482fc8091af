/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of any kind and content to a master, from some connections, with time passing: well
 * formed ones whose fields the input chooses, often from what the master itself has said (ids that
 * are valid somewhere), and bare bytes. Its books must stay right throughout.
 */
#include <stdbool.h>

#include "base/error.h"
#include "base/limits.h"
#include "kit.h"
#include "master/core.h"
#include "master/policy.h"
#include "wire/msg.h"

enum { NUMBERS = 64, TEXTS = 16, TEXT_SIZE = 96, CONNECTIONS = 3, ROOM_SIZE = 256 };

struct world {
    struct fuzz_input in;
    struct master_core *core;
    uint64_t now_ns;
    uint64_t numbers[NUMBERS]; /* said by the master, the oldest are forgotten */
    unsigned number_count;
    struct {
        uint8_t bytes[TEXT_SIZE];
        size_t size;
    } texts[TEXTS];
    unsigned text_count;
};

/* Keeps what a message of the master holds. */
static void remember(const struct wire_kind_info *info, struct world *world, const uint8_t *msg)
{
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        if (f->type == WIRE_U64) {
            uint64_t value;
            memcpy(&value, msg + f->offset, sizeof(value));
            world->numbers[world->number_count++ % NUMBERS] = value;
        } else if (f->type == WIRE_BIN || f->type == WIRE_STR) {
            struct wire_view view;
            memcpy(&view, msg + f->offset, sizeof(view));
            unsigned slot = world->text_count++ % TEXTS;
            world->texts[slot].size = view.size < TEXT_SIZE ? view.size : TEXT_SIZE;
            if (view.size > 0)
                memcpy(world->texts[slot].bytes, view.data, world->texts[slot].size);
        }
    }
}

static void on_send(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                    const uint8_t *body, size_t size)
{
    union wire_any msg;
    (void)connection, (void)request_id;
    FUZZ_MUST(wire_decode(kind, body, size, &msg) == YOLK_OK);
    remember(wire_kind_info(kind), self, msg.bytes);
}

static uint64_t choose_number(struct world *world)
{
    uint8_t how = fuzz_u8(&world->in);
    if (how < 2 * NUMBERS)
        return world->numbers[how % NUMBERS];
    return how < 192 ? (uint64_t)1 << (how & 63) : fuzz_number(&world->in, how % 9);
}

/* A view into the input, into what was said, or a list of a few short keys. */
static struct wire_view choose_view(struct world *world, uint8_t *room, size_t room_size)
{
    uint8_t how = fuzz_u8(&world->in);
    if (how < 64) {
        unsigned slot = how % TEXTS;
        return wire_view_of(world->texts[slot].bytes, world->texts[slot].size);
    }
    if (how < 160) {
        struct base_buf buf;
        uint8_t names[3] = {how & 7, how >> 3 & 7, 7};
        struct wire_view keys[3] = {{names, 1}, {names + 1, 1}, {names, 3}};
        base_buf_init(&buf, room_size);
        FUZZ_MUST(wire_keys_build(&buf, keys, how % 4) == YOLK_OK);
        struct wire_view view = wire_view_of(room, buf.size);
        if (buf.size > 0)
            memcpy(room, buf.data, buf.size);
        base_buf_free(&buf);
        return view;
    }
    if (how < 224) {
        for (size_t i = 0; i < 4; i++)
            wire_set_u64(room + 8 * i, choose_number(world));
        return wire_view_of(room, 8 * (how % 5));
    }
    struct wire_view view;
    view.data = fuzz_bytes(&world->in, how - 224, &view.size);
    return view;
}

/* Up to three descriptors of files that may be registered, or what an earlier message had. */
static struct wire_view choose_gdss(struct world *world, uint8_t *room)
{
    uint8_t how = fuzz_u8(&world->in);
    struct base_buf buf;
    base_buf_init(&buf, ROOM_SIZE);
    for (unsigned i = 0; i < how % 4u; i++) {
        struct wire_gds gds;
        memset(gds.owner_client_id, fuzz_u8(&world->in) & 3, sizeof(gds.owner_client_id));
        memset(gds.storage_id, fuzz_u8(&world->in) & 3, sizeof(gds.storage_id));
        gds.storage_generation = choose_number(world);
        gds.value_offset = choose_number(world) << (how & 4 ? 12 : 0);
        gds.value_size = choose_number(world);
        gds.allocated_size = (choose_number(world) + 4095) & ~(how & 8 ? UINT64_C(4095) : 0);
        FUZZ_MUST(wire_gds_append(&buf, how & 16 << i ? NULL : &gds) == YOLK_OK);
    }
    if (buf.size > 0)
        memcpy(room, buf.data, buf.size);
    struct wire_view view = {room, buf.size};
    base_buf_free(&buf);
    return view;
}

static void choose_message(const struct wire_kind_info *info, struct world *world,
                           union wire_any *msg, uint8_t rooms[][ROOM_SIZE])
{
    memset(msg, 0, sizeof(*msg));
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        uint8_t *at = msg->bytes + f->offset;
        if (f->type == WIRE_GDSS) {
            struct wire_view view = choose_gdss(world, rooms[i]);
            memcpy(at, &view, sizeof(view));
        } else if (f->type == WIRE_BIN || f->type == WIRE_STR) {
            struct wire_view view = choose_view(world, rooms[i], 64);
            if (f->type == WIRE_BIN && f->size > 0)
                view.size -= view.size % f->size;
            memcpy(at, &view, sizeof(view));
        } else if (f->type == WIRE_FIXED) {
            memset(at, fuzz_u8(&world->in) & 3, f->size);
        } else {
            uint64_t number = choose_number(world);
            memcpy(at, &number, f->type == WIRE_U64 ? 8 : 4);
        }
    }
}

static void deliver(struct world *world)
{
    struct master_sink sink = {.self = world, .send = on_send};
    uint8_t how = fuzz_u8(&world->in), rooms[32][ROOM_SIZE];
    const struct wire_kind_info *info = wire_kind_at(how % wire_kind_count());
    struct base_buf body;
    union wire_any msg;
    FUZZ_MUST(info->field_count <= 32);
    base_buf_init(&body, MAX_FRAME_BODY);
    choose_message(info, world, &msg, rooms);
    if (wire_encode(info->kind, &msg, &body) == YOLK_OK) {
        if (how >= 248 && body.size > 0)
            body.data[fuzz_u8(&world->in) % body.size] ^= fuzz_u8(&world->in);
        struct wire_header header = {info->kind, (uint32_t)body.size, 1 + how};
        const uint8_t *bytes = body.data ? body.data : (const uint8_t *)"";
        (void)master_core_input(world->core, world->now_ns, 1 + how / 85, &header, bytes, &sink);
    }
    base_buf_free(&body);
}

static void pass_time(struct world *world)
{
    struct master_sink sink = {.self = world, .send = on_send};
    uint8_t how = fuzz_u8(&world->in);
    if (how >= 240)
        master_core_disconnect(world->core, world->now_ns, 1 + how % CONNECTIONS, &sink);
    for (unsigned i = 0; i < how % 16; i++) {
        world->now_ns += (uint64_t)(how >> 4) * 100 * NS_PER_MS;
        (void)master_core_tick(world->core, world->now_ns, &sink);
    }
}

static void check(const struct master_core *core)
{
    struct master_stats counted;
    const char *broken = master_core_check(core);
    if (broken != NULL)
        fuzz_fail(broken, __FILE__, __LINE__);
    FUZZ_MUST(master_core_recount(core, &counted) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {.in = {data, data + size}, .now_ns = NS_PER_S};
    struct master_config config;
    master_config_default(&config);
    /* Small: limits are reached soon, and a core costs little to make. */
    config.max_objects = 64;
    config.max_sessions = config.max_segments = 4;
    config.max_ops = config.max_held = config.max_keys = 16;
    config.policy = fuzz_u8(&world.in) & 1 ? &master_policy_prefix : &master_policy_lru;
    FUZZ_MUST(master_core_create(&config, world.now_ns, 1, &world.core) == YOLK_OK);
    while (world.in.at < world.in.end) {
        if (*world.in.at & 0x40)
            pass_time(&world);
        deliver(&world);
    }
    check(world.core);
    pass_time(&world);
    master_core_destroy(world.core);
    return 0;
}
