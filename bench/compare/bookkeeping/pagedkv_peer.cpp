// Measures the bookkeeping of requests without keys, values or attention, for bench/bookkeeping:
// requests of a trace, matches of long prompts, decode steps, memory. The peers' files here do the
// same jobs.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <thread>

#include "../../serving/cache.h"

namespace pkv::serve {

namespace {

constexpr uint32_t block_size = 16;
using Tokens = std::vector<int32_t>;

// A request of the file: a prompt, and the tokens that are generated.
struct Text {
  Tokens prompt, answer;
};

class Ids {
 public:
  explicit Ids(uint64_t blocks) {
    auto group = made<pkv_layer_group>();
    group.layers = group.query_heads = group.kv_heads = 1;
    group.key_dim = 16;
    group.blocks = blocks;
    const auto prefix = made<pkv_prefix_config>();
    auto config = made<pkv_cache_config>();
    config.groups = &group;
    config.storage = PKV_STORAGE_EXTERNAL;
    config.block_size = block_size;
    config.prefix = &prefix;
    check(pkv_cache_create(&config, &cache_), "create");
  }
  ~Ids() { pkv_cache_destroy(cache_); }
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;

  // Opens a session with what is cached of a prompt, without its last token, whose output is
  // needed. Returns how many tokens are.
  uint64_t begin(const Tokens& prompt, pkv_session* session) const {
    uint64_t matched;
    check(pkv_session_open(cache_, nullptr, session), "open");
    check(pkv_session_admit(*session, prompt.size() - 1, prompt.data(), 0, &matched), "match");
    return matched;
  }
  // Takes blocks for new tokens, and caches them.
  void extend(const std::vector<pkv_session>& sessions, const std::vector<uint32_t>& counts,
              const int32_t* tokens) const {
    size_t rows = 0;
    for (const uint32_t count : counts) rows += count;
    pkv_batch batch;
    check(pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), &batch),
          "begin");
    check(pkv_batch_commit(batch, rows, tokens), "commit");
  }
  void extend(pkv_session session, const int32_t* tokens, size_t count) const {
    extend({session}, {static_cast<uint32_t>(count)}, tokens);
  }
  static void end(pkv_session session) { check(pkv_session_close(session), "close"); }

 private:
  pkv_cache cache_ = nullptr;
};

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Tokens tokens_of(const std::vector<Segment>& segments) {
  Request request;
  request.prompt = segments;
  return text_of(request);
}

// A text that shares nothing with others.
Tokens text_number(uint64_t number, uint32_t length) { return tokens_of({{number, length}}); }

// Prints a line for each request: id and length of each segment; the last is the answer.
int print_requests(const std::string& source, size_t count) {
  Options options;
  options.requests = count;
  (source.ends_with(".jsonl") ? options.trace : options.workload) = source;
  for (const Request& request : make_trace(options).requests) {
    for (const Segment& segment : request.prompt)
      std::printf("%" PRIu64 " %u ", segment.id, segment.length);
    std::printf("%" PRIu64 " %u\n", request.answer, request.output);
  }
  return 0;
}

std::vector<std::vector<Segment>> read_requests(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InputError("cannot read " + path);
  std::vector<std::vector<Segment>> requests;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Segment segment;
    requests.emplace_back();
    while (words >> segment.id >> segment.length) requests.back().push_back(segment);
  }
  return requests;
}

// Serves some requests at once: one step for what is not cached of all prompts, and one for all
// answers, in place of a step for each of their tokens.
void serve(const Ids& ids, std::span<const Text> texts, std::atomic<uint64_t>& hits) {
  std::vector<pkv_session> sessions(texts.size());
  std::vector<uint32_t> counts(texts.size());
  Tokens tokens;
  for (size_t i = 0; i < texts.size(); i++) {
    const Tokens& prompt = texts[i].prompt;
    const uint64_t matched = ids.begin(prompt, &sessions[i]);
    hits += matched;
    counts[i] = static_cast<uint32_t>(prompt.size() - matched);
    tokens.insert(tokens.end(), prompt.end() - counts[i], prompt.end());
  }
  ids.extend(sessions, counts, tokens.data());
  tokens.clear();
  for (size_t i = 0; i < texts.size(); i++) {
    counts[i] = static_cast<uint32_t>(texts[i].answer.size());
    tokens.insert(tokens.end(), texts[i].answer.begin(), texts[i].answer.end());
  }
  ids.extend(sessions, counts, tokens.data());
  for (const pkv_session session : sessions) Ids::end(session);
}

// Serves all requests. The tokens of some are made before, which is not timed.
void trace(const std::string& path, uint64_t blocks, unsigned threads) {
  constexpr size_t prepared = 256, together = 8;
  const auto requests = read_requests(path);
  const Ids ids(blocks);
  double seconds = 0;
  uint64_t asked = 0;
  std::atomic<uint64_t> hits = 0;
  for (size_t first = 0; first < requests.size(); first += prepared) {
    std::vector<Text> texts(std::min(prepared, requests.size() - first));
    for (size_t i = 0; i < texts.size(); i++) {
      auto segments = requests[first + i];
      texts[i].answer = tokens_of({segments.back()});
      segments.pop_back();
      texts[i].prompt = tokens_of(segments);
      asked += texts[i].prompt.size();
    }
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next.fetch_add(together); i < texts.size(); i = next.fetch_add(together))
        serve(ids, std::span(texts).subspan(i, std::min(together, texts.size() - i)), hits);
    };
    seconds += seconds_of([&] {
      std::vector<std::jthread> others;
      for (unsigned i = 1; i < threads; i++) others.emplace_back(work);
      work();
    });
  }
  std::printf("{\"seconds\": %g, \"requests\": %zu, \"hits\": %g}\n", seconds, requests.size(),
              static_cast<double>(hits) / static_cast<double>(asked));
}

// Matches of 32,768 cached tokens, of which one is new.
void match() {
  constexpr uint32_t length = 32768, texts = 100, turns = 5;
  const Ids ids((texts + 1) * (length / block_size + 1));
  std::vector<Tokens> prompts;
  pkv_session session;
  for (uint32_t i = 0; i < texts; i++) {
    prompts.push_back(text_number(i, length));
    ids.begin(prompts[i], &session);
    ids.extend(session, prompts[i].data(), length);
    Ids::end(session);
    prompts[i].push_back(1);
  }
  double fastest = 1e9;
  for (uint32_t turn = 0; turn < turns; turn++)
    fastest = std::min(fastest, seconds_of([&] {
                         for (const Tokens& prompt : prompts) {
                           if (ids.begin(prompt, &session) != length) std::abort();
                           ids.extend(session, &prompt.back(), 1);
                           Ids::end(session);
                         }
                       }));
  std::printf("{\"us\": %g}\n", fastest * 1e6 / texts);
}

// Decode steps of 256 sequences: the time of each block that they fill.
void append() {
  constexpr uint32_t sequences = 256, blocks = 20, turns = 5;
  const Ids ids(sequences * (blocks + 2) * (turns + 1));
  double fastest = 1e9;
  for (uint32_t turn = 0; turn < turns; turn++) {
    std::vector<pkv_session> sessions(sequences);
    for (uint32_t i = 0; i < sequences; i++) {
      const Tokens prompt = text_number(turn * sequences + i, block_size);
      ids.begin(prompt, &sessions[i]);
      ids.extend(sessions[i], prompt.data(), block_size);
    }
    const std::vector<uint32_t> ones(sequences, 1);
    const Tokens tokens = text_number(turn, sequences);
    fastest = std::min(fastest, seconds_of([&] {
                         for (uint32_t step = 0; step < blocks * block_size; step++)
                           ids.extend(sessions, ones, tokens.data());
                       }));
    for (const pkv_session session : sessions) Ids::end(session);
  }
  std::printf("{\"us\": %g}\n", fastest * 1e6 / (sequences * blocks));
}

uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Memory of 2^20 cached blocks of texts of 2,048 tokens.
void memory() {
  constexpr uint64_t blocks = 1 << 20;
  constexpr uint32_t length = 2048;
  const uint64_t before = resident_bytes();
  const Ids ids(blocks);
  for (uint64_t i = 0; i < blocks * block_size / length; i++) {
    const Tokens text = text_number(i, length);
    pkv_session session;
    ids.begin(text, &session);
    ids.extend(session, text.data(), length);
    Ids::end(session);
  }
  std::printf("{\"bytes\": %g}\n",
              static_cast<double>(resident_bytes() - before) / static_cast<double>(blocks));
}

uint64_t number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw InputError("not a number: " + text);
  return value;
}

int run(const std::vector<std::string>& words) {
  const std::string job = words.empty() ? "" : words[0];
  if (job == "requests" && words.size() == 3) return print_requests(words[1], number(words[2]));
  if (job == "trace" && words.size() == 4)
    trace(words[1], number(words[2]), static_cast<unsigned>(number(words[3])));
  else if (job == "match")
    match();
  else if (job == "append")
    append();
  else if (job == "memory")
    memory();
  else
    throw InputError(
        "usage: pkv-bookkeeping requests TRACE.jsonl|WORKLOAD COUNT | trace REQUESTS BLOCKS "
        "THREADS | match | append | memory");
  return 0;
}

}  // namespace

}  // namespace pkv::serve

int main(int argc, char** argv) {
  try {
    return pkv::serve::run({argv + 1, argv + argc});
  } catch (const pkv::serve::InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
