/* Rank 1 stores a number into the memory of rank 0: mapwire run -n 2 -- ./first */
#include <mapwire.h>
#include <stdio.h>
#include <stdlib.h>

static void check(mw_status_t status) {
    if (status != MW_OK) {
        fprintf(stderr, "%s\n", mw_error_message());
        exit(1);
    }
}

int main(void) {
    mw_node_t *node;
    uint32_t rank, size;
    check(mw_node_join(&node));
    check(mw_node_rank(node, &rank));
    check(mw_node_size(node, &size));
    if (size == 1) {
        fprintf(stderr, "one rank has nobody to hear from; start two: mapwire run -n 2 -- ./first\n");
        return 2;
    }
    static uint64_t inbox[2]; /* a number, and the signal that it has come */
    if (rank == 0) {
        mw_export_t *export;
        check(mw_export_create_range(node, inbox, sizeof inbox, "inbox", NULL, &export));
        check(mw_export_wait_signal(export, 8, 1, MW_FOREVER, NULL));
        printf("rank 1 says %d\n", (int)inbox[0]);
        check(mw_export_revoke(export));
    } else if (rank == 1) {
        mw_import_t *import;
        check(mw_import_create(node, 0, "inbox", NULL, &import));
        check(mw_import_put_signal(import, &(uint64_t){42}, 8, 0, 8, 1));
        check(mw_import_free(import));
    }
    check(mw_node_free(node));
    return 0;
}
