/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the C library and the kernel that fail on purpose. The executables of this folder are
 * linked with --wrap for each function in faults.c, so nothing of it is in what is shipped.
 */
#ifndef TEST_TORTURE_FAULTS_H
#define TEST_TORTURE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind { FAULT_MEMORY, FAULT_FILE, FAULT_SOCKET, FAULT_MAP, FAULT_THREAD, FAULT_KINDS };

extern const char *const fault_kind_names[FAULT_KINDS];

/* From now on counts the calls of this kind, in all threads, and lets the `nth` fail, counted from
 * 1; with `for_ever` all later ones too. 0: none. */
void faults_arm(enum fault_kind kind, uint64_t nth, bool for_ever);
/* In place of failing, the process is killed at that call. */
void faults_kill(enum fault_kind kind, uint64_t nth);
/* Nothing fails any more. How many calls there were. */
uint64_t faults_disarm(void);

#endif
