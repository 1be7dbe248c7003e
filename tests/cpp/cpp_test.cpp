// pagedkv.hpp: ownership, exceptions, and that each call reaches its function. It is compiled as
// C++17 and as C++20.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ostream>
#include <pagedkv/pagedkv.hpp>
#include <type_traits>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "../support/portable.h"

namespace {

using pagedkv::Batch;
using pagedkv::Cache;
using pagedkv::Error;
using pagedkv::Session;
using pagedkv::Span;

constexpr uint32_t LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, BLOCKS = 16;

pagedkv::LayerGroup model() {
  pagedkv::LayerGroup group;
  group.layers = LAYERS;
  group.query_heads = QUERY_HEADS;
  group.kv_heads = KV_HEADS;
  group.key_dim = DIM;
  group.blocks = BLOCKS;
  return group;
}

pagedkv::CacheConfig small() {
  static const pagedkv::LayerGroup group = model();
  pagedkv::CacheConfig config;
  config.groups = &group;
  config.threads = 1;
  return config;
}

std::vector<int32_t> text(size_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; i++) tokens[i] = first + int32_t(i);
  return tokens;
}

// A step of the tokens of one session, with values that are their positions.
std::vector<float> step(Cache& cache, Session& session, Span<const int32_t> tokens) {
  const size_t n = tokens.size();
  std::vector<float> k(n * KV_HEADS * DIM), v(k.size()), q(n * QUERY_HEADS * DIM), out(q.size());
  for (size_t i = 0; i < v.size(); i++)
    v[i] = float(session.length() + i / (size_t{KV_HEADS} * DIM));
  Batch batch = cache.begin({session}, {uint32_t(n)});
  EXPECT_EQ(batch.rows(), n);
  EXPECT_EQ(batch.sessions(), 1u);
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    batch.write(layer, k, v);
    batch.attend(layer, q, out);
  }
  batch.commit(tokens);
  EXPECT_EQ(batch.get(), nullptr);
  return out;
}

template <class Call>
pkv_error_details details_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    EXPECT_STREQ(error.name(), pkv_status_name(error.status()));
    EXPECT_EQ(error.details().status, error.status());
    return error.details();
  }
  return {};
}

template <class Call>
pkv_status status_of(Call call) {
  return details_of(call).status;
}

template <class T>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(moves_only<Cache> && moves_only<Session> && moves_only<Batch>);
static_assert(moves_only<pagedkv::Snapshot> && moves_only<pagedkv::Pool>);
static_assert(moves_only<pagedkv::Compute> && moves_only<pagedkv::Store>);
// Configs point to keys and passwords, so none can be printed.
template <class T, class = void>
constexpr bool prints = false;
template <class T>
constexpr bool
    prints<T, std::void_t<decltype(std::declval<std::ostream&>() << std::declval<const T&>())>> =
        true;
template <class... T>
constexpr bool none_prints = !(prints<T> || ...);
static_assert(prints<int> &&
              none_prints<pagedkv::CacheConfig, pagedkv::DirectoryConfig, pagedkv::FileConfig,
                          pagedkv::SessionConfig, pagedkv::StoreConfig, pagedkv::Stream>);
// The handle of a temporary would be stale at once.
static_assert(std::is_convertible_v<Session&, pkv_session>);
static_assert(!std::is_convertible_v<Session&&, pkv_session>);
// Inputs are const, and only rows are accepted as rows.
static_assert(std::is_constructible_v<pagedkv::Tensor, std::vector<float>&>);
static_assert(!std::is_constructible_v<pagedkv::Tensor, const std::vector<float>&>);
static_assert(!std::is_constructible_v<pagedkv::Tensor, const float*>);
static_assert(!std::is_constructible_v<pagedkv::ConstTensor, std::vector<double>&>);
static_assert(!std::is_constructible_v<Span<int32_t>, const std::vector<int32_t>&>);
static_assert(!std::is_constructible_v<Span<const int32_t>, std::vector<int64_t>&>);

TEST(Cpp, MovesHandlesAndClosesEachOnce) {
  Cache cache(small());
  Session a = cache.open();
  const pkv_session handle = a.get();
  Session b = std::move(a);
  EXPECT_EQ(a.get(), nullptr);
  EXPECT_EQ(b.get(), handle);
  EXPECT_EQ(cache.stats().sessions, 1u);

  Session c = cache.open();
  EXPECT_EQ(cache.stats().sessions, 2u);
  c = std::move(b);  // closes what c had
  EXPECT_EQ(cache.stats().sessions, 1u);
  EXPECT_EQ(c.get(), handle);
  Session& itself = c;
  c = std::move(itself);
  EXPECT_EQ(c.get(), handle);

  EXPECT_EQ(c.close(), PKV_OK);
  EXPECT_EQ(c.close(), PKV_OK) << "of an object without a handle";
  EXPECT_EQ(cache.stats().sessions, 0u);
  EXPECT_EQ(status_of([&] { c.length(); }), PKV_INVALID_ARGUMENT);

  {
    Session d = cache.open();
    Session given(d.release());
    EXPECT_EQ(d.get(), nullptr);
  }
  EXPECT_EQ(cache.stats().sessions, 0u);
  Cache other = std::move(cache);
  EXPECT_EQ(other.info().layers, LAYERS);
  EXPECT_EQ(status_of([&] { cache.info(); }), PKV_INVALID_ARGUMENT);
}

TEST(Cpp, ObjectsMayOutliveTheirCache) {
  Session session;
  pagedkv::Snapshot snapshot;
  Batch batch;
  {
    Cache cache(small());
    session = cache.open();
    snapshot = session.snapshot();
    batch = cache.begin({session}, {1});
  }
  EXPECT_EQ(status_of([&] { session.length(); }), PKV_STALE_HANDLE);
  EXPECT_EQ(status_of([&] { batch.commit(); }), PKV_STALE_HANDLE);
  EXPECT_EQ(session.close(), PKV_STALE_HANDLE);
}

TEST(Cpp, ABatchThatIsLeftIsAborted) {
  Cache cache(small());
  Session session = cache.open();
  try {
    Batch batch = cache.begin({session}, {40});
    EXPECT_EQ(cache.pool_stats().held_blocks, 3u);
    batch.write(LAYERS, std::vector<float>(40 * KV_HEADS * DIM),
                std::vector<float>(40 * KV_HEADS * DIM));
    FAIL() << "there is no such layer";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), PKV_OUT_OF_RANGE);
  }
  EXPECT_EQ(cache.pool_stats().held_blocks, 0u);

  Batch batch = cache.begin({session}, {1});
  EXPECT_EQ(status_of([&] { batch.commit(); }), PKV_INCOMPLETE);
  EXPECT_NE(batch.get(), nullptr) << "a batch that could not be committed is open";
  batch.abort();
  EXPECT_EQ(batch.get(), nullptr);
  EXPECT_NE(cache.metrics().find("pagedkv_steps_total{end=\"abort\"} 2\n"), std::string::npos);
  cache.validate();
}

// A session cannot be closed while its batch is open, so that happens when the batch ends.
TEST(Cpp, SessionsThatEndBeforeTheirBatchAreClosed) {
  Cache cache(small());
  for (int turn = 0; turn < 100; turn++) {
    Batch batch;
    {
      Session session = cache.open();
      batch = cache.begin({session}, {16});
      EXPECT_EQ(session.close(), PKV_BUSY);
      EXPECT_NE(session.get(), nullptr) << "it can be closed later";
      if (turn % 3 == 1) session = cache.open();
    }
    if (turn % 2 == 0) batch.abort();
  }
  EXPECT_EQ(cache.stats().sessions, 0u);
  EXPECT_EQ(cache.pool_stats().held_blocks, 0u);
  {
    Session session = cache.open();
    Batch batch = cache.begin({session}, {16});
    session = Session();
    Cache other = std::move(cache);
  }
  Session last = Cache(small()).open();
  EXPECT_EQ(last.close(), PKV_STALE_HANDLE);
}

// The C interface is told how far a list reaches, and that an empty one has no rows.
TEST(Cpp, RefusesListsThatAreTooShortForTheirRows) {
  Cache cache(small());
  Session session = cache.open();
  Batch batch = cache.begin({session}, {3});
  std::vector<float> kv(3 * KV_HEADS * DIM), q(3 * QUERY_HEADS * DIM), out(q.size());
  const auto shorter = [](std::vector<float> list) {
    list.pop_back();
    return list;
  };
  const auto refused = [](auto call) { return status_of(call) == PKV_INVALID_ARGUMENT; };
  std::vector<float> short_kv = shorter(kv), short_out = shorter(out);
  EXPECT_TRUE(refused([&] { batch.write(0, short_kv, kv); }));
  EXPECT_TRUE(refused([&] { batch.write(0, kv, short_kv); }));
  EXPECT_TRUE(refused([&] { batch.write(0, kv, std::vector<float>()); }));
  for (uint32_t layer = 0; layer < LAYERS; layer++) batch.write(layer, kv, kv);
  EXPECT_TRUE(refused([&] { batch.attend(0, shorter(q), out); }));
  EXPECT_TRUE(refused([&] { batch.attend(0, q, short_out); }));
  EXPECT_TRUE(refused([&] { batch.attend(0, q, short_out, pagedkv::AttentionParams()); }));
  batch.attend(0, q, out);
  batch.set_first_rows({1});
  EXPECT_TRUE(refused([&] { batch.attend(0, q, out); })) << "the last row is the fourth";
  batch.set_first_rows({});
  batch.attend(0, q, out);
  batch.commit();

  session.read(0, 0, 3, kv, kv);
  for (const Session& each : {session.fork(), session.snapshot().fork()}) {
    EXPECT_TRUE(refused([&] { each.read(0, 0, 3, short_kv, kv); }));
    EXPECT_TRUE(refused([&] { each.read(0, 0, 3, kv, short_kv); }));
  }
  const pagedkv::Compute compute;
  const pkv_kv_view view = cache.kv_view(0);
  const std::vector<int64_t> slots{0, 1, 2};
  EXPECT_TRUE(refused([&] { pagedkv::kv_read_slots(compute, view, slots, short_kv, kv); }));
  EXPECT_TRUE(refused([&] { pagedkv::kv_write_slots(compute, view, slots, kv, short_kv); }));
  pagedkv::kv_write_slots(compute, view, slots, kv, kv);
  const std::vector<uint32_t> lengths{2, 1}, blocks{0, 0};
  const std::vector<uint64_t> kv_lengths{2, 1};
  pagedkv::KvSequences sequences;
  sequences.query_heads = QUERY_HEADS, sequences.count = 2;
  sequences.query_lengths = lengths.data(), sequences.kv_lengths = kv_lengths.data();
  sequences.block_tables = blocks.data(), sequences.block_table_stride = 1;
  EXPECT_TRUE(refused([&] { pagedkv::kv_write(compute, view, sequences, short_kv, kv); }));
  EXPECT_TRUE(refused([&] { pagedkv::kv_read(compute, view, sequences, kv, short_kv); }));
  EXPECT_TRUE(refused([&] { pagedkv::kv_attend(compute, view, sequences, shorter(q), out); }));
  EXPECT_TRUE(refused([&] { pagedkv::kv_attend(compute, view, sequences, q, short_out); }));
  pagedkv::kv_attend(compute, view, sequences, q, out);
}

TEST(Cpp, TellsShortBlocksWithoutThrowing) {
  Cache cache(small());
  Session a = cache.open(), b = cache.open();
  step(cache, a, text(12 * 16));
  b.set_priority(1);
  EXPECT_FALSE(cache.try_begin({b}, {6 * 16}));
  EXPECT_EQ(pkv_last_error_details()->blocks_short, 2u);
  const pkv_error_details short_of = details_of([&] { cache.begin({b}, {6 * 16}); });
  EXPECT_EQ(short_of.status, PKV_OUT_OF_BLOCKS);
  EXPECT_EQ(short_of.group, 0u);
  EXPECT_EQ(short_of.blocks_short, 2u);

  const auto victims = cache.choose_victims({b}, {6 * 16});
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_EQ(victims[0], a.get());
  a.suspend();
  EXPECT_EQ(a.info().suspended, 1u);
  const pkv_error_details refused = details_of([&] { cache.begin({b, a}, {1, 1}); });
  EXPECT_EQ(refused.status, PKV_SUSPENDED);
  EXPECT_EQ(refused.index, 1u);
  {
    auto batch = cache.try_begin({b}, {6 * 16});
    ASSERT_TRUE(batch);
    EXPECT_FALSE(a.try_resume());
    EXPECT_EQ(pkv_last_error_details()->blocks_short, 2u);
    EXPECT_EQ(status_of([&] { a.resume(); }), PKV_OUT_OF_BLOCKS);
  }
  const auto resumed = a.try_resume();
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->length, 0u);
  EXPECT_EQ(resumed->total, 12u * 16);
  EXPECT_EQ(a.resume().total, 12u * 16);
  EXPECT_EQ(a.tokens(), text(12 * 16));

  // Errors other than a lack of blocks are thrown.
  EXPECT_EQ(status_of([&] { cache.try_begin({b}, {1 << 20}); }), PKV_TOO_LARGE);
  EXPECT_EQ(status_of([&] { cache.try_begin({b, b}, {1, 1}); }), PKV_INVALID_ARGUMENT);
}

TEST(Cpp, RefusesListsOfDifferentLengths) {
  Cache cache(small());
  Session a = cache.open(), b = cache.open();
  const auto refused = [](auto call) { return status_of(call) == PKV_INVALID_ARGUMENT; };
  EXPECT_TRUE(refused([&] { cache.begin({a, b}, {1}); }));
  EXPECT_TRUE(refused([&] { cache.try_begin({a}, {1, 1}); }));
  EXPECT_TRUE(refused([&] { cache.choose_victims({a}, {}); }));
  Batch batch = cache.begin({a, b}, {2, 1});
  EXPECT_TRUE(refused([&] { batch.set_first_rows({0}); }));
  EXPECT_TRUE(refused([&] { batch.commit(text(2)); }));
  EXPECT_TRUE(refused([&] { batch.commit(std::vector<int32_t>{}); }));
  EXPECT_EQ(cache.stats().batches, 1u);
}

TEST(Cpp, RefusesListsThatNoMemoryHolds) {
  Cache cache(small());
  pagedkv::Pool pool(4);
  const auto refused = [](auto call) { return status_of(call) == PKV_TOO_LARGE; };
  EXPECT_TRUE(refused([&] { pool.alloc(size_t{1} << 40); }));
  EXPECT_TRUE(refused([&] { cache.load(pagedkv::Stream::file("none"), {}, SIZE_MAX); }));
}

TEST(Cpp, AnObjectIsItsHandle) {
  Cache cache(small());
  Session session = cache.open();
  EXPECT_EQ(pkv_session_trim(session, 1), PKV_OUT_OF_RANGE);
  EXPECT_EQ(status_of([&] { session.trim(1); }), PKV_OUT_OF_RANGE);
}

TEST(Cpp, ListsAreOfAnyKind) {
  int32_t array[] = {1, 2, 3};
  const std::array<int32_t, 3> fixed = {1, 2, 3};
  const std::vector<int32_t> vector = {1, 2, 3};
  const auto sum = [](Span<const int32_t> list) {
    int32_t total = 0;
    for (int32_t i : list) total += i;
    return total * 10 + int32_t(list.size());
  };
  EXPECT_EQ(sum(array), 63);
  EXPECT_EQ(sum(fixed), 63);
  EXPECT_EQ(sum(vector), 63);
  EXPECT_EQ(sum({1, 2, 3}), 63);
  EXPECT_EQ(sum({array, 2}), 32);
  EXPECT_EQ(sum({}), 0);
  EXPECT_EQ(sum(Span<int32_t>(array)), 63);
#if __cplusplus >= 202002L
  EXPECT_EQ(sum(std::span(array)), 63);
  const std::span<const int32_t> back = Span<const int32_t>(array);
  EXPECT_EQ(back.size(), 3u);
#endif
}

TEST(Cpp, RowsHaveStridesAndTypes) {
  Cache cache(small());
  Session session = cache.open();
  static float k[1][KV_HEADS][DIM], v[1][KV_HEADS][DIM], q[1][QUERY_HEADS][DIM];
  v[0][1][3] = 5;
  std::vector<float> out(2 * QUERY_HEADS * DIM);
  pagedkv::ChosenBlocks chosen;
  EXPECT_EQ(chosen.first_blocks + chosen.last_blocks, 2u);
  chosen.top_blocks = 1;
  pagedkv::AttentionParams params;
  params.chosen_blocks = &chosen;
  Batch batch = cache.begin({session}, {1});
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    batch.write(layer, k, v);
    // After each head, as many elements stay unchanged.
    batch.attend(layer, q, pagedkv::Tensor(out.data(), PKV_F32, 2 * QUERY_HEADS * DIM, 2 * DIM),
                 params);
  }
  const auto refused = [&](int64_t row_stride, int64_t head_stride, int64_t batch_stride) {
    return status_of([&] {
      batch.write(0, k, pagedkv::ConstTensor(v, PKV_F32, row_stride, head_stride, batch_stride));
    });
  };
  EXPECT_EQ(refused(0, 2 * DIM, 0), PKV_INVALID_ARGUMENT);  // dense rows of apart heads
  EXPECT_EQ(refused(0, 0, -1), PKV_INVALID_ARGUMENT);
  batch.commit();
  for (uint32_t head = 0; head < QUERY_HEADS; head++)
    EXPECT_EQ(out[head * 2 * DIM + 3], head < 2 ? 0 : 5);
  EXPECT_EQ(out[5 * DIM + 3], 0);

  std::vector<float> keys(KV_HEADS * DIM), values(keys.size());
  session.read(1, 0, 1, keys, values);
  EXPECT_EQ(values[DIM + 3], 5);
  EXPECT_EQ(session.tokens(), std::vector<int32_t>{PKV_UNKNOWN_TOKEN});
  session.set_tokens(0, {7});
  EXPECT_EQ(session.tokens(), std::vector<int32_t>{7});
}

TEST(Cpp, ForksTrimsAndFreezes) {
  Cache cache(small());
  Session a = cache.open();
  const auto out = step(cache, a, text(20));
  EXPECT_NEAR(out[19 * QUERY_HEADS * DIM], 9.5, 1e-5);
  Session b = a.fork();
  EXPECT_EQ(cache.pool_stats().held_blocks, 2u);
  EXPECT_EQ(a.block_table(), b.block_table());
  const pagedkv::Snapshot snapshot = a.snapshot();
  a.trim(3);
  EXPECT_EQ(a.length(), 3u);
  EXPECT_EQ(b.length(), 20u);
  Session c = snapshot.fork();
  EXPECT_EQ(c.tokens(), text(20));
  c.reserve(40);
  EXPECT_EQ(c.block_table().size(), 3u);
  c.set_priority(3);
  EXPECT_EQ(c.info().priority, 3);

  Batch batch = cache.begin({b, c}, {1, 2});
  EXPECT_EQ(batch.slot_mapping().size(), 3u);
  EXPECT_EQ(batch.block_copies().size(), 2u);
  const auto indices = batch.kv_indices(0, PKV_INDEX_SLOTS);
  EXPECT_EQ(indices.indptr, (std::vector<uint32_t>{0, 21, 43}));
  EXPECT_EQ(indices.indices.size(), 43u);
  EXPECT_EQ(indices.last_block_lengths, (std::vector<uint32_t>{5, 6}));
  batch.set_first_rows({0, 1});
  batch.set_first_rows({});
  const std::vector<float> rows(3 * KV_HEADS * DIM);
  for (uint32_t layer = 0; layer < LAYERS; layer++) batch.write(layer, rows, rows);
  batch.accept(1, {1});
  batch.commit({1, 2, 3});
  EXPECT_EQ(c.length(), 21u);
  EXPECT_EQ(status_of([&] { c.drop_blocks(0, {1}); }), PKV_OUT_OF_RANGE);
  c.drop_blocks(0, {0});
  EXPECT_EQ(c.block_table()[0], PKV_NO_BLOCK_ID);
}

TEST(Cpp, LatentGroupsHaveNoValues) {
  auto group = model();
  group.kv_heads = 1, group.kind = PKV_LAYERS_LATENT, group.value_dim = 16;
  auto config = small();
  config.groups = &group;
  Cache cache(config);
  Session session = cache.open();
  const std::vector<float> rows(DIM);
  Batch batch = cache.begin({session}, {1});
  for (uint32_t layer = 0; layer < LAYERS; layer++) batch.write(layer, rows);
  batch.commit();
  EXPECT_EQ(session.length(), 1u);
}

TEST(Cpp, GroupsMayKeepStates) {
  pagedkv::LayerGroup group;
  group.kind = PKV_LAYERS_STATES, group.layers = 1, group.layer_bytes = sizeof(uint64_t);
  group.checkpoint_interval = 16, group.max_verify_tokens = 2, group.blocks = 16;
  pagedkv::CacheConfig config;
  config.groups = &group;
  Cache cache(config);
  Session session = cache.open();
  // The state is the number of tokens.
  const auto step = [&](uint32_t n) {
    Batch batch = cache.begin({session}, {n});
    const Batch::StateBlocks kept = batch.state_blocks(0);
    const Batch::States states = batch.states(0);
    EXPECT_EQ(kept.indptr, (std::vector<uint32_t>{0, uint32_t(kept.tokens.size())}));
    EXPECT_EQ(kept.tokens.size(), kept.after.size());
    EXPECT_EQ(states.after.size(), kept.after.size());
    const uint64_t before =
        states.before[0] == nullptr ? 0 : *static_cast<const uint64_t*>(states.before[0]);
    EXPECT_EQ(before, session.length());
    for (size_t i = 0; i < kept.tokens.size(); i++)
      *static_cast<uint64_t*>(states.after[i]) = before + kept.tokens[i] + 1;
    return batch;
  };
  step(40).commit();
  Batch draft = step(2);
  draft.accept(0, {0});
  draft.commit();
  EXPECT_EQ(session.length(), 41u);
  EXPECT_EQ(session.trim_point(40), 32u);
  unsigned char state[8];
  session.state(0, 32, state);
  EXPECT_EQ(state[0], 32);
  session.trim(32);
  EXPECT_EQ(status_of([&] { session.state(0, 41, state); }), PKV_OUT_OF_RANGE);
}

TEST(Cpp, FindsPrefixes) {
  auto config = small();
  pagedkv::PrefixConfig prefix;
  prefix.max_events = 64;
  config.prefix = &prefix;
  uint64_t now = 1'000'000;
  const pkv_clock clock{[](void* user) { return *static_cast<uint64_t*>(user); }, &now};
  config.clock = &clock;
  Cache cache(config);
  const std::string salt("tenant\0one", 10);
  {
    pagedkv::SessionConfig salted;
    salted.salt = salt.data(), salted.salt_size = salt.size();
    Session session = cache.open(salted);
    step(cache, session, text(40));
  }
  EXPECT_EQ(cache.probe_prefix(text(40), salt), 32u);
  EXPECT_EQ(cache.probe_prefix(text(40)), 0u);
  EXPECT_EQ(cache.hint(pagedkv::Hint(PKV_HINT_PIN, 5), text(20), salt).tokens, 16u);
  EXPECT_EQ(cache.prefix_stats(salt).pinned_tokens, 16u);
  EXPECT_EQ(cache.prefix_stats("").cached_tokens, 0u);
  EXPECT_EQ(cache.prefix_stats().cached_tokens, cache.prefix_stats(salt).cached_tokens);
  now += 5;
  EXPECT_EQ(cache.hint(pagedkv::Hint(PKV_HINT_UNPIN), text(16), salt).outcome,
            PKV_HINT_OUTCOME_MISSING);

  uint64_t next = 0, lost = 1;
  std::vector<pkv_prefix_event> events(8);
  events.resize(cache.read_prefix_events(next, events, &lost));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(lost, 0u);
  const auto hashes = pagedkv::hash_blocks(text(40), 16, salt);
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(events[0].hash, hashes[0]);

  pagedkv::SessionConfig salted;
  salted.salt = salt.data(), salted.salt_size = salt.size();
  Session again = cache.open(salted);
  EXPECT_EQ(again.admit(text(39)), 32u);
  cache.set_prefix_quota(salt, 16);
  cache.clear_prefixes(salt);
  EXPECT_EQ(again.close(), PKV_OK);
  cache.clear_prefixes();
  EXPECT_EQ(cache.prefix_stats().cached_tokens, 0u);
  EXPECT_NE(cache.metrics().find("\n"), std::string::npos);
}

TEST(Cpp, SavesAndLoads) {
  Cache cache(small());
  Session a = cache.open(), b = cache.open();
  step(cache, a, text(20));
  step(cache, b, text(33, 500));
  EXPECT_EQ(status_of([&] { cache.save(pagedkv::Stream::to_buffer({}), {a, b}); }),
            PKV_BUFFER_TOO_SMALL);
  std::vector<unsigned char> bytes(1 << 20);
  bytes.resize(cache.save(pagedkv::Stream::to_buffer(bytes), {a, b}));
  EXPECT_EQ(pagedkv::inspect(pagedkv::Stream::from_buffer(bytes)).sessions, 2u);

  Cache other(small());
  const auto loaded = other.load(pagedkv::Stream::from_buffer(bytes), {}, 1);
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(loaded[1].label, 1u);
  EXPECT_EQ(loaded[1].session.tokens(), text(33, 500));

  const std::string path =
      testing::TempDir() + "pagedkv-cpp-" + std::to_string(portable::process_id());
  const std::vector<pkv_file_item> items = {{a, nullptr, 77}};
  EXPECT_GT(cache.save(pagedkv::Stream::file(path), items), 0u);
  EXPECT_EQ(other.load(pagedkv::Stream::file(path))[0].label, 77u);
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(details_of([&] { other.load(pagedkv::Stream::file(path)); }).system_error, ENOENT);
  EXPECT_EQ(status_of([&] { other.load(pagedkv::Stream::fd(-1)); }), PKV_INVALID_ARGUMENT);
}

// The bytes of blocks that only an engine can read.
TEST(Cpp, CopiesBlocksOfTheEngine) {
  constexpr size_t bytes = 10, blocks = 8;
  using Memory = std::vector<char>;
  Memory memory(bytes * blocks), loaded_memory(memory.size());
  pagedkv::BlockIo io;
  io.read = [](void* user, uint32_t, size_t n, const uint32_t* ids, const uint32_t*, void* to) {
    for (size_t i = 0; i < n; i++)
      std::memcpy(static_cast<char*>(to) + i * bytes,
                  static_cast<Memory*>(user)->data() + ids[i] * bytes, bytes);
    return 0;
  };
  io.write = [](void* user, uint32_t, size_t n, const uint32_t* ids, const void* from) {
    for (size_t i = 0; i < n; i++)
      std::memcpy(static_cast<Memory*>(user)->data() + ids[i] * bytes,
                  static_cast<const char*>(from) + i * bytes, bytes);
    return 0;
  };
  pagedkv::LayerGroup group;
  group.layers = 1;
  group.kind = PKV_LAYERS_OPAQUE_KV;
  group.layer_bytes = bytes;
  group.blocks = blocks;
  pagedkv::CacheConfig config;
  config.groups = &group;
  config.storage = PKV_STORAGE_EXTERNAL;
  config.block_io = &io;
  io.user = &memory;
  Cache cache(config);
  io.user = &loaded_memory;
  Cache other(config);
  Session session = cache.open();
  Batch batch = cache.begin({session}, {uint32_t{40}});
  batch.commit(text(40));
  const std::vector<uint32_t> table = session.block_table();
  for (size_t i = 0; i < table.size(); i++)
    std::fill_n(memory.begin() + std::ptrdiff_t(table[i] * bytes), bytes, char(i + 1));
  std::vector<unsigned char> file(1 << 20);
  file.resize(cache.save(pagedkv::Stream::to_buffer(file), {session}));
  const auto loaded = other.load(pagedkv::Stream::from_buffer(file));
  const std::vector<uint32_t> ids = loaded[0].session.block_table();
  ASSERT_EQ(ids.size(), 3u);
  for (size_t i = 0; i < ids.size(); i++) EXPECT_EQ(loaded_memory[ids[i] * bytes], char(i + 1));
}

// A store that counts how often it is closed.
pkv_store counted(int* closed) {
  pkv_store store{};
  store.struct_size = sizeof store;
  store.user = closed;
  store.put = [](void*, size_t n, pkv_store_item*) { return int64_t(n); };
  store.get = [](void*, size_t n, pkv_store_item* items) {
    for (size_t i = 0; i < n; i++) items[i].size = 0;
    return int64_t{0};
  };
  store.touch = store.get;
  store.remove = [](void*, size_t n, const pkv_store_item*) { return int64_t(n); };
  store.close = [](void* user) { ++*static_cast<int*>(user); };
  return store;
}

TEST(Cpp, StoresAreClosedOnceByWhoHasThem) {
  int closed = 0;
  {
    pagedkv::Store store(counted(&closed));
  }
  EXPECT_EQ(closed, 1);
  pagedkv::Store store(counted(&closed)), moved;
  moved = std::move(store);
  pagedkv::PrefixConfig prefix;
  auto config = small();
  EXPECT_NE(status_of([&] { Cache(config, std::move(moved)); }), PKV_OK) << "without an index";
  EXPECT_EQ(closed, 1) << "the store is still the caller's";
  config.prefix = &prefix;
  {
    Cache cache;
    try {
      cache = Cache(config, std::move(moved));
    } catch (const Error& error) {
      if (error.status() == PKV_UNSUPPORTED) GTEST_SKIP() << error.what();
      throw;
    }
    EXPECT_EQ(moved.get()->close, nullptr);
    Session session = cache.open();
    step(cache, session, text(40));
    session.suspend();
    cache.hint(pagedkv::Hint(PKV_HINT_PREFETCH), text(40));
    EXPECT_LE(cache.wait_for_prefetch(text(40), 1000), 32u);
    cache.cancel_prefetch(text(40));
    session.close();
    EXPECT_EQ(cache.flush_store(10000), 0u);
    EXPECT_EQ(cache.store_stats().failures, 0u);
    EXPECT_EQ(closed, 1);
  }
  EXPECT_EQ(closed, 2);

  pagedkv::DirectoryConfig directory;
  directory.path = "/dev/null";
  EXPECT_EQ(status_of([&] { pagedkv::Store{directory}; }), PKV_IO);
}

TEST(Cpp, PoolsKeepIds) {
  pagedkv::Pool pool(8);
  const auto blocks = pool.alloc(3);
  pool.retain(blocks);
  EXPECT_EQ(pool.stats().references, 6u);
  pool.free(blocks);
  pool.free(blocks);
  EXPECT_EQ(status_of([&] { pool.free(blocks); }), PKV_NOT_HELD);
  std::array<pkv_block_ref, 1> one;
  pool.alloc(one);
  EXPECT_EQ(pool.stats().held_blocks, 1u);
  pool.validate();
}

TEST(Cpp, ComputesWithoutACache) {
  pagedkv::ComputeConfig config;
  config.threads = 1;
  pagedkv::Compute compute(config);
  EXPECT_EQ(compute.info().threads, 1u);

  pagedkv::KvView kv;
  kv.layout = PKV_LAYOUT_PACKED, kv.block_size = 16, kv.kv_heads = KV_HEADS, kv.key_dim = DIM;
  kv.dtype = PKV_F32, kv.blocks = 2;
  kv.latent = 1;
  const uint64_t bytes_of_keys = kv.init();
  kv.latent = 0;
  EXPECT_EQ(kv.init(), 2 * bytes_of_keys);
  std::vector<float> memory(kv.init() / sizeof(float));
  kv.init(memory.data());

  constexpr size_t N = 20;
  std::vector<float> k(N * KV_HEADS * DIM), v(k.size());
  for (size_t i = 0; i < v.size(); i++) v[i] = float(i / (size_t{KV_HEADS} * DIM));
  std::vector<int64_t> slots(N);
  for (size_t i = 0; i < N; i++) slots[i] = int64_t(i);
  pagedkv::kv_write_slots(compute, kv, slots, k, v);
  std::vector<float> keys(k.size()), values(v.size());
  pagedkv::kv_read_slots(compute, kv, slots, keys, values);
  EXPECT_EQ(values, v);

  const uint32_t query_lengths[] = {1}, table[] = {0, 1};
  const uint64_t kv_lengths[] = {N};
  pagedkv::KvSequences sequences;
  sequences.query_heads = QUERY_HEADS, sequences.count = 1;
  sequences.query_lengths = query_lengths, sequences.kv_lengths = kv_lengths;
  sequences.block_tables = table, sequences.block_table_stride = 2;
  std::vector<float> q(QUERY_HEADS * DIM), out(q.size()), lse(QUERY_HEADS);
  pagedkv::AttentionOutputs outputs;
  outputs.lse = lse.data();
  pagedkv::kv_attend(compute, kv, sequences, q, out, pagedkv::AttentionParams(), outputs);
  EXPECT_NEAR(out[0], 9.5, 1e-5);
  pagedkv::kv_attend(nullptr, kv, sequences, q, out);
  EXPECT_NEAR(out[0], 9.5, 1e-5);
  pagedkv::kv_write(compute, kv, sequences, k, v);
  std::vector<float> last_k(KV_HEADS * DIM), last_v(last_k.size());
  pagedkv::kv_read(compute, kv, sequences, last_k, last_v);
  EXPECT_TRUE(std::equal(last_v.begin(), last_v.end(), v.begin()));

  std::vector<float> merged(out.size());
  const std::vector<pagedkv::ConstTensor> outs = {out, out};
  pagedkv::attention_merge(compute, outs, {lse.data(), lse.data()}, 1, QUERY_HEADS, DIM, merged);
  EXPECT_NEAR(merged[0], out[0], 1e-5);
}

TEST(Cpp, RefusesBadConfigs) {
  pagedkv::CacheConfig config;
  EXPECT_EQ(status_of([&] { Cache{config}; }), PKV_INVALID_ARGUMENT);
  EXPECT_GT(Cache::sizes(small()).memory_bytes, 0u);
  EXPECT_EQ(status_of([&] { Cache::sizes(small(), 1); }), PKV_OUT_OF_RANGE);
  EXPECT_EQ(status_of([&] { pagedkv::hash_blocks(text(1), 0); }), PKV_INVALID_ARGUMENT);
}

}  // namespace
