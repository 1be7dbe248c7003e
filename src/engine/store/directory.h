// A directory of files as a store, one for each item, under its key: path/0f/f3a0....kv. Several processes may use it: a file appears whole or not
// at all, and what one deletes is a miss for the others.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <mutex>
#include <span>
#include <string>

namespace pkv {

class DirectoryStore {
 public:
  // Throws IO.
  DirectoryStore(const char* path, uint64_t capacity, bool durable);

  // As the functions of pkv_store; a negative errno only where nothing worked.
  int64_t put(std::span<const pkv_store_item> items);
  int64_t get(std::span<pkv_store_item> items);
  int64_t probe(std::span<pkv_store_item> items);
  int64_t drop(std::span<const pkv_store_item> items);

 private:
  std::string file_of(const pkv_store_item& item) const;
  void make_room();

  const std::string path_;
  const uint64_t capacity_;
  const bool durable_;
  std::atomic<uint64_t> bytes_{0};  // of all files, as far as this process knows
  std::mutex cleaning_;
};

// The table of one of its own, which close() deletes. Throws IO, bad_alloc.
pkv_store open_directory_store(const char* path, uint64_t capacity, bool durable);

}  // namespace pkv
