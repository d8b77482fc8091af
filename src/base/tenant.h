/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a tenant's keys are told from those of others: by bytes before them (docs/wire.md). Each key
 * is qualified in one way only, and no two tenants' keys are ever the same bytes.
 */
#ifndef BASE_TENANT_H
#define BASE_TENANT_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "yolk/status.h"

#define TENANT_MARK       0xffu
#define TENANT_PREFIX_MAX (MAX_TENANT_SIZE + 2)
#define TENANT_DEFAULT    "default"

/* A name is of 1 to MAX_TENANT_SIZE bytes, without '_' first, control characters, '=', ',' or '*'.
 * YOLK_ERR_INVALID says in the last error which rule was broken. */
YOLK_MUST_USE int base_tenant_check(const void *name, size_t size);
/* The prefix of the tenant's keys; its size, 0 for the default tenant. The name is a good one. */
size_t base_tenant_prefix(const void *name, size_t size, uint8_t out[TENANT_PREFIX_MAX]);
/* Bytes before this key of a tenant with this prefix. */
size_t base_tenant_qualifier(const uint8_t *prefix, size_t prefix_size, const void *key,
                             size_t key_size, uint8_t out[TENANT_PREFIX_MAX]);
/* The bytes before the key proper in a qualified key; SIZE_MAX when it is not well made. */
size_t base_tenant_skip(const void *qualified, size_t size);

#endif
