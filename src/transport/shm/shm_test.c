/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/temporary_kit.h"
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/net.h"
#include "transport/shm/internal.h"
#include "transport/test_support.h"

static struct pair pair;

static int setup(void **state)
{
    (void)state;
    pair_open(&pair, transport_shm_ops(), "a secret");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pair_close(&pair);
    return 0;
}

static enum yolk_status channel_at(void *target, void **channel)
{
    return open_channel(pair.consumer.ops, pair.consumer.endpoint, target, channel);
}

static void test_round_trip(void **state)
{
    (void)state;
    enum { LARGE = 3 << 20 };
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION), *channel;
    uint8_t *out = malloc(LARGE), *in = malloc(LARGE);
    static const size_t sizes[] = {0, 1, 4095, 4096, 16384, 65537, LARGE};
    assert_int_equal(channel_at(target, &channel), YOLK_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(out, sizes[i], (unsigned)i);
        assert_int_equal(transfer(ops, channel, YOLK_WRITE, out, 13, sizes[i]), YOLK_OK);
        assert_memory_equal(pair.bytes + 13, out, sizes[i]);
        memset(in, 0, sizes[i]);
        assert_int_equal(transfer(ops, channel, YOLK_READ, in, 13, sizes[i]), YOLK_OK);
        assert_memory_equal(in, out, sizes[i]);
    }
    assert_int_equal(transfer(ops, channel, YOLK_READ, in, SEGMENT_SIZE - 10, 11),
                     YOLK_ERR_INVALID);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, out, UINT64_MAX, 11), YOLK_ERR_INVALID);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    free(out);
    free(in);
}

static void test_stale(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT + 1, SESSION), *channel;
    uint8_t bytes[64];
    assert_int_equal(channel_at(target, &channel), YOLK_ERR_STALE);
    ops->close_target(pair.consumer.endpoint, target);
    target = target_of(&pair, SEGMENT, SESSION);
    assert_int_equal(channel_at(target, &channel), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    access_grant_set_segment(&pair.access.grant, SEGMENT + 2, pair.access.grant.ticket_key);
    ops->set_segment_id(pair.provider.endpoint, pair.served, SEGMENT + 2);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_ERR_STALE);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_ERR_STALE);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
}

static void test_other_machine(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = NULL, *channel;
    const char *text = "/nonexistent/yolk.sock,00000000000000000000000000000000";
    assert_int_equal(
        ops->open_target(pair.consumer.endpoint, text, SEGMENT, SEGMENT_SIZE, SESSION, &target),
        YOLK_OK);
    assert_int_equal(channel_at(target, &channel), YOLK_ERR_NO_ROUTE);
    assert_true(strlen(yolk_last_error()) > 0);
    ops->close_target(pair.consumer.endpoint, target);
    /* The right socket, but another life of its provider. */
    char other[512];
    (void)snprintf(other, sizeof other, "%s", pair.text);
    memset(strrchr(other, ',') + 1, 'f', 32);
    assert_int_equal(
        ops->open_target(pair.consumer.endpoint, other, SEGMENT, SEGMENT_SIZE, SESSION, &target),
        YOLK_OK);
    assert_int_equal(channel_at(target, &channel), YOLK_ERR_STALE);
    ops->close_target(pair.consumer.endpoint, target);
}

static void test_wrong_secret(void **state)
{
    (void)state;
    struct side stranger;
    void *target = NULL, *channel;
    side_open(&stranger, transport_shm_ops(), 3, "another secret");
    assert_int_equal(stranger.ops->open_target(stranger.endpoint, pair.text, SEGMENT, SEGMENT_SIZE,
                                               SESSION, &target),
                     YOLK_OK);
    assert_int_equal(open_channel(stranger.ops, stranger.endpoint, target, &channel),
                     YOLK_ERR_AUTH);
    stranger.ops->close_target(stranger.endpoint, target);
    side_close(&stranger);
    test_round_trip(state);
}

static void socket_path(char path[108])
{
    const char *comma = strrchr(pair.text, ',');
    memcpy(path, pair.text, (size_t)(comma - pair.text));
    path[comma - pair.text] = '\0';
}

static void test_garbage_and_folder(void **state)
{
    (void)state;
    char path[108], byte;
    struct net_address address;
    struct stat st;
    int fd;
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    socket_path(path);
    assert_int_equal(net_address_unix(path, &address), YOLK_OK);
    assert_int_equal(net_connect(&address, deadline, &fd), YOLK_OK);
    assert_int_equal(net_send_all(fd, "GET / HTTP/1.1\r\n\r\n", 18, deadline), YOLK_OK);
    int status = net_recv_all(fd, &byte, 1, deadline);
    assert_true(status == YOLK_ERR_EOF || status == YOLK_ERR_LINK);
    net_close(fd);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    test_round_trip(state);
    /* A folder that others can enter is refused. */
    char open_folder[TEMPORARY_MAX] = "yolk-test-XXXXXX";
    assert_non_null(mkdtemp(temporary_path(open_folder)));
    assert_int_equal(chmod(open_folder, 0755), 0);
    struct yolk_transport_options options = {.struct_size = sizeof options,
                                             .socket_dir = open_folder};
    struct pair own = {.provider = {.ops = transport_shm_ops()}};
    const struct yolk_transport_ops *ops = own.provider.ops;
    void *served;
    char text[300];
    assert_int_equal(ops->init(&options, &own.provider.endpoint), YOLK_OK);
    assert_int_equal(ops->memory_alloc(own.provider.endpoint, 4096, &own.memory), YOLK_OK);
    struct yolk_serve serve = {
        .memory = own.memory.pointer, .size = 4096, .allocation = &own.memory};
    assert_int_equal(ops->serve(own.provider.endpoint, &serve, &served, text, sizeof text),
                     YOLK_ERR_CONFIG);
    /* Nor memory that it did not make. */
    serve.allocation = NULL;
    assert_int_equal(ops->serve(own.provider.endpoint, &serve, &served, text, sizeof text),
                     YOLK_ERR_UNSUPPORTED);
    ops->memory_free(own.provider.endpoint, &own.memory);
    side_close(&own.provider);
    assert_int_equal(rmdir(open_folder), 0);
}

/* A provider in a process of its own that is killed; nobody tidies up after it. */
static void killed_provider(const struct yolk_transport_options *options)
{
    static struct pair own;
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0) {
        own.provider.ops = transport_shm_ops();
        if (own.provider.ops->init(options, &own.provider.endpoint) != YOLK_OK)
            _exit(1);
        pair_serve(&own, 0);
        (void)kill(getpid(), SIGKILL);
    }
    int info;
    assert_int_equal(waitpid(pid, &info, 0), pid);
    assert_true(WIFSIGNALED(info));
}

static int socket_at(const char *path)
{
    struct net_address address;
    assert_int_equal(net_address_unix(path, &address), YOLK_OK);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address.storage, address.size), 0);
    assert_int_equal(listen(fd, 8), 0);
    struct timespec old[2] = {{1, 0}, {1, 0}}; /* 1970 */
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    return fd;
}

static bool is_there(const char *base, const char *name)
{
    char path[200];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", base, name);
    return lstat(path, &st) == 0;
}

/* A start removes what killed processes left, and nothing else. */
static void test_left_over_folders(void **state)
{
    (void)state;
    static struct pair live, next;
    char base[TEMPORARY_MAX] = "yolk-test-XXXXXX", path[200];
    struct yolk_transport_options options = {.struct_size = sizeof options};
    static const char *const kept[] = {"yolk-shm-open00", "yolk-shm-note00", "yolk-shm-link00",
                                       "yolk-shm-longer0", "yolk-other0"};
    assert_non_null(mkdtemp(temporary_path(base)));
    assert_int_equal(setenv("XDG_RUNTIME_DIR", base, 1), 0);
    pair_open(&live, transport_shm_ops(), NULL);
    assert_int_equal(entries_of(base), 2 + 1);
    killed_provider(&options);
    assert_int_equal(entries_of(base), 2 + 2);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", base, kept[i]);
        assert_int_equal(i == 2 ? symlink(base, path) : mkdir(path, i == 0 ? 0755 : 0700), 0);
    }
    (void)snprintf(path, sizeof path, "%s/yolk-shm-note00/note", base);
    int note = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(note >= 0);
    (void)close(note);
    (void)snprintf(path, sizeof path, "%s/yolk-shm-empty0", base);
    assert_int_equal(mkdir(path, 0700), 0);

    pair_open(&next, transport_shm_ops(), NULL);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_true(is_there(base, kept[i]));
    assert_true(is_there(base, "yolk-shm-note00/note"));
    assert_false(is_there(base, "yolk-shm-empty0"));
    assert_int_equal(entries_of(base), 2 + 5 + 2);
    uint8_t byte = 1;
    void *target = target_of(&live, SEGMENT, SESSION), *channel;
    assert_int_equal(open_channel(live.consumer.ops, live.consumer.endpoint, target, &channel),
                     YOLK_OK);
    assert_int_equal(transfer(live.consumer.ops, channel, YOLK_WRITE, &byte, 0, 1), YOLK_OK);
    assert_int_equal(live.consumer.ops->channel_close(channel), YOLK_OK);
    live.consumer.ops->close_target(live.consumer.endpoint, target);
    pair_close(&live);
    pair_close(&next);
    assert_int_equal(entries_of(base), 2 + 5);

    (void)snprintf(path, sizeof path, "%s/yolk-shm-note00/note", base);
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", base, kept[i]);
        assert_int_equal(i == 2 ? unlink(path) : rmdir(path), 0);
    }
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    assert_int_equal(rmdir(base), 0);
}

/* In a folder that several processes share. */
static void test_left_over_sockets(void **state)
{
    (void)state;
    struct pair own = {.provider = {.ops = transport_shm_ops()}};
    char base[TEMPORARY_MAX] = "yolk-test-XXXXXX", dead[2 * TEMPORARY_MAX], live[2 * TEMPORARY_MAX],
         other[2 * TEMPORARY_MAX];
    struct yolk_transport_options options = {.struct_size = sizeof options, .socket_dir = base};
    assert_non_null(mkdtemp(temporary_path(base)));
    killed_provider(&options);
    assert_int_equal(entries_of(base), 2 + 1); /* not yet a minute old: kept */
    (void)snprintf(dead, sizeof dead, "%s/00000001.sock", base);
    (void)snprintf(live, sizeof live, "%s/00000002.sock", base);
    (void)snprintf(other, sizeof other, "%s/application.sock", base);
    (void)close(socket_at(dead));
    (void)close(socket_at(other));
    int fd = socket_at(live);

    assert_int_equal(own.provider.ops->init(&options, &own.provider.endpoint), YOLK_OK);
    pair_serve(&own, 0);
    assert_false(is_there(base, "00000001.sock"));
    assert_true(is_there(base, "00000002.sock"));
    assert_true(is_there(base, "application.sock"));
    assert_int_equal(entries_of(base), 2 + 4);
    pair_unserve(&own);
    side_close(&own.provider);
    (void)close(fd);
    assert_int_equal(unlink(live), 0);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(entries_of(base), 2 + 1);
    DIR *dir = opendir(base);
    for (struct dirent *d = readdir(dir); d != NULL; d = readdir(dir))
        if (d->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), d->d_name, 0), 0);
    closedir(dir);
    assert_int_equal(rmdir(base), 0);
}

static void test_read_only_mapping(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION);
    const void *base;
    uint64_t size;
    fill(pair.bytes, SEGMENT_SIZE, 5);
    assert_int_equal(ops->target_map(pair.consumer.endpoint, target, &base, &size), YOLK_OK);
    assert_int_equal(size, SEGMENT_SIZE);
    assert_memory_equal(base, pair.bytes, SEGMENT_SIZE);
    assert_int_equal(mprotect((void *)(uintptr_t)base, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    /* The address was given away, so the end of the provider's connection does not unmap it. */
    assert_int_equal(ops->fence_session(pair.provider.endpoint, pair.served, SESSION),
                     YOLK_ERR_AGAIN);
    void *channel;
    assert_int_equal(channel_at(target, &channel), YOLK_ERR_PEER_DEAD);
    assert_memory_equal(base, pair.bytes, SEGMENT_SIZE);
    ops->close_target(pair.consumer.endpoint, target);
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    while (ops->fence_session(pair.provider.endpoint, pair.served, SESSION) == YOLK_ERR_AGAIN)
        assert_true(clock_real_now_ns() < deadline);
}

static void test_unsealed_refused(void **state)
{
    (void)state;
    struct memory_mapping mapping;
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_not_equal(memory_map(fd, 4096, MEMORY_READ_ONLY, &mapping), YOLK_OK);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_not_equal(memory_map(fd, 4096, MEMORY_READ_ONLY, &mapping), YOLK_OK);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(memory_map(fd, 4096, MEMORY_READ_ONLY, &mapping), YOLK_OK);
    memory_unmap(&mapping);
    close(fd);
}

/* ---- C159: what keeps a client from the memory, in its own words on both sides ---- */

/* A provider that does everything right up to the answer. */
struct liar {
    char path[108], text[512];
    int listener;
    pthread_t thread;
    enum { LIAR_SILENT, LIAR_NO_DESCRIPTORS, LIAR_WRONG_SIZE } lie;
    char heard[SHM_FAILED_TEXT]; /* what the client said of it */
};

static int fd_send(void *self, const void *data, size_t size)
{
    return net_send_all(*(int *)self, data, size, clock_real_now_ns() + 5 * CLOCK_NS_PER_S);
}

static int fd_recv(void *self, void *data, size_t size)
{
    return net_recv_all(*(int *)self, data, size, clock_real_now_ns() + 5 * CLOCK_NS_PER_S);
}

static void *liar_main(void *arg)
{
    struct liar *liar = arg;
    int fd = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct wire_hello_machine hello;
    struct wire_hello_io io = {&fd, fd_send, fd_recv};
    struct shm_settings settings = {.secret_size = 0};
    struct wire_hello_options options;
    uint8_t open[SHM_OPEN_SIZE], opened[SHM_OPENED_SIZE], failed[SHM_FAILED_SIZE];
    struct memory_segment memory, page;
    memset(settings.instance, 1, sizeof settings.instance);
    shm_wire_options(&settings, 0, &options);
    options.purposes = 1u << WIRE_PURPOSE_DATA;
    assert_true(fd >= 0);
    assert_int_equal(wire_hello_init(&hello, true, &options), YOLK_OK);
    assert_int_equal(wire_hello_run(&hello, &io), YOLK_OK);
    assert_int_equal(fd_recv(&fd, open, sizeof open), YOLK_OK);
    assert_int_equal(memory_segment_create(SEGMENT_SIZE, NULL, &memory), YOLK_OK);
    assert_int_equal(memory_segment_create(4096, NULL, &page), YOLK_OK);
    int fds[2] = {memory.fd_ro, page.fd_ro};
    const struct shm_opened answer = {.size = SEGMENT_SIZE, .map_size = 2 * SEGMENT_SIZE};
    shm_opened_encode(&answer, opened);
    if (liar->lie != LIAR_SILENT)
        assert_int_equal(
            shm_send_fds(fd, opened, sizeof opened, fds, liar->lie == LIAR_WRONG_SIZE ? 2 : 0),
            YOLK_OK);
    if (fd_recv(&fd, failed, sizeof failed) == YOLK_OK)
        assert_int_equal(shm_failed_decode(failed, liar->heard), YOLK_OK);
    wire_hello_wipe(&hello);
    memory_segment_destroy(&memory);
    memory_segment_destroy(&page);
    net_close(fd);
    return NULL;
}

static void fails_to_open(const char *text, enum yolk_status wanted, char said[512])
{
    struct side client;
    void *target = NULL, *channel;
    side_open(&client, transport_shm_ops(), 3, NULL);
    assert_int_equal(
        client.ops->open_target(client.endpoint, text, SEGMENT, SEGMENT_SIZE, SESSION, &target),
        YOLK_OK);
    assert_int_equal(open_channel(client.ops, client.endpoint, target, &channel), wanted);
    (void)snprintf(said, 512, "%s", yolk_last_error());
    client.ops->close_target(client.endpoint, target);
    side_close(&client);
}

static void meets_liar(int lie, enum yolk_status wanted, const char *words)
{
    struct liar liar = {.lie = lie};
    struct net_address address;
    char dir[TEMPORARY_MAX] = "yolk-liar-XXXXXX", said[512];
    assert_non_null(mkdtemp(temporary_path(dir)));
    (void)snprintf(liar.path, sizeof liar.path, "%s/s", dir);
    (void)snprintf(liar.text, sizeof liar.text, "%s,01010101010101010101010101010101", liar.path);
    assert_int_equal(net_address_unix(liar.path, &address), YOLK_OK);
    assert_int_equal(net_listen(&address, 4, &liar.listener, NULL), YOLK_OK);
    int flags = fcntl(liar.listener, F_GETFL);
    assert_int_equal(fcntl(liar.listener, F_SETFL, flags & ~O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&liar.thread, NULL, liar_main, &liar), 0);
    fails_to_open(liar.text, wanted, said);
    assert_non_null(strstr(said, words));
    assert_int_equal(pthread_join(liar.thread, NULL), 0);
    if (lie != LIAR_SILENT) /* there is nobody to tell of a silence */
        assert_string_equal(liar.heard, said);
    net_close(liar.listener);
    (void)unlink(liar.path);
    assert_int_equal(rmdir(dir), 0);
}

/* In a child, which may become somebody else. */
static void has_no_permission(const char *text)
{
    pid_t pid = fork();
    if (pid == 0) {
        char said[512];
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(2);
        fails_to_open(text, YOLK_ERR_NO_ROUTE, said);
        _exit(strstr(said, "has no permission to connect to /") != NULL &&
                      strstr(said, "Permission denied") != NULL
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void c159_each_way_to_fail_is_told_apart(void **state)
{
    (void)state;
    char said[512], dir[TEMPORARY_MAX] = "yolk-closed-XXXXXX", text[512];
    fails_to_open("/nonexistent/yolk.sock,01010101010101010101010101010101", YOLK_ERR_NO_ROUTE,
                  said);
    assert_non_null(strstr(said, "the socket /nonexistent/yolk.sock is not here"));
    assert_non_null(strstr(said, "No such file or directory"));
    assert_non_null(mkdtemp(temporary_path(dir)));
    (void)snprintf(text, sizeof text, "%s/s,01010101010101010101010101010101", dir);
    assert_int_equal(chmod(dir, 0), 0);
    has_no_permission(text);
    assert_int_equal(rmdir(dir), 0);
    meets_liar(LIAR_NO_DESCRIPTORS, YOLK_ERR_PROTOCOL, "no descriptors came with the segment");
    meets_liar(LIAR_SILENT, YOLK_ERR_TIMEOUT, "does not answer: Connection timed out");
    meets_liar(LIAR_WRONG_SIZE, YOLK_ERR_INVALID, "bytes instead of");
}

/* The provider's log says what its clients say. */
static void keep_log(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)level;
    (void)room;
    (void)snprintf(self, 512, "%s", text);
}

static void c159_the_provider_says_what_its_client_said(void **state)
{
    (void)state;
    char path[108];
    static char logged[512];
    struct net_address address;
    int fd = -1;
    struct wire_hello_machine hello;
    struct wire_hello_io io = {&fd, fd_send, fd_recv};
    struct shm_settings settings = {.secret_size = 8};
    struct wire_hello_options options;
    uint8_t bytes[SHM_OPENED_SIZE + SHM_FAILED_SIZE];
    memcpy(settings.secret, "a secret", 8);
    memset(settings.instance, 3, sizeof settings.instance);
    shm_wire_options(&settings, SESSION, &options);
    socket_path(path);
    assert_int_equal(net_address_unix(path, &address), YOLK_OK);
    assert_int_equal(net_connect(&address, clock_real_now_ns() + 5 * CLOCK_NS_PER_S, &fd), YOLK_OK);
    assert_int_equal(wire_hello_init(&hello, false, &options), YOLK_OK);
    assert_int_equal(wire_hello_run(&hello, &io), YOLK_OK);
    wire_hello_wipe(&hello);
    shm_open_encode(&(struct shm_open){.segment = SEGMENT}, bytes);
    assert_int_equal(fd_send(&fd, bytes, SHM_OPEN_SIZE), YOLK_OK);
    assert_int_equal(fd_recv(&fd, bytes, SHM_OPENED_SIZE), YOLK_OK);
    base_log_set(keep_log, logged);
    shm_failed_encode("no room for \x01 it: Too many open files", bytes);
    assert_int_equal(fd_send(&fd, bytes, SHM_FAILED_SIZE), YOLK_OK);
    assert_int_not_equal(fd_recv(&fd, bytes, 1), YOLK_OK); /* it closed */
    base_log_set(NULL, NULL);
    assert_string_equal(
        logged, "connection refused: the client says: no room for ? it: Too many open files");
    net_close(fd);
}

static void test_fence(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    void *target = target_of(&pair, SEGMENT, SESSION), *channel, *again;
    void *other_target = target_of(&pair, SEGMENT, SESSION + 1), *other;
    uint8_t bytes[64] = {1};
    assert_int_equal(channel_at(target, &channel), YOLK_OK);
    assert_int_equal(channel_at(other_target, &other), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    assert_int_equal(transfer(ops, other, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    assert_int_equal(mappings_of("rw-s"), 4); /* own segment and header page, two writers */
    guarded_fence(&pair.access, SESSION);
    assert_int_equal(ops->fence_session(pair.provider.endpoint, pair.served, SESSION),
                     YOLK_ERR_AGAIN);
    /* It lets go at its next ios, and does not get in again. */
    assert_int_not_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    assert_int_not_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    assert_int_equal(mappings_of("rw-s"), 3);
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    while (ops->fence_session(pair.provider.endpoint, pair.served, SESSION) == YOLK_ERR_AGAIN)
        assert_true(clock_real_now_ns() < deadline);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    assert_int_equal(channel_at(target, &again), YOLK_ERR_ACCESS);
    assert_int_equal(transfer(ops, other, YOLK_WRITE, bytes, 0, 64), YOLK_OK);
    assert_int_equal(ops->channel_close(other), YOLK_OK);
    ops->close_target(pair.consumer.endpoint, target);
    ops->close_target(pair.consumer.endpoint, other_target);
}

/* A writer in a process of its own that stops: the fence waits for its death. */
static void test_fence_stopped_writer(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.provider.ops;
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct side own;
        void *target = NULL, *channel;
        uint8_t byte = 0x77;
        side_open(&own, transport_shm_ops(), 9, "a secret");
        if (ops->open_target(own.endpoint, pair.text, SEGMENT, SEGMENT_SIZE, 500, &target) !=
                YOLK_OK ||
            open_channel(ops, own.endpoint, target, &channel) != YOLK_OK)
            _exit(1);
        for (;;)
            (void)transfer(ops, channel, YOLK_WRITE, &byte, 0, 1);
    }
    uint64_t deadline = clock_real_now_ns() + 5 * CLOCK_NS_PER_S;
    while (racy_byte(pair.bytes + 0) != 0x77)
        assert_true(clock_real_now_ns() < deadline);
    stop_child(pid);
    guarded_fence(&pair.access, 500);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ops->fence_session(pair.provider.endpoint, pair.served, 500),
                         YOLK_ERR_AGAIN);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (ops->fence_session(pair.provider.endpoint, pair.served, 500) == YOLK_ERR_AGAIN)
        assert_true(clock_real_now_ns() < deadline);
}

static void test_peer_killed(void **state)
{
    (void)state;
    const struct yolk_transport_ops *ops = pair.consumer.ops;
    static struct pair own;
    int text[2];
    void *target = NULL, *channel;
    uint8_t bytes[64];
    char folder[TEMPORARY_MAX] = "yolk-test-XXXXXX";
    assert_non_null(mkdtemp(temporary_path(folder)));
    assert_int_equal(pipe(text), 0);
    pid_t pid = fork_quietly();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct yolk_transport_options options = {.struct_size = sizeof options,
                                                 .socket_dir = folder,
                                                 .secret = (const uint8_t *)"a secret",
                                                 .secret_size = 8};
        own.provider.ops = ops;
        if (ops->init(&options, &own.provider.endpoint) != YOLK_OK)
            _exit(1);
        pair_serve(&own, 0);
        if (write(text[1], own.text, sizeof own.text) != (ssize_t)sizeof own.text)
            _exit(1);
        for (;;)
            pause();
    }
    close(text[1]);
    assert_int_equal(read(text[0], own.text, sizeof own.text), sizeof own.text);
    close(text[0]);
    assert_int_equal(
        ops->open_target(pair.consumer.endpoint, own.text, SEGMENT, SEGMENT_SIZE, SESSION, &target),
        YOLK_OK);
    assert_int_equal(channel_at(target, &channel), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    /* Stopped: what is mapped can be read, what is not yet is refused in time. */
    stop_child(pid);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_OK);
    assert_int_equal(transfer(ops, channel, YOLK_WRITE, bytes, 0, 64), YOLK_ERR_TIMEOUT);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(transfer(ops, channel, YOLK_READ, bytes, 0, 64), YOLK_ERR_PEER_DEAD);
    assert_int_equal(ops->channel_close(channel), YOLK_OK);
    assert_int_equal(channel_at(target, &channel), YOLK_ERR_PEER_DEAD);
    ops->close_target(pair.consumer.endpoint, target);
    *strrchr(own.text, ',') = '\0';
    assert_int_equal(unlink(own.text), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_no_leaks(void **state)
{
    (void)state;
    int descriptors = open_descriptors(), threads = running_threads();
    int maps = mappings_of("yolk");
    for (int i = 0; i < 3; i++) {
        static struct pair own;
        pair_open(&own, transport_shm_ops(), NULL);
        void *target = target_of(&own, SEGMENT, SESSION), *channel;
        uint8_t byte = 1;
        const void *base;
        uint64_t size;
        const struct yolk_transport_ops *ops = own.consumer.ops;
        assert_int_equal(open_channel(ops, own.consumer.endpoint, target, &channel), YOLK_OK);
        assert_int_equal(transfer(ops, channel, YOLK_WRITE, &byte, 0, 1), YOLK_OK);
        assert_int_equal(ops->target_map(own.consumer.endpoint, target, &base, &size), YOLK_OK);
        assert_int_equal(ops->channel_close(channel), YOLK_OK);
        ops->close_target(own.consumer.endpoint, target);
        pair_close(&own);
    }
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(running_threads(), threads);
    assert_int_equal(mappings_of("yolk"), maps);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_round_trip),
        T(test_stale),
        T(test_other_machine),
        T(test_wrong_secret),
        T(test_garbage_and_folder),
        T(test_read_only_mapping),
        T(test_fence),
        T(c159_the_provider_says_what_its_client_said),
        cmocka_unit_test(c159_each_way_to_fail_is_told_apart),
        T(test_fence_stopped_writer),
        T(test_peer_killed),
        cmocka_unit_test(test_left_over_folders),
        cmocka_unit_test(test_left_over_sockets),
        cmocka_unit_test(test_unsealed_refused),
        cmocka_unit_test(test_no_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
