#include "engine/store/block_value.h"

#include <cstring>

#include "base/checked.h"

namespace pkv {

namespace {

// magic, version, key, tokens | tiles of 16 tokens, each with all layers | tag
constexpr unsigned char magic[8] = {'P', 'K', 'V', 'B', 'L', 'O', 'C', 'K'};
constexpr uint32_t version = 1;
constexpr size_t fixed_bytes = sizeof magic + 2 * sizeof(uint32_t) + std::tuple_size_v<ContentKey>;

size_t head_bytes(const Group& group) { return fixed_bytes + group.block_size * sizeof(int32_t); }

void write_head(const ContentKey& key, std::span<const int32_t> tokens, unsigned char* to) {
  const uint32_t numbers[2] = {version, static_cast<uint32_t>(tokens.size())};
  std::memcpy(to, magic, sizeof magic);
  std::memcpy(to + sizeof magic, numbers, sizeof numbers);
  std::memcpy(to + sizeof magic + sizeof numbers, key.data(), key.size());
  std::memcpy(to + fixed_bytes, tokens.data(), tokens.size_bytes());
}

// visit(layer, position in the block, offset of the tile's layer)
template <class Visit>
void each_tile(const Group& group, const Visit& visit) {
  size_t at = head_bytes(group);
  const size_t step = static_cast<size_t>(saved_layer_bytes(group.shape));
  for (uint32_t position = 0; position < group.block_size; position += tile_tokens)
    for (uint32_t layer = 0; layer < group.shape.layers; layer++, at += step) visit(layer, position, at);
}

}  // namespace

uint64_t block_value_bytes(const Group& group) {
  return checked_add(head_bytes(group) + tag_bytes, checked_mul(saved_tile_bytes(group.shape), group.block_size / tile_tokens, "bytes of a block"), "bytes of a block");
}

void write_block_value(const Kernels& kernels, const Run& run, size_t index, const ContentKey& key, std::span<const int32_t> tokens, Tagger tagger,
                       unsigned char* to) {
  write_head(key, tokens, to);
  each_tile(*run.group, [&](uint32_t layer, uint32_t position, size_t at) {
    save_tile(kernels, run, layer, index * run.group->block_size + position, tile_tokens, to + at);
  });
  const size_t size = static_cast<size_t>(block_value_bytes(*run.group)) - tag_bytes;
  const Tag tag = tagger.next({to, size});
  std::memcpy(to + size, tag.data(), tag.size());
}

bool check_block_value(const Group& group, const ContentKey& key, std::span<const int32_t> tokens, Tagger tagger, std::span<const unsigned char> value) {
  if (value.size() != block_value_bytes(group)) return false;
  std::vector<unsigned char> head(head_bytes(group));
  write_head(key, tokens, head.data());
  const size_t size = value.size() - tag_bytes;
  return std::memcmp(head.data(), value.data(), head.size()) == 0 && tagger.check(value.first(size), value.data() + size);
}

void load_block_value(const Kernels& kernels, const Run& run, size_t index, const unsigned char* value) {
  each_tile(*run.group, [&](uint32_t layer, uint32_t position, size_t at) {
    load_tile(kernels, run, layer, index * run.group->block_size + position, tile_tokens, run.group->shape, value + at);
  });
}

}  // namespace pkv
