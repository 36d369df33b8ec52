/* Transfers of many parts and of rows in one call. 2 ranks. */
#include "expect.h"

enum { BYTES = 80000, PARTS = 10000 };

static void offer(mw_node_t *node) {
    mw_buffer_t *buffer;
    mw_export_t *exports[2];
    void *memory[2];
    static unsigned char heap[BYTES];
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_buffer_ptr(buffer, &memory[0]));
    memory[1] = heap;
    OK(mw_export_create(node, buffer, "direct", NULL, &exports[0]));
    OK(mw_export_create_range(node, heap, BYTES, "ring", &options, &exports[1]));
    for (int path = 0; path < 2; path++) {
        OK(mw_export_wait_signal(exports[path], 0, 1, MW_FOREVER, NULL));
        const unsigned char *found = memory[path];
        for (size_t i = 8; i < 8 + 5 * PARTS; i++) {
            HOLDS(found[i] == (unsigned char)((i - 8) / 5 * 31 + (i - 8) % 5));
        }
        for (size_t i = 60000; i < 60000 + 100 * 64; i++) {
            HOLDS(found[i] == ((i - 60000) % 64 < 8 ? 7 : 0));
        }
    }
    OK(mw_export_revoke(exports[1]));
    OK(mw_export_revoke(exports[0]));
    OK(mw_buffer_free(buffer));
}

static void use(mw_node_t *node, const char *name) {
    mw_import_t *import;
    mw_import_options_t options = {.size = sizeof options, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    static unsigned char bytes[PARTS][6], back[PARTS][6], column[100 * 8], words[200 * 8];
    static struct iovec parts[PARTS];
    OK(mw_import_create(node, 0, name, &options, &import));
    for (size_t i = 0; i < PARTS; i++) {
        for (size_t j = 0; j < 5; j++) {
            bytes[i][j] = (unsigned char)(i * 31 + j);
        }
        parts[i] = (struct iovec){bytes[i], 5};
    }
    OK(mw_import_sendv(import, parts, PARTS, 8));
    OK(mw_import_sendv(import, NULL, 0, BYTES));
    for (size_t i = 0; i < PARTS; i++) {
        parts[i].iov_base = back[i];
    }
    OK(mw_import_fetchv(import, 8, parts, PARTS));
    HOLDS(memcmp(bytes, back, sizeof back) == 0);
    OK(mw_import_fetchv(import, BYTES, NULL, 0));

    memset(column, 7, sizeof column);
    OK(mw_import_send_strided(import, column, 60000, 100, 8, 8, 64));
    OK(mw_import_fetch_strided(import, 60000, words, 100, 8, 16, 64));
    for (size_t i = 0; i < sizeof words; i++) {
        HOLDS(words[i] == (i % 16 < 8 && i < 99 * 16 + 8 ? 7 : 0));
    }

    FAILS(MW_ERR_RANGE, "50000 bytes at 30001", mw_import_sendv(import, parts, PARTS, 30001));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_fetchv(import, 30001, parts, PARTS));
    struct iovec bad[2] = {{bytes, 8}, {bytes, SIZE_MAX}};
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_sendv(import, bad, 2, 8));
    bad[1] = (struct iovec){NULL, 8};
    FAILS(MW_ERR_ARGUMENT, "`iov_base` is NULL", mw_import_sendv(import, bad, 2, 8));
    FAILS(MW_ERR_ARGUMENT, "`iov_base` is NULL", mw_import_fetchv(import, 8, bad, 2));
    FAILS(MW_ERR_ARGUMENT, "`parts` is NULL", mw_import_sendv(import, NULL, 1, 8));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_import_sendv(import, bad, SIZE_MAX / 2, 8));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_sendv(NULL, bad, 1, 8));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send_strided(import, column, BYTES - 99 * 64 - 7, 100, 8, 8, 64));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send_strided(import, column, 8, 3, 8, 8, UINT64_MAX / 2 + 1));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send_strided(import, column, 8, SIZE_MAX, 8, 8, 8));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_import_send_strided(import, column, 8, 3, 8, SIZE_MAX, 8));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_import_fetch_strided(import, 8, words, 2, 8, SIZE_MAX / 2, 8));
    FAILS(MW_ERR_ARGUMENT, "overlap", mw_import_send_strided(import, column, 8, 2, 8, 8, 7));
    FAILS(MW_ERR_ARGUMENT, "overlap", mw_import_fetch_strided(import, 8, words, 2, 8, 7, 8));
    FAILS(MW_ERR_ARGUMENT, "`data` is NULL", mw_import_send_strided(import, NULL, 8, 2, 8, 8, 8));
    FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_import_fetch_strided(import, 8, NULL, 2, 8, 8, 8));
    OK(mw_import_send_strided(import, NULL, 8, 0, 8, 8, 8));

    OK(mw_import_flush(import));
    OK(mw_import_put_signal(import, NULL, 0, 0, 0, 1));
    OK(mw_import_free(import));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        offer(node);
    } else {
        use(node, "direct");
        use(node, "ring");
    }
    OK(mw_node_free(node));
    printf("parted\n");
    return 0;
}
