/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface that programs written for Mooncake's store link or dlopen as
 * libmooncake_store.so, on Yolk: the same names, structures and numbers. New programs use
 * <yolk/store.h>, which says more.
 *
 * A function answers 0, a size or a count, or a negative number: Mooncake's error numbers
 * (docs/c.md has the table), -1 for a null pointer that must not be one. Strings and arrays are
 * borrowed until the call returns; buffers that were registered, until they are unregistered. Any
 * number of threads may use one store at once, but nobody while it is set up or destroyed.
 */
#ifndef MOONCAKE_STORE_C_H
#define MOONCAKE_STORE_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MOONCAKE_STORE_API __attribute__((visibility("default")))
#else
#define MOONCAKE_STORE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef void *mooncake_store_t;

/* How a put stores its values; NULL means one copy and nothing else. */
struct mooncake_replicate_config {
    size_t replica_num; /* copies, each in the memory of another node; at least 1 */
    int with_soft_pin;  /* leaves memory only when nothing else can, for the master's time */
    int with_hard_pin;  /* is never evicted; -200 once pins have their share of the memory */
    const char **preferred_segments; /* "host:port" of nodes to be tried first; may be NULL */
    size_t preferred_segments_count;
};
typedef struct mooncake_replicate_config mooncake_replicate_config_t;

/* NULL: no memory. */
MOONCAKE_STORE_API mooncake_store_t mooncake_store_create(void);
/* Closes it too, in bounded time. NULL is allowed. */
MOONCAKE_STORE_API void mooncake_store_destroy(mooncake_store_t store);

/* Joins the cluster of the master at master_server_addr ("host:port"; NULL: 127.0.0.1:50051;
 * "embedded": none). local_hostname: "host" or "host:port", how other hosts reach this process;
 * NULL or "": by the address that faces the master. global_segment_size: memory that this process
 * gives; 0: it only uses others'. local_buffer_size: 0 refuses mooncake_store_put, no other effect.
 * protocol: "tcp" (NULL), "rdma" (as tcp, with a warning), "shm" or "loop". metadata_server and
 * device_name have no effect. What failed is said on standard error. */
MOONCAKE_STORE_API int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
                                            const char *metadata_server,
                                            uint64_t global_segment_size,
                                            uint64_t local_buffer_size, const char *protocol,
                                            const char *device_name,
                                            const char *master_server_addr);
/* The same for a master on this host, at 127.0.0.1:50051. */
MOONCAKE_STORE_API int mooncake_store_init_all(mooncake_store_t store, const char *protocol,
                                               const char *device_name,
                                               uint64_t mount_segment_size);
/* 0; 1: not set up; 2: the master does not answer just now. */
MOONCAKE_STORE_API int mooncake_store_health_check(mooncake_store_t store);

/* 0 also when the key is there already: values do not change. */
MOONCAKE_STORE_API int mooncake_store_put(mooncake_store_t store, const char *key,
                                          const void *value, size_t size,
                                          const mooncake_replicate_config_t *config);
/* Quicker from memory that was registered. */
MOONCAKE_STORE_API int mooncake_store_put_from(mooncake_store_t store, const char *key,
                                               void *buffer, size_t size,
                                               const mooncake_replicate_config_t *config);
/* A number a key in results_out; answers 0 when they are written. */
MOONCAKE_STORE_API int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys,
                                                     void **buffers, const size_t *sizes,
                                                     size_t count,
                                                     const mooncake_replicate_config_t *config,
                                                     int *results_out);

/* The size of the value. */
MOONCAKE_STORE_API int64_t mooncake_store_get_into(mooncake_store_t store, const char *key,
                                                   void *buffer, size_t size);
MOONCAKE_STORE_API int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys,
                                                     void **buffers, const size_t *sizes,
                                                     size_t count, int64_t *results_out);

/* 1 or 0. */
MOONCAKE_STORE_API int mooncake_store_is_exist(mooncake_store_t store, const char *key);
MOONCAKE_STORE_API int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys,
                                                     size_t count, int *results_out);
MOONCAKE_STORE_API int64_t mooncake_store_get_size(mooncake_store_t store, const char *key);
/* "host:port" that this process goes by, "" before it is set up. -1: buf_len is too small. */
MOONCAKE_STORE_API int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out,
                                                   size_t buf_len);

/* Without force a key that was read or asked for a moment ago is not removed (-706). */
MOONCAKE_STORE_API int mooncake_store_remove(mooncake_store_t store, const char *key, int force);
/* How many keys that `pattern` occurs in were removed. A POSIX extended expression, in which \d,
 * \w, \s and (?:…) are known too; what else means another thing in Mooncake's is refused (-600). */
MOONCAKE_STORE_API int64_t mooncake_store_remove_by_regex(mooncake_store_t store,
                                                          const char *pattern, int force);
MOONCAKE_STORE_API int64_t mooncake_store_remove_all(mooncake_store_t store, int force);

MOONCAKE_STORE_API int mooncake_store_register_buffer(mooncake_store_t store, void *buffer,
                                                      size_t size);
MOONCAKE_STORE_API int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer);

#ifdef __cplusplus
}
#endif
#endif
