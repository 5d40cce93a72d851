/* A library for LD_PRELOAD in tests. It shifts the program's wall clock by the milliseconds in the file $CLOCK_OFFSET_FILE, which it
 * reads at every call. It does not change CLOCK_MONOTONIC and CLOCK_BOOTTIME. It uses raw system calls, because Redis' allocator reads
 * the clock before a library can look up the functions that it replaces. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_millis(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    char text[32];
    long millis = 0, sign = 1;
    int file, length;
    if (!path) return 0;
    file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    if (file < 0) return 0;
    length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    for (int i = 0; i < length; i++) {
        if (text[i] == '-') sign = -1;
        if (text[i] >= '0' && text[i] <= '9') millis = millis * 10 + (text[i] - '0');
    }
    return sign * millis;
}

static void shift(struct timespec *time) {
    long millis = offset_millis();
    time->tv_sec += millis / 1000;
    time->tv_nsec += millis % 1000 * 1000000;
    if (time->tv_nsec >= 1000000000) { time->tv_nsec -= 1000000000; time->tv_sec++; }
    if (time->tv_nsec < 0) { time->tv_nsec += 1000000000; time->tv_sec--; }
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(out);
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
