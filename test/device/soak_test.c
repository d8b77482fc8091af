/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is read for YOLK_TEST_SOAK_S seconds (default: a moment) by cuFile, by plain reads through
 * pinned memory, and by what the engine chooses, in turn: that one never stays slow.
 */
#include "gds_kit.h"

#define MIB_ UINT64_C(1048576)

enum { WAYS = 3, CHOSEN = 2 };
static const char *const hints[WAYS] = {"gds", "posix", NULL};

struct soak {
    struct gds_world w;
    struct yolk_request *requests;
    struct yolk_task_status *tasks;
    uint32_t count;
    uint64_t size;
};

static double now_s(void)
{
    return (double)clock_real_now_ns() / 1e9;
}

/* Seconds that one read of all takes. */
static double read_all(struct soak *s, const char *hint)
{
    uint64_t each = s->size / s->count;
    for (uint32_t i = 0; i < s->count; i++) {
        s->requests[i] = gds_request_of(&s->w, YOLK_READ, s->w.gpu + i * each, i * each, each);
        s->requests[i].hint = hint;
    }
    double begun = now_s();
    gds_run(&s->w, s->requests, s->count, s->tasks);
    double took = now_s() - begun;
    for (uint32_t i = 0; i < s->count; i++)
        assert_int_equal(s->tasks[i].status, YOLK_OK);
    return took;
}

/* One window: each way so often that it has its third of the time; GB/s. */
static void window(struct soak *s, double seconds, double rates[WAYS])
{
    double took[WAYS] = {0}, bytes[WAYS] = {0}, begun = now_s();
    do {
        for (int way = 0; way < WAYS; way++) {
            took[way] += read_all(s, hints[way]);
            bytes[way] += (double)s->size;
        }
    } while (now_s() - begun < seconds);
    for (int way = 0; way < WAYS; way++)
        rates[way] = bytes[way] / took[way] / 1e9;
}

static void bytes_are_right(struct soak *s)
{
    kit_get(s->w.device, 0, s->w.host, s->w.gpu, s->size);
    uint8_t *file = malloc(s->size);
    gds_look(&s->w, file, 0, s->size);
    assert_memory_equal(s->w.host, file, s->size);
    free(file);
}

/* C63: what is chosen is below 0.70 of the better way for no longer than 30 seconds. */
static void c63_the_chosen_way_stays_fast(void **state)
{
    const double window_s = 10, low_max_s = 30;
    const char *asked = getenv("YOLK_TEST_SOAK_S");
    double seconds = asked != NULL ? strtod(asked, NULL) : 0, low = 0, longest = 0, least = 1;
    bool real = kit_real_cufile();
    struct soak s = {.size = real ? 512 * MIB_ : 4 * MIB_, .count = 32};
    (void)state;
    s.w = (struct gds_world){
        .file_size = s.size, .slice = real ? 16 * MIB_ : 128 << 10, .with_posix = 1};
    (void)kit_fake_cufile("reset");
    gds_open(&s.w);
    s.requests = calloc(s.count, sizeof(*s.requests));
    s.tasks = calloc(s.count, sizeof(*s.tasks));
    kit_fill(s.w.host, s.size, 63);
    assert_int_equal(pwrite(s.w.fd, s.w.host, s.size, 0), s.size);
    assert_int_equal(fsync(s.w.fd), 0);
    double begun = now_s();
    for (int i = 0; i == 0 || now_s() - begun < seconds; i++) {
        double rates[WAYS];
        window(&s, seconds > 0 ? window_s : 0, rates);
        double better = rates[0] > rates[1] ? rates[0] : rates[1], share = rates[CHOSEN] / better;
        printf("after %4.0f s: %s %.2f GB/s, %s %.2f, chosen %.2f = %.2f of the better one\n",
               now_s() - begun, hints[0], rates[0], hints[1], rates[1], rates[CHOSEN], share);
        (void)fflush(stdout);
        low = share < 0.70 ? low + window_s : 0;
        longest = low > longest ? low : longest;
        least = share < least ? share : least;
    }
    bytes_are_right(&s);
    if (asked != NULL)
        printf("FIGURE soak of %.0f s: at least %.2f of the better way, below 0.70 for %.0f s at "
               "most, wanted <= %.0f s %s\n",
               now_s() - begun, least, longest, low_max_s, longest <= low_max_s ? "ok" : "MISSED");
    char *text;
    assert_ok(yolk_engine_metrics(s.w.engine, &text));
    assert_non_null(strstr(text, "yolk_engine_way_")); /* both rates are among the figures */
    free(text);
    assert_true(!real || longest <= low_max_s);
    free(s.requests);
    free(s.tasks);
    gds_close(&s.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(c63_the_chosen_way_stays_fast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
