/* SPDX-License-Identifier: Apache-2.0 */
/* A master of this process behind a socket, in a thread of its own, which can be stopped and
 * started again at its address. For tests; cmocka.h comes first. */
#ifndef SERVED_MASTER_H
#define SERVED_MASTER_H

#include <pthread.h>
#include <stdlib.h>

#include "platform/clock.h"
#include "platform/loop.h"
#include "platform/net.h"
#include "server/server.h"

struct master {
    struct loop *loop;
    struct server *server;
    pthread_t thread;
    char address[64];
};

static void *served_master_run(void *loop)
{
    if (loop_run(loop) != YOLK_OK)
        abort();
    return NULL;
}

/* At any free port of 127.0.0.1, or where it was before. */
static inline void master_start_with(struct master *master, const struct master_config *config)
{
    struct server_options options = {.seed = clock_real_now_ns(), .config = *config};
    const char *address = master->address[0] != '\0' ? master->address : "127.0.0.1:0";
    assert_int_equal(net_address_parse(address, 0, &options.address), YOLK_OK);
    assert_int_equal(loop_create(NULL, &master->loop), YOLK_OK);
    if (server_create(master->loop, &options, &master->server) != YOLK_OK)
        fail_msg("server: %s", yolk_last_error());
    net_address_format(server_address(master->server), master->address, sizeof(master->address));
    assert_int_equal(pthread_create(&master->thread, NULL, served_master_run, master->loop), 0);
}

static inline void master_stop(struct master *master)
{
    loop_stop(master->loop);
    pthread_join(master->thread, NULL);
    server_destroy(master->server);
    loop_destroy(master->loop);
}

#endif
