// How a new file replaces an old one: it is written without a name or under a locked random name,
// and gets its real name by link or rename when it is complete.
#include "base/file_replacement.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace pkv::os {

namespace {

constexpr uint32_t private_mode = 0600;  // prompts and answers are private
constexpr std::string_view name_prefix = ".pagedkv-", name_suffix = ".tmp";
constexpr size_t name_digits = 16;

uint64_t random_number(const std::string& path) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    fail_io("no random number for", path, errno);
  return number;
}

std::string random_name(const std::string& path) {
  char text[40];
  std::snprintf(text, sizeof text, ".pagedkv-%016llx.tmp", llu(random_number(path)));
  return text;
}

// The path under which this process can name its open file.
std::string proc_link(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether proc_link() leads to the file: in a chroot, /proc may be missing or be anything.
bool has_proc_link(int descriptor) {
  struct stat file, linked;
  return fstat(descriptor, &file) == 0 && stat(proc_link(descriptor).c_str(), &linked) == 0 &&
         is_same(file, linked);
}

// Takes an exclusive lock without waiting; returns false if another process has a lock. On a file
// system without locks this succeeds: remove_orphan() gets no lock there either, so it removes
// nothing.
bool lock_exclusively(int descriptor) {
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace

// ---- Temporary files ----------------------------------------------------------------------------

bool is_temporary_name(const char* name) {
  const std::string_view whole = name;
  if (whole.size() != name_prefix.size() + name_digits + name_suffix.size()) return false;
  return whole.starts_with(name_prefix) && whole.ends_with(name_suffix) &&
         whole.substr(name_prefix.size(), name_digits).find_first_not_of("0123456789abcdef") ==
             whole.npos;
}

bool remove_orphan(int directory, const char* name) {
  if (!is_temporary_name(name)) return false;
  struct stat found, opened;
  const auto is_own = [&] {
    return fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode) &&
           found.st_uid == geteuid() && found.st_nlink == 1;
  };
  if (!is_own()) return false;
  const int descriptor = retry_on_eintr([&] {
    return openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  if (descriptor < 0) return false;
  const File file(descriptor, true, name);
  // A writer keeps its lock while the file has this name. So if the lock is free and the name is
  // still there, the writer has ended.
  return flock(descriptor, LOCK_SH | LOCK_NB) == 0 && fstat(descriptor, &opened) == 0 && is_own() &&
         is_same(found, opened) && unlinkat(directory, name, 0) == 0;
}

TemporaryFile::TemporaryFile(const File& directory, std::string path)
    : directory_(directory), path_(std::move(path)), file_(create()) {}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) unlinkat(directory_.descriptor(), name_.c_str(), 0);
}

File TemporaryFile::create() {
  if (std::optional<File> unnamed = create_unnamed()) return std::move(*unnamed);
  for (;;)
    if (std::optional<File> named = create_named()) return std::move(*named);
}

std::optional<File> TemporaryFile::create_unnamed() const {
  const int descriptor = retry_on_eintr([&] {
    return openat(directory_.descriptor(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, private_mode);
  });
  if (descriptor < 0) return std::nullopt;
  File file(descriptor, true, path_);
  if (!has_proc_link(descriptor) || !lock_exclusively(descriptor)) return std::nullopt;
  return file;
}

// Creates the file under a random name. Returns nothing if the name is taken, or if another process
// took the new file for an orphan before it was locked.
std::optional<File> TemporaryFile::create_named() {
  std::string name = random_name(path_);
  const int descriptor = retry_on_eintr([&] {
    return openat(directory_.descriptor(), name.c_str(),
                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, private_mode);
  });
  if (descriptor < 0 && errno == EEXIST) return std::nullopt;
  if (descriptor < 0) fail_io("cannot create a file beside", path_, errno);
  const auto remove = [&] { unlinkat(directory_.descriptor(), name.c_str(), 0); };
  std::optional<File> file;
  try {
    file.emplace(descriptor, true, path_);
  } catch (...) {  // no memory for the path
    remove();
    throw;
  }
  struct stat status;
  const bool locked = lock_exclusively(descriptor);
  if (locked && fstat(descriptor, &status) == 0 && status.st_nlink > 0) {
    name_ = std::move(name);
    return file;
  }
  remove();
  return std::nullopt;
}

// Gives the unnamed file a name; returns false if the name is taken.
bool TemporaryFile::link_as(const std::string& name) const {
  if (linkat(AT_FDCWD, proc_link(file_.descriptor()).c_str(), directory_.descriptor(), name.c_str(),
             AT_SYMLINK_FOLLOW) == 0)
    return true;
  if (errno != EEXIST) fail_io("cannot name a file beside", path_, errno);
  return false;
}

void TemporaryFile::publish(const std::string& name) {
  if (name_.empty() && link_as(name)) return;
  while (name_.empty()) {
    std::string temporary = random_name(path_);
    if (link_as(temporary)) name_ = std::move(temporary);
  }
  const int directory = directory_.descriptor();
  if (renameat(directory, name_.c_str(), directory, name.c_str()) != 0)
    fail_io("cannot replace", path_, errno);
  name_.clear();
}

// ---- Replacement --------------------------------------------------------------------------------

namespace {

// Removes the temporary files that killed processes left in a directory. In a directory with many
// names only one save in 64 does this, so that most saves do not pay for unrelated files.
void remove_orphans(const File& directory) {
  constexpr size_t max_names = 1024, full_scan_interval = 64;
  size_t seen = 0;
  for_each_name(directory.descriptor(), [&](const char* name) {
    remove_orphan(directory.descriptor(), name);
    return ++seen != max_names || random_number(directory.name()) % full_scan_interval == 0;
  });
}

// Whether a file has, or may have, an access control list. The group bits of its mode are then a
// mask and not the group's rights.
bool has_acl(int directory, const std::string& name) {
  const std::string path = proc_link(directory) + '/' + name;
  return lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) >= 0 ||
         (errno != ENODATA && errno != ENOTSUP);
}

}  // namespace

uint32_t mode_to_keep(const struct stat& directory, const struct stat& old) {
  const uid_t self = geteuid();
  const bool others_write = (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0,
             sticky = (directory.st_mode & S_ISVTX) != 0;
  const bool names_are_trusted =
      (directory.st_uid == self || directory.st_uid == 0) && (!others_write || sticky);
  return names_are_trusted && old.st_uid == self && old.st_nlink == 1 ? old.st_mode & 0777
                                                                      : private_mode;
}

FileReplacement::Target FileReplacement::find(const char* path) {
  const std::string whole = path;
  const size_t slash = whole.rfind('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : whole.substr(0, slash);
  const int descriptor =
      retry_on_eintr([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail_io("cannot open the directory of", whole, errno);
  File opened(descriptor, true, directory);
  Target target{whole, slash == std::string::npos ? whole : whole.substr(slash + 1),
                std::move(opened), private_mode, 0};
  if (target.name.empty() || target.name == "." || target.name == "..")
    fail_io("cannot replace", whole, EISDIR);
  struct stat old, around;
  if (fstatat(descriptor, target.name.c_str(), &old, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_io("cannot look at", whole, errno);
    return target;
  }
  check_regular(old, "cannot replace", whole);
  if (fstat(descriptor, &around) != 0) fail_io("cannot look at", directory, errno);
  target.mode = mode_to_keep(around, old);
  target.group = old.st_gid;
  if ((target.mode & 077) != 0 && has_acl(descriptor, target.name)) target.mode &= 0700;
  return target;
}

FileReplacement::FileReplacement(const char* path, bool durable)
    : durable_(durable), target_(find(path)), temporary_(target_.directory, target_.path) {
  remove_orphans(target_.directory);
}

FileReplacement::FileReplacement(File directory, std::string name, bool durable)
    : durable_(durable),
      target_{directory.name() + '/' + name, std::move(name), std::move(directory), private_mode,
              0},
      temporary_(target_.directory, target_.path) {}

// Keeps the rights of group and others only if the new file can get the old file's group, for which
// they were meant.
void FileReplacement::set_mode() {
  if (target_.mode == private_mode) return;
  const int file = temporary_.file().descriptor();
  if ((target_.mode & 077) != 0) {
    struct stat now;
    if (fstat(file, &now) != 0) fail_io("cannot look at", target_.path, errno);
    if (now.st_gid != target_.group && fchown(file, static_cast<uid_t>(-1), target_.group) != 0)
      target_.mode &= 0700;
  }
  if (retry_on_eintr([&] { return fchmod(file, target_.mode); }) < 0)
    fail_io("cannot set the mode of", target_.path, errno);
}

void FileReplacement::commit() {
  set_mode();
  if (durable_) temporary_.file().sync();
  temporary_.publish(target_.name);
  if (durable_) target_.directory.sync();
}

}  // namespace pkv::os
