/* SPDX-License-Identifier: Apache-2.0 */
/* An intrusive doubly linked ring. A node that is in no list points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct base_list {
    struct base_list *next;
    struct base_list *prev;
};

#define BASE_CONTAINER(pointer, type, member)                                                      \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void base_list_init(struct base_list *list)
{
    list->next = list;
    list->prev = list;
}

/* For a head: has no nodes. For a node: is in no list. */
static inline bool base_list_empty(const struct base_list *list)
{
    return list->next == list;
}

static inline void base_list_insert_after(struct base_list *place, struct base_list *node)
{
    node->prev = place;
    node->next = place->next;
    place->next->prev = node;
    place->next = node;
}

static inline void base_list_push_front(struct base_list *head, struct base_list *node)
{
    base_list_insert_after(head, node);
}

static inline void base_list_push_back(struct base_list *head, struct base_list *node)
{
    base_list_insert_after(head->prev, node);
}

/* Harmless on a node that is in no list. */
static inline void base_list_remove(struct base_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    base_list_init(node);
}

/* The first node or NULL. */
static inline struct base_list *base_list_first(const struct base_list *head)
{
    return head->next == head ? NULL : head->next;
}

static inline struct base_list *base_list_pop_front(struct base_list *head)
{
    struct base_list *node = base_list_first(head);
    if (node != NULL)
        base_list_remove(node);
    return node;
}

#define BASE_LIST_FOREACH(node, head)                                                              \
    for (struct base_list *node = (head)->next; node != (head); node = node->next)

/* The body may remove `node`. */
#define BASE_LIST_FOREACH_SAFE(node, head)                                                         \
    for (struct base_list *node = (head)->next, *node##_next = node->next; node != (head);         \
         node = node##_next, node##_next = node->next)

#endif
