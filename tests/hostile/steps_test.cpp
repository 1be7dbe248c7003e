// Getters while a step is in flight, buffers that are too small, and rows at odd addresses.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstring>
#include <thread>

#include "world.h"

namespace hostile::steps_test {
namespace {

#define IN_CHILD(...) EXPECT_EQ(in_child([&] __VA_ARGS__), "")

TEST(Steps, GettersSeeTheStepInFlight) {
  IN_CHILD({
    World world;
    HOSTILE_CHECK(length_of(world.stepping) == 5, "the length counts what is committed");
    size_t count = 0;
    std::vector<uint32_t> slots(8), indptr(2);
    const auto indices = [&](size_t capacity) {
      return pkv_batch_get_kv_indices(world.batch, 0, PKV_INDEX_SLOTS, indptr.data(), capacity,
                                      slots.data(), &count, nullptr);
    };
    WANT(PKV_BUFFER_TOO_SMALL, indices(7));
    HOSTILE_CHECK(count == 8, "%zu indices are needed", count);
    OK(indices(count));
    std::vector<float> k(3 * kv_floats);
    const pkv_tensor rows = tensor(k.data());
    OK(pkv_session_read(world.stepping, 1, 5, 3, &rows, nullptr));
    HOSTILE_CHECK(k == numbers(3 * kv_floats, 4), "the rows in flight are not what was written");
    WANT(PKV_OUT_OF_RANGE, pkv_session_read(world.stepping, 1, 5, 4, &rows, nullptr));
    OK(pkv_batch_commit(world.batch, 0, nullptr));
    HOSTILE_CHECK(length_of(world.stepping) == 8, "after the commit");
    WANT(PKV_STALE_HANDLE, pkv_batch_commit(world.batch, 0, nullptr));
    WANT(PKV_STALE_HANDLE, pkv_batch_abort(world.batch));
    world.close();
  });
}

// A thread that began a step may end in the middle of it. Handles belong to no thread, so another
// one continues.
TEST(Steps, AThreadThatDiesLeavesItsStepToOthers) {
#ifdef _WIN32
  GTEST_SKIP() << "pthread_exit() destroys no variables there";
#endif
  const auto leave_a_step = [] {
    World world;
    pkv_batch batch = nullptr;
    std::thread([&] {
      const uint32_t two = 2;
      OK(pkv_batch_begin(world.cache, 1, &world.session, &two, &batch));
      const std::vector<float> data = numbers(2 * kv_floats, 6);
      const pkv_tensor row = tensor(data.data());
      OK(pkv_batch_write(batch, 0, &row, &row));
      // This leaves an error sentence in this thread.
      WANT(PKV_BUSY, pkv_session_trim(world.session, 0));
      pthread_exit(nullptr);
    }).join();
    const std::vector<float> data = numbers(2 * kv_floats, 7);
    const pkv_tensor row = tensor(data.data());
    OK(pkv_batch_write(batch, 1, &row, &row));
    OK(pkv_batch_commit(batch, 0, nullptr));
    HOSTILE_CHECK(length_of(world.session) == 22, "the step that a dead thread began is committed");
    world.validate();
    world.close();
  };
  IN_CHILD({
    warm_up();
    leave_a_step();
    const int64_t news = live_news();
    leave_a_step();
    HOSTILE_CHECK(live_news() == news, "%lld blocks of operator new leaked",
                  static_cast<long long>(live_news() - news));
  });
}

// The count that a refused call reports is the one with which it succeeds. It writes nothing else.
TEST(Steps, SmallBuffersTellWhatTheyNeed) {
  using Fill = std::function<pkv_status(size_t, int64_t*, size_t*)>;
  IN_CHILD({
    World world;
    uint32_t indptr[2];
    std::memset(indptr, 0xA5, sizeof indptr);
    const uint32_t untouched = indptr[0];
    uint32_t last = 77;
    const std::vector<std::pair<Fill, size_t>> getters = {
        {[&](size_t n, int64_t* to, size_t* count) {
           return pkv_session_get_block_table(world.session, 0, n, reinterpret_cast<uint32_t*>(to),
                                              count);
         },
         2},
        {[&](size_t n, int64_t* to, size_t* count) {
           return pkv_batch_get_slot_mapping(world.batch, 0, n, to, count);
         },
         3},
        {[&](size_t n, int64_t* to, size_t* count) {
           return pkv_batch_get_kv_indices(world.batch, 0, PKV_INDEX_SLOTS, indptr, n,
                                           reinterpret_cast<uint32_t*>(to), count, &last);
         },
         8}};
    for (size_t i = 0; i < getters.size(); i++) {
      const auto& [fill, needed] = getters[i];
      for (const size_t room : {size_t{0}, needed - 1}) {
        std::vector<int64_t> list(64, -7);
        size_t count = 99;
        indptr[0] = untouched;
        WANT(PKV_BUFFER_TOO_SMALL, fill(room, room == 0 ? nullptr : list.data(), &count));
        HOSTILE_CHECK(count == needed, "getter %zu tells %zu, not %zu", i, count, needed);
        HOSTILE_CHECK(list == std::vector<int64_t>(64, -7) && indptr[0] == untouched && last == 77,
                      "getter %zu wrote", i);
        OK(fill(count, list.data(), &count));
        HOSTILE_CHECK(count == needed && list[needed] == -7, "getter %zu wrote too much", i);
        last = 77;
      }
    }
    world.close();
  });
}

// Rows that begin at any byte give the same bits as aligned rows.
TEST(Steps, OddAddressesWork) {
  IN_CHILD({
    World world;
    const std::vector<float> data = numbers(3 * q_floats, 11);
    std::vector<float> expected(3 * q_floats);
    const pkv_tensor q = tensor(data.data()), out = tensor(expected.data());
    OK(pkv_batch_attend(world.batch, 0, nullptr, &q, &out, nullptr));
    for (size_t shift = 1; shift < 8; shift++) {
      std::vector<unsigned char> from(data.size() * 4 + shift), to(from.size());
      std::memcpy(from.data() + shift, data.data(), data.size() * 4);
      const pkv_tensor odd_q = tensor(from.data() + shift), odd_out = tensor(to.data() + shift);
      OK(pkv_batch_attend(world.batch, 0, nullptr, &odd_q, &odd_out, nullptr));
      HOSTILE_CHECK(std::memcmp(to.data() + shift, expected.data(), data.size() * 4) == 0,
                    "%zu bytes off", shift);
    }
    world.close();
  });
}

}  // namespace
}  // namespace hostile::steps_test
