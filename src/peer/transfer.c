/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by address: handles of peers become the engine's segments, all else is the engine's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/internal.h"

enum { WHY_SIZE = 512 };

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
                                      uint32_t count, enum yolk_status *refused, char *why,
                                      size_t why_size)
{
    why[0] = '\0';
    struct yolk_request *own = calloc((size_t)count + 1, sizeof(*own));
    if (own == NULL)
        return NULL;
    struct resolved last = {0};
    for (uint32_t i = 0; i < count; i++) {
        resolve(peer, requests[i].segment, &last);
        own[i] = requests[i];
        own[i].segment = last.status == YOLK_OK ? last.engine_segment : UINT64_MAX;
        refused[i] = last.status;
        if (last.status != YOLK_OK && why[0] == '\0')
            snprintf(why, why_size, "%s", yolk_last_error());
    }
    if (last.entry != NULL)
        peer_entry_release(peer, last.entry);
    return own;
}

/* Where the engine's requests go: to a batch, or to be prepared. */
struct destination {
    uint64_t batch;
    uint32_t *first;
    uint64_t *prepared; /* NULL: they go to the batch */
};

static enum yolk_status hand_over(struct yolk_peer *peer, const struct destination *to,
                                  const struct yolk_request *requests, uint32_t count,
                                  enum yolk_status *verdicts)
{
    if (peer == NULL || verdicts == NULL || (requests == NULL && count > 0))
        return base_fail(YOLK_ERR_INVALID, 0, "a submit needs requests and room for verdicts");
    enum yolk_status status = peer_check(peer);
    if (status != YOLK_OK)
        return status;
    char why[WHY_SIZE];
    enum yolk_status *refused = calloc((size_t)count + 1, sizeof(*refused));
    struct yolk_request *own =
        refused != NULL ? translate(peer, requests, count, refused, why, sizeof(why)) : NULL;
    if (own == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests", count);
    else if (to->prepared != NULL)
        status = yolk_engine_prepare(peer->engine, own, count, verdicts, to->prepared);
    else
        status = yolk_engine_batch_submit(peer->engine, to->batch, own, count, verdicts, to->first);
    /* The peer's own reason says more than the engine's about a handle that was made up. */
    for (uint32_t i = 0; own != NULL && i < count; i++) {
        if (refused[i] == YOLK_OK || verdicts[i] == YOLK_OK)
            continue;
        verdicts[i] = refused[i];
        if (status == YOLK_ERR_STALE)
            status = base_fail(refused[i], 0, "%s", why);
    }
    free(own);
    free(refused);
    return status;
}

enum yolk_status yolk_peer_submit(struct yolk_peer *peer, uint64_t batch,
                                  const struct yolk_request *requests, uint32_t count,
                                  enum yolk_status *verdicts, uint32_t *first)
{
    const struct destination to = {.batch = batch, .first = first};
    return hand_over(peer, &to, requests, count, verdicts);
}

enum yolk_status yolk_peer_prepare(struct yolk_peer *peer, const struct yolk_request *requests,
                                   uint32_t count, enum yolk_status *verdicts, uint64_t *prepared)
{
    if (prepared == NULL)
        return base_fail(YOLK_ERR_INVALID, 0, "what is prepared needs a place for its handle");
    const struct destination to = {.prepared = prepared};
    return hand_over(peer, &to, requests, count, verdicts);
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

/* How a transfer ended so far, and why in words. */
struct ending {
    enum yolk_status worst;
    char text[WHY_SIZE];
};

static void end_with(struct ending *ending, enum yolk_status status, const char *why)
{
    if (!worse(status, ending->worst) || status == YOLK_OK)
        return;
    ending->worst = status;
    snprintf(ending->text, sizeof(ending->text), "%s",
             why[0] != '\0' ? why : yolk_strerror(status));
}

/* Requests for a second try, and how the first one ended. */
struct retry {
    struct yolk_request *requests;
    enum yolk_status *why;
    uint32_t count;
    char text[WHY_SIZE]; /* of the first of them */
};

static bool retry_init(struct retry *retry, uint32_t room)
{
    retry->count = 0;
    retry->text[0] = '\0';
    retry->requests = malloc(room * sizeof(*retry->requests));
    retry->why = malloc(room * sizeof(*retry->why));
    return retry->requests != NULL && retry->why != NULL;
}

static void retry_free(struct retry *retry)
{
    free(retry->requests);
    free(retry->why);
}

/* Tasks that are over. */
struct round {
    uint64_t batch;
    uint32_t first;
    const enum yolk_status *verdicts;
    const char *refused; /* what the submit said */
    bool late;
};

static void take_result(struct yolk_peer *peer, const struct round *round, uint32_t i,
                        const struct yolk_request *request, struct retry *retry,
                        struct ending *ending)
{
    struct yolk_task_status task;
    base_error_clear();
    if (yolk_engine_batch_poll(peer->engine, round->batch, round->first + i, &task) == YOLK_OK &&
        task.terminal && task.status == YOLK_ERR_CANCELED && round->late)
        task.status = YOLK_ERR_TIMEOUT;
    /* Of a handle that is none the submit says more than the engine. */
    const char *why = round->verdicts[i] != YOLK_OK && task.status == YOLK_ERR_STALE
                          ? round->refused
                          : yolk_last_error();
    if (round->verdicts[i] != YOLK_OK)
        task.status = round->verdicts[i];
    if (retry == NULL || !may_be_restarted(task.status)) {
        end_with(ending, task.status, why);
        return;
    }
    if (retry->count == 0)
        snprintf(retry->text, sizeof(retry->text), "%s", why);
    retry->why[retry->count] = task.status;
    retry->requests[retry->count++] = *request;
}

/* Adds to ending the results of all but those that go to retry. */
static void run(struct yolk_peer *peer, const struct yolk_request *requests, uint32_t count,
                uint64_t deadline_ns, struct retry *retry, struct ending *ending)
{
    uint64_t batch;
    uint32_t first = UINT32_MAX;
    enum yolk_status *verdicts = malloc(((size_t)count + 1) * sizeof(*verdicts));
    enum yolk_status result =
        verdicts == NULL ? base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests", count)
                         : yolk_engine_batch_create(peer->engine, count, &batch);
    if (result != YOLK_OK) {
        free(verdicts);
        end_with(ending, result, yolk_last_error());
        return;
    }
    enum yolk_status submitted = yolk_peer_submit(peer, batch, requests, count, verdicts, &first);
    char refused[WHY_SIZE];
    snprintf(refused, sizeof(refused), "%s", yolk_last_error());
    if (first == UINT32_MAX) /* none was taken */
        end_with(ending, submitted, refused);
    enum yolk_status waited =
        first != UINT32_MAX ? yolk_engine_batch_wait(peer->engine, batch, deadline_ns) : YOLK_OK;
    for (uint32_t i = 0; waited == YOLK_ERR_TIMEOUT && i < count; i++)
        base_ignore(yolk_engine_batch_cancel(peer->engine, batch, first + i));
    if (waited ==
        YOLK_ERR_TIMEOUT) /* ends: what is canceled is quiet or STUCK after the drain limit */
        base_ignore(yolk_engine_batch_wait(peer->engine, batch, 0));
    const struct round round = {batch, first, verdicts, refused, waited == YOLK_ERR_TIMEOUT};
    for (uint32_t i = 0; first != UINT32_MAX && i < count; i++)
        take_result(peer, &round, i, &requests[i], retry, ending);
    base_ignore(yolk_engine_batch_free(peer->engine, batch));
    free(verdicts);
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

/* Leaves those whose peers answer, now; the results of the others are told. */
static void find_restarted(struct yolk_peer *peer, struct retry *retry, struct ending *ending)
{
    enum yolk_status answer = YOLK_OK;
    uint64_t asked = UINT64_MAX;
    uint32_t left = 0;
    for (uint32_t i = 0; i < retry->count; i++) {
        if (retry->requests[i].segment != asked)
            answer = ask_again(peer, retry->requests[i].segment);
        asked = retry->requests[i].segment;
        if (answer == YOLK_OK)
            retry->requests[left++] = retry->requests[i];
        else
            end_with(ending, retry->why[i], retry->text);
    }
    retry->count = left;
}

/* A first run, and a second one of what a restarted peer may have spoilt. */
static void run_twice(struct yolk_peer *peer, const struct yolk_request *requests, uint32_t count,
                      uint64_t deadline_ns, struct retry *retry, struct ending *ending)
{
    run(peer, requests, count, deadline_ns, retry, ending);
    bool in_time = deadline_ns == 0 || yolk_engine_now_ns(peer->engine) < deadline_ns;
    if (ending->worst == YOLK_ERR_STUCK || !in_time) {
        for (uint32_t i = 0; i < retry->count; i++)
            end_with(ending, retry->why[i], retry->text);
        retry->count = 0;
    } else if (retry->count > 0) {
        find_restarted(peer, retry, ending);
    }
    if (retry->count > 0)
        run(peer, retry->requests, retry->count, deadline_ns, NULL, ending);
}

enum yolk_status yolk_peer_transfer(struct yolk_peer *peer, const struct yolk_request *requests,
                                    uint32_t count, uint64_t deadline_ns)
{
    if (peer == NULL || requests == NULL || count == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a transfer needs requests");
    struct retry retry;
    struct ending ending = {.worst = YOLK_OK};
    if (retry_init(&retry, count))
        run_twice(peer, requests, count, deadline_ns, &retry, &ending);
    else
        end_with(&ending, YOLK_ERR_NO_MEMORY, "no memory for their results");
    retry_free(&retry);
    return ending.worst == YOLK_OK
               ? YOLK_OK
               : base_fail(ending.worst, 0, "a transfer of %u requests: %s", count, ending.text);
}
