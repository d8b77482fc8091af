/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the master: at most 8 pooled connections for calls, made in the caller's own thread,
 * and one control connection; or the embedded core. */
#ifndef YOLK_STORE_CLIENT_H
#define YOLK_STORE_CLIENT_H

#include <stdint.h>

#include "base/buf.h"
#include "store/embedded.h"
#include "wire/frame.h"
#include "wire/hello.h"

struct store_client;

struct store_client_options {
    const char *master;              /* address; ignored when embedded */
    struct store_embedded *embedded; /* NULL: over the network. Borrowed. */
    const uint8_t *secret;           /* borrowed */
    size_t secret_size;
    uint8_t instance[16];
    uint32_t role;
    uint64_t connect_timeout_ms;
};

YOLK_MUST_USE int store_client_create(const struct store_client_options *options,
                                      struct store_client **out);
/* What the master understands (WIRE_FEATURE_…), as its last hello said. */
uint64_t store_client_features(struct store_client *client);
void store_client_destroy(struct store_client *client);

/* One request and its answer. LINK, REFUSED, TIMEOUT …: the request may or may not have been
 * performed. */
YOLK_MUST_USE int store_client_call(struct store_client *client, uint16_t kind, const uint8_t *body,
                                    size_t size, uint64_t deadline_ns, uint16_t *reply_kind,
                                    struct base_buf *reply);

/* The control connection; one thread. */
YOLK_MUST_USE int store_client_control_open(struct store_client *client, uint64_t session,
                                            uint8_t instance[16]);
void store_client_control_close(struct store_client *client);
YOLK_MUST_USE int store_client_control_send(struct store_client *client, uint16_t kind,
                                            uint64_t request_id, const uint8_t *body, size_t size);
/* Waits until a frame came (YOLK_OK), deadline_ns or store_client_wake (AGAIN), or the link broke.
 */
YOLK_MUST_USE int store_client_control_receive(struct store_client *client, uint64_t deadline_ns,
                                               struct wire_header *header, struct base_buf *body);
void store_client_wake(struct store_client *client);
/* This side's address of the control connection, without a port; "" if there is none. */
void store_client_local_host(struct store_client *client, char *text, size_t size);
#endif
