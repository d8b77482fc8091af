/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gate.h"

#include "base/error.h"
#include "base/limits.h"
#include "engine/internal.h"

enum { OWNERS_DEFAULT = 1024, DISPATCH_OWNERS_DEFAULT = 64, TICK_DEFAULT_MS = 50 };
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
        .dispatch_bytes_max = queue->dispatch_bytes_max == 0 ? 64 * MIB : queue->dispatch_bytes_max,
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

void gate_free(struct yolk_engine *engine)
{
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

static void add_owner(struct gate *gate, struct batch *batch, uint32_t index, uint64_t now_ns,
                      bool at_once)
{
    struct engine_task *task = &batch->tasks[index];
    const struct batch_task *state = &batch->state.tasks[index];
    const struct admission_owner owner = {.bytes = state->span,
                                          .deadline_ns = state->deadline_ns,
                                          .priority = task->priority,
                                          .staging = task->staging,
                                          .charged = task->gate.charged,
                                          .class = &task->gate.contract->admission,
                                          .batch = batch,
                                          .task = index};
    /* Where all of a submit fit, their order among each other is the batch's. */
    task->gate.token =
        at_once ? admission_add_dispatched(&gate->admission, now_ns, &owner) : ADMISSION_NONE;
    if (task->gate.token != ADMISSION_NONE) {
        batch_state_release(&batch->state, index);
    } else {
        task->gate.token = admission_add(&gate->admission, now_ns, &owner);
        task->gate.held = true;
        batch->gate.held++;
    }
    if (batch->gate.owners++ == 0) {
        base_list_push_back(&gate->batches, &batch->gate.node);
        atomic_fetch_add(&gate->batch_count, 1);
    }
}

enum yolk_status gate_admit(struct yolk_engine *engine, struct batch *batch, uint32_t first,
                            uint64_t now_ns)
{
    struct gate *gate = &engine->gate;
    struct admission_load load = {0};
    for (uint32_t i = first; i < batch->state.task_count; i++)
        if (is_owner(batch, i))
            admission_load_add(&load, batch->state.tasks[i].span, batch->tasks[i].staging);
    pthread_mutex_lock(&gate->lock);
    bool was_idle = base_list_empty(&gate->batches);
    const struct admission *a = &gate->admission;
    enum yolk_status status = admission_reserve(&gate->admission, &load);
    bool at_once = load.owners <= a->limits.dispatch_owners_max - a->dispatched &&
                   load.bytes <= a->limits.dispatch_bytes_max - a->bytes_dispatched;
    for (uint32_t i = first; status == YOLK_OK && i < batch->state.task_count; i++)
        if (is_owner(batch, i))
            add_owner(gate, batch, i, now_ns, at_once);
    if (status == YOLK_OK)
        pump(gate, now_ns);
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

void gate_settle(struct yolk_engine *engine, struct batch *batch)
{
    struct gate *gate = &engine->gate;
    if (batch->gate.ended == BATCH_NONE)
        return;
    pthread_mutex_lock(&gate->lock);
    for (uint32_t i = batch->gate.ended; i != BATCH_NONE; i = batch->tasks[i].gate.ended_next) {
        admission_end(&gate->admission, batch->tasks[i].gate.token);
        batch->gate.owners--;
    }
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
