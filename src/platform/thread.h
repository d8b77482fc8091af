/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that have a name and block all signals (the host owns its signals), a mutex and a
 * condition whose waits take a CLOCK_BOOTTIME deadline. */
#ifndef PLATFORM_THREAD_H
#define PLATFORM_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "yolk/status.h"

struct thread {
    pthread_t id;
    bool running;
};

YOLK_MUST_USE int thread_start(struct thread *t, const char *name, void (*run)(void *arg),
                               void *arg);
/* Waits for its end; no effect on a thread that never started. */
void thread_join(struct thread *t);
bool thread_is_self(const struct thread *t);
unsigned thread_cpu_count(void); /* those this process may use, at least 1 */
/* For loops that wait for another processor. */
static inline void thread_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct mutex {
    pthread_mutex_t m;
};
struct condition {
    pthread_cond_t c;
};

void mutex_init(struct mutex *m);
void mutex_destroy(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);
bool mutex_trylock(struct mutex *m);

void condition_init(struct condition *c);
void condition_destroy(struct condition *c);
void condition_signal(struct condition *c);
void condition_broadcast(struct condition *c);
void condition_wait(struct condition *c, struct mutex *m);
/* False once the deadline (clock_real) has passed. Spurious wake-ups answer true: check and repeat.
 */
bool condition_wait_until(struct condition *c, struct mutex *m, uint64_t deadline_ns);

#endif
