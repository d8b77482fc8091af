/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's C interface: one process offers memory, another one reads and writes it by name.
 *
 *     cc tent.c -I include -L build -Wl,-rpath,build -ltransfer_engine -o tent
 *     ./tent serve                         # prints "NAME ADDRESS", until its input ends
 *     ./tent copy NAME ADDRESS             # in another process, or on another machine
 *     ./tent                               # both in one
 *
 * More arguments are settings, KEY=VALUE, for example metadata_type=etcd
 * metadata_servers=127.0.0.1:2379 local_segment_name=prefill-0. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tent/transfer_engine.h>

enum { SIZE = 1 << 20, PIECES = 16 };

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tent_last_error());
    return 1;
}

static tent_engine_t begin(int count, char **settings)
{
    int i;
    for (i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        char key[256];
        if (value == NULL || value - settings[i] >= (long)sizeof(key))
            continue;
        memcpy(key, settings[i], (size_t)(value - settings[i]));
        key[value - settings[i]] = '\0';
        tent_set_config(key, value + 1);
    }
    return tent_create_engine();
}

/* Memory that others may use, filled with `letter`. */
static void *offer(tent_engine_t engine, int letter)
{
    void *memory = NULL;
    if (tent_allocate_memory(engine, &memory, SIZE, "*") != 0)
        return NULL;
    memset(memory, letter, SIZE);
    return tent_register_memory(engine, memory, SIZE) == 0 ? memory : NULL;
}

static int wait_for(tent_engine_t engine, tent_batch_id_t batch)
{
    tent_status_t status;
    do {
        if (tent_overall_status(engine, batch, &status) != 0)
            return failed("tent_overall_status");
    } while (status.status == STATUS_PENDING);
    printf("%" PRIu64 " bytes, %s\n", status.transferred_bytes,
           status.status == STATUS_COMPLETED ? "all of it" : "not all of it");
    return status.status == STATUS_COMPLETED ? 0 : 1;
}

/* Reads all of the peer's memory in pieces, writes half of it back as it is here, tells the peer. */
static int copy(tent_engine_t engine, const char *name, uint64_t address)
{
    tent_request_t requests[PIECES] = {{0}};
    tent_segment_id_t peer;
    size_t i;
    char *memory = offer(engine, 'x');
    tent_batch_id_t batch = tent_allocate_batch(engine, PIECES + 1);
    if (memory == NULL || batch == 0)
        return failed("memory or a batch");
    if (tent_open_segment(engine, &peer, name) != 0)
        return failed("tent_open_segment");
    for (i = 0; i < PIECES; i++) {
        requests[i].opcode = OPCODE_READ;
        requests[i].source = memory + i * (SIZE / PIECES);
        requests[i].target_id = peer;
        requests[i].target_offset = address + i * (SIZE / PIECES);
        requests[i].length = SIZE / PIECES;
    }
    if (tent_submit(engine, batch, requests, PIECES) != 0)
        return failed("tent_submit");
    if (wait_for(engine, batch) != 0)
        return 1;
    printf("read '%c' to '%c'\n", memory[0], memory[SIZE - 1]);
    memset(memory, 'w', SIZE / 2);
    requests[0].opcode = OPCODE_WRITE;
    requests[0].length = SIZE / 2;
    if (tent_submit_notif(engine, batch, requests, 1, "copy", "half of it is new") != 0)
        return failed("tent_submit_notif");
    if (wait_for(engine, batch) != 0)
        return 1;
    if (tent_free_batch(engine, batch) != 0) /* sends what is still to be told */
        return failed("tent_free_batch");
    return tent_close_segment(engine, peer) == 0 ? 0 : failed("tent_close_segment");
}

static int heard(tent_engine_t engine, const char *memory)
{
    tent_notifi_info info;
    int i;
    if (tent_recv_notifs(engine, &info) != 0)
        return failed("tent_recv_notifs");
    for (i = 0; i < info.num_records; i++)
        printf("%s: %s\n", info.records[i].name, info.records[i].msg);
    tent_free_notifs(&info);
    printf("memory is '%c' to '%c'\n", memory[0], memory[SIZE - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    int serve = argc > 1 && strcmp(argv[1], "serve") == 0;
    int other = argc > 3 && strcmp(argv[1], "copy") == 0;
    int skip = serve ? 2 : other ? 4 : 1, result = 1;
    char name[256];
    char *memory;
    tent_engine_t target = NULL, engine = NULL;
    if (!other) {
        target = begin(argc - skip, argv + skip);
        memory = target != NULL ? offer(target, 's') : NULL;
        if (memory == NULL || tent_segment_name(target, name, sizeof(name)) != 0)
            return failed("the one that is copied from");
        if (serve) {
            printf("%s %" PRIu64 "\n", name, (uint64_t)(uintptr_t)memory);
            fflush(stdout);
            while (getchar() != EOF)
                ;
            result = heard(target, memory);
            tent_destroy_engine(target);
            return result;
        }
    }
    engine = begin(other ? argc - skip : 0, argv + skip);
    if (engine == NULL)
        return failed("tent_create_engine");
    if (other)
        result = copy(engine, argv[2], strtoull(argv[3], NULL, 10));
    else
        result = copy(engine, name, (uint64_t)(uintptr_t)memory) || heard(target, memory);
    tent_destroy_engine(engine);
    tent_destroy_engine(target);
    return result;
}
