/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "platform/clock.h"

struct start {
    void (*run)(void *arg);
    void *arg;
    char name[16];
};

static void *trampoline(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), s.name);
    s.run(s.arg);
    return NULL;
}

int thread_start(struct thread *t, const char *name, void (*run)(void *arg), void *arg)
{
    struct start *s = calloc(1, sizeof(*s));
    if (!s)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "thread %s", name);
    s->run = run;
    s->arg = arg;
    size_t n = strnlen(name, sizeof(s->name) - 1);
    memcpy(s->name, name, n);
    /* The mask is inherited: the signals of the host program are not ours to take. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->id, NULL, trampoline, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->running = rc == 0;
    if (rc != 0) {
        free(s);
        return base_fail(YOLK_ERR_SYSTEM, rc, "cannot start thread %s", name);
    }
    return YOLK_OK;
}

void thread_join(struct thread *t)
{
    if (!t->running)
        return;
    pthread_join(t->id, NULL);
    t->running = false;
}

bool thread_is_self(const struct thread *t)
{
    return t->running && pthread_equal(t->id, pthread_self());
}

unsigned thread_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1; /* more than 1024 processors: callers only want to know whether there are several
                   */
    int n = CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}

/* A failing mutex operation means broken memory or a wrong program: nothing sensible can follow. */
static void must(int rc)
{
    if (rc != 0)
        abort();
}

void mutex_init(struct mutex *m)
{
    must(pthread_mutex_init(&m->m, NULL));
}

void mutex_destroy(struct mutex *m)
{
    must(pthread_mutex_destroy(&m->m));
}

void mutex_lock(struct mutex *m)
{
    must(pthread_mutex_lock(&m->m));
}

void mutex_unlock(struct mutex *m)
{
    must(pthread_mutex_unlock(&m->m));
}

bool mutex_trylock(struct mutex *m)
{
    return pthread_mutex_trylock(&m->m) == 0;
}

void condition_init(struct condition *c)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&c->c, &attr));
    pthread_condattr_destroy(&attr);
}

void condition_destroy(struct condition *c)
{
    must(pthread_cond_destroy(&c->c));
}

void condition_signal(struct condition *c)
{
    must(pthread_cond_signal(&c->c));
}

void condition_broadcast(struct condition *c)
{
    must(pthread_cond_broadcast(&c->c));
}

void condition_wait(struct condition *c, struct mutex *m)
{
    must(pthread_cond_wait(&c->c, &m->m));
}

bool condition_wait_until(struct condition *c, struct mutex *m, uint64_t deadline_ns)
{
    if (deadline_ns == CLOCK_NEVER) {
        condition_wait(c, m);
        return true;
    }
    uint64_t now = clock_real_now_ns();
    if (now >= deadline_ns)
        return false;
    /* Conditions cannot wait on CLOCK_BOOTTIME; the rest of the time is moved to CLOCK_MONOTONIC,
     * at most an hour of it (the caller repeats), so that a sleep of the machine is noticed. */
    uint64_t left = deadline_ns - now;
    if (left > 3600 * CLOCK_NS_PER_S)
        left = 3600 * CLOCK_NS_PER_S;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t at = (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec + left;
    t.tv_sec = (time_t)(at / CLOCK_NS_PER_S);
    t.tv_nsec = (long)(at % CLOCK_NS_PER_S);
    int rc = pthread_cond_timedwait(&c->c, &m->m, &t);
    if (rc != 0 && rc != ETIMEDOUT)
        abort();
    return rc == 0 || clock_real_now_ns() < deadline_ns;
}
