/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/file_inject.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#define LOG_ROOM "file"
#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"

enum { KIND_OPEN = FILE_OPERATION_COUNT, KIND_COUNT, RULES_MAX = 16, RULE_TEXT_MAX = 64 };

enum act { ACT_NONE, ACT_FAIL, ACT_NO_DIRECT, ACT_SHORT, ACT_KILL, ACT_TEAR, ACT_SLOW };

struct rule {
    int kind;
    uint64_t first;
    uint64_t count;
    uint64_t for_ns;           /* 0: `count` of them, else all in so long a time */
    _Atomic uint64_t begun_ns; /* with for_ns: when the first came */
    enum act act;
    int errnum;
    uint64_t bytes_per_s;
};

struct file_inject {
    struct file_system inner;
    struct rule rules[RULES_MAX];
    size_t rule_count;
    _Atomic uint64_t counts[KIND_COUNT];
    _Atomic uint64_t hits;
    void (*pause)(void *self, uint64_t ns);
    void *pause_self;
};

struct inject_file {
    struct file base;
    struct file *inner;
    struct file_inject *inject;
};

/* ---- rules ---- */
static const char *const kinds[KIND_COUNT] = {"read", "write", "sync", "allocate", "open"};

static const struct {
    const char *name;
    enum act act;
    int errnum;
} acts[] = {
    {"eio", ACT_FAIL, EIO},
    {"enospc", ACT_FAIL, ENOSPC},
    {"eopnotsupp", ACT_FAIL, EOPNOTSUPP},
    {"einval", ACT_FAIL, EINVAL},
    {"eagain", ACT_FAIL, EAGAIN},
    {"eintr", ACT_FAIL, EINTR},
    {"nodirect", ACT_NO_DIRECT, 0},
    {"short", ACT_SHORT, 0},
    {"kill", ACT_KILL, 0},
    {"tear", ACT_TEAR, 0},
};

static bool parse_when(const char *text, struct rule *out)
{
    char *end;
    uint64_t for_ms;
    if (!isdigit((unsigned char)text[0]))
        return false;
    out->first = strtoull(text, &end, 10);
    out->count = 1;
    if (*end == '\0')
        return true;
    if (*end != '+')
        return false;
    out->count = UINT64_MAX;
    if (end[1] == '\0')
        return true;
    const char *much = end + 1;
    if (!isdigit((unsigned char)much[0]))
        return false;
    out->count = strtoull(much, &end, 10);
    if (*end == '\0')
        return out->count > 0;
    out->count = UINT64_MAX;
    if (base_parse_duration_ms("a time", much, 1, &for_ms) != YOLK_OK || for_ms == 0)
        return false;
    out->for_ns = for_ms * CLOCK_NS_PER_MS;
    return true;
}

static bool parse_what(const char *text, struct rule *out)
{
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        if (strcmp(text, acts[i].name) == 0) {
            out->act = acts[i].act;
            out->errnum = acts[i].errnum;
            return true;
        }
    }
    out->act = ACT_SLOW;
    return base_parse_size("a speed", text, &out->bytes_per_s) == YOLK_OK && out->bytes_per_s > 0;
}

/* Cuts `text` up. */
static int parse_rule(char *text, struct rule *out)
{
    char shown[RULE_TEXT_MAX];
    memcpy(shown, text, strlen(text) + 1);
    char *when = strchr(text, ':');
    char *what = when ? strchr(when, '=') : NULL;
    if (!what)
        return base_fail(YOLK_ERR_CONFIG, 0, "file fault \"%s\" is not KIND:WHEN=WHAT", shown);
    *when++ = '\0';
    *what++ = '\0';
    out->kind = -1;
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(text, kinds[i]) == 0)
            out->kind = i;
    }
    if (out->kind < 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "file fault \"%s\": the kind is unknown", shown);
    if (!parse_when(when, out))
        return base_fail(YOLK_ERR_CONFIG, 0, "file fault \"%s\": WHEN is N, N+M, N+TIME or N+",
                         shown);
    if (!parse_what(what, out))
        return base_fail(YOLK_ERR_CONFIG, 0, "file fault \"%s\": what happens is unknown", shown);
    return YOLK_OK;
}

static int parse_rules(struct file_inject *inject, const char *rules)
{
    while (*rules != '\0') {
        char text[RULE_TEXT_MAX];
        size_t length = strcspn(rules, ",");
        if (length >= sizeof(text) || inject->rule_count == RULES_MAX)
            return base_fail(YOLK_ERR_CONFIG, 0, "file faults: at most %d, each under %d bytes",
                             RULES_MAX, RULE_TEXT_MAX);
        memcpy(text, rules, length);
        text[length] = '\0';
        int status = parse_rule(text, &inject->rules[inject->rule_count++]);
        if (status != YOLK_OK)
            return status;
        rules += length;
        rules += *rules == ',';
    }
    return YOLK_OK;
}

static void sleep_really(void *self, uint64_t ns)
{
    (void)self;
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

/* Is it over what the rule has to say? */
static bool is_past(struct rule *r)
{
    uint64_t now_ns = clock_real_now_ns(), none = 0;
    if (r->for_ns == 0)
        return false;
    if (atomic_compare_exchange_strong(&r->begun_ns, &none, now_ns))
        return false;
    return now_ns >= none + r->for_ns;
}

/* Counts the operation, is slow or dies if it must; otherwise what else is to happen to it. */
static const struct rule *next(struct file_inject *inject, int kind, size_t size)
{
    uint64_t n = atomic_fetch_add(&inject->counts[kind], 1);
    const struct rule *found = NULL;
    for (size_t i = 0; i < inject->rule_count; i++) {
        struct rule *r = &inject->rules[i];
        if (r->kind != kind || n < r->first || n - r->first >= r->count || is_past(r))
            continue;
        atomic_fetch_add(&inject->hits, 1);
        if (r->act == ACT_SLOW)
            inject->pause(inject->pause_self,
                          (uint64_t)((double)size * 1e9 / (double)r->bytes_per_s));
        else if (!found)
            found = r;
    }
    if (found && found->act == ACT_KILL)
        raise(SIGKILL);
    return found;
}

static int injected(const struct rule *r)
{
    int status = r->errnum == ENOSPC       ? YOLK_ERR_NO_SPACE
                 : r->errnum == EOPNOTSUPP ? YOLK_ERR_UNSUPPORTED
                                           : YOLK_ERR_IO;
    return base_fail(status, r->errnum, "injected");
}

/* ---- operations ---- */
/* EINVAL, EAGAIN and EINTR never reach a caller of pread and pwrite. */
static bool fails(struct inject_file *f, const struct rule *r)
{
    if (!r || r->act != ACT_FAIL)
        return false;
    if (r->errnum == EINVAL && file_direct(f->inner))
        file_direct_refuse(f->inner, EINVAL);
    return r->errnum == EIO || r->errnum == ENOSPC || r->errnum == EOPNOTSUPP;
}

static int inject_pread(struct file *file, void *to, size_t size, uint64_t offset, size_t *got)
{
    struct inject_file *f = (struct inject_file *)file;
    const struct rule *r = next(f->inject, FILE_OPERATION_READ, size);
    *got = 0;
    if (fails(f, r))
        return injected(r);
    return file_pread(f->inner, to, size, offset, got);
}

static int inject_pwrite(struct file *file, const void *from, size_t size, uint64_t offset)
{
    struct inject_file *f = (struct inject_file *)file;
    const struct rule *r = next(f->inject, FILE_OPERATION_WRITE, size);
    if (fails(f, r))
        return injected(r);
    if (r && r->act == ACT_TEAR) {
        base_ignore(file_pwrite(f->inner, from, size / 2 / 512 * 512, offset));
        raise(SIGKILL);
    }
    return file_pwrite(f->inner, from, size, offset);
}

static int inject_fdatasync(struct file *file)
{
    struct inject_file *f = (struct inject_file *)file;
    const struct rule *r = next(f->inject, FILE_OPERATION_SYNC, 0);
    return fails(f, r) ? injected(r) : file_fdatasync(f->inner);
}

static int inject_fallocate(struct file *file, uint64_t offset, uint64_t size)
{
    struct inject_file *f = (struct inject_file *)file;
    const struct rule *r = next(f->inject, FILE_OPERATION_ALLOCATE, 0);
    return fails(f, r) ? injected(r) : file_fallocate(f->inner, offset, size);
}

static ssize_t inject_completed(struct file *file, enum file_operation operation, size_t size,
                                ssize_t result)
{
    struct inject_file *f = (struct inject_file *)file;
    const struct rule *r = next(f->inject, operation, size);
    result = file_completed(f->inner, operation, size, result);
    if (!r || result < 0)
        return result;
    if (r->act == ACT_TEAR)
        raise(SIGKILL);
    if (r->act == ACT_SHORT && result > 1)
        return result / 2;
    bool refusal = r->errnum == EINVAL;
    return r->act == ACT_FAIL && (!refusal || file_direct(f->inner)) ? -r->errnum : result;
}

static int inject_size(struct file *file, uint64_t *out)
{
    return file_size(((struct inject_file *)file)->inner, out);
}

static int inject_resize(struct file *file, uint64_t size)
{
    return file_resize(((struct inject_file *)file)->inner, size);
}

static int inject_lock(struct file *file)
{
    return file_lock(((struct inject_file *)file)->inner);
}

static int inject_alignment(struct file *file, struct file_alignment *out)
{
    return file_alignment(((struct inject_file *)file)->inner, out);
}

static int inject_space(struct file *file, uint64_t *free_bytes)
{
    return file_space(((struct inject_file *)file)->inner, free_bytes);
}

static int inject_descriptor(struct file *file)
{
    return file_descriptor(((struct inject_file *)file)->inner);
}

static bool inject_direct(struct file *file)
{
    return file_direct(((struct inject_file *)file)->inner);
}

static void inject_direct_refuse(struct file *file, int errnum)
{
    file_direct_refuse(((struct inject_file *)file)->inner, errnum);
}

static void inject_close(struct file *file)
{
    file_close(((struct inject_file *)file)->inner);
    free(file);
}

static int inject_unlink(void *self, const char *path)
{
    return file_unlink(&((struct file_inject *)self)->inner, path);
}

static int inject_rename(void *self, const char *from, const char *to)
{
    return file_rename(&((struct file_inject *)self)->inner, from, to);
}

static int inject_open(void *self, const char *path, unsigned flags, struct file **out);

static const struct file_ops inject_ops = {
    .open = inject_open,
    .pread = inject_pread,
    .pwrite = inject_pwrite,
    .fdatasync = inject_fdatasync,
    .fallocate = inject_fallocate,
    .size = inject_size,
    .close = inject_close,
    .unlink = inject_unlink,
    .rename = inject_rename,
    .resize = inject_resize,
    .lock = inject_lock,
    .alignment = inject_alignment,
    .space = inject_space,
    .descriptor = inject_descriptor,
    .direct = inject_direct,
    .direct_refuse = inject_direct_refuse,
    .completed = inject_completed,
};

static int inject_open(void *self, const char *path, unsigned flags, struct file **out)
{
    struct file_inject *inject = self;
    *out = NULL;
    const struct rule *r = next(inject, KIND_OPEN, 0);
    if (r && r->act == ACT_FAIL)
        return injected(r);
    struct inject_file *f = base_calloc(1, sizeof(*f));
    if (!f)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "open %s", path);
    f->base.ops = &inject_ops;
    f->inject = inject;
    int status = file_open(&inject->inner, path, flags, &f->inner);
    if (status != YOLK_OK) {
        free(f);
        return status;
    }
    if (r && r->act == ACT_NO_DIRECT && (flags & FILE_DIRECT))
        file_direct_refuse(f->inner, EINVAL);
    *out = &f->base;
    return YOLK_OK;
}

/* ---- making one ---- */
int file_inject_create(const struct file_system *inner, const char *rules, struct file_inject **out)
{
    *out = base_calloc(1, sizeof(**out));
    if (!*out)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "file faults");
    (*out)->inner = *inner;
    (*out)->pause = sleep_really;
    int status = parse_rules(*out, rules);
    if (status != YOLK_OK) {
        file_inject_destroy(*out);
        *out = NULL;
    }
    return status;
}

void file_inject_destroy(struct file_inject *inject)
{
    free(inject);
}

struct file_system file_inject_system(struct file_inject *inject)
{
    return (struct file_system){&inject_ops, inject};
}

uint64_t file_inject_hits(const struct file_inject *inject)
{
    return atomic_load(&inject->hits);
}

void file_inject_set_pause(struct file_inject *inject, void (*pause)(void *self, uint64_t ns),
                           void *self)
{
    inject->pause = pause;
    inject->pause_self = self;
}

/* ---- the process's own ---- */
static struct file_system chosen;
static pthread_once_t choose_once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    static struct file_inject *inject; /* lives as long as the process */
    const char *rules = getenv("YOLK_TEST_FILE_FAULTS");
    chosen = file_system_real();
    if (!rules || rules[0] == '\0')
        return;
    const struct file_system real = chosen;
    if (file_inject_create(&real, rules, &inject) == YOLK_OK) {
        log_warn("YOLK_TEST_FILE_FAULTS=%s: files go wrong on purpose, for a test", rules);
    } else {
        log_error("YOLK_TEST_FILE_FAULTS: %s; so no file is opened", yolk_last_error());
        if (file_inject_create(&real, "open:0+=eio", &inject) != YOLK_OK)
            return; /* out of memory at the very start */
    }
    chosen = file_inject_system(inject);
}

struct file_system file_system_default(void)
{
    pthread_once(&choose_once, choose);
    return chosen;
}
