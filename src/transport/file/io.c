/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/file/io.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

_Static_assert(2 * FILE_SERVED_UNIT_MAX <= FILE_IO_BOUNCE, "the head's and the tail's block");

static struct {
    _Atomic uint64_t reads, writes, bytes_direct, bytes_bounced, bytes_cached, depth_max, retried,
        steps;
} counts;

static void count(_Atomic uint64_t *what, uint64_t by)
{
    (void)atomic_fetch_add_explicit(what, by, memory_order_relaxed);
}

void file_io_count_depth(uint64_t depth)
{
    uint64_t before = atomic_load_explicit(&counts.depth_max, memory_order_relaxed);
    while (depth > before && !atomic_compare_exchange_weak(&counts.depth_max, &before, depth)) {
    }
}

void file_transport_stats(struct file_transport_stats *out)
{
    *out = (struct file_transport_stats){
        .reads = atomic_load(&counts.reads),
        .writes = atomic_load(&counts.writes),
        .bytes_direct = atomic_load(&counts.bytes_direct),
        .bytes_bounced = atomic_load(&counts.bytes_bounced),
        .bytes_cached = atomic_load(&counts.bytes_cached),
        .depth_max = atomic_load(&counts.depth_max),
        .steps = atomic_load(&counts.steps),
        .retried = atomic_load(&counts.retried),
    };
}

void file_transport_stats_reset_depth(void)
{
    atomic_store(&counts.depth_max, 0);
}

/* ---- the plan ---- */
static uint64_t down(uint64_t n, uint32_t unit)
{
    return n & ~(uint64_t)(unit - 1);
}

static uint64_t up(uint64_t n, uint32_t unit)
{
    return down(n + unit - 1, unit);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_write(const struct file_io *io)
{
    return io->request.opcode == YOLK_WRITE;
}

static bool cuts_head(const struct file_io *io)
{
    return io->from % io->unit != 0;
}

static bool cuts_tail(const struct file_io *io)
{
    return io->to % io->unit != 0;
}

/* What lies behind a write may be overwritten up to the next such boundary, no further. */
enum { PADDING = 4096 };

static bool pads(const struct file_io *io)
{
    return io->served->pad_writes && io->unit <= PADDING;
}

/* A block that must be read before it is written. */
static bool keeps_tail(const struct file_io *io)
{
    return cuts_tail(io) && !pads(io);
}

static void set_piece(struct file_io *io, uint64_t at)
{
    uint64_t end = up(io->to, io->unit);
    io->at = at;
    io->until = io->bounced ? least(at + FILE_IO_BOUNCE, end) : end;
    io->stage = is_write(io) ? FILE_IO_FILL_HEAD : FILE_IO_MOVE;
    io->done = 0;
}

static void plan_blocks(struct file_io *io)
{
    uint64_t head = io->from / io->unit, tail = io->to / io->unit;
    bool keeps_head = is_write(io) && cuts_head(io);
    io->locked[0] = keeps_head ? head : UINT64_MAX;
    io->locked[1] =
        is_write(io) && keeps_tail(io) && !(keeps_head && tail == head) ? tail : UINT64_MAX;
}

enum yolk_status file_io_plan(struct file_io *io, const struct file_target *target,
                              struct yolk_io *asked)
{
    struct file_served *served = target->served;
    const struct file_alignment *a = &served->alignment;
    enum yolk_status status = local_enter(&served->local);
    if (status != YOLK_OK)
        return status;
    *io = (struct file_io){
        .served = served,
        .request = {.segment = target->segment,
                    .session = target->session,
                    .offset = asked->offset,
                    .size = asked->size,
                    .opcode = asked->opcode},
        .ticket = asked->ticket,
        .cookie = asked->cookie,
        .local = asked->local,
        .from = served->base + asked->offset,
        .to = served->base + asked->offset + asked->size,
        .unit = 1,
        .ending = YOLK_OK,
        .status = YOLK_OK,
        .tell_bounced = &asked->bounced,
    };
    if (file_direct(served->file))
        io->unit = a->offset > a->memory ? a->offset : a->memory;
    if (io->unit > 1) {
        uint64_t body = up(io->from, io->unit);
        uintptr_t address = (uintptr_t)io->local + (body - io->from);
        io->bounced = body >= down(io->to, io->unit) || address % a->memory != 0;
        io->needs_bounce = io->bounced || cuts_head(io) || cuts_tail(io);
    }
    plan_blocks(io);
    return YOLK_OK;
}

void file_io_abandon(struct file_io *io)
{
    local_leave(&io->served->local);
}

static enum yolk_status begin(struct file_io *io)
{
    if (io->request.size > FILE_IO_MAX)
        return YOLK_ERR_TOO_LARGE;
    if (!file_served_lock_blocks(io->served, io->locked))
        return YOLK_ERR_AGAIN;
    enum yolk_status status = io->allowed ? YOLK_OK : file_served_begin(io->served, &io->request);
    if (status != YOLK_OK)
        file_served_unlock_blocks(io->served, io->locked);
    return status == YOLK_ERR_AGAIN ? YOLK_ERR_BUSY : status;
}

enum yolk_status file_io_start(struct file_io *io, uint8_t *bounce)
{
    io->bounce = bounce;
    io->request.ticket = &io->ticket;
    assert(io->unit <= FILE_SERVED_UNIT_MAX);
    enum yolk_status status = begin(io);
    if (status != YOLK_OK) {
        file_io_abandon(io);
        return status;
    }
    set_piece(io, down(io->from, io->unit));
    return YOLK_OK;
}

/* ---- steps ---- */
/* Where the blocks that hold the head and the tail lie in the bounce buffer. */
static uint8_t *tail_block(const struct file_io *io)
{
    return io->bounce + (io->bounced ? io->until - io->unit - io->at : io->unit);
}

/* The block read last may be the head's too, read already. */
static bool tail_is_filled(const struct file_io *io)
{
    return io->at < io->from && io->until - io->at == io->unit;
}

static bool must_fill_head(const struct file_io *io)
{
    return io->at < io->from;
}

static bool must_fill_tail(const struct file_io *io)
{
    return io->until > io->to && keeps_tail(io) && !tail_is_filled(io);
}

/* What a write takes from the caller's memory through the bounce buffer. */
static void fill_from_caller(struct file_io *io)
{
    if (io->bounced) {
        uint64_t from = io->at > io->from ? io->at : io->from;
        uint64_t to = least(io->until, io->to);
        memcpy(io->bounce + (from - io->at), io->local + (from - io->from), to - from);
    } else {
        uint64_t body = up(io->from, io->unit), rest = io->to % io->unit;
        if (cuts_head(io))
            memcpy(io->bounce + (io->from - io->at), io->local, body - io->from);
        if (cuts_tail(io))
            memcpy(tail_block(io), io->local + (io->to - rest - io->from), rest);
    }
    if (io->until > io->to && pads(io))
        memset(tail_block(io) + io->to % io->unit, 0, io->until - io->to);
}

/* What was read up to `to`, which lies behind the first wanted byte. */
static void give_to_caller(struct file_io *io, uint64_t to)
{
    if (io->bounced) {
        uint64_t from = io->at > io->from ? io->at : io->from;
        memcpy(io->local + (from - io->from), io->bounce + (from - io->at), to - from);
        return;
    }
    uint64_t body = up(io->from, io->unit), tail = down(io->to, io->unit);
    if (cuts_head(io))
        memcpy(io->local, io->bounce + (io->from - io->at), least(body, to) - io->from);
    if (cuts_tail(io) && to > tail)
        memcpy(io->local + (tail - io->from), tail_block(io), to - tail);
}

/* Passes over the stages that this piece does not need. */
static void settle_stage(struct file_io *io)
{
    if (io->stage == FILE_IO_FILL_HEAD && !must_fill_head(io))
        io->stage = FILE_IO_FILL_TAIL;
    if (io->stage == FILE_IO_FILL_TAIL && !must_fill_tail(io)) {
        io->stage = FILE_IO_MOVE;
        if (io->needs_bounce)
            fill_from_caller(io);
    }
}

static void add_part(struct file_io_step *step, uint8_t *start, uint64_t size, size_t *skip)
{
    size_t over = *skip < size ? *skip : (size_t)size;
    *skip -= over;
    if (over == size)
        return;
    step->parts[step->count++] = (struct iovec){start + over, (size_t)size - over};
    step->size += (size_t)size - over;
}

bool file_io_step(struct file_io *io, struct file_io_step *out)
{
    if (io->status != YOLK_OK || io->from == io->to || io->at >= io->to)
        return false;
    settle_stage(io);
    size_t skip = io->done;
    *out = (struct file_io_step){.write = is_write(io) && io->stage == FILE_IO_MOVE};
    if (io->stage == FILE_IO_FILL_HEAD) {
        out->offset = io->at;
        add_part(out, io->bounce, io->unit, &skip);
    } else if (io->stage == FILE_IO_FILL_TAIL) {
        out->offset = io->until - io->unit;
        add_part(out, tail_block(io), io->unit, &skip);
    } else if (io->bounced) {
        out->offset = io->at;
        add_part(out, io->bounce, io->until - io->at, &skip);
    } else {
        uint64_t body = up(io->from, io->unit), end = down(io->to, io->unit);
        out->offset = io->at;
        if (cuts_head(io))
            add_part(out, io->bounce, io->unit, &skip);
        add_part(out, io->local + (body - io->from), end - body, &skip);
        if (cuts_tail(io))
            add_part(out, tail_block(io), io->unit, &skip);
    }
    out->offset += io->done;
    count(&counts.steps, 1);
    return true;
}

static size_t stage_size(const struct file_io *io)
{
    return io->stage == FILE_IO_MOVE ? (size_t)(io->until - io->at) : io->unit;
}

/* A read is over as soon as it has what is wanted: the file may end in the block. */
static size_t stage_need(const struct file_io *io)
{
    if (io->stage == FILE_IO_MOVE && !is_write(io))
        return (size_t)(least(io->until, io->to) - io->at);
    return stage_size(io);
}

static void count_piece(const struct file_io *io)
{
    uint64_t from = io->at > io->from ? io->at : io->from;
    uint64_t size = least(io->until, io->to) - from;
    if (io->unit == 1) {
        count(&counts.bytes_cached, size);
        return;
    }
    uint64_t direct = io->bounced ? 0 : down(io->to, io->unit) - up(io->from, io->unit);
    count(&counts.bytes_direct, direct);
    count(&counts.bytes_bounced, size - direct);
    *io->tell_bounced += size - direct;
}

static void stage_over(struct file_io *io)
{
    io->done = 0;
    if (io->stage != FILE_IO_MOVE) {
        io->stage++; /* past FILL_TAIL comes MOVE, so its part of the caller's is taken now */
        if (io->stage == FILE_IO_MOVE)
            fill_from_caller(io);
        return;
    }
    if (!is_write(io) && io->needs_bounce)
        give_to_caller(io, least(io->until, io->to));
    count_piece(io);
    uint64_t over = io->until;
    if (is_write(io) && io->served->file_end != 0 && over > io->served->file_end)
        io->status = (enum yolk_status)file_resize(io->served->file, io->served->file_end);
    set_piece(io, over);
}

static enum yolk_status status_of(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return YOLK_ERR_NO_SPACE;
    case ENOMEM:
        return YOLK_ERR_NO_MEMORY;
    case EACCES:
    case EPERM:
    case EROFS:
    case EBADF:
        return YOLK_ERR_ACCESS;
    default:
        return YOLK_ERR_IO;
    }
}

static void step_failed(struct file_io *io, int errnum)
{
    bool refused = errnum == EINVAL && io->unit > 1 && !io->rebuffered;
    if (refused) {
        io->rebuffered = true; /* others of its kind may have found out first */
        if (file_direct(io->served->file))
            file_direct_refuse(io->served->file, EINVAL);
    }
    if (refused || errnum == EINTR || errnum == EAGAIN || errnum == ECANCELED) {
        count(&counts.retried, 1);
        return;
    }
    io->status = base_fail(status_of(errnum), errnum, "%s %llu bytes at %llu of a file",
                           is_write(io) ? "write" : "read", (unsigned long long)io->request.size,
                           (unsigned long long)io->from);
}

/* The file ends before the step does. */
static void step_ended(struct file_io *io, size_t reached)
{
    if (io->stage != FILE_IO_MOVE) {
        uint8_t *block = io->stage == FILE_IO_FILL_HEAD ? io->bounce : tail_block(io);
        memset(block + reached, 0, io->unit - reached);
        stage_over(io);
        return;
    }
    uint64_t end = io->at + reached;
    io->status = base_fail(is_write(io) ? YOLK_ERR_IO : YOLK_ERR_EOF, 0, "the file ends at %llu",
                           (unsigned long long)end);
    if (is_write(io) || end <= io->from)
        return;
    if (io->needs_bounce)
        give_to_caller(io, end);
    io->at = end;
}

void file_io_result(struct file_io *io, ssize_t result)
{
    size_t asked = stage_size(io) - io->done;
    result = file_completed(io->served->file,
                            is_write(io) && io->stage == FILE_IO_MOVE ? FILE_OPERATION_WRITE
                                                                      : FILE_OPERATION_READ,
                            asked, result);
    if (result < 0) {
        step_failed(io, (int)-result);
    } else {
        size_t reached = io->done + least((uint64_t)result, asked);
        size_t over = reached / io->unit * io->unit;
        if (reached >= stage_need(io)) {
            stage_over(io);
        } else if (over == io->done) {
            step_ended(io, reached);
        } else {
            io->done = over;
            count(&counts.retried, 1);
        }
    }
    if (io->ending != YOLK_OK && io->status == YOLK_OK && io->at < io->to)
        io->status = io->ending;
}

void file_io_finish(struct file_io *io, uint64_t *transferred)
{
    if (!io->allowed)
        file_served_end(io->served, &io->request);
    file_served_unlock_blocks(io->served, io->locked);
    local_leave(&io->served->local);
    uint64_t reached = least(io->at, io->to);
    *transferred = reached > io->from ? reached - io->from : 0;
    if (io->status == YOLK_OK)
        count(is_write(io) ? &counts.writes : &counts.reads, 1);
}

void file_io_run(struct file_io *io)
{
    struct file_io_step step;
    while (file_io_step(io, &step)) {
        ssize_t n =
            step.write ? pwritev(io->served->descriptor, step.parts, step.count, (off_t)step.offset)
                       : preadv(io->served->descriptor, step.parts, step.count, (off_t)step.offset);
        file_io_result(io, n < 0 ? -errno : n);
    }
}
