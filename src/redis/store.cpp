// The C boundary of libpagedkv-redis: pkv_redis_open() and the functions of the table that it
// fills.
#include <pagedkv/redis.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "base/guarded.h"
#include "base/status.h"
#include "base/structs.h"
#include "redis/operations.h"

namespace pkv::redis {

namespace {

thread_local char last_error[sizeof(Error::text)] = "";

pkv_status keep_error(const pkv_error_details& details, const char* sentence) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", sentence);
  return details.status;
}

template <class Body>
pkv_status guarded(const Body& body) noexcept {
  return pkv::guarded(keep_error, body);
}

// A client that one call at a time uses. Writes and reads have one each, with separate connections,
// so that a touch does not wait until megabytes are written.
struct Lane {
  explicit Lane(const Settings& settings) : client(settings) {}
  std::mutex mutex;
  Client client;
};

struct RedisStore {
  explicit RedisStore(const pkv_redis_config* config)
      : settings(read_settings(config)), writing(settings), reading(settings) {}
  const Settings settings;
  const pid_t process = getpid();
  Lane writing, reading;
};

int64_t run(RedisStore& store, Lane& lane, Operation& operation) {
  last_error[0] = '\0';
  // A forked child must not use its parent's connections: they would read each other's replies.
  if (getpid() != store.process) return -ECHILD;
  const std::lock_guard lock(lane.mutex);
  const int64_t result = lane.client.run(operation);
  std::snprintf(last_error, sizeof last_error, "%s", lane.client.failure().c_str());
  return result;
}

RedisStore& store_of(void* user) { return *static_cast<RedisStore*>(user); }

int64_t put(void* user, size_t n, pkv_store_item* items) {
  return guarded_call([&] {
    RedisStore& store = store_of(user);
    Put operation(store.settings, n, items);
    return run(store, store.writing, operation);
  });
}

// A server counts the question for an item's size as a use of the item, but that does not prolong
// its lifetime. Items whose lifetime the server does not prolong are found, but do not count.
int64_t touch(void* user, size_t n, pkv_store_item* items) {
  return guarded_call([&] {
    RedisStore& store = store_of(user);
    Measure operation(store.settings, n, items);
    const int64_t found = run(store, store.reading, operation);
    if (store.settings.ttl_seconds == 0 || found <= 0) return found;
    std::vector<pkv_store_item> used;
    std::copy_if(items, items + n, std::back_inserter(used),
                 [](const pkv_store_item& item) { return item.size > 0; });
    Prolong prolonging(store.settings, used.size(), used.data());
    const int64_t prolonged = run(store, store.reading, prolonging);
    auto next = used.begin();
    for (size_t i = 0; i < n; i++)
      if (items[i].size > 0) items[i].size = (next++)->size;
    return std::max<int64_t>(prolonged, 0);
  });
}

// Asks for the sizes of items that are larger than their room. If the server does not give an
// item's size, the size stays one byte more than the room.
void fetch_sizes(RedisStore& store, const std::vector<size_t>& larger, pkv_store_item* items) {
  std::vector<pkv_store_item> measured;
  for (const size_t item : larger) measured.push_back(items[item]);
  Measure operation(store.settings, measured.size(), measured.data());
  run(store, store.reading, operation);
  for (size_t i = 0; i < larger.size(); i++)
    items[larger[i]].size = std::max(items[larger[i]].size, measured[i].size);
}

int64_t get(void* user, size_t n, pkv_store_item* items) {
  return guarded_call([&] {
    RedisStore& store = store_of(user);
    Get operation(store.settings, n, items);
    const int64_t found = run(store, store.reading, operation);
    if (!operation.larger().empty()) fetch_sizes(store, operation.larger(), items);
    return found;
  });
}

int64_t remove(void* user, size_t n, const pkv_store_item* items) {
  return guarded_call([&] {
    RedisStore& store = store_of(user);
    Remove operation(store.settings, n, items);
    return run(store, store.reading, operation);
  });
}

}  // namespace
}  // namespace pkv::redis

using namespace pkv;

const char* pkv_redis_last_error(void) { return redis::last_error; }

pkv_status pkv_redis_open(const pkv_redis_config* config, pkv_store* out) {
  return redis::guarded([&] {
    if (out == nullptr) fail(PKV_INVALID_ARGUMENT, "out is NULL");
    check_struct_size<pkv_store>(out->struct_size, "out");
    auto store = std::make_unique<redis::RedisStore>(config);
    if (!store->settings.connect_later) {
      store->writing.client.connect();
      store->reading.client.connect();
    }
    *out = {sizeof *out,
            0,
            store.get(),
            redis::put,
            redis::get,
            redis::touch,
            redis::remove,
            guarded_close<redis::RedisStore>,
            [](void*) -> const char* { return redis::last_error; }};
    store.release();
  });
}
