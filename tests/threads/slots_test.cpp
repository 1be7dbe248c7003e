// The slots of handles (src/api/slots.h): threads that take slots for the children of the same
// objects, and give them back before or after the objects end, never share one, and lose none.
#include "api/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace slots_test {
namespace {

using namespace pkv::api;

uint64_t handle_of(const Slot& slot) { return uint64_t{1} << 32 | slot.index; }

std::set<const Slot*> children_of(const SlotTable& table, const Slot& parent) {
  std::set<const Slot*> children;
  table.for_each_child(handle_of(parent), [&](Slot& slot) { children.insert(&slot); });
  return children;
}

TEST(Slots, OfAnObjectAreFoundAmongItsOwnOnly) {
  static SlotTable* const table = new SlotTable;  // never freed, as its chunks
  Slot* const cache = table->take(true, 0);
  Slot* const other = table->take(true, 0);
  EXPECT_EQ(children_of(*table, *cache).size(), 0u);
  std::set<const Slot*> taken;
  for (size_t i = 0; i < 20; i++) taken.insert(table->take(false, handle_of(*cache)));
  for (size_t i = 0; i < 5000; i++) table->take(false, handle_of(*other));
  const std::set<const Slot*> found = children_of(*table, *cache);
  EXPECT_EQ(taken.size(), 20u);
  EXPECT_EQ(found.size(), 2 * run_slots);
  EXPECT_TRUE(std::includes(found.begin(), found.end(), taken.begin(), taken.end()));
}

// More objects end than the table could have slots for if it lost those of their children. Every
// other one ends before its last child.
TEST(Slots, OfChildrenArePassedOn) {
  static SlotTable* const table = new SlotTable;  // never freed, as its chunks
  uint32_t highest = 0;
  for (size_t i = 0; i < 2 * max_chunks * chunk_slots / run_slots; i++) {
    Slot* const cache = table->take(true, 0);
    Slot* const child = table->take(false, handle_of(*cache));
    highest = std::max({highest, cache->index, child->index});
    table->give_back(i % 2 == 0 ? child : cache);
    table->give_back(i % 2 == 0 ? cache : child);
  }
  EXPECT_LT(highest, 4 * run_slots);
}

// A slot that has used all its generations belongs to no other object either.
TEST(Slots, WithoutGenerationsStayOutOfUse) {
  static SlotTable* const table = new SlotTable;
  Slot* const cache = table->take(true, 0);
  Slot* const worn = table->take(false, handle_of(*cache));
  worn->word.store(state_mask << 32);
  table->give_back(worn);
  for (uint32_t i = 0; i < 2 * run_slots; i++)
    EXPECT_NE(table->take(false, handle_of(*cache)), worn);
  Slot* const other = table->take(true, 0);
  Slot* const first = table->take(false, handle_of(*other));
  first->word.store(state_mask << 32);
  table->give_back(first);
  table->give_back(other);
  Slot* const next = table->take(true, 0);
  for (uint32_t i = 0; i < chunk_slots; i++) EXPECT_NE(table->take(false, handle_of(*next)), first);
}

// Each round, all threads take slots of the same objects. Then the objects end, while each thread
// gives back what it has of them and takes slots of the next ones.
TEST(Slots, OfManyThreadsAreTheirsAlone) {
  constexpr size_t threads = 4, rounds = 200, objects = 3;
  static SlotTable* const table = new SlotTable;  // never freed, as its chunks
  // By round and object: its slot, and how many threads have not taken of it yet.
  struct Object {
    std::atomic<Slot*> slot{nullptr};
    std::atomic<size_t> left{threads};
  };
  std::vector<Object> all(rounds * objects);
  std::vector<std::atomic<bool>> in_use(max_chunks * chunk_slots);
  std::atomic<size_t> wrong{0};
  const auto take = [&](uint64_t parent) {
    Slot* const slot = table->take(parent == 0, parent);
    wrong += in_use[slot->index].exchange(true);
    return slot;
  };
  const auto give_back = [&](Slot* slot) {
    wrong += !in_use[slot->index].exchange(false);
    table->give_back(slot);
  };
  const auto run = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Slot*> kept;
    for (size_t i = 0; i < all.size(); i++) {
      Object& object = all[i];
      // The first thread that comes opens the object.
      if (Slot* expected = nullptr; object.slot.load() == nullptr) {
        Slot* const made = take(0);
        if (!object.slot.compare_exchange_strong(expected, made)) give_back(made);
      }
      Slot* const parent = object.slot.load();
      std::vector<Slot*> mine;
      for (size_t n = random() % 40; n > 0; n--) mine.push_back(take(handle_of(*parent)));
      const std::set<const Slot*> found = children_of(*table, *parent);
      wrong += static_cast<size_t>(std::count_if(
          mine.begin(), mine.end(), [&](const Slot* slot) { return !found.contains(slot); }));
      for (Slot* const slot : kept) give_back(slot);
      kept = std::move(mine);
      if (--object.left == 0) give_back(parent);
    }
    for (Slot* const slot : kept) give_back(slot);
  };
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; i++) running.emplace_back(run, i);
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(std::none_of(in_use.begin(), in_use.end(),
                           [](const std::atomic<bool>& used) { return used.load(); }));
}

}  // namespace
}  // namespace slots_test
