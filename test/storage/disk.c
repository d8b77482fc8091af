/* SPDX-License-Identifier: Apache-2.0 */
#include "disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FILES  8u
#define SECTOR 512u

struct content {
    char path[128]; /* "": unused */
    uint8_t *data;
    uint64_t size, room;
    struct handle *locked_by;
};

struct fault {
    unsigned after, count;
    int status;
};

struct disk {
    struct content files[FILES];
    bool recording;
    struct disk_event *events;
    size_t event_count, event_room;
    struct fault writes, syncs, reads;
    uint64_t space;
    int allocate;
    uint64_t life;
};

struct handle {
    struct file base;
    struct disk *disk;
    unsigned file;
    unsigned flags;
    uint64_t life;
};

static struct content *find(struct disk *disk, const char *path)
{
    for (unsigned i = 0; i < FILES; i++)
        if (strcmp(disk->files[i].path, path) == 0)
            return &disk->files[i];
    return NULL;
}

static void resize(struct content *c, uint64_t size)
{
    if (size > c->room) {
        c->room = size > 2 * c->room ? size : 2 * c->room;
        c->data = realloc(c->data, c->room);
        assert(c->data != NULL);
    }
    if (size > c->size)
        memset(c->data + c->size, 0, size - c->size);
    c->size = size;
}

static void record(struct disk *disk, struct disk_event event, const void *data)
{
    if (!disk->recording)
        return;
    if (disk->event_count == disk->event_room) {
        disk->event_room = disk->event_room ? 2 * disk->event_room : 64;
        disk->events = realloc(disk->events, disk->event_room * sizeof *disk->events);
        assert(disk->events != NULL);
    }
    if (data != NULL) {
        event.data = malloc(event.size);
        assert(event.data != NULL);
        memcpy(event.data, data, event.size);
    }
    disk->events[disk->event_count++] = event;
}

static bool fails(struct fault *fault)
{
    if (fault->count == 0)
        return false;
    if (fault->after > 0) {
        fault->after--;
        return false;
    }
    fault->count--;
    return true;
}

/* ---- operations ---- */
static struct content *content_of(struct handle *h)
{
    return h->life == h->disk->life ? &h->disk->files[h->file] : NULL;
}

static int do_pread(struct file *f, void *to, size_t size, uint64_t offset, size_t *got)
{
    struct handle *h = (struct handle *)f;
    struct content *c = content_of(h);
    *got = 0;
    if (c == NULL)
        return YOLK_ERR_CLOSED;
    /* Direct I/O: everything aligned. */
    assert(((uintptr_t)to | size | offset) % SECTOR == 0);
    if (fails(&h->disk->reads))
        return YOLK_ERR_IO;
    if (offset >= c->size)
        return YOLK_OK;
    *got = size < c->size - offset ? size : (size_t)(c->size - offset);
    memcpy(to, c->data + offset, *got);
    return YOLK_OK;
}

static int do_pwrite(struct file *f, const void *from, size_t size, uint64_t offset)
{
    struct handle *h = (struct handle *)f;
    struct content *c = content_of(h);
    if (c == NULL)
        return YOLK_ERR_CLOSED;
    assert((h->flags & FILE_WRITE) && ((uintptr_t)from | size | offset) % SECTOR == 0);
    /* Nobody writes into a file whose lock it has not. */
    assert(c->locked_by == h);
    bool failed = fails(&h->disk->writes);
    if (failed) /* half of it may be there all the same */
        size = size / 2 / SECTOR * SECTOR;
    if (size > 0) {
        if (offset + size > c->size)
            resize(c, offset + size);
        memcpy(c->data + offset, from, size);
        record(h->disk,
               (struct disk_event){
                   .kind = DISK_WRITE, .file = h->file, .offset = offset, .size = size},
               from);
    }
    return failed ? h->disk->writes.status : YOLK_OK;
}

static int do_fdatasync(struct file *f)
{
    struct handle *h = (struct handle *)f;
    if (content_of(h) == NULL)
        return YOLK_ERR_CLOSED;
    if (fails(&h->disk->syncs))
        return YOLK_ERR_IO;
    record(h->disk, (struct disk_event){.kind = DISK_SYNC, .file = h->file}, NULL);
    return YOLK_OK;
}

static int do_resize(struct file *f, uint64_t size)
{
    struct handle *h = (struct handle *)f;
    struct content *c = content_of(h);
    if (c == NULL)
        return YOLK_ERR_CLOSED;
    assert(c->locked_by == h);
    resize(c, size);
    record(h->disk, (struct disk_event){.kind = DISK_RESIZE, .file = h->file, .size = size}, NULL);
    return YOLK_OK;
}

static int do_fallocate(struct file *f, uint64_t offset, uint64_t size)
{
    struct handle *h = (struct handle *)f;
    if (h->disk->allocate != YOLK_OK)
        return h->disk->allocate;
    struct content *c = content_of(h);
    return c != NULL && offset + size > c->size ? do_resize(f, offset + size) : YOLK_OK;
}

static int do_size(struct file *f, uint64_t *out)
{
    struct content *c = content_of((struct handle *)f);
    *out = c != NULL ? c->size : 0;
    return c != NULL ? YOLK_OK : YOLK_ERR_CLOSED;
}

static void do_close(struct file *f)
{
    struct handle *h = (struct handle *)f;
    struct content *c = content_of(h);
    if (c != NULL && c->locked_by == h)
        c->locked_by = NULL;
    free(h);
}

static int do_unlink(void *self, const char *path)
{
    (void)self;
    (void)path;
    return YOLK_ERR_UNSUPPORTED;
}

static int do_rename(void *self, const char *from, const char *to)
{
    struct disk *disk = self;
    struct content *c = find(disk, from);
    if (c == NULL)
        return YOLK_ERR_NOT_FOUND;
    assert(find(disk, to) == NULL && strlen(to) < sizeof c->path);
    memcpy(c->path, to, strlen(to) + 1);
    record(disk,
           (struct disk_event){
               .kind = DISK_RENAME, .file = (unsigned)(c - disk->files), .size = strlen(to) + 1},
           to);
    return YOLK_OK;
}

static int do_lock(struct file *f)
{
    struct handle *h = (struct handle *)f;
    struct content *c = content_of(h);
    if (c == NULL)
        return YOLK_ERR_CLOSED;
    if (c->locked_by != NULL)
        return YOLK_ERR_BUSY;
    c->locked_by = h;
    return YOLK_OK;
}

static int do_space(struct file *f, uint64_t *free_bytes)
{
    *free_bytes = ((struct handle *)f)->disk->space;
    return YOLK_OK;
}

static bool do_direct(struct file *f)
{
    (void)f;
    return true;
}

static int do_open(void *self, const char *path, unsigned flags, struct file **out);

static const struct file_ops OPS = {
    .open = do_open,
    .pread = do_pread,
    .pwrite = do_pwrite,
    .fdatasync = do_fdatasync,
    .fallocate = do_fallocate,
    .size = do_size,
    .close = do_close,
    .unlink = do_unlink,
    .rename = do_rename,
    .resize = do_resize,
    .lock = do_lock,
    .space = do_space,
    .direct = do_direct,
};

static int do_open(void *self, const char *path, unsigned flags, struct file **out)
{
    struct disk *disk = self;
    struct content *c = find(disk, path);
    *out = NULL;
    if (c == NULL) {
        if (!(flags & FILE_CREATE))
            return YOLK_ERR_NOT_FOUND;
        c = find(disk, "");
        assert(c != NULL && strlen(path) < sizeof c->path);
        memcpy(c->path, path, strlen(path) + 1);
    }
    struct handle *h = calloc(1, sizeof *h);
    assert(h != NULL);
    *h = (struct handle){.base.ops = &OPS,
                         .disk = disk,
                         .file = (unsigned)(c - disk->files),
                         .flags = flags,
                         .life = disk->life};
    *out = &h->base;
    return YOLK_OK;
}

/* ---- the test's side ---- */
struct disk *disk_create(void)
{
    struct disk *disk = calloc(1, sizeof *disk);
    assert(disk != NULL);
    disk->space = 1ull << 40;
    return disk;
}

struct disk *disk_copy(const struct disk *from)
{
    struct disk *disk = disk_create();
    for (unsigned i = 0; i < FILES; i++) {
        memcpy(disk->files[i].path, from->files[i].path, sizeof from->files[i].path);
        resize(&disk->files[i], from->files[i].size);
        if (from->files[i].size > 0)
            memcpy(disk->files[i].data, from->files[i].data, from->files[i].size);
    }
    return disk;
}

void disk_destroy(struct disk *disk)
{
    for (unsigned i = 0; i < FILES; i++)
        free(disk->files[i].data);
    for (size_t i = 0; i < disk->event_count; i++)
        free(disk->events[i].data);
    free(disk->events);
    free(disk);
}

struct file_system disk_system(struct disk *disk)
{
    return (struct file_system){&OPS, disk};
}

void disk_record(struct disk *disk)
{
    disk->recording = true;
}

void disk_mark(struct disk *disk, uint64_t a, uint64_t b)
{
    record(disk, (struct disk_event){.kind = DISK_MARK, .offset = a, .size = b}, NULL);
}

size_t disk_events(const struct disk *disk)
{
    return disk->event_count;
}

const struct disk_event *disk_event(const struct disk *disk, size_t index)
{
    return &disk->events[index];
}

void disk_apply(struct disk *disk, const struct disk_event *event)
{
    struct content *c = &disk->files[event->file];
    if (event->kind == DISK_WRITE)
        disk_apply_torn(disk, event, UINT64_MAX);
    else if (event->kind == DISK_RESIZE)
        resize(c, event->size);
    else if (event->kind == DISK_RENAME)
        memcpy(c->path, event->data, event->size);
}

void disk_apply_torn(struct disk *disk, const struct disk_event *event, uint64_t sectors)
{
    struct content *c = &disk->files[event->file];
    if (event->offset + event->size > c->size)
        resize(c, event->offset + event->size);
    for (uint64_t at = 0; at < event->size; at += SECTOR)
        if (sectors >> (at / SECTOR % 64) & 1)
            memcpy(c->data + event->offset + at, event->data + at, SECTOR);
}

void disk_fail_writes(struct disk *disk, unsigned after, unsigned count, int status)
{
    disk->writes = (struct fault){after, count, status};
}

void disk_fail_syncs(struct disk *disk, unsigned after, unsigned count)
{
    disk->syncs = (struct fault){after, count, YOLK_ERR_IO};
}

void disk_fail_reads(struct disk *disk, unsigned after, unsigned count)
{
    disk->reads = (struct fault){after, count, YOLK_ERR_IO};
}

void disk_set_space(struct disk *disk, uint64_t bytes)
{
    disk->space = bytes;
}

void disk_set_allocate(struct disk *disk, int status)
{
    disk->allocate = status;
}

void disk_kill(struct disk *disk)
{
    disk->life++;
    for (unsigned i = 0; i < FILES; i++)
        disk->files[i].locked_by = NULL;
}

uint8_t *disk_bytes(struct disk *disk, const char *path, uint64_t *size)
{
    struct content *c = find(disk, path);
    *size = c != NULL ? c->size : 0;
    return c != NULL ? c->data : NULL;
}

void disk_put(struct disk *disk, const char *path, const void *bytes, uint64_t size)
{
    struct content *c = find(disk, path);
    if (c == NULL) {
        c = find(disk, "");
        assert(c != NULL);
        memcpy(c->path, path, strlen(path) + 1);
    }
    resize(c, 0);
    resize(c, size);
    if (size > 0)
        memcpy(c->data, bytes, size);
}

bool disk_has(struct disk *disk, const char *path)
{
    return find(disk, path) != NULL;
}
