/* SPDX-License-Identifier: Apache-2.0 */
#include "caught.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { TOGETHER = 8, PATIENCE_S = 5, LONG_PATIENCE_S = 90, CASES_MAX = 96 };
enum { LOOKS_MORE = 5 };

static pid_t start(const struct conformance_fixture *fixture, const struct CMUnitTest *one,
                   unsigned patience_s)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (freopen("/dev/null", "w", stdout) == NULL || dup2(1, 2) < 0)
        _exit(9);
    (void)alarm(patience_s);
    struct CMUnitTest mine = *one;
    mine.initial_state = (void *)(uintptr_t)fixture;
    const struct CMUnitTest group[] = {mine};
    _exit(cmocka_run_group_tests_name("", group, NULL, NULL) == 0 ? 0 : 1);
}

static bool fails_alone(const struct conformance_fixture *fixture, const struct CMUnitTest *one)
{
    int status = 0;
    pid_t pid = start(fixture, one, LONG_PATIENCE_S);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status != 0;
}

/* Whose subject is the engine above a wrapper that breaks things on purpose. */
static bool is_of_wrapper(const struct CMUnitTest *one)
{
    return strncmp(one->name, "fault_", 6) == 0;
}

/* Which of the cases fail; TOGETHER at a time. */
static void run_cases(const struct conformance_fixture *fixture, const struct CMUnitTest *cases,
                      size_t count, bool *failed)
{
    pid_t pids[CASES_MAX] = {0};
    size_t started = 0, ended = 0;
    while (ended < count) {
        for (; started < count && started - ended < TOGETHER; started++) {
            if (is_of_wrapper(&cases[started]))
                ended++;
            else
                pids[started] = start(fixture, &cases[started], PATIENCE_S);
        }
        if (started == ended)
            continue;
        int status = 0;
        pid_t pid = waitpid(-1, &status, 0);
        assert_true(pid > 0);
        for (size_t i = 0; i < started; i++)
            if (pids[i] == pid) {
                failed[i] = status != 0;
                ended++;
            }
    }
}

void is_caught_by(const struct conformance_fixture *fixture, const char *const *names)
{
    size_t count;
    const struct CMUnitTest *cases = conformance_cases(&count);
    bool failed[CASES_MAX] = {false};
    assert_true(count <= CASES_MAX);
    run_cases(fixture, cases, count, failed);
    size_t differences = 0, named = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_of_wrapper(&cases[i]))
            continue;
        bool expected = names[named] != NULL && strcmp(names[named], cases[i].name) == 0;
        named += expected;
        /* A machine with much to do makes nothing wrong. */
        if (failed[i] && !expected)
            failed[i] = fails_alone(fixture, &cases[i]);
        /* And what is wrong only for a moment need not show at the first look. */
        for (int look = 0; look < LOOKS_MORE && expected && !failed[i]; look++)
            failed[i] = fails_alone(fixture, &cases[i]);
        if (failed[i] == expected)
            continue;
        print_error("%s %s\n", cases[i].name,
                    expected ? "does not notice it" : "fails, and is not named");
        differences++;
    }
    if (names[named] != NULL)
        fail_msg("%s is no case, or not in its place", names[named]);
    assert_int_equal(differences, 0);
}
