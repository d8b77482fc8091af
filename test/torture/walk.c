/* SPDX-License-Identifier: Apache-2.0 */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    STEP_SECONDS = 60, /* by then a step has hung, and the signal ends the test */
    WALK_MS = 500,     /* for one kind and one way */
};

/* Of the sanitizer, where there is one. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t step(const struct walk *walk, enum fault_kind kind, uint64_t nth, bool for_ever)
{
    alarm(STEP_SECONDS);
    walk->prepare();
    /* Said before, because a crash says nothing; the last such line repeats it. */
    if (nth > 0)
        fprintf(stderr, "YOLK_TORTURE=%s:%s:%llu:%s\n", walk->name, fault_kind_names[kind],
                (unsigned long long)nth, for_ever ? "ever" : "once");
    faults_arm(kind, nth, for_ever);
    walk->act();
    uint64_t calls = faults_disarm();
    walk->finish();
    alarm(0);
    return calls;
}

static void no_leaks(const struct walk *walk)
{
    if (__lsan_do_recoverable_leak_check == NULL || __lsan_do_recoverable_leak_check() == 0)
        return;
    fprintf(stderr, "%s: memory was lost in the last steps\n", walk->name);
    abort();
}

static uint64_t common(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common(b, a % b);
}

static void say(const struct walk *walk, enum fault_kind kind, bool for_ever, const char *how,
                uint64_t done, uint64_t total)
{
    printf("%s: %s, %s: %s%llu of %llu calls\n", walk->name, fault_kind_names[kind],
           for_ever ? "for ever" : "once", how, (unsigned long long)done,
           (unsigned long long)total);
    no_leaks(walk);
}

/* One by one until no call fails any more: how many there are varies. */
static void walk_all(const struct walk *walk, enum fault_kind kind, bool for_ever)
{
    uint64_t nth = 0, unreached = 0;
    while (unreached < 3) {
        uint64_t calls = step(walk, kind, ++nth, for_ever);
        unreached = calls < nth ? unreached + 1 : 0;
        no_leaks(walk);
    }
    say(walk, kind, for_ever, "all, ", nth - unreached, nth - unreached);
}

/* In an order that has looked everywhere soon. */
static void walk_some(const struct walk *walk, enum fault_kind kind, bool for_ever)
{
    uint64_t total = step(walk, kind, 0, false);
    uint64_t stride = total * 618 / 1000 | 1, end = now_ms() + WALK_MS, done = 0, at = 0;
    while (total > 0 && common(total, stride) > 1)
        stride++;
    for (; done < total && (done < 3 || now_ms() < end); done++) {
        (void)step(walk, kind, at + 1, for_ever);
        at = (at + stride) % total;
    }
    say(walk, kind, for_ever, done < total ? "strided, " : "all, ", done, total);
}

static bool wish_met;

static bool repeat_one(const struct walk *walk)
{
    const char *wish = getenv("YOLK_TORTURE");
    char name[32], kind[32], how[8];
    unsigned long long nth;
    if (wish == NULL)
        return false;
    if (sscanf(wish, "%31[^:]:%31[^:]:%llu:%7s", name, kind, &nth, how) != 4) {
        fprintf(stderr, "YOLK_TORTURE=%s: not ACTION:KIND:N:once|ever\n", wish);
        abort();
    }
    for (unsigned k = 0; k < FAULT_KINDS && strcmp(name, walk->name) == 0; k++) {
        if (strcmp(kind, fault_kind_names[k]) != 0)
            continue;
        wish_met = true;
        (void)step(walk, k, nth, strcmp(how, "ever") == 0);
    }
    no_leaks(walk);
    return true;
}

void walk_run(const struct walk *walk)
{
    const char *full = getenv("YOLK_TORTURE_FULL");
    void (*walk_kind)(const struct walk *, enum fault_kind, bool) =
        full != NULL ? walk_all : walk_some;
    if (repeat_one(walk))
        return;
    if (full != NULL && strcmp(full, "1") != 0 && strcmp(full, walk->name) != 0)
        return;
    wish_met = true;
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        if (!(walk->kinds >> kind & 1))
            continue;
        walk_kind(walk, kind, false);
        walk_kind(walk, kind, true);
    }
}

void walk_wish_was_met(void)
{
    const char *one = getenv("YOLK_TORTURE"), *full = getenv("YOLK_TORTURE_FULL");
    if (wish_met || (one == NULL && full == NULL))
        return;
    fprintf(stderr, "%s=%s names nothing that there is\n",
            one != NULL ? "YOLK_TORTURE" : "YOLK_TORTURE_FULL", one != NULL ? one : full);
    abort();
}
