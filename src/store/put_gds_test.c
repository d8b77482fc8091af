/* SPDX-License-Identifier: Apache-2.0 */
/* Puts that also go to the GDS file, against scripted answers and a file of numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/limits.h"
#include "store/put.h"
#include "store/script.h"

#define MS NS_PER_MS
enum { SEGMENT = 77, ALLOCATED = 4096, PLACES = 256 };

/* A reservation, and how it was closed. */
struct place {
    struct store_reservation given; /* first */
    int closed;                     /* times */
    int how;                        /* 'c', 'a' or 'p' */
    int granted;                    /* the master knows it */
    enum store_outcome outcome;
    uint64_t op;
};

struct fixture {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item items[8];
    char keys[8][32];
    struct store_put *put;
    struct script script;
    struct store_action action;
    uint64_t now;

    struct store_reserver reserver;
    struct place places[PLACES];
    size_t count;
    int refuse; /* enum yolk_status of reserve */
    uint64_t refuse_size;
    int outdated;
};

static uint64_t segment_of(void *self)
{
    (void)self;
    return SEGMENT;
}

static int reserve(void *self, const void *key, size_t key_size, uint64_t size,
                   struct store_reservation **out)
{
    struct fixture *f = self;
    (void)key, (void)key_size;
    if (f->refuse != YOLK_OK && (f->refuse_size == 0 || f->refuse_size == size))
        return f->refuse;
    assert_true(f->count < PLACES);
    struct place *place = &f->places[f->count++];
    memset(place, 0, sizeof(*place));
    place->given.gds.storage_generation = 3;
    place->given.gds.value_offset = (f->count - 1) * (uint64_t)ALLOCATED;
    place->given.gds.value_size = size;
    place->given.gds.allocated_size = ALLOCATED;
    *out = &place->given;
    return YOLK_OK;
}

static int is_current(void *self, const struct store_reservation *reservation)
{
    (void)reservation;
    return !((struct fixture *)self)->outdated;
}

static struct place *close_place(struct store_reservation *reservation, int how)
{
    struct place *place = (struct place *)reservation;
    place->closed++;
    place->how = how;
    return place;
}

static void commit(void *self, struct store_reservation *reservation)
{
    (void)self;
    assert_true(reservation->committed);
    (void)close_place(reservation, 'c');
}

static void abort_it(void *self, struct store_reservation *reservation)
{
    (void)self;
    (void)close_place(reservation, 'a');
}

static void preserve(void *self, struct store_reservation *reservation, uint64_t op,
                     enum store_outcome outcome)
{
    (void)self;
    struct place *place = close_place(reservation, 'p');
    place->outcome = outcome;
    place->op = op;
}

static void begin(struct fixture *f, size_t count, int optional)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    script_client(&f->script, &f->holds, &f->tuning, f->items, f->keys, count, 100);
    f->reserver = (struct store_reserver){.self = f,
                                          .segment = segment_of,
                                          .reserve = reserve,
                                          .is_current = is_current,
                                          .commit = commit,
                                          .abort = abort_it,
                                          .preserve = preserve};
    const struct store_put_how how = {
        .replica_num = 1, .gds = &f->reserver, .gds_optional = optional};
    assert_int_equal(store_put_create(f->holds, &f->tuning, f->items, count, &how,
                                      f->now + 100 * MS, f->now + 1000 * MS, &f->put),
                     YOLK_OK);
}

/* Each reservation was closed once: a leak fails here. */
static void finish(struct fixture *f)
{
    store_put_destroy(f->put);
    for (size_t i = 0; i < f->count; i++)
        assert_int_equal(f->places[i].closed, 1);
    assert_int_equal(store_holds_live_count(f->holds), 0);
    store_holds_destroy(f->holds);
    script_free(&f->script);
}

static enum store_action_kind next(struct fixture *f)
{
    store_put_next(f->put, f->now, &f->action);
    return f->action.kind;
}

static void expect(struct fixture *f, enum store_action_kind kind, uint16_t message)
{
    while (next(f) == STORE_WAIT && f->action.deadline_ns != UINT64_MAX)
        f->now = f->action.deadline_ns;
    assert_int_equal(f->action.kind, kind);
    if (kind == STORE_SEND)
        assert_int_equal(f->action.message, message);
}

static void granted(struct fixture *f)
{
    assert_int_equal(script_put_reply(&f->script, YOLK_OK), YOLK_OK);
    store_put_reply(f->put, f->now, WIRE_PUT_START_REPLY, f->script.body.data, f->script.body.size);
    script_clear(&f->script);
}

static void closed(struct fixture *f, uint16_t kind, uint32_t count, int32_t result)
{
    assert_int_equal(script_results_reply(&f->script, kind, YOLK_OK, count, result), YOLK_OK);
    store_put_reply(f->put, f->now, kind, f->script.body.data, f->script.body.size);
    script_clear(&f->script);
}

/* One more replica of the last key: in the file. */
static void grant_in_file(struct fixture *f, uint64_t offset)
{
    static const uint8_t no_ticket[WIRE_TICKET_SIZE];
    struct wire_replica replica = {.segment = SEGMENT, .offset = offset, .medium = WIRE_MEDIUM_GDS};
    assert_int_equal(wire_replica_append(&f->script.replicas, &replica), YOLK_OK);
    assert_int_equal(wire_ticket_append(&f->script.tickets, no_ticket), YOLK_OK);
    /* One more than script_place has said. */
    struct base_buf *results = &f->script.results;
    uint32_t last = wire_result_count(wire_view_buf(results)) - 1;
    struct wire_result result = wire_result_at(wire_view_buf(results), last);
    result.replica_count++;
    results->size -= WIRE_RESULT_SIZE;
    assert_int_equal(wire_result_append(results, &result), YOLK_OK);
}

/* The next key's grant: `memory` replicas, then the one at that place of the file. */
static void grant(struct fixture *f, uint32_t memory, size_t place)
{
    f->places[place].granted = 1;
    assert_int_equal(script_place(&f->script, YOLK_OK, 100, memory, 10, 640), 0);
    grant_in_file(f, f->places[place].given.gds.value_offset);
}

static void refuse(struct fixture *f, int32_t status)
{
    assert_int_equal(script_place(&f->script, status, 0, 0, 0, 0), 0);
}

static void journal_takes(struct fixture *f, size_t count)
{
    expect(f, STORE_COMMIT, 0);
    assert_int_equal(f->action.commit_count, count);
    for (size_t i = 0; i < count; i++)
        f->action.commits[i]->committed = 1;
    store_put_committed(f->put, f->now);
}

static struct wire_gds named(struct fixture *f, uint32_t place, bool *given)
{
    struct wire_put_start start;
    struct wire_gdss list;
    struct wire_gds gds = {.value_size = 0};
    assert_int_equal(wire_decode(WIRE_PUT_START, f->action.body, f->action.body_size, &start),
                     YOLK_OK);
    assert_int_equal(wire_gdss_open(start.gds, 8, &list), YOLK_OK);
    for (uint32_t i = 0; i <= place; i++)
        assert_true(wire_gdss_next(&list, &gds, given));
    return gds;
}

static void both_are_written_at_once(void **state)
{
    (void)state;
    struct fixture f;
    bool given;
    begin(&f, 1, 0);
    expect(&f, STORE_SEND, WIRE_PUT_START);
    assert_int_equal(f.count, 1); /* before the master is asked */
    struct wire_gds gds = named(&f, 0, &given);
    assert_true(given && wire_gds_equal(&gds, &f.places[0].given.gds));
    struct wire_put_start start;
    assert_int_equal(wire_decode(WIRE_PUT_START, f.action.body, f.action.body_size, &start),
                     YOLK_OK);
    assert_true(start.flags & WIRE_PUT_ALL_COPIES); /* memory that opens in a moment */
    grant(&f, 1, 0);
    granted(&f);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.medium, WIRE_MEDIUM_MEMORY);
    assert_null(f.action.reservation);
    uint64_t memory = f.action.cookie;
    assert_int_equal(next(&f), STORE_TRANSFER); /* the first is not over */
    assert_int_equal(f.action.medium, WIRE_MEDIUM_GDS);
    assert_ptr_equal(f.action.reservation, &f.places[0].given);
    assert_int_equal(f.action.segment, SEGMENT);
    assert_int_equal(f.action.size, 100); /* never what is allocated */
    uint64_t file = f.action.cookie;
    assert_int_equal(next(&f), STORE_WAIT);
    store_put_transferred(f.put, f.now, file, YOLK_OK);
    assert_int_equal(next(&f), STORE_WAIT); /* for both */
    store_put_transferred(f.put, f.now, memory, YOLK_OK);
    journal_takes(&f, 1);
    assert_int_equal(f.places[0].how, 'c');
    expect(&f, STORE_SEND, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    finish(&f);
}

/* Whichever of both fails: nothing is committed, both are revoked, and the next try has another
 * place, for the master says when this one is free. */
static void one_that_fails_revokes_both(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        struct fixture f;
        begin(&f, 1, 0);
        expect(&f, STORE_SEND, WIRE_PUT_START);
        uint64_t op = f.action.op;
        grant(&f, 1, 0);
        granted(&f);
        for (int i = 0; i < 2; i++)
            assert_int_equal(next(&f), STORE_TRANSFER);
        for (int i = 0; i < 2; i++)
            store_put_transferred(f.put, f.now, (uint64_t)i, i == bad ? YOLK_ERR_IO : YOLK_OK);
        if (bad == 2) { /* the journal */
            expect(&f, STORE_COMMIT, 0);
            store_put_committed(f.put, f.now);
        }
        expect(&f, STORE_SEND, WIRE_PUT_REVOKE);
        assert_int_equal(f.places[0].closed, 0);
        closed(&f, WIRE_PUT_REVOKE_REPLY, 1, YOLK_OK);
        expect(&f, STORE_SEND, WIRE_PUT_START);
        assert_int_equal(f.places[0].how, 'p');
        assert_int_equal(f.places[0].outcome, STORE_OUTCOME_TOLD);
        assert_int_equal(f.places[0].op, op);
        assert_int_equal(f.count, 2);
        refuse(&f, YOLK_ERR_EXISTS);
        granted(&f);
        assert_int_equal(f.places[1].how, 'a');
        assert_int_equal(next(&f), STORE_DONE);
        assert_int_equal(f.items[0].result, 100);
        finish(&f);
    }
}

/* Three keys: one lands, one fails at its transfer, one is refused by the master. */
static void each_key_ends_by_itself(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 3, 0);
    expect(&f, STORE_SEND, WIRE_PUT_START);
    grant(&f, 1, 0);
    grant(&f, 0, 1); /* in the file alone */
    refuse(&f, YOLK_ERR_INVALID);
    granted(&f);
    assert_int_equal(f.places[2].how, 'a');
    assert_int_equal(f.items[2].result, YOLK_ERR_INVALID);
    for (int i = 0; i < 3; i++)
        assert_int_equal(next(&f), STORE_TRANSFER);
    for (int i = 0; i < 3; i++)
        store_put_transferred(f.put, f.now, (uint64_t)i, i == 2 ? YOLK_ERR_IO : YOLK_OK);
    journal_takes(&f, 1);
    expect(&f, STORE_SEND, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
    assert_int_equal(f.items[0].result, 100);
    expect(&f, STORE_SEND, WIRE_PUT_REVOKE);
    closed(&f, WIRE_PUT_REVOKE_REPLY, 1, YOLK_OK);
    expect(&f, STORE_SEND, WIRE_PUT_START); /* of the second again */
    grant(&f, 0, 3);
    granted(&f);
    assert_int_equal(next(&f), STORE_TRANSFER);
    assert_int_equal(f.action.item, 1);
    store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    journal_takes(&f, 1);
    expect(&f, STORE_SEND, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[1].result, 100);
    finish(&f);
}

static void room_reply(struct fixture *f, int32_t status)
{
    struct wire_gds_room_reply reply = {.status = status, .pending = 1};
    base_buf_clear(&f->script.body);
    assert_int_equal(wire_encode(WIRE_GDS_ROOM_REPLY, &reply, &f->script.body), YOLK_OK);
    store_put_reply(f->put, f->now, WIRE_GDS_ROOM_REPLY, f->script.body.data, f->script.body.size);
}

/* The master is asked for room, the other key goes on meanwhile; at the end of the time for space
 * the key fails, and no START ever named it. */
static void without_room_it_fails_before_the_start(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_gds_room room;
    int asked = 0;
    begin(&f, 2, 0);
    f.items[1].size = 200;
    f.refuse = YOLK_ERR_NO_SPACE;
    f.refuse_size = 200;
    expect(&f, STORE_SEND, WIRE_PUT_START);
    grant(&f, 1, 0);
    granted(&f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(next(&f), STORE_TRANSFER);
        assert_int_equal(f.action.item, 0);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
    }
    journal_takes(&f, 1);
    expect(&f, STORE_SEND, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
    while (next(&f) != STORE_DONE) {
        if (f.action.kind == STORE_WAIT) {
            f.now = f.action.deadline_ns;
            continue;
        }
        assert_int_equal(f.action.kind, STORE_SEND);
        assert_int_equal(f.action.message, WIRE_GDS_ROOM);
        assert_int_equal(wire_decode(WIRE_GDS_ROOM, f.action.body, f.action.body_size, &room),
                         YOLK_OK);
        assert_int_equal(room.segment, SEGMENT);
        assert_int_equal(room.size, 200);
        if (asked++ % 2 == 0)
            room_reply(&f, YOLK_OK);
        else
            store_put_link_lost(f.put, f.now);
    }
    assert_true(asked > 1);
    assert_true(f.now >= 1100 * MS && f.now < 1200 * MS);
    assert_int_equal(f.items[0].result, 100);
    assert_int_equal(f.items[1].result, YOLK_ERR_NO_SPACE);
    finish(&f);
}

/* Where it may, it goes on without: at once when the master has none to give, or never could. */
static void without_room_in_memory_alone(void **state)
{
    (void)state;
    for (int never = 0; never < 2; never++) {
        struct fixture f;
        bool given;
        begin(&f, 1, 1);
        f.refuse = never ? YOLK_ERR_TOO_LARGE : YOLK_ERR_NO_SPACE;
        if (!never) {
            expect(&f, STORE_SEND, WIRE_GDS_ROOM);
            room_reply(&f, YOLK_ERR_NO_SPACE);
        }
        expect(&f, STORE_SEND, WIRE_PUT_START);
        assert_true(f.now < 1050 * MS);
        (void)named(&f, 0, &given);
        assert_false(given);
        assert_int_equal(script_place(&f.script, YOLK_OK, 100, 1, 10, 640), 0);
        granted(&f);
        assert_int_equal(next(&f), STORE_TRANSFER);
        store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
        expect(&f, STORE_SEND, WIRE_PUT_END); /* nothing is to be committed */
        closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
        assert_int_equal(next(&f), STORE_DONE);
        assert_int_equal(f.items[0].result, 100);
        finish(&f);
    }
}

static void a_value_of_no_bytes_takes_no_place(void **state)
{
    (void)state;
    struct fixture f;
    bool given;
    begin(&f, 1, 0);
    f.items[0].size = 0;
    expect(&f, STORE_SEND, WIRE_PUT_START);
    assert_int_equal(f.count, 0);
    (void)named(&f, 0, &given);
    assert_false(given);
    assert_int_equal(script_place(&f.script, YOLK_OK, 0, 0, 0, 0), 0);
    granted(&f);
    expect(&f, STORE_SEND, WIRE_PUT_END);
    closed(&f, WIRE_PUT_END_REPLY, 1, YOLK_OK);
    assert_int_equal(next(&f), STORE_DONE);
    assert_int_equal(f.items[0].result, 0);
    finish(&f);
}

/* A START whose answer never comes: the master may have it. It is revoked, and what that answers
 * decides. */
static void an_unanswered_start_is_no_free_place(void **state)
{
    (void)state;
    static const struct {
        int32_t result; /* of the REVOKE; 1: it is not answered either */
        enum store_outcome outcome;
    } cases[] = {{YOLK_OK, STORE_OUTCOME_TOLD},
                 {YOLK_ERR_NOT_FOUND, STORE_OUTCOME_ABSENT},
                 {1, STORE_OUTCOME_UNKNOWN}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fixture f;
        begin(&f, 1, 0);
        expect(&f, STORE_SEND, WIRE_PUT_START);
        uint64_t op = f.action.op;
        store_put_link_lost(f.put, f.now);
        f.now = 2001 * MS;
        expect(&f, STORE_SEND, WIRE_PUT_REVOKE);
        assert_int_equal(f.action.op, op);
        assert_int_equal(f.places[0].closed, 0);
        if (cases[i].result <= 0)
            closed(&f, WIRE_PUT_REVOKE_REPLY, 1, cases[i].result);
        else
            store_put_link_lost(f.put, f.now);
        expect(&f, STORE_DONE, 0);
        assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
        assert_int_equal(f.places[0].how, 'p');
        assert_int_equal(f.places[0].outcome, cases[i].outcome);
        /* What nobody says ends with the session. */
        int unknown = cases[i].outcome == STORE_OUTCOME_UNKNOWN;
        assert_int_equal(store_holds_wants_new_session(f.holds), unknown);
        store_holds_session_ended(f.holds);
        finish(&f);
    }
}

/* One that never was sent was never heard. */
static void without_a_session_the_place_is_free(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 0);
    store_holds_set_session(f.holds, 0);
    f.now = 2001 * MS;
    expect(&f, STORE_DONE, 0);
    assert_int_equal(f.items[0].result, YOLK_ERR_TIMEOUT);
    for (size_t i = 0; i < f.count; i++)
        assert_int_equal(f.places[i].how, 'a');
    finish(&f);
}

/* The file was mounted anew between reserve and START: another place is named. */
static void a_new_mount_needs_a_new_place(void **state)
{
    (void)state;
    struct fixture f;
    bool given;
    begin(&f, 1, 0);
    store_holds_set_session(f.holds, 0);
    assert_int_equal(next(&f), STORE_WAIT);
    assert_int_equal(f.count, 1);
    f.outdated = 1;
    f.now = f.action.deadline_ns;
    assert_int_equal(next(&f), STORE_WAIT);
    assert_int_equal(f.places[0].how, 'a');
    f.outdated = 0;
    store_holds_set_session(f.holds, 8);
    expect(&f, STORE_SEND, WIRE_PUT_START);
    struct wire_gds gds = named(&f, 0, &given);
    assert_true(given && wire_gds_equal(&gds, &f.places[1].given.gds));
    refuse(&f, YOLK_ERR_EXISTS);
    granted(&f);
    expect(&f, STORE_DONE, 0);
    finish(&f);
}

/* Bytes may still come: the place is nobody's any more, and the key is not revoked. */
static void a_write_that_never_ends_keeps_its_place(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 1, 0);
    expect(&f, STORE_SEND, WIRE_PUT_START);
    grant(&f, 1, 0);
    granted(&f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(next(&f), STORE_TRANSFER);
    store_put_transferred(f.put, f.now, 0, YOLK_OK);
    store_put_transferred(f.put, f.now, 1, YOLK_ERR_STUCK);
    expect(&f, STORE_DONE, 0);
    assert_int_equal(f.items[0].result, YOLK_ERR_STUCK);
    assert_int_equal(f.places[0].outcome, STORE_OUTCOME_STUCK);
    assert_true(store_holds_wants_new_session(f.holds));
    store_holds_session_ended(f.holds);
    finish(&f);
}

/* The master's answer names another place, or none: it is not written to. */
static void a_place_that_was_not_reserved_is_refused(void **state)
{
    (void)state;
    enum { NONE, ANOTHER, ONE_MORE, CASES };
    for (int which = 0; which < CASES; which++) {
        struct fixture f;
        begin(&f, 1, 0);
        expect(&f, STORE_SEND, WIRE_PUT_START);
        uint64_t reserved = f.places[0].given.gds.value_offset;
        assert_int_equal(script_place(&f.script, YOLK_OK, 100, which == NONE, 10, 640), 0);
        if (which == ONE_MORE)
            grant_in_file(&f, reserved);
        if (which != NONE)
            grant_in_file(&f, reserved + ALLOCATED);
        granted(&f);
        while (next(&f) == STORE_TRANSFER) {
            assert_true(f.action.medium != WIRE_MEDIUM_GDS || f.action.offset == reserved);
            store_put_transferred(f.put, f.now, f.action.cookie, YOLK_OK);
        }
        assert_int_equal(f.action.kind, STORE_SEND);
        assert_int_equal(f.action.message, WIRE_PUT_REVOKE);
        f.now = 2001 * MS;
        closed(&f, WIRE_PUT_REVOKE_REPLY, 1, YOLK_OK);
        expect(&f, STORE_DONE, 0);
        assert_int_equal(f.items[0].result, YOLK_ERR_PROTOCOL);
        finish(&f);
    }
}

/* ---- whatever happens ---- */

struct course {
    uint64_t random;
    uint64_t flying[64];
    size_t flying_count;
};

static uint64_t draw(struct course *c, uint64_t below)
{
    c->random = base_mix64(c->random + 0x9e3779b97f4a7c15u);
    return c->random % below;
}

static void answer_start(struct fixture *f, struct course *c)
{
    struct wire_put_start start;
    struct wire_gdss list;
    struct wire_gds gds;
    bool given;
    assert_int_equal(wire_decode(WIRE_PUT_START, f->action.body, f->action.body_size, &start),
                     YOLK_OK);
    assert_int_equal(wire_gdss_open(start.gds, 8, &list), YOLK_OK);
    while (wire_gdss_next(&list, &gds, &given)) {
        static const int32_t refusals[] = {YOLK_ERR_EXISTS, YOLK_ERR_NO_SPACE, YOLK_ERR_INVALID,
                                           YOLK_ERR_AGAIN};
        if (draw(c, 3) == 0)
            refuse(f, refusals[draw(c, 4)]);
        else if (given)
            grant(f, (uint32_t)draw(c, 2), (size_t)(gds.value_offset / ALLOCATED));
        else
            assert_int_equal(script_place(&f->script, YOLK_OK, 100, 1, 10, 640), 0);
    }
    granted(f);
}

static void answer(struct fixture *f, struct course *c)
{
    struct wire_keys_request request;
    struct wire_keys keys;
    static const int32_t results[] = {YOLK_OK, YOLK_OK, YOLK_ERR_NOT_FOUND, YOLK_ERR_STALE};
    uint16_t kind = f->action.message;
    if (draw(c, 6) == 0) {
        store_put_link_lost(f->put, f->now);
    } else if (kind == WIRE_PUT_START) {
        answer_start(f, c);
    } else if (kind == WIRE_GDS_ROOM) {
        room_reply(f, draw(c, 2) ? YOLK_OK : YOLK_ERR_NO_SPACE);
    } else {
        assert_int_equal(wire_decode(kind, f->action.body, f->action.body_size, &request), YOLK_OK);
        assert_int_equal(wire_keys_open(request.keys, 8, &keys), YOLK_OK);
        closed(f, (uint16_t)(kind + 1), keys.count, results[draw(c, 4)]);
    }
}

static void end_a_transfer(struct fixture *f, struct course *c)
{
    size_t which = (size_t)draw(c, c->flying_count);
    uint64_t cookie = c->flying[which];
    c->flying[which] = c->flying[--c->flying_count];
    store_put_transferred(f->put, f->now, cookie,
                          draw(c, 6) == 0 ? (draw(c, 8) == 0 ? YOLK_ERR_STUCK : YOLK_ERR_IO)
                                          : YOLK_OK);
}

static void step(struct fixture *f, struct course *c)
{
    f->outdated = draw(c, 16) == 0;
    f->refuse = draw(c, 5) == 0 ? YOLK_ERR_NO_SPACE : YOLK_OK;
    switch (f->action.kind) {
    case STORE_SEND:
        answer(f, c);
        break;
    case STORE_TRANSFER:
        c->flying[c->flying_count++] = f->action.cookie;
        break;
    case STORE_COMMIT:
        for (size_t i = 0; i < f->action.commit_count; i++)
            f->action.commits[i]->committed = draw(c, 4) != 0;
        store_put_committed(f->put, f->now);
        break;
    case STORE_WAIT:
        if (c->flying_count > 0)
            end_a_transfer(f, c);
        else
            f->now = f->action.deadline_ns;
        break;
    case STORE_DONE:
        break;
    }
}

/* Of every course: each reservation is closed once, by a commit only if the journal has it and by
 * an abort only if no answer had granted it; none is closed while its bytes are on their way. */
static void every_reservation_is_closed_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct fixture f;
        struct course c = {.random = seed};
        int turns = 0;
        begin(&f, 4, (int)(seed % 2));
        f.items[3].size = seed % 3 == 0 ? 0 : 100;
        while (next(&f) != STORE_DONE) {
            assert_true(turns++ < 10000);
            step(&f, &c);
        }
        assert_int_equal(c.flying_count, 0);
        for (size_t i = 0; i < 4; i++)
            assert_true(f.items[i].result != 99);
        for (size_t i = 0; i < f.count; i++)
            assert_true(f.places[i].how != 'a' ||
                        (!f.places[i].given.committed && !f.places[i].granted));
        store_holds_session_ended(f.holds); /* of those that are stuck */
        finish(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_are_written_at_once),
        cmocka_unit_test(one_that_fails_revokes_both),
        cmocka_unit_test(each_key_ends_by_itself),
        cmocka_unit_test(without_room_it_fails_before_the_start),
        cmocka_unit_test(without_room_in_memory_alone),
        cmocka_unit_test(a_value_of_no_bytes_takes_no_place),
        cmocka_unit_test(an_unanswered_start_is_no_free_place),
        cmocka_unit_test(without_a_session_the_place_is_free),
        cmocka_unit_test(a_new_mount_needs_a_new_place),
        cmocka_unit_test(a_write_that_never_ends_keeps_its_place),
        cmocka_unit_test(a_place_that_was_not_reserved_is_refused),
        cmocka_unit_test(every_reservation_is_closed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
