/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk put|get|exist|ls|rm|stat`: one call of the store each. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "cli/common.h"

static const struct cli_command put_command = {
    "put", "KEY [FILE|-]", "Stores a file (or standard input) under a key.", COMMAND_CLIENT};
static const struct cli_command get_command = {
    "get", "KEY [FILE|-]", "Writes a key's value to a file (or standard output).", COMMAND_CLIENT};
static const struct cli_command exist_command = {
    "exist", "KEY...", "Says of each key whether it is there; exit status 1 if one is not.",
    COMMAND_CLIENT};
static const struct cli_command ls_command = {"ls", "", "Lists size and key of every object.",
                                              COMMAND_CLIENT | COMMAND_LS};
static const struct cli_command rm_command = {"rm", "KEY... | --all", "Removes objects.",
                                              COMMAND_CLIENT | COMMAND_RM};
static const struct cli_command stat_command = {
    "stat", "", "Shows the master's figures and this client's.", COMMAND_CLIENT | COMMAND_STAT};

struct client {
    const struct cli_command *command;
    struct base_config config;
    struct yolk_store *store;
    int code;
};

static bool check_key(struct client *client, const char *key)
{
    size_t size = strlen(key);
    if (size >= 1 && size <= MAX_KEY_SIZE)
        return true;
    client->code = cli_usage_error(client->command, "the key has %zu bytes, it must have 1 to %u",
                                   size, MAX_KEY_SIZE);
    return false;
}

/* Parses, checks the number of arguments and the first `keys` of them. */
static bool begin(struct client *client, const struct cli_command *command, int argc, char **argv,
                  size_t minimum, size_t maximum, size_t keys)
{
    *client = (struct client){.command = command};
    if (!cli_parse(command, argc - 1, argv + 1, &client->config, &client->code))
        return false;
    size_t count = client->config.positional_count;
    bool good = true;
    if (count < minimum) {
        client->code = cli_usage_error(command, "%s is missing", command->arguments);
        good = false;
    } else if (count > maximum) {
        client->code = cli_usage_error(command, "\"%s\": one argument too many",
                                       client->config.positional[maximum]);
        good = false;
    } else if (strcmp(base_config_string(&client->config, SET_MASTER), "embedded") == 0) {
        client->code = cli_usage_error(
            command, "--master embedded: this command needs a master that runs elsewhere");
        good = false;
    }
    for (size_t i = 0; good && i < count && i < keys; i++)
        good = check_key(client, client->config.positional[i]);
    if (!good)
        base_config_free(&client->config);
    return good;
}

static bool connect_store(struct client *client)
{
    enum yolk_status status = cli_store_open(client->command, &client->config, 0, &client->store);
    if (status == YOLK_OK)
        return true;
    client->code = cli_failure(client->command, status, "cannot open the store");
    return false;
}

static int end(struct client *client)
{
    if (client->store) {
        enum yolk_status status = yolk_store_close(client->store);
        if (status != YOLK_OK && client->code == CLI_OK)
            client->code = cli_failure(client->command, status, "closing");
    }
    base_config_free(&client->config);
    if (fflush(stdout) != 0 && client->code == CLI_OK) {
        fprintf(stderr, "yolk %s: standard output: %s\n", client->command->name, strerror(errno));
        client->code = CLI_FAILED;
    }
    return client->code;
}

/* One line. What the call said stands behind it if it was about this key alone, without the meaning
 * of the status, which the line has already. */
static int key_failure(const struct client *client, const char *key, int64_t result, size_t count)
{
    const char *text = yolk_strerror((int)result), *more = count == 1 ? yolk_last_error() : "";
    size_t size = strlen(text);
    if (strncmp(more, text, size) == 0)
        more += size + (more[size] == ':' ? strlen(": ") : 0);
    fprintf(stderr, "yolk %s: key \"%.200s\": %s (%s)%s%s\n", client->command->name, key, text,
            yolk_status_name((int)result), more[0] ? ": " : "", more);
    return CLI_FAILED;
}

/* ---- put ---- */

struct input {
    void *data;
    size_t size;
    bool mapped;
};

static int read_stream(int fd, const char *name, struct input *in)
{
    size_t capacity = 0;
    /* A stream must fit in memory, where it is kept until it is stored; realloc() promises more. */
    const size_t limit = (size_t)(cli_machine_memory() / 4);
    for (;;) {
        if (in->size > limit)
            return base_fail(YOLK_ERR_NO_MEMORY, 0,
                             "%s has more than %zu MiB, a quarter of this machine's memory; give "
                             "it as a file",
                             name, limit >> 20);
        if (in->size == capacity) {
            capacity = capacity ? 2 * capacity : 64 * 1024;
            void *more = realloc(in->data, capacity);
            if (!more)
                return base_fail(YOLK_ERR_NO_MEMORY, 0, "%s: no memory for more than %zu bytes",
                                 name, in->size);
            in->data = more;
        }
        ssize_t got = read(fd, (char *)in->data + in->size, capacity - in->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return base_fail(YOLK_ERR_IO, errno, "reading %s", name);
        if (got == 0)
            return YOLK_OK;
        in->size += (size_t)got;
    }
}

static int read_input(const char *path, struct input *in)
{
    struct stat info;
    int fd = STDIN_FILENO;
    *in = (struct input){0};
    if (path && strcmp(path, "-") != 0) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return base_fail(YOLK_ERR_IO, errno, "opening %s", path);
    } else {
        path = "standard input";
    }
    int status = YOLK_OK;
    if (fd != STDIN_FILENO && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        in->size = (size_t)info.st_size;
        in->data = mmap(NULL, in->size, PROT_READ, MAP_PRIVATE, fd, 0);
        in->mapped = in->data != MAP_FAILED;
        if (!in->mapped) {
            status = base_fail(YOLK_ERR_IO, errno, "mapping %s", path);
            in->data = NULL;
        }
    } else {
        status = read_stream(fd, path, in);
    }
    if (fd != STDIN_FILENO)
        close(fd);
    return status;
}

static void free_input(struct input *in)
{
    if (in->mapped)
        munmap(in->data, in->size);
    else
        free(in->data);
}

/* With the size: most often it is what was wrong. */
static int put_failure(const struct client *client, const char *key, size_t size, int64_t result)
{
    int code = key_failure(client, key, result, 1);
    fprintf(stderr, "(the value has %zu bytes)\n", size);
    return code;
}

int cli_put(int argc, char **argv)
{
    struct client client;
    struct input in;
    if (!begin(&client, &put_command, argc, argv, 1, 2, 1))
        return client.code;
    const char *key = client.config.positional[0];
    int status =
        read_input(client.config.positional_count > 1 ? client.config.positional[1] : NULL, &in);
    if (status != YOLK_OK) {
        client.code = cli_failure(client.command, status, "cannot read the value");
    } else if (connect_store(&client)) {
        struct yolk_slice slice = {in.data, in.size};
        struct yolk_kv kv = {
            .key = key, .key_size = strlen(key), .slices = &slice, .slice_count = in.size > 0};
        enum yolk_status put = yolk_store_put(client.store, &kv, 1);
        if (put != YOLK_OK || kv.result < 0)
            client.code = put_failure(&client, key, in.size, kv.result < 0 ? kv.result : put);
    }
    free_input(&in);
    return end(&client);
}

/* ---- get ---- */

static int write_all(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = write(fd, (const char *)data + done, size - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        done += (size_t)wrote;
    }
    return 0;
}

static int write_output(struct client *client, const char *path, const struct yolk_buffer *value)
{
    int fd = STDOUT_FILENO;
    bool file = path && strcmp(path, "-") != 0;
    if (file)
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, value->data, value->size) == 0;
    int error = errno;
    if (file && fd >= 0 && close(fd) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good)
        return CLI_OK;
    fprintf(stderr, "yolk get: writing %s: %s\n", file ? path : "standard output", strerror(error));
    return client->code = CLI_FAILED;
}

int cli_get(int argc, char **argv)
{
    struct client client;
    if (!begin(&client, &get_command, argc, argv, 1, 2, 1))
        return client.code;
    const char *key = client.config.positional[0];
    if (connect_store(&client)) {
        struct yolk_buffer value;
        enum yolk_status status = yolk_store_get_buffer(client.store, key, strlen(key), &value);
        if (status != YOLK_OK) {
            client.code = key_failure(&client, key, status, 1);
        } else {
            client.code = write_output(
                &client, client.config.positional_count > 1 ? client.config.positional[1] : NULL,
                &value);
            yolk_store_release_buffer(client.store, &value);
        }
    }
    return end(&client);
}

/* ---- exist, rm ---- */

static struct yolk_kv *make_kvs(struct client *client)
{
    size_t count = client->config.positional_count;
    struct yolk_kv *kvs = calloc(count ? count : 1, sizeof(*kvs));
    if (!kvs) {
        client->code = cli_failure(client->command, YOLK_ERR_NO_MEMORY, "%zu keys", count);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        kvs[i].key = client->config.positional[i];
        kvs[i].key_size = strlen(client->config.positional[i]);
    }
    return kvs;
}

int cli_exist(int argc, char **argv)
{
    struct client client;
    if (!begin(&client, &exist_command, argc, argv, 1, SIZE_MAX, SIZE_MAX))
        return client.code;
    size_t count = client.config.positional_count;
    struct yolk_kv *kvs = make_kvs(&client);
    if (kvs && connect_store(&client)) {
        enum yolk_status status = yolk_store_exist(client.store, kvs, count);
        for (size_t i = 0; i < count; i++) {
            if (kvs[i].result < 0 || status != YOLK_OK) {
                client.code = key_failure(&client, client.config.positional[i],
                                          kvs[i].result < 0 ? kvs[i].result : status, count);
                continue;
            }
            printf("%s ", kvs[i].result ? "yes" : "no ");
            cli_print_key(kvs[i].key, kvs[i].key_size);
            putchar('\n');
            if (!kvs[i].result)
                client.code = CLI_FAILED;
        }
    }
    free(kvs);
    return end(&client);
}

static void remove_keys(struct client *client, int force)
{
    size_t count = client->config.positional_count;
    struct yolk_kv *kvs = make_kvs(client);
    if (!kvs)
        return;
    enum yolk_status status = yolk_store_remove(client->store, kvs, count, force);
    for (size_t i = 0; i < count; i++)
        if (kvs[i].result < 0 || status != YOLK_OK)
            client->code = key_failure(client, client->config.positional[i],
                                       kvs[i].result < 0 ? kvs[i].result : status, count);
    free(kvs);
}

int cli_rm(int argc, char **argv)
{
    struct client client;
    if (!begin(&client, &rm_command, argc, argv, 0, SIZE_MAX, SIZE_MAX))
        return client.code;
    bool all = base_config_bool(&client.config, SET_ALL);
    int force = base_config_bool(&client.config, SET_FORCE);
    if (all == (client.config.positional_count > 0)) {
        client.code = cli_usage_error(&rm_command, all ? "give keys or --all, not both"
                                                       : "KEY... or --all is missing");
    } else if (connect_store(&client)) {
        if (all) {
            uint64_t removed = 0;
            enum yolk_status status = yolk_store_remove_all(client.store, force, &removed);
            if (status != YOLK_OK)
                client.code = cli_failure(&rm_command, status, "removing all");
            else
                printf("%" PRIu64 " removed\n", removed);
        } else {
            remove_keys(&client, force);
        }
    }
    return end(&client);
}

/* ---- ls, stat ---- */

struct listing {
    uint64_t limit, count;
};

static int print_object(void *context, const void *key, size_t key_size, uint64_t size)
{
    struct listing *listing = context;
    printf("%12" PRIu64 " ", size);
    cli_print_key(key, key_size);
    putchar('\n');
    return ++listing->count == listing->limit;
}

int cli_ls(int argc, char **argv)
{
    struct client client;
    if (!begin(&client, &ls_command, argc, argv, 0, 0, 0))
        return client.code;
    if (connect_store(&client)) {
        struct listing listing = {.limit = base_config_u64(&client.config, SET_LIMIT)};
        enum yolk_status status = yolk_store_list(client.store, print_object, &listing);
        if (status != YOLK_OK)
            client.code = cli_failure(&ls_command, status, "listing");
    }
    return end(&client);
}

int cli_stat(int argc, char **argv)
{
    struct client client;
    if (!begin(&client, &stat_command, argc, argv, 0, 0, 0))
        return client.code;
    if (connect_store(&client)) {
        char *text = NULL;
        enum yolk_status status = yolk_store_stat(client.store, &text);
        if (status != YOLK_OK) {
            client.code = cli_failure(&stat_command, status, "asking the master");
        } else {
            fputs(text, stdout);
            free(text);
        }
        if (status == YOLK_OK && base_config_bool(&client.config, SET_RECOUNT)) {
            uint64_t differences = 0;
            status = yolk_store_recount(client.store, &differences);
            if (status != YOLK_OK)
                client.code = cli_failure(&stat_command, status, "recounting");
            else
                printf("recount_differences %" PRIu64 "\n", differences);
            if (differences > 0) {
                fprintf(stderr,
                        "yolk stat: the gauges differ from a full recount in %" PRIu64
                        " places: this is a bug\n",
                        differences);
                client.code = CLI_FAILED;
            }
        }
    }
    return end(&client);
}
