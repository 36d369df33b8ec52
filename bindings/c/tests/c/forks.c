/* Forked children, which may use nothing of their parent's node, and its parent, which goes on unharmed. 2 ranks. */
#define _GNU_SOURCE
#include "expect.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 65536, ROUNDS = 3, EXCHANGES = 20 };
static const uint64_t LONG_NS = 60000000000;

static mw_node_t *node;
static mw_buffer_t *buffer;
static mw_export_t *direct, *ring;
static mw_import_t *to_direct, *to_ring;
static mw_eventfd_t *events;
static mw_shared_t *shared;
static mw_request_t *request;
static uint64_t *cell;
static uint64_t proxy, step;
static uint32_t me;
static char heap[BYTES];
static int stops;

#define REFUSED(call) FAILS(MW_ERR_FORKED, "fork()", call)

/* Each rank tells the other of steps, by both paths. */
static void exchange(void) {
    for (int turn = 0; turn < EXCHANGES; turn++) {
        step++;
        OK(mw_import_put_signal(to_ring, &step, 8, 16, 8, step));
        OK(mw_import_put_signal(to_direct, &step, 8, 16, 8, step));
        OK(mw_export_wait_signal(direct, 8, step, LONG_NS, NULL));
        OK(mw_export_wait_signal(ring, 8, step, LONG_NS, NULL));
    }
}

/* Calls of every kind, in a child. */
static void all_are_refused(void) {
    static char bytes[BYTES];
    uint64_t value = 0;
    int32_t flag;
    void *pointer;
    size_t index;
    mw_buffer_t *other_buffer;
    mw_export_t *other_export;
    mw_import_t *other_import;
    mw_eventfd_t *other_events;
    mw_request_t *other_request;
    struct iovec parts[2] = {{bytes, 8}, {bytes + 64, 8}};
    mw_node_counters_t counters = {.size = sizeof counters};
    mw_import_t *imports[] = {to_direct, to_ring};
    mw_export_t *exports[] = {direct, ring};
    for (int path = 0; path < 2; path++) {
        mw_import_t *import = imports[path];
        mw_export_t *export = exports[path];
        REFUSED(mw_import_send(import, bytes, 8, 64));
        REFUSED(mw_import_send(import, bytes, 60000, 64));
        REFUSED(mw_import_put_signal(import, bytes, 8, 64, 128, 7));
        REFUSED(mw_import_put_signal_add(import, bytes, 8, 64, 128, 7));
        REFUSED(mw_import_put_signal_or(import, bytes, 8, 64, 128, 7));
        REFUSED(mw_import_send_notify(import, bytes, 8, 64));
        REFUSED(mw_import_flush(import));
        REFUSED(mw_import_fetch(import, 64, bytes, 8));
        REFUSED(mw_import_fetch(import, 64, bytes, 60000));
        REFUSED(mw_import_fetch_add_u64(import, 64, 1, NULL));
        REFUSED(mw_import_swap_u64(import, 64, 1, NULL));
        REFUSED(mw_import_compare_swap_u64(import, 64, 1, 2, NULL));
        REFUSED(mw_import_fetch_add_u32(import, 64, 1, NULL));
        REFUSED(mw_import_swap_u32(import, 64, 1, NULL));
        REFUSED(mw_import_compare_swap_u32(import, 64, 1, 2, NULL));
        REFUSED(mw_import_sendv(import, parts, 2, 64));
        REFUSED(mw_import_fetchv(import, 64, parts, 2));
        REFUSED(mw_import_send_strided(import, bytes, 64, 2, 8, 64, 64));
        REFUSED(mw_import_fetch_strided(import, 64, bytes, 2, 8, 64, 64));
        REFUSED(mw_import_send_async(import, bytes, 60000, 64, &other_request));
        REFUSED(mw_import_put_signal_async(import, bytes, 60000, 64, 8, 7, &other_request));
        REFUSED(mw_import_fetch_async(import, 64, bytes, 60000, &other_request));
        REFUSED(mw_import_pointer(import, 0, 8, &pointer));
        REFUSED(mw_export_read(export, 0, bytes, 8));
        REFUSED(mw_export_write(export, 64, bytes, 8));
        REFUSED(mw_export_signal(export, 8, &value));
        REFUSED(mw_export_wait_signal(export, 8, 1, 0, NULL));
        REFUSED(mw_export_wait_signal(export, 8, UINT64_MAX, MW_FOREVER, NULL));
        REFUSED(mw_export_redirect(export, buffer));
        REFUSED(mw_export_redirect_back(export));
        mw_awaited_t awaited = {.exported = export, .offset = 8, .value = 1};
        REFUSED(mw_node_wait_any(node, &awaited, 1, MW_FOREVER, &index));
    }
    REFUSED(mw_node_send_to(node, proxy + 64, bytes, 8));
    REFUSED(mw_node_put_signal_to(node, proxy + 64, bytes, 8, proxy + 128, 7));
    REFUSED(mw_node_fetch_from(node, proxy + 64, bytes, 8));
    REFUSED(mw_node_poll(node, &flag));
    REFUSED(mw_node_begin_polling(node));
    REFUSED(mw_node_end_polling(node));
    REFUSED(mw_node_barrier(node));
    REFUSED(mw_node_broadcast(node, 0, bytes, 8));
    REFUSED(mw_node_gather(node, 0, bytes, 8, bytes + 64));
    REFUSED(mw_node_all_gather(node, bytes, 8, bytes + 64));
    REFUSED(mw_node_reduce_u64(node, MW_SUM, &value, 1));
    REFUSED(mw_node_counters(node, &counters));
    REFUSED(mw_buffer_alloc(node, 4096, &other_buffer));
    REFUSED(mw_export_create(node, buffer, "other", NULL, &other_export));
    REFUSED(mw_export_create_range(node, bytes, sizeof bytes, "other", NULL, &other_export));
    REFUSED(mw_import_create(node, !me, "ring", NULL, &other_import));
    REFUSED(mw_eventfd_create(node, &other_events));
    REFUSED(mw_eventfd_arm(events));
    /* It would return at once, as it does. */
    OK(mw_request_is_done(request, &flag));
    HOLDS(flag == 1);
    REFUSED(mw_request_wait(request));
    REFUSED(mw_shared_open(node, 1, &shared));
}

static void shared_is_refused(void) {
    void *memory;
    uint64_t value = 0;
    mw_shared_counters_t counters = {.size = sizeof counters};
    REFUSED(mw_shared_alloc(shared, 64, &memory));
    REFUSED(mw_shared_prefetch(shared, cell, 8));
    REFUSED(mw_shared_prefetch_to_write(shared, cell, 8));
    REFUSED(mw_shared_barrier(shared));
    REFUSED(mw_shared_barrier_of(shared, 1));
    REFUSED(mw_shared_notice_handlers(shared));
    REFUSED(mw_shared_lock(shared, 1));
    REFUSED(mw_shared_unlock(shared, 1));
    REFUSED(mw_shared_broadcast(shared, 0, &value));
    REFUSED(mw_shared_set_threads(shared, 2));
    REFUSED(mw_shared_counters(shared, &counters));
    REFUSED(mw_shared_read(shared, 0, cell, 8, NULL));
    REFUSED(mw_shared_write(shared, 1, cell, 8, NULL));
    REFUSED(mw_shared_close(shared));
}

static void calls(void) {
    if (shared != NULL) {
        shared_is_refused();
    }
    all_are_refused();
    REFUSED(mw_export_revoke(ring));
    REFUSED(mw_export_revoke(direct));
}

/* Gives all back, as destructors and handlers of atexit do. */
static void gives_back(void) {
    mw_request_wait(request);
    OK(mw_import_free(to_direct));
    OK(mw_import_free(to_ring));
    mw_export_revoke(direct);
    mw_export_revoke(ring);
    OK(mw_eventfd_free(events));
    OK(mw_buffer_free(buffer));
    OK(mw_node_free(node));
}

static void gives_only_the_node_back(void) {
    OK(mw_node_free(node));
}

static void does_nothing(void) {
}

static void runs_a_program(void) {
    HOLDS(system("exit 3") == 3 << 8);
}

static void joins_a_job_of_its_own(void) {
    /* Without a launcher, since that has its rank already. */
    unsetenv("MAPWIRE_JOB");
    unsetenv("MAPWIRE_RANK");
    unsetenv("MAPWIRE_SIZE");
    mw_node_t *own;
    mw_buffer_t *memory;
    mw_export_t *exported;
    mw_import_t *import;
    uint64_t value = 0;
    OK(mw_node_join(&own));
    OK(mw_buffer_alloc(own, BYTES, &memory));
    OK(mw_export_create(own, memory, "own", NULL, &exported));
    OK(mw_import_create(own, 0, "own", NULL, &import));
    OK(mw_import_put_signal(import, &value, 8, 64, 8, 7));
    OK(mw_export_wait_signal(exported, 8, 7, LONG_NS, NULL));
    REFUSED(mw_import_flush(to_direct));
    OK(mw_import_free(import));
    OK(mw_export_revoke(exported));
    OK(mw_buffer_free(memory));
    OK(mw_node_free(own));
}

static void touches(void) {
    __atomic_store_n(cell, 99, __ATOMIC_SEQ_CST);
}

/* Runs `body` in a child by the C library, or by a bare system call; gives its status. */
static int status_of(void (*body)(void), int bare) {
    /* What the child says of memory that it touches is looked for in what the test prints. */
    pid_t child = bare ? (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L) : fork();
    HOLDS(child >= 0);
    if (child == 0) {
        alarm(60);
        body();
        if (bare) {
            _exit(0);
        }
        exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child);
    return status;
}

/* Datagrams and packets that this rank has refused. */
static uint64_t rejected(void) {
    mw_node_counters_t counters = {.size = sizeof counters};
    OK(mw_node_counters(node, &counters));
    return counters.datagrams_rejected + counters.packets_rejected;
}

/* Keeps the library at work, so that children are forked in the middle of calls. */
static void *work(void *nothing) {
    static char bytes[BYTES];
    while (!__atomic_load_n(&stops, __ATOMIC_ACQUIRE)) {
        OK(mw_import_fetch(to_ring, 4096, bytes, 40000));
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return nothing;
}

static void forks(void) {
    void (*bodies[])(void) = {calls, gives_back, gives_only_the_node_back, does_nothing, runs_a_program, joins_a_job_of_its_own};
    static char bytes[BYTES];
    for (size_t body = 0; body < sizeof bodies / sizeof bodies[0]; body++) {
        for (int bare = 0; bare < 2; bare++) {
            if (bare && (bodies[body] == runs_a_program || bodies[body] == joins_a_job_of_its_own)) {
                continue;
            }
            OK(mw_import_fetch_async(to_ring, 64, bytes, 60000, &request));
            int status = status_of(bodies[body], bare);
            if (status != 0) {
                fprintf(stderr, "child %zu (bare: %d) ended with %#x\n", body, bare, (unsigned)status);
                exit(1);
            }
            OK(mw_request_wait(request));
            exchange();
        }
    }
    if (shared != NULL) {
        int status = status_of(touches, 0);
        HOLDS(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        exchange();
    }
}

int main(int count, char **arguments) {
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &me));
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_export_create(node, buffer, "direct", NULL, &direct));
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    OK(mw_export_create_range(node, heap, sizeof heap, "ring", &options, &ring));
    mw_import_options_t all = {.size = sizeof all, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    OK(mw_import_create(node, !me, "direct", &all, &to_direct));
    OK(mw_import_create(node, !me, "ring", &all, &to_ring));
    OK(mw_import_proxy_address(to_ring, &proxy));
    OK(mw_eventfd_create(node, &events));
    if (count < 2) {
        OK(mw_shared_open(node, 1, &shared));
        OK(mw_shared_alloc(shared, 64, (void **)&cell));
        *cell = 42;
    }
    exchange();
    OK(mw_node_barrier(node));
    /* Handshakes that cross are refused; after them nothing is, but what is sealed under a number that was used before. */
    uint64_t rejected_before = rejected();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t worker;
        HOLDS(pthread_create(&worker, NULL, work, NULL) == 0);
        /* As often as rank 0 does after its children: six of the C library, four bare. */
        if (me == 0) {
            forks();
        } else {
            for (int child = 0; child < 10 + (shared != NULL); child++) {
                exchange();
            }
        }
        __atomic_store_n(&stops, 1, __ATOMIC_RELEASE);
        HOLDS(pthread_join(worker, NULL) == 0);
        stops = 0;
        OK(mw_node_barrier(node));
    }
    if (shared != NULL) {
        HOLDS(*cell == 42);
        OK(mw_shared_close(shared));
    }
    HOLDS(rejected() == rejected_before);
    OK(mw_node_barrier(node));
    printf("rank %u is unharmed\n", me);
    OK(mw_import_free(to_direct));
    OK(mw_import_free(to_ring));
    OK(mw_export_revoke(direct));
    OK(mw_export_revoke(ring));
    OK(mw_eventfd_free(events));
    OK(mw_buffer_free(buffer));
    OK(mw_node_free(node));
    (void)arguments;
    return 0;
}
