// Compares the radix tree with a naive one: a map from every cached prefix, in whole blocks, to its
// last block.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/prefix/hash.h"
#include "engine/prefix/tree.h"

namespace {

using namespace pkv::prefix;
using Text = std::vector<int32_t>;

constexpr uint32_t block_size = 2;

class RadixTree : public testing::Test {
 protected:
  // Texts of up to six blocks have two different tokens, so they often share prefixes.
  Text random_text() {
    Text text(random_() % (6 * block_size + 1));
    for (int32_t& token : text) token = static_cast<int32_t>(random_() % 2);
    return text;
  }
  static Text first_blocks(const Text& text, size_t blocks) {
    return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(blocks * block_size)};
  }

  // Checks the path to the end of a match, as a text and as blocks.
  void check_path(const Node& end, const Text& expected) {
    Text tokens;
    std::vector<pkv::memory::Block> blocks;
    std::vector<BlockHash> hashes;
    std::vector<const Node*> path;
    for (const Node* node = &end; node->parent != nullptr; node = node->parent)
      path.insert(path.begin(), node);
    for (const Node* node : path) {
      ASSERT_EQ(blocks.size(), node->start);
      ASSERT_EQ(node->size, node->blocks.size());
      ASSERT_GT(node->size, 0u);
      tokens.insert(tokens.end(), node->tokens.begin(), node->tokens.end());
      blocks.insert(blocks.end(), node->blocks.begin(), node->blocks.end());
      hashes.insert(hashes.end(), node->hashes.begin(), node->hashes.end());
    }
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), tokens.begin()));
    for (size_t i = 0; i < expected.size() / block_size; i++)
      ASSERT_EQ(cached_.at(first_blocks(expected, i + 1)), blocks[i]);
    std::vector<BlockHash> should(blocks.size());
    hasher_.blocks(tokens, {}, should);
    ASSERT_EQ(should, hashes);
  }

  Tree::Found check_find(const Text& text) {
    const Tree::Found match = tree_.find(root_, text);
    size_t whole = 0;
    while ((whole + 1) * block_size <= text.size() &&
           cached_.contains(first_blocks(text, whole + 1)))
      whole++;
    EXPECT_EQ(whole, match.whole);
    EXPECT_EQ(whole, match.node->start + match.inside);
    // The cached next block that shares the longest prefix with the rest.
    size_t common = 0;
    const Text before = first_blocks(text, whole);
    for (const auto& [other, block] : cached_) {
      if (other.size() != before.size() + block_size ||
          !std::equal(before.begin(), before.end(), other.begin()))
        continue;
      const size_t n = std::min(text.size(), other.size());
      common = std::max(
          common, static_cast<size_t>(std::mismatch(text.begin(),
                                                    text.begin() + static_cast<std::ptrdiff_t>(n),
                                                    other.begin())
                                          .first -
                                      text.begin()) -
                      before.size());
    }
    EXPECT_EQ(common, match.common);
    check_path(*match.node, first_blocks(text, whole));
    return match;
  }

  void publish(const Text& text) {
    const Tree::Found match = check_find(text);
    Node& end =
        match.inside == match.node->size ? *match.node : tree_.split(*match.node, match.inside);
    const size_t count = text.size() / block_size - match.whole;
    if (count == 0) return;
    const Tokens rest = Tokens(text).subspan(match.whole * block_size, count * block_size);
    std::vector<pkv::memory::Block> blocks;
    for (size_t i = 0; i < count; i++)
      cached_[first_blocks(text, match.whole + i + 1)] = blocks.emplace_back(next_++);
    std::vector<BlockHash> hashes(count);
    hasher_.blocks(rest, end.parent != nullptr ? end.hashes.back() : BlockHash{}, hashes);
    if (end.parent != nullptr && end.children.empty() && random_() % 2 == 0)
      tree_.extend(end, {rest, blocks, hashes, {}});
    else
      tree_.add_child(end, {rest, blocks, hashes, {}});
  }

  void evict() {
    Node* node = &root_;
    while (!node->children.empty())
      node = *std::next(node->children.begin(), random_() % node->children.size());
    if (node == &root_) return;
    Text text;
    for (const Node* each = node; each->parent != nullptr; each = each->parent)
      text.insert(text.begin(), each->tokens.begin(), each->tokens.end());
    const uint32_t count = 1 + static_cast<uint32_t>(random_() % node->size);
    for (uint32_t i = 0; i < count; i++)
      cached_.erase(first_blocks(text, text.size() / block_size - i));
    const Node* const left = count < node->size ? node : node->parent;
    EXPECT_EQ(left, &tree_.drop_last(*node, count));
  }

  std::mt19937 random_{1};
  const Hasher hasher_{3, true};
  Tree tree_{block_size, 1, *std::pmr::get_default_resource()};
  Node& root_ = tree_.new_root();
  std::map<Text, pkv::memory::Block> cached_;
  pkv::memory::Block next_ = 1;
};

TEST_F(RadixTree, FindsWhatANaiveMapFinds) {
  size_t max_cached = 0;
  for (int step = 0; step < 20000 && !HasFailure(); step++) {
    SCOPED_TRACE(step);
    // For a while more is published than evicted, then the other way round.
    if (random_() % 100 < (step / 500 % 2 == 0 ? 40u : 5u))
      publish(random_text());
    else if (random_() % 2 == 0)
      evict();
    else
      check_find(random_text());
    max_cached = std::max(max_cached, cached_.size());
  }
  EXPECT_GT(max_cached, 50u);
}

TEST_F(RadixTree, ASplitLeavesWhatIsKnownOfBothParts) {
  const Text text = {1, 2, 3, 4, 5, 6};
  const pkv::memory::Block blocks[] = {7, 8, 9};
  BlockHash hashes[3];
  hasher_.blocks(text, {}, hashes);
  Node& node = tree_.add_child(root_, {text, blocks, hashes, {3, 2}});
  node.matches = 5;
  node.kind = 4;
  node.last_use = 6;
  Node& upper = tree_.split(node, 1);
  EXPECT_EQ(&upper, node.parent);
  EXPECT_EQ(&root_, upper.parent);
  for (const Node* each : {&upper, &node}) {
    EXPECT_EQ((History{3, 2}), each->history);
    EXPECT_EQ(5u, each->matches);
    EXPECT_EQ(4u, each->kind);
    EXPECT_EQ(6u, each->last_use);
  }
  EXPECT_EQ((std::pmr::vector<pkv::memory::Block>{7}), upper.blocks);
  EXPECT_EQ((std::pmr::vector<pkv::memory::Block>{8, 9}), node.blocks);
  EXPECT_EQ(hashes[0], upper.hashes[0]);
  EXPECT_EQ(hashes[1], node.hashes[0]);
}

TEST(Hash, DependsOnAllThatIsBeforeAndOnTheSalt) {
  const Text a = {1, 2, 3, 4}, b = {9, 2, 3, 4};
  uint64_t of_a[2], of_b[2], salted[2];
  hash_blocks(a, hash_salt(""), of_a);
  hash_blocks(b, hash_salt(""), of_b);
  hash_blocks(a, hash_salt("tenant"), salted);
  EXPECT_NE(of_a[1], of_b[1]);
  EXPECT_NE(of_a[0], salted[0]);
  uint64_t second[1];
  hash_blocks(Tokens(a).subspan(2), of_a[0], second);
  EXPECT_EQ(of_a[1], second[0]) << "the same in pieces";
}

// With another seed, texts with equal event hashes have different hashes in the cache.
TEST(Hash, ASecretSeedIsApartFromEvents) {
  const Text text = {1, 2, 3, 4};
  uint64_t known[2];
  hash_blocks(text, hash_salt("tenant"), known);
  for (const uint64_t seed : {1, 2}) {
    const Hasher hasher(seed, true), quiet(seed, false);
    BlockHash hashes[2], without[2];
    hasher.blocks(text, hasher.salt("tenant"), hashes);
    quiet.blocks(text, quiet.salt("tenant"), without);
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(known[i], hashes[i].event);
      EXPECT_NE(known[i], hashes[i].own);
      EXPECT_EQ((BlockHash{hashes[i].own, 0}), without[i]);
    }
  }
  EXPECT_NE(Hasher(1, true).salt("").own, Hasher(2, true).salt("").own);
}

// All hashes are equal here, so the tokens must decide (openvino.genai 3722).
TEST(RadixTreeBugs, AnEqualHashIsNoHit) {
  Tree tree(block_size, 1, *std::pmr::get_default_resource());
  Node& root = tree.new_root();
  const BlockHash hashes[] = {{7, 7}, {7, 7}};
  const std::vector<Text> texts = {{1, 2, 3, 4}, {1, 2, 4, 3}, {2, 1, 3, 4}};
  for (const Text& text : texts) {
    const pkv::memory::Block blocks[] = {1, 2};
    const Tree::Found match = tree.find(root, text);
    ASSERT_EQ(text == texts[1] ? 1u : 0u, match.whole);
    Node& above = match.whole > 0 ? tree.split(*match.node, match.inside) : root;
    tree.add_child(above, {Tokens(text).subspan(match.whole * block_size),
                           std::span(blocks).subspan(match.whole),
                           std::span(hashes).subspan(match.whole),
                           {}});
  }
  for (const Text& text : texts) EXPECT_EQ(2u, tree.find(root, text).whole);
  EXPECT_EQ(1u, tree.find(root, Text{1, 2, 2, 1}).whole);
  EXPECT_EQ(0u, tree.find(root, Text{2, 2}).whole);
}

}  // namespace
