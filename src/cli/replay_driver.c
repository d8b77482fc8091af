/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A flow carries one request after another through lookup, get and put. Ordered replay has one flow
 * with all clients, unordered replay one flow a client. */
enum stage { STAGE_IDLE, STAGE_LOOKUP, STAGE_GET, STAGE_PUT, STAGE_END };

struct flow {
    enum stage stage;
    size_t request;
    size_t first_client, client_count;
    size_t outstanding;
    uint32_t prefix;                    /* blocks read so far without a gap */
    uint32_t from_ssd, from_gds;        /* of the prefix */
    uint32_t asked;                     /* the prefix that the get stage was split over */
    uint64_t slowest_ns;                /* of this stage: its clients run side by side */
    uint32_t parts[REPLAY_CLIENTS_MAX]; /* GET: what each client was given, then read */
    uint32_t given[REPLAY_CLIENTS_MAX];
    uint32_t parts_from_ssd[REPLAY_CLIENTS_MAX], parts_from_gds[REPLAY_CLIENTS_MAX];
};

struct driver {
    const struct replay_options *options;
    const struct trace *trace;
    struct replay_cluster *cluster;
    struct replay_worker *workers; /* readers, then writers; threads do both */
    size_t worker_count;
    struct replay_totals *totals;
    struct flow flows[REPLAY_CLIENTS_MAX];
    size_t flow_count;
    size_t next_request;
    uint64_t next_number;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct replay_worker *reader_of(struct driver *driver, size_t client)
{
    return &driver->workers[client];
}

static struct replay_worker *writer_of(struct driver *driver, size_t client)
{
    return &driver->workers[driver->worker_count == driver->options->clients
                                ? client
                                : driver->options->clients + client];
}

static int send_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -1;
        at += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static void lose_worker(struct replay_worker *worker)
{
    if (worker->fd >= 0)
        close(worker->fd);
    worker->fd = -1;
    worker->answer_bytes = 0;
}

/* A worker that dies meanwhile keeps its command; its successor gets it again. */
static void transmit(struct replay_worker *worker)
{
    if (worker->fd < 0)
        return;
    if (send_all(worker->fd, &worker->command, sizeof worker->command) ||
        send_all(worker->fd, worker->ids, worker->command.count * sizeof *worker->ids))
        lose_worker(worker);
}

static void give(struct driver *driver, struct flow *flow, struct replay_worker *worker,
                 enum replay_command_kind kind, size_t first, size_t count)
{
    worker->command = (struct replay_command){
        .kind = kind, .count = (uint32_t)count, .number = ++driver->next_number};
    worker->ids = trace_ids(driver->trace, flow->request) + first;
    worker->busy = true;
    flow->outstanding++;
    transmit(worker);
}

/* Splits blocks [first, end) of the request over the flow's clients. */
static void split(struct driver *driver, struct flow *flow, enum replay_command_kind kind,
                  size_t first, size_t end)
{
    size_t left = end - first;
    for (size_t i = 0; i < flow->client_count; i++) {
        size_t share = left / (flow->client_count - i);
        size_t client = flow->first_client + i;
        flow->given[i] = flow->parts[i] = flow->parts_from_ssd[i] = flow->parts_from_gds[i] = 0;
        if (!share)
            continue;
        flow->given[i] = (uint32_t)share;
        give(driver, flow,
             kind == REPLAY_PUT ? writer_of(driver, client) : reader_of(driver, client), kind,
             first, share);
        first += share;
        left -= share;
    }
}

static size_t block_count(const struct driver *driver, const struct flow *flow)
{
    return driver->trace->requests[flow->request].count;
}

static void finish_request(struct driver *driver, struct flow *flow)
{
    driver->totals->requests++;
    driver->totals->blocks_referenced += block_count(driver, flow);
    driver->totals->blocks_hit += flow->prefix;
    driver->totals->blocks_from_ssd += flow->from_ssd;
    driver->totals->blocks_from_gds += flow->from_gds;
    flow->stage = STAGE_IDLE;
    replay_progress(driver->options, driver->totals, driver->trace->count);
}

static void start_request(struct driver *driver, struct flow *flow)
{
    flow->prefix = flow->asked = flow->from_ssd = flow->from_gds = 0;
    flow->slowest_ns = 0;
    if (driver->next_request == driver->trace->count) {
        flow->stage = STAGE_END;
        return;
    }
    flow->request = driver->next_request++;
    flow->stage = STAGE_LOOKUP;
    size_t count = block_count(driver, flow);
    if (!count)
        finish_request(driver, flow);
    else
        give(driver, flow, reader_of(driver, flow->first_client),
             flow->client_count == 1 ? REPLAY_LOOKUP : REPLAY_EXIST, 0, count);
}

static void start_put(struct driver *driver, struct flow *flow)
{
    size_t count = block_count(driver, flow);
    driver->totals->get_ns += flow->slowest_ns;
    flow->slowest_ns = 0;
    flow->stage = STAGE_PUT;
    if (flow->prefix < count)
        split(driver, flow, REPLAY_PUT, flow->prefix, count);
}

/* Called whenever nothing of the flow is outstanding. */
static void advance(struct driver *driver, struct flow *flow)
{
    while (!flow->outstanding && flow->stage != STAGE_END) {
        switch (flow->stage) {
        case STAGE_IDLE:
            start_request(driver, flow);
            break;
        case STAGE_LOOKUP:
            if (flow->client_count > 1 && flow->asked) {
                flow->stage = STAGE_GET;
                split(driver, flow, REPLAY_GET, 0, flow->asked);
            } else {
                start_put(driver, flow);
            }
            break;
        case STAGE_GET:
            flow->prefix = 0;
            for (size_t i = 0; i < flow->client_count; i++) {
                flow->prefix += flow->parts[i];
                flow->from_ssd += flow->parts_from_ssd[i];
                flow->from_gds += flow->parts_from_gds[i];
                if (flow->parts[i] < flow->given[i])
                    break;
            }
            start_put(driver, flow);
            break;
        default:
            driver->totals->put_ns += flow->slowest_ns;
            finish_request(driver, flow);
            break;
        }
    }
}

static void record_get(struct replay_totals *totals, uint64_t ns)
{
    if (totals->get_us_count == totals->get_us_capacity) {
        size_t capacity = totals->get_us_capacity ? totals->get_us_capacity * 2 : 1024;
        uint32_t *bigger = realloc(totals->get_us, capacity * sizeof *bigger);
        if (!bigger)
            return;
        totals->get_us = bigger;
        totals->get_us_capacity = capacity;
    }
    uint64_t us = ns / 1000;
    totals->get_us[totals->get_us_count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static void take_answer(struct driver *driver, struct replay_worker *worker, size_t index)
{
    const struct replay_answer *answer = &worker->answer;
    struct replay_totals *totals = driver->totals;
    size_t client = index % driver->options->clients;
    struct flow *flow = driver->options->unordered ? &driver->flows[client] : &driver->flows[0];
    enum replay_command_kind kind = worker->command.kind;
    worker->busy = false;
    flow->outstanding--;
    totals->wrong_bytes += answer->wrong_bytes;
    if (answer->elapsed_ns > flow->slowest_ns)
        flow->slowest_ns = answer->elapsed_ns;
    if (kind == REPLAY_PUT) {
        totals->bytes_written += answer->bytes;
        totals->failed_puts += answer->failed;
    } else {
        totals->bytes_read += answer->bytes;
        totals->failed_gets += answer->failed;
        if (answer->calls)
            record_get(totals, answer->elapsed_ns / answer->calls);
        if (kind == REPLAY_EXIST) {
            flow->asked = answer->prefix;
        } else if (kind == REPLAY_LOOKUP) {
            flow->prefix = answer->prefix;
            flow->from_ssd = answer->from_ssd;
            flow->from_gds = answer->from_gds;
        } else {
            flow->parts[client - flow->first_client] = answer->prefix;
            flow->parts_from_ssd[client - flow->first_client] = answer->from_ssd;
            flow->parts_from_gds[client - flow->first_client] = answer->from_gds;
        }
    }
    if (answer->failed && !totals->first_failure[0])
        snprintf(totals->first_failure, sizeof totals->first_failure, "request %zu, %s",
                 flow->request, answer->text);
    advance(driver, flow);
}

static void receive(struct driver *driver, size_t index)
{
    struct replay_worker *worker = &driver->workers[index];
    ssize_t got = recv(worker->fd, (char *)&worker->answer + worker->answer_bytes,
                       sizeof worker->answer - worker->answer_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        lose_worker(worker);
        return;
    }
    worker->answer_bytes += (size_t)got;
    if (worker->answer_bytes < sizeof worker->answer)
        return;
    worker->answer_bytes = 0;
    if (worker->busy && worker->answer.number == worker->command.number)
        take_answer(driver, worker, index);
}

/* Restarts what died. -1: the replay cannot go on. */
static int heal(struct driver *driver)
{
    if (replay_stopped()) {
        fprintf(stderr, "yolk replay: stopped by a signal\n");
        return -1;
    }
    if (!driver->cluster)
        return 0;
    if (replay_cluster_watch(driver->cluster, driver->workers, driver->worker_count))
        return -1;
    for (size_t i = 0; i < driver->worker_count; i++) {
        struct replay_worker *worker = &driver->workers[i];
        if (worker->fd >= 0)
            continue;
        worker->answer_bytes = 0;
        if (replay_cluster_start_worker(driver->cluster, worker))
            return -1;
        if (worker->busy)
            transmit(worker);
    }
    return 0;
}

static bool all_ended(const struct driver *driver)
{
    for (size_t i = 0; i < driver->flow_count; i++)
        if (driver->flows[i].stage != STAGE_END)
            return false;
    return true;
}

/* One round: wait for answers, take them, look after the processes now and then. */
static int turn(struct driver *driver, uint64_t *healed_ns)
{
    enum { WATCH_MS = 50 };
    struct pollfd polls[REPLAY_WORKERS_MAX];
    bool lost = false;
    for (size_t i = 0; i < driver->worker_count; i++) {
        polls[i] = (struct pollfd){.fd = driver->workers[i].fd, .events = POLLIN};
        lost = lost || polls[i].fd < 0;
    }
    if (poll(polls, driver->worker_count, WATCH_MS) < 0 && errno != EINTR) {
        perror("yolk replay: poll");
        return -1;
    }
    for (size_t i = 0; i < driver->worker_count; i++)
        if (polls[i].fd >= 0 && polls[i].revents) {
            receive(driver, i);
            lost = lost || driver->workers[i].fd < 0;
        }
    uint64_t now = now_ns();
    if (lost || now - *healed_ns > (uint64_t)WATCH_MS * 1000000u) {
        *healed_ns = now;
        if (lost && !driver->cluster) {
            fprintf(stderr, "yolk replay: a worker ended unexpectedly\n");
            return -1;
        }
        return heal(driver);
    }
    return 0;
}

int replay_drive(const struct replay_options *options, const struct trace *trace,
                 struct replay_cluster *cluster, struct replay_worker *workers, size_t worker_count,
                 struct replay_totals *totals)
{
    struct driver *driver = calloc(1, sizeof *driver);
    if (!driver)
        return -1;
    driver->options = options;
    driver->trace = trace;
    driver->cluster = cluster;
    driver->workers = workers;
    driver->worker_count = worker_count;
    driver->totals = totals;
    driver->flow_count = options->unordered ? options->clients : 1;
    for (size_t i = 0; i < driver->flow_count; i++) {
        driver->flows[i].first_client = i;
        driver->flows[i].client_count = options->unordered ? 1 : options->clients;
    }
    uint64_t start_ns = now_ns(), healed_ns = start_ns;
    int result = 0;
    for (size_t i = 0; i < driver->flow_count; i++)
        advance(driver, &driver->flows[i]);
    while (!result && !all_ended(driver))
        result = turn(driver, &healed_ns);
    totals->seconds = (double)(now_ns() - start_ns) / 1e9;
    replay_progress_end(options);
    free(driver);
    return result;
}
