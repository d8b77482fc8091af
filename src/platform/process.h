/* SPDX-License-Identifier: Apache-2.0 */
/* What a process asks of the system at its start. */
#ifndef PLATFORM_PROCESS_H
#define PLATFORM_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yolk/status.h"

/* Lets this process have as many open files as it may give itself: a connection is one, and with
 * shared memory a segment is two. Whether it worked stands in the log. */
void process_raise_file_limit(void);

/* Reads a shared secret from a file: its bytes without trailing line ends, 1 to `secret_max`.
 * CONFIG also for a file that others than its owner may use. */
YOLK_MUST_USE int process_read_secret(const char *path, uint8_t *secret, size_t secret_max,
                                      size_t *size);

/* The first of `count` numbers from `first` on, beginning with `start` and coming round, that no
 * other process of this host (of its network namespace) keeps under this name. It is kept until *fd
 * is closed, at the latest with the process. LIMIT: each is kept by somebody; SYSTEM. */
YOLK_MUST_USE int process_keep_number(const char *name, unsigned first, unsigned count,
                                      unsigned start, unsigned *number, int *fd);

/* This program once more, as a process of its own that does one thing: code of this library that
 * runs before main and sees the environment's `variable` (process_asked) answers with a line and
 * ends it. For what may hang or take its process with it. The answer is in answer, without its end.
 * TIMEOUT: it took longer and was killed; SYSTEM: it could not be started, or ended without an
 * answer, the text saying how. */
YOLK_MUST_USE int process_ask(const char *variable, const char *value, uint64_t timeout_ms,
                              char *answer, size_t answer_size);
/* In such a process: the variable's value. NULL: this is not one. */
const char *process_asked(const char *variable);
/* Ends it. */
__attribute__((noreturn)) void process_answer(const char *answer);

/* How many forks lie between this process and the one that first called process_count_forks: what
 * is kept of it tells a child from its parent, without a call of the system. */
void process_count_forks(void);
extern uint32_t process_fork_count;
static inline uint32_t process_forks(void)
{
    return process_fork_count;
}

/* A process that is not ending has this file open, as far as this one may see that of others, and
 * finds it within the time. One that was killed shows no files any more, while the kernel ends what
 * it had under way and its locks stay. */
bool process_uses_file(const char *path, uint64_t deadline_ns);

/* Names the machine's life since it was started; zeros where that cannot be known. */
void process_boot_id(uint8_t out[16]);

#endif
