/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations and reads of a client's GDS file on a real file, with a scripted master: how each
 * way of closing a reservation ends, and what a descriptor must say for a read. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "platform/clock.h"
#include "store/disk_mount.h"
#include "store/gds.h"
#include "transport/posix/posix.h"
#include "wire/msg.h"

enum { SIZE = 5000, ALLOCATED = 8192, CAPACITY = 1 << 20 };
#define PATIENCE_NS (20 * NS_PER_S)

struct fixture {
    char folder[64];
    char path[80];
    struct yolk_engine *engine;
    struct store_gds *gds;
    struct store_reserver reserver;
    uint64_t segment;
    uint64_t seq;
    uint8_t client_id[16];
};

static void wake(void *self)
{
    (void)self;
}

static void look(const char *path, bool why, struct yolk_file_figures *out)
{
    (void)path, (void)why;
    *out = (struct yolk_file_figures){.mode = "host"};
}

static void mount(struct fixture *f, uint64_t segment)
{
    store_gds_mounted(f->gds, segment);
    store_disk_offered(store_gds_disk(f->gds));
    f->segment = segment;
    f->seq = 0;
}

static void open_file(struct fixture *f)
{
    const struct file_system fs = file_system_real();
    const struct store_gds_options options = {
        .fs = &fs,
        .path = f->path,
        .size_bytes = CAPACITY,
        .allow_fallback = 1,
        .no_cufile = 1,
        .engine = f->engine,
        .client_id = f->client_id,
        .look = look,
        .wake = wake,
        .wake_self = f,
    };
    int status = store_gds_open(&options, &f->gds);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    f->reserver = store_gds_reserver(f->gds);
    mount(f, 20);
}

static void begin(struct fixture *f)
{
    const struct yolk_transport_ops *transports[] = {transport_posix_ops()};
    struct yolk_engine_options options;
    memset(f, 0, sizeof(*f));
    memset(f->client_id, 9, sizeof(f->client_id));
    snprintf(f->folder, sizeof(f->folder), "/var/tmp/yolk-gds-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/values", f->folder);
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    assert_int_equal(yolk_engine_create(&options, &f->engine), YOLK_OK);
    open_file(f);
}

static void finish(struct fixture *f)
{
    char file[96];
    store_gds_close(f->gds);
    assert_int_equal(yolk_engine_destroy(f->engine), YOLK_OK);
    snprintf(file, sizeof(file), "%s.slot0", f->path);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(f->folder), 0);
}

static uint64_t figure(struct fixture *f, const char *name)
{
    struct base_buf lines;
    char line[128];
    base_buf_init(&lines, 1 << 16);
    assert_int_equal(store_gds_stat(f->gds, &lines), YOLK_OK);
    assert_int_equal(base_buf_append(&lines, "", 1), YOLK_OK);
    snprintf(line, sizeof(line), "client_gds_%s ", name);
    const char *at = strstr((const char *)lines.data, line);
    assert_non_null(at);
    uint64_t value = strtoull(at + strlen(line), NULL, 10);
    base_buf_free(&lines);
    return value;
}

/* In 4 KiB units of the file. */
static void await_used(struct fixture *f, uint64_t extents)
{
    uint64_t deadline_ns = clock_real_now_ns() + PATIENCE_NS;
    while (figure(f, "used_bytes") != extents * ALLOCATED) {
        if (clock_real_now_ns() > deadline_ns)
            fail_msg("%llu bytes are used, not %llu extents",
                     (unsigned long long)figure(f, "used_bytes"), (unsigned long long)extents);
        sched_yield();
    }
}

static struct store_reservation *reserve(struct fixture *f, const char *key)
{
    struct store_reservation *made = NULL;
    assert_int_equal(f->reserver.reserve(f->gds, key, strlen(key), SIZE, &made), YOLK_OK);
    assert_int_equal(made->gds.value_size, SIZE);
    assert_int_equal(made->gds.allocated_size, ALLOCATED);
    assert_memory_equal(made->gds.owner_client_id, f->client_id, 16);
    made->checksum = 1;
    made->checked = 1;
    return made;
}

static void commit(struct fixture *f, struct store_reservation *reservation)
{
    store_gds_commit(f->gds, &reservation, 1, clock_real_now_ns() + PATIENCE_NS);
}

static struct wire_gds put(struct fixture *f, const char *key)
{
    struct store_reservation *reservation = reserve(f, key);
    struct wire_gds gds = reservation->gds;
    commit(f, reservation);
    assert_int_equal(reservation->committed, 1);
    f->reserver.commit(f->gds, reservation);
    return gds;
}

/* The master says that the extent there is free. */
static void freed(struct fixture *f, uint64_t offset)
{
    struct base_buf recs, keys, body;
    struct wire_fact fact = {.kind = WIRE_FACT_FREED, .offset = offset, .size = ALLOCATED};
    base_buf_init(&recs, 1 << 10);
    base_buf_init(&keys, 1 << 10);
    base_buf_init(&body, 1 << 12);
    assert_int_equal(wire_fact_append(&recs, &fact), YOLK_OK);
    assert_int_equal(wire_keys_build(&keys, NULL, 0), YOLK_OK);
    struct wire_facts facts = {.segment = f->segment,
                               .seq = ++f->seq,
                               .recs = wire_view_buf(&recs),
                               .keys = wire_view_buf(&keys)};
    assert_int_equal(wire_encode(WIRE_FACTS, &facts, &body), YOLK_OK);
    store_gds_input(f->gds, WIRE_FACTS, body.data, body.size);
    base_buf_free(&recs);
    base_buf_free(&keys);
    base_buf_free(&body);
}

static int read_begin(struct fixture *f, const char *key, const struct wire_gds *gds)
{
    uint32_t checksum;
    int verify;
    return store_gds_read_begin(f->gds, key, strlen(key), gds, &checksum, &verify);
}

static void all_six_fields_are_compared(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    struct store_reservation *open = reserve(&f, "open");
    const struct wire_gds gds = put(&f, "a"), other = put(&f, "b");
    assert_int_equal(read_begin(&f, "a", &gds), YOLK_OK);
    store_gds_read_end(f.gds, &gds);
    assert_int_equal(read_begin(&f, "a", &other), YOLK_ERR_STALE);
    assert_int_equal(read_begin(&f, "b", &gds), YOLK_ERR_STALE);
    assert_int_equal(read_begin(&f, "c", &gds), YOLK_ERR_STALE);
    assert_int_equal(read_begin(&f, "open", &open->gds), YOLK_ERR_STALE); /* not committed */
    for (int field = 0; field < 6; field++) {
        struct wire_gds wrong = gds;
        wrong.owner_client_id[15] ^= field == 0;
        wrong.storage_id[0] ^= field == 1;
        wrong.storage_generation += field == 2;
        wrong.value_offset += field == 3 ? ALLOCATED : 0;
        wrong.value_size -= field == 4;
        wrong.allocated_size += field == 5 ? 4096 : 0;
        assert_int_equal(read_begin(&f, "a", &wrong), YOLK_ERR_STALE);
        assert_int_equal(store_gds_is_own(f.gds, &wrong), field > 2);
    }
    assert_int_equal(figure(&f, "leases"), 0);
    assert_int_equal(figure(&f, "stale_total"), 10);
    f.reserver.abort(f.gds, open);
    await_used(&f, 2);
    finish(&f);
}

/* Its space is not used again while it is read; then another key has it, and the old descriptor
 * finds nothing, though place and size are the same. */
static void a_lease_holds_an_extent(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    const struct wire_gds gds = put(&f, "a");
    assert_int_equal(read_begin(&f, "a", &gds), YOLK_OK);
    freed(&f, gds.value_offset);
    assert_int_equal(read_begin(&f, "a", &gds), YOLK_ERR_STALE);
    const struct wire_gds beside = put(&f, "b");
    assert_true(beside.value_offset != gds.value_offset);
    await_used(&f, 2);
    assert_int_equal(figure(&f, "doomed"), 1);
    store_gds_read_end(f.gds, &gds);
    await_used(&f, 1);
    struct wire_gds again = put(&f, "c");
    assert_int_equal(again.value_offset, gds.value_offset);
    assert_int_equal(again.value_size, gds.value_size);
    assert_int_equal(read_begin(&f, "a", &gds), YOLK_ERR_STALE);
    assert_int_equal(read_begin(&f, "c", &again), YOLK_OK);
    store_gds_read_end(f.gds, &again);
    finish(&f);
}

static void each_end_of_a_reservation(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    /* The master has dropped it and says when it is free. */
    struct store_reservation *told = reserve(&f, "told");
    uint64_t at = told->gds.value_offset;
    f.reserver.preserve(f.gds, told, 5, STORE_OUTCOME_TOLD);
    store_gds_floor(f.gds, 100);
    await_used(&f, 1);
    assert_int_equal(figure(&f, "preserved"), 1);
    freed(&f, at);
    await_used(&f, 0);
    assert_int_equal(figure(&f, "preserved"), 0);
    /* It never heard of it: free once no message of that operation can come. */
    f.reserver.preserve(f.gds, reserve(&f, "absent"), 5, STORE_OUTCOME_ABSENT);
    store_gds_floor(f.gds, 5);
    await_used(&f, 1);
    store_gds_floor(f.gds, 6);
    await_used(&f, 0);
    /* Nobody says: until the file is mounted anew. */
    f.reserver.preserve(f.gds, reserve(&f, "unknown"), 5, STORE_OUTCOME_UNKNOWN);
    store_gds_floor(f.gds, 100);
    await_used(&f, 1);
    mount(&f, 21);
    await_used(&f, 0);
    /* The master frees it before the put hears that it was dropped. */
    struct store_reservation *early = reserve(&f, "early");
    freed(&f, early->gds.value_offset);
    await_used(&f, 1);
    f.reserver.preserve(f.gds, early, 5, STORE_OUTCOME_TOLD);
    await_used(&f, 0);
    assert_int_equal(figure(&f, "preserved"), 0);
    finish(&f);
}

/* Of what was reserved before, the new mount was told nothing: it is committed no more. What was
 * committed is offered. */
static void a_new_mount_ends_what_is_open(void **state)
{
    (void)state;
    struct fixture f;
    static struct store_disk_offer offer;
    begin(&f);
    const struct wire_gds gds = put(&f, "a");
    struct store_reservation *open = reserve(&f, "open");
    assert_int_equal(f.reserver.is_current(f.gds, open), 1);
    assert_int_equal(f.reserver.segment(f.gds), 20);
    mount(&f, 21);
    assert_int_equal(f.reserver.is_current(f.gds, open), 0);
    assert_int_equal(f.reserver.segment(f.gds), 21);
    commit(&f, open);
    assert_int_equal(open->committed, 0);
    f.reserver.preserve(f.gds, open, 7, STORE_OUTCOME_UNKNOWN); /* no mount of it is left to ask */
    await_used(&f, 2);
    store_gds_floor(f.gds, 8);
    await_used(&f, 1);
    const struct store_disk_mount *offers = store_disk_mount(store_gds_disk(f.gds));
    uint64_t cursor = 0;
    assert_int_equal(offers->next(offers->self, &cursor, &offer), 1);
    assert_int_equal(offer.offset, gds.value_offset);
    assert_int_equal(offers->next(offers->self, &cursor, &offer), 0);
    assert_int_equal(offers->reject(offers->self, gds.value_offset), YOLK_OK);
    await_used(&f, 0);
    finish(&f);
}

static void closed_and_opened_again(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    const struct wire_gds gds = put(&f, "a");
    struct store_reservation *open = reserve(&f, "open");
    f.reserver.preserve(f.gds, open, 5, STORE_OUTCOME_TOLD);
    store_gds_close(f.gds);
    open_file(&f);
    await_used(&f, 1); /* what was only reserved ended with the process */
    assert_int_equal(store_gds_is_own(f.gds, &gds), 1);
    assert_int_equal(read_begin(&f, "a", &gds), YOLK_OK);
    store_gds_read_end(f.gds, &gds);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_six_fields_are_compared),
        cmocka_unit_test(a_lease_holds_an_extent),
        cmocka_unit_test(each_end_of_a_reservation),
        cmocka_unit_test(a_new_mount_ends_what_is_open),
        cmocka_unit_test(closed_and_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
