#include "support.h"

#ifndef _WIN32
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace hostile {

std::string format(const char* text, ...) {
  char buffer[512];
  va_list args;
  va_start(args, text);
  std::vsnprintf(buffer, sizeof buffer, text, args);
  va_end(args);
  return buffer;
}

bool sentence_tells(const std::string& sentence) {
  if (sentence.find(' ') == std::string::npos) return false;
  if (sentence.find_first_of("0123456789") != std::string::npos) return true;
  // Sentences without a number have the name of a value, such as NONE, or of the argument, the
  // handle or what refused.
  size_t capitals = 0;
  for (const char c : sentence)
    if (capitals = c >= 'A' && c <= 'Z' ? capitals + 1 : 0; capitals == 3) return true;
  for (const char* name : {"hook", "allocator", "logger", "clock", "runner", "accepted", "storage",
                           "session", "batch", "cache", "scale", "block", "kv", "state"})
    if (sentence.find(name) != std::string::npos) return true;
  return false;
}

void expect(pkv_status wanted, pkv_status got, const char* what) {
  operations++;
  if (got == wanted && got == PKV_OK) return;
  const std::string sentence = pkv_last_error();
  if (got != wanted)
    throw Failure(format("%s gave %s, not %s; last error: \"%s\"", what, pkv_status_name(got),
                         pkv_status_name(wanted), sentence.c_str()));
  if (!sentence_tells(sentence))
    throw Failure(format("%s: the sentence is \"%s\"", what, sentence.c_str()));
}

#ifdef _WIN32

// There are no children: what crashes ends the program.
std::string in_child(const std::function<void()>& body, unsigned) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what()[0] != 0 ? error.what() : "an exception";
  }
  return "";
}

std::vector<std::string> in_children(const std::vector<std::function<void()>>& bodies,
                                     unsigned seconds) {
  std::vector<std::string> failed;
  for (const auto& body : bodies) failed.push_back(in_child(body, seconds));
  return failed;
}

#else

std::string in_child(const std::function<void()>& body, unsigned seconds) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child < 0) return "no child";
  if (child == 0) {
    close(ends[0]);
    alarm(seconds);
    std::string failed;
    try {
      body();
    } catch (const std::exception& error) {
      failed = error.what()[0] != 0 ? error.what() : "an exception";
    }
    // Exit handlers must not run: the child is a copy of the test program in the middle of its
    // work.
    _exit(failed.empty() || write(ends[1], failed.data(), failed.size()) < 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string failed;
  char buffer[1024];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    failed.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    return format("signal %d (%s) ", WTERMSIG(status), strsignal(WTERMSIG(status))) + failed;
  if (failed.empty() && WEXITSTATUS(status) != 0)
    return format("the child ended with %d", WEXITSTATUS(status));
  return failed;
}

std::vector<std::string> in_children(const std::vector<std::function<void()>>& bodies,
                                     unsigned seconds) {
  void* const shared =
      mmap(nullptr, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::vector<std::string>(bodies.size(), "no shared memory");
  size_t& next = *static_cast<size_t*>(shared);
  std::vector<std::string> failed(bodies.size());
  while (next < bodies.size()) {
    const std::string why = in_child([&] {
      for (; next < bodies.size(); next++) {
        alarm(seconds);
        bodies[next]();
      }
    });
    if (!why.empty()) failed[next++] = why;
  }
  munmap(shared, sizeof(size_t));
  return failed;
}

#endif

// ---- Hooks ----------------------------------------------------------------------------------

namespace {

// Precedes each block, so that free() can check size and alignment against the allocation's.
struct Header {
  void* begin;
  size_t size, alignment;
};

}  // namespace

Hooks::Hooks() : allocator_{alloc, free, this}, logger_{log, this} {}

void* Hooks::alloc(void* user, size_t size, size_t alignment) {
  Hooks& self = *static_cast<Hooks*>(user);
  if (self.inside) self.inside();
  if (const uint64_t left = self.fail_at.load(); left != 0) {
    if (left == 1) {
      self.struck = true;
      return nullptr;
    }
    self.fail_at = left - 1;
  }
  if (memory::refuse_everywhere(memory::Source::hooks)) return nullptr;
  const size_t step = alignment < alignof(Header) ? alignof(Header) : alignment;
  const size_t room = (sizeof(Header) + step - 1) / step * step;
  if (size > memory::largest) return nullptr;
  void* const begin = portable::allocate_aligned(step, (size + room + step - 1) / step * step);
  if (begin == nullptr) return nullptr;
  auto* const block = static_cast<unsigned char*>(begin) + room;
  reinterpret_cast<Header*>(block)[-1] = {begin, size, alignment};
  // No code may rely on zeroed memory, so it is filled, but only in part, because filling more
  // would dominate the time of tests.
  std::memset(block, 0xA5, std::min<size_t>(size, 1 << 13));
  self.live_++;
  return block;
}

void Hooks::free(void* user, void* memory, size_t size, size_t alignment) {
  Hooks& self = *static_cast<Hooks*>(user);
  if (self.inside_free) self.inside_free();
  const Header header = static_cast<Header*>(memory)[-1];
  if (header.size != size || header.alignment != alignment) self.sound_ = false;
  self.live_--;
  portable::free_aligned(header.begin);
}

void Hooks::log(void* user, pkv_log_level, const char* message) {
  Hooks& self = *static_cast<Hooks*>(user);
  if (message != nullptr && message[0] != 0) self.lines_++;
  if (self.inside_log) self.inside_log();
}

// ---- The small model ------------------------------------------------------------------------

ModelConfig small_model(uint64_t blocks, const Hooks* hooks) {
  ModelConfig config;
  config.model.layers = layers;
  config.model.query_heads = query_heads;
  config.model.kv_heads = kv_heads;
  config.model.key_dim = dim;
  config.model.blocks = blocks;
  config.threads = 1;
  if (hooks != nullptr) {
    config.allocator = hooks->allocator();
    config.logger = hooks->logger();
  }
  return config;
}

std::vector<float> numbers(size_t n, uint64_t seed) {
  std::vector<float> values(n);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int32_t>(state >> 40)) / static_cast<float>(1 << 23) - 1;
  }
  return values;
}

std::vector<float> step(pkv_cache cache, const std::vector<pkv_session>& sessions,
                        const std::vector<uint32_t>& new_tokens, uint64_t seed) {
  pkv_batch batch = nullptr;
  OK(pkv_batch_begin(cache, sessions.size(), sessions.data(), new_tokens.data(), &batch));
  const size_t rows = std::accumulate(new_tokens.begin(), new_tokens.end(), size_t{0});
  std::vector<float> outputs(layers * rows * q_floats);
  for (uint32_t layer = 0; layer < layers; layer++) {
    const std::vector<float> k = numbers(rows * kv_floats, seed * 7 + layer),
                             v = numbers(rows * kv_floats, seed * 7 + layer + 3),
                             q = numbers(rows * q_floats, seed * 7 + layer + 5);
    const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data()), qt = tensor(q.data()),
                     out = tensor(outputs.data() + layer * rows * q_floats);
    OK(pkv_batch_write(batch, layer, &kt, &vt));
    OK(pkv_batch_attend(batch, layer, nullptr, &qt, &out, nullptr));
  }
  OK(pkv_batch_commit(batch, 0, nullptr));
  return outputs;
}

pkv_cache_stats stats_of(pkv_cache cache) {
  auto stats = made<pkv_cache_stats>();
  OK(pkv_cache_get_stats(cache, &stats));
  return stats;
}

pkv_pool_stats pool_stats_of(pkv_cache cache) {
  auto stats = made<pkv_pool_stats>();
  OK(pkv_cache_get_pool_stats(cache, PKV_ALL_GROUPS, &stats));
  return stats;
}

uint64_t length_of(pkv_session session) {
  uint64_t length = 0;
  OK(pkv_session_get_length(session, &length));
  return length;
}

}  // namespace hostile
