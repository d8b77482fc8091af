/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in to copy: a whole transport as small as the contract allows. It reaches memory of its
 * own process with one memcpy and passes the conformance suite; what another one does differently
 * goes into the same places. docs/plugins.md explains it piece by piece. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <yolk/plugin.h>

#define NAME "template"

enum { SLICE_BYTES_MAX = 4 << 20 };

/* One engine's instance. */
struct endpoint {
    const struct yolk_plugin_host *yolk;
    _Atomic bool stopped;
};

/* Memory of this process that is served. */
struct served {
    struct served *next;
    uint64_t nonce[2]; /* names this life of it: no later one has the same */
    uint8_t *memory;   /* NULL: an offset is an address */
    uint64_t size;
    struct yolk_access access;
    struct target *targets;
    uint32_t moving; /* ios under way */
    bool gone;       /* unserved: nothing touches the memory any more */
};

/* Served memory as a consumer sees it. It has no links, so a channel is no more than the target. */
struct target {
    struct target *next; /* of the same memory */
    struct endpoint *endpoint;
    struct served *served;
    uint64_t segment;
    uint64_t session;
    uint32_t writing;
};

/* All that is served in this process, by whichever engine. The lock is held for moments only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t quiet = PTHREAD_COND_INITIALIZER;
static struct served *all;

/* ---- the endpoint ---- */

static enum yolk_status probe(const struct yolk_transport_options *options, struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 200;
    out->bandwidth_bytes = UINT64_C(5) << 30;
    return YOLK_OK;
}

static enum yolk_status init(const struct yolk_transport_options *options, void **endpoint)
{
    struct endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return options->yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->yolk = options->yolk;
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status stop(void *endpoint)
{
    ((struct endpoint *)endpoint)->stopped = true;
    return YOLK_OK;
}

static void fini(void *endpoint)
{
    free(endpoint);
}

static void limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    out->slice_bytes_max = SLICE_BYTES_MAX;
    out->depth_max = 1;
    out->alignment = 1;
}

/* ---- local memory ---- */

static enum yolk_status add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

/* ---- the provider side ---- */

static enum yolk_status serve(void *endpoint, const struct yolk_serve *serve, void **served,
                              char *text, size_t text_size)
{
    const struct yolk_plugin_host *yolk = ((struct endpoint *)endpoint)->yolk;
    if (serve->file != NULL)
        return yolk->fail(YOLK_ERR_UNSUPPORTED, 0, NAME " serves memory, no files");
    struct served *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    made->memory = serve->memory;
    made->size = serve->size;
    made->access = serve->access;
    int size = -1;
    if (getrandom(made->nonce, sizeof(made->nonce), 0) == (ssize_t)sizeof(made->nonce))
        size =
            snprintf(text, text_size, "%016" PRIx64 "%016" PRIx64, made->nonce[0], made->nonce[1]);
    if (size < 0 || (size_t)size >= text_size) {
        free(made);
        return yolk->fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the text of " NAME);
    }
    pthread_mutex_lock(&lock);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&lock);
    *served = made;
    return YOLK_OK;
}

static void set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    (void)endpoint, (void)served, (void)segment; /* every io asks; nothing lasting to be ended */
}

static enum yolk_status fence_session(void *endpoint, void *served, uint64_t session)
{
    enum yolk_status status = YOLK_OK;
    (void)endpoint;
    pthread_mutex_lock(&lock);
    for (struct target *target = ((struct served *)served)->targets; target != NULL;
         target = target->next)
        if (target->session == session && target->writing > 0)
            status = YOLK_ERR_AGAIN;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Called with the lock held: by whoever is the last to know it. */
static void drop(struct served *served)
{
    if (served->gone && served->targets == NULL)
        free(served);
}

static void unserve(void *endpoint, void *given)
{
    struct served *served = given;
    (void)endpoint;
    pthread_mutex_lock(&lock);
    for (struct served **at = &all; *at != NULL; at = &(*at)->next)
        if (*at == served) {
            *at = served->next;
            break;
        }
    served->gone = true;
    while (served->moving > 0)
        pthread_cond_wait(&quiet, &lock);
    drop(served);
    pthread_mutex_unlock(&lock);
}

/* ---- the consumer side ---- */

static enum yolk_status open_target(void *endpoint, const char *text, uint64_t segment,
                                    uint64_t size, uint64_t session, void **target)
{
    const struct yolk_plugin_host *yolk = ((struct endpoint *)endpoint)->yolk;
    char own[33];
    struct target *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    *made = (struct target){.endpoint = endpoint, .segment = segment, .session = session};
    pthread_mutex_lock(&lock);
    for (struct served *at = all; at != NULL && made->served == NULL; at = at->next) {
        snprintf(own, sizeof(own), "%016" PRIx64 "%016" PRIx64, at->nonce[0], at->nonce[1]);
        if (strcmp(own, text) == 0 && at->size == size)
            made->served = at;
    }
    if (made->served != NULL) {
        made->next = made->served->targets;
        made->served->targets = made;
    }
    pthread_mutex_unlock(&lock);
    if (made->served == NULL) {
        free(made);
        return yolk->fail(YOLK_ERR_NO_ROUTE, 0, "nothing of this process is called %.40s", text);
    }
    *target = made;
    return YOLK_OK;
}

static void close_target(void *endpoint, void *given)
{
    struct target *target = given;
    (void)endpoint;
    pthread_mutex_lock(&lock);
    struct target **at = &target->served->targets;
    while (*at != target)
        at = &(*at)->next;
    *at = target->next;
    drop(target->served);
    pthread_mutex_unlock(&lock);
    free(target);
}

static enum yolk_status channel_open(void *endpoint, void *target, void **channel)
{
    struct endpoint *mine = endpoint;
    if (mine->stopped)
        return mine->yolk->fail(YOLK_ERR_CLOSED, 0, NAME " was stopped");
    *channel = target;
    return YOLK_OK;
}

/* Counts the io as under way before the owner is asked: see struct yolk_access. */
static bool enter(struct target *target, const struct yolk_io *io)
{
    pthread_mutex_lock(&lock);
    bool gone = target->served->gone;
    target->served->moving += !gone;
    target->writing += !gone && io->opcode == YOLK_WRITE;
    pthread_mutex_unlock(&lock);
    return !gone;
}

static void leave(struct target *target, const struct yolk_io *io)
{
    pthread_mutex_lock(&lock);
    target->writing -= io->opcode == YOLK_WRITE;
    if (--target->served->moving == 0)
        pthread_cond_broadcast(&quiet);
    pthread_mutex_unlock(&lock);
}

static enum yolk_status move(struct target *target, const struct yolk_io *io)
{
    const struct yolk_access *access = &target->served->access;
    const struct yolk_access_request request = {.segment = target->segment,
                                                .session = target->session,
                                                .offset = io->offset,
                                                .size = io->size,
                                                .ticket = &io->ticket,
                                                .opcode = io->opcode};
    enum yolk_status status = access->begin != NULL ? access->begin(access->self, &request)
                                                    : access->check(access->self, &request);
    if (status != YOLK_OK)
        return status;
    void *there = (void *)((uintptr_t)target->served->memory + (uintptr_t)io->offset);
    if (io->size > 0)
        memmove(io->opcode == YOLK_WRITE ? there : io->local,
                io->opcode == YOLK_WRITE ? io->local : there, io->size);
    if (access->begin != NULL)
        access->end(access->self, &request);
    return YOLK_OK;
}

static enum yolk_submit submit(void *channel, struct yolk_io *io)
{
    struct target *target = channel;
    const struct yolk_plugin_host *yolk = target->endpoint->yolk;
    io->transferred = 0;
    if (target->endpoint->stopped)
        io->status = yolk->fail(YOLK_ERR_CLOSED, 0, NAME " was stopped");
    else if (io->size > SLICE_BYTES_MAX)
        io->status = yolk->fail(YOLK_ERR_TOO_LARGE, 0, NAME " takes %d bytes at once, not %" PRIu64,
                                SLICE_BYTES_MAX, io->size);
    else if (!enter(target, io))
        io->status = yolk->fail(YOLK_ERR_PEER_DEAD, 0, "the memory is served no more");
    else {
        io->status = move(target, io);
        leave(target, io);
    }
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    io->transferred = io->size;
    return YOLK_SUBMIT_DONE;
}

static uint32_t poll_channel(void *channel, struct yolk_completion *completions, uint32_t max)
{
    (void)channel, (void)completions, (void)max;
    return 0; /* submit ends each io */
}

static enum yolk_status channel_close(void *channel)
{
    (void)channel;
    return YOLK_OK;
}

/* ---- the table ---- */

const struct yolk_transport_ops *yolk_transport_plugin(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = NAME,
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_PROCESS |
                YOLK_CAP_PEER_DEATH,
        .probe = probe,
        .init = init,
        .stop = stop,
        .fini = fini,
        .limits = limits,
        .add_buffer = add_buffer,
        .remove_buffer = remove_buffer,
        .serve = serve,
        .set_segment_id = set_segment_id,
        .fence_session = fence_session,
        .unserve = unserve,
        .open_target = open_target,
        .close_target = close_target,
        .channel_open = channel_open,
        .submit = submit,
        .poll = poll_channel,
        .channel_close = channel_close,
    };
    return &ops;
}
