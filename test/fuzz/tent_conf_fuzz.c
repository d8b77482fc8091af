/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration in JSON: what is read of it means again what it meant, and whatever it says of
 * the engine's settings is taken, passed over or refused with a reason. */
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "compat/engine_config.h"
#include "kit.h"

static void quiet(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self, (void)level, (void)room, (void)text;
}

/* Each value stands in the text as it was read. */
static void check_tree(const struct base_json *node)
{
    struct base_json *again;
    FUZZ_MUST(base_json_parse("again", node->source, node->source_size, &again) == YOLK_OK);
    FUZZ_MUST(again->type == node->type && again->source_size == node->source_size);
    FUZZ_MUST((again->text == NULL) == (node->text == NULL));
    FUZZ_MUST(node->text == NULL || strcmp(again->text, node->text) == 0);
    base_json_free(again);
    for (const struct base_json *below = node->first; below != NULL; below = below->next) {
        FUZZ_MUST((below->name != NULL) == (node->type == BASE_JSON_OBJECT));
        FUZZ_MUST(below->name == NULL || base_json_member(node, below->name) == below);
        FUZZ_MUST(below->source >= node->source &&
                  below->source + below->source_size <= node->source + node->source_size);
        if (node->source_size < 256)
            check_tree(below);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct base_json *root;
    base_error_clear();
    base_log_set(quiet, NULL);
    if (base_json_parse("fuzz", (const char *)data, size, &root) == YOLK_OK)
        check_tree(root);
    else
        FUZZ_MUST(yolk_last_error()[0] != '\0' && root == NULL);
    base_json_free(root);
    char *text = fuzz_text(data, size);
    char *variable = malloc(strlen(text) + sizeof("MC_TENT_CONF={"));
    FUZZ_MUST(variable != NULL);
    /* Never a file's path. */
    (void)snprintf(variable, strlen(text) + sizeof("MC_TENT_CONF={"), "MC_TENT_CONF=%s%s",
                   text[0] == '{' ? "" : "{", text);
    char *environment[] = {variable, NULL};
    struct base_config config;
    struct yolk_engine_options options;
    char off[COMPAT_OFF_MAX];
    base_error_clear();
    if (compat_engine_config(NULL, true, environment, &config) == YOLK_OK)
        compat_engine_options(&config, off, &options);
    else
        FUZZ_MUST(yolk_last_error()[0] != '\0');
    base_config_free(&config);
    base_log_set_level(LOG_LEVEL_WARN);
    free(variable);
    free(text);
    return 0;
}
