/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that cannot be loaded; what is wrong with it is defined where it is built (see
 * CMakeLists.txt). */
#include <yolk/plugin.h>

#ifndef VARIANT_ENTRY
#define VARIANT_ENTRY yolk_transport_plugin
#endif
#ifndef VARIANT_ABI
#define VARIANT_ABI YOLK_TRANSPORT_ABI
#endif
#ifndef VARIANT_SIZE
#define VARIANT_SIZE sizeof(struct yolk_transport_ops)
#endif
#ifndef VARIANT_NAME
#define VARIANT_NAME "variant"
#endif
#ifndef VARIANT_POLL
#define VARIANT_POLL poll_none
#endif
#ifndef VARIANT_PROBE
#define VARIANT_PROBE probe_never
#endif
#ifndef VARIANT_CAPS
#define VARIANT_CAPS YOLK_CAP_READ
#endif
#ifndef VARIANT_INIT
#define VARIANT_INIT init_never
#endif
#ifndef VARIANT_TABLE
#define VARIANT_TABLE &table
#endif

enum yolk_status not_to_be_found(const struct yolk_transport_options *options,
                                 struct yolk_probe *out);
const struct yolk_transport_ops *VARIANT_ENTRY(void);

__attribute__((unused)) static enum yolk_status
probe_never(const struct yolk_transport_options *options, struct yolk_probe *out)
{
    (void)out;
    options->yolk->log(YOLK_LOG_WARN, VARIANT_NAME, "asked by Yolk %s", options->yolk->version);
    return options->yolk->fail(YOLK_ERR_UNSUPPORTED, 2, "there is no device %s%d", "x", 7);
}

__attribute__((unused)) static enum yolk_status
probe_always(const struct yolk_transport_options *options, struct yolk_probe *out)
{
    (void)options, (void)out;
    return YOLK_OK;
}

__attribute__((unused)) static enum yolk_status
init_never(const struct yolk_transport_options *options, void **endpoint)
{
    (void)endpoint;
    return options->yolk->fail(YOLK_ERR_SYSTEM, 0, "never");
}

__attribute__((unused)) static enum yolk_status
init_always(const struct yolk_transport_options *options, void **endpoint)
{
    (void)options;
    *endpoint = (void *)"an endpoint";
    return YOLK_OK;
}

static enum yolk_status stop(void *endpoint)
{
    (void)endpoint;
    return YOLK_OK;
}

static void fini(void *endpoint)
{
    (void)endpoint;
}

static void limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint, (void)out;
}

static enum yolk_status add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size, (void)key;
    return YOLK_ERR_UNSUPPORTED;
}

static void remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

static enum yolk_status open_target(void *endpoint, const char *text, uint64_t segment,
                                    uint64_t size, uint64_t session, void **target)
{
    (void)endpoint, (void)text, (void)segment, (void)size, (void)session, (void)target;
    return YOLK_ERR_NO_ROUTE;
}

static void close_target(void *endpoint, void *target)
{
    (void)endpoint, (void)target;
}

static enum yolk_status channel_open(void *endpoint, void *target, void **channel)
{
    (void)endpoint, (void)target, (void)channel;
    return YOLK_ERR_NO_ROUTE;
}

static enum yolk_submit submit(void *channel, struct yolk_io *io)
{
    (void)channel;
    io->status = YOLK_ERR_UNSUPPORTED;
    return YOLK_SUBMIT_FAILED;
}

__attribute__((unused)) static uint32_t poll_none(void *channel,
                                                  struct yolk_completion *completions, uint32_t max)
{
    (void)channel, (void)completions, (void)max;
    return 0;
}

static enum yolk_status channel_close(void *channel)
{
    (void)channel;
    return YOLK_OK;
}

__attribute__((unused)) static const struct yolk_transport_ops table = {
    .size = VARIANT_SIZE,
    .abi = VARIANT_ABI,
    .name = VARIANT_NAME,
    .caps = VARIANT_CAPS,
    .probe = VARIANT_PROBE,
    .init = VARIANT_INIT,
    .stop = stop,
    .fini = fini,
    .limits = limits,
    .add_buffer = add_buffer,
    .remove_buffer = remove_buffer,
    .open_target = open_target,
    .close_target = close_target,
    .channel_open = channel_open,
    .submit = submit,
    .poll = VARIANT_POLL,
    .channel_close = channel_close,
};

__attribute__((visibility("default"))) const struct yolk_transport_ops *VARIANT_ENTRY(void)
{
    return VARIANT_TABLE;
}
