/* SPDX-License-Identifier: MIT-0
 *
 * cpu_team.h - a second thread for cpu.c, which takes half of what can be halved: columns of a
 * matrix. Halves are outputs, never parts of a sum, so one thread and two give the same bits.
 * A pass hands over some dozens of matrices of a few microseconds each: the thread waits for the
 * next one without sleep, gives way to others where there is none, and sleeps after a while.
 * Where there are no POSIX threads, or one processor, or TINY_LM_THREADS=1, the team is one.
 */
#if defined(__GNUC__) && defined(__unix__)
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#define HAS_TEAM 1
#endif

typedef struct cpu_team {
    void (*work)(const void *job, int half);
    const void *job;
    int size;
#if defined(HAS_TEAM)
    unsigned given, done; /* tasks, counted */
    int ends, sleeps;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t woken;
#endif
} cpu_team;

#if defined(HAS_TEAM)
enum { TEAM_ROUNDS = 2000, TEAM_YIELDS = 2000 }; /* some ten microseconds; some milliseconds */

/* Until *what is no longer `was`; 0: it still is. */
static int team_waits(const unsigned *what, unsigned was, int yields) {
    for (int i = 0; i < TEAM_ROUNDS; i++)
        if (__atomic_load_n(what, __ATOMIC_ACQUIRE) != was) return 1;
    for (int i = 0; yields < 0 || i < yields; i++) {
        if (__atomic_load_n(what, __ATOMIC_ACQUIRE) != was) return 1;
        sched_yield();
    }
    return 0;
}

static void *team_member(void *of) {
    cpu_team *team = (cpu_team *)of;
    for (unsigned seen = 0;; seen++) {
        if (!team_waits(&team->given, seen, TEAM_YIELDS)) {
            pthread_mutex_lock(&team->lock);
            __atomic_store_n(&team->sleeps, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&team->given, __ATOMIC_SEQ_CST) == seen)
                pthread_cond_wait(&team->woken, &team->lock);
            __atomic_store_n(&team->sleeps, 0, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&team->lock);
        }
        if (team->ends) return NULL;
        team->work(team->job, 1);
        __atomic_store_n(&team->done, seen + 1, __ATOMIC_RELEASE);
    }
}

static void team_gives(cpu_team *team) {
    __atomic_fetch_add(&team->given, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&team->sleeps, __ATOMIC_SEQ_CST)) return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_signal(&team->woken);
    pthread_mutex_unlock(&team->lock);
}
#endif

/* work(job, 0) and work(job, 1), beside each other if there are two. */
static void team_do(cpu_team *team, void (*work)(const void *job, int half), const void *job) {
#if defined(HAS_TEAM)
    if (team->size == 2) {
        team->work = work, team->job = job;
        team_gives(team);
        work(job, 0);
        team_waits(&team->done, team->given - 1, -1);
        return;
    }
#endif
    (void)team;
    work(job, 0);
    work(job, 1);
}

static void team_open(cpu_team *team) {
    team->size = 1;
#if defined(HAS_TEAM)
    const char *wanted = getenv("TINY_LM_THREADS");
    if ((wanted && strtol(wanted, NULL, 10) < 2) || sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    if (pthread_mutex_init(&team->lock, NULL) != 0) return;
    if (pthread_cond_init(&team->woken, NULL) != 0) return;
    if (pthread_create(&team->thread, NULL, team_member, team) == 0) team->size = 2;
#endif
}

static void team_close(cpu_team *team) {
#if defined(HAS_TEAM)
    if (team->size < 2) return;
    team->ends = 1;
    team_gives(team);
    pthread_join(team->thread, NULL);
    pthread_cond_destroy(&team->woken);
    pthread_mutex_destroy(&team->lock);
#endif
    team->size = 1;
}
