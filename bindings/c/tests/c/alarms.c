/*
 * A handler of SIGALRM that loads and stores shared memory, every 700 µs, while threads lock, wait in barriers and sleep.
 * The signals go to the process: the kernel chooses the thread, which must be one of the program. 2 ranks.
 */
#define _GNU_SOURCE
#include "expect.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 2, ROUNDS = 1500, SIGNALS = 3000, PERIOD_US = 700 };

static mw_shared_t *shared;
static _Atomic long *added;
static _Atomic long *stored;
static long *counter;
static atomic_long handled;
static atomic_int on_library_thread;
static atomic_int over;

static void period(long microseconds) {
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &every, NULL);
}

static void on_alarm(int signal) {
    (void)signal;
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (strncmp(name, "mapwire-", 8) == 0) {
        on_library_thread = 1;
    }
    (void)atomic_load(stored);
    atomic_fetch_add(added, 1);
    /* A machine so slow that handlers take all its time still gets through. */
    if (atomic_fetch_add(&handled, 1) + 1 >= SIGNALS || over) {
        period(0);
    }
}

static void *work(void *unused) {
    for (long round = 0; round < ROUNDS; round++) {
        OK(mw_shared_lock(shared, 3));
        *counter += 1;
        OK(mw_shared_unlock(shared, 3));
        if (round % 8 == 0) {
            atomic_store(stored, round);
            OK(mw_shared_barrier(shared));
        }
    }
    return unused;
}

static void *word(uint32_t rank) {
    uint64_t address = 0;
    if (rank == 0) {
        void *memory;
        OK(mw_shared_alloc(shared, sizeof(long), &memory));
        address = (uintptr_t)memory;
    }
    OK(mw_shared_broadcast(shared, 0, &address));
    return (void *)(uintptr_t)address;
}

int main(void) {
    mw_node_t *node;
    uint32_t rank, size;
    struct sigaction action = {0};
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0);
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    OK(mw_node_size(node, &size));
    OK(mw_shared_open(node, THREADS, &shared));
    added = word(rank);
    stored = word(rank);
    counter = word(rank);

    period(PERIOD_US);

    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        HOLDS(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    over = 1;
    period(0);
    usleep(50000);
    period(0);

    HOLDS(on_library_thread == 0);
    HOLDS(handled > 20);
    OK(mw_shared_set_threads(shared, 1));
    OK(mw_shared_barrier(shared));
    uint64_t all = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint64_t of = (uint64_t)handled;
        OK(mw_shared_broadcast(shared, i, &of));
        all += of;
    }
    HOLDS((uint64_t)*added == all);
    HOLDS(*counter == (long)size * THREADS * ROUNDS);
    OK(mw_shared_close(shared));
    OK(mw_node_free(node));
    printf("rank %u: %ld signals, all counted\n", rank, (long)handled);
    return 0;
}
