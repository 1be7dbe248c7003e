// A temporary file is written without a name or under a locked random name, and gets its real name
// by link or rename when it is complete.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/posix.h"
#include "base/temporary_file.h"

namespace pkv::os {

namespace {

constexpr uint32_t private_mode = 0600;  // prompts and answers are private

// Takes an exclusive lock without waiting; returns false if another process has a lock. On a file
// system without locks this succeeds: remove_orphan() gets no lock there either, so it removes
// nothing.
bool lock_exclusively(int descriptor) {
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace

bool remove_orphan(const Directory& in, const char* name) {
  const int directory = in.descriptor();
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
  const File file(descriptor, File::Owner::object, name);
  // A writer keeps its lock while the file has this name. So if the lock is free and the name is
  // still there, the writer has ended.
  return flock(descriptor, LOCK_SH | LOCK_NB) == 0 && fstat(descriptor, &opened) == 0 && is_own() &&
         is_same(found, opened) && unlinkat(directory, name, 0) == 0;
}

TemporaryFile::TemporaryFile(const Directory& directory, std::string path)
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
  const int descriptor =
      retry_on_eintr([&] { return open_unnamed(directory_.descriptor(), private_mode); });
  if (descriptor < 0) return std::nullopt;
  File file(descriptor, File::Owner::object, path_);
  if (!lock_exclusively(descriptor)) return std::nullopt;
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
    file.emplace(descriptor, File::Owner::object, path_);
    if (remove_hidden_rights(descriptor) != 0)
      fail_io("cannot remove the access list of a file beside", path_, errno);
  } catch (...) {  // also if there is no memory for the path
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
  if (link_unnamed(file_.descriptor(), directory_.descriptor(), name.c_str()) == 0) return true;
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

// ---- Rights -------------------------------------------------------------------------------------

namespace {

// See rights_to_keep().
uint32_t mode_to_keep(const struct stat& directory, bool hidden_rights, const struct stat& old) {
  const uid_t self = geteuid();
  const bool others_write = (directory.st_mode & (S_IWGRP | S_IWOTH)) != 0,
             sticky = (directory.st_mode & S_ISVTX) != 0;
  const bool names_are_trusted = (directory.st_uid == self || directory.st_uid == 0) &&
                                 (!others_write || sticky) && !hidden_rights;
  return names_are_trusted && old.st_uid == self && old.st_nlink == 1 ? old.st_mode & 0777
                                                                      : private_mode;
}

}  // namespace

Rights private_rights() { return {private_mode, 0}; }

Rights rights_to_keep(const Directory& directory, const std::string& name,
                      const std::string& path) {
  struct stat old, around;
  if (fstatat(directory.descriptor(), name.c_str(), &old, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_io("cannot look at", path, errno);
    return private_rights();
  }
  check_regular(old, "cannot replace", path);
  if (fstat(directory.descriptor(), &around) != 0)
    fail_io("cannot look at", directory.path(), errno);
  Rights kept{mode_to_keep(around, has_hidden_rights(directory.descriptor()), old), old.st_gid};
  if ((kept.mode & 077) != 0 && has_acl(directory.descriptor(), name.c_str())) kept.mode &= 0700;
  return kept;
}

void set_rights(const File& file, Rights rights, const std::string& path) {
  if (rights.mode == private_mode) return;
  if ((rights.mode & 077) != 0) {
    struct stat now;
    if (fstat(file.descriptor(), &now) != 0) fail_io("cannot look at", path, errno);
    if (now.st_gid != rights.group &&
        fchown(file.descriptor(), static_cast<uid_t>(-1), rights.group) != 0)
      rights.mode &= 0700;
  }
  if (retry_on_eintr([&] { return fchmod(file.descriptor(), static_cast<mode_t>(rights.mode)); }) <
      0)
    fail_io("cannot set the mode of", path, errno);
}

}  // namespace pkv::os
