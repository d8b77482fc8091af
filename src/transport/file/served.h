/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this process serves, as the file transports see them, and the hooks of those
 * transports that are the same in all. */
#ifndef TRANSPORT_FILE_SERVED_H
#define TRANSPORT_FILE_SERVED_H

#include <stdbool.h>

#include <yolk/transport.h>

#include "platform/file.h"
#include "transport/local/local.h"

enum { FILE_SERVED_UNIT_MAX = 65536 };

struct file_served {
    struct local_served local; /* first */
    struct file *file;
    int descriptor;
    uint64_t base;     /* of the segment in the file */
    uint64_t file_end; /* not 0: the file ends here, and no padding may lengthen it */
    struct file_alignment alignment;
    bool pad_writes;
    struct yolk_access access;
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

/* Checks that it is a file, makes the text "pid,token". */
YOLK_MUST_USE enum yolk_status file_served_make(const struct yolk_serve *serve,
                                                struct file_served **out, char *text,
                                                size_t text_size);
/* Hooks. No buffer needs to be prepared, and each access asks, so
 * that a new segment id ends nothing. */
YOLK_MUST_USE enum yolk_status file_add_buffer(void *endpoint, void *pointer, uint64_t size,
                                               void **key);
void file_remove_buffer(void *endpoint, void *key);
YOLK_MUST_USE enum yolk_status file_serve(void *endpoint, const struct yolk_serve *serve,
                                          void **served, char *text, size_t text_size);
void file_set_segment_id(void *endpoint, void *served, uint64_t segment);
enum yolk_status file_fence_session(void *endpoint, void *served, uint64_t session);
YOLK_MUST_USE enum yolk_status file_open_target(void *endpoint, const char *text, uint64_t segment,
                                                uint64_t size, uint64_t session, void **target);
/* The hook check_direct. */
YOLK_MUST_USE enum yolk_status file_check_direct(void *endpoint, void *target, const void *local,
                                                 uint64_t offset, uint64_t size);
void file_close_target(void *endpoint, void *target);
/* For unserve: no new access begins. The caller waits for those under way, then drops it. */
void file_served_hide(struct file_served *served);

/* Counts the access in and asks; with YOLK_OK file_served_end must follow. */
enum yolk_status file_served_begin(struct file_served *served,
                                   const struct yolk_access_request *request);
void file_served_end(struct file_served *served, const struct yolk_access_request *request);

/* Both blocks (different; UINT64_MAX: none) or neither. Held over a read, change and write back. */
bool file_served_lock_blocks(const struct file_served *served, const uint64_t blocks[2]);
void file_served_unlock_blocks(const struct file_served *served, const uint64_t blocks[2]);

#endif
