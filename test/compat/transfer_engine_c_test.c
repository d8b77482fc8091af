/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's C interface of the engine, between two engines of one process: the calls of NIXL's
 * plug-in in their order, and what else a caller may do. */
#include "mooncake/transfer_engine_c.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/status.h>

#include "base/json.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/temporary_kit.h"

enum { SIZE = 1 << 20, MANY = 1024 };

_Static_assert(sizeof(struct transfer_request) == 40, "");
_Static_assert(offsetof(struct transfer_request, source) == 8, "");
_Static_assert(offsetof(struct transfer_request, target_id) == 16, "");
_Static_assert(offsetof(struct transfer_request, target_offset) == 24, "");
_Static_assert(offsetof(struct transfer_request, length) == 32, "");
_Static_assert(sizeof(struct transfer_status) == 16, "");
_Static_assert(offsetof(struct transfer_status, transferred_bytes) == 8, "");
_Static_assert(sizeof(struct notify_msg) == 16 && sizeof(struct buffer_entry) == 16, "");
_Static_assert(sizeof(struct nic_load_stat) == 80, "");
_Static_assert(offsetof(struct nic_load_stat, inflight_bytes) == 64, "");
_Static_assert(sizeof(segment_id_t) == 4 && sizeof(batch_id_t) == 8, "");

struct pair {
    transfer_engine_t a, b;
    segment_id_t target; /* b, as a sees it */
    uint8_t *local, *remote;
};

static void fill(uint8_t *memory, uint8_t seed)
{
    for (size_t i = 0; i < SIZE; i++)
        memory[i] = (uint8_t)(i * 11 + (i >> 9) + seed);
}

static struct pair pair_open(void)
{
    struct pair p = {.local = malloc(SIZE), .remote = malloc(SIZE)};
    char name[64];
    p.a = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    p.b = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(p.a);
    assert_non_null(p.b);
    fill(p.local, 1);
    fill(p.remote, 2);
    assert_int_equal(registerLocalMemory(p.a, p.local, SIZE, "*", 1), 0);
    assert_int_equal(registerLocalMemory(p.b, p.remote, SIZE, "*", 1), 0);
    assert_int_equal(getLocalIpAndPort(p.b, name, sizeof(name)), 0);
    assert_memory_equal(name, "127.0.0.1:", 10);
    p.target = openSegment(p.a, name);
    assert_true(p.target > 0);
    return p;
}

static void pair_close(struct pair *p)
{
    assert_int_equal(unregisterLocalMemory(p->a, p->local), 0);
    destroyTransferEngine(p->a);
    destroyTransferEngine(p->b);
    free(p->local);
    free(p->remote);
}

/* Until each of them is over; the first that is not COMPLETED. */
static int finish(struct pair *p, batch_id_t batch, size_t first, size_t count)
{
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    int result = STATUS_COMPLETED;
    for (size_t i = 0; i < count; i++) {
        struct transfer_status status;
        do {
            assert_int_equal(getTransferStatus(p->a, batch, first + i, &status), 0);
            assert_true(clock_real_now_ns() < deadline_ns);
        } while (status.status == STATUS_PENDING || status.status == STATUS_WAITING);
        if (result == STATUS_COMPLETED)
            result = status.status;
    }
    return result;
}

static void the_calls_of_nixl(void **state)
{
    (void)state;
    struct pair p = pair_open();
    struct transfer_request *requests = calloc(MANY, sizeof(*requests));
    for (int round = 0; round < 3; round++) {
        batch_id_t batch = allocateBatchID(p.a, MANY);
        assert_true(batch != INVALID_BATCH);
        for (size_t i = 0; i < MANY; i++)
            requests[i] = (struct transfer_request){
                .opcode = round == 1 ? OPCODE_WRITE : OPCODE_READ,
                .source = p.local + i * 1024,
                .target_id = p.target,
                .target_offset = (uint64_t)(uintptr_t)(p.remote + (MANY - 1 - i) * 1024),
                .length = 1024,
            };
        if (round == 1)
            fill(p.local, 33);
        assert_int_equal(submitTransfer(p.a, batch, requests, MANY), 0);
        /* The batch's room is for its life. */
        assert_int_equal(submitTransfer(p.a, batch, requests, 1), -2);
        assert_int_equal(finish(&p, batch, 0, MANY), STATUS_COMPLETED);
        for (size_t i = 0; i < MANY; i++)
            assert_memory_equal(p.local + i * 1024, p.remote + (MANY - 1 - i) * 1024, 1024);
        struct transfer_status status;
        assert_int_equal(getTransferStatus(p.a, batch, 7, &status), 0);
        assert_int_equal(status.transferred_bytes, 1024);
        assert_int_not_equal(getTransferStatus(p.a, batch, MANY, &status), 0);
        assert_int_equal(freeBatchID(p.a, batch), 0);
        assert_int_not_equal(getTransferStatus(p.a, batch, 0, &status), 0);
    }
    free(requests);
    pair_close(&p);
}

/* As NIXL's plug-in runs where MC_USE_TENT is set: the same calls, and the configuration acts. */
static void the_calls_of_nixl_as_tent(void **state)
{
    static const char conf[] =
        "{\"metadata_type\": \"etcd\", \"rpc_server_hostname\": \"127.0.0.9\","
        " \"transports\": {\"posix\": {\"enable\": false}},"
        " \"merge_requests\": false, \"slice_bytes_max\": 512}";
    assert_int_equal(setenv("MC_TENT_CONF", conf, 1), 0);
    struct pair p = pair_open();
    assert_true(hasTransport(p.a, "posix")); /* nobody asked for it */
    pair_close(&p);
    assert_int_equal(setenv("MC_USE_TENT", "", 1), 0); /* its presence is what counts */
    the_calls_of_nixl(state);
    p = pair_open();
    assert_false(hasTransport(p.a, "posix"));
    assert_non_null(strstr(yolk_last_error(), "turned off"));
    assert_true(hasTransport(p.a, "tcp"));
    assert_false(hasTransport(p.a, "rdma")); /* though installTransport takes tcp for it */
    pair_close(&p);
    assert_int_equal(setenv("MC_TENT_CONF", "{", 1), 0);
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1));
    assert_int_equal(unsetenv("MC_USE_TENT"), 0);
    assert_int_equal(setenv("MC_USE_TEV1", "1", 1), 0);
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1));
    assert_int_equal(unsetenv("MC_USE_TEV1"), 0);
    assert_int_equal(unsetenv("MC_TENT_CONF"), 0);
}

static void loads_and_warm_ups(void **state)
{
    (void)state;
    struct pair p = pair_open();
    nic_load_stat_t loads[8];
    char name[64];
    size_t count = 0;
    assert_int_equal(getLocalIpAndPort(p.b, name, sizeof(name)), 0);
    assert_int_equal(warmupEfaSegment(p.a, name), 0);
    assert_true(warmupEfaSegment(p.a, "127.0.0.1:1") < 0);
    assert_true(warmupEfaSegment(p.a, NULL) < 0);
    struct transfer_request request = {OPCODE_READ, p.local, p.target,
                                       (uint64_t)(uintptr_t)p.remote, 4096};
    batch_id_t batch = allocateBatchID(p.a, 1);
    assert_int_equal(submitTransfer(p.a, batch, &request, 1), 0);
    assert_int_equal(finish(&p, batch, 0, 1), STATUS_COMPLETED);
    assert_int_equal(getNicLoadStats(p.a, loads, &count), 0);
    assert_true(count >= 1 && count <= 8);
    assert_int_equal(getNicLoadStats(p.a, loads, &count), 0);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(strchr(loads[i].device_name, ':'));
        assert_int_equal(loads[i].inflight_bytes, 0);
    }
    assert_int_not_equal(getNicLoadStats(p.a, NULL, &count), 0);
    assert_int_equal(freeBatchID(p.a, batch), 0);
    pair_close(&p);
}

static void what_cannot_be_done_fails(void **state)
{
    (void)state;
    struct pair p = pair_open();
    uint8_t *stranger = calloc(1, 64);
    const struct transfer_request good = {OPCODE_READ, p.local, p.target,
                                          (uint64_t)(uintptr_t)p.remote, 64};
    struct transfer_request bad[6];
    for (size_t i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].source = stranger;
    bad[1].target_offset = (uint64_t)(uintptr_t)stranger;
    bad[2].target_id = 4711;
    bad[3].opcode = 9;
    bad[4].target_id = -1;
    batch_id_t batch = allocateBatchID(p.a, 6);
    assert_int_equal(submitTransfer(p.a, batch, bad, 6), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(finish(&p, batch, i, 1), STATUS_FAILED);
    assert_int_equal(finish(&p, batch, 0, 1), STATUS_FAILED);
    assert_non_null(strstr(yolk_last_error(), "is not inside a registered range"));
    assert_int_equal(finish(&p, batch, 1, 1), STATUS_FAILED);
    assert_non_null(strstr(yolk_last_error(), ": the remote side refused: the memory is not"));
    assert_int_equal(finish(&p, batch, 5, 1), STATUS_COMPLETED); /* and harms no other */
    assert_int_equal(freeBatchID(p.a, batch), 0);
    assert_true(openSegment(p.a, "127.0.0.1:1") < 0);
    assert_int_not_equal(closeSegment(p.a, 4711), 0);
    assert_int_equal(closeSegment(p.a, p.target), 0);
    assert_int_not_equal(unregisterLocalMemory(p.a, stranger), 0);
    assert_int_equal(registerLocalMemory(p.a, p.local + SIZE - 64, 128, "*", 1), -7);
    buffer_entry_t entries[2] = {{stranger, 64}, {p.local + SIZE - 64, 128}};
    assert_int_equal(registerLocalMemoryBatch(p.a, entries, 2, "*"), -7);
    assert_int_equal(unregisterLocalMemory(p.a, stranger), -3); /* all or none */
    assert_null(createTransferEngine("gopher://x", "127.0.0.1", "", 0, 1));
    assert_null(createTransferEngine("P2PHANDSHAKE", "no such host at all", "", 0, 1));
    assert_true(allocateBatchID(p.a, 0) == INVALID_BATCH);
    assert_int_not_equal(submitTransfer(NULL, 0, NULL, 0), 0);
    char small[4];
    assert_int_not_equal(getLocalIpAndPort(p.a, small, sizeof(small)), 0);
    free(stranger);
    pair_close(&p);
}

static void notifications(void **state)
{
    (void)state;
    struct pair p = pair_open();
    char name[] = "agent", text[] = "hello";
    int count;
    assert_null(getNotifsFromEngine(p.b, &count));
    assert_int_equal(count, 0);
    assert_int_equal(genNotifyInEngine(p.a, (uint64_t)p.target, (notify_msg_t){name, text}), 0);
    notify_msg_t *got = getNotifsFromEngine(p.b, &count);
    assert_int_equal(count, 1);
    assert_string_equal(got[0].name, "agent");
    assert_string_equal(got[0].msg, "hello");
    assert_int_equal(freeNotifsMsgBuf(got, count), 0);
    struct transfer_request request = {OPCODE_WRITE, p.local, p.target,
                                       (uint64_t)(uintptr_t)p.remote, SIZE};
    batch_id_t batch = allocateBatchID(p.a, 1);
    assert_int_equal(submitTransferWithNotify(p.a, batch, &request, 1, (notify_msg_t){name, text}),
                     0);
    assert_int_equal(finish(&p, batch, 0, 1), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(p.a, batch), 0);
    uint64_t deadline_ns = clock_real_now_ns() + 20 * NS_PER_S;
    while ((got = getNotifsFromEngine(p.b, &count)) == NULL)
        assert_true(clock_real_now_ns() < deadline_ns);
    assert_int_equal(count, 1);
    assert_memory_equal(p.remote, p.local, SIZE);
    assert_int_equal(freeNotifsMsgBuf(got, count), 0);
    pair_close(&p);
}

static void this_process_and_files(void **state)
{
    (void)state;
    struct pair p = pair_open();
    char name[64], path[TEMPORARY_MAX] = "yolk-engine-XXXXXX", url[2 * TEMPORARY_MAX];
    assert_int_equal(getLocalIpAndPort(p.a, name, sizeof(name)), 0);
    assert_int_equal(openSegment(p.a, ""), LOCAL_SEGMENT);
    assert_int_equal(openSegment(p.a, name), LOCAL_SEGMENT);
    struct transfer_request request = {OPCODE_READ, p.local, LOCAL_SEGMENT,
                                       (uint64_t)(uintptr_t)(p.local + 4096), 4096};
    batch_id_t batch = allocateBatchID(p.a, 4);
    assert_int_equal(submitTransfer(p.a, batch, &request, 1), 0);
    assert_int_equal(finish(&p, batch, 0, 1), STATUS_COMPLETED);
    assert_memory_equal(p.local, p.local + 4096, 4096);
    int fd = mkstemp(temporary_path(path));
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_int_equal(fwrite(p.remote, 1, 65536, file), 65536);
    assert_int_equal(fclose(file), 0);
    snprintf(url, sizeof(url), "file://%s", path);
    segment_id_t segment = openSegment(p.a, url);
    assert_true(segment > 0);
    request = (struct transfer_request){OPCODE_READ, p.local + 1, segment, 1000, 5000};
    assert_int_equal(submitTransfer(p.a, batch, &request, 1), 0);
    assert_int_equal(finish(&p, batch, 1, 1), STATUS_COMPLETED);
    assert_memory_equal(p.local + 1, p.remote + 1000, 5000);
    assert_int_equal(freeBatchID(p.a, batch), 0);
    assert_int_equal(closeSegment(p.a, segment), 0);
    assert_true(openSegment(p.a, "file:///no/such/file") < 0);
    remove(path);
    assert_non_null(installTransport(p.a, "tcp", NULL));
    assert_non_null(installTransport(p.a, "rdma", NULL));
    assert_null(installTransport(p.a, "warp", NULL));
    assert_int_equal(uninstallTransport(p.a, "tcp"), 0);
    assert_int_equal(discoverTopology(p.a), 0);
    assert_int_equal(syncSegmentCache(p.a), 0);
    assert_int_equal(removeLocalSegment(p.a, name), 0);
    pair_close(&p);
}

static void links_of_this_machine(void **state)
{
    enum { ROOM = 1 << 16 };
    (void)state;
    char *text = malloc(ROOM), little[8];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(text);
    assert_int_equal(showLinks(engine, text, ROOM, 0), 0);
    assert_memory_equal(text, "=== Local NICs ===\n", 19);
    assert_non_null(strstr(text, "\n=== Topology ===\n{"));
    assert_int_equal(showLinks(engine, text, ROOM, 1), 0);
    struct base_json *root;
    assert_int_equal(base_json_parse("links", text, strlen(text), &root), YOLK_OK);
    const struct base_json *nics = base_json_member(root, "local_nics");
    assert_int_equal(nics->type, BASE_JSON_ARRAY);
    for (const struct base_json *nic = nics->first; nic != NULL; nic = nic->next) {
        assert_int_equal(base_json_member(nic, "device")->type, BASE_JSON_STRING);
        assert_int_equal(base_json_member(nic, "numa")->type, BASE_JSON_NUMBER);
        assert_int_equal(base_json_member(nic, "speed_gbps")->type, BASE_JSON_NUMBER);
        assert_string_equal(base_json_member(nic, "source")->text, "topology");
    }
    assert_int_equal(base_json_member(root, "topology")->type, BASE_JSON_OBJECT);
    base_json_free(root);
    memset(little, 'x', sizeof(little));
    assert_true(showLinks(engine, little, sizeof(little), 1) < 0);
    assert_string_equal(little, "{\"local");
    assert_int_equal(showLinks(NULL, text, ROOM, 0), -1);
    assert_int_equal(showLinks(engine, NULL, ROOM, 0), -1);
    assert_int_equal(showLinks(engine, text, 0, 0), -1);
    destroyTransferEngine(engine);
    free(text);
}

/* Before any thread of this process, for a child of fork has only its own. */
static void ended_by(int number, bool destroyed)
{
    int ready[2], status = 0;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
        enableGracefulShutdown(engine);
        enableGracefulShutdown(engine);
        if (destroyed)
            destroyTransferEngine(engine);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(close(ready[1]), 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + number);
    assert_int_equal(close(ready[0]), 0);
}

static void signals_end_it_in_order(void **state)
{
    (void)state;
    ended_by(SIGTERM, false);
    ended_by(SIGINT, false);
    ended_by(SIGTERM, true);
    enableGracefulShutdown(NULL); /* says so, and nothing else */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_end_it_in_order), cmocka_unit_test(links_of_this_machine),
        cmocka_unit_test(the_calls_of_nixl),       cmocka_unit_test(the_calls_of_nixl_as_tent),
        cmocka_unit_test(loads_and_warm_ups),      cmocka_unit_test(what_cannot_be_done_fails),
        cmocka_unit_test(notifications),           cmocka_unit_test(this_process_and_files),
    };
    return cmocka_run_group_tests_name("compat.transfer_engine_c", tests, NULL, NULL);
}
