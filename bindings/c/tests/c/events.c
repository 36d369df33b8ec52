/* A program that sleeps in epoll until something comes. 2 ranks. */
#include "expect.h"

#include <sys/epoll.h>

enum { BYTES = 4096, ROUNDS = 200 };

/* Sleeps until the signal at offset 0 is at least `value`. */
static void until(mw_node_t *node, mw_eventfd_t *events, int epoll, mw_export_t *inbox, uint64_t value) {
    uint64_t seen;
    struct epoll_event event;
    for (;;) {
        OK(mw_eventfd_arm(events));
        OK(mw_node_poll(node, NULL));
        OK(mw_export_signal(inbox, 0, &seen));
        if (seen >= value) {
            return;
        }
        HOLDS(epoll_wait(epoll, &event, 1, 20000) == 1);
    }
}

int main(void) {
    mw_node_t *node;
    mw_buffer_t *buffer;
    mw_export_t *inbox;
    mw_import_t *theirs;
    mw_eventfd_t *events = (mw_eventfd_t *)&node;
    uint32_t rank;
    int32_t fd;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_eventfd_create(NULL, &events));
    HOLDS(events == NULL);
    FAILS(MW_ERR_ARGUMENT, "`events` is NULL", mw_eventfd_create(node, NULL));
    FAILS(MW_ERR_ARGUMENT, "`events` is NULL", mw_eventfd_arm(NULL));
    FAILS(MW_ERR_ARGUMENT, "`events` is NULL", mw_eventfd_fd(NULL, &fd));
    OK(mw_eventfd_free(NULL));
    OK(mw_eventfd_create(node, &events));
    FAILS(MW_ERR_ARGUMENT, "`fd` is NULL", mw_eventfd_fd(events, NULL));
    OK(mw_eventfd_fd(events, &fd));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    HOLDS(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);

    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_export_create(node, buffer, "inbox", NULL, &inbox));
    OK(mw_import_create(node, 1 - rank, "inbox", NULL, &theirs));
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (round % 2 == rank) {
            OK(mw_import_put_signal(theirs, NULL, 0, 0, 0, round));
        } else {
            until(node, events, epoll, inbox, round);
        }
    }
    OK(mw_node_barrier(node));
    OK(mw_import_free(theirs));
    OK(mw_export_revoke(inbox));
    OK(mw_buffer_free(buffer));
    OK(mw_node_free(node));
    FAILS(MW_ERR_GONE, "has left the job", mw_eventfd_arm(events));
    HOLDS(epoll_wait(epoll, &event, 1, 10000) == 1);
    OK(mw_eventfd_free(events));
    printf("slept\n");
    return 0;
}
