// Measures what the plug-in changes in a prebuilt llama.cpp: decode steps and prompts of 512 tokens
// at some depths of one sequence, and decode steps of sequences that share a prompt, in all ways in
// turns.
//
//   speed MODEL FOLDER_OF_GGMLS_BACKENDS PLUG_IN THREADS ROUNDS FOLDER_FOR_STATES [WAY...]
//
// The first time, it computes a prompt of 16,384 tokens for each way to store keys and values, and
// saves it in the folder. Without rounds it does nothing else. It prints tokens/s, of the fastest
// round and, in brackets, of the slowest.
#include <algorithm>
#include <chrono>
#include <string>

#include "ways.h"

namespace {

constexpr int32_t depths[] = {16384, 8192, 2048, 0};  // a context is shortened from one to the next
constexpr int32_t deepest = depths[0], shared = 8192, prompt = most_tokens, steps = 8;
constexpr int32_t sequences = 8, own = 64;  // tokens of each sequence behind the shared prompt

// How often steps are measured in a round, because they are short.
int decodes(int32_t depth) { return depth == 0 ? 32 : 4; }

class Context {
 public:
  Context(llama_model* model, const Way& way, int threads)
      : way_(way),
        vocabulary_(llama_vocab_n_tokens(llama_model_get_vocab(model))),
        context_(make_context(model, way, deepest + 2 * prompt, sequences, threads)) {}
  ~Context() { llama_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const char* name() const { return way_.name; }

  // Loads the long prompt, or else computes it.
  void begin(const std::string& folder) {
    const std::string file = folder + "/" + way_.state;
    std::vector<llama_token> tokens(deepest);
    size_t count = 0;
    if (FILE* const there = std::fopen(file.c_str(), "rb"); there != nullptr) {
      std::fclose(there);
      if (llama_state_seq_load_file(context_, file.c_str(), 0, tokens.data(), tokens.size(),
                                    &count) == 0)
        fail("cannot load the state");
      return;
    }
    for (int32_t at = 0; at < deepest; at += prompt) add(0, 1, at, prompt);
    if (llama_state_seq_save_file(context_, file.c_str(), 0, tokens.data(), tokens.size()) == 0)
      fail("cannot save the state");
  }

  // Removes all tokens behind `depth`.
  void shorten(int32_t depth) {
    for (llama_seq_id s = 1; s < sequences; s++) llama_memory_seq_rm(memory(), s, -1, -1);
    llama_memory_seq_rm(memory(), 0, depth, -1);
  }

  // Returns tokens per second.
  double decode(int32_t depth) {
    add(0, 1, depth, 1);
    const double seconds = time([&](int32_t i) { add(0, 1, depth + 1 + i, 1); }, steps);
    shorten(depth);
    return steps / seconds;
  }
  double prefill(int32_t depth) {
    const double seconds = time([&](int32_t) { add(0, 1, depth, prompt); }, 1);
    shorten(depth);
    return prompt / seconds;
  }
  double decode_shared() {
    for (llama_seq_id s = 1; s < sequences; s++) llama_memory_seq_cp(memory(), 0, s, -1, -1);
    // Each sequence gets cells of its own, as a server fills them: in turns.
    for (int32_t i = 0; i < own; i += 16)
      for (llama_seq_id s = 0; s < sequences; s++) add(s, s + 1, shared + i, 16);
    add(0, sequences, shared + own, 1);
    const double seconds =
        time([&](int32_t i) { add(0, sequences, shared + own + 1 + i, 1); }, steps);
    shorten(shared);
    return sequences * steps / seconds;
  }

 private:
  llama_memory_t memory() const { return llama_get_memory(context_); }

  // Computes n tokens from a position on for each of some sequences.
  void add(llama_seq_id begin, llama_seq_id end, int32_t position, int32_t n) {
    llama_batch batch = llama_batch_init(prompt, 0, 1);
    for (int32_t i = 0; i < n; i++)
      for (llama_seq_id s = begin; s < end; s++) {
        const int32_t row = batch.n_tokens++;
        batch.token[row] = static_cast<llama_token>(
            static_cast<uint32_t>((position + i) * 2654435761u + static_cast<uint32_t>(s)) %
            static_cast<uint32_t>(vocabulary_));
        batch.pos[row] = position + i;
        batch.n_seq_id[row] = 1;
        batch.seq_id[row][0] = s;
        batch.logits[row] = i == n - 1;
      }
    if (llama_decode(context_, batch) != 0) fail("llama_decode failed");
    llama_synchronize(context_);
    llama_batch_free(batch);
  }

  template <class Step>
  static double time(const Step& step, int32_t n) {
    const auto begin = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < n; i++) step(i);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const Way& way_;
  const int32_t vocabulary_;
  llama_context* const context_;
};

// Measures all ways in turns, and prints a line for each.
template <class Measure>
void in_turns(const std::string& what, std::vector<Context*>& contexts, int rounds,
              const Measure& measure) {
  std::vector<std::vector<double>> rates(contexts.size());
  for (int round = 0; round < rounds; round++)
    for (size_t i = 0; i < contexts.size(); i++) rates[i].push_back(measure(*contexts[i]));
  for (size_t i = 0; i < contexts.size(); i++) {
    const auto [slowest, fastest] = std::minmax_element(rates[i].begin(), rates[i].end());
    std::printf("%-24s %-14s %8.1f (%.1f)\n", what.c_str(), contexts[i]->name(), *fastest,
                *slowest);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) fail("wrong arguments");
  const int threads = std::atoi(argv[4]), rounds = std::atoi(argv[5]);
  const std::string folder = argv[6];
  const auto wanted = [&](const Way& way) {
    if (argc == 7) return way.type != GGML_TYPE_F32;
    return std::any_of(argv + 7, argv + argc,
                       [&](const char* name) { return way.name == std::string(name); });
  };
  llama_model* const model = load_model(argv[2], argv[1]);
  std::vector<Context*> contexts;
  make_all(argv[3], [&](const Way& way) {
    if (wanted(way)) contexts.push_back(new Context(model, way, threads));
  });
  // The plug-in computes what it can share.
  for (size_t i = contexts.size(); i-- > 0;) contexts[i]->begin(folder);
  for (const int32_t depth : depths) {
    if (rounds == 0) break;
    for (Context* const context : contexts) context->shorten(depth);
    const std::string at = " at " + std::to_string(depth);
    in_turns("decode" + at, contexts, decodes(depth) * rounds,
             [&](Context& c) { return c.decode(depth); });
    in_turns("prompt" + at, contexts, rounds, [&](Context& c) { return c.prefill(depth); });
    if (depth == shared)
      in_turns("8 sequences" + at, contexts, rounds, [](Context& c) { return c.decode_shared(); });
  }
  for (Context* const context : contexts) delete context;
  llama_model_free(model);
  return 0;
}
