/* Calls of all ranks together. 3 ranks. */
#include "expect.h"

enum { BYTES = 3000 };

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    static unsigned char data[BYTES], all[3 * BYTES];
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    for (int turn = 0; turn < 3; turn++) {
        OK(mw_node_barrier(node));
        memset(data, (int)rank + 1, BYTES);
        OK(mw_node_broadcast(node, 2, data, BYTES));
        HOLDS(data[0] == 3 && data[BYTES - 1] == 3);
        memset(data, (int)rank + 5, BYTES);
        memset(all, 0, sizeof all);
        OK(mw_node_gather(node, 1, data, BYTES, rank == 1 ? all : NULL));
        for (size_t i = 0; i < sizeof all; i++) {
            HOLDS(all[i] == (rank == 1 ? i / BYTES + 5 : 0));
        }
        OK(mw_node_all_gather(node, data, BYTES, all));
        for (size_t i = 0; i < sizeof all; i++) {
            HOLDS(all[i] == i / BYTES + 5);
        }
        uint64_t words[2] = {rank, UINT64_MAX};
        int64_t integers[1] = {-(int64_t)rank};
        double numbers[2] = {0.5 * rank, -1.0 * rank};
        OK(mw_node_reduce_u64(node, MW_SUM, words, 2));
        OK(mw_node_reduce_i64(node, MW_MIN, integers, 1));
        OK(mw_node_reduce_f64(node, MW_MAX, numbers, 2));
        HOLDS(words[0] == 3 && words[1] == UINT64_MAX - 2 && integers[0] == -2 && numbers[0] == 1.0 && numbers[1] == 0.0);
        OK(mw_node_reduce_u64(node, MW_SUM, NULL, 0));
        OK(mw_node_broadcast(node, 0, NULL, 0));

        FAILS(MW_ERR_ARGUMENT, "rank 1 makes", mw_node_broadcast(node, 0, data, rank == 1 ? 7 : 8));
        FAILS(MW_ERR_RANGE, "rank 3", mw_node_broadcast(node, 3, data, 8));
        FAILS(MW_ERR_RANGE, "rank 4294967295", mw_node_gather(node, UINT32_MAX, data, 8, NULL));
        FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_barrier(NULL));
        FAILS(MW_ERR_ARGUMENT, "`data` is NULL", mw_node_broadcast(node, 0, NULL, 8));
        FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_node_all_gather(node, data, 8, NULL));
        FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_node_gather(node, rank, data, 8, NULL));
        FAILS(MW_ERR_ARGUMENT, "MW_SUM", mw_node_reduce_u64(node, 3, words, 1));
        FAILS(MW_ERR_ARGUMENT, "`values` is NULL", mw_node_reduce_f64(node, MW_SUM, NULL, 1));
        FAILS(MW_ERR_RANGE, "longer than memory", mw_node_reduce_f64(node, MW_SUM, numbers, SIZE_MAX / 4));
        FAILS(MW_ERR_RANGE, "longer than memory", mw_node_all_gather(node, data, SIZE_MAX / 2, all));
    }
    mw_export_t *export;
    FAILS(MW_ERR_ARGUMENT, "reserved", mw_export_create_range(node, data, BYTES, "mapwire.mine", NULL, &export));
    OK(mw_node_free(node));
    printf("together\n");
    return 0;
}
