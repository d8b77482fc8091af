/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <yolk/store.h>

#include "cli/common.h"
#include "cli/ssd.h"
#include "master/policy.h"
#include "platform/loop.h"
#include "platform/random.h"
#include "server/server.h"

/* One process that is the whole cluster. With one node its store has the master's core inside, and
 * no socket exists. Several nodes, or a policy that the core does not have by itself, need stores
 * that share the core of a server thread. */
struct replay_embedded {
    struct yolk_store *nodes[REPLAY_NODES_MAX];
    size_t node_count;
    struct loop *loop;
    struct server *server;
    pthread_t thread;
    bool started;
    char address[NET_ADDRESS_TEXT_MAX];
};

static void *serve(void *argument)
{
    struct replay_embedded *embedded = argument;
    if (loop_run(embedded->loop) != YOLK_OK)
        fprintf(stderr, "yolk replay: the embedded master stopped: %s\n", yolk_last_error());
    return NULL;
}

static enum yolk_status start_server(struct replay_embedded *embedded,
                                     const struct master_policy *policy)
{
    struct loop_options loop_options = {0};
    struct random random = random_real();
    struct server_options options = {.seed = random_u64(&random)};
    master_config_default(&options.config);
    options.config.policy = policy;
    enum yolk_status status = net_address_parse("127.0.0.1:0", 0, &options.address);
    if (status == YOLK_OK)
        status = loop_create(&loop_options, &embedded->loop);
    if (status == YOLK_OK)
        status = server_create(embedded->loop, &options, &embedded->server);
    if (status != YOLK_OK)
        return status;
    net_address_format(server_address(embedded->server), embedded->address,
                       sizeof embedded->address);
    if (pthread_create(&embedded->thread, NULL, serve, embedded))
        return YOLK_ERR_SYSTEM;
    embedded->started = true;
    return YOLK_OK;
}

static enum yolk_status open_node(struct replay_embedded *embedded,
                                  const struct replay_options *options)
{
    struct yolk_store_options store_options;
    char name[32], ssd_path[CLI_SSD_PATH_MAX];
    snprintf(name, sizeof name, "node-%zu", embedded->node_count);
    yolk_store_options_init(&store_options);
    store_options.master = embedded->started ? embedded->address : "embedded";
    store_options.name = name;
    store_options.transport = options->transport;
    store_options.segment_size_bytes = options->dram / options->nodes;
    store_options.put_wait_ms = options->put_wait_ms;
    store_options.timeout_ms = options->timeout_ms;
    replay_store_add_gds(&store_options, options->gds / options->nodes, options->gds_path);
    struct yolk_store *store = NULL;
    enum yolk_status status = YOLK_OK;
    if (options->ssd > 0) {
        store_options.ssd_size_bytes = options->ssd / options->nodes;
        store_options.ssd_path = ssd_path;
        status = cli_ssd_file(options->ssd_path, ssd_path, sizeof ssd_path);
    }
    if (status == YOLK_OK)
        status = yolk_store_open(&store_options, &store);
    if (status == YOLK_OK)
        embedded->nodes[embedded->node_count++] = store;
    return status;
}

struct replay_embedded *replay_embedded_open(const struct replay_options *options, char *error,
                                             size_t error_size)
{
    struct replay_embedded *embedded = calloc(1, sizeof *embedded);
    if (!embedded)
        return NULL;
    struct master_config config;
    master_config_default(&config);
    const struct master_policy *policy = master_policy_find(options->eviction_policy);
    enum yolk_status status = YOLK_OK;
    if (options->nodes > 1 || policy != config.policy)
        status = start_server(embedded, policy);
    while (status == YOLK_OK && embedded->node_count < options->nodes)
        status = open_node(embedded, options);
    if (status == YOLK_OK)
        return embedded;
    snprintf(error, error_size, "cannot start the embedded cluster: %s", cli_reason(status));
    replay_embedded_close(embedded);
    return NULL;
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
    if (embedded->started) {
        loop_stop(embedded->loop);
        pthread_join(embedded->thread, NULL);
    }
    if (embedded->server)
        server_destroy(embedded->server);
    if (embedded->loop)
        loop_destroy(embedded->loop);
    free(embedded);
}
