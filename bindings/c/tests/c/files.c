/*
 * Files and shared memory: pages that another rank has taken are written to a file whole, and filled from one. 2 ranks.
 */
#define _GNU_SOURCE /* pread */
#include "expect.h"

#include <errno.h>
#include <unistd.h>

enum { BYTES = 300001 };

static unsigned char expected(int seed, size_t at) { return (unsigned char)(at * 7 + at / 251 + (size_t)seed); }

static void fill(unsigned char *memory, int seed) {
    for (size_t at = 0; at < BYTES; at++) {
        memory[at] = expected(seed, at);
    }
}

static void check(const unsigned char *memory, int seed) {
    for (size_t at = 0; at < BYTES; at++) {
        HOLDS(memory[at] == expected(seed, at));
    }
}

int main(void) {
    static unsigned char copy[BYTES];
    mw_node_t *node;
    mw_shared_t *shared;
    uint32_t rank;
    uint64_t address = 0;
    size_t done = 1;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    OK(mw_shared_open(node, 1, &shared));
    if (rank == 0) {
        void *memory;
        OK(mw_shared_alloc(shared, BYTES, &memory));
        address = (uint64_t)(uintptr_t)memory;
    }
    OK(mw_shared_broadcast(shared, 0, &address));
    unsigned char *memory = (unsigned char *)(uintptr_t)address;
    FILE *file = tmpfile();
    HOLDS(file != NULL);
    int fd = fileno(file);

    /* Rank 1 has stored last: the pages are closed in rank 0, and a system call there fails. */
    if (rank == 1) {
        fill(memory, 3);
    }
    OK(mw_shared_barrier(shared));
    if (rank == 0) {
        HOLDS(write(fd, memory, BYTES) == -1 && errno == EFAULT);
        OK(mw_shared_write(shared, fd, memory, BYTES, &done));
        HOLDS(done == BYTES);
        HOLDS(pread(fd, copy, BYTES, 0) == BYTES);
        check(copy, 3);
        rewind(file);
        memset(copy, 0, BYTES);
    }
    OK(mw_shared_barrier(shared));

    if (rank == 1) {
        fill(memory, 4);
    }
    OK(mw_shared_barrier(shared));
    if (rank == 0) {
        OK(mw_shared_fwrite(shared, file, memory, BYTES, NULL));
        HOLDS(fflush(file) == 0);
        HOLDS(pread(fd, copy, BYTES, 0) == BYTES);
        check(copy, 4);
    }
    OK(mw_shared_barrier(shared));

    /* Rank 1 takes the pages again; then they are filled here from the file, which ends early. */
    for (int stdio = 0; stdio <= 1; stdio++) {
        if (rank == 1) {
            memset(memory, 0, BYTES);
        }
        OK(mw_shared_barrier(shared));
        if (rank == 0) {
            rewind(file);
            HOLDS(lseek(fd, 0, SEEK_SET) == 0);
            if (stdio) {
                OK(mw_shared_fread(shared, file, memory, BYTES, &done));
            } else {
                OK(mw_shared_read(shared, fd, memory, BYTES, &done));
            }
            HOLDS(done == BYTES);
            OK(mw_shared_read(shared, fd, memory, 1, &done));
            HOLDS(done == 0);
        }
        OK(mw_shared_barrier(shared));
        check(memory, 4);
        OK(mw_shared_barrier(shared));
    }

    FAILS(MW_ERR_SYSTEM, "Bad file descriptor", mw_shared_write(shared, -1, memory, 8, &done));
    HOLDS(done == 0);
    FAILS(MW_ERR_ADDRESS, "not all memory", mw_shared_write(shared, fd, copy, 8, NULL));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_read(NULL, fd, memory, 8, NULL));
    FAILS(MW_ERR_ARGUMENT, "`stream` is NULL", mw_shared_fread(shared, NULL, memory, 8, NULL));
    fclose(file);
    OK(mw_shared_close(shared));
    OK(mw_node_free(node));
    printf("files are right\n");
    return 0;
}
