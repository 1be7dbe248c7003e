// Continues a prompt, and keeps what it computed in a directory. The second time, the prompt is
// known:
//
//   again MODEL FOLDER_OF_GGMLS_BACKENDS DIRECTORY PROMPT
#include <ggml-backend.h>
#include <llama.h>
#include <pagedkv-llama.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void check(bool good) {
  if (good) return;
  std::fprintf(stderr, "again: %s%s\n", pkv_llama_last_error(), pkv_last_error());
  std::exit(EXIT_FAILURE);
}

static std::vector<llama_token> tokenize(const llama_vocab* words, const char* text) {
  std::vector<llama_token> tokens(std::strlen(text) + 8);
  const auto size = static_cast<int32_t>(std::strlen(text));
  const auto room = static_cast<int32_t>(tokens.size());
  const int n = llama_tokenize(words, text, size, tokens.data(), room, true, false);
  check(n > 0);
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

int main(int argc, char** argv) {
  check(argc == 5);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_model* const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  check(model != nullptr);
  const llama_vocab* const words = llama_model_get_vocab(model);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 2048;
  params.n_threads = params.n_threads_batch = 2;
  llama_context* const context = llama_init_from_model(model, params);
  check(context != nullptr);
  std::vector<llama_token> tokens = tokenize(words, argv[4]);
  llama_sampler* const sampler = llama_sampler_init_greedy();

  // [again]
  // Open once for each context.
  pkv_directory_config directory = {};
  directory.struct_size = sizeof directory;
  directory.path = argv[3];
  pkv_store store = {};
  store.struct_size = sizeof store;
  check(pkv_store_open_directory(&directory, &store) == PKV_OK);
  pkv_llama_config config = {};
  config.struct_size = sizeof config;
  config.context = context;
  config.max_bytes = 256 << 20;
  config.store = &store;
  pkv_llama memory;
  check(pkv_llama_open(&config, &memory) == PKV_OK);

  // For each request: recall all but the last token of the prompt, and decode the rest.
  pkv_prompt prompt = {};
  prompt.struct_size = sizeof prompt;
  prompt.salt = "user 1", prompt.salt_size = 6;
  prompt.tokens = tokens.data(), prompt.n = tokens.size() - 1;
  uint64_t known;
  check(pkv_llama_recall(memory, 0, &prompt, &known) == PKV_OK);
  std::printf("%d of %d tokens were known\n", static_cast<int>(known),
              static_cast<int>(tokens.size()));
  for (int i = 0; i < 16; i++) {
    const auto n = static_cast<int32_t>(tokens.size() - known);
    check(llama_decode(context, llama_batch_get_one(&tokens[known], n)) == 0);
    known = tokens.size();
    tokens.push_back(llama_sampler_sample(sampler, context, -1));
  }

  // And remember what the sequence has then: not the last token, which was not decoded.
  prompt.tokens = tokens.data(), prompt.n = tokens.size() - 1;
  check(pkv_llama_remember(memory, 0, &prompt) == PKV_OK);
  check(pkv_llama_close(memory) == PKV_OK);  // before the context
  // [again end]

  for (const llama_token token : tokens) {
    char text[64];
    const int n = llama_token_to_piece(words, token, text, sizeof text, 0, false);
    std::fwrite(text, 1, static_cast<size_t>(n > 0 ? n : 0), stdout);
  }
  std::printf("\n");
  llama_sampler_free(sampler);
  llama_free(context);
  llama_model_free(model);
}
