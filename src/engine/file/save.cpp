// Saves frozen sequences and the prefix index into a file. Before a file replaces an older one, it
// is checked as a load would check it; a failure of that is a bug in the library.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/status.h"
#include "engine/file/chains.h"
#include "engine/file/file.h"
#include "engine/file/kv_map.h"
#include "engine/file/load_plan.h"

namespace pkv::file {

namespace {

FrozenSequence freeze(const Content& content, const Attributes& attributes, uint64_t label) {
  FrozenSequence frozen{content.fork(), label, attributes, false, {}};
  frozen.content.hold().make_passive();
  return frozen;
}

// Numbers the salts of a file in the order in which they occur.
class Salts {
 public:
  explicit Salts(std::vector<std::string>& salts) : salts_(salts) {}
  uint32_t number(std::string_view salt) {
    if (salt.empty()) return none;
    const auto [entry, added] =
        numbers_.try_emplace(std::string(salt), static_cast<uint32_t>(salts_.size()));
    if (added) salts_.push_back(entry->first);
    return entry->second;
  }

 private:
  std::vector<std::string>& salts_;
  std::map<std::string, uint32_t> numbers_;
};

// The runs of positions whose blocks were dropped.
std::vector<DroppedRun> dropped_runs(const memory::BlockTable& table) {
  std::vector<DroppedRun> runs;
  const uint64_t size = table.group().block_size;
  for (size_t i = 0; i < table.blocks().size() && table.dropped() > 0; i++) {
    if (table.blocks()[i] != memory::dropped_block) continue;
    if (!runs.empty() && runs.back().end == i * size)
      runs.back().end += size;
    else
      runs.push_back({i * size, (i + 1) * size});
  }
  return runs;
}

SavedSession describe(const FrozenSequence& item, uint32_t chain, Salts& salts) {
  const Content& content = item.content;
  SavedSession saved;
  saved.label = item.label;
  saved.length = content.length();
  saved.chain = chain;
  saved.priority = item.attributes.priority;
  saved.remembered = item.remembered;
  if (item.suspended) saved.flags |= saved_suspended;
  if (item.attributes.publishes) saved.flags |= saved_publishes;
  if (content.hold()) {
    saved.flags |= saved_matches;
    saved.salt = salts.number(content.hold().salt());
    saved.retention = content.hold().hints().retention;
  }
  saved.forgotten_from = content.forgotten_from();
  for (size_t g = 0; g < content.groups(); g++) {
    saved.kept_from.push_back(std::min(content.table(g).first_kept(), content.length()));
    saved.dropped.push_back(dropped_runs(content.table(g)));
  }
  return saved;
}

// Adds the texts of the index, each of which ends in a leaf, the least recently used first. Their
// last nodes are appended to `ends`.
void add_entries(const prefix::Image& image, ChainBuilder& builder, Salts& salts, Tables& tables,
                 std::vector<uint32_t>& ends) {
  struct Leaf {
    uint64_t last_use;
    SavedEntry entry;
    uint32_t end;
  };
  std::vector<Leaf> leaves;
  std::vector<uint32_t> part_ends;
  std::vector<uint64_t> lengths;
  for (const prefix::Image::Part& part : image.parts) {
    const bool first = part.parent == prefix::Image::no_parent;
    part_ends.push_back(
        builder.add(first ? ChainBuilder::root : part_ends[part.parent], part.tokens, part.blocks));
    lengths.push_back((first ? 0 : lengths[part.parent]) + part.tokens.size());
    if (part.leaf)
      leaves.push_back(
          {part.last_use,
           {salts.number(image.salts[part.salt]), none, lengths.back(), part.retention},
           part_ends.back()});
  }
  std::sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    return std::pair(a.last_use, a.end) < std::pair(b.last_use, b.end);
  });
  for (const Leaf& leaf : leaves) {
    tables.entries.push_back(leaf.entry);
    ends.push_back(leaf.end);
  }
}

Tables describe_cache(const CacheConfig& config, const FileOptions& options) {
  Tables tables;
  tables.block_size = config.block_size;
  tables.has_kv = config.has_bytes();
  tables.fingerprint.assign(options.fingerprint.begin(), options.fingerprint.end());
  tables.groups = saved_groups(config);
  return tables;
}

// Adds the text of each item, the shortest first: of two texts that share blocks, the shorter one
// has more of those that left a window since. Returns the last node of each, by item.
std::vector<uint32_t> add_items(std::span<const FrozenSequence> items, ChainBuilder& builder) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(items[a].content.length(), a) < std::pair(items[b].content.length(), b);
  });
  std::vector<uint32_t> ends(items.size());
  for (const size_t i : order) ends[i] = builder.add(items[i].content);
  return ends;
}

// Adds the texts of all items and, if the index is saved, of its image to the tables. K and V of
// their chains are where the builder says.
void add_texts(Cache& cache, std::span<const FrozenSequence> items, bool saves_index,
               Tables& tables, ChainBuilder& builder, std::unique_ptr<prefix::Image>& image) {
  Salts salts(tables.salts);
  std::vector<uint32_t> entry_ends;
  if (saves_index && cache.prefix() != nullptr) {
    image = cache.prefix()->begin_image();
    while (cache.prefix()->copy_more(*image)) {
    }
    for (const FrozenSequence& item : items)
      for (size_t g = 0; g < cache.groups().size(); g++)
        image->mark_referenced(g, item.content.table(g).ids());
    add_entries(*image, builder, salts, tables, entry_ends);
  }
  const std::vector<uint32_t> ends = add_items(items, builder);
  builder.finish();
  tables.chains = std::move(builder.chains());
  for (size_t i = 0; i < items.size(); i++)
    tables.sessions.push_back(describe(items[i], builder.chain(ends[i]), salts));
  for (size_t i = 0; i < entry_ends.size(); i++)
    tables.entries[i].chain = builder.chain(entry_ends[i]);
}

#ifdef NDEBUG
constexpr bool debug = false;
#else
constexpr bool debug = true;
#endif

template <class Read>
void expect_to_work(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    fail(PKV_INTERNAL, "save: a load would refuse this file: %s", error.text);
  }
}

// Checks the tables of a file as a load into the cache they come from does. Throws INTERNAL with
// the message of that load.
void check_tables(const Cache& cache, std::span<const unsigned char> encoded) {
  expect_to_work([&] {
    const Tables tables = parse_tables(encoded);
    LoadPlan(cache, tables, true).check_sessions();
  });
}

// Passes a file on. In debug builds it also keeps all bytes, and reads them before it commits. A
// save that fails must leave a buffer as it was. Where it can fail late, in debug builds and if the
// engine copies blocks, a buffer gets the bytes at the end.
class CheckedSink final : public Sink {
 public:
  CheckedSink(Sink& to, const FileOptions& options, Cache& cache)
      : to_(to),
        options_(options),
        workers_(cache.workers()),
        delays_(to.writes_to_memory() && (debug || cache.block_io() != nullptr)) {}
  void write(const void* from, size_t n) override {
    if (!delays_) to_.write(from, n);
    const auto* const bytes = static_cast<const unsigned char*>(from);
    if (debug || delays_) written_.insert(written_.end(), bytes, bytes + n);
  }
  // Throws INTERNAL with the sentence of a reader.
  void commit() override {
    if (debug) expect_to_work([&] { read_all(); });
    if (delays_) to_.write(written_.data(), written_.size());
    to_.commit();
  }

 private:
  void read_all() {
    pkv_stream stream{};
    stream.kind = PKV_STREAM_BUFFER;
    stream.data = written_.data();
    stream.size = written_.size();
    const std::unique_ptr<Source> source = open_source(stream);
    OpenedFile(options_, *source)
        .reader.read_rest(workers_, 0, [](uint64_t, uint64_t, const unsigned char*) {});
  }

  Sink& to_;
  const FileOptions& options_;
  Workers& workers_;
  const bool delays_;
  std::vector<unsigned char> written_;  // in debug builds, or if it is written later
};

// The body of a file: its sizes and tables, its keys and values, and the lengths of its chains.
class Body {
 public:
  // `encoded` are the sizes and the tables. image is nullptr if the index is not saved.
  Body(Cache& cache, const Tables& tables, std::span<const unsigned char> encoded,
       const ChainBuilder& builder, prefix::Image* image)
      : cache_(cache),
        tables_(tables),
        encoded_(encoded),
        builder_(builder),
        image_(image),
        map_(tables),
        kv_end_(encoded.size() + tables.kv_bytes()),
        lengths_(new std::atomic<uint64_t>[tables.chains.size()]) {
    for (size_t c = 0; c < tables.chains.size(); c++) lengths_[c] = tables.chains[c].tokens.size();
  }

  size_t max_tile_bytes() const { return map_.max_tile_bytes(); }
  uint64_t kv_end() const { return kv_end_; }

  // Writes everything that begins in [begin, end) of the body, except opaque blocks. Many threads
  // may call it, but for the lengths one thread, when all keys and values have been put.
  void put(uint64_t begin, uint64_t end, unsigned char* to) {
    if (begin >= kv_end_) return put_lengths(begin - kv_end_, end - kv_end_, to);
    if (begin < encoded_.size()) {
      const auto n = std::min<uint64_t>(end, encoded_.size()) - begin;
      std::memcpy(to, encoded_.data() + begin, n);
      begin += n, to += n;
    }
    if (begin == end) return;
    begin -= encoded_.size(), end -= encoded_.size();
    map_.for_each_beginning_in(begin, end, [&](const SavedTile& tile) {
      if (!group(tile).opaque()) put(tile, to + (tile.offset - begin));
    });
  }

  // Writes the opaque blocks that begin in [begin, end) of the keys and values, and waits for the
  // engine's hook. Blocks of the index are lent meanwhile. Throws IO, bad_alloc.
  void put_opaque(uint64_t begin, uint64_t end, unsigned char* to) {
    if (cache_.block_io() == nullptr || end <= encoded_.size()) return;
    to += std::max<uint64_t>(begin, encoded_.size()) - begin;
    begin = std::max<uint64_t>(begin, encoded_.size()) - encoded_.size(), end -= encoded_.size();
    std::vector<std::vector<SavedTile>> tiles(cache_.groups().size());
    map_.for_each_beginning_in(begin, end, [&](const SavedTile& tile) {
      if (group(tile).opaque()) tiles[tile.group].push_back(tile);
    });
    for (const std::vector<SavedTile>& of_group : tiles)
      if (!of_group.empty()) put_opaque(of_group, to - begin);
  }

 private:
  const memory::Group& group(const SavedTile& tile) const { return *cache_.groups()[tile.group]; }

  uint32_t tokens_of(const SavedTile& tile, uint64_t most) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(most, tables_.chains[tile.chain].tokens.size() - tile.first));
  }

  // Does this for tiles of one group. `kv` is where the first of all tiles would be.
  void put_opaque(std::span<const SavedTile> tiles, unsigned char* kv) {
    const size_t g = tiles[0].group;
    const memory::Group& of = group(tiles[0]);
    std::vector<uint32_t> ids;
    for (const SavedTile& tile : tiles)
      ids.push_back(builder_.run(tile.chain, g).ids[tile.first / of.block_size]);
    std::optional<prefix::Index::Loan> loan;
    if (image_ != nullptr) loan.emplace(cache_.prefix()->lend(*image_, g, ids));
    std::vector<memory::BlockIo::Copy> copies;
    for (size_t i = 0; i < tiles.size(); i++) {
      unsigned char* const bytes = kv + tiles[i].offset;
      std::memset(bytes, 0, tiles[i].bytes);
      if (loan && !loan->available(i))
        cut_chain(tiles[i]);
      else
        copies.push_back({ids[i], tokens_of(tiles[i], of.block_size), bytes});
    }
    cache_.block_io()->read(static_cast<uint32_t>(g), of, copies);
  }
  void put(const SavedTile& tile, unsigned char* to) {
    const Run run = builder_.run(tile.chain, tile.group);
    const uint64_t position = tile.first;
    const uint32_t tokens = tokens_of(tile, kernels::tile_tokens);
    const auto save = [&] { save_tile(cache_.kernels(), run, tile.layer, position, tokens, to); };
    if (image_ == nullptr) return save();
    if (image_->read(tile.group, run.ids[position / run.group->block_size], save)) return;
    std::memset(to, 0, tile.bytes);
    cut_chain(tile);
  }

  // Notes that the block of a tile was evicted meanwhile, so texts of the index end before it.
  void cut_chain(const SavedTile& tile) noexcept {
    uint64_t length = lengths_[tile.chain];
    while (length > tile.first && !lengths_[tile.chain].compare_exchange_weak(length, tile.first)) {
    }
  }

  void put_lengths(uint64_t begin, uint64_t end, unsigned char* to) const noexcept {
    for (uint64_t n = 0; begin < end; begin += n, to += n) {
      const uint64_t chain = begin / sizeof(uint64_t), inside = begin % sizeof(uint64_t);
      const uint64_t length = chain < tables_.chains.size() ? lengths_[chain].load() : 0;
      n = std::min(end - begin, sizeof length - inside);
      std::memcpy(to, reinterpret_cast<const unsigned char*>(&length) + inside, n);
    }
  }

  Cache& cache_;
  const Tables& tables_;
  const std::span<const unsigned char> encoded_;
  const ChainBuilder& builder_;
  prefix::Image* const image_;
  const KvMap map_;
  const uint64_t kv_end_;
  const std::unique_ptr<std::atomic<uint64_t>[]> lengths_;  // by chain: how many tokens were read
};

}  // namespace

FrozenSequence freeze(const Session& session, uint64_t label) {
  FrozenSequence frozen = freeze(session.content(), session.attributes(), label);
  frozen.suspended = session.suspended();
  const prefix::Tokens remembered = session.suspension().tokens();
  frozen.remembered.assign(remembered.begin(), remembered.end());
  return frozen;
}

FrozenSequence freeze(const Snapshot& snapshot, uint64_t label) {
  return freeze(snapshot.content(), snapshot.attributes(), label);
}

std::vector<SavedGroup> saved_groups(const CacheConfig& config) {
  std::vector<SavedGroup> groups;
  for (const GroupConfig& group : config.groups) {
    groups.push_back({group.shape, group.layer_indices});
    groups.back().shape.query_heads = 0;
  }
  return groups;
}

void save(Cache& cache, std::span<const FrozenSequence> items, const FileOptions& options,
          Sink& sink, uint64_t* bytes) {
  if (!options.key.empty()) check_ciphers();
  Tables tables = describe_cache(cache.config(), options);
  ChainBuilder builder(cache);
  std::unique_ptr<prefix::Image> image;
  add_texts(cache, items, options.prefix_index, tables, builder, image);

  std::vector<unsigned char> encoded = encode(tables);
  check_tables(cache, encoded);
  const Sizes sizes{encoded.size(), tables.kv_bytes(), tables.lengths_bytes()};
  const Header header = make_header(sizes.body(), !options.key.empty());
  *bytes = file_bytes(header);
  sink.expect(*bytes);
  const std::vector<unsigned char> sizes_encoded = encode(sizes);
  encoded.insert(encoded.begin(), sizes_encoded.begin(), sizes_encoded.end());
  CheckedSink checked(sink, options, cache);
  Body body(cache, tables, encoded, builder, image.get());
  FileWriter(checked, options.key, header)
      .write(
          cache.workers(), body.kv_end(), body.max_tile_bytes(),
          [&](uint64_t begin, uint64_t end, unsigned char* to) { body.put(begin, end, to); },
          [&](uint64_t begin, uint64_t end, unsigned char* to) {
            body.put_opaque(begin, end, to);
          });
  checked.commit();
}

}  // namespace pkv::file
