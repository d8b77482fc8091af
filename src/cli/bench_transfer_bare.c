/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine can do with the same blocks when nothing stands above it. */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/bench_transfer_state.h"
#include "platform/memory.h"
#include "transport/uring/bare.h"

enum { SPIN_NS = 100000, DEPTH_MAX = 64 };
#define POOL_MAX (256 * MIB)

static bool is_tcp(const struct transfer *t)
{
    return strcmp(t->options.transport, "tcp") == 0;
}

enum yolk_status transfer_bare_open(struct transfer *t)
{
    uint64_t pool = t->options.buffer_bytes < POOL_MAX ? t->options.buffer_bytes : POOL_MAX;
    enum yolk_status status = YOLK_OK;
    for (uint32_t i = 0; i < 2 && is_tcp(t) && status == YOLK_OK; i++)
        status = bench_echo_open(&t->echoes[i][0], pool, i * SPIN_NS, i * SPIN_NS);
    t->echo_count = is_tcp(t) ? 1 : 0;
    return status;
}

void transfer_bare_close(struct transfer *t)
{
    for (uint32_t k = t->echo_count; k > 0; k--)
        for (uint32_t i = 0; i < 2; i++)
            bench_echo_close(&t->echoes[i][k - 1]);
    t->echo_count = 0;
}

enum yolk_status transfer_bare_prepare(struct transfer *t, const struct transfer_case *c)
{
    uint32_t most = c->threads < BARE_CONNECTIONS ? BARE_CONNECTIONS : c->threads;
    enum yolk_status status = YOLK_OK;
    for (; is_tcp(t) && t->echo_count < most && status == YOLK_OK; t->echo_count++)
        for (uint32_t i = 0; i < 2 && status == YOLK_OK; i++)
            status = bench_echo_again(&t->echoes[i][0], &t->echoes[i][t->echo_count]);
    return status;
}

uint32_t transfer_bare_count(const struct transfer *t)
{
    return is_tcp(t) ? 3 : t->mapped != NULL || t->file != NULL ? 1 : 0;
}

const char *transfer_bare_name(const struct transfer *t, uint32_t bare)
{
    static const char *const sockets[] = {"bare sockets, sleeping", "bare sockets, polling",
                                          "bare sockets, polling, 4 connections"};
    return is_tcp(t) ? sockets[bare] : t->file != NULL ? "bare io_uring" : "streaming copy";
}

static enum yolk_status step_copy(struct transfer_worker *w)
{
    const struct transfer_case *c = w->c;
    transfer_draw(w, c->batch);
    for (uint32_t i = 0; i < c->batch; i++)
        copy_stream(transfer_local(w) + i * c->block, w->t->mapped + w->offsets[i], c->block);
    w->blocks += c->batch;
    return YOLK_OK;
}

static enum yolk_status step_sockets(struct transfer_worker *w)
{
    const struct transfer_case *c = w->c;
    /* Of few callers one may have several connections. */
    uint32_t many =
        w->bare == 2 && c->threads < BARE_CONNECTIONS ? BARE_CONNECTIONS / c->threads : 1;
    transfer_draw(w, c->batch);
    const struct bench_move move = {w->writes, c->batch, (uint32_t)c->block, w->offsets,
                                    transfer_local(w)};
    w->blocks += c->batch;
    return bench_echo_move(&w->t->echoes[w->bare == 0 ? 0 : 1][w->number * many], many, &move);
}

/* As many in one go as there is memory for, so that the making of the ring does not show. */
static enum yolk_status step_file(struct transfer_worker *w)
{
    const struct transfer_case *c = w->c;
    transfer_draw(w, w->offset_count);
    const struct uring_bare work = {.descriptor = file_descriptor(w->t->file),
                                    .write = w->writes,
                                    .depth = c->batch < DEPTH_MAX ? c->batch : DEPTH_MAX,
                                    .size = (uint32_t)c->block,
                                    .count = w->offset_count,
                                    .batch = c->batch,
                                    .offsets = w->offsets,
                                    .memory = transfer_local(w)};
    w->blocks += w->offset_count;
    return uring_bare_run(&work);
}

enum yolk_status transfer_bare_step(struct transfer_worker *w)
{
    w->writes =
        w->t->options.op == TRANSFER_WRITE || (w->t->options.op == TRANSFER_MIX && !w->writes);
    if (w->t->file != NULL)
        return step_file(w);
    return is_tcp(w->t) ? step_sockets(w) : step_copy(w);
}
