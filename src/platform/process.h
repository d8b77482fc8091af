/* SPDX-License-Identifier: Apache-2.0 */
/* What a process asks of the system at its start. */
#ifndef PLATFORM_PROCESS_H
#define PLATFORM_PROCESS_H

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

#endif
