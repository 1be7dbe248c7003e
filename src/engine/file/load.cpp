// How a file becomes sessions. Everything is built apart: blocks belong to the load until sessions
// hold them, too.
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

// The blocks of a chain in one group. The first one may begin before the chain, where blocks are
// larger than those that were saved: then it has a copy of what the chain before has in it.
struct Segment {
  std::vector<memory::Block> blocks;  // no_block: not all of it is in the file
  std::vector<uint32_t> ids;
};

// A text to be: a session, or an entry of the index.
struct Text {
  uint32_t chain;
  uint64_t length;
  const std::vector<uint64_t>* kept_from;  // nullptr: everything the file has
  const std::string* salt;                 // nullptr: it has nothing to do with the index
  uint32_t retention;
};

// How many block positions entries of the index may have in all, for each block of the cache: those
// used most recently come first. Many texts that begin alike are few bytes of a file, and must not
// be any amount of work.
constexpr uint64_t entry_positions_per_block = 64;

}  // namespace

// Everything a load builds, until sessions and the index hold it.
class Loader {
 public:
  Loader(Cache& cache, const Options& options, Source& source)
      : cache_(cache),
        options_(options),
        source_(source),
        opening_(options, source),
        groups_(cache.groups().size()),
        block_size_(cache.config().block_size),
        contiguous_(cache.config().storage == PKV_STORAGE_CONTIGUOUS),
        counts_(groups_) {
    check_matches();
    check_salts();
    check_tenants();
  }

  const Tables& tables() const { return opening_.tables; }

  // The contents of the sessions, with their keys and values. The blocks of entries of the index
  // are there then, too.
  std::vector<Content> build(std::span<const Text> sessions);
  // As if sessions with the texts of the index had ended, one after another. What there is no
  // memory for is left out.
  void publish_entries() noexcept;

 private:
  using Table = std::vector<std::vector<memory::Block>>;  // by group

  void check_matches() const;
  void check_salts() const;
  void check_tenants() const;
  void choose_entries();
  std::vector<SavedEntry> distinct_entries() const;
  void need(uint32_t chain);
  std::vector<uint32_t> path(const Text& text) const;
  void plan_segments();
  Table table(const Text& text) const;
  void check_seen(const Text& text, const Table& table) const;
  void cut(Text& text, const Table& table) const;
  void end_chain(Text& text) const;
  void count_segments();
  void count_texts(std::span<const Text> texts);
  void check_capacity() const;
  void check_before_evicting();
  void take();
  void find_passing(std::span<const Text> texts);
  Content make(const Text& text);
  void read_kv(std::span<const Text> texts, std::span<const Content> contents);
  void parse_lengths(std::span<const uint64_t> lengths);
  void shorten(Text& text) const;
  void copy_beginning(uint32_t c, size_t g);
  void load(const SavedTile& tile, const unsigned char* from, std::span<const Text> texts,
            std::span<const Content> contents);

  uint64_t first_block(const Chain& chain) const { return chain.start / block_size_; }
  Segment& segment(uint32_t chain, size_t g) { return segments_[chain * groups_ + g]; }
  const Segment& segment(uint32_t chain, size_t g) const { return segments_[chain * groups_ + g]; }
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }

  Cache& cache_;
  const Options& options_;
  Source& source_;
  Opening opening_;
  const size_t groups_;
  const uint64_t block_size_;
  const bool contiguous_;
  std::vector<Text> entries_;  // of the index
  std::vector<bool> needed_;   // by chain
  std::vector<std::vector<uint32_t>>
      passing_;                    // by chain, which texts go through it; of contiguous storage
  std::vector<Segment> segments_;  // by chain, then group
  std::vector<uint64_t> counts_;   // blocks to take, by group
  std::vector<uint64_t> lengths_;  // by chain, how many tokens of it there are for the index
  std::optional<Reservation> reservation_;
};

namespace {

// Stands for a block that is still to be taken.
constexpr memory::Block some_block = 0;

void check_same(uint64_t file, uint64_t cache, size_t group, const char* what) {
  if (file != cache)
    fail(PKV_MISMATCH, "group %zu: the file has %s %llu, the cache %llu", group, what,
         (unsigned long long)file, (unsigned long long)cache);
}

}  // namespace

void Loader::check_matches() const {
  opening_.check_fingerprint(options_.fingerprint);
  const Tables& tables = opening_.tables;
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

// Whoever writes a file chooses its salts: without a key that may be anybody, and a salt keeps
// tenants apart.
void Loader::check_salts() const {
  if (opening_.header.encrypted || options_.trust_salts || cache_.prefix() == nullptr) return;
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

// What texts share lies in the same blocks, and the index has a block under one salt. Linear in the
// file's size: where a chain has its salt, so have those that it follows.
void Loader::check_tenants() const {
  if (cache_.prefix() == nullptr) return;
  constexpr uint64_t nobody = ~uint64_t{0};
  std::vector<uint64_t> salts(tables().chains.size(), nobody);  // by chain, whose it is
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

// An entry that is the beginning of another one tells nothing. Linear in the file's size: no chain
// is looked at twice.
std::vector<SavedEntry> Loader::distinct_entries() const {
  const std::vector<SavedEntry>& all = tables().entries;
  std::vector<uint32_t> longest(tables().chains.size(),
                                none);        // by chain, the longest entry that ends in it
  std::vector<bool> goes_on(longest.size());  // by chain: an entry goes through it and beyond
  for (uint32_t e = 0; e < all.size(); e++) {
    const uint32_t end = all[e].chain;
    if (end == none) continue;
    if (longest[end] == none || all[longest[end]].length <= all[e].length) longest[end] = e;
    for (uint32_t c = tables().chains[end].parent; c != none && !goes_on[c];
         c = tables().chains[c].parent)
      goes_on[c] = true;
  }
  std::vector<SavedEntry> distinct;
  for (uint32_t e = 0; e < all.size(); e++)
    if (all[e].chain != none && longest[all[e].chain] == e && !goes_on[all[e].chain])
      distinct.push_back(all[e]);
  return distinct;
}

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

// A chain and those it follows.
void Loader::need(uint32_t chain) {
  for (; chain != none && !needed_[chain]; chain = tables().chains[chain].parent)
    needed_[chain] = true;
}

// The chains of a text, from its beginning on.
std::vector<uint32_t> Loader::path(const Text& text) const {
  std::vector<uint32_t> path;
  for (uint32_t c = text.chain; c != none; c = tables().chains[c].parent) path.push_back(c);
  std::reverse(path.begin(), path.end());
  return path;
}

// Which blocks there will be.
void Loader::plan_segments() {
  const std::vector<Chain>& chains = tables().chains;
  segments_.resize(chains.size() * groups_);
  for (uint32_t c = 0; c < chains.size(); c++) {
    if (!needed_[c]) continue;
    const Chain& chain = chains[c];
    for (size_t g = 0; g < groups_; g++) {
      std::vector<memory::Block>& blocks = segment(c, g).blocks;
      blocks.assign(ceil_div(chain.end(), block_size_) - first_block(chain),
                    chain.held[g] != 0 ? some_block : memory::no_block);
      if (chain.start % block_size_ != 0 &&
          segment(chain.parent, g).blocks.back() == memory::no_block)
        blocks.front() = memory::no_block;
    }
  }
}

// The blocks of a text. Of a window group only the sinks and the run at the end, as a sequence has
// them.
Loader::Table Loader::table(const Text& text) const {
  Table table(groups_);
  const std::vector<uint32_t> path = this->path(text);
  for (size_t g = 0; g < groups_; g++) {
    const memory::Shape& shape = group(g).shape;
    std::vector<memory::Block>& blocks = table[g];
    for (const uint32_t c : path) {
      blocks.resize(first_block(tables().chains[c]));
      blocks.insert(blocks.end(), segment(c, g).blocks.begin(), segment(c, g).blocks.end());
    }
    blocks.resize(ceil_div(text.length, block_size_));
    if (shape.window == 0) continue;
    const uint64_t sinks = ceil_div(shape.sinks, block_size_),
                   from = text.kept_from != nullptr ? (*text.kept_from)[g] : 0;
    size_t i = blocks.size();
    while (i > 0 && blocks[i - 1] != memory::no_block && (i - 1) * block_size_ >= from) i--;
    for (; i > sinks; i--) blocks[i - 1] = memory::no_block;
  }
  return table;
}

// Whoever goes on with the text finds what it attends to.
void Loader::check_seen(const Text& text, const Table& table) const {
  for (size_t g = 0; g < groups_; g++) {
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

// Of a text of the index, what every group without a window has.
void Loader::cut(Text& text, const Table& table) const {
  for (size_t g = 0; g < groups_; g++) {
    if (group(g).shape.window != 0) continue;
    const auto missing = static_cast<uint64_t>(
        std::find(table[g].begin(), table[g].end(), memory::no_block) - table[g].begin());
    text.length = std::min(text.length, missing * block_size_);
  }
  end_chain(text);
}

// The chain in which a text ends that got shorter.
void Loader::end_chain(Text& text) const {
  while (text.chain != none && tables().chains[text.chain].start >= text.length)
    text.chain = tables().chains[text.chain].parent;
}

// Blocks that are cached and unused go only when it is sure that the file is sound, if it can be
// read twice.
void Loader::check_before_evicting() {
  bool evicts = false;
  for (size_t g = 0; g < groups_; g++) evicts = evicts || group(g).pool.free_count() < counts_[g];
  if (!evicts || cache_.prefix() == nullptr || !source_.can_rewind()) return;
  opening_.reader.read_rest(cache_.workers(), 0, [](uint64_t, uint64_t, const unsigned char*) {});
  source_.rewind();
  Opening again(options_, source_);
  if (encode(again.tables) != encode(tables()))
    fail(PKV_CORRUPT, "the file was changed while it was read");
  opening_.reader = std::move(again.reader);
}

void Loader::count_segments() {
  for (size_t i = 0; i < segments_.size(); i++)
    for (const memory::Block block : segments_[i].blocks)
      counts_[i % groups_] += block != memory::no_block;
}

// Tensors of their own for each text; counting ends where they cannot fit.
void Loader::count_texts(std::span<const Text> texts) {
  for (const Text& text : texts) {
    const Table blocks = table(text);
    for (size_t g = 0; g < groups_; g++)
      counts_[g] +=
          static_cast<uint64_t>(std::count(blocks[g].begin(), blocks[g].end(), some_block));
    check_capacity();
  }
}

// Before any work that grows with texts: no cache holds more than it has blocks.
void Loader::check_capacity() const {
  for (size_t g = 0; g < groups_; g++)
    if (counts_[g] > group(g).pool.blocks())
      fail(PKV_TOO_LARGE, "load needs %llu blocks or more in group %zu, which has %llu",
           (unsigned long long)counts_[g], g, (unsigned long long)group(g).pool.blocks());
}

void Loader::take() {
  reservation_.emplace(cache_, counts_, 0, nullptr, "load");
  if (contiguous_) return;
  std::vector<std::span<const memory::Block>> rest;
  for (size_t g = 0; g < groups_; g++) rest.push_back(reservation_->next(g, counts_[g]));
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

void Loader::find_passing(std::span<const Text> texts) {
  passing_.resize(tables().chains.size());
  for (uint32_t t = 0; t < texts.size(); t++)
    for (uint32_t c = texts[t].chain; c != none; c = tables().chains[c].parent)
      passing_[c].push_back(t);
}

Content Loader::make(const Text& text) {
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
  const Table blocks = table(text);
  for (size_t g = 0; g < groups_; g++) {
    memory::Sequence& sequence = content.sequences()[g];
    sequence.make_room(blocks[g].size(), blocks[g].size() * block_size_);
    for (size_t i = 0; i < blocks[g].size(); i++) {
      memory::Block block = blocks[g][i];
      if (block != memory::no_block && contiguous_) {
        block = reservation_->next(g, 1)[0];
        group(g).pool.set_filled(
            block, static_cast<uint32_t>(std::min(block_size_, text.length - i * block_size_)));
        reservation_->disown(g, 1);
      } else if (block != memory::no_block && group(g).pool.retain(block) != PKV_OK) {
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
  const uint64_t kv_bytes = opening_.header.kv_bytes;
  std::vector<uint64_t> lengths(opening_.header.lengths_bytes / sizeof(uint64_t));
  opening_.reader.read_rest(
      cache_.workers(), map.longest(),
      [&](uint64_t begin, uint64_t end, const unsigned char* bytes) {
        if (const uint64_t first = std::max(begin, kv_bytes); first < end)
          std::memcpy(reinterpret_cast<unsigned char*>(lengths.data()) + (first - kv_bytes),
                      bytes + (first - begin), end - first);
        map.each_ended(begin, end, [&](const SavedTile& tile) {
          if (needed_[tile.chain])
            load(tile, bytes + static_cast<std::ptrdiff_t>(tile.offset - begin), texts, contents);
        });
      });
  parse_lengths(lengths);
  // A chain after the one it follows.
  for (uint32_t c = 0; c < tables().chains.size() && !contiguous_; c++)
    for (size_t g = 0; g < groups_ && needed_[c]; g++) copy_beginning(c, g);
}

void Loader::parse_lengths(std::span<const uint64_t> lengths) {
  for (size_t c = 0; c < tables().chains.size() && !lengths.empty(); c++) {
    lengths_.push_back(lengths[c]);
    if (lengths[c] > tables().chains[c].tokens.size())
      fail(PKV_CORRUPT, "chain %zu of the file has %zu tokens, and keys and values of %llu", c,
           tables().chains[c].tokens.size(), (unsigned long long)lengths[c]);
  }
}

// A text of the index ends where a block was evicted while the file was written.
void Loader::shorten(Text& text) const {
  for (uint32_t c = text.chain; c != none && !lengths_.empty(); c = tables().chains[c].parent)
    if (lengths_[c] < tables().chains[c].tokens.size())
      text.length = std::min(text.length, tables().chains[c].start + lengths_[c]);
  end_chain(text);
}

// A tile goes into the block of its chain, or into the tensors of every text that goes through it.
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
  for (const uint32_t t : passing_[tile.chain]) {
    const memory::Sequence& sequence = contents[t].sequences()[tile.group];
    const uint64_t end = std::min(texts[t].length, chain.end());
    if (position >= end || sequence.blocks()[position / block_size_] == memory::no_block) continue;
    load_tile(cache_.kernels(), {&group(tile.group), {}, &sequence}, tile.layer, position,
              tokens(end), saved, from);
  }
}

// What the chain before has in the block in which this one begins.
void Loader::copy_beginning(uint32_t c, size_t g) {
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
  for (const Text& text : sessions) need(text.chain);
  for (const Text& text : entries_) need(text.chain);
  plan_segments();
  if (contiguous_)
    count_texts(sessions);
  else
    count_segments();
  check_capacity();
  for (const Text& text : sessions) check_seen(text, table(text));
  for (Text& text : entries_) cut(text, table(text));
  check_before_evicting();
  take();
  if (contiguous_) find_passing(sessions);
  std::vector<Content> contents;
  contents.reserve(sessions.size());
  for (const Text& text : sessions) contents.push_back(make(text));
  if (tables().has_kv) read_kv(sessions, contents);
  return contents;
}

void Loader::publish_entries() noexcept {
  for (Text& text : entries_) {
    shorten(text);
    try {
      Session(make(text), 0, true);
    } catch (const Error&) {
      // A block has as many references as it can have.
    } catch (const std::bad_alloc&) {
    }
  }
}

// ---- Sessions -----------------------------------------------------------------------------------

Loaded::Loaded(Cache& cache, const Options& options, Source& source, size_t most, size_t* count)
    : loader_(std::make_unique<Loader>(cache, options, source)) {
  const Tables& tables = loader_->tables();
  *count = tables.sessions.size();
  if (*count > most)
    fail(PKV_BUFFER_TOO_SMALL, "the file has %zu sessions, there is room for %zu", *count, most);
  static const std::string no_salt;
  std::vector<Text> texts;
  for (const SavedSession& saved : tables.sessions) {
    const bool matches = cache.prefix() != nullptr && (saved.flags & saved_matches) != 0;
    const std::string* const salt = saved.salt == none ? &no_salt : &tables.salts[saved.salt];
    texts.push_back(
        {saved.chain, saved.length, &saved.kept_from, matches ? salt : nullptr, saved.retention});
  }
  std::vector<Content> contents = loader_->build(texts);
  for (size_t i = 0; i < *count; i++) {
    const SavedSession& saved = tables.sessions[i];
    sessions.push_back(std::make_unique<Session>(std::move(contents[i]), saved.priority, false));
    sessions.back()->remember(saved.remembered, (saved.flags & saved_suspended) != 0);
    labels.push_back(saved.label);
    publishes_.push_back((saved.flags & saved_publishes) != 0);
  }
}

Loaded::~Loaded() = default;

void Loaded::publish() noexcept {
  loader_->publish_entries();
  for (size_t i = 0; i < sessions.size(); i++)
    if (publishes_[i]) sessions[i]->start_publishing();
}

}  // namespace pkv::file
