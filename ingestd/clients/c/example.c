/* Pushes records into a running daemon: example DIR COUNT
 *
 *     cc -O2 example.c -L target/release -lloom_client -o example
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "loom_client.h"

static const char SOURCE[] =
    "[[source]]\n"
    "name = 'c_requests'\n"
    "time = 'own'\n"
    "[[source.field]]\n"
    "name = 'n'\n"
    "type = 'u64'\n"
    "[[source.field]]\n"
    "name = 'latency_ns'\n"
    "type = 'u64'\n"
    "[[source.index]]\n"
    "name = 'latency'\n"
    "value = 'latency_ns'\n";

struct request {
    uint64_t n;
    uint64_t latency_ns;
};

static int failed(loom_client *client, const char *what) {
    fprintf(stderr, "example: cannot %s: %s\n", what, loom_error(client));
    loom_close(client);
    return 1;
}

int main(int count, char **arguments) {
    loom_client *client;
    loom_counts counts;
    uint16_t source;

    if (count != 3) {
        fprintf(stderr, "usage: %s DIR COUNT\n", arguments[0]);
        return 2;
    }
    if (loom_connect(arguments[1], 0, &client) != 0)
        return failed(client, "connect");
    if (loom_define(client, SOURCE, &source) != 0)
        return failed(client, "define the source");
    for (uint64_t n = 0; n < strtoull(arguments[2], NULL, 10); n++) {
        struct request request = {n, n % 1000};
        if (loom_push(client, source, (const uint8_t *)&request, sizeof request) != 0)
            return failed(client, "push");
    }
    if (loom_sync(client, &counts) != 0)
        return failed(client, "sync");
    printf("received=%" PRIu64 " stored=%" PRIu64 " refused=%" PRIu64 " dropped=%" PRIu64 "\n", counts.received,
           counts.stored, counts.refused, counts.dropped);
    loom_close(client);
    return 0;
}
