/* SPDX-License-Identifier: Apache-2.0 */
#include "store/embedded.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/thread.h"

/* Connection numbers of the core: 1 is never used, 2 … are control connections (even) and calls
 * (odd). */
enum { FIRST_CONTROL = 2, FIRST_CALL = 3 };

struct frame {
    struct frame *next;
    uint64_t connection;
    struct wire_header header;
    uint8_t body[];
};

struct store_embedded {
    struct mutex lock; /* protects all below, the core too */
    struct condition answered;
    struct master_core *core;
    uint64_t control; /* connection number, 0: none */
    uint64_t last_control;
    uint64_t last_call;
    int wake_fd;
    int must_wake; /* at unlock: a thread woken under the lock would only wait for it */
    struct frame *control_first;
    struct frame *control_last;
    struct frame *answers; /* of calls, in any order */
    uint64_t next_tick_ns;
    uint64_t last_tick_ns;
    int tick_owed; /* the control thread was woken to make the next tick */
};

/* Calls let the core's background work wait for so long: what many of them cause (facts, evictions)
 * is then done, and told to the control thread, at once. */
#define TICK_INTERVAL_NS (300 * NS_PER_US)

static void unlock(struct store_embedded *embedded)
{
    uint64_t one = 1;
    int fd = embedded->must_wake ? embedded->wake_fd : -1;
    embedded->must_wake = 0;
    mutex_unlock(&embedded->lock);
    /* A full counter means that the reader is awake already. */
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
        return;
}

static void take_output(void *self, uint64_t connection, uint16_t kind, uint64_t request_id,
                        const uint8_t *body, size_t size)
{
    struct store_embedded *embedded = self;
    struct frame *frame = malloc(sizeof(*frame) + size);
    if (frame == NULL)
        return; /* a lost frame: the other side asks again */
    frame->next = NULL;
    frame->connection = connection;
    frame->header = (struct wire_header){kind, (uint32_t)size, request_id};
    if (size > 0)
        memcpy(frame->body, body, size);
    if (connection == embedded->control) {
        if (embedded->control_last == NULL)
            embedded->control_first = frame;
        else
            embedded->control_last->next = frame;
        embedded->control_last = frame;
        embedded->must_wake = 1;
    } else if (connection % 2 != 0) {
        frame->next = embedded->answers;
        embedded->answers = frame;
        condition_broadcast(&embedded->answered);
    } else {
        free(frame); /* of a control connection that is gone */
    }
}

static struct master_sink sink_of(struct store_embedded *embedded)
{
    return (struct master_sink){.self = embedded, .send = take_output};
}

int store_embedded_create(const struct master_config *config, uint64_t seed,
                          struct store_embedded **out)
{
    struct store_embedded *embedded = calloc(1, sizeof(*embedded));
    if (embedded == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the embedded master");
    int status = master_core_create(config, clock_real_now_ns(), seed, &embedded->core);
    if (status != YOLK_OK) {
        free(embedded);
        return status;
    }
    mutex_init(&embedded->lock);
    condition_init(&embedded->answered);
    embedded->last_control = FIRST_CONTROL;
    embedded->last_call = FIRST_CALL;
    embedded->wake_fd = -1;
    *out = embedded;
    return YOLK_OK;
}

static void free_frames(struct frame *frame)
{
    while (frame != NULL) {
        struct frame *next = frame->next;
        free(frame);
        frame = next;
    }
}

void store_embedded_destroy(struct store_embedded *embedded)
{
    if (embedded == NULL)
        return;
    master_core_destroy(embedded->core);
    free_frames(embedded->control_first);
    free_frames(embedded->answers);
    condition_destroy(&embedded->answered);
    mutex_destroy(&embedded->lock);
    free(embedded);
}

const uint8_t *store_embedded_instance(const struct store_embedded *embedded)
{
    return master_core_instance(embedded->core);
}

/* With the lock held. */
static void tick(struct store_embedded *embedded)
{
    struct master_sink sink = sink_of(embedded);
    embedded->last_tick_ns = clock_real_now_ns();
    embedded->tick_owed = 0;
    embedded->next_tick_ns = master_core_tick(embedded->core, embedded->last_tick_ns, &sink);
}

static void input(struct store_embedded *embedded, uint64_t connection,
                  const struct wire_header *header, const uint8_t *body)
{
    struct master_sink sink = sink_of(embedded);
    uint64_t now = clock_real_now_ns();
    /* A refusal was answered through the sink already. */
    (void)master_core_input(embedded->core, now, connection, header, body, &sink);
    if (connection % 2 == 0 || now - embedded->last_tick_ns >= TICK_INTERVAL_NS) {
        tick(embedded);
    } else if (!embedded->tick_owed) {
        embedded->tick_owed = 1;
        if (embedded->next_tick_ns > embedded->last_tick_ns + TICK_INTERVAL_NS)
            embedded->next_tick_ns = embedded->last_tick_ns + TICK_INTERVAL_NS;
        embedded->must_wake = 1;
    }
}

static struct frame *find_answer(struct store_embedded *embedded, uint64_t connection)
{
    for (struct frame **at = &embedded->answers; *at != NULL; at = &(*at)->next) {
        struct frame *frame = *at;
        if (frame->connection != connection)
            continue;
        *at = frame->next;
        return frame;
    }
    return NULL;
}

int store_embedded_call(struct store_embedded *embedded, uint16_t kind, const uint8_t *body,
                        size_t size, uint64_t deadline_ns, uint16_t *reply_kind,
                        struct base_buf *reply)
{
    struct wire_header header = {kind, (uint32_t)size, 1};
    struct frame *frame;

    mutex_lock(&embedded->lock);
    embedded->last_call += 2;
    uint64_t connection = embedded->last_call;
    input(embedded, connection, &header, body);
    while ((frame = find_answer(embedded, connection)) == NULL) {
        uint64_t now = clock_real_now_ns();
        if (now >= deadline_ns)
            break;
        /* A job of the core (remove_all, unmount) answers from a later tick. */
        if (now >= embedded->next_tick_ns) {
            tick(embedded);
            continue;
        }
        uint64_t until =
            deadline_ns < embedded->next_tick_ns ? deadline_ns : embedded->next_tick_ns;
        (void)condition_wait_until(&embedded->answered, &embedded->lock, until);
    }
    /* The core forgets the connection: an answer that comes later is dropped with it. */
    struct master_sink sink = sink_of(embedded);
    master_core_disconnect(embedded->core, clock_real_now_ns(), connection, &sink);
    unlock(embedded);
    if (frame == NULL)
        return base_fail(YOLK_ERR_TIMEOUT, 0, "the embedded master did not answer in time");
    base_buf_clear(reply);
    *reply_kind = frame->header.kind;
    int status = base_buf_append(reply, frame->body, frame->header.body_size);
    free(frame);
    return status;
}

void store_embedded_control_open(struct store_embedded *embedded, int wake_fd)
{
    mutex_lock(&embedded->lock);
    embedded->last_control += 2;
    embedded->control = embedded->last_control;
    embedded->wake_fd = wake_fd;
    unlock(embedded);
}

void store_embedded_control_close(struct store_embedded *embedded)
{
    mutex_lock(&embedded->lock);
    uint64_t connection = embedded->control;
    embedded->control = 0;
    embedded->wake_fd = -1;
    free_frames(embedded->control_first);
    embedded->control_first = NULL;
    embedded->control_last = NULL;
    if (connection != 0) {
        struct master_sink sink = sink_of(embedded);
        master_core_disconnect(embedded->core, clock_real_now_ns(), connection, &sink);
    }
    unlock(embedded);
}

int store_embedded_control_send(struct store_embedded *embedded, uint16_t kind, uint64_t request_id,
                                const uint8_t *body, size_t size)
{
    struct wire_header header = {kind, (uint32_t)size, request_id};
    mutex_lock(&embedded->lock);
    int status = embedded->control == 0 ? YOLK_ERR_LINK : YOLK_OK;
    if (status == YOLK_OK)
        input(embedded, embedded->control, &header, body);
    unlock(embedded);
    return status;
}

int store_embedded_control_receive(struct store_embedded *embedded, struct wire_header *header,
                                   struct base_buf *body)
{
    mutex_lock(&embedded->lock);
    struct frame *frame = embedded->control_first;
    if (frame != NULL) {
        embedded->control_first = frame->next;
        if (embedded->control_first == NULL)
            embedded->control_last = NULL;
    }
    unlock(embedded);
    if (frame == NULL)
        return YOLK_ERR_AGAIN;
    *header = frame->header;
    base_buf_clear(body);
    int status = base_buf_append(body, frame->body, frame->header.body_size);
    free(frame);
    return status;
}

uint64_t store_embedded_tick(struct store_embedded *embedded)
{
    mutex_lock(&embedded->lock);
    if (clock_real_now_ns() >= embedded->next_tick_ns)
        tick(embedded);
    uint64_t next = embedded->next_tick_ns;
    unlock(embedded);
    return next;
}
