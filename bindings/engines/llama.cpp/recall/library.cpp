// The functions of pagedkv-llama.h: a cache with opaque groups, one of tokens and one of ends or
// only one of these, whose blocks are in memory of this library.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>

#include "context.h"
#include "failure.h"
#include "pagedkv-llama.h"

namespace pagedkv_llama {

namespace {

// What failed says may need memory, but keeping it does not.
thread_local char last_error[512];
void keep_error(const char* sentence) {
  std::snprintf(last_error, sizeof last_error, "%s", sentence);
}

// Returns a struct of libpagedkv with defaults.
template <class Struct>
Struct make() {
  Struct made{};
  made.struct_size = sizeof made;
  return made;
}

// Throws if a function of libpagedkv failed.
void check(pkv_status status) {
  if (status != PKV_OK) throw Failure{status, pkv_last_error()};
}

void check_argument(bool good, const char* what) {
  if (!good) fail(PKV_INVALID_ARGUMENT, "%s", what);
}

// Runs the body of a public function.
template <class Body>
pkv_status run(Body body) {
  try {
    body();
    return PKV_OK;
  } catch (const Failure& failure) {
    keep_error(failure.sentence.c_str());
    return failure.status;
  } catch (const std::exception&) {
    keep_error("there is too little memory");
    return PKV_OUT_OF_MEMORY;
  }
}

class Session {
 public:
  Session(pkv_cache cache, const pkv_prompt& prompt) {
    auto config = make<pkv_session_config>();
    config.salt = prompt.salt, config.salt_size = prompt.salt_size;
    check(pkv_session_open(cache, &config, &session_));
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    pkv_batch_abort(batch_);
    pkv_session_close(session_);
  }

  uint64_t admit(const int32_t* tokens, uint64_t n) {
    uint64_t matched = 0;
    check(pkv_session_admit(session_, n, tokens, 0, &matched));
    return matched;
  }
  void begin(pkv_cache cache, uint32_t new_tokens) {
    check(pkv_batch_begin(cache, 1, &session_, &new_tokens, &batch_));
  }
  void commit(const int32_t* tokens, size_t n) {
    check(pkv_batch_commit(batch_, n, tokens));
    batch_ = nullptr;
  }
  std::vector<uint32_t> blocks(uint32_t group) const {
    size_t n = 0;
    const pkv_status status = pkv_session_get_block_table(session_, group, 0, nullptr, &n);
    if (status != PKV_BUFFER_TOO_SMALL) check(status);
    std::vector<uint32_t> ids(n);
    check(pkv_session_get_block_table(session_, group, n, ids.data(), &n));
    return ids;
  }
  // The block of the end that the batch makes.
  uint32_t new_end(uint32_t group) const {
    uint32_t indptr[2], token, id;
    size_t count;
    check(pkv_batch_get_state_blocks(batch_, group, nullptr, indptr, 1, &token, &id, &count));
    return id;
  }

 private:
  pkv_session session_ = nullptr;
  pkv_batch batch_ = nullptr;
};

// Tokens of a text.
struct Range {
  uint64_t first, end;
};

// Empties a sequence when it ends.
struct Emptying {
  const LlamaContext& context;
  const int32_t sequence;
  ~Emptying() { context.empty(sequence); }
};

// The most of a state that is copied at once, if it can be copied in pieces.
constexpr uint64_t piece_bytes = uint64_t{16} << 20;

}  // namespace

// The memory of the blocks, which is divided among the groups in pages (guide/group_memory.md): so
// all blocks of a group are the same distance apart.
class Blocks {
 public:
  struct Group {
    uint64_t bytes, stride;
  };
  Blocks(std::vector<Group> groups, uint64_t bytes)
      : groups_(std::move(groups)), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}

  std::byte* at(uint32_t group, uint32_t id) const {
    return memory_.get() + id * groups_[group].stride;
  }

  // The cache copies blocks by these.
  pkv_block_io io() { return {sizeof(pkv_block_io), 0, this, read, write}; }

 private:
  // All blocks are full, so none has bytes of other sequences.
  static int32_t read(void* user, uint32_t group, size_t n, const uint32_t* ids, const uint32_t*,
                      void* to) {
    const Blocks& self = *static_cast<const Blocks*>(user);
    const uint64_t bytes = self.groups_[group].bytes;
    for (size_t i = 0; i < n; i++)
      std::memcpy(static_cast<std::byte*>(to) + i * bytes, self.at(group, ids[i]), bytes);
    return 0;
  }
  static int32_t write(void* user, uint32_t group, size_t n, const uint32_t* ids,
                       const void* from) {
    const Blocks& self = *static_cast<const Blocks*>(user);
    const uint64_t bytes = self.groups_[group].bytes;
    for (size_t i = 0; i < n; i++)
      std::memcpy(self.at(group, ids[i]), static_cast<const std::byte*>(from) + i * bytes, bytes);
    return 0;
  }

  std::vector<Group> groups_;
  // The system gives pages to blocks when they are first written.
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace pagedkv_llama

using namespace pagedkv_llama;

struct pkv_llama_t {
  explicit pkv_llama_t(const pkv_llama_config& config)
      : block_size(config.block_size == 0 ? 32 : config.block_size),
        context(config.context, config.library),
        identity(context.identify({static_cast<const std::byte*>(config.model_id),
                                   static_cast<size_t>(config.model_id_size)})),
        has_store(config.store != nullptr) {
    open_cache(config);
  }
  pkv_llama_t(const pkv_llama_t&) = delete;
  pkv_llama_t& operator=(const pkv_llama_t&) = delete;
  ~pkv_llama_t() { pkv_cache_destroy(cache); }

  const Shape& shape() const { return identity.shape; }
  bool has_ends() const { return shape().form.has_ends(); }
  // The groups of blocks of tokens and of ends, as far as there are such.
  static constexpr uint32_t tokens_group = 0;
  uint32_t ends_group() const { return shape().form.tokens ? 1 : 0; }

  void remember(int32_t sequence, const pkv_prompt& prompt);
  uint64_t recall(int32_t sequence, const pkv_prompt& prompt);

  const uint32_t block_size;
  const LlamaContext context;
  const LlamaContext::Identity identity;
  const bool has_store;
  uint64_t max_tokens = 0, memory_bytes = 0;
  std::optional<Blocks> blocks;
  pkv_cache cache = nullptr;
  std::atomic<uint64_t> asked{0}, found{0};

 private:
  void open_cache(const pkv_llama_config& config);
  uint64_t kept_tokens(uint64_t n) const;
  std::optional<int32_t> spare_sequence(int32_t besides) const;
  uint64_t piece_tokens() const;
  std::vector<uint32_t> token_blocks(const Session& session) const;
  void keep(const Session& session, const std::vector<uint32_t>& ids, int32_t sequence, Range has,
            Range kept);
  void restore(const Session& session, const std::vector<uint32_t>& ids, int32_t sequence,
               Range tokens);
};

namespace {

// What a cache without blocks takes, mostly for what it learns of returns: 0.7 MB were measured.
constexpr uint64_t empty_cache_bytes = uint64_t{1} << 20;

// The buffer of each of a store's two threads; while it copies blocks, a thread needs it twice.
constexpr uint64_t store_buffer_bytes = uint64_t{4} << 20;

// The config of the cache, and the memory that it takes.
struct Plan {
  explicit Plan(const pkv_llama_t& self) : has_store(self.has_store) {
    const Form& form = self.shape().form;
    // The index has a node for each block of a text: its tokens, itself, and its places in lists.
    // (A node takes 99 bytes in an index of 10,000,000 blocks of 16 tokens.)
    const uint64_t node_bytes = uint64_t{4} * self.block_size + 512;
    if (form.tokens) {
      auto& tokens = groups.emplace_back(make<pkv_layer_group>());
      tokens.kind = PKV_LAYERS_OPAQUE_KV;
      tokens.layer_bytes = self.block_size * self.shape().token_bytes();
      index_bytes.push_back(node_bytes);
    }
    if (form.has_ends()) {
      auto& ends = groups.emplace_back(make<pkv_layer_group>());
      ends.kind = PKV_LAYERS_OPAQUE_STATES;
      ends.layer_bytes = self.shape().end_bytes();
      // Without blocks of tokens, an end keeps the nodes of all tokens before it.
      const uint64_t nodes = form.tokens ? 1 : self.context.room() / self.block_size + 1;
      index_bytes.push_back(nodes * node_bytes);
    }
    for (auto& group : groups) group.layers = 1;
    config.groups = groups.data();
    config.group_count = static_cast<uint32_t>(groups.size());
    config.groups_share_memory = groups.size() > 1;
    config.storage = PKV_STORAGE_EXTERNAL;
    config.block_size = self.block_size;
    config.threads = 1;
    config.block_io = &no_io;
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Gives blocks as much memory as all else leaves of max_bytes.
  void fit(uint64_t max_bytes);

  pkv_cache_config config = make<pkv_cache_config>();
  std::vector<pkv_layer_group> groups;
  std::vector<uint64_t> index_bytes;  // of a block of each group
  Blocks no_blocks{{}, 0};
  pkv_block_io no_io = no_blocks.io();
  const bool has_store;
  uint64_t max_tokens = 0, memory_bytes = 0, block_bytes = 0;
  std::vector<Blocks::Group> strides;

 private:
  uint64_t other_bytes(uint64_t for_blocks);
  bool fits(uint64_t for_blocks, uint64_t max_bytes);
};

// Returns the memory that is needed besides that of blocks.
uint64_t Plan::other_bytes(uint64_t for_blocks) {
  config.memory_bytes = for_blocks;
  uint64_t tables = 0, index = 0, largest = store_buffer_bytes;
  strides.clear();
  for (uint32_t g = 0; g < groups.size(); g++) {
    auto sizes = make<pkv_cache_sizes>();
    check(pkv_cache_compute_sizes(&config, g, &sizes));
    tables += sizes.bookkeeping_bytes;
    index = std::max(index, sizes.blocks * index_bytes[g]);
    largest = std::max(largest, sizes.bytes_per_block);
    strides.push_back({sizes.bytes_per_block, sizes.memory_bytes / sizes.blocks});
    // A text needs the end that it continues, its own, and room for its tokens.
    if (groups[g].kind == PKV_LAYERS_OPAQUE_STATES && sizes.blocks < 3)
      fail(PKV_TOO_LARGE, "there is no room for three ends of texts");
  }
  auto all = make<pkv_cache_sizes>();
  check(pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &all));
  max_tokens = all.tokens, block_bytes = all.memory_bytes;
  return empty_cache_bytes + tables + index + (has_store ? 4 * std::min(largest, block_bytes) : 0);
}

bool Plan::fits(uint64_t for_blocks, uint64_t max_bytes) {
  try {
    const uint64_t other = other_bytes(for_blocks);
    return other <= max_bytes && block_bytes <= max_bytes - other;
  } catch (const Failure& failure) {
    if (failure.status == PKV_TOO_LARGE) return true;  // no block is in it yet
    throw;
  }
}

void Plan::fit(uint64_t max_bytes) {
  uint64_t fitting = 0, too_much = max_bytes;
  while (fitting + 1 < too_much) {
    const uint64_t middle = fitting + (too_much - fitting) / 2;
    (fits(middle, max_bytes) ? fitting : too_much) = middle;
  }
  try {
    memory_bytes = other_bytes(fitting) + block_bytes;
  } catch (const Failure& failure) {
    if (failure.status != PKV_TOO_LARGE) throw;
    uint64_t bytes = 0;
    for (const auto& group : groups) bytes = std::max(bytes, group.layer_bytes);
    fail(PKV_TOO_LARGE,
         "max_bytes is %llu: besides tables and buffers, that has no room for blocks of %llu bytes",
         static_cast<unsigned long long>(max_bytes), static_cast<unsigned long long>(bytes));
  }
}

}  // namespace

void pkv_llama_t::open_cache(const pkv_llama_config& config) {
  Plan plan(*this);
  plan.fit(config.max_bytes);
  max_tokens = plan.max_tokens, memory_bytes = plan.memory_bytes;
  blocks.emplace(plan.strides, plan.block_bytes);
  const pkv_block_io io = blocks->io();
  const auto prefix = make<pkv_prefix_config>();
  auto store = make<pkv_store_config>();
  store.wait_ms = config.wait_ms == 0 ? 5000 : config.wait_ms;
  store.store = config.store;
  store.fingerprint = identity.fingerprint.data();
  store.fingerprint_size = sizeof identity.fingerprint;
  store.secret_key = config.key, store.secret_key_size = config.key_size;
  store.buffer_bytes = store_buffer_bytes;
  store.max_queued_tokens = max_tokens;
  plan.config.block_io = &io;
  plan.config.prefix = &prefix;
  if (has_store) plan.config.store = &store;
  check(pkv_cache_create(&plan.config, &cache));
}

// Returns how many tokens of a text can be kept. A sequence with an end cannot be cut, and an end
// is that of a full block.
uint64_t pkv_llama_t::kept_tokens(uint64_t n) const {
  if (!has_ends()) return std::min(n, max_tokens) / block_size * block_size;
  if (n % block_size != 0)
    fail(PKV_UNSUPPORTED,
         "the text has %llu tokens: with sliding windows or recurrent layers, only multiples of %u "
         "can be kept",
         static_cast<unsigned long long>(n), block_size);
  return n;
}

void pkv_llama_t::remember(int32_t sequence, const pkv_prompt& prompt) {
  context.check_sequence(sequence);
  if (!context.has(sequence, prompt.n))
    fail(PKV_INVALID_ARGUMENT, "sequence %d does not have the positions of these %llu tokens",
         sequence, static_cast<unsigned long long>(prompt.n));
  const uint64_t n = kept_tokens(prompt.n);
  Session session(cache, prompt);
  const uint64_t known = session.admit(prompt.tokens, n);
  if (known == n) return;

  const std::optional<int32_t> spare = spare_sequence(sequence);
  if (spare &&
      context.state_size(sequence) != size_of_state(shape(), static_cast<uint32_t>(prompt.n)))
    fail(PKV_MISMATCH, "sequence %d does not have one cell for each of its %llu positions",
         sequence, static_cast<unsigned long long>(prompt.n));
  session.begin(cache, static_cast<uint32_t>(n - known));
  // The first of the new blocks may be a copy of one that is known in part: it is written again.
  const uint64_t begin = known / block_size * block_size;
  const std::vector<uint32_t> ids = token_blocks(session);
  if (!spare) keep(session, ids, sequence, {0, prompt.n}, {begin, n});
  for (uint64_t first = begin; spare && first < n; first += piece_tokens()) {
    const Range piece{first, std::min(n, first + piece_tokens())};
    const Emptying emptying{context, *spare};
    context.share(sequence, *spare, piece.first, piece.end);
    keep(session, ids, *spare, piece, piece);
  }
  session.commit(prompt.tokens + known, n - known);
}

// Returns the blocks of a text's tokens; none if the model keeps nothing for each token.
std::vector<uint32_t> pkv_llama_t::token_blocks(const Session& session) const {
  return shape().form.tokens ? session.blocks(tokens_group) : std::vector<uint32_t>();
}

// Keeps the blocks of some of the tokens that a sequence has, and the end of the text if there are
// ends.
void pkv_llama_t::keep(const Session& session, const std::vector<uint32_t>& ids, int32_t sequence,
                       Range has, Range kept) {
  const Buffer bytes = context.read(sequence);
  const State state(bytes.bytes(), sequence, shape().form, static_cast<int32_t>(has.first));
  if (state.shape() != shape() || state.tokens() != has.end - has.first)
    fail(PKV_MISMATCH, "the state of sequence %d is not like that of its context", sequence);
  if (shape().form.tokens)
    for (uint64_t i = kept.first / block_size; i < kept.end / block_size; i++)
      state.cut(i * block_size - has.first, block_size, block_size,
                blocks->at(tokens_group, ids[i]));
  if (has_ends()) state.cut_end(blocks->at(ends_group(), session.new_end(ends_group())));
}

uint64_t pkv_llama_t::recall(int32_t sequence, const pkv_prompt& prompt) {
  context.check_sequence(sequence);
  if (!context.has(sequence, 0))
    fail(PKV_INVALID_ARGUMENT, "sequence %d is not empty: remove its cells first", sequence);
  const uint64_t n = std::min<uint64_t>(prompt.n, context.room());
  Session session(cache, prompt);
  const uint64_t known = session.admit(prompt.tokens, n);
  asked.fetch_add(n, std::memory_order_relaxed);
  if (known == 0) return 0;

  const std::optional<int32_t> spare = spare_sequence(sequence);
  const uint64_t piece = spare ? std::min(known, piece_tokens()) : known;
  const std::vector<uint32_t> ids = token_blocks(session);
  restore(session, ids, sequence, {0, piece});
  try {
    for (uint64_t first = piece; first < known; first += piece) {
      const Emptying emptying{context, *spare};
      const uint64_t end = std::min(known, first + piece);
      restore(session, ids, *spare, {first, end});
      context.share(*spare, sequence, first, end);
    }
  } catch (...) {
    context.empty(sequence);
    throw;
  }
  found.fetch_add(known, std::memory_order_relaxed);
  return known;
}

// Gives some tokens of a text, and what else it has at their end, to an empty sequence.
void pkv_llama_t::restore(const Session& session, const std::vector<uint32_t>& ids,
                          int32_t sequence, Range tokens) {
  const auto [first, end] = tokens;
  const Buffer bytes = make_state(shape(), sequence, static_cast<uint32_t>(end - first),
                                  static_cast<uint32_t>(first));
  const State state(bytes.bytes(), sequence, shape().form, static_cast<int32_t>(first));
  if (shape().form.tokens)
    for (uint64_t at = first; at < end; at += block_size)
      state.paste(at - first, std::min<uint64_t>(block_size, end - at), block_size,
                  blocks->at(tokens_group, ids[at / block_size]));
  if (has_ends()) state.paste_end(blocks->at(ends_group(), session.blocks(ends_group()).back()));
  context.write(sequence, bytes);
}

// llama.cpp reads and writes whole sequences. A text can be read and written in pieces nevertheless
// if another sequence is empty, and has them for a moment: returns that one. Sequences with streams
// of their own would copy each piece, and what has an end cannot be cut.
std::optional<int32_t> pkv_llama_t::spare_sequence(int32_t besides) const {
  if (has_ends() || shape().caches.front().streams > 1) return std::nullopt;
  return context.empty_sequence(besides);
}

// A piece has full blocks, and in a small context it is small.
uint64_t pkv_llama_t::piece_tokens() const {
  const uint64_t most = std::min<uint64_t>(piece_bytes / shape().token_bytes(), context.room() / 8);
  return std::max<uint64_t>(most / block_size, 1) * block_size;
}

namespace {

void check_prompt(pkv_llama llama, const pkv_prompt* prompt) {
  check_argument(llama != nullptr && prompt != nullptr, "a pointer is NULL");
  check_argument(prompt->struct_size == sizeof *prompt && prompt->reserved == 0,
                 "struct_size of the prompt is wrong, or reserved is not 0");
  check_argument(prompt->tokens != nullptr || prompt->n == 0, "the tokens are NULL");
}

}  // namespace

pkv_status pkv_llama_open(const pkv_llama_config* config, pkv_llama* out) {
  return run([&] {
    check_argument(config != nullptr && out != nullptr, "a pointer is NULL");
    check_argument(config->struct_size == sizeof *config && config->reserved == 0,
                   "struct_size of the config is wrong, or reserved is not 0");
    check_argument(config->context != nullptr, "the context is NULL");
    check_argument(config->model_id != nullptr || config->model_id_size == 0, "model_id is NULL");
    check_argument(config->store != nullptr || config->key == nullptr, "a key needs a store");
    *out = std::make_unique<pkv_llama_t>(*config).release();
  });
}

pkv_status pkv_llama_close(pkv_llama llama) {
  return run([&] {
    if (llama == nullptr) return;
    check(pkv_cache_destroy(llama->cache));
    llama->cache = nullptr;
    delete llama;
  });
}

pkv_status pkv_llama_remember(pkv_llama llama, int32_t sequence, const pkv_prompt* prompt) {
  return run([&] {
    check_prompt(llama, prompt);
    llama->remember(sequence, *prompt);
  });
}

pkv_status pkv_llama_recall(pkv_llama llama, int32_t sequence, const pkv_prompt* prompt,
                            uint64_t* length) {
  return run([&] {
    check_prompt(llama, prompt);
    check_argument(length != nullptr, "length is NULL");
    *length = llama->recall(sequence, *prompt);
  });
}

pkv_status pkv_llama_forget(pkv_llama llama, const pkv_prompt* prompt) {
  return run([&] {
    check_prompt(llama, prompt);
    auto drop = make<pkv_hint>();
    drop.end = PKV_TO_END;
    drop.action = PKV_HINT_DROP;
    check(pkv_hint_prompt(llama->cache, prompt, &drop, nullptr));
  });
}

pkv_status pkv_llama_pin(pkv_llama llama, const pkv_prompt* prompt, uint64_t duration_ms,
                         uint64_t* tokens) {
  return run([&] {
    check_prompt(llama, prompt);
    auto pin = make<pkv_hint>();
    pin.end = PKV_TO_END;
    pin.action = PKV_HINT_PIN, pin.duration_ms = duration_ms;
    auto result = make<pkv_hint_result>();
    check(pkv_hint_prompt(llama->cache, prompt, &pin, &result));
    if (tokens != nullptr) *tokens = result.tokens;
  });
}

pkv_status pkv_llama_get_stats(pkv_llama llama, pkv_llama_stats* out) {
  return run([&] {
    check_argument(llama != nullptr && out != nullptr, "a pointer is NULL");
    check_argument(out->struct_size == sizeof *out, "struct_size of the statistics is wrong");
    auto all = make<pkv_prefix_stats>();
    check(pkv_prefix_get_stats(llama->cache, nullptr, PKV_ALL_SALTS, &all));
    *out = {.struct_size = sizeof *out,
            .block_size = llama->block_size,
            .token_bytes = llama->shape().token_bytes(),
            .end_bytes = llama->shape().end_bytes(),
            .memory_bytes = llama->memory_bytes,
            .max_tokens = llama->max_tokens,
            .cached_tokens = all.cached_tokens,
            .asked_tokens = llama->asked,
            .found_tokens = llama->found};
  });
}

pkv_status pkv_llama_get_cache(pkv_llama llama, pkv_cache* cache) {
  return run([&] {
    check_argument(llama != nullptr && cache != nullptr, "a pointer is NULL");
    *cache = llama->cache;
  });
}

const char* pkv_llama_last_error() { return last_error; }
