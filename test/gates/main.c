/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gates list: the paths. gates run PATH: makes its calls within gate_measured, which callgrind
 * counts the instructions of. gates cost PATH: what a request costs in system calls and
 * allocations. With --plant each call costs more of all three, to show that somebody notices.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "cli/bench.h"
#include "paths.h"

enum { ROUNDS = 31 };

void gate_must(int status, const char *what)
{
    if (status == YOLK_OK)
        return;
    fprintf(stderr, "gates: %s: %s: %s\n", what, yolk_strerror((enum yolk_status)status),
            yolk_last_error());
    exit(1);
}

static const struct gate_path *path_at(uint32_t i)
{
    if (i < gate_pure_path_count)
        return &gate_pure_paths[i];
    i -= gate_pure_path_count;
    return i < gate_transfer_path_count ? &gate_transfer_paths[i] : NULL;
}

static const struct gate_path *find(const char *name)
{
    const struct gate_path *path;
    for (uint32_t i = 0; (path = path_at(i)) != NULL; i++)
        if (strcmp(path->name, name) == 0)
            return path;
    fprintf(stderr, "gates: \"%s\" is no path\n", name);
    exit(2);
}

static uint32_t calls_of(const struct gate_path *path)
{
    return path->calls > 0 ? path->calls : GATE_CALLS;
}

/* Every sixteenth call is made twice, and each one asks the system and the heap for something. */
static enum yolk_status call_planted(void *self)
{
    static unsigned count;
    const struct gate_path *path = self;
    enum yolk_status status = path->call(NULL);
    void *memory = base_malloc(16);
    free(memory);
    (void)getppid();
    return status == YOLK_OK && count++ % 16 == 0 ? path->call(NULL) : status;
}

static enum yolk_status call(void *self)
{
    const struct gate_path *path = self;
    return path->call(NULL);
}

void gate_measured(const struct gate_path *path, enum yolk_status (*one)(void *self),
                   uint32_t count);
__attribute__((noinline)) void gate_measured(const struct gate_path *path,
                                             enum yolk_status (*one)(void *self), uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        gate_must(one((void *)(uintptr_t)path), path->name);
}

static void run(const struct gate_path *path, enum yolk_status (*one)(void *self))
{
    path->set_up();
    for (uint32_t i = 0; i < GATE_WARM_UP; i++)
        gate_must(path->call(NULL), path->name);
    gate_measured(path, one, calls_of(path));
    path->tear_down();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void cost(const struct gate_path *path, enum yolk_status (*one)(void *self))
{
    struct bench_cost counted;
    double system_calls[ROUNDS], allocations[ROUNDS];
    bench_cost_init();
    path->set_up();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        gate_must(bench_cost(one, (void *)(uintptr_t)path, 1, &counted), path->name);
        system_calls[i] = counted.system_calls;
        allocations[i] = counted.allocations;
    }
    qsort(system_calls, ROUNDS, sizeof(system_calls[0]), compare);
    qsort(allocations, ROUNDS, sizeof(allocations[0]), compare);
    /* The least, because waiting for another thread of the library adds to them. */
    if (counted.reason[0] == '\0')
        printf("%s %.0f\n", path->wakes ? "system_calls_most" : "system_calls", system_calls[0]);
    else
        printf("reason %s\n", counted.reason);
    printf("allocations %.0f\n", allocations[ROUNDS / 2]);
    path->tear_down();
}

int main(int argc, char **argv)
{
    const struct gate_path *path;
    /* So that what the heap asks of the system is no part of a call, whoever makes it. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TOP_PAD, 64 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    bool planted = argc == 4 && strcmp(argv[3], "--plant") == 0;
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (uint32_t i = 0; (path = path_at(i)) != NULL; i++)
            printf("%s %s\n", path->name, path->unit);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "calls") == 0) {
        printf("%u\n", calls_of(find(argv[2])));
        return 0;
    }
    if ((argc == 3 || planted) && strcmp(argv[1], "run") == 0) {
        run(find(argv[2]), planted ? call_planted : call);
        return 0;
    }
    if ((argc == 3 || planted) && strcmp(argv[1], "cost") == 0) {
        cost(find(argv[2]), planted ? call_planted : call);
        return 0;
    }
    fprintf(stderr, "gates list | calls PATH | run PATH [--plant] | cost PATH [--plant]\n");
    return 2;
}
