/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine offers, item by item: found, used for what, and why not more. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stddef.h>

enum doctor_grade { DOCTOR_USED, DOCTOR_UNUSED, DOCTOR_LIMITED };

struct doctor_item {
    const char *name;
    enum doctor_grade grade;
    char found[512]; /* what is there */
    char use[320];   /* what Yolk does with it, or why it does not and what to do */
    char label[24];  /* room for a name that is not static */
};

#define DOCTOR_MAX_ITEMS 20

/* Fills in at most DOCTOR_MAX_ITEMS; returns how many. path: a directory for the test of direct
 * I/O. */
size_t doctor_examine(const char *path, struct doctor_item *items);

#endif
