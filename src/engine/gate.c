/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gate.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/limits.h"
#include "engine/internal.h"

enum { OWNERS_DEFAULT = 1024, DISPATCH_OWNERS_DEFAULT = 128, TICK_DEFAULT_MS = 50 };
/* Contracts without a queue: the number of tasks is all that bounds it. */
#define NO_BYTES_MAX (UINT64_MAX / 2)

static struct admission_limits limits_of(const struct yolk_queue_options *queue)
{
    if (queue->enable != YOLK_SWITCH_ON)
        return (struct admission_limits){.owners_max = ADMISSION_OWNERS_MAX,
                                         .bytes_max = NO_BYTES_MAX,
                                         .dispatch_owners_max = ADMISSION_OWNERS_MAX,
                                         .dispatch_bytes_max = NO_BYTES_MAX};
    return (struct admission_limits){
        .owners_max = queue->owners_max == 0 ? OWNERS_DEFAULT : queue->owners_max,
        .bytes_max = queue->bytes_max == 0 ? GIB : queue->bytes_max,
        .dispatch_owners_max =
            queue->dispatch_owners_max == 0 ? DISPATCH_OWNERS_DEFAULT : queue->dispatch_owners_max,
        .dispatch_bytes_max =
            queue->dispatch_bytes_max == 0 ? 128 * MIB : queue->dispatch_bytes_max,
        .staging_owners = queue->staging_owners,
        .staging_bytes = queue->staging_bytes,
        .deadline_first = queue->deadline_first == YOLK_SWITCH_ON,
        .promotion_slack_ns = queue->promotion_slack_ns};
}

enum yolk_status gate_start(struct yolk_engine *engine, const struct yolk_engine_options *options)
{
    struct gate *gate = &engine->gate;
    base_list_init(&gate->batches);
    pthread_mutex_init(&gate->lock, NULL);
    gate->queue = options->queue.enable == YOLK_SWITCH_ON;
    if (!gate->queue && options->qos_json == NULL)
        return YOLK_OK;
    const struct admission_limits limits = limits_of(&options->queue);
    enum yolk_status status = qos_parse(options->qos_json, &gate->qos);
    if (status == YOLK_OK)
        status = admission_init(&gate->admission, &limits);
    if (status != YOLK_OK)
        return status;
    gate->tick_ms = options->queue.tick_ms == 0 ? TICK_DEFAULT_MS : options->queue.tick_ms;
    gate->on = true;
    if (engine->merge_bytes_max > limits.dispatch_bytes_max)
        engine->merge_bytes_max = limits.dispatch_bytes_max;
    return YOLK_OK;
}

/* ---- whom requests go to; the gate's lock is held ---- */

static struct gate_peer **bucket_of(struct gate *gate, const void *segment)
{
    return &gate->peers[base_mix64((uintptr_t)segment) % GATE_BUCKETS];
}

static void free_peer(struct gate_peer *peer)
{
    while (peer->lanes != NULL) {
        struct gate_lane *lane = peer->lanes;
        peer->lanes = lane->next;
        free(lane);
    }
    free(peer);
}

/* Too many are kept for nothing. */
static void drop_idle_peers(struct gate *gate)
{
    for (uint32_t i = 0; i < GATE_BUCKETS; i++) {
        for (struct gate_peer **at = &gate->peers[i]; *at != NULL;) {
            struct gate_peer *peer = *at;
            if (peer->owners > 0) {
                at = &peer->next;
                continue;
            }
            *at = peer->next;
            free_peer(peer);
        }
    }
    gate->idle_peers = 0;
}

static struct gate_peer *peer_of(struct gate *gate, const void *segment)
{
    struct gate_peer **bucket = bucket_of(gate, segment);
    for (struct gate_peer *peer = *bucket; peer != NULL; peer = peer->next)
        if (peer->segment == segment)
            return peer;
    struct gate_peer *peer = base_calloc(1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->segment = segment;
    peer->next = *bucket;
    *bucket = peer;
    gate->idle_peers++;
    return peer;
}

static struct gate_lane *lane_of(struct gate_peer *peer, const struct qos_class *contract)
{
    for (struct gate_lane *lane = peer->lanes; lane != NULL; lane = lane->next)
        if (lane->contract == contract)
            return lane;
    struct gate_lane *lane = base_calloc(1, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->peer = peer;
    lane->contract = contract;
    lane->class = contract->admission; /* its accounts; none waits in that itself */
    lane->class.peer = &peer->share;
    lane->next = peer->lanes;
    peer->lanes = lane;
    return lane;
}

void gate_free(struct yolk_engine *engine)
{
    for (uint32_t i = 0; i < GATE_BUCKETS; i++) {
        while (engine->gate.peers[i] != NULL) {
            struct gate_peer *peer = engine->gate.peers[i];
            engine->gate.peers[i] = peer->next;
            free_peer(peer);
        }
    }
    qos_free(&engine->gate.qos);
    admission_free(&engine->gate.admission);
    pthread_mutex_destroy(&engine->gate.lock);
}

struct qos_class *gate_contract(struct yolk_engine *engine, const struct yolk_request *request,
                                enum yolk_priority *priority)
{
    *priority = request->priority;
    if (!engine->gate.on)
        return NULL;
    struct qos_class *contract = qos_find(&engine->gate.qos, request->tenant, request->intent);
    if (contract->has_priority)
        *priority = contract->priority;
    return contract;
}

static enum yolk_status over_contract(struct gate *gate, const struct yolk_request *request,
                                      const char *what)
{
    atomic_fetch_add(&gate->refused, 1);
    return base_fail(YOLK_ERR_LIMIT, 0,
                     "tenant \"%.63s\", intent %s: a request of %llu bytes %s its contract",
                     request->tenant != NULL ? request->tenant : "",
                     policy_intent_name(request->intent), (unsigned long long)request->size, what);
}

enum yolk_status gate_check(struct yolk_engine *engine, struct gate_task *task,
                            const struct yolk_request *request)
{
    struct gate *gate = &engine->gate;
    struct qos_class *contract = task->contract;
    if (!admission_class_can_ever(&contract->admission, request->size))
        return over_contract(gate, request, "is larger than max_inflight_bytes of");
    if ((contract->actions & QOS_DELAY) != 0)
        return YOLK_OK;
    pthread_mutex_lock(&gate->lock);
    task->charged = admission_class_has_room(&contract->admission, request->size);
    if (task->charged)
        admission_class_charge(&contract->admission, request->size);
    pthread_mutex_unlock(&gate->lock);
    return task->charged ? YOLK_OK
                         : over_contract(gate, request,
                                         "would have to wait, which is not among the "
                                         "allowed_degraded_actions of");
}

void gate_forget(struct yolk_engine *engine, struct gate_task *task, uint64_t bytes)
{
    if (!task->charged)
        return;
    pthread_mutex_lock(&engine->gate.lock);
    admission_class_credit(&task->contract->admission, bytes);
    pthread_mutex_unlock(&engine->gate.lock);
    task->charged = false;
}

bool gate_may_merge(const struct yolk_engine *engine, const struct gate_task *task, uint64_t bytes)
{
    return !engine->gate.on || ((task->contract->actions & QOS_DELAY) != 0 &&
                                admission_class_can_ever(&task->contract->admission, bytes));
}

/* The gate's lock is held. Each one dispatched is told to its batch, in order. */
static void pump(struct gate *gate, uint64_t now_ns)
{
    const struct admission_owner *owner;
    uint64_t token;
    while ((owner = admission_pick(&gate->admission, now_ns, &token)) != NULL) {
        struct batch *batch = owner->batch;
        struct gate_batch *its = &batch->gate;
        batch->tasks[owner->task].gate.next = BATCH_NONE;
        if (atomic_load(&its->released) == BATCH_NONE)
            atomic_store(&its->released, owner->task);
        else
            batch->tasks[its->released_last].gate.next = owner->task;
        its->released_last = owner->task;
    }
}

static bool is_owner(const struct batch *batch, uint32_t index)
{
    const struct batch_task *task = &batch->state.tasks[index];
    return task->head == index && !task->terminal;
}

/* All that the owners of a submit need, before any of them is let in. load: what they come to. */
static enum yolk_status make_lanes(struct gate *gate, struct batch *batch, uint32_t first,
                                   struct admission_load *load)
{
    struct gate_lane *lane = NULL;
    if (gate->idle_peers > GATE_IDLE_MAX)
        drop_idle_peers(gate);
    for (uint32_t i = first; i < batch->state.task_count; i++) {
        struct engine_task *task = &batch->tasks[i];
        if (!is_owner(batch, i))
            continue;
        if (lane == NULL || lane->peer->segment != task->segment ||
            lane->contract != task->gate.contract) {
            struct gate_peer *peer = peer_of(gate, task->segment);
            lane = peer != NULL ? lane_of(peer, task->gate.contract) : NULL;
            if (lane == NULL)
                return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the queue of a peer");
        }
        task->gate.lane = lane;
        task->gate.token = ADMISSION_NONE;
        admission_load_add(load, batch->state.tasks[i].span, task->staging);
    }
    return YOLK_OK;
}

/* Owners of a submit that follow each other in one lane: tasks [first, end). */
struct run {
    struct gate_lane *lane; /* NULL: none is left */
    uint32_t first, end;
    struct admission_load load;
    bool charged;
};

static struct run run_from(const struct batch *batch, uint32_t first)
{
    struct run run = {.first = first, .end = first};
    for (; run.end < batch->state.task_count; run.end++) {
        const struct engine_task *task = &batch->tasks[run.end];
        if (!is_owner(batch, run.end))
            continue;
        if (run.lane == NULL) {
            run.lane = task->gate.lane;
            run.charged = task->gate.charged; /* which is up to the contract */
        }
        if (run.lane != task->gate.lane)
            break;
        admission_load_add(&run.load, batch->state.tasks[run.end].span, task->staging);
    }
    return run;
}

static void wait_in_queue(struct gate *gate, struct batch *batch, uint32_t index, uint64_t now_ns)
{
    struct engine_task *task = &batch->tasks[index];
    const struct batch_task *state = &batch->state.tasks[index];
    const struct admission_owner owner = {.bytes = state->span,
                                          .deadline_ns = state->deadline_ns,
                                          .priority = task->priority,
                                          .staging = task->staging,
                                          .charged = task->gate.charged,
                                          .class = &task->gate.lane->class,
                                          .batch = batch,
                                          .task = index};
    task->gate.token = admission_add(&gate->admission, now_ns, &owner);
    task->gate.held = true;
    batch->gate.held++;
}

/* All of it at once, or one by one as far as there is room. at_once: all of the submit fit, so
 * their order among each other is the batch's. */
static void add_run(struct gate *gate, struct batch *batch, const struct run *run, uint64_t now_ns,
                    bool at_once)
{
    struct admission_class *class = &run->lane->class;
    bool all = at_once && admission_pass(&gate->admission, class, &run->load, run->charged);
    for (uint32_t i = run->first; i < run->end; i++) {
        struct admission_load one = {0};
        if (!is_owner(batch, i))
            continue;
        admission_load_add(&one, batch->state.tasks[i].span, batch->tasks[i].staging);
        if (all || (at_once && admission_pass(&gate->admission, class, &one, run->charged)))
            batch_state_release(&batch->state, i);
        else
            wait_in_queue(gate, batch, i, now_ns);
    }
    gate->idle_peers -= run->lane->peer->owners == 0;
    run->lane->peer->owners += run->load.owners;
    if (batch->gate.owners == 0) {
        base_list_push_back(&gate->batches, &batch->gate.node);
        atomic_fetch_add(&gate->batch_count, 1);
    }
    batch->gate.owners += run->load.owners;
}

enum yolk_status gate_admit(struct yolk_engine *engine, struct batch *batch, uint32_t first,
                            uint64_t now_ns)
{
    struct gate *gate = &engine->gate;
    struct admission_load load = {0};
    pthread_mutex_lock(&gate->lock);
    bool was_idle = base_list_empty(&gate->batches);
    const struct admission *a = &gate->admission;
    enum yolk_status status = make_lanes(gate, batch, first, &load);
    if (status == YOLK_OK)
        status = admission_reserve(&gate->admission, &load);
    bool at_once = load.owners <= a->limits.dispatch_owners_max - a->dispatched &&
                   load.bytes <= a->limits.dispatch_bytes_max - a->bytes_dispatched;
    if (status == YOLK_OK) {
        struct run run = run_from(batch, first);
        for (; run.lane != NULL; run = run_from(batch, run.end))
            add_run(gate, batch, &run, now_ns, at_once);
        pump(gate, now_ns);
    }
    bool wake = was_idle && !base_list_empty(&gate->batches);
    pthread_mutex_unlock(&gate->lock);
    if (status == YOLK_ERR_LIMIT)
        atomic_fetch_add(&gate->refused, 1);
    if (wake)
        quarantine_wake(engine);
    return status;
}

static void let_go(struct batch *batch, uint32_t index)
{
    batch->gate.held -= batch->tasks[index].gate.held;
    batch->tasks[index].gate.held = false;
}

bool gate_release(struct yolk_engine *engine, struct batch *batch)
{
    struct gate *gate = &engine->gate;
    if (atomic_load_explicit(&batch->gate.released, memory_order_acquire) == BATCH_NONE)
        return false;
    pthread_mutex_lock(&gate->lock);
    uint32_t index = atomic_exchange(&batch->gate.released, BATCH_NONE);
    for (; index != BATCH_NONE; index = batch->tasks[index].gate.next) {
        let_go(batch, index);
        batch_state_release(&batch->state, index);
    }
    pthread_mutex_unlock(&gate->lock);
    return true;
}

void gate_end(struct batch *batch, uint32_t index)
{
    struct gate_task *task = &batch->tasks[index].gate;
    task->contract = NULL;
    let_go(batch, index);
    task->ended_next = batch->gate.ended;
    batch->gate.ended = index;
}

/* So many owners of the lane are over, of those with a record none. */
static void lane_end(struct gate *gate, struct gate_lane *lane, const struct admission_load *load)
{
    admission_passed_end(&gate->admission, &lane->class, load);
    lane->peer->owners -= load->owners;
    gate->idle_peers += lane->peer->owners == 0;
}

void gate_settle(struct yolk_engine *engine, struct batch *batch)
{
    struct gate *gate = &engine->gate;
    struct gate_lane *lane = NULL;
    struct admission_load load = {0}; /* of those that passed in that lane, one after the other */
    if (batch->gate.ended == BATCH_NONE)
        return;
    pthread_mutex_lock(&gate->lock);
    for (uint32_t i = batch->gate.ended; i != BATCH_NONE; i = batch->tasks[i].gate.ended_next) {
        const struct engine_task *task = &batch->tasks[i];
        batch->gate.owners--;
        if (task->gate.token != ADMISSION_NONE) {
            admission_end(&gate->admission, task->gate.token);
            gate->idle_peers += --task->gate.lane->peer->owners == 0;
            continue;
        }
        if (lane != NULL && lane != task->gate.lane) {
            lane_end(gate, lane, &load);
            load = (struct admission_load){0};
        }
        lane = task->gate.lane;
        admission_load_add(&load, batch->state.tasks[i].span, task->staging);
    }
    if (lane != NULL)
        lane_end(gate, lane, &load);
    batch->gate.ended = BATCH_NONE;
    if (batch->gate.owners == 0) {
        base_list_remove(&batch->gate.node);
        base_list_init(&batch->gate.node);
        atomic_fetch_sub(&gate->batch_count, 1);
    }
    pump(gate, engine_now(engine));
    pthread_mutex_unlock(&gate->lock);
}

void gate_tick(struct yolk_engine *engine)
{
    struct gate *gate = &engine->gate;
    for (uint32_t left = atomic_load(&gate->batch_count); left > 0; left--) {
        pthread_mutex_lock(&gate->lock);
        struct base_list *node = base_list_pop_front(&gate->batches);
        if (node != NULL)
            base_list_push_back(&gate->batches, node);
        pump(gate, engine_now(engine)); /* one may stand higher by now */
        pthread_mutex_unlock(&gate->lock);
        if (node == NULL)
            return;
        /* A slot is there as long as the engine; what is in it by now makes no difference. One that
         * is locked is being looked after, or waits for a peer that must not delay the others. */
        struct batch *batch = BASE_CONTAINER(node, struct batch, gate.node);
        if (pthread_mutex_trylock(&batch->lock) != 0)
            continue;
        if (gate_holds(&batch->gate))
            (void)batch_progress(engine, batch);
        pthread_mutex_unlock(&batch->lock);
    }
}

void gate_stats(struct yolk_engine *engine, struct yolk_engine_stats *out)
{
    struct gate *gate = &engine->gate;
    pthread_mutex_lock(&gate->lock);
    out->queued = gate->admission.waiting;
    out->dispatched = gate->admission.dispatched;
    pthread_mutex_unlock(&gate->lock);
    out->queue_refused = atomic_load(&gate->refused);
}
