/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All addresses of a process as one segment, as peers have it: the provider. Whoever wants to reach
 * an address asks, over its link, what lies there; a registered range that has handles is then
 * served as a segment of its own, until it is unregistered. What has none is refused with the
 * reason, and goes by another transport.
 *
 * The owner's say: a range is shown as far as it may be read; each connection that maps it holds a
 * lease of the owner's, of reading or of writing, and ends it when its mapping is gone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "transport/nvlink/internal.h"

struct nvlink_space {
    struct nvlink_endpoint *endpoint;
    struct shm_served *links;
    uint64_t segment;
    struct yolk_access access;
};

/* A registered range that peers were shown. Under the endpoint's `sharing` lock. */
struct nvlink_share {
    struct nvlink_endpoint *endpoint;
    uint64_t start, size, segment;
    void *served;       /* NULL: no more */
    unsigned holders;   /* connections whose end is to come */
    unsigned leases[2]; /* of them, of reading and of writing, that the owner was not told of yet */
    char text[SHM_ANSWER_TEXT];
};

/* ---- leases ---- */

static struct yolk_access_request request_of(const struct nvlink_space *space, uint64_t start,
                                             uint64_t size, bool write, uint64_t session)
{
    return (struct yolk_access_request){.segment = space->segment,
                                        .session = session,
                                        .offset = start,
                                        .size = size,
                                        .opcode = write ? YOLK_WRITE : YOLK_READ};
}

static enum yolk_status share_begin(void *self, const struct yolk_access_request *request)
{
    struct nvlink_share *share = self;
    struct nvlink_endpoint *e = share->endpoint;
    enum yolk_status status = YOLK_ERR_STALE;
    bool write = request->opcode == YOLK_WRITE;
    mutex_lock(&e->sharing);
    if (share->served != NULL && e->space != NULL) {
        const struct yolk_access_request own =
            request_of(e->space, share->start, share->size, write, request->session);
        status = e->space->access.begin(e->space->access.self, &own);
    }
    if (status == YOLK_OK) {
        share->holders++;
        share->leases[write]++;
        e->leases++;
    }
    mutex_unlock(&e->sharing);
    return status;
}

/* Holds the lock. */
static void end_lease(struct nvlink_share *share, bool write)
{
    struct nvlink_endpoint *e = share->endpoint;
    const struct yolk_access_request own =
        request_of(e->space, share->start, share->size, write, 0);
    share->leases[write]--;
    e->leases--;
    e->space->access.end(e->space->access.self, &own);
    condition_broadcast(&e->shared);
}

/* Holds the lock. */
static void free_if_unused(struct nvlink_share *share)
{
    if (share->served == NULL && share->holders == 0)
        free(share);
}

static void share_end(void *self, const struct yolk_access_request *request)
{
    struct nvlink_share *share = self;
    struct nvlink_endpoint *e = share->endpoint;
    bool write = request->opcode == YOLK_WRITE;
    mutex_lock(&e->sharing);
    if (e->space != NULL && share->leases[write] > 0) /* else that ended without waiting for it */
        end_lease(share, write);
    share->holders--;
    free_if_unused(share);
    mutex_unlock(&e->sharing);
}

/* ---- what lies where ---- */

static struct nvlink_buffer *find_buffer(struct nvlink_endpoint *e, uint64_t start, uint64_t size)
{
    BASE_LIST_FOREACH(node, &e->buffers)
    {
        struct nvlink_buffer *buffer = BASE_CONTAINER(node, struct nvlink_buffer, node);
        uint64_t offset = start - (uintptr_t)buffer->start;
        if (start >= (uintptr_t)buffer->start && offset <= buffer->size &&
            size <= buffer->size - offset)
            return buffer;
    }
    return NULL;
}

/* Without the lock; the buffer is busy. */
static int share_make(struct nvlink_space *space, const struct nvlink_buffer *buffer,
                      struct nvlink_share **out)
{
    const struct random random = random_real();
    struct nvlink_share *share = calloc(1, sizeof *share);
    if (share == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: a range for peers");
    share->endpoint = space->endpoint;
    share->start = (uintptr_t)buffer->start;
    share->size = buffer->size;
    share->segment = random_u64(&random) | 1;
    const struct yolk_serve serve = {.memory = buffer->start,
                                     .size = buffer->size,
                                     .segment = share->segment,
                                     .access = {share, NULL, share_begin, share_end}};
    int status =
        nvlink_serve(space->endpoint, &serve, &share->served, share->text, sizeof share->text);
    if (status != YOLK_OK) {
        free(share);
        return status;
    }
    *out = share;
    return YOLK_OK;
}

static int may_be_read(const struct nvlink_space *space, const struct nvlink_buffer *buffer)
{
    const struct yolk_access_request request =
        request_of(space, (uintptr_t)buffer->start, buffer->size, false, 0);
    enum yolk_status status = space->access.begin(space->access.self, &request);
    if (status != YOLK_OK)
        return base_fail(status, 0, "nvlink: the peer does not let others read that range");
    space->access.end(space->access.self, &request);
    return YOLK_OK;
}

/* Question: an address and a size. Answer: the registered range around it, and its segment's id and
 * text. */
static void answer(void *self, const struct shm_ask *ask, struct shm_answer *out, int *fd)
{
    struct nvlink_space *space = self;
    struct nvlink_endpoint *e = space->endpoint;
    struct nvlink_share *made = NULL;
    int status = YOLK_OK;
    (void)fd;
    *out = (struct shm_answer){.numbers = {ask->first, ask->second}};
    mutex_lock(&e->sharing);
    struct nvlink_buffer *buffer = find_buffer(e, ask->first, ask->second);
    if (buffer != NULL)
        buffer->busy = true;
    mutex_unlock(&e->sharing);
    if (buffer == NULL) {
        status = base_fail(YOLK_ERR_NOT_REGISTERED, 0,
                           "nvlink: the peer has registered no range "
                           "around these addresses");
    } else {
        out->numbers[0] = (uintptr_t)buffer->start;
        out->numbers[1] = buffer->size;
        status = may_be_read(space, buffer);
        if (status == YOLK_OK && buffer->share == NULL)
            status = share_make(space, buffer, &made);
    }
    out->status = status;
    if (status != YOLK_OK)
        (void)snprintf(out->text, sizeof out->text, "%s", yolk_last_error());
    if (buffer == NULL)
        return;
    mutex_lock(&e->sharing);
    if (made != NULL)
        buffer->share = made;
    if (status == YOLK_OK) {
        out->numbers[2] = buffer->share->segment;
        memcpy(out->text, buffer->share->text, sizeof out->text);
    }
    buffer->busy = false;
    condition_broadcast(&e->shared);
    mutex_unlock(&e->sharing);
}

/* ---- the registered ranges ---- */

void nvlink_space_add_buffer(struct nvlink_endpoint *e, struct nvlink_buffer *buffer)
{
    mutex_lock(&e->sharing);
    base_list_push_back(&e->buffers, &buffer->node);
    mutex_unlock(&e->sharing);
}

/* Its connections are told to end; that they have is the owner's to wait for, by the leases. */
static void end_share(struct nvlink_endpoint *e, struct nvlink_share *share)
{
    mutex_lock(&e->sharing);
    void *served = share->served;
    share->served = NULL; /* no new lease */
    share->holders++;
    mutex_unlock(&e->sharing);
    nvlink_unserve(e, served);
    mutex_lock(&e->sharing);
    share->holders--;
    free_if_unused(share);
    mutex_unlock(&e->sharing);
}

static struct nvlink_share *take_share(struct nvlink_endpoint *e, struct nvlink_buffer *buffer)
{
    while (buffer->busy)
        condition_wait(&e->shared, &e->sharing);
    struct nvlink_share *share = buffer->share;
    buffer->share = NULL;
    return share;
}

void nvlink_space_remove_buffer(struct nvlink_endpoint *e, struct nvlink_buffer *buffer)
{
    mutex_lock(&e->sharing);
    struct nvlink_share *share = take_share(e, buffer);
    base_list_remove(&buffer->node);
    mutex_unlock(&e->sharing);
    if (share != NULL)
        end_share(e, share);
}

/* ---- serving ---- */

/* There is nothing to map: who opens it may only ask. */
static enum yolk_status may_ask(void *self, const struct yolk_access_request *request)
{
    (void)self;
    (void)request;
    return YOLK_OK;
}

int nvlink_space_serve(struct nvlink_endpoint *e, const struct yolk_serve *serve,
                       struct nvlink_space **out, char *text, size_t text_size)
{
    char rest[256];
    struct nvlink_export export = {.node = -1};
    struct nvlink_space *space = calloc(1, sizeof *space);
    if (space == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: served addresses");
    *space = (struct nvlink_space){.endpoint = e, .segment = serve->segment};
    space->access = serve->access;
    const struct shm_handout handout = {.fds = {-1, -1},
                                        .size = serve->size,
                                        .map_size = serve->size,
                                        .segment = serve->segment,
                                        .access = {space, may_ask, NULL, NULL},
                                        .answer = answer,
                                        .self = space};
    mutex_lock(&e->sharing);
    int status = e->space == NULL ? YOLK_OK
                                  : base_fail(YOLK_ERR_UNSUPPORTED, 0,
                                              "nvlink: the addresses are served already");
    if (status == YOLK_OK)
        e->space = space;
    mutex_unlock(&e->sharing);
    if (status != YOLK_OK) {
        free(space);
        return status;
    }
    status = shm_provider_hand_out(e->provider, &handout, &space->links, rest, sizeof rest);
    if (status == YOLK_OK) {
        nvlink_where(e, &export);
        status = nvlink_text_format(&export, rest, text, text_size);
    }
    if (status != YOLK_OK)
        nvlink_space_unserve(space);
    else
        *out = space;
    return status;
}

void nvlink_space_set_segment(struct nvlink_space *space, uint64_t segment)
{
    mutex_lock(&space->endpoint->sharing);
    space->segment = segment;
    mutex_unlock(&space->endpoint->sharing);
    shm_provider_set_segment(space->endpoint->provider, space->links, segment);
}

int nvlink_space_fence(struct nvlink_space *space, uint64_t session)
{
    return shm_provider_fence(space->endpoint->provider, NULL, session);
}

void nvlink_space_unserve(struct nvlink_space *space)
{
    struct nvlink_endpoint *e = space->endpoint;
    struct nvlink_share *share;
    if (space->links != NULL)
        shm_provider_unserve(e->provider, space->links); /* nobody asks from here on */
    mutex_lock(&e->sharing);
    do {
        share = NULL;
        BASE_LIST_FOREACH(node, &e->buffers)
        {
            struct nvlink_buffer *buffer = BASE_CONTAINER(node, struct nvlink_buffer, node);
            share = take_share(e, buffer);
            if (share != NULL)
                break;
        }
        mutex_unlock(&e->sharing);
        if (share != NULL)
            end_share(e, share);
        mutex_lock(&e->sharing);
    } while (share != NULL);
    /* Who does not let go in time copies to and from memory that has no meaning any more. */
    uint64_t until = clock_after_ms(clock_real_now_ns(), e->stop_timeout_ms);
    while (e->leases > 0 && condition_wait_until(&e->shared, &e->sharing, until))
        ;
    e->space = NULL;
    e->leases = 0;
    mutex_unlock(&e->sharing);
    free(space);
}
