/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/uring/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/error.h"
#define LOG_ROOM "uring"
#include "base/log.h"

#define NONE         UINT32_MAX
#define NO_SLOT      UINT64_MAX /* user data of a cancel's own completion */
#define GATHERED_MAX 16u

static enum yolk_status setup(struct ring *ring, uint32_t depth)
{
    int rc;
    for (ring->depth = depth;; ring->depth /= 2) {
        rc = io_uring_queue_init(ring->depth, &ring->uring, 0);
        if (rc != -ENOMEM || ring->depth <= 8)
            break;
    }
    if (rc == 0)
        return YOLK_OK;
    enum yolk_status status = rc == -ENOMEM                    ? YOLK_ERR_NO_MEMORY
                              : rc == -EMFILE || rc == -ENFILE ? YOLK_ERR_LIMIT
                                                               : YOLK_ERR_SYSTEM;
    const char *hint = rc == -EPERM    ? " (kernel.io_uring_disabled, or a seccomp filter)"
                       : rc == -ENOSYS ? " (this kernel has none, or a seccomp filter)"
                                       : "";
    return base_fail(status, -rc, "io_uring_setup%s", hint);
}

enum yolk_status ring_create(uint32_t depth, struct ring **out)
{
    struct ring *ring = base_calloc(1, sizeof(*ring));
    if (ring == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a ring");
    enum yolk_status status = setup(ring, depth);
    if (status != YOLK_OK) {
        free(ring);
        return status;
    }
    ring->slots = base_calloc(ring->depth, sizeof(*ring->slots));
    if (ring->slots == NULL) {
        io_uring_queue_exit(&ring->uring);
        free(ring);
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a ring");
    }
    for (uint32_t i = 0; i < ring->depth; i++)
        ring->slots[i].next = i + 1 < ring->depth ? i + 1 : NONE;
    mutex_init(&ring->lock);
    base_list_init(&ring->node);
    /* Without the table each step names the descriptor itself. */
    static const int none = -1;
    ring->has_files = io_uring_register_files(&ring->uring, &none, 1) == 0;
    *out = ring;
    return YOLK_OK;
}

bool ring_reads_and_writes(struct ring *ring)
{
    struct io_uring_probe *known = io_uring_get_probe_ring(&ring->uring);
    bool both = known != NULL && io_uring_opcode_supported(known, IORING_OP_READ) &&
                io_uring_opcode_supported(known, IORING_OP_WRITE);
    if (known != NULL)
        io_uring_free_probe(known);
    return both;
}

void ring_destroy(struct ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    if (ring->bounces != NULL)
        (void)munmap(ring->bounces, (size_t)RING_BOUNCES * FILE_IO_BOUNCE);
    mutex_destroy(&ring->lock);
    free(ring->slots);
    free(ring);
}

void ring_use(struct ring *ring, const struct file_served *served)
{
    /* Entries that were gathered name the fixed file by its place, so it stays while there are any.
     */
    if (!ring->has_files || ring->registered == served || ring->under_way > 0 ||
        atomic_load(&served->local.gone))
        return;
    bool done = io_uring_register_files_update(&ring->uring, 0, &served->descriptor, 1) == 1;
    ring->registered = done ? served : NULL;
}

/* The fixed file is a reference to the open file: its lock would outlive its owner's close. Taking
 * the whole table away also waits, on kernels where an update does not. */
static void forget(struct ring *ring)
{
    static const int none = -1;
    (void)io_uring_unregister_files(&ring->uring);
    ring->has_files = io_uring_register_files(&ring->uring, &none, 1) == 0;
    ring->registered = NULL;
}

/* ---- bounce buffers ---- */
static bool make_bounces(struct ring *ring)
{
    const size_t size = (size_t)RING_BOUNCES * FILE_IO_BOUNCE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    ring->bounces = memory;
    const struct iovec all = {memory, size};
    int rc = io_uring_register_buffers(&ring->uring, &all, 1);
    ring->bounces_fixed = rc == 0;
    static _Atomic bool told;
    if (rc != 0 && !atomic_exchange(&told, true))
        log_info("staging buffers are used unregistered: %s", strerrordesc_np(-rc));
    return true;
}

static uint8_t *take_bounce(struct ring *ring)
{
    if (ring->bounces == NULL && !make_bounces(ring))
        return NULL;
    for (uint32_t i = 0; i < RING_BOUNCES; i++) {
        if ((ring->bounces_used & UINT32_C(1) << i) == 0) {
            ring->bounces_used |= UINT32_C(1) << i;
            return ring->bounces + (size_t)i * FILE_IO_BOUNCE;
        }
    }
    return NULL;
}

static void give_bounce_back(struct ring *ring, const uint8_t *bounce)
{
    if (bounce != NULL)
        ring->bounces_used &= ~(UINT32_C(1) << (size_t)(bounce - ring->bounces) / FILE_IO_BOUNCE);
}

/* ---- slots ---- */
static uint32_t take_slot(struct ring *ring)
{
    uint32_t index = ring->free_head;
    if (index != NONE)
        ring->free_head = ring->slots[index].next;
    return index;
}

static void give_slot_back(struct ring *ring, uint32_t index)
{
    ring->slots[index].state = RING_SLOT_FREE;
    ring->slots[index].next = ring->free_head;
    ring->free_head = index;
}

static void slot_over(struct ring *ring, uint32_t index)
{
    struct ring_slot *slot = &ring->slots[index];
    file_io_finish(&slot->io, &slot->transferred);
    give_bounce_back(ring, slot->io.bounce);
    ring->under_way--;
    slot->state = RING_SLOT_OVER;
    slot->next = NONE;
    if (slot->user->done_head == NONE)
        slot->user->done_head = index;
    else
        ring->slots[slot->user->done_tail].next = index;
    slot->user->done_tail = index;
}

/* An entry; what was gathered goes out first where there is none. NULL: the kernel takes none now.
 */
static struct io_uring_sqe *take_entry(struct ring *ring)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    if (entry == NULL) {
        ring_flush(ring);
        entry = io_uring_get_sqe(&ring->uring);
    }
    return entry;
}

static void prepare(struct ring *ring, struct io_uring_sqe *entry, struct ring_slot *slot)
{
    const struct file_io_step *step = &slot->step;
    const struct iovec *first = &step->parts[0];
    bool fixed = ring->registered == slot->io.served;
    int file = fixed ? 0 : slot->io.served->descriptor;
    const uint8_t *start = first->iov_base;
    bool staged = ring->bounces_fixed && step->count == 1 && start >= ring->bounces &&
                  start < ring->bounces + (size_t)RING_BOUNCES * FILE_IO_BOUNCE;
    unsigned size = (unsigned)first->iov_len;
    if (step->count > 1 && step->write)
        io_uring_prep_writev(entry, file, step->parts, (unsigned)step->count, step->offset);
    else if (step->count > 1)
        io_uring_prep_readv(entry, file, step->parts, (unsigned)step->count, step->offset);
    else if (staged && step->write)
        io_uring_prep_write_fixed(entry, file, first->iov_base, size, step->offset, 0);
    else if (staged)
        io_uring_prep_read_fixed(entry, file, first->iov_base, size, step->offset, 0);
    else if (step->write)
        io_uring_prep_write(entry, file, first->iov_base, size, step->offset);
    else
        io_uring_prep_read(entry, file, first->iov_base, size, step->offset);
    if (fixed)
        entry->flags |= IOSQE_FIXED_FILE;
}

/* The next step of the slot, or its end. */
static void go_on(struct ring *ring, uint32_t index)
{
    struct ring_slot *slot = &ring->slots[index];
    if (!file_io_step(&slot->io, &slot->step)) {
        slot_over(ring, index);
        return;
    }
    struct io_uring_sqe *entry = take_entry(ring);
    if (entry == NULL) {
        slot->state = RING_SLOT_WAITS;
        ring->waiting++;
        return;
    }
    prepare(ring, entry, slot);
    io_uring_sqe_set_data64(entry, index);
    slot->state = RING_SLOT_POSTED;
    ring->gathered++;
}

static enum yolk_submit start(struct ring *ring, struct ring_slot *slot,
                              const struct file_target *target, struct yolk_io *io)
{
    uint8_t *bounce = NULL;
    io->transferred = 0;
    io->status = file_io_plan(&slot->io, target, io);
    if (io->status != YOLK_OK)
        return YOLK_SUBMIT_FAILED;
    if (slot->io.needs_bounce && (bounce = take_bounce(ring)) == NULL) {
        file_io_abandon(&slot->io);
        return YOLK_SUBMIT_AGAIN;
    }
    io->status = file_io_start(&slot->io, bounce);
    if (io->status == YOLK_OK && io->size > 0)
        return YOLK_SUBMIT_QUEUED;
    if (io->status == YOLK_OK)
        file_io_finish(&slot->io, &io->transferred);
    give_bounce_back(ring, bounce);
    if (io->status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN;
    return io->status == YOLK_OK ? YOLK_SUBMIT_DONE : YOLK_SUBMIT_FAILED;
}

void ring_user_init(struct ring_user *user)
{
    *user = (struct ring_user){.done_head = NONE};
}

enum yolk_submit ring_submit(struct ring *ring, struct ring_user *user,
                             const struct file_target *target, struct yolk_io *io)
{
    uint32_t index = take_slot(ring);
    if (index == NONE)
        return YOLK_SUBMIT_AGAIN;
    struct ring_slot *slot = &ring->slots[index];
    enum yolk_submit result = start(ring, slot, target, io);
    if (result != YOLK_SUBMIT_QUEUED) {
        give_slot_back(ring, index);
        return result;
    }
    slot->user = user;
    user->busy++;
    ring->under_way++;
    file_io_count_depth(user->busy);
    go_on(ring, index);
    if (ring->gathered >= GATHERED_MAX)
        ring_flush(ring);
    return YOLK_SUBMIT_QUEUED;
}

void ring_flush(struct ring *ring)
{
    if (ring->gathered == 0)
        return;
    int taken = io_uring_submit(&ring->uring);
    /* -EAGAIN, -EBUSY, -EINTR: they stay gathered until the next poll. */
    if (taken > 0)
        ring->gathered -= (uint32_t)taken < ring->gathered ? (uint32_t)taken : ring->gathered;
}

void ring_reap(struct ring *ring)
{
    struct io_uring_cqe *found;
    while (io_uring_peek_cqe(&ring->uring, &found) == 0) {
        uint64_t index = found->user_data;
        ssize_t result = found->res;
        io_uring_cqe_seen(&ring->uring, found);
        if (index == NO_SLOT)
            continue;
        file_io_result(&ring->slots[index].io, result);
        go_on(ring, (uint32_t)index);
    }
    for (uint32_t i = 0; ring->waiting > 0 && i < ring->depth; i++) {
        if (ring->slots[i].state != RING_SLOT_WAITS)
            continue;
        ring->waiting--;
        go_on(ring, i);
        if (ring->slots[i].state == RING_SLOT_WAITS)
            break;
    }
    ring_flush(ring);
}

uint32_t ring_take_done(struct ring *ring, struct ring_user *user,
                        struct yolk_completion *completions, uint32_t max)
{
    uint32_t n = 0;
    for (; n < max && user->done_head != NONE; n++) {
        uint32_t index = user->done_head;
        const struct ring_slot *slot = &ring->slots[index];
        user->done_head = slot->next;
        completions[n] =
            (struct yolk_completion){slot->io.cookie, slot->transferred, slot->io.status};
        give_slot_back(ring, index);
        user->busy--;
    }
    return n;
}

static void cancel_slot(struct ring *ring, uint32_t index, enum yolk_status ending)
{
    struct ring_slot *slot = &ring->slots[index];
    if (slot->state == RING_SLOT_FREE || slot->state == RING_SLOT_OVER ||
        slot->io.ending != YOLK_OK)
        return;
    slot->io.ending = ending;
    /* Without an entry it runs to the end of its step. */
    struct io_uring_sqe *entry = take_entry(ring);
    if (slot->state != RING_SLOT_POSTED || entry == NULL)
        return;
    io_uring_prep_cancel64(entry, index, 0);
    io_uring_sqe_set_data64(entry, NO_SLOT);
    ring->gathered++;
}

void ring_cancel(struct ring *ring, const struct ring_user *user, uint64_t cookie)
{
    for (uint32_t i = 0; i < ring->depth; i++)
        if (ring->slots[i].user == user && ring->slots[i].io.cookie == cookie)
            cancel_slot(ring, i, YOLK_ERR_CANCELED);
    ring_flush(ring);
}

static bool has_posted(const struct ring *ring, const struct file_served *served)
{
    for (uint32_t i = 0; i < ring->depth; i++) {
        const struct ring_slot *slot = &ring->slots[i];
        if ((slot->state == RING_SLOT_POSTED || slot->state == RING_SLOT_WAITS) &&
            (served == NULL || slot->io.served == served))
            return true;
    }
    return false;
}

void ring_drain(struct ring *ring, const struct file_served *served, enum yolk_status ending)
{
    for (uint32_t i = 0; ring->under_way > 0 && i < ring->depth; i++)
        if (served == NULL || ring->slots[i].io.served == served)
            cancel_slot(ring, i, ending);
    ring_flush(ring);
    while (has_posted(ring, served)) {
        struct io_uring_cqe *found;
        (void)io_uring_wait_cqe(&ring->uring, &found);
        ring_reap(ring);
    }
    if (served != NULL && ring->registered == served)
        forget(ring);
}

bool ring_is_posted(const struct ring *ring, const struct ring_user *user)
{
    return user->done_head == NONE && ring->waiting == 0 && ring->gathered == 0;
}
