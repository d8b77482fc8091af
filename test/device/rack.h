/* SPDX-License-Identifier: Apache-2.0 */
/* A master and stores over nvlink, each in a process of its own, and how the test asks them. */
#ifndef DEVICE_RACK_H
#define DEVICE_RACK_H

#include "roles.h"

#include <pthread.h>

#include <yolk/store.h>

#include "platform/loop.h"
#include "platform/net.h"
#include "server/server.h"

enum { TIMEOUT_MS = 20000 }; /* of one call of a store */

/* ---- the master ---- */

static void *run_loop(void *arg)
{
    if (loop_run(arg) != YOLK_OK)
        abort();
    return NULL;
}

static void run_master(const struct role *role, int line)
{
    struct server_options options = {.seed = 5};
    struct server *server;
    struct loop *loop;
    pthread_t thread;
    char text[TEXT];
    master_config_default(&options.config);
    options.config.lease_ttl_ms = 50;
    options.config.session_ttl_ms = 3000;
    CHECK_OK(net_address_parse(role->text, 0, &options.address));
    CHECK_OK(loop_create(NULL, &loop));
    CHECK_OK(server_create(loop, &options, &server));
    net_address_format(server_address(server), text, sizeof(text));
    CHECK(pthread_create(&thread, NULL, run_loop, loop) == 0);
    say(line, text);
    read_line(line, text, sizeof(text));
    loop_stop(loop);
    pthread_join(thread, NULL);
    server_destroy(server);
    loop_destroy(loop);
}

static struct process begin_master(char address[TEXT])
{
    struct role role = {.run = run_master};
    snprintf(role.text, sizeof(role.text), "%.100s", address[0] != '\0' ? address : "127.0.0.1:0");
    struct process p = begin(&role);
    read_line(p.line, address, TEXT);
    assert_string_not_equal(address, "");
    return p;
}

/* ---- stores ---- */

static void options_of(const struct role *role, struct yolk_store_options *options)
{
    static char cuda[512];
    snprintf(cuda, sizeof(cuda), "%s", kit_fake_path("libcuda.so.1"));
    yolk_store_options_init(options);
    options->master = role->text;
    options->host = "127.0.0.1";
    options->transport = "nvlink";
    options->drain_grace_ms = 10000; /* only as long as somebody reads */
    options->timeout_ms = TIMEOUT_MS;
    options->cuda_library = kit_real() ? NULL : cuda;
}

/* ---- talking ---- */

static void expect(struct process *p, const char *wanted)
{
    char text[TEXT];
    read_line(p->line, text, sizeof(text));
    assert_string_equal(text, wanted);
}

static void begin_to(struct process *p, const char *verb, int who, int round)
{
    char text[TEXT];
    snprintf(text, sizeof(text), "%s %d %d", verb, who, round);
    say(p->line, text);
}

static int answer(struct process *p)
{
    char text[TEXT];
    read_line(p->line, text, sizeof(text));
    return text[0] != '\0' ? (int)strtol(text, NULL, 10) : -1;
}

static int ask(struct process *p, const char *verb, int who, int round)
{
    begin_to(p, verb, who, round);
    return answer(p);
}

#endif
