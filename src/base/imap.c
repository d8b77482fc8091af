/* SPDX-License-Identifier: Apache-2.0 */
/* A treap ordered by start: expected depth 2·ln n, no rebalancing cases to get wrong. */
#include "base/alloc.h"
#include "base/imap.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"

struct base_imap_node {
    struct base_imap_node *left;
    struct base_imap_node *right;
    uint64_t priority;
    struct base_range range;
};

/* Inclusive, so that a range up to the end of the address space does not overflow. */
static uint64_t last_byte(const struct base_range *range)
{
    return range->start + (range->size - 1);
}

void base_imap_init(struct base_imap *map)
{
    *map = (struct base_imap){.seed = 0x9e3779b97f4a7c15ull};
}

void base_imap_free(struct base_imap *map)
{
    /* Rotates left children up, so that no recursion or stack is needed. */
    struct base_imap_node *node = map->root;
    while (node != NULL) {
        struct base_imap_node *left = node->left;
        if (left != NULL) {
            node->left = left->right;
            left->right = node;
            node = left;
        } else {
            struct base_imap_node *right = node->right;
            free(node);
            node = right;
        }
    }
    map->root = NULL;
    map->count = 0;
}

size_t base_imap_count(const struct base_imap *map)
{
    return map->count;
}

/* The node with the greatest start <= `at`, or NULL. */
static const struct base_imap_node *floor_node(const struct base_imap *map, uint64_t at)
{
    const struct base_imap_node *best = NULL;
    const struct base_imap_node *node = map->root;
    while (node != NULL) {
        if (node->range.start <= at) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

/* The node with the least start >= `at`, or NULL. */
static const struct base_imap_node *ceiling_node(const struct base_imap *map, uint64_t at)
{
    const struct base_imap_node *best = NULL;
    const struct base_imap_node *node = map->root;
    while (node != NULL) {
        if (node->range.start >= at) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

static bool answer(const struct base_imap_node *node, struct base_range *found)
{
    if (node == NULL)
        return false;
    if (found != NULL)
        *found = node->range;
    return true;
}

bool base_imap_get(const struct base_imap *map, uint64_t start, struct base_range *found)
{
    const struct base_imap_node *node = floor_node(map, start);
    return answer(node != NULL && node->range.start == start ? node : NULL, found);
}

bool base_imap_contains(const struct base_imap *map, uint64_t start, uint64_t size,
                        struct base_range *found)
{
    const struct base_imap_node *node = floor_node(map, start);
    if (node == NULL || start - node->range.start >= node->range.size ||
        node->range.size - (start - node->range.start) < size)
        return false;
    return answer(node, found);
}

bool base_imap_overlap(const struct base_imap *map, uint64_t start, uint64_t size,
                       struct base_range *found)
{
    if (size == 0)
        return false;
    const struct base_imap_node *node = floor_node(map, start);
    if (node != NULL && last_byte(&node->range) >= start)
        return answer(node, found);
    node = ceiling_node(map, start);
    if (node != NULL && node->range.start - start >= size)
        node = NULL;
    return answer(node, found);
}

bool base_imap_next(const struct base_imap *map, uint64_t from, struct base_range *found)
{
    return answer(ceiling_node(map, from), found);
}

/* Splits into starts below `at` and the rest. */
static void split(struct base_imap_node *node, uint64_t at, struct base_imap_node **low,
                  struct base_imap_node **high)
{
    while (node != NULL) {
        if (node->range.start < at) {
            *low = node;
            low = &node->right;
            node = node->right;
        } else {
            *high = node;
            high = &node->left;
            node = node->left;
        }
    }
    *low = NULL;
    *high = NULL;
}

int base_imap_insert(struct base_imap *map, uint64_t start, uint64_t size, void *value)
{
    if (size == 0 || size - 1 > UINT64_MAX - start)
        return base_fail(YOLK_ERR_INVALID, 0, "a range of %llu bytes at %#llx",
                         (unsigned long long)size, (unsigned long long)start);
    struct base_range other;
    if (base_imap_overlap(map, start, size, &other))
        return base_fail(YOLK_ERR_OVERLAP, 0,
                         "the range of %llu bytes at %#llx overlaps that of %llu bytes at %#llx",
                         (unsigned long long)size, (unsigned long long)start,
                         (unsigned long long)other.size, (unsigned long long)other.start);
    struct base_imap_node *node = base_malloc(sizeof(*node));
    if (node == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a range");
    map->seed += 0x9e3779b97f4a7c15ull;
    *node = (struct base_imap_node){.priority = base_mix64(map->seed),
                                    .range = {.start = start, .size = size, .value = value}};
    struct base_imap_node **place = &map->root;
    while (*place != NULL && (*place)->priority >= node->priority)
        place = start < (*place)->range.start ? &(*place)->left : &(*place)->right;
    split(*place, start, &node->left, &node->right);
    *place = node;
    map->count++;
    return YOLK_OK;
}

static struct base_imap_node *join(struct base_imap_node *low, struct base_imap_node *high)
{
    struct base_imap_node *root = NULL;
    struct base_imap_node **place = &root;
    while (low != NULL && high != NULL) {
        if (low->priority >= high->priority) {
            *place = low;
            place = &low->right;
            low = low->right;
        } else {
            *place = high;
            place = &high->left;
            high = high->left;
        }
    }
    *place = low != NULL ? low : high;
    return root;
}

bool base_imap_remove(struct base_imap *map, uint64_t start, struct base_range *removed)
{
    struct base_imap_node **place = &map->root;
    while (*place != NULL && (*place)->range.start != start)
        place = start < (*place)->range.start ? &(*place)->left : &(*place)->right;
    struct base_imap_node *node = *place;
    if (!answer(node, removed))
        return false;
    *place = join(node->left, node->right);
    free(node);
    map->count--;
    return true;
}
