/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody sits between the two sides of a hello and delivers, changes, repeats or invents frames.
 * Whatever he does, a side that has a secret ends only with a peer that has it too, and with what
 * the peer said.
 */
#include "base/error.h"
#include "kit.h"
#include "wire/hello.h"

struct side {
    struct wire_hello_machine machine;
    struct base_buf out; /* what it sent last */
    uint8_t secret_size; /* 0: it has none; else its secret is as long */
};

struct world {
    struct side sides[2]; /* client, server */
    struct fuzz_input in;
};

static void start(struct world *world)
{
    static const char *const secrets[] = {"", "s", "another"};
    uint8_t how = fuzz_u8(&world->in);
    for (unsigned i = 0; i < 2; i++) {
        struct side *side = &world->sides[i];
        const char *secret = secrets[(i == 0 ? how : how / 3) % 3];
        uint8_t nonce[WIRE_NONCE_SIZE] = {(uint8_t)(i + 1)};
        struct wire_hello_options options = {
            .secret = secret[0] ? secret : NULL,
            .secret_size = strlen(secret),
            .features = how / 9 % 4 | 4,
            .role = WIRE_ROLE_CLIENT + how / 36 % 3,
            .purpose = WIRE_PURPOSE_CONTROL,
            .session = how,
            .nonce = nonce,
        };
        options.instance[0] = (uint8_t)(i + 1);
        side->secret_size = (uint8_t)strlen(secret);
        base_buf_init(&side->out, 65536);
        FUZZ_MUST(wire_hello_init(&side->machine, i == 1, &options) == YOLK_OK);
        FUZZ_MUST(wire_hello_start(&side->machine, &side->out) == YOLK_OK);
    }
}

static void give(struct side *side, const uint8_t *frame, size_t size)
{
    struct wire_header header;
    struct base_buf out;
    if (size < WIRE_HEADER_SIZE || wire_header_decode(frame, &header) != YOLK_OK)
        return;
    if (size - WIRE_HEADER_SIZE < header.body_size)
        return;
    base_buf_init(&out, 65536);
    enum wire_hello_state before = side->machine.state;
    int status = wire_hello_input(&side->machine, &header, frame + WIRE_HEADER_SIZE, &out);
    if (before == WIRE_HELLO_RUNNING)
        FUZZ_MUST((status == YOLK_OK) == (side->machine.state != WIRE_HELLO_FAILED));
    if (out.size > 0) {
        base_buf_free(&side->out);
        side->out = out;
    } else {
        base_buf_free(&out);
    }
}

/* One deed of the one between. */
static void act(struct world *world)
{
    uint8_t deed = fuzz_u8(&world->in);
    struct side *to = &world->sides[deed & 1];
    const struct side *from = &world->sides[deed & 4 ? deed & 1 : !(deed & 1)];
    uint8_t frame[4096];
    size_t size = from->out.size;
    FUZZ_MUST(size <= sizeof(frame));
    memcpy(frame, from->out.data ? from->out.data : (const uint8_t *)"", size);
    if (deed & 8 && size > 0)
        frame[fuzz_u8(&world->in) % size] ^= (uint8_t)(1u << (deed >> 5));
    if (deed & 16) {
        struct wire_header header = {.kind = (uint16_t)(1 + (deed >> 5))};
        const uint8_t *body = fuzz_bytes(&world->in, fuzz_u8(&world->in), &size);
        header.body_size = (uint32_t)size;
        wire_header_encode(&header, frame);
        memcpy(frame + WIRE_HEADER_SIZE, body, size);
        size += WIRE_HEADER_SIZE;
    }
    give(to, frame, size);
}

static void check(const struct world *world)
{
    const struct wire_hello_machine *client = &world->sides[0].machine;
    const struct wire_hello_machine *server = &world->sides[1].machine;
    bool same = world->sides[0].secret_size == world->sides[1].secret_size;
    for (unsigned i = 0; i < 2; i++) {
        const struct side *side = &world->sides[i];
        FUZZ_MUST(!side->machine.authenticated || side->machine.state == WIRE_HELLO_DONE);
        if (side->machine.state == WIRE_HELLO_DONE && side->secret_size > 0)
            FUZZ_MUST(side->machine.authenticated && same);
    }
    if (!client->authenticated || !server->authenticated)
        return;
    FUZZ_MUST(client->version == server->version && client->features == server->features);
    FUZZ_MUST(client->role == server->role && client->purpose == server->purpose);
    FUZZ_MUST(client->session == server->session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world world = {.in = {data, data + size}};
    start(&world);
    while (world.in.at < world.in.end) {
        act(&world);
        check(&world);
    }
    for (unsigned i = 0; i < 2; i++)
        base_buf_free(&world.sides[i].out);
    return 0;
}
