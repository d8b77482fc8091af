/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

struct entry {
    const char *name, *suffix;
    int version;
    enum cuda_need need;
    size_t offset; /* of the function's pointer in the table */
};

static const struct entry entries[] = {
#define CUDA_ENTRY(field, name, version, suffix, need, parameters)                                 \
    {#name, suffix, version, need, offsetof(struct cuda, field)},
    CUDA_FUNCTIONS(CUDA_ENTRY)
#undef CUDA_ENTRY
};

typedef cuda_result (*get_proc_address)(const char *name, void **out, int version, uint64_t flags,
                                        int *found);
typedef cuda_result (*get_proc_address_old)(const char *name, void **out, int version,
                                            uint64_t flags);

/* Functions and objects have pointers of one size on every system that has this library. */
#define AS_FUNCTION(pointer, symbol) memcpy(&(pointer), &(symbol), sizeof(pointer))

/* What cuGetProcAddress does not know is not there: the plain name may be another version's. Only
 * where the library has no such function are the names themselves asked for, with their suffixes.
 */
static void *find(void *library, const struct entry *entry)
{
    get_proc_address ask = NULL;
    get_proc_address_old ask_old = NULL;
    char name[96];
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    void *found = NULL;
    int how = 0;
    if (symbol != NULL) {
        AS_FUNCTION(ask, symbol);
        return ask(entry->name, &found, entry->version, 0, &how) == CUDA_OK ? found : NULL;
    }
    symbol = dlsym(library, "cuGetProcAddress");
    if (symbol != NULL) {
        AS_FUNCTION(ask_old, symbol);
        return ask_old(entry->name, &found, entry->version, 0) == CUDA_OK ? found : NULL;
    }
    snprintf(name, sizeof(name), "%s%s", entry->name, entry->suffix);
    return dlsym(library, name);
}

static void find_all(struct cuda *cuda)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const struct entry *entry = &entries[i];
        void *symbol = find(cuda->library, entry);
        memcpy((char *)cuda + entry->offset, &symbol, sizeof(symbol));
        if (symbol == NULL && cuda->missing[entry->need] == NULL)
            cuda->missing[entry->need] = entry->name;
    }
}

/* The version can be asked before cuInit, so it is known even where the rest is missing. */
static int check_version(struct cuda *cuda)
{
    if (cuda->driver_get_version == NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "no CUDA driver: the library has no cuDriverGetVersion");
    cuda_result error = cuda->driver_get_version(&cuda->version);
    if (error == CUDA_ERR_STUB_LIBRARY)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "no CUDA driver: the library is the toolkit's stub");
    if (error != CUDA_OK)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "no CUDA driver: cuDriverGetVersion answers %d",
                         error);
    if (cuda->version < CUDA_VERSION_MIN)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "the CUDA driver is for CUDA %d.%d; %d.%d or newer is needed",
                         cuda->version / 1000, cuda->version % 1000 / 10, CUDA_VERSION_MIN / 1000,
                         CUDA_VERSION_MIN % 1000 / 10);
    return YOLK_OK;
}

int cuda_load(const char *library, struct cuda *out)
{
    memset(out, 0, sizeof(*out));
    out->library = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (out->library == NULL) {
        const char *why = dlerror();
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "no CUDA driver: %s", why ? why : "dlopen fails");
    }
    find_all(out);
    int status = check_version(out);
    if (status != YOLK_OK)
        return status;
    if (out->missing[CUDA_CORE] != NULL)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0, "the CUDA driver (CUDA %d.%d) has no function %s",
                         out->version / 1000, out->version % 1000 / 10, out->missing[CUDA_CORE]);
    cuda_result error = out->init(0);
    if (error == CUDA_OK)
        return YOLK_OK;
    (void)cuda_fail(out, error, "cuInit");
    return base_fail_context(YOLK_ERR_UNSUPPORTED, "no CUDA driver");
}

int cuda_status(cuda_result error)
{
    switch (error) {
    case CUDA_OK:
        return YOLK_OK;
    case CUDA_ERR_INVALID_VALUE:
        return YOLK_ERR_INVALID;
    case CUDA_ERR_OUT_OF_MEMORY:
        return YOLK_ERR_NO_MEMORY;
    case CUDA_ERR_DEINITIALIZED:
    case CUDA_ERR_CONTEXT_IS_DESTROYED:
        return YOLK_ERR_CLOSED;
    case CUDA_ERR_NOT_READY:
        return YOLK_ERR_AGAIN;
    case CUDA_ERR_NOT_PERMITTED:
    case CUDA_ERR_NOT_SUPPORTED:
        return YOLK_ERR_UNSUPPORTED;
    default:
        return YOLK_ERR_SYSTEM;
    }
}

int cuda_fail(const struct cuda *cuda, cuda_result error, const char *what, ...)
{
    const char *name = NULL, *text = NULL;
    char call[160];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(call, sizeof(call), what, arguments);
    va_end(arguments);
    if (error == CUDA_ERR_DEINITIALIZED) /* nothing more is asked of it then */
        return base_fail(YOLK_ERR_CLOSED, 0, "%s: the CUDA driver has shut down", call);
    if (cuda->get_error_name(error, &name) != CUDA_OK || name == NULL)
        name = "unknown error";
    if (cuda->get_error_string(error, &text) != CUDA_OK || text == NULL)
        text = "no text";
    return base_fail(cuda_status(error), 0, "%s: %s (%d): %s", call, name, error, text);
}
