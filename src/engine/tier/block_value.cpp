// Packs, seals, opens and loads values.
#include "engine/tier/block_value.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"

namespace pkv::tier {

namespace {

// A value without a secret is
//   magic, version, number of tokens, key | tokens | tiles, all layers              | checksum
// and one with a secret is
//   magic, version, 0, random bytes       | the same, encrypted                     | tag
// The part before the first bar is the preamble.
constexpr unsigned char magic[8] = {'P', 'K', 'V', 'B', 'L', 'O', 'C', 'K'};
constexpr uint32_t plain_item = 1, encrypted_item = 2;
constexpr size_t key_offset = sizeof magic + 2 * sizeof(uint32_t);
constexpr size_t preamble_bytes = key_offset + std::tuple_size_v<ContentKey>;

size_t tiles_offset(const memory::Group& group) {
  return preamble_bytes + group.block_size * sizeof(int32_t);
}

void write_preamble(uint32_t version, uint32_t tokens, std::span<const unsigned char> key,
                    unsigned char* to) {
  const uint32_t numbers[2] = {version, tokens};
  std::memcpy(to, magic, sizeof magic);
  std::memcpy(to + sizeof magic, numbers, sizeof numbers);
  std::copy(key.begin(), key.end(), to + key_offset);
}

// Derives the cipher's key for one item, from its random bytes and its name, which stands for
// model, salt, text and group. So an item cannot be used under another name, and since each key
// encrypts one item, a constant nonce suffices.
Secret item_key(const Secret& secret, std::span<const unsigned char> preamble,
                const ContentKey& name) {
  std::array<unsigned char, preamble_bytes + std::tuple_size_v<ContentKey>> context;
  std::copy(preamble.begin(), preamble.end(), context.begin());
  std::copy(name.begin(), name.end(), context.begin() + preamble_bytes);
  return file::derive(secret.bytes(), file::item_key_purpose, context, 32);
}

bool begins_with(std::span<const unsigned char> value, uint32_t version, uint32_t tokens,
                 std::span<const unsigned char> key) {
  std::array<unsigned char, preamble_bytes> expected;
  write_preamble(version, tokens, key, expected.data());
  return std::equal(expected.begin(),
                    expected.begin() + key_offset + static_cast<std::ptrdiff_t>(key.size()),
                    value.begin());
}

uint32_t tile_tokens(const memory::Group& group) {
  return static_cast<uint32_t>(file::saved_tile_tokens(group.shape, group.block_size));
}

// Calls visit(layer, position in the block, offset in the value) for each tile of each layer.
template <class Visit>
void for_each_tile(const memory::Group& group, const Visit& visit) {
  size_t at = tiles_offset(group);
  const size_t step = static_cast<size_t>(file::saved_layer_bytes(group.shape));
  for (uint32_t position = 0; position < group.block_size; position += tile_tokens(group))
    for (uint32_t layer = 0; layer < group.shape.layers; layer++, at += step)
      visit(layer, position, at);
}

}  // namespace

uint64_t block_value_bytes(const memory::Group& group) {
  return checked_add(tiles_offset(group) + file::tag_bytes,
                     checked_mul(file::saved_tile_bytes(group.shape),
                                 group.block_size / tile_tokens(group), "bytes of a block"),
                     "bytes of a block");
}

void pack_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const ContentKey& key, std::span<const int32_t> tokens, unsigned char* to) {
  write_preamble(plain_item, static_cast<uint32_t>(tokens.size()), key, to);
  std::memcpy(to + preamble_bytes, tokens.data(), tokens.size_bytes());
  for_each_tile(*run.group, [&](uint32_t layer, uint32_t position, size_t at) {
    file::save_tile(kernels, run, layer, index * run.group->block_size + position,
                    tile_tokens(*run.group), to + at);
  });
}

void seal_block_value(const memory::Group& group, const ContentKey& key, const Secret& secret,
                      unsigned char* value) {
  const size_t size = static_cast<size_t>(block_value_bytes(group)) - file::tag_bytes;
  file::Tag tag;
  if (secret.empty()) {
    tag = file::checksum({}, {value, size});
  } else {
    std::array<unsigned char, std::tuple_size_v<ContentKey>> random;
    file::fill_with_random(random);
    write_preamble(encrypted_item, 0, random, value);
    tag = file::encrypt(item_key(secret, {value, preamble_bytes}, key), {},
                        {value + preamble_bytes, size - preamble_bytes});
  }
  std::memcpy(value + size, tag.data(), tag.size());
}

bool open_block_value(const memory::Group& group, const ContentKey& key,
                      std::span<const int32_t> tokens, const Secret& secret,
                      std::span<unsigned char> value) {
  if (value.size() != block_value_bytes(group)) return false;
  const size_t size = value.size() - file::tag_bytes;
  file::Tag tag;
  std::memcpy(tag.data(), value.data() + size, tag.size());
  if (secret.empty()) {
    if (!begins_with(value, plain_item, group.block_size, key) ||
        file::checksum({}, value.first(size)) != tag)
      return false;
  } else {
    if (!begins_with(value, encrypted_item, 0, {})) return false;
    if (!file::decrypt(item_key(secret, value.first(preamble_bytes), key), {},
                       value.subspan(preamble_bytes, size - preamble_bytes), tag))
      return false;
  }
  return std::memcmp(value.data() + preamble_bytes, tokens.data(), tokens.size_bytes()) == 0;
}

void load_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const unsigned char* value) {
  for_each_tile(*run.group, [&](uint32_t layer, uint32_t position, size_t at) {
    file::load_tile(kernels, run, layer, index * run.group->block_size + position,
                    tile_tokens(*run.group), run.group->shape, value + at);
  });
}

}  // namespace pkv::tier
