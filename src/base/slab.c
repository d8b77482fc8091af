/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slab.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define PAGE_SIZE ((size_t)64 * 1024)

/* At the beginning of each page, which begins at a multiple of its size. */
struct page {
    struct base_list link; /* the slab's open ones; in no list when full */
    void *free;            /* pieces given back: each begins with the next one */
    uint32_t used;
    uint32_t cut; /* pieces ever taken from the page: memory behind them was never touched */
};

void base_slab_init(struct base_slab *slab, size_t size)
{
    assert(size > 0 && size <= 4096);
    slab->size = (size + 7) / 8 * 8;
    base_list_init(&slab->open);
}

#ifdef BASE_SLAB_ON_HEAP

void base_slab_destroy(struct base_slab *slab)
{
    (void)slab;
}

void *base_slab_take(struct base_slab *slab)
{
    return base_calloc(1, slab->size);
}

void base_slab_give(struct base_slab *slab, void *piece)
{
    (void)slab;
    free(piece);
}

#else

static uint32_t room_of(const struct base_slab *slab)
{
    return (uint32_t)((PAGE_SIZE - sizeof(struct page)) / slab->size);
}

static struct page *page_new(struct base_slab *slab)
{
    struct page *page = base_pages_take(PAGE_SIZE);
    if (page != NULL)
        base_list_push_front(&slab->open, &page->link);
    return page;
}

void base_slab_destroy(struct base_slab *slab)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&slab->open)) != NULL) {
        struct page *page = BASE_CONTAINER(node, struct page, link);
        assert(page->used == 0);
        base_pages_give(page, PAGE_SIZE);
    }
}

void *base_slab_take(struct base_slab *slab)
{
    struct base_list *node = base_list_first(&slab->open);
    struct page *page = node != NULL ? BASE_CONTAINER(node, struct page, link) : page_new(slab);
    if (page == NULL)
        return NULL;
    void *piece = page->free;
    if (piece != NULL) {
        memcpy(&page->free, piece, sizeof page->free);
        memset(piece, 0, slab->size);
    } else {
        piece = (char *)page + sizeof *page + page->cut++ * slab->size;
    }
    if (++page->used == room_of(slab))
        base_list_remove(&page->link);
    return piece;
}

void base_slab_give(struct base_slab *slab, void *piece)
{
    struct page *page = (struct page *)((uintptr_t)piece & ~(uintptr_t)(PAGE_SIZE - 1));
    memcpy(piece, &page->free, sizeof page->free);
    page->free = piece;
    if (page->used-- == room_of(slab))
        base_list_push_front(&slab->open, &page->link);
    /* One stays, or one piece taken and given in turn would each time go to the system. */
    bool alone = slab->open.next == slab->open.prev;
    if (page->used > 0 || alone)
        return;
    base_list_remove(&page->link);
    base_pages_give(page, PAGE_SIZE);
}

#endif
