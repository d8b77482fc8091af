/* SPDX-License-Identifier: Apache-2.0 */
/* The few connections of a target together, and the writes whose end only its provider can tell. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "transport/tcp/link.h"

enum {
    BACKOFF_MIN_MS = 10,
    BACKOFF_MAX_MS = 1000,
    QUIET_PERIOD_MS = 2,
};

void tcp_limbo_resolve(struct tcp_target *t, uint64_t id, int status)
{
    BASE_LIST_FOREACH_SAFE(node, &t->limbo)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (id != 0 && e->limbo_id != id)
            continue;
        base_list_remove(node);
        (void)atomic_fetch_sub(&t->limbo_count, 1);
        tcp_entry_end(e, e->canceled && status == YOLK_ERR_LINK ? YOLK_ERR_CANCELED : status, 0);
    }
}

void tcp_limbo_add(struct tcp_target *t, struct tcp_entry *e, uint64_t id, uint64_t now_ns)
{
    e->limbo_id = id;
    e->lost_ns = now_ns;
    base_list_push_back(&t->limbo, &e->node);
    (void)atomic_fetch_add(&t->limbo_count, 1);
    t->limbo_asked_ns = 0;
}

int tcp_target_note_failure(struct tcp_target *t, int status)
{
    if (status == YOLK_ERR_REFUSED && t->was_connected)
        status = YOLK_ERR_PEER_DEAD;
    if (t->backoff_ns < BACKOFF_MIN_MS * NS_PER_MS)
        t->backoff_ns = BACKOFF_MIN_MS * NS_PER_MS;
    t->retry_ns = clock_after(clock_real_now_ns(), t->backoff_ns);
    t->backoff_ns *= 2;
    if (t->backoff_ns > BACKOFF_MAX_MS * NS_PER_MS)
        t->backoff_ns = BACKOFF_MAX_MS * NS_PER_MS;
    t->last_status = status;
    (void)snprintf(t->last_text, sizeof t->last_text, "%s", yolk_last_error());
    /* Nobody listens, or somebody else: the provider's process is gone, and its memory with it. */
    if (status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_STALE)
        tcp_limbo_resolve(t, 0, YOLK_ERR_PEER_DEAD);
    return status;
}

int tcp_target_init(struct tcp_target *t)
{
    base_list_init(&t->node);
    base_list_init(&t->limbo);
    mutex_init(&t->mutex);
    t->link_count = t->settings->connections_max;
    if (t->link_count > TCP_LINKS_MAX)
        t->link_count = TCP_LINKS_MAX;
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        l->target = t;
        l->fd = -1;
        mutex_init(&l->mutex);
        base_list_init(&l->entries);
    }
    return YOLK_OK;
}

void tcp_target_stop(struct tcp_target *t)
{
    mutex_lock(&t->mutex);
    t->stopped = true;
    mutex_unlock(&t->mutex);
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        mutex_lock(&l->mutex);
        if (atomic_load(&l->state) != LINK_CLOSED)
            tcp_link_fail(l, YOLK_ERR_CLOSED);
        mutex_unlock(&l->mutex);
    }
    mutex_lock(&t->mutex);
    tcp_limbo_resolve(t, 0, YOLK_ERR_STUCK);
    mutex_unlock(&t->mutex);
}

void tcp_target_fini(struct tcp_target *t)
{
    tcp_target_stop(t);
    for (uint32_t i = 0; i < t->link_count; i++)
        mutex_destroy(&t->links[i].mutex);
    mutex_destroy(&t->mutex);
}

static bool target_has_ready(struct tcp_target *t)
{
    for (uint32_t i = 0; i < t->link_count; i++) {
        if (atomic_load(&t->links[i].state) == LINK_READY)
            return true;
    }
    return false;
}

int tcp_target_connect(struct tcp_target *t)
{
    struct tcp_link *l = &t->links[0];
    int status = YOLK_OK;
    if (target_has_ready(t))
        return YOLK_OK;
    mutex_lock(&l->mutex);
    if (atomic_load(&l->state) == LINK_CLOSED)
        status = tcp_link_open(l);
    if (status == YOLK_OK) {
        tcp_link_drive(l);
        int state = atomic_load(&l->state);
        mutex_lock(&t->mutex);
        if (state == LINK_CLOSED)
            status = base_fail(t->last_status, 0, "%s", t->last_text);
        else if (state != LINK_READY)
            status = base_fail(YOLK_ERR_AGAIN, 0, "tcp: still connecting");
        mutex_unlock(&t->mutex);
    }
    mutex_unlock(&l->mutex);
    return status;
}

/* Asks the provider whether a lost connection is closed there too. */
static void limbo_drive(struct tcp_target *t)
{
    uint64_t id = 0, now = clock_real_now_ns();
    mutex_lock(&t->mutex);
    BASE_LIST_FOREACH_SAFE(node, &t->limbo)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (now - e->lost_ns > t->settings->stop_timeout_ns) {
            base_list_remove(node);
            (void)atomic_fetch_sub(&t->limbo_count, 1);
            tcp_entry_end(e, YOLK_ERR_STUCK, 0);
        } else if (id == 0) {
            id = e->limbo_id;
        }
    }
    if (id != 0 && now - t->limbo_asked_ns < QUIET_PERIOD_MS * NS_PER_MS)
        id = 0;
    if (id != 0)
        t->limbo_asked_ns = now;
    mutex_unlock(&t->mutex);
    if (id == 0)
        return;
    struct tcp_link *l = &t->links[0];
    for (uint32_t i = 0; i < t->link_count; i++) {
        if (atomic_load(&t->links[i].state) == LINK_READY)
            l = &t->links[i];
    }
    mutex_lock(&l->mutex);
    if (atomic_load(&l->state) == LINK_CLOSED)
        base_ignore(tcp_link_open(l)); /* a failure resolves the limbo, or is tried again */
    struct tcp_entry *e = NULL;
    if (atomic_load(&l->state) == LINK_READY)
        e = calloc(1, sizeof *e);
    if (e != NULL) {
        struct tcp_frame frame = {.kind = TCP_QUIET, .request_id = ++l->next_request, .id = id};
        e->kind = ENTRY_QUIET;
        e->limbo_id = id;
        e->request_id = frame.request_id;
        e->frame_size = tcp_frame_encode(&frame, e->frame);
        tcp_link_append(l, e);
    }
    tcp_link_drive(l);
    mutex_unlock(&l->mutex);
}

void tcp_target_drive(struct tcp_target *t)
{
    for (uint32_t i = 0; i < t->link_count; i++) {
        struct tcp_link *l = &t->links[i];
        int state = atomic_load_explicit(&l->state, memory_order_relaxed);
        if (state == LINK_CLOSED || (state == LINK_READY && atomic_load(&l->bytes) == 0))
            continue;
        if (!mutex_trylock(&l->mutex))
            continue; /* somebody drives it */
        tcp_link_drive(l);
        mutex_unlock(&l->mutex);
    }
    if (atomic_load(&t->limbo_count) > 0)
        limbo_drive(t);
}

uint64_t tcp_target_moved_ns(const struct tcp_target *t)
{
    uint64_t latest = 0;
    for (uint32_t i = 0; i < t->link_count; i++) {
        const struct tcp_link *l = &t->links[i];
        uint64_t moved = atomic_load_explicit(&l->moved_ns, memory_order_relaxed);
        if (atomic_load_explicit(&l->bytes, memory_order_relaxed) > 0 && moved > latest)
            latest = moved;
    }
    return latest;
}

uint32_t tcp_target_wait_fds(struct tcp_target *t, uint32_t links, struct pollfd *fds, uint32_t max)
{
    uint32_t n = 0;
    if (atomic_load(&t->limbo_count) > 0)
        return 0;
    for (uint32_t i = 0; i < t->link_count && n < max; i++) {
        struct tcp_link *l = &t->links[i];
        int state = atomic_load(&l->state);
        if ((links & 1u << i) == 0 || state == LINK_CLOSED ||
            (state == LINK_READY && atomic_load(&l->bytes) == 0))
            continue;
        mutex_lock(&l->mutex);
        short events = tcp_link_events(l);
        if (events != 0)
            fds[n++] = (struct pollfd){l->fd, events, 0};
        mutex_unlock(&l->mutex);
    }
    return n;
}
