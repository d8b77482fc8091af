/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/hello.h"

#include "platform/net.h"

struct link {
    int fd;
    uint64_t deadline_ns;
};

static int hello_send(void *self, const void *data, size_t size)
{
    struct link *link = self;
    return net_send_all(link->fd, data, size, link->deadline_ns);
}

static int hello_recv(void *self, void *data, size_t size)
{
    struct link *link = self;
    return net_recv_all(link->fd, data, size, link->deadline_ns);
}

int engine_hello_run(struct wire_hello_machine *machine, int fd, uint64_t deadline_ns)
{
    struct link link = {fd, deadline_ns};
    const struct wire_hello_io io = {&link, hello_send, hello_recv};
    return wire_hello_run(machine, &io);
}
