// After fork() the child can close what it inherited and make objects of its own. The parent does
// not notice.
#include <gtest/gtest.h>

#include <thread>

#include "../cache/elsewhere.h"
#include "../store/support.h"
#include "../support/hints.h"
#include "../support/memory_store.h"
#include "world.h"

namespace hostile::fork_test {
namespace {

#define IN_CHILD(...) EXPECT_EQ(in_child([&] __VA_ARGS__), "")

// Runs enough work for every worker thread to begin.
std::vector<float> work(pkv_cache cache, pkv_session session) {
  return step(cache, {session}, {200}, 3);
}

std::vector<float> fresh_work(const Place& place, uint32_t threads) {
  ModelConfig config = small_model(64);
  config.memory_directory = place.directory;
  config.threads = threads;
  pkv_cache cache = nullptr;
  pkv_session session = nullptr;
  OK(pkv_cache_create(&config, &cache));
  OK(pkv_session_open(cache, nullptr, &session));
  const std::vector<float> result = work(cache, session);
  OK(pkv_cache_validate(cache));
  OK(pkv_cache_destroy(cache));
  return result;
}

TEST(Fork, ChildClosesInAnyOrderWithABatchOpen) {
  const std::pair<Place, uint32_t> kinds[] = {
      {PKV_STORAGE_INTERNAL, 1}, {PKV_STORAGE_INTERNAL, 2}, {in_file, 1}, {in_file, 2}};
  for (const auto& [place, threads] : kinds)
    IN_CHILD({
      World world(place, threads);
      work(world.cache, world.session);
      world.remember();
      const std::string one_by_one = in_child(
          [&] {
            uint64_t length = 0;
            WANT(PKV_WRONG_PROCESS, pkv_session_get_length(world.session, &length));
            WANT(PKV_WRONG_PROCESS, pkv_batch_commit(world.batch, 0, nullptr));
            OK(pkv_session_close(world.session));
            OK(pkv_batch_abort(world.batch));
            OK(pkv_session_close(world.stepping));
            OK(pkv_snapshot_close(world.snapshot));
            WANT(PKV_STALE_HANDLE, pkv_snapshot_close(world.snapshot));
            OK(pkv_cache_destroy(world.cache));
            world.close_inherited();
          },
          20);
      HOSTILE_CHECK(one_by_one.empty(), "one by one: %s", one_by_one.c_str());
      const std::string at_once = in_child(
          [&] {
            OK(pkv_cache_destroy(world.cache));
            WANT(PKV_STALE_HANDLE, pkv_batch_abort(world.batch));
            WANT(PKV_STALE_HANDLE, pkv_session_close(world.session));
            OK(pkv_pool_destroy(world.pool));
            world.close_inherited();
          },
          20);
      HOSTILE_CHECK(at_once.empty(), "at once: %s", at_once.c_str());
      // The session is closed first, with its batch open. That is allowed because no other thread
      // exists in the child that could drive the batch.
      const std::string session_first = in_child(
          [&] {
            OK(pkv_session_close(world.stepping));
            OK(pkv_batch_abort(world.batch));
            OK(pkv_cache_destroy(world.cache));
            world.close_inherited();
          },
          20);
      HOSTILE_CHECK(session_first.empty(), "the session before its batch: %s",
                    session_first.c_str());
      world.check_state();
      world.validate();
      OK(pkv_batch_commit(world.batch, 0, nullptr));
      world.close();
    });
}

TEST(Fork, ChildMakesACacheOfItsOwn) {
  for (const Place& place : {Place(PKV_STORAGE_INTERNAL), in_file})
    IN_CHILD({
      const std::vector<float> expected = fresh_work(place, 2);
      World world(place, 2);
      work(world.cache, world.session);
      world.remember();
      for (const uint32_t threads : {1u, 2u}) {
        const std::string failed = in_child(
            [&] { HOSTILE_CHECK(fresh_work(place, threads) == expected, "other numbers"); }, 20);
        HOSTILE_CHECK(failed.empty(), "a new cache with %u threads in the child: %s", threads,
                      failed.c_str());
      }
      HOSTILE_CHECK(fresh_work(place, 2) == expected, "other numbers in the parent");
      world.check_state();
      world.close();
    });
}

TEST(Fork, AttentionWithoutACacheWorksInTheChild) {
  IN_CHILD({
    warm_up();  // This runs it in the parent.
    const std::string failed = in_child(warm_up, 20);
    HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
  });
}

// fork() is called while other threads are in the middle of calls. No thread of the child holds
// what they held.
TEST(Fork, WhileOthersCall) {
  for (const Place& place : {Place(PKV_STORAGE_INTERNAL), in_file})
    IN_CHILD({
      World world(place, 2);
      std::atomic<bool> stop{false};
      std::vector<std::thread> callers;
      for (int i = 0; i < 3; i++)
        callers.emplace_back([&] {
          while (!stop) {
            pkv_session session = nullptr;
            if (pkv_session_open(world.cache, nullptr, &session) != PKV_OK) continue;
            const std::vector<float> data = numbers(20 * kv_floats, 1);
            const pkv_tensor rows = tensor(data.data());
            append(world.cache, session, 20, layers, &rows, &rows);
            pkv_session_close(session);
          }
        });
      std::string failed;
      for (int i = 0; i < 30 && failed.empty(); i++)
        failed = in_child(
            [&] {
              uint64_t length = 0;
              WANT(PKV_WRONG_PROCESS, pkv_session_get_length(world.session, &length));
              OK(pkv_cache_destroy(world.cache));
              WANT(PKV_STALE_HANDLE, pkv_session_close(world.session));
              OK(pkv_pool_destroy(world.pool));
            },
            20);
      stop = true;
      for (std::thread& caller : callers) caller.join();
      HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
      world.validate();
      world.close();
    });
}

// fork() is called while a device stands still in a hook: in the thread that writes to the store,
// in the one that reads from it, or in a save. The child does not wait for it.
TEST(Fork, WhileADeviceCopies) {
  enum class Copy { spill, fetch, save };
  for (const Copy copy : {Copy::spill, Copy::fetch, Copy::save})
    IN_CHILD({
      cache_test::MemoryStore items;
      pkv_store table = items.table();
      const auto config = made<pkv_store_config>({.store = &table});
      cache_test::Elsewhere at({.store = &config});
      const cache_test::Text text = cache_test::tokens(1, 100);
      const auto index = made<pkv_file_config>({.prefix_index = 1});
      std::thread saving;
      if (copy == Copy::spill) at.engine.hold_reads();
      at.compute(text).close();
      if (copy != Copy::spill) cache_test::settle(at.cache);
      if (copy == Copy::fetch) {
        OK(pkv_prefix_clear(at.cache, nullptr, PKV_ALL_SALTS));
        at.engine.hold_writes();
        cache_test::prefetch(at.cache, text);
      } else if (copy == Copy::save) {
        at.engine.hold_reads();
        saving = std::thread([&] { store::save_meanwhile(at.cache, {}, &index); });
      }
      at.engine.await_held_call();
      const std::string failed = in_child(
          [&] {
            WANT(PKV_WRONG_PROCESS, pkv_prefix_clear(at.cache, nullptr, PKV_ALL_SALTS));
            OK(pkv_cache_destroy(at.cache));
          },
          20);
      at.engine.go_on();
      if (saving.joinable()) saving.join();
      HOSTILE_CHECK(failed.empty(), "copy %d: %s", static_cast<int>(copy), failed.c_str());
      cache_test::settle(at.cache);
      HOSTILE_CHECK(at.cached(text) == 96, "the text was lost");
      OK(pkv_cache_validate(at.cache));
    });
}

}  // namespace
}  // namespace hostile::fork_test
