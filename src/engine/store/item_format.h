// How a store keeps the blocks of one cache. Each full block of a layer group is an item, with a
// key (block_keys.h) and a value: its tokens, K and V, protected by a checksum or encrypted.
// FORMAT.md describes the bytes. All values of a group have the same size.
#pragma once

#include <pagedkv/store.h>

#include "engine/cache/cache.h"
#include "engine/store/block_keys.h"

namespace pkv::store {

pkv_store_item item_of(const ContentKey& key, void* data = nullptr, uint64_t size = 0);

class ItemFormat {
 public:
  // The config must have been checked and have the size of this build. Throws UNSUPPORTED, OVERFLOW
  // or bad_alloc.
  ItemFormat(Cache& cache, const pkv_store_config& config);
  ~ItemFormat();
  ItemFormat(const ItemFormat&) = delete;
  ItemFormat& operator=(const ItemFormat&) = delete;

  Cache& cache() const { return cache_; }
  size_t groups() const { return cache_.groups().size(); }
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }
  uint32_t block_size() const { return cache_.config().block_size; }
  uint64_t value_bytes(size_t g) const { return value_bytes_[g]; }
  uint64_t position_bytes() const { return position_bytes_; }  // of all groups together
  // How many block positions are written or read in one call of the store.
  size_t batch_positions() const { return batch_positions_; }

  // Returns the keys of block positions [from, to) of a text, by position, then group.
  std::vector<ContentKey> keys(std::string_view salt, prefix::Tokens text, uint64_t from,
                               uint64_t to) const;

  // The value of one block of group g: that of this position of a text and of its table.
  // pack() writes it, except what seal() adds and the bytes of an opaque block.
  void pack(size_t g, const memory::BlockTable& table, prefix::Tokens text, size_t position,
            const ContentKey& key, unsigned char* to) const;
  // Encrypts a packed value in place, or adds a checksum without a secret. Throws bad_alloc.
  void seal(size_t g, const ContentKey& key, unsigned char* value) const;
  // Checks a value and decrypts it in place. Returns false if these are not the bytes that were
  // written for this key and these tokens. Throws bad_alloc.
  bool open(size_t g, prefix::Tokens text, size_t position, const ContentKey& key,
            std::span<unsigned char> value) const;
  // Returns where the bytes of an opaque block are in a value.
  unsigned char* opaque_bytes(size_t g, unsigned char* value) const;
  // Copies K and V of an opened value into the block; not of an opaque group.
  void load(size_t g, const memory::BlockTable& table, size_t position,
            const unsigned char* value) const;

 private:
  prefix::Tokens tokens_at(prefix::Tokens text, size_t position) const {
    return text.subspan(position * block_size(), block_size());
  }

  Cache& cache_;
  const Secret secret_;
  ContentKey model_;  // also secret: with it, the keys of texts can be computed
  std::vector<uint64_t> value_bytes_;
  uint64_t position_bytes_ = 0;
  size_t batch_positions_ = 1;
};

}  // namespace pkv::store
