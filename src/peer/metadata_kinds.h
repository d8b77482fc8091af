/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PEER_METADATA_KINDS_H
#define PEER_METADATA_KINDS_H

#include "peer/metadata.h"

extern const struct metadata_ops metadata_http_ops;
extern const struct metadata_ops metadata_etcd_ops;
extern const struct metadata_ops metadata_redis_ops;

#endif
