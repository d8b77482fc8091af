/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/buffers.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

void gds_buffers_init(struct gds_buffers *buffers, struct device *device,
                      const struct cufile *cufile)
{
    memset(buffers, 0, sizeof(*buffers));
    buffers->device = device;
    buffers->cufile = cufile;
    mutex_init(&buffers->lock);
}

static void deregister(struct gds_buffers *buffers, struct gds_buffer *entry)
{
    if (entry->registered)
        (void)buffers->cufile->buf_deregister((const void *)(uintptr_t)entry->base);
    entry->registered = false;
}

void gds_buffers_deregister(struct gds_buffers *buffers)
{
    for (unsigned i = 0; i < buffers->count; i++)
        deregister(buffers, &buffers->entries[i]);
}

void gds_buffers_fini(struct gds_buffers *buffers)
{
    gds_buffers_deregister(buffers);
    free(buffers->entries);
    mutex_destroy(&buffers->lock);
}

/* The last entry that begins at or before the address, or count. */
static unsigned place_of(const struct gds_buffers *buffers, uint64_t address)
{
    unsigned low = 0, high = buffers->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (buffers->entries[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? buffers->count : low - 1;
}

static struct gds_buffer *entry_of(struct gds_buffers *buffers, uint64_t address)
{
    unsigned i = place_of(buffers, address);
    if (i == buffers->count)
        return NULL;
    struct gds_buffer *entry = &buffers->entries[i];
    return address - entry->base < entry->size ? entry : NULL;
}

static void drop(struct gds_buffers *buffers, struct gds_buffer *entry)
{
    deregister(buffers, entry);
    size_t behind = (size_t)(buffers->entries + --buffers->count - entry);
    memmove(entry, entry + 1, behind * sizeof(*entry));
}

/* Entries of an allocation that is not there any more, under what is there now. */
static void drop_stale(struct gds_buffers *buffers, const struct gds_buffer *now)
{
    for (unsigned i = 0; i < buffers->count;) {
        struct gds_buffer *old = &buffers->entries[i];
        if (old->base < now->base + now->size && now->base < old->base + old->size &&
            (old->id != now->id || old->base != now->base))
            drop(buffers, old);
        else
            i++;
    }
}

static struct gds_buffer *insert(struct gds_buffers *buffers, const struct gds_buffer *entry)
{
    if (buffers->count == buffers->room) {
        unsigned room = buffers->room == 0 ? 64 : buffers->room * 2;
        struct gds_buffer *more = base_realloc(buffers->entries, room * sizeof(*more));
        if (more == NULL)
            return NULL;
        buffers->entries = more;
        buffers->room = room;
    }
    unsigned at = place_of(buffers, entry->base);
    at = at == buffers->count ? 0 : at + 1;
    if (at < buffers->count)
        memmove(&buffers->entries[at + 1], &buffers->entries[at],
                (buffers->count - at) * sizeof(*entry));
    buffers->entries[at] = *entry;
    buffers->count++;
    return &buffers->entries[at];
}

/* Under the lock. The allocation's entry, made where it is missing. */
static int enter(struct gds_buffers *buffers, const struct gds_buffer *allocation,
                 struct gds_buffer **out)
{
    drop_stale(buffers, allocation);
    *out = entry_of(buffers, allocation->base);
    if (*out != NULL)
        return YOLK_OK;
    if (buffers->count == GDS_BUFFERS_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "%d allocations are registered with cuFile already",
                         GDS_BUFFERS_MAX);
    *out = insert(buffers, allocation);
    return *out != NULL ? YOLK_OK
                        : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a registration");
}

static void register_entry(struct gds_buffers *buffers, struct gds_buffer *entry)
{
    struct cufile_error error =
        buffers->cufile->buf_register((const void *)(uintptr_t)entry->base, (size_t)entry->size, 0);
    if (error.error != CUFILE_OK) {
        base_ignore(
            cufile_fail(error, "cuFileBufRegister of %llu bytes", (unsigned long long)entry->size));
        return;
    }
    entry->registered = true;
    buffers->registrations++;
}

int gds_buffers_add(struct gds_buffers *buffers, const void *pointer, uint64_t size,
                    bool *registered)
{
    struct device_memory memory;
    struct gds_buffer *entry;
    *registered = false;
    int status = device_query(buffers->device, pointer, &memory);
    if (status != YOLK_OK)
        return status;
    if (memory.kind != DEVICE_GPU)
        return base_fail(YOLK_OK, 0, "%s is not registered with cuFile",
                         device_kind_name(memory.kind));
    if (size > memory.size - ((uintptr_t)pointer - memory.base))
        return base_fail(YOLK_ERR_INVALID, 0,
                         "%llu bytes at %p: the allocation ends %llu bytes behind",
                         (unsigned long long)size, pointer,
                         (unsigned long long)(memory.size - ((uintptr_t)pointer - memory.base)));
    struct gds_buffer allocation = {.base = memory.base, .size = memory.size, .id = memory.id};
    mutex_lock(&buffers->lock);
    status = enter(buffers, &allocation, &entry);
    if (status == YOLK_OK) {
        entry->uses++;
        if (!entry->registered)
            register_entry(buffers, entry);
        *registered = entry->registered;
    }
    mutex_unlock(&buffers->lock);
    return status;
}

void gds_buffers_remove(struct gds_buffers *buffers, const void *pointer)
{
    mutex_lock(&buffers->lock);
    struct gds_buffer *entry = entry_of(buffers, (uintptr_t)pointer);
    if (entry != NULL && --entry->uses == 0)
        drop(buffers, entry);
    mutex_unlock(&buffers->lock);
}

void *gds_buffers_find(struct gds_buffers *buffers, const void *pointer, uint64_t *offset)
{
    mutex_lock(&buffers->lock);
    const struct gds_buffer *entry = entry_of(buffers, (uintptr_t)pointer);
    uint64_t base = entry != NULL && entry->registered ? entry->base : (uintptr_t)pointer;
    mutex_unlock(&buffers->lock);
    *offset = (uintptr_t)pointer - base;
    return (void *)(uintptr_t)base;
}

bool gds_buffers_are_registered(struct gds_buffers *buffers, const void *pointer)
{
    mutex_lock(&buffers->lock);
    const struct gds_buffer *entry = entry_of(buffers, (uintptr_t)pointer);
    bool registered = entry != NULL && entry->registered;
    mutex_unlock(&buffers->lock);
    return registered;
}
