/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PEER_METADATA_KINDS_H
#define PEER_METADATA_KINDS_H

#include "peer/metadata.h"

extern const struct metadata_ops metadata_http_ops;
extern const struct metadata_ops metadata_etcd_ops;
extern const struct metadata_ops metadata_redis_ops;

/* The status of a service that hung up in the middle, or answered more than there can be: neither
 * is its caller's fault. */
enum yolk_status metadata_blame(enum yolk_status status);

#endif
