/* Synchronisation objects in the shared memory of two ranks, and where all are on one host, of their forked children. */
#define _GNU_SOURCE
#include "expect.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 2000, CAPACITY = 64 };
static const uint64_t SHORT_NS = 1000000;

struct common {
    mw_mutex_t mutex, lost;
    mw_rwlock_t lock;
    mw_cond_t turned;
    mw_sem_t items, room;
    mw_flag_t flag;
    mw_barrier_t all;
    mw_once_t once;
    mw_reduction_t sum;
    uint64_t count, turn, done, taken;
    mw_queue_t queue;
    uint64_t values[CAPACITY];
};

static struct common *common;

static void do_once(void) { common->done++; }

/* Counts under the mutex and the lock; for a rank or its child. */
static void count(void) {
    for (int round = 0; round < ROUNDS; round++) {
        OK(mw_mutex_lock(&common->mutex));
        common->count++;
        OK(mw_mutex_unlock(&common->mutex));
        OK(mw_rwlock_wrlock(&common->lock));
        common->turn++;
        OK(mw_rwlock_unlock(&common->lock));
        OK(mw_rwlock_rdlock(&common->lock));
        OK(mw_rwlock_unlock(&common->lock));
    }
    OK(mw_once(&common->once, do_once));
    HOLDS(common->done == 1);
}

static void wait_for(pid_t child, int killed) {
    int status;
    HOLDS(waitpid(child, &status, 0) == child);
    HOLDS(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void misuse(void) {
    static mw_mutex_t elsewhere;
    mw_mutex_t *mutex = &common->mutex;
    FAILS(MW_ERR_ADDRESS, "the mutex at", mw_mutex_lock(&elsewhere));
    FAILS(MW_ERR_ADDRESS, "the mutex at", mw_mutex_lock(NULL));
    FAILS(MW_ERR_STATE, "nobody does", mw_mutex_unlock(mutex));
    FAILS(MW_ERR_STATE, "does not hold the mutex", mw_cond_wait(&common->turned, mutex));
    OK(mw_mutex_lock(mutex));
    FAILS(MW_ERR_STATE, "already holds", mw_mutex_lock(mutex));
    FAILS(MW_ERR_STATE, "cannot be destroyed", mw_mutex_destroy(mutex));
    HOLDS(mw_mutex_trylock(mutex) == MW_ERR_TIMEOUT);
    HOLDS(mw_cond_timedwait(&common->turned, mutex, SHORT_NS) == MW_ERR_TIMEOUT);
    OK(mw_mutex_unlock(mutex));
    OK(mw_mutex_trylock(mutex));
    OK(mw_mutex_unlock(mutex));
    OK(mw_mutex_timedlock(mutex, MW_FOREVER));
    OK(mw_mutex_unlock(mutex));
    FAILS(MW_ERR_ARGUMENT, "a count of 0", mw_barrier_init(&common->all, 0));
    FAILS(MW_ERR_ARGUMENT, "a power of two", mw_queue_init(&common->queue, 3));
    FAILS(MW_ERR_ARGUMENT, "`routine` is NULL", mw_once(&common->once, NULL));
    FAILS(MW_ERR_LIMIT, "2147483647", mw_sem_init(&common->items, UINT32_MAX));
}

int main(int argc, char **argv) {
    int has_children = argc < 2 || strcmp(argv[1], "alone") != 0;
    mw_node_t *node;
    mw_shared_t *shared;
    OK(mw_node_join(&node));
    uint32_t rank;
    OK(mw_node_rank(node, &rank));
    OK(mw_shared_open(node, 1, &shared));
    uint64_t address = 0;
    if (rank == 0) {
        void *memory;
        OK(mw_shared_alloc(shared, sizeof(struct common), &memory));
        address = (uintptr_t)memory;
    }
    OK(mw_shared_broadcast(shared, 0, &address));
    common = (struct common *)(uintptr_t)address;
    OK(mw_shared_barrier(shared));
    if (rank == 0) {
        misuse();
        OK(mw_barrier_init(&common->all, 2));
        OK(mw_reduction_init(&common->sum, 2));
        OK(mw_sem_init(&common->items, 0));
        OK(mw_sem_init(&common->room, 3));
        OK(mw_queue_init(&common->queue, CAPACITY));
        HOLDS(mw_queue_bytes(CAPACITY) == sizeof(mw_queue_t) + sizeof common->values);
    }
    OK(mw_shared_barrier(shared));

    /* Ranks and children exclude each other. */
    fflush(NULL);
    pid_t child = 0;
    if (has_children) {
        child = fork();
        if (child == 0) {
            count();
            _exit(0);
        }
    }
    count();
    if (has_children) wait_for(child, 0);
    int32_t is_last;
    OK(mw_barrier_wait(&common->all, &is_last));
    uint64_t counted = has_children ? 4 * ROUNDS : 2 * ROUNDS;
    HOLDS(common->count == counted && common->turn == counted);
    int64_t sum = rank == 0 ? 3 : -5;
    OK(mw_reduction_i64(&common->sum, MW_SUM, &sum));
    HOLDS(sum == -2);
    double least = rank == 0 ? 0.5 : -0.25;
    OK(mw_reduction_f64(&common->sum, MW_MIN, &least));
    HOLDS(least == -0.25);

    /* Ranks take turns by the condition. */
    for (uint64_t round = 0; round < ROUNDS; round++) {
        OK(mw_mutex_lock(&common->mutex));
        while (common->turn % 2 != rank) OK(mw_cond_wait(&common->turned, &common->mutex));
        common->turn++;
        OK(mw_cond_signal(&common->turned));
        OK(mw_mutex_unlock(&common->mutex));
    }
    /* Rank 0 fills three places, rank 1 empties them. */
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        OK(mw_sem_wait(rank == 0 ? &common->room : &common->items));
        OK(mw_sem_post(rank == 0 ? &common->items : &common->room));
        if (rank == 0) OK(mw_flag_set(&common->flag, round));
        OK(mw_flag_wait(&common->flag, round));
    }
    uint32_t value;
    OK(mw_shared_barrier(shared));
    OK(mw_sem_getvalue(&common->room, &value));
    HOLDS(value == 3 && mw_sem_trywait(&common->items) == MW_ERR_TIMEOUT);
    HOLDS(mw_flag_timedwait(&common->flag, ROUNDS + 1, SHORT_NS) == MW_ERR_TIMEOUT);

    /* Rank 0 pushes, rank 1 steals what is left. */
    uint64_t item, total = 0;
    if (rank == 0) {
        for (uint64_t number = 1; number <= CAPACITY; number++) OK(mw_queue_push(&common->queue, number));
        HOLDS(mw_queue_push(&common->queue, 1) == MW_ERR_LIMIT);
        OK(mw_queue_pop(&common->queue, &item));
        HOLDS(item == CAPACITY);
        total = item;
    }
    OK(mw_shared_barrier(shared));
    if (rank == 1) {
        FAILS(MW_ERR_STATE, "does not hold the queue", mw_queue_push(&common->queue, 1));
        while (mw_queue_steal(&common->queue, &item) == MW_OK) total += item;
    }
    OK(mw_reduction_u64(&common->sum, MW_SUM, &total));
    HOLDS(total == CAPACITY * (CAPACITY + 1) / 2);

    /* A child that is killed with the mutex held. */
    if (!has_children) {
        OK(mw_shared_close(shared));
        FAILS(MW_ERR_STATE, "mw_shared_open", mw_mutex_lock(&common->lost));
        OK(mw_node_free(node));
        puts("in step");
        return 0;
    }
    if (rank == 0) {
        child = fork();
        if (child == 0) {
            OK(mw_mutex_lock(&common->lost));
            OK(mw_flag_set(&common->flag, ROUNDS + 2));
            pause();
        }
    }
    OK(mw_flag_wait(&common->flag, ROUNDS + 2));
    if (rank == 0) {
        kill(child, SIGKILL);
        wait_for(child, 1);
    }
    FAILS(MW_ERR_GONE, "of rank 0 (process ", mw_mutex_lock(&common->lost));
    FAILS(MW_ERR_GONE, "which has ended", mw_mutex_lock(&common->lost));
    OK(mw_shared_close(shared));
    FAILS(MW_ERR_STATE, "mw_shared_open", mw_mutex_lock(&common->lost));
    OK(mw_node_free(node));
    puts("in step");
    return 0;
}
