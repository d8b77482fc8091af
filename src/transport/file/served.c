/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/file/served.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "platform/random.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct base_list table = {&table, &table};

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
    const struct random random = random_real();
    made->token = random_u64(&random);
    made->file = file->internal;
    made->descriptor = file->descriptor;
    made->base = file->offset;
    made->size = serve->size;
    made->alignment = (struct file_alignment){file->memory_alignment, file->offset_alignment};
    made->pad_writes = file->pad_writes != 0;
    made->access = serve->access;
    if (end_of_file % made->alignment.offset != 0)
        made->file_end = end_of_file;
    atomic_store(&made->references, 1);
    int length =
        snprintf(text, text_size, "%ld,%llx", (long)getpid(), (unsigned long long)made->token);
    if (length < 0 || (size_t)length >= text_size) {
        file_served_drop(made);
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the endpoint's text");
    }
    pthread_mutex_lock(&table_lock);
    base_list_push_back(&table, &made->node);
    pthread_mutex_unlock(&table_lock);
    *out = made;
    return YOLK_OK;
}

void file_served_hide(struct file_served *served)
{
    pthread_mutex_lock(&table_lock);
    base_list_remove(&served->node);
    pthread_mutex_unlock(&table_lock);
    atomic_store(&served->gone, true);
}

void file_served_drop(struct file_served *served)
{
    if (atomic_fetch_sub(&served->references, 1) == 1)
        free(served);
}

static _Atomic uint64_t *writes_of(struct file_served *served, uint64_t session)
{
    return &served->writes[(session ^ session >> 32) % FILE_SERVED_STRIPES];
}

enum yolk_status file_served_fence(struct file_served *served, uint64_t session)
{
    /* Another session of the same stripe only makes the answer come later. */
    return atomic_load(writes_of(served, session)) == 0 ? YOLK_OK : YOLK_ERR_AGAIN;
}

enum yolk_status file_target_open(const char *text, uint64_t segment, uint64_t size,
                                  uint64_t session, struct file_target **out)
{
    char *end = NULL;
    long pid = strtol(text, &end, 10);
    char *token_text = end + (*end == ',');
    uint64_t token = strtoull(token_text, &end, 16);
    if (token_text == text || end == token_text || *end != '\0')
        return base_fail(YOLK_ERR_INVALID, 0, "\"%.64s\" is not pid,token", text);
    if (pid != (long)getpid())
        return base_fail(YOLK_ERR_NO_ROUTE, 0, "the file is open in another process (%ld)", pid);
    struct file_target *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    made->segment = segment;
    made->session = session;
    pthread_mutex_lock(&table_lock);
    BASE_LIST_FOREACH(node, &table)
    {
        struct file_served *served = BASE_CONTAINER(node, struct file_served, node);
        if (served->token == token && served->size >= size) {
            made->served = served;
            atomic_fetch_add(&served->references, 1);
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
    if (made->served == NULL) {
        free(made);
        return base_fail(YOLK_ERR_STALE, 0, "this process does not serve it (any more)");
    }
    *out = made;
    return YOLK_OK;
}

void file_target_close(struct file_target *target)
{
    file_served_drop(target->served);
    free(target);
}

enum yolk_status file_served_enter(struct file_served *served)
{
    atomic_fetch_add(&served->accesses, 1);
    if (!atomic_load(&served->gone))
        return YOLK_OK;
    file_served_leave(served);
    return YOLK_ERR_PEER_DEAD;
}

void file_served_leave(struct file_served *served)
{
    atomic_fetch_sub(&served->accesses, 1);
}

enum yolk_status file_served_begin(struct file_served *served,
                                   const struct yolk_access_request *request)
{
    _Atomic uint64_t *writes = writes_of(served, request->session);
    if (request->opcode == YOLK_WRITE)
        atomic_fetch_add(writes, 1);
    enum yolk_status status = served->access.begin(served->access.self, request);
    if (status != YOLK_OK && request->opcode == YOLK_WRITE)
        atomic_fetch_sub(writes, 1);
    return status;
}

void file_served_end(struct file_served *served, const struct yolk_access_request *request)
{
    served->access.end(served->access.self, request);
    if (request->opcode == YOLK_WRITE)
        atomic_fetch_sub(writes_of(served, request->session), 1);
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
