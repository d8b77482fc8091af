/* SPDX-License-Identifier: Apache-2.0 */
/* One sick peer slows no other, and what it was before its restart answers nobody.
 *
 * Providers are processes of their own (this program once more), reached by tcp alone. One is
 * killed under load and comes back on its port with other memory; or, for comparison, one that
 * nobody reads from. Meanwhile a healthy one is read from, and each read is timed.
 *
 *   sick.sick                                      the tests, all on this host
 *   sick.sick load HOST SPACE HOST SPACE HOST      here, the healthy and the sick one: network
 * namespaces sick.sick provider HOST PORT LIFE              such a process */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "platform/clock.h"
#include "platform/thread.h"
#include "transport/tcp/tcp.h"
#include "yolk/engine.h"

enum {
    SIZE = 1 << 20,
    PIECE = 4096,
    SICK_PIECE = 16384,
    SICK_CALLERS = 2,
    ROUNDS = 3, /* of each kind, in turn */
    SAMPLES_MAX = 1 << 16,
    SAMPLES_MIN = 300, /* of one round */
    ANSWERS_MIN = 20,  /* of the sick one, after its restart */
    REFUSED_MAX = 5,   /* then the next life is waited for, or asked */
    DEADLINE_MS = 500,
    PATIENCE_MS = 60000,
    TRIES = 8, /* so many times that many, where the machine is not ours alone */
    RATIO_MAX = 2,
};

enum which { HEALTHY, SICK, BYSTANDER, PROVIDERS };

static uint8_t byte_of(uint64_t life, uint64_t offset)
{
    uint64_t x = offset * UINT64_C(0x9e3779b97f4a7c15) + life * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (uint8_t)((x ^ x >> 29) >> 32);
}

static uint64_t segment_of(uint64_t life)
{
    return life << 32 | 1;
}

static struct yolk_engine *make_engine(const char *host, uint16_t port)
{
    const struct yolk_transport_ops *tcp = transport_tcp_ops();
    struct yolk_engine_options options;
    struct yolk_engine *engine = NULL;
    yolk_engine_options_init(&options);
    options.transports = &tcp;
    options.transport_count = 1;
    options.transport.host = host;
    options.transport.listen = host;
    options.transport.port = port;
    options.breaker_cooldown_ms = 20;
    options.queue.enable = YOLK_SWITCH_ON;
    if (yolk_engine_create(&options, &engine) != YOLK_OK)
        (void)fprintf(stderr, "no engine: %s\n", yolk_last_error());
    return engine;
}

/* -- a provider -- */

static int provider_main(char **args)
{
    uint64_t life = strtoull(args[2], NULL, 10);
    struct yolk_engine *engine = make_engine(args[0], (uint16_t)strtoul(args[1], NULL, 10));
    struct yolk_served *served = NULL;
    uint8_t *memory = malloc(SIZE);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (engine == NULL || memory == NULL)
        return 1;
    for (uint64_t i = 0; i < SIZE; i++)
        memory[i] = byte_of(life, i);
    const struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = memory, .size = SIZE, .segment = segment_of(life)};
    if (yolk_engine_serve(engine, &serve, &served) != YOLK_OK) {
        (void)fprintf(stderr, "not served: %s\n", yolk_last_error());
        return 1;
    }
    (void)printf("%s\n", yolk_served_endpoints(served));
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}

struct provider {
    const char *space; /* network namespace; NULL: this one */
    const char *host;
    uint16_t port;
    pid_t pid;
    uint64_t life;
    char text[256];
};

static uint16_t find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

extern char **environ;

static void start_provider(struct provider *p)
{
    char port[16], life[24], self[512] = "";
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    int ends[2];
    p->life++;
    (void)snprintf(port, sizeof(port), "%u", p->port);
    (void)snprintf(life, sizeof(life), "%llu", (unsigned long long)p->life);
    const char *all[] = {"ip",       "netns", "exec", p->space, self,
                         "provider", p->host, port,   life,     NULL};
    char **args = (char **)(uintptr_t)(p->space != NULL ? all : all + 4);
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    assert_int_equal(posix_spawnp(&p->pid, args[0], &actions, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    assert_non_null(out);
    assert_non_null(fgets(p->text, sizeof(p->text), out));
    p->text[strcspn(p->text, "\n")] = '\0';
    (void)fclose(out);
}

static void kill_provider(struct provider *p)
{
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

/* -- the load -- */

struct load {
    struct yolk_engine *engine;
    struct provider providers[PROVIDERS];
    struct mutex lock;      /* of the sick one's text and life */
    struct condition moved; /* something was counted, or the sick one is back */
    pthread_t healthy, sick[SICK_CALLERS];
    uint8_t *local;
    atomic_bool over;
    _Atomic uint64_t wrong;    /* bytes or lives that cannot be */
    _Atomic uint64_t answers;  /* of the sick one */
    _Atomic uint64_t failures; /* of it */
    _Atomic uint64_t queued;   /* requests seen waiting for dispatch */
    _Atomic uint64_t harmed;   /* reads of the healthy one that failed */
    _Atomic uint64_t count;    /* samples of this round */
    uint64_t samples[SAMPLES_MAX];
};

static void die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, yolk_last_error());
    abort();
}

static enum yolk_status read_once(struct load *l, uint64_t segment, uint8_t *local, uint64_t offset,
                                  uint64_t size)
{
    struct yolk_request request = {.opcode = YOLK_READ,
                                   .local = local,
                                   .segment = segment,
                                   .offset = offset,
                                   .size = size,
                                   .deadline_ns = yolk_engine_now_ns(l->engine) +
                                                  DEADLINE_MS * UINT64_C(1000000)};
    struct yolk_task_status status = {.status = YOLK_ERR_CLOSED};
    enum yolk_status verdict;
    uint64_t batch;
    if (yolk_engine_batch_create(l->engine, 1, &batch) != YOLK_OK)
        die("no batch");
    (void)!yolk_engine_batch_submit(l->engine, batch, &request, 1, &verdict, NULL);
    if (yolk_engine_batch_wait(l->engine, batch, 0) != YOLK_OK ||
        yolk_engine_batch_poll(l->engine, batch, 0, &status) != YOLK_OK ||
        yolk_engine_batch_free(l->engine, batch) != YOLK_OK)
        die("a batch does not end");
    return status.status;
}

static uint64_t open_segment(struct load *l, const char *text, uint64_t life)
{
    const struct yolk_segment_descriptor descriptor = {segment_of(life), life, SIZE, text};
    uint64_t segment;
    if (yolk_engine_segment_open(l->engine, &descriptor, 7, &segment) != YOLK_OK)
        die("no segment");
    return segment;
}

static bool is_of(const uint8_t *bytes, uint64_t life, uint64_t offset, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        if (bytes[i] != byte_of(life, offset + i))
            return false;
    return true;
}

static void tell(struct load *l)
{
    mutex_lock(&l->lock);
    condition_broadcast(&l->moved);
    mutex_unlock(&l->lock);
}

static void *healthy_main(void *arg)
{
    struct load *l = arg;
    const struct provider *p = &l->providers[HEALTHY];
    uint64_t segment = open_segment(l, p->text, p->life);
    for (uint64_t i = 0; !atomic_load(&l->over); i++) {
        uint64_t offset = i * 5003 % (SIZE - PIECE);
        uint64_t begin = yolk_engine_now_ns(l->engine);
        enum yolk_status status = read_once(l, segment, l->local, offset, PIECE);
        uint64_t took = yolk_engine_now_ns(l->engine) - begin;
        uint64_t n = atomic_load(&l->count);
        struct yolk_engine_stats stats;
        yolk_engine_stats(l->engine, &stats);
        atomic_fetch_add(&l->queued, stats.queued + stats.queue_refused);
        if (n % SAMPLES_MIN == 0)
            tell(l);
        if (n < SAMPLES_MAX) { /* a round may begin just now, with one of the last */
            l->samples[n] = took;
            atomic_store(&l->count, n + 1);
        }
        if (status != YOLK_OK)
            atomic_fetch_add(&l->harmed, 1);
        else if (!is_of(l->local, p->life, offset, PIECE))
            atomic_fetch_add(&l->wrong, 1);
    }
    if (yolk_engine_segment_close(l->engine, segment) != YOLK_OK)
        die("a segment does not close");
    return NULL;
}

/* A handle is kept for a while after its life is over: it must answer nothing then. */
static void *sick_main(void *arg)
{
    struct load *l = arg;
    static _Atomic uint32_t numbers;
    uint8_t *local = l->local + PIECE + atomic_fetch_add(&numbers, 1) % SICK_CALLERS * SICK_PIECE;
    struct provider *p = &l->providers[SICK];
    uint64_t segment = 0, life = 0;
    uint32_t refused = 0; /* in a row */
    uint32_t asked = 0;   /* with a handle whose life is over */
    for (uint64_t i = 0; !atomic_load(&l->over); i++) {
        uint64_t offset = i * 7001 % (SIZE - SICK_PIECE);
        mutex_lock(&l->lock);
        while (refused >= REFUSED_MAX && p->life == life && !atomic_load(&l->over))
            condition_wait(&l->moved, &l->lock); /* until it is back */
        bool old = p->life != life;
        if (segment == 0 || asked >= REFUSED_MAX) {
            if (segment != 0 && yolk_engine_segment_close(l->engine, segment) != YOLK_OK)
                die("a segment does not close");
            segment = open_segment(l, p->text, p->life);
            life = p->life;
            old = false;
            refused = asked = 0;
        }
        mutex_unlock(&l->lock);
        asked += old;
        enum yolk_status status = read_once(l, segment, local, offset, SICK_PIECE);
        if (status != YOLK_OK) {
            refused++;
            atomic_fetch_add(&l->failures, 1);
        } else if (old || !is_of(local, life, offset, SICK_PIECE)) {
            atomic_fetch_add(&l->wrong, 1);
        } else {
            refused = 0;
            atomic_fetch_add(&l->answers, 1);
        }
        tell(l);
    }
    if (segment != 0 && yolk_engine_segment_close(l->engine, segment) != YOLK_OK)
        die("a segment does not close");
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void wait_for(struct load *l, const _Atomic uint64_t *count, uint64_t least)
{
    uint64_t until = clock_after_ms(clock_real_now_ns(), PATIENCE_MS);
    mutex_lock(&l->lock);
    while (atomic_load(count) < least) {
        assert_true(clock_real_now_ns() < until);
        (void)condition_wait_until(&l->moved, &l->lock, until);
    }
    mutex_unlock(&l->lock);
}

static void restart_provider(struct load *l, enum which victim)
{
    struct provider made = l->providers[victim];
    start_provider(&made);
    mutex_lock(&l->lock);
    l->providers[victim] = made;
    condition_broadcast(&l->moved);
    mutex_unlock(&l->lock);
}

/* Kills and restarts one; returns the p99 of what the healthy one took meanwhile. */
static uint64_t run_round(struct load *l, enum which victim)
{
    uint64_t failures = atomic_load(&l->failures);
    wait_for(l, &l->answers, atomic_load(&l->answers) + ANSWERS_MIN); /* there is a load */
    atomic_store(&l->count, 0);
    kill_provider(&l->providers[victim]);
    if (victim == SICK)
        wait_for(l, &l->failures, failures + 1);
    restart_provider(l, victim);
    wait_for(l, &l->answers, atomic_load(&l->answers) + ANSWERS_MIN);
    wait_for(l, &l->count, SAMPLES_MIN);
    uint64_t count = atomic_load(&l->count);
    static uint64_t sorted[SAMPLES_MAX];
    memcpy(sorted, l->samples, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), ascending);
    return sorted[count * 99 / 100];
}

static void load_open(struct load *l, const char *host, const struct provider places[PROVIDERS])
{
    memset(l, 0, sizeof(*l));
    mutex_init(&l->lock);
    condition_init(&l->moved);
    l->engine = make_engine(host, 0);
    assert_non_null(l->engine);
    l->local = calloc(1, PIECE + SICK_CALLERS * SICK_PIECE);
    assert_non_null(l->local);
    assert_int_equal(yolk_engine_register(l->engine, l->local, PIECE + SICK_CALLERS * SICK_PIECE),
                     YOLK_OK);
    for (int i = 0; i < PROVIDERS; i++) {
        l->providers[i] = places[i];
        l->providers[i].port = find_port();
        l->providers[i].life = 100 * (uint64_t)i;
        start_provider(&l->providers[i]);
    }
    assert_int_equal(pthread_create(&l->healthy, NULL, healthy_main, l), 0);
    for (int i = 0; i < SICK_CALLERS; i++)
        assert_int_equal(pthread_create(&l->sick[i], NULL, sick_main, l), 0);
}

static void load_close(struct load *l)
{
    atomic_store(&l->over, true);
    tell(l);
    pthread_join(l->healthy, NULL);
    for (int i = 0; i < SICK_CALLERS; i++)
        pthread_join(l->sick[i], NULL);
    for (int i = 0; i < PROVIDERS; i++)
        kill_provider(&l->providers[i]);
    assert_int_equal(yolk_engine_unregister(l->engine, l->local, PIECE + SICK_CALLERS * SICK_PIECE),
                     YOLK_OK);
    assert_int_equal(yolk_engine_destroy(l->engine), YOLK_OK);
    condition_destroy(&l->moved);
    mutex_destroy(&l->lock);
    free(l->local);
}

static uint64_t median(const uint64_t *of, uint32_t count)
{
    uint64_t sorted[ROUNDS * TRIES];
    memcpy(sorted, of, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), ascending);
    return sorted[count / 2];
}

/* Of all rounds so far, so that a machine with other work to do is averaged away. */
static double compare(struct load *l)
{
    uint64_t sick[ROUNDS * TRIES], control[ROUNDS * TRIES];
    double ratio = RATIO_MAX + 1;
    for (uint32_t i = 0; i < ROUNDS * TRIES && ratio > RATIO_MAX;) {
        for (uint32_t k = 0; k < ROUNDS; k++, i++) {
            control[i] = run_round(l, BYSTANDER);
            sick[i] = run_round(l, SICK);
        }
        ratio = (double)median(sick, i) / (double)median(control, i);
        print_message(
            "p99 %.1f us beside a peer that is killed, %.1f us beside a bystander: %.2f\n",
            (double)median(sick, i) / 1e3, (double)median(control, i) / 1e3, ratio);
    }
    return ratio;
}

static void run_load(const char *host, const struct provider places[PROVIDERS])
{
    static struct load l;
    load_open(&l, host, places);
    double ratio = compare(&l);
    load_close(&l);
    print_message("%llu answers and %llu failures of the sick peer\n",
                  (unsigned long long)atomic_load(&l.answers),
                  (unsigned long long)atomic_load(&l.failures));
    assert_int_equal(atomic_load(&l.queued), 0);
    assert_int_equal(atomic_load(&l.wrong), 0);
    assert_int_equal(atomic_load(&l.harmed), 0);
    assert_true(atomic_load(&l.failures) >= ROUNDS);
    assert_true(ratio <= RATIO_MAX);
}

static void a_sick_peer_slows_no_other_and_answers_for_no_former_life(void **state)
{
    const struct provider here = {.host = "127.0.0.1"};
    const struct provider places[PROVIDERS] = {here, here, here};
    (void)state;
    run_load("127.0.0.1", places);
}

static char **arguments;

static void of_three_hosts(void **state)
{
    const struct provider healthy = {.space = arguments[1], .host = arguments[2]};
    const struct provider sick = {.space = arguments[3], .host = arguments[4]};
    const struct provider places[PROVIDERS] = {healthy, sick, sick};
    (void)state;
    run_load(arguments[0], places);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest here[] = {
        cmocka_unit_test(a_sick_peer_slows_no_other_and_answers_for_no_former_life)};
    /* Not by cmocka's macro: it is no test of its own, whoever makes the hosts asks for it. */
    const struct CMUnitTest hosts[] = {{"of_three_hosts", of_three_hosts, NULL, NULL, NULL}};
    arguments = argv + 2;
    if (argc == 5 && strcmp(argv[1], "provider") == 0)
        return provider_main(arguments);
    if (argc == 7 && strcmp(argv[1], "load") == 0)
        return cmocka_run_group_tests_name("sick", hosts, NULL, NULL);
    return cmocka_run_group_tests_name("sick", here, NULL, NULL);
}
