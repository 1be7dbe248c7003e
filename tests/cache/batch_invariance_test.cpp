// The promises of include/guide/same-bits.md: a session that shares no blocks with others gets the
// same bits alone and in any batch, in every kind of memory, and a prompt is stored with the same
// bits whatever its chunks. Other tests show that bits do not depend on threads
// (attention_threads_test.cpp, shared_prefix_test.cpp, runner_test.cpp).
#include "../support/cache.h"
#include "../support/rows.h"
#include "memory_kinds.h"

namespace cache_test::batch_invariance_test {
namespace {

// The length of each session, and its new tokens in the step: the decode of a long text, which is
// cut into several parts; drafts to verify; the decode of a short text; a chunk of a prompt.
struct Turn {
  uint32_t held, added;
};
constexpr Turn turns[] = {{2600, 1}, {300, 3}, {40, 1}, {700, 40}};
constexpr size_t sessions = std::size(turns);

// A cache with these sessions. The rows of a session depend on its number.
class Service {
 public:
  Service(const Model& model, const MemoryKind& kind, pkv_isa isa = PKV_ISA_AUTO,
          uint32_t block_size = 16)
      : model_(model), cache_(create(config(model, kind, isa, block_size))) {
    for (size_t i = 0; i < sessions; i++) {
      Random random(i + 1);
      sessions_.push_back(open(cache_));
      step(cache_, sessions_.back(), model_, turns[i].held, random);
    }
  }

  // Runs one step of some sessions, which is aborted, and returns the outputs of each.
  std::vector<Rows> outputs(const std::vector<size_t>& members) {
    const pkv_dtype dtype = rows_dtype(model_.dtype);
    std::vector<pkv_session> handles;
    std::vector<uint32_t> counts;
    KeysValues rows = rows_of(model_, 0);
    Rows q(0, model_.query_heads, model_.key_dim, dtype);
    for (const size_t i : members) {
      handles.push_back(sessions_[i]);
      counts.push_back(turns[i].added);
      Random random(i + 100);
      KeysValues more = rows_of(model_, turns[i].added);
      rows.k.append(more.k.fill(random));
      rows.v.append(more.v.fill(random));
      q.append(Rows(turns[i].added, model_.query_heads, model_.key_dim, dtype).fill(random));
    }
    Batch batch = begin(cache_, handles, counts);
    write(batch, 0, model_, rows);
    Rows out(q.rows(), model_.query_heads, model_.values(), dtype);
    attend(batch, 0, q, out);
    std::vector<Rows> found;
    size_t first = 0;
    for (const uint32_t count : counts) {
      found.push_back(out.slice(first, count));
      first += count;
    }
    return found;
  }

 private:
  static ModelConfig config(const Model& model, const MemoryKind& kind, pkv_isa isa,
                            uint32_t block_size) {
    ModelConfig config = config_of(model, 4000 / block_size + sessions);
    config.layout = kind.layout;
    config.memory_directory = kind.directory;
    config.block_size = block_size;
    config.isa = isa;
    return config;
  }

  Model model_;
  Cache cache_;
  std::vector<Session> sessions_;
};

Model model_of(pkv_dtype dtype) { return {1, 8, 2, 64, 0, dtype}; }

class BatchInvariance : public testing::TestWithParam<MemoryKind> {};

void expect_the_bits_of_alone(Service& service) {
  std::vector<Rows> alone;
  for (size_t i = 0; i < sessions; i++) alone.push_back(service.outputs({i})[0]);
  for (const std::vector<size_t>& members :
       {std::vector<size_t>{0, 1, 2, 3}, {3, 0}, {2, 1, 0}, {1, 3, 2}}) {
    const std::vector<Rows> together = service.outputs(members);
    for (size_t i = 0; i < members.size(); i++)
      EXPECT_TRUE(together[i] == alone[members[i]])
          << "session " << members[i] << " in a batch of " << members.size();
  }
}

TEST_P(BatchInvariance, ASessionGetsTheBitsItGetsAlone) {
  for (const pkv_dtype dtype : stored_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    Service service(model_of(dtype), GetParam());
    expect_the_bits_of_alone(service);
  }
}

TEST_P(BatchInvariance, ASessionGetsTheBitsItGetsAloneOnEveryInstructionSet) {
  for (const pkv_isa isa : supported_isas()) {
    // The scalar kernels would take most of the time.
    if (isa == PKV_ISA_SCALAR &&
        (GetParam().layout == PKV_LAYOUT_PLAIN || GetParam().directory != nullptr))
      continue;
    SCOPED_TRACE(pkv_isa_name(isa));
    Service service(model_of(PKV_BF16), GetParam(), isa);
    expect_the_bits_of_alone(service);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BatchInvariance, testing::ValuesIn(memory_kinds), kind_name);

TEST(SameBits, EveryKindOfMemoryGivesTheSame) {
  for (const pkv_dtype dtype : stored_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    for (const MemoryKind& kind : memory_kinds) {
      // Plain rows of some dtypes are multiplied where they are, in another order.
      const bool in_place = kind.layout == PKV_LAYOUT_PLAIN && dtype <= PKV_INT8;
      const std::vector<Rows> expected =
          Service(model_of(dtype), in_place ? kind : memory_kinds[0]).outputs({0, 1, 2, 3});
      for (const uint32_t block_size : {16u, 64u})
        EXPECT_TRUE(expected ==
                    Service(model_of(dtype), kind, PKV_ISA_AUTO, block_size).outputs({0, 1, 2, 3}))
            << kind.name << ", blocks of " << block_size;
    }
  }
}

TEST(SameBits, APromptInChunksIsStoredAsTheWholeIs) {
  constexpr uint32_t tokens = 300;
  for (const pkv_dtype dtype : stored_dtypes) {
    const Model model = model_of(dtype);
    Cache cache = create(config_of(model, 100));
    Random random(1);
    Session whole = open(cache), chunked = open(cache);
    KeysValues rows = step(cache, whole, model, tokens, random)[0];
    uint32_t first = 0;
    for (const uint32_t chunk : {1u, 15u, 16u, 100u, 168u}) {
      KeysValues some{rows.k.slice(first, chunk), rows.v.slice(first, chunk)};
      Batch batch = begin(cache, {chunked}, {chunk});
      write(batch, 0, model, some);
      commit(batch);
      first += chunk;
    }
    ASSERT_EQ(tokens, first);
    EXPECT_TRUE(materialize(whole, 0, model, 0, tokens) ==
                materialize(chunked, 0, model, 0, tokens))
        << name_of(dtype);
  }
}

}  // namespace
}  // namespace cache_test::batch_invariance_test
