// Keeps items as files below a directory, and deletes the least recently used when it is full.
#include "engine/store/directory_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file_replacement.h"
#include "base/guarded.h"
#include "base/status.h"

namespace pkv::store {

namespace {

// When the store is full, files are deleted down to this fraction of its capacity, so that the
// directory need not be listed again for each new file.
constexpr double kept_fraction = 0.9;
// After that part of it the directory is listed in any case, in parts of the capacity: other
// processes may have begun to put more.
constexpr uint64_t listings_per_capacity = 16;
constexpr std::chrono::nanoseconds pause_in_vain = std::chrono::minutes(1);

int64_t steady_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The sentence of the last put on this thread that failed.
thread_local char last_error[sizeof Error::text] = "";

bool is_full_disk(int error) {
#ifdef EDQUOT  // Windows has none
  if (error == EDQUOT) return true;
#endif
  return error == ENOSPC;
}
constexpr std::string_view digits = "0123456789abcdef", suffix = ".kv";
constexpr size_t shard_digits = 2, name_digits = 62;

bool is_number(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of(digits) == text.npos;
}

bool is_shard_name(std::string_view name) { return is_number(name, shard_digits); }

bool is_item_name(std::string_view name) {
  return name.ends_with(suffix) &&
         is_number(name.substr(0, name.size() - suffix.size()), name_digits);
}

// Returns whether an errno of find_own() means that the name is no shard of this store, or no
// longer.
bool is_not_ours(int error) {
  return error == EPERM || error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES;
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

// Visits all files in the shards. Returns false if one of the store's own directories could not be
// read.
bool DirectoryStore::for_each_file(
    const std::function<void(const os::Directory& shard, const char* shard_name, const char* name)>&
        visit) const {
  bool complete = true;
  const bool read = root_.for_each_name([&](const char* shard_name) {
    if (!is_shard_name(shard_name)) return true;
    int error = 0;
    const std::optional<os::Directory> shard = root_.find_own(shard_name, &error);
    const bool whole = shard ? shard->for_each_name([&](const char* name) {
      return visit(*shard, shard_name, name), true;
    })
                             : is_not_ours(error);
    complete = complete && whole;
    return true;
  });
  return read && complete;
}

// ---- Items --------------------------------------------------------------------------------------

DirectoryStore::DirectoryStore(const char* path, uint64_t capacity, bool durable)
    : capacity_(capacity), durable_(durable), root_(os::Directory::open_own(path, durable)) {
  if (capacity_ != 0) evict(capacity_);
  if (capacity_ == 0) remove_orphans();
}

void DirectoryStore::put_one(const pkv_store_item& item) {
  const ItemPath path(item.name);
  os::Directory shard = root_.find_or_make_own(path.shard, durable_);
  shard.check_replaceable(path.name);
  os::FileReplacement replacement(std::move(shard), path.name, durable_);
  replacement.file().write(item.data, static_cast<size_t>(item.size));
  replacement.file().touch(time_of_use());
  replacement.commit();
  put_ += item.size;
}

// Returns 0 or an errno.
int DirectoryStore::try_to_put(const pkv_store_item& item) {
  try {
    put_one(item);
    return 0;
  } catch (const Error& refused) {
    std::snprintf(last_error, sizeof last_error, "%s", refused.text);
    return refused.system_error;
  }
}

// Deletes the oldest items and tries once more. If that did not help, somebody else takes the room,
// or it was not the files that filled the disk: then it deletes nothing for a while.
int DirectoryStore::put_on_full_disk(const pkv_store_item& item, int error) {
  if (steady_now() < in_vain_until_) return error;
  evict(std::nullopt);
  error = try_to_put(item);
  if (is_full_disk(error)) in_vain_until_ = steady_now() + pause_in_vain.count();
  return error;
}

int64_t DirectoryStore::put(std::span<pkv_store_item> items) {
  int64_t stored = 0;
  int error = 0;
  last_error[0] = '\0';
  for (pkv_store_item& item : items) {
    // After another error, others would fail for the same reason.
    if (error == 0 || error == EPERM) {
      error = try_to_put(item);
      if (is_full_disk(error)) error = put_on_full_disk(item, error);
    }
    stored += error == 0;
    if (error != 0) item.size = 0;
  }
  if (capacity_ != 0 && is_full()) evict(capacity_);
  return stored > 0 || items.empty() ? stored : -error;
}

// Returns the time for a file that is used now. It is later than all before, so that files that are
// used within one tick of the system's clock keep their order.
std::chrono::nanoseconds DirectoryStore::time_of_use() noexcept {
  using namespace std::chrono;
  const nanoseconds now = system_clock::now().time_since_epoch();
  nanoseconds last = last_use_, next;
  do next = std::max(now, last + microseconds(1));
  while (!last_use_.compare_exchange_weak(last, next));
  return next;
}

// Marks an item as used and copies `room` bytes of it. Returns its size; 0 if there is none.
uint64_t DirectoryStore::use(const pkv_store_item& item, uint64_t room) {
  const ItemPath path(item.name);
  const std::optional<os::Directory> shard = root_.find_own(path.shard.c_str());
  if (!shard) return 0;
  std::optional<os::File> file = shard->open_file(path.name.c_str());
  if (!file) return 0;
  const uint64_t size = file->remaining().value_or(0);
  file->read(item.data, static_cast<size_t>(std::min(room, size)));
  file->touch(time_of_use());  // if that fails, it is only evicted earlier
  return size;
}

int64_t DirectoryStore::get(std::span<pkv_store_item> items) { return use_all(items, true); }

int64_t DirectoryStore::touch(std::span<pkv_store_item> items) { return use_all(items, false); }

// Sets the sizes of items; 0 for a miss, such as an item that cannot be read.
int64_t DirectoryStore::use_all(std::span<pkv_store_item> items, bool read) {
  int64_t found = 0;
  for (pkv_store_item& item : items) {
    try {
      item.size = use(item, read ? item.size : 0);
    } catch (const Error&) {
      item.size = 0;
    }
    found += item.size != 0;
  }
  return found;
}

std::optional<os::Directory::Status> DirectoryStore::item_at(const ItemPath& path) const {
  const std::optional<os::Directory> shard = root_.find_own(path.shard.c_str());
  return shard ? shard->find_file(path.name.c_str()) : std::nullopt;
}

int64_t DirectoryStore::remove(std::span<const pkv_store_item> items) {
  int64_t removed = 0;
  for (const pkv_store_item& item : items) removed += remove_file(ItemPath(item.name));
  return removed;
}

// Removes an item. Returns false if there was none.
bool DirectoryStore::remove_file(const ItemPath& path) const {
  const std::optional<os::Directory> shard = root_.find_own(path.shard.c_str());
  return shard && shard->remove_file(path.name.c_str());
}

// ---- Capacity -----------------------------------------------------------------------------------

void DirectoryStore::remove_orphans() const {
  for_each_file([](const os::Directory& shard, const char*, const char* name) {
    os::remove_orphan(shard, name);
  });
}

// Lists all files of the store except those that vanish meanwhile, and removes orphaned temporary
// files on the way.
DirectoryStore::Listing DirectoryStore::list() const {
  Listing listing;
  listing.complete =
      for_each_file([&](const os::Directory& shard, const char* shard_name, const char* name) {
        const bool item = is_item_name(name);
        if (!item && (!os::is_temporary_name(name) || os::remove_orphan(shard, name))) return;
        const std::optional<os::Directory::Status> status = shard.find_file(name);
        if (!status) return;
        listing.bytes += status->bytes;
        if (item) listing.items.push_back({{shard_name, name}, status->changed, status->bytes});
      });
  return listing;
}

// Whether the files may have more bytes than the capacity, with what other processes put.
bool DirectoryStore::is_full() const {
  const uint64_t put = put_;
  const double estimate = static_cast<double>(listed_) + static_cast<double>(put) * (1 + others_);
  return estimate > static_cast<double>(capacity_) || put > capacity_ / listings_per_capacity;
}

// Deletes the least recently used items if all files have more bytes than the limit; without one, a
// part of what there is. Lists the directory each time, since other processes write to it and
// delete from it, too.
void DirectoryStore::evict(std::optional<uint64_t> limit) {
  const std::unique_lock lock(eviction_mutex_, std::try_to_lock);
  if (!lock) return;
  const uint64_t put = put_;
  Listing listing = list();
  if (const uint64_t expected = listed_ + put; put > 0) {
    const uint64_t more = listing.bytes > expected ? listing.bytes - expected : 0;
    // What another process deleted meanwhile hides what it put.
    others_ = std::max(static_cast<double>(more) / static_cast<double>(put), others_ / 2);
  }
  const uint64_t most = limit.value_or(listing.bytes);
  if (listing.bytes > most || !limit) {
    const auto kept = static_cast<uint64_t>(kept_fraction * static_cast<double>(most));
    std::ranges::sort(listing.items, {}, &ItemFile::last_use);
    for (const ItemFile& entry : listing.items) {
      if (listing.bytes <= kept) break;
      if (remove_file(entry.path) || !item_at(entry.path)) listing.bytes -= entry.bytes;
    }
  }
  if (!listing.complete) return;
  listed_ = listing.bytes;
  put_ -= put;
}

namespace {

DirectoryStore& store_of(void* user) { return *static_cast<DirectoryStore*>(user); }

}  // namespace

pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable) {
  auto made = std::make_unique<DirectoryStore>(path, capacity, durable);
  pkv_store store{};
  store.struct_size = sizeof store;
  store.put = [](void* user, size_t n, pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).put({items, n}); });
  };
  store.get = [](void* user, size_t n, pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).get({items, n}); });
  };
  store.touch = [](void* user, size_t n, pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).touch({items, n}); });
  };
  store.remove = [](void* user, size_t n, const pkv_store_item* items) {
    return guarded_call([&] { return store_of(user).remove({items, n}); });
  };
  store.close = guarded_close<DirectoryStore>;
  store.last_error = [](void*) -> const char* { return last_error; };
  store.user = made.release();
  return store;
}

}  // namespace pkv::store
