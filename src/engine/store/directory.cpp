// Keeps items as files below a directory, and deletes the least recently used when it is full.
#include "engine/store/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "base/boundary.h"
#include "base/file_replacement.h"
#include "base/status.h"

namespace pkv::store {

using os::fail_io;
using os::retry_on_eintr;

namespace {

// Only the user may read prompts and answers.
constexpr mode_t private_mode = 0700;
// When the store is full, files are deleted down to this fraction of its capacity, so that the
// directory need not be listed again for each new file.
constexpr double kept_fraction = 0.9;
constexpr std::string_view digits = "0123456789abcdef", suffix = ".kv";
constexpr size_t shard_digits = 2, name_digits = 62;
constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

bool is_number(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of(digits) == text.npos;
}

bool is_shard_name(std::string_view name) { return is_number(name, shard_digits); }

bool is_item_name(std::string_view name) {
  return name.ends_with(suffix) &&
         is_number(name.substr(0, name.size() - suffix.size()), name_digits);
}

bool others_write(const struct stat& status) { return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

// Returns whether an errno of open_shard() means that the name is no shard of this store, or no
// longer.
bool is_not_ours(int error) {
  return error == EPERM || error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES;
}

// Removes slashes at the end: O_NOFOLLOW has no effect on a path that ends in one.
std::string without_slashes(const char* path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  return name;
}

void sync_directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == path.npos ? "." : path.substr(0, slash + 1);
  const int descriptor =
      retry_on_eintr([&] { return open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail_io("cannot open", parent, errno);
  os::File(descriptor, true, parent).sync();
}

// Throws IO if others could put files into the directory, which the store would take for its own.
void check_root(const struct stat& status, uid_t owner, const std::string& path) {
  char sentence[100];
  if (status.st_uid != owner) {
    std::snprintf(sentence, sizeof sentence,
                  "user %u cannot use the directory of user %u as a store:", unsigned{owner},
                  unsigned{status.st_uid});
    fail_io(sentence, path, EPERM);
  }
  if (others_write(status)) {
    std::snprintf(sentence, sizeof sentence,
                  "other users may write to the directory of a store (mode %04o):",
                  unsigned{status.st_mode & 07777});
    fail_io(sentence, path, EPERM);
  }
}

}  // namespace

// ---- Files --------------------------------------------------------------------------------------

DirectoryStore::ItemPath::ItemPath(const unsigned char (&key)[32]) {
  for (const unsigned char byte : key) {
    std::string& part = shard.size() < shard_digits ? shard : name;
    part += digits[byte >> 4];
    part += digits[byte & 15];
  }
  name += suffix;
}

os::File DirectoryStore::open_root(const char* path) const {
  const std::string name = without_slashes(path);
  const bool is_new = mkdir(name.c_str(), private_mode) == 0;
  // Parent directories are not made: if a volume is not mounted, the store would end up elsewhere.
  if (!is_new && errno == ENOENT)
    fail_io("the parent of a store's directory does not exist:", name, ENOENT);
  if (!is_new && errno != EEXIST) fail_io("cannot make the directory", name, errno);
  struct stat status;
  const int descriptor = retry_on_eintr([&] { return open(name.c_str(), directory_flags); });
  if (descriptor < 0) {
    const int error = errno;
    if (lstat(name.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
      fail_io("a symbolic link is not followed to a store:", name, ELOOP);
    fail_io("cannot use as a store:", name, error);
  }
  os::File root(descriptor, true, name);
  if (fstat(descriptor, &status) != 0) fail_io("cannot look at", name, errno);
  check_root(status, owner_, name);
  if (faccessat(descriptor, ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0)
    fail_io("cannot write to", name, errno);
  if (is_new && durable_) sync_directory_of(name);
  return root;
}

// Returns a descriptor, or a negative errno if the shard does not exist or is not the store's own.
int DirectoryStore::open_shard(const char* name) const {
  const int descriptor =
      retry_on_eintr([&] { return openat(root_.descriptor(), name, directory_flags); });
  if (descriptor < 0) return -errno;
  struct stat status;
  const bool own =
      fstat(descriptor, &status) == 0 && status.st_uid == owner_ && !others_write(status);
  if (own) return descriptor;
  close(descriptor);
  return -EPERM;
}

// Opens a shard, and makes it if it does not exist. Throws IO.
os::File DirectoryStore::open_shard_to_write(const std::string& name) const {
  const std::string path = root_.name() + '/' + name;
  int descriptor = open_shard(name.c_str());
  if (descriptor == -ENOENT) {
    const bool is_new = mkdirat(root_.descriptor(), name.c_str(), private_mode) == 0;
    if (!is_new && errno != EEXIST) fail_io("cannot make the directory", path, errno);
    if (is_new && durable_) root_.sync();
    descriptor = open_shard(name.c_str());
  }
  if (descriptor < 0) fail_io("cannot use", path, -descriptor);
  return os::File(descriptor, true, path);
}

// Returns whether a file is one of the store's own: a regular file of its owner.
bool DirectoryStore::is_own_file(const struct stat& status) const {
  return S_ISREG(status.st_mode) && status.st_uid == owner_;
}

// Returns the status of an item, or nullopt if the store does not have it.
std::optional<struct stat> DirectoryStore::item_at(int shard, const char* name) const {
  struct stat status;
  if (fstatat(shard, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  if (!is_own_file(status)) return std::nullopt;
  return status;
}

// Visits all files in the shards. Returns false if one of the store's own directories could not be
// read.
bool DirectoryStore::for_each_file(
    const std::function<void(int shard, const char* shard_name, const char* name)>& visit) const {
  bool complete = true;
  const bool read = os::for_each_name(root_.descriptor(), [&](const char* shard_name) {
    if (!is_shard_name(shard_name)) return true;
    const int descriptor = open_shard(shard_name);
    if (descriptor < 0) {
      complete = complete && is_not_ours(-descriptor);
      return true;
    }
    const os::File shard(descriptor, true, shard_name);
    const bool whole = os::for_each_name(
        descriptor, [&](const char* name) { return visit(descriptor, shard_name, name), true; });
    complete = complete && whole;
    return true;
  });
  return read && complete;
}

// ---- Items --------------------------------------------------------------------------------------

DirectoryStore::DirectoryStore(const char* path, uint64_t capacity, bool durable)
    : owner_(geteuid()), capacity_(capacity), durable_(durable), root_(open_root(path)) {
  if (capacity_ != 0) make_room();
  if (capacity_ == 0) remove_orphans();
}

void DirectoryStore::put_one(const pkv_store_item& item) {
  const ItemPath path(item.name);
  os::File shard = open_shard_to_write(path.shard);
  struct stat status;  // from one call, since another process may remove the item at any time
  const bool exists =
      fstatat(shard.descriptor(), path.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (exists && !is_own_file(status))
    fail_io("not a file of the store's owner:", shard.name() + '/' + path.name, EPERM);
  os::FileReplacement replacement(std::move(shard), path.name, durable_);
  replacement.file().write(item.data, static_cast<size_t>(item.size));
  replacement.commit();
  bytes_ += item.size;
}

int64_t DirectoryStore::put(std::span<const pkv_store_item> items) {
  int64_t stored = 0;
  int error = 0;
  for (const pkv_store_item& item : items) {
    try {
      put_one(item);
      stored++;
    } catch (const Error& refused) {
      error = refused.system_error;
      if (error != EPERM) break;  // other items would fail for the same reason
    }
  }
  if (capacity_ != 0 && bytes_ > capacity_) make_room();
  return stored > 0 || items.empty() ? stored : -error;
}

// Returns the size of an item, of which it copies as much as fits; 0 if there is none.
uint64_t DirectoryStore::get_one(const pkv_store_item& item) const {
  const ItemPath path(item.name);
  const int directory = open_shard(path.shard.c_str());
  if (directory < 0) return 0;
  const os::File shard(directory, true, path.shard);
  if (!item_at(directory, path.name.c_str())) return 0;
  const int descriptor = retry_on_eintr([&] {
    return openat(directory, path.name.c_str(),
                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  });
  if (descriptor < 0) return 0;
  os::File file(descriptor, true, path.name);
  const uint64_t size = file.remaining().value_or(0);
  file.read(item.data, static_cast<size_t>(std::min(item.size, size)));
  futimens(descriptor, nullptr);  // marks it as used; if that fails, it is only evicted earlier
  return size;
}

int64_t DirectoryStore::get(std::span<pkv_store_item> items) {
  int64_t found = 0;
  for (pkv_store_item& item : items) {
    try {
      item.size = get_one(item);
    } catch (const Error&) {
      item.size = 0;  // an item that cannot be read is a miss
    }
    found += item.size != 0;
  }
  return found;
}

int64_t DirectoryStore::probe(std::span<pkv_store_item> items) {
  int64_t found = 0;
  for (pkv_store_item& item : items) {
    const std::optional<struct stat> status = item_at(ItemPath(item.name));
    item.size = status ? static_cast<uint64_t>(status->st_size) : 0;
    found += item.size != 0;
  }
  return found;
}

std::optional<struct stat> DirectoryStore::item_at(const ItemPath& path) const {
  const int descriptor = open_shard(path.shard.c_str());
  if (descriptor < 0) return std::nullopt;
  const os::File shard(descriptor, true, path.shard);
  return item_at(descriptor, path.name.c_str());
}

int64_t DirectoryStore::drop(std::span<const pkv_store_item> items) {
  int64_t dropped = 0;
  for (const pkv_store_item& item : items) dropped += remove(ItemPath(item.name));
  return dropped;
}

// Removes an item. Returns false if there was none.
bool DirectoryStore::remove(const ItemPath& path) const {
  const int descriptor = open_shard(path.shard.c_str());
  if (descriptor < 0) return false;
  const os::File shard(descriptor, true, path.shard);
  return item_at(descriptor, path.name.c_str()) && unlinkat(descriptor, path.name.c_str(), 0) == 0;
}

// ---- Capacity -----------------------------------------------------------------------------------

void DirectoryStore::remove_orphans() const {
  for_each_file([](int shard, const char*, const char* name) { os::remove_orphan(shard, name); });
}

// Lists all files of the store except those that vanish meanwhile, and removes orphaned temporary
// files on the way.
DirectoryStore::Listing DirectoryStore::list() const {
  Listing listing;
  listing.complete = for_each_file([&](int shard, const char* shard_name, const char* name) {
    const bool item = is_item_name(name);
    if (!item && (!os::is_temporary_name(name) || os::remove_orphan(shard, name))) return;
    const std::optional<struct stat> status = item_at(shard, name);
    if (!status) return;
    const uint64_t bytes = static_cast<uint64_t>(status->st_size);
    listing.bytes += bytes;
    if (item) listing.items.push_back({{shard_name, name}, status->st_mtim, bytes});
  });
  return listing;
}

// Deletes the least recently used items. Lists the directory each time, since other processes write
// to it and delete from it, too.
void DirectoryStore::make_room() {
  const std::unique_lock lock(make_room_mutex_, std::try_to_lock);
  if (!lock) return;
  Listing listing = list();
  if (listing.bytes > capacity_) {
    const auto kept = static_cast<uint64_t>(kept_fraction * static_cast<double>(capacity_));
    std::sort(listing.items.begin(), listing.items.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.last_use.tv_sec, a.last_use.tv_nsec) <
             std::pair(b.last_use.tv_sec, b.last_use.tv_nsec);
    });
    for (const Entry& entry : listing.items) {
      if (listing.bytes <= kept) break;
      if (remove(entry.path) || !item_at(entry.path)) listing.bytes -= entry.bytes;
    }
  }
  if (listing.complete) bytes_ = listing.bytes;
}

namespace {

DirectoryStore& store_of(void* user) { return *static_cast<DirectoryStore*>(user); }

}  // namespace

pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable) {
  auto made = std::make_unique<DirectoryStore>(path, capacity, durable);
  pkv_store store{};
  store.struct_size = sizeof store;
  store.put = [](void* user, size_t n, const pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).put({items, n}); });
  };
  store.get = [](void* user, size_t n, pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).get({items, n}); });
  };
  store.probe = [](void* user, size_t n, pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).probe({items, n}); });
  };
  store.drop = [](void* user, size_t n, const pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).drop({items, n}); });
  };
  store.close = guarded_close<DirectoryStore>;
  store.user = made.release();
  return store;
}

}  // namespace pkv::store
