/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <stdio.h>
#include <stdlib.h>

#include <yolk/store.h>

/* The stores of one process that name the master "embedded" share one master core; each gives one
 * segment. */
struct replay_embedded {
    struct yolk_store *nodes[REPLAY_NODES_MAX];
    size_t node_count;
};

static int open_node(struct replay_embedded *embedded, const struct replay_options *options,
                     char *error, size_t error_size)
{
    struct yolk_store_options store_options;
    char name[32];
    snprintf(name, sizeof name, "node-%zu", embedded->node_count);
    yolk_store_options_init(&store_options);
    store_options.master = "embedded";
    store_options.name = name;
    store_options.transport = options->transport;
    store_options.segment_size_bytes = options->dram / options->nodes;
    store_options.put_wait_ms = options->put_wait_ms;
    store_options.timeout_ms = options->timeout_ms;
    struct yolk_store *store = NULL;
    enum yolk_status status = yolk_store_open(&store_options, &store);
    if (status != YOLK_OK) {
        snprintf(error, error_size, "cannot open embedded %s: %s: %s", name, yolk_strerror(status),
                 yolk_last_error());
        return -1;
    }
    embedded->nodes[embedded->node_count++] = store;
    return 0;
}

struct replay_embedded *replay_embedded_open(const struct replay_options *options, char *error,
                                             size_t error_size)
{
    struct replay_embedded *embedded = calloc(1, sizeof *embedded);
    if (!embedded)
        return NULL;
    while (embedded->node_count < options->nodes)
        if (open_node(embedded, options, error, error_size)) {
            replay_embedded_close(embedded);
            return NULL;
        }
    return embedded;
}

struct yolk_store *replay_embedded_store(const struct replay_embedded *embedded, size_t client)
{
    return embedded->nodes[client % embedded->node_count];
}

void replay_embedded_close(struct replay_embedded *embedded)
{
    if (!embedded)
        return;
    while (embedded->node_count)
        if (yolk_store_close(embedded->nodes[--embedded->node_count]) != YOLK_OK)
            fprintf(stderr, "yolk replay: close: %s\n", yolk_last_error());
    free(embedded);
}
