/* SPDX-License-Identifier: Apache-2.0 */
/* Entries lie in a treap ordered by offset: overlapping ones must be found when something new is
 * placed, because a stale entry that survived under new bytes would later be offered as their key.
 */
#include "store/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

struct node {
    struct node *left;
    struct node *right;
    uint64_t priority;
    uint64_t offset;
    uint64_t size;
    uint32_t key_size;
    uint8_t pinned;
    uint8_t key[];
};

struct store_mirror {
    struct node *root;
    size_t count;
    uint64_t seq;
    uint64_t *sessions;
    size_t session_count;
    size_t session_room;
};

/* A fixed mix of the offset serves as the treap's priority: the shape depends on the contents only.
 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Everything below `offset` to *low, the rest to *high. */
static void split(struct node *root, uint64_t offset, struct node **low, struct node **high)
{
    while (root != NULL) {
        if (root->offset < offset) {
            *low = root;
            low = &root->right;
            root = root->right;
        } else {
            *high = root;
            high = &root->left;
            root = root->left;
        }
    }
    *low = NULL;
    *high = NULL;
}

static struct node *merge(struct node *low, struct node *high)
{
    struct node *root = NULL;
    struct node **at = &root;

    while (low != NULL && high != NULL) {
        if (low->priority > high->priority) {
            *at = low;
            at = &low->right;
            low = low->right;
        } else {
            *at = high;
            at = &high->left;
            high = high->left;
        }
    }
    *at = low != NULL ? low : high;
    return root;
}

static const struct node *last_below(const struct node *root, uint64_t offset)
{
    const struct node *found = NULL;
    while (root != NULL) {
        if (root->offset < offset) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return found;
}

static const struct node *first_from(const struct node *root, uint64_t offset)
{
    const struct node *found = NULL;
    while (root != NULL) {
        if (root->offset >= offset) {
            found = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return found;
}

/* Frees without recursion, by rotating left children up. */
static size_t free_tree(struct node *root)
{
    size_t count = 0;
    while (root != NULL) {
        struct node *left = root->left;
        if (left != NULL) {
            root->left = left->right;
            left->right = root;
            root = left;
            continue;
        }
        struct node *right = root->right;
        free(root);
        count++;
        root = right;
    }
    return count;
}

enum yolk_status store_mirror_create(struct store_mirror **out)
{
    struct store_mirror *mirror = base_calloc(1, sizeof(*mirror));
    if (mirror == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the mirror of placements");
    *out = mirror;
    return YOLK_OK;
}

void store_mirror_destroy(struct store_mirror *mirror)
{
    if (mirror == NULL)
        return;
    store_mirror_clear(mirror);
    free(mirror->sessions);
    free(mirror);
}

void store_mirror_clear(struct store_mirror *mirror)
{
    free_tree(mirror->root);
    mirror->root = NULL;
    mirror->count = 0;
    mirror->session_count = 0;
}

void store_mirror_mounted(struct store_mirror *mirror)
{
    mirror->seq = 0;
}

int store_mirror_accepts(const struct store_mirror *mirror, uint64_t seq)
{
    return seq == mirror->seq + 1;
}

void store_mirror_applied(struct store_mirror *mirror, uint64_t seq)
{
    mirror->seq = seq;
}

uint64_t store_mirror_seq(const struct store_mirror *mirror)
{
    return mirror->seq;
}

enum yolk_status store_mirror_place(struct store_mirror *mirror, uint64_t offset, uint64_t size,
                                    const void *key, uint32_t key_size)
{
    struct node *node = base_malloc(sizeof(*node) + key_size);
    if (node == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a mirror entry");
    node->left = NULL;
    node->right = NULL;
    node->priority = mix(offset);
    node->offset = offset;
    node->size = size;
    node->key_size = key_size;
    node->pinned = 0;
    memcpy(node->key, key, key_size);

    struct node *low;
    struct node *middle;
    struct node *high;
    const struct node *before = last_below(mirror->root, offset);
    uint64_t from = offset;
    if (before != NULL && before->size > offset - before->offset)
        from = before->offset;
    uint64_t end = size > UINT64_MAX - offset ? UINT64_MAX : offset + size;
    if (end == offset)
        end = offset + 1;
    split(mirror->root, from, &low, &high);
    split(high, end, &middle, &high);
    mirror->count -= free_tree(middle);
    mirror->root = merge(merge(low, node), high);
    mirror->count++;
    return YOLK_OK;
}

void store_mirror_pin(struct store_mirror *mirror, uint64_t offset)
{
    struct node *node = mirror->root;
    while (node != NULL && node->offset != offset)
        node = node->offset < offset ? node->right : node->left;
    if (node != NULL)
        node->pinned = 1;
}

void store_mirror_free(struct store_mirror *mirror, uint64_t offset)
{
    struct node **at = &mirror->root;
    while (*at != NULL && (*at)->offset != offset)
        at = (*at)->offset < offset ? &(*at)->right : &(*at)->left;
    if (*at == NULL)
        return;
    struct node *node = *at;
    *at = merge(node->left, node->right);
    free(node);
    mirror->count--;
}

enum yolk_status store_mirror_session_open(struct store_mirror *mirror, uint64_t session)
{
    for (size_t i = 0; i < mirror->session_count; i++)
        if (mirror->sessions[i] == session)
            return YOLK_OK;
    if (mirror->session_count == mirror->session_room) {
        size_t room = mirror->session_room == 0 ? 16 : mirror->session_room * 2;
        uint64_t *grown = base_realloc(mirror->sessions, room * sizeof(*grown));
        if (grown == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the set of sessions");
        mirror->sessions = grown;
        mirror->session_room = room;
    }
    mirror->sessions[mirror->session_count++] = session;
    return YOLK_OK;
}

void store_mirror_session_gone(struct store_mirror *mirror, uint64_t session)
{
    for (size_t i = 0; i < mirror->session_count; i++) {
        if (mirror->sessions[i] != session)
            continue;
        mirror->sessions[i] = mirror->sessions[--mirror->session_count];
        return;
    }
}

size_t store_mirror_count(const struct store_mirror *mirror)
{
    return mirror->count;
}

size_t store_mirror_session_count(const struct store_mirror *mirror)
{
    return mirror->session_count;
}

uint64_t store_mirror_session(const struct store_mirror *mirror, size_t index)
{
    return mirror->sessions[index];
}

int store_mirror_next(const struct store_mirror *mirror, uint64_t *cursor,
                      struct store_mirror_entry *entry)
{
    const struct node *node = first_from(mirror->root, *cursor);
    if (node == NULL)
        return 0;
    *cursor = node->offset + 1;
    entry->offset = node->offset;
    entry->size = node->size;
    entry->key = node->key;
    entry->key_size = node->key_size;
    entry->pinned = node->pinned;
    return 1;
}
