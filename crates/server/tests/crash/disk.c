/* A disk that remembers what was synced.
 *
 * Loaded into the server with LD_PRELOAD. Every change below CRASH_ROOT goes to the real file and,
 * in the order in which it happened, into the log CRASH_LOG, together with every sync. From the log
 * a test builds what a disk may hold after the power went: all that was synced, and any part of
 * what was not. See disk.rs for the other side.
 *
 * CRASH_MODE makes the disk or the program lie, to show that the tests notice:
 *   honest  every sync counts
 *   never   no sync counts
 *   nowal   no sync of the write-ahead log counts
 *   nodir   no sync of a directory counts
 *   late    a sync of the write-ahead log counts only when the next one is asked for: the answer
 *           comes before the sync
 *   early   what is written to the write-ahead log leaves the process only when the next commit
 *           begins: the answer comes before the commit
 *   fails   one sync of the write-ahead log fails, and what it should have covered is lost: the
 *           next syncs succeed, and do not cover it either
 *
 * What the log cannot express (vectored writes, writable maps) ends the process loudly.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MAKE_DIR };
enum what { UNKNOWN, PLAIN, WAL, SHM, DIRECTORY };
enum mode { HONEST, NEVER, NOWAL, NODIR, LATE, EARLY, FAILS };

/* The sync of the write-ahead log that fails in mode fails: the server is at work by then. */
#define FAILING_SYNC 30

#define MAX_FDS 4096
static unsigned char what_is[MAX_FDS];
static const char *root;
static size_t root_len;
static enum mode mode;
static int log_fd = -1;
static uint64_t logged;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_truncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

static void die(const char *why) {
  dprintf(2, "crash disk: %s: errno %d\n", why, errno);
  _exit(99);
}

#define FIND(variable, name)                                                  \
  do {                                                                        \
    *(void **)&variable = dlsym(RTLD_NEXT, name);                             \
    if (!variable) die(name);                                                 \
  } while (0)

/* Others may open files before this library is set up, so every entry comes through here. */
static void find_all(void) {
  static int found;
  if (__atomic_load_n(&found, __ATOMIC_ACQUIRE)) return;
  FIND(real_open, "open64");
  FIND(real_close, "close");
  FIND(real_read, "read");
  FIND(real_pread, "pread64");
  FIND(real_write, "write");
  FIND(real_pwrite, "pwrite64");
  FIND(real_writev, "writev");
  FIND(real_truncate, "ftruncate64");
  FIND(real_fsync, "fsync");
  FIND(real_fdatasync, "fdatasync");
  FIND(real_rename, "rename");
  FIND(real_unlink, "unlink");
  FIND(real_mkdir, "mkdir");
  FIND(real_mmap, "mmap64");
  __atomic_store_n(&found, 1, __ATOMIC_RELEASE);
}

__attribute__((constructor)) static void set_up(void) {
  static const char *const names[] = {"honest", "never", "nowal", "nodir", "late", "early", "fails"};
  const char *to = getenv("CRASH_LOG"), *wanted = getenv("CRASH_MODE");
  find_all();
  if (!to || !wanted || !getenv("CRASH_ROOT")) die("CRASH_ROOT, CRASH_LOG or CRASH_MODE is missing");
  for (mode = HONEST; strcmp(names[mode], wanted) != 0;)
    if (++mode > FAILS) die("unknown CRASH_MODE");
  log_fd = real_open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) die("cannot open the log");
  root = getenv("CRASH_ROOT");
  root_len = strlen(root);
}

static int is_below(const char *path) {
  if (!root || strncmp(path, root, root_len) != 0) return 0;
  return path[root_len] == '/' || path[root_len] == 0;
}

static enum what what_of(int fd) { return fd >= 0 && fd < MAX_FDS ? what_is[fd] : UNKNOWN; }

static void put(enum kind kind, int fd, uint64_t number, const void *bytes, size_t len) {
  struct __attribute__((packed)) {
    uint32_t kind;
    int32_t fd;
    uint64_t number;
    uint64_t len;
  } head = {kind, fd, number, len};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)bytes, len}};
  ssize_t all = (ssize_t)(sizeof head + len);
  if (real_writev(log_fd, parts, 2) != all) die("cannot write the log");
  logged++;
}

/* What has not left the process, in mode early. */
static struct piece {
  struct piece *next;
  off_t at;
  size_t len;
  char bytes[];
} *pieces, **last_piece = &pieces;
static int committed;

static void let_go(int fd) {
  while (pieces) {
    struct piece *piece = pieces;
    if (real_pwrite(fd, piece->bytes, piece->len, piece->at) != (ssize_t)piece->len) die("pwrite");
    pieces = piece->next;
    free(piece);
  }
  last_piece = &pieces;
  committed = 0;
}

static void keep(int fd, const void *bytes, size_t len, off_t at) {
  if (committed) let_go(fd);
  struct piece *piece = malloc(sizeof *piece + len);
  if (!piece) die("malloc");
  *piece = (struct piece){.at = at, .len = len};
  memcpy(piece->bytes, bytes, len);
  *last_piece = piece;
  last_piece = &piece->next;
}

static int opened(int fd, const char *path, int flags) {
  size_t len = strlen(path);
  struct stat found;
  if (fd < 0) return fd;
  if (fd >= MAX_FDS) die("too many files");
  if (fstat(fd, &found) != 0) die("fstat");
  if (S_ISDIR(found.st_mode)) what_is[fd] = DIRECTORY;
  else if (len > 4 && strcmp(path + len - 4, "-wal") == 0) what_is[fd] = WAL;
  else if (len > 4 && strcmp(path + len - 4, "-shm") == 0) what_is[fd] = SHM;
  else what_is[fd] = PLAIN;
  put(OPEN, fd, S_ISDIR(found.st_mode) ? 1 : 0, path, len);
  if (flags & O_TRUNC) put(TRUNCATE, fd, 0, "", 0);
  return fd;
}

static int open_any(const char *path, int flags, mode_t permissions) {
  find_all();
  if (!is_below(path)) return real_open(path, flags, permissions);
  pthread_mutex_lock(&mutex);
  int fd = opened(real_open(path, flags, permissions), path, flags);
  pthread_mutex_unlock(&mutex);
  return fd;
}

#define OPEN_AS(name)                                                         \
  int name(const char *path, int flags, ...) {                                \
    mode_t permissions = 0;                                                   \
    if (flags & O_CREAT) {                                                    \
      va_list rest;                                                           \
      va_start(rest, flags);                                                  \
      permissions = (mode_t)va_arg(rest, int);                                \
      va_end(rest);                                                           \
    }                                                                         \
    return open_any(path, flags, permissions);                                \
  }
OPEN_AS(open)
OPEN_AS(open64)

int close(int fd) {
  find_all();
  if (what_of(fd) == UNKNOWN) return real_close(fd);
  pthread_mutex_lock(&mutex);
  if (what_of(fd) == WAL) let_go(fd);
  what_is[fd] = UNKNOWN;
  int outcome = real_close(fd);
  pthread_mutex_unlock(&mutex);
  return outcome;
}

static ssize_t write_at(int fd, const void *bytes, size_t len, off_t at) {
  ssize_t written = (ssize_t)len;
  if (mode == EARLY && what_of(fd) == WAL) keep(fd, bytes, len, at);
  else written = real_pwrite(fd, bytes, len, at);
  if (written > 0 && what_of(fd) != SHM) put(WRITE, fd, (uint64_t)at, bytes, (size_t)written);
  return written;
}

ssize_t write(int fd, const void *bytes, size_t len) {
  find_all();
  if (what_of(fd) == UNKNOWN) return real_write(fd, bytes, len);
  pthread_mutex_lock(&mutex);
  off_t at = lseek(fd, 0, SEEK_CUR);
  if (at < 0 || fcntl(fd, F_GETFL) & O_APPEND) die("a write without a place");
  ssize_t written = write_at(fd, bytes, len, at);
  if (written > 0) lseek(fd, at + written, SEEK_SET);
  pthread_mutex_unlock(&mutex);
  return written;
}

static ssize_t pwrite_any(int fd, const void *bytes, size_t len, off_t at) {
  find_all();
  if (what_of(fd) == UNKNOWN) return real_pwrite(fd, bytes, len, at);
  pthread_mutex_lock(&mutex);
  ssize_t written = write_at(fd, bytes, len, at);
  pthread_mutex_unlock(&mutex);
  return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) { return pwrite_any(fd, bytes, len, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at) { return pwrite_any(fd, bytes, len, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
  find_all();
  if (what_of(fd) != UNKNOWN) die("a vectored write is not recorded");
  return real_writev(fd, parts, count);
}

static void before_read(int fd) {
  if (mode != EARLY || what_of(fd) != WAL) return;
  pthread_mutex_lock(&mutex);
  int writable = fd;
  for (int other = 0; other < MAX_FDS; other++)
    if (what_is[other] == WAL && (fcntl(other, F_GETFL) & O_ACCMODE) == O_RDWR) writable = other;
  let_go(writable);
  pthread_mutex_unlock(&mutex);
}

ssize_t read(int fd, void *bytes, size_t len) {
  find_all();
  before_read(fd);
  return real_read(fd, bytes, len);
}

static ssize_t pread_any(int fd, void *bytes, size_t len, off_t at) {
  find_all();
  before_read(fd);
  return real_pread(fd, bytes, len, at);
}

ssize_t pread(int fd, void *bytes, size_t len, off_t at) { return pread_any(fd, bytes, len, at); }
ssize_t pread64(int fd, void *bytes, size_t len, off_t at) { return pread_any(fd, bytes, len, at); }

static int truncate_any(int fd, off_t len) {
  find_all();
  if (what_of(fd) == UNKNOWN) return real_truncate(fd, len);
  pthread_mutex_lock(&mutex);
  if (what_of(fd) == WAL) let_go(fd);
  int outcome = real_truncate(fd, len);
  if (outcome == 0 && what_of(fd) != SHM) put(TRUNCATE, fd, (uint64_t)len, "", 0);
  pthread_mutex_unlock(&mutex);
  return outcome;
}

int ftruncate(int fd, off_t len) { return truncate_any(fd, len); }
int ftruncate64(int fd, off_t len) { return truncate_any(fd, len); }

static int log_syncs;

static int counts(int fd) {
  switch (mode) {
    case FAILS: return what_of(fd) != WAL || log_syncs < FAILING_SYNC;
    case NEVER: return 0;
    case NOWAL: return what_of(fd) != WAL;
    case NODIR: return what_of(fd) != DIRECTORY;
    default: return 1;
  }
}

/* A sync covers what was written before it was asked for, and counts once it has returned. */
static int sync_any(int fd, int (*real)(int)) {
  static int late_fd = -1;
  static uint64_t late_before;
  if (what_of(fd) == UNKNOWN || what_of(fd) == SHM) return real(fd);
  pthread_mutex_lock(&mutex);
  uint64_t before = logged;
  int late = mode == LATE && what_of(fd) == WAL;
  if (mode == EARLY && what_of(fd) == WAL) committed = 1;
  if (late && late_fd >= 0) put(SYNC, late_fd, late_before, "", 0);
  if (late) late_fd = fd, late_before = before;
  int fails = mode == FAILS && what_of(fd) == WAL && ++log_syncs == FAILING_SYNC;
  pthread_mutex_unlock(&mutex);
  int outcome = fails ? -1 : real(fd);
  if (fails) errno = EIO;
  if (outcome != 0 || late || !counts(fd)) return outcome;
  pthread_mutex_lock(&mutex);
  put(SYNC, fd, before, "", 0);
  pthread_mutex_unlock(&mutex);
  return outcome;
}

int fsync(int fd) { find_all(); return sync_any(fd, real_fsync); }
int fdatasync(int fd) { find_all(); return sync_any(fd, real_fdatasync); }

int rename(const char *from, const char *to) {
  find_all();
  if (!is_below(from) && !is_below(to)) return real_rename(from, to);
  char both[2 * PATH_MAX];
  int len = snprintf(both, sizeof both, "%s%c%s", from, '\n', to);
  pthread_mutex_lock(&mutex);
  int outcome = real_rename(from, to);
  if (outcome == 0) put(RENAME, -1, 0, both, (size_t)len);
  pthread_mutex_unlock(&mutex);
  return outcome;
}

int unlink(const char *path) {
  find_all();
  if (!is_below(path)) return real_unlink(path);
  pthread_mutex_lock(&mutex);
  int outcome = real_unlink(path);
  if (outcome == 0) put(UNLINK, -1, 0, path, strlen(path));
  pthread_mutex_unlock(&mutex);
  return outcome;
}

int mkdir(const char *path, mode_t permissions) {
  find_all();
  if (!is_below(path)) return real_mkdir(path, permissions);
  pthread_mutex_lock(&mutex);
  int outcome = real_mkdir(path, permissions);
  if (outcome == 0) put(MAKE_DIR, -1, 0, path, strlen(path));
  pthread_mutex_unlock(&mutex);
  return outcome;
}

static void *mmap_any(void *at, size_t len, int access, int flags, int fd, off_t from) {
  find_all();
  enum what what = what_of(fd);
  if ((what == PLAIN || what == WAL) && flags & MAP_SHARED && access & PROT_WRITE)
    die("a writable map is not recorded");
  return real_mmap(at, len, access, flags, fd, from);
}

void *mmap(void *at, size_t len, int access, int flags, int fd, off_t from) {
  return mmap_any(at, len, access, flags, fd, from);
}
void *mmap64(void *at, size_t len, int access, int flags, int fd, off_t from) {
  return mmap_any(at, len, access, flags, fd, from);
}
