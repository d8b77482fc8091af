/* SPDX-License-Identifier: Apache-2.0 */
/* A node's disk on a real file, with a real engine and a scripted master. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/temporary_kit.h"
#include "platform/thread.h"
#include "store/disk.h"
#include "store/disk_mount.h"
#include "transport/loop/loop.h"
#include "transport/posix/posix.h"
#include "transport/uring/uring.h"
#include "wire/msg.h"

#define MEMORY (4u << 20)

struct fixture {
    char folder[TEMPORARY_MAX];
    char path[TEMPORARY_MAX + 16];
    struct yolk_engine *engine;
    uint8_t *memory;
    struct store_disk *disk;
    uint64_t handle; /* of the disk's segment, as others see it */
    struct mutex lock;
    struct condition woken;
    uint64_t wakes;
    uint64_t floor; /* of the tasks: what is below it has been heard of */
    struct base_buf recs, keys, body;
};

static void wake(void *self)
{
    struct fixture *f = self;
    mutex_lock(&f->lock);
    f->wakes++;
    condition_broadcast(&f->woken);
    mutex_unlock(&f->lock);
}

static void open_disk(struct fixture *f)
{
    const struct file_system fs = file_system_real();
    struct store_disk_options options = {
        .fs = &fs,
        .path = f->path,
        .size_bytes = 16 << 20,
        .sync_ms = 5,
        .engine = f->engine,
        .memory = f->memory,
        .memory_size = MEMORY,
        .wake = wake,
        .wake_self = f,
    };
    int status = store_disk_open(&options, &f->disk);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
    store_disk_mounted(f->disk, 10, 20);
    store_disk_offered(f->disk);
    const struct store_disk_mount *mount = store_disk_mount(f->disk);
    struct yolk_segment_descriptor descriptor = {
        .id = 20, .size = mount->size, .endpoints = mount->endpoints};
    assert_int_equal(yolk_engine_segment_open(f->engine, &descriptor, 5, &f->handle), YOLK_OK);
}

static void close_disk(struct fixture *f)
{
    assert_int_equal(yolk_engine_segment_close(f->engine, f->handle), YOLK_OK);
    store_disk_close(f->disk);
}

static void begin(struct fixture *f)
{
    const struct yolk_transport_ops *transports[] = {transport_loop_ops(), transport_uring_ops(),
                                                     transport_posix_ops()};
    struct yolk_engine_options options;
    memset(f, 0, sizeof(*f));
    memcpy(f->folder, "yolk-disk-XXXXXX", sizeof("yolk-disk-XXXXXX"));
    assert_non_null(mkdtemp(temporary_path(f->folder)));
    snprintf(f->path, sizeof(f->path), "%s/values", f->folder);
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 3;
    assert_int_equal(yolk_engine_create(&options, &f->engine), YOLK_OK);
    f->memory = aligned_alloc(4096, MEMORY);
    assert_non_null(f->memory);
    for (uint32_t i = 0; i < MEMORY; i++)
        f->memory[i] = (uint8_t)(i * 7 + (i >> 10));
    mutex_init(&f->lock);
    condition_init(&f->woken);
    f->floor = 1;
    base_buf_init(&f->recs, 1 << 20);
    base_buf_init(&f->keys, 1 << 20);
    base_buf_init(&f->body, 1 << 20);
    open_disk(f);
}

static void finish(struct fixture *f)
{
    char file[TEMPORARY_MAX + 32];
    close_disk(f);
    assert_int_equal(yolk_engine_destroy(f->engine), YOLK_OK);
    snprintf(file, sizeof(file), "%s.slot0", f->path);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(f->folder), 0); /* nothing else was left there */
    free(f->memory);
    condition_destroy(&f->woken);
    mutex_destroy(&f->lock);
    base_buf_free(&f->recs);
    base_buf_free(&f->keys);
    base_buf_free(&f->body);
}

/* The next frame for the master. */
static uint16_t take(struct fixture *f)
{
    uint16_t message = 0;
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    for (;;) {
        mutex_lock(&f->lock);
        uint64_t wakes = f->wakes;
        mutex_unlock(&f->lock);
        if (store_disk_take_frame(f->disk, &message, &f->body))
            return message;
        mutex_lock(&f->lock);
        while (f->wakes == wakes)
            if (!condition_wait_until(&f->woken, &f->lock, deadline_ns))
                fail_msg("nothing came for the master");
        mutex_unlock(&f->lock);
    }
}

static void add(struct fixture *f, uint8_t kind, uint64_t id, uint64_t offset, uint64_t size,
                uint64_t disk_offset, uint32_t checksum)
{
    struct wire_task task = {kind, id, offset, size, disk_offset, checksum};
    assert_int_equal(wire_task_append(&f->recs, &task), YOLK_OK);
}

/* Pushes what was added; the key of task i is "k" and first_key + i. */
static void push(struct fixture *f, uint32_t first_key)
{
    struct wire_view views[64];
    char text[64][16];
    uint32_t count = wire_task_count(wire_view_buf(&f->recs));
    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(text[i], sizeof(text[i]), "k%u", first_key + i);
        views[i] = wire_view_text(text[i]);
    }
    base_buf_clear(&f->keys);
    base_buf_clear(&f->body);
    assert_int_equal(wire_keys_build(&f->keys, views, count), YOLK_OK);
    struct wire_tasks tasks = {10, 20, f->floor, wire_view_buf(&f->recs), wire_view_buf(&f->keys)};
    assert_int_equal(wire_encode(WIRE_TASKS, &tasks, &f->body), YOLK_OK);
    store_disk_input(f->disk, WIRE_TASKS, f->body.data, f->body.size);
    base_buf_clear(&f->recs);
}

/* Answers of `count` tasks from id `first` on, by id. */
static void take_done(struct fixture *f, uint64_t first, uint32_t count,
                      struct wire_task_done *answers)
{
    for (uint32_t got = 0; got < count;) {
        struct wire_tasks_done done;
        assert_int_equal(take(f), WIRE_TASKS_DONE);
        assert_int_equal(wire_decode(WIRE_TASKS_DONE, f->body.data, f->body.size, &done), 0);
        for (uint32_t i = 0; i < wire_task_done_count(done.recs); i++, got++) {
            struct wire_task_done rec = wire_task_done_at(done.recs, i);
            assert_in_range(rec.id, first, first + count - 1);
            answers[rec.id - first] = rec;
        }
    }
}

static enum yolk_status read_value(struct fixture *f, void *to, uint64_t size, uint64_t offset,
                                   const char *key)
{
    uint64_t batch;
    uint32_t first;
    enum yolk_status verdict;
    struct yolk_task_status task;
    struct yolk_request request = {
        .opcode = YOLK_READ,
        .local = to,
        .segment = f->handle,
        .offset = offset,
        .size = size,
        .deadline_ns = clock_real_now_ns() + 20 * NS_PER_S,
        .ticket = {.offset = offset, .size = size, .op = base_hash64(key, strlen(key))},
    };
    assert_int_equal(yolk_engine_register(f->engine, to, size), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(f->engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(f->engine, batch, &request, 1, &verdict, &first),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(f->engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(f->engine, batch, 0, &task), YOLK_OK);
    assert_int_equal(yolk_engine_batch_free(f->engine, batch), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(f->engine, to, size), YOLK_OK);
    return task.status;
}

static void values_go_to_the_disk_and_back(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_task_done done[64];
    static uint8_t value[100000];
    begin(&f);
    /* Of many sizes and alignments, at once. */
    for (uint32_t i = 0; i < 60; i++)
        add(&f, WIRE_TASK_OFFLOAD, 1 + i, i * 65536 + i * 64, 1 + i * 1000 + i, 0, 0);
    push(&f, 0);
    take_done(&f, 1, 60, done);
    for (uint32_t i = 0; i < 60; i++) {
        const uint8_t *from = f.memory + i * 65536 + i * 64;
        uint64_t size = 1 + i * 1000 + i;
        char key[16];
        snprintf(key, sizeof(key), "k%u", i);
        assert_int_equal(done[i].status, YOLK_OK);
        assert_int_equal(done[i].checksum, base_crc32c(0, from, size));
        assert_int_equal(read_value(&f, value, size, done[i].disk_offset, key), YOLK_OK);
        assert_memory_equal(value, from, size);
    }
    /* Not under another key, nor with another size. */
    assert_int_equal(read_value(&f, value, 1 + 9 * 1001, done[9].disk_offset, "k8"),
                     YOLK_ERR_STALE);
    assert_int_equal(read_value(&f, value, 2 + 9 * 1001, done[9].disk_offset, "k9"),
                     YOLK_ERR_STALE);

    memset(f.memory + (1 << 20), 0, 60000);
    add(&f, WIRE_TASK_PROMOTE, 61, 1 << 20, 1 + 50 * 1001, done[50].disk_offset, done[50].checksum);
    push(&f, 50);
    struct wire_task_done promoted;
    take_done(&f, 61, 1, &promoted);
    assert_int_equal(promoted.status, YOLK_OK);
    assert_memory_equal(f.memory + (1 << 20), f.memory + 50 * 65536 + 50 * 64, 1 + 50 * 1001);

    struct wire_fact fact = {.kind = WIRE_FACT_FREED, .offset = done[3].disk_offset, .size = 4096};
    struct wire_view none = {NULL, 0};
    base_buf_clear(&f.keys);
    base_buf_clear(&f.body);
    assert_int_equal(wire_fact_append(&f.recs, &fact), YOLK_OK);
    assert_int_equal(wire_keys_build(&f.keys, &none, 1), YOLK_OK);
    struct wire_facts facts = {20, 1, wire_view_buf(&f.recs), wire_view_buf(&f.keys)};
    assert_int_equal(wire_encode(WIRE_FACTS, &facts, &f.body), YOLK_OK);
    store_disk_input(f.disk, WIRE_FACTS, f.body.data, f.body.size);
    base_buf_clear(&f.recs);
    struct wire_facts_ack ack;
    assert_int_equal(take(&f), WIRE_FACTS_ACK);
    assert_int_equal(wire_decode(WIRE_FACTS_ACK, f.body.data, f.body.size, &ack), YOLK_OK);
    assert_int_equal(ack.seq, 1);
    assert_int_equal(read_value(&f, value, 1 + 3 * 1001, done[3].disk_offset, "k3"),
                     YOLK_ERR_STALE);
    finish(&f);
}

static void values_outlive_the_process(void **state)
{
    (void)state;
    struct fixture f;
    struct wire_task_done done[4];
    uint8_t id[16];
    static uint8_t value[4096];
    begin(&f);
    for (uint32_t i = 0; i < 4; i++)
        add(&f, WIRE_TASK_OFFLOAD, 1 + i, i * 4096, 4000 + i, 0, 0);
    push(&f, 0);
    take_done(&f, 1, 4, done);
    memcpy(id, store_disk_mount(f.disk)->storage_id, 16);
    close_disk(&f);
    open_disk(&f);
    const struct store_disk_mount *mount = store_disk_mount(f.disk);
    assert_memory_equal(mount->storage_id, id, 16);
    assert_int_equal(mount->count(mount->self), 4);
    uint64_t cursor = 0;
    static struct store_disk_offer offer;
    uint32_t seen = 0;
    while (mount->next(mount->self, &cursor, &offer)) {
        uint32_t i = (uint32_t)(offer.key[1] - '0');
        assert_int_equal(offer.key_size, 2);
        assert_in_range(i, 0, 3);
        seen |= 1u << i;
        assert_int_equal(offer.offset, done[i].disk_offset);
        assert_int_equal(offer.size, 4000 + i);
        assert_int_equal(offer.checksum, base_crc32c(0, f.memory + i * 4096, 4000 + i));
    }
    assert_int_equal(seen, 15);
    assert_int_equal(read_value(&f, value, 4002, done[2].disk_offset, "k2"), YOLK_OK);
    assert_memory_equal(value, f.memory + 2 * 4096, 4002);
    mount->reject(mount->self, done[2].disk_offset);
    assert_int_equal(mount->count(mount->self), 3);
    assert_int_equal(read_value(&f, value, 4002, done[2].disk_offset, "k2"), YOLK_ERR_STALE);
    finish(&f);
}

/* What comes while the disk's thread is about to sleep wakes it all the same. The next task comes a
 * little later each time after the answer to the one before. */
static void nothing_that_comes_is_slept_through(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (uint32_t i = 1; i <= 8000; i++) {
        uint16_t message = 0;
        uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
        f.floor = i;
        add(&f, WIRE_TASK_PROMOTE, i, 0, 1000, 1 << 20, 0); /* no value lies there */
        for (uint32_t pause = i % 100; pause > 0; pause--)
            thread_relax();
        push(&f, 0);
        while (!store_disk_take_frame(f.disk, &message, &f.body))
            if (clock_real_now_ns() > deadline_ns)
                fail_msg("task %u was slept through", i);
        assert_int_equal(message, WIRE_TASKS_DONE);
    }
    finish(&f);
}

/* Writes of others are refused, whatever they name. */
static void nobody_else_writes(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t batch;
    uint32_t first;
    enum yolk_status verdict;
    struct yolk_task_status task;
    begin(&f);
    struct yolk_request request = {
        .opcode = YOLK_WRITE,
        .local = f.memory,
        .segment = f.handle,
        .size = 4096,
        .deadline_ns = clock_real_now_ns() + 20 * NS_PER_S,
        .ticket = {.size = 4096},
    };
    assert_int_equal(yolk_engine_batch_create(f.engine, 1, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(f.engine, batch, &request, 1, &verdict, &first),
                     YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(f.engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(f.engine, batch, 0, &task), YOLK_OK);
    assert_int_equal(task.status, YOLK_ERR_ACCESS);
    assert_int_equal(yolk_engine_batch_free(f.engine, batch), YOLK_OK);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_go_to_the_disk_and_back),
        cmocka_unit_test(values_outlive_the_process),
        cmocka_unit_test(nothing_that_comes_is_slept_through),
        cmocka_unit_test(nobody_else_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
