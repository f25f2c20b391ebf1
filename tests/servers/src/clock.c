/* The wall clock of one process, moved: a library to preload.
 *
 * The file named by TOLLGATE_CLOCK holds two signed numbers of microseconds, each 64 bits in the byte order of the machine.
 * The first is added to the time. The second is the time, unless it is 0: the clock stands there. Writing to the file moves
 * the clock at once. Monotonic clocks are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *set;

__attribute__((constructor)) static void open_clock(void) {
  const char *name = getenv("TOLLGATE_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  void *place;
  if (file < 0) return;
  place = mmap(NULL, 2 * sizeof *set, PROT_READ, MAP_SHARED, file, 0);
  if (place != MAP_FAILED) set = place;
  close(file);
}

/* Not by way of the C library, which may come back here. */
static int64_t now(void) {
  struct timespec real = {0, 0};
  if (set && set[1]) return set[1];
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
  return (int64_t)real.tv_sec * 1000000 + real.tv_nsec / 1000 + (set ? set[0] : 0);
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  int64_t at = now();
  (void)zone;
  time->tv_sec = at / 1000000;
  time->tv_usec = at % 1000000;
  return 0;
}

time_t time(time_t *seconds) {
  time_t at = now() / 1000000;
  if (seconds) *seconds = at;
  return at;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int64_t at;
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
    return (int)syscall(SYS_clock_gettime, clock, time);
  }
  at = now();
  time->tv_sec = at / 1000000;
  time->tv_nsec = at % 1000000 * 1000;
  return 0;
}
