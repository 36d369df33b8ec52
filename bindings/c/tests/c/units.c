/* Options of allocations, rows, pushes, and what is refused of them. */
#include "expect.h"

#include <stdint.h>

enum { PAGE = 4096 };

static mw_alloc_options_t options(uint64_t unit, uint32_t flags, uint32_t home) {
    mw_alloc_options_t made = {.size = sizeof made, .unit = unit, .name = "grid", .flags = flags, .home = home};
    return made;
}

static void share(mw_shared_t *shared, uint64_t *number) {
    OK(mw_shared_broadcast(shared, 0, number));
}

static void refused(mw_shared_t *shared, uint32_t rank) {
    void *memory = &shared;
    mw_rows_t rows = {7, 7, 7};
    mw_alloc_options_t it = options(9001, 0, 0);
    FAILS(MW_ERR_ARGUMENT, "unit of 9001 bytes", mw_shared_alloc_with(shared, 9000, &it, &memory));
    HOLDS(memory == NULL);
    FAILS(MW_ERR_ARGUMENT, "rows of 100 bytes are units", mw_shared_alloc_rows(shared, 10, 100, &it, &rows));
    it = options(MW_UNIT_WHOLE, 0, 0);
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_shared_alloc_with(shared, 0, &it, &memory));
    it = options(0, 64, 0);
    FAILS(MW_ERR_ARGUMENT, "unknown flags 0x40", mw_shared_alloc_with(shared, 9, &it, &memory));
    it = options(0, MW_ALLOC_MINIPAGES | MW_ALLOC_HLRC, 0);
    FAILS(MW_ERR_ARGUMENT, "unknown flags 0x3", mw_shared_alloc_with(shared, 9, &it, &memory));
    it = options(0, MW_ALLOC_HOME, 2);
    FAILS(MW_ERR_RANGE, "rank 2", mw_shared_alloc_with(shared, 9, &it, &memory));
    it.name = "\xff";
    FAILS(MW_ERR_ARGUMENT, "UTF-8", mw_shared_alloc_with(shared, 9, &it, &memory));
    it.size = 8;
    FAILS(MW_ERR_ARGUMENT, "8 bytes", mw_shared_alloc_with(shared, 9, &it, &memory));
    FAILS(MW_ERR_ARGUMENT, "`memory` is NULL", mw_shared_alloc_with(shared, 9, NULL, NULL));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_alloc_with(NULL, 9, NULL, &memory));

    FAILS(MW_ERR_ARGUMENT, "0 rows of 8 bytes", mw_shared_alloc_rows(shared, 0, 8, NULL, &rows));
    FAILS(MW_ERR_ARGUMENT, "8 rows of 0 bytes", mw_shared_alloc_rows(shared, 8, 0, NULL, &rows));
    FAILS(MW_ERR_LIMIT, "", mw_shared_alloc_rows(shared, UINT64_MAX, 8, NULL, &rows));
    FAILS(MW_ERR_ARGUMENT, "`place` is NULL", mw_shared_alloc_rows(shared, 8, 8, NULL, NULL));
    HOLDS(rows.address == 7 && rows.rows == 7);
    FAILS(MW_ERR_ADDRESS, "0x7", mw_row(shared, &rows, 0, &memory));
    FAILS(MW_ERR_ARGUMENT, "`rows` is NULL", mw_row(shared, NULL, 0, &memory));
    OK(mw_shared_alloc_rows(shared, 8, 8, NULL, &rows));
    FAILS(MW_ERR_RANGE, "row 8 is beyond the last of 8", mw_row(shared, &rows, 8, &memory));
    rows.rows = UINT64_MAX;
    FAILS(MW_ERR_ADDRESS, "", mw_row(shared, &rows, 1, &memory));
    rows.rows = 0;
    FAILS(MW_ERR_ARGUMENT, "0 rows", mw_row(shared, &rows, 0, &memory));

    FAILS(MW_ERR_RANGE, "rank 2", mw_shared_push(shared, (void *)(uintptr_t)rows.address, 8, 2));
    FAILS(MW_ERR_ARGUMENT, "to itself", mw_shared_push(shared, (void *)(uintptr_t)rows.address, 8, rank));
    FAILS(MW_ERR_ADDRESS, "share", mw_shared_push(shared, &shared, 8, 1 - rank));
    FAILS(MW_ERR_ADDRESS, "share", mw_shared_push(shared, (void *)(uintptr_t)rows.address, SIZE_MAX, 1 - rank));
    OK(mw_shared_push(shared, (void *)(uintptr_t)rows.address, 8, 1 - rank));
}

static void rows_of(mw_shared_t *shared, uint32_t rank, uint64_t count, uint64_t bytes) {
    mw_rows_t rows = {0, 0, 0};
    if (rank == 0) {
        OK(mw_shared_alloc_rows(shared, count, bytes, NULL, &rows));
    }
    share(shared, &rows.address);
    share(shared, &rows.rows);
    share(shared, &rows.row_bytes);
    HOLDS(rows.rows == count && rows.row_bytes == bytes);
    for (uint64_t row = rank; row < count; row += 2) {
        void *memory;
        OK(mw_row(shared, &rows, row, &memory));
        memset(memory, (int)(row * 7 % 251 + 1), bytes);
    }
    OK(mw_shared_barrier(shared));
    for (uint64_t row = 0; row < count; row++) {
        void *memory;
        OK(mw_row(shared, &rows, row, &memory));
        const unsigned char *found = memory;
        HOLDS(found[0] == row * 7 % 251 + 1 && found[bytes - 1] == found[0]);
    }
    OK(mw_shared_barrier(shared));
}

int main(void) {
    mw_node_t *node;
    mw_shared_t *shared;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    OK(mw_shared_open(node, 1, &shared));
    refused(shared, rank);
    rows_of(shared, rank, 1, 3);
    rows_of(shared, rank, 100, 24);
    rows_of(shared, rank, 9, 3000);
    rows_of(shared, rank, 5, 3 * PAGE + 8);

    mw_alloc_options_t home = options(MW_UNIT_WHOLE, MW_ALLOC_HOME, 1);
    uint64_t address = 0;
    if (rank == 0) {
        void *memory;
        OK(mw_shared_alloc_with(shared, 10 * PAGE, &home, &memory));
        address = (uint64_t)(uintptr_t)memory;
        memset(memory, 5, 10 * PAGE);
        OK(mw_shared_push(shared, memory, 10 * PAGE, 1));
    }
    share(shared, &address);
    OK(mw_shared_barrier(shared));
    HOLDS(((unsigned char *)(uintptr_t)address)[9 * PAGE] == 5);
    OK(mw_shared_barrier(shared));
    OK(mw_shared_close(shared));
    OK(mw_node_free(node));
    printf("rows are right\n");
    return 0;
}
