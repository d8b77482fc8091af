/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/synthetic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REQUEST_BLOCKS_MAX = 247,
    OPEN_MAX = 4096,  /* conversations that wait for their next turn */
    OPEN_SCALE = 500, /* the more wait, the likelier the next request continues one */
};

/* Two kinds of conversation. One-shot ones ask once, some with a long document. Chats come back
 * with chance CHAT_RETURNS after each turn and then repeat all they had before. The figures were
 * solved from the published statistics: share of requests that continue, blocks seen once, reusable
 * references. */
static const double CHAT_SHARE = 0.54, CHAT_RETURNS = 0.56;
static const double TURN_BLOCKS = 9.0, SHORT_BLOCKS = 13.0, LONG_BLOCKS = 110.0, LONG_SHARE = 0.2;

struct conversation {
    uint64_t *ids;
    size_t count;
};

struct generator {
    uint64_t state;
    uint64_t next_id;
    struct conversation open[OPEN_MAX];
    size_t open_count;
};

static uint64_t next_u64(struct generator *generator)
{
    uint64_t z = (generator->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_unit(struct generator *generator)
{
    return ((double)(next_u64(generator) >> 11) + 0.5) * 0x1p-53;
}

static size_t draw_blocks(struct generator *generator, double mean)
{
    return 1 + (size_t)(-log(next_unit(generator)) * mean);
}

/* Turns that came lately are likelier to go on. */
static struct conversation take_open(struct generator *generator)
{
    double unit = next_unit(generator);
    size_t back = (size_t)((double)generator->open_count * unit * unit);
    size_t index = generator->open_count - 1 - back;
    struct conversation taken = generator->open[index];
    generator->open_count--;
    memmove(generator->open + index, generator->open + index + 1,
            (generator->open_count - index) * sizeof taken);
    return taken;
}

static int append_blocks(struct generator *generator, struct conversation *talk, size_t fresh)
{
    if (talk->count + fresh > REQUEST_BLOCKS_MAX)
        fresh = REQUEST_BLOCKS_MAX - talk->count;
    uint64_t *ids = realloc(talk->ids, (talk->count + fresh + 1) * sizeof *ids);
    if (!ids)
        return -1;
    talk->ids = ids;
    for (size_t i = 0; i < fresh; i++)
        talk->ids[talk->count++] = generator->next_id++;
    return 0;
}

static int next_request(struct generator *generator, struct trace *trace)
{
    struct conversation talk = {0};
    int chat = 1;
    size_t fresh;
    if (next_unit(generator) < (double)generator->open_count / OPEN_SCALE) {
        talk = take_open(generator);
        fresh = draw_blocks(generator, TURN_BLOCKS);
    } else {
        talk.ids = calloc(1, sizeof *talk.ids); /* block 0: the common system prompt */
        if (!talk.ids)
            return -1;
        talk.count = 1;
        chat = next_unit(generator) < CHAT_SHARE;
        int is_long = next_unit(generator) < LONG_SHARE;
        fresh = draw_blocks(generator, chat ? TURN_BLOCKS : is_long ? LONG_BLOCKS : SHORT_BLOCKS);
    }
    int result = append_blocks(generator, &talk, fresh);
    if (!result)
        result = trace_add(trace, talk.ids, talk.count);
    if (!result && chat && generator->open_count < OPEN_MAX && talk.count < REQUEST_BLOCKS_MAX &&
        next_unit(generator) < CHAT_RETURNS)
        generator->open[generator->open_count++] = talk;
    else
        free(talk.ids);
    return result;
}

int synthetic_generate(struct trace *trace, uint64_t seed, size_t requests)
{
    struct generator *generator = calloc(1, sizeof *generator);
    if (!generator)
        return -1;
    generator->state = seed;
    generator->next_id = 1;
    int result = 0;
    for (size_t i = 0; i < requests && !result; i++)
        result = next_request(generator, trace);
    for (size_t i = 0; i < generator->open_count; i++)
        free(generator->open[i].ids);
    free(generator);
    if (result)
        trace_free(trace);
    return result;
}
