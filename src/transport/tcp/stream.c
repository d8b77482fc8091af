/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over a connection that is ready. Small reads are asked for together, by one frame for
 * up to TCP_GATHER_BYTES, and answered with their bytes one behind the other, so that one receive
 * puts many of them in their places.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/clock.h"
#include "transport/tcp/link.h"
#include "transport/tcp/tcp.h"

enum {
    SEND_VECTORS = 256,
    RECEIVE_VECTORS = 256,
    SMALL_REPLY = 16384, /* up to here a second copy costs less than a call of its own */
    RECEIVES_A_TURN = 64,
};

static _Atomic uint64_t staged_bytes;

uint64_t transport_tcp_staged_bytes(void)
{
    return atomic_load_explicit(&staged_bytes, memory_order_relaxed);
}

/* ---- the list of requests ---- */

void tcp_link_append(struct tcp_link *l, struct tcp_entry *e)
{
    base_list_push_back(&l->entries, &e->node);
    l->entry_count++;
    (void)atomic_fetch_add_explicit(&l->bytes, e->size + 1, memory_order_relaxed);
    if (l->next == NULL)
        l->next = e;
}

void tcp_link_detach(struct tcp_link *l, struct tcp_entry *e)
{
    base_list_remove(&e->node);
    l->entry_count--;
    (void)atomic_fetch_sub_explicit(&l->bytes, e->size + 1, memory_order_relaxed);
}

/* NULL behind the last. */
static struct tcp_entry *entry_after(struct tcp_link *l, struct tcp_entry *e)
{
    return e->node.next == &l->entries ? NULL
                                       : BASE_CONTAINER(e->node.next, struct tcp_entry, node);
}

/* The request that the next bytes answer; NULL: none. */
static struct tcp_entry *entry_first(struct tcp_link *l)
{
    struct base_list *node = base_list_first(&l->entries);
    return node == NULL ? NULL : BASE_CONTAINER(node, struct tcp_entry, node);
}

static size_t entry_wire_size(const struct tcp_entry *e)
{
    return e->frame_size + (e->kind == ENTRY_IO && e->opcode == YOLK_WRITE ? (size_t)e->size : 0);
}

static void note_moved(struct tcp_link *l)
{
    atomic_store_explicit(&l->moved_ns, clock_real_now_ns(), memory_order_relaxed);
}

/* ---- sending ---- */

ssize_t tcp_stream_send_bytes(struct tcp_link *l, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        note_moved(l);
        return n;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
        return 0;
    return base_fail(YOLK_ERR_LINK, errno, "tcp: send");
}

ssize_t tcp_stream_receive_bytes(struct tcp_link *l, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do {
        n = recvmsg(l->fd, &message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        note_moved(l);
        return n;
    }
    if (n == 0)
        return base_fail(YOLK_ERR_LINK, 0, "tcp: the provider closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    return base_fail(YOLK_ERR_LINK, errno, "tcp: receive");
}

/* How many from e on one frame may ask for. */
static uint32_t gather_count(struct tcp_link *l, struct tcp_entry *e)
{
    uint32_t count = 0;
    uint64_t bytes = 0, id = e->request_id;
    for (; l->gathers && e != NULL && count < TCP_READS_MAX && e->plain && e->frame_size == 0 &&
           e->request_id == id + count;
         e = entry_after(l, e)) {
        if (count > 0 && bytes + e->size > TCP_GATHER_BYTES)
            break;
        bytes += e->size;
        count++;
    }
    return count;
}

/* Makes the frame of e, and perhaps of those behind it. */
static void frame_make(struct tcp_link *l, struct tcp_entry *e)
{
    uint32_t count = gather_count(l, e);
    struct tcp_frame frame = {.kind = count > 1 ? TCP_READS : TCP_READ,
                              .request_id = e->request_id,
                              .segment = l->target->segment,
                              .offset = e->offset,
                              .length = e->size,
                              .count = count};
    if (count <= 1) {
        e->frame_size = tcp_frame_encode(&frame, e->frame);
        return;
    }
    frame.length = 0;
    size_t size = tcp_frame_encode(&frame, e->frame);
    for (uint32_t i = 0; i < count; i++, e = entry_after(l, e)) {
        const struct tcp_place place = {e->offset, e->size};
        tcp_place_encode(&place, e->frame + size);
        e->frame_size = size + TCP_PLACE_SIZE;
        e->gathered = true;
        size = 0;
    }
}

static size_t send_vectors(struct tcp_link *l, struct iovec iov[SEND_VECTORS])
{
    size_t count = 0;
    for (struct tcp_entry *e = l->next; e != NULL && count + 2 <= SEND_VECTORS;
         e = entry_after(l, e)) {
        if (e->frame_size == 0)
            frame_make(l, e);
        if (e->sent < e->frame_size)
            iov[count++] = (struct iovec){e->frame + e->sent, e->frame_size - e->sent};
        uint64_t done = e->sent > e->frame_size ? e->sent - e->frame_size : 0;
        if (entry_wire_size(e) > e->frame_size)
            iov[count++] = (struct iovec){e->local + done, e->size - done};
    }
    return count;
}

int tcp_stream_send(struct tcp_link *l)
{
    l->unsent = 0;
    l->unsent_count = 0;
    while (l->next != NULL) {
        struct iovec iov[SEND_VECTORS];
        size_t count = send_vectors(l, iov);
        ssize_t n = tcp_stream_send_bytes(l, iov, count);
        if (n <= 0)
            return (int)n;
        size_t left = (size_t)n;
        while (l->next != NULL && l->next->frame_size > 0) {
            size_t rest = entry_wire_size(l->next) - l->next->sent;
            if (left < rest) {
                l->next->sent += left;
                break;
            }
            l->next->sent += rest;
            left -= rest;
            l->next = entry_after(l, l->next);
        }
    }
    return YOLK_OK;
}

/* ---- replies ---- */

static void quiet_answered(struct tcp_link *l, struct tcp_entry *e, int status)
{
    struct tcp_target *t = l->target;
    if (status != YOLK_OK)
        return; /* it is asked again */
    mutex_lock(&t->mutex);
    tcp_limbo_resolve(t, e->limbo_id, YOLK_ERR_LINK);
    mutex_unlock(&t->mutex);
}

/* The oldest entry got its reply. */
static void reply_finish(struct tcp_link *l, struct base_list *over)
{
    struct tcp_entry *e = entry_first(l);
    tcp_link_detach(l, e);
    if (e->kind == ENTRY_QUIET)
        quiet_answered(l, e, l->reply_status);
    e->completion.status = (enum yolk_status)l->reply_status;
    e->completion.transferred = l->reply_status == YOLK_OK ? e->size : 0;
    base_list_push_back(over, &e->node);
    l->reply_count--;
    l->reply_got = 0;
}

static uint64_t entry_payload(const struct tcp_entry *e)
{
    return e->kind == ENTRY_IO && e->opcode == YOLK_READ ? e->size : 0;
}

/* `size` more bytes of the reply's payload are in place. */
static void payload_took(struct tcp_link *l, uint64_t size)
{
    struct base_list over;
    base_list_init(&over);
    l->reply_left -= size;
    while (l->reply_count > 0) {
        bool ok = l->reply_status == YOLK_OK;
        uint64_t rest = ok ? entry_payload(entry_first(l)) - l->reply_got : 0;
        if (rest > size) {
            l->reply_got += size;
            break;
        }
        size -= rest;
        reply_finish(l, &over);
    }
    tcp_entries_end(&over);
}

/* The bytes that a reply of OK to these must have; PROTOCOL: they are no reads that were sent. */
static int reply_expected(struct tcp_link *l, uint32_t count, uint64_t *bytes)
{
    struct tcp_entry *e = entry_first(l);
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++, e = entry_after(l, e)) {
        bool read = e != NULL && e->kind == ENTRY_IO && e->opcode == YOLK_READ;
        if (e == NULL || e == l->next || (count > 1 && !read))
            return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: a reply to no request");
        *bytes += entry_payload(e);
    }
    return YOLK_OK;
}

static int reply_parse(struct tcp_link *l)
{
    struct tcp_frame frame;
    size_t used;
    uint64_t bytes;
    struct tcp_entry *e = entry_first(l);
    int status = tcp_frame_decode(l->reply, l->reply_size, &frame, &used);
    if (status != YOLK_OK)
        return status;
    if (e == NULL || frame.kind != TCP_REPLY || frame.request_id != e->request_id ||
        frame.status > YOLK_OK)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: a reply to no request");
    uint32_t count = frame.count == 0 ? 1 : frame.count;
    status = reply_expected(l, count, &bytes);
    if (status != YOLK_OK)
        return status;
    if (frame.length != (frame.status == YOLK_OK ? bytes : 0))
        return base_fail(YOLK_ERR_PROTOCOL, 0, "tcp: a reply of the wrong size");
    l->reply_count = count;
    l->reply_many = count > 1;
    l->reply_size = 0;
    l->reply_status = frame.status;
    l->reply_left = frame.length;
    l->reply_got = 0;
    payload_took(l, 0); /* what has no bytes is over */
    return YOLK_OK;
}

/* Takes apart what the stage holds. */
static int stage_parse(struct tcp_link *l)
{
    while (l->stage_used < l->stage_size) {
        const uint8_t *from = l->stage + l->stage_used;
        size_t here = l->stage_size - l->stage_used;
        if (l->reply_count > 0) {
            struct tcp_entry *e = entry_first(l);
            uint64_t rest = e->size - l->reply_got;
            size_t size = here < rest ? here : (size_t)rest;
            if (e->channel != NULL) /* nobody has it any more otherwise */
                memcpy(e->local + l->reply_got, from, size);
            l->staged += size;
            l->stage_used += size;
            payload_took(l, size);
            continue;
        }
        size_t size = TCP_REPLY_SIZE - l->reply_size;
        if (size > here)
            size = here;
        memcpy(l->reply + l->reply_size, from, size);
        l->reply_size += size;
        l->stage_used += size;
        if (l->reply_size < TCP_REPLY_SIZE)
            break;
        int status = reply_parse(l);
        if (status != YOLK_OK)
            return status;
    }
    l->stage_size = 0;
    l->stage_used = 0;
    (void)atomic_fetch_add_explicit(&staged_bytes, l->staged, memory_order_relaxed);
    l->staged = 0;
    return YOLK_OK;
}

/* ---- receiving ---- */

/* Where the rest of the reply in work goes: neighbours in memory as one, up to the first one that
 * nobody wants any more. *size is their sum. */
static size_t payload_vectors(struct tcp_link *l, struct iovec *iov, size_t room, uint64_t *size)
{
    size_t count = 0;
    uint64_t got = l->reply_got;
    struct tcp_entry *e = entry_first(l);
    *size = 0;
    for (uint32_t i = 0; i < l->reply_count && e->channel != NULL; i++, e = entry_after(l, e)) {
        uint8_t *to = e->local + got;
        size_t length = (size_t)(e->size - got);
        got = 0;
        if (length == 0)
            continue;
        if (count > 0 && (uint8_t *)iov[count - 1].iov_base + iov[count - 1].iov_len == to)
            iov[count - 1].iov_len += length;
        else if (count < room)
            iov[count++] = (struct iovec){to, length};
        else
            break;
        *size += length;
    }
    return count;
}

/* How much may be taken where a head is due: that alone if large payloads follow it, so that they
 * go to their places at once, else as much as there is. */
static size_t head_room(const struct tcp_link *l, const struct tcp_entry *e)
{
    bool direct = e != NULL && (entry_payload(e) > SMALL_REPLY || e->gathered);
    return direct ? TCP_REPLY_SIZE - l->reply_size : TCP_STAGE_SIZE;
}

/* The first entry that the reply in work does not answer. */
static struct tcp_entry *entry_behind_reply(struct tcp_link *l)
{
    struct tcp_entry *e = entry_first(l);
    for (uint32_t i = 0; i < l->reply_count && e != NULL; i++)
        e = entry_after(l, e);
    return e;
}

/* One receive. AGAIN: nothing more is there. */
static int stream_receive(struct tcp_link *l)
{
    struct iovec iov[RECEIVE_VECTORS];
    size_t count = 0;
    uint64_t payload = 0;
    if (l->reply_count > 0 && (l->reply_many || l->reply_left > SMALL_REPLY))
        count = payload_vectors(l, iov, RECEIVE_VECTORS - 1, &payload);
    if (count == 0)
        iov[count++] = (struct iovec){l->stage, l->reply_count > 0 ? TCP_STAGE_SIZE
                                                                   : head_room(l, entry_first(l))};
    else if (payload == l->reply_left)
        iov[count++] = (struct iovec){l->stage, head_room(l, entry_behind_reply(l))};
    ssize_t n = tcp_stream_receive_bytes(l, iov, count);
    if (n <= 0)
        return n == 0 ? YOLK_ERR_AGAIN : (int)n;
    uint64_t took = (uint64_t)n < payload ? (uint64_t)n : payload;
    l->stage_size = (size_t)((uint64_t)n - took);
    l->stage_used = 0;
    if (took > 0)
        payload_took(l, took);
    return stage_parse(l);
}

int tcp_stream_step(struct tcp_link *l)
{
    int status = tcp_stream_send(l);
    if (status != YOLK_OK)
        return status;
    for (int i = 0; i < RECEIVES_A_TURN && l->entry_count > 0; i++) {
        status = stream_receive(l);
        if (status != YOLK_OK)
            return status;
    }
    return YOLK_ERR_AGAIN;
}

/* ---- canceling ---- */

/* Only this code writes to the memory of a read, under the link's lock: what still comes is thrown
 * away. A copy of the entry stays for the stream. False without memory for it. */
static bool abandon_read(struct tcp_link *l, struct tcp_entry *e)
{
    struct tcp_entry *copy = base_malloc(sizeof *copy);
    if (copy == NULL)
        return false;
    *copy = *e;
    copy->channel = NULL;
    base_list_insert_after(&e->node, &copy->node);
    base_list_remove(&e->node);
    if (l->next == e)
        l->next = copy;
    tcp_entry_end(e, YOLK_ERR_CANCELED, 0);
    return true;
}

bool tcp_stream_cancel(struct tcp_link *l, struct tcp_channel *ch, uint64_t cookie)
{
    BASE_LIST_FOREACH(node, &l->entries)
    {
        struct tcp_entry *e = BASE_CONTAINER(node, struct tcp_entry, node);
        if (e->channel != ch || e->completion.cookie != cookie)
            continue;
        if (e->sent == 0 && !e->gathered) {
            if (l->next == e)
                l->next = entry_after(l, e);
            tcp_link_detach(l, e);
            tcp_entry_end(e, YOLK_ERR_CANCELED, 0);
        } else if (e->opcode != YOLK_READ || !abandon_read(l, e)) {
            e->canceled = true; /* it ends with its reply, or with the link */
        }
        return true;
    }
    return false;
}
