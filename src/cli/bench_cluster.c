/* SPDX-License-Identifier: Apache-2.0 */
/* A master and a node in processes of their own, as users run them, for measurements that need
 * them.*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "platform/loop.h"
#include "platform/random.h"
#include "platform/thread.h"
#include "server/server.h"

enum { SPIN_NS = 50000, BATCH = 64 };

struct master {
    struct loop *loop;
    int stop_fd;
};

static void end_master(void *arg)
{
    struct master *master = arg;
    bench_child_wait_for_end(master->stop_fd);
    loop_stop(master->loop);
}

/* What both processes are told. */
struct told {
    const struct bench_cluster_options *options;
    const char *address; /* of the master */
};

static enum yolk_status run_master(void *self, int stop_fd, int word_fd)
{
    const struct told *told = self;
    const struct loop_options loop_options = {.spin_ns = told->options->spin ? SPIN_NS : 0};
    const struct random random = random_real();
    struct server_options options = {.seed = random_u64(&random)};
    struct master master = {.stop_fd = stop_fd};
    struct server *server = NULL;
    struct thread thread = {.running = false};
    char address[NET_ADDRESS_TEXT_MAX] = "";
    master_config_default(&options.config);
    if (told->options->session_ttl_ms > 0)
        options.config.session_ttl_ms = told->options->session_ttl_ms;
    int status = net_address_parse("127.0.0.1:0", 0, &options.address);
    if (status == YOLK_OK)
        status = loop_create(&loop_options, &master.loop);
    if (status == YOLK_OK)
        status = server_create(master.loop, &options, &server);
    if (status == YOLK_OK)
        status = thread_start(&thread, "bench-end", end_master, &master);
    if (status == YOLK_OK)
        net_address_format(server_address(server), address, sizeof(address));
    bench_child_say(word_fd, (enum yolk_status)status, address);
    if (status == YOLK_OK)
        status = loop_run(master.loop);
    thread_join(&thread);
    return (enum yolk_status)status; /* the process ends: nothing is given back one by one */
}

static enum yolk_status run_node(void *self, int stop_fd, int word_fd)
{
    const struct told *told = self;
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = told->address;
    options.name = "bench-node";
    options.segment_size_bytes = told->options->segment_bytes;
    options.drain_grace_ms = 0;
    enum yolk_status status = yolk_store_open(&options, &store);
    bench_child_say(word_fd, status, "");
    if (status != YOLK_OK)
        return status;
    bench_child_wait_for_end(stop_fd);
    return yolk_store_close(store);
}

enum yolk_status bench_cluster_start(struct bench_cluster *cluster,
                                     const struct bench_cluster_options *options)
{
    char word[BENCH_WORD_MAX];
    struct told told = {options, cluster->address};
    memset(cluster, 0, sizeof(*cluster));
    enum yolk_status status =
        bench_child_start(&cluster->master, &(struct bench_child_run){run_master, &told}, word);
    if (status == YOLK_OK) {
        snprintf(cluster->address, sizeof(cluster->address), "%.*s",
                 (int)sizeof(cluster->address) - 1, word);
        status =
            bench_child_start(&cluster->node, &(struct bench_child_run){run_node, &told}, word);
    }
    return status;
}

enum yolk_status bench_cluster_open(struct bench_cluster *cluster,
                                    const struct bench_cluster_options *options)
{
    enum yolk_status status = bench_cluster_start(cluster, options);
    struct yolk_store_options store;
    yolk_store_options_init(&store);
    store.master = cluster->address;
    store.name = "bench";
    store.transport = options->transport;
    return status == YOLK_OK ? yolk_store_open(&store, &cluster->store) : status;
}

void bench_cluster_close(struct bench_cluster *cluster)
{
    if (cluster->store != NULL)
        base_ignore(yolk_store_close(cluster->store)); /* nothing is pinned */
    bench_child_end(&cluster->node);
    bench_child_end(&cluster->master);
    memset(cluster, 0, sizeof(*cluster));
}

void bench_key(char key[16], uint32_t number)
{
    snprintf(key, 16, "v%u", number);
}

enum yolk_status bench_fill(struct yolk_store *store, uint32_t count, size_t size)
{
    uint8_t *value = malloc(size);
    enum yolk_status status = value != NULL ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "a value");
    if (value != NULL)
        memset(value, 0x59, size);
    for (uint32_t from = 0; from < count && status == YOLK_OK; from += BATCH) {
        struct yolk_slice slice = {value, size};
        struct yolk_kv kvs[BATCH];
        char keys[BATCH][16];
        uint32_t n = count - from < BATCH ? count - from : BATCH;
        for (uint32_t i = 0; i < n; i++) {
            bench_key(keys[i], from + i);
            kvs[i] = (struct yolk_kv){
                .key = keys[i], .key_size = strlen(keys[i]), .slices = &slice, .slice_count = 1};
        }
        status = yolk_store_put(store, kvs, n);
    }
    free(value);
    return status;
}
