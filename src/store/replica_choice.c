/* SPDX-License-Identifier: Apache-2.0 */
#include "store/replica_choice.h"

int store_replica_choose(const struct store_replica_choice *choice,
                         const struct store_replica *replicas, uint32_t count, uint64_t tried,
                         uint64_t salt)
{
    int best = -1;
    uint32_t best_cost = UINT32_MAX;

    if (count > STORE_REPLICAS_MAX)
        count = STORE_REPLICAS_MAX;
    /* Starting at a salted place breaks ties without a second pass. */
    uint32_t start = count == 0 || choice == NULL ? 0 : (uint32_t)(salt % count);
    for (uint32_t step = 0; step < count; step++) {
        uint32_t index = (start + step) % count;
        if ((tried >> index & 1) != 0)
            continue;
        uint32_t cost = choice == NULL ? 0 : choice->cost(choice->self, &replicas[index]);
        if (best < 0 || cost < best_cost) {
            best = (int)index;
            best_cost = cost;
        }
    }
    return best;
}
