// Compares what a model computes in all ways with keys and values of f32 without flash attention:
// the perplexity of a text, and the mean Kullback-Leibler divergence of the next token.
//
//   quality MODEL FOLDER_OF_GGMLS_BACKENDS PLUG_IN THREADS CHUNKS TEXT
//
// The text is cut into chunks of 2,048 tokens. The second half of each one counts.
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "ways.h"

namespace {

constexpr int32_t chunk = 2048;

std::vector<llama_token> tokens_of(const llama_vocab* vocabulary, const char* file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const std::string all = text.str();
  std::vector<llama_token> tokens(all.size() + 8);
  const int32_t n = llama_tokenize(vocabulary, all.data(), static_cast<int32_t>(all.size()),
                                   tokens.data(), static_cast<int32_t>(tokens.size()), true, false);
  if (n < 0) fail("the text cannot be tokenized");
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

// Turns logits into logarithms of probabilities.
void normalise(float* logits, size_t size) {
  double sum = 0;
  float max = logits[0];
  for (size_t i = 1; i < size; i++) max = std::fmax(max, logits[i]);
  for (size_t i = 0; i < size; i++) sum += std::exp(static_cast<double>(logits[i] - max));
  const float shift = max + static_cast<float>(std::log(sum));
  for (size_t i = 0; i < size; i++) logits[i] -= shift;
}

// Returns the logarithms of the probabilities after each token of the second half of a chunk.
std::vector<float> compute(llama_context* context, const llama_token* tokens, size_t vocabulary) {
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<float> result;
  llama_batch batch = llama_batch_init(most_tokens, 0, 1);
  for (int32_t at = 0; at < chunk; at += most_tokens) {
    batch.n_tokens = most_tokens;
    for (int32_t i = 0; i < most_tokens; i++) {
      batch.token[i] = tokens[at + i];
      batch.pos[i] = at + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = at + i >= chunk / 2;
    }
    if (llama_decode(context, batch) != 0) fail("llama_decode failed");
    for (int32_t i = 0; i < most_tokens && at >= chunk / 2; i++) {
      const float* const logits = llama_get_logits_ith(context, i);
      result.insert(result.end(), logits, logits + vocabulary);
      normalise(result.data() + result.size() - vocabulary, vocabulary);
    }
  }
  llama_batch_free(batch);
  return result;
}

struct Sums {
  const Way* way;
  llama_context* context;
  double loss = 0, divergence = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) fail("wrong arguments");
  llama_model* const model = load_model(argv[2], argv[1]);
  const llama_vocab* const words = llama_model_get_vocab(model);
  const auto vocabulary = static_cast<size_t>(llama_vocab_n_tokens(words));
  const std::vector<llama_token> tokens = tokens_of(words, argv[6]);
  std::vector<Sums> all;
  make_all(argv[3], [&](const Way& way) {
    all.push_back({&way, make_context(model, way, chunk, 1, std::atoi(argv[4]))});
  });
  const int chunks = std::atoi(argv[5]);
  if (tokens.size() <= static_cast<size_t>(chunks) * chunk) fail("the text is too short");
  size_t count = 0;
  for (int c = 0; c < chunks; c++) {
    const llama_token* const first = tokens.data() + size_t{chunk} * static_cast<size_t>(c);
    std::vector<float> reference;
    for (Sums& sums : all) {
      const std::vector<float> logs = compute(sums.context, first, vocabulary);
      if (reference.empty()) reference = logs;  // of the first way
      for (size_t row = 0; row < chunk / 2; row++) {
        const float *const p = reference.data() + row * vocabulary, *const q = logs.data() +
                                                                               row * vocabulary;
        sums.loss -= static_cast<double>(q[first[chunk / 2 + row + 1]]);
        for (size_t i = 0; i < vocabulary; i++)
          sums.divergence += std::exp(static_cast<double>(p[i])) * static_cast<double>(p[i] - q[i]);
      }
    }
    count += chunk / 2;
    std::fprintf(stderr, "%d of %d chunks\n", c + 1, chunks);
  }
  for (const Sums& sums : all) {
    std::printf("%-14s perplexity %.4f, divergence %.2e\n", sums.way->name,
                std::exp(sums.loss / static_cast<double>(count)),
                sums.divergence / static_cast<double>(count));
    llama_free(sums.context);
  }
  llama_model_free(model);
  return 0;
}
