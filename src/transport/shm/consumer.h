/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer side, inside: consumer.c has targets and their two links, channel.c the ios. */
#ifndef TRANSPORT_SHM_CONSUMER_H
#define TRANSPORT_SHM_CONSUMER_H

#include "base/buf.h"
#include "platform/net.h"
#include "platform/thread.h"
#include "transport/shm/internal.h"

/* Of the mapping, made present at once: one page table. */
#define SHM_AHEAD_STEP ((uint64_t)2 * 1024 * 1024)

enum shm_link_state { SHM_CLOSED, SHM_HELLO, SHM_WAIT_OPENED, SHM_READY };

struct shm_link {
    struct shm_target *target;
    bool writable;
    struct mutex mutex;
    /* under the mutex */
    enum shm_link_state state;
    int fd;
    uint64_t deadline_ns;
    struct wire_hello_machine hello;
    struct base_buf out, in;
    struct memory_mapping data, page;
    /* For each AHEAD_STEP of data whether its pages were mapped; NULL: no memory for that. Read and
     * written by those who use the mapping. */
    _Atomic bool *ahead;
    uint64_t size;
    uint32_t users;
    bool pinned;      /* target_map gave the address away */
    _Atomic int dead; /* a status once it must not be used any more; written under the mutex */
    bool was_ready;
    int last_status;
    char last_text[200];
    uint64_t retry_ns, backoff_ns;
};

struct shm_target {
    const struct shm_settings *settings;
    struct net_address address;
    char instance[SHM_INSTANCE_TEXT];
    uint64_t segment, size, session;
    struct shm_link links[2]; /* [0] reads, [1] writes */
};

/* OK: the mapping stays until shm_link_leave. AGAIN: not yet connected. */
YOLK_MUST_USE int shm_link_enter(struct shm_link *l);
void shm_link_leave(struct shm_link *l);
/* AGAIN: not yet connected at until_ns. */
YOLK_MUST_USE int shm_link_connect(struct shm_link *l, uint64_t until_ns);
/* The id that the provider serves now. */
static inline uint64_t shm_link_segment(const struct shm_link *l)
{
    const struct shm_header *header = l->page.address;
    return atomic_load_explicit(&header->segment, memory_order_acquire);
}

#endif
