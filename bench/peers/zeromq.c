/* ZeroMQ: a PAIR of sockets over TCP. Both wait in zmq_recv: a thread of the library does the work, and needs the processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "peer.h"

static void *context, *sock;
static char *received;

static int fail(const char *what) {
    fprintf(stderr, "zeromq: %s: %s\n", what, zmq_strerror(zmq_errno()));
    return 1;
}

int peer_open(const peer_host_t *host) {
    static char mine[PEER_EXCHANGE_BYTES], theirs[PEER_EXCHANGE_BYTES];
    context = zmq_ctx_new();
    sock = zmq_socket(context, ZMQ_PAIR);
    received = calloc(1, host->most_bytes);
    if (context == NULL || sock == NULL || received == NULL) return fail("zmq_socket");
    if (host->rank == 0) {
        size_t bytes = sizeof mine;
        if (zmq_bind(sock, "tcp://127.0.0.1:*")) return fail("zmq_bind");
        if (zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, mine, &bytes)) return fail("zmq_getsockopt");
    }
    host->exchange(mine, sizeof mine, theirs);
    if (host->rank == 1 && zmq_connect(sock, theirs)) return fail("zmq_connect");
    return 0;
}

const char *const *peer_ways(void) {
    static const char *const ways[] = {"ZeroMQ pair", NULL};
    return ways;
}

int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number) {
    (void)way, (void)at, (void)number;
    return zmq_send(sock, data, bytes, 0) < 0 ? fail("zmq_send") : 0;
}

const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number) {
    (void)way, (void)at, (void)number;
    if (zmq_recv(sock, received, bytes, 0) != (int)bytes) {
        fail("zmq_recv");
        return NULL;
    }
    return received;
}

void peer_progress(void) {}

void peer_close(void) {
    zmq_close(sock);
    zmq_ctx_term(context);
}
