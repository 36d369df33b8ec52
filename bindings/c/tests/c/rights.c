/* What an import may do by default: all that the export gives, whichever path it takes. 2 ranks. */
#include "expect.h"

#include <stdint.h>

static void check(const mw_node_t *node, const mw_import_options_t *options) {
    static const struct {
        const char *name;
        uint32_t rights;
    } exports[] = {{"all", MW_RIGHT_STORE | MW_RIGHT_FETCH}, {"stores", MW_RIGHT_STORE}, {"fetches", MW_RIGHT_FETCH}};
    for (int i = 0; i < 3; i++) {
        mw_import_t *import;
        uint32_t rights;
        uint64_t word = 0;
        OK(mw_import_create(node, 0, exports[i].name, options, &import));
        OK(mw_import_rights(import, &rights));
        HOLDS(rights == exports[i].rights);
        if (rights & MW_RIGHT_FETCH) {
            OK(mw_import_fetch(import, 0, &word, sizeof word));
            HOLDS(word == 42);
        } else {
            FAILS(MW_ERR_RIGHTS, "fetch", mw_import_fetch(import, 0, &word, sizeof word));
        }
        if (rights & MW_RIGHT_STORE) {
            OK(mw_import_send(import, &word, sizeof word, 8));
        } else {
            FAILS(MW_ERR_RIGHTS, "store", mw_import_send(import, &word, sizeof word, 8));
        }
        OK(mw_import_free(import));
    }
    /* What is asked for is what the import has. */
    mw_import_options_t stores = {.size = sizeof stores, .rights = MW_RIGHT_STORE};
    mw_import_t *import;
    uint64_t word;
    OK(mw_import_create(node, 0, "all", &stores, &import));
    FAILS(MW_ERR_RIGHTS, "fetch", mw_import_fetch(import, 0, &word, sizeof word));
    OK(mw_import_free(import));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        mw_buffer_t *buffers[3];
        mw_export_t *exports[3];
        const char *names[] = {"all", "stores", "fetches"};
        for (uint32_t i = 0; i < 3; i++) {
            mw_export_options_t options = {.size = sizeof options, .rights = i};
            void *memory;
            OK(mw_buffer_alloc(node, 4096, &buffers[i]));
            OK(mw_buffer_ptr(buffers[i], &memory));
            *(uint64_t *)memory = 42;
            OK(mw_export_create(node, buffers[i], names[i], &options, &exports[i]));
        }
        OK(mw_node_barrier(node));
        for (int i = 0; i < 3; i++) {
            OK(mw_export_revoke(exports[i]));
            OK(mw_buffer_free(buffers[i]));
        }
    } else {
        check(node, NULL);
        check(node, &(mw_import_options_t){.size = sizeof(mw_import_options_t)});
        OK(mw_node_barrier(node));
        printf("as the export gives\n");
    }
    OK(mw_node_free(node));
    return 0;
}
