/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread: drives the session machine, so heartbeats and pushes wait for nothing slow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#define LOG_ROOM "store"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/random.h"
#include "store/internal.h"
#include "store/message.h"

/* How often the engine is asked again whether a fenced session's writers are gone. */
#define FENCE_RETRY_NS (2 * NS_PER_MS)
enum { OFFERING_LOOK_MS = 100 };

static void perform_connect(struct yolk_store *store, uint64_t session)
{
    struct store_control *control = &store->control;
    uint8_t instance[16];

    /* Connecting blocks: the lock is free meanwhile, only this thread changes the machine's state.
     */
    mutex_unlock(&control->lock);
    int status = store_client_control_open(store->client, session, instance);
    if (status == YOLK_OK && store->gds != NULL &&
        !(store_client_features(store->client) & WIRE_FEATURE_GDS)) {
        store_client_control_close(store->client);
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0,
                           "the master at %s is too old for the GDS tier: turn it off here, or "
                           "update the master",
                           store->master);
    }
    mutex_lock(&control->lock);
    uint64_t now = clock_real_now_ns();
    control->connect_status = status;
    control->hopeless = store_is_hopeless(store, status, &control->refused_ns);
    if (status == YOLK_OK) {
        store_session_connected(control->session, now, instance);
    } else {
        snprintf(control->connect_text, sizeof(control->connect_text), "%s", yolk_last_error());
        control->failed_once = 1;
        store_session_link_lost(control->session, now);
    }
    condition_broadcast(&control->changed);
}

static void add_fence(struct store_control *control, uint64_t segment, uint64_t session)
{
    for (struct store_fence *fence = control->fences; fence != NULL; fence = fence->next)
        if (fence->segment == segment && fence->session == session)
            return;
    struct store_fence *fence = calloc(1, sizeof(*fence));
    if (fence == NULL)
        return; /* the master asks again */
    fence->segment = segment;
    fence->session = session;
    fence->next = control->fences;
    control->fences = fence;
    control->fence_retry_ns = 0;
}

/* Answers those fences whose sessions cannot write any more. */
static void try_fences(struct yolk_store *store, uint64_t now_ns)
{
    struct store_control *control = &store->control;
    if (control->fences == NULL || now_ns < control->fence_retry_ns)
        return;
    control->fence_retry_ns = now_ns + FENCE_RETRY_NS;
    for (struct store_fence **at = &control->fences; *at != NULL;) {
        struct store_fence *fence = *at;
        int status = store->served == NULL
                         ? YOLK_OK
                         : (int)yolk_served_fence_session(store->served, fence->session);
        if (status == YOLK_OK && store->disk != NULL)
            status = store_disk_fence_session(store->disk, fence->session);
        if (status == YOLK_OK && store->gds != NULL)
            status = store_disk_fence_session(store_gds_disk(store->gds), fence->session);
        if (status != YOLK_OK) {
            at = &fence->next;
            continue;
        }
        store_session_fenced(control->session, now_ns, fence->segment, fence->session);
        *at = fence->next;
        free(fence);
    }
}

/* What the session machine wants. 1 if it wants nothing more until *wait_ns. */
static int perform(struct yolk_store *store, const struct store_session_output *output,
                   uint64_t *wait_ns)
{
    struct store_control *control = &store->control;
    uint64_t now = clock_real_now_ns();

    switch (output->kind) {
    case STORE_SESSION_CONNECT:
        perform_connect(store, store_session_id(control->session));
        return 0;
    case STORE_SESSION_DISCONNECT:
        store_client_control_close(store->client);
        control->failed_once = 1;
        condition_broadcast(&control->changed);
        return 0;
    case STORE_SESSION_SEND:
        if (store_client_control_send(store->client, output->message, output->request_id,
                                      output->body, output->body_size) != YOLK_OK) {
            store_client_control_close(store->client);
            store_session_link_lost(control->session, now);
        }
        return 0;
    case STORE_SESSION_OPENED:
        if (output->restarted)
            log_warn("the master was restarted; session %llu goes on",
                     (unsigned long long)output->session);
        /* Another session than the connections say, or other segment ids: connect anew. */
        if (output->restarted || control->last_session != output->session)
            store_segments_drop_all(store->segments);
        control->last_session = output->session;
        if (store->disk != NULL)
            store_disk_offered(store->disk);
        if (store->gds != NULL)
            store_disk_offered(store_gds_disk(store->gds));
        condition_broadcast(&control->changed);
        return 0;
    case STORE_SESSION_EXPIRED:
        log_warn("the master gave up session %llu; opening another one",
                 (unsigned long long)output->session);
        /* Its connections and writable mappings end here (those of a transfer in flight when it
         * ends): the owners wait for that before they let the space be used again. */
        store_segments_drop_all(store->segments);
        store_session_quiet(control->session, now);
        condition_broadcast(&control->changed);
        return 0;
    case STORE_SESSION_MOUNTED:
        yolk_served_set_segment(store->served, output->segment, store->ticket_key);
        control->memory_segment = output->segment;
        store_segments_set_own(store->segments, output->segment, 0);
        return 0;
    case STORE_SESSION_QUIET:
        store_disk_unmount(store->disk);
        control->quieting = 1;
        return 0;
    case STORE_SESSION_DISK_MOUNTED:
        store_disk_mounted(store->disk, control->memory_segment, output->segment);
        store_segments_set_own(store->segments, control->memory_segment, output->segment);
        return 0;
    case STORE_SESSION_GDS_MOUNTED:
        store_gds_mounted(store->gds, output->segment);
        store_segments_set_gds(store->segments, output->segment);
        return 0;
    case STORE_SESSION_FENCE:
        add_fence(control, output->segment, output->session);
        return 0;
    case STORE_SESSION_PUT_EXPIRED:
        return 0; /* the put machine finds out from its END and revokes */
    case STORE_SESSION_UNMOUNTED:
        control->unmounted = 1;
        control->unmount_status = output->status;
        condition_broadcast(&control->changed);
        return 0;
    case STORE_SESSION_CLOSED:
        control->closed = 1;
        condition_broadcast(&control->changed);
        return 0;
    case STORE_SESSION_WAIT:
        *wait_ns = output->deadline_ns;
        return 1;
    }
    return 0;
}

/* A frame that cannot be sent is as one lost on the way: the master asks again. */
static void send_frames(struct yolk_store *store, struct store_disk *disk, struct base_buf *body)
{
    uint16_t message;
    while (store_disk_take_frame(disk, &message, body))
        if (store_client_control_send(store->client, message, 0, body->data, body->size) != YOLK_OK)
            base_error_clear();
}

/* What the disk and the GDS file have for the master and for the session. */
static void serve_disk(struct yolk_store *store, struct base_buf *body)
{
    struct store_control *control = &store->control;
    if (store->gds != NULL) {
        send_frames(store, store_gds_disk(store->gds), body);
        store_gds_floor(store->gds, store_session_floor(control->session));
    }
    if (store->disk == NULL)
        return;
    send_frames(store, store->disk, body);
    if (control->quieting && store_disk_is_quiet(store->disk)) {
        control->quieting = 0;
        store_session_disk_quiet(control->session, clock_real_now_ns());
    }
}

static void control_main(void *arg)
{
    struct yolk_store *store = arg;
    struct store_control *control = &store->control;
    struct store_session_output output;
    struct wire_header header;
    struct base_buf body;

    base_buf_init(&body, MAX_FRAME_BODY);
    mutex_lock(&control->lock);
    while (!control->stop) {
        uint64_t wait_ns = UINT64_MAX;
        do {
            try_fences(store, clock_real_now_ns());
            serve_disk(store, &body);
            store_session_next(control->session, clock_real_now_ns(), &output);
        } while (!perform(store, &output, &wait_ns) && !control->stop);
        if (control->stop)
            break;
        if (control->fences != NULL && control->fence_retry_ns < wait_ns)
            wait_ns = control->fence_retry_ns;
        mutex_unlock(&control->lock);
        int status = store_client_control_receive(store->client, wait_ns, &header, &body);
        mutex_lock(&control->lock);
        uint64_t now = clock_real_now_ns();
        if (status == YOLK_OK) {
            if (store->disk != NULL)
                store_disk_input(store->disk, header.kind, body.data, header.body_size);
            if (store->gds != NULL)
                store_gds_input(store->gds, header.kind, body.data, header.body_size);
            store_session_input(control->session, now, header.kind, header.request_id, body.data,
                                header.body_size);
        } else if (status != YOLK_ERR_AGAIN) {
            store_client_control_close(store->client);
            store_session_link_lost(control->session, now);
        }
    }
    mutex_unlock(&control->lock);
    base_buf_free(&body);
}

int store_control_start(struct yolk_store *store)
{
    struct store_control *control = &store->control;
    struct random random = random_real();
    struct store_session_options options = {
        .name = store->name,
        .tenant = store->tenant,
        .backoff_first_ns = 20 * NS_PER_MS,
        .backoff_max_ns = 1 * NS_PER_S,
        .reply_timeout_ns = 3 * NS_PER_S,
        .seed = random_u64(&random),
        .segment_size = store->served == NULL ? 0 : store->options.segment_size_bytes,
        .endpoints = store->served == NULL ? "" : store->endpoints,
        .mirror = store->mirror,
        .holds = store->holds,
        .disk = store->disk == NULL ? NULL : store_disk_mount(store->disk),
        .gds = store->gds == NULL ? NULL : store_disk_mount(store_gds_disk(store->gds)),
    };
    memcpy(options.client_id, store->client_id, sizeof(options.client_id));
    memcpy(options.ticket_key, store->ticket_key, sizeof(options.ticket_key));
    mutex_init(&control->lock);
    condition_init(&control->changed);
    int status = store_session_create(&options, &control->session);
    if (status == YOLK_OK)
        status = thread_start(&control->thread, "yolk-control", control_main, store);
    if (status != YOLK_OK) {
        store_session_destroy(control->session);
        control->session = NULL;
        condition_destroy(&control->changed);
        mutex_destroy(&control->lock);
    }
    return status;
}

/* Trying again cannot help: what to tell the caller of open. */
static int is_final(int status)
{
    return status == YOLK_ERR_AUTH || status == YOLK_ERR_VERSION || status == YOLK_ERR_INVALID ||
           status == YOLK_ERR_TOO_LARGE || status == YOLK_ERR_LIMIT ||
           status == YOLK_ERR_UNSUPPORTED || status == YOLK_ERR_PROTOCOL ||
           status == YOLK_ERR_CONFIG || status == YOLK_ERR_NO_TENANT;
}

int store_control_wait_open(struct yolk_store *store, uint64_t deadline_ns)
{
    struct store_control *control = &store->control;
    int status = YOLK_OK;
    mutex_lock(&control->lock);
    while (!store_session_is_open(control->session)) {
        const char *text;
        int refusal = store_session_last_refusal(control->session, &text);
        if (control->hopeless || (control->failed_once && is_final(control->connect_status))) {
            status = base_fail(control->connect_status, 0, "%s", control->connect_text);
            break;
        }
        if (control->failed_once && is_final(refusal)) {
            status = base_fail(refusal, 0, "the master at %s refused the session: %s",
                               store->master, text[0] != '\0' ? text : yolk_strerror(refusal));
            break;
        }
        if (condition_wait_until(&control->changed, &control->lock, deadline_ns))
            continue;
        if (store_session_is_offering(control->session)) {
            /* Millions of values on a disk take their time, each answer of the master a little. */
            deadline_ns = clock_after_ms(clock_real_now_ns(), OFFERING_LOOK_MS);
            continue;
        }
        if (control->connect_status != YOLK_OK)
            status = base_fail(control->connect_status, 0, "%s", control->connect_text);
        else if (refusal != YOLK_OK)
            status = base_fail(refusal, 0, "the master at %s: %s", store->master,
                               text[0] != '\0' ? text : yolk_strerror(refusal));
        else
            status = base_fail(YOLK_ERR_TIMEOUT, 0,
                               "the master at %s did not open a session in time", store->master);
        break;
    }
    mutex_unlock(&control->lock);
    return status;
}

int store_control_connect_status(struct yolk_store *store)
{
    mutex_lock(&store->control.lock);
    int status = store->control.connect_status;
    mutex_unlock(&store->control.lock);
    return status;
}

int store_control_unmount(struct yolk_store *store, uint64_t grace_ms, uint64_t deadline_ns)
{
    struct store_control *control = &store->control;
    int status = YOLK_OK;
    mutex_lock(&control->lock);
    if (!control->unmounted) {
        store_session_unmount(control->session, clock_real_now_ns(), grace_ms);
        store_client_wake(store->client);
    }
    while (!control->unmounted) {
        if (condition_wait_until(&control->changed, &control->lock, deadline_ns))
            continue;
        status = base_fail(YOLK_ERR_TIMEOUT, 0, "the master did not confirm the unmount in time");
        break;
    }
    if (control->unmounted)
        status = control->unmount_status;
    /* Asked for a second time, the master may have forgotten the segment: it is out of use. */
    if (status == YOLK_ERR_NOT_FOUND || status == YOLK_ERR_STALE)
        status = YOLK_OK;
    mutex_unlock(&control->lock);
    return status;
}

int store_control_stat(struct yolk_store *store, struct base_buf *lines)
{
    mutex_lock(&store->control.lock);
    struct store_disk *disk = store->disk; /* once there, it stays while calls are in progress */
    mutex_unlock(&store->control.lock);
    int status = disk == NULL ? YOLK_OK : store_disk_stat(disk, lines);
    return status != YOLK_OK || store->gds == NULL ? status : store_gds_stat(store->gds, lines);
}

void store_control_stop(struct yolk_store *store, uint64_t deadline_ns)
{
    struct store_control *control = &store->control;
    if (control->session == NULL)
        return;
    mutex_lock(&control->lock);
    /* Without a session in force there is nothing to end: the master lets it expire. */
    if (store_session_is_open(control->session)) {
        store_session_close(control->session, clock_real_now_ns());
        store_client_wake(store->client);
        while (!control->closed && store_session_is_open(control->session) &&
               condition_wait_until(&control->changed, &control->lock, deadline_ns)) {
            /* woken: look again */
        }
    }
    control->stop = 1;
    store_client_wake(store->client);
    mutex_unlock(&control->lock);
    thread_join(&control->thread);
    while (control->fences != NULL) {
        struct store_fence *fence = control->fences;
        control->fences = fence->next;
        free(fence);
    }
    store_session_destroy(control->session);
    control->session = NULL;
    condition_destroy(&control->changed);
    mutex_destroy(&control->lock);
}
