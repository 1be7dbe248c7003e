#include "context.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "failure.h"

namespace pagedkv_llama {

namespace {

// M-RoPE, vision and interleaved M-RoPE: cells then have more than one position.
bool has_positions_of_images(int32_t rope_type) { return rope_type > 0 && (rope_type & 8) != 0; }

// All that identifies keys and values, one after the other.
class Description {
 public:
  void add(std::span<const std::byte> bytes) {
    add_number(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add_number(uint64_t number) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Fingerprint fingerprint() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes_.data(), bytes_.size()));
    return std::to_array(canonical.digest);
  }

 private:
  std::vector<std::byte> bytes_;
};

void add_model(const Host& host, const Model* model, Description& to) {
  char text[1024];
  const auto add_text = [&](int32_t size) {
    const size_t most = sizeof text - 1;
    to.add(
        std::as_bytes(std::span(text, size < 0 ? 0 : std::min(static_cast<size_t>(size), most))));
  };
  to.add_number(host.model_size(model));
  add_text(host.model_desc(model, text, sizeof text));
  const int32_t entries = host.model_meta_count(model);
  for (int32_t i = 0; i < entries; i++) {
    add_text(host.model_meta_key_by_index(model, i, text, sizeof text));
    add_text(host.model_meta_val_str_by_index(model, i, text, sizeof text));
  }
}

void add_shape(const std::vector<Tensor>& tensors, Description& to) {
  to.add_number(tensors.size());
  for (const Tensor& tensor : tensors) {
    to.add_number(static_cast<uint64_t>(tensor.type));
    to.add_number(tensor.rows);
    to.add_number(tensor.element_bytes);
  }
}

// The number of streams does not change keys and values.
void add_tokens(const State& state, Description& to) {
  const Shape& shape = state.shape();
  to.add_number(state.tokens());
  to.add_number(static_cast<uint64_t>(shape.form.window));
  to.add_number(shape.form.chunked);
  for (const Shape::Cache& cache : shape.caches) {
    to.add_number(cache.layers);
    to.add_number(cache.transposed);
    for (const uint32_t dims : cache.rotations) to.add_number(dims);
    add_shape(cache.tensors, to);
  }
  to.add_number(shape.recurrent_layers);
  add_shape(shape.recurrent, to);
  for (const auto bytes : state.tensors()) to.add(bytes);
}

}  // namespace

LlamaContext::LlamaContext(void* context, void* library)
    : host_(library),
      context_(static_cast<Context*>(context)),
      memory_(host_.get_memory(context_)),
      model_(host_.get_model(context_)) {
  if (memory_ == nullptr) fail(PKV_UNSUPPORTED, "the context has no memory, as for embeddings");
  if (host_.model_has_encoder(model_))
    fail(PKV_UNSUPPORTED, "the model has an encoder: keys depend on more than tokens");
  if (const int32_t type = host_.model_rope_type(model_); has_positions_of_images(type))
    fail(PKV_UNSUPPORTED, "the model has M-RoPE (type %d), which is not supported yet", type);
}

void LlamaContext::check_sequence(int32_t sequence) const {
  if (const uint32_t n = host_.n_seq_max(context_); sequence < 0 || uint32_t(sequence) >= n)
    fail(PKV_INVALID_ARGUMENT, "sequence %d is not one of the context's %u", sequence, n);
}

Form LlamaContext::form() const {
  Form form;
  form.tokens = !host_.model_is_recurrent(model_);
  form.recurrent = !form.tokens || host_.model_is_hybrid(model_);
  if (form.tokens) form.window = std::max(0, host_.model_n_swa(model_));
  return form;
}

bool LlamaContext::has(int32_t sequence, uint64_t n) const {
  const int64_t last = host_.memory_seq_pos_max(memory_, sequence);
  if (last + 1 != static_cast<int64_t>(n)) return false;
  // The lowest position of other kinds of memory is that of the window, or of the last token.
  return n == 0 || form().has_ends() || host_.memory_seq_pos_min(memory_, sequence) == 0;
}

std::optional<int32_t> LlamaContext::empty_sequence(int32_t besides) const {
  const auto n = static_cast<int32_t>(host_.n_seq_max(context_));
  for (int32_t sequence = 0; sequence < n; sequence++)
    if (sequence != besides && has(sequence, 0)) return sequence;
  return std::nullopt;
}

void LlamaContext::empty(int32_t sequence) const { host_.memory_seq_rm(memory_, sequence, -1, -1); }

size_t LlamaContext::state_size(int32_t sequence) const {
  return host_.state_seq_get_size_ext(context_, sequence, 0);
}

Buffer LlamaContext::read(int32_t sequence) const {
  Buffer state(state_size(sequence));
  const size_t size = state.bytes().size();
  const size_t copied =
      host_.state_seq_get_data_ext(context_, state.bytes().data(), size, sequence, 0);
  if (size == 0 || copied != size)
    fail(PKV_IO, "llama.cpp wrote %zu of %zu bytes of the state of sequence %d: see its log",
         copied, size, sequence);
  return state;
}

void LlamaContext::write(int32_t sequence, const Buffer& state) const {
  const std::span<std::byte> bytes = state.bytes();
  const size_t taken =
      host_.state_seq_set_data_ext(context_, bytes.data(), bytes.size(), sequence, 0);
  if (taken == bytes.size()) return;
  empty(sequence);
  fail(PKV_IO, "llama.cpp took %zu of %zu bytes of a state for sequence %d: are its cells in use?",
       taken, bytes.size(), sequence);
}

void LlamaContext::share(int32_t from, int32_t to, uint64_t first, uint64_t end) const {
  const auto last = static_cast<int32_t>(end) - 1;
  host_.memory_seq_cp(memory_, from, to, static_cast<int32_t>(first), last + 1);
  if (host_.memory_seq_pos_max(memory_, to) != last)
    fail(PKV_IO, "llama.cpp did not share the cells of sequence %d up to position %d", from, last);
}

// Tokens from all parts of the vocabulary.
void LlamaContext::decode(int32_t sequence, int32_t first, int32_t n) const {
  const int32_t words = host_.vocab_n_tokens(host_.model_get_vocab(model_));
  const Tokens batch = host_.batch_init(n, 0, 1);
  if (batch.token == nullptr || batch.sequence == nullptr || batch.embeddings != nullptr)
    fail(PKV_UNSUPPORTED, "the llama_batch of this llama.cpp is not known");
  Tokens tokens = batch;
  tokens.n = n;
  for (int32_t i = 0; i < n; i++) {
    tokens.token[i] = static_cast<int32_t>(int64_t{words} * i / n);
    tokens.position[i] = first + i;
    tokens.sequences[i] = 1;
    tokens.sequence[i][0] = sequence;
    tokens.output[i] = 0;
  }
  const int32_t result = host_.decode(context_, tokens);
  host_.batch_free(batch);
  if (result == 0) return;
  empty(sequence);
  fail(PKV_IO, "llama_decode returned %d for the %d tokens that open decodes", result, n);
}

// At the last positions that the model was trained for, keys differ most between RoPE settings. If
// a chunk begins in the middle, the state shows that there are chunks.
LlamaContext::Identity LlamaContext::identify(std::span<const std::byte> model_id) const {
  const std::optional<int32_t> found = empty_sequence();
  if (!found)
    fail(PKV_BUSY, "open needs an empty sequence for a moment: all %u have cells",
         host_.n_seq_max(context_));
  const int32_t sequence = *found;
  const auto n = static_cast<int32_t>(std::min({8u, host_.n_batch(context_), room()}));
  int32_t first = std::max(0, host_.model_n_ctx_train(model_) - n);
  if (const int32_t window = form().window; window > 0)
    if (const int32_t chunk = (first + n / 2) / window * window; chunk >= n / 2)
      first = chunk - n / 2;
  decode(sequence, first, n);
  struct Removal {
    const LlamaContext& self;
    int32_t sequence;
    ~Removal() { self.empty(sequence); }
  } const removal{*this, sequence};
  const Buffer bytes = read(sequence);
  const State state(bytes.bytes(), sequence, recognise(bytes.bytes(), sequence, form(), first),
                    first);
  Description description;
  description.add(model_id);
  add_model(host_, model_, description);
  add_tokens(state, description);
  return {state.shape(), description.fingerprint()};
}

}  // namespace pagedkv_llama
