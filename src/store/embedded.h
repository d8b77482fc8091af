/* SPDX-License-Identifier: Apache-2.0 */
/* The master's core inside this process: the same frames as over a socket, under one mutex. */
#ifndef YOLK_STORE_EMBEDDED_H
#define YOLK_STORE_EMBEDDED_H

#include <stdint.h>

#include "base/buf.h"
#include "master/core.h"
#include "wire/frame.h"

struct store_embedded;

YOLK_MUST_USE int store_embedded_create(const struct master_config *config, uint64_t seed,
                                        struct store_embedded **out);
void store_embedded_destroy(struct store_embedded *embedded);
const uint8_t *store_embedded_instance(const struct store_embedded *embedded);

/* One request from the calling thread; waits for its answer. */
YOLK_MUST_USE int store_embedded_call(struct store_embedded *embedded, uint16_t kind,
                                      const uint8_t *body, size_t size, uint64_t deadline_ns,
                                      uint16_t *reply_kind, struct base_buf *reply);

/* The control connection, of which there is one at a time. wake_fd (an eventfd) is written when a
 * frame for it arrives. */
void store_embedded_control_open(struct store_embedded *embedded, int wake_fd);
void store_embedded_control_close(struct store_embedded *embedded);
YOLK_MUST_USE int store_embedded_control_send(struct store_embedded *embedded, uint16_t kind,
                                              uint64_t request_id, const uint8_t *body,
                                              size_t size);
/* The next frame: YOLK_OK, or YOLK_ERR_AGAIN when there is none. */
YOLK_MUST_USE int store_embedded_control_receive(struct store_embedded *embedded,
                                                 struct wire_header *header, struct base_buf *body);
/* Lets the core's time pass; when to call again. */
uint64_t store_embedded_tick(struct store_embedded *embedded);
#endif
