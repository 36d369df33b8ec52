/* Sends, put-signals and fetches that are waited for later, many at once. 2 ranks. */
#include "expect.h"

enum { COUNT = 300, PART = 4000, BYTES = 8 + COUNT * PART, MOST = 896 };

static unsigned char byte_at(size_t at) {
    return (unsigned char)(at % 251);
}

static void offer(mw_node_t *node) {
    mw_buffer_t *buffer;
    mw_export_t *exports[2];
    void *memory[2];
    static unsigned char heap[BYTES];
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_buffer_ptr(buffer, &memory[0]));
    memory[1] = heap;
    for (size_t i = 8; i < BYTES; i++) {
        ((unsigned char *)memory[0])[i] = heap[i] = byte_at(i);
    }
    OK(mw_export_create(node, buffer, "direct", NULL, &exports[0]));
    OK(mw_export_create_range(node, heap, BYTES, "ring", &options, &exports[1]));
    for (int path = 0; path < 2; path++) {
        OK(mw_export_wait_signal(exports[path], 0, COUNT, MW_FOREVER, NULL));
        for (size_t i = 8; i < BYTES; i++) {
            HOLDS(((unsigned char *)memory[path])[i] == byte_at(i + 1));
        }
    }
    OK(mw_export_revoke(exports[1]));
    OK(mw_export_revoke(exports[0]));
    OK(mw_buffer_free(buffer));
}

static void use(mw_node_t *node, const char *name) {
    mw_import_t *import;
    mw_import_options_t options = {.size = sizeof options, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    static mw_request_t *requests[MOST + 1];
    static unsigned char parts[COUNT][PART], small[MOST][8];
    int32_t done = 0, direct;
    OK(mw_import_create(node, 0, name, &options, &import));
    OK(mw_import_is_direct(import, &direct));
    for (size_t i = 0; i < COUNT; i++) {
        OK(mw_import_fetch_async(import, 8 + i * PART, parts[i], PART, &requests[i]));
    }
    while (!done) {
        OK(mw_request_is_done(requests[COUNT - 1], &done));
    }
    OK(mw_request_wait(requests[0]));
    requests[0] = NULL;
    OK(mw_request_wait_all(requests, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        HOLDS(requests[i] == NULL);
        for (size_t j = 0; j < PART; j++) {
            HOLDS(parts[i][j] == byte_at(8 + i * PART + j));
            parts[i][j] = byte_at(8 + i * PART + j + 1);
        }
    }
    for (size_t i = 0; i < MOST && !direct; i++) {
        OK(mw_import_fetch_async(import, i, small[i], 8, &requests[i]));
    }
    if (!direct) {
        FAILS(MW_ERR_LIMIT, "896", mw_import_fetch_async(import, 0, &done, 4, &requests[MOST]));
        HOLDS(requests[MOST] == NULL);
    }
    OK(mw_request_wait_all(requests, MOST + 1));

    mw_request_t *none = (mw_request_t *)&done;
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_fetch_async(import, 1, parts, BYTES, &none));
    HOLDS(none == NULL);
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_fetch_async(import, 1, parts, SIZE_MAX, &none));
    FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_import_fetch_async(import, 1, NULL, 8, &none));
    FAILS(MW_ERR_ARGUMENT, "`request` is NULL", mw_import_fetch_async(import, 1, parts, 8, NULL));
    FAILS(MW_ERR_ALIGNMENT, "offset 4", mw_import_put_signal_async(import, parts, 8, 0, 4, 1, &none));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_put_signal_async(import, parts, 8, 0, BYTES, 1, &none));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_put_signal_async(NULL, parts, 8, 0, 0, 1, &none));
    FAILS(MW_ERR_ARGUMENT, "`requests` is NULL", mw_request_wait_all(NULL, 1));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_request_wait_all(requests, SIZE_MAX));
    OK(mw_request_wait_all(NULL, 0));

    for (size_t i = 0; i < COUNT; i++) {
        OK(mw_import_put_signal_async(import, parts[i], PART, 8 + i * PART, 0, i + 1, &requests[i]));
    }
    OK(mw_request_wait_all(requests, COUNT));
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
    printf("requested\n");
    return 0;
}
