/* SPDX-License-Identifier: Apache-2.0 */
/* Policies and contracts as text: what is taken answers every question without contradiction, what
 * is refused gives a reason and leaves nothing. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engine/policy.h"
#include "engine/qos.h"
#include "kit.h"

static int find(void *self, const char *name)
{
    (void)self;
    static const char *const names[] = {"tcp", "shm", "uring"};
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return policy_is_known_name(name) ? POLICY_NOT_HERE : POLICY_NO_SUCH;
}

static void check_order(const struct policy *policy)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < policy->order_count; i++) {
        FUZZ_MUST(policy->order[i] < 3 && (seen & 1u << policy->order[i]) == 0);
        seen |= 1u << policy->order[i];
    }
    FUZZ_MUST(policy->min_size <= policy->max_size && policy->name[0] != '\0');
}

/* By conditions: the first that fits. By its name: itself, if the type of segment does. */
static void ask(const struct policy_set *set, struct policy_request request)
{
    const struct policy *found, *named;
    enum yolk_status status = policy_match(set, &request, &found);
    FUZZ_MUST((status == YOLK_OK) == (found != NULL));
    FUZZ_MUST(status == YOLK_OK || status == YOLK_ERR_NO_ROUTE);
    for (uint32_t i = 0; i < set->count; i++) {
        request.name = set->policies[i].name;
        status = policy_match(set, &request, &named);
        FUZZ_MUST(set->policies[i].file == request.file ? named == &set->policies[i]
                                                        : status == YOLK_ERR_NO_ROUTE);
    }
    FUZZ_MUST(found == NULL || (found->file == request.file && request.size >= found->min_size &&
                                request.size <= found->max_size));
}

static void policies(const char *text)
{
    struct policy_set set;
    base_error_clear();
    if (policy_parse(text, find, NULL, &set) != YOLK_OK) {
        FUZZ_MUST(yolk_last_error()[0] != '\0' && set.policies == NULL && set.count == 0);
        return;
    }
    for (uint32_t i = 0; i < set.count; i++)
        check_order(&set.policies[i]);
    for (uint32_t n = 0; n < 64; n++)
        ask(&set, (struct policy_request){.file = n % 2 == 0,
                                          .same_machine = n % 3 == 0,
                                          .local = (enum policy_memory)(n % 4),
                                          .remote = (enum policy_memory)(n / 4 % 4),
                                          .priority = (enum yolk_priority)(n % 3),
                                          .intent = (enum yolk_intent)(n % 7),
                                          .size = n < 63 ? UINT64_C(1) << n : 0});
    policy_free(&set);
}

static void contracts(const char *text)
{
    struct qos qos;
    base_error_clear();
    if (qos_parse(text, &qos) != YOLK_OK) {
        FUZZ_MUST(yolk_last_error()[0] != '\0' && qos.tenants == NULL && qos.count == 0);
        return;
    }
    FUZZ_MUST(qos.count >= 1 && qos.tenants[0].name == NULL);
    for (uint32_t i = 0; i < qos.count; i++)
        for (int intent = 0; intent < QOS_INTENTS; intent++) {
            const struct qos_class *class =
                qos_find(&qos, qos.tenants[i].name, (enum yolk_intent)intent);
            const struct admission_account *bytes = class->admission.bytes_account;
            FUZZ_MUST(class == &qos.tenants[i].classes[intent]);
            FUZZ_MUST((class->actions & ~QOS_ALL) == 0);
            FUZZ_MUST(bytes == NULL || (bytes->bytes_max > 0 && bytes >= qos.tenants[i].accounts &&
                                        bytes <= &qos.tenants[i].accounts[QOS_INTENTS]));
        }
    FUZZ_MUST(qos_find(&qos, "\x01none", YOLK_INTENT_UNSPEC) == &qos.tenants[0].classes[0]);
    qos_free(&qos);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    policies(text);
    contracts(text);
    free(text);
    return 0;
}
