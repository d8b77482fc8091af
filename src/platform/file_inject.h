/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that goes wrong on purpose, around any other: for tests.
 *
 * Rules are text, "KIND:WHEN=WHAT" joined by commas.
 *   KIND  open, read, write, sync, allocate: what is counted, from 0, over all files
 *   WHEN  N the one operation, N+M so many from N on, N+TIME (as 2s) all from N on for so long,
 *         N+ all from N on
 *   WHAT  eio, enospc, eopnotsupp, einval, eagain, eintr: how it fails (einval of a read or write
 * is the refusal of direct I/O, so it ends with that); nodirect (open): direct I/O is refused;
 *         short: a read or write around this service moves half; kill: the process dies before it;
 *         tear: half of the write is done, then it dies; a size as 20MiB: so many bytes a second
 * Of I/O that goes around the service (io_uring's) only the answer is changed: see file_completed.
 */
#ifndef PLATFORM_FILE_INJECT_H
#define PLATFORM_FILE_INJECT_H

#include "platform/file.h"

struct file_inject;

/* CONFIG: a rule is wrong; the text says which and why. */
YOLK_MUST_USE int file_inject_create(const struct file_system *inner, const char *rules,
                                     struct file_inject **out);
void file_inject_destroy(struct file_inject *inject);
struct file_system file_inject_system(struct file_inject *inject);
/* How often an operation was changed so far. */
uint64_t file_inject_hits(const struct file_inject *inject);
/* In place of sleeping, where a rule makes it slow. */
void file_inject_set_pause(struct file_inject *inject, void (*pause)(void *self, uint64_t ns),
                           void *self);

#endif
