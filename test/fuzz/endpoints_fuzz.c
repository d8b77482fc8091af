/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "name=text;name=text", as another process says where its segment is, and the texts of the two
 * transports that reach one. Names of hosts are left out: they would be asked of a name server.
 */
#include "kit.h"
#include "transport/loop/loop.h"
#include "transport/shm/internal.h"
#include "transport/tcp/internal.h"
#include "yolk/engine.h"

static struct yolk_engine *engine;
static struct tcp_consumer *consumer;

static void start(void)
{
    static const struct tcp_settings settings = {.connections_max = 1, .workers = 1};
    const struct yolk_transport_ops *transports[] = {transport_loop_ops()};
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = transports;
    options.transport_count = 1;
    FUZZ_MUST(yolk_engine_create(&options, &engine) == YOLK_OK);
    FUZZ_MUST(tcp_consumer_create(&settings, &consumer) == YOLK_OK);
}

static void open_tcp(const char *text)
{
    void *target;
    const char *host_end = strrchr(text, ':');
    if (text[0] == '[')
        host_end = strchr(text, ']');
    else if (host_end != NULL && strspn(text, "127.0") != (size_t)(host_end - text))
        return;
    if (host_end == NULL ||
        (text[0] == '[' && strspn(text + 1, "0123456789abcdef:.") != (size_t)(host_end - text - 1)))
        return;
    if (tcp_target_open(consumer, text, 1, 4096, 1, &target) == YOLK_OK)
        tcp_target_close(consumer, target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct shm_settings shm;
    char *text = fuzz_text(data, size);
    struct yolk_segment_descriptor descriptor = {.id = 1, .size = 4096, .endpoints = text};
    uint64_t segment;
    void *target;
    if (engine == NULL)
        start();
    if (yolk_engine_segment_open(engine, &descriptor, 1, &segment) == YOLK_OK)
        FUZZ_MUST(yolk_engine_segment_close(engine, segment) == YOLK_OK);
    if (shm_target_open(&shm, text, 1, 4096, 1, &target) == YOLK_OK)
        shm_target_close(target);
    open_tcp(text);
    free(text);
    return 0;
}
