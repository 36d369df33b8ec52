/*
 * The library loaded by hand, after the program has started: its thread-local values then have no place in the threads that
 * are there already, and threads meet it first in a page fault. 2 ranks.
 */
#include "expect.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

enum { THREADS = 3, ROUNDS = 100 };

static const char *(*status_name)(int32_t);
static const char *(*error_message)(void);

static void *library;

/* The function of this name, as the header describes it. */
#define FUNCTION(name) __typeof__(&name) f_##name = load(#name)

static void *load(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

static void check(int32_t status, int line) {
    if (status != 0) {
        fprintf(stderr, "line %d: %s: %s\n", line, status_name(status), error_message());
        exit(1);
    }
}
#define CHECK(call) check((call), __LINE__)

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static volatile long *slots;
static uint32_t rank;

/* Was there before the library, and its first use of it is a store to memory that may be elsewhere. */
static void *writer(void *argument) {
    long number = (long)(intptr_t)argument;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    for (int round = 0; round < ROUNDS; round++) {
        slots[(rank * THREADS + number) * 8] += 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    HOLDS(argc == 2);
    pthread_t threads[THREADS];
    pthread_mutex_lock(&gate);
    for (intptr_t i = 0; i < THREADS; i++) {
        HOLDS(pthread_create(&threads[i], NULL, writer, (void *)i) == 0);
    }
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    status_name = load("mw_status_name");
    error_message = load("mw_error_message");
    FUNCTION(mw_version_check);
    FUNCTION(mw_node_join);
    FUNCTION(mw_node_rank);
    FUNCTION(mw_node_size);
    FUNCTION(mw_node_free);
    FUNCTION(mw_shared_open);
    FUNCTION(mw_shared_alloc);
    FUNCTION(mw_shared_broadcast);
    FUNCTION(mw_shared_barrier);
    FUNCTION(mw_shared_close);

    CHECK(f_mw_version_check(MW_VERSION_NUMBER, MW_ABI));
    mw_node_t *node;
    mw_shared_t *shared;
    uint32_t size;
    uint64_t address = 0;
    CHECK(f_mw_node_join(&node));
    CHECK(f_mw_node_rank(node, &rank));
    CHECK(f_mw_node_size(node, &size));
    CHECK(f_mw_shared_open(node, 1, &shared));
    if (rank == 0) {
        void *memory;
        CHECK(f_mw_shared_alloc(shared, size * THREADS * 64, &memory));
        address = (uintptr_t)memory;
    }
    CHECK(f_mw_shared_broadcast(shared, 0, &address));
    slots = (long *)(uintptr_t)address;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(f_mw_shared_barrier(shared));
    for (uint32_t i = 0; i < size * THREADS; i++) {
        HOLDS(slots[i * 8] == ROUNDS);
    }
    CHECK(f_mw_shared_close(shared));
    CHECK(f_mw_node_free(node));
    /* The library stays, since threads and handlers may still use it; so this must be harmless. */
    HOLDS(dlclose(library) == 0);
    printf("rank %u: loaded late, counted right\n", rank);
    return 0;
}
