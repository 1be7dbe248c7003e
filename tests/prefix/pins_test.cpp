// The counters of pins stop before they overflow.
#include "engine/prefix/pins.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace pkv::prefix::pins_test {
namespace {

class PinCounters : public testing::Test {
 protected:
  static std::vector<std::unique_ptr<memory::Group>> make_groups(HookMemory& memory) {
    std::vector<std::unique_ptr<memory::Group>> groups;
    groups.push_back(std::make_unique<memory::Group>(PKV_STORAGE_NONE, PKV_LAYOUT_PACKED,
                                                     memory::Shape{}, 16, 4, 0, memory,
                                                     PKV_HUGE_PAGES_OFF, "", nullptr));
    return groups;
  }

  // Caches the text, like a session that is closed then.
  PinCounters() {
    memory::Block block;
    EXPECT_TRUE(groups_[0]->pool.try_alloc(1, &block));
    const BlockHash hash{7};
    uses_.attach(space_.root);
    Node& node = data_.tree.add_child(space_.root, {text_, {&block, 1}, {&hash, 1}, {}});
    uses_.reserve_node(space_);
    data_.count_node(space_);
    data_.blocks.add(0, block, node, 0, false);
    node.users = 1;
    uses_.detach(node, false);
  }

  HookMemory memory_{nullptr};
  const std::vector<std::unique_ptr<memory::Group>> groups_ = make_groups(memory_);
  IndexData data_{{}, 16, groups_, memory_};
  Uses uses_{data_};
  Matcher matcher_{data_, uses_, memory_};
  Pins pins_{data_, uses_, matcher_, 4};
  Space& space_ = data_.spaces.at("");
  const std::vector<int32_t> text_ = std::vector<int32_t>(16, 5);
};

TEST_F(PinCounters, StopAtALimitThatLeavesRoomForSessions) {
  EXPECT_EQ(1u, pins_.pin("", text_));
  Node& node = **space_.root.children.begin();
  constexpr uint32_t sessions = Pins::max_pins - 1;
  for (Node* each : {&space_.root, &node}) {
    each->pinned = Pins::max_pins - 1;
    each->users = each->pinned + sessions;
  }
  node.pins = node.pinned;
  EXPECT_EQ(1u, pins_.pin("", text_));
  try {
    pins_.pin("", text_);
    FAIL() << "one pin too many";
  } catch (const Error& error) {
    EXPECT_EQ(PKV_LIMIT_REACHED, error.status);
  }
  EXPECT_EQ(Pins::max_pins, node.pins);
  EXPECT_EQ(Pins::max_pins + sessions, space_.root.users);
  pins_.unpin("", text_);
  EXPECT_EQ(1u, pins_.pin("", text_));
}

}  // namespace
}  // namespace pkv::prefix::pins_test
