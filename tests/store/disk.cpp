// Defines both names of each call, whichever the library was compiled to use.
#undef _FILE_OFFSET_BITS
#include "disk.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <map>
#include <utility>

namespace disk {

thread_local std::function<Fault(const char* call)> before;
thread_local int error = EIO;
thread_local bool no_unnamed_files = false;
thread_local const char* stat_instead = nullptr;
thread_local bool room_is_for_root = false;
thread_local bool room_is_not_told = false;
thread_local std::vector<Operation>* journal = nullptr;

namespace {

thread_local std::map<int, int> file_of;  // Maps a descriptor to its file of the journal.

Fault ask(const char* call) {
  if (!before) return Fault::none;
  // Calls made by the handler itself are not intercepted.
  const auto asked = std::exchange(before, nullptr);
  const Fault fault = asked(call);
  before = asked;
  return fault;
}

// Returns true if the call must fail, with errno set.
bool fails(Fault fault) {
  if (fault == Fault::fails) errno = error;
  if (fault == Fault::interrupted) errno = EINTR;
  return fault == Fault::fails || fault == Fault::interrupted;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Makes a call that only needs to fail on demand; it then returns FAILED.
#define MAY_FAIL(name, failed, ...)                        \
  static const auto call = real<decltype(&::name)>(#name); \
  return fails(ask(plain_name(#name).c_str())) ? failed : call(__VA_ARGS__)

std::string plain_name(const std::string& name) {
  return name.ends_with("64") ? name.substr(0, name.size() - 2) : name;
}

// Takes memory only if there is a journal.
void note(Operation::Kind kind, int file, const char* name = "", const char* target = "",
          const void* from = nullptr, size_t n = 0) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  if (journal != nullptr) journal->push_back({kind, file, {bytes, bytes + n}, name, target});
}

int opened(int directory, const char* path, int flags, mode_t mode) {
  static const auto call = real<int (*)(int, const char*, int, ...)>("openat");
  if (fails(ask("open"))) return -1;
  const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  if (unnamed && no_unnamed_files) {
    errno = EOPNOTSUPP;
    return -1;
  }
  const int descriptor = call(directory, path, flags, mode);
  if (descriptor >= 0 && journal != nullptr && (unnamed || (flags & O_CREAT) != 0)) {
    int count = 0;
    for (const Operation& operation : *journal) count += operation.kind == Operation::create;
    file_of[descriptor] = count;
    note(Operation::create, count, unnamed ? "" : path);
  } else {
    file_of.erase(descriptor);
  }
  return descriptor;
}

const char* seen(const char* path) { return stat_instead != nullptr ? stat_instead : path; }

// Changes how much room a device reports.
template <class Status>
int changed(int result, Status* status) {
  if (result == 0 && room_is_for_root) status->f_bavail = 0;
  if (result == 0 && room_is_not_told) status->f_blocks = status->f_bfree = status->f_bavail = 0;
  return result;
}

// Returns the argument after the flags, which is there only if they create a file.
mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(rest, int)) : 0;
}

}  // namespace
}  // namespace disk

using namespace disk;

#pragma GCC visibility push(default)
extern "C" {

int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(directory, path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened(AT_FDCWD, path, flags, mode);
}

ssize_t read(int descriptor, void* to, size_t n) {
  static const auto call = real<ssize_t (*)(int, void*, size_t)>("read");
  const Fault fault = ask("read");
  if (fails(fault)) return -1;
  return call(descriptor, to, fault == Fault::short_count && n > 1 ? n / 2 : n);
}

ssize_t write(int descriptor, const void* from, size_t n) {
  static const auto call = real<ssize_t (*)(int, const void*, size_t)>("write");
  const Fault fault = ask("write");
  if (fails(fault)) return -1;
  if (fault == Fault::nothing) return 0;
  const ssize_t done = call(descriptor, from, fault == Fault::short_count && n > 1 ? n / 2 : n);
  const auto file = file_of.find(descriptor);
  if (done > 0 && file != file_of.end())
    note(Operation::write, file->second, "", "", from, static_cast<size_t>(done));
  return done;
}

int posix_fallocate(int descriptor, off_t offset, off_t size) {
  static const auto call = real<int (*)(int, off_t, off_t)>("posix_fallocate");
  return fails(ask("posix_fallocate")) ? errno : call(descriptor, offset, size);
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) {
  static const auto call = real<int (*)(int, off64_t, off64_t)>("posix_fallocate64");
  return fails(ask("posix_fallocate")) ? errno : call(descriptor, offset, size);
}

int fstatvfs(int descriptor, struct statvfs* status) noexcept {
  static const auto call = real<decltype(&::fstatvfs)>("fstatvfs");
  return fails(ask("fstatvfs")) ? -1 : changed(call(descriptor, status), status);
}
int fstatvfs64(int descriptor, struct statvfs64* status) noexcept {
  static const auto call = real<decltype(&::fstatvfs64)>("fstatvfs64");
  return fails(ask("fstatvfs")) ? -1 : changed(call(descriptor, status), status);
}

// Memory without a file is not intercepted.
void* mmap(void* at, size_t size, int rights, int flags, int file, off_t offset) noexcept {
  static const auto call = real<decltype(&::mmap)>("mmap");
  if (file >= 0 && fails(ask("mmap"))) return MAP_FAILED;
  return call(at, size, rights, flags, file, offset);
}
void* mmap64(void* at, size_t size, int rights, int flags, int file, off64_t offset) noexcept {
  static const auto call = real<decltype(&::mmap64)>("mmap64");
  if (file >= 0 && fails(ask("mmap"))) return MAP_FAILED;
  return call(at, size, rights, flags, file, offset);
}

int fsync(int descriptor) {
  static const auto call = real<int (*)(int)>("fsync");
  if (fails(ask("fsync"))) return -1;
  const auto file = file_of.find(descriptor);
  if (file != file_of.end())
    note(Operation::sync_file, file->second);
  else
    note(Operation::sync_directory, -1);
  return call(descriptor);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  static const auto call = real<int (*)(int, const char*, int, const char*, int)>("linkat");
  if (fails(ask("linkat"))) return -1;
  const int result = call(from_directory, from, to_directory, to, flags);
  if (result == 0 && !file_of.empty()) note(Operation::link, file_of.rbegin()->second, to);
  return result;
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  static const auto call = real<int (*)(int, const char*, int, const char*)>("renameat");
  if (fails(ask("renameat"))) return -1;
  const int result = call(from_directory, from, to_directory, to);
  if (result == 0) note(Operation::rename, -1, from, to);
  return result;
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  MAY_FAIL(unlinkat, -1, directory, name, flags);
}
int mkdirat(int directory, const char* name, mode_t mode) noexcept {
  MAY_FAIL(mkdirat, -1, directory, name, mode);
}
int fstatat(int directory, const char* name, struct stat* status, int flags) noexcept {
  MAY_FAIL(fstatat, -1, directory, name, status, flags);
}
int fstatat64(int directory, const char* name, struct stat64* status, int flags) noexcept {
  MAY_FAIL(fstatat64, -1, directory, name, status, flags);
}
int stat(const char* path, struct stat* status) noexcept { MAY_FAIL(stat, -1, seen(path), status); }
int stat64(const char* path, struct stat64* status) noexcept {
  MAY_FAIL(stat64, -1, seen(path), status);
}
int lstat(const char* path, struct stat* status) noexcept { MAY_FAIL(lstat, -1, path, status); }
int lstat64(const char* path, struct stat64* status) noexcept {
  MAY_FAIL(lstat64, -1, path, status);
}
int fstat(int descriptor, struct stat* status) noexcept { MAY_FAIL(fstat, -1, descriptor, status); }
int fstat64(int descriptor, struct stat64* status) noexcept {
  MAY_FAIL(fstat64, -1, descriptor, status);
}
off_t lseek(int descriptor, off_t offset, int from) noexcept {
  MAY_FAIL(lseek, -1, descriptor, offset, from);
}
off64_t lseek64(int descriptor, off64_t offset, int from) noexcept {
  MAY_FAIL(lseek64, -1, descriptor, offset, from);
}
DIR* fdopendir(int descriptor) { MAY_FAIL(fdopendir, nullptr, descriptor); }
struct dirent* readdir(DIR* names) { MAY_FAIL(readdir, nullptr, names); }
struct dirent64* readdir64(DIR* names) { MAY_FAIL(readdir64, nullptr, names); }
ssize_t getrandom(void* to, size_t n, unsigned flags) { MAY_FAIL(getrandom, -1, to, n, flags); }
ssize_t lgetxattr(const char* path, const char* name, void* to, size_t n) noexcept {
  MAY_FAIL(lgetxattr, -1, path, name, to, n);
}
int flock(int descriptor, int operation) noexcept { MAY_FAIL(flock, -1, descriptor, operation); }
int fchmod(int descriptor, mode_t mode) noexcept { MAY_FAIL(fchmod, -1, descriptor, mode); }
}
#pragma GCC visibility pop
