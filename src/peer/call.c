/* SPDX-License-Identifier: Apache-2.0 */
/* Asking another peer: one connection, one exchange at a time. */
#include <string.h>

#include "base/error.h"
#include "engine/hello.h"
#include "peer/internal.h"
#include "platform/clock.h"
#include "wire/msg.h"

void peer_call_init(struct peer_call *call)
{
    memset(call, 0, sizeof(*call));
    mutex_init(&call->lock);
    call->fd = -1;
}

void peer_call_free(struct peer_call *call)
{
    net_close(call->fd);
    mutex_destroy(&call->lock);
}

static enum yolk_status connect_peer(struct peer_call *call,
                                     const struct peer_call_options *options, const char *address,
                                     uint64_t deadline_ns)
{
    struct net_address parsed;
    int fd = -1;
    int status = net_address_parse(address, 0, &parsed);
    if (status == YOLK_OK)
        status = net_connect(&parsed, deadline_ns, &fd);
    if (status != YOLK_OK)
        return base_fail_context(status, "cannot reach the peer %s", address);
    struct wire_hello_options hello_options = {
        .secret = options->secret,
        .secret_size = options->secret_size,
        .role = WIRE_ROLE_CLIENT,
        .purpose = WIRE_PURPOSE_PEER,
    };
    memcpy(hello_options.instance, options->instance, WIRE_ID_SIZE);
    struct wire_hello_machine hello;
    status = wire_hello_init(&hello, false, &hello_options);
    if (status == YOLK_OK) {
        status = engine_hello_run(&hello, fd, deadline_ns);
        if (status != YOLK_OK)
            status = base_fail(status, 0, "the peer at %s: %s", address,
                               hello.text[0] != '\0' ? hello.text : yolk_strerror(status));
        wire_hello_wipe(&hello);
    }
    if (status != YOLK_OK)
        net_close(fd);
    else
        call->fd = fd;
    return status;
}

static enum yolk_status receive(struct peer_call *call, uint64_t deadline_ns,
                                struct wire_header *header, struct base_buf *reply)
{
    uint8_t head[WIRE_HEADER_SIZE];
    int status = net_recv_all(call->fd, head, sizeof(head), deadline_ns);
    if (status == YOLK_OK)
        status = wire_header_decode(head, header);
    if (status != YOLK_OK)
        return status;
    base_buf_clear(reply);
    uint8_t *body = base_buf_extend(reply, header->body_size);
    if (body == NULL && header->body_size > 0)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an answer of %u bytes",
                         header->body_size);
    return header->body_size > 0 ? net_recv_all(call->fd, body, header->body_size, deadline_ns)
                                 : YOLK_OK;
}

static enum yolk_status check_reply(const struct wire_header *header, uint64_t request,
                                    uint16_t kind, const struct base_buf *reply)
{
    struct wire_status_reply error;
    if (header->kind == WIRE_ERROR &&
        wire_decode(WIRE_ERROR, reply->data, reply->size, &error) == YOLK_OK && error.status < 0) {
        char text[MAX_LAST_ERROR / 2];
        wire_view_copy_text(error.text, text, sizeof(text));
        return base_fail(error.status, 0, "the peer: %s",
                         text[0] != '\0' ? text : yolk_strerror(error.status));
    }
    if (header->kind != kind + 1 || header->request_id != request)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "the peer answered %s where %s was expected",
                         wire_kind_name(header->kind), wire_kind_name((uint16_t)(kind + 1)));
    return YOLK_OK;
}

static enum yolk_status exchange(struct peer_call *call, uint16_t kind, const void *message,
                                 uint64_t deadline_ns, struct base_buf *reply)
{
    struct base_buf frame;
    struct wire_header header;
    uint64_t request = ++call->next_request;
    base_buf_init(&frame, MAX_PEER_MESSAGE + 2048);
    int status = wire_frame_encode(kind, request, message, &frame);
    if (status == YOLK_OK)
        status = net_send_all(call->fd, frame.data, frame.size, deadline_ns);
    base_buf_free(&frame);
    if (status == YOLK_OK)
        status = receive(call, deadline_ns, &header, reply);
    return status == YOLK_OK ? check_reply(&header, request, kind, reply) : status;
}

enum yolk_status peer_call(struct peer_call *call, const struct peer_call_options *options,
                           const char *address, uint16_t kind, const void *message,
                           uint64_t deadline_ns, struct base_buf *reply)
{
    mutex_lock(&call->lock);
    /* One that the peer closed meanwhile says nothing of the peer. What was sent on it may have
     * been done, so only a connection that is dead before anything is sent is made anew. */
    if (call->fd >= 0 && net_is_dead(call->fd)) {
        net_close(call->fd);
        call->fd = -1;
    }
    enum yolk_status status = YOLK_OK;
    if (call->fd < 0)
        status = connect_peer(call, options, address, deadline_ns);
    if (status == YOLK_OK) {
        status = exchange(call, kind, message, deadline_ns, reply);
        /* Whatever went wrong: an answer that comes late would be taken for the next one's. */
        if (status != YOLK_OK) {
            net_close(call->fd);
            call->fd = -1;
        }
        if (status == YOLK_ERR_EOF || status == YOLK_ERR_LINK)
            status = base_fail(YOLK_ERR_PEER_DEAD, 0, "the peer %s closed the connection", address);
        if (status == YOLK_ERR_TIMEOUT)
            status = base_fail(YOLK_ERR_TIMEOUT, 0, "the peer %s did not answer in time", address);
    }
    mutex_unlock(&call->lock);
    return status;
}
