/* Adds offsets to the clocks of one process; another process sets the offsets. To use this library, preload it, and set
 * the environment variable CLOCK_OFFSETS to the path of a file with two 64-bit integers: the offsets of CLOCK_REALTIME
 * and CLOCK_MONOTONIC in nanoseconds.
 *
 * CLOCK_BOOTTIME is not changed. To simulate a machine that was suspended, stop the process, and subtract the time of
 * the stop from its CLOCK_MONOTONIC. Absolute deadlines of waits are converted back to the kernel's clocks, because
 * waits would otherwise return at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct offsets {
    volatile int64_t realtime_ns;
    volatile int64_t monotonic_ns;
};

static struct offsets none;
static struct offsets *offsets = &none;

#define NS 1000000000LL
/* A deadline above this is a time of CLOCK_REALTIME; below it is a time of CLOCK_MONOTONIC. */
#define FIRST_DATE_S 1000000000LL

__attribute__((constructor)) static void map_offsets(void) {
    const char *path = getenv("CLOCK_OFFSETS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, sizeof(struct offsets), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) {
        offsets = mapped;
    }
    close(file);
}

static int64_t offset_of(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return offsets->realtime_ns;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return offsets->monotonic_ns;
    default:
        return 0;
    }
}

static struct timespec plus(const struct timespec *time, int64_t offset_ns) {
    int64_t sum = time->tv_sec * NS + time->tv_nsec + offset_ns;
    struct timespec moved = {sum / NS, sum % NS};
    return moved;
}

static struct timespec of_kernel(clockid_t clock, const struct timespec *deadline) {
    return plus(deadline, -offset_of(clock));
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed) {
        *time = plus(time, offset_of(clock));
    }
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) {
        *kept = now.tv_sec;
    }
    return now.tv_sec;
}

int timespec_get(struct timespec *time, int base) {
    return clock_gettime(CLOCK_REALTIME, time) ? 0 : base;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict deadline) {
    struct timespec moved = of_kernel(clock, deadline);
    return NEXT(sem_clockwait)(sem, clock, &moved);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict deadline) {
    struct timespec moved = of_kernel(CLOCK_REALTIME, deadline);
    return NEXT(sem_timedwait)(sem, &moved);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *deadline) {
    struct timespec moved = of_kernel(clock, deadline);
    return NEXT(pthread_cond_clockwait)(condition, mutex, clock, &moved);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!next) { /* dlsym without a version may return the old implementation of LinuxThreads */
        next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (!next) {
            next = NEXT(pthread_cond_timedwait);
        }
    }
    clockid_t clock = deadline->tv_sec > FIRST_DATE_S ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec moved = of_kernel(clock, deadline);
    return next(condition, mutex, &moved);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest) {
    struct timespec moved = flags & TIMER_ABSTIME ? of_kernel(clock, time) : *time;
    return NEXT(clock_nanosleep)(clock, flags, &moved, rest);
}
