// Files of caches whose blocks only the engine can read.
#include <cstring>
#include <future>
#include <map>

#include "../store/support.h"
#include "../support/files.h"
#include "elsewhere.h"

namespace cache_test::elsewhere_files_test {
namespace {

using store::Bytes;

pkv_file_config with_index() {
  auto config = store::file_config();
  config.prefix_index = 1;
  return config;
}

TEST(ElsewhereFiles, BringSessionsAndTheIndexBack) {
  for (const char* key : {static_cast<const char*>(nullptr), "a key of 24 secret bytes"}) {
    if (key != nullptr && !store::keys_work()) continue;
    pkv_file_config config = with_index();
    config.secret_key = key;
    config.secret_key_size = key == nullptr ? 0 : 24;
    Elsewhere from, to;
    const Text whole = tokens(1, 70), other = tokens(1000, 50);
    Session session = from.compute(whole);
    from.compute(other).close();
    const auto child = fork(session);
    Text continued = whole;
    continued.push_back(7);
    from.extend(child, continued);
    const Bytes file =
        store::save_meanwhile(from.cache, store::items_of({session, child}), &config);
    EXPECT_EQ(2u, from.engine.reads) << "one call for each group";
    std::vector<Session> loaded = store::load(to.cache, file, &config);
    EXPECT_EQ(2u, to.engine.writes);
    to.check(loaded[0], whole);
    to.check(loaded[1], continued);
    EXPECT_EQ(48u, to.cached(other));
    to.check(to.compute(other), other);
    CHECK(pkv_cache_validate(to.cache));
    // What was shared is shared again, so the next step copies it.
    continued = whole;
    continued.push_back(8);
    to.extend(loaded[0], continued);
    to.check(loaded[0], continued);
    loaded.clear();
    EXPECT_EQ(0u, to.used());
  }
}

// A block that several texts of a file have in different ways is asked for once for each of them,
// and no call names it twice.
TEST(ElsewhereFiles, ABlockIsNamedOncePerCall) {
  Elsewhere from({.blocks = 64}), to({.blocks = 128});
  const Text whole = tokens(1, 23), late = tokens(100, 32), indexed = tokens(1000, 48);
  // Texts that end at different places inside a block.
  std::vector<Session> sessions;
  std::vector<Text> texts;
  sessions.push_back(from.compute(whole));
  texts.push_back(whole);
  for (const size_t length : {18u, 20u, 22u}) {
    sessions.push_back(Session(fork(sessions[0])));
    CHECK(pkv_session_trim(sessions.back(), length));
    texts.emplace_back(whole.begin(), whole.begin() + static_cast<int64_t>(length));
  }
  // Ids that only a fork knows.
  sessions.push_back(open(from.cache));
  from.extend_without_ids(sessions.back(), late);
  texts.emplace_back(late.size(), PKV_UNKNOWN_TOKEN);
  sessions.push_back(Session(fork(sessions.back())));
  CHECK(pkv_session_set_tokens(sessions.back(), 0, late.size(), late.data()));
  texts.push_back(late);
  // A match that ends inside a block of the index.
  from.compute(indexed).close();
  texts.emplace_back(indexed.begin(), indexed.begin() + 40);
  sessions.push_back(open(from.cache));
  uint64_t matched = 0;
  CHECK(pkv_session_admit(sessions.back(), 40, indexed.data(), 0, &matched));
  EXPECT_EQ(40u, matched);

  pkv_file_config config = with_index();
  const Bytes file = store::save_meanwhile(
      from.cache, store::items_of({sessions.begin(), sessions.end()}), &config);
  EXPECT_GT(from.engine.reads, 2u) << "each group had blocks to name twice";
  const std::vector<Session> loaded = store::load(to.cache, file, &config);
  ASSERT_EQ(texts.size(), loaded.size());
  for (size_t i = 0; i < texts.size(); i++) {
    SCOPED_TRACE(i);
    to.check(loaded[i], texts[i], texts[i][0] == PKV_UNKNOWN_TOKEN ? late : texts[i]);
  }
}

TEST(ElsewhereFiles, NothingOfOthersIsSaved) {
  Elsewhere from;
  constexpr int32_t secret = 0x5EC4E7;
  from.compute(Text(60, secret)).close();
  CHECK(pkv_prefix_clear(from.cache, nullptr, PKV_ALL_SALTS));
  Session session = from.compute(tokens(1, 20));
  const Bytes file = store::save_meanwhile(from.cache, store::items_of({session}), nullptr);
  const auto* const needle = reinterpret_cast<const unsigned char*>(&secret);
  EXPECT_EQ(file.end(), std::search(file.begin(), file.end(), needle, needle + 3));
}

// An engine with blocks of any size, which may be longer than a window of the writer.
struct BigBlocks {
  uint64_t bytes;
  std::map<uint32_t, Bytes> blocks;

  explicit BigBlocks(uint64_t block_bytes) : bytes(block_bytes) {}
  Cache cache(uint64_t count) {
    const auto group = made<pkv_layer_group>(
        {.layers = 1, .kind = PKV_LAYERS_OPAQUE_KV, .layer_bytes = bytes, .blocks = count});
    auto io = made<pkv_block_io>();
    io.user = this;
    io.read = [](void* user, uint32_t, size_t n, const uint32_t* ids, const uint32_t*, void* to) {
      auto& own = *static_cast<BigBlocks*>(user);
      auto* at = static_cast<unsigned char*>(to);
      for (size_t i = 0; i < n; i++, at += own.bytes)
        std::memcpy(at, own.blocks.at(ids[i]).data(), own.bytes);
      return 0;
    };
    io.write = [](void* user, uint32_t, size_t n, const uint32_t* ids, const void* from) {
      auto& own = *static_cast<BigBlocks*>(user);
      const auto* at = static_cast<const unsigned char*>(from);
      for (size_t i = 0; i < n; i++, at += own.bytes) own.blocks[ids[i]].assign(at, at + own.bytes);
      return 0;
    };
    auto config = made<pkv_cache_config>(
        {.groups = &group, .storage = PKV_STORAGE_EXTERNAL, .block_io = &io});
    return create(config);
  }
  Bytes content(size_t i) const {
    Bytes result(bytes);
    for (size_t at = 0; at < bytes; at++)
      result[at] =
          static_cast<unsigned char>(at * 2654435761u >> 13) ^ static_cast<unsigned char>(i + 1);
    return result;
  }
};

TEST(ElsewhereFiles, BlocksMayHaveAnySize) {
  for (const uint64_t bytes : {1ul, 64ul, 65ul, 262144ul, 2097152ul, 5242883ul}) {
    SCOPED_TRACE(bytes);
    BigBlocks from(bytes), to(bytes);
    const Cache cache = from.cache(9), other = to.cache(9);
    Session session = open(cache);
    grow(cache, session, 16 * 7 + 3);
    const std::vector<uint32_t> table = block_table(session);
    for (size_t i = 0; i < table.size(); i++) from.blocks[table[i]] = from.content(i);
    const Bytes file = store::save_meanwhile(cache, store::items_of({session}), nullptr);
    const std::vector<Session> loaded = store::load(other, file);
    const std::vector<uint32_t> ids = block_table(loaded[0]);
    ASSERT_EQ(table.size(), ids.size());
    for (size_t i = 0; i < ids.size(); i++) ASSERT_TRUE(to.blocks[ids[i]] == from.content(i)) << i;
  }
}

TEST(ElsewhereFiles, AnotherModelIsRefused) {
  BigBlocks from(100), longer(101);
  const Cache cache = from.cache(4), other = longer.cache(4);
  Session session = open(cache);
  grow(cache, session, 16);
  from.blocks[block_table(session)[0]] = from.content(0);
  const Bytes file = store::save_meanwhile(cache, store::items_of({session}), nullptr);
  const pkv_stream stream = store::buffer(file);
  pkv_session loaded;
  size_t count = 0;
  REFUSED(PKV_MISMATCH, pkv_file_load(other, nullptr, &stream, 1, &loaded, nullptr, &count));
  EXPECT_NE(nullptr,
            std::strstr(pkv_last_error(),
                        "group 0: the file has bytes of a layer in a block: 100, the cache 101"))
      << pkv_last_error();
  const Cache ids = create(config_of({}, 4, PKV_STORAGE_EXTERNAL));
  REFUSED(PKV_MISMATCH, pkv_file_load(ids, nullptr, &stream, 1, &loaded, nullptr, &count));
}

TEST(ElsewhereFiles, AFailingDeviceCostsNothing) {
  Elsewhere from, to;
  const Text whole = tokens(1, 70);
  Session session = from.compute(whole);
  const files::TemporaryDirectory folder;
  const std::string path = folder / "file";
  const pkv_stream at_path = store::at_path(path);
  const std::vector<pkv_file_item> items = store::items_of({session});
  CHECK(pkv_file_save(from.cache, 1, items.data(), nullptr, &at_path, nullptr));
  const std::string saved = files::read<std::string>(path);
  for (uint64_t call = 1; call <= 2; call++)
    for (const int result : {-EIO, -EINTR, 1, INT32_MIN}) {
      from.engine.reads = to.engine.writes = 0;
      from.engine.fails_at = to.engine.fails_at = call;
      from.engine.result = to.engine.result = result;
      REFUSED(PKV_IO, pkv_file_save(from.cache, 1, items.data(), nullptr, &at_path, nullptr));
      EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "block_io: read of ")) << pkv_last_error();
      EXPECT_EQ(result > 0 ? EIO : -std::max(result, -INT32_MAX),
                pkv_last_error_details()->system_error);
      EXPECT_EQ(saved, files::read<std::string>(path)) << "the old file stays";
      pkv_session loaded = nullptr;
      size_t count = 0;
      REFUSED(PKV_IO, pkv_file_load(to.cache, nullptr, &at_path, 1, &loaded, nullptr, &count));
      EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "block_io: write of ")) << pkv_last_error();
      EXPECT_EQ(0u, pool_stats_of(to.cache).held_blocks);
      CHECK(pkv_cache_validate(to.cache));
      CHECK(pkv_cache_validate(from.cache));
    }
  to.engine.result = 0;
  const pkv_stream again = store::at_path(path);
  pkv_session loaded;
  size_t count = 0;
  CHECK(pkv_file_load(to.cache, nullptr, &again, 1, &loaded, nullptr, &count));
  to.check(Session(loaded), whole);
}

// While the device stands still in a save of the index, others step, and what it reads is neither
// evicted nor handed to them.
TEST(ElsewhereFiles, BlocksAreHeldWhileTheDeviceReadsThem) {
  Elsewhere from({.blocks = 8}), to;
  const Text whole = tokens(1, 64);
  from.compute(whole).close();
  EXPECT_EQ(0u, from.used());
  pkv_file_config config = with_index();
  from.engine.hold_reads();
  std::future<Bytes> file = std::async(
      std::launch::async, [&] { return store::save_meanwhile(from.cache, {}, &config); });
  from.engine.await_held_call();
  EXPECT_EQ(4u, from.used()) << "the blocks of the first group";
  Session greedy = open(from.cache);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 16 * 5));
  // The index may give them up, but then nobody has them before the device.
  CHECK(pkv_prefix_clear(from.cache, nullptr, PKV_ALL_SALTS));
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 16 * 5));
  Session other = from.compute(tokens(500, 40));
  from.check(other, tokens(500, 40));
  from.engine.go_on();
  const std::vector<Session> none = store::load(to.cache, file.get(), &config);
  EXPECT_EQ(0u, none.size());
  CHECK(pkv_prefix_clear(to.cache, nullptr, PKV_ALL_SALTS));
  other.close();
  CHECK(pkv_cache_validate(from.cache));
  CHECK(pkv_session_reserve(greedy, 16 * 8));
}

// While the device stands still in a load, nobody finds what is loaded, and others step.
TEST(ElsewhereFiles, NobodySeesWhatTheDeviceStillWrites) {
  Elsewhere from, to({.blocks = 16});
  const Text whole = tokens(1, 64);
  Session session = from.compute(whole);
  pkv_file_config config = with_index();
  const Bytes file = store::save_meanwhile(from.cache, store::items_of({session}), &config);
  to.engine.hold_writes();
  std::future<std::vector<Session>> loaded =
      std::async(std::launch::async, [&] { return store::load(to.cache, file, &config); });
  to.engine.await_held_call();
  EXPECT_EQ(0u, to.cached(whole));
  Session other = to.compute(tokens(500, 40));
  to.check(other, tokens(500, 40));
  to.engine.go_on();
  const std::vector<Session> sessions = loaded.get();
  to.check(sessions[0], whole);
  to.check(other, tokens(500, 40));
  EXPECT_EQ(64u, to.cached(whole));
  CHECK(pkv_cache_validate(to.cache));
}

}  // namespace
}  // namespace cache_test::elsewhere_files_test
