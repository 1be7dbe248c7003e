// Hosts may change the floating-point environment of threads. That changes no bit of a result, on
// any thread, and a call leaves the environment unchanged.
#include <fenv.h>

#include <cmath>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "host.h"
#include "runner.h"

namespace cache_test::float_environment_test {
namespace {

struct Environment {
  const char* name;
  void (*enter)();
};

const Environment environments[] = {
    {"default", [] {}},
    {"upward", [] { fesetround(FE_UPWARD); }},
    {"toward zero", [] { fesetround(FE_TOWARDZERO); }},
#if defined(__x86_64__)
    {"subnormal numbers are 0", [] { _mm_setcsr(_mm_getcsr() | 0x8040); }},
#ifdef _WIN32
    {"traps", [] { _mm_setcsr(_mm_getcsr() & ~0xE80u); }},
#else
    {"traps", [] { feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW); }},
#endif
#endif
};

// The environment except for the raised exceptions.
unsigned control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3Fu;
#else
  return static_cast<unsigned>(fegetround());
#endif
}

// Writes rows of a prompt and attends to them. Many numbers are subnormal.
class Step {
 public:
  explicit Step(const Model& model) : model_(model), memory_(model, PKV_LAYOUT_PACKED, 16, 80) {
    written_.k.fill(random_);
    written_.v.fill(random_, 1e-38f);
    q_.fill(random_);
  }

  Rows run(pkv_compute compute) {
    const pkv_kv_sequences sequences = host_.get();
    const pkv_tensor k = written_.k.tensor(), v = written_.v.tensor(), q = q_.tensor();
    CHECK(pkv_kv_write(compute, &memory_.view, &sequences, &k, &v));
    Rows outs[] = {Rows(rows, 8, model_.key_dim), Rows(rows, 8, model_.key_dim)};
    std::vector<float> lse(rows * 8);
    AttentionParams params;
    params.outputs.lse = lse.data();
    for (Rows& out : outs) {
      const pkv_tensor to = out.tensor();
      CHECK(pkv_kv_attend(compute, &memory_.view, &sequences, &params, &q, &to, &params.outputs));
      params.window = 30;
    }
    Rows merged(rows, 8, model_.key_dim);
    const pkv_tensor tensors[] = {outs[0].tensor(), outs[1].tensor()}, to = merged.tensor();
    const float* const lses[] = {lse.data(), lse.data()};
    CHECK(pkv_attention_merge(compute, 2, tensors, lses, rows, 8, model_.key_dim, &to, nullptr));
    merged.append(outs[0]);
    return merged;
  }

 private:
  static constexpr uint32_t rows = 102;
  const Model model_;
  Random random_{1};
  HostMemory memory_;
  HostSequences host_{memory_, 8, {60, 1, 40, 1}, {100, 500, 40, 200}, random_};
  KeysValues written_ = rows_of(model_, rows);
  Rows q_{rows, 8, model_.key_dim};
};

// Runs `call` on a thread of its own in an environment.
template <class Call>
void run_in(const Environment& environment, const Call& call) {
  std::thread([&] {
    environment.enter();
    const unsigned before = control();
    call();
    EXPECT_EQ(before, control()) << environment.name;
    EXPECT_EQ(0, fesetenv(FE_DFL_ENV));
  }).join();
}

class FloatEnvironment : public testing::TestWithParam<pkv_dtype> {
 protected:
  const Model model{1, 8, 4, 96, 0, GetParam()};
};

TEST_P(FloatEnvironment, OfCallersChangesNothing) {
  const Rows expected = Step(model).run(make_compute(1));
  for (const Environment& environment : environments)
    for (const uint32_t threads : {1u, 3u})
      for (const bool made_there : {false, true}) {
        SCOPED_TRACE(testing::Message() << environment.name << ", " << threads << " threads");
        Compute compute;
        if (!made_there) compute = make_compute(threads);
        Step step(model);
        Rows found;
        run_in(environment, [&] {
          if (made_there) compute = make_compute(threads);
          found = step.run(compute);
        });
        EXPECT_TRUE(expected == found);
        EXPECT_TRUE(expected == Step(model).run(compute)) << "from another thread";
      }
}

TEST_P(FloatEnvironment, OfARunnersThreadsChangesNothing) {
  const Rows expected = Step(model).run(make_compute(1));
  for (const Environment& environment : environments) {
    SCOPED_TRACE(environment.name);
    Spread spread = [&](size_t n, Task task, void* context) {
      for (size_t i = 0; i < n; i++) run_in(environment, [&] { task(context, i, i % 2); });
    };
    const pkv_runner runner = runner_of(spread, 2);
    auto config = made<pkv_compute_config>({.runner = &runner});
    EXPECT_TRUE(expected == Step(model).run(make_compute(config)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FloatEnvironment, testing::Values(PKV_F32, PKV_BF16, PKV_INT8),
                         [](const auto& dtype) { return name_of(dtype.param); });

}  // namespace
}  // namespace cache_test::float_environment_test
