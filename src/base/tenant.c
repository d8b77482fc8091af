/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tenant.h"

#include <string.h>

#include "base/error.h"

int base_tenant_check(const void *name, size_t size)
{
    const uint8_t *bytes = name;
    if (size == 0 || size > MAX_TENANT_SIZE)
        return base_fail(YOLK_ERR_INVALID, 0, "a tenant's name has 1 to %u bytes, not %zu",
                         MAX_TENANT_SIZE, size);
    if (bytes[0] == '_')
        return base_fail(YOLK_ERR_INVALID, 0, "a tenant's name does not begin with '_'");
    for (size_t i = 0; i < size; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f || strchr("=,*\"\\", bytes[i]) != NULL)
            return base_fail(YOLK_ERR_INVALID, 0,
                             "a tenant's name has no control characters and none of =,*\"\\: byte "
                             "%zu is 0x%02x",
                             i, bytes[i]);
    return YOLK_OK;
}

size_t base_tenant_prefix(const void *name, size_t size, uint8_t out[TENANT_PREFIX_MAX])
{
    if (size == strlen(TENANT_DEFAULT) && memcmp(name, TENANT_DEFAULT, size) == 0)
        return 0;
    out[0] = TENANT_MARK;
    out[1] = (uint8_t)size;
    memcpy(out + 2, name, size);
    return size + 2;
}

size_t base_tenant_qualifier(const uint8_t *prefix, size_t prefix_size, const void *key,
                             size_t key_size, uint8_t out[TENANT_PREFIX_MAX])
{
    if (prefix_size > 0) {
        memcpy(out, prefix, prefix_size);
        return prefix_size;
    }
    if (key_size == 0 || *(const uint8_t *)key != TENANT_MARK)
        return 0;
    out[0] = TENANT_MARK;
    out[1] = 0;
    return 2;
}

size_t base_tenant_skip(const void *qualified, size_t size)
{
    const uint8_t *bytes = qualified;
    if (size == 0 || bytes[0] != TENANT_MARK)
        return 0;
    if (size < 2 || bytes[1] > MAX_TENANT_SIZE || (size_t)bytes[1] + 2 > size)
        return SIZE_MAX;
    return (size_t)bytes[1] + 2;
}
