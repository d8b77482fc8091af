/* SPDX-License-Identifier: Apache-2.0 */
/* Puts into GDS files: what is placed, refused, committed, given up and read. */
#include "master/gds_kit.h"
#include "master/twin.h"

static int start_without_memory(void **state)
{
    set_up(state, NULL, 0);
    return 0;
}
#define NO_MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, start_without_memory, kit_stop)

static int start_with_quota(void **state)
{
    struct master_config config = {.tenants = "default=16KiB"};
    set_up(state, &config, MEMORY);
    return 0;
}

static void both_are_written_and_committed(void **state)
{
    (void)state;
    struct wire_gds gds = place_at(1, 8192, 5000);
    struct wire_put_start_reply reply = start_put(1, writer, 1, "a", 5000, &gds, NULL);
    struct wire_result result = wire_result_at(reply.results, 0);
    assert_int_equal(result.status, YOLK_OK);
    assert_int_equal(result.replica_count, 2);
    assert_int_equal(reply.why.size, 0);
    struct wire_replica first = wire_replica_at(reply.replicas, 0);
    struct wire_replica last = wire_replica_at(reply.replicas, 1);
    assert_true(first.segment == memory && first.medium == WIRE_MEDIUM_MEMORY);
    assert_true(last.segment == file && last.medium == WIRE_MEDIUM_GDS && last.offset == 8192);
    static const uint8_t zeros[WIRE_TICKET_SIZE];
    assert_memory_not_equal(wire_ticket_at(reply.tickets, 0), zeros, sizeof zeros);
    assert_memory_equal(wire_ticket_at(reply.tickets, 1), zeros, sizeof zeros);
    /* While they are being written nobody is told of them. */
    assert_int_equal(peek("a").status, YOLK_ERR_NOT_READY);
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.open_bytes, 5056);
    assert_int_equal(stats.gds_open_bytes, 8192);
    kit_check(kit.core);
    assert_int_equal(end_put(1, "a"), YOLK_OK);
    struct found found = peek("a");
    assert_int_equal(found.in_memory, 1);
    assert_int_equal(found.gds_count, 1);
    assert_true(wire_gds_equal(&found.gds[0], &gds));
    stats = kit_stats(&kit);
    assert_true(stats.gds_segments == 1 && stats.gds_capacity_bytes == FILE_SIZE &&
                stats.gds_live_bytes == 8192 && stats.gds_open_bytes == 0 &&
                stats.gds_extents == 1 && stats.gds_objects == 1 && stats.gds_starts == 1 &&
                stats.gds_ends == 1 && stats.gds_only == 0 && stats.live_bytes == 5056 &&
                stats.capacity_bytes == MEMORY && stats.disk_capacity_bytes == 0);
    assert_int_equal(freed_count, 0);
}

static void a_revoke_gives_up_both(void **state)
{
    (void)state;
    assert_int_equal(put_at(1, "a", 5000, 8192, NULL).replica_count, 2);
    assert_int_equal(kit_keys_call(&kit, 1, writer, 1, WIRE_PUT_REVOKE, "a"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 1);
    assert_int_equal(freed[0], 8192);
    assert_int_equal(peek("a").status, YOLK_ERR_NOT_FOUND);
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.open_bytes + stats.gds_open_bytes + stats.gds_limbo_bytes, 0);
    assert_int_equal(stats.gds_extents, 0);
}

/* The client is asked first whether it is quiet; only then it is told to delete. */
static void a_put_that_runs_out_of_time(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        uint64_t op = ++kit.op;
        const char *key = round == 0 ? "a" : "b";
        assert_int_equal(put_at(op, key, VALUE, 0, NULL).replica_count, 2);
        for (int s = 0; s < 31; s++) {
            pump();
            kit_pass(&kit, 1000, writer, reader);
        }
        assert_non_null(kit_pushed(&kit, WIRE_PUT_EXPIRED));
        pump();
        assert_int_equal(freed_count, round);
        assert_int_equal(kit_stats(&kit).gds_limbo_bytes, VALUE);
        int status =
            kit_keys_call(&kit, 1, writer, op, round ? WIRE_PUT_END : WIRE_PUT_REVOKE, key);
        assert_int_equal(status, round ? YOLK_ERR_TIMEOUT : YOLK_OK);
        pump();
        assert_int_equal(freed_count, round + 1);
        assert_int_equal(kit_stats(&kit).gds_extents, 0);
    }
}

/* A client that falls silent cannot be asked; its file is not given to others anyway. */
static void a_writer_that_falls_silent(void **state)
{
    (void)state;
    assert_int_equal(put_at(1, "a", VALUE, 0, NULL).replica_count, 2);
    assert_int_equal(stored("b", VALUE, 8192, NULL), 2);
    kit_pass(&kit, 12000, 0, reader);
    assert_int_equal(peek("a").status, YOLK_ERR_NOT_FOUND);
    assert_int_equal(peek("b").status, YOLK_ERR_NOT_FOUND);
    struct master_stats stats = kit_stats(&kit);
    assert_true(stats.gds_segments == 0 && stats.gds_objects == 0 && stats.gds_live_bytes == 0 &&
                stats.gds_lost_bytes >= VALUE);
    assert_int_equal(kit_keys_call(&kit, 1, writer, 1, WIRE_PUT_END, "a"), YOLK_ERR_STALE);
    kit_check(kit.core);
}

static void without_memory_there_is_gds_alone(void **state)
{
    (void)state;
    assert_int_equal(stored("a", 5000, 0, NULL), 1);
    struct found found = look(1, writer, "a", 0);
    assert_int_equal(found.in_memory, 0);
    assert_int_equal(found.gds_count, 1);
    struct wire_gds gds = place_at(1, 0, 5000);
    assert_true(wire_gds_equal(&found.gds[0], &gds));
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.gds_only, 1);
    assert_int_equal(stats.put_no_space, 0);
    assert_int_equal(stats.put_short, 0);
    assert_int_equal(stats.objects, 1);
    /* What has no extent is refused as ever. */
    assert_int_equal(kit_put(&kit, 1, writer, ++kit.op, "b", 5000, NULL).status, YOLK_ERR_NO_SPACE);
    /* And an existing key, without a replica of it being added. */
    assert_int_equal(put_at(++kit.op, "a", 5000, 16384, NULL).status, YOLK_ERR_EXISTS);
    assert_int_equal(kit_stats(&kit).gds_extents, 1);
}

static void a_full_memory_leads_to_gds_alone(void **state)
{
    (void)state;
    char key[2] = "a";
    for (; key[0] < 'a' + 16; key[0]++) {
        kit_store(&kit, 1, writer, key, VALUE);
        (void)look(2, reader, key, 0); /* read: none can go */
    }
    assert_int_equal(stored("x", VALUE, 0, NULL), 1);
    assert_int_equal(kit_stats(&kit).gds_only, 1);
    assert_int_equal(kit_put(&kit, 1, writer, ++kit.op, "y", VALUE, NULL).status,
                     YOLK_ERR_NO_SPACE);
    /* Larger than all memory is no room in memory either. */
    assert_int_equal(kit_put(&kit, 1, writer, ++kit.op, "z", 2 * MEMORY, NULL).status,
                     YOLK_ERR_TOO_LARGE);
    assert_int_equal(stored("z", 2 * MEMORY, 8192, NULL), 1);
    struct found found = peek("x");
    assert_true(found.in_memory == 0 && found.gds_count == 1);
}

/* A client came, and the memory's owner has not said yet that it knows of it: a put that came just
 * then had no copy in memory. Who would rather wait hears so; memory that is full is not waited
 * for, whatever is on its way. */
static void what_opens_in_a_moment_is_waited_for(void **state)
{
    (void)state;
    const struct wish rather = {.flags = WIRE_PUT_ALL_COPIES};
    (void)kit_open(&kit, 3, 1);
    assert_int_equal(put_at(++kit.op, "a", VALUE, 0, &rather).status, YOLK_ERR_AGAIN);
    assert_int_equal(kit_stats(&kit).gds_extents, 0);
    assert_int_equal(stored("b", VALUE, 8192, NULL), 1);
    assert_int_equal(put_at(++kit.op, "a", VALUE, 0, &rather).status, YOLK_OK);
    assert_int_equal(end_put(kit.op, "a"), YOLK_OK);
    assert_int_equal(peek("a").in_memory, 1);
    for (char key[2] = "c"; key[0] < 'c' + 15; key[0]++) {
        kit_store(&kit, 1, writer, key, VALUE);
        (void)look(2, reader, key, 0);
    }
    assert_int_equal(kit_force_remove(&kit, 1, writer, "c"), YOLK_OK); /* not told yet */
    assert_int_equal(put_at(++kit.op, "x", VALUE, 16384, &rather).replica_count, 1);
}

static void a_quota_leads_to_gds_alone_which_it_does_not_count(void **state)
{
    (void)state;
    struct master_tenant_info tenant;
    assert_int_equal(stored("a", 2 * VALUE, 0, NULL), 2);
    assert_int_equal(stored("b", 2 * VALUE, 8192, NULL), 2);
    (void)look(2, reader, "a", 0); /* read: they stay in memory */
    (void)look(2, reader, "b", 0);
    assert_int_equal(kit_put(&kit, 1, writer, ++kit.op, "c", VALUE, NULL).status, YOLK_ERR_QUOTA);
    assert_int_equal(stored("c", VALUE, 16384, NULL), 1);
    assert_true(master_tenant_at(kit.core, 0, &tenant));
    assert_int_equal(tenant.used_bytes, 4 * VALUE);
    assert_int_equal(tenant.objects, 3);
    assert_int_equal(kit_stats(&kit).gds_only, 1);
    /* What the quota evicts from memory stays readable in the file. */
    assert_int_equal(kit_beat(&kit, 2, reader, kit.op + 1), YOLK_OK);
    kit_pass(&kit, 11000, writer, reader);
    kit_store(&kit, 1, writer, "d", VALUE);
    struct found a = peek("a"), b = peek("b");
    assert_int_equal(a.in_memory + b.in_memory, 1);
    assert_int_equal(a.gds_count + b.gds_count, 2);
}

/* Only no space and no quota lead to it. */
static void other_refusals_do_not_lead_to_gds_alone(void **state)
{
    (void)state;
    struct wish hard = {.flags = WIRE_PUT_HARD_PIN};
    for (int i = 0; i < 8; i++) {
        char key[2] = {(char)('a' + i), 0};
        assert_int_equal(stored(key, VALUE, (uint64_t)i * VALUE, &hard), 2);
    }
    assert_int_equal(put_at(++kit.op, "x", VALUE, 9 * VALUE, &hard).status, YOLK_ERR_PIN_LIMIT);
    assert_int_equal(kit_stats(&kit).gds_only, 0);
    assert_int_equal(kit_stats(&kit).gds_extents, 8);
    /* Another client writes the key: nothing is added to its put. */
    assert_int_equal(kit_put(&kit, 2, reader, 1, "y", VALUE, NULL).status, YOLK_OK);
    assert_int_equal(put_at(++kit.op, "y", VALUE, 9 * VALUE, NULL).status, YOLK_ERR_EXISTS);
    assert_int_equal(kit_keys_call(&kit, 2, reader, 1, WIRE_PUT_END, "y"), YOLK_OK);
    assert_int_equal(peek("y").gds_count, 0);
}

/* Hard pins have a share of each file, as of each memory: eviction always finds something. */
static void hard_pins_have_a_share_of_the_file(void **state)
{
    (void)state;
    struct wish hard = {.flags = WIRE_PUT_HARD_PIN};
    struct wish upsert = {.flags = WIRE_PUT_HARD_PIN | WIRE_PUT_UPSERT};
    assert_int_equal(stored("a", FILE_SIZE / 2 - VALUE, 0, &hard), 1);
    assert_int_equal(stored("b", VALUE, FILE_SIZE / 2 - VALUE, &hard), 1);
    assert_int_equal(put_at(++kit.op, "c", VALUE, FILE_SIZE / 2, &hard).status, YOLK_ERR_PIN_LIMIT);
    assert_int_equal(kit_stats(&kit).objects_open, 0);
    assert_int_equal(stored("c", VALUE, FILE_SIZE / 2, NULL), 1);
    /* In place of a pinned one there is room for another. */
    uint64_t op = ++kit.op;
    assert_int_equal(put_at(op, "b", VALUE, FILE_SIZE / 2 + VALUE, &upsert).status, YOLK_OK);
    assert_int_equal(end_put(op, "b"), YOLK_ERR_AGAIN); /* until the old one is freed */
    assert_int_equal(end_put(op, "b"), YOLK_OK);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "a"), YOLK_OK);
    pump();
    assert_int_equal(stored("d", VALUE, 0, &hard), 1);
}

static void stat_says_what_each_client_has(void **state)
{
    (void)state;
    assert_int_equal(stored("a", 5000, 0, NULL), 2);
    struct wire_stat msg = {.request = {.session = reader}, .recount = 1};
    struct wire_stat_reply reply;
    kit_call(&kit, 2, WIRE_STAT, &msg, &reply);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(reply.differences, 0);
    static const char *const lines[] = {
        "gds_live_bytes 8192\n",
        "gds_objects 1\n",
        "gds_ends 1\n",
        "gds_file_bytes{client=\"01000000000000000000000000000000\"} 262144\n",
        "gds_file_used_bytes{client=\"01000000000000000000000000000000\"} 8192\n",
        "gds_file_keys{client=\"01000000000000000000000000000000\"} 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (memmem(reply.text.data, reply.text.size, lines[i], strlen(lines[i])) == NULL)
            fail_msg("not said: %s", lines[i]);
}

static void pins_and_groups_hold_without_memory_too(void **state)
{
    (void)state;
    struct wish hard = {.flags = WIRE_PUT_HARD_PIN};
    struct wish soft = {.soft_pin = 1, .ttl_ms = UINT64_MAX};
    struct wish grouped = {.groups = "g"};
    assert_int_equal(stored("hard", VALUE, 0, &hard), 1);
    assert_int_equal(stored("soft", VALUE, 8192, &soft), 1);
    assert_int_equal(stored("one", VALUE, 16384, &grouped), 1);
    assert_int_equal(stored("two", VALUE, 24576, &grouped), 1);
    assert_int_equal(kit_stats(&kit).soft_pins, 1);
    assert_int_equal(kit_stats(&kit).hard_bytes, 0); /* of memory */
    /* The plain ones go first, as a group; then the soft one; the hard one never. */
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_OK);
    pump();
    assert_int_equal(freed_count, 2);
    assert_int_equal(kit_stats(&kit).group_evictions, 1);
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_OK);
    pump();
    assert_int_equal(freed_count, 3);
    assert_int_equal(freed[2], 8192);
    assert_int_equal(room(1, writer, file, VALUE).status, YOLK_ERR_NO_SPACE);
    assert_int_equal(peek("hard").gds_count, 1);
}

/* One descriptor is wrong in one field: that key is refused, with the reason, and no reader. */
static void check_refused(struct wire_gds wrong, uint64_t size, int status, const char *rule)
{
    uint64_t op = ++kit.op;
    struct master_stats before = kit_stats(&kit), after;
    struct wire_gds gds[3] = {place_at(1, 0, size), wrong, place_at(1, 32768, size)};
    struct wire_put_start_reply reply = start_put(1, writer, op, "fine bad good", size, gds, NULL);
    assert_int_equal(reply.status, YOLK_OK);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_OK);
    assert_int_equal(wire_result_at(reply.results, 2).status, YOLK_OK);
    struct wire_result bad = wire_result_at(reply.results, 1);
    assert_int_equal(bad.status, status);
    assert_int_equal(bad.replica_count, 0);
    struct wire_keys why;
    struct wire_view text[3];
    assert_int_equal(wire_keys_open(reply.why, 3, &why), YOLK_OK);
    for (int i = 0; i < 3; i++)
        assert_true(wire_keys_next(&why, &text[i]));
    assert_true(text[0].size == 0 && text[2].size == 0);
    char shown[512];
    wire_view_copy_text(text[1], shown, sizeof shown);
    if (strstr(shown, "\"bad\"") == NULL || strstr(shown, rule) == NULL)
        fail_msg("\"%s\" does not say: %s", shown, rule);
    after = kit_stats(&kit);
    assert_int_equal(after.gds_refused, before.gds_refused + 1);
    assert_int_equal(after.gds_extents, 2);
    assert_int_equal(after.objects_open, 2);
    assert_int_equal(kit_keys_call(&kit, 1, writer, op, WIRE_PUT_REVOKE, "fine good"), YOLK_OK);
    pump();
    assert_int_equal(kit_stats(&kit).gds_extents, 0);
    kit_check(kit.core);
}

static void each_wrong_descriptor_is_refused_alone(void **state)
{
    (void)state;
    struct wire_gds right = place_at(1, 8192, 5000), wrong = right;
    wrong.owner_client_id[0] = 2;
    check_refused(wrong, 5000, YOLK_ERR_ACCESS, "owner_client_id 0200");
    wrong = right, wrong.storage_id[15] = 1;
    check_refused(wrong, 5000, YOLK_ERR_STALE, "storage_id 05050500000000000000000000000001");
    wrong = right, wrong.storage_generation = GENERATION - 1;
    check_refused(wrong, 5000, YOLK_ERR_STALE, "storage_generation 6");
    wrong = right, wrong.storage_generation = GENERATION + 1;
    check_refused(wrong, 5000, YOLK_ERR_STALE, "is not the registered one, 7");
    wrong = right, wrong.value_size = 0;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "value_size of its GDS descriptor is 0");
    wrong = right, wrong.value_size = 4999;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "not the size of the value, 5000");
    wrong = right, wrong.allocated_size = 4096;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "allocated_size 4096");
    wrong = right, wrong.allocated_size = 8191;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "is not a multiple of 4096");
    wrong = right, wrong.value_offset = 4095;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "value_offset 4095");
    wrong = right, wrong.value_offset = FILE_SIZE - 4096;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "outside of the file");
    wrong = right, wrong.value_offset = UINT64_MAX - 4095;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "outside of the file");
    wrong = right, wrong.allocated_size = UINT64_MAX - 4095;
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "outside of the file");
    wrong = right, wrong.value_offset = 4096; /* the first key's extent has 8192 bytes */
    check_refused(wrong, 5000, YOLK_ERR_INVALID, "another value lies at value_offset 4096");
    /* An empty value takes no extent. */
    wrong = right, wrong.value_size = 0;
    struct wire_put_start_reply reply = start_put(1, writer, ++kit.op, "e", 0, &wrong, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_INVALID);
    struct wire_gds nil = {.allocated_size = 0};
    reply = start_put(1, writer, ++kit.op, "e", 0, &nil, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_OK);
    /* More than it needs is its own affair. */
    right.allocated_size = 16384;
    reply = start_put(1, writer, ++kit.op, "more", 5000, &right, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).replica_count, 2);
    assert_int_equal(end_put(kit.op, "more"), YOLK_OK);
    struct found found = peek("more");
    assert_true(wire_gds_equal(&found.gds[0], &right));
}

static void a_client_that_registered_nothing_is_refused(void **state)
{
    (void)state;
    struct wire_gds theirs = place_at(1, 0, VALUE), own = place_at(2, 0, VALUE);
    struct wire_put_start_reply reply = start_put(2, reader, 1, "a", VALUE, &theirs, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_ACCESS);
    reply = start_put(2, reader, 2, "a", VALUE, &own, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_NOT_FOUND);
    assert_int_equal(kit_stats(&kit).objects_open, 0);
    /* A list that is not one a key is refused as a whole. */
    struct base_buf list, keys;
    uint8_t size[2][8] = {{0, 16}, {0, 16}};
    base_buf_init(&list, 4096);
    assert_int_equal(wire_gds_append(&list, &theirs), YOLK_OK);
    (void)kit_keys(&keys, "a b");
    struct wire_put_start msg = {.request = {.session = writer, .op = 9},
                                 .keys = wire_view_buf(&keys),
                                 .sizes = wire_view_of(size, sizeof size),
                                 .gds = wire_view_buf(&list)};
    kit_call(&kit, 1, WIRE_PUT_START, &msg, &reply);
    assert_int_equal(reply.status, YOLK_ERR_INVALID);
    assert_true(reply.text.size > 0);
    base_buf_free(&list);
    base_buf_free(&keys);
}

static void the_same_message_is_answered_again(void **state)
{
    (void)state;
    struct wire_gds gds = place_at(1, 8192, VALUE), another = place_at(1, 16384, VALUE);
    struct wire_replica places[2][2];
    for (int i = 0; i < 2; i++) {
        struct wire_put_start_reply reply = start_put(1, writer, 1, "a", VALUE, &gds, NULL);
        assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_OK);
        for (uint32_t r = 0; r < 2; r++)
            places[i][r] = wire_replica_at(reply.replicas, r);
    }
    assert_memory_equal(places[0], places[1], sizeof places[0]);
    assert_int_equal(kit_stats(&kit).gds_starts, 1);
    /* Another extent, or none, under the same operation is another message. */
    struct wire_put_start_reply reply = start_put(1, writer, 1, "a", VALUE, &another, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_INVALID);
    assert_true(reply.why.size > 0);
    reply = start_put(1, writer, 1, "a", VALUE, NULL, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_INVALID);
    assert_int_equal(end_put(1, "a"), YOLK_OK);
    assert_int_equal(end_put(1, "a"), YOLK_OK);
    reply = start_put(1, writer, 1, "a", VALUE, &gds, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).status, YOLK_ERR_EXISTS);
    assert_int_equal(kit_stats(&kit).gds_extents, 1);
}

/* Space that the owner was told of as freed it uses before its answer has come. */
static void space_is_used_again_before_the_acknowledgement(void **state)
{
    (void)state;
    acks_file = false;
    assert_int_equal(stored("a", VALUE, 0, NULL), 2);
    assert_int_equal(put_at(++kit.op, "b", VALUE, 0, NULL).status, YOLK_ERR_INVALID);
    struct found read = look(2, reader, "a", 0);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "a"), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 0); /* somebody reads there */
    assert_int_equal(put_at(++kit.op, "b", VALUE, 0, NULL).status, YOLK_ERR_INVALID);
    assert_int_equal(kit_beat(&kit, 2, reader, read.op + 1), YOLK_OK);
    pump();
    assert_int_equal(freed_count, 1);
    assert_int_equal(kit_stats(&kit).gds_limbo_bytes, VALUE);
    assert_int_equal(stored("b", VALUE, 0, NULL), 2);
    struct wire_facts_ack ack = {file, file_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    assert_int_equal(peek("b").gds_count, 1);
    assert_int_equal(kit_stats(&kit).gds_extents, 1);
    assert_int_equal(kit_stats(&kit).gds_limbo_bytes, 0);
}

static void an_upsert_ends_when_the_old_extent_is_gone(void **state)
{
    (void)state;
    struct wish upsert = {.flags = WIRE_PUT_UPSERT};
    assert_int_equal(stored("a", VALUE, 0, NULL), 2);
    acks_file = false;
    uint64_t op = ++kit.op;
    assert_int_equal(put_at(op, "a", 100, 8192, &upsert).replica_count, 2);
    assert_int_equal(peek("a").gds[0].value_offset, 0);
    assert_int_equal(end_put(op, "a"), YOLK_ERR_AGAIN);
    assert_int_equal(freed[0], 0);
    assert_int_equal(end_put(op, "a"), YOLK_ERR_AGAIN);
    struct wire_facts_ack ack = {file, file_seq};
    kit_raw(&kit, 1, WIRE_FACTS_ACK, 0, &ack);
    assert_int_equal(end_put(op, "a"), YOLK_OK);
    assert_int_equal(peek("a").gds[0].value_offset, 8192);
}

static void hits_are_counted_by_tier(void **state)
{
    (void)state;
    assert_int_equal(stored("a", VALUE, 0, NULL), 2);
    (void)look(1, writer, "a", 0);
    assert_int_equal(kit_stats(&kit).get_hits_memory, 1);
    assert_int_equal(kit_beat(&kit, 1, writer, kit.op + 1), YOLK_OK);
    kit_pass(&kit, 11000, writer, reader);
    assert_int_equal(clear(1, writer, "a", "s"), YOLK_OK);
    (void)look(1, writer, "a", 0);
    (void)look(2, reader, "a", 0);
    (void)peek("a");
    struct master_stats stats = kit_stats(&kit);
    assert_int_equal(stats.get_hits, 3);
    assert_int_equal(stats.get_hits_memory, 1);
    assert_int_equal(stats.get_hits_gds, 2);
    assert_int_equal(stats.get_hit_bytes_gds, 2 * VALUE);
    assert_int_equal(stats.get_hits_disk, 0);
}

/* Another core learns it all from the facts of the first. */
static void a_twin_has_the_same(void **state)
{
    memset(&kit, 0, sizeof kit);
    *state = &kit;
    twin_start();
    set_up(state, NULL, MEMORY);
    struct wire_gds roomy = place_at(1, 8192, VALUE);
    roomy.allocated_size = 4 * VALUE;
    struct wire_put_start_reply reply = start_put(1, writer, ++kit.op, "a", VALUE, &roomy, NULL);
    assert_int_equal(wire_result_at(reply.results, 0).replica_count, 2);
    assert_int_equal(end_put(kit.op, "a"), YOLK_OK);
    assert_int_equal(stored("b", VALUE, 0, NULL), 2);
    assert_int_equal(stored("c", 2 * MEMORY, 10 * VALUE, NULL), 1);
    assert_int_equal(clear(1, writer, "b", "s"), YOLK_OK);
    twin_agrees(kit.core);
    assert_int_equal(kit_force_remove(&kit, 1, writer, "a"), YOLK_OK);
    pump();
    twin_agrees(kit.core);
    twin_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(both_are_written_and_committed),
        KIT_TEST(a_revoke_gives_up_both),
        KIT_TEST(a_put_that_runs_out_of_time),
        KIT_TEST(a_writer_that_falls_silent),
        NO_MEMORY_TEST(without_memory_there_is_gds_alone),
        KIT_TEST(a_full_memory_leads_to_gds_alone),
        KIT_TEST(what_opens_in_a_moment_is_waited_for),
        cmocka_unit_test_setup_teardown(a_quota_leads_to_gds_alone_which_it_does_not_count,
                                        start_with_quota, kit_stop),
        KIT_TEST(other_refusals_do_not_lead_to_gds_alone),
        NO_MEMORY_TEST(hard_pins_have_a_share_of_the_file),
        KIT_TEST(stat_says_what_each_client_has),
        NO_MEMORY_TEST(pins_and_groups_hold_without_memory_too),
        KIT_TEST(each_wrong_descriptor_is_refused_alone),
        KIT_TEST(a_client_that_registered_nothing_is_refused),
        KIT_TEST(the_same_message_is_answered_again),
        KIT_TEST(space_is_used_again_before_the_acknowledgement),
        KIT_TEST(an_upsert_ends_when_the_old_extent_is_gone),
        KIT_TEST(hits_are_counted_by_tier),
        cmocka_unit_test_teardown(a_twin_has_the_same, kit_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
