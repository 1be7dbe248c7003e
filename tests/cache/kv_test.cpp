// Rows written to memory of the host's own are what a cache stores, bit for bit, and attention over
// them is what a cache computes.
#include <thread>

#include "host.h"

namespace cache_test::kv_test {
namespace {

struct Case {
  pkv_dtype keys, values;
  pkv_layout layout;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
    for (const pkv_dtype dtype : stored_dtypes) all.push_back({dtype, dtype, layout});
    all.push_back({PKV_INT8, PKV_INT4, layout});
    all.push_back({PKV_BF16, PKV_FP8_E4M3, layout});
  }
  return all;
}

class Kv : public testing::TestWithParam<Case> {
 protected:
  Model model(uint32_t key_dim = 48, uint32_t value_dim = 80) const {
    return {1, 6, 2, key_dim, value_dim, GetParam().keys, 0, GetParam().values};
  }
};

constexpr uint32_t prompt_rows[] = {45, 1, 70};

// A prompt of three sequences, then a step of one to three tokens, on a cache and on a host's own
// memory.
void play(const Model& model, pkv_layout layout, pkv_isa isa) {
  Random random(static_cast<uint64_t>(model.dtype * 100 + layout * 10 + isa));
  ModelConfig config = config_of(model, 64);
  config.layout = layout;
  config.block_size = 32;
  config.isa = isa;
  config.threads = 2;
  Cache cache = create(config);
  std::vector<Session> owned;
  std::vector<pkv_session> sessions;
  for (int i = 0; i < 3; i++) sessions.push_back(owned.emplace_back(open(cache)));
  HostMemory memory(model, layout, 32, 20);
  Compute compute = make_compute(2, isa);
  HostSequences host(memory, model.query_heads, {45, 1, 70}, {45, 1, 70}, random);
  uint64_t lengths[3] = {};
  for (const std::vector<uint32_t>& rows :
       {std::vector<uint32_t>(std::begin(prompt_rows), std::end(prompt_rows)),
        std::vector<uint32_t>{3, 1, 2}}) {
    const uint32_t total = std::accumulate(rows.begin(), rows.end(), 0u);
    KeysValues written = random_rows(model, total, random);
    Rows q(total, model.query_heads, model.key_dim), out(total, model.query_heads, model.values()),
        again(total, model.query_heads, model.values());
    q.fill(random);
    Batch batch = begin(cache, sessions, rows);
    write(batch, 0, model, written);
    attend(batch, 0, q, out);
    commit(batch);

    std::vector<int64_t> slots;
    for (size_t s = 0; s < 3; s++)
      for (uint32_t i = 0; i < rows[s]; i++) slots.push_back(host.slot(s, lengths[s] + i));
    const pkv_tensor k = written.k.tensor(), v = written.v.tensor();
    CHECK(pkv_kv_write_slots(compute, &memory.view, total, slots.data(), &k,
                             model.latent() ? nullptr : &v));
    for (size_t s = 0; s < 3; s++) host.kv_lengths[s] = lengths[s] += rows[s];
    host.rows = rows;
    const pkv_kv_sequences sequences = host.get();
    const pkv_tensor queries = q.tensor(), outputs = again.tensor();
    CHECK(pkv_kv_attend(compute, &memory.view, &sequences, nullptr, &queries, &outputs, nullptr));
    EXPECT_TRUE(out == again) << "other bits than the cache's";
  }
  for (size_t s = 0; s < 3; s++) host.rows[s] = static_cast<uint32_t>(lengths[s]);
  KeysValues all = rows_of(model, host.total_rows());
  const pkv_kv_sequences sequences = host.get();
  const pkv_tensor all_k = all.k.tensor(), all_v = all.v.tensor();
  CHECK(pkv_kv_read(compute, &memory.view, &sequences, &all_k, &all_v));
  size_t first = 0;
  for (size_t s = 0; s < 3; s++) {
    std::vector<int64_t> slots;
    for (uint64_t p = 0; p < lengths[s]; p++) slots.push_back(host.slot(s, p));
    KeysValues read = rows_of(model, lengths[s]);
    const pkv_tensor k = read.k.tensor(), v = read.v.tensor();
    CHECK(pkv_kv_read_slots(compute, &memory.view, slots.size(), slots.data(), &k, &v));
    EXPECT_TRUE(read == materialize(sessions[s], 0, model, 0, lengths[s])) << "sequence " << s;
    EXPECT_TRUE(read.k == all.k.slice(first, lengths[s]) &&
                read.v == all.v.slice(first, lengths[s]))
        << "sequence " << s;
    first += lengths[s];
  }
}

TEST_P(Kv, WrittenAndAttendedAsByACache) {
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    play(model(), GetParam().layout, isa);
  }
}

TEST_P(Kv, LatentValues) {
  if (GetParam().keys != GetParam().values) return;
  Model latent = model(64, 48);
  latent.kind = PKV_LAYERS_LATENT;
  play(latent, GetParam().layout, PKV_ISA_AUTO);
}

// Rows come in any order and with padding between them; the last one of a slot stays, and memory
// beside the slots does not change.
TEST_P(Kv, SlotsInAnyOrderWithPadding) {
  Random random(5);
  HostMemory one(model(), GetParam().layout, 16, 8), other(model(), GetParam().layout, 16, 8);
  std::vector<int64_t> order;
  for (int64_t slot = 0; slot < 128; slot++)
    if (slot % 7 != 3) order.push_back(slot);
  KeysValues rows = random_rows(model(), order.size(), random);
  const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
  CHECK(pkv_kv_write_slots(nullptr, &one.view, order.size(), order.data(), &k, &v));

  // The same rows shuffled; before each of them padding, and a row that is overwritten.
  std::vector<size_t> shuffled(order.size());
  std::iota(shuffled.begin(), shuffled.end(), size_t{0});
  for (size_t i = shuffled.size(); i > 1; i--)
    std::swap(shuffled[i - 1], shuffled[random.below(i)]);
  KeysValues more = random_rows(model(), 3 * order.size(), random);
  std::vector<int64_t> slots;
  for (const size_t i : shuffled) {
    more.k.copy(slots.size() + 2, rows.k, i, 1);
    more.v.copy(slots.size() + 2, rows.v, i, 1);
    slots.insert(slots.end(), {PKV_NO_SLOT, order[i], order[i]});
  }
  const pkv_tensor more_k = more.k.tensor(), more_v = more.v.tensor();
  CHECK(pkv_kv_write_slots(nullptr, &other.view, slots.size(), slots.data(), &more_k, &more_v));
  EXPECT_TRUE(one.bytes == other.bytes);

  HostMemory untouched(model(), GetParam().layout, 16, 8);
  const std::vector<int64_t> padding(5, PKV_NO_SLOT);
  CHECK(pkv_kv_write_slots(nullptr, &untouched.view, 5, padding.data(), &k, &v));
  CHECK(pkv_kv_write_slots(nullptr, &untouched.view, 0, nullptr, &k, &v));
  EXPECT_TRUE(std::all_of(untouched.bytes.begin(), untouched.bytes.end(),
                          [](unsigned char byte) { return byte == 0xEE; }));
  KeysValues kept = random_rows(model(), 5, random);
  const KeysValues before = kept;
  const pkv_tensor kept_k = kept.k.tensor(), kept_v = kept.v.tensor();
  CHECK(pkv_kv_read_slots(nullptr, &one.view, 5, padding.data(), &kept_k, &kept_v));
  EXPECT_TRUE(before == kept);
}

// Rows of sequences are those of their slots, whatever positions they have and wherever they are in
// a padded batch.
TEST_P(Kv, ReadsPositionsAsSlots) {
  Random random(7);
  HostMemory memory(model(), GetParam().layout, 16, 8);
  KeysValues rows = random_rows(model(), 128, random);
  const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
  std::vector<int64_t> slots(128);
  std::iota(slots.begin(), slots.end(), 0);
  CHECK(pkv_kv_write_slots(nullptr, &memory.view, 128, slots.data(), &k, &v));
  const HostSequences host(memory, 6, {5, 0, 3}, {40, 7, 33}, random);
  const int64_t positions[] = {39, 0, 17, 17, 2, 31, 32, 5};
  const uint32_t first_rows[] = {1, 0, 4};
  for (const bool positioned : {false, true})
    for (const bool padded : {false, true}) {
      pkv_kv_sequences sequences = host.get();
      if (positioned) sequences.query_positions = positions;
      if (padded) sequences.first_rows = first_rows;
      KeysValues found = random_rows(model(), 3 * 8, random);
      const KeysValues before = found;
      pkv_tensor to_k = found.k.tensor(), to_v = found.v.tensor();
      if (padded) {
        to_k.batch_stride = 8 * to_k.row_stride;
        to_v.batch_stride = 8 * to_v.row_stride;
      }
      CHECK(pkv_kv_read(nullptr, &memory.view, &sequences, &to_k, &to_v));
      KeysValues wanted = before;
      for (size_t s = 0, row = 0; s < 3; s++)
        for (uint32_t i = 0; i < host.rows[s]; i++, row++) {
          const uint64_t position = positioned ? static_cast<uint64_t>(positions[row])
                                               : host.kv_lengths[s] - host.rows[s] + i;
          const int64_t slot = host.slot(s, position);
          KeysValues one = rows_of(model(), 1);
          const pkv_tensor one_k = one.k.tensor(), one_v = one.v.tensor();
          CHECK(pkv_kv_read_slots(nullptr, &memory.view, 1, &slot, &one_k, &one_v));
          const size_t at = padded ? 8 * s + first_rows[s] + i : row;
          wanted.k.copy(at, one.k, 0, 1);
          wanted.v.copy(at, one.v, 0, 1);
        }
      EXPECT_TRUE(wanted == found) << positioned << padded;
      CHECK(pkv_kv_read(nullptr, &memory.view, &sequences, nullptr, nullptr));
    }
}

// By any number of threads, a prompt is written the same.
TEST_P(Kv, ManyRowsByManyThreads) {
  Random random(6);
  const uint32_t n = 3000;
  KeysValues rows = random_rows(model(), n, random);
  const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
  std::vector<int64_t> slots(n);
  for (uint32_t i = 0; i < n; i++) slots[i] = i / 40 % 2 == 0 ? i : n + n / 2 - i;
  std::vector<unsigned char> first;
  for (const uint32_t threads : {1u, 2u, 0u}) {
    Compute compute = make_compute(threads);
    HostMemory memory(model(), GetParam().layout, 64, 80);
    CHECK(pkv_kv_write_slots(compute, &memory.view, n, slots.data(), &k, &v));
    if (first.empty()) first = memory.bytes;
    EXPECT_TRUE(first == memory.bytes) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Kv, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(name_of(test.param.keys)) + "_" + name_of(test.param.values) +
         (test.param.layout == PKV_LAYOUT_PACKED ? "_packed" : "_plain");
});

// A plan is the memory of a cache with one layer, of any block size in the plain layout.
TEST(KvPlan, IsThatOfACache) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN})
    for (const pkv_dtype dtype : stored_dtypes) {
      const Model model{1, 4, 2, 64, 32, dtype};
      ModelConfig config = config_of(model, 10);
      config.layout = layout;
      Cache cache = create(config);
      const pkv_kv_view of_cache = kv_view_of(cache, 0);
      const HostMemory memory(model, layout, 16, 10);
      EXPECT_EQ((sizes_of(config).memory_bytes + 63) / 64 * 64, memory.bytes.size());
      EXPECT_EQ(of_cache.k_block_stride, memory.view.k_block_stride);
      EXPECT_EQ(of_cache.k_row_stride, memory.view.k_row_stride);
      EXPECT_EQ(of_cache.k_head_stride, memory.view.k_head_stride);
      EXPECT_EQ(of_cache.v_block_stride, memory.view.v_block_stride);
      EXPECT_EQ(of_cache.v_row_stride, memory.view.v_row_stride);
      EXPECT_EQ(of_cache.v_head_stride, memory.view.v_head_stride);
      EXPECT_EQ(static_cast<char*>(of_cache.v) - static_cast<char*>(of_cache.k),
                static_cast<char*>(memory.view.v) - static_cast<char*>(memory.view.k));
      EXPECT_EQ(of_cache.k_bytes, memory.view.k_bytes);
      EXPECT_EQ(of_cache.v_bytes, memory.view.v_bytes);
      // V ends where the memory ends, and K where it does without V.
      const unsigned char* const end = memory.bytes.data() + memory.bytes.size();
      EXPECT_EQ(end, static_cast<unsigned char*>(memory.view.v) + memory.view.v_bytes);
      Model latent{1, 4, 2, 64, 32, dtype};
      latent.kind = PKV_LAYERS_LATENT;
      const HostMemory keys(latent, layout, 16, 10);
      EXPECT_EQ(keys.bytes.size(), keys.view.k_bytes);
      EXPECT_EQ(0u, keys.view.v_bytes);
    }
  EXPECT_EQ(3u * 7 * 2 * 16 * 4 * 2,
            HostMemory({1, 2, 2, 16}, PKV_LAYOUT_PLAIN, 7, 3).bytes.size());
}

// Slots of any block size, and rows with gaps between heads and tokens as other engines have them.
TEST(KvWrite, MemoryOfOtherEngines) {
  for (const uint32_t block_size : {1u, 3u, 16u, 33u}) {
    Random random(block_size);
    const uint64_t blocks = 100 / block_size + 1;
    Rows memory(blocks * block_size, 2, 48, PKV_F16, {4, 9, 0}), k(40, 2, 48, PKV_F32);
    const pkv_tensor at = memory.tensor(), keys = k.fill(random).tensor();
    auto view = made<pkv_kv_view>({.layout = PKV_LAYOUT_PLAIN,
                                   .block_size = block_size,
                                   .kv_heads = 2,
                                   .key_dim = 48,
                                   .value_dim = 48,
                                   .dtype = PKV_F16,
                                   .blocks = blocks,
                                   .k = at.data,
                                   .k_block_stride = at.row_stride * block_size,
                                   .k_row_stride = at.row_stride,
                                   .k_head_stride = at.head_stride,
                                   .latent = 1});
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < 40; i++) slots.push_back(i * 37 % 100);
    CHECK(pkv_kv_write_slots(nullptr, &view, 40, slots.data(), &keys, nullptr));
    for (uint32_t i = 0; i < 40; i++)
      for (uint32_t d = 0; d < 48; d++)
        EXPECT_EQ(static_cast<float>(static_cast<Float16>(k.get(i, 1, d))),
                  memory.get(static_cast<size_t>(slots[i]), 1, d));
    EXPECT_TRUE(memory.gaps_untouched());
  }
}

// A view that says how much memory it has reaches no further, by a block, a token or a head.
TEST_P(Kv, ReachNoFurtherThanTheirMemory) {
  HostMemory memory(model(), GetParam().layout, 32, 4);
  KeysValues rows = rows_of(model(), 1);
  const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
  const int64_t slot = 0;
  const auto read = [&](const pkv_kv_view& view) {
    return pkv_kv_read_slots(nullptr, &view, 1, &slot, &k, &v);
  };
  CHECK(read(memory.view));
  for (int64_t pkv_kv_view::* stride :
       {&pkv_kv_view::k_block_stride, &pkv_kv_view::k_row_stride, &pkv_kv_view::k_head_stride,
        &pkv_kv_view::v_block_stride, &pkv_kv_view::v_row_stride, &pkv_kv_view::v_head_stride}) {
    pkv_kv_view view = memory.view;
    view.*stride += 1;
    REFUSED(PKV_INVALID_ARGUMENT, read(view));
  }
  pkv_kv_view view = memory.view;
  view.blocks++;
  REFUSED(PKV_INVALID_ARGUMENT, read(view));
  view = memory.view;
  view.k_bytes--;
  REFUSED(PKV_INVALID_ARGUMENT, read(view));
  EXPECT_EQ("kv.k: with these strides it reaches over " + std::to_string(memory.view.k_bytes) +
                " bytes; kv.k_bytes is " + std::to_string(view.k_bytes),
            pkv_last_error());
  view = memory.view;
  view.k_bytes = view.v_bytes = 0;
  CHECK(read(view));
}

// An error says which names an enum has, and by which name the caller's value goes.
TEST(KvErrors, NameTheValuesOfEnums) {
  HostMemory memory({1, 1, 1, 16}, PKV_LAYOUT_PLAIN, 16, 1);
  Rows row(1, 1, 16);
  const uint32_t length = 1, table = 0;
  const uint64_t kv_length = 1;
  const auto sequence = made<pkv_kv_sequences>({.query_heads = 1,
                                                .count = 1,
                                                .query_lengths = &length,
                                                .kv_lengths = &kv_length,
                                                .block_tables = &table,
                                                .block_table_stride = 1});
  const auto refused = [&](const pkv_kv_view& view, pkv_mask mask, pkv_tensor q) -> std::string {
    const int32_t parent = -1;
    mask.struct_size = sizeof mask;
    mask.data = &parent;
    const auto params = made<pkv_attention_params>({.mask = &mask});
    const pkv_tensor out = row.tensor();
    EXPECT_EQ(PKV_INVALID_ARGUMENT,
              pkv_kv_attend(nullptr, &view, &sequence, &params, &q, &out, nullptr));
    return pkv_last_error();
  };
  const auto value = [](auto& field, int32_t number) { std::memcpy(&field, &number, 4); };
  const pkv_mask tree{.kind = PKV_MASK_TREE_PARENTS};
  pkv_mask mask = tree;
  value(mask.kind, 9);
  EXPECT_EQ("mask: kind 9 is none of TREE_BITS, TREE_PARENTS, BYTES, F16, F32",
            refused(memory.view, mask, row.tensor()));
  mask = tree;
  mask.columns = 3;
  EXPECT_NE(std::string::npos,
            refused(memory.view, mask, row.tensor()).find("kind is TREE_PARENTS"));
  pkv_kv_view view = memory.view;
  value(view.dtype, -1);
  EXPECT_EQ("kv: dtype -1 is none of F32, F16, BF16, INT8, INT4, FP8_E4M3, FP8_E5M2, Q8_0, Q4_0",
            refused(view, tree, row.tensor()));
  view = memory.view;
  value(view.layout, 2);
  EXPECT_EQ("kv: layout 2 is none of PACKED, PLAIN", refused(view, tree, row.tensor()));
  view = memory.view;
  const std::vector<float> zeros(576 * 576);
  const auto matrices = made<pkv_rotation_matrices>({.key = zeros.data()});
  view.rotation = PKV_ROTATION_HADAMARD;
  view.rotation_matrices = &matrices;
  EXPECT_EQ("kv: rotation is HADAMARD, and there are rotation_matrices; give one",
            refused(view, tree, row.tensor()));
  pkv_tensor stored = row.tensor();
  stored.dtype = PKV_INT8;
  EXPECT_EQ("q: dtype is INT8; rows are F32, F16 or BF16", refused(memory.view, tree, stored));
}

}  // namespace
}  // namespace cache_test::kv_test
