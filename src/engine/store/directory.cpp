#include "engine/store/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/files.h"
#include "base/status.h"

namespace pkv {

namespace {

constexpr mode_t private_mode = 0700;  // what a model was told is nobody else's business
constexpr double kept_share = 0.9;     // of the capacity when files are deleted, so that it is not looked at for each new one

void make_directory(const std::string& path) {
  if (mkdir(path.c_str(), private_mode) == 0 || errno == EEXIST) return;
  os::fail_io("cannot make the directory", path, errno);
}

struct Entry {
  std::filesystem::path path;
  std::filesystem::file_time_type used;
  uint64_t bytes;
};

// All items; what goes away meanwhile is left out.
std::vector<Entry> list(const std::string& path) {
  std::vector<Entry> entries;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(path, std::filesystem::directory_options::skip_permission_denied, error), end; at != end && !error;
       at.increment(error)) {
    if (at->path().extension() != ".kv") continue;
    std::error_code gone;
    Entry entry{at->path(), at->last_write_time(gone), 0};
    if (!gone) entry.bytes = at->file_size(gone);
    if (!gone) entries.push_back(std::move(entry));
  }
  return entries;
}

uint64_t total(const std::vector<Entry>& entries) {
  uint64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  return bytes;
}

}  // namespace

DirectoryStore::DirectoryStore(const char* path, uint64_t capacity, bool durable) : path_(path), capacity_(capacity), durable_(durable) {
  make_directory(path_);
  struct stat status;
  if (stat(path, &status) != 0) os::fail_io("cannot look at", path, errno);
  if (!S_ISDIR(status.st_mode)) os::fail_io("cannot use", path, ENOTDIR);
  if (access(path, R_OK | W_OK | X_OK) != 0) os::fail_io("cannot write to", path, errno);
  if (capacity_ != 0) bytes_ = total(list(path_));
}

std::string DirectoryStore::file_of(const pkv_store_item& item) const {
  constexpr char digits[] = "0123456789abcdef";
  std::string name;
  for (const unsigned char byte : item.key) {
    if (name.size() == 2) name += '/';
    name += digits[byte >> 4];
    name += digits[byte & 15];
  }
  return path_ + '/' + name + ".kv";
}

int64_t DirectoryStore::put(std::span<const pkv_store_item> items) {
  int64_t stored = 0;
  int error = 0;
  for (const pkv_store_item& item : items) {
    const std::string path = file_of(item);
    try {
      make_directory(path.substr(0, path_.size() + 3));
      os::Replacement replacement(path.c_str(), durable_);
      replacement.file().write(item.data, static_cast<size_t>(item.size));
      replacement.commit();
      bytes_ += item.size;
      stored++;
    } catch (const Error&) {
      error = errno != 0 ? errno : EIO;
      break;  // what is full now is full for the next one
    }
  }
  if (capacity_ != 0 && bytes_ > capacity_) make_room();
  return stored > 0 || items.empty() ? stored : -error;
}

int64_t DirectoryStore::get(std::span<pkv_store_item> items) {
  int64_t found = 0;
  for (pkv_store_item& item : items) {
    const uint64_t room = item.size;
    item.size = 0;
    try {
      os::File file = os::open_to_read(file_of(item).c_str());
      const uint64_t size = file.left().value_or(0);
      file.read(item.data, static_cast<size_t>(std::min(room, size)));
      futimens(file.descriptor(), nullptr);  // used now; where that is not allowed it is merely older
      item.size = size;
      found++;
    } catch (const Error&) {
      // Gone, or never there.
    }
  }
  return found;
}

int64_t DirectoryStore::probe(std::span<pkv_store_item> items) {
  int64_t found = 0;
  for (pkv_store_item& item : items) {
    struct stat status;
    const bool there = lstat(file_of(item).c_str(), &status) == 0 && S_ISREG(status.st_mode);
    item.size = there ? static_cast<uint64_t>(status.st_size) : 0;
    found += there;
  }
  return found;
}

int64_t DirectoryStore::drop(std::span<const pkv_store_item> items) {
  int64_t dropped = 0;
  for (const pkv_store_item& item : items) dropped += unlink(file_of(item).c_str()) == 0;
  return dropped;
}

// The oldest go. Looked up each time, since other processes write and delete, too.
void DirectoryStore::make_room() {
  const std::unique_lock lock(cleaning_, std::try_to_lock);
  if (!lock) return;
  std::vector<Entry> entries = list(path_);
  uint64_t bytes = total(entries);
  const auto kept = static_cast<uint64_t>(kept_share * static_cast<double>(capacity_));
  if (bytes > capacity_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
      if (bytes <= kept) break;
      if (unlink(entry.path.c_str()) == 0 || errno == ENOENT) bytes -= entry.bytes;
    }
  }
  bytes_ = bytes;
}

namespace {

template <class Work>
int64_t guarded_call(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (...) {
    return -EIO;
  }
}

DirectoryStore& store_of(void* user) { return *static_cast<DirectoryStore*>(user); }

}  // namespace

pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable) {
  auto made = std::make_unique<DirectoryStore>(path, capacity, durable);
  pkv_store store{};
  store.struct_size = sizeof store;
  store.put = [](void* user, size_t n, const pkv_store_item* items) { return guarded_call([&] { return store_of(user).put({items, n}); }); };
  store.get = [](void* user, size_t n, pkv_store_item* items) { return guarded_call([&] { return store_of(user).get({items, n}); }); };
  store.probe = [](void* user, size_t n, pkv_store_item* items) { return guarded_call([&] { return store_of(user).probe({items, n}); }); };
  store.drop = [](void* user, size_t n, const pkv_store_item* items) { return guarded_call([&] { return store_of(user).drop({items, n}); }); };
  store.close = [](void* user) { delete static_cast<DirectoryStore*>(user); };
  store.user = made.release();
  return store;
}

}  // namespace pkv
