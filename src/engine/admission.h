/* SPDX-License-Identifier: Apache-2.0 */
/* The admission queue: which requests are outstanding, which of them are dispatched, which is
 * dispatched next. Pure: the caller locks and gives the time.
 *
 * An owner is one request (or several merged into one). It is reserved with all others of its
 * submit, added, picked, ended. A token is index + generation, so that one that is over is never
 * taken for another. */
#ifndef YOLK_ENGINE_ADMISSION_H
#define YOLK_ENGINE_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/engine.h>

#define ADMISSION_NONE  UINT64_MAX
#define ADMISSION_NEVER UINT64_MAX /* a deadline */
enum { ADMISSION_LEVELS = 3, ADMISSION_OWNERS_MAX = 1 << 20 };
#define ADMISSION_PROMOTION_NS UINT64_C(10000000)

struct admission_limits {
    uint32_t owners_max; /* outstanding */
    uint64_t bytes_max;
    uint32_t dispatch_owners_max;
    uint64_t dispatch_bytes_max;
    uint32_t staging_owners; /* of owners_max, for owners of staging only */
    uint64_t staging_bytes;
    bool deadline_first;
    uint64_t promotion_slack_ns;
};

/* What a contract lets be in flight; shared by the classes that fall under it. */
struct admission_account {
    uint64_t bytes_max, requests_max; /* UINT64_MAX: no limit */
    uint64_t bytes, requests;
};

/* What one peer has of the dispatch window. With more than one request that is at most as much as
 * is left, in owners and in bytes: one that does not answer leaves half to the others, the next one
 * a quarter, and so on. Windows of few places or bytes are not shared out. */
struct admission_peer {
    uint32_t owners;
    uint64_t bytes;
};
enum { ADMISSION_SHARED_OWNERS_MIN = 8 };
#define ADMISSION_SHARED_BYTES_MIN (UINT64_C(8) << 20)

/* Owners that wait together: of one contract, for one peer. Set up by whoever has the contracts. */
struct admission_class {
    struct admission_peer *peer;                                /* NULL: none in particular */
    struct admission_account *bytes_account, *requests_account; /* NULL: none */
    uint32_t heads[ADMISSION_LEVELS];                           /* admission's */
    uint32_t waiting, place;                                    /* admission's */
};

struct admission_owner {
    /* The caller's. */
    uint64_t bytes;
    uint64_t deadline_ns; /* ADMISSION_NEVER: none */
    enum yolk_priority priority;
    bool staging;
    bool
        charged; /* the caller charged its class already; else that is done when it is dispatched */
    struct admission_class *class;
    void *batch;
    uint32_t task;
    /* Admission's. */
    uint64_t since_ns, order;
    uint32_t child, next, before; /* in the heap of its class and level */
    uint32_t generation;
    uint8_t state;
};

struct admission {
    struct admission_limits limits;
    struct admission_owner *owners;
    uint32_t room, used, free_head;
    struct admission_class **classes; /* with owners that wait */
    uint32_t class_count, class_room;
    uint64_t order_next;
    uint32_t outstanding, staging_outstanding, dispatched, waiting;
    uint64_t bytes_outstanding, staging_bytes_outstanding, bytes_dispatched;
};

/* INVALID: a window of nothing, or more kept for staging than there is. */
YOLK_MUST_USE enum yolk_status admission_init(struct admission *a,
                                              const struct admission_limits *limits);
void admission_free(struct admission *a);
void admission_class_init(struct admission_class *class);

/* The owners of one submit, added up. */
struct admission_load {
    uint32_t owners, staging_owners; /* staging_owners are among owners */
    uint64_t bytes, staging_bytes;
    uint64_t largest; /* one owner */
};
static inline void admission_load_add(struct admission_load *load, uint64_t bytes, bool staging)
{
    load->owners++;
    load->bytes = bytes > UINT64_MAX - load->bytes ? UINT64_MAX : load->bytes + bytes;
    load->staging_owners += staging;
    if (staging)
        load->staging_bytes = load->bytes == UINT64_MAX ? 0 : load->staging_bytes + bytes;
    if (bytes > load->largest)
        load->largest = bytes;
}
/* Room for all of them, or LIMIT and nothing happened; NO_MEMORY. */
YOLK_MUST_USE enum yolk_status admission_reserve(struct admission *a,
                                                 const struct admission_load *load);
/* One of those reserved; the fields of the caller are taken from *owner. */
uint64_t admission_add(struct admission *a, uint64_t now_ns, const struct admission_owner *owner);

/* So many reserved owners of one class, one behind the other, dispatched at once and without a
 * record of each: what admission_add and admission_pick would make of them. False, and nothing
 * happened: others wait, or the window or their contract has no room for one of them. charged: as
 * of an owner. */
bool admission_pass(struct admission *a, struct admission_class *class,
                    const struct admission_load *load, bool charged);
/* So many of those are over. */
void admission_passed_end(struct admission *a, struct admission_class *class,
                          const struct admission_load *load);

/* The owner that is dispatched now, or NULL: none waits, the window has no room for the next, or
 * each contract in question is used up. *token names it. */
const struct admission_owner *admission_pick(struct admission *a, uint64_t now_ns, uint64_t *token);
bool admission_is_dispatched(const struct admission *a, uint64_t token);
/* It is over, dispatched or not: its places are free again. A token that is over has no effect. */
void admission_end(struct admission *a, uint64_t token);

/* Has the contract of this class room for such a request now, and would it ever? */
bool admission_class_has_room(const struct admission_class *class, uint64_t bytes);
bool admission_class_can_ever(const struct admission_class *class, uint64_t bytes);
void admission_class_charge(struct admission_class *class, uint64_t bytes);
void admission_class_credit(struct admission_class *class, uint64_t bytes);

#endif
