/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's C interface on Yolk: puts, gets and removes values by key.
 *
 *   cc store_c.c -I INCLUDE -L LIB -Wl,-rpath,LIB -lmooncake_store -o store_c
 *   ./store_c [MASTER]                       MASTER: "host:port"; without it none is needed
 *
 * docs/c.md says where INCLUDE and LIB are. */
#include <inttypes.h>
#include <mooncake/store_c.h>
#include <stdio.h>
#include <string.h>

enum { MEMORY = 64 << 20, BUFFER = 1 << 20, COUNT = 4 };

static int use(mooncake_store_t store, char *buffer)
{
    static const char hello[] = "hello";
    const char *keys[COUNT] = {"block/0", "block/1", "block/2", "block/missing"};
    void *pieces[COUNT];
    size_t sizes[COUNT];
    int put[COUNT], there[COUNT];
    int64_t got[COUNT];

    int code = mooncake_store_put(store, "greeting", hello, sizeof(hello), NULL);
    if (code != 0)
        return code;
    printf("greeting: %" PRId64 " bytes\n", mooncake_store_get_size(store, "greeting"));

    /* Batches go to and from memory that was registered once, without a copy in between. */
    code = mooncake_store_register_buffer(store, buffer, BUFFER);
    if (code != 0)
        return code;
    for (size_t i = 0; i < COUNT; i++) {
        pieces[i] = buffer + i * (BUFFER / COUNT);
        sizes[i] = BUFFER / COUNT;
        memset(pieces[i], 'a' + (int)i, sizes[i]);
    }
    mooncake_replicate_config_t config = {.replica_num = 1};
    code = mooncake_store_batch_put_from(store, keys, pieces, sizes, COUNT - 1, &config, put);
    for (size_t i = 0; code == 0 && i < COUNT - 1; i++)
        printf("put %s: %d\n", keys[i], put[i]);
    memset(buffer, 0, BUFFER);
    if (code == 0)
        code = mooncake_store_batch_is_exist(store, keys, COUNT, there);
    if (code == 0)
        code = mooncake_store_batch_get_into(store, keys, pieces, sizes, COUNT, got);
    for (size_t i = 0; code == 0 && i < COUNT; i++) /* -704: there is no such key */
        printf("get %s: there %d, %" PRId64 ", begins with '%c'\n", keys[i], there[i], got[i],
               got[i] > 0 ? *(char *)pieces[i] : '-');
    if (code == 0)
        code = mooncake_store_unregister_buffer(store, buffer);
    if (code == 0)
        printf("removed %" PRId64 "\n", mooncake_store_remove_by_regex(store, "^block/\\d$", 1));
    return code;
}

int main(int argc, char **argv)
{
    static char buffer[BUFFER];
    const char *master = argc > 1 ? argv[1] : "embedded";
    mooncake_store_t store = mooncake_store_create();
    if (store == NULL)
        return 1;
    int code =
        mooncake_store_setup(store, "localhost", "P2PHANDSHAKE", MEMORY, MEMORY, "tcp", "", master);
    if (code == 0)
        code = use(store, buffer);
    mooncake_store_destroy(store);
    if (code != 0)
        fprintf(stderr, "failed: %d\n", code);
    return code == 0 ? 0 : 1;
}
