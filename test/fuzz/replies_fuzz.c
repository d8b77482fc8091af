/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a master says to a client, of any kind and content: to the machines of a get, of a put (also
 * into a GDS file) and of the session, driven as their drivers do it, with links that break,
 * transfers that fail and time that passes; and to who lists keys. Each batch ends, with one result
 * a key that its transfers bear out; nothing is moved beyond the caller's memory and the places
 * that the file has reserved, each of which is closed once; what is sent is well formed, one
 * message at a time.
 */
#include <stdbool.h>

#include "base/error.h"
#include "base/limits.h"
#include "kit.h"
#include "store/get.h"
#include "store/internal.h"
#include "store/message.h"
#include "store/put.h"
#include "store/session.h"

enum { KEYS = 4, FLIGHTS = 64, NUMBERS = 16, STEPS_MAX = 20000, ROOM_SIZE = 512, UNSET = 99999 };
enum { PLACES = 64, GDS_SEGMENT = 9 };

/* In the GDS file, reserved for a value. */
struct place {
    struct store_reservation given; /* first */
    bool closed;
    unsigned flying;
};

struct flight {
    uint64_t cookie, size;
    size_t item;
    struct place *place;
};

struct world {
    struct fuzz_input in;
    uint64_t now_ns;
    struct store_holds *holds;
    uint64_t numbers[NUMBERS]; /* that the client itself has said */
    unsigned number_count;
    bool sent; /* a request without an answer */
    uint16_t message;
    uint64_t request_id;
    /* of a get or put */
    struct store_item items[KEYS];
    uint8_t *memory[KEYS];
    size_t count;
    struct flight flights[FLIGHTS];
    size_t flight_count;
    uint64_t landed[KEYS]; /* bytes of the last transfer that went well, plus 1 */
    bool existed; /* the master said so of a key, whose put is done then without a transfer */
    /* of a put into the file */
    struct place places[PLACES];
    size_t place_count;
    uint64_t mount;       /* of the file */
    bool required;        /* each value must come into it */
    bool committed[KEYS]; /* its place was */
};

static void remember(struct world *world, uint64_t number)
{
    world->numbers[world->number_count++ % NUMBERS] = number;
}

static uint64_t choose_number(struct world *world)
{
    uint8_t how = fuzz_u8(&world->in);
    if (how < 6 * NUMBERS)
        return world->numbers[how % NUMBERS];
    return how < 224 ? how % 32 : fuzz_number(&world->in, how % 9);
}

static int32_t choose_status(struct world *world)
{
    uint8_t how = fuzz_u8(&world->in);
    return how < 128 ? YOLK_OK : how < 250 ? -(int32_t)(how % 40) : (int32_t)((uint32_t)how << 24);
}

/* What the master sends for the keys of a GET_START or PUT_START, mostly of the right shape. */
static void append_place(struct world *world, struct base_buf *results, struct base_buf *replicas,
                         struct base_buf *tickets, struct base_buf *gdss)
{
    uint8_t how = fuzz_u8(&world->in);
    size_t item = results->size / WIRE_RESULT_SIZE;
    uint64_t right = item < world->count ? world->items[item].size : 0;
    struct wire_result result = {
        .status = choose_status(world),
        .replica_count = how % 4,
        .size = how & 4 ? right : choose_number(world),
        .first = how & 8 ? fuzz_u8(&world->in) : (uint32_t)(replicas->size / WIRE_REPLICA_SIZE),
    };
    world->existed = world->existed || result.status == YOLK_ERR_EXISTS;
    FUZZ_MUST(wire_result_append(results, &result) == YOLK_OK);
    for (unsigned i = 0; i < how % 4u; i++) {
        uint8_t kind = fuzz_u8(&world->in), ticket[WIRE_TICKET_SIZE] = {kind};
        struct wire_replica replica = {1 + kind % 4, choose_number(world), 0, kind};
        replica.medium = kind < 128   ? WIRE_MEDIUM_MEMORY
                         : kind < 184 ? WIRE_MEDIUM_LOCAL_DISK
                         : kind < 248 ? WIRE_MEDIUM_GDS
                                      : kind % 8;
        if (replica.medium == WIRE_MEDIUM_GDS && item < world->count &&
            world->items[item].gds != NULL && kind % 8 != 7) /* what was asked for */
            replica.offset = world->items[item].gds->value_offset;
        FUZZ_MUST(wire_replica_append(replicas, &replica) == YOLK_OK);
        FUZZ_MUST(wire_ticket_append(tickets, ticket) == YOLK_OK);
        if (replica.medium == WIRE_MEDIUM_GDS) {
            struct wire_gds gds = {.storage_generation = 1 + kind % 2,
                                   .value_offset = (uint64_t)fuzz_u8(&world->in) << 12,
                                   .value_size = result.size,
                                   .allocated_size = (result.size + 4095) & ~UINT64_C(4095)};
            memset(gds.owner_client_id, 1 + kind % 3, sizeof(gds.owner_client_id));
            memset(gds.storage_id, 1, sizeof(gds.storage_id));
            FUZZ_MUST(wire_gds_append(gdss, kind % 16 == 15 ? NULL : &gds) == YOLK_OK);
        }
    }
}

static int build_places(struct world *world, uint16_t kind, struct base_buf *body)
{
    struct base_buf lists[4];
    uint8_t how = fuzz_u8(&world->in);
    for (size_t i = 0; i < 4; i++)
        base_buf_init(&lists[i], 1 << 16);
    for (size_t i = 0; i < (how < 224 ? world->count : how % 8u); i++)
        append_place(world, &lists[0], &lists[1], &lists[2], &lists[3]);
    struct wire_get_start_reply get = {.status = choose_status(world),
                                       .guard_ttl_ms = choose_number(world) * 100,
                                       .results = wire_view_buf(&lists[0]),
                                       .replicas = wire_view_buf(&lists[1]),
                                       .gds = wire_view_buf(&lists[3])};
    struct wire_put_start_reply put = {.status = get.status,
                                       .results = get.results,
                                       .replicas = get.replicas,
                                       .tickets = wire_view_buf(&lists[2])};
    int status = kind == WIRE_GET_START_REPLY ? wire_encode(kind, &get, body)
                                              : wire_encode(kind, &put, body);
    for (size_t i = 0; i < 4; i++)
        base_buf_free(&lists[i]);
    return status;
}

/* A list of statuses, or bytes of the input; keys and records may come out right. */
static struct wire_view choose_view(struct world *world, const struct wire_field *f, uint8_t *room)
{
    struct wire_view view = {room, 0};
    uint8_t how = fuzz_u8(&world->in);
    if (f->type == WIRE_BIN && f->size == 4 && how < 192) {
        for (size_t i = 0; i < (how < 128 ? world->count : how % 8u); i++, view.size += 4) {
            int32_t status = choose_status(world);
            memcpy(room + view.size, &status, sizeof(status));
        }
        return view;
    }
    if (how < 64) { /* numbers, as a list of them or as fields of records */
        for (; view.size + 8 <= (how % 16u) * 8; view.size += 8)
            wire_set_u64(room + view.size, choose_number(world));
    } else if (how < 96) {
        struct base_buf keys;
        struct wire_view names[2] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"bc", 2}};
        base_buf_init(&keys, ROOM_SIZE);
        FUZZ_MUST(wire_keys_build(&keys, names, how % 3) == YOLK_OK);
        if (keys.size > 0)
            memcpy(room, keys.data, keys.size);
        view.size = keys.size;
        base_buf_free(&keys);
    } else if (how >= 128) {
        view.data = fuzz_bytes(&world->in, how - 128u, &view.size);
    }
    if (f->type == WIRE_BIN && f->size > 0)
        view.size -= view.size % f->size;
    return view;
}

static int build_any(struct world *world, const struct wire_kind_info *info, struct base_buf *body)
{
    static uint8_t rooms[32][ROOM_SIZE];
    union wire_any msg;
    memset(&msg, 0, sizeof(msg));
    FUZZ_MUST(info->field_count <= 32);
    for (size_t i = 0; i < info->field_count; i++) {
        const struct wire_field *f = &info->fields[i];
        uint8_t *at = msg.bytes + f->offset;
        if (f->type == WIRE_U64) {
            uint64_t number = choose_number(world);
            memcpy(at, &number, sizeof(number));
        } else if (f->type == WIRE_FIXED) {
            memset(at, fuzz_u8(&world->in) & 3, f->size);
        } else if (f->type == WIRE_BIN || f->type == WIRE_STR || f->type == WIRE_GDSS) {
            struct wire_view view = choose_view(world, f, rooms[i]);
            memcpy(at, &view, sizeof(view));
        } else {
            int32_t status = choose_status(world);
            memcpy(at, &status, sizeof(status));
        }
    }
    return wire_encode(info->kind, &msg, body);
}

/* One message of the master, the answer to what was sent or any other, sometimes damaged. In memory
 * of exactly its size, to be freed; NULL: none came out. */
static uint8_t *say(struct world *world, uint16_t *kind, size_t *size)
{
    uint8_t how = fuzz_u8(&world->in), *copy = NULL;
    const struct wire_kind_info *info = wire_kind_info((uint16_t)(world->message + 1));
    if (how >= 192 || info == NULL)
        info = wire_kind_at(fuzz_u8(&world->in) % wire_kind_count());
    struct base_buf body;
    base_buf_init(&body, MAX_FRAME_BODY);
    int status = info->kind == WIRE_GET_START_REPLY || info->kind == WIRE_PUT_START_REPLY
                     ? build_places(world, info->kind, &body)
                     : build_any(world, info, &body);
    if (status == YOLK_OK) {
        *kind = info->kind;
        *size = body.size;
        if (how % 16 == 15 && body.size > 0)
            body.data[fuzz_u8(&world->in) % body.size] ^= fuzz_u8(&world->in);
        if (how % 16 == 14)
            *size -= fuzz_u8(&world->in) % (body.size + 1);
        copy = malloc(*size + (*size == 0));
        FUZZ_MUST(copy != NULL);
        if (*size > 0)
            memcpy(copy, body.data, *size);
    }
    base_buf_free(&body);
    return copy;
}

static void check_sent(struct world *world, uint16_t message, const uint8_t *body, size_t size)
{
    union wire_any msg;
    FUZZ_MUST(wire_decode(message, body, size, &msg) == YOLK_OK);
    const struct wire_kind_info *info = wire_kind_info(message);
    for (size_t i = 0; i < info->field_count; i++)
        if (info->fields[i].type == WIRE_U64) {
            uint64_t number;
            memcpy(&number, msg.bytes + info->fields[i].offset, sizeof(number));
            remember(world, number);
        }
    world->message = message;
}

/* ---- the GDS file ---- */
static uint64_t gds_segment(void *self)
{
    return ((struct world *)self)->mount % 4 == 3 ? 0 : GDS_SEGMENT;
}

static int gds_reserve(void *self, const void *key, size_t key_size, uint64_t size,
                       struct store_reservation **out)
{
    static const int refusals[] = {YOLK_ERR_NO_SPACE, YOLK_ERR_TOO_LARGE, YOLK_ERR_IO,
                                   YOLK_ERR_NO_MEMORY};
    struct world *world = self;
    uint8_t how = fuzz_u8(&world->in);
    FUZZ_MUST(key != NULL && key_size > 0 && size > 0);
    if (how >= 192 || world->place_count == PLACES)
        return base_fail(refusals[how % 4], 0, "the file has no place");
    struct place *place = &world->places[world->place_count++];
    *place = (struct place){0};
    place->given.gds = (struct wire_gds){.storage_generation = world->mount,
                                         .value_offset = world->place_count * UINT64_C(4096),
                                         .value_size = size,
                                         .allocated_size = 4096};
    *out = &place->given;
    return YOLK_OK;
}

static int gds_is_current(void *self, const struct store_reservation *reservation)
{
    return reservation->gds.storage_generation == ((struct world *)self)->mount;
}

static void gds_close(struct place *place)
{
    FUZZ_MUST(!place->closed && place->flying == 0);
    place->closed = true;
}

static void gds_commit(void *self, struct store_reservation *reservation)
{
    (void)self;
    FUZZ_MUST(reservation->committed);
    gds_close((struct place *)reservation);
}

static void gds_abort(void *self, struct store_reservation *reservation)
{
    (void)self;
    FUZZ_MUST(!reservation->committed);
    gds_close((struct place *)reservation);
}

static void gds_preserve(void *self, struct store_reservation *reservation, uint64_t op,
                         enum store_outcome outcome)
{
    (void)self, (void)op;
    FUZZ_MUST(outcome <= STORE_OUTCOME_STUCK);
    gds_close((struct place *)reservation);
}

/* The journal takes some, of values that have landed. */
static void commit_some(struct world *world, const struct store_action *action)
{
    FUZZ_MUST(action->commit_count > 0 && action->commit_count <= world->count);
    for (size_t i = 0; i < action->commit_count; i++) {
        struct place *place = (struct place *)action->commits[i];
        FUZZ_MUST(!place->closed && place->flying == 0 && !place->given.committed);
        place->given.committed = fuzz_u8(&world->in) < 224;
        for (size_t k = 0; k < world->count; k++)
            if (world->items[k].gds == &place->given.gds)
                world->committed[k] = place->given.committed;
    }
}

/* ---- a batch of gets or puts ---- */
struct batch {
    void *machine;
    void (*next)(void *machine, uint64_t now_ns, struct store_action *action);
    void (*reply)(void *machine, uint64_t now_ns, uint16_t message, const uint8_t *body,
                  size_t size);
    void (*link_lost)(void *machine, uint64_t now_ns);
    void (*transferred)(void *machine, uint64_t now_ns, uint64_t cookie, enum yolk_status status);
    bool is_put;
};

#define METHODS(kind)                                                                              \
    static void kind##_next(void *m, uint64_t now_ns, struct store_action *action)                 \
    {                                                                                              \
        store_##kind##_next(m, now_ns, action);                                                    \
    }                                                                                              \
    static void kind##_reply(void *m, uint64_t now_ns, uint16_t message, const uint8_t *body,      \
                             size_t size)                                                          \
    {                                                                                              \
        store_##kind##_reply(m, now_ns, message, body, size);                                      \
    }                                                                                              \
    static void kind##_link_lost(void *m, uint64_t now_ns)                                         \
    {                                                                                              \
        store_##kind##_link_lost(m, now_ns);                                                       \
    }                                                                                              \
    static void kind##_transferred(void *m, uint64_t now_ns, uint64_t cookie,                      \
                                   enum yolk_status status)                                        \
    {                                                                                              \
        store_##kind##_transferred(m, now_ns, cookie, status);                                     \
    }
METHODS(get)
METHODS(put)

/* Does what a transfer does to the caller's memory, at once; that it ends is said later. */
static void begin_transfer(struct world *world, const struct batch *batch,
                           const struct store_action *action)
{
    FUZZ_MUST(action->item < world->count && world->flight_count < FLIGHTS);
    FUZZ_MUST(action->size > 0 && action->size <= world->items[action->item].size);
    FUZZ_MUST(!batch->is_put || action->size == world->items[action->item].size);
    struct place *place = NULL;
    if (action->medium == WIRE_MEDIUM_GDS && batch->is_put) {
        place = (struct place *)action->reservation;
        FUZZ_MUST(place != NULL && !place->closed && !place->given.committed);
        FUZZ_MUST(action->offset == place->given.gds.value_offset && place->flying++ == 0);
        FUZZ_MUST(action->size == place->given.gds.value_size);
    }
    FUZZ_MUST(action->medium != WIRE_MEDIUM_GDS || batch->is_put || action->gds != NULL);
    for (size_t i = 0; i < world->flight_count; i++) {
        FUZZ_MUST(world->flights[i].cookie != action->cookie);
        FUZZ_MUST(batch->is_put || world->flights[i].item != action->item);
    }
    memset(world->memory[action->item], 1, action->size);
    world->flights[world->flight_count++] =
        (struct flight){action->cookie, action->size, action->item, place};
}

static void end_transfer(struct world *world, const struct batch *batch, size_t which,
                         enum yolk_status status)
{
    struct flight flight = world->flights[which];
    world->flights[which] = world->flights[--world->flight_count];
    if (status == YOLK_OK)
        world->landed[flight.item] = flight.size + 1;
    if (flight.place != NULL)
        flight.place->flying--;
    batch->transferred(batch->machine, world->now_ns, flight.cookie, status);
}

static void happen(struct world *world, const struct batch *batch)
{
    uint8_t how = fuzz_u8(&world->in);
    uint16_t kind;
    size_t size;
    if (how < 32) {
        world->now_ns += (uint64_t)how * 20 * NS_PER_MS;
        world->mount += how == 31; /* the file is mounted anew */
    } else if (how < 48 && world->sent) {
        world->sent = false;
        batch->link_lost(batch->machine, world->now_ns);
    } else if (how < 128 && world->flight_count > 0) {
        int32_t status = choose_status(world);
        end_transfer(world, batch, how % world->flight_count,
                     status < YOLK_ERR_CONFIG || status > 0 ? YOLK_ERR_STUCK
                                                            : (enum yolk_status)status);
    } else if (world->sent) {
        uint8_t *body = say(world, &kind, &size);
        if (body != NULL) {
            world->sent = false;
            batch->reply(batch->machine, world->now_ns, kind, body, size);
        }
        free(body);
    }
}

/* Nothing comes any more: links break and time passes. */
static void run_out(struct world *world, const struct batch *batch, uint64_t deadline_ns)
{
    if (world->flight_count > 0) {
        end_transfer(world, batch, 0, YOLK_OK);
    } else if (world->sent) {
        world->sent = false;
        batch->link_lost(batch->machine, world->now_ns);
    } else {
        FUZZ_MUST(deadline_ns != UINT64_MAX && deadline_ns > world->now_ns);
        world->now_ns = deadline_ns;
    }
}

static void judge(const struct world *world, const struct batch *batch)
{
    FUZZ_MUST(world->flight_count == 0);
    for (size_t i = 0; i < world->count; i++) {
        int64_t result = world->items[i].result;
        FUZZ_MUST(result != UNSET); /* a later master may know more statuses */
        FUZZ_MUST(result < 0 || (uint64_t)result <= world->items[i].size);
        FUZZ_MUST(result <= 0 || batch->is_put || world->landed[i] == (uint64_t)result + 1);
        FUZZ_MUST(result < 0 || !batch->is_put || world->existed ||
                  world->landed[i] == world->items[i].size + 1);
        FUZZ_MUST(result < 0 || !world->required || world->existed || world->committed[i]);
    }
}

static void drive(struct world *world, const struct batch *batch)
{
    struct store_action action;
    for (unsigned steps = 0;; steps++) {
        FUZZ_MUST(steps < STEPS_MAX);
        batch->next(batch->machine, world->now_ns, &action);
        if (action.kind == STORE_DONE)
            break;
        if (action.kind == STORE_SEND) {
            FUZZ_MUST(!world->sent);
            world->sent = true;
            check_sent(world, action.message, action.body, action.body_size);
        } else if (action.kind == STORE_TRANSFER) {
            begin_transfer(world, batch, &action);
        } else if (action.kind == STORE_COMMIT) {
            commit_some(world, &action);
            store_put_committed(batch->machine, world->now_ns);
        } else {
            FUZZ_MUST(action.kind == STORE_WAIT);
            if (world->in.at < world->in.end)
                happen(world, batch);
            else
                run_out(world, batch, action.deadline_ns);
        }
    }
    judge(world, batch);
}

static void run_batch(struct world *world, bool is_put)
{
    static const char *const names[KEYS] = {"a", "bc", "d", "e"};
    struct store_tuning tuning;
    struct batch batch = {NULL, get_next, get_reply, get_link_lost, get_transferred, false};
    uint8_t how = fuzz_u8(&world->in);
    store_tuning_init(&tuning);
    world->count = 1 + how % KEYS;
    for (size_t i = 0; i < world->count; i++) {
        uint64_t size = 1 + fuzz_u8(&world->in);
        world->items[i] =
            (struct store_item){names[i], (uint32_t)strlen(names[i]), size, UNSET, 0, NULL};
        world->memory[i] = malloc(size);
        FUZZ_MUST(world->memory[i] != NULL);
        remember(world, size);
    }
    uint64_t deadline_ns = world->now_ns + NS_PER_S;
    const struct store_reserver gds = {world,      gds_segment, gds_reserve, gds_is_current,
                                       gds_commit, gds_abort,   gds_preserve};
    struct store_put_how put_how = {.replica_num = how >> 2 & 3,
                                    .flags = how >> 4 & 1,
                                    .gds = how & 32 ? &gds : NULL,
                                    .gds_optional = how >> 6 & 1};
    world->mount = 1;
    world->required = is_put && (how & 96) == 32;
    if (is_put) {
        struct store_put *put;
        FUZZ_MUST(store_put_create(world->holds, &tuning, world->items, world->count, &put_how,
                                   world->now_ns + NS_PER_S / 2, deadline_ns, &put) == YOLK_OK);
        batch = (struct batch){put, put_next, put_reply, put_link_lost, put_transferred, true};
        drive(world, &batch);
        store_put_destroy(put);
        for (size_t i = 0; i < world->place_count; i++)
            FUZZ_MUST(world->places[i].closed);
    } else {
        struct store_get *get;
        FUZZ_MUST(store_get_create(world->holds, &tuning, NULL, world->items, world->count,
                                   deadline_ns, &get) == YOLK_OK);
        batch.machine = get;
        drive(world, &batch);
        store_get_destroy(get);
    }
    for (size_t i = 0; i < world->count; i++)
        free(world->memory[i]);
}

/* ---- the session ---- */
static uint64_t disk_count(void *self)
{
    (void)self;
    return 1;
}

static int disk_next(void *self, uint64_t *cursor, struct store_disk_offer *offer)
{
    (void)self;
    if (*cursor > 4096)
        return 0;
    *offer = (struct store_disk_offer){.offset = 4096, .size = 7, .key_size = 1, .key = "d"};
    *cursor = 4097;
    return 1;
}

static int disk_reject(void *self, uint64_t offset)
{
    (void)self, (void)offset;
    return YOLK_OK;
}

static void perform(struct world *world, struct store_session *session, bool *linked,
                    const struct store_session_output *out)
{
    uint8_t instance[16] = {0};
    switch (out->kind) {
    case STORE_SESSION_CONNECT:
        instance[0] = fuzz_u8(&world->in) & 3;
        *linked = true;
        store_session_connected(session, world->now_ns, instance);
        break;
    case STORE_SESSION_DISCONNECT:
        *linked = false;
        break;
    case STORE_SESSION_SEND:
        FUZZ_MUST(*linked);
        check_sent(world, out->message, out->body, out->body_size);
        world->request_id = out->request_id;
        break;
    case STORE_SESSION_OPENED:
        FUZZ_MUST(out->session != 0 && store_holds_session(world->holds) == out->session);
        break;
    case STORE_SESSION_EXPIRED:
        store_session_quiet(session, world->now_ns);
        break;
    case STORE_SESSION_FENCE:
        store_session_fenced(session, world->now_ns, out->segment, out->session);
        break;
    case STORE_SESSION_QUIET:
        store_session_disk_quiet(session, world->now_ns);
        break;
    default:
        remember(world, out->segment);
    }
}

static void session_event(struct world *world, struct store_session *session, bool *linked,
                          uint64_t deadline_ns)
{
    uint8_t how = fuzz_u8(&world->in);
    uint16_t kind;
    size_t size;
    if (how < 64) {
        FUZZ_MUST(deadline_ns > world->now_ns);
        world->now_ns = how < 48 && deadline_ns != UINT64_MAX
                            ? deadline_ns
                            : world->now_ns + (uint64_t)how * 50 * NS_PER_MS;
    } else if (how < 72 && *linked) {
        *linked = false;
        store_session_link_lost(session, world->now_ns);
    } else if (how < 76) {
        store_session_unmount(session, world->now_ns, how);
    } else if (*linked) {
        uint8_t *body = say(world, &kind, &size);
        if (body != NULL)
            store_session_input(session, world->now_ns, kind,
                                how < 224 ? world->request_id : choose_number(world), body, size);
        free(body);
    }
}

static void check_mirror(const struct store_mirror *mirror)
{
    struct store_mirror_entry entry;
    uint64_t cursor = 0, last = 0;
    size_t count = 0;
    for (; store_mirror_next(mirror, &cursor, &entry); count++) {
        FUZZ_MUST(count == 0 || entry.offset > last);
        FUZZ_MUST(entry.key != NULL && entry.key_size > 0);
        last = entry.offset;
    }
    FUZZ_MUST(count == store_mirror_count(mirror));
}

static void run_session(struct world *world)
{
    struct store_mirror *mirror;
    struct store_session *session;
    struct store_session_output out;
    struct store_disk_mount disk = {.size = 1 << 20,
                                    .endpoints = "loop=1,2",
                                    .storage_id = {1},
                                    .storage_generation = 1,
                                    .count = disk_count,
                                    .next = disk_next,
                                    .reject = disk_reject};
    uint8_t how = fuzz_u8(&world->in);
    bool linked = false;
    FUZZ_MUST(store_mirror_create(&mirror) == YOLK_OK);
    struct store_session_options options = {.client_id = "client",
                                            .name = "fuzz",
                                            .backoff_first_ns = 10 * NS_PER_MS,
                                            .backoff_max_ns = 100 * NS_PER_MS,
                                            .reply_timeout_ns = NS_PER_S,
                                            .segment_size = how & 1 ? 1 << 20 : 0,
                                            .endpoints = "loop=1,2",
                                            .mirror = mirror,
                                            .holds = world->holds,
                                            .disk = (how & 3) == 3 ? &disk : NULL,
                                            .gds = how & 4 ? &disk : NULL};
    store_holds_set_session(world->holds, 0);
    FUZZ_MUST(store_session_create(&options, &session) == YOLK_OK);
    for (unsigned busy = 0; world->in.at < world->in.end; busy++) {
        FUZZ_MUST(busy < STEPS_MAX);
        store_session_next(session, world->now_ns, &out);
        if (out.kind == STORE_SESSION_CLOSED)
            break;
        if (out.kind != STORE_SESSION_WAIT) {
            perform(world, session, &linked, &out);
            continue;
        }
        busy = 0;
        session_event(world, session, &linked, out.deadline_ns);
    }
    check_mirror(mirror);
    store_session_destroy(session);
    store_mirror_destroy(mirror);
}

/* ---- a list ---- */
struct listing {
    size_t seen, most;
};

static int visit(void *context, const void *key, size_t key_size, uint64_t size)
{
    struct listing *listing = context;
    (void)size;
    /* Each byte must be there. */
    char *copy = fuzz_text(key, key_size);
    free(copy);
    return ++listing->seen == listing->most;
}

static void run_list(struct world *world)
{
    world->message = WIRE_LIST;
    while (world->in.at < world->in.end) {
        struct wire_list_reply page;
        uint16_t kind;
        size_t size;
        struct listing listing = {0, fuzz_u8(&world->in)};
        int stop = 0;
        uint8_t *body = say(world, &kind, &size);
        if (body != NULL && store_message_refused(WIRE_LIST_REPLY, kind, body, size) == YOLK_OK &&
            wire_decode(WIRE_LIST_REPLY, body, size, &page) == YOLK_OK) {
            int status = store_visit_page(&page, visit, &listing, &stop);
            FUZZ_MUST(status == YOLK_OK || yolk_last_error()[0] != '\0');
            FUZZ_MUST(status != YOLK_OK || stop || listing.seen == wire_u64s_count(page.sizes));
        }
        free(body);
        base_error_clear();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {.in = {data, data + size}, .now_ns = NS_PER_S};
    uint8_t how = fuzz_u8(&world.in);
    FUZZ_MUST(store_holds_create(&world.holds) == YOLK_OK);
    store_holds_set_session(world.holds, 7);
    if (how >= 232)
        run_list(&world);
    else if (how % 3 == 2)
        run_session(&world);
    else
        run_batch(&world, how % 3 == 1);
    store_holds_destroy(world.holds);
    return 0;
}
