/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications bound to transfers: one thread watches the tasks, because whoever polls them must
 * not wait for another peer's answer. */
#define LOG_ROOM "peer"
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "engine/bulk.h"
#include "peer/internal.h"
#include "platform/clock.h"

enum { PENDING_MAX = 4096, LOOK_NS = 200 * 1000, TARGETS_MAX = 64, LOOK_TASKS = 64 };

struct peer_pending {
    struct base_list node;
    uint64_t batch;
    uint32_t first, count;
    char name[PEER_NAME_MAX];
    void *message;
    size_t message_size;
    size_t target_count;
    struct {
        uint64_t segment;
        struct peer_entry *entry; /* held, so that a close meanwhile loses nothing; NULL: none */
    } targets[TARGETS_MAX];
};

enum outcome { OUTCOME_WAIT, OUTCOME_SEND, OUTCOME_DROP };

enum yolk_status peer_notification_check(const char *name, size_t message_size)
{
    if (strlen(name) < PEER_NAME_MAX && message_size <= MAX_PEER_MESSAGE)
        return YOLK_OK;
    return base_fail(YOLK_ERR_TOO_LARGE, 0,
                     "a notification of %zu and %zu bytes: at most %d and %u", strlen(name),
                     message_size, PEER_NAME_MAX - 1, MAX_PEER_MESSAGE);
}

void peer_notifier_init(struct peer_notifier *notifier)
{
    memset(notifier, 0, sizeof(*notifier));
    mutex_init(&notifier->lock);
    condition_init(&notifier->wake);
    base_list_init(&notifier->pending);
}

static void pending_free(struct yolk_peer *peer, struct peer_pending *pending)
{
    for (size_t i = 0; i < pending->target_count; i++)
        if (pending->targets[i].entry != NULL)
            peer_entry_release(peer, pending->targets[i].entry);
    free(pending->message);
    free(pending);
}

/* Makes progress as a wait does: a poll would end for good what failed, where failover is not for
 * polls. */
static enum outcome look_at(struct yolk_peer *peer, const struct peer_pending *pending)
{
    struct yolk_task_status tasks[LOOK_TASKS];
    if (yolk_engine_batch_progress(peer->engine, pending->batch, NULL) != YOLK_OK)
        return OUTCOME_DROP;
    for (uint32_t from = 0; from < pending->count; from += LOOK_TASKS) {
        uint32_t left = pending->count - from, count = left < LOOK_TASKS ? left : LOOK_TASKS;
        if (engine_batch_look(peer->engine, pending->batch, pending->first + from, count, tasks) !=
            YOLK_OK)
            return OUTCOME_DROP;
        for (uint32_t i = 0; i < count; i++) {
            if (!tasks[i].terminal)
                return OUTCOME_WAIT;
            if (tasks[i].status != YOLK_OK)
                return OUTCOME_DROP;
        }
    }
    return OUTCOME_SEND;
}

static void send_each(struct yolk_peer *peer, const struct peer_pending *pending)
{
    for (size_t i = 0; i < pending->target_count; i++)
        if (peer_entry_notify(peer, pending->targets[i].entry, pending->name, pending->message,
                              pending->message_size) != YOLK_OK)
            log_warn("notification \"%s\" was not delivered: %s", pending->name, yolk_last_error());
}

static void notifier_main(void *arg)
{
    struct yolk_peer *peer = arg;
    struct peer_notifier *notifier = &peer->notifier;
    mutex_lock(&notifier->lock);
    while (!notifier->ending) {
        struct peer_pending *ready = NULL;
        BASE_LIST_FOREACH_SAFE(node, &notifier->pending)
        {
            struct peer_pending *pending = BASE_CONTAINER(node, struct peer_pending, node);
            enum outcome outcome = look_at(peer, pending);
            if (outcome == OUTCOME_WAIT)
                continue;
            base_list_remove(node);
            notifier->count--;
            if (outcome == OUTCOME_SEND) {
                ready = pending;
                break;
            }
            pending_free(peer, pending);
        }
        if (ready != NULL) {
            mutex_unlock(&notifier->lock);
            send_each(peer, ready);
            pending_free(peer, ready);
            mutex_lock(&notifier->lock);
        } else if (base_list_empty(&notifier->pending)) {
            condition_wait(&notifier->wake, &notifier->lock);
        } else {
            (void)condition_wait_until(&notifier->wake, &notifier->lock,
                                       clock_after(clock_real_now_ns(), LOOK_NS));
        }
    }
    mutex_unlock(&notifier->lock);
}

static enum yolk_status add_target(struct yolk_peer *peer, struct peer_pending *pending,
                                   uint64_t segment)
{
    enum yolk_status ignored; /* the request of a handle that is none is refused, and all this */
    for (size_t i = 0; i < pending->target_count; i++)
        if (pending->targets[i].segment == segment)
            return YOLK_OK;
    if (pending->target_count == TARGETS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "one submit notifies at most %d peers", TARGETS_MAX);
    pending->targets[pending->target_count].segment = segment;
    pending->targets[pending->target_count++].entry = peer_directory_find(peer, segment, &ignored);
    return YOLK_OK;
}

static enum yolk_status reserve(struct yolk_peer *peer)
{
    struct peer_notifier *notifier = &peer->notifier;
    enum yolk_status status = YOLK_OK;
    mutex_lock(&notifier->lock);
    if (notifier->count >= PENDING_MAX)
        status = base_fail(YOLK_ERR_LIMIT, 0, "%d notifications wait for their transfers already",
                           PENDING_MAX);
    if (status == YOLK_OK && !notifier->started) {
        status = thread_start(&notifier->thread, "yolk-notify", notifier_main, peer);
        notifier->started = status == YOLK_OK;
    }
    if (status == YOLK_OK)
        notifier->count++;
    mutex_unlock(&notifier->lock);
    return status;
}

enum yolk_status peer_notifier_prepare(struct yolk_peer *peer, const struct yolk_request *requests,
                                       uint32_t count, const char *name, const void *message,
                                       size_t message_size, struct peer_pending **out)
{
    struct peer_pending *pending = calloc(1, sizeof(*pending));
    void *copy = malloc(message_size + 1);
    if (pending == NULL || copy == NULL) {
        free(pending);
        free(copy);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a notification");
    }
    if (message_size > 0)
        memcpy(copy, message, message_size);
    memcpy(pending->name, name, strlen(name) + 1);
    pending->count = count;
    pending->message = copy;
    pending->message_size = message_size;
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < count && status == YOLK_OK; i++)
        status = add_target(peer, pending, requests[i].segment);
    if (status == YOLK_OK)
        status = reserve(peer);
    if (status == YOLK_OK)
        *out = pending;
    else
        pending_free(peer, pending);
    return status;
}

void peer_notifier_bind(struct yolk_peer *peer, struct peer_pending *pending, uint64_t batch,
                        uint32_t first)
{
    struct peer_notifier *notifier = &peer->notifier;
    pending->batch = batch;
    pending->first = first;
    mutex_lock(&notifier->lock);
    base_list_push_back(&notifier->pending, &pending->node);
    condition_signal(&notifier->wake);
    mutex_unlock(&notifier->lock);
}

void peer_notifier_drop(struct yolk_peer *peer, struct peer_pending *pending)
{
    mutex_lock(&peer->notifier.lock);
    peer->notifier.count--;
    mutex_unlock(&peer->notifier.lock);
    pending_free(peer, pending);
}

void peer_notifier_settle(struct yolk_peer *peer, uint64_t batch)
{
    struct peer_notifier *notifier = &peer->notifier;
    struct base_list ready;
    base_list_init(&ready);
    mutex_lock(&notifier->lock);
    BASE_LIST_FOREACH_SAFE(node, &notifier->pending)
    {
        struct peer_pending *pending = BASE_CONTAINER(node, struct peer_pending, node);
        if (pending->batch != batch)
            continue;
        base_list_remove(node);
        notifier->count--;
        if (look_at(peer, pending) == OUTCOME_SEND)
            base_list_push_back(&ready, node);
        else
            pending_free(peer, pending);
    }
    mutex_unlock(&notifier->lock);
    struct base_list *node;
    while ((node = base_list_pop_front(&ready)) != NULL) {
        struct peer_pending *pending = BASE_CONTAINER(node, struct peer_pending, node);
        send_each(peer, pending);
        pending_free(peer, pending);
    }
}

void peer_notifier_stop(struct yolk_peer *peer)
{
    struct peer_notifier *notifier = &peer->notifier;
    mutex_lock(&notifier->lock);
    notifier->ending = true;
    condition_signal(&notifier->wake);
    mutex_unlock(&notifier->lock);
    thread_join(&notifier->thread);
    struct base_list *node;
    while ((node = base_list_pop_front(&notifier->pending)) != NULL)
        pending_free(peer, BASE_CONTAINER(node, struct peer_pending, node));
    condition_destroy(&notifier->wake);
    mutex_destroy(&notifier->lock);
}
