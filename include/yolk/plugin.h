/* SPDX-License-Identifier: Apache-2.0 */
/* A transport in a shared library of its own, loaded from a path (yolk_engine_options.plugin_paths,
 * the setting transports_plugins). docs/plugins.md shows how one is written, examples/plugin/ has
 * one.
 *
 * It needs nothing of Yolk but these headers: it is linked to none of Yolk's libraries, and what it
 * calls is handed to it in yolk_transport_options.yolk, by libyolk.so, the program `yolk`,
 * Mooncake's libraries and the Python module alike. It stays loaded until the end of the engine. Of
 * two engines in one process each has endpoints of its own, but they share its static data. */
#ifndef YOLK_PLUGIN_H
#define YOLK_PLUGIN_H

#include <yolk/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

enum yolk_log_level {
    YOLK_LOG_ERROR = 0,
    YOLK_LOG_WARN = 1,
    YOLK_LOG_INFO = 2,
    YOLK_LOG_DEBUG = 3
};

/* What Yolk does for a plug-in. Constant, there until fini has returned. All may be called by any
 * thread. */
struct yolk_plugin_host {
    uint32_t size;       /* sizeof this struct as Yolk was built; functions are appended */
    const char *version; /* of Yolk, "0.1.0" */
    /* Makes the text, and what errnum (0: none) says after it, this thread's yolk_last_error(), and
     * returns the status, so that a hook can end with `return yolk->fail(...)`. */
    enum yolk_status (*fail)(enum yolk_status status, int errnum, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    /* One line for the log, without a newline, where the level is let through. */
    void (*log)(enum yolk_log_level level, const char *transport, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
};

/* The one symbol a plug-in exports. The table is static and constant; its name is what hints,
 * policies, settings and figures call the transport. */
#define YOLK_PLUGIN_SYMBOL "yolk_transport_plugin"
__attribute__((visibility("default"))) const struct yolk_transport_ops *yolk_transport_plugin(void);

#ifdef __cplusplus
}
#endif
#endif
