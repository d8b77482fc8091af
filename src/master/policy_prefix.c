/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First goes what is worth least: the replica whose chance of being read, for the time that it
 * takes until then, is smallest.
 *
 * Objects are put in classes by what their last request showed: how much of its keys was known
 * already, how much was new, whether the object had been asked for before, whether it was the last
 * of the request. For each class the chance of being asked for again at each age is learned from a
 * panel of keys, sampled by hash and watched whether they are stored or not. The worth at an age is
 * the best rate of hits that keeping on from there can yield:
 *     max over t of P(asked for within t) / E(time kept until asked for, t at most)
 * (the Gittins index of the class's distribution). Each class is a list by last use, so that only
 * its oldest has to be looked at. As long as nothing has been learned all are worth the same, and
 * the least recently used goes.
 *
 * A request's keys are a chain: each is of use only with those before it. So of the keys of one
 * request the last is the oldest.
 *
 * Time is counted in keys asked for. Sizes of requests are compared with their mean. So nothing
 * here depends on the length of a block or the size of the store. One request of a user comes as
 * EXIST, GET_START and PUT_START over parts of its keys, maybe of several sessions; a key seen in
 * a later one of these kinds is still the same use.
 */
#include "base/hash.h"
#include "master/policy.h"
#include "master/state.h"
#include "wire/msg.h"

#include <string.h>

enum {
    CLASS_LAST_ALONE, /* the last of its request, and all before it was known */
    CLASS_LAST,
    CLASS_FIRST, /* asked for once: by how much was new, and whether that went on from a chain */
    CLASS_AGAIN = CLASS_FIRST + 8, /* asked for before: by how much was new beside it */
    CLASSES = CLASS_AGAIN + 2,
    AGES = 65, /* two an octave of 32 bits, and none */
    WAYS = 8,
    GHOSTS = 1 << 20, /* keys that are not stored: 8 MiB, less where there can be few objects */
    PANEL = 1 << 15,  /* keys that are watched: 256 KiB, or less */
    PANEL_SPAN = 8,   /* the panel is to watch that many times the objects there are */
    TABLE_MIN = 1024,
    LEARN_KEYS_MIN = 1024,
    USES_MAX = 3,
    TAG_SHIFT = 40,
};

/* A class's counts weigh as much as this many keys that behave as all classes together. */
static const double PRIOR_KEYS = 50;
static const double FORGET = 0.97; /* each time that is learned */

enum phase { PHASE_NONE, PHASE_EXIST, PHASE_GET, PHASE_PUT };

/* What is known of a key. As a word: tag:24 stamp:32 class:4 uses:2 phase:2; 0 is none. */
struct record {
    uint32_t stamp; /* when it was last asked for */
    uint8_t class, uses, phase;
};

struct state {
    uint32_t clock;
    uint32_t learned_at;
    uint32_t mean_keys; /* of a request, times 256 */
    uint32_t panel_mask;
    uint64_t objects;
    double hits[CLASSES][AGES], lost[CLASSES][AGES];
    double worth[CLASSES][AGES];
    uint32_t panel_size, ghosts_size;
    uint64_t *ghosts, panel[]; /* behind each other */
};

struct order {
    struct state *state;
    struct master_extent *newest; /* the last that came, unless it left */
    struct base_list classes[CLASSES];
};

static uint64_t pack(struct record record, uint64_t tag)
{
    return tag << TAG_SHIFT | (uint64_t)record.stamp << 8 |
           (uint64_t)(record.class << 4 | record.uses << 2 | record.phase);
}

static struct record unpack(uint64_t word)
{
    return (struct record){.stamp = (uint32_t)(word >> 8),
                           .class = word >> 4 & 15,
                           .uses = word >> 2 & 3,
                           .phase = word & 3};
}

/* The note is the record, with the place in its request where others have a tag. */
static struct record record_of(const struct master_object *object)
{
    return unpack(object->note.word);
}

static uint64_t place_of(const struct master_object *object)
{
    return object->note.word >> TAG_SHIFT;
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(base_mix64(hash) >> TAG_SHIFT);
}

/* The word of `hash` in its set, or NULL; then `*room` is an empty one or the oldest. */
static uint64_t *find(uint64_t *table, uint32_t size, uint32_t now, uint64_t hash, uint64_t **room)
{
    uint64_t *set = table + (base_mix64(hash) & (size / WAYS - 1)) * WAYS;
    uint64_t tag = tag_of(hash);
    uint32_t oldest = 0;
    *room = set;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i] == 0) {
            *room = set + i;
            return NULL;
        }
        if (set[i] >> TAG_SHIFT == tag)
            return set + i;
        uint32_t age = now - unpack(set[i]).stamp;
        if (age >= oldest) {
            oldest = age;
            *room = set + i;
        }
    }
    return NULL;
}

static uint32_t bucket(uint32_t age)
{
    if (age == 0)
        return 0;
    uint32_t octave = 31u - (uint32_t)__builtin_clz(age);
    return 1 + 2 * octave + (octave > 0 ? age >> (octave - 1) & 1 : 0);
}

static double bucket_start(uint32_t i)
{
    if (i == 0)
        return 0;
    return (double)(1ull << ((i - 1) / 2)) * (i % 2 == 0 ? 1.5 : 1);
}

static double worth(const struct state *state, struct record record)
{
    return state->worth[record.class][bucket(state->clock - record.stamp)];
}

/* Of those that reached each age, how many were asked for there. */
static void hazards(const double *hits, const double *lost, double *risk, double *hazard,
                    const double *common)
{
    double at_risk = 0, found = 0, expected = 0;
    for (uint32_t i = AGES; i-- > 0;) {
        at_risk += hits[i] + lost[i];
        risk[i] = at_risk - lost[i] / 2;
        if (common == NULL) {
            hazard[i] = risk[i] > 0.5 ? hits[i] / risk[i] : 0;
            continue;
        }
        found += hits[i];
        expected += risk[i] * common[i];
    }
    if (common == NULL)
        return;
    double ratio = (found + PRIOR_KEYS / 4) / (expected + PRIOR_KEYS / 4);
    for (uint32_t i = 0; i < AGES; i++) {
        double usual = common[i] * ratio < 0.95 ? common[i] * ratio : 0.95;
        hazard[i] = (hits[i] + PRIOR_KEYS * usual) / (risk[i] + PRIOR_KEYS);
    }
}

/* `seen`: the ages that anything has reached. */
static void learn_worth(const double *hazard, uint32_t seen, double *out)
{
    for (uint32_t from = 0; from < AGES; from++) {
        double alive = 1, hit = 0, time = 0, best = 0;
        for (uint32_t i = from; i < seen && i + 1 < AGES; i++) {
            double width = bucket_start(i + 1) - bucket_start(i);
            if (i == from) /* on average in its middle */
                width /= 2;
            double now = alive * hazard[i];
            hit += now;
            time += (alive - now / 2) * width;
            alive -= now;
            if (hit > best * time)
                best = hit / time;
        }
        out[from] = best;
    }
}

static void learn(struct state *state)
{
    double lost[CLASSES][AGES], all_hits[AGES] = {0}, all_lost[AGES] = {0};
    double risk[AGES], common[AGES], hazard[AGES];
    memcpy(lost, state->lost, sizeof lost);
    for (uint32_t i = 0; i < state->panel_size; i++)
        if (state->panel[i] != 0) {
            struct record record = unpack(state->panel[i]);
            lost[record.class][bucket(state->clock - record.stamp)]++;
        }
    for (uint32_t class = 0; class < CLASSES; class ++)
        for (uint32_t i = 0; i < AGES; i++) {
            all_hits[i] += state->hits[class][i];
            all_lost[i] += lost[class][i];
        }
    hazards(all_hits, all_lost, risk, common, NULL);
    uint32_t seen = 0;
    while (seen < AGES && risk[seen] >= 1)
        seen++;
    for (uint32_t class = 0; class < CLASSES; class ++) {
        hazards(state->hits[class], lost[class], risk, hazard, common);
        learn_worth(hazard, seen, state->worth[class]);
        for (uint32_t i = 0; i < AGES; i++) {
            state->hits[class][i] *= FORGET;
            state->lost[class][i] *= FORGET;
        }
    }
}

/* Samples fewer keys once the objects have become many. */
static void fit_panel(struct state *state)
{
    uint64_t wanted = state->objects * PANEL_SPAN / (state->panel_mask + 1ull);
    if (wanted <= state->panel_size || state->panel_mask > UINT16_MAX)
        return;
    state->panel_mask = state->panel_mask * 2 + 1;
    for (uint32_t i = 0; i < state->panel_size; i++)
        if ((state->panel[i] >> TAG_SHIFT & state->panel_mask) != 0)
            state->panel[i] = 0;
}

static void tick(struct state *state, uint32_t keys)
{
    state->clock += keys;
    uint64_t pause = state->objects / 8;
    if (state->clock - state->learned_at < (pause > LEARN_KEYS_MIN ? pause : LEARN_KEYS_MIN))
        return;
    state->learned_at = state->clock;
    fit_panel(state);
    learn(state);
}

static void watch(struct state *state, uint64_t hash, struct record record)
{
    if ((tag_of(hash) & state->panel_mask) != 0)
        return;
    uint64_t *room, *word = find(state->panel, state->panel_size, state->clock, hash, &room);
    if (word != NULL || *room != 0) {
        struct record before = unpack(word != NULL ? *word : *room);
        (word != NULL ? state->hits
                      : state->lost)[before.class][bucket(state->clock - before.stamp)]++;
    }
    *(word != NULL ? word : room) = pack(record, tag_of(hash));
}

static uint8_t classify(const struct state *state, uint32_t after, uint32_t uses, uint32_t fresh,
                        uint32_t known)
{
    uint64_t part = (uint64_t)fresh * 256;
    if (after == 0)
        return fresh <= 1 ? CLASS_LAST_ALONE : CLASS_LAST;
    if (uses > 1)
        return (uint8_t)(CLASS_AGAIN + (part >= state->mean_keys / 4));
    uint32_t size = part < state->mean_keys / 16  ? 0
                    : part < state->mean_keys / 4 ? 1
                    : part < state->mean_keys * 2 ? 2
                                                  : 3;
    return (uint8_t)(CLASS_FIRST + size * 2 + (known > 1));
}

/* Of an object, or else of a key that was seen lately; phase PHASE_NONE: nothing is known. */
static struct record recall(struct state *state, struct master_object *object, uint64_t hash)
{
    if (object != NULL && object->note.word != 0)
        return record_of(object);
    uint64_t *room, *ghost = find(state->ghosts, state->ghosts_size, state->clock, hash, &room);
    return ghost == NULL ? (struct record){0} : unpack(*ghost);
}

static void remember(struct state *state, struct master_object *object, uint64_t hash,
                     struct record record)
{
    if (object != NULL) {
        state->objects += object->note.word == 0;
        object->note.word = pack(record, place_of(object));
        return;
    }
    uint64_t *room, *ghost = find(state->ghosts, state->ghosts_size, state->clock, hash, &room);
    *(ghost != NULL ? ghost : room) = pack(record, tag_of(hash));
}

static enum phase phase_of(uint16_t kind)
{
    return kind == WIRE_EXIST ? PHASE_EXIST : kind == WIRE_GET_START ? PHASE_GET : PHASE_PUT;
}

static void looked_up(void *self, const struct master_lookup *lookup)
{
    struct state *state = self;
    enum phase phase = phase_of(lookup->kind);
    uint32_t known = 0, uses = 0;
    while (known < lookup->count &&
           recall(state, lookup->objects[known], lookup->hashes[known]).phase != PHASE_NONE)
        known++;
    uint32_t fresh = lookup->count - known;
    for (uint32_t i = 0; i < lookup->count; i++) {
        struct master_object *object = lookup->objects[i];
        struct record record = recall(state, object, lookup->hashes[i]);
        bool noted = object != NULL && object->note.word != 0;
        /* A put of what is there says nothing, nor does a message that came twice. */
        if (phase == PHASE_PUT && object != NULL && (object->put == NULL || noted))
            continue;
        bool same_use = record.phase != PHASE_NONE && record.phase < phase;
        /* Without room it will be tried again, and is still the same use then. */
        record.phase = (uint8_t)(phase == PHASE_PUT && object == NULL ? PHASE_GET : phase);
        if (!same_use) {
            record.uses = (uint8_t)(record.uses < USES_MAX ? record.uses + 1 : USES_MAX);
            record.stamp = state->clock;
            record.class = classify(state, lookup->count - 1 - i, record.uses, fresh, known);
            watch(state, lookup->hashes[i], record);
            uses++;
        }
        remember(state, object, lookup->hashes[i], record);
        if (object != NULL && !same_use)
            object->note.word = pack(record, i);
    }
    if (uses == 0)
        return;
    if (state->mean_keys == 0)
        state->mean_keys = lookup->count * 256;
    state->mean_keys += lookup->count - state->mean_keys / 256;
    tick(state, lookup->count);
}

static void removed(void *self, struct master_object *object)
{
    struct state *state = self;
    if (object->note.word == 0)
        return;
    state->objects--;
    remember(state, NULL, object->entry.hash, record_of(object));
}

static void order_init(void *self, void *state)
{
    struct order *order = self;
    order->state = state;
    for (uint32_t i = 0; i < CLASSES; i++)
        base_list_init(&order->classes[i]);
}

/* Front: the oldest. Of one request the later key is put before the earlier one. */
static void add(void *self, struct master_extent *extent)
{
    struct order *order = self;
    struct master_object *object = extent->object;
    if (object->note.word == 0) /* nobody ever asked for it: offered by an owner */
        remember(order->state, object, object->entry.hash,
                 (struct record){order->state->clock, CLASS_FIRST, 1, PHASE_PUT});
    struct record record = record_of(object);
    struct base_list *place = order->classes[record.class].prev;
    if (order->newest != NULL) {
        const struct master_object *before = order->newest->object;
        struct record other = record_of(before);
        if (other.class == record.class && other.stamp == record.stamp &&
            place_of(before) < place_of(object))
            place = order->newest->order.prev;
    }
    base_list_insert_after(place, &extent->order);
    order->newest = extent;
}

static void withdrawn(void *self, struct master_extent *extent)
{
    struct order *order = self;
    if (order->newest == extent)
        order->newest = NULL;
    base_list_remove(&extent->order);
}

static struct master_extent *victim(void *self)
{
    struct order *order = self;
    const struct state *state = order->state;
    struct master_extent *least = NULL;
    double least_worth = 0;
    uint32_t least_age = 0;
    for (uint32_t i = 0; i < CLASSES; i++) {
        struct base_list *node = base_list_first(&order->classes[i]);
        if (node == NULL)
            continue;
        struct master_extent *extent = BASE_CONTAINER(node, struct master_extent, order);
        struct record record = record_of(extent->object);
        double its_worth = worth(state, record);
        uint32_t age = state->clock - record.stamp;
        if (least == NULL || its_worth < least_worth ||
            (its_worth <= least_worth && age > least_age)) {
            least = extent;
            least_worth = its_worth;
            least_age = age;
        }
    }
    return least;
}

static bool admits(void *self, const struct master_object *object)
{
    const struct order *order = self;
    const struct master_extent *other = victim(self);
    return other == NULL ||
           worth(order->state, record_of(object)) >= worth(order->state, record_of(other->object));
}

/* Of a table that is to know PANEL_SPAN times the objects there can be, up to a bound. */
static uint32_t table_size(uint32_t most, uint64_t objects)
{
    uint32_t size = TABLE_MIN;
    while (size < most && size / PANEL_SPAN < objects)
        size *= 2;
    return size;
}

static size_t state_size(uint64_t objects)
{
    size_t words = (size_t)table_size(PANEL, objects) + table_size(GHOSTS, objects);
    return sizeof(struct state) + words * sizeof(uint64_t);
}

static void state_init(void *self, uint64_t objects)
{
    struct state *state = self;
    state->panel_size = table_size(PANEL, objects);
    state->ghosts_size = table_size(GHOSTS, objects);
    state->ghosts = state->panel + state->panel_size;
}

const struct master_policy master_policy_prefix = {
    .name = "prefix",
    .state_size = state_size,
    .state_init = state_init,
    .order_size = sizeof(struct order),
    .order_init = order_init,
    .inserted = add,
    .touched = add,
    .withdrawn = withdrawn,
    .victim = victim,
    .looked_up = looked_up,
    .removed = removed,
    .admits = admits,
};
