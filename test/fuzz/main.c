/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one fuzzer without libFuzzer, over the files of a folder: as they are, cut after each byte,
 * and with single bytes changed. So what a fuzzer once found stays tested with any compiler.
 */
#include <dirent.h>
#include <stdbool.h>

#include "kit.h"

enum { KEPT_MAX = 64 * 1024, CHANGES_MAX = 32 };

static void run(const uint8_t *data, size_t size)
{
    /* Of exactly that size, so that the address sanitizer sees what reads beyond. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    FUZZ_MUST(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static size_t run_all(uint8_t *data, size_t size)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '\n'};
    size_t runs = 1, step = 1 + size / CHANGES_MAX;
    run(data, size);
    for (size_t i = 0; i < size; i += step, runs += 2) {
        uint8_t kept = data[i];
        run(data, i);
        data[i] = values[i / step % sizeof(values)];
        run(data, size);
        data[i] = kept;
    }
    return runs;
}

static bool run_file(const char *folder, const char *name, size_t *runs)
{
    static uint8_t data[KEPT_MAX];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        fprintf(stderr, "cannot read %s\n", path);
        return false;
    }
    size_t size = fread(data, 1, sizeof(data), file);
    bool whole = feof(file);
    fclose(file);
    if (!whole) {
        fprintf(stderr, "%s is larger than %d bytes\n", path, KEPT_MAX);
        return false;
    }
    *runs += run_all(data, size);
    return true;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s FOLDER of kept inputs\n", argv[0]);
        return 2;
    }
    size_t files = 0, runs = 0;
    bool good = true;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        files++;
        good = run_file(argv[1], entry->d_name, &runs) && good;
    }
    closedir(folder);
    printf("%zu kept inputs, %zu runs\n", files, runs);
    return good && files > 0 ? 0 : 1;
}
