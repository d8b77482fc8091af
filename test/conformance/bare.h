/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer side of a transport driven by its hooks alone, so that nothing of what it answers is
 * made good by an engine. The provider is the world's. */
#ifndef CONFORMANCE_BARE_H
#define CONFORMANCE_BARE_H

#include "world.h"

struct bare {
    const struct yolk_transport_ops *ops;
    void *endpoint;
    void *target;
    void *channel;
    uint8_t *local; /* w->size bytes */
    void *key;
    char text[4096];
    uint64_t until_ns; /* no wait lasts longer */
};

void bare_open(struct bare *b, struct world *w);
void bare_close(struct bare *b);
/* What follows "NAME=" in the world's endpoints, in b->text. */
void bare_endpoint_open(struct bare *b, struct world *w);
void bare_endpoint_close(struct bare *b);
/* channel_open, again for as long as it answers AGAIN. */
enum yolk_status bare_channel_open(struct bare *b, void **channel);

struct yolk_io bare_io(struct bare *b, enum yolk_opcode opcode, uint64_t place, uint64_t size,
                       uint64_t cookie);
/* Flush, if there is such a hook, and poll. */
uint32_t bare_poll(struct bare *b, struct yolk_completion *completions, uint32_t max);
/* Fails the case once it has gone on for too long. */
void bare_check_time(struct bare *b);

#endif
