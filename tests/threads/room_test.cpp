// Threads whose sessions together never hold more than the cache has, while the prefix index or a
// store's reader takes all the rest. No step may be refused, however the threads interleave.
#include <gtest/gtest.h>

#include "../support/memory_store.h"
#include "storm.h"

namespace hostile::room_test {
namespace {

constexpr uint32_t session_threads = 3, most_tokens = 96;
// A session of 96 tokens holds at most 6 blocks of the full group and 7 of the other, each of which
// may have a page of its own.
constexpr uint64_t most_pages = 13, pages = 64;

struct Room {
  bool groups_share_memory, with_store;
};

class RoomStorm : public testing::TestWithParam<Room> {
 protected:
  void SetUp() override {
    pkv_layer_group groups[2] = {made<pkv_layer_group>(), made<pkv_layer_group>()};
    for (pkv_layer_group& group : groups) {
      group.layers = group.query_heads = group.kv_heads = 1;
      group.key_dim = dim;
      group.blocks = pages;
    }
    groups[1].layers = 5;
    groups[1].window = 64;
    auto prefix = made<pkv_prefix_config>();
    auto config = made<pkv_cache_config>(
        {.group_count = 2, .groups = groups, .threads = 1, .prefix = &prefix});
    auto store = made<pkv_store_config>();
    pkv_store table = items_.table();
    store.store = &table;
    if (GetParam().with_store)
      config.store = &store;
    else
      config.storage = PKV_STORAGE_EXTERNAL;
    if (GetParam().groups_share_memory) {
      pkv_cache_sizes plan{};
      plan.struct_size = sizeof plan;
      OK(pkv_cache_compute_sizes(&config, 1, &plan));
      config.memory_bytes = pages * plan.bytes_per_block;
      for (pkv_layer_group& group : groups) group.blocks = 0;
      config.groups_share_memory = 1;
    }
    OK(pkv_cache_create(&config, &cache_));
  }
  void TearDown() override { OK(pkv_cache_destroy(cache_)); }

  void step(pkv_session session, const std::vector<int32_t>& text, uint64_t from, uint32_t count) {
    pkv_batch batch = nullptr;
    OK(pkv_batch_begin(cache_, 1, &session, &count, &batch));
    const std::vector<float> zeros(count * size_t{dim});
    const pkv_tensor rows = tensor(zeros.data());
    for (uint32_t layer = 0; layer < 6 && GetParam().with_store; layer++)
      OK(pkv_batch_write(batch, layer, &rows, &rows));
    OK(pkv_batch_commit(batch, count, text.data() + from));
  }

  pkv_cache cache_ = nullptr;
  cache_test::MemoryStore items_;
};

TEST_P(RoomStorm, NoStepIsRefusedWhileWhatSessionsHoldFits) {
  static_assert(session_threads * most_pages <= pages);
  const storm::Clock clock(15'000);
  std::atomic<uint64_t> steps{0};
  EXPECT_EQ(storm::run(session_threads,
                       [&](unsigned, std::mt19937& random) {
                         while (clock.running()) {
                           // Few texts with a store, so that some are read back.
                           std::vector<int32_t> text(most_tokens);
                           const auto first = static_cast<int32_t>(
                               random() % (GetParam().with_store ? 40 : 1u << 30));
                           for (int32_t& token : text) token = first;
                           pkv_session session = nullptr;
                           OK(pkv_session_open(cache_, nullptr, &session));
                           uint64_t length = 0;
                           OK(pkv_session_admit(session, text.size(), text.data(), 0, &length));
                           while (length < most_tokens) {
                             const auto count = static_cast<uint32_t>(
                                 std::min<uint64_t>(most_tokens - length, 1 + random() % 24));
                             step(session, text, length, count);
                             length += count;
                             steps++;
                           }
                           OK(pkv_session_close(session));
                         }
                       }),
            "");
  EXPECT_GT(steps, 100u);
  OK(pkv_cache_validate(cache_));
}

INSTANTIATE_TEST_SUITE_P(Rooms, RoomStorm,
                         testing::Values(Room{false, false}, Room{false, true}, Room{true, false},
                                         Room{true, true}),
                         [](const auto& room) {
                           return std::string(room.param.groups_share_memory ? "GroupMemory"
                                                                             : "Pools") +
                                  (room.param.with_store ? "WithAStore" : "");
                         });

}  // namespace
}  // namespace hostile::room_test
