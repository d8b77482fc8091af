/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LINE = 2048 };

static const char *const LEVEL_NAMES[] = {"error", "warn", "info", "debug"};

static pthread_rwlock_t sink_lock = PTHREAD_RWLOCK_INITIALIZER;
static base_log_function sink_function; /* under sink_lock */
static void *sink_self;                 /* under sink_lock */
static _Atomic int threshold = LOG_LEVEL_WARN;
static _Atomic bool as_json;

void base_log_set(base_log_function function, void *self)
{
    pthread_rwlock_wrlock(&sink_lock);
    sink_function = function;
    sink_self = self;
    pthread_rwlock_unlock(&sink_lock);
}

void base_log_set_level(enum base_log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

enum base_log_level base_log_level(void)
{
    return (enum base_log_level)atomic_load_explicit(&threshold, memory_order_relaxed);
}

void base_log_set_json(bool json)
{
    atomic_store_explicit(&as_json, json, memory_order_relaxed);
}

bool base_log_parse_level(const char *text, enum base_log_level *level)
{
    if (strcasecmp(text, "warning") == 0)
        text = "warn";
    else if (strcasecmp(text, "trace") == 0)
        text = "debug";
    for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
        if (strcasecmp(text, LEVEL_NAMES[i]) == 0) {
            *level = (enum base_log_level)i;
            return true;
        }
    }
    return false;
}

const char *base_log_level_name(enum base_log_level level)
{
    return level >= LOG_LEVEL_ERROR && level <= LOG_LEVEL_DEBUG ? LEVEL_NAMES[level] : "?";
}

/* Control characters of a peer's text must not forge log lines or move a terminal's cursor. */
static void sanitize(char *text)
{
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    }
}

static size_t escape_json(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (const char *p = text; *p != '\0' && used + 3 < size; p++) {
        if (*p == '"' || *p == '\\')
            out[used++] = '\\';
        out[used++] = *p;
    }
    out[used] = '\0';
    return used;
}

static void write_stderr(enum base_log_level level, const char *room, const char *text)
{
    struct timespec now;
    struct tm parts;
    char stamp[32];
    char line[2 * MAX_LINE + 128];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
    int length;
    if (atomic_load_explicit(&as_json, memory_order_relaxed)) {
        char escaped[2 * MAX_LINE];
        escape_json(text, escaped, sizeof(escaped));
        length = snprintf(line, sizeof(line),
                          "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"room\":\"%s\",\"pid\":%d,"
                          "\"text\":\"%s\"}\n",
                          stamp, now.tv_nsec / 1000000, base_log_level_name(level), room,
                          (int)getpid(), escaped);
    } else {
        length =
            snprintf(line, sizeof(line), "%s.%03ldZ %-5s %s[%d] %s\n", stamp, now.tv_nsec / 1000000,
                     base_log_level_name(level), room, (int)getpid(), text);
    }
    if (length <= 0)
        return;
    size_t size = (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1;
    /* One write, so that lines of several processes do not mix; a full pipe loses the line. */
    ssize_t ignored = write(STDERR_FILENO, line, size);
    (void)ignored;
}

void base_log(enum base_log_level level, const char *room, const char *format, ...)
{
    int saved_errno = errno;
    char text[MAX_LINE];
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (written < 0)
        text[0] = '\0';
    sanitize(text);
    pthread_rwlock_rdlock(&sink_lock);
    if (sink_function != NULL)
        sink_function(sink_self, level, room, text);
    else
        write_stderr(level, room, text);
    pthread_rwlock_unlock(&sink_lock);
    errno = saved_errno;
}
