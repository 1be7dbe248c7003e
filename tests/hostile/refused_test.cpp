// Memory is refused in long sequences of calls on a cache with a prefix index and a store. So the
// tests also reach the work that a call leaves to the store's threads, to the index or to a later
// call.
#include <gtest/gtest.h>

#include <cstring>

#include "../support/hints.h"
#include "../support/sanitizers.h"
#include "world.h"

namespace hostile::refused_test {
namespace {

using memory::Source;

// A story is a sequence of calls, each of which may be refused memory.
class Story {
 public:
  explicit Story(const Place& place) : world(place, 2, true) {}
  virtual ~Story() = default;
  virtual void tell() = 0;

  void run(Source source, int64_t k, bool only_one, bool& struck) {
    {
      memory::RefusalEverywhere refusal(source, k, only_one);
      tell();
      world.rest();
      struck = refusal.struck();
    }
    world.validate();
    check_usable();
    world.close();
  }

  World world;

 protected:
  // Makes a call of the library; any of its allocations can be refused.
  pkv_status call(const std::function<pkv_status()>& what) {
    memory::exempt = false;
    const pkv_status status = what();
    memory::exempt = true;
    // An object that an earlier call was to open does not exist.
    const pkv_status expected[] = {
        PKV_OK,         PKV_OUT_OF_MEMORY, PKV_OUT_OF_BLOCKS, PKV_INVALID_ARGUMENT,
        PKV_INCOMPLETE, PKV_SUSPENDED,     PKV_OUT_OF_RANGE};
    HOSTILE_CHECK(std::find(std::begin(expected), std::end(expected), status) != std::end(expected),
                  "%s: %s", pkv_status_name(status), pkv_last_error());
    return status;
  }

  pkv_session open(const char* salt = "") {
    auto config = made<pkv_session_config>({.salt = salt, .salt_size = std::strlen(salt)});
    pkv_session session = nullptr;
    call([&] { return pkv_session_open(world.cache, &config, &session); });
    return session;
  }

  // Runs a step of n tokens, as far as memory allows.
  void grow(pkv_session session, uint32_t n, int32_t token) {
    const std::vector<float> data = numbers(n * q_floats, 3);
    const std::vector<int32_t> tokens(n, token);
    std::vector<float> outputs(data.size());
    const pkv_tensor in = tensor(data.data()), out = tensor(outputs.data());
    pkv_batch batch = nullptr;
    if (session == nullptr ||
        call([&] { return pkv_batch_begin(world.cache, 1, &session, &n, &batch); }) != PKV_OK)
      return;
    for (uint32_t layer = 0; layer < layers; layer++) {
      call([&] { return pkv_batch_write(batch, layer, &in, &in); });
      call([&] { return pkv_batch_attend(batch, layer, nullptr, &in, &out, nullptr); });
    }
    if (call([&] { return pkv_batch_commit(batch, n, tokens.data()); }) != PKV_OK)
      call([&] { return pkv_batch_abort(batch); });
  }

 private:
  void check_usable() {
    pkv_session session = nullptr;
    OK(pkv_session_open(world.cache, nullptr, &session));
    step(world.cache, {session}, {20}, 5);
    OK(pkv_session_close(session));
  }
};

// Texts are matched, from memory and from the store. They grow, end, are forked, saved, suspended
// and resumed.
class Life : public Story {
 public:
  using Story::Story;

 private:
  void tell() override {
    const std::vector<int32_t> text(40, 1);
    uint64_t number = 0, total = 0;
    pkv_session session = open(), other = open("a"), child = nullptr;
    if (session != nullptr)
      call([&] { return pkv_session_admit(session, text.size(), text.data(), 0, &number); });
    if (other != nullptr)
      call([&] { return pkv_session_admit(other, 33, text.data(), 0, &number); });
    grow(session, 20, 2);
    grow(other, 30, 3);
    if (session != nullptr) {
      call([&] { return pkv_session_fork(session, &child); });
      call([&] { return pkv_session_suspend(session); });
    }
    grow(child, 17, 4);
    for (int action = PKV_HINT_SET_RETENTION; action <= PKV_HINT_DROP; action++) {
      if (action == PKV_HINT_EXPECT_RETURN) continue;
      const pkv_hint hint =
          cache_test::hint_of(static_cast<pkv_hint_action>(action),
                              {.first = 5, .retention = PKV_RETENTION_HIGH, .duration_ms = 1000});
      call([&] { return pkv_hint_prompt(world.cache, TextArg(text, "p"), &hint, nullptr); });
    }
    if (session != nullptr) call([&] { return pkv_session_resume(session, &number, &total); });
    std::vector<unsigned char> bytes(1 << 17);
    auto stream = buffer_stream(bytes.data(), bytes.size());
    auto config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
    const pkv_file_item item{child, nullptr, 1};
    uint64_t size = 0;
    pkv_session loaded = nullptr;
    size_t count = 0;
    if (child != nullptr && call([&] {
                              return pkv_file_save(world.cache, 1, &item, &config, &stream, &size);
                            }) == PKV_OK) {
      stream.size = size;
      call([&] {
        return pkv_file_load(world.cache, &config, &stream, 1, &loaded, nullptr, &count);
      });
    }
    for (const pkv_session each : {session, other, child, loaded})
      OK(call([&] { return pkv_session_close(each); }));
  }
};

// A session ends with ranges that begin and end within what it leaves behind, some for a time,
// and with a part to drop. Without memory they begin or end elsewhere, but they end in time.
class Ranges : public Story {
 public:
  using Story::Story;

 private:
  void tell() override {
    const pkv_session session = open();
    grow(session, 6 * block_size, 7);
    if (session != nullptr) {
      hint(session, {.action = PKV_HINT_SET_RETENTION,
                     .first = block_size,
                     .end = 3 * block_size,
                     .retention = PKV_RETENTION_LOW});
      hint(session, {.action = PKV_HINT_SET_RETENTION,
                     .first = 2 * block_size,
                     .end = 4 * block_size,
                     .retention = PKV_RETENTION_HIGH,
                     .duration_ms = 1000});
      hint(session, {.action = PKV_HINT_PIN, .end = 2 * block_size, .duration_ms = 1000});
      hint(session, {.action = PKV_HINT_DEMOTE, .first = 4 * block_size, .end = PKV_TO_END});
      hint(session, {.action = PKV_HINT_DROP, .first = 5 * block_size, .end = PKV_TO_END});
    }
    OK(call([&] { return pkv_session_close(session); }));
    world.rest();
    world.validate();
    world.clock.end();
    auto stats = made<pkv_prefix_stats>();
    OK(pkv_prefix_get_stats(world.cache, nullptr, PKV_ALL_SALTS, &stats));
    HOSTILE_CHECK(stats.pinned_tokens == 0, "a pin did not end");
  }
  void hint(pkv_session session, pkv_hint given) {
    given.struct_size = sizeof given;
    call([&] { return pkv_hint_session(session, &given, nullptr); });
  }
};

// A store is blocked while content waits for it, and steps need the blocks of that content. Then
// the content is dropped.
class Shortage : public Story {
 public:
  using Story::Story;

 private:
  void tell() override {
    world.items.hold();
    for (int32_t i = 0; i < 4; i++) {
      const pkv_session session = open();
      grow(session, 120, 10 + i);
      OK(call([&] { return pkv_session_close(session); }));
    }
    // The first one is in progress in the store, and the others wait.
    const pkv_session greedy = open();
    if (greedy != nullptr) call([&] { return pkv_session_reserve(greedy, 50 * block_size); });
    world.items.go_on();
    OK(call([&] { return pkv_session_close(greedy); }));
  }
};

template <class Told>
void refuse_each(const Place& place, Source source, bool only_one) {
  memory::exempt = true;
  warm_up();
  bool struck = true;
  // In a file, and under a sanitizer, each third one: they are much the same.
  const int64_t step = pkv::test::sanitized || place.directory != nullptr ? 3 : 1;
  for (int64_t k = 1; struck; k += step) {
    HOSTILE_CHECK(k < 3000, "there is no end to the allocations");
    Told(place).run(source, k, only_one, struck);
  }
}

template <class Told>
void refuse_all(const Place& place) {
  for (const bool only_one : {false, true})
    for (const Source source : {Source::hooks, Source::operator_new, Source::threads})
      EXPECT_EQ(in_child([&] { refuse_each<Told>(place, source, only_one); }, 120), "")
          << name_of(place) << ", source " << static_cast<int>(source)
          << (only_one ? ", only one" : ", all from there on");
}

TEST(Refused, Life) { refuse_all<Life>(PKV_STORAGE_INTERNAL); }

TEST(Refused, LifeInAFile) { refuse_all<Life>(in_file); }

TEST(Refused, Ranges) { refuse_all<Ranges>(PKV_STORAGE_INTERNAL); }

TEST(Refused, Shortage) { refuse_all<Shortage>(PKV_STORAGE_INTERNAL); }

TEST(Refused, ShortageInAFile) { refuse_all<Shortage>(in_file); }

// Content that waits for the writer is dropped without allocating memory.
TEST(Refused, TheTierGivesWayWithoutMemory) {
  EXPECT_EQ(in_child([] {
              const memory::Exempt exempt;
              warm_up();
              World world(PKV_STORAGE_INTERNAL, 1, true);
              world.items.hold();
              const std::vector<int32_t> text(120, 5);
              for (int i = 0; i < 4; i++) {
                pkv_session session = nullptr;
                OK(pkv_session_open(world.cache, nullptr, &session));
                step(world.cache, {session}, {120}, 7);
                std::vector<int32_t> own(text);
                own[0] = i;
                OK(pkv_session_set_tokens(session, 0, own.size(), own.data()));
                OK(pkv_session_close(session));
              }
              // The table has room, so that the call that needs the blocks takes little memory of
              // its own.
              pkv_session greedy = nullptr;
              OK(pkv_session_open(world.cache, nullptr, &greedy));
              OK(pkv_session_reserve(greedy, 16));
              uint64_t answers = 0;
              for (int64_t k = 1;; k++) {
                memory::RefusalEverywhere refusal(Source::operator_new, k, false);
                memory::exempt = false;
                const pkv_status status = pkv_session_reserve(greedy, 50 * block_size);
                memory::exempt = true;
                answers++;
                if (!refusal.struck()) {
                  expect(PKV_OK, status, "a reserve that the store gives way to");
                  break;
                }
                HOSTILE_CHECK(status == PKV_OUT_OF_MEMORY || status == PKV_OK, "%s",
                              pkv_status_name(status));
                if (status == PKV_OK) break;
              }
              HOSTILE_CHECK(answers > 1, "no allocation was refused");
              world.items.go_on();
              world.rest();
              OK(pkv_session_close(greedy));
              world.rest();
              world.validate();
              world.close();
            }),
            "");
}

}  // namespace
}  // namespace hostile::refused_test
