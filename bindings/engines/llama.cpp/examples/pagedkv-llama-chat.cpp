// Several conversations over one llama_context. Each line is a turn of one of them:
//
//   anna: What is the capital of France?
//   ben: Count to ten.
//
// Turns are answered together, in as many slots (sequences) as there are, when an empty line comes,
// the input ends, or a conversation has its next turn. Before a turn, what is known of its prompt
// is recalled, unless the slot has some of it; after it, the slot is remembered. So a conversation
// can go on in any slot, all share what they begin with, and with -dir this outlives the program.
// With sliding windows or recurrent layers, the prompt is remembered instead, up to its last block.
#include <ggml-backend.h>
#include <llama.h>
#include <pagedkv-llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using Tokens = std::vector<llama_token>;
using Clock = std::chrono::steady_clock;

static const char* const usage =
    "usage: pagedkv-llama-chat MODEL [OPTION VALUE]...\n"
    "  -backends DIR   load ggml's backends from there (default: where ggml looks)\n"
    "  -dir DIR        also keep conversations in this directory\n"
    "  -mib N          memory for what is remembered (default 256)\n"
    "  -slots N        turns at once (default 2)\n"
    "  -context N      tokens of a conversation (default 2048)\n"
    "  -tokens N       tokens of an answer, at most (default 32)\n"
    "  -threads N      (default 2)\n"
    "  -system TEXT    the system prompt, which all conversations share\n";

static void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "pagedkv-llama-chat: %s: %s\n", what, pkv_llama_last_error());
  std::exit(EXIT_FAILURE);
}

struct Options {
  std::map<std::string, std::string> given;
  std::string text(const char* name, const char* otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  }
  int number(const char* name, const char* otherwise) const {
    return std::atoi(text(name, otherwise).c_str());
  }
};

struct Message {
  std::string role, text;
};

struct Slot {
  std::string owner;
  Tokens tokens;  // what its sequence has
  int last_round = 0;
};

struct Turn {
  std::string name;
  int slot;
  size_t kept, recalled, prompt;  // tokens
  Tokens waiting;                 // for llama_decode
  size_t end;                     // how many tokens of the prompt are remembered; 0: none
  std::string answer;
  int left;         // tokens that the answer may have
  int output = -1;  // where in the batch its logits are
  double seconds = -1;
};

class Chat {
 public:
  Chat(const char* file, const Options& options)
      : system_(options.text("-system", "You are a helpful assistant. Answer in one sentence.")),
        slots_(options.number("-slots", "2")),
        answer_tokens_(options.number("-tokens", "32")),
        context_tokens_(options.number("-context", "2048")) {
    model_ = llama_model_load_from_file(file, llama_model_default_params());
    check(model_ != nullptr, "the model was not loaded");
    llama_context_params params = llama_context_default_params();
    params.n_seq_max = slots_.size() + 1;  // another one, so that recall works in pieces
    params.kv_unified = true;
    params.n_ctx = context_tokens_ * slots_.size();
    params.n_threads = params.n_threads_batch = options.number("-threads", "2");
    context_ = llama_init_from_model(model_, params);
    check(context_ != nullptr, "there is no context");
    batch_ = llama_batch_init(llama_n_batch(context_), 0, 1);
    open_memory(options);
  }
  ~Chat() {
    check(pkv_llama_close(memory_) == PKV_OK, "close");  // writes what is queued for the directory
    llama_batch_free(batch_);
    llama_sampler_free(sampler_);
    llama_free(context_);
    llama_model_free(model_);
  }

  size_t slots() const { return slots_.size(); }

  // Answers at most one turn of each name, and at most one for each slot.
  void answer(const std::vector<Message>& lines) {
    round_++;
    const auto begin = Clock::now();
    std::vector<Turn> turns;
    for (const Message& line : lines) begin_turn(line.role, line.text, turns);
    while (decode(turns))
      for (Turn& turn : turns) continue_turn(turn, begin);
    for (const Turn& turn : turns) end_turn(turn);
  }

 private:
  void open_memory(const Options& options) {
    pkv_store store = {};
    store.struct_size = sizeof store;
    pkv_llama_config config = {};
    config.struct_size = sizeof config;
    config.context = context_;
    config.block_size = block;
    config.max_bytes = uint64_t(options.number("-mib", "256")) << 20;
    if (const std::string path = options.text("-dir", ""); !path.empty()) {
      pkv_directory_config directory = {};
      directory.struct_size = sizeof directory;
      directory.path = path.c_str();
      check(pkv_store_open_directory(&directory, &store) == PKV_OK, pkv_last_error());
      config.store = &store;
    }
    check(pkv_llama_open(&config, &memory_) == PKV_OK, "open");
    has_ends_ = stats().end_bytes > 0;
  }

  // Chooses a slot, and leaves in it what is known of the prompt.
  void begin_turn(const std::string& name, const std::string& text, std::vector<Turn>& turns) {
    std::vector<Message>& talk = talks_[name];
    if (talk.empty()) talk.push_back({"system", system_});
    talk.push_back({"user", text});
    const Tokens prompt = tokenize(talk);
    if (prompt.size() + answer_tokens_ > context_tokens_) {
      std::printf("%s> (the conversation is too long: -context)\n", name.c_str());
      talk.pop_back();
      return;
    }
    const auto better = [&](const Slot& a, const Slot& b) {  // its own one, or the oldest
      return std::pair(a.owner != name, a.last_round) < std::pair(b.owner != name, b.last_round);
    };
    Slot& slot = *std::min_element(slots_.begin(), slots_.end(), better);
    const int sequence = static_cast<int>(&slot - slots_.data());
    Turn turn{name, sequence, 0, 0, prompt.size(), {}, 0, {}, answer_tokens_};
    if (slot.owner == name) {
      const size_t most = std::min(slot.tokens.size(), prompt.size() - 1);
      turn.kept = std::mismatch(&prompt[0], &prompt[most], &slot.tokens[0]).first - &prompt[0];
      if (has_ends_ && turn.kept < slot.tokens.size()) turn.kept = 0;  // it cannot be cut
    }
    llama_memory_seq_rm(llama_get_memory(context_), sequence, turn.kept == 0 ? -1 : turn.kept, -1);
    if (turn.kept == 0) {
      uint64_t length = 0;
      const pkv_prompt known = as_prompt(prompt, prompt.size() - 1);
      check(pkv_llama_recall(memory_, sequence, &known, &length) == PKV_OK, "recall");
      turn.recalled = length;
    }
    const auto first = prompt.begin() + turn.kept + turn.recalled;
    slot = {name, Tokens(prompt.begin(), first), round_};
    turn.waiting.assign(first, prompt.end());
    const size_t end = (prompt.size() - 1) / block * block;
    if (has_ends_ && end > turn.kept + turn.recalled) turn.end = end;
    turns.push_back(turn);
  }

  // Decodes what waits, as much as fits in a batch. Returns whether there was anything.
  bool decode(std::vector<Turn>& turns) {
    batch_.n_tokens = 0;
    for (Turn& turn : turns) {
      Slot& slot = slots_[turn.slot];
      size_t n = std::min<size_t>(llama_n_batch(context_) - batch_.n_tokens, turn.waiting.size());
      if (turn.end > 0) n = std::min(n, turn.end - slot.tokens.size());
      turn.output = -1;
      for (size_t i = 0; i < n; i++) {
        const int at = batch_.n_tokens++;
        batch_.token[at] = turn.waiting[i];
        batch_.pos[at] = static_cast<llama_pos>(slot.tokens.size());
        batch_.n_seq_id[at] = 1, batch_.seq_id[at][0] = turn.slot;
        batch_.logits[at] = i + 1 == turn.waiting.size();
        if (batch_.logits[at]) turn.output = at;
        slot.tokens.push_back(turn.waiting[i]);
      }
      turn.waiting.erase(turn.waiting.begin(), turn.waiting.begin() + n);
    }
    if (batch_.n_tokens == 0) return false;
    check(llama_decode(context_, batch_) == 0, "decode");
    for (Turn& turn : turns)
      if (turn.end > 0 && turn.end == slots_[turn.slot].tokens.size()) {
        remember(turn.slot);
        turn.end = 0;
      }
    return true;
  }

  void continue_turn(Turn& turn, Clock::time_point begin) {
    if (turn.output < 0) return;
    const llama_token token = llama_sampler_sample(sampler_, context_, turn.output);
    if (turn.seconds < 0)
      turn.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const llama_vocab* const words = llama_model_get_vocab(model_);
    if (llama_vocab_is_eog(words, token) || turn.left-- == 0) return;
    char piece[256];
    const int n = llama_token_to_piece(words, token, piece, sizeof piece, 0, false);
    turn.answer.append(piece, std::max(n, 0));
    turn.waiting.push_back(token);
  }

  void end_turn(const Turn& turn) {
    talks_[turn.name].push_back({"assistant", turn.answer});
    if (!has_ends_) remember(turn.slot);
    const pkv_llama_stats now = stats();
    std::printf("%s> %s\n", turn.name.c_str(), turn.answer.c_str());
    std::printf(
        "  [slot %d: of %zu tokens %zu were in the slot, %zu recalled; first token after "
        "%.2f s; %.1f of %.0f MiB remembered]\n",
        turn.slot, turn.prompt, turn.kept, turn.recalled, turn.seconds,
        double(now.cached_tokens * now.token_bytes) / (1 << 20),
        double(now.memory_bytes) / (1 << 20));
    std::fflush(stdout);
  }

  void remember(int slot) {
    const Tokens& tokens = slots_[slot].tokens;
    const pkv_prompt all = as_prompt(tokens, tokens.size());
    check(pkv_llama_remember(memory_, slot, &all) == PKV_OK, "remember");
  }

  pkv_llama_stats stats() const {
    pkv_llama_stats stats = {};
    stats.struct_size = sizeof stats;
    check(pkv_llama_get_stats(memory_, &stats) == PKV_OK, "stats");
    return stats;
  }

  Tokens tokenize(const std::vector<Message>& talk) const {
    std::vector<llama_chat_message> messages;
    size_t size = 256;
    for (const Message& message : talk) {
      messages.push_back({message.role.c_str(), message.text.c_str()});
      size += 2 * message.text.size() + 64;
    }
    std::string text(size, 0);
    const char* const form = llama_model_chat_template(model_, nullptr);
    const int n = llama_chat_apply_template(form == nullptr ? "chatml" : form, messages.data(),
                                            messages.size(), true, text.data(), size);
    check(n > 0 && n <= static_cast<int>(size), "the model's chat template is not known");
    const llama_vocab* const words = llama_model_get_vocab(model_);
    Tokens tokens(-llama_tokenize(words, text.data(), n, nullptr, 0, true, true));
    const int count =
        llama_tokenize(words, text.data(), n, tokens.data(), tokens.size(), true, true);
    check(count > 0, "tokenize");
    return tokens;
  }

  // All conversations have one salt, so they share the system prompt. A server would have one for
  // each user.
  static pkv_prompt as_prompt(const Tokens& tokens, size_t n) {
    pkv_prompt prompt = {};
    prompt.struct_size = sizeof prompt;
    prompt.tokens = tokens.data(), prompt.n = n;
    return prompt;
  }

  static constexpr size_t block = 16;  // for short texts
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  llama_batch batch_ = {};
  llama_sampler* const sampler_ = llama_sampler_init_greedy();
  pkv_llama memory_ = nullptr;
  const std::string system_;
  std::vector<Slot> slots_;
  const int answer_tokens_;
  const size_t context_tokens_;
  bool has_ends_ = false;
  std::map<std::string, std::vector<Message>> talks_;
  int round_ = 0;
};

int main(int argc, char** argv) {
  Options options;
  for (int i = 2; i + 1 < argc; i += 2) options.given[argv[i]] = argv[i + 1];
  const auto known = [](const auto& option) { return std::strstr(usage, option.first.c_str()); };
  if (argc < 2 || argc % 2 != 0 ||
      !std::all_of(options.given.begin(), options.given.end(), known)) {
    std::fputs(usage, stderr);
    return EXIT_FAILURE;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const std::string backends = options.text("-backends", "");
  if (backends.empty())
    ggml_backend_load_all();
  else
    ggml_backend_load_all_from_path(backends.c_str());
  Chat chat(argv[1], options);
  std::vector<Message> lines;  // the name as the role
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t colon = line.find(": ");
    const std::string name = line.substr(0, colon);
    const auto same = [&](const Message& other) { return other.role == name; };
    if (line.empty() || lines.size() == chat.slots() ||
        std::any_of(lines.begin(), lines.end(), same)) {
      chat.answer(lines);
      lines.clear();
    }
    if (colon != std::string::npos) lines.push_back({name, line.substr(colon + 2)});
  }
  chat.answer(lines);
}
