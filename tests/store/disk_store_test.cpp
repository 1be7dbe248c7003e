// A directory store on a disk that fails, is full, or is changed by other processes between any two
// of its calls. An item is the old one, the new one or missing, and nothing else stays.
#include <pagedkv/store.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "disk_fixture.h"

namespace store::disk_store_test {
namespace {

using disk::Fault;

constexpr unsigned char key = 0xab;

struct Setting {
  bool durable = false, unnamed = true;
  uint64_t capacity = 0;
};

class Store {
 public:
  Store(const Directory& directory, const Setting& setting) {
    auto config = made<pkv_directory_config>();
    const std::string path = directory / "items";
    config.path = path.c_str();
    config.durability = setting.durable ? PKV_DURABILITY_ON : PKV_DURABILITY_OFF;
    config.max_bytes = setting.capacity;
    CHECK(pkv_store_open_directory(&config, &table_));
  }
  ~Store() { pkv_store_close(&table_); }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  int64_t put(Bytes bytes, unsigned char which = key) { return call(table_.put, bytes, which); }
  // Puts items of the same bytes under the names 0, 1, ... and sets `sizes` to what their sizes are
  // then.
  int64_t put_some(Bytes bytes, std::vector<uint64_t>& sizes) {
    std::vector<pkv_store_item> items(sizes.size());
    for (size_t i = 0; i < items.size(); i++)
      items[i] = item_of(bytes, static_cast<unsigned char>(i));
    const int64_t stored = table_.put(table_.user, items.size(), items.data());
    for (size_t i = 0; i < items.size(); i++) sizes[i] = items[i].size;
    return stored;
  }
  int64_t remove(unsigned char which = key) {
    Bytes none;
    return call(table_.remove, none, which);
  }
  std::string last_error() const { return table_.last_error(table_.user); }
  // Returns the item, or nothing if there is none.
  Bytes get(unsigned char which = key) {
    Bytes room(1000);
    if (call(table_.get, room, which) != 1) return {};
    return room;
  }

 private:
  template <class Function>
  int64_t call(Function function, Bytes& bytes, unsigned char which) {
    pkv_store_item item = item_of(bytes, which);
    const int64_t result = function(table_.user, 1, &item);
    bytes.resize(item.size);
    return result;
  }
  static pkv_store_item item_of(Bytes& bytes, unsigned char which) {
    pkv_store_item item{};
    std::memset(item.name, which, sizeof item.name);
    item.data = bytes.data();
    item.size = bytes.size();
    return item;
  }
  pkv_store table_ = made<pkv_store>();
};

const Bytes old_item(300, 'o'), new_item(200, 'n');

// Counts the files in all shards.
size_t files_in(const Directory& directory) {
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "items"))
    files += entry.is_regular_file();
  return files;
}

// Runs an operation with a fault at its k-th call on files, for each k that it has. `prepare` runs
// before each, and `judge` afterwards with the name of the call that failed.
template <class Prepare, class Operation, class Judge>
void at_each_call(const Prepare& prepare, Fault fault, const Setting& setting,
                  const Operation& operation, const Judge& judge) {
  for (uint64_t k = 1;; k++) {
    prepare();
    int64_t result = 0;
    const std::string struck = at_call(
        k, setting.unnamed, [&](const std::string&) { return fault; },
        [&] { result = operation(); });
    if (struck.empty()) {
      EXPECT_GT(k, 2u) << "calls were tried";
      return;
    }
    judge(struck, result);
  }
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const bool durable : {false, true})
    for (const bool unnamed : {false, true}) all.push_back({durable, unnamed, 0});
  return all;
}

// Whether the result of a put is right. A shard whose owner is unknown counts as another user's.
bool is_told(int64_t result, int error, const std::string& struck) {
  return result == 1 || result == -error || (struck == "fstat" && result == -EPERM);
}

TEST(StoreFaults, OfEveryCallOfAPut) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    for (const Setting& setting : settings()) {
      const Directory directory;
      Store store(directory, setting);
      disk::error = error;
      const auto prepare = [&] { ASSERT_EQ(1, store.put(old_item)); };
      at_each_call(
          prepare, Fault::fails, setting, [&] { return store.put(new_item); },
          [&](const std::string& struck, int64_t result) {
            EXPECT_TRUE(is_told(result, error, struck)) << struck << ": " << result;
            const Bytes now = store.get();
            const bool is_new = now == new_item;
            EXPECT_TRUE(is_new || now == old_item) << struck << ": " << now.size() << " bytes";
            // After the last sync, that of the shard, the item has its name already.
            EXPECT_TRUE(is_new == (result == 1) || struck == "fsync") << struck << ": " << result;
            // A temporary file that cannot be removed stays until the store is opened again.
            EXPECT_EQ(1u, files_in(directory)) << struck;
          });
    }
  }
}

// The sizes say which of three items the store has.
TEST(StoreFaults, OfEveryCallOfAPutOfSeveral) {
  const Directory directory;
  Store store(directory, {});
  disk::error = EIO;
  std::vector<uint64_t> sizes(3);
  std::set<std::vector<uint64_t>> seen;
  const auto prepare = [&] {
    for (unsigned char which = 0; which < 3; which++) store.remove(which);
  };
  at_each_call(
      prepare, Fault::fails, {}, [&] { return store.put_some(new_item, sizes); },
      [&](const std::string& struck, int64_t result) {
        int64_t kept = 0;
        for (unsigned char which = 0; which < 3; which++) {
          EXPECT_EQ(sizes[which], store.get(which).size()) << struck << ", item " << int{which};
          kept += sizes[which] != 0;
        }
        EXPECT_EQ(kept, std::max<int64_t>(result, 0)) << struck;
        seen.insert(sizes);
      });
  const uint64_t size = new_item.size();
  EXPECT_TRUE(seen.contains({0, 0, 0})) << "after an error the store tries no others";
  EXPECT_TRUE(seen.contains({size, 0, 0}));
  EXPECT_TRUE(seen.contains({size, size, 0}));
  EXPECT_TRUE(seen.contains({size, 0, size})) << "another's folder is in the way";
}

TEST(StoreFaults, OfEveryCallOfTheFirstPut) {
  for (const Setting& setting : settings()) {
    const Directory directory;
    disk::error = EIO;
    Store store(directory, setting);
    at_each_call([&] { fs::remove_all(directory / "items/ab"); }, Fault::fails, setting,
                 [&] { return store.put(new_item); },
                 [&](const std::string& struck, int64_t result) {
                   EXPECT_TRUE(is_told(result, EIO, struck)) << struck << ": " << result;
                   const Bytes now = store.get();
                   EXPECT_TRUE(now == new_item || (result != 1 && now.empty())) << struck;
                 });
  }
}

TEST(StoreFaults, ShortWritesAndReadsAreRepeated) {
  const Directory directory;
  for (const Setting& setting : settings()) {
    Store store(directory, setting);
    const auto prepare = [&] { ASSERT_EQ(1, store.put(old_item)); };
    at_each_call(
        prepare, Fault::short_count, setting, [&] { return store.put(new_item); },
        [&](const std::string& struck, int64_t result) {
          EXPECT_EQ(1, result) << struck;
          EXPECT_EQ(new_item, store.get()) << struck;
        });
    Bytes found;
    at_each_call(
        prepare, Fault::short_count, setting, [&] { return (found = store.get()).empty() ? 0 : 1; },
        [&](const std::string& struck, int64_t) { EXPECT_EQ(old_item, found) << struck; });
  }
}

TEST(StoreFaults, OfEveryCallOfAGetAndARemove) {
  const Directory directory;
  const Setting setting;
  Store store(directory, setting);
  disk::error = EIO;
  const auto prepare = [&] { ASSERT_EQ(1, store.put(old_item)); };
  Bytes found;
  at_each_call(
      prepare, Fault::fails, setting, [&] { return (found = store.get()).empty() ? 0 : 1; },
      [&](const std::string& struck, int64_t) {
        EXPECT_TRUE(found.empty() || found == old_item) << struck << ": " << found.size();
        EXPECT_EQ(old_item, store.get()) << struck;
      });
  at_each_call(
      prepare, Fault::fails, setting, [&] { return store.remove(); },
      [&](const std::string& struck, int64_t result) {
        EXPECT_EQ(result == 1 ? Bytes() : old_item, store.get()) << struck << ": " << result;
      });
}

// If nothing can be removed, the store exceeds its capacity. Later it shrinks again.
TEST(StoreFaults, OfEveryCallOfAnEviction) {
  const Directory directory;
  const Setting setting = {.capacity = 500};
  Store store(directory, setting);
  disk::error = EIO;
  const auto prepare = [&] {
    ASSERT_EQ(1, store.put(old_item, 1));
    ASSERT_EQ(1, store.put(new_item, 2));
  };
  at_each_call(
      prepare, Fault::fails, setting, [&] { return store.put(old_item, 3); },
      [&](const std::string& struck, int64_t result) {
        EXPECT_TRUE(result == 1 || result == -EIO) << struck << ": " << result;
        const Bytes now = store.get(3);
        EXPECT_TRUE(now.empty() || now == old_item) << struck;
        EXPECT_EQ(1, store.put(new_item, 4)) << struck;
        uint64_t bytes = 0;
        for (unsigned char which = 1; which <= 4; which++) bytes += store.get(which).size();
        // An item whose status could not be read was not counted.
        EXPECT_LE(bytes, setting.capacity + (struck == "fstatat" ? old_item.size() : 0)) << struck;
      });
}

// ---- Limits that others reach -------------------------------------------------------------------

// Returns the bytes of all files of a store.
uint64_t bytes_in(const Directory& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "items"))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// While it lives, writes fail with an errno once the store has that many bytes.
class FullDisk {
 public:
  FullDisk(const Directory& directory, uint64_t bytes, int error) {
    disk::error = error;
    disk::before = [&directory, bytes](const std::string& call) {
      return call == "write" && bytes_in(directory) + old_item.size() > bytes ? Fault::fails
                                                                              : Fault::none;
    };
  }
  ~FullDisk() { disk::before = nullptr; }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
};

// A disk or a quota may be full before the store's capacity is reached, which no counter of the
// store can tell.
TEST(StoreLimits, ADiskThatFillsBeforeTheCapacity) {
  for (const int error : {ENOSPC, EDQUOT}) {
    for (const uint64_t capacity : {0, 100'000}) {
      const Directory directory;
      Store store(directory, {.capacity = capacity});
      const FullDisk disk(directory, 3000, error);
      for (unsigned char which = 0; which < 40; which++) {
        EXPECT_EQ(1, store.put(old_item, which)) << int{which};
        EXPECT_EQ(old_item, store.get(0)) << "in use, while " << int{which} << " is new";
        EXPECT_EQ(old_item, store.get(which));
      }
      EXPECT_TRUE(store.get(20).empty()) << "not used for longest";
      EXPECT_LE(bytes_in(directory), 3000u);
      EXPECT_GE(bytes_in(directory), 2400u) << "no more was deleted than a part";
    }
  }
}

// If deleting does not help, the store does not delete itself. It is told why.
TEST(StoreLimits, ADiskThatSomebodyElseFills) {
  const Directory directory;
  Store store(directory, {});
  for (unsigned char which = 0; which < 20; which++) ASSERT_EQ(1, store.put(old_item, which));
  {
    const FullDisk disk(directory, 0, ENOSPC);
    for (unsigned char which = 20; which < 40; which++)
      EXPECT_EQ(-ENOSPC, store.put(old_item, which));
    EXPECT_NE(std::string::npos, store.last_error().find("(errno " + std::to_string(ENOSPC) + ")"))
        << store.last_error();
  }
  EXPECT_EQ(18 * old_item.size(), bytes_in(directory)) << "a tenth was deleted, once";
  EXPECT_EQ(1, store.put(old_item, 40));
}

// Each process counts what it puts itself. Together they keep to the capacity, too.
TEST(StoreLimits, SeveralProcessesKeepToOneCapacity) {
  const Directory directory;
  constexpr uint64_t capacity = 12'000;
  std::vector<std::unique_ptr<Store>> stores;
  uint64_t most = 0;
  unsigned char which = 0;
  for (const size_t processes : {1, 3, 2, 4}) {
    while (stores.size() < processes)
      stores.push_back(std::make_unique<Store>(directory, Setting{.capacity = capacity}));
    for (int round = 0; round < 40; round++) {
      for (size_t i = 0; i < processes; i++) ASSERT_EQ(1, stores[i]->put(old_item, which++ % 128));
      most = std::max(most, bytes_in(directory));
    }
  }
  EXPECT_LE(most, capacity + capacity / 4);
  EXPECT_GE(bytes_in(directory), capacity * 8 / 10);
}

// What a listing did not come to still counts, and the next put lists again.
TEST(StoreLimits, AListingThatAnErrorCutsShort) {
  const Directory directory;
  constexpr uint64_t capacity = 12'000;
  Store store(directory, {.capacity = capacity});
  disk::error = EIO;
  unsigned char which = 0;
  const auto put = [&] { ASSERT_EQ(1, store.put(old_item, which++ % 64)); };
  for (uint64_t k = 1, read = k; read >= k; k++) {
    while (bytes_in(directory) + old_item.size() <= capacity) put();
    read = 0;
    disk::before = [&](const std::string& call) {
      return call == "readdir" && ++read == k ? Fault::fails : Fault::none;
    };
    put();
    disk::before = nullptr;
    put();
    EXPECT_LE(bytes_in(directory), capacity) << "name " << k;
  }
}

// Another process removes the item, or its whole shard, before any of the calls.
TEST(StoreRaces, OfAnItemThatGoesAwayMeanwhile) {
  const std::string shard = "items/ab";
  for (const bool whole_shard : {false, true}) {
    for (const Setting& setting : settings()) {
      const Directory directory;
      Store store(directory, setting);
      const auto prepare = [&] { ASSERT_EQ(1, store.put(old_item)); };
      const auto with_removal = [&](const auto& operation) {
        for (uint64_t k = 1;; k++) {
          prepare();
          const auto remove = [&](const std::string&) {
            if (whole_shard) fs::remove_all(directory / shard);
            for (const auto& entry : fs::recursive_directory_iterator(directory / "items"))
              if (entry.path().extension() == ".kv") fs::remove(entry.path());
            return Fault::none;
          };
          if (at_call(k, setting.unnamed, remove, operation).empty()) return;
        }
      };
      with_removal([&] {
        const int64_t stored = store.put(new_item);
        EXPECT_TRUE(stored == 1 || (whole_shard && stored == -ENOENT)) << stored;
      });
      with_removal([&] {
        const Bytes found = store.get();
        EXPECT_TRUE(found.empty() || found == old_item) << found.size() << " bytes";
      });
      with_removal([&] {
        const int64_t removed = store.remove();
        EXPECT_TRUE(removed == 0 || removed == 1) << removed;
      });
    }
  }
}

TEST(StoreClose, ClosesOnceAndLeavesAStructToOpenAgain) {
  int closed = 0;
  auto store =
      made<pkv_store>({.user = &closed, .close = [](void* user) { ++*static_cast<int*>(user); }});
  CHECK(pkv_store_close(&store));
  EXPECT_EQ(1, closed);
  EXPECT_EQ(nullptr, store.close);
  EXPECT_EQ(sizeof store, store.struct_size);
  CHECK(pkv_store_close(&store));
  pkv_store never_opened{};
  CHECK(pkv_store_close(&never_opened));
  CHECK(pkv_store_close(nullptr));
  EXPECT_EQ(1, closed);
}

TEST(StoreClose, ClosesTheStoreThatAnotherWraps) {
  int closed = 0;
  auto inner =
      made<pkv_store>({.user = &closed, .close = [](void* user) { ++*static_cast<int*>(user); }});
  auto outer = made<pkv_store>({.user = &inner, .close = [](void* user) {
                                  CHECK(pkv_store_close(static_cast<pkv_store*>(user)));
                                }});
  CHECK(pkv_store_close(&outer));
  EXPECT_EQ(1, closed);
}

}  // namespace
}  // namespace store::disk_store_test
