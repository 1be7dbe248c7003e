// What a cache knows of its store is known for a while only.
#include "../../src/engine/store/known_items.h"

#include <gtest/gtest.h>

namespace store::known_items_test {
namespace {

using pkv::store::ContentKey;
using pkv::store::KnownItems;

ContentKey key(unsigned char number) {
  ContentKey key{};
  key[0] = number;
  return key;
}

constexpr uint64_t any = UINT64_MAX;

TEST(KnownItems, AreForgottenAfterAWhile) {
  const auto begin = KnownItems::Clock::now();
  KnownItems known;
  EXPECT_FALSE(known.knows(key(1), any, begin));
  known.remember(key(1), begin);
  EXPECT_TRUE(known.knows(key(1), any, begin + KnownItems::max_age));
  EXPECT_FALSE(known.knows(key(2), any, begin));
  const auto later = begin + KnownItems::max_age + std::chrono::nanoseconds(1);
  EXPECT_FALSE(known.knows(key(1), any, later));
  known.remember(key(1), later);
  EXPECT_TRUE(known.knows(key(1), any, later)) << "seen again";
  known.forget(key(1));
  EXPECT_FALSE(known.knows(key(1), any, later));
}

TEST(KnownItems, AreForgottenAfterOthersWerePut) {
  KnownItems known;
  known.remember(key(1));
  known.count_puts(9);
  EXPECT_TRUE(known.knows(key(1), 10));
  known.remember(key(2));
  known.count_puts(1);
  EXPECT_FALSE(known.knows(key(1), 10));
  EXPECT_TRUE(known.knows(key(2), 10));
}

// They take a bounded amount of memory.
TEST(KnownItems, AreNoMoreThanAMillion) {
  KnownItems known;
  ContentKey each{};
  for (uint32_t i = 0; i <= 1 << 20; i++) {
    std::copy_n(reinterpret_cast<const unsigned char*>(&i), sizeof i, each.begin());
    known.remember(each);
  }
  EXPECT_TRUE(known.knows(each, any));
  EXPECT_FALSE(known.knows(key(1), any));
}

}  // namespace
}  // namespace store::known_items_test
