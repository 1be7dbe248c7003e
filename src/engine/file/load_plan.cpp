// Decides which part of a file's texts a cache takes, and checks that sessions get all that they
// need.
#include "engine/file/load_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/file/tiles.h"
#include "engine/memory/coverage.h"

namespace pkv::file {

namespace {

// Limits how many block positions the loaded entries of the index have in all, as a multiple of the
// blocks of the cache. Without a limit, many texts with a common beginning would be few bytes of a
// file, but any amount of work. The most recently used entries are loaded.
constexpr uint64_t entry_positions_per_block = 64;

// The default limit of the tokens of all sessions, as a multiple of what the cache can hold. The
// file's distinct tokens are added, because a session with a window may be longer than the cache.
constexpr uint64_t tokens_per_slot = 64;

void check_same(uint64_t file, uint64_t cache, size_t group, const char* what) {
  if (file != cache)
    fail(PKV_MISMATCH, "group %zu: the file has %s %llu, the cache %llu", group, what, llu(file),
         llu(cache));
}

void check_model(const CacheConfig& config, const Tables& tables) {
  if (tables.has_kv != config.has_bytes())
    fail(PKV_MISMATCH, tables.has_kv
                           ? "the file has keys and values, but storage EXTERNAL keeps none"
                           : "the file was saved with storage EXTERNAL, without keys and values");
  if (tables.groups.size() != config.groups.size())
    fail(PKV_MISMATCH, "the file has %zu layer groups, the cache %zu", tables.groups.size(),
         config.groups.size());
  for (size_t g = 0; g < tables.groups.size(); g++) {
    const memory::Shape &file = tables.groups[g].shape, &own = config.groups[g].shape;
    if (file.kind != own.kind)
      fail(PKV_MISMATCH, "group %zu: the file has layers of kind %s, the cache %s", g,
           enum_name(file.kind), enum_name(own.kind));
    check_same(file.layers, own.layers, g, "layers:");
    check_same(file.kv_heads, own.kv_heads, g, "KV heads:");
    check_same(file.key_dim, own.key_dim, g, "key dim");
    check_same(file.value_dim, own.value_dim, g, "value dim");
    check_same(file.window, own.window, g, "window");
    check_same(file.sinks, own.sinks, g, "sinks:");
    const auto rotation = [](const memory::Rotations& of) {
      return of.matrices ? "by matrices" : enum_name(of.kind);
    };
    if (std::strcmp(rotation(file.rotations), rotation(own.rotations)) != 0)
      fail(PKV_MISMATCH, "group %zu: the file has rotation %s, the cache %s", g,
           rotation(file.rotations), rotation(own.rotations));
    if (!(file.rotations == own.rotations))
      fail(PKV_MISMATCH, "group %zu: the file was saved with other matrices of rotation", g);
    check_same(file.layer_bytes, own.layer_bytes, g, "bytes of a layer in a block:");
    if (own.has_states() || own.opaque())
      check_same(tables.block_size, config.block_size, g, "blocks of");
    if (tables.groups[g].layers != config.groups[g].layer_indices)
      fail(PKV_MISMATCH, "group %zu: the file has other layers of the model than the cache", g);
    if (!convertible(file, own))
      fail(PKV_MISMATCH,
           "group %zu: the file has dtypes %s and %s, the cache %s and %s; only F32, F16 and BF16 "
           "are converted",
           g, enum_name(file.dtype), enum_name(file.value_dtype), enum_name(own.dtype),
           enum_name(own.value_dtype));
  }
}

// Refuses salts of a file without a key, unless they are trusted. A salt separates tenants, and
// anybody can write a file without a key that claims the salt of another tenant.
void check_salts(const Tables& tables, bool with_index) {
  const auto check = [&](uint32_t salt) {
    if (salt != none && !tables.salts[salt].empty())
      fail(PKV_MISMATCH,
           "the file has sequences under a salt but was saved without a key, so anyone may have "
           "written it; save it with a key, or set trust_salts");
  };
  for (const SavedSession& session : tables.sessions)
    if ((session.flags & saved_matches) != 0) check(session.salt);
  for (const SavedEntry& entry : tables.entries)
    if (with_index) check(entry.salt);
}

// Refuses sessions whose token ids would take much more memory than the file.
void check_tokens(const Cache& cache, const Tables& tables, uint64_t most) {
  if (most == 0) {
    most = tokens_per_slot * cache.config().block_size * memory::largest_pool(cache.groups());
    for (const Chain& chain : tables.chains) most += chain.tokens.size();
  }
  uint64_t room = most;
  for (const SavedSession& session : tables.sessions) {
    if (session.length > room)
      fail(PKV_TOO_LARGE,
           "the %zu sessions of the file have more than %llu tokens, the limit (max_tokens)",
           tables.sessions.size(), llu(most));
    room -= session.length;
  }
}

const std::string& salt_of(const Tables& tables, uint32_t number) {
  static const std::string no_salt;
  return number == none ? no_salt : tables.salts[number];
}

}  // namespace

void check_fits(const Cache& cache, const OpenedFile& file, const FileOptions& options) {
  file.check_fingerprint(options.fingerprint);
  check_model(cache.config(), file.tables);
  check_tokens(cache, file.tables, options.max_tokens);
  if (!file.reader.header().encrypted && !options.trust_salts && cache.prefix() != nullptr)
    check_salts(file.tables, options.prefix_index);
}

LoadPlan::LoadPlan(const Cache& cache, const Tables& tables, bool with_index)
    : cache_(cache),
      tables_(tables),
      groups_(cache.groups().size()),
      block_size_(cache.config().block_size),
      needed_(tables.chains.size()) {
  list_sessions();
  if (cache.prefix() != nullptr) check_tenants(with_index);
  if (cache.prefix() != nullptr && with_index) choose_entries();
  for (const Text& text : sessions_) mark_needed(text.chain);
  for (const Text& text : entries_) mark_needed(text.chain);
  plan_chains();
}

void LoadPlan::check_sessions() const {
  for (const Text& text : sessions_) check_dropped(text);
  for (const Text& text : sessions_) check_visible(text, block_tables(text));
}

std::vector<Text> LoadPlan::entries() const {
  std::vector<Text> entries = entries_;
  for (Text& text : entries) {
    cut_to_held(text, block_tables(text));
    cut_to_saved(text);
  }
  return entries;
}

void LoadPlan::set_saved_tokens(std::span<const uint64_t> lengths) {
  for (size_t c = 0; c < saved_tokens_.size(); c++) {
    saved_tokens_[c] = lengths[c];
    if (lengths[c] > tables_.chains[c].tokens.size())
      fail(PKV_CORRUPT, "chain %zu of the file has %zu tokens, and keys and values of %llu", c,
           tables_.chains[c].tokens.size(), llu(lengths[c]));
  }
}

void LoadPlan::list_sessions() {
  for (const SavedSession& saved : tables_.sessions) {
    const bool matches = cache_.prefix() != nullptr && (saved.flags & saved_matches) != 0;
    sessions_.push_back({saved.chain, saved.length, &saved,
                         matches ? &salt_of(tables_, saved.salt) : nullptr, saved.retention});
  }
}

// Refuses a file with a chain under two salts: texts share the blocks of a chain, and the index has
// a block under one salt only. Takes time linear in the size of the file, because it stops at a
// chain that has the salt already: its parents have it, too.
void LoadPlan::check_tenants(bool with_index) const {
  constexpr uint64_t nobody = ~uint64_t{0};
  // By chain: the salt that claimed it.
  std::vector<uint64_t> salts(tables_.chains.size(), nobody);
  const auto claim = [&](uint32_t end, uint32_t salt) {
    for (uint32_t c = end; c != none && salts[c] != salt; c = tables_.chains[c].parent)
      if (std::exchange(salts[c], salt) != nobody)
        fail(PKV_CORRUPT, "chain %u of the file is cached under two salts", c);
  };
  for (const SavedSession& session : tables_.sessions)
    if ((session.flags & saved_matches) != 0 && (session.flags & saved_publishes) != 0)
      claim(session.chain, session.salt);
  for (const SavedEntry& entry : tables_.entries)
    if (with_index) claim(entry.chain, entry.salt);
}

// Returns the entries that are not a prefix of another entry; a prefix would add nothing. Takes
// time linear in the size of the file, because it marks each chain once.
std::vector<SavedEntry> LoadPlan::distinct_entries() const {
  const std::vector<SavedEntry>& all = tables_.entries;
  // By chain: the longest entry that ends in it, and whether an entry continues after it.
  std::vector<uint32_t> longest(tables_.chains.size(), none);
  std::vector<bool> extended(longest.size());
  for (uint32_t e = 0; e < all.size(); e++) {
    const uint32_t end = all[e].chain;
    if (end == none) continue;
    if (longest[end] == none || all[longest[end]].length <= all[e].length) longest[end] = e;
    for (uint32_t c = tables_.chains[end].parent; c != none && !extended[c];
         c = tables_.chains[c].parent)
      extended[c] = true;
  }
  std::vector<SavedEntry> distinct;
  for (uint32_t e = 0; e < all.size(); e++)
    if (all[e].chain != none && longest[all[e].chain] == e && !extended[all[e].chain])
      distinct.push_back(all[e]);
  return distinct;
}

// Chooses the most recently used entries, within the limit.
void LoadPlan::choose_entries() {
  uint64_t room = entry_positions_per_block * memory::largest_pool(cache_.groups());
  const std::vector<SavedEntry> distinct = distinct_entries();
  for (size_t i = distinct.size(); i-- > 0;) {
    const SavedEntry& entry = distinct[i];
    const uint64_t positions = ceil_div(entry.length, block_size_);
    if (positions > room && !entries_.empty()) break;
    room -= std::min(room, positions);
    entries_.push_back(
        {entry.chain, entry.length, nullptr, &salt_of(tables_, entry.salt), entry.retention});
  }
  std::reverse(entries_.begin(), entries_.end());
}

// Marks a chain and those before it.
void LoadPlan::mark_needed(uint32_t chain) {
  for (; chain != none && !needed_[chain]; chain = tables_.chains[chain].parent)
    needed_[chain] = true;
}

std::vector<uint32_t> LoadPlan::path(const Text& text) const {
  std::vector<uint32_t> path;
  for (uint32_t c = text.chain; c != none; c = tables_.chains[c].parent) path.push_back(c);
  std::reverse(path.begin(), path.end());
  return path;
}

// Decides which chains get which blocks, without allocating them yet.
void LoadPlan::plan_chains() {
  const std::vector<Chain>& chains = tables_.chains;
  chain_blocks_.assign(chains.size(), std::vector<ChainBlocks>(groups_));
  for (uint32_t c = 0; c < chains.size(); c++) {
    saved_tokens_.push_back(chains[c].tokens.size());
    if (!needed_[c]) continue;
    const Chain& chain = chains[c];
    for (size_t g = 0; g < groups_; g++) {
      std::vector<memory::Block>& blocks = chain_blocks_[c][g].blocks;
      blocks.assign(ceil_div(chain.end(), block_size_) - first_block(chain),
                    chain.has_kv[g] != 0 ? planned_block : memory::no_block);
      if (chain.start % block_size_ != 0 &&
          chain_blocks_[chain.parent][g].blocks.back() == memory::no_block)
        blocks.front() = memory::no_block;
    }
  }
}

LoadPlan::BlockTables LoadPlan::block_tables(const Text& text) const {
  BlockTables table(groups_);
  const std::vector<uint32_t> path = this->path(text);
  for (size_t g = 0; g < groups_; g++) {
    const memory::Shape& shape = group(g).shape;
    std::vector<memory::Block>& blocks = table[g];
    for (const uint32_t c : path) {
      blocks.resize(first_block(tables_.chains[c]));
      const ChainBlocks& own = chain_blocks_[c][g];
      blocks.insert(blocks.end(), own.blocks.begin(), own.blocks.end());
    }
    blocks.resize(ceil_div(text.length, block_size_));
    if (text.session != nullptr)
      for (const DroppedRun& run : text.session->dropped[g])
        for (uint64_t i = run.begin / block_size_; i < run.end / block_size_; i++)
          blocks[i] = memory::dropped_block;
    // A group of states keeps every state of the file.
    if (group(g).has_states() && text.session != nullptr) drop_unsaved(text, blocks);
    if (shape.window == 0) continue;
    const uint64_t sinks = ceil_div(shape.sinks, block_size_),
                   from = text.session != nullptr ? text.session->kept_from[g] : 0;
    size_t i = blocks.size();
    while (i > 0 && blocks[i - 1] != memory::no_block && (i - 1) * block_size_ >= from) i--;
    for (; i > sinks; i--) blocks[i - 1] = memory::no_block;
  }
  return table;
}

// Leaves out states of a session that the index lost before they were written. The last one is the
// session's own.
void LoadPlan::drop_unsaved(const Text& text, std::vector<memory::Block>& states) const {
  for (uint32_t c = text.chain; c != none; c = tables_.chains[c].parent) {
    const Chain& chain = tables_.chains[c];
    if (saved_tokens_[c] == chain.tokens.size()) continue;
    for (uint64_t i = first_block(chain) + saved_tokens_[c] / block_size_;
         i < ceil_div(chain.end(), block_size_) && i + 1 < states.size(); i++)
      states[i] = memory::no_block;
  }
}

// Checks that the cache can drop what a session dropped. Runs are whole blocks of the file.
void LoadPlan::check_dropped(const Text& text) const {
  for (size_t g = 0; g < text.session->dropped.size(); g++)
    for (const DroppedRun& run : text.session->dropped[g]) {
      if (group(g).has_states()) fail(PKV_CORRUPT, "a session dropped states of group %zu", g);
      if (run.begin % block_size_ != 0 || run.end % block_size_ != 0)
        fail(PKV_MISMATCH,
             "group %zu: tokens %llu to %llu of a session were dropped, which are not whole "
             "blocks of %llu; use blocks whose size divides %u",
             g, llu(run.begin), llu(run.end - 1), llu(block_size_), tables_.block_size);
    }
}

// Checks that the tables have everything that the next token of the text attends to.
void LoadPlan::check_visible(const Text& text, const BlockTables& table) const {
  for (size_t g = 0; g < groups_; g++) {
    if (group(g).has_states()) {
      check_state(text, table[g]);
      continue;
    }
    const uint64_t sinks = group(g).blocks_for(group(g).shape.sinks),
                   needed = group(g).block_of(memory::first_needed(group(g), text.length));
    for (uint64_t i = 0; i < table[g].size(); i++) {
      if (table[g][i] != memory::no_block || (i >= sinks && i < needed)) continue;
      const unsigned long long first = i * block_size_;
      if (tables_.block_size % block_size_ == 0)
        fail(PKV_CORRUPT, "group %zu: the file lacks tokens from %llu on, which are attended to", g,
             first);
      fail(PKV_MISMATCH,
           "group %zu: what the file has of a window does not fill the block of %llu tokens from "
           "token %llu on; use blocks whose size divides %u",
           g, llu(block_size_), first, tables_.block_size);
    }
  }
}

// Checks that a text of a session has the state after its last token.
void LoadPlan::check_state(const Text& text, const std::vector<memory::Block>& table) const {
  if (text.length == 0) return;
  // The state of a part-filled block is the one after the last token of its chain.
  const bool at_end =
      text.length % block_size_ == 0 || tables_.chains[text.chain].end() == text.length;
  if (table.back() == memory::no_block || !at_end)
    fail(PKV_CORRUPT, "the file lacks the states after the %llu tokens of a session",
         llu(text.length));
}

// Cuts a text of the index to the part that the file has in every group that needs all tokens.
void LoadPlan::cut_to_held(Text& text, const BlockTables& table) const {
  for (size_t g = 0; g < groups_; g++) {
    if (group(g).sparse()) continue;
    const auto missing = static_cast<uint64_t>(
        std::find(table[g].begin(), table[g].end(), memory::no_block) - table[g].begin());
    text.length = std::min(text.length, missing * block_size_);
  }
}

// Cuts a text of the index to its saved part, and finds the chain in which it then ends.
void LoadPlan::cut_to_saved(Text& text) const {
  for (uint32_t c = text.chain; c != none; c = tables_.chains[c].parent)
    if (saved_tokens_[c] < tables_.chains[c].tokens.size())
      text.length = std::min(text.length, tables_.chains[c].start + saved_tokens_[c]);
  while (text.chain != none && tables_.chains[text.chain].start >= text.length)
    text.chain = tables_.chains[text.chain].parent;
}

std::vector<uint64_t> LoadPlan::count_blocks() const {
  std::vector<uint64_t> counts(groups_);
  for (const std::vector<ChainBlocks>& chain : chain_blocks_)
    for (size_t g = 0; g < groups_; g++)
      for (const memory::Block block : chain[g].blocks) counts[g] += block != memory::no_block;
  check_capacity(counts);
  return counts;
}

// Checks that the blocks fit into the pools at all, before any work that grows with the texts.
void LoadPlan::check_capacity(std::span<const uint64_t> counts) const {
  for (size_t g = 0; g < groups_; g++)
    if (counts[g] > group(g).pool.blocks())
      fail(PKV_TOO_LARGE, "load needs %llu blocks or more in group %zu, which has %llu",
           llu(counts[g]), g, llu(group(g).pool.blocks()));
}

}  // namespace pkv::file
