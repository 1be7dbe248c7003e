// Users of the fake llama.cpp, which is right only if each byte is.
#include "fake_llama.h"
#include "users.h"

namespace {

class Fake : public Engine {
 public:
  explicit Fake(const std::string& kind) : context_(fake::model_of(kind, 8), sequences, longest) {
    context_.watch = check_memory_with_state;
  }
  void* context() override { return &context_; }
  void clear(int32_t sequence) override { context_.clear(sequence); }
  void decode(int32_t sequence, std::span<const int32_t> text, size_t first) override {
    context_.decode(sequence, text.subspan(first));
  }
  bool has(int32_t sequence, std::span<const int32_t> text) override {
    return context_.has(sequence, text);
  }
  bool is_right(int32_t sequence, std::span<const int32_t> text) override {
    return context_.next(sequence) == fake::next_of(text);
  }

 private:
  fake::Context context_;
};

}  // namespace

const uint64_t bytes_for_users = 3 << 20;
std::vector<std::string> engine_kinds() { return fake::kinds; }
std::unique_ptr<Engine> make_engine(const std::string& kind) {
  return std::make_unique<Fake>(kind);
}
