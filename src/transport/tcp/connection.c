/* SPDX-License-Identifier: Apache-2.0 */
/* What one connection of the provider side does: hello, frames, payloads, replies. */
#define LOG_ROOM "tcp"
#include "transport/tcp/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "transport/gpu/gpu.h"

enum { RECEIVES_A_TURN = 64 };       /* then the worker's other connections get theirs */
enum { REPLIES_BYTES = 256 * 1024 }; /* are sent together before others are looked at */

void tcp_provider_log_refusal(struct tcp_provider *p, const char *text)
{
    uint64_t now = clock_real_now_ns();
    if (p->logged_ns != 0 && now - p->logged_ns < NS_PER_S) {
        p->unlogged++;
        return;
    }
    log_warn("connection refused: %s (%u more since the last such line)", text, p->unlogged);
    p->logged_ns = now;
    p->unlogged = 0;
}

void tcp_connection_refuse(struct tcp_provider *p, struct tcp_connection *c, const char *text)
{
    mutex_lock(&p->mutex);
    tcp_provider_log_refusal(p, text);
    mutex_unlock(&p->mutex);
    c->step = TCP_STEP_CLOSE;
}

static void connection_release_served(struct tcp_provider *p, struct tcp_connection *c)
{
    if (c->served == NULL)
        return;
    const struct yolk_access *access = &c->served->access;
    for (uint32_t i = 0; i < c->begun_count; i++)
        access->end(access->self, &c->begun[i]);
    c->begun_count = 0;
    mutex_lock(&p->mutex);
    c->served->users--;
    c->served = NULL;
    c->writing = false;
    condition_broadcast(&p->quiet);
    mutex_unlock(&p->mutex);
}

static void connection_give_staging_back(struct tcp_provider *p, struct tcp_connection *c)
{
    if (c->job.staging != NULL)
        tcp_disk_give_back(p->disk, c->job.staging);
    c->job.staging = NULL;
    free(c->bounce);
    c->bounce = NULL;
}

/* ---- memory of a GPU ---- */

/* Whose memory the frame is about; what is in use by the connection was allowed. */
static int gpu_of(struct tcp_provider *p, const struct tcp_served *served,
                  const struct tcp_frame *f, uint32_t *gpu)
{
    *gpu = served->gpu;
    if (served->memory != NULL || f->length == 0)
        return YOLK_OK;
    return gpu_side_look(p->settings.gpu, tcp_served_at(served, f->offset), gpu);
}

/* Makes room for the frame's bytes where they are a GPU's. */
static int bounce_make(struct tcp_provider *p, struct tcp_connection *c)
{
    int status = gpu_of(p, c->served, &c->frame, &c->bounce_gpu);
    if (status != YOLK_OK || c->bounce_gpu == 0 || c->frame.length == 0)
        return status;
    c->bounce = malloc(c->frame.length);
    return c->bounce != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "tcp: no memory");
}

static int bounce_copy(struct tcp_provider *p, struct tcp_connection *c, bool to_gpu)
{
    uint8_t *memory = tcp_served_at(c->served, c->frame.offset);
    int status = gpu_side_copy(p->settings.gpu, c->bounce_gpu, to_gpu ? memory : c->bounce,
                               to_gpu ? c->bounce : memory, c->frame.length, to_gpu);
    if (status == YOLK_ERR_STUCK)
        c->bounce = NULL; /* it may still be read or written */
    return status;
}

void tcp_connection_close(struct tcp_provider *p, struct tcp_connection *c)
{
    connection_release_served(p, c);
    connection_give_staging_back(p, c);
    mutex_lock(&p->mutex);
    base_list_remove(&c->node);
    base_list_remove(&c->job.node);
    net_close(c->fd);
    p->connection_count--;
    condition_broadcast(&p->quiet);
    mutex_unlock(&p->mutex);
    wire_hello_wipe(&c->hello);
    base_buf_free(&c->hello_out);
    free(c);
}

void tcp_connection_deadline(struct tcp_connection *c, uint64_t after_ns)
{
    c->deadline_ns = clock_after(clock_real_now_ns(), after_ns);
}

/* Returns > 0: bytes; 0: try later; < 0: the connection is over (step is CLOSE). */
static ssize_t connection_receive(struct tcp_connection *c, void *to, size_t size)
{
    ssize_t n;
    do {
        n = recv(c->fd, to, size, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    c->step = TCP_STEP_CLOSE;
    return -1;
}

static ssize_t connection_send(struct tcp_connection *c, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    c->step = TCP_STEP_CLOSE;
    return -1;
}

/* ---- the hello ---- */

/* True when everything is out. */
static bool hello_flush(struct tcp_connection *c)
{
    while (c->hello_out.size > 0) {
        struct iovec iov = {c->hello_out.data, c->hello_out.size};
        ssize_t n = connection_send(c, &iov, 1);
        if (n <= 0)
            return false;
        base_buf_consume(&c->hello_out, (size_t)n);
    }
    return true;
}

/* One frame of the hello, if it is all there. True: look again. */
static bool hello_step(struct tcp_provider *p, struct tcp_connection *c)
{
    struct wire_header header;
    const uint8_t *in = c->in + c->in_used;
    size_t size = c->in_size - c->in_used;
    if (c->hello_out.size > 0 && !hello_flush(c))
        return false;
    if (c->hello.state == WIRE_HELLO_DONE) {
        c->session = c->hello.session;
        c->gathers = (c->hello.features & TCP_FEATURE_READS) != 0;
        wire_hello_wipe(&c->hello);
        base_buf_free(&c->hello_out);
        mutex_lock(&p->mutex);
        c->authenticated = true;
        mutex_unlock(&p->mutex);
        c->step = TCP_STEP_FRAME;
        tcp_connection_deadline(c, p->settings.idle_timeout_ns);
        return true;
    }
    if (c->hello.state == WIRE_HELLO_FAILED) {
        tcp_connection_refuse(p, c, c->hello.text);
        return false;
    }
    if (size < WIRE_HEADER_SIZE)
        return false;
    if (wire_header_decode(in, &header) != YOLK_OK || header.kind > WIRE_ERROR ||
        header.body_size > TCP_INPUT_SIZE - WIRE_HEADER_SIZE) {
        tcp_connection_refuse(p, c, "no hello of ours");
        return false;
    }
    if (size < WIRE_HEADER_SIZE + header.body_size)
        return false;
    c->in_used += WIRE_HEADER_SIZE + header.body_size;
    /* Its answer shows in the machine's state, looked at when the output has gone. */
    int status = wire_hello_input(&c->hello, &header, in + WIRE_HEADER_SIZE, &c->hello_out);
    if (status != YOLK_OK && c->hello.state != WIRE_HELLO_FAILED) {
        tcp_connection_refuse(p, c, "broken hello");
        return false;
    }
    return true;
}

/* ---- frames ---- */

static void piece_add(struct tcp_connection *c, uint8_t *from, uint64_t size)
{
    struct iovec *last = c->piece_count > 0 ? &c->pieces[c->piece_count - 1] : NULL;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == from)
        last->iov_len += size;
    else if (size > 0)
        c->pieces[c->piece_count++] = (struct iovec){from, size};
}

/* Behind those that are not sent yet; as a part of the last one where that can be. The caller sees
 * to it that there is room. */
static void reply_add(struct tcp_connection *c, uint64_t request_id, int status, uint8_t *payload,
                      uint64_t size)
{
    struct tcp_frame *last = &c->last;
    bool joined = c->gathers && c->head_count > 0 && last->status == status &&
                  last->request_id + last->count == request_id &&
                  last->length + size <= TCP_LENGTH_MAX;
    if (!joined) {
        *last = (struct tcp_frame){.kind = TCP_REPLY, .request_id = request_id, .status = status};
        c->pieces[c->piece_count++] = (struct iovec){c->heads[c->head_count++], TCP_REPLY_SIZE};
    }
    last->count++;
    last->length += size;
    uint8_t bytes[TCP_FRAME_MAX];
    (void)tcp_frame_encode(last, bytes);
    memcpy(c->heads[c->head_count - 1], bytes, TCP_REPLY_SIZE);
    piece_add(c, payload, size);
    c->reply_bytes += size;
}

static void reply_begin(struct tcp_provider *p, struct tcp_connection *c, int status,
                        uint8_t *payload, uint64_t size)
{
    reply_add(c, c->frame.request_id, status, payload, size);
    c->step = TCP_STEP_REPLY;
    tcp_connection_deadline(c, p->settings.stall_timeout_ns);
}

/* Of memory that is counted as in use already. */
static int access_check(struct tcp_connection *c, const struct tcp_frame *f)
{
    const struct tcp_served *served = c->served;
    struct yolk_access_request request = {
        .segment = f->segment,
        .session = c->session,
        .offset = f->offset,
        .size = f->length,
        .ticket = f->kind == TCP_WRITE ? &f->ticket : NULL,
        .opcode = f->kind == TCP_WRITE ? YOLK_WRITE : YOLK_READ,
    };
    /* The callback is the policy; this is the memory. */
    bool inside = f->offset <= served->size && f->length <= served->size - f->offset;
    if (served->access.begin == NULL) {
        int status = served->access.check(served->access.self, &request);
        return status == YOLK_OK && !inside ? YOLK_ERR_INVALID : status;
    }
    int status = inside ? served->access.begin(served->access.self, &request) : YOLK_ERR_INVALID;
    if (status == YOLK_OK) {
        request.ticket = NULL; /* goes with the frame */
        c->begun[c->begun_count++] = request;
    }
    return status;
}

/* The segment is counted as in use before the engine is asked, so that a fence sees this access. */
static int access_begin(struct tcp_provider *p, struct tcp_connection *c)
{
    const struct tcp_frame *f = &c->frame;
    mutex_lock(&p->mutex);
    for (size_t i = 0; i < TCP_SERVED_MAX && c->served == NULL; i++) {
        if (p->served[i] != NULL && p->served[i]->segment == f->segment)
            c->served = p->served[i];
    }
    if (c->served != NULL) {
        c->served->users++;
        c->writing = f->kind == TCP_WRITE;
    }
    mutex_unlock(&p->mutex);
    if (c->served == NULL)
        return YOLK_ERR_STALE;
    if (c->served->file != NULL) { /* of reads it is asked when the disk's turn comes */
        if (f->kind == TCP_READ)
            return YOLK_OK;
        connection_release_served(p, c);
        return YOLK_ERR_ACCESS;
    }
    int status = access_check(c, f);
    if (status != YOLK_OK)
        connection_release_served(p, c);
    return status;
}

/* On a thread of the disk's. */
static void disk_done(struct tcp_disk_job *job)
{
    static const uint64_t one = 1;
    struct tcp_worker *w = BASE_CONTAINER(job, struct tcp_connection, job)->worker;
    mutex_lock(&w->provider->mutex);
    base_list_push_back(&w->finished, &job->node);
    ssize_t n = write(w->wake, &one, sizeof one);
    (void)n; /* readable already then */
    mutex_unlock(&w->provider->mutex);
}

static void disk_begin(struct tcp_provider *p, struct tcp_connection *c)
{
    c->job.target = (struct file_target){c->served->file, c->frame.segment, c->session};
    c->job.io = (struct yolk_io){.opcode = YOLK_READ,
                                 .offset = c->frame.offset,
                                 .size = c->frame.length,
                                 .ticket = c->frame.ticket};
    c->job.done = disk_done;
    c->step = TCP_STEP_DISK;
    tcp_connection_deadline(c, CLOCK_NEVER);
    int status = tcp_disk_submit(p->disk, &c->job);
    if (status != YOLK_OK) {
        connection_release_served(p, c);
        reply_begin(p, c, status, NULL, 0);
    }
}

void tcp_connection_disk_over(struct tcp_provider *p, struct tcp_connection *c)
{
    int status = c->job.status;
    connection_release_served(p, c);
    reply_begin(p, c, status, c->job.staging, status == YOLK_OK ? c->frame.length : 0);
}

static void quiet_reply(struct tcp_provider *p, struct tcp_connection *c)
{
    int status = YOLK_OK;
    mutex_lock(&p->mutex);
    for (uint32_t w = 0; w < p->worker_count; w++) {
        BASE_LIST_FOREACH(node, &p->workers[w].connections)
        {
            struct tcp_connection *other = BASE_CONTAINER(node, struct tcp_connection, node);
            if (other != c && other->authenticated && other->id == c->frame.id &&
                other->session == c->session) {
                net_shutdown(other->fd);
                status = YOLK_ERR_AGAIN;
            }
        }
    }
    mutex_unlock(&p->mutex);
    reply_begin(p, c, status, NULL, 0);
}

/* Of memory: its bytes are the reply. */
static void read_begin(struct tcp_provider *p, struct tcp_connection *c)
{
    if (c->status == YOLK_OK)
        c->status = bounce_make(p, c);
    if (c->status == YOLK_OK && c->bounce != NULL)
        c->status = bounce_copy(p, c, false);
    if (c->status != YOLK_OK)
        reply_begin(p, c, c->status, NULL, 0);
    else
        reply_begin(p, c, YOLK_OK,
                    c->bounce != NULL ? c->bounce : tcp_served_at(c->served, c->frame.offset),
                    c->frame.length);
}

static void frame_begin(struct tcp_provider *p, struct tcp_connection *c)
{
    tcp_connection_deadline(c, p->settings.stall_timeout_ns);
    switch (c->frame.kind) {
    case TCP_ATTACH:
        mutex_lock(&p->mutex);
        c->id = c->frame.id;
        mutex_unlock(&p->mutex);
        reply_begin(p, c, YOLK_OK, NULL, 0);
        return;
    case TCP_QUIET:
        quiet_reply(p, c);
        return;
    case TCP_READ:
        c->status = access_begin(p, c);
        if (c->status == YOLK_OK && c->served->file != NULL)
            disk_begin(p, c);
        else
            read_begin(p, c);
        return;
    case TCP_WRITE:
        c->status = access_begin(p, c);
        if (c->status == YOLK_OK)
            c->status = bounce_make(p, c);
        c->payload = c->status != YOLK_OK ? NULL
                     : c->bounce != NULL  ? c->bounce
                                          : tcp_served_at(c->served, c->frame.offset);
        c->payload_left = c->frame.length;
        c->step = TCP_STEP_PAYLOAD;
        return;
    default:
        tcp_connection_refuse(p, c, "a reply instead of a request");
    }
}

/* The next request, if it is all there; one read of READS is one. */
static int frame_next(struct tcp_connection *c, struct tcp_frame *frame, size_t *used)
{
    if (c->reads_left == 0) {
        int status = tcp_frame_decode(c->in + c->in_used, c->in_size - c->in_used, frame, used);
        if (status != YOLK_OK || *used == 0 || frame->kind != TCP_READS)
            return status;
        if (!c->gathers)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "reads in one frame, of one who may not");
        c->reads_left = frame->count;
        c->reads_id = frame->request_id;
        c->reads_segment = frame->segment;
        c->in_used += TCP_READS_SIZE;
    }
    struct tcp_place place;
    int status = tcp_place_decode(c->in + c->in_used, &place);
    *used = TCP_PLACE_SIZE;
    *frame = (struct tcp_frame){.kind = TCP_READ,
                                .request_id = c->reads_id,
                                .segment = c->reads_segment,
                                .offset = place.offset,
                                .length = place.length};
    return status;
}

static void frame_took(struct tcp_connection *c, size_t used)
{
    c->in_used += used;
    if (c->reads_left > 0) {
        c->reads_left--;
        c->reads_id++;
    }
}

/* True: look again. False: more bytes are needed (or the end). */
static bool frame_step(struct tcp_provider *p, struct tcp_connection *c)
{
    size_t used;
    if (frame_next(c, &c->frame, &used) != YOLK_OK) {
        tcp_connection_refuse(p, c, yolk_last_error());
        return false;
    }
    if (used == 0)
        return false;
    frame_took(c, used);
    frame_begin(p, c);
    return c->step != TCP_STEP_CLOSE;
}

static bool payload_step(struct tcp_worker *w, struct tcp_connection *c, unsigned *receives)
{
    struct tcp_provider *p = w->provider;
    uint64_t here = c->in_size - c->in_used;
    if (here > c->payload_left)
        here = c->payload_left;
    if (here > 0) {
        if (c->payload != NULL) {
            memcpy(c->payload, c->in + c->in_used, here);
            c->payload += here;
        }
        c->in_used += here;
        c->payload_left -= here;
    }
    while (c->payload_left > 0) {
        if ((*receives)++ >= RECEIVES_A_TURN)
            return false;
        uint64_t size = c->payload_left;
        if (c->payload == NULL && size > TCP_DISCARD_SIZE)
            size = TCP_DISCARD_SIZE;
        ssize_t n = connection_receive(c, c->payload != NULL ? c->payload : w->discard, size);
        if (n <= 0)
            return false;
        if (c->payload != NULL)
            c->payload += n;
        c->payload_left -= (uint64_t)n;
        tcp_connection_deadline(c, p->settings.stall_timeout_ns);
    }
    if (c->status == YOLK_OK && c->bounce != NULL)
        c->status = bounce_copy(p, c, true);
    connection_release_served(p, c);
    reply_begin(p, c, c->status, NULL, 0);
    return true;
}

/* Small reads of the same memory that came together are answered together: a call of the system a
 * reply would cost more than its bytes. */
static void gather_replies(struct tcp_connection *c)
{
    struct tcp_frame frame;
    size_t used;
    uint32_t gpu = 0;
    if (c->served == NULL || c->served->file != NULL || c->frame.kind != TCP_READ ||
        c->bounce != NULL)
        return;
    while (c->head_count < TCP_REPLIES_MAX && c->piece_count + 2 <= TCP_PIECES_MAX &&
           c->begun_count < TCP_BEGUN_MAX && c->reply_bytes < REPLIES_BYTES) {
        if (frame_next(c, &frame, &used) != YOLK_OK || used == 0 || frame.kind != TCP_READ ||
            frame.segment != c->frame.segment ||
            gpu_of(c->worker->provider, c->served, &frame, &gpu) != YOLK_OK || gpu != 0)
            return; /* its own turn comes */
        int status = access_check(c, &frame);
        uint64_t size = status == YOLK_OK ? frame.length : 0;
        reply_add(c, frame.request_id, status,
                  tcp_served_at(c->served, size > 0 ? frame.offset : 0), size);
        frame_took(c, used);
    }
}

static void pieces_sent(struct tcp_connection *c, size_t size)
{
    while (size > 0) {
        struct iovec *piece = &c->pieces[c->piece_first];
        if (size < piece->iov_len) {
            piece->iov_base = (uint8_t *)piece->iov_base + size;
            piece->iov_len -= size;
            return;
        }
        size -= piece->iov_len;
        c->piece_first++;
    }
}

static bool reply_step(struct tcp_provider *p, struct tcp_connection *c)
{
    if (!c->reply_begun)
        gather_replies(c);
    c->reply_begun = true;
    while (c->piece_first < c->piece_count) {
        ssize_t n = connection_send(c, c->pieces + c->piece_first, c->piece_count - c->piece_first);
        if (n <= 0)
            return false;
        pieces_sent(c, (size_t)n);
        tcp_connection_deadline(c, p->settings.stall_timeout_ns);
    }
    c->reply_begun = false;
    c->head_count = 0;
    c->piece_first = 0;
    c->piece_count = 0;
    c->reply_bytes = 0;
    connection_release_served(p, c);
    connection_give_staging_back(p, c);
    c->step = TCP_STEP_FRAME;
    tcp_connection_deadline(c, p->settings.idle_timeout_ns);
    return true;
}

void tcp_connection_run(struct tcp_worker *w, struct tcp_connection *c)
{
    struct tcp_provider *p = w->provider;
    unsigned receives = 0;
    for (;;) {
        bool again = false;
        switch (c->step) {
        case TCP_STEP_HELLO:
            again = hello_step(p, c);
            break;
        case TCP_STEP_FRAME:
            again = frame_step(p, c);
            break;
        case TCP_STEP_PAYLOAD:
            again = payload_step(w, c, &receives);
            break;
        case TCP_STEP_REPLY:
            again = reply_step(p, c);
            break;
        case TCP_STEP_DISK:
        case TCP_STEP_CLOSE:
            break;
        }
        if (again)
            continue;
        if ((c->step != TCP_STEP_HELLO && c->step != TCP_STEP_FRAME) || c->hello_out.size > 0)
            return;
        if (receives++ >= RECEIVES_A_TURN)
            return;
        memmove(c->in, c->in + c->in_used, c->in_size - c->in_used);
        c->in_size -= c->in_used;
        c->in_used = 0;
        ssize_t n = connection_receive(c, c->in + c->in_size, TCP_INPUT_SIZE - c->in_size);
        if (n <= 0)
            return;
        if (c->step == TCP_STEP_FRAME && c->in_size == 0)
            tcp_connection_deadline(c, p->settings.stall_timeout_ns);
        c->in_size += (size_t)n;
    }
}
