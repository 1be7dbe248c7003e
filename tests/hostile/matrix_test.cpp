// Calls every function of the C interface with every class of misuse. Each cell begins with a World
// of its own, and cells run in forked children, so a crash or a hang is a failed cell. After an
// error nothing may have changed, and at the end nothing may have leaked.
#include "matrix.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hostile::matrix_test {
namespace {

// Provokes a sentence that no later call will have.
std::string provoke_sentence(const Function& function) {
  function.library->fail();
  return function.library->last_error();
}

void check_answer(const Function& function, pkv_status got, const Wanted& wanted,
                  const std::string& before) {
  const std::string after = function.library->last_error();
  HOSTILE_CHECK(std::find(wanted.begin(), wanted.end(), got) != wanted.end(),
                "it gave %s, not %s; last error: \"%s\"", pkv_status_name(got),
                pkv_status_name(wanted.front()), after.c_str());
  if (got == PKV_OK) {
    HOSTILE_CHECK(after == before, "a call that worked changed the last error to \"%s\"",
                  after.c_str());
    return;
  }
  HOSTILE_CHECK(after != before && sentence_tells(after), "%s left the sentence \"%s\"",
                function.name.c_str(), after.c_str());
}

// Makes one call in a World that `prepare` has prepared, checks it, and closes everything.
void run_cell(const Function& function, const std::function<void(World&, Values&)>& prepare,
              const Wanted& wanted, const std::function<void(const Values&)>& after = {}) {
  warm_up();
  const int64_t news = live_news();
  {
    World world;
    Values values = valid_values(function, world);
    prepare(world, values);
    world.remember();
    const std::string before = provoke_sentence(function);
    const pkv_status got = function.call(values);
    check_answer(function, got, wanted, before);
    if (got != PKV_OK) {
      world.check_memory();
      world.check_state();
    } else {
      if (after) after(values);
      if (function.undo) function.undo(world, values);
    }
    world.validate();
    world.close();
  }
  HOSTILE_CHECK(live_news() == news, "%lld blocks of operator new leaked",
                static_cast<long long>(live_news() - news));
}

class Matrix : public testing::TestWithParam<const Function*> {
 protected:
  const Function& tested() const { return *GetParam(); }
  // Adds a cell; cells run when all are added.
  void cell(const std::string& name, std::function<void()> body) {
    names_.push_back(name);
    bodies_.push_back(std::move(body));
  }
  void TearDown() override {
    const std::vector<std::string> failed = in_children(bodies_);
    for (size_t i = 0; i < failed.size(); i++)
      if (!failed[i].empty())
        ADD_FAILURE() << tested().name << ", " << names_[i] << ": " << failed[i];
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::function<void()>> bodies_;
};

TEST_P(Matrix, Misuse) {
  const Function& function = tested();
  cell("valid", [&function] { run_cell(function, [](World&, Values&) {}, {PKV_OK}); });
  for (size_t i = 0; i < function.args.size(); i++)
    for (const Misuse& misuse : function.args[i].misuses)
      cell("argument " + std::to_string(i) + " " + misuse.name, [&function, &misuse, i] {
        run_cell(
            function, [&](World& world, Values& values) { misuse.apply(world, values[i]); },
            misuse.wanted,
            [&](const Values& values) {
              if (misuse.after) misuse.after(values[i]);
            });
      });
  for (const Case& one : function.cases)
    cell(one.name, [&function, &one] { run_cell(function, one.apply, one.wanted); });
}

// Calls from inside every hook are refused, and the call that runs the hook still works.
TEST_P(Matrix, Reentrant) {
  const Function& function = tested();
  if (!function.tells_status || !function.library->has_hooks || function.works_in_hooks)
    GTEST_SKIP() << "may be called anywhere";
  cell("from inside the hooks", [&function] {
    World world;
    const Values values = valid_values(function, world);
    uint64_t calls = 0, refused = 0;
    std::string sentence;
    const auto inside = [&] {
      calls++;
      refused += function.call(values) == PKV_REENTRANT;
      sentence = pkv_last_error();
    };
    world.remember();
    world.hooks.inside = world.hooks.inside_free = inside;
    pkv_session opened = nullptr;
    OK(pkv_session_open(world.cache, nullptr, &opened));
    OK(pkv_session_reserve(opened, 100));
    OK(pkv_session_close(opened));
    world.hooks.inside = world.hooks.inside_free = nullptr;
    HOSTILE_CHECK(calls > 1 && refused == calls, "%llu of %llu calls were refused",
                  static_cast<unsigned long long>(refused), static_cast<unsigned long long>(calls));
    HOSTILE_CHECK(sentence_tells(sentence), "the sentence is \"%s\"", sentence.c_str());
    world.check_memory();
    world.check_state();
    world.validate();
    world.close();
  });
}

// The function is called in a child of the process that made the handles.
TEST_P(Matrix, Forked) {
  SKIP_WITHOUT_FORK();
  const Function& function = tested();
  cell("after fork()", [&function] {
    warm_up();
    World world;
    const Values values = valid_values(function, world);
    world.remember();
    const std::string in_grandchild = in_child(
        [&] {
          const pkv_status wanted =
              function.takes_handle() && !function.closes ? PKV_WRONG_PROCESS : PKV_OK;
          expect(wanted, function.call(values), function.name.c_str());
          if (wanted != PKV_OK) world.check_memory();
          if (wanted == PKV_OK && function.undo) function.undo(world, values);
          world.close_inherited();
          World fresh;  // The child makes what it needs anew.
          fresh.validate();
          fresh.close();
        },
        20);
    HOSTILE_CHECK(in_grandchild.empty(), "in the child: %s", in_grandchild.c_str());
    world.check_state();
    world.validate();
    OK(pkv_batch_commit(world.batch, 0, nullptr));
    step(world.cache, {world.session, world.stepping}, {4, 1}, 9);
    world.close();
  });
}

// The k-th allocation fails, for every k. The call is refused with everything as before, and works
// afterwards.
void fail_each_allocation(const Function& function, const Place& place, bool hooks) {
  warm_up();
  const int64_t news = live_news();
  {
    World world(place);
    const Values values = valid_values(function, world);
    for (uint64_t k = 1;; k++) {
      HOSTILE_CHECK(k < 1000, "there is no end to the allocations");
      world.remember();
      const std::string before = provoke_sentence(function);
      pkv_status got = PKV_INTERNAL;
      if (!refuse(world, hooks, k, [&] { got = function.call(values); })) {
        if (got == PKV_UNSUPPORTED) break;
        expect(PKV_OK, got, "the call with no allocation refused");
        if (function.undo) function.undo(world, values);
        break;
      }
      check_answer(function, got, {PKV_OUT_OF_MEMORY}, before);
      world.check_memory();
      world.check_state();
      world.validate();
    }
    world.validate();
    world.close();
  }
  HOSTILE_CHECK(live_news() == news, "%lld blocks of operator new leaked",
                static_cast<long long>(live_news() - news));
}

TEST_P(Matrix, NoMemory) {
  const Function& function = tested();
  for (const Place& place : places) {
    if (function.name == "pkv_kv_attend" && place.storage != PKV_STORAGE_INTERNAL)
      continue;  // Its view comes from a cache with storage INTERNAL.
    const std::string name = name_of(place);
    for (const bool hooks : {true, false})
      cell(name + (hooks ? ", allocator hooks" : ", operator new"),
           [&function, &place, hooks] { fail_each_allocation(function, place, hooks); });
  }
}

// The k-th allocation of all threads is refused while the function runs, and while the store's
// threads do what it gave them. Allocations are those of hooks, of operator new, and of threads;
// all after the k-th are refused, too, or only that one. A call may continue without optional
// memory. Otherwise it is refused and has changed nothing.
void refuse_each_everywhere(const Function& function, const Place& place, memory::Source source,
                            bool only_one) {
  warm_up();
  const memory::Exempt exempt;
  const int64_t news = live_news();
  bool struck = true;
  for (int64_t k = 1; struck; k++) {
    HOSTILE_CHECK(k < 1000, "there is no end to the allocations");
    World world(place, 1, true);
    const Values values = valid_values(function, world);
    world.rest();
    world.remember();
    const std::string before = provoke_sentence(function);
    pkv_status got;
    {
      memory::RefusalEverywhere refusal(source, k, only_one);
      memory::exempt = false;
      got = function.call(values);
      memory::exempt = true;
      // Some calls do not work with opaque groups.
      if (got != PKV_OK && got != PKV_UNSUPPORTED)
        check_answer(function, got, {PKV_OUT_OF_MEMORY}, before);
      if (!function.closes) world.rest();
      struck = refusal.struck();
    }
    if (got != PKV_OK) {
      HOSTILE_CHECK(struck || got == PKV_UNSUPPORTED, "it gave %s with no allocation refused",
                    pkv_status_name(got));
      world.check_memory();
      world.check_state();
    } else if (function.undo) {
      function.undo(world, values);
    }
    world.validate();
    world.close();
  }
  HOSTILE_CHECK(live_news() == news, "%lld blocks of operator new leaked",
                static_cast<long long>(live_news() - news));
}

TEST_P(Matrix, NoMemoryAnywhere) {
  const Function& function = tested();
  const std::pair<memory::Source, const char*> sources[] = {
      {memory::Source::hooks, "hooks"},
      {memory::Source::operator_new, "operator new"},
      {memory::Source::threads, "threads"}};
  for (const Place& place : {Place(PKV_STORAGE_INTERNAL), elsewhere}) {
    if (function.name == "pkv_kv_attend" && place.elsewhere) continue;
    for (const bool only_one : {false, true}) {
      if (place.elsewhere && !only_one) continue;  // they are like those of the other place
      for (const auto& [source, name] : sources)
        cell(name_of(place) + ", " + name + (only_one ? ", only one" : ", all from there on"),
             [&function, place, refused = source, only_one] {
               refuse_each_everywhere(function, place, refused, only_one);
             });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, Matrix, testing::ValuesIn(row_pointers()), row_name);

}  // namespace
}  // namespace hostile::matrix_test
