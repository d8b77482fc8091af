/* SPDX-License-Identifier: Apache-2.0 */
/* Logging. The library writes to stderr unless the host takes the lines over with base_log_set. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum base_log_level {
    LOG_LEVEL_ERROR = 0,
    LOG_LEVEL_WARN = 1,
    LOG_LEVEL_INFO = 2,
    LOG_LEVEL_DEBUG = 3
};

/* `text` has no newline. Called from any thread; must not log itself. */
typedef void (*base_log_function)(void *self, enum base_log_level level, const char *room,
                                  const char *text);

/* A NULL function restores the writer to stderr. */
void base_log_set(base_log_function function, void *self);
void base_log_set_level(enum base_log_level level);
enum base_log_level base_log_level(void);
/* With true the stderr writer puts out one JSON object a line. */
void base_log_set_json(bool json);
/* "error", "warn" or "warning", "info", "debug" or "trace", in any case; false: another text. */
bool base_log_parse_level(const char *text, enum base_log_level *level);
const char *base_log_level_name(enum base_log_level level);

void base_log(enum base_log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A file may define LOG_ROOM before including this. */
#ifndef LOG_ROOM
#define LOG_ROOM "yolk"
#endif

#define LOG_AT(level, ...)                                                                         \
    do {                                                                                           \
        if ((level) <= base_log_level())                                                           \
            base_log((level), LOG_ROOM, __VA_ARGS__);                                              \
    } while (0)
#define log_error(...) LOG_AT(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  LOG_AT(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  LOG_AT(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
