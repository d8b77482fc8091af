/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "platform/net.h"
#include "transport/shm/internal.h"

static void header_encode(uint16_t kind, uint32_t size, uint8_t *out)
{
    struct wire_header header = {.kind = kind, .body_size = size};
    wire_header_encode(&header, out);
}

static int header_check(const uint8_t *in, uint16_t kind, uint32_t size)
{
    if (base_load_u16(in) != WIRE_MAGIC || base_load_u16(in + 2) != kind ||
        base_load_u32(in + 4) != size)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: an unexpected message");
    return YOLK_OK;
}

void shm_open_encode(const struct shm_open *open, uint8_t out[SHM_OPEN_SIZE])
{
    header_encode(SHM_OPEN, SHM_OPEN_SIZE - WIRE_HEADER_SIZE, out);
    uint8_t *body = out + WIRE_HEADER_SIZE;
    base_store_u64(body, open->segment);
    base_store_u32(body + 8, open->writable ? 1 : 0);
    base_store_u32(body + 12, 0);
}

int shm_open_decode(const uint8_t in[SHM_OPEN_SIZE], struct shm_open *out)
{
    int status = header_check(in, SHM_OPEN, SHM_OPEN_SIZE - WIRE_HEADER_SIZE);
    if (status != YOLK_OK)
        return status;
    const uint8_t *body = in + WIRE_HEADER_SIZE;
    out->segment = base_load_u64(body);
    out->writable = base_load_u32(body + 8) != 0;
    return YOLK_OK;
}

void shm_opened_encode(const struct shm_opened *opened, uint8_t out[SHM_OPENED_SIZE])
{
    header_encode(SHM_OPENED, SHM_OPENED_SIZE - WIRE_HEADER_SIZE, out);
    uint8_t *body = out + WIRE_HEADER_SIZE;
    base_store_u32(body, (uint32_t)opened->status);
    base_store_u32(body + 4, opened->generation);
    base_store_u64(body + 8, opened->size);
    base_store_u64(body + 16, opened->map_size);
}

int shm_opened_decode(const uint8_t in[SHM_OPENED_SIZE], struct shm_opened *out)
{
    int status = header_check(in, SHM_OPENED, SHM_OPENED_SIZE - WIRE_HEADER_SIZE);
    if (status != YOLK_OK)
        return status;
    const uint8_t *body = in + WIRE_HEADER_SIZE;
    out->status = (int32_t)base_load_u32(body);
    out->generation = base_load_u32(body + 4);
    out->size = base_load_u64(body + 8);
    out->map_size = base_load_u64(body + 16);
    if (out->status > YOLK_OK || out->size > out->map_size || out->map_size > SIZE_MAX / 2)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: an impossible size");
    return YOLK_OK;
}

void shm_ask_encode(const struct shm_ask *ask, uint8_t out[SHM_ASK_SIZE])
{
    header_encode(SHM_ASK, SHM_ASK_SIZE - WIRE_HEADER_SIZE, out);
    base_store_u64(out + WIRE_HEADER_SIZE, ask->first);
    base_store_u64(out + WIRE_HEADER_SIZE + 8, ask->second);
}

int shm_ask_decode(const uint8_t in[SHM_ASK_SIZE], struct shm_ask *out)
{
    int status = header_check(in, SHM_ASK, SHM_ASK_SIZE - WIRE_HEADER_SIZE);
    out->first = base_load_u64(in + WIRE_HEADER_SIZE);
    out->second = base_load_u64(in + WIRE_HEADER_SIZE + 8);
    return status;
}

void shm_answer_encode(const struct shm_answer *answer, uint8_t out[SHM_ANSWER_SIZE])
{
    uint8_t *body = out + WIRE_HEADER_SIZE;
    memset(out, 0, SHM_ANSWER_SIZE);
    header_encode(SHM_ANSWER, SHM_ANSWER_SIZE - WIRE_HEADER_SIZE, out);
    base_store_u32(body, (uint32_t)answer->status);
    for (int i = 0; i < 3; i++)
        base_store_u64(body + 8 + 8 * i, answer->numbers[i]);
    memcpy(body + 32, answer->text, strnlen(answer->text, SHM_ANSWER_TEXT - 1));
}

int shm_answer_decode(const uint8_t in[SHM_ANSWER_SIZE], struct shm_answer *out)
{
    int status = header_check(in, SHM_ANSWER, SHM_ANSWER_SIZE - WIRE_HEADER_SIZE);
    const uint8_t *body = in + WIRE_HEADER_SIZE;
    if (status != YOLK_OK)
        return status;
    out->status = (int32_t)base_load_u32(body);
    for (int i = 0; i < 3; i++)
        out->numbers[i] = base_load_u64(body + 8 + 8 * i);
    memcpy(out->text, body + 32, SHM_ANSWER_TEXT);
    if (out->status > YOLK_OK || out->text[SHM_ANSWER_TEXT - 1] != '\0')
        return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: an answer without an end");
    return YOLK_OK;
}

static void copy_printable(char *to, const char *from)
{
    size_t n = 0;
    for (; n + 1 < SHM_FAILED_TEXT && from[n] != '\0'; n++)
        to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
    to[n] = '\0';
}

void shm_failed_encode(const char *text, uint8_t out[SHM_FAILED_SIZE])
{
    memset(out, 0, SHM_FAILED_SIZE);
    header_encode(SHM_FAILED, SHM_FAILED_TEXT, out);
    copy_printable((char *)out + WIRE_HEADER_SIZE, text);
}

int shm_failed_decode(const uint8_t in[SHM_FAILED_SIZE], char text[SHM_FAILED_TEXT])
{
    int status = header_check(in, SHM_FAILED, SHM_FAILED_TEXT);
    if (status != YOLK_OK)
        return status;
    if (in[SHM_FAILED_SIZE - 1] != 0)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "shm: a text without an end");
    copy_printable(text, (const char *)in + WIRE_HEADER_SIZE);
    return YOLK_OK;
}

void shm_wire_options(const struct shm_settings *settings, uint64_t session,
                      struct wire_hello_options *out)
{
    *out = (struct wire_hello_options){
        .secret = settings->secret_size > 0 ? settings->secret : NULL,
        .secret_size = settings->secret_size,
        .role = WIRE_ROLE_CLIENT,
        .purpose = WIRE_PURPOSE_DATA,
        .session = session,
    };
    memcpy(out->instance, settings->instance, WIRE_ID_SIZE);
}

void shm_instance_format(const uint8_t instance[WIRE_ID_SIZE], char out[SHM_INSTANCE_TEXT])
{
    for (size_t i = 0; i < WIRE_ID_SIZE; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", instance[i]);
}

int shm_check_peer(int fd)
{
    struct net_credentials peer;
    int status = net_peer_credentials(fd, &peer);
    if (status != YOLK_OK)
        return status;
    if (peer.uid != geteuid() && peer.uid != 0 && geteuid() != 0)
        return base_fail(YOLK_ERR_AUTH, 0, "shm: the peer is user %u, not %u", (unsigned)peer.uid,
                         (unsigned)geteuid());
    return YOLK_OK;
}

int shm_send_fds(int fd, const void *data, size_t size, const int *fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    ssize_t n;
    do {
        n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size)
        return YOLK_OK;
    return base_fail(YOLK_ERR_LINK, n < 0 ? errno : 0, "shm: send");
}

/* Descriptors beyond two are closed: nobody asked for them. */
static void take_fds(struct msghdr *message, int fds[2])
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(c) + i * sizeof(int), sizeof passed);
            if (fds[0] < 0)
                fds[0] = passed;
            else if (fds[1] < 0)
                fds[1] = passed;
            else
                (void)close(passed);
        }
    }
}

int shm_receive_fds(int fd, void *data, size_t size, size_t *got, int fds[2])
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {data, size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    fds[0] = fds[1] = -1;
    *got = 0;
    ssize_t n;
    do {
        n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return YOLK_ERR_AGAIN;
    if (n <= 0)
        return base_fail(YOLK_ERR_LINK, n < 0 ? errno : 0, "shm: the connection was closed");
    take_fds(&message, fds);
    *got = (size_t)n;
    if ((message.msg_flags & MSG_CTRUNC) != 0)
        return base_fail(YOLK_ERR_LIMIT, EMFILE, "shm: no room for the descriptors that came");
    return YOLK_OK;
}
