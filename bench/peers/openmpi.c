/* Open MPI: a put into a window and another of its flag, each flushed; and Send with Recv. With PEERS_HOSTS the latter only. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "peer.h"

static MPI_Win window;
static char *inbox, *received;
static int other, hosts;

/* MPI's own handler of errors ends the program with a message. */
int peer_open(const peer_host_t *host) {
    MPI_Init(NULL, NULL);
    other = 1 - host->rank;
    received = calloc(1, host->room);
    if (received == NULL) {
        fprintf(stderr, "openmpi: no memory of %zu bytes\n", host->room);
        return 1;
    }
    hosts = getenv("PEERS_HOSTS") != NULL;
    if (hosts) return MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_allocate((MPI_Aint)host->room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &inbox, &window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

const char *const *peer_ways(void) {
    static const char *const ways[] = {"Open MPI put, osc", "Open MPI send and recv", NULL};
    return hosts ? ways + 1 : ways;
}

static size_t flag_at(size_t bytes, size_t at) { return at + (bytes + 7) / 8 * 8; }

int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number) {
    if (way == 1 || hosts) return MPI_Send(data, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
    MPI_Put(data, (int)bytes, MPI_BYTE, other, (MPI_Aint)at, (int)bytes, MPI_BYTE, window);
    MPI_Win_flush(other, window);
    MPI_Put(&number, 8, MPI_BYTE, other, (MPI_Aint)flag_at(bytes, at), 8, MPI_BYTE, window);
    return MPI_Win_flush(other, window);
}

const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number) {
    if (way == 1 || hosts) {
        MPI_Recv(received + at, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return received + at;
    }
    const uint64_t *flag = (const uint64_t *)(inbox + flag_at(bytes, at));
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
    }
    return inbox + at;
}

void peer_progress(void) {
    int found;
    MPI_Iprobe(other, 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

void peer_close(void) {
    if (!hosts) {
        MPI_Win_unlock_all(window);
        MPI_Win_free(&window);
    }
    MPI_Finalize();
}
