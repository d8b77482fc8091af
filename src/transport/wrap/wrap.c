/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wrap/wrap.h"

#include <string.h>

struct yolk_transport_ops transport_whole_table(const struct yolk_transport_ops *given)
{
    struct yolk_transport_ops ops;
    memset(&ops, 0, sizeof(ops));
    memcpy(&ops, given, given->size < sizeof(ops) ? given->size : sizeof(ops));
    return ops;
}

static enum yolk_status wrap_stop(void *endpoint)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.stop(mine->endpoint);
}

static void wrap_limits(void *endpoint, struct yolk_limits *out)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.limits(mine->endpoint, out);
}

static enum yolk_status wrap_add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.add_buffer(mine->endpoint, pointer, size, key);
}

static void wrap_remove_buffer(void *endpoint, void *key)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.remove_buffer(mine->endpoint, key);
}

static enum yolk_status wrap_memory_alloc(void *endpoint, uint64_t size, struct yolk_memory *out)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.memory_alloc(mine->endpoint, size, out);
}

static void wrap_memory_free(void *endpoint, struct yolk_memory *memory)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.memory_free(mine->endpoint, memory);
}

static enum yolk_status wrap_serve(void *endpoint, const struct yolk_serve *serve, void **served,
                                   char *text, size_t text_size)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.serve(mine->endpoint, serve, served, text, text_size);
}

static void wrap_set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.set_segment_id(mine->endpoint, served, segment);
}

static enum yolk_status wrap_fence_session(void *endpoint, void *served, uint64_t session)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.fence_session(mine->endpoint, served, session);
}

static void wrap_unserve(void *endpoint, void *served)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.unserve(mine->endpoint, served);
}

static enum yolk_status wrap_open_target(void *endpoint, const char *text, uint64_t segment,
                                         uint64_t size, uint64_t session, void **target)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.open_target(mine->endpoint, text, segment, size, session, target);
}

static void wrap_close_target(void *endpoint, void *target)
{
    struct wrap_endpoint *mine = endpoint;
    mine->inner.close_target(mine->endpoint, target);
}

static enum yolk_status wrap_target_map(void *endpoint, void *target, const void **base,
                                        uint64_t *size)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.target_map(mine->endpoint, target, base, size);
}

static enum yolk_status wrap_target_map_gpu(void *endpoint, void *target, const void **base,
                                            uint64_t *size)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.target_map_gpu(mine->endpoint, target, base, size);
}

static enum yolk_status wrap_check_reach(void *endpoint, void *target, uint64_t offset,
                                         uint64_t size)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.check_reach(mine->endpoint, target, offset, size);
}

static enum yolk_status wrap_check_direct(void *endpoint, void *target, const void *local,
                                          uint64_t offset, uint64_t size)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.check_direct(mine->endpoint, target, local, offset, size);
}

static size_t wrap_files(void *endpoint, struct yolk_file_figures *out, size_t room)
{
    struct wrap_endpoint *mine = endpoint;
    return mine->inner.files(mine->endpoint, out, room);
}

void wrap_make(const struct yolk_transport_ops *inner, struct yolk_transport_ops *out)
{
    /* What the wrapped one has tells which of the wrapper's channel hooks there should be. */
    *out = transport_whole_table(inner);
    out->size = sizeof(*out);
    out->abi = YOLK_TRANSPORT_ABI;
    out->stop = wrap_stop;
    out->limits = wrap_limits;
    out->add_buffer = wrap_add_buffer;
    out->remove_buffer = wrap_remove_buffer;
    out->memory_alloc = out->memory_alloc == NULL ? NULL : wrap_memory_alloc;
    out->memory_free = out->memory_free == NULL ? NULL : wrap_memory_free;
    out->serve = out->serve == NULL ? NULL : wrap_serve;
    out->set_segment_id = out->set_segment_id == NULL ? NULL : wrap_set_segment_id;
    out->fence_session = out->fence_session == NULL ? NULL : wrap_fence_session;
    out->unserve = out->unserve == NULL ? NULL : wrap_unserve;
    out->open_target = wrap_open_target;
    out->close_target = wrap_close_target;
    out->target_map = out->target_map == NULL ? NULL : wrap_target_map;
    out->target_map_gpu = out->target_map_gpu == NULL ? NULL : wrap_target_map_gpu;
    out->check_reach = out->check_reach == NULL ? NULL : wrap_check_reach;
    out->check_direct = out->check_direct == NULL ? NULL : wrap_check_direct;
    out->files = out->files == NULL ? NULL : wrap_files;
}
