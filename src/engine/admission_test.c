/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "platform/random.h"

#define MS UINT64_C(1000000)

static struct admission queue;
static struct admission_class all;

static void begin(struct admission_limits limits)
{
    assert_int_equal(admission_init(&queue, &limits), YOLK_OK);
    memset(&all, 0, sizeof(all));
    admission_class_init(&all);
}

static const struct admission_limits small = {
    .owners_max = 4, .bytes_max = 100, .dispatch_owners_max = 2, .dispatch_bytes_max = 50};

static uint64_t add(uint64_t now_ns, struct admission_owner owner)
{
    struct admission_load load = {0};
    if (owner.class == NULL)
        owner.class = &all;
    if (owner.deadline_ns == 0)
        owner.deadline_ns = ADMISSION_NEVER;
    admission_load_add(&load, owner.bytes, owner.staging);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_OK);
    return admission_add(&queue, now_ns, &owner);
}

/* The task of the owner that is next, or -1. */
static int pick(uint64_t now_ns)
{
    uint64_t token;
    const struct admission_owner *owner = admission_pick(&queue, now_ns, &token);
    return owner == NULL ? -1 : (int)owner->task;
}

static void windows_of_nothing(void **state)
{
    (void)state;
    struct admission a;
    for (int i = 0; i < 6; i++) {
        struct admission_limits limits = small;
        if (i == 0)
            limits.owners_max = 0;
        else if (i == 1)
            limits.bytes_max = 0;
        else if (i == 2)
            limits.dispatch_owners_max = 0;
        else if (i == 3)
            limits.dispatch_bytes_max = 0;
        else if (i == 4)
            limits.staging_owners = 4;
        else
            limits.staging_bytes = 100;
        assert_int_equal(admission_init(&a, &limits), YOLK_ERR_INVALID);
    }
}

static void all_or_nothing(void **state)
{
    (void)state;
    begin(small);
    struct admission_load nothing = {0}, load = {0};
    assert_int_equal(admission_reserve(&queue, &nothing), YOLK_OK);
    for (int i = 0; i < 5; i++)
        admission_load_add(&load, 1, false);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    load = (struct admission_load){0};
    admission_load_add(&load, 50, false);
    admission_load_add(&load, 50, false);
    admission_load_add(&load, 1, false);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    load = (struct admission_load){0};
    admission_load_add(&load, 51, false); /* above the window: would never be dispatched */
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    load = (struct admission_load){0};
    admission_load_add(&load, UINT64_MAX, true);
    admission_load_add(&load, UINT64_MAX, false);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    assert_int_equal(queue.outstanding, 0);
    assert_int_equal(queue.bytes_outstanding, 0);
    (void)add(0, (struct admission_owner){.bytes = 50});
    (void)add(0, (struct admission_owner){.bytes = 50});
    (void)add(0, (struct admission_owner){.bytes = 0});
    load = (struct admission_load){0};
    admission_load_add(&load, 1, false);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    admission_free(&queue);
}

static void in_order_of_age_and_by_windows(void **state)
{
    (void)state;
    begin(small);
    uint64_t tokens[4];
    for (uint32_t i = 0; i < 4; i++)
        tokens[i] = add(0, (struct admission_owner){.bytes = 10, .task = i});
    assert_false(admission_is_dispatched(&queue, tokens[0]));
    assert_int_equal(pick(0), 0);
    assert_int_equal(pick(0), 1);
    assert_true(admission_is_dispatched(&queue, tokens[0]));
    assert_int_equal(pick(0), -1);    /* two at a time */
    admission_end(&queue, tokens[2]); /* given up while it waits */
    admission_end(&queue, tokens[2]);
    assert_int_equal(queue.outstanding, 3);
    assert_int_equal(pick(0), -1); /* which gives no place */
    admission_end(&queue, tokens[1]);
    assert_int_equal(pick(0), 3);
    assert_int_equal(pick(0), -1);
    admission_end(&queue, tokens[0]);
    admission_end(&queue, tokens[3]);
    assert_int_equal(queue.outstanding, 0);
    assert_int_equal(queue.bytes_outstanding, 0);
    assert_int_equal(queue.dispatched, 0);
    assert_int_equal(queue.bytes_dispatched, 0);
    /* By bytes: the next one is not passed by a smaller one behind it. */
    tokens[0] = add(0, (struct admission_owner){.bytes = 30, .task = 0});
    assert_true(tokens[0] != tokens[3]);
    tokens[1] = add(0, (struct admission_owner){.bytes = 21, .task = 1});
    tokens[2] = add(0, (struct admission_owner){.bytes = 1, .task = 2});
    assert_int_equal(pick(0), 0);
    assert_int_equal(pick(0), -1);
    admission_end(&queue, tokens[0]);
    assert_int_equal(pick(0), 1);
    assert_int_equal(pick(0), 2);
    admission_free(&queue);
}

static void by_priority_until_it_waited_long(void **state)
{
    (void)state;
    struct admission_limits limits = small;
    limits.owners_max = 100;
    limits.dispatch_owners_max = 100;
    begin(limits);
    (void)add(0, (struct admission_owner){.task = 0, .priority = YOLK_PRIORITY_LOW});
    (void)add(1 * MS, (struct admission_owner){.task = 1, .priority = YOLK_PRIORITY_MEDIUM});
    (void)add(2 * MS, (struct admission_owner){.task = 2, .priority = YOLK_PRIORITY_HIGH});
    (void)add(3 * MS, (struct admission_owner){.task = 3, .priority = YOLK_PRIORITY_HIGH});
    assert_int_equal(pick(3 * MS), 2);
    /* After 10 ms the low one stands beside medium ones, and is older. */
    assert_int_equal(pick(10 * MS), 3);
    assert_int_equal(pick(10 * MS), 0);
    (void)add(12 * MS, (struct admission_owner){.task = 4, .priority = YOLK_PRIORITY_HIGH});
    assert_int_equal(pick(12 * MS), 1); /* it became high at 11 */
    assert_int_equal(pick(12 * MS), 4);
    (void)add(20 * MS, (struct admission_owner){.task = 5, .priority = YOLK_PRIORITY_LOW});
    (void)add(40 * MS, (struct admission_owner){.task = 6, .priority = YOLK_PRIORITY_HIGH});
    assert_int_equal(pick(40 * MS), 5); /* low to high in 20 ms */
    assert_int_equal(pick(40 * MS), 6);
    assert_int_equal(pick(40 * MS), -1);
    admission_free(&queue);
}

static void earliest_deadline_first(void **state)
{
    (void)state;
    struct admission_limits limits = small;
    limits.owners_max = 100;
    limits.dispatch_owners_max = 100;
    limits.deadline_first = true;
    begin(limits);
    (void)add(0, (struct admission_owner){.task = 0});
    (void)add(0, (struct admission_owner){.task = 1, .deadline_ns = 500 * MS});
    (void)add(0, (struct admission_owner){.task = 2, .deadline_ns = 300 * MS});
    (void)add(0, (struct admission_owner){.task = 3, .deadline_ns = 500 * MS});
    (void)add(1, (struct admission_owner){.task = 4, .deadline_ns = 400 * MS});
    static const int wanted[] = {2, 4, 1, 3, 0, -1};
    for (int i = 0; i < 6; i++)
        assert_int_equal(pick(1), wanted[i]);
    admission_free(&queue);
    /* A deadline that is near goes before each priority; among those the earliest first. */
    limits.promotion_slack_ns = 5 * MS;
    begin(limits);
    (void)add(0, (struct admission_owner){.task = 0, .deadline_ns = 100 * MS});
    (void)add(0, (struct admission_owner){
                     .task = 1, .deadline_ns = 9 * MS, .priority = YOLK_PRIORITY_LOW});
    (void)add(0, (struct admission_owner){
                     .task = 2, .deadline_ns = 8 * MS, .priority = YOLK_PRIORITY_MEDIUM});
    (void)add(0, (struct admission_owner){.task = 3, .deadline_ns = 200 * MS});
    (void)add(0, (struct admission_owner){
                     .task = 4, .deadline_ns = 9 * MS + 1, .priority = YOLK_PRIORITY_LOW});
    assert_int_equal(pick(4 * MS), 2);
    assert_int_equal(pick(4 * MS), 1);
    assert_int_equal(pick(4 * MS), 0);
    assert_int_equal(pick(4 * MS), 3);
    assert_int_equal(pick(4 * MS), 4);
    admission_free(&queue);
    limits.deadline_first = false; /* then deadlines count for nothing */
    begin(limits);
    (void)add(0, (struct admission_owner){.task = 0});
    (void)add(0, (struct admission_owner){.task = 1, .deadline_ns = 1});
    assert_int_equal(pick(4 * MS), 0);
    admission_free(&queue);
}

static void room_kept_for_staging(void **state)
{
    (void)state;
    struct admission_limits limits = small;
    limits.staging_owners = 1;
    limits.staging_bytes = 20;
    begin(limits);
    struct admission_load load = {0};
    for (int i = 0; i < 3; i++)
        (void)add(0, (struct admission_owner){.bytes = 20});
    admission_load_add(&load, 1, false);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    uint64_t token = add(0, (struct admission_owner){.bytes = 40, .staging = true});
    assert_int_equal(queue.bytes_outstanding, 100);
    admission_end(&queue, token);
    assert_int_equal(queue.staging_bytes_outstanding, 0);
    load = (struct admission_load){0};
    admission_load_add(&load, 21, true);
    admission_load_add(&load, 20, true);
    assert_int_equal(admission_reserve(&queue, &load), YOLK_ERR_LIMIT);
    admission_free(&queue);
}

static void contracts_hold_back_their_own_only(void **state)
{
    (void)state;
    struct admission_limits limits = small;
    limits.owners_max = 100;
    limits.dispatch_owners_max = 100;
    struct admission_account account = {.bytes_max = 10, .requests_max = 2};
    struct admission_class bound = {.bytes_account = &account, .requests_account = &account};
    begin(limits);
    admission_class_init(&bound);
    assert_false(admission_class_can_ever(&bound, 11));
    assert_true(admission_class_can_ever(&bound, 10));
    uint64_t first = add(0, (struct admission_owner){.bytes = 6, .task = 0, .class = &bound});
    (void)add(0, (struct admission_owner){.bytes = 6, .task = 1, .class = &bound});
    (void)add(0, (struct admission_owner){.bytes = 6, .task = 2});
    assert_int_equal(pick(0), 0);
    assert_false(admission_class_has_room(&bound, 6));
    assert_true(admission_class_has_room(&bound, 4));
    assert_int_equal(pick(0), 2);
    assert_int_equal(pick(0), -1);
    admission_end(&queue, first);
    assert_int_equal(pick(0), 1);
    /* By count, and charged when it comes. */
    admission_class_charge(&bound, 1);
    uint64_t waits =
        add(0, (struct admission_owner){.bytes = 1, .task = 3, .class = &bound, .charged = true});
    assert_false(admission_class_has_room(&bound, 1));
    assert_int_equal(pick(0), 3);
    admission_end(&queue, waits);
    assert_true(admission_class_has_room(&bound, 1));
    assert_int_equal(account.requests, 1);
    assert_int_equal(account.bytes, 6);
    admission_free(&queue);
}

/* -- Against a model that looks at everything each time -- */

enum { MODEL_OWNERS = 48, MODEL_CLASSES = 3, MODEL_STEPS = 6000 };
struct model_owner {
    bool live, dispatched;
    uint64_t token, bytes, deadline_ns, since_ns, order;
    int priority, class;
};
static struct model_owner model[MODEL_OWNERS];
static struct admission_account model_accounts[MODEL_CLASSES];
static struct admission_class model_classes[MODEL_CLASSES];

static bool model_sooner(const struct admission_limits *l, const struct model_owner *a,
                         const struct model_owner *b, uint64_t now_ns)
{
    int64_t standing[2];
    const struct model_owner *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        const struct model_owner *o = both[i];
        int64_t s = o->priority - (int64_t)((now_ns - o->since_ns) / (10 * MS));
        standing[i] = s < 0 ? 0 : s;
        if (l->deadline_first && l->promotion_slack_ns > 0 && o->deadline_ns != ADMISSION_NEVER &&
            o->deadline_ns <= now_ns + l->promotion_slack_ns)
            standing[i] = -1;
    }
    if (standing[0] != standing[1])
        return standing[0] < standing[1];
    if (l->deadline_first && a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    return a->order < b->order;
}

/* Which one is next: of each class and priority only the first one counts, since none passes
 * another of its own kind. */
static int model_next(const struct admission_limits *l, uint64_t now_ns)
{
    uint64_t bytes[MODEL_CLASSES] = {0}, count[MODEL_CLASSES] = {0}, dispatched = 0, owners = 0;
    for (int i = 0; i < MODEL_OWNERS; i++)
        if (model[i].live && model[i].dispatched) {
            bytes[model[i].class] += model[i].bytes;
            count[model[i].class]++;
            dispatched += model[i].bytes;
            owners++;
        }
    int best = -1;
    for (int i = 0; i < MODEL_OWNERS; i++) {
        const struct model_owner *o = &model[i];
        if (!o->live || o->dispatched)
            continue;
        bool first = true;
        for (int k = 0; k < MODEL_OWNERS; k++) {
            const struct model_owner *p = &model[k];
            if (k == i || !p->live || p->dispatched || p->class != o->class ||
                p->priority != o->priority)
                continue;
            if (l->deadline_first && p->deadline_ns != o->deadline_ns)
                first = first && o->deadline_ns < p->deadline_ns;
            else
                first = first && o->order < p->order;
        }
        if (!first || o->bytes + bytes[o->class] > model_accounts[o->class].bytes_max ||
            count[o->class] >= model_accounts[o->class].requests_max)
            continue;
        if (best < 0 || model_sooner(l, o, &model[best], now_ns))
            best = i;
    }
    if (best >= 0 && (owners >= l->dispatch_owners_max ||
                      dispatched + model[best].bytes > l->dispatch_bytes_max))
        return -1;
    return best;
}

static uint32_t at_once_count;

static void run_model(uint64_t seed, bool deadline_first)
{
    struct random_sim sim;
    random_sim_init(&sim, seed);
    const struct random random = random_sim_random(&sim);
    const struct admission_limits limits = {.owners_max = 32,
                                            .bytes_max = 600,
                                            .dispatch_owners_max = 5,
                                            .dispatch_bytes_max = 80,
                                            .deadline_first = deadline_first,
                                            .promotion_slack_ns = deadline_first ? 3 * MS : 0};
    uint64_t now_ns = 0, order = 0, live = 0, live_bytes = 0;
    begin(limits);
    memset(model, 0, sizeof(model));
    for (int i = 0; i < MODEL_CLASSES; i++) {
        model_accounts[i] = (struct admission_account){.bytes_max = i == 0 ? UINT64_MAX : 60,
                                                       .requests_max = i == 2 ? 2 : UINT64_MAX};
        model_classes[i] = (struct admission_class){.bytes_account = &model_accounts[i],
                                                    .requests_account = &model_accounts[i]};
        admission_class_init(&model_classes[i]);
    }
    for (int step = 0; step < MODEL_STEPS; step++) {
        uint64_t what = random_below(&random, 10);
        uint32_t i = (uint32_t)random_below(&random, MODEL_OWNERS);
        struct model_owner *o = &model[i];
        now_ns += random_below(&random, 2 * MS);
        if (what < 5 && !o->live) {
            struct admission_load load = {0};
            uint64_t size = random_below(&random, 40);
            admission_load_add(&load, size, false);
            enum yolk_status wanted =
                live + 1 > limits.owners_max || live_bytes + size > 600 ? YOLK_ERR_LIMIT : YOLK_OK;
            assert_int_equal(admission_reserve(&queue, &load), wanted);
            if (wanted != YOLK_OK)
                continue;
            *o = (struct model_owner){.live = true,
                                      .bytes = size,
                                      .since_ns = now_ns,
                                      .order = order++,
                                      .priority = (int)random_below(&random, 3),
                                      .class = (int)random_below(&random, MODEL_CLASSES)};
            o->deadline_ns = random_below(&random, 3) == 0
                                 ? ADMISSION_NEVER
                                 : now_ns + random_below(&random, 20 * MS);
            const struct admission_owner owner = {.bytes = size,
                                                  .deadline_ns = o->deadline_ns,
                                                  .priority = (enum yolk_priority)o->priority,
                                                  .class = &model_classes[o->class],
                                                  .task = i};
            /* Sometimes at once, which is the same as to be picked right away. */
            bool at_once =
                random_below(&random, 4) == 0 && admission_pass(&queue, owner.class, &load, false);
            if (at_once) {
                for (int k = 0; k < MODEL_OWNERS; k++)
                    assert_false(model[k].live && !model[k].dispatched && k != (int)i);
                assert_int_equal(model_next(&limits, now_ns), (int)i);
                o->dispatched = true;
                at_once_count++;
            }
            o->token = at_once ? ADMISSION_NONE : admission_add(&queue, now_ns, &owner);
            live++;
            live_bytes += size;
        } else if (what < 8) {
            struct admission_load load = {0};
            admission_load_add(&load, o->bytes, false);
            if (o->live && o->token == ADMISSION_NONE) {
                admission_passed_end(&queue, &model_classes[o->class], &load);
            } else {
                assert_int_equal(admission_is_dispatched(&queue, o->token),
                                 o->live && o->dispatched);
                admission_end(&queue, o->token); /* also of one that is over */
            }
            live -= o->live;
            live_bytes -= o->live ? o->bytes : 0;
            o->live = false;
        } else {
            int wanted = model_next(&limits, now_ns);
            assert_int_equal(pick(now_ns), wanted);
            if (wanted >= 0)
                model[wanted].dispatched = true;
        }
        assert_int_equal(queue.outstanding, live);
        assert_int_equal(queue.bytes_outstanding, live_bytes);
        assert_int_equal(queue.waiting + queue.dispatched, live);
    }
    admission_free(&queue);
}

static void as_the_model_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        run_model(seed, seed % 2 == 0);
    assert_true(at_once_count > 0);
}

/* One peer after the other does not answer: each leaves something of the window to the next. */
static void each_peer_has_its_share(void **state)
{
    (void)state;
    enum { SILENT = 6, MIB = 1 << 20 };
    begin((struct admission_limits){.owners_max = 1000,
                                    .bytes_max = 1000 * MIB,
                                    .dispatch_owners_max = 64,
                                    .dispatch_bytes_max = 64 * MIB});
    struct admission_peer peers[SILENT + 1] = {{0}};
    struct admission_class classes[SILENT + 1];
    uint64_t token, first[SILENT] = {0};
    for (int i = 0; i <= SILENT; i++) {
        memset(&classes[i], 0, sizeof(classes[i]));
        admission_class_init(&classes[i]);
        classes[i].peer = &peers[i];
    }
    for (int i = 0; i < SILENT; i++) {
        for (uint32_t n = 0; n < 100; n++)
            (void)add(0, (struct admission_owner){.bytes = 1, .class = &classes[i], .task = 1});
        while (admission_pick(&queue, 1, &token) != NULL)
            first[i] = first[i] == 0 ? token : first[i];
        assert_true(peers[i].owners > 0 && peers[i].owners < 100);
        assert_true(queue.dispatched < 64);
    }
    assert_int_equal(peers[0].owners, 32);
    /* Who answers is dispatched at once, before all those that wait, as often as it comes. */
    for (uint32_t n = 0; n < 200; n++) {
        uint64_t its =
            add(1, (struct admission_owner){.bytes = MIB, .class = &classes[SILENT], .task = 2});
        assert_int_equal(pick(2), 2);
        assert_int_equal(pick(2), -1);
        admission_end(&queue, its);
    }
    /* What a silent one gives back is for those that have less. */
    admission_end(&queue, first[0]);
    assert_int_equal(pick(3), -1);
    assert_int_equal(peers[0].owners, 31);
    admission_free(&queue);
}

static void a_share_is_of_bytes_too(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    begin((struct admission_limits){.owners_max = 1000,
                                    .bytes_max = 1000 * MIB,
                                    .dispatch_owners_max = 64,
                                    .dispatch_bytes_max = 64 * MIB});
    struct admission_peer silent = {0}, sound = {0};
    struct admission_class to_silent = {.peer = &silent}, to_sound = {.peer = &sound};
    uint64_t token;
    admission_class_init(&to_silent);
    admission_class_init(&to_sound);
    for (uint32_t n = 0; n < 8; n++)
        (void)add(0, (struct admission_owner){.bytes = 15 * MIB, .class = &to_silent});
    while (admission_pick(&queue, 1, &token) != NULL)
        ;
    assert_int_equal(silent.bytes, 30 * MIB);
    uint64_t its =
        add(1, (struct admission_owner){.bytes = 34 * MIB, .class = &to_sound, .task = 3});
    assert_int_equal(pick(2), 3);
    admission_end(&queue, its);
    assert_int_equal(sound.bytes, 0);
    admission_free(&queue);
}

enum { RUN_ROUNDS = 20000, RUN_MAX = 6 };

/* A queue with one class of one peer. */
struct lane {
    struct admission queue;
    struct admission_class class;
    struct admission_account account;
    struct admission_peer peer;
};

static void lane_begin(struct lane *lane, const struct admission_limits *limits, uint64_t bytes_max,
                       uint64_t requests_max)
{
    memset(lane, 0, sizeof(*lane));
    assert_int_equal(admission_init(&lane->queue, limits), YOLK_OK);
    lane->account =
        (struct admission_account){.bytes_max = bytes_max, .requests_max = requests_max};
    lane->class = (struct admission_class){
        .peer = &lane->peer, .bytes_account = &lane->account, .requests_account = &lane->account};
    admission_class_init(&lane->class);
}

static void lanes_are_equal(const struct lane *a, const struct lane *b)
{
    assert_int_equal(a->queue.dispatched, b->queue.dispatched);
    assert_int_equal(a->queue.bytes_dispatched, b->queue.bytes_dispatched);
    assert_int_equal(a->queue.outstanding, b->queue.outstanding);
    assert_int_equal(a->queue.bytes_outstanding, b->queue.bytes_outstanding);
    assert_int_equal(a->queue.staging_bytes_outstanding, b->queue.staging_bytes_outstanding);
    assert_memory_equal(&a->account, &b->account, sizeof(a->account));
    assert_memory_equal(&a->peer, &b->peer, sizeof(a->peer));
}

/* Several of one lane pass together if, and only if, each of them would be picked at once. */
static void a_run_passes_as_each_of_it_would(void **state)
{
    (void)state;
    struct random_sim sim;
    random_sim_init(&sim, 7);
    const struct random random = random_sim_random(&sim);
    uint32_t passed = 0, refused = 0;
    for (int round = 0; round < RUN_ROUNDS; round++) {
        const struct admission_limits limits = {
            .owners_max = 100,
            .bytes_max = UINT64_C(1) << 30,
            .dispatch_owners_max = 1 + (uint32_t)random_below(&random, 20),
            .dispatch_bytes_max = (1 + random_below(&random, 16)) << 20,
            .staging_bytes = 1 << 20};
        uint64_t bytes_max = random_below(&random, 24) << 20;
        uint64_t requests_max = 1 + random_below(&random, 12);
        struct lane runs, each;
        lane_begin(&runs, &limits, bytes_max, requests_max);
        lane_begin(&each, &limits, bytes_max, requests_max);
        for (int k = 0; k < 4; k++) {
            struct admission_load load = {0};
            uint64_t sizes[RUN_MAX], tokens[RUN_MAX], token;
            uint32_t count = 1 + (uint32_t)random_below(&random, RUN_MAX), picked = 0;
            for (uint32_t i = 0; i < count; i++) {
                sizes[i] = random_below(&random, 4) << 20;
                admission_load_add(&load, sizes[i], i == 0);
            }
            if (admission_reserve(&runs.queue, &load) != YOLK_OK)
                break;
            assert_int_equal(admission_reserve(&each.queue, &load), YOLK_OK);
            for (uint32_t i = 0; i < count; i++) {
                const struct admission_owner owner = {.bytes = sizes[i],
                                                      .deadline_ns = ADMISSION_NEVER,
                                                      .staging = i == 0,
                                                      .class = &each.class,
                                                      .task = i};
                tokens[i] = admission_add(&each.queue, 0, &owner);
                picked += admission_pick(&each.queue, 0, &token) != NULL;
            }
            bool pass = admission_pass(&runs.queue, &runs.class, &load, false);
            assert_int_equal(pass, picked == count);
            passed += pass;
            refused += !pass;
            if (!pass)
                break;
            lanes_are_equal(&runs, &each);
            if (random_below(&random, 2) == 0)
                continue;
            admission_passed_end(&runs.queue, &runs.class, &load);
            for (uint32_t i = 0; i < count; i++)
                admission_end(&each.queue, tokens[i]);
            lanes_are_equal(&runs, &each);
        }
        admission_free(&runs.queue);
        admission_free(&each.queue);
    }
    assert_true(passed > RUN_ROUNDS / 4 && refused > RUN_ROUNDS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_peer_has_its_share),
        cmocka_unit_test(a_share_is_of_bytes_too),
        cmocka_unit_test(windows_of_nothing),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(in_order_of_age_and_by_windows),
        cmocka_unit_test(by_priority_until_it_waited_long),
        cmocka_unit_test(earliest_deadline_first),
        cmocka_unit_test(room_kept_for_staging),
        cmocka_unit_test(contracts_hold_back_their_own_only),
        cmocka_unit_test(as_the_model_says),
        cmocka_unit_test(a_run_passes_as_each_of_it_would),
    };
    return cmocka_run_group_tests_name("engine.admission", tests, NULL, NULL);
}
