// A store that keeps each item in a file of one directory, under its key: path/0f/f3a0....kv.
// Several processes may use it at once: a file appears complete or not at all, and an item that one
// process deletes is a miss for the others. The time of a file's last change is that of its last
// use.
//
// For security, the directory is opened once, and everything below it is opened relative to it and
// without following symbolic links. The directory and its shards (path/0f) must belong to the user
// who opens the store, and nobody else may be able to write to them. The store reads, counts and
// deletes only what it made itself: shards, and in them regular files of that user that have the
// name of an item or of a temporary file (base/temporary_file.h).
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/directory.h"

namespace pkv::store {

class DirectoryStore {
 public:
  // Opens the directory, or makes it, and removes temporary files of processes that have ended.
  // capacity: bytes, 0 for no limit. durable: files survive a crash of the system. Throws IO.
  DirectoryStore(const char* path, uint64_t capacity, bool durable);

  // These are the functions of pkv_store. They return a negative errno only if nothing succeeded.
  // If the disk or a quota is full, put() deletes the least recently used items and tries once
  // more.
  int64_t put(std::span<pkv_store_item> items);
  int64_t get(std::span<pkv_store_item> items);
  int64_t touch(std::span<pkv_store_item> items);
  int64_t remove(std::span<const pkv_store_item> items);

 private:
  // The path of an item: "0f" and "f3a0....kv".
  struct ItemPath {
    explicit ItemPath(const unsigned char (&key)[32]);
    ItemPath(const char* in_shard, const char* file) : shard(in_shard), name(file) {}
    std::string shard, name;
  };
  struct ItemFile {
    ItemPath path;
    std::chrono::nanoseconds last_use;
    uint64_t bytes;
  };
  struct Listing {
    std::vector<ItemFile> items;
    uint64_t bytes = 0;     // of items, and of temporary files whose writers live
    bool complete = false;  // all of the store's own directories could be read
  };

  std::optional<os::Directory::Status> item_at(const ItemPath& path) const;
  void put_one(const pkv_store_item& item);
  int try_to_put(const pkv_store_item& item);
  int put_on_full_disk(const pkv_store_item& item, int error);
  uint64_t use(const pkv_store_item& item, uint64_t room);
  int64_t use_all(std::span<pkv_store_item> items, bool read);
  std::chrono::nanoseconds time_of_use() noexcept;
  bool remove_file(const ItemPath& path) const;
  bool for_each_file(const std::function<void(const os::Directory& shard, const char* shard_name,
                                              const char* name)>& visit) const;
  void remove_orphans() const;
  Listing list() const;
  bool is_full() const;
  void evict(std::optional<uint64_t> limit);

  const uint64_t capacity_;
  const bool durable_;
  const os::Directory root_;
  // The bytes of all files when they were listed last, and those that this object put since. Other
  // processes put this multiple of them, as far as the last listings show.
  std::atomic<uint64_t> listed_{0}, put_{0};
  std::atomic<double> others_{0};
  std::atomic<int64_t> in_vain_until_{0};             // see put_on_full_disk(); nanoseconds
  std::atomic<std::chrono::nanoseconds> last_use_{};  // since 1970
  std::mutex eviction_mutex_;
};

// Makes a DirectoryStore and the pkv_store that calls it and whose close() deletes it. Throws IO or
// bad_alloc.
pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable);

}  // namespace pkv::store
