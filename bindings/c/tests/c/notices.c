/*
 * Notifications: many, from another rank, to a function that sends an answer; an export whose function revokes it; none after
 * the export was revoked; redirection. 2 ranks.
 */
#define _POSIX_C_SOURCE 200809L

#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { MESSAGES = 200, BYTES = 4096 };

static void sleep_ms(long milliseconds) {
    struct timespec time = {0, milliseconds * 1000 * 1000};
    nanosleep(&time, NULL);
}

/* Rank 0 answers each notification by a store into rank 1. */
struct answering {
    _Atomic(mw_import_t *) back;
    atomic_uint count;
};

static void answer(const mw_notification_t *notification, void *data) {
    struct answering *answering = data;
    HOLDS(notification->from == 1 && notification->length == 8 && notification->reserved == 0);
    uint32_t count = atomic_fetch_add(&answering->count, 1) + 1;
    if (count == MESSAGES) {
        OK(mw_import_put_signal(atomic_load(&answering->back), NULL, 0, 0, 0, count));
    }
}

/* Revokes its own export when it is first told. */
struct once {
    _Atomic(mw_export_t *) export;
    atomic_uint count;
};

static void revoke_self(const mw_notification_t *notification, void *data) {
    struct once *once = data;
    (void)notification;
    if (atomic_fetch_add(&once->count, 1) == 0) {
        OK(mw_export_revoke(atomic_load(&once->export)));
    }
}

static void slowly(const mw_notification_t *notification, void *data) {
    atomic_uint *within = data;
    (void)notification;
    atomic_store(within, 1);
    sleep_ms(100);
    atomic_store(within, 2);
}

static void *poll_until_within(void *argument) {
    void **both = argument;
    while (atomic_load((atomic_uint *)both[1]) == 0) {
        OK(mw_node_poll(both[0], NULL));
    }
    return NULL;
}

static void receive(mw_node_t *node) {
    static uint64_t inbox[8], brief[8], slow[8], landing[8];
    struct answering answering = {0};
    struct once once = {0};
    atomic_uint within = 0;
    mw_import_t *back;
    mw_export_t *inbox_export, *export, *slow_export, *landing_export;
    OK(mw_import_create(node, 1, "back", NULL, &back));
    atomic_store(&answering.back, back);

    mw_export_options_t options = {.size = sizeof options};
    options.notify = revoke_self;
    options.notify_data = &once;
    OK(mw_export_create_range(node, brief, sizeof brief, "brief", &options, &export));
    atomic_store(&once.export, export);
    options.notify = slowly;
    options.notify_data = &within;
    OK(mw_export_create_range(node, slow, sizeof slow, "slow", &options, &slow_export));
    /* Rank 1 begins with this one. */
    options.notify = answer;
    options.notify_data = &answering;
    OK(mw_export_create_range(node, inbox, sizeof inbox, "inbox", &options, &inbox_export));

    /* Wait without polling: the library's own thread serves. */
    while (atomic_load(&answering.count) < MESSAGES) {
        sleep_ms(1);
    }
    while (atomic_load(&once.count) == 0) {
        sleep_ms(1);
    }

    /* A function that is running when its export is revoked has ended before that returns. */
    pthread_t thread;
    void *both[2] = {node, &within};
    HOLDS(pthread_create(&thread, NULL, poll_until_within, both) == 0);
    while (atomic_load(&within) == 0) {
        sleep_ms(1);
    }
    OK(mw_export_revoke(slow_export));
    HOLDS(atomic_load(&within) == 2);
    pthread_join(thread, NULL);

    /* Redirection: what comes lands elsewhere, then here again. */
    mw_buffer_t *elsewhere;
    void *memory;
    OK(mw_buffer_alloc(node, BYTES, &elsewhere));
    OK(mw_buffer_ptr(elsewhere, &memory));
    OK(mw_export_create_range(node, landing, sizeof landing, "landing", NULL, &landing_export));
    OK(mw_export_redirect(landing_export, elsewhere));
    OK(mw_import_put_signal(back, NULL, 0, 0, 8, 1));
    while (atomic_load((_Atomic uint64_t *)memory + 1) != 1) {
        OK(mw_node_poll(node, NULL));
    }
    HOLDS(*(uint64_t *)memory == 77 && landing[0] == 0);
    OK(mw_export_redirect_back(landing_export));
    OK(mw_import_put_signal(back, NULL, 0, 0, 8, 2));
    OK(mw_export_wait_signal(landing_export, 8, 1, MW_FOREVER, NULL));
    HOLDS(landing[0] == 77);

    OK(mw_export_revoke(landing_export));
    OK(mw_export_revoke(inbox_export));
    OK(mw_buffer_free(elsewhere));
    OK(mw_import_free(back));
}

static void send(mw_node_t *node) {
    static uint64_t words[8];
    mw_export_t *back;
    mw_import_t *inbox, *brief, *slow, *landing;
    uint64_t word = 77, seen;
    OK(mw_export_create_range(node, words, sizeof words, "back", NULL, &back));
    OK(mw_import_create(node, 0, "inbox", NULL, &inbox));
    for (int i = 0; i < MESSAGES; i++) {
        OK(mw_import_send_notify(inbox, &word, 8, 8 * (i % 8)));
    }
    OK(mw_export_wait_signal(back, 0, MESSAGES, MW_FOREVER, &seen));
    HOLDS(seen == MESSAGES);
    OK(mw_import_create(node, 0, "brief", NULL, &brief));
    OK(mw_import_send_notify(brief, &word, 8, 0));
    OK(mw_import_create(node, 0, "slow", NULL, &slow));
    OK(mw_import_send_notify(slow, &word, 8, 0));
    OK(mw_import_create(node, 0, "landing", NULL, &landing));
    for (uint64_t turn = 1; turn <= 2; turn++) {
        OK(mw_export_wait_signal(back, 8, turn, MW_FOREVER, NULL));
        OK(mw_import_put_signal(landing, &word, 8, 0, 8, 1));
    }
    OK(mw_import_free(inbox));
    OK(mw_import_free(brief));
    OK(mw_import_free(slow));
    OK(mw_import_free(landing));
    OK(mw_export_revoke(back));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        receive(node);
    } else {
        send(node);
    }
    OK(mw_node_free(node));
    printf("rank %u: told of all\n", rank);
    return 0;
}
