// A small host engine with its own blocks and block tables, for the functions over the caller's
// memory.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test {

using Compute = Handle<pkv_compute, pkv_compute_destroy>;

inline pkv_compute_config compute_config() { return made<pkv_compute_config>(); }

inline Compute make_compute(const pkv_compute_config& config) {
  pkv_compute compute;
  CHECK(pkv_compute_create(&config, &compute));
  return Compute(compute);
}

inline Compute make_compute(uint32_t threads, pkv_isa isa = PKV_ISA_AUTO) {
  return make_compute(made<pkv_compute_config>({.threads = threads, .isa = isa}));
}

// K and V of one layer in the host's memory, which is filled with 0xEE at first.
class HostMemory {
 public:
  HostMemory(const Model& model, pkv_layout layout, uint32_t block_size, uint64_t blocks) {
    view.struct_size = sizeof view;
    view.layout = layout;
    view.block_size = block_size;
    view.kv_heads = model.kv_heads;
    view.key_dim = model.key_dim;
    view.value_dim = model.value_dim;
    view.dtype = model.dtype;
    view.value_dtype = model.value_dtype;
    view.rotation = model.rotation;
    view.rotation_matrices = model.rotation_matrices;
    view.blocks = blocks;
    view.latent = model.latent() ? 1 : 0;
    uint64_t size = 0;
    CHECK(pkv_kv_view_init(&view, &size));
    bytes.assign(size, 0xEE);
    view.k = bytes.data();
    CHECK(pkv_kv_view_init(&view, &size));
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  pkv_kv_view view{};
  std::vector<unsigned char> bytes;
};

// Sequences on blocks in no order.
class HostSequences {
 public:
  // lengths: the length of each sequence, including its new rows.
  HostSequences(const HostMemory& memory, uint32_t query_heads, std::vector<uint32_t> new_rows,
                std::vector<uint64_t> lengths, Random& random)
      : rows(std::move(new_rows)), kv_lengths(std::move(lengths)) {
    const uint32_t block_size = memory.view.block_size;
    std::vector<uint32_t> ids(memory.view.blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    for (size_t i = ids.size(); i > 1; i--) std::swap(ids[i - 1], ids[random.below(i)]);
    const uint64_t longest = *std::max_element(kv_lengths.begin(), kv_lengths.end());
    stride = (longest + block_size - 1) / block_size;
    tables.assign(stride * rows.size(), UINT32_MAX);
    size_t next = 0;
    for (size_t s = 0; s < rows.size(); s++)
      for (uint64_t b = 0; b * block_size < kv_lengths[s]; b++)
        tables[s * stride + b] = ids.at(next++);
    block_size_ = block_size;
    query_heads_ = query_heads;
  }

  pkv_kv_sequences get() const { return sequences_of(query_heads_, rows, kv_lengths, tables); }

  int64_t slot(size_t sequence, uint64_t position) const {
    return int64_t{tables[sequence * stride + position / block_size_]} * block_size_ +
           static_cast<int64_t>(position % block_size_);
  }

  uint32_t total_rows() const { return std::accumulate(rows.begin(), rows.end(), 0u); }

  std::vector<uint32_t> rows;
  std::vector<uint64_t> kv_lengths;
  std::vector<uint32_t> tables;
  size_t stride = 0;

 private:
  uint32_t block_size_ = 0, query_heads_ = 0;
};

}  // namespace cache_test
