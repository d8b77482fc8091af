/* SPDX-License-Identifier: Apache-2.0 */
/* One open device for all parts of a process that name the same libraries. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/list.h"
#include "device/internal.h"
#include "platform/process.h"

struct shared {
    struct base_list node;
    struct device *device;
    unsigned users;
    char *cuda, *cufile; /* NULL: as the system finds it */
};

/* Held over each fork, so that the child finds it free; never while the driver is called, which may
 * fork itself. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct base_list all = {&all, &all};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic unsigned shares; /* in the list */

static void hold(void)
{
    pthread_mutex_lock(&lock);
}

static void let_go(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch(void)
{
    (void)!pthread_atfork(hold, let_go, let_go);
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* How many libraries were ever loaded; looking whether one is takes 50 us where it is not. */
static int count_loaded(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    *(unsigned long long *)out = info->dlpi_adds;
    return 1;
}

/* cuDeviceGetCount, or NULL. */
static void *find_get_count(void)
{
    static _Atomic(void *) found;
    static _Atomic unsigned long long looked; /* when so many were loaded */
    void *symbol = atomic_load_explicit(&found, memory_order_relaxed);
    unsigned long long loaded = 0;
    if (symbol != NULL)
        return symbol;
    (void)dl_iterate_phdr(count_loaded, &loaded);
    if (loaded == atomic_load_explicit(&looked, memory_order_relaxed))
        return NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) /* and so it stays loaded */
        symbol = dlsym(library, "cuDeviceGetCount");
    atomic_store_explicit(&found, symbol, memory_order_relaxed);
    if (symbol == NULL)
        atomic_store_explicit(&looked, loaded, memory_order_relaxed);
    return symbol;
}

bool device_in_use(void)
{
    int (*get_count)(int *count);
    int count = 0;
    void *symbol = find_get_count();
    if (symbol == NULL)
        return false;
    memcpy(&get_count, &symbol, sizeof(get_count));
    /* Before somebody began to use it, and in a child of fork, it answers that. */
    return get_count(&count) == CUDA_OK && count > 0;
}

static struct shared *find(const char *cuda, const char *cufile)
{
    BASE_LIST_FOREACH(node, &all)
    {
        struct shared *shared = BASE_CONTAINER(node, struct shared, node);
        if (same(shared->cuda, cuda) && same(shared->cufile, cufile))
            return shared;
    }
    return NULL;
}

/* Without the lock; it is in no list. */
static void shared_free(struct shared *shared)
{
    device_close(shared->device);
    free(shared->cuda);
    free(shared->cufile);
    free(shared);
}

static int shared_make(const char *cuda, const char *cufile, struct shared **out)
{
    struct shared *made = base_calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a device");
    base_list_init(&made->node);
    made->cuda = cuda != NULL ? strdup(cuda) : NULL;
    made->cufile = cufile != NULL ? strdup(cufile) : NULL;
    int status = YOLK_OK;
    if ((cuda != NULL && made->cuda == NULL) || (cufile != NULL && made->cufile == NULL))
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a device");
    const struct device_options options = {.cuda_library = cuda, .cufile_library = cufile};
    if (status == YOLK_OK)
        status = device_open(&options, &made->device);
    if (status != YOLK_OK) {
        shared_free(made);
        return status;
    }
    *out = made;
    return YOLK_OK;
}

/* Takes the one that is there, or else `made`, if that is not NULL. NULL: there is none; FORKED. */
static int take(const char *cuda, const char *cufile, struct shared **made, struct device **out)
{
    int status = YOLK_OK;
    pthread_mutex_lock(&lock);
    struct shared *shared = find(cuda, cufile);
    if (shared == NULL && *made != NULL) {
        shared = *made;
        *made = NULL;
        base_list_push_back(&all, &shared->node);
        (void)atomic_fetch_add(&shares, 1);
    }
    if (shared != NULL)
        status = device_check(shared->device);
    if (shared != NULL && status == YOLK_OK) {
        shared->users++;
        *out = shared->device;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int device_share(const char *cuda, const char *cufile, struct device **out)
{
    struct shared *made = NULL;
    *out = NULL;
    (void)pthread_once(&once, watch);
    int status = take(cuda, cufile, &made, out);
    if (status != YOLK_OK || *out != NULL)
        return status;
    status = shared_make(cuda, cufile, &made);
    if (status != YOLK_OK)
        return status;
    status = take(cuda, cufile, &made, out);
    if (made != NULL) /* another thread was faster */
        shared_free(made);
    return status;
}

void device_unshare(struct device *device)
{
    struct shared *last = NULL;
    if (device == NULL)
        return;
    pthread_mutex_lock(&lock);
    BASE_LIST_FOREACH(node, &all)
    {
        struct shared *shared = BASE_CONTAINER(node, struct shared, node);
        if (shared->device != device)
            continue;
        if (--shared->users == 0) {
            last = shared;
            base_list_remove(&shared->node);
            (void)atomic_fetch_sub(&shares, 1);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
    if (last != NULL)
        shared_free(last);
}

bool device_was_gpu(const void *pointer)
{
    bool found = false;
    if (atomic_load_explicit(&shares, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&lock);
    BASE_LIST_FOREACH(node, &all)
    {
        const struct device *device = BASE_CONTAINER(node, struct shared, node)->device;
        for (unsigned i = 0; i < device->cache_count && !found; i++) {
            const struct device_memory *memory = &device->cache[i].memory;
            found = memory->kind == DEVICE_GPU &&
                    (uintptr_t)pointer - memory->base < memory->size &&
                    device->generation != process_forks();
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}
