/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/trace/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transport/trace/internal.h"
#include "transport/wrap/wrap.h"

struct trace_endpoint {
    const struct trace_options *options;
    struct yolk_transport_ops inner; /* slots it lacks stay NULL */
    void *endpoint;
    uint64_t (*now_ns)(void *self);
    void *clock_self;
};

struct trace_channel {
    struct trace_endpoint *endpoint;
    void *inner;
};

static void note(struct trace_endpoint *mine, struct trace_record record)
{
    record.at_ns = mine->now_ns != NULL ? mine->now_ns(mine->clock_self) : 0;
    trace_write(mine->options->log, mine->inner.name, &record);
}

static void set_text(struct trace_record *record, const char *text)
{
    size_t size = strnlen(text, sizeof(record->text) - 1);
    memcpy(record->text, text, size);
    record->text[size] = '\0';
}

/* The answer of a call that may fail; why it did stands in the thread's last error. */
static enum yolk_status told(struct trace_endpoint *mine, struct trace_record record,
                             enum yolk_status status)
{
    record.status = status;
    if (status != YOLK_OK && yolk_last_error()[0] != '\0')
        set_text(&record, yolk_last_error());
    note(mine, record);
    return status;
}

static struct yolk_transport_options unwrap(const struct yolk_transport_options *options)
{
    struct yolk_transport_options inner = *options;
    inner.wrapped = ((const struct trace_options *)options->wrapped)->inner_wrapped;
    return inner;
}

/* -- the endpoint -- */

static enum yolk_status trace_probe(const struct yolk_transport_options *options,
                                    struct yolk_probe *out)
{
    if (options->wrapped == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "the trace transport is not told what to wrap");
    const struct trace_options *mine = options->wrapped;
    struct yolk_transport_options inner = unwrap(options);
    struct trace_record record = {.call = TRACE_PROBE};
    record.status = mine->inner->probe(&inner, out);
    if (record.status != YOLK_OK)
        set_text(&record, out->reason);
    trace_write(mine->log, mine->inner->name, &record);
    return record.status;
}

static enum yolk_status trace_init(const struct yolk_transport_options *options, void **endpoint)
{
    if (options->wrapped == NULL)
        return base_fail(YOLK_ERR_CONFIG, 0, "the trace transport is not told what to wrap");
    struct yolk_transport_options inner = unwrap(options);
    struct trace_endpoint *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->options = options->wrapped;
    made->inner = transport_whole_table(made->options->inner);
    made->now_ns = options->now_ns;
    made->clock_self = options->clock_self;
    enum yolk_status status = told(made, (struct trace_record){.call = TRACE_INIT},
                                   made->inner.init(&inner, &made->endpoint));
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    *endpoint = made;
    return YOLK_OK;
}

static enum yolk_status trace_stop(void *endpoint)
{
    struct trace_endpoint *mine = endpoint;
    return told(mine, (struct trace_record){.call = TRACE_STOP}, mine->inner.stop(mine->endpoint));
}

static void trace_fini(void *endpoint)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.fini(mine->endpoint);
    note(mine, (struct trace_record){.call = TRACE_FINI});
    free(mine);
}

static void trace_limits(void *endpoint, struct yolk_limits *out)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.limits(mine->endpoint, out);
}

/* -- memory -- */

static enum yolk_status trace_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    struct trace_endpoint *mine = endpoint;
    return told(mine, (struct trace_record){.call = TRACE_ADD_BUFFER, .size = size},
                mine->inner.add_buffer(mine->endpoint, pointer, size, key));
}

static void trace_remove_buffer(void *endpoint, void *key)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.remove_buffer(mine->endpoint, key);
    note(mine, (struct trace_record){.call = TRACE_REMOVE_BUFFER});
}

static enum yolk_status trace_memory_alloc(void *endpoint, uint64_t size, struct yolk_memory *out)
{
    struct trace_endpoint *mine = endpoint;
    return told(mine, (struct trace_record){.call = TRACE_MEMORY_ALLOC, .size = size},
                mine->inner.memory_alloc(mine->endpoint, size, out));
}

static void trace_memory_free(void *endpoint, struct yolk_memory *memory)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.memory_free(mine->endpoint, memory);
    note(mine, (struct trace_record){.call = TRACE_MEMORY_FREE});
}

/* -- provider -- */

static enum yolk_status trace_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                    char *text, size_t text_size)
{
    struct trace_endpoint *mine = endpoint;
    struct trace_record record = {
        .call = TRACE_SERVE, .size = serve->size, .segment = serve->segment};
    enum yolk_status status = mine->inner.serve(mine->endpoint, serve, served, text, text_size);
    if (status == YOLK_OK)
        set_text(&record, text);
    return told(mine, record, status);
}

static void trace_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.set_segment_id(mine->endpoint, served, segment);
    note(mine, (struct trace_record){.call = TRACE_SET_SEGMENT_ID, .segment = segment});
}

static enum yolk_status trace_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct trace_endpoint *mine = endpoint;
    return told(mine, (struct trace_record){.call = TRACE_FENCE_SESSION, .session = session},
                mine->inner.fence_session(mine->endpoint, served, session));
}

static void trace_unserve(void *endpoint, void *served)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.unserve(mine->endpoint, served);
    note(mine, (struct trace_record){.call = TRACE_UNSERVE});
}

/* -- consumer -- */

static enum yolk_status trace_open_target(void *endpoint, const char *text, uint64_t segment,
                                          uint64_t size, uint64_t session, void **target)
{
    struct trace_endpoint *mine = endpoint;
    struct trace_record record = {
        .call = TRACE_OPEN_TARGET, .size = size, .segment = segment, .session = session};
    set_text(&record, text);
    return told(mine, record,
                mine->inner.open_target(mine->endpoint, text, segment, size, session, target));
}

static void trace_close_target(void *endpoint, void *target)
{
    struct trace_endpoint *mine = endpoint;
    mine->inner.close_target(mine->endpoint, target);
    note(mine, (struct trace_record){.call = TRACE_CLOSE_TARGET});
}

static enum yolk_status trace_target_map(void *endpoint, void *target, const void **base,
                                         uint64_t *size)
{
    struct trace_endpoint *mine = endpoint;
    return told(mine, (struct trace_record){.call = TRACE_TARGET_MAP},
                mine->inner.target_map(mine->endpoint, target, base, size));
}

/* A question, not a call of the history. */
static enum yolk_status trace_check_direct(void *endpoint, void *target, const void *local,
                                           uint64_t offset, uint64_t size)
{
    struct trace_endpoint *mine = endpoint;
    return mine->inner.check_direct(mine->endpoint, target, local, offset, size);
}

static size_t trace_files(void *endpoint, struct yolk_file_figures *out, size_t room)
{
    struct trace_endpoint *mine = endpoint;
    return mine->inner.files(mine->endpoint, out, room);
}

static enum yolk_status trace_channel_open(void *endpoint, void *target, void **channel)
{
    struct trace_endpoint *mine = endpoint;
    struct trace_channel *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    enum yolk_status status = told(mine, (struct trace_record){.call = TRACE_CHANNEL_OPEN},
                                   mine->inner.channel_open(mine->endpoint, target, &made->inner));
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    made->endpoint = mine;
    *channel = made;
    return YOLK_OK;
}

static enum yolk_submit trace_submit(void *handle, struct yolk_io *io)
{
    struct trace_channel *channel = handle;
    struct trace_record record = {.call = TRACE_SUBMIT,
                                  .opcode = io->opcode,
                                  .cookie = io->cookie,
                                  .places = io->place_count,
                                  .offset = io->offset,
                                  .size = io->size};
    record.submit = channel->endpoint->inner.submit(channel->inner, io);
    if (record.submit == YOLK_SUBMIT_DONE || record.submit == YOLK_SUBMIT_FAILED)
        record.transferred = io->transferred;
    if (record.submit == YOLK_SUBMIT_FAILED)
        record.status = io->status;
    note(channel->endpoint, record);
    return record.submit;
}

static uint32_t trace_poll(void *handle, struct yolk_completion *completions, uint32_t max)
{
    struct trace_channel *channel = handle;
    uint32_t count = channel->endpoint->inner.poll(channel->inner, completions, max);
    for (uint32_t i = 0; i < count; i++)
        note(channel->endpoint, (struct trace_record){.call = TRACE_COMPLETION,
                                                      .cookie = completions[i].cookie,
                                                      .status = completions[i].status,
                                                      .transferred = completions[i].transferred});
    return count;
}

static void trace_cancel(void *handle, uint64_t cookie)
{
    struct trace_channel *channel = handle;
    note(channel->endpoint, (struct trace_record){.call = TRACE_CANCEL, .cookie = cookie});
    channel->endpoint->inner.cancel(channel->inner, cookie);
}

static enum yolk_status trace_channel_close(void *handle)
{
    struct trace_channel *channel = handle;
    enum yolk_status status =
        told(channel->endpoint, (struct trace_record){.call = TRACE_CHANNEL_CLOSE},
             channel->endpoint->inner.channel_close(channel->inner));
    if (status == YOLK_OK)
        free(channel);
    return status;
}

static uint32_t trace_wait_fds(void *handle, struct pollfd *fds, uint32_t max)
{
    struct trace_channel *channel = handle;
    return channel->endpoint->inner.wait_fds(channel->inner, fds, max);
}

static void trace_flush(void *handle)
{
    struct trace_channel *channel = handle;
    channel->endpoint->inner.flush(channel->inner);
}

void transport_trace_make(const struct trace_options *options, struct yolk_transport_ops *out)
{
    struct yolk_transport_ops inner = transport_whole_table(options->inner);
    *out = (struct yolk_transport_ops){
        .size = sizeof(*out),
        .abi = YOLK_TRANSPORT_ABI,
        .name = inner.name,
        .caps = inner.caps,
        .probe = trace_probe,
        .init = trace_init,
        .stop = trace_stop,
        .fini = trace_fini,
        .limits = trace_limits,
        .add_buffer = trace_add_buffer,
        .remove_buffer = trace_remove_buffer,
        .memory_alloc = inner.memory_alloc == NULL ? NULL : trace_memory_alloc,
        .memory_free = inner.memory_free == NULL ? NULL : trace_memory_free,
        .serve = inner.serve == NULL ? NULL : trace_serve,
        .set_segment_id = inner.set_segment_id == NULL ? NULL : trace_set_segment_id,
        .fence_session = inner.fence_session == NULL ? NULL : trace_fence_session,
        .unserve = inner.unserve == NULL ? NULL : trace_unserve,
        .open_target = trace_open_target,
        .close_target = trace_close_target,
        .target_map = inner.target_map == NULL ? NULL : trace_target_map,
        .channel_open = trace_channel_open,
        .submit = trace_submit,
        .poll = trace_poll,
        .cancel = inner.cancel == NULL ? NULL : trace_cancel,
        .channel_close = trace_channel_close,
        .wait_fds = inner.wait_fds == NULL ? NULL : trace_wait_fds,
        .flush = inner.flush == NULL ? NULL : trace_flush,
        .check_direct = inner.check_direct == NULL ? NULL : trace_check_direct,
        .files = inner.files == NULL ? NULL : trace_files,
    };
}
