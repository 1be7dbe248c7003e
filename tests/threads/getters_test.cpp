// Threads get the properties of sessions and batches, and choose victims, while another thread
// steps over the same sessions. Getters may be refused, but the thread that steps never is.
#include <gtest/gtest.h>

#include "storm.h"

namespace hostile::getters_test {
namespace {

// Steps over all sessions but the last, which belongs to the list of choose().
void step(pkv_cache cache, const std::vector<pkv_session>& sessions,
          std::atomic<pkv_batch>& shown) {
  const std::vector<uint32_t> ones(sessions.size() - 1, 1);
  const std::vector<float> rows(ones.size() * kv_floats, 1.0f);
  const pkv_tensor kv = tensor(rows.data());
  pkv_batch batch = nullptr;
  OK(pkv_batch_begin(cache, ones.size(), sessions.data(), ones.data(), &batch));
  shown = batch;
  for (uint32_t layer = 0; layer < layers; layer++) OK(pkv_batch_write(batch, layer, &kv, &kv));
  OK(length_of(sessions[0]) % 2 == 0 ? pkv_batch_commit(batch, 0, nullptr)
                                     : pkv_batch_abort(batch));
  const uint64_t length = length_of(sessions[1]);
  OK(pkv_session_trim(sessions[1], length - length % 16));
  if (length_of(sessions[0]) >= 64) OK(pkv_session_trim(sessions[0], 0));
}

void get(pkv_session session, pkv_batch batch) {
  auto info = made<pkv_session_info>();
  uint32_t ids[16];
  uint64_t length = 0;
  int64_t slots[16];
  size_t count = 0;
  for (const pkv_status status :
       {pkv_session_get_info(session, &info), pkv_session_get_length(session, &length),
        pkv_session_get_block_table(session, 0, 16, ids, &count)})
    HOSTILE_CHECK(status == PKV_OK || status == PKV_BUSY, "%s", pkv_last_error());
  const pkv_status status = pkv_batch_get_slot_mapping(batch, 0, 16, slots, &count);
  HOSTILE_CHECK(status == PKV_OK || status == PKV_BUSY || status == PKV_STALE_HANDLE ||
                    status == PKV_INVALID_ARGUMENT,
                "%s", pkv_last_error());
}

// Chooses victims for the last session, which makes the library look at all others.
void choose(pkv_cache cache, pkv_session last) {
  const uint32_t many = 128;
  pkv_session victims[8];
  size_t count = 0;
  const pkv_status status =
      pkv_batch_choose_victims(cache, 1, &last, &many, std::size(victims), victims, &count);
  HOSTILE_CHECK(status == PKV_OK || status == PKV_BUSY || status == PKV_OUT_OF_BLOCKS, "%s",
                pkv_last_error());
}

TEST(Getters, NeverMakeAnotherThreadBusy) {
  ModelConfig config = small_model(40);
  config.threads = 1;
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  std::vector<pkv_session> sessions(5);
  for (pkv_session& session : sessions) OK(pkv_session_open(cache, nullptr, &session));
  std::atomic<pkv_batch> batch = nullptr;
  std::atomic<uint64_t> steps = 0;
  const storm::Clock clock(15'000);
  EXPECT_EQ(storm::run(4,
                       [&](unsigned thread, std::mt19937& random) {
                         while (thread == 0 && clock.running())
                           step(cache, sessions, batch), steps++;
                         while (!clock.over()) {
                           if (thread == 1)
                             choose(cache, sessions.back());
                           else
                             get(sessions[random() % sessions.size()], batch);
                         }
                       }),
            "");
  EXPECT_GT(steps.load(), 100u);
  for (const pkv_session session : sessions) OK(pkv_session_close(session));
  OK(pkv_cache_validate(cache));
  OK(pkv_cache_destroy(cache));
}

}  // namespace
}  // namespace hostile::getters_test
