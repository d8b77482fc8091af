/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/node_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/loop.h"
#include "platform/thread.h"

struct node_http {
    struct loop *loop;
    struct http_server *server;
    struct yolk_store *store;
    const struct base_config *settings;
    struct thread thread;
};

static void page_health(void *self, struct http_exchange *exchange)
{
    const struct node_http *http = self;
    bool connected = yolk_store_is_connected(http->store) == 1;
    struct base_buf body;
    base_buf_init(&body, 4096);
    int status = base_buf_printf(&body, "{\"status\":\"%s\",\"master_connected\":%s}\n",
                                 connected ? "ok" : "unhealthy", connected ? "true" : "false");
    if (status == YOLK_OK)
        http_answer(exchange, connected ? 200 : 503, "application/json; charset=utf-8", &body);
    else
        http_answer_text(exchange, 500, "no memory");
    base_buf_free(&body);
}

/* The line's value if it begins with the name; NULL: it does not. */
static const char *value_of(const char *line, const char *name)
{
    size_t size = strlen(name);
    return strncmp(line, name, size) == 0 && line[size] == ' ' ? line + size + 1 : NULL;
}

/* Our name, and Mooncake's beside it where it has one. */
static int add_line(struct base_buf *body, const char *line)
{
    static const struct {
        const char *ours, *theirs;
    } NAMES[] = {
        {"client_bytes_read", "mooncake_transfer_read_bytes"},
        {"client_bytes_written", "mooncake_transfer_write_bytes"},
        {"disk_bytes_read", "mooncake_ssd_read_bytes_total"},
        {"disk_bytes_written", "mooncake_ssd_write_bytes_total"},
    };
    int status = base_buf_printf(body, "%s\n", line);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]) && status == YOLK_OK; i++) {
        const char *value = value_of(line, NAMES[i].ours);
        if (value)
            status = base_buf_printf(body, "# TYPE %s counter\n%s %s\n", NAMES[i].theirs,
                                     NAMES[i].theirs, value);
    }
    return status;
}

/* What is this process's own among the figures. */
static bool is_own(const char *line)
{
    static const char *const OWN[] = {"client_", "disk_", "mooncake_egm_store_pool_"};
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++)
        if (strncmp(line, OWN[i], strlen(OWN[i])) == 0)
            return true;
    return false;
}

static void page_metrics(void *self, struct http_exchange *exchange)
{
    const struct node_http *http = self;
    struct base_buf body;
    char *text = NULL;
    /* The figures come with the master's; without one nobody is to wait for them here. */
    if (yolk_store_is_connected(http->store) != 1) {
        http_answer_text(exchange, 503, "The master is not reached.");
        return;
    }
    if (yolk_store_stat(http->store, &text) != YOLK_OK) {
        http_answer_text(exchange, 503, yolk_last_error());
        return;
    }
    char *transfers = NULL;
    base_buf_init(&body, HTTP_ANSWER_MAX);
    int status = yolk_store_transfer_metrics(http->store, &transfers);
    char *rest = text, *line;
    while (status == YOLK_OK && (line = strsep(&rest, "\n")))
        if (is_own(line))
            status = add_line(&body, line);
    if (status == YOLK_OK)
        status = base_buf_append(&body, transfers, strlen(transfers));
    if (status == YOLK_OK)
        status = base_config_metrics(http->settings, &body);
    if (status == YOLK_OK)
        http_answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
    else
        http_answer_text(exchange, 500, "no memory");
    free(transfers);
    free(text);
    base_buf_free(&body);
}

const struct http_page node_http_pages[] = {
    {"/health", HTTP_GET, page_health, "JSON: status ok, or 503 while the master is not reached"},
    {"/metrics", HTTP_GET, page_metrics,
     "Prometheus text of this process; Mooncake's names beside "
     "ours"},
};
const size_t node_http_page_count = sizeof(node_http_pages) / sizeof(node_http_pages[0]);

static void run(void *self)
{
    struct node_http *http = self;
    (void)!loop_run(http->loop);
}

enum yolk_status node_http_start(const struct net_address *address, struct yolk_store *store,
                                 const struct base_config *settings, struct node_http **out)
{
    struct node_http *http = base_calloc(1, sizeof(*http));
    if (!http)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for HTTP pages");
    http->store = store;
    http->settings = settings;
    const struct http_server_options options = {.address = *address,
                                                .pages = node_http_pages,
                                                .page_count = node_http_page_count,
                                                .self = http,
                                                .body_max = 0};
    enum yolk_status status = loop_create(NULL, &http->loop);
    if (status == YOLK_OK)
        status = http_server_create(http->loop, &options, &http->server);
    if (status == YOLK_OK)
        status = thread_start(&http->thread, "http", run, http);
    if (status != YOLK_OK) {
        node_http_stop(http);
        return status;
    }
    *out = http;
    return YOLK_OK;
}

void node_http_stop(struct node_http *http)
{
    if (!http)
        return;
    if (http->loop)
        loop_stop(http->loop);
    thread_join(&http->thread);
    http_server_destroy(http->server);
    loop_destroy(http->loop);
    free(http);
}

const struct net_address *node_http_address(const struct node_http *http)
{
    return http_server_address(http->server);
}
