/* SPDX-License-Identifier: Apache-2.0 */
/* The order is a list, the most recently used in front. */
#include "master/policy.h"
#include "master/state.h"

static void order_init(void *order, void *state)
{
    (void)state;
    base_list_init(order);
}

static void to_front(void *order, struct master_extent *extent)
{
    base_list_push_front(order, &extent->order);
}

static void withdrawn(void *order, struct master_extent *extent)
{
    (void)order;
    base_list_remove(&extent->order);
}

static struct master_extent *victim(void *order)
{
    const struct base_list *list = order;
    return base_list_empty(list) ? NULL : BASE_CONTAINER(list->prev, struct master_extent, order);
}

const struct master_policy master_policy_lru = {
    .name = "lru",
    .order_size = sizeof(struct base_list),
    .order_init = order_init,
    .inserted = to_front,
    .touched = to_front,
    .withdrawn = withdrawn,
    .victim = victim,
};
