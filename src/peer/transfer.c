/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by address: handles of peers become the engine's segments, all else is the engine's. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/internal.h"

/* The last peer looked up: requests of a batch mostly name one. */
struct resolved {
    uint64_t segment;
    struct peer_entry *entry;
    uint64_t engine_segment;
    enum yolk_status status;
};

static void resolve(struct yolk_peer *peer, uint64_t segment, struct resolved *last)
{
    if (last->entry != NULL && last->segment == segment)
        return;
    if (last->entry != NULL)
        peer_entry_release(peer, last->entry);
    *last = (struct resolved){.segment = segment};
    last->entry = peer_directory_find(peer, segment, &last->status);
    if (last->entry != NULL)
        last->status = peer_entry_segment(peer, last->entry, false, &last->engine_segment);
}

/* Handles that the engine refuses stand for those that are of no use, so that each request has its
 * verdict in its place. */
static struct yolk_request *translate(struct yolk_peer *peer, const struct yolk_request *requests,
                                      uint32_t count, enum yolk_status *refused)
{
    struct yolk_request *own = calloc((size_t)count + 1, sizeof(*own));
    if (own == NULL)
        return NULL;
    struct resolved last = {0};
    for (uint32_t i = 0; i < count; i++) {
        resolve(peer, requests[i].segment, &last);
        own[i] = requests[i];
        own[i].segment = last.status == YOLK_OK ? last.engine_segment : UINT64_MAX;
        refused[i] = last.status;
    }
    if (last.entry != NULL)
        peer_entry_release(peer, last.entry);
    return own;
}

enum yolk_status yolk_peer_submit(struct yolk_peer *peer, uint64_t batch,
                                  const struct yolk_request *requests, uint32_t count,
                                  enum yolk_status *verdicts, uint32_t *first)
{
    if (peer == NULL || verdicts == NULL || (requests == NULL && count > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "a submit needs requests and room for verdicts");
    enum yolk_status status = peer_check(peer);
    if (status != YOLK_OK)
        return status;
    enum yolk_status *refused = calloc((size_t)count + 1, sizeof(*refused));
    struct yolk_request *own = refused != NULL ? translate(peer, requests, count, refused) : NULL;
    if (own == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests", count);
    else
        status = yolk_engine_batch_submit(peer->engine, batch, own, count, verdicts, first);
    /* The peer's own reason says more than the engine's about a handle that was made up. */
    for (uint32_t i = 0; own != NULL && i < count; i++) {
        if (refused[i] == YOLK_OK || verdicts[i] == YOLK_OK)
            continue;
        verdicts[i] = refused[i];
        if (status == YOLK_ERR_STALE)
            status = refused[i];
    }
    free(own);
    free(refused);
    return status;
}

enum yolk_status yolk_peer_submit_notify(struct yolk_peer *peer, uint64_t batch,
                                         const struct yolk_request *requests, uint32_t count,
                                         enum yolk_status *verdicts, uint32_t *first,
                                         const char *name, const void *message, size_t message_size)
{
    uint32_t at = UINT32_MAX;
    struct peer_pending *pending;
    if (peer == NULL || name == NULL || (message == NULL && message_size > 0) || count == 0)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "a bound notification needs a name, a message and requests");
    enum yolk_status status = peer_notification_check(name, message_size);
    if (status != YOLK_OK)
        return status;
    /* All that can be refused is refused before anything moves. */
    status = peer_notifier_prepare(peer, requests, count, name, message, message_size, &pending);
    if (status != YOLK_OK)
        return status;
    status = yolk_peer_submit(peer, batch, requests, count, verdicts, &at);
    if (first != NULL)
        *first = at;
    if (status == YOLK_OK)
        peer_notifier_bind(peer, pending, batch, at);
    else
        peer_notifier_drop(peer, pending);
    return status;
}

enum yolk_status yolk_peer_describe_route(struct yolk_peer *peer,
                                          const struct yolk_request *request, char **text)
{
    enum yolk_status status;
    if (request == NULL || text == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "a route is of a request");
    struct yolk_request own = *request;
    struct peer_entry *entry = peer_directory_find(peer, request->segment, &status);
    if (entry == NULL)
        return status;
    status = peer_entry_segment(peer, entry, false, &own.segment);
    if (status == YOLK_OK)
        status = yolk_engine_describe_route(peer->engine, &own, text);
    peer_entry_release(peer, entry);
    return status;
}

enum yolk_status yolk_peer_batch_free(struct yolk_peer *peer, uint64_t batch)
{
    if (peer == NULL)
        return YOLK_ERR_INVALID;
    peer_notifier_settle(peer, batch);
    return yolk_engine_batch_free(peer->engine, batch);
}

/* ---- all of them, to their end ---- */

static int worse(enum yolk_status a, enum yolk_status b)
{
    static const enum yolk_status order[] = {YOLK_ERR_STUCK, YOLK_ERR_STALE, YOLK_ERR_PEER_DEAD};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (a == order[i] || b == order[i])
            return a == order[i];
    return b == YOLK_OK;
}

/* What another try may change: the process is another one now. Its memory is quiet. */
static bool may_be_restarted(enum yolk_status status)
{
    return status == YOLK_ERR_STALE || status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_LINK ||
           status == YOLK_ERR_REFUSED;
}

/* Requests for a second try, and how the first one ended. */
struct retry {
    struct yolk_request *requests;
    enum yolk_status *why;
    uint32_t count;
};

static bool retry_init(struct retry *retry, uint32_t room)
{
    retry->count = 0;
    retry->requests = malloc(room * sizeof(*retry->requests));
    retry->why = malloc(room * sizeof(*retry->why));
    return retry->requests != NULL && retry->why != NULL;
}

static void retry_free(struct retry *retry)
{
    free(retry->requests);
    free(retry->why);
}

/* The worst result of all but those that go to retry. */
static enum yolk_status run(struct yolk_peer *peer, const struct yolk_request *requests,
                            uint32_t count, uint64_t deadline_ns, struct retry *retry)
{
    uint64_t batch;
    uint32_t first = UINT32_MAX;
    enum yolk_status *verdicts = malloc(((size_t)count + 1) * sizeof(*verdicts));
    if (verdicts == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests", count);
    enum yolk_status result = yolk_engine_batch_create(peer->engine, count, &batch);
    if (result != YOLK_OK) {
        free(verdicts);
        return result;
    }
    enum yolk_status submitted = yolk_peer_submit(peer, batch, requests, count, verdicts, &first);
    if (first == UINT32_MAX) /* none was taken */
        result = submitted;
    enum yolk_status waited =
        result == YOLK_OK ? yolk_engine_batch_wait(peer->engine, batch, deadline_ns) : YOLK_OK;
    for (uint32_t i = 0; waited == YOLK_ERR_TIMEOUT && i < count; i++)
        base_ignore(yolk_engine_batch_cancel(peer->engine, batch, first + i));
    if (waited ==
        YOLK_ERR_TIMEOUT) /* ends: what is canceled is quiet or STUCK after the drain limit */
        base_ignore(yolk_engine_batch_wait(peer->engine, batch, 0));
    enum yolk_status worst = YOLK_OK;
    for (uint32_t i = 0; result == YOLK_OK && i < count; i++) {
        struct yolk_task_status task = {.status = verdicts[i]};
        if (verdicts[i] == YOLK_OK)
            base_ignore(yolk_engine_batch_poll(peer->engine, batch, first + i, &task));
        if (task.status == YOLK_ERR_CANCELED && waited == YOLK_ERR_TIMEOUT)
            task.status = YOLK_ERR_TIMEOUT;
        if (retry != NULL && may_be_restarted(task.status)) {
            retry->why[retry->count] = task.status;
            retry->requests[retry->count++] = requests[i];
        } else if (worse(task.status, worst)) {
            worst = task.status;
        }
    }
    base_ignore(yolk_engine_batch_free(peer->engine, batch));
    free(verdicts);
    return result != YOLK_OK ? result : worst;
}

static enum yolk_status ask_again(struct yolk_peer *peer, uint64_t segment)
{
    uint64_t ignored;
    enum yolk_status status;
    struct peer_entry *entry = peer_directory_find(peer, segment, &status);
    if (entry == NULL)
        return status;
    status = entry->is_file ? YOLK_ERR_STALE : peer_entry_segment(peer, entry, true, &ignored);
    peer_entry_release(peer, entry);
    return status;
}

/* Leaves those whose peers answer, now; the worst result of the others is told. */
static enum yolk_status find_restarted(struct yolk_peer *peer, struct retry *retry)
{
    enum yolk_status worst = YOLK_OK, answer = YOLK_OK;
    uint64_t asked = UINT64_MAX;
    uint32_t left = 0;
    for (uint32_t i = 0; i < retry->count; i++) {
        if (retry->requests[i].segment != asked)
            answer = ask_again(peer, retry->requests[i].segment);
        asked = retry->requests[i].segment;
        if (answer == YOLK_OK)
            retry->requests[left++] = retry->requests[i];
        else if (worse(retry->why[i], worst))
            worst = retry->why[i];
    }
    retry->count = left;
    return worst;
}

/* The first run's result, and that of a second one of what a restarted peer may have spoilt. */
static enum yolk_status run_twice(struct yolk_peer *peer, const struct yolk_request *requests,
                                  uint32_t count, uint64_t deadline_ns, struct retry *retry)
{
    enum yolk_status status = run(peer, requests, count, deadline_ns, retry);
    bool in_time = deadline_ns == 0 || yolk_engine_now_ns(peer->engine) < deadline_ns;
    enum yolk_status rest = YOLK_OK;
    if (status == YOLK_ERR_STUCK || !in_time) {
        for (uint32_t i = 0; i < retry->count; i++)
            rest = worse(retry->why[i], rest) ? retry->why[i] : rest;
        retry->count = 0;
    } else if (retry->count > 0) {
        rest = find_restarted(peer, retry);
    }
    if (worse(rest, status)) /* what failed in the first run failed for good */
        status = rest;
    if (retry->count > 0) {
        rest = run(peer, retry->requests, retry->count, deadline_ns, NULL);
        if (worse(rest, status))
            status = rest;
    }
    return status;
}

enum yolk_status yolk_peer_transfer(struct yolk_peer *peer, const struct yolk_request *requests,
                                    uint32_t count, uint64_t deadline_ns)
{
    if (peer == NULL || requests == NULL || count == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a transfer needs requests");
    struct retry retry;
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    if (retry_init(&retry, count))
        status = run_twice(peer, requests, count, deadline_ns, &retry);
    retry_free(&retry);
    if (status != YOLK_OK)
        base_fail(status, 0, "a transfer of %u requests: %s", count, yolk_strerror(status));
    return status;
}
