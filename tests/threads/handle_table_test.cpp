// The entries of handles (src/api/handle_table.h): threads that take entries for the children of
// the same objects, and give them back before or after the objects end, never share one, and lose
// none.
#include "api/handle_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace handle_table_test {
namespace {

using namespace pkv::api;

uint64_t handle_of(const HandleEntry& entry) { return uint64_t{1} << 32 | entry.index; }

std::set<const HandleEntry*> children_of(const HandleTable& table, const HandleEntry& parent) {
  std::set<const HandleEntry*> children;
  table.for_each_child(handle_of(parent), [&](HandleEntry& entry) { children.insert(&entry); });
  return children;
}

TEST(Slots, OfAnObjectAreFoundAmongItsOwnOnly) {
  static HandleTable* const table = new HandleTable;  // never freed, as its chunks
  HandleEntry* const cache = table->take(true, 0);
  HandleEntry* const other = table->take(true, 0);
  EXPECT_EQ(children_of(*table, *cache).size(), 0u);
  std::set<const HandleEntry*> taken;
  for (size_t i = 0; i < 20; i++) taken.insert(table->take(false, handle_of(*cache)));
  for (size_t i = 0; i < 5000; i++) table->take(false, handle_of(*other));
  const std::set<const HandleEntry*> found = children_of(*table, *cache);
  EXPECT_EQ(taken.size(), 20u);
  EXPECT_EQ(found.size(), 2 * run_entries);
  EXPECT_TRUE(std::includes(found.begin(), found.end(), taken.begin(), taken.end()));
}

// More objects end than the table could have entries for if it lost those of their children. Every
// other one ends before its last child.
TEST(Slots, OfChildrenArePassedOn) {
  static HandleTable* const table = new HandleTable;  // never freed, as its chunks
  uint32_t highest = 0;
  for (size_t i = 0; i < 2 * max_chunks * chunk_entries / run_entries; i++) {
    HandleEntry* const cache = table->take(true, 0);
    HandleEntry* const child = table->take(false, handle_of(*cache));
    highest = std::max({highest, cache->index, child->index});
    table->give_back(i % 2 == 0 ? child : cache);
    table->give_back(i % 2 == 0 ? cache : child);
  }
  EXPECT_LT(highest, 4 * run_entries);
}

// An entry that has used all its generations belongs to no other object either.
TEST(Slots, WithoutGenerationsStayOutOfUse) {
  static HandleTable* const table = new HandleTable;
  HandleEntry* const cache = table->take(true, 0);
  HandleEntry* const worn = table->take(false, handle_of(*cache));
  worn->word.store(state_mask << 32);
  table->give_back(worn);
  for (uint32_t i = 0; i < 2 * run_entries; i++)
    EXPECT_NE(table->take(false, handle_of(*cache)), worn);
  HandleEntry* const other = table->take(true, 0);
  HandleEntry* const first = table->take(false, handle_of(*other));
  first->word.store(state_mask << 32);
  table->give_back(first);
  table->give_back(other);
  HandleEntry* const next = table->take(true, 0);
  for (uint32_t i = 0; i < chunk_entries; i++)
    EXPECT_NE(table->take(false, handle_of(*next)), first);
}

// Each round, all threads take entries of the same objects. Then the objects end, while each thread
// gives back what it has of them and takes entries of the next ones.
TEST(Slots, OfManyThreadsAreTheirsAlone) {
  constexpr size_t threads = 4, rounds = 200, objects = 3;
  static HandleTable* const table = new HandleTable;  // never freed, as its chunks
  // By round and object: its entry, and how many threads have not taken of it yet.
  struct Object {
    std::atomic<HandleEntry*> entry{nullptr};
    std::atomic<size_t> left{threads};
  };
  std::vector<Object> all(rounds * objects);
  std::vector<std::atomic<bool>> in_use(max_chunks * chunk_entries);
  std::atomic<size_t> wrong{0};
  const auto take = [&](uint64_t parent) {
    HandleEntry* const entry = table->take(parent == 0, parent);
    wrong += in_use[entry->index].exchange(true);
    return entry;
  };
  const auto give_back = [&](HandleEntry* entry) {
    wrong += !in_use[entry->index].exchange(false);
    table->give_back(entry);
  };
  const auto run = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<HandleEntry*> kept;
    for (size_t i = 0; i < all.size(); i++) {
      Object& object = all[i];
      // The first thread that comes opens the object.
      if (HandleEntry* expected = nullptr; object.entry.load() == nullptr) {
        HandleEntry* const made = take(0);
        if (!object.entry.compare_exchange_strong(expected, made)) give_back(made);
      }
      HandleEntry* const parent = object.entry.load();
      std::vector<HandleEntry*> mine;
      for (size_t n = random() % 40; n > 0; n--) mine.push_back(take(handle_of(*parent)));
      const std::set<const HandleEntry*> found = children_of(*table, *parent);
      wrong += static_cast<size_t>(
          std::count_if(mine.begin(), mine.end(),
                        [&](const HandleEntry* entry) { return !found.contains(entry); }));
      for (HandleEntry* const entry : kept) give_back(entry);
      kept = std::move(mine);
      if (--object.left == 0) give_back(parent);
    }
    for (HandleEntry* const entry : kept) give_back(entry);
  };
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; i++) running.emplace_back(run, i);
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(std::none_of(in_use.begin(), in_use.end(),
                           [](const std::atomic<bool>& used) { return used.load(); }));
}

}  // namespace
}  // namespace handle_table_test
