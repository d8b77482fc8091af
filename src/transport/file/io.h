/* SPDX-License-Identifier: Apache-2.0 */
/* One io of a file as a sequence of steps, each one vectored read or write that direct I/O takes
 * whatever the io's own alignment. Pure but for the access count: who drives it (a ring, a thread)
 * makes the steps and says what came of them.
 *
 * The aligned middle moves straight between the file and the caller's memory, the blocks cut by the
 * head and tail go through a bounce buffer in the same step. Memory that is not aligned goes
 * through the bounce buffer as a whole, piece by piece. A write that cuts a block reads it first,
 * unless the file says that the rest may be overwritten. */
#ifndef TRANSPORT_FILE_IO_H
#define TRANSPORT_FILE_IO_H

#include <sys/uio.h>

#include "transport/file/served.h"

#define FILE_IO_BOUNCE 131072u             /* bytes of a bounce buffer, itself aligned to 4096 */
#define FILE_IO_MAX    (UINT64_C(1) << 20) /* largest io */

enum file_io_stage { FILE_IO_FILL_HEAD, FILE_IO_FILL_TAIL, FILE_IO_MOVE };

struct file_io {
    struct file_served *served;
    struct yolk_access_request request;
    struct yolk_ticket ticket;
    uint64_t cookie;
    uint8_t *local;
    uint64_t from, to; /* wanted, in the file */
    uint32_t unit;     /* what offsets and sizes of steps are multiples of; 1: no direct I/O */
    bool bounced;      /* as a whole */
    bool allowed;      /* set by the driver after the plan: it has asked for the access itself, and
                        * ends it */
    bool needs_bounce;
    enum yolk_status ending; /* not OK, set by the driver: no further step, it ends as this */
    bool rebuffered;         /* direct I/O was refused to it once */
    uint8_t *bounce;
    uint64_t locked[2]; /* blocks, see file_served_lock_blocks */
    uint64_t at, until; /* the piece being worked on, in units */
    enum file_io_stage stage;
    size_t done; /* bytes of the step that are over */
    enum yolk_status status;
    uint64_t *tell_bounced; /* the asked one's */
};

struct file_io_step {
    struct iovec parts[3];
    int count;
    bool write;
    uint64_t offset;
    size_t size;
};

/* Plans it, asked being borrowed until its end; says in needs_bounce whether start must be given a
 * buffer. A failure ends it; after YOLK_OK comes start or abandon. */
enum yolk_status file_io_plan(struct file_io *io, const struct file_target *target,
                              struct yolk_io *asked);
void file_io_abandon(struct file_io *io);
/* Asks for the access. AGAIN: another io works on one of its blocks; this and other failures end
 * it. With YOLK_OK there are steps to make (none for no bytes) and file_io_finish must follow. */
enum yolk_status file_io_start(struct file_io *io, uint8_t *bounce);
/* Is there a step to make? */
bool file_io_step(struct file_io *io, struct file_io_step *out);
/* Bytes, or -errno, of the step. */
void file_io_result(struct file_io *io, ssize_t result);
/* Ends the access. io->status is its result, *transferred the bytes in place from the start. */
void file_io_finish(struct file_io *io, uint64_t *transferred);
/* All steps of one that is started, in this thread. */
void file_io_run(struct file_io *io);

/* For drivers. */
void file_io_count_depth(uint64_t depth);

#endif
