// Prints the tokens that a model generates greedily after prompts, one line for each, and how many
// operations the plug-in computed:
//
//   greedy MODEL FOLDER_OF_GGMLS_BACKENDS auto|on TOKENS PROMPT...
//
// First each prompt alone, then all at once in
// a unified cache, as a server with slots does it.
#include <ggml-backend.h>
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Tokens = std::vector<llama_token>;

Tokens tokenize(const llama_vocab* vocab, const char* text) {
  Tokens tokens(std::strlen(text) + 8);
  const int n = llama_tokenize(vocab, text, static_cast<int32_t>(std::strlen(text)), tokens.data(),
                               static_cast<int32_t>(tokens.size()), true, false);
  if (n < 0) std::exit(1);
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

llama_token best(llama_context* context, int32_t row, int32_t size) {
  const float* const logits = llama_get_logits_ith(context, row);
  llama_token token = 0;
  for (llama_token t = 1; t < size; t++)
    if (logits[t] > logits[token]) token = t;
  return token;
}

// Generates n tokens after each prompt, all in one batch.
std::vector<Tokens> generate(llama_model* model, llama_context_params params,
                             const std::vector<Tokens>& prompts, int n) {
  params.n_ctx = 4096;
  params.n_batch = params.n_ubatch = 512;
  params.n_seq_max = static_cast<uint32_t>(prompts.size());
  params.kv_unified = true;
  // On a busy machine, threads that spin until all have finished would take minutes.
  params.n_threads = params.n_threads_batch = 1;
  llama_context* const context = llama_init_from_model(model, params);
  if (context == nullptr) std::exit(1);
  const int32_t size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::vector<Tokens> result(prompts.size()), next = prompts;
  std::vector<llama_pos> positions(prompts.size());
  for (int i = 0; i < n; i++) {
    llama_batch batch = llama_batch_init(512, 0, 1);
    std::vector<int32_t> last;
    for (size_t s = 0; s < prompts.size(); s++) {
      for (const llama_token token : next[s]) {
        const int32_t row = batch.n_tokens++;
        batch.token[row] = token;
        batch.pos[row] = positions[s]++;
        batch.n_seq_id[row] = 1;
        batch.seq_id[row][0] = static_cast<llama_seq_id>(s);
        batch.logits[row] = 0;
      }
      last.push_back(batch.n_tokens - 1);
      batch.logits[last.back()] = 1;
    }
    if (llama_decode(context, batch) != 0) std::exit(1);
    for (size_t s = 0; s < prompts.size(); s++) {
      const llama_token token = best(context, last[s], size);
      result[s].push_back(token);
      next[s] = {token};
    }
    llama_batch_free(batch);
  }
  llama_free(context);
  return result;
}

void print(const std::vector<Tokens>& all) {
  for (const Tokens& tokens : all) {
    for (const llama_token token : tokens) std::printf("%d ", token);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Errors and warnings only.
  const auto log = [](ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
  };
  llama_log_set(log, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_model* const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.flash_attn_type = std::strcmp(argv[3], "auto") == 0 ? LLAMA_FLASH_ATTN_TYPE_AUTO
                                                             : LLAMA_FLASH_ATTN_TYPE_ENABLED;
  std::vector<Tokens> prompts;
  for (int i = 5; i < argc; i++) prompts.push_back(tokenize(llama_model_get_vocab(model), argv[i]));
  const int n = std::atoi(argv[4]);
  for (const Tokens& prompt : prompts) print(generate(model, params, {prompt}, n));
  print(generate(model, params, prompts, n));
  uint64_t computed = 0;
  if (const ggml_backend_reg_t plugin = ggml_backend_reg_by_name("pagedkv"); plugin != nullptr)
    computed = reinterpret_cast<uint64_t (*)()>(
        ggml_backend_reg_get_proc_address(plugin, "pagedkv_computed"))();
  std::printf("computed %d\n", static_cast<int>(computed));
  llama_model_free(model);
  return 0;
}
