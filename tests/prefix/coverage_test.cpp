// Compares what a layer group needs of a text with a definition by single tokens and blocks.
#include "engine/memory/coverage.h"

#include <gtest/gtest.h>

#include <vector>

namespace pkv::memory::coverage_test {
namespace {

using Groups = std::vector<std::unique_ptr<Group>>;

constexpr uint32_t block_size = 4;

struct Kind {
  uint32_t window, sinks;  // in tokens
  uint64_t state_bytes;
  uint64_t needed_sinks, needed_window;  // in blocks
};

constexpr Kind kinds[] = {
    {0, 0, 0, 0, UINT64_MAX}, {1, 0, 0, 0, 1}, {4, 0, 0, 0, 1}, {5, 0, 0, 0, 2},   {8, 0, 0, 0, 2},
    {9, 3, 0, 1, 3},          {4, 5, 0, 2, 1}, {6, 8, 0, 2, 2}, {40, 1, 0, 1, 10}, {0, 0, 8, 0, 1},
};

class CoverageRule : public testing::Test {
 protected:
  void add(Groups& groups, const Kind& kind) {
    Shape shape{};
    shape.window = kind.window;
    shape.sinks = kind.sinks;
    shape.kind = kind.state_bytes != 0 ? PKV_LAYERS_STATES : PKV_LAYERS_KV;
    shape.layer_bytes = kind.state_bytes;
    groups.push_back(std::make_unique<Group>(PKV_STORAGE_EXTERNAL, PKV_LAYOUT_PACKED, shape,
                                             block_size, 4, 0, memory_, PKV_HUGE_PAGES_OFF, "",
                                             nullptr));
  }

  HookMemory memory_{nullptr};
};

TEST_F(CoverageRule, IsAllBlocksOrSinksAndWindowOrTheState) {
  for (const Kind& kind : kinds) {
    Groups groups;
    add(groups, kind);
    const Coverage coverage(*groups[0]);
    EXPECT_EQ(kind.needed_sinks, coverage.sinks) << kind.window;
    EXPECT_EQ(kind.needed_window, coverage.window) << kind.window;
    for (uint64_t end = 1; end <= 12; end++)
      for (uint64_t i = 0; i < end; i++)
        EXPECT_EQ(i < kind.needed_sinks || end - i <= kind.needed_window, coverage.needs(i, end))
            << kind.window << ", block " << i << " of " << end;
  }
}

// A token sees the last `window` tokens, itself included, and is stored in the block of its
// position.
TEST_F(CoverageRule, OfASessionIsWhatItsNextTokenSeesAndTheBlockThatItGoesInto) {
  for (const Kind& kind : kinds) {
    if (kind.state_bytes != 0) continue;
    Groups groups;
    add(groups, kind);
    const Group& group = *groups[0];
    for (uint64_t length = 1; length <= 50; length++) {
      uint64_t first = length;
      while (first > 0 && (kind.window == 0 || length - (first - 1) < kind.window)) first--;
      EXPECT_EQ(first, first_seen(group, length)) << kind.window << ", " << length;
      const bool part_filled = length % block_size != 0;
      EXPECT_EQ(std::min(first / block_size, part_filled ? length / block_size : UINT64_MAX),
                group.block_of(first_needed(group, length)))
          << kind.window << ", " << length;
      // A match gives a session all that it needs, also after it has trimmed a token.
      const uint64_t end = group.blocks_for(length);
      for (const uint64_t at : {end * block_size, end * block_size - 1})
        for (uint64_t i = group.block_of(first_needed(group, at)); i < end; i++)
          EXPECT_TRUE(Coverage(group).needs(i, end)) << kind.window << ", " << at;
    }
  }
}

// Returns whether a text can end after `end` blocks; bit i of present[g]: group g has block i.
bool usable(const Groups& groups, const std::vector<unsigned>& present, uint64_t end) {
  for (size_t g = 0; g < groups.size(); g++)
    for (uint64_t i = 0; i < end; i++)
      if (Coverage(*groups[g]).needs(i, end) && (present[g] >> i & 1) == 0) return false;
  return true;
}

TEST_F(CoverageRule, OfAllGroupsAgreesWithEachBlockByItself) {
  constexpr uint64_t blocks = 5;
  constexpr unsigned all = (1U << blocks) - 1;
  for (const Kind& a : kinds)
    for (const Kind& b : kinds) {
      Groups groups;
      add(groups, a);
      add(groups, b);
      for (unsigned pattern = 0; pattern <= all * (all + 1) + all; pattern++) {
        std::vector<unsigned> present{pattern & all, pattern >> blocks};
        for (size_t g = 0; g < groups.size(); g++)
          if (!groups[g]->sparse()) present[g] = all;
        uint64_t longest = blocks;
        while (!usable(groups, present, longest)) longest--;
        ASSERT_EQ(longest,
                  longest_usable(groups, blocks,
                                 [&](uint64_t i, size_t g) { return (present[g] >> i & 1) != 0; }))
            << a.window << " and " << b.window << ": " << pattern;
      }
    }
}

TEST_F(CoverageRule, OfOneEndAfterAnotherAgreesWithEachEndByItself) {
  constexpr uint64_t blocks = 8;
  for (const Kind& kind : kinds) {
    Groups groups;
    add(groups, kind);
    const Coverage coverage(*groups[0]);
    for (unsigned pattern = 0; pattern < 1U << blocks; pattern++)
      for (uint64_t from = 0; from < blocks; from++) {
        const auto present = [&](uint64_t i) { return (pattern >> i & 1) != 0; };
        UsableEnds ends(coverage, from, present);
        for (uint64_t end = from + 1; end <= blocks; end++)
          ASSERT_EQ(usable(groups, {pattern}, end), ends.next(present(end - 1)))
              << kind.window << " from " << from << " to " << end << ": " << pattern;
      }
  }
}

}  // namespace
}  // namespace pkv::memory::coverage_test
