// Computes keys and sizes of items; packs, seals, opens and loads their values.
#include "engine/store/item_format.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/os.h"
#include "engine/file/file.h"
#include "engine/file/sealer.h"
#include "engine/file/tiles.h"

namespace pkv::store {

namespace {

constexpr uint64_t default_buffer_bytes = uint64_t{4} << 20;

std::span<const unsigned char> bytes_of(const void* data, uint64_t size) {
  return {static_cast<const unsigned char*>(data), static_cast<size_t>(size)};
}

// A value is
//   magic, version, flags, key or random bytes | tokens | tiles, all layers | tag
// An opaque block is one tile.
// With a secret it has random bytes, and what is between the first bar and the last is encrypted.
// The part before the first bar is the preamble.
constexpr unsigned char magic[8] = {'P', 'K', 'V', 'B', 'L', 'O', 'C', 'K'};
constexpr uint32_t flag_encrypted = 1;
constexpr size_t key_offset = sizeof magic + 2 * sizeof(uint32_t);
constexpr size_t preamble_bytes = key_offset + std::tuple_size_v<ContentKey>;

size_t tiles_offset(const memory::Group& group) {
  return preamble_bytes + group.block_size * sizeof(int32_t);
}

void write_preamble(uint32_t flags, std::span<const unsigned char> key, unsigned char* to) {
  const uint32_t numbers[2] = {file::format_version, flags};
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

bool begins_with(std::span<const unsigned char> value, uint32_t flags,
                 std::span<const unsigned char> key) {
  std::array<unsigned char, preamble_bytes> expected;
  write_preamble(flags, key, expected.data());
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

uint64_t bytes_of_value(const memory::Group& group) {
  return checked_add(tiles_offset(group) + file::tag_bytes,
                     checked_mul(file::saved_tile_bytes(group.shape),
                                 group.block_size / tile_tokens(group), "bytes of a block"),
                     "bytes of a block");
}

}  // namespace

pkv_store_item item_of(const ContentKey& key, void* data, uint64_t size) {
  pkv_store_item item{};
  std::copy(key.begin(), key.end(), item.name);
  item.data = data;
  item.size = size;
  return item;
}

ItemFormat::ItemFormat(Cache& cache, const pkv_store_config& config)
    : cache_(cache),
      secret_(bytes_of(config.secret_key, config.secret_key_size)),
      model_(hash_model(cache.config().block_size, file::saved_groups(cache.config()),
                        bytes_of(config.fingerprint, config.fingerprint_size), secret_)) {
  if (!secret_.empty()) file::check_ciphers();
  for (const auto& each : cache.groups()) {
    value_bytes_.push_back(bytes_of_value(*each));
    position_bytes_ =
        checked_add(position_bytes_, value_bytes_.back(), "bytes of a block in all groups");
  }
  const uint64_t positions =
      (config.buffer_bytes != 0 ? config.buffer_bytes : default_buffer_bytes) / position_bytes_;
  uint64_t most = memory::largest_pool(cache.groups());
  for (const auto& each : cache.groups())
    if (each->opaque()) most = std::min<uint64_t>(most, each->pool.blocks() / 16);
  batch_positions_ = static_cast<size_t>(std::max<uint64_t>(std::min(positions, most), 1));
}

ItemFormat::~ItemFormat() { os::wipe(model_.data(), model_.size()); }

std::vector<ContentKey> ItemFormat::keys(std::string_view salt, prefix::Tokens text, uint64_t from,
                                         uint64_t to) const {
  std::vector<ContentKey> keys;
  keys.reserve((to - from) * groups());
  ContentKey chain = extend(model_, std::span(salt));
  for (uint64_t i = 0; i < to; i++) {
    chain = extend(chain, tokens_at(text, i));
    for (uint32_t g = 0; g < groups() && i >= from; g++)
      keys.push_back(extend(chain, std::span<const uint32_t>(&g, 1)));
  }
  os::wipe(chain.data(), chain.size());
  return keys;
}

void ItemFormat::pack(size_t g, const memory::BlockTable& table, prefix::Tokens text,
                      size_t position, const ContentKey& key, unsigned char* to) const {
  const file::Run run{&group(g), table.ids()};
  const prefix::Tokens tokens = tokens_at(text, position);
  write_preamble(0, key, to);
  std::memcpy(to + preamble_bytes, tokens.data(), tokens.size_bytes());
  if (group(g).opaque()) {
    const size_t end = static_cast<size_t>(value_bytes_[g]) - file::tag_bytes;
    std::memset(to + tiles_offset(group(g)), 0, end - tiles_offset(group(g)));
    return;
  }
  for_each_tile(group(g), [&](uint32_t layer, uint32_t offset, size_t at) {
    file::save_tile(cache_.kernels(), run, layer, position * block_size() + offset,
                    tile_tokens(group(g)), to + at);
  });
}

void ItemFormat::seal(size_t g, const ContentKey& key, unsigned char* value) const {
  const size_t size = static_cast<size_t>(value_bytes_[g]) - file::tag_bytes;
  file::Tag tag;
  if (secret_.empty()) {
    tag = file::checksum({}, {value, size});
  } else {
    std::array<unsigned char, std::tuple_size_v<ContentKey>> random;
    file::fill_with_random(random);
    write_preamble(flag_encrypted, random, value);
    tag = file::encrypt(item_key(secret_, {value, preamble_bytes}, key), {},
                        {value + preamble_bytes, size - preamble_bytes});
  }
  std::memcpy(value + size, tag.data(), tag.size());
}

bool ItemFormat::open(size_t g, prefix::Tokens text, size_t position, const ContentKey& key,
                      std::span<unsigned char> value) const {
  if (value.size() != value_bytes_[g]) return false;
  const size_t size = value.size() - file::tag_bytes;
  file::Tag tag;
  std::memcpy(tag.data(), value.data() + size, tag.size());
  if (secret_.empty()) {
    if (!begins_with(value, 0, key) || file::checksum({}, value.first(size)) != tag) return false;
  } else {
    if (!begins_with(value, flag_encrypted, {}) ||
        !file::decrypt(item_key(secret_, value.first(preamble_bytes), key), {},
                       value.subspan(preamble_bytes, size - preamble_bytes), tag))
      return false;
  }
  const prefix::Tokens tokens = tokens_at(text, position);
  return std::memcmp(value.data() + preamble_bytes, tokens.data(), tokens.size_bytes()) == 0;
}

unsigned char* ItemFormat::opaque_bytes(size_t g, unsigned char* value) const {
  return value + tiles_offset(group(g));
}

void ItemFormat::load(size_t g, const memory::BlockTable& table, size_t position,
                      const unsigned char* value) const {
  const file::Run run{&group(g), table.ids()};
  for_each_tile(group(g), [&](uint32_t layer, uint32_t offset, size_t at) {
    file::load_tile(cache_.kernels(), run, layer, position * block_size() + offset,
                    tile_tokens(group(g)), group(g).shape, value + at);
  });
}

}  // namespace pkv::store
