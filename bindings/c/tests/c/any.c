/* Waits for any of several signals. 2 ranks. */
#include "expect.h"

enum { BYTES = 4096, TURNS = 20 };

int main(void) {
    mw_node_t *node;
    mw_buffer_t *buffer;
    mw_export_t *direct, *ring;
    mw_import_t *theirs[2];
    uint32_t rank;
    size_t index = 9;
    static uint64_t words[8];
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_export_create(node, buffer, "direct", NULL, &direct));
    OK(mw_export_create_range(node, words, sizeof words, "ring", NULL, &ring));
    OK(mw_import_create(node, 1 - rank, "direct", NULL, &theirs[0]));
    OK(mw_import_create(node, 1 - rank, "ring", NULL, &theirs[1]));

    mw_awaited_t signals[2] = {{direct, 8, 1000}, {ring, 16, 1000}};
    FAILS(MW_ERR_TIMEOUT, "none of 2 signals", mw_node_wait_any(node, signals, 2, 1000000, &index));
    FAILS(MW_ERR_TIMEOUT, "none of 1 signals", mw_node_wait_any(node, signals, 1, 0, &index));
    FAILS(MW_ERR_ARGUMENT, "no signals", mw_node_wait_any(node, NULL, 0, 0, &index));
    FAILS(MW_ERR_ARGUMENT, "`signals` is NULL", mw_node_wait_any(node, NULL, 1, 0, &index));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_node_wait_any(node, signals, SIZE_MAX, 0, &index));
    FAILS(MW_ERR_ARGUMENT, "`index` is NULL", mw_node_wait_any(node, signals, 2, 0, NULL));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_wait_any(NULL, signals, 2, 0, &index));
    mw_awaited_t bad = {NULL, 0, 1};
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_node_wait_any(node, &bad, 1, 0, &index));
    bad = (mw_awaited_t){direct, BYTES, 1};
    FAILS(MW_ERR_RANGE, "pass the end", mw_node_wait_any(node, &bad, 1, 0, &index));
    bad.offset = 4;
    FAILS(MW_ERR_ALIGNMENT, "multiple of 8", mw_node_wait_any(node, &bad, 1, 0, &index));
    HOLDS(index == 9);

    for (uint64_t turn = 0; turn < TURNS; turn++) {
        size_t which = turn / 2 % 2;
        if (turn % 2 == rank) {
            OK(mw_import_put_signal(theirs[which], NULL, 0, 0, signals[which].offset, turn + 1));
        } else {
            signals[0].value = signals[1].value = turn + 1;
            OK(mw_node_wait_any(node, signals, 2, MW_FOREVER, &index));
            HOLDS(index == which);
        }
    }
    OK(mw_import_free(theirs[0]));
    OK(mw_import_free(theirs[1]));
    signals[0].value = signals[1].value = 100;
    if (rank == 0) {
        FAILS(MW_ERR_GONE, "will not come", mw_node_wait_any(node, signals, 2, MW_FOREVER, &index));
    }
    OK(mw_export_revoke(ring));
    OK(mw_export_revoke(direct));
    OK(mw_buffer_free(buffer));
    OK(mw_node_free(node));
    printf("any came\n");
    return 0;
}
