/* SPDX-License-Identifier: Apache-2.0 */
/* One run: random requests to several peers, cancels, deadlines, batches freed early, peers that
 * die and come back with other memory, and after each step the checks of what the engine promises:
 *
 * each task ends once, and what was told of it does not change; what is over is quiet, but for
 * STUCK; what should be over is not, only while its memory is not quiet; bytes in place never go
 * down; what was read is what the life named by the segment held, and no life answers after its
 * end; the queue's limits hold; healed, everything ends and each peer can be reached. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/internal.h"
#include "platform/clock.h"
#include "sim/engine/peers.h"
#include "sim/engine/run.h"

enum { HEAL_ROUNDS = 400, FINAL_TRIES = 200 };

const char *const peer_mark_text[PEER_MARK_COUNT] = {
#define X(name, text) [PEER_MARK_##name] = text,
    PEER_MARKS(X)
#undef X
};

struct task {
    struct yolk_request request;
    uint32_t slot;
    uint32_t peer;
    uint64_t life;
    uint64_t submitted_ns;
    bool canceled;
    bool refused;
    struct yolk_task_status last;
    uint8_t seed; /* of what it writes */
};

struct batch_of {
    uint64_t handle; /* 0: none */
    uint32_t count;
    struct task tasks[TASKS];
};

struct link {
    uint64_t handle;
    uint64_t life;
};

struct run {
    struct peers p;
    struct yolk_engine *engine;
    struct batch_of batches[BATCHES];
    struct link links[PEERS];
    bool queue, merge;
    uint32_t owners_max, dispatch_max;
    uint64_t accepted, terminal;
};

void peers_fail(struct peers *p, const char *format, ...)
{
    if (p->failure[0] != 0)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(p->failure, sizeof p->failure, format, args);
    va_end(args);
}

void peers_mark(struct peers *p, enum peer_mark mark)
{
    p->marks[mark]++;
}

uint64_t peers_below(struct peers *p, uint64_t bound)
{
    struct random random = random_sim_random(&p->dice);
    return random_below(&random, bound);
}

bool peers_chance(struct peers *p, uint32_t permille)
{
    /* Drawn also where nothing shall go wrong, so that the other dice stay the same. */
    bool hit = peers_below(p, 1000) < (uint64_t)permille * p->fault_permille / 1000;
    return hit && p->faults_on;
}

static uint64_t virtual_now(void *self)
{
    return ((struct peers *)self)->now_ns;
}

static void mix(struct run *r, uint64_t word)
{
    const uint64_t both[2] = {r->p.hash, word};
    r->p.hash = base_hash64(both, sizeof both);
}

/* -- memory -- */

static uint8_t guard_of(uint32_t slot)
{
    return (uint8_t)(0xa5 ^ slot * 3);
}

static void make_free(struct run *r, uint32_t slot)
{
    r->p.slots[slot] = SLOT_FREE;
    memset(r->p.local + slot * SLOT, guard_of(slot), SLOT);
}

static void check_guard(struct run *r, uint32_t slot)
{
    for (uint32_t i = 0; i < SLOT; i++)
        if (r->p.local[slot * SLOT + i] != guard_of(slot))
            peers_fail(&r->p, "slot %" PRIu32 ": byte %" PRIu32 " changed after its request ended",
                       slot, i);
}

/* -- the engine and its segments -- */

static void open_engine(struct run *r)
{
    const struct yolk_transport_ops *tables[WAYS];
    const void *wrapped[WAYS];
    for (uint32_t i = 0; i < WAYS; i++) {
        tables[i] = simulated_ops(i);
        wrapped[i] = &r->p;
    }
    struct yolk_engine_options options;
    yolk_engine_options_init(&options);
    options.transports = tables;
    options.transport_count = WAYS;
    options.wrapped = wrapped;
    options.transport.now_ns = virtual_now;
    options.transport.clock_self = &r->p;
    options.drain_limit_ms = DRAIN_MS;
    options.breaker_cooldown_ms = 20;
    options.window_slices = 1 + (uint32_t)peers_below(&r->p, 4);
    options.slice_bytes_max = 64 + peers_below(&r->p, SLOT);
    options.attempts_max = 1 + (uint32_t)peers_below(&r->p, 5);
    r->merge = peers_below(&r->p, 3) > 0;
    r->queue = peers_below(&r->p, 2) == 0;
    r->owners_max = 12 + (uint32_t)peers_below(&r->p, 20);
    r->dispatch_max = 1 + (uint32_t)peers_below(&r->p, 8);
    options.merge = r->merge ? YOLK_SWITCH_ON : YOLK_SWITCH_OFF;
    if (r->queue)
        options.queue = (struct yolk_queue_options){
            .enable = YOLK_SWITCH_ON,
            .owners_max = r->owners_max,
            .dispatch_owners_max = r->dispatch_max,
            .deadline_first = peers_below(&r->p, 2) == 0 ? YOLK_SWITCH_ON : YOLK_SWITCH_OFF,
        };
    enum yolk_status status = yolk_engine_create(&options, &r->engine);
    if (status == YOLK_OK) {
        quarantine_stop(r->engine); /* its thread: the run does what it does */
        status = yolk_engine_register(r->engine, r->p.local, sizeof r->p.local);
    }
    if (status != YOLK_OK)
        peers_fail(&r->p, "no engine: %s", yolk_last_error());
}

/* A handle of the peer's present life; where `old`, sometimes still of the one before. */
static void refresh_link(struct run *r, uint32_t peer, bool old)
{
    struct link *link = &r->links[peer];
    if (link->life == r->p.peers[peer].life ||
        (old && link->handle != 0 && peers_below(&r->p, 3) == 0))
        return;
    char text[96];
    uint64_t life = r->p.peers[peer].life;
    snprintf(text, sizeof text, "simulated=%" PRIu32 ".%" PRIu64 ";simulated2=%" PRIu32 ".%" PRIu64,
             peer, life, peer, life);
    const struct yolk_segment_descriptor descriptor = {life << 8 | peer, life, PEER_SIZE, text};
    if (link->handle != 0 && yolk_engine_segment_close(r->engine, link->handle) != YOLK_OK)
        peers_fail(&r->p, "a segment does not close");
    if (yolk_engine_segment_open(r->engine, &descriptor, 1, &link->handle) != YOLK_OK)
        peers_fail(&r->p, "a segment does not open");
    link->life = life;
}

/* -- what is told of tasks -- */

static void check_bytes(struct run *r, const struct task *task)
{
    const struct peer *peer = &r->p.peers[task->peer];
    const uint8_t *local = task->request.local;
    if (peer->life != task->life && peer->ended_ns <= task->submitted_ns)
        peers_fail(&r->p, "peer %" PRIu32 ": a request to a life that was over was done",
                   task->peer);
    for (uint64_t i = 0; i < task->request.size; i++) {
        uint64_t offset = task->request.offset + i;
        bool wrong = false;
        if (task->request.opcode == YOLK_READ)
            wrong = local[i] != peers_byte(task->peer, task->life, offset);
        else if (peer->life == task->life)
            wrong = peer->memory[offset] != (uint8_t)(task->seed + i);
        if (wrong) {
            peers_fail(&r->p,
                       "slot %" PRIu32 ": done, and byte %" PRIu64 " of %" PRIu64 " is wrong",
                       task->slot, i, task->request.size);
            return;
        }
    }
}

static void ended(struct run *r, struct task *task)
{
    struct peers *p = &r->p;
    enum yolk_status status = task->last.status;
    bool touched = peers_slot_is_touched(p, task->slot);
    r->terminal++;
    mix(r, p->now_ns);
    mix(r, (uint64_t)(uint32_t)status << 32 | task->slot);
    if (status == YOLK_ERR_STUCK) {
        peers_mark(p, PEER_MARK_STUCK);
        if (!touched)
            peers_fail(p, "slot %" PRIu32 " is called stuck, and is quiet", task->slot);
        p->slots[task->slot] = task->request.size > 0 ? SLOT_STUCK : SLOT_ORPHAN;
        return;
    }
    if (touched)
        peers_fail(p, "slot %" PRIu32 ": the end was told (%d) before the memory is quiet",
                   task->slot, (int)status);
    if (status == YOLK_OK) {
        if (task->last.transferred != task->request.size)
            peers_fail(p, "slot %" PRIu32 ": done with some of its bytes", task->slot);
        check_bytes(r, task);
        peers_mark(p, task->canceled ? PEER_MARK_LATE_CANCEL : PEER_MARK_OK);
    } else if (status == YOLK_ERR_CANCELED) {
        if (!task->canceled)
            peers_fail(p, "slot %" PRIu32 ": canceled, and nobody asked for it", task->slot);
        peers_mark(p, PEER_MARK_CANCELED);
    } else if (status == YOLK_ERR_TIMEOUT && task->request.deadline_ns != 0 &&
               p->now_ns >= task->request.deadline_ns) {
        peers_mark(p, PEER_MARK_TIMEOUT);
    } else {
        peers_mark(p, status == YOLK_ERR_STALE ? PEER_MARK_OLD_LIFE : PEER_MARK_FAILED);
    }
    make_free(r, task->slot);
}

static void check_pending(struct run *r, const struct task *task)
{
    struct peers *p = &r->p;
    uint64_t deadline = task->request.deadline_ns;
    bool over = task->canceled || (deadline != 0 && p->now_ns >= deadline);
    if (!over)
        return;
    peers_mark(p, PEER_MARK_UNQUIET);
    if (!peers_slot_is_touched(p, task->slot))
        peers_fail(p, "slot %" PRIu32 ": %s, quiet, and not over", task->slot,
                   task->canceled ? "canceled" : "out of time");
    if (deadline != 0 && p->now_ns > deadline + 4 * DRAIN_MS * CLOCK_NS_PER_MS && !task->canceled)
        peers_fail(p, "slot %" PRIu32 ": pending long after its deadline", task->slot);
}

static void look(struct run *r, uint32_t batch, uint32_t index)
{
    struct batch_of *b = &r->batches[batch];
    struct task *task = &b->tasks[index];
    struct yolk_task_status now, before = task->last;
    if (task->refused)
        return;
    if (yolk_engine_batch_poll(r->engine, b->handle, index, &now) != YOLK_OK) {
        peers_fail(&r->p, "a batch cannot be polled");
        return;
    }
    task->last = now;
    if (now.cookie != task->request.cookie)
        peers_fail(&r->p, "a task has the cookie of another");
    if (now.transferred < before.transferred || now.transferred > task->request.size)
        peers_fail(&r->p, "slot %" PRIu32 ": bytes in place went from %" PRIu64 " to %" PRIu64,
                   task->slot, before.transferred, now.transferred);
    if (before.terminal && (!now.terminal || now.status != before.status))
        peers_fail(&r->p, "slot %" PRIu32 ": an end was taken back", task->slot);
    if (now.terminal && !before.terminal)
        ended(r, task);
    else if (!now.terminal)
        check_pending(r, task);
}

/* Memory that became quiet is ours again. */
static void gather_slots(struct run *r)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        enum slot_state state = r->p.slots[slot];
        if ((state != SLOT_ORPHAN && state != SLOT_STUCK) || r->p.unreported[slot] > 0)
            continue;
        if (state == SLOT_STUCK)
            peers_mark(&r->p, PEER_MARK_REUSED);
        make_free(r, slot);
    }
}

static void check_queue(struct run *r)
{
    struct yolk_engine_stats s;
    uint32_t touched = peers_busy_slots_touched(&r->p);
    if (!r->queue)
        return;
    yolk_engine_stats(r->engine, &s);
    if (s.queued > 0)
        peers_mark(&r->p, PEER_MARK_QUEUED);
    if (s.dispatched > r->dispatch_max || s.queued + s.dispatched > r->owners_max)
        peers_fail(&r->p, "the queue holds %" PRIu64 ", %" PRIu64 " of them dispatched",
                   s.queued + s.dispatched, s.dispatched);
    if (!r->merge && touched > r->dispatch_max)
        peers_fail(&r->p, "%" PRIu32 " requests are under way, more than %" PRIu32, touched,
                   r->dispatch_max);
}

static void look_at_all(struct run *r)
{
    for (uint32_t i = 0; i < BATCHES; i++) {
        if (r->batches[i].handle == 0)
            continue;
        if (yolk_engine_batch_progress(r->engine, r->batches[i].handle, NULL) != YOLK_OK)
            peers_fail(&r->p, "a batch makes no progress");
        for (uint32_t k = 0; k < r->batches[i].count; k++)
            look(r, i, k);
    }
    (void)quarantine_reap(r->engine);
    gate_tick(r->engine);
    check_queue(r);
    gather_slots(r);
}

/* -- steps -- */

static uint32_t free_run(struct run *r, uint32_t wanted, uint32_t *first)
{
    uint32_t start = (uint32_t)peers_below(&r->p, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = (start + i) % SLOTS, count = 0;
        while (count < wanted && slot + count < SLOTS && r->p.slots[slot + count] == SLOT_FREE)
            count++;
        if (count > 0) {
            *first = slot;
            return count;
        }
    }
    return 0;
}

static void fill_task(struct run *r, struct task *task, uint32_t batch, uint32_t index,
                      uint32_t slot, bool whole)
{
    struct peers *p = &r->p;
    uint64_t size = whole ? SLOT : peers_below(p, SLOT + 1);
    check_guard(r, slot);
    task->slot = slot;
    task->submitted_ns = p->now_ns;
    task->seed = (uint8_t)peers_below(p, 256);
    task->request.local = p->local + slot * SLOT;
    task->request.size = size;
    task->request.cookie = (uint64_t)batch << 8 | index;
    task->request.offset = (uint64_t)slot * SLOT;
    if (task->request.opcode == YOLK_WRITE) {
        task->request.offset += (uint64_t)SLOTS * SLOT;
        for (uint64_t i = 0; i < size; i++)
            p->local[slot * SLOT + i] = (uint8_t)(task->seed + i);
    }
    p->slots[slot] = SLOT_BUSY;
}

static void pick_manner(struct run *r, struct task *task)
{
    struct peers *p = &r->p;
    task->peer = (uint32_t)peers_below(p, PEERS);
    const struct link *link = &r->links[task->peer];
    task->life = link->life;
    task->request.segment = link->handle;
    task->request.opcode = peers_below(p, 2) == 0 ? YOLK_READ : YOLK_WRITE;
    task->request.priority = (enum yolk_priority)peers_below(p, 3);
    task->request.hint = peers_below(p, 4) == 0 ? "simulated2" : NULL;
    if (peers_below(p, 3) == 0)
        task->request.deadline_ns = p->now_ns + 1 + peers_below(p, 20 * CLOCK_NS_PER_MS);
}

static void drop_refused(struct run *r, struct batch_of *b)
{
    peers_mark(&r->p, PEER_MARK_LIMIT);
    for (uint32_t i = 0; i < b->count; i++)
        make_free(r, b->tasks[i].slot);
    if (!r->queue)
        peers_fail(&r->p, "a submit was refused for a limit that nobody set");
    if (yolk_engine_batch_free(r->engine, b->handle) != YOLK_OK)
        peers_fail(&r->p, "a batch cannot be freed");
    b->handle = 0;
}

static void step_submit(struct run *r, uint32_t batch)
{
    struct batch_of *b = &r->batches[batch];
    struct yolk_request requests[TASKS];
    enum yolk_status verdicts[TASKS] = {YOLK_OK};
    uint32_t first = 0;
    uint32_t count = free_run(r, 1 + (uint32_t)peers_below(&r->p, TASKS), &first);
    bool alike = peers_below(&r->p, 2) == 0;
    memset(b, 0, sizeof *b);
    for (uint32_t i = 0; i < PEERS; i++)
        refresh_link(r, i, true);
    if (count == 0 || yolk_engine_batch_create(r->engine, TASKS, &b->handle) != YOLK_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && alike)
            b->tasks[i] = b->tasks[0];
        else
            pick_manner(r, &b->tasks[i]);
        fill_task(r, &b->tasks[i], batch, i, first + i, alike);
        requests[i] = b->tasks[i].request;
    }
    b->count = count;
    enum yolk_status status =
        yolk_engine_batch_submit(r->engine, b->handle, requests, count, verdicts, NULL);
    if (status == YOLK_ERR_LIMIT) {
        drop_refused(r, b);
        return;
    }
    r->accepted += count;
    for (uint32_t i = 0; i < count; i++)
        if (verdicts[i] != YOLK_OK)
            peers_fail(&r->p, "a request is refused: %d: %s", (int)verdicts[i], yolk_last_error());
}

/* Memory that a stuck request may touch is refused. */
static void step_busy(struct run *r)
{
    uint32_t slot = (uint32_t)peers_below(&r->p, SLOTS);
    uint64_t handle;
    enum yolk_status verdict = YOLK_OK;
    if (r->p.slots[slot] != SLOT_STUCK || !peers_slot_is_touched(&r->p, slot) ||
        yolk_engine_batch_create(r->engine, 1, &handle) != YOLK_OK)
        return;
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = r->p.local + slot * SLOT,
                                         .segment = r->links[0].handle,
                                         .size = 1};
    (void)!yolk_engine_batch_submit(r->engine, handle, &request, 1, &verdict, NULL);
    if (verdict != YOLK_ERR_BUSY && verdict != YOLK_ERR_LIMIT)
        peers_fail(&r->p, "slot %" PRIu32 " is stuck, and a request for it was not refused: %d",
                   slot, (int)verdict);
    peers_mark(&r->p, PEER_MARK_BUSY);
    if (yolk_engine_batch_free(r->engine, handle) != YOLK_OK)
        peers_fail(&r->p, "a batch cannot be freed");
}

static void step_cancel(struct run *r, uint32_t batch)
{
    struct batch_of *b = &r->batches[batch];
    if (b->handle == 0 || b->count == 0)
        return;
    struct task *task = &b->tasks[peers_below(&r->p, b->count)];
    if (yolk_engine_batch_cancel(r->engine, b->handle, (uint32_t)(task - b->tasks)) != YOLK_OK)
        peers_fail(&r->p, "a task cannot be canceled");
    task->canceled = task->canceled || !task->last.terminal;
}

static void step_free(struct run *r, uint32_t batch)
{
    struct batch_of *b = &r->batches[batch];
    struct yolk_task_status ignored;
    if (b->handle == 0)
        return;
    if (yolk_engine_batch_free(r->engine, b->handle) != YOLK_OK)
        peers_fail(&r->p, "a batch cannot be freed");
    if (b->count > 0 && yolk_engine_batch_poll(r->engine, b->handle, 0, &ignored) != YOLK_ERR_STALE)
        peers_fail(&r->p, "a batch that was freed can be polled");
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->tasks[i].last.terminal)
            continue;
        r->terminal++;
        r->p.slots[b->tasks[i].slot] = SLOT_ORPHAN;
        peers_mark(&r->p, PEER_MARK_FREED);
    }
    b->handle = 0;
}

static void step_peer(struct run *r, uint32_t peer)
{
    struct peer *one = &r->p.peers[peer];
    if (!one->alive && r->p.now_ns >= one->restart_ns) {
        peers_start(&r->p, peer);
        peers_mark(&r->p, PEER_MARK_RESTARTED);
    } else if (one->alive && peers_chance(&r->p, 100)) {
        peers_kill(&r->p, peer);
        one->restart_ns = r->p.now_ns + peers_below(&r->p, 10 * CLOCK_NS_PER_MS);
    }
}

static void step_time(struct run *r)
{
    uint64_t most = peers_below(&r->p, 40) == 0 ? 2 * DRAIN_MS * CLOCK_NS_PER_MS : 400000;
    peers_advance(&r->p, r->p.now_ns + peers_below(&r->p, most));
}

static void step(struct run *r)
{
    uint32_t batch = (uint32_t)peers_below(&r->p, BATCHES);
    switch (peers_below(&r->p, 10)) {
    case 0:
    case 1:
    case 2:
        if (r->batches[batch].handle == 0)
            step_submit(r, batch);
        else if (peers_below(&r->p, 3) == 0)
            step_free(r, batch);
        break;
    case 3:
        step_cancel(r, batch);
        break;
    case 4:
        step_peer(r, (uint32_t)peers_below(&r->p, PEERS));
        break;
    case 5:
        step_busy(r);
        break;
    default:
        step_time(r);
        break;
    }
    look_at_all(r);
}

/* -- the end -- */

static void heal(struct run *r)
{
    r->p.faults_on = false;
    peers_release(&r->p);
    for (uint32_t i = 0; i < PEERS; i++)
        if (!r->p.peers[i].alive)
            peers_start(&r->p, i);
    bool pending = true;
    for (uint32_t round = 0; round < HEAL_ROUNDS && pending && r->p.failure[0] == 0; round++) {
        peers_advance(&r->p, r->p.now_ns + 4 * CLOCK_NS_PER_MS);
        look_at_all(r);
        pending = false;
        for (uint32_t i = 0; i < SLOTS; i++)
            pending = pending || r->p.slots[i] != SLOT_FREE;
    }
    if (pending)
        peers_fail(&r->p, "healed, and not everything ends");
    for (uint32_t i = 0; i < BATCHES; i++)
        step_free(r, i);
    look_at_all(r);
}

/* Each peer can be read, once the breakers try again. */
static void check_final(struct run *r)
{
    for (uint32_t peer = 0; peer < PEERS && r->p.failure[0] == 0; peer++) {
        struct batch_of *b = &r->batches[0];
        bool done = false;
        for (uint32_t i = 0; i < FINAL_TRIES && !done && r->p.failure[0] == 0; i++) {
            memset(b, 0, sizeof *b);
            struct task *task = &b->tasks[0];
            if (yolk_engine_batch_create(r->engine, 1, &b->handle) != YOLK_OK)
                peers_fail(&r->p, "no batch");
            refresh_link(r, peer, false);
            task->life = r->links[peer].life;
            task->peer = peer;
            task->request.segment = r->links[peer].handle;
            task->request.opcode = YOLK_READ;
            fill_task(r, task, 0, 0, peer, true);
            b->count = 1;
            enum yolk_status verdict;
            if (yolk_engine_batch_submit(r->engine, b->handle, &task->request, 1, &verdict, NULL) !=
                YOLK_OK)
                peers_fail(&r->p, "healed, and a request is refused: %d", (int)verdict);
            r->accepted++;
            for (uint32_t k = 0; k < 20 && !task->last.terminal && r->p.failure[0] == 0; k++) {
                peers_advance(&r->p, r->p.now_ns + 2 * CLOCK_NS_PER_MS);
                look(r, 0, 0);
            }
            done = task->last.terminal && task->last.status == YOLK_OK;
            step_free(r, 0);
            look_at_all(r);
        }
        if (!done)
            peers_fail(&r->p, "healed, and peer %" PRIu32 " cannot be read", peer);
    }
}

static void check_books(struct run *r)
{
    struct yolk_engine_stats s;
    struct quarantine_look quarantine;
    yolk_engine_stats(r->engine, &s);
    quarantine_look(r->engine, &quarantine);
    uint64_t told =
        s.tasks_ok + s.tasks_failed + s.tasks_canceled + s.tasks_timeout + s.tasks_stuck;
    if (s.tasks_submitted != told || s.tasks_submitted != r->accepted || r->accepted != r->terminal)
        peers_fail(&r->p,
                   "%" PRIu64 " requests, %" PRIu64 " by the engine, %" PRIu64
                   " ends by the engine, %" PRIu64 " seen",
                   r->accepted, s.tasks_submitted, told, r->terminal);
    if (quarantine.count != 0)
        peers_fail(&r->p, "healed, and %" PRIu64 " batches are in quarantine", quarantine.count);
    r->p.marks[PEER_MARK_MERGED] += s.tasks_merged;
    r->p.marks[PEER_MARK_FAILED_OVER] += s.slices_failed_over;
    r->p.marks[PEER_MARK_BREAKER] += s.breakers_opened;
    mix(r, s.slices_submitted);
    mix(r, s.completions_unknown);
}

static void close_run(struct run *r)
{
    for (uint32_t i = 0; i < PEERS; i++)
        if (r->links[i].handle != 0 &&
            yolk_engine_segment_close(r->engine, r->links[i].handle) != YOLK_OK)
            peers_fail(&r->p, "a segment does not close");
    /* Where a check failed, something may still be under way. */
    r->p.faults_on = false;
    for (uint32_t i = 0; i < BATCHES; i++)
        if (r->batches[i].handle != 0)
            (void)!yolk_engine_batch_free(r->engine, r->batches[i].handle);
    for (uint32_t i = 0; i < HEAL_ROUNDS && quarantine_reap(r->engine) > 0; i++) {
        peers_release(&r->p);
        peers_advance(&r->p, r->p.now_ns + 4 * CLOCK_NS_PER_MS);
    }
    if (yolk_engine_destroy(r->engine) != YOLK_OK)
        peers_fail(&r->p, "the engine does not end: %s", yolk_last_error());
}

uint64_t sim_engine_run(uint64_t seed, uint64_t steps, uint64_t *marks, char *failure,
                        size_t failure_size)
{
    struct run *r = calloc(1, sizeof *r);
    assert(r != NULL);
    r->p.now_ns = CLOCK_NS_PER_S;
    r->p.faults_on = true;
    base_list_init(&r->p.ios);
    random_sim_init(&r->p.dice, seed);
    r->p.fault_permille = (uint32_t)peers_below(&r->p, 1001);
    for (uint32_t i = 0; i < PEERS; i++)
        peers_start(&r->p, i);
    for (uint32_t i = 0; i < SLOTS; i++)
        make_free(r, i);
    open_engine(r);
    for (uint64_t i = 0; i < steps && r->p.failure[0] == 0; i++)
        step(r);
    if (r->p.failure[0] == 0)
        heal(r);
    if (r->p.failure[0] == 0)
        check_final(r);
    if (r->p.failure[0] == 0)
        check_books(r);
    if (r->engine != NULL)
        close_run(r);
    for (int i = 0; i < PEER_MARK_COUNT; i++)
        marks[i] += r->p.marks[i];
    snprintf(failure, failure_size, "%s", r->p.failure);
    uint64_t hash = r->p.hash;
    free(r);
    return hash;
}
