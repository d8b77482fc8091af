/* SPDX-License-Identifier: Apache-2.0 */
/* The hello over a connected socket, for all who connect: to the master, to another peer. */
#ifndef YOLK_ENGINE_HELLO_H
#define YOLK_ENGINE_HELLO_H

#include <stdint.h>

#include "wire/hello.h"

/* What wire_hello_run answers; the machine tells what was agreed, or why not. */
YOLK_MUST_USE int engine_hello_run(struct wire_hello_machine *machine, int fd,
                                   uint64_t deadline_ns);

#endif
