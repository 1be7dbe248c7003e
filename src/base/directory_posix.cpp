// Directories by descriptors, which are opened without following links.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "base/directory.h"
#include "base/posix.h"

namespace pkv::os {

namespace {

// Only the user may read prompts and answers.
constexpr mode_t private_folder = 0700;
constexpr int own_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

bool others_write(const struct stat& status) { return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

// Removes slashes at the end: O_NOFOLLOW has no effect on a path that ends in one.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == path.npos ? "." : path.substr(0, slash + 1);
  Directory::open(parent, Links::follow, "cannot open", parent).sync();
}

// Throws IO if others could put files into the directory, which the store would take for its own.
void check_own(const struct stat& status, int descriptor, uid_t owner, const std::string& path) {
  char sentence[100];
  if (status.st_uid != owner) {
    std::snprintf(sentence, sizeof sentence,
                  "user %u cannot use the directory of user %u as a store:", unsigned{owner},
                  unsigned{status.st_uid});
    fail_io(sentence, path, EPERM);
  }
  const bool hidden_rights = has_hidden_rights(descriptor);
  if (others_write(status) || hidden_rights) {
    std::snprintf(sentence, sizeof sentence,
                  "other users may write to the directory of a store (mode %04o%s):",
                  static_cast<unsigned>(status.st_mode & 07777),
                  hidden_rights ? " and an access list" : "");
    fail_io(sentence, path, EPERM);
  }
}

bool is_own_file(const struct stat& status, uid_t owner) {
  return S_ISREG(status.st_mode) && status.st_uid == owner;
}

}  // namespace

const char path_separators[] = "/";

Directory Directory::open(const std::string& path, Links links, const char* what,
                          const std::string& shown_path) {
  const std::string name = links == Links::follow ? path : without_slashes(path);
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (links == Links::follow ? 0 : O_NOFOLLOW);
  const int descriptor = retry_on_eintr([&] { return ::open(name.c_str(), flags); });
  if (descriptor < 0) fail_io(what, shown_path, errno);
  return Directory(File(descriptor, File::Owner::object, name), geteuid());
}

Directory Directory::open_own(const char* path, bool durable) {
  const std::string name = without_slashes(path);
  const bool is_new = mkdir(name.c_str(), private_folder) == 0;
  // Parent directories are not made: if a volume is not mounted, the store would end up elsewhere.
  if (!is_new && errno == ENOENT)
    fail_io("the parent of a store's directory does not exist:", name, ENOENT);
  if (!is_new && errno != EEXIST) fail_io("cannot make the directory", name, errno);
  struct stat status;
  const int descriptor = retry_on_eintr([&] { return ::open(name.c_str(), own_flags); });
  if (descriptor < 0) {
    const int error = errno;
    if (lstat(name.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
      fail_io("a symbolic link is not followed to a store:", name, ELOOP);
    fail_io("cannot use as a store:", name, error);
  }
  Directory found(File(descriptor, File::Owner::object, name), geteuid());
  if (fstat(descriptor, &status) != 0) fail_io("cannot look at", name, errno);
  check_own(status, descriptor, found.owner_, name);
  if (faccessat(descriptor, ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0)
    fail_io("cannot write to", name, errno);
  if (is_new && durable) sync_directory_of(name);
  return found;
}

std::optional<Directory> Directory::find_own(const char* name, int* error) const {
  int ignored;
  int& reason = error != nullptr ? *error : ignored;
  const std::string whole = path() + '/' + name;
  const int at = retry_on_eintr([&] { return openat(descriptor(), name, own_flags); });
  if (at < 0) return reason = errno, std::nullopt;
  File file(at, File::Owner::object, whole);
  struct stat status;
  if (fstat(at, &status) == 0 && status.st_uid == owner_ && !others_write(status) &&
      !has_hidden_rights(at))
    return Directory(std::move(file), owner_);
  return reason = EPERM, std::nullopt;
}

Directory Directory::find_or_make_own(const std::string& name, bool durable) const {
  const std::string whole = path() + '/' + name;
  int error = 0;
  if (std::optional<Directory> found = find_own(name.c_str(), &error)) return std::move(*found);
  if (error == ENOENT) {
    const bool is_new = mkdirat(descriptor(), name.c_str(), private_folder) == 0;
    if (!is_new && errno != EEXIST) fail_io("cannot make the directory", whole, errno);
    if (is_new && durable) sync();
    if (std::optional<Directory> made = find_own(name.c_str(), &error)) return std::move(*made);
  }
  fail_io("cannot use", whole, error);
}

void Directory::sync() const { file_.sync(); }

bool Directory::for_each_name(const std::function<bool(const char*)>& visit) const {
  // A new descriptor, because readdir() moves the position that duplicates of a descriptor share.
  const int own = retry_on_eintr([&] { return openat(descriptor(), ".", own_flags); });
  if (own < 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> names(fdopendir(own), closedir);
  if (names == nullptr) {
    close(own);
    return false;
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(names.get());
    if (entry == nullptr) return errno == 0;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && !visit(entry->d_name)) return true;
  }
}

std::optional<Directory::Status> Directory::find_file(const char* name) const {
  struct stat status;
  if (fstatat(descriptor(), name, &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!is_own_file(status, owner_)) return std::nullopt;
  return Status{static_cast<uint64_t>(status.st_size), change_time(status)};
}

std::optional<File> Directory::open_file(const char* name) const {
  if (!find_file(name)) return std::nullopt;
  const int opened = retry_on_eintr([&] {
    return openat(descriptor(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  if (opened < 0) return std::nullopt;
  return File(opened, File::Owner::object, name);
}

bool Directory::remove_file(const char* name) const {
  return find_file(name) && unlinkat(descriptor(), name, 0) == 0;
}

void Directory::check_replaceable(const std::string& name) const {
  struct stat status;  // from one call, since another process may remove the file at any time
  const bool exists = fstatat(descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (exists && !is_own_file(status, owner_))
    fail_io("not a file of the store's owner:", path() + '/' + name, EPERM);
}

}  // namespace pkv::os
