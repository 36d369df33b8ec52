/*
 * Ways in which rank 1 ends without mw_node_free, with stores under way: what it sent must reach rank 0, or rank 1 says so and ends with
 * 70. 2 ranks. Arguments: the way, and a folder for notes, by which the ranks talk past mapwire.
 */
#define _GNU_SOURCE

#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STORES = 20, LONG = 1 << 20 };

static mw_node_t *node;
static mw_import_t *inbox;
static const char *way, *folder;
static struct {
    uint64_t count, numbers[STORES];
} received;

static int is(const char *name) { return strcmp(way, name) == 0; }

static const char *path(const char *note) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, note);
    return path;
}

static void wait_for(const char *note) {
    while (access(path(note), F_OK) != 0) {
        nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    }
}

static void leave_note(const char *note) {
    FILE *made = fopen(path(note), "w");
    HOLDS(made != NULL && fclose(made) == 0);
}

static void store_all(void) {
    for (uint64_t i = 0; i < STORES; i++) {
        OK(mw_import_put_signal_add(inbox, &(uint64_t){i + 1}, 8, 8 + 8 * i, 0, 1));
    }
}

/* Nothing that peers send by UDP comes in from here on. */
static void go_deaf(void) {
    for (int fd = 3; fd < 1024; fd++) {
        int domain;
        socklen_t length = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain != AF_UNIX) {
            HOLDS(dup2(STDIN_FILENO, fd) == fd);
        }
    }
}

static void rank_0(void) {
    mw_export_t *export;
    mw_import_t *asked;
    OK(mw_export_create_range(node, &received, sizeof received, "inbox", NULL, &export));
    if (is("silent") || is("gone")) {
        OK(mw_import_create(node, 1, "ready", NULL, &asked));
        go_deaf();
        leave_note("deaf");
        wait_for(is("gone") ? "sent" : "never");
        _exit(0);
    } else if (is("handler")) {
        OK(mw_import_create(node, 1, "ask", NULL, &asked));
        OK(mw_import_send_notify(asked, NULL, 0, 0));
    } else if (is("revoked")) {
        static _Atomic char other[LONG];
        mw_export_t *revoked;
        OK(mw_export_create_range(node, (void *)other, sizeof other, "other", NULL, &revoked));
        while (atomic_load(&other[0]) == 0) {
            OK(mw_node_poll(node, NULL));
        }
        OK(mw_export_revoke(revoked));
    } else if (is("told") || is("holding") || is("code")) {
        wait_for("sent");
        _exit(0);
    }
    OK(mw_export_wait_signal(export, 0, STORES, MW_FOREVER, NULL));
    for (uint64_t i = 0; i < STORES; i++) {
        HOLDS(received.numbers[i] == i + 1);
    }
    printf("all came\n");
}

static void *wait_for_ever(void *export) {
    mw_export_wait_signal(export, 0, 1, MW_FOREVER, NULL);
    return NULL;
}

static void exit_in_handler(const mw_notification_t *notification, void *data) {
    (void)notification, (void)data;
    store_all();
    exit(0);
}

static size_t exit_in_chooser(uint64_t wanted, const uint64_t *candidates, size_t count, uint64_t *victims, void *data) {
    (void)wanted, (void)candidates, (void)count, (void)victims, (void)data;
    exit(0);
}

static void free_late(void) {
    OK(mw_import_free(inbox));
    OK(mw_node_free(node));
}

static void rank_1(void) {
    static uint64_t word;
    mw_export_t *export;
    if (is("holding")) {
        OK(mw_node_choose_victims(node, exit_in_chooser, NULL));
    }
    OK(mw_import_create(node, 0, "inbox", NULL, &inbox));
    if (is("waiting")) {
        pthread_t thread;
        OK(mw_export_create_range(node, &word, sizeof word, "never told", NULL, &export));
        HOLDS(pthread_create(&thread, NULL, wait_for_ever, export) == 0);
    } else if (is("handler")) {
        mw_export_options_t options = {.size = sizeof options, .notify = exit_in_handler};
        OK(mw_export_create_range(node, &word, sizeof word, "ask", &options, &export));
        for (;;) {
            pause();
        }
    } else if (is("silent") || is("gone")) {
        OK(mw_export_create_range(node, &word, sizeof word, "ready", NULL, &export));
        wait_for("deaf");
    } else if (is("revoked")) {
        static char all[LONG];
        mw_import_t *other;
        memset(all, 1, sizeof all);
        OK(mw_import_create(node, 0, "other", NULL, &other));
        /* It may have left before word of the revocation came. */
        mw_status_t sent = mw_import_send(other, all, sizeof all, 0);
        HOLDS(sent == MW_OK || sent == MW_ERR_REVOKED);
    } else if (is("holding")) {
        static char pages[256][4096];
        for (int page = 0; page < 256; page++) {
            OK(mw_import_send(inbox, pages[page], sizeof received - 8, 8));
        }
    }
    store_all();
    if (folder != NULL) {
        leave_note("sent");
    }
    if (is("told")) {
        /* This program hears that rank 0 is gone, and can live with it. */
        while (mw_import_put_signal(inbox, NULL, 0, 0, 0, 1) != MW_ERR_GONE) {
        }
    } else if (is("forked")) {
        pid_t child = fork();
        if (child == 0) {
            exit(0);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
    }
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "return";
    folder = argc > 2 ? argv[2] : NULL;
    uint32_t rank;
    if (is("destructor")) {
        atexit(free_late);
    }
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        rank_0();
        if (!is("destructor")) {
            OK(mw_node_free(node));
        }
        return 0;
    }
    rank_1();
    if (is("exit")) {
        exit(0);
    }
    printf("kept in a buffer until the end\n");
    return is("code") ? 3 : 0;
}
