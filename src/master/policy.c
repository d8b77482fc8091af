/* SPDX-License-Identifier: Apache-2.0 */
#include "master/policy.h"

#include <string.h>

const struct master_policy *master_policy_find(const char *name)
{
    static const struct master_policy *const policies[] = {&master_policy_prefix,
                                                           &master_policy_lru};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}
