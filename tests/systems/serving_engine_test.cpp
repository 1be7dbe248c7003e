// A serving engine's KV system: blocks for a request, its slots, paged attention over them, and a
// scheduler that preempts.
#include <algorithm>

#include "rows.h"
#include "support.h"

namespace systems {
namespace {

constexpr uint32_t block_size = 16;
const Model model{1, 8, 2, 64};

TEST(ServingEngine, TheLastBlockCountsPartlyFilled) {
  for (const auto& [tokens, blocks] :
       {std::pair(1u, 1u), {15u, 1u}, {16u, 1u}, {17u, 2u}, {100u, 7u}, {112u, 7u}, {113u, 8u}}) {
    Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
    Session session = open(cache, tokens);
    EXPECT_EQ(blocks, block_table(session).size()) << tokens << " tokens";
    grow(cache, session, tokens);
    EXPECT_EQ(blocks, stats_of(cache).used_blocks) << "what was reserved is what is used";
  }
}

TEST(ServingEngine, SlotMappingOfAnOffsetAndATokenCount) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
  Session first = open(cache), second = open(cache);
  grow(cache, first, 5);
  grow(cache, second, 30);
  grow(cache, first, 30);
  const std::vector<uint32_t> table = block_table(first);
  for (const uint64_t offset : {0u, 3u, 15u, 16u, 34u}) {
    std::vector<int64_t> slots(35 - offset);
    CHECK(pkv_session_slot_mapping(first, 0, offset, slots.size(), slots.data()));
    for (uint64_t i = 0; i < slots.size(); i++)
      EXPECT_EQ(int64_t{table[(offset + i) / block_size]} * block_size +
                    static_cast<int64_t>((offset + i) % block_size),
                slots[i]);
  }
  std::vector<int64_t> slots(14);
  CHECK(pkv_session_slot_mapping(first, 0, 34, 14, slots.data()));  // to the end of the last block
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_slot_mapping(first, 0, 35, 14, slots.data()));
}

TEST(ServingEngine, AdvanceMovesTheLengthAndTheNextSlots) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
  Session session = open(cache, 48);
  const std::vector<uint32_t> table = block_table(session);
  uint64_t length = 0;
  for (const uint32_t n : {7u, 1u, 1u, 20u, 3u, 16u}) {
    Batch batch = begin(cache, {session}, {n});
    const std::vector<int64_t> slots = slot_mapping(batch);
    for (uint32_t i = 0; i < n; i++)
      EXPECT_EQ(int64_t{table[(length + i) / block_size]} * block_size +
                    static_cast<int64_t>((length + i) % block_size),
                slots[i]);
    commit(batch);
    length += n;
    EXPECT_EQ(length, length_of(session));
  }
  EXPECT_EQ(table, block_table(session));
}

// The output of one decode step after `tokens` random tokens, the value of one of them changed.
Rows decode_with_changed_value(uint32_t tokens, int64_t changed) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(7);
  Rows k(tokens + 1, model.kv_heads, model.key_dim), v(k), q(1, model.query_heads, model.key_dim),
      out(q);
  k.fill(random);
  v.fill(random);
  if (changed >= 0)
    for (uint32_t h = 0; h < model.kv_heads; h++)
      for (uint32_t d = 0; d < model.key_dim; d++) v.set(static_cast<size_t>(changed), h, d, 100);
  Batch prefill = begin(cache, {session}, {tokens});
  write(prefill, 0, k, v);
  commit(prefill);
  Rows last_k = k.slice(tokens, 1), last_v = v.slice(tokens, 1);
  Batch decode = begin(cache, {session}, {1});
  write(decode, 0, last_k, last_v);
  attend(decode, 0, q.fill(random), out);
  commit(decode);
  return out;
}

TEST(ServingEngine, PagedAttentionReadsEveryEarlierToken) {
  constexpr uint32_t tokens = 100;
  const Rows unchanged = decode_with_changed_value(tokens, -1);
  EXPECT_TRUE(unchanged == decode_with_changed_value(tokens, -1));
  for (int64_t token = 0; token <= tokens; token++) {
    const Rows changed = decode_with_changed_value(tokens, token);
    bool every_element = true;
    changed.each([&](size_t r, uint32_t h, uint32_t d) {
      every_element &= changed.get(r, h, d) > unchanged.get(r, h, d);
    });
    EXPECT_TRUE(every_element) << "token " << token;
  }
}

TEST(ServingEngine, FreeGivesEveryBlockBack) {
  Cache cache = create(config_of(model, 20, PKV_STORAGE_NONE));
  std::vector<Session> requests;
  for (const uint32_t tokens : {100u, 17u, 1u, 64u}) {
    requests.push_back(open(cache, tokens));
    grow(cache, requests.back(), tokens);
  }
  EXPECT_EQ(7u + 2 + 1 + 4, stats_of(cache).used_blocks);
  requests[0].close();
  EXPECT_EQ(7u, stats_of(cache).used_blocks);
  requests.clear();
  EXPECT_EQ(20u, stats_of(cache).free_blocks);
  CHECK(pkv_cache_validate(cache));
}

TEST(ServingEngine, TrimAfterSpeculationReturnsTheTrailingBlocks) {
  Cache cache = create(config_of(model, 8));
  Session session = open(cache);
  Random random(8);
  step(cache, session, model, 30, random);
  const std::vector<uint32_t> table = block_table(session);
  const KeysValues kept = materialize(session, 0, model, 0, 30);
  step(cache, session, model, 40, random);  // the draft
  EXPECT_EQ(5u, stats_of(cache).used_blocks);
  CHECK(pkv_session_trim(session, 33));  // three of it are accepted
  EXPECT_EQ(33u, length_of(session));
  EXPECT_EQ(3u, stats_of(cache).used_blocks);
  EXPECT_EQ(33u, stats_of(cache).slots_filled);
  CHECK(pkv_session_trim(session, 30));
  EXPECT_EQ(table, block_table(session));
  EXPECT_TRUE(kept == materialize(session, 0, model, 0, 30));
  CHECK(pkv_session_trim(session, 16));
  EXPECT_EQ(1u, block_table(session).size());
  CHECK(pkv_session_trim(session, 0));
  EXPECT_EQ(8u, stats_of(cache).free_blocks);
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(session, 1));
  CHECK(pkv_cache_validate(cache));
}

struct Request {
  uint32_t prompt, wanted;
  uint32_t made = 0;
  Session session;
};

// One step of the loop: everybody running makes a token; under pressure the newest gives its blocks
// back and is computed again later.
uint32_t schedule(pkv_cache cache, std::vector<Request*>& running, std::vector<Request*>& waiting) {
  for (uint32_t preempted = 0;; preempted++) {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    for (const Request* request : running) {
      sessions.push_back(request->session);
      counts.push_back(length_of(request->session) == 0 ? request->prompt + request->made : 1);
    }
    pkv_batch batch;
    uint64_t blocks_short = 0;
    const pkv_status status = pkv_batch_begin(cache, sessions.size(), sessions.data(),
                                              counts.data(), &blocks_short, &batch);
    if (status == PKV_OK) {
      CHECK(pkv_batch_commit(batch, nullptr));
      return preempted;
    }
    if (status != PKV_OUT_OF_BLOCKS) CHECK(status);
    EXPECT_GE(blocks_short, 1u);
    running.back()->session.close();
    waiting.insert(waiting.begin(), running.back());
    running.pop_back();
  }
}

TEST(ServingEngine, PreemptionMakesProgressUnderPressure) {
  Cache cache =
      create(config_of(model, 12, PKV_STORAGE_NONE));  // 192 tokens for requests of 530 in all
  std::vector<Request> requests;
  for (const auto& [prompt, wanted] :
       {std::pair(40u, 60u), {30u, 70u}, {60u, 50u}, {20u, 90u}, {50u, 60u}})
    requests.push_back({prompt, wanted, 0, {}});
  std::vector<Request*> running, waiting;
  for (Request& request : requests) waiting.push_back(&request);

  uint32_t preempted = 0, finished = 0;
  for (uint32_t steps = 0; finished < requests.size(); steps++) {
    ASSERT_LT(steps, 2000u) << "no progress";
    while (!waiting.empty() && stats_of(cache).free_blocks * block_size >=
                                   waiting.front()->prompt + waiting.front()->made) {
      pkv_session session;
      if (pkv_session_open(cache, nullptr, &session) != PKV_OK) break;
      waiting.front()->session = Session(session);
      CHECK(pkv_session_reserve(session, waiting.front()->prompt + waiting.front()->made));
      running.push_back(waiting.front());
      waiting.erase(waiting.begin());
    }
    ASSERT_FALSE(running.empty());
    preempted += schedule(cache, running, waiting);
    CHECK(pkv_cache_validate(cache));
    for (Request* request : running) {
      if (++request->made < request->wanted) continue;
      EXPECT_EQ(request->prompt + request->wanted - 1, length_of(request->session));
      request->session.close();
      finished++;
    }
    std::erase_if(running, [](const Request* request) { return request->made == request->wanted; });
  }
  EXPECT_GE(preempted, 1u) << "the pool was too large to show anything";
  EXPECT_EQ(12u, stats_of(cache).free_blocks);
}

TEST(ServingEngine, ThePlanOfItsDefaultPoolIsExact) {
  const pkv_cache_config config = config_of({28, 8, 8, 128, 0, PKV_F16}, 512);
  const pkv_cache_plan plan = plan_of(config);
  EXPECT_EQ(939'524'096u, plan.total_bytes);  // 512 blocks of 16 tokens, 8 heads of 128, K and V, 2
                                              // bytes, 28 layers: 896 MiB
  EXPECT_EQ(512u * 16, plan.tokens);
  pkv_cache_config budget = config;
  budget.blocks = 0;
  budget.memory_bytes = 939'524'096;
  EXPECT_EQ(512u, plan_of(budget).blocks);
  budget.memory_bytes--;
  EXPECT_EQ(511u, plan_of(budget).blocks);
  Cache cache = create(config);
  EXPECT_EQ(939'524'096u, stats_of(cache).bytes_reserved);
}

}  // namespace
}  // namespace systems
