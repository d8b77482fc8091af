/* SPDX-License-Identifier: Apache-2.0 */
/* State, commands, and what each call begins and ends with. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

struct fake_cuda fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .moved = PTHREAD_COND_INITIALIZER,
    .gpus = 1,
    .version = 13000,
    .ptx = 90,
    .wrong_sums = UINT64_MAX,
    .bus = 0x1b,
    .same_pointer = true,
    .pinned_max = UINT64_MAX,
    .log_fd = -1,
    .node_count = 1,
    .host_numa = true,
};

static struct {
    char name[64];
    unsigned long calls;
} counts[FAKE_NAMES];

enum { DEPTH = 4096 }; /* the real cuFile leaves some behind */
static _Thread_local struct CUctx_st *stack[DEPTH];
static _Thread_local unsigned depth;
static _Thread_local int capture_mode = CUDA_CAPTURE_GLOBAL;

struct CUctx_st *fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

unsigned fake_depth(void)
{
    return depth;
}

int fake_capture_mode(void)
{
    return capture_mode;
}

struct object {
    struct object *next, **back;
    _Alignas(16) char bytes[];
};
static struct object *objects;

void *fake_new(size_t size)
{
    struct object *object = calloc(1, sizeof(*object) + size);
    if (object == NULL)
        abort();
    object->next = objects;
    object->back = &objects;
    if (objects != NULL)
        objects->back = &object->next;
    objects = object;
    return object->bytes;
}

void fake_delete(void *pointer)
{
    if (pointer == NULL)
        return;
    struct object *object = (struct object *)((char *)pointer - offsetof(struct object, bytes));
    *object->back = object->next;
    if (object->next != NULL)
        object->next->back = object->back;
    free(object);
}

uint64_t fake_next_id(void)
{
    return ++fake.last_id;
}

unsigned long fake_calls(const char *name)
{
    for (unsigned i = 0; i < FAKE_NAMES && counts[i].name[0] != '\0'; i++) {
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].calls;
    }
    return 0;
}

static void count_call(const char *name)
{
    unsigned i = 0;
    while (i < FAKE_NAMES - 1 && counts[i].name[0] != '\0' && strcmp(counts[i].name, name) != 0)
        i++;
    snprintf(counts[i].name, sizeof(counts[i].name), "%s", name);
    counts[i].calls++;
    if (fake.log_fd >= 0)
        dprintf(fake.log_fd, "%d %s\n", (int)getpid(), name);
}

static cuda_result injected(const char *name)
{
    for (unsigned i = 0; i < fake.rule_count; i++) {
        struct fake_rule *rule = &fake.rules[i];
        if (strcmp(rule->name, name) != 0)
            continue;
        unsigned long call = ++rule->seen;
        if (call >= rule->first && call <= rule->last)
            return rule->error;
    }
    return CUDA_OK;
}

/* U7: a global capture anywhere forbids it to threads that are not relaxed, and is spoilt. */
static bool spoils_capture(void)
{
    bool spoilt = false;
    for (struct CUstream_st *s = fake.streams; s != NULL; s = s->next) {
        if (!s->capturing || s->capture_mode != CUDA_CAPTURE_GLOBAL ||
            capture_mode == CUDA_CAPTURE_RELAXED)
            continue;
        s->capture_status = CUDA_CAPTURE_INVALIDATED;
        spoilt = true;
    }
    return spoilt;
}

cuda_result fake_enter(const char *name, unsigned needs)
{
    cuda_result error = CUDA_OK;
    pthread_mutex_lock(&fake.lock);
    count_call(name);
    while (strcmp(fake.stalled, name) == 0)
        pthread_cond_wait(&fake.moved, &fake.lock);
    if (fake.ended) {
        if (fake.strict_exit) {
            dprintf(STDERR_FILENO, "fake CUDA: %s after the driver's end\n", name);
            _exit(97);
        }
        error = CUDA_ERR_DEINITIALIZED;
    } else if (fake.started && fake.process != (int)getpid()) {
        error = CUDA_ERR_NOT_INITIALIZED; /* U10 */
    } else if (fake.death != 0) {
        error = fake.death;
    } else if ((needs & STARTED) && !fake.started) {
        error = CUDA_ERR_NOT_INITIALIZED;
    } else if ((error = injected(name)) != CUDA_OK) {
    } else if ((needs & CONTEXT) && fake_current() == NULL) {
        error = CUDA_ERR_INVALID_CONTEXT;
    } else if ((needs & UNSAFE) && spoils_capture()) {
        error = CUDA_ERR_STREAM_CAPTURE_UNSUPPORTED;
    } else if ((needs & CONTEXT) && fake.sticky[fake_current()->ordinal] != 0) {
        error = fake.sticky[fake_current()->ordinal]; /* U8 */
    }
    if (error != CUDA_OK)
        pthread_mutex_unlock(&fake.lock);
    return error;
}

cuda_result fake_leave(cuda_result result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

__attribute__((noreturn)) static void wrong(const char *command)
{
    dprintf(STDERR_FILENO, "fake CUDA: wrong command \"%s\"\n", command);
    _exit(98);
}

static void disarm(void)
{
    for (unsigned i = 0; i < fake.rule_count; i++)
        free((void *)(uintptr_t)fake.rules[i].name);
    fake.rule_count = 0;
}

static void set_nodes(int count)
{
    fake.node_count = count;
    for (int i = 0; i < FAKE_GPUS; i++)
        fake.numa_of[i] = i % count;
}

static void reset(void)
{
    disarm();
    fake.hold = false;
    fake.delay = 0;
    fake.async_error = 0;
    fake.async_late = false;
    fake.death = 0;
    memset(fake.sticky, 0, sizeof(fake.sticky));
    memset(counts, 0, sizeof(counts));
    fake.missing_count = 0;
    fake.ptx = 90;
    fake.run_text = false;
    fake.wrong_sums = UINT64_MAX;
    fake.fabric = false;
    fake.pinned_max = UINT64_MAX;
    fake.launches = fake.batches = 0;
    fake.host = fake.domain = fake.first_gpu = 0;
    fake.host_numa = true;
    fake.stalled[0] = '\0';
    set_nodes(1);
    memset(fake.granularity, 0, sizeof(fake.granularity));
}

/* What makes one machine differ from another. */
static bool set_machine(const char *what, const char *value)
{
    long number = 0, second = 0;
    int fields = sscanf(value, "%ld %ld", &number, &second);
    if (strcmp(what, "host") == 0)
        fake.host = (int)number;
    else if (strcmp(what, "domain") == 0)
        fake.domain = (int)number;
    else if (strcmp(what, "first") == 0)
        fake.first_gpu = (int)number;
    else if (strcmp(what, "hostnuma") == 0)
        fake.host_numa = number != 0;
    else if (strcmp(what, "nodes") == 0 && number > 0 && number <= FAKE_NODES)
        set_nodes((int)number);
    else if (strcmp(what, "numa") == 0 && fields == 2 && number >= 0 && number < FAKE_GPUS)
        fake.numa_of[number] = (int)second;
    else if (strcmp(what, "granularity") == 0 && fields == 2 && number >= 0 && number < FAKE_NODES)
        fake.granularity[number] = (size_t)second;
    else
        return false;
    return true;
}

static void set(const char *command, const char *what, const char *value)
{
    long number = strtol(value, NULL, 10);
    if (strcmp(what, "gpus") == 0 && number >= 0 && number <= FAKE_GPUS)
        fake.gpus = (int)number;
    else if (strcmp(what, "version") == 0)
        fake.version = (int)number;
    else if (strcmp(what, "missing") == 0 && fake.missing_count < 8)
        snprintf(fake.missing[fake.missing_count++], sizeof(fake.missing[0]), "%.63s", value);
    else if (strcmp(what, "ptx") == 0)
        fake.ptx = (int)number;
    else if (strcmp(what, "wrongsums") == 0)
        fake.wrong_sums = (uint64_t)number;
    else if (strcmp(what, "text") == 0)
        fake.run_text = number != 0;
    else if (strcmp(what, "bus") == 0)
        fake.bus = (int)number;
    else if (strcmp(what, "fabric") == 0)
        fake.fabric = number != 0;
    else if (strcmp(what, "pinned") == 0)
        fake.pinned_max = (uint64_t)number;
    else if (strcmp(what, "samepointer") == 0)
        fake.same_pointer = number != 0;
    else if (strcmp(what, "strictexit") == 0)
        fake.strict_exit = number != 0;
    else if (!set_machine(what, value))
        wrong(command);
}

static void fail(const char *command, const char *name, const char *numbers)
{
    unsigned long nth, length = 1;
    int error;
    int fields = sscanf(numbers, "%lu %d %lu", &nth, &error, &length);
    if (fields < 2 || fake.rule_count == FAKE_RULES)
        wrong(command);
    fake.rules[fake.rule_count++] = (struct fake_rule){
        strdup(name), nth, length == 0 ? (unsigned long)-1 : nth + length - 1, 0, error};
}

static long count(const char *command, const char *what)
{
    long found = 0, bytes = 0;
    static const struct {
        const char *name;
        enum fake_kind kind;
    } kinds[] = {{"registered", FAKE_REGISTERED},
                 {"pinned", FAKE_PINNED},
                 {"gpu", FAKE_DEVICE},
                 {"vmm", FAKE_VMM},
                 {"ipc", FAKE_IPC},
                 {"managed", FAKE_MANAGED}};
    const struct {
        const char *name;
        long value;
    } values[] = {{"streams", fake.streams_open}, {"events", fake.events_open},
                  {"modules", fake.modules_open}, {"reserved", fake.reserved},
                  {"handles", fake.handles_open}, {"launches", fake.launches},
                  {"batches", fake.batches},      {"registered_bytes", -1}};
    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (strcmp(what, values[i].name) == 0)
            found = values[i].value;
        if (strcmp(what, values[i].name) == 0 && found >= 0)
            return found;
    }
    if (strcmp(what, "contexts") == 0) {
        for (int i = 0; i < FAKE_GPUS; i++)
            found += fake.retained[i];
        return found;
    }
    found = 0;
    for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        bool bytes_too = strcmp(what, "registered_bytes") == 0 && kinds[k].kind == FAKE_REGISTERED;
        if (strcmp(what, kinds[k].name) != 0 && !bytes_too)
            continue;
        for (unsigned i = 0; i < fake.allocation_count; i++) {
            found += fake.allocations[i].kind == kinds[k].kind;
            bytes += fake.allocations[i].kind == kinds[k].kind ? (long)fake.allocations[i].size : 0;
        }
        return bytes_too ? bytes : found;
    }
    wrong(command);
}

static long run(const char *command)
{
    char verb[16] = "", word[64] = "", rest[128] = "";
    if (sscanf(command, " %15s %63s %127[^\n]", verb, word, rest) < 1)
        return 0;
    if (strcmp(verb, "reset") == 0)
        reset();
    else if (strcmp(verb, "disarm") == 0)
        disarm();
    else if (strcmp(verb, "set") == 0)
        set(command, word, rest);
    else if (strcmp(verb, "fail") == 0)
        fail(command, word, rest);
    else if (strcmp(verb, "hold") == 0)
        fake.hold = word[0] == '1';
    else if (strcmp(verb, "delay") == 0)
        fake.delay = (unsigned)strtoul(word, NULL, 10);
    else if (strcmp(verb, "async") == 0) {
        fake.async_error = (int)strtol(word, NULL, 10);
        fake.async_late = strcmp(rest, "late") == 0;
    } else if (strcmp(verb, "late") == 0)
        fake_run_late();
    else if (strcmp(verb, "die") == 0)
        fake.death = (int)strtol(word, NULL, 10);
    else if (strcmp(verb, "stall") == 0)
        snprintf(fake.stalled, sizeof(fake.stalled), "%s", word);
    else if (strcmp(verb, "calls") == 0)
        return (long)fake_calls(word);
    else if (strcmp(verb, "count") == 0)
        return count(command, word);
    else if (strcmp(verb, "context") == 0)
        return depth;
    else if (strcmp(verb, "capture") == 0)
        return capture_mode;
    else
        wrong(command);
    pthread_cond_broadcast(&fake.moved);
    return 0;
}

static long run_all(const char *commands)
{
    char *copy = strdup(commands), *save = NULL;
    long result = 0;
    for (char *one = strtok_r(copy, ";", &save); one != NULL; one = strtok_r(NULL, ";", &save))
        result = run(one);
    free(copy);
    return result;
}

FAKE_API long fake_cuda_control(const char *commands)
{
    pthread_mutex_lock(&fake.lock);
    long result = run_all(commands);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

__attribute__((constructor)) static void begin(void)
{
    const char *commands = getenv("FAKE_CUDA");
    const char *log = getenv("FAKE_CUDA_LOG");
    if (log != NULL)
        fake.log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (commands != NULL)
        (void)run_all(commands);
}

static void at_exit(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.ended = true; /* U11 */
    pthread_mutex_unlock(&fake.lock);
}

/* ---- calls about the driver and contexts ---- */

FAKE_API cuda_result cuInit(unsigned flags);
FAKE_API cuda_result cuInit(unsigned flags)
{
    (void)flags;
    ENTER("cuInit", FREE);
    if (fake.gpus == 0)
        LEAVE(CUDA_ERR_NO_DEVICE);
    if (!fake.started) {
        fake.started = true;
        fake.process = (int)getpid();
        for (int i = 0; i < FAKE_GPUS; i++) {
            fake.contexts[i].ordinal = i;
            fake.legacy[i].ordinal = i;
            fake.legacy[i].last = &fake.legacy[i].first;
        }
        atexit(at_exit);
    }
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDriverGetVersion(int *version);
FAKE_API cuda_result cuDriverGetVersion(int *version)
{
    ENTER("cuDriverGetVersion", FREE);
    *version = fake.version;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_ordinal device);
FAKE_API cuda_result cuDevicePrimaryCtxRetain(cuda_context *context, cuda_ordinal device)
{
    ENTER("cuDevicePrimaryCtxRetain", STARTED | UNSAFE);
    if (device < 0 || device >= fake.gpus)
        LEAVE(CUDA_ERR_INVALID_DEVICE);
    fake.retained[device]++;
    *context = &fake.contexts[device];
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDevicePrimaryCtxRelease_v2(cuda_ordinal device);
FAKE_API cuda_result cuDevicePrimaryCtxRelease_v2(cuda_ordinal device)
{
    ENTER("cuDevicePrimaryCtxRelease", STARTED);
    if (device < 0 || device >= fake.gpus || fake.retained[device] == 0)
        LEAVE(CUDA_ERR_INVALID_CONTEXT);
    fake.retained[device]--;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuDevicePrimaryCtxGetState(cuda_ordinal device, unsigned *flags, int *active);
FAKE_API cuda_result cuDevicePrimaryCtxGetState(cuda_ordinal device, unsigned *flags, int *active)
{
    ENTER("cuDevicePrimaryCtxGetState", STARTED);
    if (device < 0 || device >= fake.gpus)
        LEAVE(CUDA_ERR_INVALID_DEVICE);
    *flags = 0;
    *active = fake.retained[device] > 0;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuCtxPushCurrent_v2(cuda_context context);
FAKE_API cuda_result cuCtxPushCurrent_v2(cuda_context context)
{
    ENTER("cuCtxPushCurrent", STARTED);
    if (context == NULL || fake.retained[context->ordinal] == 0 || depth == DEPTH)
        LEAVE(CUDA_ERR_INVALID_CONTEXT);
    stack[depth++] = context;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuCtxPopCurrent_v2(cuda_context *context);
FAKE_API cuda_result cuCtxPopCurrent_v2(cuda_context *context)
{
    ENTER("cuCtxPopCurrent", STARTED);
    if (depth == 0)
        LEAVE(CUDA_ERR_INVALID_CONTEXT);
    *context = stack[--depth];
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuCtxGetCurrent(cuda_context *context);
FAKE_API cuda_result cuCtxGetCurrent(cuda_context *context)
{
    ENTER("cuCtxGetCurrent", STARTED);
    *context = fake_current();
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuCtxSetCurrent(cuda_context context);
FAKE_API cuda_result cuCtxSetCurrent(cuda_context context)
{
    ENTER("cuCtxSetCurrent", STARTED);
    depth -= depth > 0;
    if (context != NULL)
        stack[depth++] = context;
    LEAVE(CUDA_OK);
}

FAKE_API cuda_result cuThreadExchangeStreamCaptureMode(int *mode);
FAKE_API cuda_result cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER("cuThreadExchangeStreamCaptureMode", STARTED);
    int old = capture_mode;
    capture_mode = *mode;
    *mode = old;
    LEAVE(CUDA_OK);
}
