// Loads a file: checks that it fits the cache, allocates blocks, reads keys and values into them
// and makes sessions of them. Until the sessions hold the blocks too, they belong to the loader, so
// a load that fails leaves nothing behind.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/file/file.h"
#include "engine/file/kv_map.h"
#include "engine/file/tiles.h"

namespace pkv::file {

namespace {

// The blocks of a chain in one group. If blocks are larger than those that were saved, the first
// one may begin before the chain. Then the end of the parent chain is copied into it.
struct Segment {
  std::vector<memory::Block> blocks;  // no_block if the file does not fill the block
  std::vector<uint32_t> ids;
};

// A text to be loaded, for a session or for the prefix index.
struct Text {
  uint32_t chain;
  uint64_t length;
  const SavedSession* session;  // nullptr: it keeps everything the file has
  const std::string* salt;      // nullptr: it does not use the index
  uint32_t retention;
};

// Limits how many block positions the loaded entries of the index have in all, as a multiple of the
// blocks of the cache. Without a limit, many texts with a common beginning would be few bytes of a
// file, but any amount of work. The most recently used entries are loaded.
constexpr uint64_t entry_positions_per_block = 64;

}  // namespace

// Builds everything that a load needs, and owns it until sessions and the index do.
class Loader {
 public:
  Loader(Cache& cache, const Options& options, Source& source)
      : cache_(cache),
        options_(options),
        source_(source),
        file_(options, source),
        groups_(cache.groups().size()),
        block_size_(cache.config().block_size),
        contiguous_(cache.config().storage == PKV_STORAGE_CONTIGUOUS),
        block_counts_(groups_) {
    check_compatible();
    check_salts();
    check_tenants();
  }

  const Tables& tables() const { return file_.tables; }

  // Returns the contents of the sessions, with their keys and values, and fills the blocks of the
  // index's entries. Throws CORRUPT, MISMATCH, TOO_LARGE, OUT_OF_BLOCKS, REF_LIMIT, IO or
  // bad_alloc.
  std::vector<Content> build(std::span<const Text> sessions);
  // Puts the entries into the index, as if sessions with their texts had ended one after another.
  // Leaves out those for which there is no memory.
  void publish_entries() noexcept;

 private:
  using BlockTables = std::vector<std::vector<memory::Block>>;  // by group

  void check_compatible() const;
  void check_salts() const;
  void check_tenants() const;
  void choose_entries();
  std::vector<SavedEntry> distinct_entries() const;
  void mark_needed(uint32_t chain);
  std::vector<uint32_t> path(const Text& text) const;
  void plan_segments();
  BlockTables block_tables(const Text& text) const;
  void check_dropped(const Text& text) const;
  void check_visible(const Text& text, const BlockTables& table) const;
  void check_state(const Text& text, const std::vector<memory::Block>& table) const;
  void cut_to_held(Text& text, const BlockTables& table) const;
  void find_end_chain(Text& text) const;
  void count_segments();
  void count_texts(std::span<const Text> texts);
  void check_capacity() const;
  void check_before_evicting();
  void allocate_blocks();
  void list_texts_of_chains(std::span<const Text> texts);
  Content make_content(const Text& text);
  void read_kv(std::span<const Text> texts, std::span<const Content> contents);
  void parse_lengths(std::span<const uint64_t> lengths);
  void shorten(Text& text) const;
  void copy_from_parent(uint32_t c, size_t g);
  void load(const SavedTile& tile, const unsigned char* from, std::span<const Text> texts,
            std::span<const Content> contents);

  uint64_t first_block(const Chain& chain) const { return chain.start / block_size_; }
  Segment& segment(uint32_t chain, size_t g) { return segments_[chain * groups_ + g]; }
  const Segment& segment(uint32_t chain, size_t g) const { return segments_[chain * groups_ + g]; }
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }

  Cache& cache_;
  const Options& options_;
  Source& source_;
  OpenedFile file_;
  const size_t groups_;
  const uint64_t block_size_;
  const bool contiguous_;
  std::vector<Text> entries_;  // of the prefix index, the least recently used first
  std::vector<bool> needed_;   // by chain: some text goes through it
  // By chain, the texts that go through it; only if storage is contiguous.
  std::vector<std::vector<uint32_t>> texts_of_chain_;
  std::vector<Segment> segments_;         // by chain, then group
  std::vector<uint64_t> block_counts_;    // how many blocks to allocate, by group
  std::vector<uint64_t> cached_lengths_;  // by chain, how many of its tokens the index can use
  std::optional<Reservation> reservation_;
};

namespace {

// Stands for a block that is not allocated yet.
constexpr memory::Block planned_block = 0;

void check_same(uint64_t file, uint64_t cache, size_t group, const char* what) {
  if (file != cache)
    fail(PKV_MISMATCH, "group %zu: the file has %s %llu, the cache %llu", group, what,
         (unsigned long long)file, (unsigned long long)cache);
}

}  // namespace

void Loader::check_compatible() const {
  file_.check_fingerprint(options_.fingerprint);
  const Tables& tables = file_.tables;
  const CacheConfig& config = cache_.config();
  if (tables.has_kv != (config.storage != PKV_STORAGE_NONE))
    fail(PKV_MISMATCH, tables.has_kv
                           ? "the file has keys and values, but storage NONE keeps none"
                           : "the file was saved with storage NONE, without keys and values");
  if (tables.groups.size() != groups_)
    fail(PKV_MISMATCH, "the file has %zu layer groups, the cache %zu", tables.groups.size(),
         groups_);
  for (size_t g = 0; g < groups_; g++) {
    const memory::Shape &file = tables.groups[g].shape, &own = config.groups[g].shape;
    check_same(file.layers, own.layers, g, "layers:");
    check_same(file.kv_heads, own.kv_heads, g, "KV heads:");
    check_same(file.key_dim, own.key_dim, g, "key dim");
    check_same(file.value_dim, own.value_dim, g, "value dim");
    check_same(file.window, own.window, g, "window");
    check_same(file.sinks, own.sinks, g, "sinks:");
    check_same(file.latent, own.latent, g, "latent values:");
    check_same(file.rotations.kind, own.rotations.kind, g, "rotation");
    if (!(file.rotations == own.rotations))
      fail(PKV_MISMATCH, "group %zu: the file was saved with other matrices of rotation", g);
    check_same(file.state_bytes, own.state_bytes, g, "bytes of a state:");
    if (own.state_bytes != 0) check_same(tables.block_size, block_size_, g, "blocks of");
    if (tables.groups[g].layers != config.groups[g].layer_indices)
      fail(PKV_MISMATCH, "group %zu: the file has other layers of the model than the cache", g);
    if (!convertible(file, own))
      fail(PKV_MISMATCH,
           "group %zu: the file has dtypes %d and %d, the cache %d and %d; only F32, F16 and BF16 "
           "are converted",
           g, static_cast<int>(file.dtype), static_cast<int>(file.value_dtype),
           static_cast<int>(own.dtype), static_cast<int>(own.value_dtype));
  }
}

// Refuses salts of a file without a key, unless they are trusted. A salt separates tenants, and
// anybody can write a file without a key that claims the salt of another tenant.
void Loader::check_salts() const {
  if (file_.header.encrypted || options_.trust_salts || cache_.prefix() == nullptr) return;
  const auto check = [&](uint32_t salt) {
    if (salt != none && !tables().salts[salt].empty())
      fail(PKV_MISMATCH,
           "the file has texts under a salt, and no key that would show who wrote it; save it with "
           "a key, or set trust_salts");
  };
  for (const SavedSession& session : tables().sessions)
    if ((session.flags & saved_matches) != 0) check(session.salt);
  for (const SavedEntry& entry : tables().entries)
    if (options_.prefix_index) check(entry.salt);
}

// Refuses a file with a chain under two salts: texts share the blocks of a chain, and the index has
// a block under one salt only. Takes time linear in the size of the file, because it stops at a
// chain that has the salt already: its parents have it, too.
void Loader::check_tenants() const {
  if (cache_.prefix() == nullptr) return;
  constexpr uint64_t nobody = ~uint64_t{0};
  // By chain: the salt that claimed it.
  std::vector<uint64_t> salts(tables().chains.size(), nobody);
  const auto claim = [&](uint32_t end, uint32_t salt) {
    for (uint32_t c = end; c != none && salts[c] != salt; c = tables().chains[c].parent)
      if (std::exchange(salts[c], salt) != nobody)
        fail(PKV_CORRUPT, "chain %u of the file is cached under two salts", c);
  };
  for (const SavedSession& session : tables().sessions)
    if ((session.flags & saved_matches) != 0 && (session.flags & saved_publishes) != 0)
      claim(session.chain, session.salt);
  for (const SavedEntry& entry : tables().entries)
    if (options_.prefix_index) claim(entry.chain, entry.salt);
}

// Returns the entries that are not the beginning of another entry, which would add nothing. Takes
// time linear in the size of the file, because it marks each chain once.
std::vector<SavedEntry> Loader::distinct_entries() const {
  const std::vector<SavedEntry>& all = tables().entries;
  // By chain: the longest entry that ends in it, and whether an entry goes on after it.
  std::vector<uint32_t> longest(tables().chains.size(), none);
  std::vector<bool> extended(longest.size());
  for (uint32_t e = 0; e < all.size(); e++) {
    const uint32_t end = all[e].chain;
    if (end == none) continue;
    if (longest[end] == none || all[longest[end]].length <= all[e].length) longest[end] = e;
    for (uint32_t c = tables().chains[end].parent; c != none && !extended[c];
         c = tables().chains[c].parent)
      extended[c] = true;
  }
  std::vector<SavedEntry> distinct;
  for (uint32_t e = 0; e < all.size(); e++)
    if (all[e].chain != none && longest[all[e].chain] == e && !extended[all[e].chain])
      distinct.push_back(all[e]);
  return distinct;
}

// Chooses the most recently used entries, within the limit.
void Loader::choose_entries() {
  static const std::string no_salt;
  if (!options_.prefix_index || cache_.prefix() == nullptr) return;
  uint64_t room = entry_positions_per_block * memory::largest_pool(cache_.groups());
  const std::vector<SavedEntry> distinct = distinct_entries();
  for (size_t i = distinct.size(); i-- > 0;) {
    const SavedEntry& entry = distinct[i];
    const uint64_t positions = ceil_div(entry.length, block_size_);
    if (positions > room && !entries_.empty()) break;
    room -= std::min(room, positions);
    entries_.push_back({entry.chain, entry.length, nullptr,
                        entry.salt == none ? &no_salt : &tables().salts[entry.salt],
                        entry.retention});
  }
  std::reverse(entries_.begin(), entries_.end());
}

// Marks a chain and those before it.
void Loader::mark_needed(uint32_t chain) {
  for (; chain != none && !needed_[chain]; chain = tables().chains[chain].parent)
    needed_[chain] = true;
}

// Returns the chains of a text, from its beginning on.
std::vector<uint32_t> Loader::path(const Text& text) const {
  std::vector<uint32_t> path;
  for (uint32_t c = text.chain; c != none; c = tables().chains[c].parent) path.push_back(c);
  std::reverse(path.begin(), path.end());
  return path;
}

// Decides which segments get which blocks, without allocating them yet.
void Loader::plan_segments() {
  const std::vector<Chain>& chains = tables().chains;
  segments_.resize(chains.size() * groups_);
  for (uint32_t c = 0; c < chains.size(); c++) {
    if (!needed_[c]) continue;
    const Chain& chain = chains[c];
    for (size_t g = 0; g < groups_; g++) {
      std::vector<memory::Block>& blocks = segment(c, g).blocks;
      blocks.assign(ceil_div(chain.end(), block_size_) - first_block(chain),
                    chain.has_kv[g] != 0 ? planned_block : memory::no_block);
      if (chain.start % block_size_ != 0 &&
          segment(chain.parent, g).blocks.back() == memory::no_block)
        blocks.front() = memory::no_block;
    }
  }
}

// Returns the block tables of a text. In a group with a window they have only the sinks and the run
// at the end, like those of a sequence.
Loader::BlockTables Loader::block_tables(const Text& text) const {
  BlockTables table(groups_);
  const std::vector<uint32_t> path = this->path(text);
  for (size_t g = 0; g < groups_; g++) {
    const memory::Shape& shape = group(g).shape;
    std::vector<memory::Block>& blocks = table[g];
    for (const uint32_t c : path) {
      blocks.resize(first_block(tables().chains[c]));
      blocks.insert(blocks.end(), segment(c, g).blocks.begin(), segment(c, g).blocks.end());
    }
    blocks.resize(ceil_div(text.length, block_size_));
    if (text.session != nullptr && !text.session->dropped.empty())
      for (const DroppedRun& run : text.session->dropped[g])
        std::fill(blocks.begin() + static_cast<std::ptrdiff_t>(run.begin / block_size_),
                  blocks.begin() + static_cast<std::ptrdiff_t>(run.end / block_size_),
                  memory::dropped_block);
    if (shape.window == 0) continue;  // a group of states keeps every state of the file
    const uint64_t sinks = ceil_div(shape.sinks, block_size_),
                   from = text.session != nullptr ? text.session->kept_from[g] : 0;
    size_t i = blocks.size();
    while (i > 0 && blocks[i - 1] != memory::no_block && (i - 1) * block_size_ >= from) i--;
    for (; i > sinks; i--) blocks[i - 1] = memory::no_block;
  }
  return table;
}

// Checks that the cache can drop what a session dropped. Runs are whole blocks of the file.
void Loader::check_dropped(const Text& text) const {
  for (size_t g = 0; g < text.session->dropped.size(); g++)
    for (const DroppedRun& run : text.session->dropped[g]) {
      if (contiguous_)
        fail(PKV_MISMATCH, "a session dropped blocks of group %zu; storage CONTIGUOUS cannot", g);
      if (group(g).has_states()) fail(PKV_CORRUPT, "a session dropped states of group %zu", g);
      if (run.begin % block_size_ != 0 || run.end % block_size_ != 0)
        fail(PKV_MISMATCH,
             "group %zu: tokens %llu to %llu of a session were dropped, which are no whole blocks "
             "of %llu; use blocks whose size divides %u",
             g, (unsigned long long)run.begin, (unsigned long long)(run.end - 1),
             (unsigned long long)block_size_, tables().block_size);
    }
}

// Checks that the tables have everything that the next token of the text attends to.
void Loader::check_visible(const Text& text, const BlockTables& table) const {
  for (size_t g = 0; g < groups_; g++) {
    if (group(g).has_states()) {
      check_state(text, table[g]);
      continue;
    }
    const memory::Shape& shape = group(g).shape;
    const uint64_t end = table[g].size(), tail = text.length % block_size_ != 0 ? end - 1 : end;
    const uint64_t seen = shape.window == 0 ? 0
                          : text.length < shape.window
                              ? 0
                              : (text.length + 1 - shape.window) / block_size_;
    const uint64_t sinks =
        shape.window == 0 ? 0 : std::min(end, ceil_div(shape.sinks, block_size_));
    for (uint64_t i = 0; i < end; i++) {
      if (table[g][i] != memory::no_block || (i >= sinks && i < std::min(seen, tail))) continue;
      const unsigned long long first = i * block_size_;
      if (tables().block_size % block_size_ == 0)
        fail(PKV_CORRUPT, "group %zu: the file lacks tokens from %llu on, which are attended to", g,
             first);
      fail(PKV_MISMATCH,
           "group %zu: what the file has of a window does not fill the block of %llu tokens from "
           "token %llu on; use blocks whose size divides %u",
           g, (unsigned long long)block_size_, first, tables().block_size);
    }
  }
}

// Checks that a text of a session has the state after its last token.
void Loader::check_state(const Text& text, const std::vector<memory::Block>& table) const {
  if (text.length == 0) return;
  // The state of a part-filled block is the one after the last token of its chain.
  const bool at_end =
      text.length % block_size_ == 0 || tables().chains[text.chain].end() == text.length;
  if (table.back() == memory::no_block || !at_end)
    fail(PKV_CORRUPT, "the file lacks the states after the %llu tokens of a session",
         (unsigned long long)text.length);
}

// Cuts a text of the index to what the file has of it in every group that needs all of it.
void Loader::cut_to_held(Text& text, const BlockTables& table) const {
  for (size_t g = 0; g < groups_; g++) {
    if (group(g).sparse()) continue;
    const auto missing = static_cast<uint64_t>(
        std::find(table[g].begin(), table[g].end(), memory::no_block) - table[g].begin());
    text.length = std::min(text.length, missing * block_size_);
  }
  find_end_chain(text);
}

// Finds the chain in which a text ends after it was cut.
void Loader::find_end_chain(Text& text) const {
  while (text.chain != none && tables().chains[text.chain].start >= text.length)
    text.chain = tables().chains[text.chain].parent;
}

// Reads the whole file once to check it, and rewinds it, if the load must evict cached blocks and
// the stream can be read twice. So a damaged file does not cost the cache anything.
void Loader::check_before_evicting() {
  bool evicts =
      cache_.pages() != nullptr && !memory::PageForecast(*cache_.pages()).fits(block_counts_);
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

void Loader::count_segments() {
  for (size_t i = 0; i < segments_.size(); i++)
    for (const memory::Block block : segments_[i].blocks)
      block_counts_[i % groups_] += block != memory::no_block;
}

// Counts the blocks of contiguous storage, where each text has tensors of its own. Stops as soon as
// they cannot fit.
void Loader::count_texts(std::span<const Text> texts) {
  for (const Text& text : texts) {
    const BlockTables blocks = block_tables(text);
    for (size_t g = 0; g < groups_; g++)
      block_counts_[g] +=
          static_cast<uint64_t>(std::count(blocks[g].begin(), blocks[g].end(), planned_block));
    check_capacity();
  }
}

// Checks that the blocks fit into the pools at all, before any work that grows with the texts.
void Loader::check_capacity() const {
  for (size_t g = 0; g < groups_; g++)
    if (block_counts_[g] > group(g).pool.blocks())
      fail(PKV_TOO_LARGE, "load needs %llu blocks or more in group %zu, which has %llu",
           (unsigned long long)block_counts_[g], g, (unsigned long long)group(g).pool.blocks());
}

void Loader::allocate_blocks() {
  reservation_.emplace(cache_, block_counts_, 0, nullptr, "load");
  if (contiguous_) return;
  std::vector<std::span<const memory::Block>> rest;
  for (size_t g = 0; g < groups_; g++) rest.push_back(reservation_->next(g, block_counts_[g]));
  for (size_t i = 0; i < segments_.size(); i++) {
    const Chain& chain = tables().chains[i / groups_];
    for (size_t b = 0; b < segments_[i].blocks.size(); b++) {
      memory::Block& block = segments_[i].blocks[b];
      if (block != memory::no_block) {
        block = rest[i % groups_].front();
        rest[i % groups_] = rest[i % groups_].subspan(1);
        const uint64_t begin = (first_block(chain) + b) * block_size_;
        group(i % groups_)
            .pool.set_filled(block,
                             static_cast<uint32_t>(std::min(block_size_, chain.end() - begin)));
      }
      segments_[i].ids.push_back(memory::block_id(block));
    }
  }
}

void Loader::list_texts_of_chains(std::span<const Text> texts) {
  texts_of_chain_.resize(tables().chains.size());
  for (uint32_t t = 0; t < texts.size(); t++)
    for (uint32_t c = texts[t].chain; c != none; c = tables().chains[c].parent)
      texts_of_chain_[c].push_back(t);
}

Content Loader::make_content(const Text& text) {
  Content content(cache_);
  if (text.salt != nullptr)
    content.hold() =
        prefix::Index::Hold(*cache_.prefix(), *text.salt, static_cast<uint8_t>(text.retention));
  for (const uint32_t c : path(text)) {
    const prefix::Tokens tokens = tables().chains[c].tokens;
    const auto count = std::min<uint64_t>(tokens.size(), text.length - tables().chains[c].start);
    content.tokens().insert(content.tokens().end(), tokens.begin(),
                            tokens.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (text.session != nullptr) content.set_forgotten_from(text.session->forgotten_from);
  const BlockTables blocks = block_tables(text);
  for (size_t g = 0; g < groups_; g++) {
    memory::Sequence& sequence = content.sequences()[g];
    sequence.make_room(blocks[g].size(), blocks[g].size() * block_size_);
    for (size_t i = 0; i < blocks[g].size(); i++) {
      memory::Block block = blocks[g][i];
      if (memory::is_block(block) && contiguous_) {
        block = reservation_->next(g, 1)[0];
        group(g).pool.set_filled(
            block, static_cast<uint32_t>(std::min(block_size_, text.length - i * block_size_)));
        reservation_->disown(g, 1);
      } else if (memory::is_block(block) && group(g).pool.retain(block) != PKV_OK) {
        fail(PKV_REF_LIMIT, "block %u has %u references, which is the limit",
             memory::block_id(block), group(g).pool.references(memory::block_id(block)));
      }
      sequence.append(std::span(&block, 1));
    }
  }
  return content;
}

// ---- Keys and values ----------------------------------------------------------------------------

void Loader::read_kv(std::span<const Text> texts, std::span<const Content> contents) {
  const KvMap map(tables());
  const uint64_t kv_bytes = file_.header.kv_bytes;
  std::vector<uint64_t> lengths(file_.header.lengths_bytes / sizeof(uint64_t));
  file_.reader.read_rest(
      cache_.workers(), map.max_tile_bytes(),
      [&](uint64_t begin, uint64_t end, const unsigned char* bytes) {
        if (const uint64_t first = std::max(begin, kv_bytes); first < end)
          std::memcpy(reinterpret_cast<unsigned char*>(lengths.data()) + (first - kv_bytes),
                      bytes + (first - begin), end - first);
        map.for_each_ending_in(begin, end, [&](const SavedTile& tile) {
          if (needed_[tile.chain])
            load(tile, bytes + static_cast<std::ptrdiff_t>(tile.offset - begin), texts, contents);
        });
      });
  parse_lengths(lengths);
  // A chain comes after its parent, so the parent's blocks are complete.
  for (uint32_t c = 0; c < tables().chains.size() && !contiguous_; c++)
    for (size_t g = 0; g < groups_ && needed_[c]; g++) copy_from_parent(c, g);
}

void Loader::parse_lengths(std::span<const uint64_t> lengths) {
  for (size_t c = 0; c < tables().chains.size() && !lengths.empty(); c++) {
    cached_lengths_.push_back(lengths[c]);
    if (lengths[c] > tables().chains[c].tokens.size())
      fail(PKV_CORRUPT, "chain %zu of the file has %zu tokens, and keys and values of %llu", c,
           tables().chains[c].tokens.size(), (unsigned long long)lengths[c]);
  }
}

// Cuts a text of the index where a block was evicted while the file was written.
void Loader::shorten(Text& text) const {
  for (uint32_t c = text.chain; c != none && !cached_lengths_.empty();
       c = tables().chains[c].parent)
    if (cached_lengths_[c] < tables().chains[c].tokens.size())
      text.length = std::min(text.length, tables().chains[c].start + cached_lengths_[c]);
  find_end_chain(text);
}

// Loads a tile into the block of its chain or, if storage is contiguous, into the tensors of every
// text that goes through the chain.
void Loader::load(const SavedTile& tile, const unsigned char* from, std::span<const Text> texts,
                  std::span<const Content> contents) {
  const Chain& chain = tables().chains[tile.chain];
  const memory::Shape& saved = tables().groups[tile.group].shape;
  const uint64_t position = chain.start + tile.first;
  const auto tokens = [&](uint64_t end) {
    return static_cast<uint32_t>(std::min<uint64_t>(kernels::tile_tokens, end - position));
  };
  if (!contiguous_) {
    const Segment& own = segment(tile.chain, tile.group);
    const uint64_t begin = first_block(chain) * block_size_;
    if (own.blocks[(position - begin) / block_size_] == memory::no_block) return;
    load_tile(cache_.kernels(), {&group(tile.group), own.ids}, tile.layer, position - begin,
              tokens(chain.end()), saved, from);
    return;
  }
  for (const uint32_t t : texts_of_chain_[tile.chain]) {
    const memory::Sequence& sequence = contents[t].sequences()[tile.group];
    const uint64_t end = std::min(texts[t].length, chain.end());
    if (position >= end || sequence.blocks()[position / block_size_] == memory::no_block) continue;
    load_tile(cache_.kernels(), {&group(tile.group), {}, &sequence}, tile.layer, position,
              tokens(end), saved, from);
  }
}

// Copies the end of the parent chain into the block in which this chain begins.
void Loader::copy_from_parent(uint32_t c, size_t g) {
  const Chain& chain = tables().chains[c];
  const uint64_t count = chain.start % block_size_;
  if (count == 0 || segment(c, g).blocks.empty() ||
      segment(c, g).blocks.front() == memory::no_block)
    return;
  const std::vector<uint32_t>& before = segment(chain.parent, g).ids;
  const Run from{&group(g), std::span(before).last(1)},
      to{&group(g), std::span(segment(c, g).ids).first(1)};
  for (uint32_t layer = 0; layer < group(g).shape.layers; layer++)
    cache_.kernels().transfer({from.view(layer), 0, to.view(layer), 0, count});
}

std::vector<Content> Loader::build(std::span<const Text> sessions) {
  choose_entries();
  needed_.resize(tables().chains.size());
  for (const Text& text : sessions) mark_needed(text.chain);
  for (const Text& text : entries_) mark_needed(text.chain);
  plan_segments();
  if (contiguous_)
    count_texts(sessions);
  else
    count_segments();
  check_capacity();
  for (const Text& text : sessions) check_dropped(text);
  for (const Text& text : sessions) check_visible(text, block_tables(text));
  for (Text& text : entries_) cut_to_held(text, block_tables(text));
  check_before_evicting();
  allocate_blocks();
  if (contiguous_) list_texts_of_chains(sessions);
  std::vector<Content> contents;
  contents.reserve(sessions.size());
  for (const Text& text : sessions) contents.push_back(make_content(text));
  if (tables().has_kv) read_kv(sessions, contents);
  return contents;
}

void Loader::publish_entries() noexcept {
  for (Text& text : entries_) {
    shorten(text);
    try {
      Session(make_content(text));
    } catch (const Error&) {
      // REF_LIMIT: a block cannot be referenced by more texts.
    } catch (const std::bad_alloc&) {
    }
  }
}

// ---- Sessions -----------------------------------------------------------------------------------

LoadedSessions::LoadedSessions(Cache& cache, const Options& options, Source& source,
                               size_t max_sessions, size_t* count)
    : loader_(std::make_unique<Loader>(cache, options, source)) {
  const Tables& tables = loader_->tables();
  *count = tables.sessions.size();
  if (*count > max_sessions)
    fail(PKV_BUFFER_TOO_SMALL, "the file has %zu sessions, there is room for %zu", *count,
         max_sessions);
  static const std::string no_salt;
  std::vector<Text> texts;
  for (const SavedSession& saved : tables.sessions) {
    const bool matches = cache.prefix() != nullptr && (saved.flags & saved_matches) != 0;
    const std::string* const salt = saved.salt == none ? &no_salt : &tables.salts[saved.salt];
    texts.push_back({saved.chain, saved.length, &saved, matches ? salt : nullptr, saved.retention});
  }
  std::vector<Content> contents = loader_->build(texts);
  for (size_t i = 0; i < *count; i++) {
    const SavedSession& saved = tables.sessions[i];
    sessions.push_back(
        std::make_unique<Session>(std::move(contents[i]), Attributes{saved.priority, false}));
    sessions.back()->remember(saved.remembered, (saved.flags & saved_suspended) != 0);
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
