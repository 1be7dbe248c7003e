// Calls that read a session, a snapshot or a cache in one thread, beside calls on a batch that has
// the session in another one. A getter, and a call that is refused anyway, never makes a call on
// the batch return BUSY. The pairs are those of the matrix: each function with each misuse of its
// arguments, beside all functions of batches.
//
// `PKV_ROUNDS=1000 build/tests/hostile/test_hostile readers` repeats each pair more often.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "../support/rounds.h"
#include "matrix.h"

namespace hostile::readers_test {
namespace {

using Prepare = std::function<void(World&, Values&)>;

bool is_one_of(const std::vector<std::string>& names, const Function& function) {
  return std::find(names.begin(), names.end(), function.name) != names.end();
}

bool is_getter(const Function& function) {
  return function.name.find("_get_") != std::string::npos || function.name == "pkv_hint_session";
}

// Calls on a session in a batch may be refused while one of these works.
bool reads_for_long(const Function& function) {
  return is_one_of({"pkv_session_read", "pkv_cache_validate"}, function);
}

// These change a session that is in no batch, and of two calls that change one, one is refused.
bool changes_session(const Function& function) {
  return is_one_of(
      {"pkv_session_close", "pkv_session_reserve", "pkv_session_trim", "pkv_session_drop_blocks",
       "pkv_session_suspend", "pkv_session_resume", "pkv_session_set_tokens",
       "pkv_session_set_priority", "pkv_batch_begin", "pkv_batch_choose_victims"},
      function);
}

struct Call {
  const Function* function;
  Values values;
  pkv_status in_batch = PKV_OK;  // what it returns while the session is in a batch

  pkv_status operator()() const { return function->call(values); }
};

// Repeats calls in another thread as long as it lives.
class Repeated {
 public:
  explicit Repeated(const std::vector<Call>& calls)
      : thread_([this, &calls] {
          for (; !ends_; passes_++)
            for (const Call& call : calls) call();
        }) {}
  ~Repeated() {
    ends_ = true;
    thread_.join();
  }
  // How often all of them were made.
  uint64_t passes() const { return passes_; }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<uint64_t> passes_{0};
  std::thread thread_;
};

// A world whose session is in its batch, and the calls that read it.
class Pairs {
 public:
  Pairs(const Function& function, const Place& place) : function_(function), world_(place) {
    std::swap(world_.session, world_.stepping);
    for (const Function& row : all_rows())
      if (row.takes(Handle::batch) &&
          !is_one_of({"pkv_batch_accept", "pkv_batch_commit", "pkv_batch_abort"}, row)) {
        steps_.push_back({&row, valid_values(row, world_)});
        set_batch(steps_.back().values, world_.recurring, world_.batch);
        if (row.name != "pkv_batch_write") continue;
        steps_.push_back(steps_.back());
        steps_.back().values[1] = 0;  // the other layer
      }
  }

  void add(const Prepare& prepare) {
    Call call{&function_, valid_values(function_, world_)};
    prepare(world_, call.values);
    call.in_batch = call();
    if (call.in_batch != PKV_OK || !reads_for_long(function_)) calls_.push_back(call);
  }

  void run() {
    if (calls_.empty()) return;
    run_in_batch();
    OK(pkv_session_trim(world_.session, tokens));
    select_for_all_states();
    if (!calls_.empty()) run_around_batches();
    world_.validate();
    world_.close();
  }

 private:
  static constexpr uint32_t tokens = 5, new_tokens = 3;  // of the session in the batch

  static void set_batch(Values& values, pkv_batch from, pkv_batch to) {
    std::replace(values.begin(), values.end(), bits(from), bits(to));
  }

  // The batch ends after all calls, of which some would change a session that is in no batch.
  void run_in_batch() {
    {
      const Repeated repeated(calls_);
      for (uint64_t i = 0; i < rounds_ || repeated.passes() * calls_.size() < enough_; i++) step();
    }
    const uint32_t first = 0;
    OK(pkv_batch_accept(world_.batch, 0, 1, &first));
    OK(pkv_batch_commit(world_.batch, 0, nullptr));
  }

  // Keeps the calls that are refused in a batch and outside of one, and those of getters.
  void select_for_all_states() {
    std::erase_if(calls_, [&](const Call& call) {
      if (changes_session(function_)) return true;
      const pkv_status now = call();
      // Only a save of sessions that cannot change finds out that its file is too large, or that it
      // cannot be written.
      return !is_getter(function_) && (call.in_batch == PKV_OK || now == PKV_OK ||
                                       now == PKV_BUFFER_TOO_SMALL || now == PKV_IO);
    });
  }

  // The session is in one batch after another.
  void run_around_batches() {
    const Repeated repeated(calls_);
    for (uint64_t i = 0; i < rounds_ || repeated.passes() * calls_.size() < enough_; i++) {
      const pkv_batch before = world_.batch;
      OK(pkv_batch_begin(world_.cache, 1, &world_.session, &new_tokens, &world_.batch));
      for (Call& call : steps_) set_batch(call.values, before, world_.batch);
      step();
      if (i % 2 == 0) {
        OK(pkv_batch_commit(world_.batch, 0, nullptr));
        OK(pkv_session_trim(world_.session, tokens));
      } else {
        OK(pkv_batch_abort(world_.batch));
      }
    }
  }

  void step() const {
    for (const Call& call : steps_)
      HOSTILE_CHECK(call() != PKV_BUSY, "%s was refused: %s", call.function->name.c_str(),
                    pkv_last_error());
  }

  const uint64_t rounds_ = pkv::test::number_in("PKV_ROUNDS", 5);
  const uint64_t enough_ = 20 * rounds_;  // calls that read
  const Function& function_;
  World world_;
  std::vector<Call> steps_;
  std::vector<Call> calls_;
};

class Readers : public testing::TestWithParam<const Function*> {};

TEST_P(Readers, WhoAreRefusedRefuseNoBatch) {
  const Function& function = *GetParam();
  std::vector<std::function<void()>> bodies;
  for (const Place& place : {Place(PKV_STORAGE_INTERNAL), Place(PKV_STORAGE_EXTERNAL)})
    bodies.push_back([&function, place] {
      Pairs pairs(function, place);
      if (function.name != "pkv_cache_destroy") pairs.add([](World&, Values&) {});
      for (size_t i = 0; i < function.args.size(); i++)
        for (const Misuse& misuse : function.args[i].misuses)
          pairs.add([&](World& world, Values& values) { misuse.apply(world, values[i]); });
      pairs.run();
    });
  for (const Case& one : function.cases)
    bodies.push_back([&function, &one] {
      Pairs pairs(function, PKV_STORAGE_INTERNAL);
      try {
        pairs.add(one.apply);
      } catch (const Failure&) {
        return;  // it needs a session that is in no batch
      }
      pairs.run();
    });
  for (const std::string& failed : in_children(bodies)) EXPECT_EQ("", failed);
}

std::vector<const Function*> reading_rows() {
  std::vector<const Function*> rows;
  for (const Function* row : row_pointers())
    if ((row->takes(Handle::session) || row->takes(Handle::cache) ||
         row->takes(Handle::snapshot)) &&
        // The arguments of these are made from a session that is in no batch.
        !is_one_of({"pkv_session_admit", "pkv_file_load"}, *row))
      rows.push_back(row);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Row, Readers, testing::ValuesIn(reading_rows()), row_name);

}  // namespace
}  // namespace hostile::readers_test
