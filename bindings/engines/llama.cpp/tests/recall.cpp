// libpagedkv-llama in a real llama.cpp with a real model:
//
//   recall MODEL FOLDER_OF_GGMLS_BACKENDS layouts     all layouts of a state; limits; errors
//   recall MODEL FOLDER_OF_GGMLS_BACKENDS streams     those in which sequences share no cells
//   recall MODEL FOLDER_OF_GGMLS_BACKENDS ends        a model with windows or recurrent layers
//   recall MODEL FOLDER_OF_GGMLS_BACKENDS write DIR   remembers in a store, and kills itself
//   recall MODEL FOLDER_OF_GGMLS_BACKENDS read DIR    recalls what the killed process remembered
#include <ggml-backend.h>
#include <llama.h>
#include <pagedkv-llama.h>
#include <pagedkv/store.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Tokens = std::vector<llama_token>;
using Bytes = std::vector<uint8_t>;

#define CHECK(good)                                                                         \
  if (!(good)) {                                                                            \
    std::printf("%s:%d: not %s (%s)\n", __FILE__, __LINE__, #good, pkv_llama_last_error()); \
    std::exit(1);                                                                           \
  }

constexpr char text[] =
    "A cache keeps what was computed, so that it need not be computed again. Long ago, in a small "
    "town by the sea, there lived a clockmaker who had never been late. Every morning at seven he "
    "opened his shop, wound all the clocks, and waited for the first visitor of the day, who was "
    "nearly always the baker's daughter with a loaf of bread under her arm.";

llama_model* model;

Tokens tokenize(const char* from) {
  Tokens tokens(std::strlen(from) + 8);
  const int n =
      llama_tokenize(llama_model_get_vocab(model), from, static_cast<int32_t>(std::strlen(from)),
                     tokens.data(), static_cast<int32_t>(tokens.size()), true, false);
  CHECK(n > 0);
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

struct Layout {
  ggml_type keys, values;
  bool flash_attention, unified;
};

// A context with four sequences, and what it remembers.
struct Chat {
  explicit Chat(const Layout& layout, uint64_t max_bytes = 1 << 26, const char* directory = nullptr,
                const char* key = nullptr) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_batch = params.n_ubatch = 256;
    params.n_seq_max = 4;
    params.kv_unified = layout.unified;
    params.swa_full = false;
    params.type_k = layout.keys, params.type_v = layout.values;
    params.flash_attn_type =
        layout.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.n_threads = params.n_threads_batch = 1;
    context = llama_init_from_model(model, params);
    CHECK(context != nullptr);
    memory = llama_get_memory(context);
    pkv_llama_config config{};
    config.struct_size = sizeof config;
    config.context = context;
    config.block_size = 16;
    config.max_bytes = max_bytes;
    pkv_store store{};
    if (directory != nullptr) {
      pkv_directory_config at{};
      at.struct_size = sizeof at;
      at.path = directory;
      store.struct_size = sizeof store;
      CHECK(pkv_store_open_directory(&at, &store) == PKV_OK);
      config.store = &store;
      config.key = key, config.key_size = std::strlen(key);
    }
    CHECK(pkv_llama_open(&config, &llama) == PKV_OK);
    for (int s = 0; s < 4; s++) CHECK(length(s) == 0);
  }
  ~Chat() {
    pkv_llama_close(llama);
    llama_free(context);
  }

  int length(int sequence) const { return llama_memory_seq_pos_max(memory, sequence) + 1; }
  void trim(int sequence, int n) const { llama_memory_seq_rm(memory, sequence, n, -1); }

  // Appends tokens to a sequence, and returns the likeliest next one.
  llama_token decode(int sequence, const Tokens& tokens) const {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    const int first = length(sequence);
    for (const llama_token token : tokens) {
      const int32_t row = batch.n_tokens++;
      batch.token[row] = token;
      batch.pos[row] = first + row;
      batch.n_seq_id[row] = 1;
      batch.seq_id[row][0] = sequence;
      batch.logits[row] = row + 1 == static_cast<int32_t>(tokens.size());
    }
    CHECK(llama_decode(context, batch) == 0);
    const float* const logits = llama_get_logits_ith(context, batch.n_tokens - 1);
    const int32_t words = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_batch_free(batch);
    return static_cast<llama_token>(std::max_element(logits, logits + words) - logits);
  }
  Tokens generate(int sequence, Tokens next, int n) const {
    Tokens all;
    for (int i = 0; i < n; i++) {
      all.push_back(decode(sequence, next));
      next = {all.back()};
    }
    return all;
  }

  Bytes state(int sequence) const {
    Bytes bytes(llama_state_seq_get_size_ext(context, sequence, 0));
    CHECK(llama_state_seq_get_data_ext(context, bytes.data(), bytes.size(), sequence, 0) ==
          bytes.size());
    return bytes;
  }

  static pkv_prompt prompt(const Tokens& tokens, const char* salt) {
    pkv_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    prompt.tokens = tokens.data(), prompt.n = tokens.size();
    prompt.salt = salt, prompt.salt_size = std::strlen(salt);
    return prompt;
  }
  pkv_status remember(int sequence, const Tokens& tokens, const char* salt = "") const {
    const pkv_prompt all = prompt(tokens, salt);
    return pkv_llama_remember(llama, sequence, &all);
  }
  uint64_t recall(int sequence, const Tokens& tokens, const char* salt = "") const {
    const pkv_prompt all = prompt(tokens, salt);
    uint64_t length;
    CHECK(pkv_llama_recall(llama, sequence, &all, &length) == PKV_OK);
    CHECK(length == static_cast<uint64_t>(this->length(sequence)));
    return length;
  }
  pkv_llama_stats stats() const {
    pkv_llama_stats stats{};
    stats.struct_size = sizeof stats;
    CHECK(pkv_llama_get_stats(llama, &stats) == PKV_OK);
    return stats;
  }

  llama_context* context;
  llama_memory_t memory;
  pkv_llama llama;
};

Tokens first(const Tokens& tokens, size_t n) { return {tokens.begin(), tokens.begin() + long(n)}; }
Tokens after(const Tokens& tokens, size_t n) { return {tokens.begin() + long(n), tokens.end()}; }

// A prefix of any length has the bytes and continues with the tokens of one that was computed. (The
// same tokens in other batches or cells may be rounded differently: so both have the same ones.) If
// sequences share cells, pieces have an eighth of them: 128 tokens.
void test_layout(const Layout& layout) {
  const Chat chat(layout);
  Tokens tokens = first(tokenize(text), 60);
  for (int i = 0; tokens.size() < 180; i++) tokens.push_back(tokens[i] + 1);

  const int sequence = 1, n = static_cast<int>(tokens.size());
  chat.decode(3, first(tokens, 7));  // so that a sequence's cells are not the first
  chat.decode(sequence, tokens);
  CHECK(chat.remember(sequence, tokens) == PKV_OK);
  std::vector<Bytes> states(static_cast<size_t>(n + 1));
  for (int length = n; length > 0; length -= length > 20 ? 4 : 1) {
    chat.trim(sequence, length);
    states[static_cast<size_t>(length)] = chat.state(sequence);
  }
  for (size_t length = 1; length <= static_cast<size_t>(n); length++) {
    if (states[length].empty()) continue;
    chat.trim(sequence, -1);
    const uint64_t known = chat.recall(sequence, first(tokens, length));
    CHECK(known == std::min<uint64_t>(length, 176));
    CHECK(chat.state(sequence) == states[known]);
  }
  for (const size_t known : {23u, 48u, 176u}) {
    chat.trim(sequence, -1);
    chat.decode(sequence, tokens);
    chat.trim(sequence, static_cast<int>(known));
    const Tokens expected = chat.generate(sequence, after(tokens, known), 5);
    chat.trim(sequence, -1);
    CHECK(chat.recall(sequence, first(tokens, known)) == known);
    CHECK(chat.generate(sequence, after(tokens, known), 5) == expected);
  }
  std::printf("%s %s, flash attention %d, unified %d: %d prefixes of %zu bytes per token\n",
              ggml_type_name(layout.keys), ggml_type_name(layout.values), layout.flash_attention,
              layout.unified, n, static_cast<size_t>(chat.stats().token_bytes));
}

void test_sharing(const Layout& layout) {
  const Chat chat(layout);
  Tokens a = first(tokenize(text), 64), b = a;
  for (size_t i = 40; i < b.size(); i++) b[i] = a[i] + 1;
  chat.decode(0, a), chat.decode(1, b);
  CHECK(chat.remember(0, a) == PKV_OK && chat.stats().cached_tokens == 64);
  CHECK(chat.remember(1, b) == PKV_OK && chat.stats().cached_tokens == 64 + 32);
  CHECK(chat.remember(1, b) == PKV_OK && chat.stats().cached_tokens == 64 + 32);
  CHECK(chat.recall(2, b) == 64 && chat.recall(3, a) == 64);
  // Of the block in which b differs from a, it has its own.
  const Bytes computed = chat.state(1);
  for (int s = 1; s < 4; s++) chat.trim(s, -1);
  CHECK(chat.recall(1, b) == 64 && chat.state(1) == computed);
  CHECK(chat.recall(2, a, "another user") == 0);
  CHECK(chat.remember(0, a, "another user") == PKV_OK && chat.stats().cached_tokens == 160);

  const pkv_prompt prompt = Chat::prompt(a, "");
  uint64_t pinned;
  CHECK(pkv_llama_pin(chat.llama, &prompt, 3600000, &pinned) == PKV_OK && pinned == 64);
  const pkv_prompt other = Chat::prompt(b, "");
  CHECK(pkv_llama_forget(chat.llama, &other) == PKV_OK && chat.stats().cached_tokens == 128);
  CHECK(chat.recall(2, b) == 40);
  std::printf("two texts hold their common beginning once\n");
}

void test_limit(const Layout& layout) {
  const uint64_t max_bytes = 6 << 20;
  const Chat chat(layout, max_bytes);
  const Tokens words = tokenize(text);
  CHECK(chat.stats().memory_bytes <= max_bytes);
  CHECK(chat.stats().max_tokens * chat.stats().token_bytes > max_bytes * 8 / 10);
  for (int i = 0; i < 6; i++) {
    Tokens tokens = first(words, 60);
    tokens[0] += i;
    chat.trim(0, -1);
    chat.decode(0, tokens);
    CHECK(chat.remember(0, tokens) == PKV_OK);
    CHECK(chat.stats().cached_tokens <= chat.stats().max_tokens);
    CHECK(chat.stats().cached_tokens == std::min<uint64_t>(48 * (i + 1), chat.stats().max_tokens));
    const Bytes computed = chat.state(0);
    chat.trim(0, 48);
    const Bytes cut = chat.state(0);
    chat.trim(0, -1);
    CHECK(chat.recall(0, tokens) == 48 && chat.state(0) == cut);
  }
  std::printf("%zu tokens stay in %zu bytes\n", static_cast<size_t>(chat.stats().max_tokens),
              static_cast<size_t>(max_bytes));
}

// An error leaves the sequence as it was.
void test_errors(const Layout& layout) {
  const Chat chat(layout);
  const Tokens tokens = first(tokenize(text), 48);
  chat.decode(0, tokens);
  CHECK(chat.remember(0, first(tokens, 47)) == PKV_INVALID_ARGUMENT);
  CHECK(chat.remember(1, tokens) == PKV_INVALID_ARGUMENT);
  CHECK(chat.remember(4, tokens) == PKV_INVALID_ARGUMENT);
  CHECK(chat.remember(-1, tokens) == PKV_INVALID_ARGUMENT);
  CHECK(chat.remember(0, tokens) == PKV_OK);
  const Bytes before = chat.state(0);
  const pkv_prompt prompt = Chat::prompt(tokens, "");
  uint64_t length = 99;
  CHECK(pkv_llama_recall(chat.llama, 0, &prompt, &length) == PKV_INVALID_ARGUMENT);
  CHECK(pkv_llama_recall(chat.llama, 4, &prompt, &length) == PKV_INVALID_ARGUMENT);
  CHECK(length == 99 && chat.state(0) == before);

  // Another sequence has nearly all cells of a unified cache.
  if (!layout.unified) return;
  const Tokens filler(248, tokens[0]);
  for (int i = 0; i < 4; i++) chat.decode(1, first(filler, i < 3 ? 248 : 200));
  CHECK(pkv_llama_recall(chat.llama, 2, &prompt, &length) == PKV_IO);
  CHECK(chat.length(2) == 0 && chat.length(1) == 944 && chat.state(0) == before);
  std::printf("errors: %s\n", pkv_llama_last_error());
}

// The tokens that follow the first n tokens, if these are decoded 16 at a time.
Tokens computed(const Chat& chat, int sequence, const Tokens& tokens, size_t n) {
  chat.trim(sequence, -1);
  for (size_t i = 0; i < n; i += 16) chat.decode(sequence, after(first(tokens, i + 16), i));
  return chat.generate(sequence, after(first(tokens, n + 1), n), 5);
}

// Only where remember was called can a text with an end be continued.
void test_ends(const Layout& layout) {
  const Chat chat(layout);
  const size_t n = layout.unified ? 368 : 240;
  Tokens tokens(n + 1);
  for (size_t i = 0; i < tokens.size(); i++) tokens[i] = static_cast<int>(i * i * 7 % 509);
  std::vector<Bytes> states;
  std::vector<Tokens> expected;
  for (size_t length = 16; length <= n; length += 16) {
    chat.decode(1, after(first(tokens, length), length - 16));
    CHECK(chat.remember(1, first(tokens, length)) == PKV_OK);
    states.push_back(chat.state(1));
  }
  for (size_t length = 16; length <= n; length += 16)
    expected.push_back(computed(chat, 1, tokens, length));
  CHECK(chat.remember(2, first(tokens, 5)) == PKV_INVALID_ARGUMENT);
  chat.trim(2, -1);
  chat.decode(2, first(tokens, 5));
  CHECK(chat.remember(2, first(tokens, 5)) == PKV_UNSUPPORTED);
  chat.trim(2, -1);
  for (size_t length = 1; length <= n; length += 5) {
    const size_t known = length / 16 * 16;
    chat.trim(1, -1);
    CHECK(chat.recall(1, first(tokens, length)) == known);
    if (known == 0) continue;
    CHECK(chat.state(1) == states[known / 16 - 1]);
    CHECK(chat.generate(1, after(first(tokens, known + 1), known), 5) == expected[known / 16 - 1]);
  }

  // One end that was remembered, and what begins before it.
  computed(chat, 1, tokens, n);
  chat.trim(1, -1);
  CHECK(chat.recall(1, first(tokens, n)) == n);
  const Bytes state = chat.state(1);
  CHECK(chat.remember(1, first(tokens, n), "user") == PKV_OK);
  chat.trim(1, -1);
  CHECK(chat.recall(1, first(tokens, n - 1), "user") == 0);
  CHECK(chat.recall(1, tokens, "user") == n && chat.state(1) == state);
  CHECK(chat.generate(1, after(tokens, n), 5) == expected.back());

  // A window without its beginning cannot be kept, and a recurrent state cannot be cut.
  chat.trim(1, -1);
  CHECK(chat.recall(1, tokens) == n);
  if (llama_memory_seq_rm(chat.memory, 1, static_cast<int>(n - 16), -1))
    CHECK(chat.remember(1, first(tokens, n - 16), "cut") == PKV_MISMATCH);
  std::printf("%s %s, flash attention %d, unified %d: %zu ends of %zu bytes\n",
              ggml_type_name(layout.keys), ggml_type_name(layout.values), layout.flash_attention,
              layout.unified, states.size(), static_cast<size_t>(chat.stats().end_bytes));
}

constexpr Layout plain{GGML_TYPE_F16, GGML_TYPE_F16, true, true};
constexpr char key[] = "sixteen or more secret bytes";

void write(const char* directory) {
  const Chat chat(plain, 1 << 26, directory, key);
  const Tokens tokens = first(tokenize(text), 64);
  chat.decode(0, tokens);
  CHECK(chat.remember(0, tokens, "user") == PKV_OK);
  pkv_cache cache;
  uint64_t queued;
  CHECK(pkv_llama_get_cache(chat.llama, &cache) == PKV_OK);
  CHECK(pkv_cache_flush_store(cache, 60000, &queued) == PKV_OK && queued == 0);
  std::raise(SIGKILL);
}

void read(const char* directory) {
  const Tokens tokens = first(tokenize(text), 64);
  {
    const Chat chat(plain, 1 << 26, directory, key);
    CHECK(chat.recall(1, tokens, "another user") == 0);
    CHECK(chat.recall(1, first(tokens, 40), "user") == 32);  // a store has full blocks
    const Chat computed(plain);
    computed.decode(1, tokens);
    computed.trim(1, 32);
    CHECK(chat.state(1) == computed.state(1));
    CHECK(chat.generate(1, after(tokens, 32), 5) == computed.generate(1, after(tokens, 32), 5));
  }
  const Chat other_key(plain, 1 << 26, directory, "another key of 16 bytes or more");
  CHECK(other_key.recall(1, tokens, "user") == 0);
  const Layout quantized{GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true, true};
  CHECK(Chat(quantized, 1 << 26, directory, key).recall(1, tokens, "user") == 0);
  std::printf("a new process recalls what a killed one remembered\n");
}

}  // namespace

int main(int argc, char** argv) {
  const auto log = [](ggml_log_level level, const char* line, void*) {
    if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN) std::fputs(line, stderr);
  };
  llama_log_set(log, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  if (argc > 4 && std::strcmp(argv[3], "write") == 0) write(argv[4]);
  if (argc > 4 && std::strcmp(argv[3], "read") == 0) return read(argv[4]), 0;
  if (std::strcmp(argv[3], "ends") == 0) {
    for (const bool unified : {true, false}) {
      test_ends({GGML_TYPE_F16, GGML_TYPE_F16, true, unified});
      test_ends({GGML_TYPE_F16, GGML_TYPE_F16, false, unified});
      test_ends({GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true, unified});
    }
    return 0;
  }
  const bool only_streams = std::strcmp(argv[3], "streams") == 0;
  for (const bool unified : {true, false}) {
    if (unified && only_streams) continue;
    test_layout({GGML_TYPE_F16, GGML_TYPE_F16, true, unified});
    test_layout({GGML_TYPE_F16, GGML_TYPE_F16, false, unified});
    test_layout({GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true, unified});
    test_layout({GGML_TYPE_Q8_0, GGML_TYPE_F16, false, unified});
    test_errors({GGML_TYPE_F16, GGML_TYPE_F16, true, unified});
  }
  if (only_streams) return 0;
  test_sharing(plain);
  test_limit(plain);
}
