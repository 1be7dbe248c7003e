// The parts of the learned policy: what it learns, what it remembers and which block it chooses.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "engine/prefix/learned_policy.h"

namespace {

using namespace pkv::prefix;

std::pmr::memory_resource& memory() { return *std::pmr::get_default_resource(); }

// Kind 0 always returns after 100 to 199 blocks, kind 1 never.
TEST(ReturnTimes, LearnsWhichKindsReturnAndWhen) {
  ReturnTimes times(1000, memory());
  std::mt19937_64 random(1);
  std::deque<BlockHash> returning;
  for (int i = 0; i < 50; i++) returning.push_back({random()});
  const float before = times.worth(0, 10);
  EXPECT_EQ(before, times.worth(1, 10)) << "nothing is known yet";
  uint64_t now = 0;
  for (; now < 200000; now += 2) {
    const BlockHash once{random()}, again = returning.front();
    times.used(std::span(&once, 1), 1, now);
    if (now % 4 == 0) {  // These are 50, one every 4 blocks, so they return after 200.
      times.used(std::span(&again, 1), 0, now);
      returning.pop_front();
      returning.push_back(again);
    }
    times.learn(now);
  }
  EXPECT_GT(times.worth(0, 10), 10 * times.worth(1, 10));
  EXPECT_LT(times.worth(1, 10), before);
  EXPECT_GT(times.worth(0, 150), times.worth(0, 10)) << "the return is near";
  EXPECT_LT(times.worth(0, 1000), times.worth(0, 150)) << "those that return have done so";
  // One block is held for 200 blocks for one hit. The bucket of that age is from 182 to 256 wide,
  // of which a part counts.
  EXPECT_NEAR(1 / 200.0, times.worth(0, 0), 0.4 / 200);
}

// Before anything was observed, a block is less likely to return the longer it is unused (Lindy).
TEST(ReturnTimes, WithoutExperienceTheOldestIsWorthLeast) {
  const ReturnTimes times(1000, memory());
  for (uint64_t age = 2; age < uint64_t{1} << 30; age *= 2)
    EXPECT_LT(times.worth(3, 2 * age), times.worth(3, age)) << age;
}

// These are far more blocks than can be watched.
TEST(ReturnTimes, ASampleIsEnough) {
  ReturnTimes times(100000, memory());
  std::mt19937_64 random(2);
  std::deque<BlockHash> returning;
  for (int i = 0; i < 40000; i++) returning.push_back({random()});
  for (uint64_t now = 0; now < 4000000; now++) {
    const BlockHash again = returning.front(), once{random()};
    times.used(std::span(&again, 1), 0, now);
    times.used(std::span(&once, 1), 1, now);
    returning.pop_front();
    returning.push_back(again);
    times.learn(now);
  }
  EXPECT_GT(times.worth(0, 1000), 10 * times.worth(1, 1000));
}

// Each cache has other hashes, so each watches other blocks. Every other text of 16 blocks returns,
// after 100 to 300 others.
TEST(ReturnTimes, LearnAboutTheSameFromAnySample) {
  constexpr uint64_t capacity = 20000;
  float lowest = 1, highest = 0;
  for (uint64_t seed = 0; seed < 8; seed++) {
    ReturnTimes times(capacity, memory());
    std::mt19937_64 traffic(5), hashes(6 + seed);
    std::multimap<size_t, std::array<BlockHash, 16>> returning;
    uint64_t now = 0;
    for (size_t i = 0; i < 6000; i++) {
      std::array<BlockHash, 16> text;
      const bool known = !returning.empty() && returning.begin()->first <= i;
      if (known)
        text = returning.extract(returning.begin()).mapped();
      else
        for (BlockHash& block : text) block = {hashes()};
      if (!known && traffic() % 2 == 0) returning.emplace(i + 100 + traffic() % 200, text);
      times.used(text, known, now);
      times.learn(now += text.size());
    }
    lowest = std::min(lowest, times.worth(0, 500));
    highest = std::max(highest, times.worth(0, 500));
  }
  EXPECT_LT(highest, 1.01F * lowest);
}

// Ten texts are a small part of what a cache of 40,000 blocks will see, although they have 1,000
// blocks: they do not disprove that blocks that were used often return more often.
TEST(ReturnTimes, AFewLongTextsProveLittle) {
  constexpr uint8_t once = ReturnTimes::fresh_classes, often = 4 * ReturnTimes::fresh_classes;
  ReturnTimes times(40000, memory());
  std::mt19937_64 random(7);
  std::vector<BlockHash> returning(500), gone(500);
  for (BlockHash& block : returning) block = {random()};
  for (BlockHash& block : gone) block = {random()};
  times.used(returning, once, 0);
  times.used(gone, often, 0);
  times.used(returning, once, 2000);
  times.learn(40000);
  EXPECT_GT(times.worth(often, 1500), times.worth(once, 1500));
}

TEST(Ghosts, RememberOnceAndForgetTheOldest) {
  Ghosts ghosts(1000, memory());
  std::mt19937_64 random(3);
  std::vector<uint64_t> hashes(1000);
  for (uint64_t& hash : hashes) hash = random();
  EXPECT_EQ(History{}, ghosts.recall(hashes[0]));
  for (size_t i = 0; i < hashes.size(); i++)
    ghosts.remember(hashes[i], {static_cast<uint8_t>(1 + i % 31), static_cast<uint8_t>(i % 32)});
  size_t known = 0;
  for (size_t i = 0; i < hashes.size(); i++) {
    const History history = ghosts.recall(hashes[i]);
    if (history.uses == 0) continue;
    known++;
    EXPECT_EQ((History{static_cast<uint8_t>(1 + i % 31), static_cast<uint8_t>(i % 32)}), history);
    EXPECT_EQ(History{}, ghosts.recall(hashes[i])) << "it is back";
  }
  EXPECT_EQ(hashes.size(), known) << "there is room for 16 times as many";
  for (const uint64_t hash : hashes) ghosts.remember(hash, {1, 1});
  for (int i = 0; i < 200000; i++) ghosts.remember(random(), {2, 2});
  for (const uint64_t hash : hashes) EXPECT_EQ(0u, ghosts.recall(hash).uses);
}

class Broken final : public std::pmr::memory_resource {
  void* do_allocate(size_t, size_t) override { throw std::bad_alloc(); }
  void do_deallocate(void*, size_t, size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(Ghosts, WithoutMemoryNothingIsRemembered) {
  Broken broken;
  Ghosts ghosts(1000, broken);
  ghosts.remember(1, {1, 1});
  EXPECT_EQ(History{}, ghosts.recall(1));
}

// Nodes of one block below a root, as the index would make them.
class Choice : public testing::Test {
 protected:
  Node& publish() {
    const int32_t token = ++tokens_;
    const pkv::memory::Block block = 1;
    const BlockHash hash{random_()};
    History history;
    policy_.inserted(std::span(&hash, 1), std::span(&history, 1));
    policy_.reserve(static_cast<size_t>(tokens_));
    return tree_.add_child(
        root_, {std::span(&token, 1), std::span(&block, 1), std::span(&hash, 1), history});
  }
  void use(Node& node, uint8_t hint = 0) {
    policy_.remove(node);
    policy_.used(node, 0, hint, now_);
    node.last_use = now_++;
    policy_.add(node);
  }

  std::mt19937_64 random_{4};
  Tree tree_{1, 1, memory()};
  Node& root_ = tree_.new_root();
  LearnedPolicy policy_{1000, 0, memory()};
  uint64_t now_ = 0;
  int32_t tokens_ = 0;
};

TEST_F(Choice, OfAFewTheWorst) {
  EXPECT_EQ(nullptr, policy_.victim());
  std::vector<Node*> nodes;
  for (int i = 0; i < 20; i++) use(*nodes.emplace_back(&publish()));
  EXPECT_EQ(nodes[0], policy_.victim());
  use(*nodes[0]);
  EXPECT_EQ(nodes[1], policy_.victim());
  for (Node* node : nodes) policy_.remove(*node);
  EXPECT_EQ(nullptr, policy_.victim());
}

TEST_F(Choice, OfManyOneOfTheWorst) {
  std::vector<Node*> nodes;
  for (int i = 0; i < 1000; i++) use(*nodes.emplace_back(&publish()));
  // The oldest of 16 random ones of 1000 is among the oldest 500 but with a chance of 2^-16; what
  // was seen before is remembered, so that it gets better.
  for (int i = 0; i < 100; i++) EXPECT_LT(policy_.victim()->last_use, i < 50 ? 500u : 50u);
}

TEST_F(Choice, AnEvictedBlockThatComesBackIsNoStranger) {
  Node& node = publish();
  for (int i = 0; i < 5; i++) use(node);
  EXPECT_EQ((History{5, 1}), node.history);
  const BlockHash hash = node.hashes[0];
  policy_.evicted(node, 1);
  policy_.remove(node);
  tree_.drop_last(node, 1);
  History history;
  policy_.inserted(std::span(&hash, 1), std::span(&history, 1));
  EXPECT_EQ((History{5, 1}), history);
}

TEST_F(Choice, ACandidateThatLosesItsEndIsJudgedByTheNewOne) {
  const int32_t tokens[] = {1, 2, 3};
  const pkv::memory::Block blocks[] = {1, 2, 3};
  const BlockHash hashes[] = {{1}, {2}, {3}};
  Node& node = tree_.add_child(root_, {tokens, blocks, hashes, {}});
  policy_.reserve(1);
  use(node);
  policy_.evicted(node, 2);
  tree_.drop_last(node, 2);
  EXPECT_NO_THROW(policy_.validate());
}

// Texts return soon or never, as their hints say; nothing else distinguishes them.
TEST_F(Choice, AHintThatIsRightIsLearned) {
  const uint8_t soon = hint_of(1000), never = hint_of(PKV_RETURN_NEVER);
  std::deque<Node*> coming;
  for (int i = 0; i < 20000; i++) {
    Node& gone = publish();
    use(gone, never);
    policy_.remove(gone);
    Node& next = publish();
    use(next, soon);
    policy_.remove(next);
    coming.push_back(&next);
    if (coming.size() <= 10) continue;
    use(*coming.front(), never);
    policy_.remove(*coming.front());
    coming.pop_front();
  }
  Node &one = publish(), &other = publish();
  use(one, never);
  use(other, soon);
  EXPECT_EQ(&one, policy_.victim());
  use(one, soon);
  use(other, never);
  EXPECT_EQ(&other, policy_.victim());
}

TEST(Hints, ArePowersOfTwo) {
  EXPECT_EQ(0, hint_of(0));
  EXPECT_EQ(1, hint_of(1));
  EXPECT_EQ(hint_of(6400), hint_of(12799));
  EXPECT_LT(hint_of(12799), hint_of(12800));
  EXPECT_LT(hint_of(PKV_RETURN_NEVER - 1), hint_of(PKV_RETURN_NEVER));
}

}  // namespace
