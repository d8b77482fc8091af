/* SPDX-License-Identifier: Apache-2.0 */
#include "peer/http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum { HEAD_MAX = 16 * 1024, READ_SIZE = 4096 };

enum yolk_status http_escape(const char *text, struct base_buf *out)
{
    enum yolk_status status = YOLK_OK;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0' && status == YOLK_OK;
         c++) {
        bool plain = isalnum(*c) || strchr("-._~", *c) != NULL;
        status = base_buf_printf(out, plain ? "%c" : "%%%02X", *c);
    }
    return status;
}

static enum yolk_status broken(const char *what)
{
    return base_fail(YOLK_ERR_PROTOCOL, 0, "the HTTP answer has %s", what);
}

/* Where the head ends, behind its empty line; 0: not yet. */
static size_t head_size(const struct base_buf *in)
{
    for (size_t i = 3; i < in->size; i++)
        if (memcmp(in->data + i - 3, "\r\n\r\n", 4) == 0)
            return i + 1;
    return 0;
}

/* The value of a header in the NUL terminated head; NULL: none. */
static const char *header(const char *head, const char *name)
{
    size_t size = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, size) == 0 && line[size] == ':')
            return line + size + 1 + strspn(line + size + 1, " \t");
    }
    return NULL;
}

/* Takes the chunks of in (behind the head) apart, in place. AGAIN: the last one has not come yet.
 */
static enum yolk_status unchunk(const uint8_t *data, size_t size, struct base_buf *out)
{
    base_buf_clear(out);
    for (;;) {
        const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
        if (end == NULL)
            return size > 64 ? broken("a chunk without a size") : YOLK_ERR_AGAIN;
        char *rest;
        char text[32] = "";
        size_t line = (size_t)(end - data) + 1;
        memcpy(text, data, line < sizeof(text) ? line : sizeof(text) - 1);
        unsigned long length = strtoul(text, &rest, 16);
        if (rest == text || length > out->maximum)
            return broken("a chunk of a strange size");
        if (length == 0)
            return YOLK_OK;
        if (size - line < length + 2)
            return YOLK_ERR_AGAIN;
        enum yolk_status status = base_buf_append(out, data + line, length);
        if (status != YOLK_OK)
            return status;
        data += line + length + 2;
        size -= line + length + 2;
    }
}

/* The body that follows the head, as far as it is there. AGAIN: more must come; it ends with the
 * connection if nothing says where. */
static enum yolk_status body_of(const char *head, const struct base_buf *in, size_t begin,
                                bool ended, struct base_buf *out)
{
    const char *length_text = header(head, "Content-Length");
    const char *coding = header(head, "Transfer-Encoding");
    const uint8_t *data = in->data + begin;
    size_t size = in->size - begin;
    if (coding != NULL && strncasecmp(coding, "chunked", 7) == 0)
        return unchunk(data, size, out);
    size_t wanted = size;
    if (length_text != NULL) {
        char *rest;
        unsigned long length = strtoul(length_text, &rest, 10);
        if (!isdigit((unsigned char)length_text[0]) || rest == length_text)
            return broken("a length that is no number");
        if (length > out->maximum)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "the HTTP answer is of %lu bytes, at most %zu",
                             length, out->maximum);
        if (size < length)
            return YOLK_ERR_AGAIN;
        wanted = length;
    } else if (!ended) {
        return YOLK_ERR_AGAIN;
    }
    base_buf_clear(out);
    return base_buf_append(out, data, wanted);
}

enum yolk_status http_parse_answer(const struct base_buf *in, bool ended, int *code,
                                   struct base_buf *out)
{
    size_t begin = head_size(in);
    if (begin == 0)
        return in->size > HEAD_MAX ? broken("too long a head") : YOLK_ERR_AGAIN;
    char *head = malloc(begin + 1);
    if (head == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an HTTP answer");
    memcpy(head, in->data, begin);
    head[begin] = '\0';
    enum yolk_status status = YOLK_OK;
    char *rest = NULL;
    if (strncmp(head, "HTTP/1.", 7) != 0 || begin < 13)
        status = broken("another protocol");
    else
        *code = (int)strtol(head + 9, &rest, 10);
    if (status == YOLK_OK && (*code < 100 || *code > 599))
        status = broken("no status code");
    if (status == YOLK_OK)
        status = body_of(head, in, begin, ended, out);
    free(head);
    return status;
}

static enum yolk_status send_request(int fd, const struct http_request *request,
                                     uint64_t deadline_ns)
{
    struct base_buf head;
    base_buf_init(&head, HEAD_MAX);
    enum yolk_status status =
        base_buf_printf(&head,
                        "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                        "Content-Length: %zu\r\n\r\n",
                        request->method, request->path, request->host,
                        request->type != NULL ? request->type : "text/plain", request->body_size);
    struct iovec parts[2] = {{head.data, head.size},
                             {(void *)(uintptr_t)request->body, request->body_size}};
    if (status == YOLK_OK)
        status = net_sendv_all(fd, parts, request->body_size > 0 ? 2 : 1, deadline_ns);
    base_buf_free(&head);
    return status;
}

static enum yolk_status receive(int fd, uint64_t deadline_ns, int *code, struct base_buf *out)
{
    struct base_buf in;
    base_buf_init(&in, HEAD_MAX + out->maximum * 2 + READ_SIZE);
    enum yolk_status status = YOLK_ERR_AGAIN;
    bool ended = false;
    while (status == YOLK_ERR_AGAIN && !ended) {
        size_t got = 0;
        status = base_buf_reserve(&in, READ_SIZE);
        if (status == YOLK_OK)
            status = net_recv_some(fd, in.data + in.size, READ_SIZE, deadline_ns, &got);
        ended = status == YOLK_ERR_EOF;
        if (status != YOLK_OK && !ended)
            break;
        in.size += got;
        status = http_parse_answer(&in, ended, code, out);
    }
    if (status == YOLK_ERR_AGAIN)
        status = broken("no end");
    base_buf_free(&in);
    return status;
}

enum yolk_status http_call(const struct net_address *address, const struct http_request *request,
                           uint64_t deadline_ns, int *code, struct base_buf *out)
{
    int fd;
    enum yolk_status status = net_connect(address, deadline_ns, &fd);
    if (status != YOLK_OK)
        return status;
    status = send_request(fd, request, deadline_ns);
    if (status == YOLK_OK)
        status = receive(fd, deadline_ns, code, out);
    net_close(fd);
    return status;
}
