/* SPDX-License-Identifier: Apache-2.0 */
#include "bare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "platform/clock.h"

enum { PATIENCE_S = 20 };

static uint64_t now(void *self)
{
    (void)self;
    return clock_real_now_ns();
}

static void find_text(struct bare *b, struct world *w)
{
    const char *all = yolk_served_endpoints(w->served);
    size_t name = strlen(b->ops->name);
    while (all != NULL && (strncmp(all, b->ops->name, name) != 0 || all[name] != '=')) {
        all = strchr(all, ';');
        all = all == NULL ? NULL : all + 1;
    }
    assert_non_null(all);
    const char *text = all + name + 1;
    size_t size = strcspn(text, ";");
    assert_true(size < sizeof(b->text));
    memcpy(b->text, text, size);
    b->text[size] = '\0';
}

void bare_endpoint_open(struct bare *b, struct world *w)
{
    memset(b, 0, sizeof(*b));
    b->ops = w->fixture->ops;
    b->until_ns = clock_real_now_ns() + PATIENCE_S * CLOCK_NS_PER_S;
    struct yolk_transport_options options = {.struct_size = sizeof(options),
                                             .yolk = engine_plugin_host(),
                                             .now_ns = now,
                                             .connect_timeout_ms = 2000,
                                             .stop_timeout_ms = 2000,
                                             .instance = {0xba, 0x4e}};
    if (w->fixture->prepare != NULL)
        w->fixture->prepare(&options, 0);
    assert_int_equal(b->ops->init(&options, &b->endpoint), YOLK_OK);
    find_text(b, w);
}

void bare_endpoint_close(struct bare *b)
{
    assert_int_equal(b->ops->stop(b->endpoint), YOLK_OK);
    b->ops->fini(b->endpoint);
}

enum yolk_status bare_channel_open(struct bare *b, void **channel)
{
    enum yolk_status status;
    while ((status = b->ops->channel_open(b->endpoint, b->target, channel)) == YOLK_ERR_AGAIN)
        bare_check_time(b);
    return status;
}

void bare_open(struct bare *b, struct world *w)
{
    world_open_provider(w);
    bare_endpoint_open(b, w);
    b->local = malloc(w->size);
    assert_non_null(b->local);
    memset(b->local, 0xee, w->size);
    assert_int_equal(b->ops->add_buffer(b->endpoint, b->local, w->size, &b->key), YOLK_OK);
    assert_int_equal(b->ops->open_target(b->endpoint, b->text, WORLD_SEGMENT, w->size,
                                         WORLD_SESSION, &b->target),
                     YOLK_OK);
    assert_int_equal(bare_channel_open(b, &b->channel), YOLK_OK);
}

void bare_close(struct bare *b)
{
    if (b->channel != NULL)
        assert_int_equal(b->ops->channel_close(b->channel), YOLK_OK);
    b->ops->close_target(b->endpoint, b->target);
    b->ops->remove_buffer(b->endpoint, b->key);
    bare_endpoint_close(b);
    free(b->local);
}

struct yolk_io bare_io(struct bare *b, enum yolk_opcode opcode, uint64_t place, uint64_t size,
                       uint64_t cookie)
{
    return (struct yolk_io){.opcode = opcode,
                            .local = b->local + place,
                            .offset = place,
                            .size = size,
                            .key = b->key,
                            .deadline_ns = UINT64_MAX,
                            .cookie = cookie};
}

uint32_t bare_poll(struct bare *b, struct yolk_completion *completions, uint32_t max)
{
    if (b->ops->flush != NULL)
        b->ops->flush(b->channel);
    uint32_t count = b->ops->poll(b->channel, completions, max);
    assert_true(count <= max);
    return count;
}

void bare_check_time(struct bare *b)
{
    if (clock_real_now_ns() > b->until_ns)
        fail_msg("no end after %d s", PATIENCE_S);
}
