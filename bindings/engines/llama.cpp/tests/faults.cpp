// Faults at every call: functions of llama.cpp that fail, or return less or something else; memory
// that is refused, by operator new and by the cache's allocator; stores that fail. What else is
// remembered stays right, sequences stay as they were, and nothing leaks. The llama.cpp is a fake.
#include <dlfcn.h>
#include <pagedkv/experimental.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "../../../../tests/support/memory.h"
#include "../../../../tests/support/memory_store.h"
#include "../recall/pagedkv-llama.h"
#include "fake_llama.h"

namespace {

#define CHECK(good)                                                                         \
  if (!(good)) {                                                                            \
    std::printf("%s:%d: not %s (%s)\n", __FILE__, __LINE__, #good, pkv_llama_last_error()); \
    std::exit(1);                                                                           \
  }

using Text = std::vector<int32_t>;

memory::Hooks hooks;

Text text(int32_t first, size_t n) {
  Text tokens(n);
  for (size_t i = 0; i < n; i++) tokens[i] = (first + static_cast<int32_t>(i * i)) % 1000;
  return tokens;
}

pkv_prompt prompt_of(const Text& tokens, const char* salt) {
  return {sizeof(pkv_prompt), 0, salt, std::strlen(salt), tokens.data(), tokens.size()};
}

// A context with four sequences, of which the first two are conversations that are remembered.
struct Chat {
  explicit Chat(const std::string& kind, cache_test::MemoryStore* store = nullptr)
      : context(fake::model_of(kind), 4, 256) {
    pkv_store table{};
    if (store != nullptr) table = store->table();
    CHECK(open(&llama, store == nullptr ? nullptr : &table) == PKV_OK);
  }
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;
  ~Chat() { CHECK(pkv_llama_close(llama) == PKV_OK); }

  pkv_status open(pkv_llama* out, pkv_store* store = nullptr) {
    auto config = made<pkv_llama_config>();
    config.context = &context;
    config.block_size = 16;
    config.max_bytes = store == nullptr ? 2 << 20 : 20 << 20;
    config.store = store;
    return pkv_llama_open(&config, out);
  }

  void decode(int32_t sequence, const Text& tokens) {
    context.clear(sequence);
    context.decode(sequence, tokens);
  }
  pkv_status remember(int32_t sequence, const Text& tokens, const char* salt) {
    const pkv_prompt prompt = prompt_of(tokens, salt);
    return pkv_llama_remember(llama, sequence, &prompt);
  }
  pkv_status recall(int32_t sequence, const Text& tokens, const char* salt, uint64_t* length) {
    const pkv_prompt prompt = prompt_of(tokens, salt);
    return pkv_llama_recall(llama, sequence, &prompt, length);
  }
  // Recalls some tokens into the last sequence. Returns how many, all of which are right.
  uint64_t recalled(const Text& tokens, const char* salt) {
    uint64_t length = 0;
    context.clear(3);
    CHECK(recall(3, tokens, salt, &length) == PKV_OK);
    const Text known(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length));
    CHECK(context.has(3, known));
    CHECK(length == 0 || context.next(3) == fake::next_of(known));
    context.clear(3);
    return length;
  }

  // Two conversations that share a prefix, and a third one that is not remembered yet.
  const Text a = text(7, 64), b = text(7, 96), c = text(8, 48);
  void converse() {
    for (const size_t n : {size_t{32}, b.size()}) {
      decode(1, Text(b.begin(), b.begin() + static_cast<ptrdiff_t>(n)));
      CHECK(remember(1, Text(b.begin(), b.begin() + static_cast<ptrdiff_t>(n)), "b") == PKV_OK);
    }
    decode(0, a);
    CHECK(remember(0, a, "") == PKV_OK);
  }
  void check_conversations() {
    CHECK(recalled(a, "") == a.size());
    CHECK(recalled(b, "b") == b.size());
    CHECK(recalled(b, "another") == 0);
    const uint64_t n = recalled(c, "");
    CHECK(n == 0 || n == c.size());
    pkv_cache cache;
    CHECK(pkv_llama_get_cache(llama, &cache) == PKV_OK);
    CHECK(pkv_cache_validate(cache) == PKV_OK);
    auto stats = made<pkv_cache_stats>();
    CHECK(pkv_cache_get_stats(cache, &stats) == PKV_OK && stats.sessions == 0);
  }

  fake::Context context;
  pkv_llama llama = nullptr;
};

struct Operation {
  const char* name;
  // Returns the status. It may use the sequence 2.
  pkv_status (*run)(Chat& chat);
};

pkv_status remember_c(Chat& chat) { return chat.remember(2, chat.c, ""); }

pkv_status recall_b(Chat& chat) {
  uint64_t length = 99;
  const pkv_status status = chat.recall(2, chat.b, "b", &length);
  const memory::Exempt exempt;
  memory::countdown = 0;
  if (status != PKV_OK) CHECK(length == 99);
  if (status == PKV_OK) {
    CHECK(length == chat.b.size() && chat.context.has(2, chat.b));
    chat.context.clear(2);
  }
  return status;
}

pkv_status open_another(Chat& chat) {
  pkv_llama another = nullptr;
  const pkv_status status = chat.open(&another);
  memory::countdown = 0;
  CHECK((status == PKV_OK) == (another != nullptr));
  CHECK(pkv_llama_close(another) == PKV_OK);
  return status;
}

pkv_status pin_and_forget(Chat& chat) {
  const pkv_prompt a = prompt_of(chat.a, ""), c = prompt_of(chat.c, "");
  uint64_t pinned = 0;
  const pkv_status status = pkv_llama_pin(chat.llama, &a, 1, &pinned);
  if (status != PKV_OK) return status;
  auto stats = made<pkv_llama_stats>();
  CHECK(pkv_llama_get_stats(chat.llama, &stats) == PKV_OK);
  return pkv_llama_forget(chat.llama, &c);
}

const Operation operations[] = {{"remember", remember_c},
                                {"recall", recall_b},
                                {"open", open_another},
                                {"pin and forget", pin_and_forget}};

uint64_t faults = 0, errors = 0;

// Runs an operation with a fault, which `inject` causes and which tells whether it struck.
bool strike(Chat& chat, const Operation& operation,
            const std::function<bool(const std::function<pkv_status()>&)>& inject) {
  std::vector<fake::Bytes> before;
  for (int32_t s = 0; s < 4; s++) before.push_back(chat.context.all_of(s));
  pkv_status status = PKV_OK;
  const bool struck = inject([&] { return status = operation.run(chat); });
  for (int32_t s = 0; s < 4; s++) CHECK(chat.context.all_of(s) == before[static_cast<size_t>(s)]);
  faults += struck, errors += status != PKV_OK;
  CHECK(struck || status == PKV_OK);
  chat.check_conversations();
  const pkv_prompt c = prompt_of(chat.c, "");
  CHECK(pkv_llama_forget(chat.llama, &c) == PKV_OK && chat.recalled(chat.c, "") == 0);
  return struck;
}

void strike_everywhere(const std::string& kind, const Operation& operation) {
  Chat chat(kind);
  chat.converse();
  if (operation.run == remember_c) chat.decode(2, chat.c);
  for (int way = 0; way < fake::Context::ways; way++)
    for (uint64_t k = 1;; k++) {
      const bool struck = strike(chat, operation, [&](const auto& run) {
        chat.context.fail(k, way);
        run();
        const bool has_struck = chat.context.struck;
        chat.context.fail(0, 0);
        return has_struck;
      });
      if (!struck) break;
    }
  for (uint64_t k = 1;; k += 1 + k / 20) {
    const bool struck = strike(chat, operation, [&](const auto& run) {
      const memory::Refusal refusal(k);
      run();
      return refusal.struck();
    });
    if (!struck) break;
  }
  CHECK(operation.run(chat) == PKV_OK);
  chat.check_conversations();
}

// Pieces that llama.cpp does not share are noticed.
void ignored_copies() {
  Chat chat("tokens");
  chat.converse();
  chat.decode(2, chat.c);
  chat.context.ignores_copies = true;
  CHECK(chat.remember(2, chat.c, "") == PKV_IO && chat.context.has(2, chat.c));
  chat.context.clear(2);
  uint64_t length = 99;
  CHECK(chat.recall(2, chat.b, "b", &length) == PKV_IO && length == 99);
  for (const int32_t sequence : {2, 3}) CHECK(chat.context.length(sequence) == 0);
  chat.context.ignores_copies = false;
  chat.check_conversations();
}

// Calls of the store fail, items are lost or spoiled, and it is too small: texts in memory stay
// right, and a new cache finds what is right or less.
void stores(const std::string& kind) {
  std::minstd_rand random(60);
  struct Random {
    std::minstd_rand& bits;
    uint64_t below(uint64_t n) { return bits() % n; }
  } source{random};
  uint64_t found = 0;
  for (int round = 0; round < 40; round++) {
    cache_test::MemoryStore store;
    if (round % 4 == 1) store.capacity = random() % 12;
    {
      Chat chat(kind, &store);
      if (round % 4 == 2) store.error = EIO;
      chat.converse();
      pkv_cache cache;
      uint64_t queued;
      CHECK(pkv_llama_get_cache(chat.llama, &cache) == PKV_OK);
      if (round % 2 == 0) pkv_cache_flush_store(cache, 1, &queued);
      chat.check_conversations();
    }
    CHECK(store.closed == 1);
    store.error = 0;
    if (round % 4 == 3)
      for (int i = 0; i < 3; i++) store.spoil(source);
    Chat chat(kind, &store);
    const uint64_t a = chat.recalled(chat.a, ""), b = chat.recalled(chat.b, "b");
    CHECK(chat.recalled(chat.b, "") <= a && chat.recalled(chat.a, "c") == 0);
    if (round % 4 == 0) CHECK(a == chat.a.size() && b == chat.b.size());
    found += a + b;
    // Reading fails, too.
    store.error = EIO;
    chat.converse();
    chat.check_conversations();
  }
  std::printf("%s: %d stores, %llu tokens found\n", kind.c_str(), 40,
              static_cast<unsigned long long>(found));
}

// Closes a memory while another thread waits for its store. Returns whether the close was refused;
// it is not if the other thread came too late.
bool is_refused_beside_a_call(const std::string& kind) {
  cache_test::MemoryStore store;
  Chat chat(kind, &store);
  chat.converse();
  pkv_cache cache;
  CHECK(pkv_llama_get_cache(chat.llama, &cache) == PKV_OK);
  store.hold();
  std::atomic<bool> begun{false};
  std::thread flush([&] {
    uint64_t queued;
    begun = true;
    const pkv_status status = pkv_cache_flush_store(cache, 60000, &queued);
    CHECK(status == PKV_OK || status == PKV_BUSY || status == PKV_STALE_HANDLE);
  });
  while (!begun) std::this_thread::yield();
  store.await_held_call();
  std::atomic<int> status{-1};
  std::thread close([&] { status = pkv_llama_close(chat.llama); });
  for (int i = 0; i < 100 && status < 0; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  store.go_on();
  close.join(), flush.join();
  CHECK(status == PKV_OK || status == PKV_BUSY);
  if (status == PKV_OK)
    chat.llama = nullptr;
  else
    chat.check_conversations();
  return status == PKV_BUSY;
}

// A close beside a call is refused. Other calls may run beside each other.
void close_beside_calls(const std::string& kind) {
  while (!is_refused_beside_a_call(kind)) {
  }
  Chat chat(kind);
  chat.converse();
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; i++)
    others.emplace_back([&, i] {
      const pkv_prompt a = prompt_of(chat.a, ""), c = prompt_of(chat.c, "");
      auto of = made<pkv_llama_stats>();
      while (!stop) {
        CHECK(pkv_llama_get_stats(chat.llama, &of) == PKV_OK);
        CHECK(pkv_llama_pin(chat.llama, &a, 1, nullptr) == PKV_OK);
        if (i == 0) CHECK(pkv_llama_forget(chat.llama, &c) == PKV_OK);
      }
    });
  chat.decode(2, chat.c);
  for (int i = 0; i < 300; i++) {
    CHECK(chat.remember(2, chat.c, "") == PKV_OK);
    CHECK(chat.recalled(chat.a, "") == chat.a.size());
    chat.recalled(chat.c, "");
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

}  // namespace

// Stands before that of the library, which has no place for an allocator in its config.
extern "C" pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out) {
  static const auto create =
      reinterpret_cast<decltype(&pkv_cache_create)>(dlsym(RTLD_NEXT, "pkv_cache_create"));
  pkv_cache_config with_hooks = *config;
  with_hooks.allocator = hooks.allocator();
  return create(&with_hooks, out);
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int64_t news = 0;
  for (const std::string& kind : fake::kinds) {
    for (const Operation& operation : operations) {
      strike_everywhere(kind, operation);
      std::printf("%s, %s: %llu faults, %llu errors\n", kind.c_str(), operation.name,
                  static_cast<unsigned long long>(faults), static_cast<unsigned long long>(errors));
    }
    stores(kind);
    close_beside_calls(kind);
    CHECK(hooks.live() == 0 && hooks.sound());
    // The first kind also makes what the libraries keep.
    if (news == 0) news = memory::news;
    CHECK(memory::news == news);
  }
  ignored_copies();
  CHECK(faults > 500 && errors > 400);
  std::printf("%llu faults, %llu errors\n", static_cast<unsigned long long>(faults),
              static_cast<unsigned long long>(errors));
}
