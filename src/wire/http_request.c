/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http_request.h"

#include <string.h>
#include <strings.h>

struct reader {
    struct http_request *request;
    struct http_refusal *refusal;
    bool has_length;
    uint64_t length; /* of the body */
};

static bool refuse(struct reader *reader, int code, const char *text)
{
    *reader->refusal = (struct http_refusal){code, text};
    return false;
}

static bool is_token(struct http_text text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
            !(c && strchr(others, c)))
            return false;
    }
    return text.size > 0;
}

static bool is(struct http_text text, const char *word)
{
    return text.size == strlen(word) && strncasecmp(text.data, word, text.size) == 0;
}

/* Up to `end` bytes; the rest stays in *text, behind `skip` more. */
static struct http_text cut(struct http_text *text, size_t end, size_t skip)
{
    struct http_text first = {text->data, end};
    skip = skip < text->size - end ? skip : text->size - end;
    text->data += end + skip;
    text->size -= end + skip;
    return first;
}

static size_t find(struct http_text text, char wanted)
{
    const char *at = text.size > 0 ? memchr(text.data, wanted, text.size) : NULL;
    return at ? (size_t)(at - text.data) : text.size;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_unescape(struct http_text text, uint8_t *out, size_t room, size_t *size)
{
    size_t used = 0;
    for (size_t i = 0; i < text.size; i++) {
        int byte = text.data[i] == '+' ? ' ' : (uint8_t)text.data[i];
        if (text.data[i] == '%') {
            int high = i + 2 < text.size ? hex(text.data[i + 1]) : -1;
            int low = i + 2 < text.size ? hex(text.data[i + 2]) : -1;
            if (i + 2 == text.size || high < 0 || low < 0)
                return false;
            byte = high * 16 + low;
            i += 2;
        }
        if (used == room)
            return false;
        out[used++] = (uint8_t)byte;
    }
    *size = used;
    return true;
}

const struct http_text *http_query(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->query_count; i++)
        if (request->query[i].name.size == strlen(name) &&
            memcmp(request->query[i].name.data, name, strlen(name)) == 0)
            return &request->query[i].value;
    return NULL;
}

static bool read_path(struct reader *reader, struct http_text raw)
{
    struct http_request *request = reader->request;
    size_t size = 0;
    if (raw.size == 0 || raw.data[0] != '/')
        return refuse(reader, 400, "The target must be a path.");
    if (!http_unescape(raw, (uint8_t *)request->path, sizeof(request->path) - 1, &size))
        return refuse(reader, 400, "The path is too long, or has a wrong % escape.");
    request->path[size] = '\0';
    return strlen(request->path) == size || refuse(reader, 400, "A zero byte in the path.");
}

static bool read_target(struct reader *reader, struct http_text target)
{
    struct http_request *request = reader->request;
    struct http_text query = target, path;
    /* "GET http://host/path" is for proxies, but a server has to understand it. */
    if (target.size > 7 && strncasecmp(target.data, "http://", 7) == 0) {
        cut(&query, 7, 0);
        cut(&query, find(query, '/'), 0);
    }
    query.size = find(query, '#');
    path = cut(&query, find(query, '?'), 1);
    if (!read_path(reader, path))
        return false;
    while (query.size > 0) {
        struct http_text pair = cut(&query, find(query, '&'), 1);
        if (pair.size == 0)
            continue;
        if (request->query_count == HTTP_QUERY_MAX)
            return refuse(reader, 400, "More than 16 query parameters.");
        request->query[request->query_count].name = cut(&pair, find(pair, '='), 1);
        request->query[request->query_count++].value = pair;
    }
    return true;
}

static enum http_method method_of(struct http_text text)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text.size == strlen(names[i]) && memcmp(text.data, names[i], text.size) == 0)
            return (enum http_method)(1u << i);
    return HTTP_OTHER;
}

static bool read_line(struct reader *reader, struct http_text line)
{
    for (size_t i = 0; i < line.size; i++)
        if ((uint8_t)line.data[i] < ' ' || line.data[i] == 0x7f)
            return refuse(reader, 400, "A control character in the request line.");
    struct http_text method = cut(&line, find(line, ' '), 1);
    struct http_text target = cut(&line, find(line, ' '), 1);
    if (!is_token(method) || line.size != 8 || memcmp(line.data, "HTTP/1.", 7) != 0 ||
        line.data[7] < '0' || line.data[7] > '9')
        return refuse(reader, 400, "This is an HTTP port of Yolk: HTTP/1 only.");
    reader->request->newer = line.data[7] != '0';
    reader->request->method = method_of(method);
    return read_target(reader, target);
}

static bool read_length(struct reader *reader, struct http_text value)
{
    uint64_t length = 0;
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9' || length > UINT64_MAX / 16)
            return refuse(reader, 400, "Content-Length is no number.");
        length = length * 10 + (uint64_t)(value.data[i] - '0');
    }
    if (value.size == 0 || (reader->has_length && reader->length != length))
        return refuse(reader, 400, "Content-Length is no number, or two.");
    reader->has_length = true;
    reader->length = length;
    return true;
}

static bool read_field(struct reader *reader, struct http_text line)
{
    struct http_text name = cut(&line, find(line, ':'), 1), value = line;
    if (!is_token(name) || name.data + name.size == value.data)
        return refuse(reader, 400, "A header line without \"Name:\".");
    while (value.size > 0 && (value.data[0] == ' ' || value.data[0] == '\t'))
        cut(&value, 1, 0);
    while (value.size > 0 &&
           (value.data[value.size - 1] == ' ' || value.data[value.size - 1] == '\t'))
        value.size--;
    for (size_t i = 0; i < value.size; i++)
        if (((uint8_t)value.data[i] < ' ' && value.data[i] != '\t') || value.data[i] == 0x7f)
            return refuse(reader, 400, "A control character in a header.");
    if (is(name, "Content-Length"))
        return read_length(reader, value);
    if (is(name, "Transfer-Encoding"))
        return refuse(reader, 411, "Bodies need a Content-Length here.");
    if (is(name, "Expect"))
        reader->request->wants_continue = is(value, "100-continue");
    if (is(name, "Origin"))
        reader->request->from_page = true;
    return true;
}

static bool next_line(struct reader *reader, struct http_text *head, struct http_text *line)
{
    size_t end = find(*head, '\r'); /* there is one: the head ends so */
    if (head->data[end + 1] != '\n')
        return refuse(reader, 400, "A carriage return inside a line.");
    *line = cut(head, end, 2);
    return true;
}

static bool read_head(struct reader *reader, struct http_text head)
{
    struct http_text line;
    if (!next_line(reader, &head, &line) || !read_line(reader, line))
        return false;
    for (unsigned i = 0; head.size > 0; i++) {
        if (i == HTTP_FIELDS_MAX)
            return refuse(reader, 431, "More than 100 headers.");
        if (!next_line(reader, &head, &line) || !read_field(reader, line))
            return false;
    }
    return true;
}

/* A request may still become of these bytes. What cannot is answered at once: mostly it is a client
 * of the store that was given this port, and waits for its own kind of answer. */
static bool may_be_http(const uint8_t *data, size_t size)
{
    if (size > 0 && (data[0] < 'A' || data[0] > 'Z')) /* no method starts so */
        return false;
    for (size_t i = 0; i < size && data[i] != ' '; i++)
        if (data[i] < ' ' || data[i] >= 0x7f || i == HTTP_METHOD_MAX)
            return false;
    return true;
}

enum http_state http_decode(const uint8_t *data, size_t size, size_t body_max,
                            struct http_request *request, struct http_refusal *refusal)
{
    struct reader reader = {.request = request, .refusal = refusal};
    *request = (struct http_request){.method = HTTP_OTHER};
    size_t look = size < HTTP_HEAD_MAX ? size : HTTP_HEAD_MAX;
    const uint8_t *end = look > 0 ? memmem(data, look, "\r\n\r\n", 4) : NULL;
    if (!may_be_http(data, size)) {
        refuse(&reader, 400, "This is an HTTP port of Yolk: HTTP/1 only.");
        return HTTP_BAD;
    }
    if (!end && size >= HTTP_HEAD_MAX) {
        refuse(&reader, 431, "Request line and headers have at most 65536 bytes here.");
        return HTTP_BAD;
    }
    if (!end)
        return HTTP_INCOMPLETE;
    struct http_text head = {(const char *)data, (size_t)(end - data) + 2};
    if (!read_head(&reader, head))
        return HTTP_BAD;
    if (reader.length > body_max) {
        refuse(&reader, 413, "The body is larger than this page takes.");
        return HTTP_BAD;
    }
    request->body = (struct http_text){(const char *)end + 4, (size_t)reader.length};
    request->size = (size_t)(end - data) + 4 + request->body.size;
    return size < request->size ? HTTP_HEAD_READY : HTTP_READY;
}
