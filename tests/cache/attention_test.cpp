// Compares the attention of batches and of the stateless call with a double-precision reference,
// over random shapes.
#include <numeric>

#include "../support/cache.h"
#include "../support/rows.h"
#include "reference.h"

namespace cache_test::attention_test {
namespace {

constexpr uint32_t max_length = 260;

struct Shape {
  Model model;
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t threads;
  pkv_isa isa;
};

pkv_dtype random_dtype(Random& random) { return random.pick({PKV_F32, PKV_F16, PKV_BF16}); }

Shape random_shape(Random& random, pkv_isa isa) {
  Shape shape{};
  Model& model = shape.model;
  model.layers = 1;
  model.kv_heads = random.pick({1u, 1u, 2u, 3u, 4u, 8u});
  model.query_heads = model.kv_heads * random.pick({1u, 1u, 2u, 3u, 4u, 5u, 7u, 8u});
  // Draws the dims of mostly real models, and sometimes any multiple of 16.
  model.key_dim = random.chance(70) ? random.pick({16u, 32u, 64u, 80u, 96u, 128u})
                                    : static_cast<uint32_t>(16 * random.between(1, 36));
  model.value_dim = random.chance(50) ? 0 : static_cast<uint32_t>(16 * random.between(1, 36));
  model.dtype = random_dtype(random);
  model.window = random.chance(60) ? 0 : random.pick({1u, 2u, 7u, 16u, 17u, 33u, 64u, 100u});
  shape.storage = random.chance(75) ? PKV_STORAGE_PAGED : PKV_STORAGE_CONTIGUOUS;
  shape.layout = random.pick({PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN});
  shape.block_size = static_cast<uint32_t>(16 * random.between(1, 16));
  shape.threads = random.pick({1u, 2u, 3u});
  shape.isa = isa;
  return shape;
}

Placement random_placement(Random& random) {
  if (random.chance(40)) return {};
  return {static_cast<int64_t>(random.below(20)), static_cast<int64_t>(random.below(70)),
          random.below(8)};
}

Rows random_rows(Random& random, size_t rows, uint32_t heads, uint32_t dim) {
  Rows result(rows, heads, dim, random_dtype(random), random_placement(random));
  return std::move(result.fill(random));
}

// The parameters of one call, as the library and as the reference take them.
struct Parameters {
  Parameters(Random& random, uint32_t layer_window) {
    given = AttentionParams();
    if (random.chance(30)) given.bidirectional = 1;
    if (random.chance(30)) given.scale = random.uniform();
    if (random.chance(30))
      given.window = layer_window == 0 ? random.pick({0u, 1u, 5u, 40u, 1000u})
                                       : static_cast<uint32_t>(random.between(1, layer_window));
    meant.causal = given.bidirectional == 0;
    meant.scale = given.scale;
    meant.window = given.window == 0 ? layer_window : given.window;
  }
  AttentionParams given{};
  Attention meant;
};

// Lets several sessions grow by ragged batches. Compares every output with the reference and with
// the stateless call.
class Trial {
 public:
  Trial(const Shape& shape, Random& random) : shape_(shape), model_(shape.model), random_(random) {
    const uint32_t sessions = static_cast<uint32_t>(random.between(1, 4));
    const uint32_t blocks = sessions * (max_length / shape.block_size + 2);
    ModelConfig config = config_of(model_, blocks, shape.storage);
    config.layout = shape.layout;
    config.block_size = shape.block_size;
    config.threads = shape.threads;
    config.isa = shape.isa;
    cache_ = create(config);
    for (uint32_t s = 0; s < sessions; s++) {
      sessions_.push_back(open(cache_));
      expected_.push_back({Rows(0, model_.kv_heads, model_.key_dim, model_.dtype),
                           Rows(0, model_.kv_heads, model_.values(), model_.dtype)});
    }
  }

  void step() {
    std::vector<size_t> members;
    std::vector<pkv_session> handles;
    std::vector<uint32_t> counts;
    for (size_t s = 0; s < sessions_.size(); s++) {
      if (random_.chance(20)) continue;
      const uint64_t room = max_length - length_of(sessions_[s]);
      const uint32_t count = static_cast<uint32_t>(random_.chance(50) ? 1 : random_.between(0, 60));
      members.push_back(s);
      handles.push_back(sessions_[s]);
      counts.push_back(static_cast<uint32_t>(std::min<uint64_t>(count, room)));
    }
    const size_t rows = std::accumulate(counts.begin(), counts.end(), size_t{0});
    Batch batch = begin(cache_, handles, counts);
    Rows k = random_rows(random_, rows, model_.kv_heads, model_.key_dim),
         v = random_rows(random_, rows, model_.kv_heads, model_.values());
    Rows q = random_rows(random_, rows, model_.query_heads, model_.key_dim);
    Rows out(rows, model_.query_heads, model_.values(), random_dtype(random_),
             random_placement(random_));
    Parameters parameters(random_, model_.window);
    parameters.meant.keys = parameters.meant.values = model_.dtype;
    write(batch, 0, k, v);
    attend(batch, 0, q, out, &parameters.given);
    EXPECT_TRUE(out.gaps_untouched());

    size_t row = 0;
    for (size_t i = 0; i < members.size(); row += counts[i++]) {
      KeysValues& all = expected_[members[i]];
      Rows stored_k(counts[i], model_.kv_heads, model_.key_dim, model_.dtype),
          stored_v(counts[i], model_.kv_heads, model_.values(), model_.dtype);
      stored_k.copy(0, k, row, counts[i]);
      stored_v.copy(0, v, row, counts[i]);
      all.k.append(stored_k);
      all.v.append(stored_v);
      check_stored(sessions_[members[i]], all);
      EXPECT_LE(worst_error(q, out, row, counts[i], all, all.k.rows(), parameters.meant), 1.0)
          << "session " << i << " of the batch";
    }
    if (shape_.storage == PKV_STORAGE_PAGED && shape_.isa == PKV_ISA_AUTO)
      check_stateless(handles, counts, q, out, parameters);
    commit(batch);
    CHECK(pkv_cache_validate(cache_));
  }

 private:
  // Checks that the positions inside the window hold what was given, rounded to the stored dtype.
  void check_stored(pkv_session session, const KeysValues& all) {
    const size_t length = all.k.rows(),
                 kept = model_.window == 0 ? length : std::min<size_t>(length, model_.window);
    const KeysValues found = materialize(session, 0, model_, length - kept, kept);
    EXPECT_TRUE(found.k == all.k.slice(length - kept, kept));
    EXPECT_TRUE(found.v == all.v.slice(length - kept, kept));
  }

  void check_stateless(const std::vector<pkv_session>& handles, const std::vector<uint32_t>& counts,
                       Rows& q, const Rows& out, const Parameters& parameters) {
    const pkv_kv_view view = kv_view_of(cache_, 0);
    const size_t stride = max_length / shape_.block_size + 2;
    std::vector<uint32_t> tables(handles.size() * stride, PKV_NO_BLOCK);
    std::vector<uint64_t> lengths;
    for (size_t i = 0; i < handles.size(); i++) {
      const std::vector<uint32_t> table = block_table(handles[i]);
      std::copy(table.begin(), table.end(), tables.begin() + static_cast<int64_t>(i * stride));
      lengths.push_back(length_of(handles[i]) + counts[i]);
    }
    auto sequences = sequences_of(model_.query_heads, counts, lengths, tables);
    AttentionParams params = parameters.given;
    params.window = parameters.meant.window;
    Rows again(out.rows(), out.heads(), out.dim(), out.dtype());
    const pkv_tensor queries = q.tensor(), outputs = again.tensor();
    CHECK(pkv_kv_attend(nullptr, &view, &sequences, &params, &queries, &outputs));
    EXPECT_TRUE(out == again) << "the stateless call gives other bits";
  }

  const Shape shape_;
  const Model model_;
  Random& random_;
  Cache cache_;
  std::vector<Session> sessions_;
  std::vector<KeysValues> expected_;
};

class AttentionShapes : public testing::TestWithParam<pkv_isa> {};

TEST_P(AttentionShapes, EqualTheReferenceWithinFp32) {
  const uint64_t seeds = GetParam() == PKV_ISA_AUTO ? 60 : 25;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    Random random(seed * 1000 + GetParam());
    const Shape shape = random_shape(random, GetParam());
    const Model& model = shape.model;
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << ": " << model.query_heads << "/" << model.kv_heads
                 << " heads, dims " << model.key_dim << "/" << model.values() << ", "
                 << name_of(model.dtype) << ", window " << model.window << ", storage "
                 << shape.storage << ", layout " << shape.layout << ", block size "
                 << shape.block_size << ", threads " << shape.threads);
    Trial trial(shape, random);
    for (int i = 0; i < 4; i++) trial.step();
    if (HasFailure()) return;
  }
}

std::vector<pkv_isa> auto_and_supported() {
  std::vector<pkv_isa> isas = supported_isas();
  isas.push_back(PKV_ISA_AUTO);
  return isas;
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionShapes, testing::ValuesIn(auto_and_supported()),
                         [](const auto& test) { return pkv_isa_name(test.param); });

}  // namespace
}  // namespace cache_test::attention_test
