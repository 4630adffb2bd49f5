/*
 * What a program's system tells it, while a test wants it so: another time of day, that nothing can be made durable, or
 * only slowly, and late what stands in a file whose name begins with "slow-".
 *
 * Preloaded (ld.so(8)). The file that TOLD names is mapped: a number of seconds that are added to the time of day, whether
 * syncing fails, how often anything was told, how long each read of a slow file takes, and how much longer each sync. Whoever
 * writes to it is believed from the next question on. Time that only passes (CLOCK_MONOTONIC and its like) stays true.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct told {
    int64_t seconds;
    int64_t sync_fails;
    int64_t times;
    int64_t slow_ms;
    int64_t slow_sync_ms;
};

static struct told truth;
static struct told *told = &truth;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("TOLD");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) told = mapped;
}

static int64_t asked(int64_t *what) {
    int64_t value = __atomic_load_n(what, __ATOMIC_RELAXED);
    if (value) __atomic_fetch_add(&told->times, 1, __ATOMIC_RELAXED);
    return value;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, clock, at);
    int is_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
    if (!failed && is_of_day) at->tv_sec += asked(&told->seconds);
    return (int)failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (!failed) *at = (struct timeval){.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *at) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (at) *at = precise.tv_sec;
    return precise.tv_sec;
}

static void pause_ms(int64_t ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (ms) nanosleep(&pause, NULL);
}

static int sync_of(long call, int file) {
    if (asked(&told->sync_fails)) {
        errno = EIO;
        return -1;
    }
    pause_ms(asked(&told->slow_sync_ms));
    return (int)syscall(call, file);
}

int fsync(int file) { return sync_of(SYS_fsync, file); }

int fdatasync(int file) { return sync_of(SYS_fdatasync, file); }

static int is_slow(int file) {
    char link[32], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    const char *last = strrchr(name, '/');
    return last && strncmp(last + 1, "slow-", 5) == 0;
}

ssize_t read(int file, void *into, size_t most) {
    int64_t slow_ms = asked(&told->slow_ms);
    if (slow_ms && is_slow(file)) pause_ms(slow_ms);
    return syscall(SYS_read, file, into, most);
}
