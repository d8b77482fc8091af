/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/hello.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

enum { STEP_START, STEP_WAIT_HELLO, STEP_WAIT_REPLY, STEP_WAIT_AUTH, STEP_WAIT_AUTH_REPLY };

enum { HELLO_BODY_MAX = 8 * 1024 };

static int fail(struct wire_hello_machine *m, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct wire_hello_machine *m, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(m->text, sizeof(m->text), format, args);
    va_end(args);
    m->state = WIRE_HELLO_FAILED;
    m->status = status;
    wire_hello_wipe(m);
    return base_fail(status, 0, "%s", m->text);
}

static int done(struct wire_hello_machine *m, bool authenticated)
{
    m->state = WIRE_HELLO_DONE;
    m->status = YOLK_OK;
    m->authenticated = authenticated;
    wire_hello_wipe(m);
    return YOLK_OK;
}

int wire_hello_init(struct wire_hello_machine *m, bool server,
                    const struct wire_hello_options *options)
{
    memset(m, 0, sizeof(*m));
    if (options->secret && options->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_LIMIT, 0, "the shared secret has %zu bytes, at most %u",
                         options->secret_size, WIRE_SECRET_MAX);
    if (sodium_init() < 0)
        return base_fail(YOLK_ERR_SYSTEM, 0, "libsodium cannot start: no randomness");
    m->server = server;
    m->step = server ? STEP_WAIT_HELLO : STEP_START;
    m->version_min = options->version_max ? options->version_min : WIRE_VERSION_MIN;
    m->version_max = options->version_max ? options->version_max : WIRE_VERSION;
    m->own_features = options->features;
    m->purposes = options->purposes;
    memcpy(m->instance, options->instance, sizeof(m->instance));
    if (!server) {
        m->role = options->role;
        m->purpose = options->purpose;
        m->session = options->session;
    }
    uint8_t *nonce = server ? m->server_nonce : m->client_nonce;
    if (options->nonce)
        memcpy(nonce, options->nonce, WIRE_NONCE_SIZE);
    else
        randombytes_buf(nonce, WIRE_NONCE_SIZE);
    if (options->secret) {
        m->secret_size = options->secret_size;
        memcpy(m->secret, options->secret, options->secret_size);
    }
    return YOLK_OK;
}

void wire_hello_wipe(struct wire_hello_machine *m)
{
    sodium_memzero(m->secret, sizeof(m->secret));
    m->secret_size = 0;
}

/* Everything that was said is in the proof, so that nobody between the two can change a version, a
 * feature or a role; the label keeps one side's proof from being sent back as the other's. */
static void make_proof(const struct wire_hello_machine *m, const char *label,
                       uint8_t out[WIRE_PROOF_SIZE])
{
    const uint8_t *client_instance = m->server ? m->peer_instance : m->instance;
    const uint8_t *server_instance = m->server ? m->instance : m->peer_instance;
    uint8_t numbers[5 * 4 + 3 * 8];
    wire_set_u32(numbers, m->role);
    wire_set_u32(numbers + 4, m->purpose);
    wire_set_u32(numbers + 8, m->version);
    wire_set_u32(numbers + 12, m->offer_min);
    wire_set_u32(numbers + 16, m->offer_max);
    wire_set_u64(numbers + 20, m->session);
    wire_set_u64(numbers + 28, m->client_features);
    wire_set_u64(numbers + 36, m->features);
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, m->secret, m->secret_size);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_auth_hmacsha256_update(&state, numbers, sizeof(numbers));
    crypto_auth_hmacsha256_update(&state, m->client_nonce, WIRE_NONCE_SIZE);
    crypto_auth_hmacsha256_update(&state, m->server_nonce, WIRE_NONCE_SIZE);
    crypto_auth_hmacsha256_update(&state, client_instance, WIRE_ID_SIZE);
    crypto_auth_hmacsha256_update(&state, server_instance, WIRE_ID_SIZE);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof(state));
}

static const char server_label[] = "yolk server";
static const char client_label[] = "yolk client";

int wire_hello_start(struct wire_hello_machine *m, struct base_buf *out)
{
    if (m->server)
        return YOLK_OK;
    struct wire_hello hello = {
        .min = m->version_min,
        .max = m->version_max,
        .features = m->own_features,
        .role = m->role,
        .purpose = m->purpose,
        .session = m->session,
    };
    memcpy(hello.nonce, m->client_nonce, WIRE_NONCE_SIZE);
    memcpy(hello.instance, m->instance, WIRE_ID_SIZE);
    m->offer_min = m->version_min;
    m->offer_max = m->version_max;
    m->client_features = m->own_features;
    m->step = STEP_WAIT_REPLY;
    int status = wire_frame_encode(WIRE_HELLO, 0, &hello, out);
    return status == YOLK_OK ? YOLK_OK : fail(m, status, "cannot write the hello");
}

/* Tells the peer why, in a frame of `kind`. What was agreed or not is lost either way, so a failure
 * here adds nothing. */
static int fail_and_tell(struct wire_hello_machine *m, uint16_t kind, struct base_buf *out,
                         int status)
{
    int rc;
    if (kind == WIRE_HELLO_REPLY) {
        struct wire_hello_reply reply = {.status = status, .text = wire_view_text(m->text)};
        memcpy(reply.nonce, m->server_nonce, WIRE_NONCE_SIZE);
        memcpy(reply.instance, m->instance, WIRE_ID_SIZE);
        rc = wire_frame_encode(kind, 0, &reply, out);
    } else {
        struct wire_status_reply reply = {.status = status, .text = wire_view_text(m->text)};
        rc = wire_frame_encode(kind, 0, &reply, out);
    }
    (void)rc;
    return base_fail(status, 0, "%s", m->text);
}

static int check_hello(struct wire_hello_machine *m, const struct wire_hello *hello)
{
    static const uint8_t zero[WIRE_NONCE_SIZE];
    if (hello->min == 0 || hello->min > hello->max || !memcmp(hello->nonce, zero, sizeof(zero)))
        return fail(m, YOLK_ERR_PROTOCOL, "a hello without versions or nonce");
    uint32_t top = hello->max < m->version_max ? hello->max : m->version_max;
    if (top < hello->min || top < m->version_min)
        return fail(m, YOLK_ERR_VERSION,
                    "no common protocol version: the server speaks %u to %u, the client %u to %u",
                    m->version_min, m->version_max, hello->min, hello->max);
    if (hello->role < WIRE_ROLE_CLIENT || hello->role > WIRE_ROLE_ADMIN)
        return fail(m, YOLK_ERR_UNSUPPORTED, "unknown role %u", hello->role);
    bool known = hello->purpose >= WIRE_PURPOSE_CONTROL && hello->purpose <= WIRE_PURPOSE_PEER;
    if (!known || (m->purposes && !(m->purposes >> hello->purpose & 1)))
        return fail(m, YOLK_ERR_UNSUPPORTED,
                    "connections of purpose %u are not served at this address", hello->purpose);
    m->version = top;
    return YOLK_OK;
}

static int server_hello(struct wire_hello_machine *m, const struct wire_hello *hello,
                        struct base_buf *out)
{
    int status = check_hello(m, hello);
    if (status != YOLK_OK)
        return fail_and_tell(m, WIRE_HELLO_REPLY, out, status);
    m->offer_min = hello->min;
    m->offer_max = hello->max;
    m->client_features = hello->features;
    m->features = hello->features & m->own_features;
    m->role = hello->role;
    m->purpose = hello->purpose;
    m->session = hello->session;
    memcpy(m->client_nonce, hello->nonce, WIRE_NONCE_SIZE);
    memcpy(m->peer_instance, hello->instance, WIRE_ID_SIZE);
    struct wire_hello_reply reply = {
        .version = m->version,
        .features = m->features,
        .auth_required = m->secret_size > 0,
    };
    memcpy(reply.nonce, m->server_nonce, WIRE_NONCE_SIZE);
    memcpy(reply.instance, m->instance, WIRE_ID_SIZE);
    if (reply.auth_required)
        make_proof(m, server_label, reply.proof);
    status = wire_frame_encode(WIRE_HELLO_REPLY, 0, &reply, out);
    if (status != YOLK_OK)
        return fail(m, status, "cannot write the reply to the hello");
    if (!reply.auth_required)
        return done(m, false);
    m->step = STEP_WAIT_AUTH;
    return YOLK_OK;
}

static int server_auth(struct wire_hello_machine *m, const struct wire_auth *auth,
                       struct base_buf *out)
{
    uint8_t expected[WIRE_PROOF_SIZE];
    make_proof(m, client_label, expected);
    if (sodium_memcmp(expected, auth->proof, WIRE_PROOF_SIZE) != 0) {
        int status = fail(m, YOLK_ERR_AUTH, "the client does not have this server's shared secret");
        return fail_and_tell(m, WIRE_AUTH_REPLY, out, status);
    }
    struct wire_status_reply reply = {.status = YOLK_OK};
    int status = wire_frame_encode(WIRE_AUTH_REPLY, 0, &reply, out);
    return status == YOLK_OK ? done(m, true) : fail(m, status, "cannot write the reply");
}

/* A peer's status is a foreign number: only failures that we know are passed on. */
static int peer_failure(struct wire_hello_machine *m, int32_t status, struct wire_view text)
{
    char shown[WIRE_HELLO_TEXT_MAX - 16];
    wire_view_copy_text(text, shown, sizeof(shown));
    if (status >= 0 || status < YOLK_ERR_CONFIG)
        status = YOLK_ERR_PROTOCOL;
    return fail(m, status, "the peer says: %s", shown[0] ? shown : yolk_strerror(status));
}

static int client_reply(struct wire_hello_machine *m, const struct wire_hello_reply *reply,
                        struct base_buf *out)
{
    if (reply->status != YOLK_OK)
        return peer_failure(m, reply->status, reply->text);
    if (reply->version < m->version_min || reply->version > m->version_max)
        return fail(m, YOLK_ERR_PROTOCOL, "the server chose version %u, which was not offered",
                    reply->version);
    if (reply->features & ~m->own_features)
        return fail(m, YOLK_ERR_PROTOCOL, "the server chose features that were not offered");
    m->version = reply->version;
    m->features = reply->features;
    memcpy(m->server_nonce, reply->nonce, WIRE_NONCE_SIZE);
    memcpy(m->peer_instance, reply->instance, WIRE_ID_SIZE);
    int status;
    if (!reply->auth_required) {
        if (m->secret_size == 0)
            return done(m, false);
        /* Else anyone who answers at this address could pose as the server. */
        status = fail(m, YOLK_ERR_AUTH,
                      "this side has a shared secret, but the server works without one");
        return fail_and_tell(m, WIRE_ERROR, out, status);
    }
    if (m->secret_size == 0) {
        status =
            fail(m, YOLK_ERR_AUTH, "the server requires a shared secret, and this side has none");
        return fail_and_tell(m, WIRE_ERROR, out, status);
    }
    uint8_t expected[WIRE_PROOF_SIZE];
    make_proof(m, server_label, expected);
    if (sodium_memcmp(expected, reply->proof, WIRE_PROOF_SIZE) != 0) {
        status = fail(m, YOLK_ERR_AUTH, "the shared secrets of client and server differ");
        return fail_and_tell(m, WIRE_ERROR, out, status);
    }
    struct wire_auth auth;
    make_proof(m, client_label, auth.proof);
    status = wire_frame_encode(WIRE_AUTH, 0, &auth, out);
    if (status != YOLK_OK)
        return fail(m, status, "cannot write the proof");
    m->step = STEP_WAIT_AUTH_REPLY;
    return YOLK_OK;
}

int wire_hello_check_header(const struct wire_header *header)
{
    if (header->kind < WIRE_HELLO || header->kind > WIRE_ERROR)
        return base_fail(YOLK_ERR_PROTOCOL, 0, "a frame of kind %u before the hello", header->kind);
    if (header->body_size > HELLO_BODY_MAX)
        return base_fail(YOLK_ERR_TOO_LARGE, 0, "a hello of %u bytes", header->body_size);
    return YOLK_OK;
}

static uint16_t expected_kind(const struct wire_hello_machine *m)
{
    switch (m->step) {
    case STEP_WAIT_HELLO:
        return WIRE_HELLO;
    case STEP_WAIT_REPLY:
        return WIRE_HELLO_REPLY;
    case STEP_WAIT_AUTH:
        return WIRE_AUTH;
    case STEP_WAIT_AUTH_REPLY:
        return WIRE_AUTH_REPLY;
    default:
        return 0;
    }
}

int wire_hello_input(struct wire_hello_machine *m, const struct wire_header *header,
                     const uint8_t *body, struct base_buf *out)
{
    if (m->state != WIRE_HELLO_RUNNING)
        return base_fail(YOLK_ERR_INVALID, 0, "the hello is over");
    int status = wire_hello_check_header(header);
    if (status != YOLK_OK)
        return fail(m, status, "%s", "the peer did not begin with a hello");
    bool is_error = header->kind == WIRE_ERROR;
    if (!is_error && header->kind != expected_kind(m)) {
        status = fail(m, YOLK_ERR_PROTOCOL, "%s at the wrong time", wire_kind_name(header->kind));
        return fail_and_tell(m, WIRE_ERROR, out, status);
    }
    union {
        struct wire_hello hello;
        struct wire_hello_reply hello_reply;
        struct wire_auth auth;
        struct wire_status_reply reply;
    } msg;
    status = wire_decode(header->kind, body, header->body_size, &msg);
    if (status != YOLK_OK) {
        status = fail(m, status, "malformed %s", wire_kind_name(header->kind));
        return is_error ? status : fail_and_tell(m, WIRE_ERROR, out, status);
    }
    switch (header->kind) {
    case WIRE_HELLO:
        return server_hello(m, &msg.hello, out);
    case WIRE_HELLO_REPLY:
        return client_reply(m, &msg.hello_reply, out);
    case WIRE_AUTH:
        return server_auth(m, &msg.auth, out);
    case WIRE_AUTH_REPLY:
        if (msg.reply.status == YOLK_OK)
            return done(m, true);
        return peer_failure(m, msg.reply.status, msg.reply.text);
    default:
        return peer_failure(m, msg.reply.status, msg.reply.text);
    }
}

static int run_round(struct wire_hello_machine *m, const struct wire_hello_io *io,
                     struct base_buf *out)
{
    uint8_t head[WIRE_HEADER_SIZE];
    uint8_t body[HELLO_BODY_MAX];
    struct wire_header header;
    int status = io->recv(io->self, head, sizeof(head));
    if (status != YOLK_OK)
        return fail(m, status, "no answer to the hello: %s", yolk_strerror(status));
    status = wire_header_decode(head, &header);
    if (status == YOLK_OK)
        status = wire_hello_check_header(&header);
    if (status != YOLK_OK)
        return fail(m, status, "the peer at this address does not speak Yolk's protocol");
    if (header.body_size > 0)
        status = io->recv(io->self, body, header.body_size);
    if (status != YOLK_OK)
        return fail(m, status, "the hello was cut short: %s", yolk_strerror(status));
    return wire_hello_input(m, &header, body, out);
}

int wire_hello_run(struct wire_hello_machine *m, const struct wire_hello_io *io)
{
    struct base_buf out;
    base_buf_init(&out, HELLO_BODY_MAX);
    int status = wire_hello_start(m, &out);
    for (;;) {
        if (out.size > 0) {
            int sent = io->send(io->self, out.data, out.size);
            base_buf_clear(&out);
            if (sent != YOLK_OK && status == YOLK_OK)
                status = fail(m, sent, "cannot send the hello: %s", yolk_strerror(sent));
        }
        if (status != YOLK_OK || m->state != WIRE_HELLO_RUNNING)
            break;
        status = run_round(m, io, &out);
    }
    base_buf_free(&out);
    return status;
}
