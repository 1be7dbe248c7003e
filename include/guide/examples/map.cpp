// A store of one's own: five functions, here over a map of the process. It is the memory behind a
// cache of eight blocks.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "toy.h"

// [store]
struct Map {
  std::mutex mutex;  // the cache's two threads call at the same time
  std::map<std::string, std::vector<char>> items;
};

static Map& of(void* user) { return *static_cast<Map*>(user); }
static std::string key_of(const pkv_store_item& item) {
  return {reinterpret_cast<const char*>(item.name), sizeof item.name};
}

// Hooks must not throw; the size of an item that cannot be stored becomes 0.
static int64_t put(void* user, size_t n, pkv_store_item* items) {
  std::lock_guard<std::mutex> lock(of(user).mutex);
  int64_t stored = 0;
  for (size_t i = 0; i < n; i++) try {
      const char* bytes = static_cast<const char*>(items[i].data);
      of(user).items[key_of(items[i])] = {bytes, bytes + items[i].size};
      stored++;
    } catch (const std::bad_alloc&) {
      items[i].size = 0;
    }
  return stored;  // a negative errno would mean: make no calls for a while
}

static int64_t look(void* user, size_t n, pkv_store_item* items, bool copy) {
  std::lock_guard<std::mutex> lock(of(user).mutex);
  int64_t found = 0;
  for (size_t i = 0; i < n; i++) {
    const auto at = of(user).items.find(key_of(items[i]));
    const uint64_t room = items[i].size;
    items[i].size = at == of(user).items.end() ? 0 : at->second.size();
    if (copy && items[i].size > 0)
      std::copy_n(at->second.begin(), std::min(room, items[i].size),
                  static_cast<char*>(items[i].data));
    found += items[i].size > 0;
  }
  return found;
}

static int64_t get(void* user, size_t n, pkv_store_item* items) {
  return look(user, n, items, true);
}
static int64_t touch(void* user, size_t n, pkv_store_item* items) {
  return look(user, n, items, false);
}
static int64_t remove_items(void* user, size_t n, const pkv_store_item* items) {
  std::lock_guard<std::mutex> lock(of(user).mutex);
  int64_t removed = 0;
  for (size_t i = 0; i < n; i++)
    removed += static_cast<int64_t>(of(user).items.erase(key_of(items[i])));
  return removed;
}
static void close_map(void* user) { delete &of(user); }

static pkv_store map_store() {
  return {sizeof(pkv_store), 0, new Map, put, get, touch, remove_items, close_map, nullptr};
}
// [store end]

/* Computes a text, but for what is cached of it. Returns how much that was. */
static uint64_t compute(pkv_cache cache, const char* letters) {
  text t = {};
  add(&t, letters);
  pkv_session session;
  uint64_t matched;
  check(pkv_session_open(cache, nullptr, &session));
  check(pkv_session_admit(session, t.length - 1, t.tokens, 0, &matched));
  const text* texts[] = {&t};
  float p[1][LETTERS];
  check(toy_forward(cache, 1, &session, texts, p));
  check(pkv_session_close(session));
  uint64_t queued;
  check(pkv_cache_flush_store(cache, 1000,
                              &queued));  // for the example: what the session left is written now
  return matched;
}

int main() {
  pkv_store store = map_store();
  // A match waits a second for the store; a scheduler that asks ahead of need leaves wait_ms 0.
  const pkv_store_config store_config = {
      .struct_size = sizeof store_config, .wait_ms = 1000, .store = &store};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  pkv_cache_config config = toy_config();
  toy_model.blocks = 8;
  config.prefix = &prefix;
  config.store = &store_config;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  const char* const first =
      "there was a young lady whose nose was so long that it reached to her toes. so she hired an "
      "old lady";
  const char* const second =
      "there was an old man with a beard who said, it is just as i feared! two owls and a hen, "
      "four larks and a wren";
  const uint64_t new_to_all = compute(cache, first);
  compute(cache, second);  // needs the blocks of the first
  const uint64_t came_back = compute(cache, first);
  printf("%llu tokens of the first text were cached, then %llu\n",
         static_cast<unsigned long long>(new_to_all), static_cast<unsigned long long>(came_back));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
