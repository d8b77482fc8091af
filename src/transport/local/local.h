/* SPDX-License-Identifier: Apache-2.0 */
/* What this process serves to itself, memory or files: found by a random token, so that a text of
 * an earlier life finds nothing; each access counted before it is asked for, so that once fence and
 * hide have looked at the counts no earlier permission is still in use. */
#ifndef TRANSPORT_LOCAL_LOCAL_H
#define TRANSPORT_LOCAL_LOCAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <yolk/transport.h>

#include "base/list.h"

enum { LOCAL_STRIPES = 64 };

/* One a kind of thing that is served; the texts of one kind find nothing in another's. */
struct local_table {
    pthread_mutex_t lock;
    struct base_list list;
    const char *elsewhere; /* "it is in another process": why there is no route */
};
#define LOCAL_TABLE(name, text)                                                                    \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, {&(name).list, &(name).list}, text                              \
    }

/* The head of what is served: its first member, allocated by malloc. */
struct local_served {
    struct base_list node;
    uint64_t token;
    uint64_t size;
    _Atomic bool gone;
    _Atomic uint64_t references;            /* the provider's and one a target */
    _Atomic uint64_t writes[LOCAL_STRIPES]; /* under way, by session */
    _Atomic uint64_t accesses;              /* under way, of any kind */
};

/* Makes the text "pid,token" and puts it into the table. BUFFER_SMALL: no room for the text; it is
 * not in the table, and still the caller's. */
YOLK_MUST_USE enum yolk_status local_serve(struct local_table *table, struct local_served *served,
                                           uint64_t size, char *text, size_t text_size);
/* No new access begins. The caller waits for those under way (local_is_idle), then drops it. */
void local_hide(struct local_table *table, struct local_served *served);
bool local_is_idle(const struct local_served *served);
/* Gives a reference back; the last one frees. */
void local_drop(struct local_served *served);
/* YOLK_OK once no write of the session is under way, else AGAIN. */
enum yolk_status local_fence(struct local_served *served, uint64_t session);

/* Another reference to what `text` names, of at least `size` bytes. INVALID, NO_ROUTE (another
 * process), STALE. */
YOLK_MUST_USE enum yolk_status local_find(struct local_table *table, const char *text,
                                          uint64_t size, struct local_served **out);

/* Only between these two may what is served be looked at. PEER_DEAD: it is served no more. */
YOLK_MUST_USE enum yolk_status local_enter(struct local_served *served);
void local_leave(struct local_served *served);
/* Around a write, begun before it is asked for. */
void local_write_begins(struct local_served *served, uint64_t session);
void local_write_ends(struct local_served *served, uint64_t session);

#endif
