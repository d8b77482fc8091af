/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#define LOG_ROOM "server"
#include "base/log.h"
#include "platform/clock.h"
#include "master/view.h"
#include "wire/hello.h"
#include "wire/msg.h"

/* Of one connection in one turn: its batch is answered with one write, and no other waits longer.
 * A frame that begins below the bytes is performed as a whole. */
#define FRAMES_A_TURN       64
#define BYTES_A_TURN        (128u * 1024u)
#define HANDSHAKE_INPUT_MAX (16u * 1024u)
#define OUTPUT_MAX_DEFAULT  (64u << 20)
#define HANDSHAKE_MS        5000
#define LOG_INTERVAL_NS     CLOCK_NS_PER_S
/* No slot has it: what the core answers to the admin pages. */
#define CONNECTION_ADMIN UINT64_MAX

struct connection {
    struct server *server;
    struct loop_stream *stream;
    uint64_t id;
    uint32_t slot;
    bool greeted; /* the hello is done */
    struct wire_hello_machine hello;
    struct net_address address;
    char peer[NET_ADDRESS_TEXT_MAX];
};

struct slot {
    struct connection *connection;
    uint32_t lives; /* an id of an earlier life of the slot must not reach the present one */
};

struct server {
    struct loop *loop;
    struct server_options options;
    uint8_t secret[WIRE_SECRET_MAX];
    struct loop_listener *listener;
    struct loop_timer *timer;
    struct net_address address;
    struct master_core *core;
    struct slot *slots;
    size_t first_free; /* no slot below it is free */
    struct server_stats stats;
    server_removed removed;
    void *removed_self;
    bool elsewhere; /* somebody on another machine, or who is told of as if, was here */
    char loopback_node[MAX_NAME_SIZE +
                       1]; /* said that it is reached at this machine's own address */
    bool touched;          /* the core has had input in this turn */
    uint64_t next_tick_ns;
    uint64_t log_after_ns; /* bad peers may log again from here */
    uint64_t log_skipped;
};

/* One line a second at most about misbehaving peers: they must not be able to fill the disk. */
__attribute__((format(printf, 2, 3))) static void log_peer(struct server *server,
                                                           const char *format, ...)
{
    uint64_t now = clock_real_now_ns();
    if (now < server->log_after_ns) {
        server->log_skipped++;
        return;
    }
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (server->log_skipped > 0)
        log_warn("%s (and %llu more such lines left out)", text,
                 (unsigned long long)server->log_skipped);
    else
        log_warn("%s", text);
    server->log_skipped = 0;
    server->log_after_ns = now + LOG_INTERVAL_NS;
}

static uint64_t connection_id(uint32_t slot, uint32_t lives)
{
    return (uint64_t)lives << 32 | slot;
}

static struct connection *find_connection(struct server *server, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot >= server->options.max_connections)
        return NULL;
    struct connection *connection = server->slots[slot].connection;
    return connection && connection->id == id ? connection : NULL;
}

/* ---- what the core sends ---- */

static void tell_removed(struct server *server, uint16_t kind, uint64_t request,
                         const uint8_t *body, size_t size)
{
    struct wire_remove_all_reply msg;
    if (server->removed != NULL && kind == WIRE_REMOVE_ALL_REPLY &&
        wire_decode(kind, body, size, &msg) == YOLK_OK)
        server->removed(server->removed_self, request, msg.status, msg.count);
}

static void sink_send(void *self, uint64_t id, uint16_t kind, uint64_t request_id,
                      const uint8_t *body, size_t size)
{
    struct server *server = self;
    if (id == CONNECTION_ADMIN) {
        tell_removed(server, kind, request_id, body, size);
        return;
    }
    struct connection *connection = find_connection(server, id);
    if (!connection || loop_stream_is_closing(connection->stream))
        return;
    struct wire_header header = {
        .kind = kind, .body_size = (uint32_t)size, .request_id = request_id};
    uint8_t bytes[WIRE_HEADER_SIZE];
    wire_header_encode(&header, bytes);
    if (loop_stream_write(connection->stream, bytes, sizeof(bytes)) != YOLK_OK ||
        (size > 0 && loop_stream_write(connection->stream, body, size) != YOLK_OK))
        return; /* it is being closed, as one that does not read */
    server->stats.frames_out++;
    server->stats.bytes_out += sizeof(bytes) + size;
}

static struct master_sink make_sink(struct server *server)
{
    return (struct master_sink){.self = server, .send = sink_send};
}

static void tick(struct server *server)
{
    uint64_t now = clock_real_now_ns();
    struct master_sink sink = make_sink(server);
    server->touched = false;
    server->next_tick_ns = master_core_tick(server->core, now, &sink);
    loop_timer_set(server->timer, server->next_tick_ns);
}

static void timer_fired(void *self)
{
    struct server *server = self;
    server->touched = true;
}

static void end_of_turn(void *self)
{
    struct server *server = self;
    if (server->touched)
        tick(server);
}

/* ---- connections ---- */

static void send_error(struct connection *connection, uint64_t request_id, int status,
                       const char *text)
{
    struct base_buf out;
    base_buf_init(&out, 64 * 1024);
    struct wire_status_reply reply = {.status = status, .text = wire_view_text(text)};
    if (wire_frame_encode(WIRE_ERROR, request_id, &reply, &out) == YOLK_OK &&
        loop_stream_write(connection->stream, out.data, out.size) == YOLK_OK)
        connection->server->stats.frames_out++;
    base_buf_free(&out);
}

static void refuse(struct connection *connection, int status, const char *text)
{
    struct server *server = connection->server;
    if (connection->greeted)
        server->stats.closed_protocol++;
    else
        server->stats.refused_handshake++;
    log_peer(server, "closed the connection from %s: %s", connection->peer, text);
    send_error(connection, 0, status, text);
    loop_stream_close(connection->stream, YOLK_ERR_CANCELED, true);
}

static void handshake(struct connection *connection, const struct wire_header *header,
                      const uint8_t *body)
{
    struct server *server = connection->server;
    struct base_buf out;
    base_buf_init(&out, 64 * 1024);
    int status = wire_hello_input(&connection->hello, header, body, &out);
    if (out.size > 0 && loop_stream_write(connection->stream, out.data, out.size) != YOLK_OK) {
        base_buf_free(&out);
        return;
    }
    base_buf_free(&out);
    if (status != YOLK_OK || connection->hello.state == WIRE_HELLO_FAILED) {
        server->stats.refused_handshake++;
        log_peer(server, "refused the connection from %s: %s", connection->peer,
                 connection->hello.text[0] ? connection->hello.text : yolk_strerror(status));
        loop_stream_close(connection->stream, YOLK_ERR_CANCELED, true);
        return;
    }
    if (connection->hello.state != WIRE_HELLO_DONE)
        return;
    connection->greeted = true;
    wire_hello_wipe(&connection->hello);
    loop_stream_set_deadline(connection->stream, CLOCK_NEVER);
    loop_stream_set_input_max(connection->stream, MAX_FRAME_BODY + WIRE_HEADER_SIZE);
    loop_stream_set_urgent(connection->stream, connection->hello.purpose == WIRE_PURPOSE_CONTROL);
}

/* ---- addresses that lead nowhere ---- */

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 ||
           strncmp(host, "localhost:", 10) == 0;
}

/* A node that is told of as 127.0.0.1 is of no use to whoever is on another machine. */
static void warn_of_loopback(struct server *server)
{
    if (!server->elsewhere || !server->loopback_node[0])
        return;
    log_warn(
        "node %s gives its address as 127.0.0.1, and not all of this cluster is on this machine: "
        "others cannot read or write there; start it with --host ADDRESS, or with the master's "
        "address that others use",
        server->loopback_node);
    server->loopback_node[0] = '\0'; /* once */
}

static void look_at_mount(struct server *server, const struct wire_header *header,
                          const uint8_t *body)
{
    struct wire_segment_mount mount;
    char endpoints[MAX_ENDPOINTS + 1];
    if (header->kind != WIRE_SEGMENT_MOUNT ||
        wire_decode(header->kind, body, header->body_size, &mount) != YOLK_OK)
        return;
    wire_view_copy_text(mount.endpoints, endpoints, sizeof(endpoints));
    const char *tcp = strstr(endpoints, "tcp=");
    if (!tcp)
        return;
    if (is_loopback(tcp + 4))
        wire_view_copy_text(mount.name, server->loopback_node, sizeof(server->loopback_node));
    else
        server->elsewhere = true;
    warn_of_loopback(server);
}

static void look_at_peer(struct server *server, const struct connection *connection)
{
    if (server->elsewhere || is_loopback(connection->peer) ||
        strncmp(connection->peer, "unix:", 5) == 0)
        return;
    server->elsewhere = !net_address_is_own(&connection->address);
    warn_of_loopback(server);
}

static void serve_frame(struct connection *connection, const struct wire_header *header,
                        const uint8_t *body)
{
    struct server *server = connection->server;
    server->stats.frames_in++;
    if (header->kind < SERVER_KINDS)
        server->stats.kinds[header->kind]++;
    server->stats.bytes_in += WIRE_HEADER_SIZE + header->body_size;
    if (!connection->greeted) {
        handshake(connection, header, body);
        if (connection->greeted)
            look_at_peer(server, connection);
        return;
    }
    look_at_mount(server, header, body);
    struct master_sink sink = make_sink(server);
    server->touched = true;
    enum yolk_status status =
        master_core_input(server->core, clock_real_now_ns(), connection->id, header, body, &sink);
    if (status == YOLK_ERR_PROTOCOL)
        refuse(connection, YOLK_ERR_PROTOCOL, yolk_last_error());
}

static enum loop_input on_input(void *self, struct loop_stream *stream, const uint8_t *data,
                                size_t size, size_t *consumed)
{
    struct connection *connection = self;
    size_t at = 0;
    enum loop_input answer = LOOP_WAIT;
    for (int frames = 0; size - at >= WIRE_HEADER_SIZE; frames++) {
        if (frames == FRAMES_A_TURN || at >= BYTES_A_TURN) {
            answer = LOOP_MORE;
            break;
        }
        struct wire_header header;
        int status = wire_header_decode(data + at, &header);
        if (status == YOLK_OK && !connection->greeted &&
            header.body_size > HANDSHAKE_INPUT_MAX - WIRE_HEADER_SIZE)
            status = YOLK_ERR_TOO_LARGE;
        if (status != YOLK_OK) {
            refuse(connection, status,
                   status == YOLK_ERR_TOO_LARGE ? "a frame claims to be larger than its kind allows"
                                                : "these bytes are no Yolk frame");
            break;
        }
        if (size - at - WIRE_HEADER_SIZE < header.body_size)
            break;
        serve_frame(connection, &header, data + at + WIRE_HEADER_SIZE);
        at += WIRE_HEADER_SIZE + header.body_size;
        if (loop_stream_is_closing(stream))
            break;
    }
    *consumed = at;
    return answer;
}

static void on_closed(void *self, struct loop_stream *stream, enum yolk_status reason)
{
    (void)stream;
    struct connection *connection = self;
    struct server *server = connection->server;
    if (reason == YOLK_ERR_TIMEOUT && !connection->greeted) {
        server->stats.refused_handshake++;
        log_peer(server, "closed the connection from %s: no complete hello in %llu ms",
                 connection->peer, (unsigned long long)server->options.handshake_ms);
    } else if (reason == YOLK_ERR_LIMIT) {
        server->stats.closed_slow++;
        log_peer(server, "closed the connection from %s: it does not read what it asked for",
                 connection->peer);
    }
    server->slots[connection->slot].connection = NULL;
    if (connection->slot < server->first_free)
        server->first_free = connection->slot;
    server->stats.connections--;
    if (connection->greeted) {
        struct master_sink sink = make_sink(server);
        server->touched = true;
        master_core_disconnect(server->core, clock_real_now_ns(), connection->id, &sink);
        loop_timer_set(server->timer, clock_real_now_ns());
    }
    wire_hello_wipe(&connection->hello);
    free(connection);
}

static struct connection *add_connection(struct server *server)
{
    size_t slot = server->first_free;
    while (slot < server->options.max_connections && server->slots[slot].connection)
        slot++;
    server->first_free = slot;
    if (slot == server->options.max_connections)
        return NULL;
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return NULL;
    connection->server = server;
    connection->slot = (uint32_t)slot;
    connection->id = connection_id((uint32_t)slot, ++server->slots[slot].lives);
    return connection;
}

static bool on_accept(void *self, struct loop_stream *stream, const struct net_address *peer,
                      struct loop_stream_options *options)
{
    struct server *server = self;
    struct connection *connection = add_connection(server);
    if (!connection) {
        server->stats.refused_limit++;
        log_peer(server, "refused a connection: %zu are open, which is the most",
                 server->options.max_connections);
        return false;
    }
    struct wire_hello_options hello = {.features = WIRE_FEATURES,
                                       .secret = server->options.secret,
                                       .secret_size = server->options.secret_size};
    memcpy(hello.instance, master_core_instance(server->core), WIRE_ID_SIZE);
    if (wire_hello_init(&connection->hello, true, &hello) != YOLK_OK) {
        free(connection);
        return false;
    }
    connection->address = *peer;
    net_address_format(peer, connection->peer, sizeof(connection->peer));
    connection->stream = stream;
    server->slots[connection->slot].connection = connection;
    server->stats.connections++;
    server->stats.accepted++;
    *options = (struct loop_stream_options){
        .callbacks = {.input = on_input, .closed = on_closed},
        .self = connection,
        .input_max = HANDSHAKE_INPUT_MAX,
        .output_max = server->options.output_max,
        .deadline_ns = clock_after_ms(clock_real_now_ns(), server->options.handshake_ms),
    };
    return true;
}

/* ---- the server ---- */

static void apply_defaults(struct server_options *options)
{
    if (options->max_connections == 0 || options->max_connections > MAX_CONNECTIONS)
        options->max_connections = MAX_CONNECTIONS;
    if (options->handshake_ms == 0)
        options->handshake_ms = HANDSHAKE_MS;
    if (options->output_max == 0)
        options->output_max = OUTPUT_MAX_DEFAULT;
}

enum yolk_status server_create(struct loop *loop, const struct server_options *options,
                               struct server **out)
{
    if (options->secret_size > WIRE_SECRET_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "the secret has %zu bytes, at most %u are allowed",
                         options->secret_size, WIRE_SECRET_MAX);
    struct server *server = calloc(1, sizeof(*server));
    if (!server)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the server");
    server->loop = loop;
    server->options = *options;
    apply_defaults(&server->options);
    if (options->secret_size > 0)
        memcpy(server->secret, options->secret, options->secret_size);
    server->options.secret = options->secret_size > 0 ? server->secret : NULL;
    server->slots = calloc(server->options.max_connections, sizeof(*server->slots));
    enum yolk_status status =
        server->slots ? YOLK_OK : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for the server");
    if (status == YOLK_OK)
        status = master_core_create(&server->options.config, clock_real_now_ns(), options->seed,
                                    &server->core);
    if (status == YOLK_OK)
        status = loop_timer_create(loop, timer_fired, server, &server->timer);
    if (status == YOLK_OK)
        status = loop_listen(loop, &server->options.address, on_accept, server, &server->address,
                             &server->listener);
    if (status != YOLK_OK) {
        server_destroy(server);
        return status;
    }
    loop_set_turn(loop, end_of_turn, server);
    loop_timer_set(server->timer, clock_real_now_ns());
    *out = server;
    return YOLK_OK;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    loop_set_turn(server->loop, NULL, NULL);
    loop_listener_destroy(server->listener);
    loop_timer_destroy(server->timer);
    master_core_destroy(server->core);
    explicit_bzero(server->secret, sizeof(server->secret));
    free(server->slots);
    free(server);
}

const struct net_address *server_address(const struct server *server)
{
    return &server->address;
}

enum yolk_status server_remove_all(struct server *server, const char *tenant, bool force,
                                   uint64_t request)
{
    server->touched = true;
    return master_view_remove_all(server->core, clock_real_now_ns(), CONNECTION_ADMIN, request,
                                  tenant, force);
}

void server_set_removed(struct server *server, server_removed removed, void *self)
{
    server->removed = removed;
    server->removed_self = self;
}

struct master_core *server_core(struct server *server)
{
    return server->core;
}

const struct server_stats *server_get_stats(const struct server *server)
{
    return &server->stats;
}
