/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest whole transport: one memcpy in the caller's thread. Nothing is ever queued, so there
 * is nothing to poll, cancel or wait for; a transport that queues keeps its ios in the channel.
 *
 * What a provider serves stands in one table of the process, found by a random token: a restarted
 * provider has another token even at the same address. An access counts itself in, then asks; so
 * after fence_session and unserve have looked at the counts, no earlier permission is still in use.
 */
#include "transport/loop/loop.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/list.h"
#include "platform/memory.h"
#include "platform/random.h"

enum { LOOP_STRIPES = 64 };
#define LOOP_SLICE_MAX (UINT64_C(16) << 20) /* so that a cancel is noticed between two */

struct loop_served {
    struct base_list node;
    uint64_t token;
    uint8_t *memory;
    uint64_t size;
    struct yolk_access access;
    _Atomic bool gone;
    _Atomic uint64_t references;           /* the provider's and one a target */
    _Atomic uint64_t writes[LOOP_STRIPES]; /* under way, by session */
    _Atomic uint64_t accesses;             /* under way, of any kind */
};

struct loop_endpoint {
    _Atomic bool stopped;
};

struct loop_target {
    struct loop_endpoint *endpoint;
    struct loop_served *served;
    uint64_t segment;
    uint64_t session;
};

struct loop_channel {
    struct loop_target *target;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct base_list table = {&table, &table};

static enum yolk_status loop_probe(const struct yolk_transport_options *options,
                                   struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 100;
    out->bandwidth_bytes = UINT64_C(10) << 30;
    return YOLK_OK;
}

static enum yolk_status loop_init(const struct yolk_transport_options *options, void **endpoint)
{
    (void)options;
    struct loop_endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status loop_stop(void *endpoint)
{
    struct loop_endpoint *mine = endpoint;
    atomic_store(&mine->stopped, true);
    return YOLK_OK;
}

static void loop_fini(void *endpoint)
{
    free(endpoint);
}

static void loop_limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    out->slice_bytes_max = LOOP_SLICE_MAX;
    out->depth_max = UINT32_MAX;
    out->alignment = 1;
}

static enum yolk_status loop_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void loop_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

/* -- provider -- */

static enum yolk_status loop_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                   char *text, size_t text_size)
{
    (void)endpoint;
    if (serve->file != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it serves memory only");
    struct loop_served *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    const struct random random = random_real();
    made->token = random_u64(&random);
    made->memory = serve->memory;
    made->size = serve->size;
    made->access = serve->access;
    atomic_store(&made->references, 1);
    int length =
        snprintf(text, text_size, "%ld,%llx", (long)getpid(), (unsigned long long)made->token);
    if (length < 0 || (size_t)length >= text_size) {
        free(made);
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the endpoint's text");
    }
    pthread_mutex_lock(&table_lock);
    base_list_push_back(&table, &made->node);
    pthread_mutex_unlock(&table_lock);
    *served = made;
    return YOLK_OK;
}

static void loop_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    /* Each access asks; there is nothing lasting to end. */
    (void)endpoint, (void)served, (void)segment;
}

static uint64_t stripe_of(uint64_t session)
{
    return (session ^ session >> 32) % LOOP_STRIPES;
}

static enum yolk_status loop_fence_session(void *endpoint, void *served, uint64_t session)
{
    (void)endpoint;
    struct loop_served *mine = served;
    /* Another session of the same stripe only makes the answer come later. */
    return atomic_load(&mine->writes[stripe_of(session)]) == 0 ? YOLK_OK : YOLK_ERR_AGAIN;
}

static void drop(struct loop_served *served)
{
    if (atomic_fetch_sub(&served->references, 1) == 1)
        free(served);
}

static void loop_unserve(void *endpoint, void *served)
{
    (void)endpoint;
    struct loop_served *mine = served;
    pthread_mutex_lock(&table_lock);
    base_list_remove(&mine->node);
    pthread_mutex_unlock(&table_lock);
    atomic_store(&mine->gone, true);
    while (atomic_load(&mine->accesses) > 0) /* at most one memcpy a thread */
        (void)sched_yield();
    drop(mine);
}

/* -- consumer -- */

static enum yolk_status loop_open_target(void *endpoint, const char *text, uint64_t segment,
                                         uint64_t size, uint64_t session, void **target)
{
    char *end = NULL;
    long pid = strtol(text, &end, 10);
    if (end == text || *end != ',')
        return base_fail(YOLK_ERR_INVALID, 0, "\"%.64s\" is not pid,token", text);
    const char *token_text = end + 1;
    uint64_t token = strtoull(token_text, &end, 16);
    if (end == token_text || *end != '\0')
        return base_fail(YOLK_ERR_INVALID, 0, "\"%.64s\" is not pid,token", text);
    if (pid != (long)getpid())
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "it is in another process (%ld)", pid);
    struct loop_target *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    pthread_mutex_lock(&table_lock);
    BASE_LIST_FOREACH(node, &table)
    {
        struct loop_served *served = BASE_CONTAINER(node, struct loop_served, node);
        if (served->token == token && served->size >= size) {
            made->served = served;
            atomic_fetch_add(&served->references, 1);
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
    if (made->served == NULL) {
        free(made);
        /* Another process of the same number (another container's) looks just like an earlier life.
         */
        return base_fail(YOLK_ERR_STALE, 0, "this process does not serve it (any more)");
    }
    made->endpoint = endpoint;
    made->segment = segment;
    made->session = session;
    *target = made;
    return YOLK_OK;
}

static void loop_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    struct loop_target *mine = target;
    drop(mine->served);
    free(mine);
}

static enum yolk_status loop_target_map(void *endpoint, void *target, const void **base,
                                        uint64_t *size)
{
    (void)endpoint;
    struct loop_target *mine = target;
    struct yolk_access_request request = {
        .segment = mine->segment, .session = mine->session, .opcode = YOLK_READ, .whole_map = 1};
    if (atomic_load(&mine->served->gone))
        return YOLK_ERR_PEER_DEAD;
    enum yolk_status status = mine->served->access.check(mine->served->access.self, &request);
    if (status != YOLK_OK)
        return status;
    *base = mine->served->memory;
    *size = mine->served->size;
    return YOLK_OK;
}

static enum yolk_status loop_channel_open(void *endpoint, void *target, void **channel)
{
    struct loop_endpoint *mine = endpoint;
    if (atomic_load(&mine->stopped))
        return YOLK_ERR_CLOSED;
    struct loop_channel *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    made->target = target;
    *channel = made;
    return YOLK_OK;
}

static enum yolk_status copy(struct loop_target *target, const struct yolk_io *io)
{
    struct loop_served *served = target->served;
    const struct yolk_access_request request = {.segment = target->segment,
                                                .session = target->session,
                                                .offset = io->offset,
                                                .size = io->size,
                                                .ticket = &io->ticket,
                                                .opcode = io->opcode};
    if (atomic_load(&served->gone))
        return YOLK_ERR_PEER_DEAD;
    enum yolk_status status = served->access.check(served->access.self, &request);
    if (status != YOLK_OK)
        return status;
    if (io->size == 0)
        return YOLK_OK;
    uint8_t *there = served->memory + io->offset;
    void *to = io->opcode == YOLK_WRITE ? there : io->local;
    const void *from = io->opcode == YOLK_WRITE ? io->local : there;
    if ((uint8_t *)io->local < there + io->size && there < (uint8_t *)io->local + io->size)
        memmove(to, from, io->size); /* the owner reads its own segment onto itself */
    else
        copy_stream(to, from, io->size);
    return YOLK_OK;
}

static enum yolk_submit loop_submit(void *channel, struct yolk_io *io)
{
    struct loop_target *target = ((struct loop_channel *)channel)->target;
    struct loop_served *served = target->served;
    io->transferred = 0;
    io->status = YOLK_ERR_CLOSED;
    if (atomic_load(&target->endpoint->stopped))
        return YOLK_SUBMIT_FAILED;
    _Atomic uint64_t *writes = &served->writes[stripe_of(target->session)];
    atomic_fetch_add(&served->accesses, 1);
    if (io->opcode == YOLK_WRITE)
        atomic_fetch_add(writes, 1);
    io->status = io->size > LOOP_SLICE_MAX ? YOLK_ERR_TOO_LARGE : copy(target, io);
    if (io->opcode == YOLK_WRITE)
        atomic_fetch_sub(writes, 1);
    atomic_fetch_sub(&served->accesses, 1);
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

static uint32_t loop_poll(void *channel, struct yolk_completion *completions, uint32_t max)
{
    (void)channel, (void)completions, (void)max;
    return 0;
}

static enum yolk_status loop_channel_close(void *channel)
{
    free(channel);
    return YOLK_OK;
}

const struct yolk_transport_ops *transport_loop_ops(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = "loop",
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_MAP | YOLK_CAP_PEER_DEATH,
        .probe = loop_probe,
        .init = loop_init,
        .stop = loop_stop,
        .fini = loop_fini,
        .limits = loop_limits,
        .add_buffer = loop_add_buffer,
        .remove_buffer = loop_remove_buffer,
        .serve = loop_serve,
        .set_segment_id = loop_set_segment_id,
        .fence_session = loop_fence_session,
        .unserve = loop_unserve,
        .open_target = loop_open_target,
        .close_target = loop_close_target,
        .target_map = loop_target_map,
        .channel_open = loop_channel_open,
        .submit = loop_submit,
        .poll = loop_poll,
        .channel_close = loop_channel_close,
    };
    return &ops;
}
