/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory that treat unsynced writes as badly as a disk may: after a crash any subset of
 * them is there, applied in any order, some of them only in part. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/file.h"
#include "platform/random.h"

#define SECTOR       512u
#define SIM_FILE_MAX ((uint64_t)1 << 32)
#define BLOCK        ((uint64_t)4096)

/* Only blocks that were written to have memory. What lies behind the end is zero, or has none. */
struct content {
    uint8_t **blocks; /* NULL: zeros */
    uint64_t block_count;
    uint64_t size;
};

struct pending {
    uint64_t offset;
    uint64_t size;
    uint8_t *data; /* NULL: only grows the file (fallocate) */
};

struct node {
    struct node *next;
    char *path; /* NULL once unlinked */
    unsigned handles;
    struct file *locked_by;
    unsigned sharers;       /* of a lock for reading */
    struct content now;     /* what a reader sees */
    struct content durable; /* what surely survives */
    struct pending *pending;
    size_t pending_count;
    size_t pending_capacity;
};

struct sim_file {
    struct file base;
    struct file_sim *sim;
    struct node *node;
    unsigned flags;
    bool shares;   /* one of the node's sharers */
    uint64_t life; /* of the simulated machine when it was opened */
};

struct file_sim {
    struct node *nodes;
    uint64_t life;
    uint64_t space; /* what sim_space answers */
    struct random_sim random;
    bool no_allocation; /* fallocate is UNSUPPORTED */
    bool armed[3];
    unsigned countdown[3];
};

static int content_grow(struct content *c, uint64_t size)
{
    if (size <= c->size)
        return YOLK_OK;
    if (size > SIM_FILE_MAX)
        return base_fail(YOLK_ERR_NO_SPACE, 0, "simulated file of %llu bytes",
                         (unsigned long long)size);
    if (size > c->block_count * BLOCK) {
        uint64_t count = c->block_count ? c->block_count : 16;
        while (count * BLOCK < size)
            count *= 2;
        uint8_t **blocks = realloc(c->blocks, count * sizeof(*blocks));
        if (!blocks)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
        memset(blocks + c->block_count, 0, (count - c->block_count) * sizeof(*blocks));
        c->blocks = blocks;
        c->block_count = count;
    }
    c->size = size;
    return YOLK_OK;
}

/* How much of [offset, offset + left) lies in the block of its beginning. */
static uint64_t in_block(uint64_t offset, uint64_t left)
{
    uint64_t room = BLOCK - offset % BLOCK;
    return left < room ? left : room;
}

static void content_shrink(struct content *c, uint64_t size)
{
    if (size >= c->size)
        return;
    for (uint64_t at = size, step; at < c->size; at += step) {
        uint8_t *block = c->blocks[at / BLOCK];
        step = in_block(at, c->size - at);
        if (block)
            memset(block + at % BLOCK, 0, step);
    }
    c->size = size;
}

/* Within its size. */
static void content_read(const struct content *c, uint8_t *to, uint64_t size, uint64_t offset)
{
    for (uint64_t end = offset + size, step; offset < end; offset += step, to += step) {
        const uint8_t *block = c->blocks[offset / BLOCK];
        step = in_block(offset, end - offset);
        if (block)
            memcpy(to, block + offset % BLOCK, step);
        else
            memset(to, 0, step);
    }
}

static int content_write(struct content *c, const uint8_t *from, uint64_t size, uint64_t offset)
{
    if (offset > SIM_FILE_MAX || size > SIM_FILE_MAX)
        return base_fail(YOLK_ERR_NO_SPACE, 0, "simulated file");
    int status = content_grow(c, offset + size);
    if (status != YOLK_OK)
        return status;
    for (uint64_t end = offset + size, step; offset < end; offset += step, from += step) {
        uint8_t **block = &c->blocks[offset / BLOCK];
        step = in_block(offset, end - offset);
        if (!*block)
            *block = calloc(1, BLOCK);
        if (!*block)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
        memcpy(*block + offset % BLOCK, from, step);
    }
    return YOLK_OK;
}

/* Of the same size and bytes. */
static int content_copy(struct content *to, const struct content *from)
{
    content_shrink(to, 0);
    int status = content_grow(to, from->size);
    for (uint64_t at = 0; at < from->size && status == YOLK_OK; at += BLOCK) {
        if (from->blocks[at / BLOCK])
            status = content_write(to, from->blocks[at / BLOCK], in_block(at, from->size - at), at);
    }
    return status;
}

static void content_free(struct content *c)
{
    for (uint64_t i = 0; i < c->block_count; i++)
        free(c->blocks[i]);
    free(c->blocks);
    *c = (struct content){0};
}

static void pending_drop(struct node *n)
{
    for (size_t i = 0; i < n->pending_count; i++)
        free(n->pending[i].data);
    n->pending_count = 0;
}

static int pending_add(struct node *n, const uint8_t *from, uint64_t size, uint64_t offset)
{
    if (n->pending_count == n->pending_capacity) {
        size_t capacity = n->pending_capacity ? n->pending_capacity * 2 : 16;
        struct pending *p = realloc(n->pending, capacity * sizeof(*p));
        if (!p)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
        n->pending = p;
        n->pending_capacity = capacity;
    }
    struct pending *p = &n->pending[n->pending_count];
    *p = (struct pending){offset, size, NULL};
    if (from) {
        p->data = malloc(size);
        if (!p->data)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
        memcpy(p->data, from, size);
    }
    n->pending_count++;
    return YOLK_OK;
}

static void node_free(struct node *n)
{
    pending_drop(n);
    free(n->pending);
    content_free(&n->now);
    content_free(&n->durable);
    free(n->path);
    free(n);
}

static struct node *find(struct file_sim *sim, const char *path)
{
    for (struct node *n = sim->nodes; n; n = n->next) {
        if (n->path && strcmp(n->path, path) == 0)
            return n;
    }
    return NULL;
}

/* Frees files that have neither a name nor a handle. */
static void sweep(struct file_sim *sim)
{
    struct node **at = &sim->nodes;
    while (*at) {
        struct node *n = *at;
        if (!n->path && n->handles == 0) {
            *at = n->next;
            node_free(n);
        } else {
            at = &n->next;
        }
    }
}

static bool fault_now(struct file_sim *sim, enum file_sim_fault fault)
{
    if (!sim->armed[fault] || sim->countdown[fault]-- > 0)
        return false;
    sim->armed[fault] = false;
    return true;
}

static int check(const struct sim_file *f, unsigned needs)
{
    if (f->life != f->sim->life)
        return base_fail(YOLK_ERR_CLOSED, 0, "the simulated machine crashed");
    if ((f->flags & needs) != needs)
        return base_fail(YOLK_ERR_ACCESS, 0, "the simulated file is not open for that");
    return YOLK_OK;
}

static int sim_pread(struct file *file, void *to, size_t size, uint64_t offset, size_t *got)
{
    struct sim_file *f = (struct sim_file *)file;
    *got = 0;
    int status = check(f, FILE_READ);
    if (status != YOLK_OK || offset >= f->node->now.size)
        return status;
    uint64_t left = f->node->now.size - offset;
    *got = size < left ? size : (size_t)left;
    if (*got > 0)
        content_read(&f->node->now, to, *got, offset);
    return YOLK_OK;
}

static int sim_pwrite(struct file *file, const void *from, size_t size, uint64_t offset)
{
    struct sim_file *f = (struct sim_file *)file;
    int status = check(f, FILE_WRITE);
    if (status != YOLK_OK || size == 0)
        return status;
    if (fault_now(f->sim, FILE_SIM_NO_SPACE))
        return base_fail(YOLK_ERR_NO_SPACE, 0, "injected");
    bool fails = fault_now(f->sim, FILE_SIM_FAIL_WRITE);
    if (fails) /* part of it may be there all the same */
        size = (size_t)(f->sim->random.s[0] % size);
    status = size > 0 ? content_write(&f->node->now, from, size, offset) : YOLK_OK;
    if (status == YOLK_OK && size > 0)
        status = pending_add(f->node, from, size, offset);
    return fails ? base_fail(YOLK_ERR_IO, 0, "injected") : status;
}

/* Makes `durable` what `now` is: all that is pending, in its order. */
static int settle(struct node *n)
{
    int status = content_grow(&n->durable, n->now.size);
    for (size_t i = 0; i < n->pending_count && status == YOLK_OK; i++) {
        const struct pending *p = &n->pending[i];
        if (p->data)
            status = content_write(&n->durable, p->data, p->size, p->offset);
    }
    if (status == YOLK_OK)
        pending_drop(n);
    return status;
}

static int sim_fdatasync(struct file *file)
{
    struct sim_file *f = (struct sim_file *)file;
    int status = check(f, 0);
    if (status != YOLK_OK)
        return status;
    if (fault_now(f->sim, FILE_SIM_FAIL_SYNC))
        return base_fail(YOLK_ERR_IO, 0, "injected");
    return settle(f->node);
}

static int sim_fallocate(struct file *file, uint64_t offset, uint64_t size)
{
    struct sim_file *f = (struct sim_file *)file;
    int status = check(f, FILE_WRITE);
    if (status != YOLK_OK)
        return status;
    if (f->sim->no_allocation)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the simulated file system cannot reserve");
    if (fault_now(f->sim, FILE_SIM_NO_SPACE))
        return base_fail(YOLK_ERR_NO_SPACE, 0, "injected");
    if (offset > SIM_FILE_MAX || size > SIM_FILE_MAX)
        return base_fail(YOLK_ERR_NO_SPACE, 0, "simulated file");
    status = content_grow(&f->node->now, offset + size);
    return status == YOLK_OK ? pending_add(f->node, NULL, size, offset) : status;
}

static int sim_size(struct file *file, uint64_t *out)
{
    struct sim_file *f = (struct sim_file *)file;
    *out = f->node->now.size;
    return check(f, 0);
}

static void sim_close(struct file *file)
{
    struct sim_file *f = (struct sim_file *)file;
    if (f->node->locked_by == file)
        f->node->locked_by = NULL;
    if (f->shares && f->life == f->sim->life)
        f->node->sharers--;
    f->node->handles--;
    sweep(f->sim);
    free(f);
}

static int sim_unlink(void *self, const char *path)
{
    struct file_sim *sim = self;
    struct node *n = find(sim, path);
    if (!n)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no simulated file %s", path);
    free(n->path);
    n->path = NULL;
    sweep(sim);
    return YOLK_OK;
}

static int sim_rename(void *self, const char *from, const char *to)
{
    struct file_sim *sim = self;
    struct node *n = find(sim, from);
    if (!n)
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no simulated file %s", from);
    struct node *old = find(sim, to);
    if (old == n)
        return YOLK_OK;
    char *copy = strdup(to);
    if (!copy)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
    free(n->path);
    n->path = copy;
    if (old) {
        free(old->path);
        old->path = NULL;
    }
    sweep(sim);
    return YOLK_OK;
}

/* Durable at once, as creation is. */
static int sim_resize(struct file *file, uint64_t size)
{
    struct sim_file *f = (struct sim_file *)file;
    struct node *n = f->node;
    int status = check(f, FILE_WRITE);
    if (status == YOLK_OK)
        status = content_grow(&n->now, size);
    if (status == YOLK_OK)
        status = content_grow(&n->durable, size);
    if (status != YOLK_OK)
        return status;
    if (size < n->now.size)
        pending_drop(n); /* unsynced, so a crash may forget them */
    content_shrink(&n->now, size);
    content_shrink(&n->durable, size);
    return YOLK_OK;
}

static int sim_lock(struct file *file)
{
    struct sim_file *f = (struct sim_file *)file;
    int status = check(f, 0);
    if (status != YOLK_OK)
        return status;
    bool writes = f->flags & FILE_WRITE;
    if ((f->node->locked_by && f->node->locked_by != file) || (writes && f->node->sharers > 0))
        return base_fail(YOLK_ERR_BUSY, 0, "the simulated file is in use");
    if (writes)
        f->node->locked_by = file;
    else if (!f->shares)
        f->node->sharers++;
    f->shares = !writes;
    return YOLK_OK;
}

static int sim_alignment(struct file *file, struct file_alignment *out)
{
    *out = (struct file_alignment){SECTOR, SECTOR};
    return check((struct sim_file *)file, 0);
}

static int sim_space(struct file *file, uint64_t *free_bytes)
{
    *free_bytes = ((struct sim_file *)file)->sim->space;
    return check((struct sim_file *)file, 0);
}

static int sim_descriptor(struct file *file)
{
    (void)file;
    return -1;
}

static bool sim_direct(struct file *file)
{
    return ((struct sim_file *)file)->flags & FILE_DIRECT;
}

static void sim_direct_refuse(struct file *file, int errnum)
{
    (void)errnum;
    ((struct sim_file *)file)->flags &= ~(unsigned)FILE_DIRECT;
}

static int create_node(struct file_sim *sim, const char *path, struct node **out)
{
    struct node *n = calloc(1, sizeof(*n));
    char *copy = strdup(path);
    if (!n || !copy) {
        free(n);
        free(copy);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
    }
    n->path = copy;
    n->next = sim->nodes;
    sim->nodes = n;
    *out = n;
    return YOLK_OK;
}

static int sim_open(void *self, const char *path, unsigned flags, struct file **out);

static const struct file_ops sim_ops = {
    .open = sim_open,
    .pread = sim_pread,
    .pwrite = sim_pwrite,
    .fdatasync = sim_fdatasync,
    .fallocate = sim_fallocate,
    .size = sim_size,
    .close = sim_close,
    .unlink = sim_unlink,
    .rename = sim_rename,
    .resize = sim_resize,
    .lock = sim_lock,
    .alignment = sim_alignment,
    .space = sim_space,
    .descriptor = sim_descriptor,
    .direct = sim_direct,
    .direct_refuse = sim_direct_refuse,
};

static int sim_open(void *self, const char *path, unsigned flags, struct file **out)
{
    struct file_sim *sim = self;
    *out = NULL;
    struct node *n = find(sim, path);
    if (!n && !(flags & FILE_CREATE))
        return base_fail(YOLK_ERR_NOT_FOUND, 0, "no simulated file %s", path);
    if (n && (flags & FILE_EXCLUSIVE))
        return base_fail(YOLK_ERR_EXISTS, 0, "simulated file %s", path);
    struct sim_file *f = calloc(1, sizeof(*f));
    if (!f)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated file");
    int status = n ? YOLK_OK : create_node(sim, path, &n);
    if (status != YOLK_OK) {
        free(f);
        return status;
    }
    if (flags & FILE_TRUNCATE) {
        pending_drop(n);
        content_shrink(&n->now, 0);
        content_shrink(&n->durable, 0);
    }
    n->handles++;
    *f = (struct sim_file){
        .base = {&sim_ops}, .sim = sim, .node = n, .flags = flags, .life = sim->life};
    *out = &f->base;
    return YOLK_OK;
}

/* ---- crash ---- */
static int survive(struct file_sim *sim, struct node *n, const struct pending *p)
{
    struct random r = random_sim_random(&sim->random);
    if (!p->data)
        return content_grow(&n->durable, p->offset + p->size);
    if (random_below(&r, 3) != 0)
        return content_write(&n->durable, p->data, p->size, p->offset);
    /* Torn: each sector on its own. */
    int status = YOLK_OK;
    for (uint64_t at = 0; at < p->size && status == YOLK_OK;) {
        uint64_t size = SECTOR - (p->offset + at) % SECTOR;
        if (size > p->size - at)
            size = p->size - at;
        if (random_below(&r, 2) == 0)
            status = content_write(&n->durable, p->data + at, size, p->offset + at);
        at += size;
    }
    return status;
}

static int crash_node(struct file_sim *sim, struct node *n)
{
    struct random r = random_sim_random(&sim->random);
    int status = YOLK_OK;
    for (size_t left = n->pending_count; left > 0 && status == YOLK_OK; left--) {
        /* one of those not yet considered, in any order */
        size_t i = (size_t)random_below(&r, left);
        struct pending p = n->pending[i];
        n->pending[i] = n->pending[left - 1];
        n->pending[left - 1] = p;
        if (random_below(&r, 2) == 0)
            status = survive(sim, n, &p);
    }
    pending_drop(n);
    return status == YOLK_OK ? content_copy(&n->now, &n->durable) : status;
}

int file_sim_crash(struct file_sim *sim)
{
    int status = YOLK_OK;
    sim->life++;
    for (struct node *n = sim->nodes; n; n = n->next) {
        n->locked_by = NULL; /* the processes are dead */
        n->sharers = 0;
        int one = crash_node(sim, n);
        if (one != YOLK_OK)
            status = one;
    }
    return status;
}

void file_sim_inject(struct file_sim *sim, enum file_sim_fault fault, unsigned after_operations)
{
    sim->armed[fault] = true;
    sim->countdown[fault] = after_operations;
}

void file_sim_heal(struct file_sim *sim)
{
    memset(sim->armed, 0, sizeof sim->armed);
}

void file_sim_set_space(struct file_sim *sim, uint64_t free_bytes)
{
    sim->space = free_bytes;
}

void file_sim_refuse_allocation(struct file_sim *sim)
{
    sim->no_allocation = true;
}

int file_sim_create(uint64_t seed, struct file_sim **out)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "simulated files");
    random_sim_init(&(*out)->random, seed);
    (*out)->space = SIM_FILE_MAX;
    return YOLK_OK;
}

void file_sim_destroy(struct file_sim *sim)
{
    if (!sim)
        return;
    while (sim->nodes) {
        struct node *n = sim->nodes;
        sim->nodes = n->next;
        node_free(n);
    }
    free(sim);
}

struct file_system file_sim_system(struct file_sim *sim)
{
    return (struct file_system){&sim_ops, sim};
}
