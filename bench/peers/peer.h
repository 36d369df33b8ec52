/* What the bench asks of a message library: a shared object with these functions. Each of two processes has one loaded.
 *
 * A message is bytes and a number. Numbers rise by one from 1 on, separately in each direction and for each way.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that `exchange` passes at most. */
#define PEER_EXCHANGE_BYTES 16384

typedef struct {
    int rank;          /* 0 or 1 */
    size_t room;       /* bytes of the memory that messages land in, if they need some */
    size_t most_bytes; /* of a message */
    const char *place; /* a name that both processes have and no others */
    /* Gives `mine` to the other process, and its to `theirs`, which has room for PEER_EXCHANGE_BYTES. */
    void (*exchange)(const void *mine, size_t bytes, void *theirs);
} peer_host_t;

/* Prepares all ways. 0, or after a message on standard error another number. */
int peer_open(const peer_host_t *host);

/* The names of the ways, then NULL. */
const char *const *peer_ways(void);

/* Sends a message of `bytes`, to land `at` bytes into the other's memory, if it needs some. Returns once `data` may be written. */
int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number);

/* Waits for message `number`, spinning: where it lies, until the next call. NULL after a message on standard error. */
const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number);

/* Lets the library work while its process waits for something else. */
void peer_progress(void);

void peer_close(void);

#endif
