// A directory of files as a store, one for each item, under its key: path/0f/f3a0....kv. Several
// processes may use it: a file appears whole or not at all, and what one deletes is a miss for the
// others.
//
// The directory is opened once, and what is below it is reached from there by name, through no
// symbolic link. It and its shards (path/0f) must belong to the user who opens it and be writable
// by nobody else. Below it only what the store itself makes is read, counted and deleted: shards,
// in them regular files of that user under the names of items, and temporary files
// (base/file_replacement.h).
#pragma once

#include <pagedkv/store.h>
#include <sys/stat.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"

namespace pkv::tier {

class DirectoryStore {
 public:
  // Also removes the temporary files of writers that have ended. Throws IO.
  DirectoryStore(const char* path, uint64_t capacity, bool durable);

  // As the functions of pkv_store; a negative errno only where nothing worked.
  int64_t put(std::span<const pkv_store_item> items);
  int64_t get(std::span<pkv_store_item> items);
  int64_t probe(std::span<pkv_store_item> items);
  int64_t drop(std::span<const pkv_store_item> items);

 private:
  // Where an item is: "0f" and "f3a0....kv".
  struct Place {
    explicit Place(const unsigned char (&key)[32]);
    Place(const char* in_shard, const char* file) : shard(in_shard), name(file) {}
    std::string shard, name;
  };
  struct Entry {
    Place place;
    timespec used;
    uint64_t bytes;
  };
  struct Listing {
    std::vector<Entry> items;
    uint64_t bytes = 0;  // of items, and of temporary files that are being written
    bool complete = false;
  };

  os::File open_root(const char* path) const;
  int open_shard(const char* name) const;
  os::File open_shard_to_write(const std::string& name) const;
  bool is_own_file(const struct stat& status) const;
  std::optional<struct stat> item_at(int shard, const char* name) const;
  std::optional<struct stat> item_at(const Place& place) const;
  void put_one(const pkv_store_item& item);
  uint64_t get_one(const pkv_store_item& item) const;
  bool remove(const Place& place) const;
  bool for_each_file(
      const std::function<void(int shard, const char* shard_name, const char* name)>& visit) const;
  void remove_orphans() const;
  Listing list() const;
  void make_room();

  const uid_t owner_;
  const uint64_t capacity_;
  const bool durable_;
  const os::File root_;
  std::atomic<uint64_t> bytes_{0};  // of all files, as far as this process knows
  std::mutex cleaning_;
};

// The table of one of its own, which close() deletes. Throws IO, bad_alloc.
pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable);

}  // namespace pkv::tier
