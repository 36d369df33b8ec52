/*
 * A program's own choice of what is unpinned: always the page with the highest address, under a limit of 64 pages. 2 ranks.
 */
#include "expect.h"

#include <stdint.h>

enum { PAGE = 4096, PAGES = 100, LIMIT = 64 };

struct told {
    unsigned calls;
    uint64_t lowest, highest;
};

static size_t choose_highest(uint64_t wanted, const uint64_t *candidates, size_t count, uint64_t *victims, void *data) {
    struct told *told = data;
    told->calls += 1;
    HOLDS(wanted >= 1 && count >= wanted);
    uint64_t highest = candidates[0];
    for (size_t at = 0; at < count; at++) {
        HOLDS(candidates[at] % PAGE == 0 && candidates[at] >= told->lowest && candidates[at] < told->highest);
        if (candidates[at] > highest) {
            highest = candidates[at];
        }
    }
    /* Twice, and nonsense: passed over. The rest is taken by age. */
    victims[0] = highest;
    if (count < 3) {
        return 1;
    }
    victims[1] = highest;
    victims[2] = 12345;
    return 3;
}

int main(void) {
    mw_node_t *node;
    OK(mw_node_join(&node));
    uint32_t rank;
    OK(mw_node_rank(node, &rank));
    struct told told = {0};
    FAILS(MW_ERR_ARGUMENT, "choose", mw_node_choose_victims(node, NULL, &told));
    FAILS(MW_ERR_ARGUMENT, "node", mw_node_choose_victims(NULL, choose_highest, &told));
    OK(mw_node_choose_victims(node, choose_highest, &told));

    static uint64_t inbox[512];
    mw_export_t *export;
    OK(mw_export_create_range(node, inbox, sizeof inbox, "inbox", NULL, &export));
    FAILS(MW_ERR_STATE, "pinned", mw_node_choose_victims(node, choose_highest, &told));
    mw_import_t *import;
    OK(mw_import_create(node, 1 - rank, "inbox", NULL, &import));

    unsigned char *source = aligned_alloc(PAGE, PAGES * PAGE);
    HOLDS(source != NULL);
    memset(source, (int)rank, PAGES * PAGE);
    told.lowest = (uint64_t)(uintptr_t)source;
    told.highest = told.lowest + PAGES * PAGE;
    for (size_t page = 0; page < PAGES; page++) {
        OK(mw_import_send(import, source + page * PAGE, 1000, 8));
    }
    mw_node_counters_t counters = {.size = sizeof counters};
    OK(mw_node_counters(node, &counters));
    HOLDS(told.calls > 0);
    HOLDS(counters.unpins >= PAGES - LIMIT && counters.pinned_pages <= LIMIT);
    printf("chose %u times\n", told.calls);
    OK(mw_import_put_signal(import, NULL, 0, 0, 0, 1));
    OK(mw_export_wait_signal(export, 0, 1, MW_FOREVER, NULL));
    OK(mw_import_free(import));
    OK(mw_export_revoke(export));
    OK(mw_node_free(node));
    free(source);
    return 0;
}
