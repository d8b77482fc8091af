/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "store/message.h"
#include "store/session.h"

#define MS NS_PER_MS

static const uint8_t master_a[16] = "master a";
static const uint8_t master_b[16] = "master b";

struct fixture {
    struct store_holds *holds;
    struct store_mirror *mirror;
    struct store_session *session;
    struct store_session_output out;
    struct base_buf body;
    uint64_t now;
};

static void begin(struct fixture *f, uint64_t segment_size)
{
    memset(f, 0, sizeof(*f));
    f->now = 1000 * MS;
    base_buf_init(&f->body, 1 << 20);
    assert_int_equal(store_holds_create(&f->holds), YOLK_OK);
    assert_int_equal(store_mirror_create(&f->mirror), YOLK_OK);
    struct store_session_options options = {
        .client_id = "client",
        .name = "test",
        .backoff_first_ns = 10 * MS,
        .backoff_max_ns = 100 * MS,
        .reply_timeout_ns = 1000 * MS,
        .segment_size = segment_size,
        .endpoints = "loop=1,2",
        .mirror = f->mirror,
        .holds = f->holds,
    };
    assert_int_equal(store_session_create(&options, &f->session), YOLK_OK);
}

static void finish(struct fixture *f)
{
    store_session_destroy(f->session);
    store_mirror_destroy(f->mirror);
    store_holds_destroy(f->holds);
    base_buf_free(&f->body);
}

/* The next output that is not a wait; time passes as the machine asks for it. */
static void expect(struct fixture *f, enum store_session_output_kind kind)
{
    store_session_next(f->session, f->now, &f->out);
    for (unsigned waits = 0; f->out.kind == STORE_SESSION_WAIT; waits++) {
        assert_true(waits < 1000 && f->out.deadline_ns != UINT64_MAX);
        assert_true(f->out.deadline_ns > f->now);
        f->now = f->out.deadline_ns;
        store_session_next(f->session, f->now, &f->out);
    }
    assert_int_equal(f->out.kind, kind);
}

static void expect_send(struct fixture *f, uint16_t message, void *decoded)
{
    expect(f, STORE_SESSION_SEND);
    assert_int_equal(f->out.message, message);
    assert_int_equal(wire_decode(message, f->out.body, f->out.body_size, decoded), YOLK_OK);
}

static void input(struct fixture *f, uint16_t message, uint64_t id, const void *decoded)
{
    base_buf_clear(&f->body);
    assert_int_equal(wire_encode(message, decoded, &f->body), YOLK_OK);
    store_session_input(f->session, f->now, message, id, f->body.data, f->body.size);
}

static void open_answer(struct fixture *f, uint64_t session)
{
    struct wire_session_open_reply reply = {
        .session = session, .heartbeat_ms = 100, .session_ttl_ms = 500, .lease_ttl_ms = 50};
    input(f, WIRE_SESSION_OPEN_REPLY, f->out.request_id, &reply);
}

static void connect(struct fixture *f, const uint8_t *instance)
{
    expect(f, STORE_SESSION_CONNECT);
    store_session_connected(f->session, f->now, instance);
}

static void open_client(struct fixture *f, const uint8_t *instance, uint64_t session)
{
    struct wire_session_open open;
    connect(f, instance);
    expect_send(f, WIRE_SESSION_OPEN, &open);
    assert_int_equal(store_holds_session(f->holds), 0);
    open_answer(f, session);
    expect(f, STORE_SESSION_OPENED);
    assert_int_equal(f->out.session, session);
    assert_int_equal(store_holds_session(f->holds), session);
}

static void heartbeat_ok(struct fixture *f)
{
    struct wire_plain_request beat;
    struct wire_status_reply ok = {.status = YOLK_OK};
    expect_send(f, WIRE_HEARTBEAT, &beat);
    input(f, WIRE_HEARTBEAT_REPLY, f->out.request_id, &ok);
}

static void opens_and_beats(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 0);
    open_client(&f, master_a, 42);
    assert_true(store_session_is_open(f.session));
    uint64_t began = f.now;
    for (int i = 0; i < 5; i++)
        heartbeat_ok(&f);
    assert_int_equal(f.now - began, 500 * MS);
    store_session_close(f.session, f.now);
    struct wire_plain_request end;
    expect_send(&f, WIRE_SESSION_CLOSE, &end);
    struct wire_status_reply ok = {.status = YOLK_OK};
    input(&f, WIRE_SESSION_CLOSE_REPLY, f.out.request_id, &ok);
    expect(&f, STORE_SESSION_CLOSED);
    assert_int_equal(store_holds_session(f.holds), 0);
    finish(&f);
}

static void resumes_at_the_same_master(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_plain_request beat;
    begin(&f, 0);
    open_client(&f, master_a, 42);
    store_session_link_lost(f.session, f.now);
    expect(&f, STORE_SESSION_CONNECT);
    store_session_link_lost(f.session, f.now);
    connect(&f, master_a);
    heartbeat_ok(&f);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(f.out.session, 42);
    assert_int_equal(f.out.restarted, 0);
    /* A silent master counts as a lost link. */
    expect_send(&f, WIRE_HEARTBEAT, &beat);
    expect(&f, STORE_SESSION_DISCONNECT);
    assert_int_equal(store_holds_session(f.holds), 42); /* calls may still get through */
    finish(&f);
}

static void tells_another_master_what_is_held(void **state)
{
    (void)state;
    struct fixture f;
    struct store_stamp stamp;
    struct wire_session_open open;
    begin(&f, 0);
    open_client(&f, master_a, 42);
    store_holds_stamp(f.holds, &stamp);
    uint64_t op = store_holds_begin(f.holds);
    assert_int_equal(store_holds_extent(f.holds, op, stamp.epoch, 9, 64, 128), YOLK_OK);
    store_session_link_lost(f.session, f.now);
    connect(&f, master_b);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    assert_int_equal(open.request.session, 42);
    assert_int_equal(open.generation, 1);
    assert_int_equal(wire_held_count(open.held), 1);
    assert_int_equal(wire_held_at(open.held, 0).seg_generation, 9);
    assert_int_equal(store_holds_session(f.holds), 0);
    open_answer(&f, 42);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(f.out.restarted, 1);
    assert_int_equal(f.out.session, 42);
    finish(&f);
}

static void expires_and_opens_another(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_plain_request beat;
    struct wire_session_open open;
    struct wire_status_reply stale = {.status = YOLK_ERR_STALE};
    begin(&f, 0);
    open_client(&f, master_a, 42);
    expect_send(&f, WIRE_HEARTBEAT, &beat);
    input(&f, WIRE_HEARTBEAT_REPLY, f.out.request_id, &stale);
    expect(&f, STORE_SESSION_EXPIRED);
    assert_int_equal(f.out.session, 42);
    assert_int_equal(store_holds_session(f.holds), 0);
    store_session_next(f.session, f.now, &f.out);
    assert_int_equal(f.out.kind, STORE_SESSION_WAIT); /* not before its writers are quiet */
    store_session_quiet(f.session, f.now);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    assert_int_equal(open.request.session, 0);
    assert_int_equal(open.generation, 2);
    open_answer(&f, 43);
    expect(&f, STORE_SESSION_OPENED);
    struct wire_session_lost lost = {.session = 43};
    input(&f, WIRE_SESSION_LOST, 0, &lost);
    expect(&f, STORE_SESSION_EXPIRED);
    store_session_link_lost(f.session, f.now); /* and the link with it */
    store_session_quiet(f.session, f.now);
    open_client(&f, master_a, 44);
    finish(&f);
}

static void mount_answer(struct fixture *f, uint64_t segment)
{
    struct wire_segment_mount_reply reply = {.segment = segment};
    input(f, WIRE_SEGMENT_MOUNT_REPLY, f->out.request_id, &reply);
    expect(f, STORE_SESSION_MOUNTED);
    assert_int_equal(f->out.segment, segment);
}

static void facts(struct fixture *f, uint64_t segment, uint64_t seq, uint8_t kind, uint64_t offset,
                  const char *key, uint64_t session)
{
    struct base_buf recs;
    struct base_buf keys;
    base_buf_init(&recs, 4096);
    base_buf_init(&keys, 4096);
    struct wire_fact fact = {.kind = kind, .offset = offset, .size = 64, .session = session};
    struct wire_view view = wire_view_text(key);
    assert_int_equal(wire_fact_append(&recs, &fact), YOLK_OK);
    assert_int_equal(wire_keys_build(&keys, &view, 1), YOLK_OK);
    struct wire_facts push = {
        .segment = segment,
        .seq = seq,
        .recs = wire_view_buf(&recs),
        .keys = wire_view_buf(&keys),
    };
    input(f, WIRE_FACTS, 0, &push);
    base_buf_free(&recs);
    base_buf_free(&keys);
}

static void expect_ack(struct fixture *f, uint64_t seq)
{
    struct wire_facts_ack ack;
    expect_send(f, WIRE_FACTS_ACK, &ack);
    assert_int_equal(ack.seq, seq);
}

static void node_mounts_mirrors_and_mounts_again(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_session_open open;
    struct wire_segment_mount mount;
    struct wire_mirror_offer offer;
    begin(&f, 1 << 20);
    connect(&f, master_a);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    assert_int_equal(open.tenant.size, 0);
    open_answer(&f, 42);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.size, 1 << 20);
    assert_int_equal(mount.generation, 0);
    assert_int_equal(mount.mirror_count, 0);
    assert_int_not_equal(mount.request.op, 0);
    assert_int_equal(store_holds_session(f.holds), 0);
    mount_answer(&f, 77);
    expect(&f, STORE_SESSION_OPENED);

    facts(&f, 77, 1, WIRE_FACT_PLACED, 0, "a", 0);
    expect_ack(&f, 1);
    facts(&f, 77, 3, WIRE_FACT_PLACED, 128, "c", 0); /* 2 is missing: not taken, not acknowledged */
    facts(&f, 77, 2, WIRE_FACT_SESSION_OPEN, 0, "", 42);
    expect_ack(&f, 2);
    facts(&f, 77, 3, WIRE_FACT_PLACED, 128, "c", WIRE_FACT_HARD_PIN);
    expect_ack(&f, 3);
    facts(&f, 77, 1, WIRE_FACT_PLACED, 0, "a", 0); /* again: its acknowledgement was lost */
    expect_ack(&f, 3);
    facts(&f, 76, 4, WIRE_FACT_PLACED, 256, "x", 0); /* of another mount */
    facts(&f, 77, 4, WIRE_FACT_PLACED, 256, "d", 0);
    expect_ack(&f, 4);
    facts(&f, 77, 5, WIRE_FACT_FREED, 256, "", 0);
    expect_ack(&f, 5);
    facts(&f, 77, 6, WIRE_FACT_PLACED, 512, "", 0); /* a value that cannot be */
    expect_ack(&f, 6);
    assert_int_equal(store_mirror_count(f.mirror), 2);

    /* Another master is offered both, and does not want the second. */
    store_session_link_lost(f.session, f.now);
    connect(&f, master_b);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    open_answer(&f, 42);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.generation, 77);
    assert_memory_equal(mount.prior_master, master_a, 16);
    assert_int_equal(mount.mirror_count, 2);
    assert_int_equal(wire_u64s_count(mount.old_sessions), 1);
    assert_int_equal(wire_u64s_at(mount.old_sessions, 0), 42);
    mount_answer(&f, 99);
    expect_send(&f, WIRE_MIRROR_OFFER, &offer);
    assert_int_equal(offer.segment, 99);
    assert_int_equal(offer.last, 1);
    assert_int_equal(wire_offer_count(offer.recs), 2);
    assert_int_equal(wire_u32s_count(offer.pinned), 1);
    assert_int_equal(wire_u32s_at(offer.pinned, 0), 1);
    uint8_t rejected[4] = {1, 0, 0, 0};
    struct wire_mirror_offer_reply answer = {.accepted = 1, .rejected = wire_view_of(rejected, 4)};
    input(&f, WIRE_MIRROR_OFFER_REPLY, f.out.request_id, &answer);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(store_mirror_count(f.mirror), 1);
    uint64_t cursor = 0;
    struct store_mirror_entry entry;
    assert_int_equal(store_mirror_next(f.mirror, &cursor, &entry), 1);
    assert_memory_equal(entry.key, "a", 1);
    facts(&f, 99, 1, WIRE_FACT_SESSION_GONE, 0, "", 42);
    expect_ack(&f, 1);
    assert_int_equal(store_mirror_session_count(f.mirror), 0);
    finish(&f);
}

/* The link breaks between the session and the mount: both are done again, the mount as the same
 * one. */
static void half_open(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_session_open open;
    struct wire_segment_mount mount;
    begin(&f, 1 << 20);
    connect(&f, master_a);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    open_answer(&f, 42);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    uint64_t op = mount.request.op;
    store_session_link_lost(f.session, f.now);
    connect(&f, master_a);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    assert_int_equal(open.request.session, 42);
    assert_int_equal(open.generation, 1);
    open_answer(&f, 42);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.request.op, op);
    mount_answer(&f, 77);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(store_holds_live_count(f.holds), 0);
    struct wire_segment_unmount unmount;
    store_session_unmount(f.session, f.now, 250);
    expect_send(&f, WIRE_SEGMENT_UNMOUNT, &unmount);
    assert_int_equal(unmount.segment, 77);
    assert_int_equal(unmount.grace_ms, 250);
    struct wire_status_reply ok = {.status = YOLK_OK};
    input(&f, WIRE_SEGMENT_UNMOUNT_REPLY, f.out.request_id, &ok);
    expect(&f, STORE_SESSION_UNMOUNTED);
    assert_int_equal(f.out.status, YOLK_OK);
    finish(&f);
}

static void fences_and_expired_puts(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_fence fence = {5, 41};
    begin(&f, 0);
    open_client(&f, master_a, 42);
    input(&f, WIRE_FENCE, 0, &fence);
    expect(&f, STORE_SESSION_FENCE);
    assert_int_equal(f.out.segment, 5);
    assert_int_equal(f.out.session, 41);
    store_session_fenced(f.session, f.now, 5, 41);
    struct wire_fence fenced;
    expect_send(&f, WIRE_FENCED, &fenced);
    assert_int_equal(fenced.fenced_session, 41);

    uint64_t live = store_holds_begin(f.holds);
    struct base_buf keys;
    struct wire_view key = wire_view_text("k");
    base_buf_init(&keys, 4096);
    assert_int_equal(wire_keys_build(&keys, &key, 1), YOLK_OK);
    struct wire_put_expired expired = {live, wire_view_buf(&keys)};
    input(&f, WIRE_PUT_EXPIRED, 0, &expired);
    expect(&f, STORE_SESSION_PUT_EXPIRED);
    assert_int_equal(f.out.op, live);
    store_holds_finish(f.holds, live);
    input(&f, WIRE_PUT_EXPIRED, 0, &expired);
    struct wire_keys_request revoke;
    expect_send(&f, WIRE_PUT_REVOKE, &revoke);
    assert_int_equal(revoke.request.op, live);
    assert_true(revoke.request.floor <= live);
    base_buf_free(&keys);
    finish(&f);
}

static void refused(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_session_open open;
    const char *text;
    begin(&f, 0);
    connect(&f, master_a);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    struct wire_session_open_reply reply = {.status = YOLK_ERR_LIMIT,
                                            .text = wire_view_text("too many sessions")};
    input(&f, WIRE_SESSION_OPEN_REPLY, f.out.request_id, &reply);
    expect(&f, STORE_SESSION_DISCONNECT);
    assert_int_equal(store_session_last_refusal(f.session, &text), YOLK_ERR_LIMIT);
    assert_string_equal(text, "too many sessions");
    /* Noise changes nothing. */
    static const uint8_t noise[5] = {0xc1, 1, 2, 3, 4};
    for (uint16_t kind = 0; kind < 100; kind++)
        store_session_input(f.session, f.now, kind, 0, noise, sizeof(noise));
    open_client(&f, master_a, 42);
    assert_int_equal(store_session_last_refusal(f.session, &text), YOLK_OK);
    finish(&f);
}

/* 1500 extents of 8 KiB, of which those in `gone` are no more. */
enum { DISK_EXTENTS = 1500 };
struct disk {
    struct store_disk_mount mount;
    uint8_t gone[DISK_EXTENTS];
    int no_memory;
};

static uint64_t disk_count(void *self)
{
    struct disk *disk = self;
    uint64_t count = 0;
    for (int i = 0; i < DISK_EXTENTS; i++)
        count += !disk->gone[i];
    return count;
}

static int disk_next(void *self, uint64_t *cursor, struct store_disk_offer *offer)
{
    struct disk *disk = self;
    for (uint64_t i = (*cursor + 8191) / 8192; i < DISK_EXTENTS; i++) {
        if (disk->gone[i])
            continue;
        *cursor = i * 8192 + 1;
        offer->offset = i * 8192;
        offer->size = 5000 + i;
        offer->checksum = (uint32_t)(i * 3);
        offer->key_size =
            (uint32_t)snprintf((char *)offer->key, sizeof(offer->key), "key %d", (int)i);
        return 1;
    }
    return 0;
}

static int disk_reject(void *self, uint64_t offset)
{
    struct disk *disk = self;
    assert_int_equal(offset % 8192, 0);
    if (disk->no_memory)
        return YOLK_ERR_NO_MEMORY;
    disk->gone[offset / 8192] = 1;
    return YOLK_OK;
}

static void begin_with_disk(struct fixture *f, struct disk *disk)
{
    memset(disk, 0, sizeof(*disk));
    disk->mount = (struct store_disk_mount){
        .size = 64 << 20,
        .endpoints = "uring=3",
        .storage_id = "disk identity",
        .self = disk,
        .count = disk_count,
        .next = disk_next,
        .reject = disk_reject,
    };
    begin(f, 1 << 20);
    store_session_destroy(f->session);
    struct store_session_options options = {
        .client_id = "client",
        .name = "test",
        .backoff_first_ns = 10 * MS,
        .backoff_max_ns = 100 * MS,
        .reply_timeout_ns = 1000 * MS,
        .segment_size = 1 << 20,
        .endpoints = "loop=1,2",
        .mirror = f->mirror,
        .holds = f->holds,
        .disk = &disk->mount,
    };
    assert_int_equal(store_session_create(&options, &f->session), YOLK_OK);
}

/* From the connection to the disk's mount, which is `segment`; the memory's is 77. */
static void mount_both(struct fixture *f, const uint8_t *instance, uint64_t generation,
                       uint64_t count, uint64_t segment)
{
    struct wire_session_open open;
    struct wire_segment_mount mount;
    connect(f, instance);
    expect_send(f, WIRE_SESSION_OPEN, &open);
    open_answer(f, 42);
    expect(f, STORE_SESSION_QUIET);
    store_session_next(f->session, f->now, &f->out);
    assert_int_equal(f->out.kind, STORE_SESSION_WAIT); /* nothing is mounted before it is quiet */
    store_session_disk_quiet(f->session, f->now);
    expect_send(f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.medium, WIRE_MEDIUM_MEMORY);
    assert_int_equal(mount.size, 1 << 20);
    uint64_t op = mount.request.op;
    mount_answer(f, 77);
    expect_send(f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(mount.size, 64 << 20);
    assert_memory_equal(mount.storage_id, "disk identity\0\0", 16);
    assert_memory_equal(mount.endpoints.data, "uring=3", 7);
    assert_int_equal(mount.generation, generation);
    assert_int_equal(mount.mirror_count, count);
    assert_int_equal(wire_u64s_count(mount.old_sessions), 0);
    assert_int_not_equal(mount.request.op, op);
    struct wire_segment_mount_reply reply = {.segment = segment};
    input(f, WIRE_SEGMENT_MOUNT_REPLY, f->out.request_id, &reply);
    expect(f, STORE_SESSION_DISK_MOUNTED);
    assert_int_equal(f->out.segment, segment);
}

/* One offer of the disk: extents [from, from + count), of which the given one is not wanted. */
static void expect_disk_offer(struct fixture *f, uint64_t segment, uint32_t from, uint32_t count,
                              uint32_t rejected)
{
    struct wire_mirror_offer offer;
    struct wire_keys keys;
    struct wire_view key;
    uint8_t packed[4];
    char text[32];
    expect_send(f, WIRE_MIRROR_OFFER, &offer);
    assert_int_equal(offer.segment, segment);
    assert_int_equal(wire_offer_count(offer.recs), count);
    assert_int_equal(offer.last, from + count == DISK_EXTENTS);
    assert_int_equal(wire_keys_open(offer.keys, WIRE_KEYS_MAX, &keys), YOLK_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct wire_offer rec = wire_offer_at(offer.recs, i);
        int size = snprintf(text, sizeof(text), "key %d", (int)(from + i));
        assert_true(wire_keys_next(&keys, &key));
        assert_int_equal(key.size, size);
        assert_memory_equal(key.data, text, (size_t)size);
        assert_int_equal(rec.offset, (from + i) * 8192);
        assert_int_equal(rec.size, 5000 + from + i);
        assert_int_equal(rec.checksum, (from + i) * 3);
    }
    wire_set_u32(packed, rejected);
    struct wire_mirror_offer_reply answer = {.accepted = count - 1,
                                             .rejected = wire_view_of(packed, 4)};
    input(f, WIRE_MIRROR_OFFER_REPLY, f->out.request_id, &answer);
}

static void a_disk_beside_the_memory(void **state)
{
    (void)state;
    static struct disk disk;
    struct fixture f;
    struct wire_segment_unmount unmount;
    begin_with_disk(&f, &disk);
    mount_both(&f, master_a, 0, 1500, 78);
    expect_disk_offer(&f, 78, 0, 1024, 7);
    expect_disk_offer(&f, 78, 1024, 476, 475);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(disk_count(&disk), 1498);
    assert_true(disk.gone[7]);
    assert_true(disk.gone[1499]);
    /* Facts of the disk are not the mirror's: no answer from here. */
    facts(&f, 78, 1, WIRE_FACT_FREED, 0, "", 0);
    store_session_next(f.session, f.now, &f.out);
    assert_int_equal(f.out.kind, STORE_SESSION_WAIT);

    /* Another master: all of it again, the memory's mirror before the disk's extents. */
    facts(&f, 77, 1, WIRE_FACT_PLACED, 0, "a", 0);
    expect_ack(&f, 1);
    store_session_link_lost(f.session, f.now);
    memset(disk.gone, 1, sizeof(disk.gone));
    disk.gone[3] = 0;
    mount_both(&f, master_b, 78, 1, 79);
    struct wire_mirror_offer offer;
    struct wire_mirror_offer_reply answer = {.accepted = 1};
    expect_send(&f, WIRE_MIRROR_OFFER, &offer);
    assert_int_equal(offer.segment, 77);
    assert_int_equal(offer.last, 1);
    input(&f, WIRE_MIRROR_OFFER_REPLY, f.out.request_id, &answer);
    expect_send(&f, WIRE_MIRROR_OFFER, &offer);
    assert_int_equal(offer.segment, 79);
    assert_int_equal(wire_offer_count(offer.recs), 1);
    assert_int_equal(offer.last, 1);
    input(&f, WIRE_MIRROR_OFFER_REPLY, f.out.request_id, &answer);
    expect(&f, STORE_SESSION_OPENED);

    store_session_unmount(f.session, f.now, 250);
    struct wire_status_reply ok = {.status = YOLK_OK};
    expect_send(&f, WIRE_SEGMENT_UNMOUNT, &unmount);
    assert_int_equal(unmount.segment, 77);
    input(&f, WIRE_SEGMENT_UNMOUNT_REPLY, f.out.request_id, &ok);
    expect_send(&f, WIRE_SEGMENT_UNMOUNT, &unmount);
    assert_int_equal(unmount.segment, 79);
    assert_int_equal(unmount.grace_ms, 250);
    input(&f, WIRE_SEGMENT_UNMOUNT_REPLY, f.out.request_id, &ok);
    expect(&f, STORE_SESSION_UNMOUNTED);
    assert_int_equal(f.out.status, YOLK_OK);
    finish(&f);
}

/* It would stay on the disk, unknown to the master, if it were not offered again. */
static void what_cannot_be_removed_yet_is_offered_again(void **state)
{
    (void)state;
    static struct disk disk;
    struct fixture f;
    const char *text;
    begin_with_disk(&f, &disk);
    mount_both(&f, master_a, 0, DISK_EXTENTS, 78);
    disk.no_memory = 1;
    expect_disk_offer(&f, 78, 0, 1024, 7);
    assert_false(store_session_is_open(f.session));
    assert_int_equal(store_session_last_refusal(f.session, &text), YOLK_ERR_NO_MEMORY);
    assert_int_equal(disk_count(&disk), DISK_EXTENTS);
    disk.no_memory = 0;
    expect(&f, STORE_SESSION_DISCONNECT);
    f.now += 100 * MS;
    mount_both(&f, master_a, 78, DISK_EXTENTS, 79);
    expect_disk_offer(&f, 79, 0, 1024, 7);
    assert_true(disk.gone[7]);
    finish(&f);
}

static void a_disk_that_comes_later(void **state)
{
    (void)state;
    static struct disk disk;
    struct fixture f;
    struct wire_session_open open;
    struct wire_segment_mount mount;
    begin_with_disk(&f, &disk);
    store_session_add_disk(f.session, NULL);
    connect(&f, master_a);
    expect_send(&f, WIRE_SESSION_OPEN, &open);
    open_answer(&f, 42);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    mount_answer(&f, 77);
    expect(&f, STORE_SESSION_OPENED);
    facts(&f, 77, 1, WIRE_FACT_PLACED, 0, "a", 0);
    expect_ack(&f, 1);
    /* Mounted and offered, and the memory is left as it is; also when the link breaks meanwhile. */
    store_session_add_disk(f.session, &disk.mount);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.medium, WIRE_MEDIUM_LOCAL_DISK);
    uint64_t op = mount.request.op;
    store_session_link_lost(f.session, f.now);
    connect(&f, master_a);
    heartbeat_ok(&f);
    expect(&f, STORE_SESSION_OPENED);
    expect_send(&f, WIRE_SEGMENT_MOUNT, &mount);
    assert_int_equal(mount.medium, WIRE_MEDIUM_LOCAL_DISK);
    assert_int_equal(mount.request.op, op);
    struct wire_segment_mount_reply reply = {.segment = 78};
    input(&f, WIRE_SEGMENT_MOUNT_REPLY, f.out.request_id, &reply);
    expect(&f, STORE_SESSION_DISK_MOUNTED);
    expect_disk_offer(&f, 78, 0, 1024, 7);
    expect_disk_offer(&f, 78, 1024, 476, 475);
    expect(&f, STORE_SESSION_OPENED);
    assert_int_equal(store_mirror_count(f.mirror), 1);
    heartbeat_ok(&f);
    finish(&f);
}

static bool refuse_all(void *self)
{
    (void)self;
    return true;
}

static void no_memory_is_waited_out(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, 0);
    base_alloc_set_hook(refuse_all, NULL);
    store_session_next(f.session, f.now, &f.out);
    base_alloc_set_hook(NULL, NULL);
    assert_int_equal(f.out.kind, STORE_SESSION_WAIT);
    assert_true(f.out.deadline_ns > f.now);
    expect(&f, STORE_SESSION_CONNECT);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_and_beats),
        cmocka_unit_test(resumes_at_the_same_master),
        cmocka_unit_test(tells_another_master_what_is_held),
        cmocka_unit_test(expires_and_opens_another),
        cmocka_unit_test(node_mounts_mirrors_and_mounts_again),
        cmocka_unit_test(half_open),
        cmocka_unit_test(fences_and_expired_puts),
        cmocka_unit_test(refused),
        cmocka_unit_test(a_disk_beside_the_memory),
        cmocka_unit_test(what_cannot_be_removed_yet_is_offered_again),
        cmocka_unit_test(a_disk_that_comes_later),
        cmocka_unit_test(no_memory_is_waited_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
