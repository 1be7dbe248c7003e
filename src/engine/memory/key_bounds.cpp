// Computes the bounds of blocks, once per generation.
#include "engine/memory/key_bounds.h"

#include <bit>
#include <limits>

#include "base/checked.h"

namespace pkv::memory {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

uint64_t bytes_of_bounds(const Shape& shape, uint64_t blocks) {
  const uint64_t dims = checked_mul(checked_mul(shape.layers, shape.kv_heads, "bounds of keys"),
                                    2 * uint64_t{shape.key_dim}, "bounds of keys");
  return checked_mul(checked_mul(dims, sizeof(uint16_t), "bounds of keys"), blocks,
                     "bounds of keys");
}

// Neither 0 nor what another generation has. Generations are below 2^32.
constexpr uint64_t computed(Block block) { return (uint64_t{block_generation(block)} + 1) * 2; }
constexpr uint64_t computing(Block block) { return computed(block) + 1; }

// The nearest bf16 away from 0 or, of those that are no bf16, towards 0.
uint16_t away_from_zero(float x) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0xFFFFu) >> 16);
}
uint16_t towards_zero(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

uint16_t round_up(float x) { return x >= 0 ? away_from_zero(x) : towards_zero(x); }
uint16_t round_down(float x) { return x <= 0 ? away_from_zero(x) : towards_zero(x); }

// Writes the bounds of `tokens` keys. A dim with a NaN has no bounds, so that its block is chosen.
void write_bounds(const float* keys, uint32_t tokens, uint32_t dim, uint16_t* bounds) {
  float largest[kernels::max_dim], smallest[kernels::max_dim];
  for (uint32_t d = 0; d < dim; d++) largest[d] = smallest[d] = keys[d];
  for (uint32_t t = 0; t < tokens; t++) {
    const float* const key = keys + uint64_t{t} * dim;
    for (uint32_t d = 0; d < dim; d++) {
      const bool number = key[d] == key[d];
      const float high = number ? key[d] : infinity, low = number ? key[d] : -infinity;
      largest[d] = high > largest[d] ? high : largest[d];
      smallest[d] = low < smallest[d] ? low : smallest[d];
    }
  }
  for (uint32_t d = 0; d < dim; d++) {
    const bool number = keys[d] == keys[d];
    bounds[d] = round_up(number ? largest[d] : infinity);
    bounds[dim + d] = round_down(number ? smallest[d] : -infinity);
  }
}

}  // namespace

void compute_bounds(const kernels::Table& kernels, kernels::KvView kv, uint64_t first,
                    uint32_t count, uint32_t head, float* keys, uint16_t* bounds) noexcept {
  kernels::CopyTask task{};
  task.kv = kv;
  task.kv.k.rotation = {};  // keys as they are stored
  task.kv.k.data += head * kv.k.head_stride;
  task.kv.kv_heads = 1;
  task.first = first;
  task.count = count;
  task.k = {reinterpret_cast<unsigned char*>(keys), PKV_F32, kv.k.dim, kv.k.dim};
  kernels.load(task);
  write_bounds(keys, count, kv.k.dim, bounds);
}

KeyBounds::KeyBounds(const Layout& layout, const Shape& shape, uint32_t block_size, uint32_t blocks,
                     HookMemory& memory, pkv_huge_pages huge_pages)
    : layout_(layout),
      shape_(shape),
      block_size_(block_size),
      blocks_(blocks),
      slab_(bytes_of_bounds(shape, blocks), memory, huge_pages),
      states_(uint64_t{shape.layers} * blocks, &memory) {}

uint16_t* KeyBounds::at(uint32_t layer, uint32_t head, uint32_t id) const {
  const uint64_t row = (uint64_t{layer} * shape_.kv_heads + head) * blocks_ + id;
  return reinterpret_cast<uint16_t*>(slab_.data()) + row * 2 * shape_.key_dim;
}

bool KeyBounds::claim(Block block, uint32_t layer) noexcept {
  std::atomic<uint64_t>& word = state(block, layer);
  uint64_t seen = word.load(std::memory_order_acquire);
  while (seen != computed(block) && seen != computing(block))
    if (word.compare_exchange_weak(seen, computing(block), std::memory_order_acquire)) return true;
  return false;
}

void KeyBounds::compute(const kernels::Table& kernels, unsigned char* slab, Block block,
                        uint32_t layer, float* keys) noexcept {
  const uint32_t id = block_id(block);
  kernels::KvView kv = layout_.view(slab, layer);
  kv.blocks = &id;
  for (uint32_t head = 0; head < shape_.kv_heads; head++)
    compute_bounds(kernels, kv, 0, block_size_, head, keys, at(layer, head, id));
  state(block, layer).store(computed(block), std::memory_order_release);
}

void KeyBounds::unclaim(Block block, uint32_t layer) noexcept {
  uint64_t claimed = computing(block);
  state(block, layer).compare_exchange_strong(claimed, 0);
}

bool KeyBounds::has(Block block, uint32_t layer) const noexcept {
  const std::atomic<uint64_t>& word = states_[uint64_t{layer} * blocks_ + block_id(block)];
  return word.load(std::memory_order_acquire) == computed(block);
}

void KeyBounds::forget(uint32_t id) noexcept {
  for (uint32_t layer = 0; layer < shape_.layers; layer++)
    states_[uint64_t{layer} * blocks_ + id].store(0, std::memory_order_relaxed);
}

}  // namespace pkv::memory
