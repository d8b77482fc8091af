/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/file/served.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"

static struct local_table table = LOCAL_TABLE(table, "the file is open in another process");

enum yolk_status file_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

void file_remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

enum yolk_status file_served_make(const struct yolk_serve *serve, struct file_served **out,
                                  char *text, size_t text_size)
{
    const struct yolk_file *file = serve->file;
    if (file == NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "it serves files only");
    if (file->internal == NULL || file->descriptor < 0)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the file has no descriptor");
    if (file->memory_alignment > FILE_SERVED_UNIT_MAX ||
        file->offset_alignment > FILE_SERVED_UNIT_MAX)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "blocks of %u bytes; at most %u are handled",
                         file->offset_alignment > file->memory_alignment ? file->offset_alignment
                                                                         : file->memory_alignment,
                         FILE_SERVED_UNIT_MAX);
    uint64_t end_of_file;
    int status = file_size(file->internal, &end_of_file);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    struct file_served *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a file");
    made->file = file->internal;
    made->descriptor = file->descriptor;
    made->base = file->offset;
    made->alignment = (struct file_alignment){file->memory_alignment, file->offset_alignment};
    made->pad_writes = file->pad_writes != 0;
    made->access = serve->access;
    if (end_of_file % made->alignment.offset != 0)
        made->file_end = end_of_file;
    status = local_serve(&table, &made->local, serve->size, text, text_size);
    if (status != YOLK_OK) {
        free(made);
        return (enum yolk_status)status;
    }
    *out = made;
    return YOLK_OK;
}

enum yolk_status file_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                            char *text, size_t text_size)
{
    (void)endpoint;
    struct file_served *made;
    enum yolk_status status = file_served_make(serve, &made, text, text_size);
    if (status == YOLK_OK)
        *served = made;
    return status;
}

void file_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    (void)endpoint, (void)served, (void)segment;
}

enum yolk_status file_fence_session(void *endpoint, void *served, uint64_t session)
{
    (void)endpoint;
    return local_fence(served, session);
}

void file_served_hide(struct file_served *served)
{
    local_hide(&table, &served->local);
}

enum yolk_status file_open_target(void *endpoint, const char *text, uint64_t segment, uint64_t size,
                                  uint64_t session, void **target)
{
    (void)endpoint;
    struct local_served *served;
    enum yolk_status status = local_find(&table, text, size, &served);
    if (status != YOLK_OK)
        return status;
    struct file_target *made = base_calloc(1, sizeof(*made));
    if (made == NULL) {
        local_drop(served);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    }
    made->served = (struct file_served *)served;
    made->segment = segment;
    made->session = session;
    *target = made;
    return YOLK_OK;
}

enum yolk_status file_check_direct(void *endpoint, void *target, const void *local, uint64_t offset,
                                   uint64_t size)
{
    (void)endpoint;
    const struct file_target *mine = target;
    const struct file_served *served = mine->served;
    const struct file_alignment *a = &served->alignment;
    if (!file_direct(served->file))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "the file has no direct I/O: its bytes go through the page cache");
    uint32_t unit = a->offset > a->memory ? a->offset : a->memory;
    uint64_t from = served->base + offset;
    if (from % unit != 0 || size % unit != 0 || (uintptr_t)local % a->memory != 0)
        return base_fail(
            YOLK_ERR_UNSUPPORTED, 0,
            "%p, %llu at %llu of the file: its bytes go through a bounce buffer, since "
            "not all are multiples of %u",
            local, (unsigned long long)size, (unsigned long long)from, unit);
    return YOLK_OK;
}

void file_close_target(void *endpoint, void *target)
{
    (void)endpoint;
    struct file_target *mine = target;
    local_drop(&mine->served->local);
    free(mine);
}

enum yolk_status file_served_begin(struct file_served *served,
                                   const struct yolk_access_request *request)
{
    if (request->opcode == YOLK_WRITE)
        local_write_begins(&served->local, request->session);
    enum yolk_status status = served->access.begin(served->access.self, request);
    if (status != YOLK_OK && request->opcode == YOLK_WRITE)
        local_write_ends(&served->local, request->session);
    return status;
}

void file_served_end(struct file_served *served, const struct yolk_access_request *request)
{
    served->access.end(served->access.self, request);
    if (request->opcode == YOLK_WRITE)
        local_write_ends(&served->local, request->session);
}

/* ---- blocks being read, changed and written back ----
 * Of all files in one table, because two transports may serve the same file. */
enum { LOCKS = 256 };

static struct {
    pthread_mutex_t lock;
    struct {
        const struct file *file; /* NULL: free */
        uint64_t block;
    } held[LOCKS];
} locks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. The place of this one, or LOCKS. */
static size_t find_held(const struct file *file, uint64_t block)
{
    size_t i = 0;
    while (i < LOCKS && (locks.held[i].file != file || locks.held[i].block != block))
        i++;
    return i;
}

static bool lock_one(const struct file *file, uint64_t block)
{
    if (block == UINT64_MAX)
        return true;
    size_t place = find_held(NULL, 0);
    if (place == LOCKS || find_held(file, block) < LOCKS)
        return false;
    locks.held[place].file = file;
    locks.held[place].block = block;
    return true;
}

static void unlock_one(const struct file *file, uint64_t block)
{
    if (block == UINT64_MAX)
        return;
    size_t place = find_held(file, block);
    locks.held[place].file = NULL;
    locks.held[place].block = 0;
}

bool file_served_lock_blocks(const struct file_served *served, const uint64_t blocks[2])
{
    if (blocks[0] == UINT64_MAX && blocks[1] == UINT64_MAX)
        return true;
    pthread_mutex_lock(&locks.lock);
    bool locked = lock_one(served->file, blocks[0]);
    if (locked && !lock_one(served->file, blocks[1])) {
        unlock_one(served->file, blocks[0]);
        locked = false;
    }
    pthread_mutex_unlock(&locks.lock);
    return locked;
}

void file_served_unlock_blocks(const struct file_served *served, const uint64_t blocks[2])
{
    if (blocks[0] == UINT64_MAX && blocks[1] == UINT64_MAX)
        return;
    pthread_mutex_lock(&locks.lock);
    unlock_one(served->file, blocks[0]);
    unlock_one(served->file, blocks[1]);
    pthread_mutex_unlock(&locks.lock);
}
