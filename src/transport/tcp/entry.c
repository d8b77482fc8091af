/* SPDX-License-Identifier: Apache-2.0 */
/* What one request of the consumer is, from its submit to its completion. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "transport/tcp/link.h"

struct tcp_entry *tcp_entry_take(struct tcp_channel *ch)
{
    struct tcp_entry *e;
    if (!base_list_empty(&ch->spare)) {
        e = BASE_CONTAINER(ch->spare.next, struct tcp_entry, node);
        base_list_remove(&e->node);
    } else {
        if (ch->fresh == 0) {
            struct tcp_entry_chunk *chunk = base_malloc(sizeof *chunk);
            if (chunk == NULL)
                return NULL;
            chunk->next = ch->chunks;
            ch->chunks = chunk;
            ch->fresh = TCP_ENTRY_CHUNK;
        }
        e = &ch->chunks->entries[--ch->fresh];
    }
    memset(e, 0, offsetof(struct tcp_entry, frame));
    base_list_init(&e->node);
    return e;
}

void tcp_entry_give_back(struct tcp_channel *ch, struct tcp_entry *e)
{
    base_list_push_front(&ch->spare, &e->node);
}

void tcp_entries_free(struct tcp_channel *ch)
{
    while (ch->chunks != NULL) {
        struct tcp_entry_chunk *chunk = ch->chunks;
        ch->chunks = chunk->next;
        free(chunk);
    }
}

void tcp_entries_end(struct base_list *over)
{
    while (!base_list_empty(over)) {
        struct tcp_entry *e = BASE_CONTAINER(over->next, struct tcp_entry, node);
        base_list_remove(&e->node);
        struct tcp_channel *ch = e->channel;
        if (ch == NULL) {
            free(e);
            continue;
        }
        mutex_lock(&ch->mutex);
        for (;;) {
            e->channel = NULL;
            base_list_push_back(&ch->done, &e->node);
            e = base_list_empty(over) ? NULL : BASE_CONTAINER(over->next, struct tcp_entry, node);
            if (e == NULL || e->channel != ch)
                break;
            base_list_remove(&e->node);
        }
        if (ch->armed) {
            uint64_t one = 1;
            ssize_t n = write(ch->wake, &one, sizeof one);
            (void)n; /* it is set already then */
            ch->armed = false;
        }
        /* The channel may be closed by its owner from here on. */
        mutex_unlock(&ch->mutex);
    }
}

void tcp_entry_end(struct tcp_entry *e, int status, uint64_t transferred)
{
    struct base_list over;
    base_list_init(&over);
    e->completion.status = (enum yolk_status)status;
    e->completion.transferred = transferred;
    base_list_push_back(&over, &e->node);
    tcp_entries_end(&over);
}
