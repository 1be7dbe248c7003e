// A block has as many references as it can count. A call that would add one is refused or continues
// without it, and nothing is lost. Reaching the limit through the C interface would take four
// million sessions, so the test calls the engine directly.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "../support/made.h"
#include "base/status.h"
#include "engine/cache/cache.h"
#include "engine/file/file.h"
#include "engine/session/session.h"
#include "engine/step/batch.h"

namespace pkv::reference_limit_test {
namespace {

constexpr uint32_t block_size = 16;

class ReferenceLimit : public testing::Test {
 protected:
  ReferenceLimit() {
    auto group = made<pkv_layer_group>();
    group.layers = group.query_heads = group.kv_heads = 1, group.key_dim = 16;
    group.blocks = 32;
    const std::array<pkv_layer_group, 2> groups = {group, group};
    const auto prefix = made<pkv_prefix_config>();
    auto config = made<pkv_cache_config>({.group_count = groups.size(),
                                          .groups = groups.data(),
                                          .block_size = block_size,
                                          .prefix = &prefix});
    cache_.emplace(check_config(config), nullptr, nullptr);
  }

  std::unique_ptr<Session> open(bool publishes = true) {
    Content content(*cache_);
    content.hold() = prefix::Hold(*cache_->prefix(), "", 1);
    return std::make_unique<Session>(std::move(content), pkv::Attributes{0, publishes});
  }
  void append(Session& session, uint32_t tokens) {
    Session* const sessions[] = {&session};
    Batch batch(*cache_, sessions, std::span(&tokens, 1));
    const std::vector<float> zeros(tokens * 16);
    const pkv_tensor rows = {const_cast<float*>(zeros.data()), PKV_F32, 0, 0, 0, 0, 0};
    for (const uint32_t layer : {0u, 1u}) batch.write(layer, &rows, &rows);
    batch.commit(text_.data() + session.length());
  }
  memory::Pool& pool(size_t group) { return cache_->groups()[group]->pool; }
  static memory::Block block(const Session& session, size_t group, size_t index) {
    return session.content().table(group).blocks()[index];
  }

  // Takes all further references of this block while it lives.
  class Full {
   public:
    Full(memory::Pool& pool, memory::Block block) : pool_(pool), block_(block) {
      while (pool_.retain(block_) == PKV_OK) taken_++;
    }
    ~Full() { give_back(); }
    Full(const Full&) = delete;
    Full& operator=(const Full&) = delete;
    void give_back() {
      for (; taken_ > 0; taken_--) pool_.release(block_);
    }

   private:
    memory::Pool& pool_;
    const memory::Block block_;
    uint32_t taken_ = 0;
  };

  template <class Call>
  void expect_refused(const Call& call) {
    std::array<std::vector<uint32_t>, 2> before;
    const auto references = [&](size_t g) {
      std::vector<uint32_t> counts;
      for (uint32_t id = 0; id < 32; id++) counts.push_back(pool(g).references(id));
      return counts;
    };
    for (size_t g = 0; g < 2; g++) before[g] = references(g);
    try {
      call();
      ADD_FAILURE() << "it was allowed";
    } catch (const Error& error) {
      EXPECT_EQ(PKV_LIMIT_REACHED, error.status);
      EXPECT_NE(nullptr, std::strstr(error.text, "4194303")) << error.text;
    }
    for (size_t g = 0; g < 2; g++) EXPECT_EQ(before[g], references(g)) << "group " << g;
  }

  void check(std::initializer_list<const Session*> open) {
    std::vector<const Content*> contents;
    for (const Session* session : open) contents.push_back(&session->content());
    validate(*cache_, contents);
  }

  std::optional<Cache> cache_;
  std::vector<int32_t> text_ = [] {
    std::vector<int32_t> text(256);
    std::iota(text.begin(), text.end(), 7);
    return text;
  }();
};

TEST_F(ReferenceLimit, OfAFork) {
  const auto session = open();
  append(*session, 3 * block_size + 5);
  {
    Full full(pool(1), block(*session, 1, 2));
    expect_refused([&] { session->content().fork(); });
  }
  {
    const Session child(session->content().fork(), session->attributes());
  }
  EXPECT_EQ(3u * block_size + 5, session->length());
  check({session.get()});
}

TEST_F(ReferenceLimit, OfAMatch) {
  // Its session ends, and its blocks stay cached.
  append(*open(), 4 * block_size);
  const auto session = open();
  const auto reader = open();
  ASSERT_EQ(2u * block_size, reader->admit(prefix::Tokens(text_).first(2 * block_size), 0));
  {
    Full full(pool(1), block(*reader, 1, 1));
    expect_refused([&] { session->admit(prefix::Tokens(text_).first(3 * block_size), 0); });
    EXPECT_EQ(0u, session->length());
  }
  EXPECT_EQ(3u * block_size, session->admit(prefix::Tokens(text_).first(3 * block_size), 0));
  check({reader.get(), session.get()});
}

// The match does without the first tokens of a block that cannot be shared once more.
TEST_F(ReferenceLimit, OfAMatchThatEndsInABlock) {
  append(*open(), 2 * block_size);
  const auto reader = open(), session = open(), later = open();
  ASSERT_EQ(2u * block_size, reader->admit(prefix::Tokens(text_).first(2 * block_size), 0));
  {
    Full full(pool(1), block(*reader, 1, 1));
    EXPECT_EQ(block_size, session->admit(prefix::Tokens(text_).first(block_size + 9), 0));
  }
  EXPECT_EQ(block_size + 9, later->admit(prefix::Tokens(text_).first(block_size + 9), 0));
  check({reader.get(), session.get(), later.get()});
}

// A block that cannot be referenced once more is not cached, or not shared. The text itself is
// complete.
TEST_F(ReferenceLimit, OfWhatIsPublished) {
  const auto first = open(false), second = open(), third = open();
  append(*first, block_size);
  {
    Full full(pool(1), block(*first, 1, 0));
    first->start_publishing();
    EXPECT_EQ(0u, second->admit(prefix::Tokens(text_).first(block_size), 0))
        << "the index has it without a reference";
  }
  append(*second, block_size);
  {
    Full full(pool(1), block(*second, 1, 0));
    append(*third, block_size);
    EXPECT_EQ(block(*second, 0, 0), block(*third, 0, 0));
    EXPECT_NE(block(*second, 1, 0), block(*third, 1, 0)) << "shared without a reference";
  }
  for (const auto* session : {&first, &second, &third})
    EXPECT_EQ(uint64_t{block_size}, (*session)->length());
  check({first.get(), second.get(), third.get()});
}

// A session uses the path of a text without a reference to its last block, so the index cannot let
// go of that block, though nobody but the session that writes to it has one. The step fails.
TEST_F(ReferenceLimit, OfATailThatTheIndexCannotLetGoOf) {
  const auto first = open(), second = open();
  append(*first, 2 * block_size);
  {
    Full full(pool(0), block(*first, 0, 1)), full_too(pool(1), block(*first, 1, 1));
    append(*second, 2 * block_size);
  }
  ASSERT_NE(block(*first, 0, 1), block(*second, 0, 1));
  first->trim(block_size + 4);
  const auto third = open(false), fourth = open(false);
  append(*third, 14 * block_size);
  append(*fourth, 15 * block_size);
  ASSERT_EQ(0u, pool(0).free_count());
  try {
    append(*first, 1);
    ADD_FAILURE() << "there was a block for the copy";
  } catch (const Error& error) {
    EXPECT_EQ(PKV_OUT_OF_BLOCKS, error.status);
  }
  check({first.get(), second.get(), third.get(), fourth.get()});
}

}  // namespace
}  // namespace pkv::reference_limit_test
