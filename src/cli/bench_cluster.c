/* SPDX-License-Identifier: Apache-2.0 */
/* A master and a node in processes of their own, as users run them, for measurements that need
 * them. They end when the pipe from the one that measures does, also when it is killed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench.h"
#include "platform/loop.h"
#include "platform/random.h"
#include "platform/thread.h"
#include "server/server.h"

enum { SPIN_NS = 50000, BATCH = 64 };

/* What a child says once, when it is ready or cannot be. */
struct word {
    enum yolk_status status;
    char text[NET_ADDRESS_TEXT_MAX];
};

static void say(int fd, enum yolk_status status, const char *text)
{
    struct word word = {.status = status};
    snprintf(word.text, sizeof(word.text), "%s", status == YOLK_OK ? text : yolk_last_error());
    if (write(fd, &word, sizeof(word)) != (ssize_t)sizeof(word))
        _exit(1);
}

static void wait_for_end(int stop_fd)
{
    char byte;
    while (read(stop_fd, &byte, 1) > 0)
        ;
}

struct master {
    struct loop *loop;
    int stop_fd;
};

static void end_master(void *arg)
{
    struct master *master = arg;
    wait_for_end(master->stop_fd);
    loop_stop(master->loop);
}

static enum yolk_status run_master(int stop_fd, int word_fd, bool spin)
{
    const struct loop_options loop_options = {.spin_ns = spin ? SPIN_NS : 0};
    const struct random random = random_real();
    struct server_options options = {.seed = random_u64(&random)};
    struct master master = {.stop_fd = stop_fd};
    struct server *server = NULL;
    struct thread thread = {.running = false};
    char address[NET_ADDRESS_TEXT_MAX] = "";
    master_config_default(&options.config);
    int status = net_address_parse("127.0.0.1:0", 0, &options.address);
    if (status == YOLK_OK)
        status = loop_create(&loop_options, &master.loop);
    if (status == YOLK_OK)
        status = server_create(master.loop, &options, &server);
    if (status == YOLK_OK)
        status = thread_start(&thread, "bench-end", end_master, &master);
    if (status == YOLK_OK)
        net_address_format(server_address(server), address, sizeof(address));
    say(word_fd, (enum yolk_status)status, address);
    if (status == YOLK_OK)
        status = loop_run(master.loop);
    thread_join(&thread);
    return (enum yolk_status)status; /* the process ends: nothing is given back one by one */
}

static enum yolk_status run_node(int stop_fd, int word_fd, const char *address, uint64_t bytes)
{
    struct yolk_store_options options;
    struct yolk_store *store = NULL;
    yolk_store_options_init(&options);
    options.master = address;
    options.name = "bench-node";
    options.segment_size_bytes = bytes;
    options.drain_grace_ms = 0;
    enum yolk_status status = yolk_store_open(&options, &store);
    say(word_fd, status, "");
    if (status != YOLK_OK)
        return status;
    wait_for_end(stop_fd);
    return yolk_store_close(store);
}

/* A child that runs one of both; its first word in *word. */
static enum yolk_status start(struct bench_cluster *cluster, bool node,
                              const struct bench_cluster_options *options, int stop_fd, int *pid,
                              struct word *word)
{
    int words[2];
    if (pipe2(words, O_CLOEXEC) != 0)
        return base_fail(YOLK_ERR_SYSTEM, 0, "no pipe to a child");
    (void)fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        close(words[0]);
        close(cluster->stop_fd);
        enum yolk_status status =
            node ? run_node(stop_fd, words[1], cluster->address, options->segment_bytes)
                 : run_master(stop_fd, words[1], options->spin);
        _exit(status == YOLK_OK ? 0 : 1);
    }
    close(words[1]);
    ssize_t got = *pid < 0 ? -1 : read(words[0], word, sizeof(*word));
    close(words[0]);
    if (got != (ssize_t)sizeof(*word))
        return base_fail(YOLK_ERR_SYSTEM, 0, "the %s did not start", node ? "node" : "master");
    return word->status == YOLK_OK ? YOLK_OK : base_fail(word->status, 0, "%s", word->text);
}

enum yolk_status bench_cluster_open(struct bench_cluster *cluster,
                                    const struct bench_cluster_options *options)
{
    int ends[2];
    struct word word;
    memset(cluster, 0, sizeof(*cluster));
    cluster->stop_fd = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return base_fail(YOLK_ERR_SYSTEM, 0, "no pipe to the children");
    cluster->stop_fd = ends[1];
    enum yolk_status status = start(cluster, false, options, ends[0], &cluster->master, &word);
    if (status == YOLK_OK) {
        snprintf(cluster->address, sizeof(cluster->address), "%.*s",
                 (int)sizeof(cluster->address) - 1, word.text);
        status = start(cluster, true, options, ends[0], &cluster->node, &word);
    }
    close(ends[0]);
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
    if (cluster->stop_fd >= 0)
        close(cluster->stop_fd);
    if (cluster->node > 0)
        (void)waitpid(cluster->node, NULL, 0);
    if (cluster->master > 0)
        (void)waitpid(cluster->master, NULL, 0);
    memset(cluster, 0, sizeof(*cluster));
    cluster->stop_fd = -1;
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
