/* SPDX-License-Identifier: Apache-2.0 */
/* What the master tells a session unasked. */
#include "store/session_state.h"

#include "base/limits.h"

static void acknowledge_facts(struct store_session *session, uint64_t segment)
{
    struct wire_facts_ack ack = {segment, store_mirror_seq(session->options.mirror)};
    base_buf_clear(&session->message.body);
    if (wire_encode(WIRE_FACTS_ACK, &ack, &session->message.body) == YOLK_OK)
        (void)store_session_queue_send(session, WIRE_FACTS_ACK, 0);
}

static int apply_fact(struct store_mirror *mirror, const struct wire_fact *fact,
                      struct wire_view key)
{
    int status;
    switch (fact->kind) {
    case WIRE_FACT_PLACED:
        if (key.size == 0 || key.size > MAX_KEY_SIZE) /* no value has such a key */
            return YOLK_OK;
        status = store_mirror_place(mirror, fact->offset, fact->size, key.data, (uint32_t)key.size);
        if (status == YOLK_OK && (fact->session & WIRE_FACT_HARD_PIN))
            store_mirror_pin(mirror, fact->offset);
        return status;
    case WIRE_FACT_FREED:
        store_mirror_free(mirror, fact->offset);
        return YOLK_OK;
    case WIRE_FACT_SESSION_OPEN:
        return store_mirror_session_open(mirror, fact->session);
    case WIRE_FACT_SESSION_GONE:
        store_mirror_session_gone(mirror, fact->session);
        return YOLK_OK;
    default:
        return YOLK_OK; /* of a newer master */
    }
}

static void push_facts(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_facts facts;
    struct wire_keys keys;
    struct store_mirror *mirror = session->options.mirror;

    if (mirror == NULL || wire_decode(WIRE_FACTS, body, size, &facts) != YOLK_OK ||
        facts.segment != session->mounts[PART_MEMORY].segment ||
        wire_keys_open(facts.keys, WIRE_KEYS_MAX, &keys) != YOLK_OK)
        return;
    if (store_mirror_accepts(mirror, facts.seq)) {
        for (uint32_t i = 0; i < wire_fact_count(facts.recs); i++) {
            struct wire_fact fact = wire_fact_at(facts.recs, i);
            struct wire_view key = {NULL, 0};
            (void)wire_keys_next(&keys, &key);
            if (apply_fact(mirror, &fact, key) != YOLK_OK)
                return; /* unacknowledged: it comes again, and applying a part twice is harmless */
        }
        store_mirror_applied(mirror, facts.seq);
    } else if (facts.seq > store_mirror_seq(mirror)) {
        return; /* one before it is missing and will come again */
    }
    acknowledge_facts(session, facts.segment);
}

static void push_put_expired(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_put_expired expired;
    if (wire_decode(WIRE_PUT_EXPIRED, body, size, &expired) != YOLK_OK)
        return;
    struct store_session_output *output;
    if (store_holds_is_live(session->options.holds, expired.op)) {
        /* Still moving: the put machine revokes when its memory is quiet. */
        output = store_session_queue(session, STORE_SESSION_PUT_EXPIRED);
        if (output != NULL)
            output->op = expired.op;
        return;
    }
    struct wire_keys_request revoke;
    struct store_stamp stamp;
    store_session_request(session, &revoke.request, &stamp);
    revoke.request.op = expired.op;
    revoke.keys = expired.keys;
    /* The op lies below the floor, which would have it refused: say that nothing is below it. */
    if (revoke.request.floor > expired.op)
        revoke.request.floor = expired.op;
    if (wire_encode(WIRE_PUT_REVOKE, &revoke, &session->message.body) == YOLK_OK)
        (void)store_session_queue_send(session, WIRE_PUT_REVOKE, session->next_request++);
}

static void push_fence(struct store_session *session, const uint8_t *body, size_t size)
{
    struct wire_fence fence;
    if (wire_decode(WIRE_FENCE, body, size, &fence) != YOLK_OK)
        return;
    struct store_session_output *output = store_session_queue(session, STORE_SESSION_FENCE);
    if (output != NULL) {
        output->segment = fence.segment;
        output->session = fence.fenced_session;
    }
}

static void push_lost(struct store_session *session, uint64_t now_ns, const uint8_t *body,
                      size_t size)
{
    struct wire_session_lost lost;
    if (wire_decode(WIRE_SESSION_LOST, body, size, &lost) != YOLK_OK)
        return;
    if (session->session != 0 && (lost.session == session->session || lost.session == 0) &&
        session->state != STATE_CLOSED)
        store_session_expire(session, now_ns);
}

int store_session_push(struct store_session *session, uint64_t now_ns, uint16_t message,
                       const uint8_t *body, size_t size)
{
    switch (message) {
    case WIRE_FACTS:
        push_facts(session, body, size);
        return 1;
    case WIRE_FENCE:
        push_fence(session, body, size);
        return 1;
    case WIRE_PUT_EXPIRED:
        push_put_expired(session, body, size);
        return 1;
    case WIRE_SESSION_LOST:
        push_lost(session, now_ns, body, size);
        return 1;
    default:
        return 0;
    }
}
