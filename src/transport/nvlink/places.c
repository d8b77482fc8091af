/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All addresses of another process: the consumer. What lies where is asked for when an io comes
 * that needs it, and known from then on: a segment of its own, or why it is none, which is asked
 * again after a while. A channel to the addresses is a channel to each segment that its ios are in.
 *
 * Here nothing is final. What a range was may have ended in the meantime, so an io that is refused,
 * or that ended in doubt, is UNSUPPORTED: the transport that asks the owner at each access says
 * what is true now.
 */
#define LOG_ROOM "nvlink"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/imap.h"
#include "base/limits.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/nvlink/internal.h"
#include "transport/places.h"

enum { PLACES_MAX = 4096, REFUSED_MS = 1000, CHECK_WAIT_MS = 200, ANEW_MAX = 3 };

struct place {
    uint64_t start, size;
    struct nvlink_target *target; /* NULL: it is not reached */
    int why;                      /* then: a status, and its text */
    char text[240];
    uint64_t until_ns;
    unsigned users;       /* channels */
    _Atomic bool retired; /* not to be found any more */
};

struct nvlink_places {
    struct mutex lock;
    struct base_imap map;
    bool asking;
    struct shm_ask asked;
    uint64_t asked_until_ns;
};

struct visit { /* of a place, by a channel */
    struct place *place;
    void *channel;
    uint32_t queued;
};

struct nvlink_walk {
    struct nvlink_target *target;
    struct visit *visits;
    size_t count, last; /* last: that of the io before */
    unsigned anew;      /* places that were of the past, since an io was taken */
};

/* ---- places, under the lock ---- */

static void place_free(struct nvlink_target *t, struct place *place)
{
    if (place->target != NULL)
        nvlink_close_target(t->endpoint, place->target);
    free(place);
}

static void retire(struct nvlink_target *t, struct place *place)
{
    if (atomic_exchange(&place->retired, true))
        return;
    (void)base_imap_remove(&t->places->map, place->start, NULL);
    if (place->users == 0)
        place_free(t, place);
}

static void leave(struct nvlink_target *t, struct place *place)
{
    if (--place->users == 0 && atomic_load(&place->retired))
        place_free(t, place);
}

static int refuse(const struct place *place)
{
    return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", place->text);
}

/* In place of whatever was known of it. */
static int add(struct nvlink_target *t, uint64_t start, uint64_t size, struct place **out)
{
    struct base_range found;
    struct place *place = calloc(1, sizeof *place);
    int status = YOLK_OK;
    while (base_imap_overlap(&t->places->map, start, size, &found))
        retire(t, found.value);
    if (place == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: what lies at an address");
    place->start = start;
    place->size = size;
    if (base_imap_count(&t->places->map) >= PLACES_MAX)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: %d ranges of the peer are known",
                           PLACES_MAX);
    else
        status = base_imap_insert(&t->places->map, start, size, place);
    if (status != YOLK_OK) {
        free(place);
        return status;
    }
    *out = place;
    return YOLK_OK;
}

/* With the last error. */
static void set_refused(struct place *place, int status)
{
    place->why = status;
    (void)snprintf(place->text, sizeof place->text, "%s", yolk_last_error());
    place->until_ns = clock_after_ms(clock_real_now_ns(), REFUSED_MS);
}

/* ---- asking ---- */

static int begin_question(struct nvlink_target *t, uint64_t start, uint64_t size)
{
    struct nvlink_places *p = t->places;
    struct device *device;
    if (!nvlink_device_if_used(t->endpoint, &device))
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: nobody in this process uses CUDA");
    int status = shm_link_enter(&t->links->links[0]);
    if (status != YOLK_OK)
        return status;
    p->asking = true;
    p->asked = (struct shm_ask){start, size};
    p->asked_until_ns = clock_after(clock_real_now_ns(), t->endpoint->settings.connect_timeout_ns);
    return YOLK_OK;
}

static int take_answer(struct nvlink_target *t, int status, const struct shm_answer *answer)
{
    struct nvlink_places *p = t->places;
    uint64_t start = answer->numbers[0], size = answer->numbers[1];
    struct place *place;
    void *target = NULL;
    char why[240];
    if (status == YOLK_ERR_NOT_REGISTERED)
        return status; /* it may be at any moment */
    bool around = start <= p->asked.first && p->asked.first - start <= size &&
                  p->asked.second <= size - (p->asked.first - start);
    if (status == YOLK_OK && !around)
        status = base_fail(YOLK_ERR_PROTOCOL, 0, "nvlink: an answer to another question");
    if (status == YOLK_OK)
        status = nvlink_open_target(t->endpoint, answer->text, answer->numbers[2], size,
                                    t->links->session, &target);
    (void)snprintf(why, sizeof why, "%s", yolk_last_error());
    int added = add(t, around ? start : p->asked.first, around ? size : p->asked.second, &place);
    if (added != YOLK_OK) {
        if (target != NULL)
            nvlink_close_target(t->endpoint, target);
        return added;
    }
    place->target = target;
    if (target != NULL) {
        place->target->start = start;
        return YOLK_OK;
    }
    (void)base_fail(status, 0, "%s", why);
    set_refused(place, status);
    log_debug("a range of a peer is not reached: %s", place->text);
    return YOLK_OK;
}

/* YOLK_OK: something is known now. AGAIN: no answer yet. */
static int ask(struct nvlink_target *t, uint64_t start, uint64_t size)
{
    struct nvlink_places *p = t->places;
    struct shm_link *l = &t->links->links[0];
    struct shm_answer answer = {.numbers = {start, size}};
    int fd;
    if (!p->asking) {
        int status = begin_question(t, start, size);
        if (status != YOLK_OK)
            return status;
    }
    mutex_lock(&l->mutex);
    int status = shm_link_ask(l, &p->asked, &answer, &fd);
    bool late = status == YOLK_ERR_AGAIN && clock_real_now_ns() >= p->asked_until_ns;
    bool answered = status != YOLK_ERR_AGAIN && !l->asked;
    if (late)
        status = base_fail(YOLK_ERR_TIMEOUT, 0, "nvlink: the peer does not answer");
    if (late || (status != YOLK_ERR_AGAIN && !answered))
        l->dead = status; /* an answer that comes later would be taken for another one's */
    mutex_unlock(&l->mutex);
    if (fd >= 0)
        (void)close(fd);
    if (status == YOLK_ERR_AGAIN)
        return status;
    p->asking = false;
    shm_link_leave(l);
    return answered ? take_answer(t, status, &answer) : status;
}

/* The place around it, as a user. AGAIN; UNSUPPORTED with the reason. */
static int find(struct nvlink_target *t, uint64_t start, uint64_t size, struct place **out)
{
    struct nvlink_places *p = t->places;
    struct base_range found;
    int status = YOLK_OK;
    *out = NULL;
    mutex_lock(&p->lock);
    while (status == YOLK_OK && *out == NULL) {
        struct place *place = base_imap_contains(&p->map, start, size, &found) ? found.value : NULL;
        if (place != NULL && place->target == NULL && clock_real_now_ns() >= place->until_ns) {
            retire(t, place);
            place = NULL;
        }
        if (place == NULL) {
            status = ask(t, start, size);
        } else if (place->target == NULL) {
            status = refuse(place);
        } else {
            place->users++;
            *out = place;
        }
    }
    mutex_unlock(&p->lock);
    /* That it is gone says the other transport too, and knows better. */
    if (status == YOLK_ERR_STALE || status == YOLK_ERR_PEER_DEAD || status == YOLK_ERR_NO_ROUTE ||
        status == YOLK_ERR_NOT_REGISTERED)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", yolk_last_error());
    return status;
}

/* ---- the target ---- */

int nvlink_places_open(struct nvlink_target *t)
{
    t->places = calloc(1, sizeof *t->places);
    if (t->places == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: addresses of a peer");
    mutex_init(&t->places->lock);
    base_imap_init(&t->places->map);
    return YOLK_OK;
}

void nvlink_places_close(struct nvlink_target *t)
{
    struct nvlink_places *p = t->places;
    struct base_range found;
    while (base_imap_next(&p->map, 0, &found))
        retire(t, found.value);
    base_imap_free(&p->map);
    mutex_destroy(&p->lock);
    free(p);
}

static void let_go(struct nvlink_target *t, struct place *place)
{
    mutex_lock(&t->places->lock);
    leave(t, place);
    mutex_unlock(&t->places->lock);
}

int nvlink_places_check(struct nvlink_target *t, uint64_t offset, uint64_t size)
{
    uint64_t until = clock_after_ms(clock_real_now_ns(), CHECK_WAIT_MS);
    struct place *place;
    int status;
    while ((status = find(t, offset, size, &place)) == YOLK_ERR_AGAIN &&
           clock_real_now_ns() < until)
        (void)poll(NULL, 0, 1);
    if (status != YOLK_OK)
        return status;
    status = shm_link_connect(&place->target->links->links[0], until);
    let_go(t, place);
    return status;
}

/* ---- channels ---- */

int nvlink_walk_open(struct nvlink_target *t, struct nvlink_walk **out)
{
    struct nvlink_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: channel");
    walk->target = t;
    *out = walk;
    return YOLK_OK;
}

static bool has_range(const struct place *place, uint64_t offset, uint64_t size)
{
    return offset >= place->start && offset - place->start <= place->size &&
           size <= place->size - (offset - place->start);
}

static bool has_all(const struct place *place, const struct yolk_io *io)
{
    struct place_walk walk = place_walk_begin(io);
    struct yolk_place part;
    while (place_walk_on(&walk, io, &part))
        if (!has_range(place, part.offset, part.size))
            return false;
    return true;
}

static bool is_around(const struct place *place, const struct yolk_io *io)
{
    return !atomic_load_explicit(&place->retired, memory_order_relaxed) && has_all(place, io);
}

static bool end_visit(struct nvlink_walk *walk, struct visit *visit)
{
    if (nvlink_channel_close(visit->channel) != YOLK_OK)
        return false;
    let_go(walk->target, visit->place);
    *visit = walk->visits[--walk->count];
    walk->last = 0;
    return true;
}

/* Those of places that are no more. */
static void end_retired(struct nvlink_walk *walk)
{
    for (size_t i = 0; i < walk->count;) {
        struct visit *visit = &walk->visits[i];
        if (!atomic_load(&visit->place->retired) || visit->queued > 0 || !end_visit(walk, visit))
            i++;
    }
}

/* What a status of a place's own segment says of the place; the io goes by another transport. With
 * STALE and PEER_DEAD the place is of the past, and what lies there now may be asked for. */
static int judge(struct nvlink_walk *walk, struct place *place, int status)
{
    struct nvlink_target *t = walk->target;
    char why[240];
    (void)snprintf(why, sizeof why, "%s", yolk_last_error());
    mutex_lock(&t->places->lock);
    struct place *refused = NULL;
    bool known = !atomic_load(&place->retired);
    if (known && (status == YOLK_ERR_STALE || status == YOLK_ERR_PEER_DEAD))
        retire(t, place);
    else if (known && (status == YOLK_ERR_NO_ROUTE || status == YOLK_ERR_UNSUPPORTED) &&
             add(t, place->start, place->size, &refused) == YOLK_OK) {
        (void)base_fail(status, 0, "%s", why);
        set_refused(refused, status);
        log_info("memory of a peer goes by another transport: %s", why);
    }
    mutex_unlock(&t->places->lock);
    switch (status) {
    case YOLK_ERR_STALE:
    case YOLK_ERR_PEER_DEAD:
    case YOLK_ERR_NO_ROUTE:
    case YOLK_ERR_ACCESS:
    case YOLK_ERR_NOT_REGISTERED:
    case YOLK_ERR_INVALID:
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "%s", why);
    default:
        return base_fail(status, 0, "%s", why);
    }
}

/* The same of an io of which nothing was moved: AGAIN where it is worth another question. */
static int judge_before(struct nvlink_walk *walk, struct place *place, int status)
{
    bool past = status == YOLK_ERR_STALE || status == YOLK_ERR_PEER_DEAD;
    int judged = judge(walk, place, status);
    return past && walk->anew++ < ANEW_MAX ? YOLK_ERR_AGAIN : judged;
}

static int visit_new(struct nvlink_walk *walk, const struct yolk_io *io)
{
    struct place *place;
    void *channel;
    struct place_walk parts = place_walk_begin(io);
    struct yolk_place first = {.offset = io->offset};
    end_retired(walk);
    (void)place_walk_on(&parts, io, &first);
    int status = find(walk->target, first.offset, first.size, &place);
    if (status != YOLK_OK)
        return status;
    if (!has_all(place, io)) { /* each for itself they may go */
        let_go(walk->target, place);
        return base_fail(YOLK_ERR_INVALID, 0, "nvlink: places in several ranges of a peer");
    }
    status = nvlink_channel_open(walk->target->endpoint, place->target, &channel);
    struct visit *more =
        status == YOLK_OK ? realloc(walk->visits, (walk->count + 1) * sizeof *more) : NULL;
    if (more != NULL) {
        walk->visits = more;
        walk->last = walk->count++;
        walk->visits[walk->last] = (struct visit){place, channel, 0};
        return YOLK_OK;
    }
    if (status == YOLK_OK) {
        (void)!nvlink_channel_close(channel);
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "nvlink: channel");
    } else if (status != YOLK_ERR_AGAIN) {
        status = judge_before(walk, place, status);
    }
    let_go(walk->target, place);
    return status;
}

static int find_visit(struct nvlink_walk *walk, const struct yolk_io *io)
{
    if (walk->last < walk->count && is_around(walk->visits[walk->last].place, io))
        return YOLK_OK;
    for (size_t i = 0; i < walk->count; i++) {
        if (is_around(walk->visits[i].place, io)) {
            walk->last = i;
            return YOLK_OK;
        }
    }
    return visit_new(walk, io);
}

enum yolk_submit nvlink_walk_submit(struct nvlink_walk *walk, struct yolk_io *io)
{
    int status = io->size > 0 ? find_visit(walk, io)
                              : base_fail(YOLK_ERR_UNSUPPORTED, 0, "nvlink: an io of no bytes");
    enum yolk_submit answer = YOLK_SUBMIT_FAILED;
    if (status == YOLK_OK) {
        struct visit *visit = &walk->visits[walk->last];
        answer = nvlink_channel_submit(visit->channel, io);
        visit->queued += answer == YOLK_SUBMIT_QUEUED;
        if (answer == YOLK_SUBMIT_FAILED)
            status = judge_before(walk, visit->place, io->status);
    }
    if (status == YOLK_ERR_AGAIN)
        return YOLK_SUBMIT_AGAIN;
    walk->anew = 0;
    if (answer == YOLK_SUBMIT_FAILED) {
        io->status = (enum yolk_status)status;
        io->transferred = 0;
    }
    return answer;
}

uint32_t nvlink_walk_poll(struct nvlink_walk *walk, struct yolk_completion *completions,
                          uint32_t max)
{
    uint32_t n = 0;
    for (size_t i = 0; i < walk->count && n < max; i++) {
        struct visit *visit = &walk->visits[i];
        uint32_t got = nvlink_channel_poll(visit->channel, completions + n, max - n);
        visit->queued -= got;
        for (uint32_t k = n; k < n + got; k++) {
            enum yolk_status *status = &completions[k].status;
            if (*status != YOLK_OK)
                *status = (enum yolk_status)judge(walk, visit->place, *status);
        }
        n += got;
    }
    return n;
}

void nvlink_walk_flush(struct nvlink_walk *walk)
{
    for (size_t i = 0; i < walk->count; i++)
        nvlink_channel_flush(walk->visits[i].channel);
}

enum yolk_status nvlink_walk_close(struct nvlink_walk *walk)
{
    while (walk->count > 0) {
        if (!end_visit(walk, &walk->visits[walk->count - 1]))
            return YOLK_ERR_BUSY;
    }
    free(walk->visits);
    free(walk);
    return YOLK_OK;
}
