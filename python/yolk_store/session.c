/* SPDX-License-Identifier: Apache-2.0 */
/* An open store as long as something needs it. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "extension.h"

enum { DRAIN_GRACE_MS = 1000 }; /* what readers get when buffers of this process keep it open */

struct session {
    struct session *next;   /* of the list of those owned; under the GIL, which a fork holds too */
    struct session **owner; /* under the GIL */
    struct yolk_store *store;
    pid_t pid;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t idle;
    uint64_t calls;
    uint64_t buffers;
    int closing;
};

static struct session *owned;

struct yolk_store *session_store(struct session *session)
{
    return session->store;
}

struct session *session_open(const struct yolk_store_options *options, int64_t *code)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        *code = code_with_text(YOLK_ERR_NO_MEMORY, "no memory for a store");
        return NULL;
    }
    enum yolk_status status = yolk_store_open(options, &session->store);
    /* OBJECT_NOT_FOUND is said of keys: a host that nobody knows is a master that is not reached.
     */
    *code = status == YOLK_OK
                ? 0
                : code_of_failure(status == YOLK_ERR_NOT_FOUND ? YOLK_ERR_LINK : status);
    if (status != YOLK_OK && session->store == NULL) {
        free(session);
        return NULL;
    } /* else a part of an EGM pool is left, for close() */
    session->pid = getpid();
    (void)pthread_mutex_init(&session->lock, NULL);
    (void)pthread_cond_init(&session->idle, NULL);
    return session;
}

void session_own(struct session *session, struct session **owner)
{
    *owner = session;
    session->owner = owner;
    session->next = owned;
    owned = session;
}

void session_disown(struct session *session)
{
    for (struct session **at = &owned; *at != NULL; at = &(*at)->next) {
        if (*at != session)
            continue;
        *at = session->next;
        break;
    }
    *session->owner = NULL;
    session->owner = NULL;
}

/* Of another process: its locks may be held by threads that are not here, its memory is left as it
 * is. */
static int is_foreign(const struct session *session)
{
    return session->pid != getpid();
}

int session_enter(struct session *session)
{
    if (is_foreign(session))
        return 1; /* the library refuses the call, with a sentence */
    (void)pthread_mutex_lock(&session->lock);
    int closing = session->closing;
    if (!closing)
        session->calls++;
    (void)pthread_mutex_unlock(&session->lock);
    return !closing;
}

void session_leave(struct session *session)
{
    if (is_foreign(session))
        return;
    (void)pthread_mutex_lock(&session->lock);
    if (--session->calls == 0)
        (void)pthread_cond_broadcast(&session->idle);
    (void)pthread_mutex_unlock(&session->lock);
}

void session_hold_buffer(struct session *session)
{
    if (is_foreign(session))
        return;
    (void)pthread_mutex_lock(&session->lock);
    session->buffers++;
    (void)pthread_mutex_unlock(&session->lock);
}

/* Nothing uses it any more. */
static int finish(struct session *session)
{
    enum yolk_status status = yolk_store_close(session->store);
    if (status != YOLK_OK)
        return status;
    (void)pthread_cond_destroy(&session->idle);
    (void)pthread_mutex_destroy(&session->lock);
    free(session);
    return YOLK_OK;
}

void session_release_buffer(struct session *session)
{
    if (is_foreign(session))
        return;
    (void)pthread_mutex_lock(&session->lock);
    /* Whoever closes it waits for calls first, and so cannot miss a buffer one of them makes. */
    int last = --session->buffers == 0 && session->closing && session->calls == 0;
    (void)pthread_mutex_unlock(&session->lock);
    if (last)
        (void)finish(session);
}

int session_close(struct session *session)
{
    if (is_foreign(session))
        return YOLK_OK;
    (void)pthread_mutex_lock(&session->lock);
    session->closing = 1;
    while (session->calls > 0)
        (void)pthread_cond_wait(&session->idle, &session->lock);
    int in_use = session->buffers > 0;
    session->calls += (uint64_t)in_use; /* keeps it while it is drained */
    (void)pthread_mutex_unlock(&session->lock);
    if (!in_use)
        return finish(session);
    /* The memory stays for the buffers, but nothing more is put there, to be lost with them. */
    enum yolk_status drained = yolk_store_drain(session->store, DRAIN_GRACE_MS);
    (void)drained; /* a master that is gone does not keep anybody from closing */
    (void)pthread_mutex_lock(&session->lock);
    session->calls--;
    in_use = session->buffers > 0;
    (void)pthread_mutex_unlock(&session->lock);
    return in_use ? YOLK_OK : finish(session);
}

void session_close_all(void)
{
    while (owned != NULL) {
        struct session *session = owned;
        session_disown(session);
        PyThreadState *thread = PyEval_SaveThread();
        (void)session_close(session);
        PyEval_RestoreThread(thread);
    }
}
