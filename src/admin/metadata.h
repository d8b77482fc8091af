/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata server of Mooncake's transfer engines: texts by key over HTTP, in memory. Yolk's own
 * engines need none; this one is for those of others that are to find each other.
 */
#ifndef ADMIN_METADATA_H
#define ADMIN_METADATA_H

#include "admin/http_server.h"

#define METADATA_VALUE_MAX (1u << 20)
#define METADATA_KEY_MAX   4096u
#define METADATA_TOTAL_MAX (64u << 20) /* bytes of all keys and values */
#define METADATA_COUNT_MAX 65536u

struct admin_metadata;

extern const struct http_page admin_metadata_pages[];
extern const size_t admin_metadata_page_count;

YOLK_MUST_USE enum yolk_status admin_metadata_create(struct loop *loop,
                                                     const struct net_address *address,
                                                     struct admin_metadata **out);
void admin_metadata_destroy(struct admin_metadata *metadata);
const struct net_address *admin_metadata_address(const struct admin_metadata *metadata);

#endif
