/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/gds/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ROOM "gds"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "platform/clock.h"
#include "transport/gds/child.h"
#include "transport/gds/files.h"

struct gds_call {
    struct base_list node;
    int (*function)(void *self);
    void *self;
    int status;
    bool over, last; /* last: at the process's end, when no other may */
    char error[512];
};

static pthread_mutex_t one_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct gds_driver *driver;
    unsigned users;
    char *cuda, *cufile; /* NULL: as the system finds them */
    bool probed;         /* another process could open it with these */
    bool watched;        /* gds_watch_end; never undone */
} one;

/* ---- the thread ---- */

/* The thread is ours, so its stack was empty before. The lowest context is returned. */
static cuda_context pop_all(const struct cuda *cuda)
{
    enum { POPS_MAX = 100000 };
    cuda_context context = NULL, lowest = NULL;
    for (int i = 0; i < POPS_MAX && cuda->ctx_get_current(&context) == CUDA_OK && context != NULL;
         i++)
        (void)cuda->ctx_pop_current(&lowest);
    return lowest;
}

void gds_tidy(struct gds_driver *driver)
{
    const struct cuda *cuda = device_cuda(driver->device);
    cuda_context lowest = pop_all(cuda);
    if (lowest != NULL)
        (void)cuda->ctx_push_current(lowest);
}

void gds_scope_end(struct gds_driver *driver, struct device_scope *scope)
{
    (void)pop_all(device_cuda(driver->device));
    scope->pushed = false;
    device_leave(driver->device, scope);
}

static void run_call(struct gds_driver *driver, struct gds_call *call)
{
    struct device_scope scope;
    base_error_clear();
    call->status =
        call->last ? device_enter(driver->device, 0, &scope) : gds_enter(driver, 0, &scope);
    if (call->status == YOLK_OK) {
        call->status = call->function(call->self);
        snprintf(call->error, sizeof(call->error), "%s", yolk_last_error());
        if (call->last)
            gds_scope_end(driver, &scope);
        else
            gds_leave(driver, &scope);
    } else {
        snprintf(call->error, sizeof(call->error), "%s", yolk_last_error());
    }
}

static void serve_calls(void *self)
{
    struct gds_driver *driver = self;
    mutex_lock(&driver->lock);
    for (;;) {
        struct base_list *node = base_list_pop_front(&driver->calls);
        if (node == NULL && driver->ending)
            break;
        if (node == NULL) {
            condition_wait(&driver->changed, &driver->lock);
            continue;
        }
        struct gds_call *call = BASE_CONTAINER(node, struct gds_call, node);
        mutex_unlock(&driver->lock);
        run_call(driver, call);
        mutex_lock(&driver->lock);
        call->over = true;
        condition_broadcast(&driver->changed);
    }
    mutex_unlock(&driver->lock);
}

int gds_driver_call(struct gds_driver *driver, int (*function)(void *self), void *self)
{
    struct gds_call call = {.function = function, .self = self};
    int status = device_check(driver->device); /* in a child there is no such thread */
    if (status != YOLK_OK)
        return status;
    mutex_lock(&driver->lock);
    base_list_push_back(&driver->calls, &call.node);
    condition_broadcast(&driver->changed);
    while (!call.over)
        condition_wait(&driver->changed, &driver->lock);
    mutex_unlock(&driver->lock);
    if (call.error[0] != '\0')
        base_ignore(base_fail(call.status, 0, "%s", call.error));
    return call.status;
}

/* ---- opening ---- */

/* Statistics prove by which way bytes go; without them nothing is called direct. */
static bool begin_counting(const struct cufile *cufile)
{
    struct cufile_gpu_statistics gpus[CUFILE_STATISTICS_GPUS];
    unsigned count;
    return cufile->missing[CUFILE_STATISTICS] == NULL &&
           cufile->set_stats_level(3).error == CUFILE_OK &&
           cufile->stats_start().error == CUFILE_OK &&
           cufile_gpu_statistics(cufile, gpus, &count) == YOLK_OK;
}

static int open_driver(void *self)
{
    struct gds_driver *driver = self;
    const struct cufile *cufile = driver->cufile;
    struct cufile_error error = cufile->driver_open();
    if (error.error != CUFILE_OK && error.error != CUFILE_ERR_DRIVER_ALREADY_OPEN)
        return cufile_fail(error, "cuFileDriverOpen");
    driver->opened = error.error == CUFILE_OK;
    if (!one.watched) { /* now that cuFile's own end is registered, so that ours comes before it */
        int status = gds_watch_end();
        if (status != YOLK_OK)
            return status;
        one.watched = true;
    }
    error = cufile->driver_get_properties(&driver->properties);
    if (error.error != CUFILE_OK)
        return cufile_fail(error, "cuFileDriverGetProperties");
    driver->counts = begin_counting(cufile);
    base_error_clear();
    return YOLK_OK;
}

/* At the process's end there are files and slabs of those who did not close them. */
static int close_driver(void *self)
{
    struct gds_driver *driver = self;
    while (driver->idle_count > 0) {
        struct gds_batch *batch = driver->idle[--driver->idle_count];
        if (gds_batch_close(batch) == YOLK_OK)
            free(batch);
    }
    BASE_LIST_FOREACH(node, &driver->slabs)
    {
        gds_slab_deregister(BASE_CONTAINER(node, struct gds_slab, node));
    }
    gds_buffers_deregister(&driver->buffers);
    gds_files_deregister(driver);
    if (driver->opened)
        (void)driver->cufile->driver_close();
    driver->opened = false;
    return YOLK_OK;
}

bool gds_driver_end(uint64_t deadline_ns)
{
    static struct gds_call call; /* stays, for a thread that is late */
    struct gds_driver *driver;
    while (pthread_mutex_trylock(&one_lock) != 0) {
        if (clock_real_now_ns() >= deadline_ns)
            return false;
        thread_relax();
    }
    driver = one.users > 0 ? one.driver : NULL;
    call = (struct gds_call){.function = close_driver, .self = driver, .last = true};
    bool waits = true;
    if (driver != NULL) {
        mutex_lock(&driver->lock);
        base_list_push_back(&driver->calls, &call.node);
        condition_broadcast(&driver->changed);
        while (!call.over && waits)
            waits = condition_wait_until(&driver->changed, &driver->lock, deadline_ns);
        waits = call.over;
        mutex_unlock(&driver->lock);
    }
    pthread_mutex_unlock(&one_lock);
    return waits;
}

static void destroy(struct gds_driver *driver)
{
    if (driver->thread.running) {
        mutex_lock(&driver->lock);
        driver->ending = true;
        condition_broadcast(&driver->changed);
        mutex_unlock(&driver->lock);
        thread_join(&driver->thread);
        gds_buffers_fini(&driver->buffers);
    }
    condition_destroy(&driver->changed);
    mutex_destroy(&driver->lock);
    device_unshare(driver->device);
    free(driver);
}

static int look_for_cufile(struct gds_driver *driver)
{
    int status = device_cufile(driver->device, &driver->cufile);
    if (status == YOLK_OK && driver->cufile->missing[CUFILE_BATCHES] != NULL)
        status = base_fail(YOLK_ERR_UNSUPPORTED, 0, "this cuFile has no function %s",
                           driver->cufile->missing[CUFILE_BATCHES]);
    return status;
}

static int make(const struct yolk_transport_options *options, struct gds_driver **out)
{
    struct gds_driver *driver = base_calloc(1, sizeof(*driver));
    if (driver == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for cuFile");
    mutex_init(&driver->lock);
    condition_init(&driver->changed);
    base_list_init(&driver->calls);
    base_list_init(&driver->files);
    base_list_init(&driver->slabs);
    uint64_t limit_ms = options->connect_timeout_ms != 0 ? options->connect_timeout_ms
                                                         : GDS_PROBE_TIMEOUT_DEFAULT_MS;
    int status = device_share(options->cuda_library, options->cufile_library, &driver->device);
    if (status == YOLK_OK)
        status = look_for_cufile(driver);
    if (status == YOLK_OK && !one.probed)
        status = gds_child_probe(options->cuda_library, options->cufile_library, limit_ms);
    one.probed = one.probed || status == YOLK_OK;
    if (status == YOLK_OK)
        status = thread_start(&driver->thread, "yolk-cufile", serve_calls, driver);
    if (status == YOLK_OK) {
        gds_buffers_init(&driver->buffers, driver->device, driver->cufile);
        status = gds_driver_call(driver, open_driver, driver);
        if (status != YOLK_OK)
            base_ignore(gds_driver_call(driver, close_driver, driver));
    }
    if (status != YOLK_OK) {
        char why[512];
        snprintf(why, sizeof(why), "%s", yolk_last_error());
        destroy(driver);
        return base_fail(status, 0, "%s", why);
    }
    *out = driver;
    return YOLK_OK;
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void forget_names(void)
{
    free(one.cuda);
    free(one.cufile);
    one.cuda = one.cufile = NULL;
}

/* The lock is held. What another process found out is of the libraries that it was told. */
static int name_libraries(const struct yolk_transport_options *options)
{
    if (same(one.cuda, options->cuda_library) && same(one.cufile, options->cufile_library))
        return YOLK_OK;
    if (one.users > 0)
        return base_fail(YOLK_ERR_INVALID, 0, "this process has cuFile open out of %s, not %s",
                         one.cufile != NULL ? one.cufile : "the system's library",
                         options->cufile_library != NULL ? options->cufile_library
                                                         : "the system's library");
    forget_names();
    one.probed = false;
    one.cuda = options->cuda_library != NULL ? strdup(options->cuda_library) : NULL;
    one.cufile = options->cufile_library != NULL ? strdup(options->cufile_library) : NULL;
    if (same(one.cuda, options->cuda_library) && same(one.cufile, options->cufile_library))
        return YOLK_OK;
    forget_names();
    return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for cuFile's name");
}

int gds_driver_acquire(const struct yolk_transport_options *options, struct gds_driver **out)
{
    pthread_mutex_lock(&one_lock);
    int status = name_libraries(options);
    if (status == YOLK_OK)
        status = one.users > 0 ? device_check(one.driver->device) : make(options, &one.driver);
    if (status == YOLK_OK) {
        one.users++;
        *out = one.driver;
    }
    pthread_mutex_unlock(&one_lock);
    return status;
}

void gds_driver_release(struct gds_driver *driver)
{
    pthread_mutex_lock(&one_lock);
    if (--one.users == 0) {
        one.driver = NULL;
        /* At the process's end that is done, and cuFile is not called any more. */
        if (gds_driver_call(driver, close_driver, driver) == YOLK_OK)
            destroy(driver);
    }
    pthread_mutex_unlock(&one_lock);
}

void gds_driver_look(void (*function)(struct gds_driver *driver, void *self), void *self)
{
    pthread_mutex_lock(&one_lock);
    if (one.users > 0)
        function(one.driver, self);
    pthread_mutex_unlock(&one_lock);
}

/* ---- what its users have of it ---- */

void gds_driver_add_slab(struct gds_driver *driver, struct gds_slab *slab)
{
    mutex_lock(&driver->lock);
    base_list_push_back(&driver->slabs, &slab->node);
    mutex_unlock(&driver->lock);
}

void gds_driver_remove_slab(struct gds_driver *driver, struct gds_slab *slab)
{
    mutex_lock(&driver->lock);
    base_list_remove(&slab->node);
    mutex_unlock(&driver->lock);
}

int gds_batch_take(struct gds_driver *driver, unsigned depth, uint64_t slice,
                   struct gds_batch **out)
{
    struct gds_batch *found = NULL;
    mutex_lock(&driver->lock);
    for (unsigned i = driver->idle_count; i-- > 0 && found == NULL;) {
        if (driver->idle[i]->window.depth != depth)
            continue;
        found = driver->idle[i];
        driver->idle[i] = driver->idle[--driver->idle_count];
    }
    mutex_unlock(&driver->lock);
    if (found != NULL) {
        gds_window_init(&found->window, depth, slice);
        *out = found;
        return YOLK_OK;
    }
    found = base_calloc(1, sizeof(*found));
    if (found == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a batch handle");
    int status = gds_batch_open(found, driver->cufile, depth, slice, false);
    if (status != YOLK_OK) {
        free(found);
        return status;
    }
    *out = found;
    return YOLK_OK;
}

void gds_batch_give(struct gds_driver *driver, struct gds_batch *batch)
{
    bool kept = false;
    mutex_lock(&driver->lock);
    if (gds_window_reusable(&batch->window) && driver->idle_count < GDS_POOL_MAX) {
        driver->idle[driver->idle_count++] = batch;
        kept = true;
    }
    mutex_unlock(&driver->lock);
    if (!kept && gds_batch_close(batch) == YOLK_OK)
        free(batch);
}
