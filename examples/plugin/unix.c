/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that works between processes of one machine and one user, over Unix sockets: each
 * channel is a connection with one io under way, each connection a thread of the provider.
 *
 * A request is followed by the bytes of a write, an answer by those of a read. Neither side trusts
 * the other to go on: the consumer never waits, and the provider's threads can be ended.
 *
 * When is a write quiet? The provider stops receiving before it closes, and what it has closed it
 * touches memory for no more. So a consumer that gives a write up waits for the end of the
 * connection before it says so, and never has to answer YOLK_ERR_STUCK. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <yolk/plugin.h>

#define NAME "unix"

enum { SLICE_BYTES_MAX = 1 << 20, CONNECTIONS_MAX = 64, TEXT_SIZE = 33 };

/* Both processes run on one machine: numbers go as they lie in memory. */
struct request {
    uint64_t segment, session, offset, size;
    struct yolk_ticket ticket;
    uint32_t opcode;
};
struct answer {
    int64_t status;
};

struct endpoint {
    const struct yolk_plugin_host *yolk;
    _Atomic bool stopped;
};

/* ---- the endpoint ---- */

static enum yolk_status probe(const struct yolk_transport_options *options, struct yolk_probe *out)
{
    (void)options;
    out->latency_ns = 20000;
    out->bandwidth_bytes = UINT64_C(2) << 30;
    return YOLK_OK;
}

static enum yolk_status init(const struct yolk_transport_options *options, void **endpoint)
{
    struct endpoint *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return options->yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an endpoint");
    made->yolk = options->yolk;
    *endpoint = made;
    return YOLK_OK;
}

/* The channels notice it at their next poll; the threads belong to what is served. */
static enum yolk_status stop(void *endpoint)
{
    ((struct endpoint *)endpoint)->stopped = true;
    return YOLK_OK;
}

static void fini(void *endpoint)
{
    free(endpoint);
}

static void limits(void *endpoint, struct yolk_limits *out)
{
    (void)endpoint;
    out->slice_bytes_max = SLICE_BYTES_MAX;
    out->depth_max = 1;
    out->alignment = 1;
}

static enum yolk_status add_buffer(void *endpoint, void *pointer, uint64_t size, void **key)
{
    (void)endpoint, (void)pointer, (void)size;
    *key = NULL;
    return YOLK_OK;
}

static void remove_buffer(void *endpoint, void *key)
{
    (void)endpoint, (void)key;
}

/* ---- sockets ---- */

/* A name that no file has; it ends with the socket. */
static socklen_t address_of(const char *text, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int size = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "yolk-unix-%s", text);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

/* All of it, however long it takes; false: the connection is at its end. */
static bool receive_all(int fd, void *to, size_t size)
{
    for (uint8_t *at = to; size > 0;) {
        ssize_t got = recv(fd, at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

static bool send_all(int fd, const void *from, size_t size)
{
    for (const uint8_t *at = from; size > 0;) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* ---- the provider side ---- */

struct connection {
    struct connection *next;
    struct served *served;
    pthread_t thread;
    int fd;
    uint64_t session;     /* of the io under way */
    enum yolk_opcode now; /* that io's; 0: none */
    bool ended;           /* its thread can be joined */
};

struct served {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a connection ended, or all shall */
    uint8_t *memory;        /* NULL: an offset is an address */
    struct yolk_access access;
    struct connection *connections;
    uint32_t connection_count;
    pthread_t acceptor;
    int listener;
    bool ending;
};

/* Signals are the application's: none of them is to arrive in a thread of ours. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* The io counts as under way before its owner is asked, so that a fence sees each that was allowed.
 */
static bool begin(struct connection *connection, const struct request *request)
{
    struct served *served = connection->served;
    pthread_mutex_lock(&served->lock);
    bool ending = served->ending;
    connection->session = request->session;
    connection->now = ending ? 0 : (enum yolk_opcode)request->opcode;
    pthread_mutex_unlock(&served->lock);
    return !ending;
}

static void end(struct connection *connection)
{
    pthread_mutex_lock(&connection->served->lock);
    connection->now = 0;
    pthread_mutex_unlock(&connection->served->lock);
}

/* The bytes of a write that was refused. */
static bool skip(int fd, uint64_t size)
{
    uint8_t nowhere[4096];
    while (size > 0) {
        size_t part = size < sizeof(nowhere) ? (size_t)size : sizeof(nowhere);
        if (!receive_all(fd, nowhere, part))
            return false;
        size -= part;
    }
    return true;
}

/* False: the connection is at its end. */
static bool answer(struct connection *connection, const struct request *request)
{
    const struct yolk_access *access = &connection->served->access;
    const struct yolk_access_request asked = {.segment = request->segment,
                                              .session = request->session,
                                              .offset = request->offset,
                                              .size = request->size,
                                              .ticket = &request->ticket,
                                              .opcode = (enum yolk_opcode)request->opcode};
    uint8_t *there = (uint8_t *)((uintptr_t)connection->served->memory + request->offset);
    bool is_write = request->opcode == YOLK_WRITE;
    struct answer status = {access->begin != NULL ? access->begin(access->self, &asked)
                                                  : access->check(access->self, &asked)};
    bool allowed = status.status == YOLK_OK;
    bool alive = true;
    if (is_write && allowed)
        alive = receive_all(connection->fd, there, request->size);
    else if (is_write)
        alive = skip(connection->fd, request->size);
    else if (allowed)
        alive = send_all(connection->fd, &status, sizeof(status)) &&
                send_all(connection->fd, there, request->size);
    if (allowed && access->begin != NULL)
        access->end(access->self, &asked);
    end(connection); /* before the answer: who has it may rely on it */
    if (alive && (is_write || !allowed))
        alive = send_all(connection->fd, &status, sizeof(status));
    return alive;
}

static void *serve_connection(void *self)
{
    struct connection *connection = self;
    struct served *served = connection->served;
    struct request request;
    while (receive_all(connection->fd, &request, sizeof(request)) &&
           (request.opcode == YOLK_READ || request.opcode == YOLK_WRITE) &&
           request.size <= SLICE_BYTES_MAX && begin(connection, &request) &&
           answer(connection, &request))
        ;
    pthread_mutex_lock(&served->lock);
    close(connection->fd);
    connection->fd = -1;
    connection->now = 0;
    connection->ended = true;
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
    return NULL;
}

/* Called with the lock held. Joins the threads that are at their end. */
static void reap(struct served *served)
{
    for (struct connection **at = &served->connections; *at != NULL;) {
        struct connection *connection = *at;
        if (!connection->ended) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        served->connection_count--;
        pthread_join(connection->thread, NULL); /* it holds no lock any more */
        free(connection);
    }
}

/* Called with the lock held. What cannot be served is closed: its consumer sees the end. */
static void take(struct served *served, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    struct connection *made = NULL;
    if (!served->ending && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        peer.uid == geteuid())
        made = calloc(1, sizeof(*made));
    if (made != NULL) {
        made->served = served;
        made->fd = fd;
    }
    if (made == NULL || start_thread(&made->thread, serve_connection, made) != 0) {
        free(made);
        close(fd);
        return;
    }
    made->next = served->connections;
    served->connections = made;
    served->connection_count++;
}

/* Called with the lock held, while there are too many connections or no descriptor is left. Others
 * wait in the listener's queue. */
static void wait_for_room(struct served *served, bool failed)
{
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    moment.tv_sec += 1;
    while (!served->ending && served->connection_count == CONNECTIONS_MAX) {
        pthread_cond_wait(&served->changed, &served->lock);
        reap(served);
    }
    while (failed && !served->ending &&
           pthread_cond_timedwait(&served->changed, &served->lock, &moment) != ETIMEDOUT)
        ;
}

static void *accept_connections(void *self)
{
    struct served *served = self;
    for (bool ending = false; !ending;) {
        int fd = accept4(served->listener, NULL, NULL, SOCK_CLOEXEC);
        bool failed = fd < 0 && errno != EINTR && errno != ECONNABORTED;
        pthread_mutex_lock(&served->lock);
        reap(served);
        if (fd >= 0)
            take(served, fd);
        wait_for_room(served, failed);
        ending = served->ending;
        pthread_mutex_unlock(&served->lock);
    }
    return NULL;
}

static int listen_at(char text[TEXT_SIZE])
{
    uint64_t nonce[2]; /* names this life of the memory: no later one has the same */
    struct sockaddr_un address;
    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return -1;
    snprintf(text, TEXT_SIZE, "%016" PRIx64 "%016" PRIx64, nonce[0], nonce[1]);
    socklen_t size = address_of(text, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, CONNECTIONS_MAX) != 0)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static void free_served(struct served *served)
{
    if (served->listener >= 0)
        close(served->listener);
    pthread_cond_destroy(&served->changed);
    pthread_mutex_destroy(&served->lock);
    free(served);
}

static enum yolk_status serve(void *endpoint, const struct yolk_serve *serve, void **served,
                              char *text, size_t text_size)
{
    const struct yolk_plugin_host *yolk = ((struct endpoint *)endpoint)->yolk;
    if (serve->file != NULL)
        return yolk->fail(YOLK_ERR_UNSUPPORTED, 0, NAME " serves memory, no files");
    if (text_size < TEXT_SIZE)
        return yolk->fail(YOLK_ERR_BUFFER_SMALL, 0, "no room for the text of " NAME);
    struct served *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory to serve a segment");
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->memory = serve->memory;
    made->access = serve->access;
    made->listener = listen_at(text);
    int error =
        made->listener < 0 ? errno : start_thread(&made->acceptor, accept_connections, made);
    if (error != 0) {
        free_served(made);
        return yolk->fail(YOLK_ERR_SYSTEM, error, NAME " cannot listen");
    }
    *served = made;
    return YOLK_OK;
}

static void set_segment_id(void *endpoint, void *served, uint64_t segment)
{
    (void)endpoint, (void)served, (void)segment; /* each io asks; nothing lasting to be ended */
}

static enum yolk_status fence_session(void *endpoint, void *given, uint64_t session)
{
    struct served *served = given;
    enum yolk_status status = YOLK_OK;
    (void)endpoint;
    pthread_mutex_lock(&served->lock);
    for (struct connection *at = served->connections; at != NULL; at = at->next)
        if (at->session == session && at->now == YOLK_WRITE) {
            shutdown(at->fd, SHUT_RD); /* what is still to come is not taken */
            status = YOLK_ERR_AGAIN;
        }
    pthread_mutex_unlock(&served->lock);
    return status;
}

static void unserve(void *endpoint, void *given)
{
    struct served *served = given;
    (void)endpoint;
    pthread_mutex_lock(&served->lock);
    served->ending = true;
    /* A writer's consumer is to see the end when it is quiet, not earlier. */
    for (struct connection *at = served->connections; at != NULL; at = at->next)
        if (at->fd >= 0)
            shutdown(at->fd, at->now == YOLK_WRITE ? SHUT_RD : SHUT_RDWR);
    shutdown(served->listener, SHUT_RDWR);
    pthread_cond_broadcast(&served->changed);
    pthread_mutex_unlock(&served->lock);
    pthread_join(served->acceptor, NULL);
    pthread_mutex_lock(&served->lock);
    while (reap(served), served->connections != NULL)
        pthread_cond_wait(&served->changed, &served->lock);
    pthread_mutex_unlock(&served->lock);
    free_served(served);
}

/* ---- the consumer side ---- */

struct target {
    struct endpoint *endpoint;
    char text[TEXT_SIZE];
    uint64_t segment, session;
};

struct channel {
    struct target *target;
    int fd;             /* -1: to be connected anew */
    struct yolk_io *io; /* under way; NULL: none */
    struct request request;
    struct answer answer;
    size_t sent, received; /* of request and bytes, of answer and bytes */
    bool giving_up;        /* only the connection's end is waited for */
    enum yolk_status outcome;
};

static int connect_to(const char *text)
{
    struct sockaddr_un address;
    socklen_t size = address_of(text, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static enum yolk_status connect_channel(struct channel *channel)
{
    const struct yolk_plugin_host *yolk = channel->target->endpoint->yolk;
    channel->fd = connect_to(channel->target->text);
    if (channel->fd >= 0)
        return YOLK_OK;
    if (errno == EAGAIN)
        return YOLK_ERR_AGAIN; /* the provider's queue is full */
    if (errno == ECONNREFUSED)
        return yolk->fail(YOLK_ERR_PEER_DEAD, 0, "the provider is gone");
    return yolk->fail(errno == EMFILE || errno == ENFILE ? YOLK_ERR_LIMIT : YOLK_ERR_SYSTEM, errno,
                      NAME " cannot connect");
}

static enum yolk_status open_target(void *endpoint, const char *text, uint64_t segment,
                                    uint64_t size, uint64_t session, void **target)
{
    const struct yolk_plugin_host *yolk = ((struct endpoint *)endpoint)->yolk;
    (void)size; /* the provider knows */
    if (strlen(text) != TEXT_SIZE - 1 || strspn(text, "0123456789abcdef") != TEXT_SIZE - 1)
        return yolk->fail(YOLK_ERR_INVALID, 0, "%.40s is no text of " NAME, text);
    int fd = connect_to(text);
    if (fd < 0 && errno != EAGAIN)
        return yolk->fail(YOLK_ERR_NO_ROUTE, errno, "nobody on this machine serves %s", text);
    if (fd >= 0)
        close(fd);
    struct target *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a target");
    *made = (struct target){.endpoint = endpoint, .segment = segment, .session = session};
    memcpy(made->text, text, TEXT_SIZE);
    *target = made;
    return YOLK_OK;
}

static void close_target(void *endpoint, void *target)
{
    (void)endpoint;
    free(target);
}

static enum yolk_status channel_open(void *endpoint, void *target, void **channel)
{
    struct endpoint *mine = endpoint;
    if (mine->stopped)
        return mine->yolk->fail(YOLK_ERR_CLOSED, 0, NAME " was stopped");
    struct channel *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return mine->yolk->fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a channel");
    made->target = target;
    enum yolk_status status = connect_channel(made);
    if (status != YOLK_OK) {
        free(made);
        return status;
    }
    *channel = made;
    return YOLK_OK;
}

static void disconnect(struct channel *channel)
{
    close(channel->fd);
    channel->fd = -1;
}

/* The io will end so. A read is over with its connection; of a write of which something was sent
 * the provider has to say, by closing, that it touches its memory no more. */
static void give_up(struct channel *channel, enum yolk_status outcome)
{
    if (channel->giving_up)
        return;
    channel->outcome = outcome;
    channel->giving_up = true;
    if (channel->io->opcode == YOLK_READ || channel->sent == 0)
        disconnect(channel);
    else
        shutdown(channel->fd, SHUT_WR);
}

/* A piece of head and body, as one stream of which `done` bytes are through. 0: not now. */
static ssize_t step(int fd, bool out, void *head, size_t head_size, void *body, size_t size,
                    size_t done)
{
    uint8_t *at = done < head_size ? (uint8_t *)head + done : (uint8_t *)body + (done - head_size);
    size_t left = done < head_size ? head_size - done : head_size + size - done;
    ssize_t moved =
        out ? send(fd, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(fd, at, left, MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return moved > 0 ? moved : -1;
}

/* Sends and receives what goes without waiting. True: the io is over, and outcome says how. */
static bool advance(struct channel *channel)
{
    struct yolk_io *io = channel->io;
    bool is_write = io->opcode == YOLK_WRITE;
    size_t out = sizeof(channel->request) + (is_write ? io->size : 0);
    ssize_t moved = 1;
    while (!channel->giving_up && channel->sent < out && moved > 0) {
        moved = step(channel->fd, true, &channel->request, sizeof(channel->request), io->local,
                     io->size, channel->sent);
        if (moved < 0)
            give_up(channel, YOLK_ERR_LINK);
        else
            channel->sent += (size_t)moved;
    }
    if (channel->giving_up && channel->fd < 0)
        return true;
    /* What was refused, or is given up, has no bytes behind its answer. */
    do {
        bool has_bytes = !is_write && channel->answer.status == YOLK_OK;
        size_t in = sizeof(channel->answer) +
                    (has_bytes && channel->received >= sizeof(channel->answer) ? io->size : 0);
        if (channel->received == in && !channel->giving_up) {
            channel->outcome = (enum yolk_status)channel->answer.status;
            return true;
        }
        if (channel->received >= in && channel->giving_up)
            channel->received = 0; /* to the end, wherever it comes */
        moved = step(channel->fd, false, &channel->answer, sizeof(channel->answer), io->local,
                     io->size, channel->received);
        channel->received += moved > 0 ? (size_t)moved : 0;
    } while (moved > 0);
    if (moved == 0)
        return false;
    channel->outcome = channel->giving_up ? channel->outcome : YOLK_ERR_LINK;
    disconnect(channel);
    return true;
}

static enum yolk_submit submit(void *given, struct yolk_io *io)
{
    struct channel *channel = given;
    const struct target *target = channel->target;
    const struct yolk_plugin_host *yolk = target->endpoint->yolk;
    io->transferred = 0;
    io->status = YOLK_OK;
    if (channel->io != NULL)
        return YOLK_SUBMIT_AGAIN;
    if (target->endpoint->stopped)
        io->status = yolk->fail(YOLK_ERR_CLOSED, 0, NAME " was stopped");
    else if (io->size > SLICE_BYTES_MAX)
        io->status = yolk->fail(YOLK_ERR_TOO_LARGE, 0, NAME " takes %d bytes at once, not %" PRIu64,
                                SLICE_BYTES_MAX, io->size);
    else if (channel->fd < 0)
        io->status = connect_channel(channel);
    if (io->status != YOLK_OK)
        return io->status == YOLK_ERR_AGAIN ? YOLK_SUBMIT_AGAIN : YOLK_SUBMIT_FAILED;
    memset(&channel->request, 0, sizeof(channel->request));
    channel->request.segment = target->segment;
    channel->request.session = target->session;
    channel->request.offset = io->offset;
    channel->request.size = io->size;
    channel->request.ticket = io->ticket;
    channel->request.opcode = (uint32_t)io->opcode;
    channel->answer.status = YOLK_OK;
    channel->sent = channel->received = 0;
    channel->giving_up = false;
    channel->io = io;
    return YOLK_SUBMIT_QUEUED;
}

static uint32_t poll_channel(void *given, struct yolk_completion *completions, uint32_t max)
{
    struct channel *channel = given;
    if (channel->io == NULL || max == 0)
        return 0;
    if (channel->target->endpoint->stopped)
        give_up(channel, YOLK_ERR_CLOSED);
    if (!advance(channel))
        return 0;
    completions[0].cookie = channel->io->cookie;
    completions[0].status = channel->outcome;
    completions[0].transferred = channel->outcome == YOLK_OK ? channel->io->size : 0;
    channel->io = NULL;
    return 1;
}

static void cancel(void *given, uint64_t cookie)
{
    struct channel *channel = given;
    if (channel->io != NULL && channel->io->cookie == cookie)
        give_up(channel, YOLK_ERR_CANCELED);
}

static enum yolk_status channel_close(void *given)
{
    struct channel *channel = given;
    if (channel->io != NULL)
        return YOLK_ERR_BUSY;
    if (channel->fd >= 0)
        close(channel->fd);
    free(channel);
    return YOLK_OK;
}

static uint32_t wait_fds(void *given, struct pollfd *fds, uint32_t max)
{
    struct channel *channel = given;
    if (channel->io == NULL || channel->fd < 0 || max == 0)
        return 0;
    size_t out =
        sizeof(channel->request) + (channel->io->opcode == YOLK_WRITE ? channel->io->size : 0);
    fds[0].fd = channel->fd;
    fds[0].events = POLLIN;
    if (!channel->giving_up && channel->sent < out)
        fds[0].events |= POLLOUT;
    return 1;
}

/* ---- the table ---- */

const struct yolk_transport_ops *yolk_transport_plugin(void)
{
    static const struct yolk_transport_ops ops = {
        .size = sizeof(ops),
        .abi = YOLK_TRANSPORT_ABI,
        .name = NAME,
        .caps = YOLK_CAP_READ | YOLK_CAP_WRITE | YOLK_CAP_SERVE | YOLK_CAP_SAME_MACHINE |
                YOLK_CAP_PEER_DEATH,
        .probe = probe,
        .init = init,
        .stop = stop,
        .fini = fini,
        .limits = limits,
        .add_buffer = add_buffer,
        .remove_buffer = remove_buffer,
        .serve = serve,
        .set_segment_id = set_segment_id,
        .fence_session = fence_session,
        .unserve = unserve,
        .open_target = open_target,
        .close_target = close_target,
        .channel_open = channel_open,
        .submit = submit,
        .poll = poll_channel,
        .cancel = cancel,
        .channel_close = channel_close,
        .wait_fds = wait_fds,
    };
    return &ops;
}
