/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this process serves, as the file transports see them: found by a random token, so that
 * a text of an earlier life finds nothing; each access counted before it is asked for. */
#ifndef TRANSPORT_FILE_SERVED_H
#define TRANSPORT_FILE_SERVED_H

#include <stdatomic.h>
#include <stdbool.h>

#include <yolk/transport.h>

#include "base/list.h"
#include "platform/file.h"
#include "platform/thread.h"

enum { FILE_SERVED_STRIPES = 64, FILE_SERVED_UNIT_MAX = 65536 };

struct file_served {
    struct base_list node;
    uint64_t token;
    struct file *file;
    int descriptor;
    uint64_t base; /* of the segment in the file */
    uint64_t size;
    uint64_t file_end; /* not 0: the file ends here, and no padding may lengthen it */
    struct file_alignment alignment;
    bool pad_writes;
    struct yolk_access access;
    _Atomic bool gone;
    _Atomic uint64_t references;                  /* the provider's and one a target */
    _Atomic uint64_t writes[FILE_SERVED_STRIPES]; /* under way, by session */
    _Atomic uint64_t accesses;
};

struct file_target {
    struct file_served *served;
    uint64_t segment;
    uint64_t session;
};

/* The process's counts, of all file transports together. */
struct file_transport_stats {
    uint64_t reads, writes; /* ended well */
    uint64_t bytes_direct;  /* moved straight between the file and the caller's memory */
    uint64_t bytes_bounced; /* moved through an aligned bounce buffer */
    uint64_t bytes_cached;  /* moved through the page cache */
    uint64_t depth_max;     /* ios of one channel under way at once */
    uint64_t steps;         /* reads and writes asked of the system */
    uint64_t retried;       /* steps made again: short, interrupted, refused for now */
};
void file_transport_stats(struct file_transport_stats *out);
/* So that a test sees its own. */
void file_transport_stats_reset_depth(void);

/* For serve: checks that it is a file, makes the text "pid,token". */
YOLK_MUST_USE enum yolk_status file_served_make(const struct yolk_serve *serve,
                                                struct file_served **out, char *text,
                                                size_t text_size);
/* No new access begins. The caller waits for those under way, then drops it. */
void file_served_hide(struct file_served *served);
void file_served_drop(struct file_served *served);
/* YOLK_OK once no write of the session is under way, else AGAIN. */
enum yolk_status file_served_fence(struct file_served *served, uint64_t session);

YOLK_MUST_USE enum yolk_status file_target_open(const char *text, uint64_t segment, uint64_t size,
                                                uint64_t session, struct file_target **out);
void file_target_close(struct file_target *target);

/* Only between these two may the file be looked at: unserve waits. PEER_DEAD: it is served no
 * more. */
enum yolk_status file_served_enter(struct file_served *served);
void file_served_leave(struct file_served *served);
/* Counts the access in and asks; with YOLK_OK file_served_end must follow. */
enum yolk_status file_served_begin(struct file_served *served,
                                   const struct yolk_access_request *request);
void file_served_end(struct file_served *served, const struct yolk_access_request *request);

/* Both blocks (different; UINT64_MAX: none) or neither. Held over a read, change and write back. */
bool file_served_lock_blocks(const struct file_served *served, const uint64_t blocks[2]);
void file_served_unlock_blocks(const struct file_served *served, const uint64_t blocks[2]);

#endif
