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

enum shm_link_state {
    SHM_CLOSED,
    SHM_CONNECTING,
    SHM_HELLO,
    SHM_WAIT_OPENED,
    SHM_MAPPING, /* the mapper still asks */
    SHM_READY
};

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
    struct memory_mapping data, page; /* no page over a connection from machine to machine */
    void *mapping;                    /* of the settings' mapper, in place of data */
    struct shm_opened opened;         /* and what came with it, while it is being mapped */
    int handed[2];
    bool asked; /* an answer is to come, into `in` */
    bool remote;
    /* For each AHEAD_STEP of data whether its pages were mapped; NULL: no memory for that. Read and
     * written by those who use the mapping. */
    _Atomic bool *ahead;
    struct device_range *range; /* data, for a GPU's driver; NULL: not used so, or it cannot be */
    bool registered;            /* it was tried */
    uint64_t size;
    uint32_t users;
    bool pinned;      /* target_map gave the address away */
    _Atomic int dead; /* a status once it must not be used any more; written under the mutex */
    bool was_ready;
    uint64_t used_ns; /* when somebody last left it */
    bool elsewhere;   /* on another machine, as far as one sees */
    int last_status;
    char last_text[320];
    uint64_t retry_ns, backoff_ns;
};

struct shm_target {
    const struct shm_settings *settings;
    struct net_address address;
    char instance[SHM_INSTANCE_TEXT];
    uint64_t segment, size, session;
    uint32_t generation; /* other memory under the same id has another one; 0: any */
    const void *what;    /* for the settings' mapper */
    bool tcp;            /* tcp_address is where its socket cannot be reached */
    bool only_tcp;       /* the socket is another machine's */
    struct net_address tcp_address;
    struct shm_link links[2]; /* [0] reads, [1] writes */
};

/* OK: the mapping stays until shm_link_leave. AGAIN: not yet connected. */
YOLK_MUST_USE int shm_link_enter(struct shm_link *l);
void shm_link_leave(struct shm_link *l);
/* By one who has entered: the mapping for a GPU's driver, or NULL. */
struct device_range *shm_link_range(struct shm_link *l);
/* Another user, by somebody who is one: cannot fail. */
void shm_link_hold(struct shm_link *l);
/* Lets go of a mapping that the provider has ended, or that nobody has used since that time. */
void shm_link_tidy(struct shm_link *l, uint64_t unused_since_ns);
/* By which the provider's end of it is noticed (POLLRDHUP); -1: there is nothing to notice. */
int shm_link_watch(struct shm_link *l);
/* AGAIN: not yet connected at until_ns. */
YOLK_MUST_USE int shm_link_connect(struct shm_link *l, uint64_t until_ns);
/* Asks the provider; AGAIN: it has not answered yet, call again with the same question. Of an
 * answer that says no, its status and text. Holds the mutex; while it is connected. *fd: what came
 * with the answer, the caller's; -1: nothing. */
YOLK_MUST_USE int shm_link_ask(struct shm_link *l, const struct shm_ask *ask,
                               struct shm_answer *answer, int *fd);
/* The id that the provider serves now. */
static inline uint64_t shm_link_segment(const struct shm_link *l)
{
    const struct shm_header *header = l->page.address;
    if (header == NULL)
        return l->target->segment;
    return atomic_load_explicit(&header->segment, memory_order_acquire);
}

#endif
