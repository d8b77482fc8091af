/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/uring/bare.h"

#include <liburing.h>

#include "base/error.h"

static void post(struct io_uring *ring, const struct uring_bare *work, uint32_t i)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    /* The same memory for each batch, as a caller has it: in other pages it is another speed. */
    uint8_t *memory = work->memory + (uint64_t)(i % work->batch) * work->size;
    if (work->write)
        io_uring_prep_write(entry, 0, memory, work->size, work->offsets[i]);
    else
        io_uring_prep_read(entry, 0, memory, work->size, work->offsets[i]);
    entry->flags |= IOSQE_FIXED_FILE;
}

static enum yolk_status move(struct io_uring *ring, const struct uring_bare *work)
{
    uint32_t posted = 0, end = 0; /* end: of the batch */
    for (uint32_t over = 0; over < work->count;) {
        if (over == end)
            end = work->count - end > work->batch ? end + work->batch : work->count;
        /* Never more than the ring has entries for. */
        while (posted < end && posted - over < work->depth)
            post(ring, work, posted++);
        int rc = io_uring_submit_and_wait(ring, 1);
        if (rc < 0 && rc != -EINTR)
            return base_fail(YOLK_ERR_SYSTEM, -rc, "io_uring_enter");
        struct io_uring_cqe *found;
        while (io_uring_peek_cqe(ring, &found) == 0) {
            int result = found->res;
            io_uring_cqe_seen(ring, found);
            over++;
            if (result != (int)work->size)
                return base_fail(YOLK_ERR_IO, result < 0 ? -result : 0, "%s %u bytes",
                                 work->write ? "write" : "read", work->size);
        }
    }
    return YOLK_OK;
}

enum yolk_status uring_bare_run(const struct uring_bare *work)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(work->depth, &ring, 0);
    if (rc < 0)
        return base_fail(YOLK_ERR_SYSTEM, -rc, "io_uring_setup");
    enum yolk_status status = YOLK_OK;
    rc = io_uring_register_files(&ring, &work->descriptor, 1);
    if (rc < 0)
        status = base_fail(YOLK_ERR_SYSTEM, -rc, "io_uring_register");
    else
        status = move(&ring, work);
    io_uring_queue_exit(&ring); /* waits for what is under way */
    return status;
}
