// Hooks that break their contract, and the threads that call them: memory that is not aligned,
// allocators that count threads.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "../support/memory_store.h"
#include "../support/portable.h"
#include "world.h"

namespace hostile::hooks_test {
namespace {

// An allocator whose `at`-th block is misaligned by `off` bytes.
struct Crooked {
  explicit Crooked(uint64_t number, size_t by) : at(number), off(by) {}
  uint64_t at, calls = 0;
  size_t off;
  int64_t live = 0;
  bool struck = false, came_back = false;
  void* given = nullptr;

  pkv_allocator hooks() {
    return {
        [](void* user, size_t size, size_t alignment) {
          return static_cast<Crooked*>(user)->alloc(size, alignment);
        },
        [](void* user, void* memory, size_t, size_t) { static_cast<Crooked*>(user)->free(memory); },
        this};
  }

 private:
  void* alloc(size_t size, size_t alignment) {
    const size_t step = alignment < 64 ? 64 : alignment;
    auto* const memory = static_cast<unsigned char*>(
        portable::allocate_aligned(step, (size + 2 * step) / step * step));
    live++;
    // Memory that needs no alignment cannot be misaligned.
    if (off % alignment == 0 || ++calls != at) return memory;
    struck = true;
    return given = memory + off;
  }
  void free(void* memory) {
    live--;
    if (memory != given) return portable::free_aligned(memory);
    came_back = true;
    given = nullptr;
    portable::free_aligned(static_cast<unsigned char*>(memory) - off);
  }
};

// Makes a cache, runs a step in it and destroys it. Returns the status of the first call
// that did not work.
pkv_status use(const pkv_allocator& allocator) {
  ModelConfig config = small_model(16);
  config.allocator = &allocator;
  const auto prefix = made<pkv_prefix_config>();
  config.prefix = &prefix;
  pkv_cache cache = nullptr;
  pkv_session session = nullptr;
  pkv_batch batch = nullptr;
  const uint32_t count = 40;
  const std::vector<int32_t> tokens(count, 1);
  const std::vector<float> data = numbers(count * q_floats, 1);
  std::vector<float> outputs(data.size());
  const pkv_tensor in = tensor(data.data()), out = tensor(outputs.data());
  pkv_status status = pkv_cache_create(&config, &cache);
  if (status != PKV_OK) return status;
  const std::function<pkv_status()> calls[] = {
      [&] { return pkv_session_open(cache, nullptr, &session); },
      [&] { return pkv_batch_begin(cache, 1, &session, &count, &batch); },
      [&] { return pkv_batch_write(batch, 0, &in, &in); },
      [&] { return pkv_batch_write(batch, 1, &in, &in); },
      [&] { return pkv_batch_attend(batch, 0, nullptr, &in, &out, nullptr); },
      [&] { return pkv_batch_commit(batch, count, tokens.data()); }};
  for (const auto& call : calls)
    if (status = call(); status != PKV_OK) break;
  const std::string sentence = pkv_last_error();
  OK(pkv_cache_validate(cache));
  OK(pkv_cache_destroy(cache));
  HOSTILE_CHECK(status == PKV_OK || sentence.find("alloc hook") != std::string::npos, "%s",
                sentence.c_str());
  return status;
}

// Memory that is misaligned by a few bytes is refused everywhere, and is given back to the hook.
TEST(Hooks, MisalignedMemory) {
  for (const size_t off : {1u, 2u, 4u, 8u, 32u})
    EXPECT_EQ(in_child([&] {
                uint64_t refused = 0;
                for (uint64_t k = 1;; k++) {
                  Crooked crooked(k, off);
                  const pkv_status status = use(crooked.hooks());
                  HOSTILE_CHECK(crooked.live == 0, "%lld blocks leaked",
                                static_cast<long long>(crooked.live));
                  if (!crooked.struck) {
                    expect(PKV_OK, status, "calls with memory that is aligned");
                    break;
                  }
                  HOSTILE_CHECK(crooked.came_back, "the block did not come back");
                  // The index continues without what it cannot store.
                  HOSTILE_CHECK(status == PKV_OUT_OF_MEMORY || status == PKV_OK, "%s",
                                pkv_status_name(status));
                  refused += status == PKV_OUT_OF_MEMORY;
                }
                HOSTILE_CHECK(refused > 0, "no block was refused");
              }),
              "")
        << "off by " << off;
}

// An allocator that knows which thread called it.
struct Counted {
  std::mutex mutex;
  std::set<std::thread::id> allocating, freeing;
  pkv_allocator hooks() {
    return {[](void* user, size_t size, size_t alignment) {
              static_cast<Counted*>(user)->note(&Counted::allocating);
              return portable::allocate_aligned(alignment,
                                                (size + alignment - 1) / alignment * alignment);
            },
            [](void* user, void* memory, size_t, size_t) {
              static_cast<Counted*>(user)->note(&Counted::freeing);
              portable::free_aligned(memory);
            },
            this};
  }
  void note(std::set<std::thread::id> Counted::* of) {
    const std::lock_guard lock(mutex);
    (this->*of).insert(std::this_thread::get_id());
  }
};

void compute(pkv_cache cache, const std::vector<int32_t>& text, uint64_t seed) {
  pkv_session session = nullptr;
  OK(pkv_session_open(cache, nullptr, &session));
  step(cache, {session}, {static_cast<uint32_t>(text.size())}, seed);
  OK(pkv_session_set_tokens(session, 0, text.size(), text.data()));
  OK(pkv_session_close(session));
}

// As common.h says, only the caller's own thread allocates without a store, and with one also the
// two threads of the store.
TEST(Hooks, ThreadsThatAllocate) {
  for (const bool stored : {false, true})
    EXPECT_EQ(in_child([&] {
                cache_test::MemoryStore memory;
                pkv_store table = memory.table();
                Counted counted;
                const pkv_allocator allocator = counted.hooks();
                ModelConfig config = small_model(64);
                config.threads = 4;
                config.allocator = &allocator;
                const auto prefix = made<pkv_prefix_config>();
                config.prefix = &prefix;
                auto store = made<pkv_store_config>({.store = &table});
                if (stored) config.store = &store;
                pkv_cache cache = nullptr;
                OK(pkv_cache_create(&config, &cache));
                const std::vector<int32_t> text(400, 7);
                compute(cache, text, 1);
                if (stored) {
                  uint64_t queued = 0, cached = 0;
                  OK(pkv_cache_flush_store(cache, 60000, &queued));
                  OK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
                  const auto prefetch =
                      made<pkv_hint>({.action = PKV_HINT_PREFETCH, .end = PKV_TO_END});
                  OK(pkv_hint_prompt(cache, TextArg(text), &prefetch, nullptr));
                  OK(pkv_prefetch_wait(cache, TextArg(text), 60000, &cached, nullptr));
                  HOSTILE_CHECK(cached == text.size(), "%llu tokens came back",
                                static_cast<unsigned long long>(cached));
                }
                OK(pkv_cache_destroy(cache));
                const std::set<std::thread::id> caller{std::this_thread::get_id()};
                counted.allocating.insert(counted.freeing.begin(), counted.freeing.end());
                if (!stored)
                  HOSTILE_CHECK(counted.allocating == caller, "%zu threads called the allocator",
                                counted.allocating.size());
                if (stored)
                  HOSTILE_CHECK(counted.allocating.size() == 3, "%zu threads called the allocator",
                                counted.allocating.size());
              }),
              "")
        << (stored ? "with" : "without") << " a store";
}

// Notes which threads call block_io, and what a call from inside it returns.
struct Device {
  pkv_cache cache = nullptr;
  std::mutex mutex;
  std::set<std::thread::id> reading, writing;
  std::set<pkv_status> answers;

  void enter(std::set<std::thread::id>& threads) {
    auto stats = made<pkv_cache_stats>();
    const pkv_status answer = pkv_cache_get_stats(cache, &stats);
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    answers.insert(answer);
  }
};

// As common.h says: the two threads of a store, and those that save or load.
TEST(Hooks, ThreadsThatCopyBlocks) {
  EXPECT_EQ(in_child([] {
              cache_test::MemoryStore memory;
              pkv_store table = memory.table();
              Device device;
              auto io = made<pkv_block_io>({.user = &device});
              io.read = [](void* user, uint32_t, size_t, const uint32_t*, const uint32_t*, void*) {
                auto& own = *static_cast<Device*>(user);
                return own.enter(own.reading), 0;
              };
              io.write = [](void* user, uint32_t, size_t, const uint32_t*, const void*) {
                auto& own = *static_cast<Device*>(user);
                return own.enter(own.writing), 0;
              };
              ModelConfig config = small_model(64);
              config.model = made<pkv_layer_group>(
                  {.layers = 1, .kind = PKV_LAYERS_OPAQUE_KV, .layer_bytes = 100, .blocks = 64});
              config.storage = PKV_STORAGE_EXTERNAL;
              config.block_io = &io;
              config.threads = 4;
              const auto prefix = made<pkv_prefix_config>();
              config.prefix = &prefix;
              const auto store = made<pkv_store_config>({.store = &table});
              config.store = &store;
              OK(pkv_cache_create(&config, &device.cache));
              pkv_session session = nullptr;
              OK(pkv_session_open(device.cache, nullptr, &session));
              const std::vector<int32_t> text(400, 7);
              const auto count = static_cast<uint32_t>(text.size());
              pkv_batch batch = nullptr;
              OK(pkv_batch_begin(device.cache, 1, &session, &count, &batch));
              OK(pkv_batch_commit(batch, count, text.data()));
              HOSTILE_CHECK(device.reading.empty() && device.writing.empty(), "a step calls it");
              std::vector<unsigned char> file(100000);
              pkv_stream stream = buffer_stream(file.data(), file.size());
              const pkv_file_item item{session, nullptr, 1};
              OK(pkv_file_save(device.cache, 1, &item, nullptr, &stream, &stream.size));
              pkv_session loaded = nullptr;
              size_t sessions = 0;
              OK(pkv_file_load(device.cache, nullptr, &stream, 1, &loaded, nullptr, &sessions));
              const std::set<std::thread::id> caller{std::this_thread::get_id()};
              HOSTILE_CHECK(device.reading == caller && device.writing == caller,
                            "files call it in other threads");
              device.reading.clear(), device.writing.clear();
              OK(pkv_session_close(session));
              OK(pkv_session_close(loaded));
              uint64_t queued = 0, cached = 0;
              OK(pkv_cache_flush_store(device.cache, 60000, &queued));
              OK(pkv_prefix_clear(device.cache, nullptr, PKV_ALL_SALTS));
              const auto prefetch =
                  made<pkv_hint>({.action = PKV_HINT_PREFETCH, .end = PKV_TO_END});
              OK(pkv_hint_prompt(device.cache, TextArg(text), &prefetch, nullptr));
              OK(pkv_prefetch_wait(device.cache, TextArg(text), 60000, &cached, nullptr));
              HOSTILE_CHECK(cached == text.size(), "%llu tokens came back",
                            static_cast<unsigned long long>(cached));
              HOSTILE_CHECK(device.reading.size() == 1 && device.writing.size() == 1 &&
                                device.reading != device.writing && device.reading != caller &&
                                device.writing != caller,
                            "the store calls it in other threads");
              HOSTILE_CHECK(device.answers == std::set<pkv_status>{PKV_REENTRANT},
                            "a call from inside it was answered");
              OK(pkv_cache_destroy(device.cache));
            }),
            "");
}

}  // namespace
}  // namespace hostile::hooks_test
