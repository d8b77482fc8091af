/* SPDX-License-Identifier: Apache-2.0 */
/* Two peers in one process, joined by tcp: what each may do to the other. */
#include <yolk/peer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "peer/internal.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/sysfs.h"
#include "platform/thread.h"
#include "wire/msg.h"

enum { SIZE = 1 << 20 };

struct world {
    struct yolk_peer *a, *b;
    uint64_t segment; /* b, as a sees it */
    uint8_t *local, *remote;
};

static struct yolk_peer *peer_at(uint16_t port, const char *transports)
{
    struct yolk_peer_options options;
    struct yolk_peer *peer = NULL;
    yolk_peer_options_init(&options);
    options.port = port;
    options.transports = transports;
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_OK);
    return peer;
}

static void fill(uint8_t *memory, uint8_t seed)
{
    for (size_t i = 0; i < SIZE; i++)
        memory[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

static struct world open_world(void)
{
    struct world w = {.a = peer_at(0, "tcp"), .b = peer_at(0, "tcp")};
    w.local = malloc(SIZE);
    w.remote = malloc(SIZE);
    fill(w.local, 1);
    fill(w.remote, 2);
    assert_int_equal(yolk_peer_register(w.a, w.local, SIZE, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(yolk_peer_register(w.b, w.remote, SIZE, "cpu:0", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_open(w.a, yolk_peer_name(w.b), &w.segment), YOLK_OK);
    return w;
}

static void close_world(struct world *w)
{
    assert_int_equal(yolk_peer_destroy(w->a), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(w->b), YOLK_OK);
    free(w->local);
    free(w->remote);
}

static struct yolk_request request(const struct world *w, enum yolk_opcode opcode, size_t at,
                                   const void *remote, uint64_t size)
{
    return (struct yolk_request){.opcode = opcode,
                                 .local = w->local + at,
                                 .segment = w->segment,
                                 .offset = (uint64_t)(uintptr_t)remote,
                                 .size = size};
}

static enum yolk_status run(const struct world *w, enum yolk_opcode opcode, size_t at,
                            const void *remote, uint64_t size)
{
    const struct yolk_request one = request(w, opcode, at, remote, size);
    return yolk_peer_transfer(w->a, &one, 1, clock_real_now_ns() + 10 * NS_PER_S);
}

static void moves_bytes_both_ways(void **state)
{
    (void)state;
    struct world w = open_world();
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, SIZE), YOLK_OK);
    assert_memory_equal(w.local, w.remote, SIZE);
    fill(w.local, 9);
    assert_int_equal(run(&w, YOLK_WRITE, 100, w.remote + 5000, 3333), YOLK_OK);
    assert_memory_equal(w.remote + 5000, w.local + 100, 3333);
    assert_int_equal(w.remote[4999], (uint8_t)(4999 * 7 + (4999 >> 8) + 2));
    assert_int_equal(w.remote[8333], (uint8_t)(8333 * 7 + (8333 >> 8) + 2));
    struct yolk_request many[200];
    for (size_t i = 0; i < 200; i++)
        many[i] = request(&w, YOLK_READ, i * 512, w.remote + (199 - i) * 512, 512);
    assert_int_equal(yolk_peer_transfer(w.a, many, 200, 0), YOLK_OK);
    for (size_t i = 0; i < 200; i++)
        assert_memory_equal(w.local + i * 512, w.remote + (199 - i) * 512, 512);
    close_world(&w);
}

static void prepared_once_and_posted_often(void **state)
{
    (void)state;
    enum { COUNT = 20, ROUNDS = 5 };
    struct world w = open_world();
    struct yolk_engine *engine = yolk_peer_engine(w.a);
    struct yolk_request requests[COUNT];
    enum yolk_status verdicts[COUNT];
    uint64_t prepared, batch;
    for (size_t i = 0; i < COUNT; i++)
        requests[i] = request(&w, YOLK_READ, i * 512, w.remote + (COUNT - 1 - i) * 512, 512);
    assert_int_equal(yolk_peer_prepare(w.a, requests, COUNT, verdicts, NULL), YOLK_ERR_INVALID);
    requests[3].segment ^= 1;
    assert_int_not_equal(yolk_peer_prepare(w.a, requests, COUNT, verdicts, &prepared), YOLK_OK);
    assert_int_equal(verdicts[3], YOLK_ERR_STALE);
    requests[3].segment ^= 1;
    assert_int_equal(yolk_peer_prepare(w.a, requests, COUNT, verdicts, &prepared), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(engine, COUNT, &batch), YOLK_OK);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(w.local, (int)round, SIZE);
        assert_int_equal(
            yolk_engine_batch_submit_prepared(engine, batch, prepared, NULL, 0, 0, verdicts, NULL),
            YOLK_OK);
        assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
        for (size_t i = 0; i < COUNT; i++)
            assert_memory_equal(w.local + i * 512, w.remote + (COUNT - 1 - i) * 512, 512);
        assert_int_equal(yolk_engine_batch_reset(engine, batch), YOLK_OK);
    }
    assert_int_equal(yolk_engine_prepared_release(engine, prepared), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
    close_world(&w);
}

static void only_what_is_registered(void **state)
{
    (void)state;
    struct world w = open_world();
    uint8_t *other = calloc(1, SIZE);
    assert_int_equal(run(&w, YOLK_READ, 0, other, 16), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote + SIZE - 8, 16), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(run(&w, YOLK_WRITE, 0, NULL, 1), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_register(w.b, other, SIZE, "*", YOLK_LOCAL), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, other, 16), YOLK_ERR_ACCESS);
    assert_int_equal(yolk_peer_unregister(w.b, other, 0), YOLK_OK);
    assert_int_equal(yolk_peer_register(w.b, other, SIZE, "*", YOLK_REMOTE_READ), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, other, 16), YOLK_OK);
    assert_int_equal(run(&w, YOLK_WRITE, 0, other, 16), YOLK_ERR_ACCESS);
    /* A part of a range has no more permission than the whole. */
    assert_int_equal(yolk_peer_register(w.b, other + 64, 64, "*", YOLK_REMOTE_WRITE),
                     YOLK_ERR_ACCESS);
    assert_int_equal(yolk_peer_register(w.b, other + 64, 64, "*", YOLK_REMOTE_READ), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(w.b, other, SIZE), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, other, 16), YOLK_OK); /* the other reference holds it */
    assert_int_equal(yolk_peer_unregister(w.b, other + 64, 64), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, other, 16), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(w.b, other, 0), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_register(w.b, other, SIZE, "cuda:0", YOLK_REMOTE_READ),
                     YOLK_ERR_UNSUPPORTED);
    assert_int_equal(yolk_peer_register(w.b, other, SIZE, "nonsense", YOLK_REMOTE_READ),
                     YOLK_ERR_INVALID);
    /* A node that this machine has not got, told with those that it has. */
    assert_int_equal(yolk_peer_register(w.b, other, SIZE, "cpu:999", YOLK_REMOTE_READ),
                     YOLK_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(yolk_last_error(), "\"cpu:999\": the NUMA nodes of this machine are cpu:0"));
    static const char *const none[] = {"cpu:", "cpu:-1", "cpu:0x", "cpu:99999999999999999999"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_int_equal(yolk_peer_register(w.b, other, SIZE, none[i], YOLK_REMOTE_READ),
                         YOLK_ERR_INVALID);
    free(other);
    close_world(&w);
}

/* The failure names the side, the addresses, the peer and what was said of it. */
static void why_a_transfer_failed(void **state)
{
    (void)state;
    struct world w = open_world();
    char wanted[160];
    uint8_t *unknown = w.remote + SIZE; /* the range ends there */
    assert_int_equal(run(&w, YOLK_READ, 0, unknown, 16), YOLK_ERR_NOT_REGISTERED);
    snprintf(wanted, sizeof(wanted),
             "a transfer of 1 requests: a read of 16 bytes, local %p, remote 0x%llx: ",
             (void *)w.local, (unsigned long long)(uintptr_t)unknown);
    assert_non_null(strstr(yolk_last_error(), wanted));
    assert_non_null(strstr(yolk_last_error(), " to 127.0.0.1:"));
    assert_non_null(
        strstr(yolk_last_error(), ": the remote side refused: the memory is not registered"));
    struct yolk_request wrong = {.opcode = YOLK_READ,
                                 .local = &w,
                                 .segment = w.segment,
                                 .offset = (uintptr_t)w.remote,
                                 .size = 8};
    assert_int_equal(yolk_peer_transfer(w.a, &wrong, 1, 0), YOLK_ERR_NOT_REGISTERED);
    snprintf(wanted, sizeof(wanted), "local %p + 8 is not inside a registered range", (void *)&w);
    assert_non_null(strstr(yolk_last_error(), wanted));
    wrong.segment = 4711; /* a handle that is none: in the peer's words */
    assert_int_not_equal(yolk_peer_transfer(w.a, &wrong, 1, 0), YOLK_OK);
    assert_null(strstr(yolk_last_error(), "the segment handle was closed"));
    close_world(&w);
}

/* Where its pages are, of memory that has some; of memory that has none nothing is known. */
static void locations_are_found_out(void **state)
{
    (void)state;
    enum { PAGES = 16 };
    struct world w = open_world();
    size_t size = PAGES * memory_page_size();
    struct yolk_peer_buffer *buffers;
    size_t count;
    int node;
    void *kept[2];
    for (int touched = 0; touched < 2; touched++) {
        kept[touched] =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(kept[touched] != MAP_FAILED);
        if (touched)
            memset(kept[touched], 1, size);
        char wanted[16] = "*";
        if (touched && memory_node(kept[touched], size, &node) == YOLK_OK)
            snprintf(wanted, sizeof(wanted), "cpu:%d", node);
        assert_int_equal(yolk_peer_register(w.b, kept[touched], size, "*", YOLK_REMOTE_READ),
                         YOLK_OK);
        assert_int_equal(yolk_peer_buffers(w.a, w.segment, &buffers, &count), YOLK_OK);
        bool seen = false;
        for (size_t i = 0; i < count; i++) {
            if (buffers[i].address != (uint64_t)(uintptr_t)kept[touched])
                continue;
            assert_string_equal(buffers[i].location, wanted);
            seen = true;
        }
        assert_true(seen);
        free(buffers);
        assert_int_equal(yolk_peer_unregister(w.b, kept[touched], size), YOLK_OK);
    }
    munmap(kept[0], size);
    munmap(kept[1], size);
    close_world(&w);
}

static void names_and_handles(void **state)
{
    (void)state;
    struct world w = open_world();
    uint64_t again, own, own_by_name;
    assert_int_equal(yolk_peer_open(w.a, yolk_peer_name(w.b), &again), YOLK_OK);
    assert_int_equal(again, w.segment);
    assert_int_equal(yolk_peer_open(w.a, "", &own), YOLK_OK);
    assert_int_equal(yolk_peer_open(w.a, yolk_peer_name(w.a), &own_by_name), YOLK_OK);
    assert_int_equal(own, own_by_name);
    assert_int_not_equal(own, w.segment);
    struct yolk_peer_buffer *buffers;
    size_t count;
    assert_int_equal(yolk_peer_buffers(w.a, w.segment, &buffers, &count), YOLK_OK);
    assert_int_equal(count, 1);
    assert_int_equal(buffers[0].address, (uint64_t)(uintptr_t)w.remote);
    assert_int_equal(buffers[0].size, SIZE);
    assert_string_equal(buffers[0].location, "cpu:0");
    assert_int_equal(buffers[0].permission, YOLK_REMOTE_WRITE);
    free(buffers);
    assert_int_equal(yolk_peer_probe(w.a, w.segment, 3000), YOLK_OK);
    assert_int_equal(yolk_peer_close(w.a, w.segment), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, 16), YOLK_OK);
    assert_int_equal(yolk_peer_close(w.a, w.segment), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, 16), YOLK_ERR_STALE);
    assert_int_equal(yolk_peer_close(w.a, w.segment), YOLK_ERR_STALE);
    assert_int_equal(yolk_peer_open(w.a, "127.0.0.1:1", &again), YOLK_ERR_REFUSED);
    assert_non_null(strstr(yolk_last_error(), "127.0.0.1:1"));
    assert_int_not_equal(yolk_peer_open(w.a, "no port", &again), YOLK_OK);
    close_world(&w);
}

/* Another life at the same address: what the old one had is refused, what the new one has is found.
 */
static void a_restarted_peer(void **state)
{
    (void)state;
    struct world w = open_world();
    uint16_t port = yolk_peer_port(w.b);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, SIZE), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(w.b), YOLK_OK);
    enum yolk_status status = run(&w, YOLK_READ, 0, w.remote, SIZE);
    assert_int_not_equal(status, YOLK_OK);
    w.b = peer_at(port, "tcp");
    uint8_t *second = malloc(SIZE);
    fill(second, 77);
    assert_int_equal(yolk_peer_register(w.b, second, SIZE, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_probe(w.a, w.segment, 3000), YOLK_ERR_STALE);
    assert_int_equal(yolk_peer_probe(w.a, w.segment, 3000), YOLK_OK);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, SIZE), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(run(&w, YOLK_READ, 0, second, SIZE), YOLK_OK);
    assert_memory_equal(w.local, second, SIZE);
    /* And without a probe in between. */
    assert_int_equal(yolk_peer_destroy(w.b), YOLK_OK);
    w.b = peer_at(port, "tcp");
    assert_int_equal(yolk_peer_register(w.b, second, SIZE, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    uint64_t deadline_ns = clock_real_now_ns() + 10 * NS_PER_S;
    do
        status = run(&w, YOLK_READ, 0, second, SIZE);
    while (status != YOLK_OK && clock_real_now_ns() < deadline_ns);
    assert_int_equal(status, YOLK_OK);
    assert_int_equal(yolk_peer_unregister(w.b, second, SIZE), YOLK_OK);
    free(second);
    close_world(&w);
}

/* What is tried once more with success does not hide what failed for good. */
static void one_failure_is_told_after_a_restart(void **state)
{
    (void)state;
    struct world w = open_world();
    uint8_t unregistered[16];
    struct yolk_request both[2] = {request(&w, YOLK_READ, 0, w.remote, 16),
                                   request(&w, YOLK_READ, 16, w.remote, 16)};
    const struct yolk_request good = both[0];
    assert_int_equal(yolk_peer_open(w.a, "", &both[0].segment), YOLK_OK); /* another one */
    both[0].offset = (uint64_t)(uintptr_t)unregistered;
    enum yolk_status status;
    struct peer_entry *entry = peer_directory_find(w.a, w.segment, &status);
    assert_non_null(entry);
    for (int i = 0; i < 2; i++) { /* the second one with both in order */
        /* As if another thread had just found the earlier life out of date. */
        assert_int_equal(yolk_engine_segment_close(yolk_peer_engine(w.a), entry->engine_segment),
                         YOLK_OK);
        entry->asked_ns = clock_real_now_ns(); /* so that it is not asked at once */
        assert_int_equal(yolk_peer_transfer(w.a, both, 2, 0),
                         i == 0 ? YOLK_ERR_NOT_REGISTERED : YOLK_OK);
        assert_memory_equal(w.local + 16, w.remote, 16);
        both[0] = good;
    }
    peer_entry_release(w.a, entry);
    close_world(&w);
}

/* ---- notifications ---- */

/* Takes until `wanted` have come. */
static struct yolk_notification *receive(struct yolk_peer *peer, size_t wanted)
{
    struct yolk_notification *all = calloc(wanted, sizeof(*all));
    uint64_t deadline_ns = clock_real_now_ns() + 10 * NS_PER_S;
    for (size_t got = 0; got < wanted;) {
        struct yolk_notification *some;
        size_t count;
        assert_true(clock_real_now_ns() < deadline_ns);
        assert_int_equal(yolk_peer_notifications(peer, &some, &count), YOLK_OK);
        assert_true(got + count <= wanted);
        if (count > 0)
            memcpy(all + got, some, count * sizeof(*some));
        got += count;
        free(some);
    }
    return all;
}

static void notifications_keep_their_order(void **state)
{
    (void)state;
    struct world w = open_world();
    char text[32];
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_int_equal(yolk_peer_notify(w.a, w.segment, "order", text, strlen(text)), YOLK_OK);
    }
    struct yolk_notification *all = receive(w.b, 100);
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "message %d", i);
        assert_string_equal(all[i].name, "order");
        assert_string_equal(all[i].message, text);
        assert_int_equal(all[i].message_size, strlen(text));
    }
    yolk_notifications_free(all, 100);
    char *large = calloc(1, MAX_PEER_MESSAGE + 1);
    assert_int_equal(yolk_peer_notify(w.a, w.segment, "", large, MAX_PEER_MESSAGE), YOLK_OK);
    assert_int_equal(yolk_peer_notify(w.a, w.segment, "", large, MAX_PEER_MESSAGE + 1),
                     YOLK_ERR_TOO_LARGE);
    free(large);
    yolk_notifications_free(receive(w.b, 1), 1);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(yolk_peer_notify(w.a, w.segment, "n", "", 0), YOLK_OK);
    assert_int_equal(yolk_peer_notify(w.a, w.segment, "n", "", 0), YOLK_ERR_LIMIT);
    yolk_notifications_free(receive(w.b, 4096), 4096);
    close_world(&w);
}

static void bound_to_transfers(void **state)
{
    (void)state;
    struct world w = open_world();
    uint64_t batch;
    uint32_t first;
    enum yolk_status verdicts[2];
    const struct yolk_request good[2] = {
        request(&w, YOLK_WRITE, 0, w.remote, SIZE / 2),
        request(&w, YOLK_WRITE, SIZE / 2, w.remote + SIZE / 2, SIZE / 2)};
    assert_int_equal(yolk_engine_batch_create(yolk_peer_engine(w.a), 4, &batch), YOLK_OK);
    assert_int_equal(
        yolk_peer_submit_notify(w.a, batch, good, 2, verdicts, &first, "done", "yes", 3), YOLK_OK);
    struct yolk_notification *one = receive(w.b, 1);
    assert_string_equal(one->name, "done");
    assert_string_equal(one->message, "yes");
    assert_memory_equal(w.remote, w.local, SIZE); /* not before the bytes */
    yolk_notifications_free(one, 1);
    /* One of the requests fails: nobody is told, and a later one still is. */
    const struct yolk_request bad[2] = {good[0], request(&w, YOLK_READ, 0, NULL, 16)};
    assert_int_equal(yolk_peer_submit_notify(w.a, batch, bad, 2, verdicts, &first, "done", "no", 2),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(yolk_peer_engine(w.a), batch, 0), YOLK_OK);
    assert_int_equal(yolk_peer_batch_free(w.a, batch), YOLK_OK);
    /* Freed as soon as it is over. */
    assert_int_equal(yolk_engine_batch_create(yolk_peer_engine(w.a), 2, &batch), YOLK_OK);
    assert_int_equal(yolk_peer_submit_notify(w.a, batch, good, 2, verdicts, &first, "last", "x", 1),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(yolk_peer_engine(w.a), batch, 0), YOLK_OK);
    assert_int_equal(yolk_peer_batch_free(w.a, batch), YOLK_OK);
    one = receive(w.b, 1);
    assert_string_equal(one->name, "last");
    yolk_notifications_free(one, 1);
    close_world(&w);
}

static void what_cannot_be_notified_is_not_moved(void **state)
{
    (void)state;
    struct world w = open_world();
    uint64_t batch;
    uint32_t first = 7;
    struct yolk_request many[66];
    enum yolk_status verdicts[66];
    for (size_t i = 0; i < 66; i++) {
        many[i] = request(&w, YOLK_WRITE, 0, w.remote, 64);
        many[i].segment += i; /* more peers than one submit may notify */
    }
    uint8_t before[64];
    memcpy(before, w.remote, sizeof(before));
    assert_int_equal(yolk_engine_batch_create(yolk_peer_engine(w.a), 66, &batch), YOLK_OK);
    assert_int_equal(
        yolk_peer_submit_notify(w.a, batch, many, 66, verdicts, &first, "done", "x", 1),
        YOLK_ERR_LIMIT);
    assert_int_equal(yolk_engine_batch_wait(yolk_peer_engine(w.a), batch, 0), YOLK_OK);
    assert_memory_equal(w.remote, before, sizeof(before));
    /* The place in the queue was given back, and the batch has all of its room. */
    assert_int_equal(yolk_peer_submit_notify(w.a, batch, many, 1, verdicts, &first, "done", "x", 1),
                     YOLK_OK);
    assert_int_equal(first, 0);
    yolk_notifications_free(receive(w.b, 1), 1);
    assert_int_equal(yolk_peer_batch_free(w.a, batch), YOLK_OK);
    close_world(&w);
}

/* ---- memory that goes while others use it ---- */

/* The whole and its parts, each given back by the address alone, as callers of Mooncake do. */
static void parts_are_given_back_by_address(void **state)
{
    (void)state;
    struct world w = open_world();
    uint8_t *part = w.remote + 4096;
    assert_int_equal(yolk_peer_register(w.b, part, 64, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_register(w.b, w.remote, 64, "*", YOLK_REMOTE_WRITE), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(w.b, part + 1, 0), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(w.b, part, 63), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(w.b, part, 0), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(w.b, part, 0), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(w.b, w.remote, 0), YOLK_OK); /* the whole */
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, SIZE), YOLK_OK);
    assert_int_equal(yolk_peer_unregister(w.b, w.remote, 0), YOLK_OK); /* its last part */
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, 16), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(yolk_peer_unregister(w.b, w.remote, 0), YOLK_ERR_NOT_REGISTERED);
    assert_int_equal(run(&w, YOLK_READ, 0, NULL, 0), YOLK_OK); /* nothing is at any address */
    assert_int_equal(yolk_peer_register(w.b, w.remote, 64, "*", (enum yolk_permission)3),
                     YOLK_ERR_INVALID);
    close_world(&w);
}

struct remover {
    struct peer_registry *registry;
    enum yolk_status status;
};

static void remove_range(void *arg)
{
    struct remover *remover = arg;
    remover->status =
        peer_registry_remove(remover->registry, 4096, SIZE, clock_real_now_ns() + 20 * NS_PER_S);
}

static uint32_t waiting_for(struct peer_registry *registry)
{
    struct base_range found;
    pthread_rwlock_wrlock(&registry->lock);
    bool there = base_imap_get(&registry->map, 4096, &found);
    uint32_t waiting = there ? ((struct peer_range *)found.value)->waiting : 0;
    pthread_rwlock_unlock(&registry->lock);
    return waiting;
}

static void many_may_remove_a_range(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct peer_registry registry;
    struct thread threads[THREADS];
    struct remover removers[THREADS];
    peer_registry_init(&registry);
    const struct yolk_owner owner = peer_registry_owner(&registry);
    const struct yolk_access_request access = {.offset = 4096, .size = 64, .opcode = YOLK_READ};
    assert_int_equal(peer_registry_add(&registry, 4096, SIZE, "*", YOLK_REMOTE_READ, 0), YOLK_OK);
    assert_int_equal(owner.begin(owner.self, &access), YOLK_OK);
    for (size_t i = 0; i < THREADS; i++) {
        removers[i].registry = &registry;
        assert_int_equal(thread_start(&threads[i], "remover", remove_range, &removers[i]), YOLK_OK);
    }
    while (waiting_for(&registry) < THREADS)
        ;
    owner.end(owner.self, &access);
    for (size_t i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(removers[i].status, YOLK_OK);
    }
    assert_int_equal(peer_registry_add(&registry, 4096, SIZE, "*", YOLK_REMOTE_READ, 0), YOLK_OK);
    peer_registry_free(&registry);
}

struct leaver {
    struct peer_registry *registry;
    uint64_t start;
    enum yolk_status first, second;
    _Atomic bool gave_up; /* first is known */
};

static void leave(void *arg)
{
    struct leaver *leaver = arg;
    leaver->first = peer_registry_remove(leaver->registry, leaver->start, SIZE,
                                         clock_real_now_ns() + 20 * NS_PER_MS);
    atomic_store(&leaver->gave_up, true);
    leaver->second = peer_registry_remove(leaver->registry, leaver->start, SIZE,
                                          clock_real_now_ns() + 10 * NS_PER_S);
}

static void a_range_waits_for_its_accesses(void **state)
{
    (void)state;
    struct peer_registry registry;
    struct thread thread;
    peer_registry_init(&registry);
    const struct yolk_owner owner = peer_registry_owner(&registry);
    const struct yolk_access_request access = {.offset = 4096, .size = 64, .opcode = YOLK_READ};
    struct leaver leaver = {.registry = &registry, .start = 4096};
    assert_int_equal(peer_registry_add(&registry, 4096, SIZE, "*", YOLK_REMOTE_READ, 0), YOLK_OK);
    assert_int_equal(owner.begin(owner.self, &access), YOLK_OK);
    assert_int_equal(owner.begin(owner.self, &access), YOLK_OK);
    assert_int_equal(thread_start(&thread, "leaver", leave, &leaver), YOLK_OK);
    while (owner.begin(owner.self, &access) == YOLK_OK) /* until it is leaving */
        owner.end(owner.self, &access);
    owner.end(owner.self, &access);
    bool leaving;
    uint64_t size = 0;
    assert_int_equal(peer_registry_find(&registry, 4096, &size, &leaving), YOLK_OK);
    assert_true(leaving);
    assert_int_equal(size, SIZE);
    assert_int_equal(peer_registry_add(&registry, 4096, SIZE, "*", YOLK_REMOTE_READ, 0),
                     YOLK_ERR_BUSY);
    uint64_t until_ns = clock_real_now_ns() + 20 * NS_PER_S;
    while (!atomic_load(&leaver.gave_up))
        assert_true(clock_real_now_ns() < until_ns);
    owner.end(owner.self, &access);
    thread_join(&thread);
    assert_int_equal(leaver.first, YOLK_ERR_BUSY);
    assert_int_equal(leaver.second, YOLK_OK);
    assert_int_equal(owner.begin(owner.self, &access), YOLK_ERR_NOT_REGISTERED);
    peer_registry_free(&registry);
}

/* ---- a hostile neighbour ---- */

static void garbage_at_the_handshake(void **state)
{
    (void)state;
    struct world w = open_world();
    struct net_address address;
    char junk[4096];
    int fds[8];
    memset(junk, 0xa5, sizeof(junk));
    assert_int_equal(net_address_parse(yolk_peer_name(w.b), 0, &address), YOLK_OK);
    for (size_t i = 0; i < 8; i++) {
        uint64_t deadline_ns = clock_real_now_ns() + 3 * NS_PER_S;
        assert_int_equal(net_connect(&address, deadline_ns, &fds[i]), YOLK_OK);
        (void)!net_send_all(fds[i], junk, i % 2 == 0 ? sizeof(junk) : 3, deadline_ns);
    }
    assert_int_equal(yolk_peer_probe(w.a, w.segment, 3000), YOLK_OK);
    for (size_t i = 0; i < 8; i += 2)
        assert_int_not_equal(net_recv_all(fds[i], junk, 1, clock_real_now_ns() + 3 * NS_PER_S),
                             YOLK_ERR_TIMEOUT);
    for (size_t i = 0; i < 8; i++)
        net_close(fds[i]);
    close_world(&w);
}

/* As many as the handshake port keeps, and more, who stay and say nothing. */
static void silent_connections_keep_nobody_out(void **state)
{
    (void)state;
    enum { SILENT = 1100 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 4 * SILENT) {
        print_message("skipped: at most %llu descriptors\n", (unsigned long long)limit.rlim_max);
        skip();
    }
    const struct rlimit raised = {limit.rlim_max < 65536 ? limit.rlim_max : 65536, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &raised), 0);
    struct world w = open_world();
    struct net_address address;
    static int fds[SILENT];
    assert_int_equal(net_address_parse(yolk_peer_name(w.b), 0, &address), YOLK_OK);
    for (size_t i = 0; i < SILENT; i++)
        assert_int_equal(net_connect(&address, clock_real_now_ns() + 10 * NS_PER_S, &fds[i]),
                         YOLK_OK);
    assert_int_equal(yolk_peer_probe(w.a, w.segment, 5000), YOLK_OK);
    struct yolk_peer *newcomer = peer_at(0, "tcp");
    uint64_t segment;
    assert_int_equal(yolk_peer_open(newcomer, yolk_peer_name(w.b), &segment), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(newcomer), YOLK_OK);
    for (size_t i = 0; i < SILENT; i++)
        net_close(fds[i]);
    close_world(&w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A child has the sockets of its parent, and must not speak on them. */
static void a_child_is_told_so(void **state)
{
    (void)state;
    struct world w = open_world();
    pid_t child = fork();
    if (child == 0) {
        uint64_t segment;
        uint8_t memory[16];
        bool right = yolk_peer_probe(w.a, w.segment, 3000) == YOLK_ERR_FORKED &&
                     run(&w, YOLK_READ, 0, w.remote, 16) == YOLK_ERR_FORKED &&
                     yolk_peer_open(w.a, yolk_peer_name(w.b), &segment) == YOLK_ERR_FORKED &&
                     yolk_peer_notify(w.a, w.segment, "n", "", 0) == YOLK_ERR_FORKED &&
                     yolk_peer_register(w.a, memory, 16, "*", YOLK_LOCAL) == YOLK_ERR_FORKED &&
                     yolk_peer_unregister(w.a, w.local, 0) == YOLK_ERR_FORKED &&
                     yolk_peer_destroy(w.a) == YOLK_ERR_FORKED;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(run(&w, YOLK_READ, 0, w.remote, 16), YOLK_OK);
    close_world(&w);
}

static void secrets_must_agree(void **state)
{
    (void)state;
    struct yolk_peer_options options;
    struct yolk_peer *a, *b, *c;
    uint64_t segment;
    yolk_peer_options_init(&options);
    options.secret = (const uint8_t *)"one";
    options.secret_size = 3;
    assert_int_equal(yolk_peer_create(&options, &a), YOLK_OK);
    assert_int_equal(yolk_peer_create(&options, &b), YOLK_OK);
    options.secret = (const uint8_t *)"two";
    assert_int_equal(yolk_peer_create(&options, &c), YOLK_OK);
    assert_int_equal(yolk_peer_open(a, yolk_peer_name(b), &segment), YOLK_OK);
    assert_int_equal(yolk_peer_open(a, yolk_peer_name(c), &segment), YOLK_ERR_AUTH);
    assert_int_equal(yolk_peer_destroy(a), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(b), YOLK_OK);
    assert_int_equal(yolk_peer_destroy(c), YOLK_OK);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct yolk_peer_options options;
    struct yolk_peer *peer, *taken = peer_at(0, "tcp");
    yolk_peer_options_init(&options);
    options.port = yolk_peer_port(taken);
    assert_int_not_equal(yolk_peer_create(&options, &peer), YOLK_OK);
    char port[16];
    snprintf(port, sizeof(port), ":%u", options.port);
    assert_non_null(strstr(yolk_last_error(), port));
    yolk_peer_options_init(&options);
    options.transports = "tcp,warp";
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "warp"));
    options.transports = NULL;
    options.metadata = "gopher://x";
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "gopher://x"));
    options.metadata = NULL;
    options.port_min = 20;
    options.port_max = 10;
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_ERR_CONFIG);
    /* Zeros are the defaults. */
    options.port_min = options.port_max = 0;
    options.timeout_ms = 0;
    options.notifications_max = 0;
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_OK);
    assert_in_range(yolk_peer_port(peer), 15000, 17000);
    assert_int_equal(yolk_peer_destroy(peer), YOLK_OK);
    /* A host that cannot be listened on is told once, not for each port. */
    options.listen = "no such host";
    assert_int_equal(yolk_peer_create(&options, &peer), YOLK_ERR_NOT_FOUND);
    assert_non_null(strstr(yolk_last_error(), "no such host"));
    assert_int_equal(yolk_peer_destroy(taken), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_bytes_both_ways),
        cmocka_unit_test(prepared_once_and_posted_often),
        cmocka_unit_test(only_what_is_registered),
        cmocka_unit_test(locations_are_found_out),
        cmocka_unit_test(why_a_transfer_failed),
        cmocka_unit_test(names_and_handles),
        cmocka_unit_test(a_restarted_peer),
        cmocka_unit_test(one_failure_is_told_after_a_restart),
        cmocka_unit_test(notifications_keep_their_order),
        cmocka_unit_test(bound_to_transfers),
        cmocka_unit_test(what_cannot_be_notified_is_not_moved),
        cmocka_unit_test(a_range_waits_for_its_accesses),
        cmocka_unit_test(parts_are_given_back_by_address),
        cmocka_unit_test(many_may_remove_a_range),
        cmocka_unit_test(garbage_at_the_handshake),
        cmocka_unit_test(silent_connections_keep_nobody_out),
        cmocka_unit_test(a_child_is_told_so),
        cmocka_unit_test(secrets_must_agree),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests_name("peer.peer", tests, NULL, NULL);
}
