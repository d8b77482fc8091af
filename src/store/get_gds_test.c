/* SPDX-License-Identifier: Apache-2.0 */
/* Gets of values that also lie in GDS files: the order of replicas, and the six fields on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/limits.h"
#include "store/get.h"
#include "store/script.h"
#include "store/segments.h"

#define MS NS_PER_MS
enum {
    OWN_MEMORY = 10,
    MEMORY = 20,
    OWN_GDS = 30,
    OWN_DISK = 40,
    DISK = 50,
    GDS = 60,
    UNKNOWN = 70
};

struct fixture {
    struct store_holds *holds;
    struct store_tuning tuning;
    struct store_item items[1];
    char keys[1][32];
    struct store_segments *segments;
    struct store_replica_choice choice;
    struct store_get *get;
    struct script script;
    struct base_buf gds;
    struct store_action action;
    uint64_t now;
};

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    script_client(&f->script, &f->holds, &f->tuning, f->items, f->keys, 1, 100);
    base_buf_init(&f->gds, 1 << 16);
    assert_int_equal(store_segments_create(NULL, NULL, f->holds, "auto", &f->segments), YOLK_OK);
    store_segments_set_own(f->segments, OWN_MEMORY, OWN_DISK);
    store_segments_set_gds(f->segments, OWN_GDS);
    f->choice = store_segments_choice(f->segments);
    assert_int_equal(store_get_create(f->holds, &f->tuning, &f->choice, f->items, 1,
                                      f->now + 1000 * MS, &f->get),
                     YOLK_OK);
    store_get_next(f->get, f->now, &f->action);
    assert_int_equal(f->action.message, WIRE_GET_START);
}

static void finish(struct fixture *f)
{
    store_get_destroy(f->get);
    store_segments_destroy(f->segments);
    assert_int_equal(store_holds_live_count(f->holds), 0);
    store_holds_destroy(f->holds);
    base_buf_free(&f->gds);
    script_free(&f->script);
}

static struct wire_gds descriptor(uint64_t segment)
{
    struct wire_gds gds = {.storage_generation = segment + 1,
                           .value_offset = segment * 4096,
                           .value_size = 100,
                           .allocated_size = 4096};
    memset(gds.owner_client_id, (int)segment, sizeof(gds.owner_client_id));
    memset(gds.storage_id, (int)segment + 2, sizeof(gds.storage_id));
    return gds;
}

static uint32_t medium_of(uint64_t segment)
{
    return segment == OWN_GDS || segment == GDS     ? WIRE_MEDIUM_GDS
           : segment == OWN_DISK || segment == DISK ? WIRE_MEDIUM_LOCAL_DISK
           : segment == UNKNOWN                     ? 9
                                                    : WIRE_MEDIUM_MEMORY;
}

/* The key has 100 bytes at each of the segments; of so many the descriptor is left out. */
static void answer(struct fixture *f, const uint64_t *segments, uint32_t count, uint32_t left_out)
{
    struct wire_result result = {.size = 100, .replica_count = count};
    uint32_t told = 0, files = 0;
    for (uint32_t i = 0; i < count; i++)
        files += medium_of(segments[i]) == WIRE_MEDIUM_GDS;
    assert_int_equal(wire_result_append(&f->script.results, &result), YOLK_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct wire_gds gds = descriptor(segments[i]);
        struct wire_replica replica = {
            .segment = segments[i], .offset = gds.value_offset, .medium = medium_of(segments[i])};
        assert_int_equal(wire_replica_append(&f->script.replicas, &replica), YOLK_OK);
        if (replica.medium == WIRE_MEDIUM_GDS && told++ + left_out < files)
            assert_int_equal(wire_gds_append(&f->gds, &gds), YOLK_OK);
    }
    struct wire_get_start_reply reply = {
        .guard_ttl_ms = 10000,
        .results = wire_view_buf(&f->script.results),
        .replicas = wire_view_buf(&f->script.replicas),
        .gds = wire_view_buf(&f->gds),
    };
    assert_int_equal(wire_encode(WIRE_GET_START_REPLY, &reply, &f->script.body), YOLK_OK);
    store_get_reply(f->get, f->now, WIRE_GET_START_REPLY, f->script.body.data, f->script.body.size);
}

/* Each fails in its turn; the master lists them the other way round. */
static void one_order_for_every_replica(void **state)
{
    (void)state;
    static const uint64_t listed[] = {GDS, DISK, OWN_DISK, OWN_GDS, MEMORY, OWN_MEMORY};
    struct fixture f;
    begin(&f);
    answer(&f, listed, 6, 0);
    for (int i = 5; i >= 0; i--) {
        store_get_next(f.get, f.now, &f.action);
        assert_int_equal(f.action.kind, STORE_TRANSFER);
        assert_int_equal(f.action.segment, listed[i]);
        assert_int_equal(f.action.medium, medium_of(listed[i]));
        assert_int_equal(f.action.size, 100);
        if (f.action.medium != WIRE_MEDIUM_MEMORY) {
            assert_int_equal(f.action.key_size, 2);
            assert_memory_equal(f.action.key, "k0", 2);
            assert_true(f.action.key_hash == base_hash64("k0", 2));
        }
        if (f.action.medium == WIRE_MEDIUM_GDS) {
            struct wire_gds wanted = descriptor(listed[i]);
            assert_true(wire_gds_equal(f.action.gds, &wanted));
        }
        store_get_transferred(f.get, f.now, f.action.cookie, i == 0 ? YOLK_OK : YOLK_ERR_LINK);
    }
    store_get_next(f.get, f.now, &f.action);
    assert_int_equal(f.action.kind, STORE_DONE);
    assert_int_equal(f.items[0].result, 100);
    assert_int_equal(f.items[0].medium, WIRE_MEDIUM_GDS);
    finish(&f);
}

/* Without the six fields nothing proves what lies there. */
static void a_replica_without_its_descriptor(void **state)
{
    (void)state;
    static const uint64_t listed[] = {GDS, OWN_GDS};
    struct fixture f;
    begin(&f);
    answer(&f, listed, 2, 1);
    store_get_next(f.get, f.now, &f.action);
    assert_int_equal(f.action.kind, STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_PROTOCOL);
    finish(&f);
}

static void a_replica_of_an_unknown_type(void **state)
{
    (void)state;
    static const uint64_t listed[] = {MEMORY, UNKNOWN};
    struct fixture f;
    begin(&f);
    answer(&f, listed, 2, 0);
    store_get_next(f.get, f.now, &f.action);
    assert_int_equal(f.action.kind, STORE_DONE);
    assert_int_equal(f.items[0].result, YOLK_ERR_PROTOCOL);
    finish(&f);
}

/* Read twice in vain: the master is told that the file does not have it. */
static void what_the_file_lacks_is_told(void **state)
{
    (void)state;
    static const uint64_t listed[] = {OWN_GDS};
    struct fixture f;
    int told = 0;
    begin(&f);
    for (int turns = 0; turns < 50 && !told; turns++) {
        if (f.action.kind == STORE_SEND && f.action.message == WIRE_GET_START) {
            script_clear(&f.script);
            base_buf_clear(&f.gds);
            answer(&f, listed, 1, 0);
        } else if (f.action.kind == STORE_TRANSFER) {
            store_get_transferred(f.get, f.now, f.action.cookie, YOLK_ERR_STALE);
        } else if (f.action.kind == STORE_WAIT) {
            f.now = f.action.deadline_ns;
        }
        store_get_next(f.get, f.now, &f.action);
        told = f.action.kind == STORE_SEND && f.action.message == WIRE_REPLICA_BAD;
    }
    struct wire_replica_bad bad;
    assert_true(told);
    assert_int_equal(wire_decode(WIRE_REPLICA_BAD, f.action.body, f.action.body_size, &bad),
                     YOLK_OK);
    struct wire_replica replica = wire_replica_at(bad.replicas, 0);
    assert_int_equal(replica.segment, OWN_GDS);
    assert_int_equal(replica.medium, WIRE_MEDIUM_GDS);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_order_for_every_replica),
        cmocka_unit_test(a_replica_without_its_descriptor),
        cmocka_unit_test(a_replica_of_an_unknown_type),
        cmocka_unit_test(what_the_file_lacks_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
