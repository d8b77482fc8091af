/* SPDX-License-Identifier: Apache-2.0 */
/* Where names of peers are kept: a service with put, get and remove of small texts. Which one an
 * address means stands in docs/transfer.md. All calls block until the deadline (clock_real) at
 * most. */
#ifndef PEER_METADATA_H
#define PEER_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

enum { METADATA_VALUE_MAX = 4096 };

struct metadata;
struct metadata_ops {
    const char *scheme; /* "http", "etcd", "redis" */
    /* address: what stands behind "scheme://". CONFIG: how it should look. Connects to nothing. */
    enum yolk_status (*open)(const char *address, struct metadata **out);
    void (*close)(struct metadata *metadata);
    enum yolk_status (*put)(struct metadata *metadata, const char *key, const char *value,
                            uint64_t deadline_ns);
    /* value NUL terminated. NOT_FOUND; TOO_LARGE. */
    enum yolk_status (*get)(struct metadata *metadata, const char *key, char *value, size_t size,
                            uint64_t deadline_ns);
    /* YOLK_OK too if there is none. */
    enum yolk_status (*remove)(struct metadata *metadata, const char *key, uint64_t deadline_ns);
};
/* The first member of each implementation's own struct. */
struct metadata {
    const struct metadata_ops *ops;
};

/* "http://…", "etcd://…" or "redis://…". CONFIG names the address and what is wrong with it. */
YOLK_MUST_USE enum yolk_status metadata_open(const char *url, struct metadata **out);

#endif
