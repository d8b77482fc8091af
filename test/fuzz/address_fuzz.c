/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them. Names are left out: they would be asked of a name server. */
#include <stdbool.h>

#include "kit.h"
#include "platform/net.h"

static bool resolves_nothing(const char *text)
{
    if (strncmp(text, "unix:", 5) == 0)
        return true;
    return text[strspn(text, "0123456789abcdef.:[]*")] == '\0' && text[strspn(text, "abcdef")] &&
           (strchr(text, '[') == text || strspn(text, "0123456789.*") == strcspn(text, ":"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct net_address address, again;
    char shown[NET_ADDRESS_TEXT_MAX];
    if (resolves_nothing(text) && net_address_parse(text, 0, &address) == YOLK_OK) {
        net_address_format(&address, shown, sizeof(shown));
        FUZZ_MUST(net_address_parse(shown, 0, &again) == YOLK_OK);
        FUZZ_MUST(address.size == again.size);
        FUZZ_MUST(memcmp(&address.storage, &again.storage, address.size) == 0);
    }
    free(text);
    return 0;
}
