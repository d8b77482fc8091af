/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files for the provider: a few threads, so that no worker waits for a disk, and as many
 * staging buffers, so that slow receivers take no more memory than that. */
#ifndef TRANSPORT_TCP_DISK_H
#define TRANSPORT_TCP_DISK_H

#include "transport/file/io.h"

struct tcp_disk;

struct tcp_disk_job {
    struct base_list node; /* init: in no list */
    struct file_target target;
    struct yolk_io io; /* a read; local is set by us */
    uint8_t *staging;  /* io.size bytes when done, until given back; NULL: it failed */
    enum yolk_status status;
    void (*done)(struct tcp_disk_job *job); /* on one of our threads */
};

YOLK_MUST_USE enum yolk_status tcp_disk_create(struct tcp_disk **out);
/* Runs the job some time; CLOSED: not any more. */
YOLK_MUST_USE enum yolk_status tcp_disk_submit(struct tcp_disk *disk, struct tcp_disk_job *job);
void tcp_disk_give_back(struct tcp_disk *disk, uint8_t *staging);
/* What nobody began is done as CLOSED; joins the threads. */
void tcp_disk_stop(struct tcp_disk *disk);
/* After stop, and when all staging was given back. */
void tcp_disk_destroy(struct tcp_disk *disk);

#endif
