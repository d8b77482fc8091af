/* SPDX-License-Identifier: Apache-2.0 */
/* Names in Redis: SET, GET and DEL on a connection of their own each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/units.h"
#include "peer/metadata_kinds.h"
#include "platform/net.h"

enum { PORT_DEFAULT = 6379, PART_MAX = 128, LINE_MAX_BYTES = 512, COMMAND_MAX = 16 * 1024 };

struct redis_metadata {
    struct metadata metadata;
    struct net_address address;
    char host[NET_ADDRESS_TEXT_MAX];
    char user[PART_MAX], password[PART_MAX], database[PART_MAX]; /* "" if not given */
};

static enum yolk_status copy_part(const char *from, size_t size, char out[PART_MAX])
{
    if (size >= PART_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "a part of the redis address is of %zu bytes", size);
    memcpy(out, from, size);
    out[size] = '\0';
    return YOLK_OK;
}

/* [[user]:password@]host[:port][/database] */
static enum yolk_status take_apart(struct redis_metadata *made, const char *address)
{
    const char *at = strrchr(address, '@');
    const char *host = at != NULL ? at + 1 : address;
    size_t host_size = strcspn(host, "/");
    enum yolk_status status = YOLK_OK;
    if (at != NULL) {
        const char *colon = memchr(address, ':', (size_t)(at - address));
        const char *password = colon != NULL ? colon + 1 : address;
        if (colon != NULL)
            status = copy_part(address, (size_t)(colon - address), made->user);
        if (status == YOLK_OK)
            status = copy_part(password, (size_t)(at - password), made->password);
    }
    uint64_t number;
    const char *database = host[host_size] == '/' ? host + host_size + 1 : "";
    if (status == YOLK_OK && *database != '\0')
        status = base_parse_u64("redis database", database, &number);
    if (status == YOLK_OK)
        status = copy_part(database, strlen(database), made->database);
    if (status == YOLK_OK && (host_size == 0 || host_size >= sizeof(made->host)))
        status = base_fail(
            YOLK_ERR_CONFIG, 0,
            "metadata service redis: must be redis://[user:password@]host:port[/database]");
    if (status != YOLK_OK)
        return status;
    snprintf(made->host, sizeof(made->host), "%.*s", (int)host_size, host);
    return net_address_parse(made->host, PORT_DEFAULT, &made->address);
}

static enum yolk_status redis_open(const char *address, struct metadata **out)
{
    struct redis_metadata *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a metadata service");
    enum yolk_status status = take_apart(made, address);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->metadata.ops = &metadata_redis_ops;
    *out = &made->metadata;
    return YOLK_OK;
}

static void redis_close(struct metadata *metadata)
{
    struct redis_metadata *mine = (struct redis_metadata *)metadata;
    explicit_bzero(mine->password, sizeof(mine->password));
    free(mine);
}

/* One line of the answer, without its end. */
static enum yolk_status receive_line(int fd, char line[LINE_MAX_BYTES], uint64_t deadline_ns)
{
    size_t size = 0;
    for (;;) {
        enum yolk_status status = net_recv_all(fd, &line[size], 1, deadline_ns);
        if (status != YOLK_OK)
            return status;
        if (line[size] == '\n')
            break;
        if (++size == LINE_MAX_BYTES)
            return base_fail(YOLK_ERR_PROTOCOL, 0, "an endless line");
    }
    while (size > 0 && line[size - 1] == '\r')
        size--;
    line[size] = '\0';
    return YOLK_OK;
}

static enum yolk_status receive_value(int fd, const char *count, char *value, size_t size,
                                      uint64_t deadline_ns)
{
    char end[2];
    uint64_t length;
    if (strcmp(count, "-1") == 0)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "it is not there");
    if (base_parse_u64("length", count, &length) != YOLK_OK)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a length of \"%.32s\"", count);
    if (length >= size)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a value of %llu bytes", (unsigned long long)length);
    enum yolk_status status = length > 0 ? net_recv_all(fd, value, length, deadline_ns) : YOLK_OK;
    if (status == YOLK_OK)
        status = net_recv_all(fd, end, sizeof(end), deadline_ns);
    value[status == YOLK_OK ? length : 0] = '\0';
    return status;
}

/* Sends a command of up to three words (NULL: none) and takes the answer: a line, a number, or a
 * value. */
static enum yolk_status command(int fd, const char *const words[3], char *value, size_t size,
                                uint64_t deadline_ns)
{
    struct base_buf out;
    char line[LINE_MAX_BYTES];
    int count = 0;
    while (count < 3 && words[count] != NULL)
        count++;
    base_buf_init(&out, COMMAND_MAX);
    enum yolk_status status = base_buf_printf(&out, "*%d\r\n", count);
    for (int i = 0; status == YOLK_OK && i < count; i++)
        status = base_buf_printf(&out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    if (status == YOLK_OK)
        status = net_send_all(fd, out.data, out.size, deadline_ns);
    base_buf_free(&out);
    if (status == YOLK_OK)
        status = receive_line(fd, line, deadline_ns);
    if (status != YOLK_OK)
        return status;
    switch (line[0]) {
    case '+':
    case ':':
        return value == NULL ? YOLK_OK
                             : base_fail(YOLK_ERR_PROTOCOL, 0, "\"%.8s\" as the answer to %s", line,
                                         words[0]);
    case '$':
        return value != NULL
                   ? receive_value(fd, line + 1, value, size, deadline_ns)
                   : base_fail(YOLK_ERR_PROTOCOL, 0, "a value as the answer to %s", words[0]);
    case '-':
        return base_fail(YOLK_ERR_REFUSED, 0, "%s: %s", words[0], line + 1);
    default:
        return base_fail(YOLK_ERR_PROTOCOL, 0, "an answer that begins with \"%.8s\"", line);
    }
}

static enum yolk_status prepare(const struct redis_metadata *mine, int fd, uint64_t deadline_ns)
{
    enum yolk_status status = YOLK_OK;
    if (mine->password[0] != '\0') {
        const char *const with_user[3] = {"AUTH", mine->user, mine->password};
        const char *const alone[3] = {"AUTH", mine->password, NULL};
        status = command(fd, mine->user[0] != '\0' ? with_user : alone, NULL, 0, deadline_ns);
    }
    const char *const select[3] = {"SELECT", mine->database, NULL};
    if (status == YOLK_OK && mine->database[0] != '\0')
        status = command(fd, select, NULL, 0, deadline_ns);
    return status;
}

static enum yolk_status call(struct metadata *metadata, const char *const words[3], char *value,
                             size_t size, uint64_t deadline_ns)
{
    const struct redis_metadata *mine = (const struct redis_metadata *)metadata;
    int fd = -1;
    enum yolk_status status = net_connect(&mine->address, deadline_ns, &fd);
    if (status == YOLK_OK)
        status = prepare(mine, fd, deadline_ns);
    if (status == YOLK_OK)
        status = command(fd, words, value, size, deadline_ns);
    net_close(fd);
    if (status != YOLK_OK)
        return base_fail_context(metadata_blame(status), "metadata service redis://%s", mine->host);
    return YOLK_OK;
}

static enum yolk_status redis_put(struct metadata *metadata, const char *key, const char *value,
                                  uint64_t deadline_ns)
{
    const char *const words[3] = {"SET", key, value};
    return call(metadata, words, NULL, 0, deadline_ns);
}

static enum yolk_status redis_get(struct metadata *metadata, const char *key, char *value,
                                  size_t size, uint64_t deadline_ns)
{
    const char *const words[3] = {"GET", key, NULL};
    return call(metadata, words, value, size, deadline_ns);
}

static enum yolk_status redis_remove(struct metadata *metadata, const char *key,
                                     uint64_t deadline_ns)
{
    const char *const words[3] = {"DEL", key, NULL};
    return call(metadata, words, NULL, 0, deadline_ns);
}

const struct metadata_ops metadata_redis_ops = {
    .scheme = "redis",
    .open = redis_open,
    .close = redis_close,
    .put = redis_put,
    .get = redis_get,
    .remove = redis_remove,
};
