// The functions of pagedkv-llama.h: a cache with one opaque group, whose blocks are in memory of
// this library.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>

#include "context.h"
#include "failure.h"
#include "pagedkv-llama.h"

namespace pagedkv_llama {

namespace {

thread_local std::string last_error;

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
    last_error = failure.sentence;
    return failure.status;
  } catch (const std::exception&) {
    last_error = "there is too little memory";
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
  std::vector<uint32_t> blocks(size_t n) const {
    std::vector<uint32_t> ids(n);
    check(pkv_session_get_block_table(session_, 0, n, ids.data(), &n));
    return ids;
  }

 private:
  pkv_session session_ = nullptr;
  pkv_batch batch_ = nullptr;
};

}  // namespace

// The memory of the blocks.
class Blocks {
 public:
  Blocks(uint64_t n, uint64_t bytes) : bytes_(bytes), memory_(n * bytes) {}

  std::byte* operator[](uint32_t id) const { return memory_.bytes().data() + id * bytes_; }

  // The cache copies blocks by these.
  pkv_block_io io() { return {sizeof(pkv_block_io), 0, this, read, write}; }

 private:
  // All blocks are full, so none has bytes of other sequences.
  static int32_t read(void* user, uint32_t, size_t n, const uint32_t* ids, const uint32_t*,
                      void* to) {
    const Blocks& self = *static_cast<const Blocks*>(user);
    for (size_t i = 0; i < n; i++)
      std::memcpy(static_cast<std::byte*>(to) + i * self.bytes_, self[ids[i]], self.bytes_);
    return 0;
  }
  static int32_t write(void* user, uint32_t, size_t n, const uint32_t* ids, const void* from) {
    const Blocks& self = *static_cast<const Blocks*>(user);
    for (size_t i = 0; i < n; i++)
      std::memcpy(self[ids[i]], static_cast<const std::byte*>(from) + i * self.bytes_, self.bytes_);
    return 0;
  }

  uint64_t bytes_;
  Buffer memory_;  // the system gives pages to blocks when they are first written
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
    plan(config.max_bytes);
    blocks.emplace(block_count, block_bytes());
    open_cache(config);
  }
  pkv_llama_t(const pkv_llama_t&) = delete;
  pkv_llama_t& operator=(const pkv_llama_t&) = delete;
  ~pkv_llama_t() { pkv_cache_destroy(cache); }

  uint64_t block_bytes() const { return block_size * identity.shape.token_bytes(); }
  uint64_t max_tokens() const { return block_count * block_size; }

  void remember(int32_t sequence, const pkv_prompt& prompt);
  uint64_t recall(int32_t sequence, const pkv_prompt& prompt);

  const uint32_t block_size;
  const LlamaContext context;
  const LlamaContext::Identity identity;
  const bool has_store;
  uint64_t block_count = 0, memory_bytes = 0;
  std::optional<Blocks> blocks;
  pkv_cache cache = nullptr;
  std::atomic<uint64_t> asked{0}, found{0};

 private:
  void plan(uint64_t max_bytes);
  void open_cache(const pkv_llama_config& config);
};

namespace {

// The buffer of each of a store's two threads; while it copies blocks, a thread needs it twice.
constexpr uint64_t store_buffer_bytes = uint64_t{4} << 20;

// What the index keeps of a block: its tokens, its node, and its places in lists. (A node takes 99
// bytes in an index of 10,000,000 blocks of 16 tokens.)
uint64_t index_bytes_of_block(uint32_t block_size) { return uint64_t{4} * block_size + 512; }

pkv_layer_group group_of(const pkv_llama_t& self) {
  auto group = make<pkv_layer_group>();
  group.layers = 1;
  group.kind = PKV_LAYERS_OPAQUE_KV;
  group.layer_bytes = self.block_bytes();
  group.blocks = self.block_count;
  return group;
}

pkv_cache_config config_of(const pkv_llama_t& self, const pkv_layer_group& group,
                           const pkv_block_io& io) {
  auto config = make<pkv_cache_config>();
  config.groups = &group;
  config.storage = PKV_STORAGE_EXTERNAL;
  config.block_size = self.block_size;
  config.threads = 1;
  config.block_io = &io;
  return config;
}

}  // namespace

// Chooses the number of blocks.
void pkv_llama_t::plan(uint64_t max_bytes) {
  const uint64_t buffers = has_store ? 4 * std::max(store_buffer_bytes, block_bytes()) : 0;
  const uint64_t bytes = block_bytes() + index_bytes_of_block(block_size);
  auto sizes = make<pkv_cache_sizes>();
  block_count = std::max<uint64_t>(max_bytes / bytes, 1);
  Blocks none(0, 0);
  const pkv_layer_group group = group_of(*this);
  const pkv_block_io io = none.io();
  const pkv_cache_config config = config_of(*this, group, io);
  check(pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &sizes));
  const uint64_t fixed = buffers + sizes.bookkeeping_bytes;
  block_count = max_bytes <= fixed ? 0 : (max_bytes - fixed) / bytes;
  if (block_count == 0)
    fail(PKV_TOO_LARGE, "max_bytes is %llu: tables and buffers take %llu, and a block takes %llu",
         static_cast<unsigned long long>(max_bytes), static_cast<unsigned long long>(fixed),
         static_cast<unsigned long long>(bytes));
  memory_bytes = fixed + block_count * bytes;
}

void pkv_llama_t::open_cache(const pkv_llama_config& config) {
  const pkv_layer_group group = group_of(*this);
  const pkv_block_io io = blocks->io();
  const auto prefix = make<pkv_prefix_config>();
  auto store = make<pkv_store_config>();
  store.wait_ms = config.wait_ms == 0 ? 5000 : config.wait_ms;
  store.store = config.store;
  store.fingerprint = identity.fingerprint.data();
  store.fingerprint_size = sizeof identity.fingerprint;
  store.secret_key = config.key, store.secret_key_size = config.key_size;
  store.buffer_bytes = store_buffer_bytes;
  store.max_queued_tokens = max_tokens();
  pkv_cache_config all = config_of(*this, group, io);
  all.prefix = &prefix;
  if (has_store) all.store = &store;
  check(pkv_cache_create(&all, &cache));
}

void pkv_llama_t::remember(int32_t sequence, const pkv_prompt& prompt) {
  context.check_sequence(sequence);
  if (!context.has(sequence, prompt.n))
    fail(PKV_INVALID_ARGUMENT, "sequence %d does not have the positions of these %llu tokens",
         sequence, static_cast<unsigned long long>(prompt.n));
  const uint64_t n = std::min(prompt.n, max_tokens()) / block_size * block_size;
  Session session(cache, prompt);
  const uint64_t known = session.admit(prompt.tokens, n);
  if (known == n) return;

  const Buffer bytes = context.read(sequence);
  const State state(bytes.bytes(), sequence);
  if (state.shape() != identity.shape || state.cells() != prompt.n)
    fail(PKV_MISMATCH, "the state of sequence %d is not like that of its context", sequence);
  session.begin(cache, static_cast<uint32_t>(n - known));
  // The first of these blocks may be a copy of one that is known in part: it is written again.
  const std::vector<uint32_t> ids = session.blocks(n / block_size);
  for (uint64_t i = known / block_size; i < ids.size(); i++)
    state.cut(i * block_size, block_size, block_size, (*blocks)[ids[i]]);
  session.commit(prompt.tokens + known, n - known);
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

  const Buffer bytes = make_state(identity.shape, sequence, static_cast<uint32_t>(known));
  const State state(bytes.bytes(), sequence);
  const std::vector<uint32_t> ids = session.blocks((known + block_size - 1) / block_size);
  for (uint64_t i = 0; i < ids.size(); i++) {
    const uint64_t first = i * block_size;
    state.paste(first, std::min<uint64_t>(block_size, known - first), block_size,
                (*blocks)[ids[i]]);
  }
  context.write(sequence, bytes);
  found.fetch_add(known, std::memory_order_relaxed);
  return known;
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
    drop.action = PKV_HINT_DROP;
    check(pkv_hint_prompt(llama->cache, prompt, &drop, nullptr));
  });
}

pkv_status pkv_llama_pin(pkv_llama llama, const pkv_prompt* prompt, uint64_t duration_ms,
                         uint64_t* tokens) {
  return run([&] {
    check_prompt(llama, prompt);
    auto pin = make<pkv_hint>();
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
            .token_bytes = llama->identity.shape.token_bytes(),
            .memory_bytes = llama->memory_bytes,
            .max_tokens = llama->max_tokens(),
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

const char* pkv_llama_last_error() { return last_error.c_str(); }
