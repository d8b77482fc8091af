/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the file transports: an engine, a real file of known bytes, served. */
#ifndef TRANSPORT_FILE_KIT_H
#define TRANSPORT_FILE_KIT_H

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "platform/file.h"
#include "platform/file_inject.h"
#include "platform/temporary_kit.h"
#include "transport/file/served.h"
#include "transport/posix/posix.h"
#include "transport/uring/uring.h"
#include "yolk/engine.h"

#define MIB UINT64_C(1048576)

enum { KIT_SEGMENT = 0x500000001, KIT_SESSION = 9, KIT_CLIENTS_MAX = 16 };

struct kit {
    /* To be set before kit_open. */
    const struct yolk_transport_ops *ops[2];
    size_t ops_count;
    const char *folder; /* NULL: that of the tests */
    const char *rules;  /* of file_inject; NULL: none */
    uint64_t size;
    int pad_writes;
    uint32_t queue_depth;
    uint32_t attempts_max;
    /* Made by it. */
    char path[256];
    struct file_inject *inject;
    struct file *file;
    struct yolk_engine *engine;
    struct yolk_served *served;
    uint64_t segment;
};

static inline uint8_t kit_byte(uint64_t offset)
{
    uint64_t x = (offset + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint8_t)(x >> 56 ^ x >> 23);
}

static inline void kit_fill(uint8_t *memory, uint64_t size, uint64_t offset)
{
    for (uint64_t i = 0; i < size; i++)
        memory[i] = kit_byte(offset + i);
}

static inline int kit_is_filled(const uint8_t *memory, uint64_t size, uint64_t offset)
{
    for (uint64_t i = 0; i < size; i++)
        if (memory[i] != kit_byte(offset + i))
            return 0;
    return 1;
}

static inline void kit_make_file(struct kit *k)
{
    (void)snprintf(k->path, sizeof(k->path), "%s%syolk-file-XXXXXX",
                   k->folder != NULL ? k->folder : "", k->folder != NULL ? "/" : "");
    if (k->folder == NULL)
        temporary_path(k->path);
    int fd = mkstemp(k->path);
    assert_true(fd >= 0);
    static uint8_t piece[MIB];
    for (uint64_t at = 0; at < k->size; at += sizeof(piece)) {
        size_t size = k->size - at < sizeof(piece) ? (size_t)(k->size - at) : sizeof(piece);
        kit_fill(piece, size, at);
        assert_int_equal(pwrite(fd, piece, size, (off_t)at), size);
    }
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static inline void kit_open(struct kit *k)
{
    struct file_system fs = file_system_real();
    kit_make_file(k);
    if (k->rules != NULL) {
        const struct file_system real = fs;
        assert_int_equal(file_inject_create(&real, k->rules, &k->inject), YOLK_OK);
        fs = file_inject_system(k->inject);
    }
    assert_int_equal(file_open(&fs, k->path, FILE_READ | FILE_WRITE | FILE_DIRECT, &k->file),
                     YOLK_OK);
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = k->ops;
    options.transport_count = k->ops_count;
    options.transport.queue_depth = k->queue_depth;
    options.attempts_max = k->attempts_max;
    assert_int_equal(yolk_engine_create(&options, &k->engine), YOLK_OK);
    const struct yolk_serve_file_options serve = {.struct_size = sizeof(serve),
                                                  .internal = k->file,
                                                  .writable = 1,
                                                  .pad_writes = k->pad_writes,
                                                  .segment = KIT_SEGMENT};
    assert_int_equal(yolk_engine_serve_file(k->engine, &serve, &k->served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {
        .id = KIT_SEGMENT, .size = k->size, .endpoints = yolk_served_endpoints(k->served)};
    assert_int_equal(yolk_engine_segment_open(k->engine, &descriptor, KIT_SESSION, &k->segment),
                     YOLK_OK);
}

static inline void kit_close(struct kit *k)
{
    assert_int_equal(yolk_engine_segment_close(k->engine, k->segment), YOLK_OK);
    yolk_engine_unserve(k->engine, k->served);
    assert_int_equal(yolk_engine_destroy(k->engine), YOLK_OK);
    file_close(k->file);
    file_inject_destroy(k->inject);
    assert_int_equal(unlink(k->path), 0);
}

/* All of them in one batch; results[i] is the status of requests[i]. Asserts nothing, so that any
 * thread may call it. */
static inline void kit_run(struct kit *k, struct yolk_request *requests, uint32_t count,
                           enum yolk_status *results)
{
    uint64_t batch;
    for (uint32_t i = 0; i < count; i++) {
        requests[i].segment = k->segment;
        results[i] = YOLK_ERR_SYSTEM;
    }
    if (yolk_engine_batch_create(k->engine, count, &batch) != YOLK_OK)
        return;
    (void)!yolk_engine_batch_submit(k->engine, batch, requests, count, results, NULL);
    if (yolk_engine_batch_wait(k->engine, batch,
                               yolk_engine_now_ns(k->engine) + UINT64_C(60000000000)) != YOLK_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct yolk_task_status status;
        if (yolk_engine_batch_poll(k->engine, batch, i, &status) == YOLK_OK) {
            results[i] = status.status;
            if (status.status == YOLK_OK && status.transferred != requests[i].size)
                results[i] = YOLK_ERR_EOF;
        }
    }
    (void)!yolk_engine_batch_free(k->engine, batch);
}

static inline enum yolk_status kit_one(struct kit *k, enum yolk_opcode opcode, void *local,
                                       uint64_t offset, uint64_t size)
{
    enum yolk_status result;
    struct yolk_request request = {
        .opcode = opcode, .local = local, .offset = offset, .size = size};
    kit_run(k, &request, 1, &result);
    return result;
}

static inline uint8_t *kit_map(uint64_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* Writes and reads with memory at any address, of a file of 4 MiB that may be padded. */
static inline void kit_address_matrix(struct kit *k)
{
    static const uint64_t addresses[] = {0, 64, 512, 2048, 1};
    static const uint64_t sizes[] = {1, 511, 4096, 5000, 65536, 200000, MIB, MIB + 4096};
    uint8_t *memory = kit_map(4 * MIB);
    struct file_alignment alignment;
    assert_int_equal(file_alignment(k->file, &alignment), YOLK_OK);
    assert_int_equal(yolk_engine_register(k->engine, memory, 4 * MIB), YOLK_OK);
    for (size_t a = 0; a < sizeof(addresses) / sizeof(addresses[0]); a++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            struct file_transport_stats before, after;
            uint8_t *local = memory + 4096 + addresses[a];
            uint64_t offset = 8192, size = sizes[s];
            file_transport_stats(&before);
            kit_fill(local, size, a * 1000 + s);
            assert_int_equal(kit_one(k, YOLK_WRITE, local, offset, size), YOLK_OK);
            memset(local, 0, size);
            assert_int_equal(kit_one(k, YOLK_READ, local, offset, size), YOLK_OK);
            assert_true(kit_is_filled(local, size, a * 1000 + s));
            file_transport_stats(&after);
            uint64_t moved = after.bytes_bounced - before.bytes_bounced;
            bool fits = addresses[a] % alignment.memory == 0;
            if (!file_direct(k->file))
                assert_int_equal(after.bytes_cached - before.bytes_cached, 2 * size);
            else if (!fits)
                assert_int_equal(moved, 2 * size);
            else /* only what the last block is cut by */
                assert_int_equal(moved, 2 * (size % alignment.offset));
        }
    }
    /* What lies before and well behind is as it was. */
    assert_int_equal(kit_one(k, YOLK_READ, memory, 0, 8192), YOLK_OK);
    assert_true(kit_is_filled(memory, 8192, 0));
    assert_int_equal(kit_one(k, YOLK_READ, memory, 2 * MIB, MIB), YOLK_OK);
    assert_true(kit_is_filled(memory, MIB, 2 * MIB));
    munmap(memory, 4 * MIB);
}

/* k is not open yet: one refusal is counted, and every byte is right before and after it. */
static inline void kit_direct_is_refused_once(struct kit *k)
{
    uint64_t before = file_direct_refusals();
    kit_open(k);
    uint8_t *memory = kit_map(4 * MIB);
    assert_int_equal(yolk_engine_register(k->engine, memory, 4 * MIB), YOLK_OK);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(kit_one(k, YOLK_READ, memory + i, i * 999, MIB + i), YOLK_OK);
        assert_true(kit_is_filled(memory + i, MIB + i, i * 999));
    }
    assert_false(file_direct(k->file));
    assert_int_equal(file_direct_refusals(), before + 1);
    kit_fill(memory, MIB, 3);
    assert_int_equal(kit_one(k, YOLK_WRITE, memory + 1, 4097, 100000), YOLK_OK);
    memset(memory, 0, MIB);
    assert_int_equal(kit_one(k, YOLK_READ, memory + 5, 4097, 100000), YOLK_OK);
    assert_true(kit_is_filled(memory + 5, 100000, 4));
    assert_int_equal(file_direct_refusals(), before + 1);
    kit_close(k);
    munmap(memory, 4 * MIB);
}

#endif
