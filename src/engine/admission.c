/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/admission.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define NONE UINT32_MAX
enum { FREE, WAITING, DISPATCHED };

enum yolk_status admission_init(struct admission *a, const struct admission_limits *limits)
{
    memset(a, 0, sizeof(*a));
    if (limits->owners_max == 0 || limits->owners_max > ADMISSION_OWNERS_MAX)
        return base_fail(YOLK_ERR_INVALID, 0, "queue.owners_max is %u: must be 1 to %d",
                         limits->owners_max, ADMISSION_OWNERS_MAX);
    if (limits->bytes_max == 0 || limits->dispatch_owners_max == 0 ||
        limits->dispatch_bytes_max == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a queue that holds or dispatches nothing");
    if (limits->staging_owners >= limits->owners_max || limits->staging_bytes >= limits->bytes_max)
        return base_fail(YOLK_ERR_INVALID, 0,
                         "queue.staging_owners is %u, staging_bytes %llu: must leave room for "
                         "others",
                         limits->staging_owners, (unsigned long long)limits->staging_bytes);
    a->limits = *limits;
    a->free_head = NONE;
    return YOLK_OK;
}

void admission_free(struct admission *a)
{
    free(a->owners);
    free(a->classes);
    memset(a, 0, sizeof(*a));
}

void admission_class_init(struct admission_class *class)
{
    for (int i = 0; i < ADMISSION_LEVELS; i++)
        class->heads[i] = NONE;
}

/* -- A pairing heap of owners for each class and level: no memory of its own, any one leaves it in
 * a few steps -- */

static bool comes_before(const struct admission *a, uint32_t x, uint32_t y)
{
    const struct admission_owner *one = &a->owners[x], *two = &a->owners[y];
    if (a->limits.deadline_first && one->deadline_ns != two->deadline_ns)
        return one->deadline_ns < two->deadline_ns;
    return one->order < two->order;
}

static uint32_t meld(struct admission *a, uint32_t x, uint32_t y)
{
    if (x == NONE)
        return y;
    if (y == NONE)
        return x;
    uint32_t top = comes_before(a, x, y) ? x : y;
    uint32_t low = top == x ? y : x;
    a->owners[low].next = a->owners[top].child;
    if (a->owners[low].next != NONE)
        a->owners[a->owners[low].next].before = low;
    a->owners[low].before = top;
    a->owners[top].child = low;
    return top;
}

/* The children of one that leaves become one heap: by pairs from the left, then from the right. */
static uint32_t meld_children(struct admission *a, uint32_t first)
{
    uint32_t pairs = NONE; /* linked by `before` */
    while (first != NONE) {
        uint32_t one = first, two = a->owners[one].next;
        first = two != NONE ? a->owners[two].next : NONE;
        a->owners[one].next = NONE;
        if (two != NONE)
            a->owners[two].next = NONE;
        uint32_t pair = meld(a, one, two);
        a->owners[pair].next = NONE;
        a->owners[pair].before = pairs;
        pairs = pair;
    }
    uint32_t heap = NONE;
    while (pairs != NONE) {
        uint32_t before = a->owners[pairs].before;
        heap = meld(a, heap, pairs);
        pairs = before;
    }
    if (heap != NONE) {
        a->owners[heap].next = NONE;
        a->owners[heap].before = NONE;
    }
    return heap;
}

static void heap_remove(struct admission *a, uint32_t *head, uint32_t index)
{
    struct admission_owner *owner = &a->owners[index];
    uint32_t rest = meld_children(a, owner->child);
    owner->child = NONE;
    if (*head == index) {
        *head = rest;
        return;
    }
    if (a->owners[owner->before].child == index)
        a->owners[owner->before].child = owner->next;
    else
        a->owners[owner->before].next = owner->next;
    if (owner->next != NONE)
        a->owners[owner->next].before = owner->before;
    owner->next = NONE;
    owner->before = NONE;
    *head = meld(a, *head, rest);
}

/* -- Admission -- */

static enum yolk_status make_room(struct admission *a, uint32_t owners)
{
    uint32_t need = a->outstanding + owners;
    if (need > a->room) {
        uint32_t room = a->room == 0 ? 64 : a->room * 2;
        while (room < need)
            room *= 2;
        struct admission_owner *grown = base_realloc(a->owners, room * sizeof(*grown));
        if (grown == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests in the queue", room);
        a->owners = grown;
        a->room = room;
    }
    /* At most as many classes wait as owners do. */
    if (need > a->class_room) {
        uint32_t room = a->class_room == 0 ? 64 : a->class_room * 2;
        while (room < need)
            room *= 2;
        struct admission_class **grown = base_realloc(a->classes, room * sizeof(*grown));
        if (grown == NULL)
            return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u requests in the queue", room);
        a->classes = grown;
        a->class_room = room;
    }
    return YOLK_OK;
}

enum yolk_status admission_reserve(struct admission *a, const struct admission_load *load)
{
    const struct admission_limits *l = &a->limits;
    uint32_t plain = a->outstanding - a->staging_outstanding;
    uint64_t plain_bytes = a->bytes_outstanding - a->staging_bytes_outstanding;
    if (load->largest > l->dispatch_bytes_max)
        return base_fail(YOLK_ERR_LIMIT, 0,
                         "a request of %llu bytes is larger than queue.dispatch_bytes_max, %llu",
                         (unsigned long long)load->largest,
                         (unsigned long long)l->dispatch_bytes_max);
    if (load->owners > l->owners_max - a->outstanding ||
        plain + load->owners - load->staging_owners > l->owners_max - l->staging_owners)
        return base_fail(YOLK_ERR_LIMIT, 0,
                         "%u requests are outstanding, %u more would be above queue.owners_max, %u",
                         a->outstanding, load->owners, l->owners_max);
    uint64_t others = load->bytes - load->staging_bytes;
    if (load->bytes > l->bytes_max - a->bytes_outstanding ||
        (others > 0 && others > l->bytes_max - l->staging_bytes - plain_bytes))
        return base_fail(YOLK_ERR_LIMIT, 0,
                         "%llu bytes are outstanding, %llu more would be above queue.bytes_max, "
                         "%llu",
                         (unsigned long long)a->bytes_outstanding, (unsigned long long)load->bytes,
                         (unsigned long long)l->bytes_max);
    enum yolk_status status = make_room(a, load->owners);
    if (status != YOLK_OK)
        return status;
    a->outstanding += load->owners;
    a->bytes_outstanding += load->bytes;
    a->staging_outstanding += load->staging_owners;
    a->staging_bytes_outstanding += load->staging_bytes;
    return YOLK_OK;
}

static void charge(struct admission_class *class, uint32_t owners, uint64_t bytes)
{
    if (class->bytes_account != NULL)
        class->bytes_account->bytes += bytes;
    if (class->requests_account != NULL)
        class->requests_account->requests += owners;
}

static void credit(struct admission_class *class, uint32_t owners, uint64_t bytes)
{
    if (class->bytes_account != NULL)
        class->bytes_account->bytes -= bytes;
    if (class->requests_account != NULL)
        class->requests_account->requests -= owners;
}

void admission_class_charge(struct admission_class *class, uint64_t bytes)
{
    charge(class, 1, bytes);
}

void admission_class_credit(struct admission_class *class, uint64_t bytes)
{
    credit(class, 1, bytes);
}

static void start_waiting(struct admission *a, uint32_t index)
{
    struct admission_owner *owner = &a->owners[index];
    struct admission_class *class = owner->class;
    if (class->waiting++ == 0) {
        class->place = a->class_count;
        a->classes[a->class_count++] = class;
    }
    a->waiting++;
    uint32_t *head = &class->heads[owner->priority];
    *head = meld(a, *head, index);
}

static void stop_waiting(struct admission *a, uint32_t index)
{
    struct admission_owner *owner = &a->owners[index];
    struct admission_class *class = owner->class;
    heap_remove(a, &class->heads[owner->priority], index);
    a->waiting--;
    if (--class->waiting == 0) {
        a->classes[class->place] = a->classes[--a->class_count];
        a->classes[class->place]->place = class->place;
    }
}

static uint32_t new_owner(struct admission *a, uint64_t now_ns, const struct admission_owner *given)
{
    uint32_t index = a->free_head;
    uint32_t generation = 1;
    if (index != NONE) {
        a->free_head = a->owners[index].next;
        generation = a->owners[index].generation;
    } else {
        index = a->used++;
    }
    assert(index < a->room);
    struct admission_owner *owner = &a->owners[index];
    *owner = *given;
    owner->since_ns = now_ns;
    owner->order = a->order_next++;
    owner->child = owner->next = owner->before = NONE;
    owner->generation = generation;
    owner->state = WAITING;
    return index;
}

static uint64_t token_of(const struct admission *a, uint32_t index)
{
    return (uint64_t)a->owners[index].generation << 32 | index;
}

uint64_t admission_add(struct admission *a, uint64_t now_ns, const struct admission_owner *given)
{
    uint32_t index = new_owner(a, now_ns, given);
    start_waiting(a, index);
    return token_of(a, index);
}

static bool class_has_room(const struct admission_class *class, uint32_t owners, uint64_t bytes)
{
    const struct admission_account *b = class->bytes_account, *r = class->requests_account;
    return (b == NULL || (b->bytes <= b->bytes_max && bytes <= b->bytes_max - b->bytes)) &&
           (r == NULL ||
            (r->requests <= r->requests_max && owners <= r->requests_max - r->requests));
}

bool admission_class_has_room(const struct admission_class *class, uint64_t bytes)
{
    return class_has_room(class, 1, bytes);
}

bool admission_class_can_ever(const struct admission_class *class, uint64_t bytes)
{
    return class->bytes_account == NULL || bytes <= class->bytes_account->bytes_max;
}

/* For each of so many, one behind the other: it is least of all for the last. The window itself has
 * room for them. */
static bool peer_has_room(const struct admission *a, const struct admission_peer *peer,
                          uint32_t owners, uint64_t bytes)
{
    const struct admission_limits *l = &a->limits;
    if (peer == NULL || (peer->owners == 0 && owners == 1))
        return true;
    if (l->dispatch_owners_max >= ADMISSION_SHARED_OWNERS_MIN &&
        (uint64_t)peer->owners + 2 * (uint64_t)owners > l->dispatch_owners_max - a->dispatched)
        return false;
    uint64_t left = l->dispatch_bytes_max - a->bytes_dispatched;
    return l->dispatch_bytes_max < ADMISSION_SHARED_BYTES_MIN ||
           (bytes <= left && peer->bytes <= left - bytes && bytes <= left - bytes - peer->bytes);
}

/* The standing of one that heads its class and level: the lower the sooner. */
static uint32_t standing(const struct admission *a, const struct admission_owner *owner,
                         uint64_t now_ns)
{
    if (a->limits.deadline_first && a->limits.promotion_slack_ns > 0 &&
        owner->deadline_ns != ADMISSION_NEVER &&
        (owner->deadline_ns <= now_ns ||
         owner->deadline_ns - now_ns <= a->limits.promotion_slack_ns))
        return 0;
    uint64_t waited = now_ns > owner->since_ns ? now_ns - owner->since_ns : 0;
    uint64_t steps = waited / ADMISSION_PROMOTION_NS;
    return 1 + (owner->priority > steps ? (uint32_t)(owner->priority - steps) : 0);
}

static uint32_t next_owner(const struct admission *a, uint64_t now_ns)
{
    uint32_t best = NONE, best_standing = 0;
    for (uint32_t i = 0; i < a->class_count; i++) {
        for (uint32_t level = 0; level < ADMISSION_LEVELS; level++) {
            uint32_t head = a->classes[i]->heads[level];
            if (head == NONE)
                continue;
            const struct admission_owner *owner = &a->owners[head];
            if (!owner->charged && !admission_class_has_room(owner->class, owner->bytes))
                continue;
            if (!peer_has_room(a, owner->class->peer, 1, owner->bytes))
                continue;
            uint32_t its = standing(a, owner, now_ns);
            if (best == NONE || its < best_standing ||
                (its == best_standing && comes_before(a, head, best))) {
                best = head;
                best_standing = its;
            }
        }
    }
    return best;
}

static void dispatch(struct admission *a, struct admission_class *class, uint32_t owners,
                     uint64_t bytes, bool charged)
{
    if (!charged)
        charge(class, owners, bytes);
    a->dispatched += owners;
    a->bytes_dispatched += bytes;
    if (class->peer != NULL) {
        class->peer->owners += owners;
        class->peer->bytes += bytes;
    }
}

static void dispatched_end(struct admission *a, struct admission_class *class, uint32_t owners,
                           uint64_t bytes)
{
    credit(class, owners, bytes);
    a->dispatched -= owners;
    a->bytes_dispatched -= bytes;
    if (class->peer != NULL) {
        class->peer->owners -= owners;
        class->peer->bytes -= bytes;
    }
}

/* The places of admission_reserve are free again. */
static void unreserve(struct admission *a, const struct admission_load *load)
{
    a->outstanding -= load->owners;
    a->bytes_outstanding -= load->bytes;
    a->staging_outstanding -= load->staging_owners;
    a->staging_bytes_outstanding -= load->staging_bytes;
}

bool admission_pass(struct admission *a, struct admission_class *class,
                    const struct admission_load *load, bool charged)
{
    if (a->waiting > 0 || load->owners > a->limits.dispatch_owners_max - a->dispatched ||
        load->bytes > a->limits.dispatch_bytes_max - a->bytes_dispatched ||
        (!charged && !class_has_room(class, load->owners, load->bytes)) ||
        !peer_has_room(a, class->peer, load->owners, load->bytes))
        return false;
    dispatch(a, class, load->owners, load->bytes, charged);
    return true;
}

void admission_passed_end(struct admission *a, struct admission_class *class,
                          const struct admission_load *load)
{
    dispatched_end(a, class, load->owners, load->bytes);
    unreserve(a, load);
}

const struct admission_owner *admission_pick(struct admission *a, uint64_t now_ns, uint64_t *token)
{
    if (a->waiting == 0 || a->dispatched >= a->limits.dispatch_owners_max)
        return NULL;
    uint32_t index = next_owner(a, now_ns);
    if (index == NONE)
        return NULL;
    struct admission_owner *owner = &a->owners[index];
    /* One that is too large for what is left waits, and so do those behind it. */
    if (owner->bytes > a->limits.dispatch_bytes_max - a->bytes_dispatched)
        return NULL;
    stop_waiting(a, index);
    dispatch(a, owner->class, 1, owner->bytes, owner->charged);
    owner->charged = true;
    owner->state = DISPATCHED;
    *token = token_of(a, index);
    return owner;
}

static struct admission_owner *find(const struct admission *a, uint64_t token)
{
    uint32_t index = (uint32_t)token;
    if (index >= a->used || a->owners[index].state == FREE ||
        a->owners[index].generation != (uint32_t)(token >> 32))
        return NULL;
    return &a->owners[index];
}

bool admission_is_dispatched(const struct admission *a, uint64_t token)
{
    const struct admission_owner *owner = find(a, token);
    return owner != NULL && owner->state == DISPATCHED;
}

void admission_end(struct admission *a, uint64_t token)
{
    struct admission_owner *owner = find(a, token);
    if (owner == NULL)
        return;
    struct admission_load its = {0};
    admission_load_add(&its, owner->bytes, owner->staging);
    if (owner->state == DISPATCHED) {
        dispatched_end(a, owner->class, 1, owner->bytes);
    } else {
        stop_waiting(a, (uint32_t)token);
        if (owner->charged)
            credit(owner->class, 1, owner->bytes);
    }
    unreserve(a, &its);
    owner->state = FREE;
    owner->generation++;
    owner->next = a->free_head;
    a->free_head = (uint32_t)token;
}
