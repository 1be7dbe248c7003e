#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/retry_on_eintr.h"
#include "base/status.h"

namespace pkv::os {

namespace {

constexpr uint32_t private_mode = 0600;  // what a model was told is nobody else's business
constexpr std::string_view name_begin = ".pagedkv-", name_end = ".tmp";
constexpr size_t name_digits = 16;

uint64_t random_number(const std::string& path) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    fail_io("no random number for", path, errno);
  return number;
}

std::string random_name(const std::string& path) {
  char text[40];
  std::snprintf(text, sizeof text, ".pagedkv-%016llx.tmp", (unsigned long long)random_number(path));
  return text;
}

std::string own_link(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether a file can be named through /proc, which may be missing or be anything in a changed root.
bool has_own_link(int descriptor) {
  struct stat file, linked;
  return fstat(descriptor, &file) == 0 && stat(own_link(descriptor).c_str(), &linked) == 0 &&
         is_same(file, linked);
}

// Takes a lock without waiting. False: somebody else has it. A file system without locks gives none
// to anybody, so that nothing is removed there.
bool lock_alone(int descriptor) {
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace

bool for_each_name(int directory, const std::function<bool(const char*)>& visit) {
  // A descriptor of its own, since readdir moves the place in the directory.
  const int descriptor = retry_on_eintr(
      [&] { return openat(directory, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (descriptor < 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> names(fdopendir(descriptor), closedir);
  if (names == nullptr) {
    close(descriptor);
    return false;
  }
  while (const dirent* const entry = readdir(names.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && !visit(entry->d_name)) break;
  }
  return true;
}

// ---- Temporary files ----------------------------------------------------------------------------

bool is_temporary_name(const char* name) {
  const std::string_view whole = name;
  if (whole.size() != name_begin.size() + name_digits + name_end.size()) return false;
  return whole.starts_with(name_begin) && whole.ends_with(name_end) &&
         whole.substr(name_begin.size(), name_digits).find_first_not_of("0123456789abcdef") ==
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
  // Who has this lock while the file still has the name, meets a writer that will never come back.
  return flock(descriptor, LOCK_SH | LOCK_NB) == 0 && fstat(descriptor, &opened) == 0 && is_own() &&
         is_same(found, opened) && unlinkat(directory, name, 0) == 0;
}

Temporary::Temporary(const File& directory, std::string path)
    : directory_(directory), path_(std::move(path)), file_(create()) {}

Temporary::~Temporary() {
  if (!name_.empty()) unlinkat(directory_.descriptor(), name_.c_str(), 0);
}

File Temporary::create() {
  if (std::optional<File> unnamed = create_unnamed()) return std::move(*unnamed);
  for (;;)
    if (std::optional<File> named = create_named()) return std::move(*named);
}

std::optional<File> Temporary::create_unnamed() const {
  const int descriptor = retry_on_eintr([&] {
    return openat(directory_.descriptor(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, private_mode);
  });
  if (descriptor < 0) return std::nullopt;
  File file(descriptor, true, path_);
  if (!has_own_link(descriptor) || !lock_alone(descriptor)) return std::nullopt;
  return file;
}

// Nothing where the name is taken, or somebody took the new file for an orphan before it was
// locked.
std::optional<File> Temporary::create_named() {
  const std::string name = random_name(path_);
  const int descriptor = retry_on_eintr([&] {
    return openat(directory_.descriptor(), name.c_str(),
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, private_mode);
  });
  if (descriptor < 0 && errno == EEXIST) return std::nullopt;
  if (descriptor < 0) fail_io("cannot create a file beside", path_, errno);
  File file(descriptor, true, path_);
  struct stat status;
  const bool locked = lock_alone(descriptor);
  if (locked && fstat(descriptor, &status) == 0 && status.st_nlink > 0) {
    name_ = name;
    return file;
  }
  unlinkat(directory_.descriptor(), name.c_str(), 0);
  return std::nullopt;
}

// False: something has that name.
bool Temporary::link_as(const std::string& name) const {
  if (linkat(AT_FDCWD, own_link(file_.descriptor()).c_str(), directory_.descriptor(), name.c_str(),
             AT_SYMLINK_FOLLOW) == 0)
    return true;
  if (errno != EEXIST) fail_io("cannot name a file beside", path_, errno);
  return false;
}

void Temporary::publish(const std::string& name) {
  if (name_.empty() && link_as(name)) return;
  while (name_.empty()) {
    const std::string temporary = random_name(path_);
    if (link_as(temporary)) name_ = temporary;
  }
  const int directory = directory_.descriptor();
  if (renameat(directory, name_.c_str(), directory, name.c_str()) != 0)
    fail_io("cannot replace", path_, errno);
  name_.clear();
}

// ---- Replacement --------------------------------------------------------------------------------

namespace {

// Removes the temporary files that killed processes left in a directory. In a large directory only
// one save in many looks at all names, so that what a save costs does not grow with the files
// beside it.
void remove_orphans(const File& directory) {
  constexpr size_t few = 1024, one_in = 64;
  size_t seen = 0;
  for_each_name(directory.descriptor(), [&](const char* name) {
    remove_orphan(directory.descriptor(), name);
    return ++seen != few || random_number(directory.name()) % one_in == 0;
  });
}

// Whether a file has, or may have, an access control list: then the group's bits of its mode are a
// mask.
bool has_acl(int directory, const std::string& name) {
  const std::string path = own_link(directory) + '/' + name;
  return lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) >= 0 ||
         (errno != ENODATA && errno != ENOTSUP);
}

}  // namespace

uint32_t mode_to_keep(const struct stat& directory, const struct stat& old) {
  const uid_t self = geteuid();
  const bool others_write = (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0,
             sticky = (directory.st_mode & S_ISVTX) != 0;
  const bool names_are_his =
      (directory.st_uid == self || directory.st_uid == 0) && (!others_write || sticky);
  return names_are_his && old.st_uid == self && old.st_nlink == 1 ? old.st_mode & 0777
                                                                  : private_mode;
}

Replacement::Target Replacement::find(const char* path) {
  const std::string whole = path;
  const size_t slash = whole.rfind('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : whole.substr(0, slash);
  const int descriptor =
      retry_on_eintr([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail_io("cannot open the directory of", whole, errno);
  Target target{whole, slash == std::string::npos ? whole : whole.substr(slash + 1),
                File(descriptor, true, directory), private_mode, 0};
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

Replacement::Replacement(const char* path, bool durable)
    : durable_(durable), target_(find(path)), temporary_(target_.directory, target_.path) {
  remove_orphans(target_.directory);
}

Replacement::Replacement(File directory, std::string name, bool durable)
    : durable_(durable),
      target_{directory.name() + '/' + name, std::move(name), std::move(directory), private_mode,
              0},
      temporary_(target_.directory, target_.path) {}

// The bits for group and others are kept together with the group that they were meant for, or not
// at all.
void Replacement::set_mode() {
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

void Replacement::commit() {
  set_mode();
  if (durable_) temporary_.file().sync();
  temporary_.publish(target_.name);
  if (durable_) target_.directory.sync();
}

}  // namespace pkv::os
