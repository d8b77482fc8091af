/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's C interface, between two engines of one process: each call, what it refuses, and that its
 * structures are upstream's to the byte. Its configuration stands in tent_config_test.c. */
#include "platform/temporary_kit.h"
#include "tent/transfer_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "platform/clock.h"

enum { SIZE = 1 << 20, MANY = 256, PIECE = SIZE / 64 };

#define PLACE(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), "")
#define BYTES(type, size)           _Static_assert(sizeof(struct type) == (size), "")
BYTES(tent_request, 48);
PLACE(tent_request, opcode, 0);
PLACE(tent_request, source, 8);
PLACE(tent_request, target_id, 16);
PLACE(tent_request, target_offset, 24);
PLACE(tent_request, length, 32);
PLACE(tent_request, priority, 40);
PLACE(tent_request, transport_hint, 44);
BYTES(tent_status, 16);
PLACE(tent_status, status, 0);
PLACE(tent_status, transferred_bytes, 8);
BYTES(tent_buffer_info, 80);
PLACE(tent_buffer_info, base, 0);
PLACE(tent_buffer_info, length, 8);
PLACE(tent_buffer_info, location, 16);
BYTES(tent_segment_info, 16);
PLACE(tent_segment_info, type, 0);
PLACE(tent_segment_info, num_buffers, 4);
PLACE(tent_segment_info, buffers, 8);
BYTES(tent_notifi_record, 4360);
PLACE(tent_notifi_record, handle, 0);
PLACE(tent_notifi_record, name, 8);
PLACE(tent_notifi_record, msg, 264);
BYTES(tent_notifi_info, 16);
PLACE(tent_notifi_info, num_records, 0);
PLACE(tent_notifi_info, records, 8);
BYTES(tent_memory_options, 344);
PLACE(tent_memory_options, location, 0);
PLACE(tent_memory_options, permission, 64);
PLACE(tent_memory_options, transport_type, 68);
PLACE(tent_memory_options, shm_path, 72);
PLACE(tent_memory_options, shm_offset, 328);
PLACE(tent_memory_options, internal, 336);
BYTES(tent_nic_load_stat, 80);
PLACE(tent_nic_load_stat, device_name, 0);
PLACE(tent_nic_load_stat, inflight_bytes, 64);
PLACE(tent_nic_load_stat, ewma_bandwidth_bps, 72);
_Static_assert(sizeof(tent_segment_id_t) == 8 && sizeof(tent_batch_id_t) == 8, "");
_Static_assert(STATUS_WAITING == 0 && STATUS_PENDING == 1 && STATUS_INVALID == 2, "");
_Static_assert(STATUS_CANCELED == 3 && STATUS_COMPLETED == 4 && STATUS_TIMEOUT == 5, "");
_Static_assert(STATUS_FAILED == 6 && OPCODE_READ == 0 && OPCODE_WRITE == 1, "");
_Static_assert(TRANSPORT_UNSPEC == 0 && TRANSPORT_RDMA == 1 && TRANSPORT_MNNVL == 2, "");
_Static_assert(TRANSPORT_SHM == 3 && TRANSPORT_NVLINK == 4 && TRANSPORT_GDS == 5, "");
_Static_assert(TRANSPORT_IOURING == 6 && TRANSPORT_TCP == 7 && TRANSPORT_ASCEND_DIRECT == 8, "");
_Static_assert(TRANSPORT_SUNRISE_LINK == 9 && TYPE_MEMORY == 0 && TYPE_FILE == 1, "");
_Static_assert(PERM_LOCAL_READ_WRITE == 0 && PERM_GLOBAL_READ_ONLY == 1, "");
_Static_assert(PERM_GLOBAL_READ_WRITE == 2 && TENT_LOCAL_SEGMENT_ID == 0, "");

struct pair {
    tent_engine_t a, b;
    tent_segment_id_t target; /* b, as a sees it */
    uint8_t *local, *remote;
};

static void fill(uint8_t *memory, uint8_t seed)
{
    for (size_t i = 0; i < SIZE; i++)
        memory[i] = (uint8_t)(i * 13 + (i >> 10) + seed);
}

static struct pair pair_open(void)
{
    struct pair p = {.local = malloc(SIZE), .remote = malloc(SIZE)};
    char name[64];
    p.a = tent_create_engine();
    p.b = tent_create_engine();
    assert_non_null(p.a);
    assert_non_null(p.b);
    assert_int_equal(tent_available(p.a), 1);
    fill(p.local, 1);
    fill(p.remote, 2);
    assert_int_equal(tent_register_memory(p.a, p.local, SIZE), 0);
    assert_int_equal(tent_register_memory(p.b, p.remote, SIZE), 0);
    assert_int_equal(tent_segment_name(p.b, name, sizeof(name)), 0);
    assert_int_equal(tent_open_segment(p.a, &p.target, name), 0);
    assert_true(p.target != TENT_LOCAL_SEGMENT_ID);
    return p;
}

static void pair_close(struct pair *p)
{
    tent_destroy_engine(p->a);
    tent_destroy_engine(p->b);
    free(p->local);
    free(p->remote);
}

static tent_request_t request_of(const struct pair *p, int opcode, size_t at, size_t length)
{
    return (tent_request_t){.opcode = opcode,
                            .source = p->local + at,
                            .target_id = p->target,
                            .target_offset = (uint64_t)(uintptr_t)(p->remote + at),
                            .length = length};
}

/* Until it is over; asks in the way that `list` says. */
static tent_status_t finish(tent_engine_t engine, tent_batch_id_t batch, size_t task)
{
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    tent_status_t status = {STATUS_PENDING, 0};
    uint64_t before = 0;
    while (status.status == STATUS_PENDING) {
        assert_int_equal(tent_task_status(engine, batch, task, &status), 0);
        assert_true(status.transferred_bytes >= before);
        before = status.transferred_bytes;
        assert_true(clock_real_now_ns() < deadline_ns);
    }
    return status;
}

static tent_status_t finish_all(tent_engine_t engine, tent_batch_id_t batch)
{
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    tent_status_t status = {STATUS_PENDING, 0};
    while (status.status == STATUS_PENDING) {
        assert_int_equal(tent_overall_status(engine, batch, &status), 0);
        assert_true(clock_real_now_ns() < deadline_ns);
    }
    return status;
}

static void transfers(void **state)
{
    (void)state;
    struct pair p = pair_open();
    tent_request_t *requests = calloc(MANY, sizeof(*requests));
    tent_status_t list[MANY + 8], all;
    tent_batch_id_t batch = tent_allocate_batch(p.a, MANY + 1);
    assert_true(batch != 0);
    for (size_t i = 0; i < MANY; i++)
        requests[i] = request_of(&p, OPCODE_READ, i * 1024, 1024);
    assert_int_equal(tent_submit(p.a, batch, requests, MANY), 0);
    all = finish_all(p.a, batch);
    assert_int_equal(all.status, STATUS_COMPLETED);
    assert_int_equal(all.transferred_bytes, MANY * 1024);
    assert_memory_equal(p.local, p.remote, MANY * 1024);
    size_t count = 3;
    memset(list, 0xee, sizeof(list));
    assert_int_equal(tent_task_status_list(p.a, batch, list, &count), 0);
    assert_int_equal(count, MANY);
    assert_int_equal(list[2].status, STATUS_COMPLETED);
    assert_int_equal(list[2].transferred_bytes, 1024);
    assert_int_equal(list[3].status, (int)0xeeeeeeee); /* no more than there was room */
    count = MANY + 8;
    assert_int_equal(tent_task_status_list(p.a, batch, list, &count), 0);
    assert_int_equal(count, MANY);
    assert_int_equal(list[MANY - 1].status, STATUS_COMPLETED);
    assert_int_equal(list[MANY].status, (int)0xeeeeeeee);
    /* The room is for the batch's life, and a submit is taken whole or not at all. */
    assert_int_equal(tent_submit(p.a, batch, requests, 2), -1);
    assert_true(tent_last_error()[0] != '\0');
    assert_int_equal(tent_task_status(p.a, batch, MANY, &all), -1);
    fill(p.local, 77);
    requests[0] = request_of(&p, OPCODE_WRITE, 0, SIZE);
    assert_int_equal(tent_submit(p.a, batch, requests, 1), 0);
    assert_int_equal(finish(p.a, batch, MANY).status, STATUS_COMPLETED);
    assert_memory_equal(p.local, p.remote, SIZE);
    assert_int_equal(tent_progress_batch(p.a, batch, &all), 0);
    assert_int_equal(all.status, STATUS_COMPLETED);
    assert_int_equal(all.transferred_bytes, MANY * 1024 + SIZE);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    assert_int_equal(tent_overall_status(p.a, batch, &all), -1);
    assert_int_equal(tent_submit(p.a, batch, requests, 1), -1);
    free(requests);
    pair_close(&p);
}

static void failed_because(const struct pair *p, tent_batch_id_t batch, size_t task,
                           const char *part)
{
    tent_status_t status;
    (void)tent_has_transport(p->a, "none such"); /* another sentence in between */
    assert_int_equal(tent_task_status(p->a, batch, task, &status), 0);
    assert_int_equal(status.status, STATUS_FAILED);
    if (strstr(tent_last_error(), part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", tent_last_error(), part);
}

static void what_cannot_be_done(void **state)
{
    (void)state;
    struct pair p = pair_open();
    uint8_t *stranger = calloc(1, 64);
    tent_status_t status;
    char wanted[128];
    tent_request_t one = request_of(&p, OPCODE_READ, 0, 64), bad[4] = {one, one, one, one};
    tent_batch_id_t batch = tent_allocate_batch(p.a, 16);
    bad[0].source = stranger;
    bad[1].target_offset = (uint64_t)(uintptr_t)stranger;
    bad[2].target_id = 4711;
    assert_int_equal(tent_submit(p.a, batch, bad, 4), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(finish(p.a, batch, i).status, STATUS_FAILED);
    failed_because(&p, batch, 0, "is not inside a registered range");
    failed_because(&p, batch, 1, ": the remote side refused: the memory is not registered");
    snprintf(wanted, sizeof(wanted), "a read of 64 bytes, local %p, remote %p: ", bad[1].source,
             (void *)stranger);
    failed_because(&p, batch, 1, wanted);
    assert_int_equal(finish(p.a, batch, 3).status, STATUS_COMPLETED); /* harms no other */
    assert_int_equal(finish_all(p.a, batch).status, STATUS_FAILED);
    bad[3].opcode = 9;
    assert_int_equal(tent_submit(p.a, batch, &bad[3], 1), 0);
    assert_string_equal(tent_last_error(), "opcode 9: must be 0 (read) or 1 (write)");
    assert_null(tent_describe_route(p.a, &bad[3]));
    assert_string_equal(tent_last_error(), "opcode 9: must be 0 (read) or 1 (write)");
    assert_int_equal(finish(p.a, batch, 4).status, STATUS_INVALID);
    /* None is taken of a submit with a hint or priority that is none. */
    size_t count = 0;
    const int hints[] = {-1, 99, TRANSPORT_RDMA, TRANSPORT_GDS, TRANSPORT_TPU};
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        tent_request_t mixed[2] = {one, one};
        mixed[1].transport_hint = hints[i];
        assert_int_equal(tent_submit(p.a, batch, mixed, 2), -1);
        assert_non_null(strstr(tent_last_error(), "transport "));
    }
    one.priority = 3;
    assert_int_equal(tent_submit(p.a, batch, &one, 1), -1);
    assert_non_null(strstr(tent_last_error(), "priority 3"));
    assert_int_equal(tent_task_status_list(p.a, batch, &status, &count), 0);
    assert_int_equal(count, 5);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    assert_int_equal(tent_free_batch(p.a, batch), -1);
    const size_t sizes[] = {0, (1 << 20) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_true(tent_allocate_batch(p.a, sizes[i]) == 0);
        assert_non_null(strstr(tent_last_error(), "takes 1 to 1048576 tasks"));
    }
    tent_segment_id_t segment;
    assert_int_equal(tent_open_segment(p.a, &segment, "127.0.0.1:1"), -1);
    assert_int_equal(tent_open_segment(p.a, &segment, "file:///no/such/file"), -1);
    assert_non_null(strstr(tent_last_error(), "/no/such/file"));
    assert_int_equal(tent_close_segment(p.a, 4711), -1);
    assert_int_equal(tent_close_segment(p.a, p.target), 0);
    assert_int_equal(tent_submit(NULL, 0, NULL, 0), -1);
    assert_int_equal(tent_available(NULL), 0);
    assert_int_equal(tent_task_status(p.a, 0, 0, &status), -1);
    tent_destroy_engine(NULL);
    tent_free_segment_info(NULL);
    tent_free_notifs(NULL);
    free(stranger);
    pair_close(&p);
}

/* What the queue has no room for makes no task; what a policy excludes is not used. */
static void queues_and_policies(void **state)
{
    (void)state;
    tent_set_config("enable_runtime_queue", "true");
    tent_set_config("runtime_queue/max_outstanding_owners", "2");
    tent_set_config("merge_requests", "false");
    tent_set_config("policy", "[{\"name\": \"all\", \"segment_type\": \"memory\", "
                              "\"transports\": [\"tcp\"]}]");
    struct pair p = pair_open();
    tent_request_t requests[3];
    for (size_t i = 0; i < 3; i++)
        requests[i] = request_of(&p, OPCODE_READ, i * 8192, 4096);
    tent_batch_id_t batch = tent_allocate_batch(p.a, 8);
    size_t count = 0;
    tent_status_t none;
    assert_int_equal(tent_submit(p.a, batch, requests, 3), -1);
    assert_int_equal(tent_task_status_list(p.a, batch, &none, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(tent_submit(p.a, batch, requests, 2), 0);
    assert_int_equal(finish_all(p.a, batch).status, STATUS_COMPLETED);
    char *text = tent_describe_route(p.a, &requests[0]);
    assert_non_null(text);
    assert_non_null(strstr(text, "policy: all\ntcp: runs it"));
    free(text);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    pair_close(&p);
    tent_set_config("policy", "[{\"transports\": 7}]");
    assert_null(tent_create_engine());
    assert_non_null(strstr(tent_last_error(), "policy[0] has no segment_type"));
}

static void names_end_or_are_refused(void **state)
{
    (void)state;
    struct pair p = pair_open();
    char name[64], address[64], small[16];
    uint16_t port = 0;
    assert_int_equal(tent_segment_name(p.a, name, sizeof(name)), 0);
    assert_int_equal(tent_rpc_server_addr_port(p.a, address, sizeof(address), &port), 0);
    assert_string_equal(address, "127.0.0.1");
    char both[80];
    snprintf(both, sizeof(both), "%s:%u", address, port);
    assert_string_equal(both, name); /* p2p: the name is the address */
    size_t exact = strlen(name) + 1;
    memset(small, 'x', sizeof(small));
    assert_true(exact <= sizeof(small));
    assert_int_equal(tent_segment_name(p.a, small, exact - 1), -1);
    assert_int_equal(small[0], '\0');
    assert_int_equal(small[exact - 1], 'x');
    assert_int_equal(tent_segment_name(p.a, small, exact), 0);
    assert_string_equal(small, name);
    assert_int_equal(tent_segment_name(p.a, small, 0), -1);
    assert_int_equal(tent_rpc_server_addr_port(p.a, small, 9, &port), -1);
    assert_int_equal(tent_rpc_server_addr_port(p.a, small, 10, &port), 0);
    /* The same name is the same handle, and the own name is this process. */
    tent_segment_id_t again, own = 5;
    assert_int_equal(tent_segment_name(p.b, name, sizeof(name)), 0);
    assert_int_equal(tent_open_segment(p.a, &again, name), 0);
    assert_true(again == p.target);
    assert_int_equal(tent_open_segment(p.b, &own, name), 0);
    assert_true(own == TENT_LOCAL_SEGMENT_ID);
    assert_int_equal(tent_open_segment(p.b, &own, ""), 0);
    assert_true(own == TENT_LOCAL_SEGMENT_ID);
    assert_int_equal(tent_close_segment(p.b, own), 0);
    pair_close(&p);
}

static void memory(void **state)
{
    (void)state;
    struct pair p = pair_open();
    tent_segment_info_t info;
    void *got = NULL;
    assert_int_equal(tent_allocate_memory(p.b, &got, 100000, "*"), 0);
    assert_int_equal(((uint8_t *)got)[99999], 0);
    tent_memory_options_t options = {.permission = PERM_GLOBAL_READ_ONLY, .location = "cpu:0"};
    assert_int_equal(tent_register_memory_ex(p.b, got, 100000, &options), 0);
    assert_int_equal(tent_free_memory(p.b, got), -1); /* still registered */
    assert_int_equal(tent_get_segment_info(p.a, p.target, &info), 0);
    assert_int_equal(info.type, TYPE_MEMORY);
    assert_int_equal(info.num_buffers, 2);
    int at = info.buffers[0].base == (uint64_t)(uintptr_t)got ? 0 : 1;
    assert_true(info.buffers[at].base == (uint64_t)(uintptr_t)got);
    assert_int_equal(info.buffers[at].length, 100000);
    assert_string_equal(info.buffers[at].location, "cpu:0");
    const char *found = info.buffers[1 - at].location; /* "*" was asked for */
    assert_true(strcmp(found, "*") == 0 || strncmp(found, "cpu:", 4) == 0);
    tent_free_segment_info(&info);
    assert_null(info.buffers);
    /* Others may read it, and no more. */
    tent_batch_id_t batch = tent_allocate_batch(p.a, 2);
    tent_request_t both[2] = {request_of(&p, OPCODE_READ, 0, 4096),
                              request_of(&p, OPCODE_WRITE, 0, 4096)};
    both[0].target_offset = both[1].target_offset = (uint64_t)(uintptr_t)got;
    assert_int_equal(tent_submit(p.a, batch, both, 2), 0);
    assert_int_equal(finish(p.a, batch, 0).status, STATUS_COMPLETED);
    assert_int_equal(finish(p.a, batch, 1).status, STATUS_FAILED);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    assert_int_equal(tent_unregister_memory(p.b, got, 0), 0);
    /* Internal memory is neither seen nor reached. */
    options = (tent_memory_options_t){.permission = PERM_GLOBAL_READ_WRITE, .internal = 1};
    assert_int_equal(tent_register_memory_ex(p.b, got, 100000, &options), 0);
    assert_int_equal(tent_get_segment_info(p.a, p.target, &info), 0);
    assert_int_equal(info.num_buffers, 1);
    tent_free_segment_info(&info);
    assert_int_equal(tent_unregister_memory(p.b, got, 100000), 0);
    assert_int_equal(tent_free_memory(p.b, got), 0);
    assert_int_equal(tent_free_memory(p.b, got), -1);
    assert_int_equal(tent_free_memory(p.b, p.remote), -1);
    pair_close(&p);
}

static void memory_of_many(void **state)
{
    (void)state;
    struct pair p = pair_open();
    uint8_t *more = calloc(4, 4096);
    void *addrs[4];
    size_t sizes[4];
    for (size_t i = 0; i < 4; i++) {
        addrs[i] = more + i * 4096;
        sizes[i] = 4096;
    }
    assert_int_equal(tent_register_memory_batch(p.a, addrs, sizes, 4, PERM_GLOBAL_READ_WRITE), 0);
    assert_int_equal(tent_unregister_memory_batch(p.a, addrs, NULL, 4), 0);
    assert_int_equal(tent_unregister_memory_batch(p.a, addrs, sizes, 4), -1);
    /* All or none: the last one cuts a range that is registered. */
    addrs[3] = p.local + SIZE - 64;
    assert_int_equal(tent_register_memory_batch(p.a, addrs, sizes, 4, PERM_GLOBAL_READ_WRITE), -1);
    assert_int_equal(tent_unregister_memory(p.a, addrs[0], sizes[0]), -1);
    tent_memory_options_t options = {.permission = PERM_LOCAL_READ_WRITE};
    assert_int_equal(tent_register_memory_batch_ex(p.a, addrs, sizes, 3, &options), 0);
    assert_int_equal(tent_unregister_memory_batch(p.a, addrs, sizes, 3), 0);
    assert_int_equal(tent_register_memory_with_perm(p.a, more, 4096, 3), -1);
    assert_non_null(strstr(tent_last_error(), "permission 3"));
    /* What is not there is said. */
    void *got;
    options = (tent_memory_options_t){.transport_type = TRANSPORT_RDMA};
    assert_int_equal(tent_allocate_memory_ex(p.a, &got, 4096, &options), -1);
    assert_non_null(strstr(tent_last_error(), "rdma"));
    options = (tent_memory_options_t){.permission = 3};
    assert_int_equal(tent_allocate_memory_ex(p.a, &got, 4096, &options), -1);
    assert_non_null(strstr(tent_last_error(), "permission 3"));
    options = (tent_memory_options_t){.shm_path = "name"};
    assert_int_equal(tent_allocate_memory_ex(p.a, &got, 4096, &options), -1);
    assert_non_null(strstr(tent_last_error(), "shm_path"));
    memset(options.location, 'x', sizeof(options.location)); /* has no end */
    assert_int_equal(tent_register_memory_ex(p.a, more, 4096, &options), -1);
    assert_int_equal(tent_allocate_memory(p.a, &got, 4096, "cuda:0"), -1);
    assert_non_null(strstr(tent_last_error(), "cuda:0"));
    assert_int_equal(tent_allocate_memory(p.a, &got, 4096, "cpu:1023"), -1);
    assert_int_equal(tent_allocate_memory(p.a, &got, 4096, "cpu:x"), -1);
    assert_int_equal(tent_allocate_memory(p.a, &got, 0, "*"), -1);
    options = (tent_memory_options_t){.transport_type = TRANSPORT_TCP, .location = "cpu:0"};
    assert_int_equal(tent_allocate_memory_ex(p.a, &got, 4096, &options), 0);
    assert_int_equal(tent_free_memory(p.a, got), 0);
    assert_int_equal(tent_allocate_memory(p.a, &got, 4096, "*"), 0); /* goes with the engine */
    free(more);
    pair_close(&p);
}

static void cancel(void **state)
{
    (void)state;
    struct pair p = pair_open();
    tent_request_t requests[64];
    tent_batch_id_t batch = tent_allocate_batch(p.a, 64);
    for (size_t i = 0; i < 64; i++)
        requests[i] = request_of(&p, i % 2 == 0 ? OPCODE_READ : OPCODE_WRITE, i * PIECE, PIECE);
    assert_int_equal(tent_submit(p.a, batch, requests, 64), 0);
    for (size_t i = 0; i < 64; i += 3)
        assert_int_equal(tent_cancel_task(p.a, batch, i), 0);
    assert_int_equal(tent_cancel_task(p.a, batch, 0), 0); /* again */
    for (size_t i = 0; i < 64; i++) {
        int status = finish(p.a, batch, i).status;
        assert_true(status == STATUS_COMPLETED || (status == STATUS_CANCELED && i % 3 == 0));
    }
    assert_int_equal(tent_cancel_task(p.a, batch, 1), 0); /* it is over */
    assert_int_equal(finish(p.a, batch, 1).status, STATUS_COMPLETED);
    assert_int_equal(tent_cancel_task(p.a, batch, 64), -1);
    /* Freed while in flight. */
    tent_batch_id_t second = tent_allocate_batch(p.a, 64);
    assert_int_equal(tent_submit(p.a, second, requests, 64), 0);
    assert_int_equal(tent_free_batch(p.a, second), 0);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    pair_close(&p);
}

/* The only one that comes. */
static void hear(tent_engine_t engine, const char *name)
{
    tent_notifi_info info;
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    do {
        assert_int_equal(tent_recv_notifs(engine, &info), 0);
        assert_true(clock_real_now_ns() < deadline_ns);
    } while (info.num_records == 0);
    assert_int_equal(info.num_records, 1);
    assert_string_equal(info.records[0].name, name);
    tent_free_notifs(&info);
}

static void notifications(void **state)
{
    (void)state;
    struct pair p = pair_open();
    tent_notifi_info info;
    assert_int_equal(tent_recv_notifs(p.b, &info), 0);
    assert_int_equal(info.num_records, 0);
    assert_null(info.records);
    char long_text[6000], long_name[300];
    memset(long_text, 'm', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    memset(long_name, 'n', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    assert_int_equal(tent_send_notifs(p.a, p.target, "first", "hello"), 0);
    assert_int_equal(tent_send_notifs(p.a, p.target, NULL, long_text), 0);
    assert_int_equal(tent_send_notifs(p.a, p.target, long_name, "x"), -1);
    assert_int_equal(tent_recv_notifs(p.b, &info), 0);
    assert_int_equal(info.num_records, 2);
    assert_string_equal(info.records[0].name, "first");
    assert_string_equal(info.records[0].msg, "hello");
    assert_true(info.records[0].handle == 0);
    assert_int_equal(strlen(info.records[1].msg), 4095); /* cut, with an end */
    tent_free_notifs(&info);
    assert_null(info.records);
    /* Bound to transfers: once, after all of them, and not if one fails. */
    tent_request_t requests[8];
    for (size_t i = 0; i < 8; i++)
        requests[i] = request_of(&p, OPCODE_WRITE, i * 4096, 4096);
    tent_batch_id_t batch = tent_allocate_batch(p.a, 16);
    requests[7].target_offset = 4711;
    assert_int_equal(tent_submit_notif(p.a, batch, requests, 8, "failed", "never"), 0);
    assert_int_equal(finish_all(p.a, batch).status, STATUS_FAILED);
    requests[7] = requests[6];
    assert_int_equal(tent_submit_notif(p.a, batch, requests, 8, "done", "all"), 0);
    for (size_t i = 8; i < 16; i++)
        assert_int_equal(finish(p.a, batch, i).status, STATUS_COMPLETED);
    hear(p.b, "done");
    assert_memory_equal(p.remote, p.local, 7 * 4096);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    /* A close takes nothing back of what was submitted. */
    tent_request_t many[64];
    for (size_t i = 0; i < 64; i++) {
        many[i] = request_of(&p, OPCODE_WRITE, i * PIECE, PIECE);
        many[i].transport_hint = TRANSPORT_TCP; /* takes its time */
    }
    batch = tent_allocate_batch(p.a, 64);
    assert_int_equal(tent_submit_notif(p.a, batch, many, 64, "closed", "all the same"), 0);
    assert_int_equal(tent_close_segment(p.a, p.target), 0);
    assert_int_equal(finish_all(p.a, batch).status, STATUS_COMPLETED);
    hear(p.b, "closed");
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    pair_close(&p);
}

static void files(void **state)
{
    (void)state;
    struct pair p = pair_open();
    char path[TEMPORARY_MAX] = "yolk-tent-XXXXXX", url[2 * TEMPORARY_MAX];
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_int_equal(fwrite(p.remote, 1, 65536, file), 65536);
    assert_int_equal(fclose(file), 0);
    snprintf(url, sizeof(url), "file://%s", path);
    tent_segment_id_t segment;
    tent_segment_info_t info;
    assert_int_equal(tent_open_segment(p.a, &segment, url), 0);
    assert_int_equal(tent_get_segment_info(p.a, segment, &info), 0);
    assert_int_equal(info.type, TYPE_FILE);
    assert_int_equal(info.num_buffers, 1);
    assert_int_equal(info.buffers[0].base, 0);
    assert_int_equal(info.buffers[0].length, 65536);
    tent_free_segment_info(&info);
    tent_request_t requests[3] = {
        {.source = p.local + 1, .target_id = segment, .target_offset = 1000, .length = 5000},
        {.opcode = OPCODE_WRITE,
         .source = p.local + 8192,
         .target_id = segment,
         .target_offset = 16384,
         .length = 4096},
        /* Longer than the file: no bytes are made up. */
        {.source = p.local + 65536, .target_id = segment, .target_offset = 61440, .length = 8192}};
    tent_batch_id_t batch = tent_allocate_batch(p.a, 8);
    assert_int_equal(tent_submit(p.a, batch, requests, 3), 0);
    assert_int_equal(finish(p.a, batch, 0).status, STATUS_COMPLETED);
    assert_memory_equal(p.local + 1, p.remote + 1000, 5000);
    assert_int_equal(finish(p.a, batch, 1).status, STATUS_COMPLETED);
    tent_status_t status = finish(p.a, batch, 2);
    assert_true(status.status == STATUS_INVALID || status.status == STATUS_FAILED);
    assert_true(status.transferred_bytes <= 4096);
    /* By name where the machine has it. */
    tent_request_t hinted = requests[0];
    hinted.transport_hint = TRANSPORT_IOURING;
    assert_int_equal(tent_submit(p.a, batch, &hinted, 1),
                     tent_has_transport(p.a, "io_uring") ? 0 : -1);
    hinted.source = p.local + 16384;
    hinted.target_offset = 16384;
    hinted.length = 4096;
    hinted.transport_hint = TRANSPORT_UNSPEC;
    assert_int_equal(tent_submit(p.a, batch, &hinted, 1), 0);
    size_t count = 8;
    tent_status_t all[8];
    (void)finish_all(p.a, batch);
    assert_int_equal(tent_task_status_list(p.a, batch, all, &count), 0);
    for (size_t i = 3; i < count; i++)
        assert_int_equal(all[i].status, STATUS_COMPLETED);
    assert_memory_equal(p.local + 16384, p.local + 8192, 4096);
    assert_int_equal(tent_send_notifs(p.a, segment, "n", "m"), -1);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    assert_int_equal(tent_close_segment(p.a, segment), 0);
    remove(path);
    pair_close(&p);
}

static void this_process(void **state)
{
    (void)state;
    struct pair p = pair_open();
    tent_request_t request = {.source = p.local,
                              .target_id = TENT_LOCAL_SEGMENT_ID,
                              .target_offset = (uint64_t)(uintptr_t)(p.local + 4096),
                              .length = 4096};
    tent_batch_id_t batch = tent_allocate_batch(p.a, 1);
    assert_int_equal(tent_submit(p.a, batch, &request, 1), 0);
    assert_int_equal(finish(p.a, batch, 0).status, STATUS_COMPLETED);
    assert_memory_equal(p.local, p.local + 4096, 4096);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    pair_close(&p);
}

static void what_is_ours(void **state)
{
    (void)state;
    struct pair p = pair_open();
    assert_int_equal(tent_has_transport(p.a, "tcp"), 1);
    assert_int_equal(tent_has_transport(p.a, "rdma"), 0);
    assert_non_null(strstr(tent_last_error(), "rdma"));
    assert_int_equal(tent_has_transport(NULL, "tcp"), 0);
    assert_int_equal(tent_probe_peer(p.a, p.target, 5000), 0);
    assert_int_equal(tent_probe_peer(p.a, 4711, 5000), -1);
    tent_request_t request = request_of(&p, OPCODE_READ, 0, 4096);
    char *text = tent_describe_route(p.a, &request);
    assert_non_null(text);
    assert_non_null(strstr(text, ": runs it"));
    assert_non_null(strstr(text, "tcp: "));
    free(text);
    request.transport_hint = TRANSPORT_RDMA;
    assert_null(tent_describe_route(p.a, &request));
    request.transport_hint = TRANSPORT_TCP;
    tent_batch_id_t batch = tent_allocate_batch(p.a, 1);
    assert_int_equal(tent_submit(p.a, batch, &request, 1), 0);
    assert_int_equal(finish(p.a, batch, 0).status, STATUS_COMPLETED);
    /* Afterwards the way that it went is seen. */
    tent_nic_load_stat_t stats[4];
    size_t count = 0;
    assert_int_equal(tent_get_nic_load_stats(p.a, stats, &count), 0);
    assert_true(count >= 1 && count <= 4);
    assert_int_equal(tent_get_nic_load_stats(p.a, stats, &count), 0);
    bool seen = false;
    for (size_t i = 0; i < count; i++)
        seen = seen || strncmp(stats[i].device_name, "tcp:", 4) == 0;
    assert_true(seen);
    assert_int_equal(tent_get_nic_load_stats(p.a, NULL, &count), -1);
    text = tent_topology(p.a);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"nics\":["));
    free(text);
    assert_null(tent_topology(NULL));
    text = tent_metrics(p.a);
    assert_non_null(text);
    assert_non_null(strstr(text, "tent_read_bytes_total"));
    free(text);
    assert_int_equal(tent_free_batch(p.a, batch), 0);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers),
        cmocka_unit_test(what_cannot_be_done),
        cmocka_unit_test(memory),
        cmocka_unit_test(names_end_or_are_refused),
        cmocka_unit_test(queues_and_policies),
        cmocka_unit_test(cancel),
        cmocka_unit_test(memory_of_many),
        cmocka_unit_test(notifications),
        cmocka_unit_test(files),
        cmocka_unit_test(this_process),
        cmocka_unit_test(what_is_ours),
    };
    return cmocka_run_group_tests_name("compat.tent", tests, NULL, NULL);
}
