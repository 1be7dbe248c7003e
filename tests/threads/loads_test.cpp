// Files are loaded while another thread reads all sessions of the cache. Sessions that it finds do
// not change any more.
#include <gtest/gtest.h>

#include <atomic>

#include "storm.h"

namespace hostile::loads_test {
namespace {

constexpr uint64_t blocks = 2048, block_size = 16;
constexpr uint32_t saved = 48, tokens_each = 160;

// Saves sessions that publish, each with its own text, to memory.
pkv_stream save_sessions(pkv_cache cache, std::vector<unsigned char>& file) {
  std::vector<pkv_file_item> items(saved);
  const std::vector<float> data(tokens_each * std::max(kv_floats, q_floats), 0.5f);
  const pkv_tensor rows = tensor(data.data());
  for (uint32_t i = 0; i < saved; i++) {
    OK(pkv_session_open(cache, nullptr, &items[i].session));
    pkv_batch batch = nullptr;
    OK(pkv_batch_begin(cache, 1, &items[i].session, &tokens_each, &batch));
    for (uint32_t layer = 0; layer < layers; layer++)
      OK(pkv_batch_write(batch, layer, &rows, &rows));
    const std::vector<int32_t> tokens(tokens_each, static_cast<int32_t>(i));
    OK(pkv_batch_commit(batch, tokens.size(), tokens.data()));
  }
  auto stream = made<pkv_stream>();
  stream.kind = PKV_STREAM_BUFFER, stream.data = file.data(), stream.size = file.size();
  OK(pkv_file_save(cache, items.size(), items.data(), nullptr, &stream, &stream.size));
  for (const pkv_file_item& item : items) OK(pkv_session_close(item.session));
  return stream;
}

// The texts are cached already. So sessions that publish replace their own blocks by the cached
// ones.
TEST(Loads, NobodySeesASessionThatChanges) {
  const auto prefix = made<pkv_prefix_config>();
  ModelConfig config = small_model(blocks);
  config.prefix = &prefix;
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  std::vector<unsigned char> file(16 << 20);
  const pkv_stream stream = save_sessions(cache, file);
  pkv_session own = nullptr;
  OK(pkv_session_open(cache, nullptr, &own));

  const storm::Clock clock(40);
  EXPECT_EQ(storm::run(2,
                       [&](unsigned thread, std::mt19937&) {
                         // This reads every other session.
                         const uint32_t all = blocks * block_size;
                         std::vector<pkv_session> sessions(saved);
                         size_t count = 0;
                         while (thread == 0 && !clock.over()) {
                           const pkv_status status = pkv_batch_choose_victims(
                               cache, 1, &own, &all, saved, sessions.data(), &count);
                           HOSTILE_CHECK(status == PKV_OK || status == PKV_OUT_OF_BLOCKS,
                                         "choose_victims: %s", pkv_last_error());
                         }
                         while (thread == 1 && clock.running()) {
                           OK(pkv_file_load(cache, nullptr, &stream, saved, sessions.data(),
                                            nullptr, &count));
                           for (const pkv_session session : sessions)
                             while (pkv_session_close(session) == PKV_BUSY)
                               std::this_thread::yield();
                         }
                       }),
            "");
  EXPECT_EQ(pkv_cache_validate(cache), PKV_OK) << pkv_last_error();
  EXPECT_EQ(pkv_cache_destroy(cache), PKV_OK);
}

}  // namespace
}  // namespace hostile::loads_test
