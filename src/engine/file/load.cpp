// Loads a file as it was planned: allocates blocks, reads keys and values into them and makes
// sessions of them. Until the sessions hold the blocks too, they belong to the loader, so a load
// that fails leaves nothing behind.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/file/file.h"
#include "engine/file/kv_map.h"
#include "engine/file/load_plan.h"
#include "engine/file/tiles.h"

namespace pkv::file {

namespace {

OpenedFile open_fitting(const Cache& cache, const FileOptions& options, Source& source) {
  OpenedFile file(options, source);
  check_fits(cache, file, options);
  return file;
}

}  // namespace

// Builds everything that a load needs, and owns it until sessions and the index do.
class Loader {
 public:
  Loader(Cache& cache, const FileOptions& options, Source& source)
      : cache_(cache),
        options_(options),
        source_(source),
        file_(open_fitting(cache, options, source)),
        groups_(cache.groups().size()),
        block_size_(cache.config().block_size),
        plan_(cache, tables(), options.prefix_index) {}

  const Tables& tables() const { return file_.tables; }

  // Returns the contents of the sessions, with their keys and values, and fills the blocks of the
  // index's entries. Throws CORRUPT, MISMATCH, TOO_LARGE, OUT_OF_BLOCKS, LIMIT_REACHED, IO or
  // bad_alloc.
  std::vector<Content> build();
  // Puts the entries into the index, as if sessions with their texts had ended one after another.
  // Leaves out those for which there is no memory.
  void publish_entries() noexcept;

 private:
  void check_before_evicting();
  void allocate_blocks();
  void fill_chain(uint32_t c, size_t g, std::span<const memory::Block>& rest);
  std::vector<Content> make_contents();
  Content make_content(const Text& text);
  void read_kv();
  void copy_from_parent(uint32_t c, size_t g);
  void load(const SavedTile& tile, const unsigned char* from);
  void load_opaque(const KvMap& map, uint64_t begin, uint64_t end, const unsigned char* bytes);
  const unsigned char* bytes_of(const SavedTile& tile, uint64_t begin, const unsigned char* bytes) {
    return bytes + static_cast<std::ptrdiff_t>(tile.offset - begin);
  }

  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }

  Cache& cache_;
  const FileOptions& options_;
  Source& source_;
  OpenedFile file_;
  const size_t groups_;
  const uint64_t block_size_;
  LoadPlan plan_;
  std::vector<uint64_t> block_counts_;  // how many blocks to allocate, by group
  std::optional<Reservation> reservation_;
  std::vector<Text> entries_;  // of the index, for publish_entries()
};

// Reads the whole file once to check it, and rewinds it, if the load must evict cached blocks and
// the stream can be read twice. So a damaged file does not cost the cache anything.
void Loader::check_before_evicting() {
  bool evicts = cache_.pages() != nullptr && !cache_.pages()->provide(block_counts_);
  for (size_t g = 0; g < groups_ && cache_.pages() == nullptr; g++)
    evicts = evicts || group(g).pool.free_count() < block_counts_[g];
  if (!evicts || cache_.prefix() == nullptr || !source_.can_rewind()) return;
  file_.reader.read_rest(cache_.workers(), 0, [](uint64_t, uint64_t, const unsigned char*) {});
  source_.rewind();
  OpenedFile again(options_, source_);
  if (encode(again.tables) != encode(tables()))
    fail(PKV_CORRUPT, "the file was changed while it was read");
  file_.reader = std::move(again.reader);
}

void Loader::allocate_blocks() {
  reservation_.emplace(cache_, block_counts_, 0, "load");
  std::vector<std::span<const memory::Block>> rest;
  for (size_t g = 0; g < groups_; g++) rest.push_back(reservation_->blocks(g));
  for (uint32_t c = 0; c < tables().chains.size(); c++)
    for (size_t g = 0; g < groups_; g++) fill_chain(c, g, rest[g]);
}

// Gives a chain the blocks of one group that are planned for it, the first of `rest`.
void Loader::fill_chain(uint32_t c, size_t g, std::span<const memory::Block>& rest) {
  const Chain& chain = tables().chains[c];
  ChainBlocks& own_blocks = plan_.chain_blocks(c, g);
  uint64_t begin = plan_.first_block(chain) * block_size_;
  for (memory::Block& block : own_blocks.blocks) {
    if (block != memory::no_block) {
      block = rest.front();
      rest = rest.subspan(1);
      group(g).pool.set_filled(block,
                               static_cast<uint32_t>(std::min(block_size_, chain.end() - begin)));
    }
    own_blocks.ids.push_back(memory::block_id(block));
    begin += block_size_;
  }
}

Content Loader::make_content(const Text& text) {
  Content content(cache_);
  if (text.salt != nullptr)
    content.hold() =
        prefix::Hold(*cache_.prefix(), *text.salt, static_cast<uint8_t>(text.retention));
  for (const uint32_t c : plan_.path(text)) {
    const prefix::Tokens tokens = tables().chains[c].tokens;
    const auto count = std::min<uint64_t>(tokens.size(), text.length - tables().chains[c].start);
    append(content.tokens(), tokens.first(count));
  }
  if (text.session != nullptr) content.set_forgotten_from(text.session->forgotten_from);
  const LoadPlan::BlockTables blocks = plan_.block_tables(text);
  for (size_t g = 0; g < groups_; g++) {
    memory::BlockTable& table = *content.tables()[g];
    table.ensure_capacity({.entries = blocks[g].size()}, blocks[g].size() * block_size_);
    memory::retain_table(group(g), blocks[g]);
    table.append(blocks[g]);
  }
  return content;
}

// ---- Keys and values ----------------------------------------------------------------------------

void Loader::read_kv() {
  const KvMap map(tables());
  const uint64_t kv_bytes = file_.sizes.kv;
  std::vector<uint64_t> lengths(file_.sizes.lengths / sizeof(uint64_t));
  file_.reader.read_rest(
      cache_.workers(), map.max_tile_bytes(),
      [&](uint64_t begin, uint64_t end, const unsigned char* bytes) {
        if (const uint64_t first = std::max(begin, kv_bytes); first < end)
          std::memcpy(reinterpret_cast<unsigned char*>(lengths.data()) + (first - kv_bytes),
                      bytes + (first - begin), end - first);
        map.for_each_ending_in(begin, end, [&](const SavedTile& tile) {
          if (plan_.needed(tile.chain) && !group(tile.group).opaque())
            load(tile, bytes_of(tile, begin, bytes));
        });
      },
      [&](uint64_t begin, uint64_t end, const unsigned char* bytes) {
        load_opaque(map, begin, end, bytes);
      });
  plan_.set_saved_tokens(lengths);
  // A chain comes after its parent, so the parent's blocks are complete.
  for (uint32_t c = 0; c < tables().chains.size() && tables().has_kv; c++)
    for (size_t g = 0; g < groups_ && plan_.needed(c); g++) copy_from_parent(c, g);
}

// Loads a tile into the block of its chain.
void Loader::load(const SavedTile& tile, const unsigned char* from) {
  const Chain& chain = tables().chains[tile.chain];
  const memory::Shape& saved = tables().groups[tile.group].shape;
  const uint64_t position = chain.start + tile.first;
  const auto tokens =
      static_cast<uint32_t>(std::min<uint64_t>(kernels::tile_tokens, chain.end() - position));
  const ChainBlocks& own = plan_.chain_blocks(tile.chain, tile.group);
  const uint64_t begin = plan_.first_block(chain) * block_size_;
  if (own.blocks[(position - begin) / block_size_] == memory::no_block) return;
  load_tile(cache_.kernels(), {&group(tile.group), own.ids}, tile.layer, position - begin, tokens,
            saved, from);
}

// Passes the opaque blocks that end in (begin, end] to the engine, and waits for its hook.
void Loader::load_opaque(const KvMap& map, uint64_t begin, uint64_t end,
                         const unsigned char* bytes) {
  if (cache_.block_io() == nullptr) return;
  std::vector<std::vector<memory::BlockIo::Copy>> copies(groups_);
  map.for_each_ending_in(begin, end, [&](const SavedTile& tile) {
    if (!plan_.needed(tile.chain) || !group(tile.group).opaque()) return;
    const uint32_t id = plan_.chain_blocks(tile.chain, tile.group).ids[tile.first / block_size_];
    if (id != PKV_NO_BLOCK_ID)
      copies[tile.group].push_back({id, 0,
                                    const_cast<unsigned char*>(  // only read
                                        bytes_of(tile, begin, bytes))});
  });
  for (uint32_t g = 0; g < groups_; g++) cache_.block_io()->write(g, group(g), copies[g]);
}

// Copies the end of the parent chain into the block in which this chain begins.
void Loader::copy_from_parent(uint32_t c, size_t g) {
  const Chain& chain = tables().chains[c];
  const uint64_t count = chain.start % block_size_;
  const ChainBlocks& own = plan_.chain_blocks(c, g);
  if (count == 0 || own.blocks.empty() || own.blocks.front() == memory::no_block) return;
  const std::span<const uint32_t> before = plan_.chain_blocks(chain.parent, g).ids;
  const Run from{&group(g), before.last(1)}, to{&group(g), std::span(own.ids).first(1)};
  for (uint32_t layer = 0; layer < group(g).shape.layers; layer++)
    cache_.kernels().transfer({from.view(layer), 0, to.view(layer), 0, count});
}

std::vector<Content> Loader::build() {
  block_counts_ = plan_.count_blocks();
  plan_.check_sessions();
  check_before_evicting();
  allocate_blocks();
  read_kv();
  // Only the end of the file has how many tokens were saved.
  std::vector<Content> contents = make_contents();
  entries_ = plan_.entries();
  return contents;
}

std::vector<Content> Loader::make_contents() {
  std::vector<Content> contents;
  contents.reserve(plan_.sessions().size());
  for (const Text& text : plan_.sessions()) contents.push_back(make_content(text));
  return contents;
}

void Loader::publish_entries() noexcept {
  for (const Text& text : entries_) {
    try {
      Session(make_content(text));
    } catch (const Error&) {
      // LIMIT_REACHED: a block cannot be referenced by more texts.
    } catch (const std::bad_alloc&) {
    }
  }
}

// ---- Sessions -----------------------------------------------------------------------------------

LoadedSessions::LoadedSessions(Cache& cache, const FileOptions& options, Source& source,
                               size_t max_sessions, size_t* count)
    : loader_(std::make_unique<Loader>(cache, options, source)) {
  const Tables& tables = loader_->tables();
  *count = tables.sessions.size();
  if (*count > max_sessions)
    fail(PKV_BUFFER_TOO_SMALL, "the file has %zu sessions, there is room for %zu", *count,
         max_sessions);
  std::vector<Content> contents = loader_->build();
  for (size_t i = 0; i < *count; i++) {
    const SavedSession& saved = tables.sessions[i];
    sessions.push_back(
        std::make_unique<Session>(std::move(contents[i]), Attributes{saved.priority, false}));
    sessions.back()->suspension().copy(saved.remembered, (saved.flags & saved_suspended) != 0);
    labels.push_back(saved.label);
    publishes_.push_back((saved.flags & saved_publishes) != 0);
  }
}

LoadedSessions::~LoadedSessions() = default;

void LoadedSessions::publish() noexcept {
  loader_->publish_entries();
  for (size_t i = 0; i < sessions.size(); i++)
    if (publishes_[i]) sessions[i]->start_publishing();
}

}  // namespace pkv::file
