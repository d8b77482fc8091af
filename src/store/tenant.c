/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a tenant: the caller's on this side, qualified ones (docs/wire.md) on the other. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/tenant.h"
#include "store/internal.h"

int store_take_tenant(struct yolk_store *store, const char *tenant)
{
    if (tenant == NULL || strcmp(tenant, TENANT_DEFAULT) == 0)
        return YOLK_OK;
    int status = base_tenant_check(tenant, strlen(tenant));
    if (status != YOLK_OK)
        return base_fail_context(YOLK_ERR_CONFIG, "store option tenant_id");
    store->prefix_size = base_tenant_prefix(tenant, strlen(tenant), store->prefix);
    store->tenant = strdup(tenant);
    return store->tenant != NULL ? YOLK_OK
                                 : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a store");
}

/* Bytes that go before the key. */
static size_t qualifier(const struct yolk_store *store, const struct store_item *item,
                        uint8_t out[TENANT_PREFIX_MAX])
{
    if (item->key_size == 0)
        return 0;
    return base_tenant_qualifier(store->prefix, store->prefix_size, item->key, item->key_size, out);
}

int store_qualify(const struct yolk_store *store, struct store_item *items, size_t count,
                  uint8_t **arena)
{
    uint8_t before[TENANT_PREFIX_MAX];
    size_t total = 0;
    *arena = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t size = qualifier(store, &items[i], before);
        if (size > 0 && items[i].key_size + size > MAX_KEY_SIZE)
            items[i].key_size = 0;
        else if (size > 0)
            total += items[i].key_size + size;
    }
    if (total == 0)
        return YOLK_OK;
    uint8_t *at = *arena = malloc(total);
    if (at == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu keys", count);
    for (size_t i = 0; i < count; i++) {
        size_t size = qualifier(store, &items[i], before);
        if (size == 0)
            continue;
        memcpy(at, before, size);
        memcpy(at + size, items[i].key, items[i].key_size);
        items[i].key = at;
        items[i].key_size += (uint32_t)size;
        at += items[i].key_size;
    }
    return YOLK_OK;
}

void store_unqualify(const void **key, size_t *key_size)
{
    size_t skip = base_tenant_skip(*key, *key_size);
    if (skip >= *key_size)
        return; /* not well made, or empty: shown as it is */
    *key = (const uint8_t *)*key + skip;
    *key_size -= skip;
}
