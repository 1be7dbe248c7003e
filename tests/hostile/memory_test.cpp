// Allocations fail in large calls: with many sessions, groups, copies on write, or threads that
// start.
#include <gtest/gtest.h>

#include "world.h"

namespace hostile::memory_test {
namespace {

// Runs `call` with the k-th allocation refused, for every k, through the hooks and through operator
// new. It returns OUT_OF_MEMORY each time with everything as before, until it works. Then `undo`
// prepares the next source of memory.
void fail_each(World& world, const std::function<pkv_status()>& call,
               const std::function<void()>& undo, std::vector<bool> sources = {true, false}) {
  for (const bool hooks : sources) {
    uint64_t refused = 0;
    for (uint64_t k = 1;; k++) {
      HOSTILE_CHECK(k < 1000, "there is no end to the allocations");
      world.remember();
      pkv_status got = PKV_INTERNAL;
      if (!refuse(world, hooks, k, [&] { got = call(); })) {
        expect(PKV_OK, got, "the call with no allocation refused");
        break;
      }
      expect(PKV_OUT_OF_MEMORY, got,
             format("the call with allocation %llu refused (%s)",
                    static_cast<unsigned long long>(k), hooks ? "hook" : "operator new")
                 .c_str());
      world.check_memory();
      world.check_state();
      world.validate();
      refused++;
    }
    undo();
    HOSTILE_CHECK(refused > 0, "the call takes no memory");
  }
}

// The step is over sessions that share tails, so it needs copies on write, new blocks and longer
// tables.
TEST(Memory, BeginOverManySessions) {
  for (const Place& place : places)
    EXPECT_EQ(in_child([&] {
                World world(place);
                std::vector<pkv_session> sessions;
                for (int i = 0; i < 4; i++) {
                  sessions.push_back(nullptr);
                  OK(pkv_session_fork(world.session, &sessions.back()));
                }
                const std::vector<uint32_t> new_tokens = {1, 0, 40, 17};
                pkv_batch batch = nullptr;
                fail_each(
                    world,
                    [&] {
                      return pkv_batch_begin(world.cache, sessions.size(), sessions.data(),
                                             new_tokens.data(), &batch);
                    },
                    [&] { OK(pkv_batch_abort(batch)); });
                world.close();
              }),
              "")
        << name_of(place);
}

// Suspending needs no memory. Resuming needs some, although its tables kept their room, and so does
// the choice of victims.
TEST(Memory, SuspendedSessions) {
  for (const Place& place : places)
    EXPECT_EQ(in_child([&] {
                World world(place);
                // With ids, the prefix index has the first block, and a resume matches it.
                const std::vector<int32_t> ids(20, 7);
                pkv_session matches = nullptr;
                OK(pkv_session_fork(world.session, &matches));
                OK(pkv_session_set_tokens(matches, 0, ids.size(), ids.data()));
                OK(pkv_session_suspend(matches));
                world.rest();
                {
                  FailingNew failing(1);
                  world.hooks.fail_at = 1;
                  OK(pkv_session_suspend(world.session));
                  world.hooks.fail_at = 0;
                  HOSTILE_CHECK(!failing.struck() && !world.hooks.struck, "suspend took memory");
                }
                uint64_t length = 0, total = 0;
                for (const pkv_session session : {world.session, matches})
                  fail_each(
                      world, [&] { return pkv_session_resume(session, &length, &total); },
                      [&] {
                        OK(pkv_session_suspend(session));
                        world.rest();
                      },
                      {false});
                const uint32_t tokens = 950;
                pkv_session greedy = nullptr, victims[8];
                size_t count = 0;
                OK(pkv_session_open(world.cache, nullptr, &greedy));
                OK(pkv_session_resume(world.session, &length, &total));
                OK(pkv_session_set_priority(greedy, 1));
                fail_each(
                    world,
                    [&] {
                      return pkv_batch_choose_victims(world.cache, 1, &greedy, &tokens, 8, victims,
                                                      &count);
                    },
                    [] {}, {false});
                world.close();
              }),
              "")
        << name_of(place);
}

TEST(Memory, GroupsWithWindows) {
  for (const Place& place : {Place(PKV_STORAGE_INTERNAL), in_file})
    EXPECT_EQ(in_child([&] {
                World world(place);
                pkv_layer_group groups[3];
                for (uint32_t i = 0; i < 3; i++) {
                  groups[i] = made<pkv_layer_group>();
                  groups[i].layers = 1 + i;
                  groups[i].query_heads = groups[i].kv_heads = 1;
                  groups[i].key_dim = 16;
                  groups[i].window = i * 20;
                  groups[i].blocks = 16;
                }
                auto config = made<pkv_cache_config>({.group_count = 3,
                                                      .groups = groups,
                                                      .memory_directory = place.directory,
                                                      .threads = 1,
                                                      .allocator = world.hooks.allocator()});
                pkv_cache cache = nullptr;
                fail_each(
                    world, [&] { return pkv_cache_create(&config, &cache); },
                    [&] { OK(pkv_cache_destroy(cache)); });
                OK(pkv_cache_create(&config, &cache));
                pkv_session session = nullptr, fork = nullptr;
                fail_each(
                    world, [&] { return pkv_session_open(cache, nullptr, &session); },
                    [&] { OK(pkv_session_close(session)); });
                OK(pkv_session_open(cache, nullptr, &session));
                fail_each(
                    world, [&] { return pkv_session_reserve(session, 200); },
                    [&] {
                      OK(pkv_session_close(session));
                      OK(pkv_session_open(cache, nullptr, &session));
                    });
                fail_each(
                    world, [&] { return pkv_session_fork(session, &fork); },
                    [&] { OK(pkv_session_close(fork)); });
                OK(pkv_cache_destroy(cache));
                world.close();
              }),
              "")
        << name_of(place);
}

// A cache with worker threads is made, and then come the first calls that need the threads. oneTBB
// starts once per process, and the test lets it start before. If memory is refused there, it
// throws, and the next call spins forever, which no caller can fix.
TEST(Memory, ThreadsThatBegin) {
  for (uint64_t k = 1; k <= 40; k++)
    EXPECT_EQ(in_child(
                  [k] {
                    World(PKV_STORAGE_INTERNAL, 2).close();
                    Hooks hooks;
                    ModelConfig config = small_model(64, &hooks);
                    config.threads = 2;
                    pkv_cache cache = nullptr;
                    pkv_session session = nullptr;
                    pkv_batch batch = nullptr;
                    const uint32_t tokens = 200;
                    const std::vector<float> data = numbers(tokens * q_floats, 1);
                    std::vector<float> outputs(data.size());
                    const pkv_tensor in = tensor(data.data()), out = tensor(outputs.data());
                    const std::function<pkv_status()> calls[] = {
                        [&] { return pkv_cache_create(&config, &cache); },
                        [&] { return pkv_session_open(cache, nullptr, &session); },
                        [&] { return pkv_batch_begin(cache, 1, &session, &tokens, &batch); },
                        [&] { return pkv_batch_write(batch, 0, &in, &in); },
                        [&] { return pkv_batch_attend(batch, 0, nullptr, &in, &out, nullptr); }};
                    uint64_t refused = 0;
                    for (const auto& call : calls) {
                      pkv_status status;
                      {
                        FailingNew failing(k);
                        status = call();
                      }
                      if (status == PKV_OK) continue;
                      refused++;
                      expect(PKV_OUT_OF_MEMORY, status, "a call with one allocation refused");
                      OK(call());
                    }
                    HOSTILE_CHECK(refused > 0 || k > 1, "nothing was refused");
                    OK(pkv_batch_abort(batch));
                    OK(pkv_cache_validate(cache));
                    OK(pkv_cache_destroy(cache));
                    HOSTILE_CHECK(hooks.live() == 0 && hooks.sound(),
                                  "the allocator's blocks did not all come back");
                  },
                  20),
              "")
        << "operator new number " << k;
}

// Memory is really short: no machine has enough for this limit.
TEST(Memory, TooMuchForTheSystem) {
  EXPECT_EQ(in_child([] {
              ModelConfig config = small_model(0);
              config.memory_bytes = uint64_t{1} << 60;
              config.block_size = 256;
              config.model.layers = 4096;
              config.model.kv_heads = config.model.query_heads = 64;
              config.model.key_dim = 576;
              pkv_cache cache = nullptr;
              const pkv_status status = pkv_cache_create(&config, &cache);
              HOSTILE_CHECK(status == PKV_OUT_OF_MEMORY || status == PKV_TOO_LARGE, "%s",
                            pkv_status_name(status));
              HOSTILE_CHECK(cache == nullptr && sentence_tells(pkv_last_error()), "%s",
                            pkv_last_error());
            }),
            "");
}

}  // namespace
}  // namespace hostile::memory_test
