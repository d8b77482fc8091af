/* SPDX-License-Identifier: Apache-2.0 */
/* Where io_uring is refused or gets little: each in a child process, whose limits are its own. */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "transport/file/kit.h"

/* In the child cmocka's asserts would run the parent's tests on. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "child: %s, line %d: %s\n", #condition, __LINE__,                \
                          yolk_last_error());                                                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* The exit status of a child that does this; what it wrote to stderr is in `log`. */
static int in_child(void (*work)(void *), void *arg, char *log, size_t log_size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        if (dup2(ends[1], STDERR_FILENO) < 0)
            _exit(2);
        work(arg);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n = 1; n > 0 && used + 1 < log_size; used += n > 0 ? (size_t)n : 0)
        n = read(ends[0], log + used, log_size - 1 - used);
    log[used] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        print_error("%s", log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static uint32_t count_lines(const char *log, const char *with)
{
    uint32_t count = 0;
    for (const char *at = log; (at = strstr(at, with)) != NULL; at++)
        count++;
    return count;
}

static void deny_rings(int with_errno)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)with_errno),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static struct kit open_both(void)
{
    struct kit k = {
        .ops = {transport_uring_ops(), transport_posix_ops()}, .ops_count = 2, .size = 4 * MIB};
    kit_open(&k);
    return k;
}

static void move_some(struct kit *k)
{
    uint8_t *memory = malloc(2 * MIB);
    MUST(memory != NULL);
    MUST(yolk_engine_register(k->engine, memory, 2 * MIB) == YOLK_OK);
    for (uint64_t i = 0; i < 10; i++) {
        MUST(kit_one(k, YOLK_READ, memory + i, i * 1001, MIB + i) == YOLK_OK);
        MUST(kit_is_filled(memory + i, MIB + i, i * 1001));
    }
    kit_fill(memory, MIB, 3);
    MUST(kit_one(k, YOLK_WRITE, memory, MIB, MIB) == YOLK_OK);
    memset(memory, 0, MIB);
    MUST(kit_one(k, YOLK_READ, memory, MIB, MIB) == YOLK_OK);
    MUST(kit_is_filled(memory, MIB, 3));
    MUST(yolk_engine_unregister(k->engine, memory, 2 * MIB) == YOLK_OK);
    free(memory);
}

static void without_rings(void *arg)
{
    char reason[256];
    deny_rings(*(const int *)arg);
    struct kit k = open_both();
    uint64_t second;
    MUST(yolk_engine_file_open(k.engine, k.path, 0, &second, NULL) == YOLK_OK);
    MUST(!yolk_engine_has_transport(k.engine, "uring", reason, sizeof(reason)));
    MUST(strstr(reason, "io_uring_setup") != NULL);
    MUST(strstr(reason, strerror(*(const int *)arg)) != NULL);
    move_some(&k);
    kit_close(&k);
}

static void c74_rings_refused_by_seccomp(void **state)
{
    (void)state;
    static const int errors[] = {EPERM, ENOSYS};
    for (size_t i = 0; i < 2; i++) {
        char log[8192];
        assert_int_equal(in_child(without_rings, (void *)(uintptr_t)&errors[i], log, sizeof(log)),
                         0);
        /* Told once, with the reason. */
        assert_int_equal(count_lines(log, "is served without uring"), 1);
        assert_int_equal(count_lines(log, strerror(errors[i])), 1);
    }
}

static void little_memory(void *arg)
{
    const struct rlimit limit = {65536, 65536};
    struct kit kits[KIT_CLIENTS_MAX];
    (void)arg;
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0) { /* for root the limit does not hold */
        MUST(setgroups(0, NULL) == 0);
        MUST(setresgid(65534, 65534, 65534) == 0);
        MUST(setresuid(65534, 65534, 65534) == 0);
    }
    for (int i = 0; i < KIT_CLIENTS_MAX; i++)
        kits[i] = open_both();
    for (int i = 0; i < KIT_CLIENTS_MAX; i++)
        move_some(&kits[i]);
    for (int i = 0; i < KIT_CLIENTS_MAX; i++)
        kit_close(&kits[i]);
}

static void c75_sixteen_clients_with_little_locked_memory(void **state)
{
    (void)state;
    char log[8192];
    assert_int_equal(in_child(little_memory, NULL, log, sizeof(log)), 0);
    assert_true(count_lines(log, "staging buffers are used unregistered") <= 1);
}

static void few_descriptors(void *arg)
{
    (void)arg;
    struct kit k = open_both();
    /* Just enough for what is open: no ring can be added, and no eventfd either, later on. */
    const struct rlimit none = {(rlim_t)dup(0), 64};
    MUST(none.rlim_cur > 3);
    close((int)none.rlim_cur);
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    uint8_t memory[4096];
    MUST(yolk_engine_register(k.engine, memory, sizeof(memory)) == YOLK_OK);
    struct yolk_request request = {.opcode = YOLK_READ, .local = memory, .size = sizeof(memory)};
    request.segment = k.segment;
    request.deadline_ns = yolk_engine_now_ns(k.engine) + 300000000;
    uint64_t batch;
    enum yolk_status verdict;
    MUST(yolk_engine_batch_create(k.engine, 1, &batch) == YOLK_OK);
    (void)!yolk_engine_batch_submit(k.engine, batch, &request, 1, &verdict, NULL);
    MUST(yolk_engine_batch_wait(k.engine, batch, 0) == YOLK_OK); /* it ends, and so do we */
    MUST(yolk_engine_batch_free(k.engine, batch) == YOLK_OK);
    const struct rlimit more = {64, 64};
    MUST(setrlimit(RLIMIT_NOFILE, &more) == 0);
    move_some(&k);
    kit_close(&k);
}

static void without_descriptors_it_waits_and_resumes(void **state)
{
    (void)state;
    char log[8192];
    assert_int_equal(in_child(few_descriptors, NULL, log, sizeof(log)), 0);
}

/* ---- a ring's own promises ---- */
static void cancel_ends_what_is_queued(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    struct kit k = {.ops = {transport_uring_ops()}, .ops_count = 1, .size = 8 * MIB};
    kit_open(&k);
    uint8_t *memory = malloc(8 * MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, 8 * MIB), YOLK_OK);
    struct yolk_request requests[COUNT];
    enum yolk_status verdicts[COUNT];
    uint64_t batch;
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = memory + i * 131072,
                                            .segment = k.segment,
                                            .offset = i * 131072,
                                            .size = 131072};
    assert_int_equal(yolk_engine_batch_create(k.engine, COUNT, &batch), YOLK_OK);
    assert_int_equal(yolk_engine_batch_submit(k.engine, batch, requests, COUNT, verdicts, NULL),
                     YOLK_OK);
    for (uint32_t i = 0; i < COUNT; i += 2)
        assert_int_equal(yolk_engine_batch_cancel(k.engine, batch, i), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(k.engine, batch, 0), YOLK_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct yolk_task_status status;
        assert_int_equal(yolk_engine_batch_poll(k.engine, batch, i, &status), YOLK_OK);
        if (i % 2 == 1 || status.status != YOLK_ERR_CANCELED) {
            assert_int_equal(status.status, YOLK_OK);
            assert_true(kit_is_filled(memory + i * 131072, 131072, i * 131072));
        }
    }
    assert_int_equal(yolk_engine_batch_free(k.engine, batch), YOLK_OK);
    kit_close(&k);
    free(memory);
}

struct leaver {
    struct kit *kit;
    uint64_t batch;
    uint8_t *memory;
    enum yolk_status status;
};

static void *submit_and_leave(void *arg)
{
    enum { COUNT = 32 };
    struct leaver *l = arg;
    struct yolk_request requests[COUNT];
    enum yolk_status verdicts[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                            .local = l->memory + i * 131072,
                                            .segment = l->kit->segment,
                                            .offset = i * 131072 + 7,
                                            .size = 131000};
    l->status = yolk_engine_batch_create(l->kit->engine, COUNT, &l->batch);
    if (l->status == YOLK_OK)
        l->status =
            yolk_engine_batch_submit(l->kit->engine, l->batch, requests, COUNT, verdicts, NULL);
    return NULL;
}

/* The kernel may cancel what a thread that ends has under way; nobody asked for that. */
static void the_submitting_thread_may_end(void **state)
{
    (void)state;
    struct kit k = {.ops = {transport_uring_ops()}, .ops_count = 1, .size = 4 * MIB + 7};
    kit_open(&k);
    uint8_t *memory = malloc(4 * MIB);
    assert_int_equal(yolk_engine_register(k.engine, memory, 4 * MIB), YOLK_OK);
    for (int round = 0; round < 10; round++) {
        struct leaver leaver = {.kit = &k, .memory = memory};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, submit_and_leave, &leaver), 0);
        pthread_join(thread, NULL);
        assert_int_equal(leaver.status, YOLK_OK);
        assert_int_equal(yolk_engine_batch_wait(k.engine, leaver.batch,
                                                yolk_engine_now_ns(k.engine) + 30000000000),
                         YOLK_OK);
        for (uint32_t i = 0; i < 32; i++) {
            struct yolk_task_status status;
            assert_int_equal(yolk_engine_batch_poll(k.engine, leaver.batch, i, &status), YOLK_OK);
            assert_int_equal(status.status, YOLK_OK);
            assert_true(kit_is_filled(memory + i * 131072, 131000, i * 131072 + 7));
        }
        assert_int_equal(yolk_engine_batch_free(k.engine, leaver.batch), YOLK_OK);
    }
    kit_close(&k);
    free(memory);
}

/* More batches than rings, all with something to do before any is waited for. */
static void more_channels_than_rings(void **state)
{
    (void)state;
    enum { BATCHES = 100, EACH = 3, SIZE = 4096 };
    struct kit k = {.ops = {transport_uring_ops()}, .ops_count = 1, .size = 4 * MIB};
    kit_open(&k);
    uint8_t *memory = malloc((size_t)BATCHES * EACH * SIZE);
    assert_int_equal(yolk_engine_register(k.engine, memory, (size_t)BATCHES * EACH * SIZE),
                     YOLK_OK);
    uint64_t batches[BATCHES];
    for (uint64_t b = 0; b < BATCHES; b++) {
        struct yolk_request requests[EACH];
        enum yolk_status verdicts[EACH];
        for (uint64_t i = 0; i < EACH; i++)
            requests[i] = (struct yolk_request){.opcode = YOLK_READ,
                                                .local = memory + (b * EACH + i) * SIZE,
                                                .segment = k.segment,
                                                .offset = (b * EACH + i) * SIZE + 100,
                                                .size = SIZE};
        assert_int_equal(yolk_engine_batch_create(k.engine, EACH, &batches[b]), YOLK_OK);
        assert_int_equal(
            yolk_engine_batch_submit(k.engine, batches[b], requests, EACH, verdicts, NULL),
            YOLK_OK);
    }
    /* Only one of them is looked at until it is over; then those before it. */
    for (int b = BATCHES - 1; b >= 0; b--) {
        uint64_t limit = yolk_engine_now_ns(k.engine) + UINT64_C(30000000000);
        assert_int_equal(yolk_engine_batch_wait(k.engine, batches[b], limit), YOLK_OK);
        for (uint32_t i = 0; i < EACH; i++) {
            struct yolk_task_status status;
            assert_int_equal(yolk_engine_batch_poll(k.engine, batches[b], i, &status), YOLK_OK);
            assert_int_equal(status.status, YOLK_OK);
        }
        assert_int_equal(yolk_engine_batch_free(k.engine, batches[b]), YOLK_OK);
    }
    assert_true(kit_is_filled(memory, (uint64_t)BATCHES * EACH * SIZE, 100));
    kit_close(&k);
    free(memory);
}

int main(void)
{
    const struct yolk_transport_options options = {.struct_size = sizeof(options)};
    struct yolk_probe probe = {.reason = ""};
    const struct CMUnitTest refused[] = {
        cmocka_unit_test(c74_rings_refused_by_seccomp),
        cmocka_unit_test(c75_sixteen_clients_with_little_locked_memory),
        cmocka_unit_test(without_descriptors_it_waits_and_resumes),
    };
    const struct CMUnitTest used[] = {
        cmocka_unit_test(cancel_ends_what_is_queued),
        cmocka_unit_test(more_channels_than_rings),
        cmocka_unit_test(the_submitting_thread_may_end),
    };
    int failed = cmocka_run_group_tests(refused, NULL, NULL);
    if (transport_uring_ops()->probe(&options, &probe) != YOLK_OK) {
        printf("SKIP: uring: %s\n", probe.reason);
        return failed != 0 ? failed : 77;
    }
    return failed + cmocka_run_group_tests(used, NULL, NULL);
}
