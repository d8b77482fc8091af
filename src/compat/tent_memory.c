/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's C interface on peers: memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ROOM "engine"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "compat/tent.h"

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

/* What all that take options share. */
static enum yolk_status check_options(const struct tent_engine *engine,
                                      const tent_memory_options_t *options)
{
    const char *transport;
    if (!ends(options->location, sizeof(options->location)) ||
        !ends(options->shm_path, sizeof(options->shm_path)))
        return base_fail(YOLK_ERR_INVALID, 0, "location and shm_path must end with a NUL");
    if (options->shm_path[0] != '\0' || options->shm_offset != 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "shm_path is \"%s\": memory is shared by descriptors, not by names",
                         options->shm_path);
    if (options->permission < PERM_LOCAL_READ_WRITE || options->permission > PERM_GLOBAL_READ_WRITE)
        return base_fail(YOLK_ERR_INVALID, 0, "permission %d: must be 0, 1 or 2",
                         options->permission);
    return compat_tent_transport(engine, options->transport_type, &transport);
}

/* ---- to be had ---- */

/* "cpu:N": on that node. */
static enum yolk_status place(void *pointer, size_t size, const char *location)
{
    uint64_t node;
    if (location[0] == '\0' || strcmp(location, "*") == 0)
        return YOLK_OK;
    if (strncmp(location, "cpu:", 4) != 0 ||
        base_parse_u64("NUMA node", location + 4, &node) != YOLK_OK || node > UINT32_MAX)
        return base_fail(strncmp(location, "cuda:", 5) == 0 ? YOLK_ERR_UNSUPPORTED
                                                            : YOLK_ERR_INVALID,
                         0, "location is \"%s\": memory can be had at * or cpu:N", location);
    enum yolk_status status = memory_prefer_node(pointer, size, (unsigned)node);
    if (status != YOLK_ERR_UNSUPPORTED)
        return status;
    log_warn("memory for %s lies where the system puts it: %s", location, yolk_last_error());
    return YOLK_OK;
}

static enum yolk_status obtain(size_t size, const char *location, struct tent_memory *out)
{
    if (size == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "memory of 0 bytes");
    out->size = size;
    enum yolk_status status = memory_pages_create(size, &out->pointer);
    if (status != YOLK_OK)
        return status;
    status = place(out->pointer, size, location);
    if (status != YOLK_OK)
        memory_pages_destroy(out->pointer, size);
    return status;
}

static enum yolk_status keep(struct tent_engine *engine, const struct tent_memory *memory)
{
    enum yolk_status status = YOLK_OK;
    mutex_lock(&engine->lock);
    if (engine->memory_count == engine->memory_room) {
        size_t room = engine->memory_room == 0 ? 16 : engine->memory_room * 2;
        struct tent_memory *more = base_realloc(engine->memories, room * sizeof(*more));
        if (more == NULL)
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to keep its address");
        else
            engine->memories = more;
        engine->memory_room = more != NULL ? room : engine->memory_room;
    }
    if (status == YOLK_OK)
        engine->memories[engine->memory_count++] = *memory;
    mutex_unlock(&engine->lock);
    return status;
}

static int allocate(tent_engine_t handle, void **addr, size_t size,
                    const tent_memory_options_t *options, const char *location, const char *what)
{
    struct tent_engine *engine = handle;
    struct tent_memory memory = {0};
    if (engine == NULL || addr == NULL || location == NULL)
        return compat_tent_invalid(what,
                                   "needs an engine, room for the address, and where it shall be");
    enum yolk_status status = options != NULL ? check_options(engine, options) : YOLK_OK;
    if (status == YOLK_OK)
        status = obtain(size, location, &memory);
    if (status != YOLK_OK)
        return compat_tent_answer(status, what);
    status = keep(engine, &memory);
    if (status == YOLK_OK)
        *addr = memory.pointer;
    else
        memory_pages_destroy(memory.pointer, memory.size);
    return compat_tent_answer(status, what);
}

int tent_allocate_memory(tent_engine_t handle, void **addr, size_t size, const char *location)
{
    return allocate(handle, addr, size, NULL, location, "tent_allocate_memory");
}

int tent_allocate_memory_ex(tent_engine_t handle, void **addr, size_t size,
                            tent_memory_options_t *opts)
{
    return allocate(handle, addr, size, opts, opts != NULL ? opts->location : NULL,
                    "tent_allocate_memory_ex");
}

int tent_free_memory(tent_engine_t handle, void *addr)
{
    struct tent_engine *engine = handle;
    if (engine == NULL || addr == NULL)
        return compat_tent_invalid("tent_free_memory", "needs an engine and an address");
    enum yolk_status status =
        base_fail(YOLK_ERR_NOT_FOUND, 0, "address %p was not given out here", addr);
    struct tent_memory memory = {0};
    mutex_lock(&engine->lock);
    for (size_t i = 0; i < engine->memory_count && status != YOLK_OK; i++) {
        if (engine->memories[i].pointer != addr)
            continue;
        memory = engine->memories[i];
        if (yolk_engine_is_registered(yolk_peer_engine(engine->peer), addr, 1)) {
            status = base_fail(YOLK_ERR_BUSY, 0, "address %p is still registered", addr);
            break;
        }
        engine->memories[i] = engine->memories[--engine->memory_count];
        status = YOLK_OK;
    }
    mutex_unlock(&engine->lock);
    if (status == YOLK_OK)
        memory_pages_destroy(memory.pointer, memory.size);
    return compat_tent_answer(status, "tent_free_memory");
}

void compat_tent_memories_free(struct tent_engine *engine)
{
    for (size_t i = 0; i < engine->memory_count; i++)
        memory_pages_destroy(engine->memories[i].pointer, engine->memories[i].size);
    free(engine->memories);
}

/* ---- registered ---- */

static enum yolk_status add(struct tent_engine *engine, void *addr, size_t size,
                            const char *location, int permission)
{
    return yolk_peer_register(engine->peer, addr, size, location[0] != '\0' ? location : "*",
                              (enum yolk_permission)permission);
}

static int add_all(tent_engine_t handle, void **addrs, const size_t *sizes, size_t count,
                   const char *location, int permission, const char *what)
{
    struct tent_engine *engine = handle;
    enum yolk_status status = YOLK_OK;
    size_t done = 0;
    if (engine == NULL || (count > 0 && (addrs == NULL || sizes == NULL)))
        return compat_tent_invalid(what, "needs an engine, addresses and sizes");
    while (done < count && status == YOLK_OK) {
        status = add(engine, addrs[done], sizes[done], location, permission);
        done += status == YOLK_OK;
    }
    if (status == YOLK_OK)
        return 0;
    (void)compat_tent_answer(status, what);
    while (done > 0) {
        done--;
        base_ignore(yolk_peer_unregister(engine->peer, addrs[done], sizes[done]));
    }
    return -1;
}

static int add_all_ex(tent_engine_t handle, void **addrs, const size_t *sizes, size_t count,
                      const tent_memory_options_t *options, const char *what)
{
    const struct tent_engine *engine = handle;
    if (engine == NULL || options == NULL)
        return compat_tent_invalid(what, "needs an engine and options");
    enum yolk_status status = check_options(engine, options);
    if (status != YOLK_OK)
        return compat_tent_answer(status, what);
    return add_all(handle, addrs, sizes, count, options->location,
                   options->internal != 0 ? PERM_LOCAL_READ_WRITE : options->permission, what);
}

int tent_register_memory(tent_engine_t handle, void *addr, size_t size)
{
    return add_all(handle, &addr, &size, 1, "*", PERM_GLOBAL_READ_WRITE, "tent_register_memory");
}

int tent_register_memory_with_perm(tent_engine_t handle, void *addr, size_t size, int permission)
{
    return add_all(handle, &addr, &size, 1, "*", permission, "tent_register_memory_with_perm");
}

int tent_register_memory_ex(tent_engine_t handle, void *addr, size_t size,
                            tent_memory_options_t *opts)
{
    return add_all_ex(handle, &addr, &size, 1, opts, "tent_register_memory_ex");
}

int tent_register_memory_batch(tent_engine_t handle, void **addrs, size_t *sizes, size_t count,
                               int permission)
{
    return add_all(handle, addrs, sizes, count, "*", permission, "tent_register_memory_batch");
}

int tent_register_memory_batch_ex(tent_engine_t handle, void **addrs, size_t *sizes, size_t count,
                                  tent_memory_options_t *opts)
{
    return add_all_ex(handle, addrs, sizes, count, opts, "tent_register_memory_batch_ex");
}

int tent_unregister_memory(tent_engine_t handle, void *addr, size_t size)
{
    struct tent_engine *engine = handle;
    if (engine == NULL)
        return compat_tent_invalid("tent_unregister_memory", "needs an engine");
    return compat_tent_answer(yolk_peer_unregister(engine->peer, addr, size),
                              "tent_unregister_memory");
}

int tent_unregister_memory_batch(tent_engine_t handle, void **addrs, size_t *sizes, size_t count)
{
    int answer = 0;
    if (handle == NULL || (addrs == NULL && count > 0))
        return compat_tent_invalid("tent_unregister_memory_batch", "needs an engine and addresses");
    for (size_t i = 0; i < count; i++)
        answer |= tent_unregister_memory(handle, addrs[i], sizes != NULL ? sizes[i] : 0);
    return answer;
}
