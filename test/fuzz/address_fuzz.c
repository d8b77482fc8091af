/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as people write them. Names are left out: they would be asked of a name server. */
#include <arpa/inet.h>
#include <stdbool.h>

#include "kit.h"
#include "platform/net.h"

/* What stands where a host does is an address, or the text is refused before anybody is asked. */
static bool resolves_nothing(const char *text)
{
    char host[256];
    struct in_addr v4;
    struct in6_addr v6;
    bool bracket = text[0] == '[';
    size_t size = strcspn(text, bracket ? "]" : ":");
    if (strncmp(text, "unix:", 5) == 0 || size == 0 ||
        (!bracket && text[size] == ':' && strchr(text + size + 1, ':') != NULL))
        return true;
    if (size >= sizeof(host))
        return false;
    snprintf(host, sizeof(host), "%.*s", (int)(size - bracket), text + bracket);
    return strcmp(host, "*") == 0 || inet_aton(host, &v4) != 0 ||
           inet_pton(AF_INET6, host, &v6) == 1;
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
