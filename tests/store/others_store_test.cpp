// A directory store among other users: where it may be, and each of its operations with each kind
// of thing in the way.
#include <pagedkv/store.h>
#include <sys/file.h>
#include <sys/mount.h>

#include <fstream>

#include "../support/files.h"
#include "others.h"

namespace others::others_store_test {
namespace {

using store::Bytes;

// ---- The store and its operations ---------------------------------------------------------------

pkv_status try_open(const std::string& path, pkv_store* out, uint64_t capacity = 0) {
  auto config = made<pkv_directory_config>({.path = path.c_str(), .max_bytes = capacity});
  return pkv_store_open_directory(&config, out);
}

class Store {
 public:
  explicit Store(const std::string& path, uint64_t capacity = 0) {
    CHECK(try_open(path, &table_, capacity));
  }
  ~Store() { pkv_store_close(&table_); }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  int64_t put(unsigned char key, Bytes bytes) { return call(table_.put, key, bytes); }
  int64_t get(unsigned char key, Bytes& bytes) { return call(table_.get, key, bytes); }
  int64_t touch(unsigned char key, Bytes& bytes) { return call(table_.touch, key, bytes, false); }
  int64_t remove(unsigned char key) {
    Bytes none;
    return call(table_.remove, key, none, false);
  }

 private:
  template <class Function>
  int64_t call(Function function, unsigned char key, Bytes& bytes, bool with_data = true) {
    pkv_store_item item{};
    std::memset(item.name, key, sizeof item.name);
    item.data = with_data ? bytes.data() : nullptr;
    item.size = bytes.size();
    const int64_t result = function(table_.user, 1, &item);
    bytes.resize(item.size);
    return result;
  }
  pkv_store table_ = made<pkv_store>();
};

constexpr unsigned char key = 0xab, other_key = 0x0f;
const std::string shard_name = "ab", item_name = [] {
  std::string name;
  for (int i = 0; i < 31; i++) name += "ab";
  return name + ".kv";
}();
const std::string temporary_name = ".pagedkv-0123456789abcdef.tmp";

// Operates on the item with that key. With something in the way it must do nothing and return
// `refused`.
struct Operation {
  const char* name;
  std::function<int64_t(const std::string& path)> call;
  int64_t result, hindered;
};
const Operation operations[] = {
    {"put", [](auto& path) { return Store(path).put(key, {1, 2, 3}); }, 1, -EPERM},
    {"get",
     [](auto& path) {
       Bytes room(100);
       return Store(path).get(key, room);
     },
     1, 0},
    {"touch",
     [](auto& path) {
       Bytes room(100);
       return Store(path).touch(key, room);
     },
     1, 0},
    {"remove", [](auto& path) { return Store(path).remove(key); }, 1, 0},
    {"evict", [](auto& path) { return Store(path, 1).put(other_key, {1, 2, 3}); }, 1, 1},
};

// ---- Where a store may be -----------------------------------------------------------------------

struct Root {
  const char* name;
  bool needs_root;
  std::function<void(const Scene&, const std::string& path)> make;
  // The refusal contains these words. nullptr means that the path may be used.
  const char* refused;
};

Root folder(const char* name, bool needs_root, uid_t (*owner)(const Scene&), mode_t mode,
            const char* refused) {
  return {name, needs_root, [=](auto& scene, auto& path) { make_folder(path, owner(scene), mode); },
          refused};
}

const std::vector<Root> roots = {
    {"nothing", false, [](auto&, auto&) {}, nullptr},
    folder("the caller's", false, own, 0700, nullptr),
    folder("the caller's, readable", false, own, 0755, nullptr),
    folder("the caller's, sticky", false, own, 01755, nullptr),
    folder("the caller's, with a group that may write", false, own, 0770, "(mode 0770): "),
    folder("the caller's, with others that may write", false, own, 0702, "(mode 0702): "),
    folder("the caller's, sticky and open to all", false, own, 01777, "(mode 1777): "),
    folder("another user's", true, others_own, 0700, "Operation not permitted"),
    folder("another user's, readable", true, others_own, 0755, "directory of user 54322"),
    folder("another user's, open to all", true, others_own, 0777, "directory of user 54322"),
    folder("another user's, sticky and open to all", true, others_own, 01777,
           "directory of user 54322"),
    {"a file", false, [](auto& scene, auto& path) { make_file(path, {'a'}, scene.caller, 0644); },
     "Not a directory"},
};

class Stores : public testing::Test {
 protected:
  int left_out_ = 0;

  template <class Some, class Visit>
  void each(const Some& some, const Visit& visit) {
    for (const uid_t caller : callers())
      for (const auto& one : some) {
        const testing::ScopedTrace trace(__FILE__, __LINE__,
                                         "as user " + std::to_string(caller) + ": " + one.name);
        if (one.needs_root && !is_root()) left_out_++;
        if (!one.needs_root || is_root()) visit(caller, one);
      }
  }
  void say_what_was_left_out() const {
    if (left_out_ > 0)
      GTEST_SKIP() << left_out_ << " cases with files of other users need root; the rest passed";
  }
};

void expect_refused(const Scene& scene, const std::string& path, const char* words) {
  const Things before = scene.things();
  pkv_store out = made<pkv_store>();
  pkv_status status;
  {
    const As caller(scene.caller);
    status = try_open(path, &out);
  }
  EXPECT_EQ(PKV_IO, status);
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "(errno ")) << pkv_last_error();
  const bool unreadable =
      scene.caller != 0 && std::strstr(pkv_last_error(), "Permission denied") != nullptr;
  EXPECT_TRUE(unreadable || std::strstr(pkv_last_error(), words) != nullptr)
      << pkv_last_error() << "; wanted: " << words;
  EXPECT_TRUE(before == scene.things());
}

TEST_F(Stores, PathsThatMayBeOne) {
  const mode_t mask = umask(0);
  each(roots, [&](uid_t caller, const Root& root) {
    const Scene scene(caller, caller, 0755);
    const std::string path = scene.place() + "/store";
    root.make(scene, path);
    if (root.refused != nullptr) return expect_refused(scene, path, root.refused);
    const bool is_new = !fs::exists(path);
    {
      const As self(caller);
      EXPECT_EQ(1, operations[0].call(path));
    }
    const std::string mode = octal(thing_at(path).mode);
    EXPECT_TRUE(!is_new || mode == "0700") << mode;
    EXPECT_EQ("0700", octal(thing_at(path + "/" + shard_name).mode));
    EXPECT_EQ("0600", octal(thing_at(path + "/" + shard_name + "/" + item_name).mode));
  });
  umask(mask);
  say_what_was_left_out();
}

TEST_F(Stores, LinksAndOtherThingsAreNone) {
  each(irregular_ones(), [&](uid_t caller, const Obstacle& obstacle) {
    const Scene scene(caller, caller, 0755);
    const std::string path = scene.place() + "/store";
    obstacle.make(scene, path);
    const bool link = fs::is_symlink(fs::symlink_status(path));
    for (const char* slashes : {"", "/", "//"})
      expect_refused(scene, path + slashes, link ? "symbolic link" : "Not a directory");
  });
  say_what_was_left_out();
}

// ---- Things in the way of an operation ----------------------------------------------------------

// Makes a store with an item, which `spoil` then changes. Then it calls each operation, which may
// change only what eviction and a put of another item may.
void each_operation(uid_t caller, const std::function<void(const Scene&, const std::string& shard,
                                                           const std::string& item)>& spoil) {
  for (const Operation& operation : operations) {
    SCOPED_TRACE(operation.name);
    const Scene scene(caller, caller, 0755);
    const std::string path = scene.place() + "/store", shard = path + "/" + shard_name;
    make_folder(path, caller, 0755);
    make_folder(shard, caller, 0755);
    spoil(scene, shard, shard + "/" + item_name);
    const Things before = scene.things();
    int64_t result;
    {
      const As self(caller);
      result = operation.call(path);
    }
    EXPECT_TRUE(result == operation.hindered ||
                (operation.hindered < 0 && (result == -ENOTDIR || result == -ELOOP)))
        << result;
    Things after = scene.things();
    std::erase_if(after, [&](const auto& thing) {
      return before.count(thing.first) == 0 && thing.first.starts_with(path + "/0f");
    });
    EXPECT_TRUE(before == after) << "something was changed";
  }
}

TEST_F(Stores, ThingsInThePlaceOfAnItem) {
  each(irregular_ones(), [&](uid_t caller, const Obstacle& obstacle) {
    each_operation(caller, [&](auto& scene, auto&, auto& item) { obstacle.make(scene, item); });
  });
  const Obstacle files[] = {
      {"another user's file", true,
       [](auto&, auto& path) { make_file(path, {1, 2, 3}, stranger, 0644); }},
      {"another user's file, writable by all", true,
       [](auto&, auto& path) { make_file(path, {1, 2, 3}, stranger, 0666); }},
      {"another user's file, set-user-id", true,
       [](auto&, auto& path) { make_file(path, {1, 2, 3}, stranger, 04777); }},
      {"a folder", false, [](auto& scene, auto& path) { make_folder(path, scene.caller, 0700); }},
  };
  each(files, [&](uid_t caller, const Obstacle& obstacle) {
    each_operation(caller, [&](auto& scene, auto&, auto& item) { obstacle.make(scene, item); });
  });
  say_what_was_left_out();
}

TEST_F(Stores, ThingsInThePlaceOfAShard) {
  const auto in_the_place = [](const Obstacle& obstacle, uid_t caller) {
    each_operation(caller, [&](auto& scene, auto& shard, auto&) {
      make_file(scene.elsewhere() + "/folder/" + item_name, {1, 2, 3}, scene.caller, 0600);
      make_file(scene.elsewhere() + "/folder/" + temporary_name, {1, 2, 3}, scene.caller, 0600);
      fs::remove(shard);
      obstacle.make(scene, shard);
    });
  };
  each(irregular_ones(),
       [&](uid_t caller, const Obstacle& obstacle) { in_the_place(obstacle, caller); });
  const auto folder = [](auto owner, mode_t mode) {
    return [=](const Scene& scene, const std::string& path) {
      make_folder(path, owner(scene), 0755);
      make_file(path + "/" + item_name, {1, 2, 3}, scene.caller, 0600);
      make_file(path + "/" + temporary_name, {1, 2, 3}, scene.caller, 0600);
      give(path, owner(scene), mode);
    };
  };
  const Obstacle folders[] = {
      {"the caller's folder, open to all", false, folder(own, 0777)},
      {"the caller's folder, sticky and open to all", false, folder(own, 01777)},
      {"the caller's folder, with a group that may write", false, folder(own, 0770)},
      {"another user's folder", true, folder(others_own, 0755)},
      {"another user's folder, open to all", true, folder(others_own, 0777)},
      {"a file", false,
       [](auto& scene, auto& path) { make_file(path, {1, 2, 3}, scene.caller, 0644); }},
  };
  each(folders, [&](uid_t caller, const Obstacle& obstacle) { in_the_place(obstacle, caller); });
  say_what_was_left_out();
}

// A hard link to one of the caller's own files is an item by its name. Its other name is not
// touched.
TEST_F(Stores, AHardLinkLosesItsNameOnly) {
  for (const Operation& operation : operations) {
    SCOPED_TRACE(operation.name);
    const Scene scene(me, me, 0755);
    make_folder(scene.place() + "/ab", me, 0700);
    fs::create_hard_link(scene.precious(), scene.place() + "/ab/" + item_name);
    EXPECT_EQ(operation.result, operation.call(scene.place()));
    EXPECT_EQ("mine", files::read(scene.precious()));
  }
}

// ---- The files that a store regards as its own --------------------------------------------------

// Waits until files get another time: that of the system's last tick, so files that are used in one
// tick are equally old.
void wait_for_a_tick() {
  timespec before, now;
  clock_gettime(CLOCK_REALTIME_COARSE, &before);
  do {
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
  } while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec);
}

TEST_F(Stores, OnlyItsOwnNames) {
  const Scene scene(me, me, 0700);
  const std::string folders[] = {"app", "app/ui", "ab", "ab/deeper", "abc", "a", "AB", "gg", ".ab"};
  std::string upper = item_name;
  for (char& letter : upper) letter = static_cast<char>(std::toupper(letter));
  for (const std::string& name : folders) make_folder(scene.place() + "/" + name, me, 0700);
  std::vector<std::string> names = {"app/ui/main.kv",
                                    "main.kv",
                                    item_name,
                                    "ab/main.kv",
                                    "ab/notes",
                                    "ab/" + upper,
                                    "ab/" + item_name + "~",
                                    "ab/" + item_name.substr(1),
                                    "ab/0" + item_name,
                                    "ab/" + item_name.substr(0, 62),
                                    "ab/.kv",
                                    "ab/g" + item_name.substr(1),
                                    temporary_name,
                                    "app/" + temporary_name,
                                    "ab/x" + temporary_name,
                                    "ab/" + temporary_name + "x",
                                    "ab/.pagedkv-0123456789ABCDEF.tmp",
                                    "ab/.pagedkv-01234567.tmp"};
  for (const char* folder : {"app/ui/", "ab/deeper/", "abc/", "a/", "AB/", "gg/", ".ab/"})
    names.push_back(folder + item_name);
  for (const std::string& name : names)
    make_file(scene.place() + "/" + name, Bytes(1000), me, 0600);
  const Things before = scene.things();
  {
    // This is less than what is not counted.
    Store store(scene.place(), 100);
    EXPECT_EQ(1, store.put(key, Bytes(60)));
    EXPECT_EQ(1, store.put(other_key, Bytes(30)));
    Bytes room(100);
    EXPECT_EQ(1, store.get(key, room)) << "other files count, too";
    wait_for_a_tick();
    EXPECT_EQ(1, store.put(other_key, Bytes(60)));
    EXPECT_EQ(0, store.get(key, room)) << "the oldest went";
  }
  Things after = scene.things();
  std::erase_if(after,
                [&](const auto& thing) { return thing.first.starts_with(scene.place() + "/0f"); });
  EXPECT_TRUE(before == after);
}

// ---- Temporary files that killed processes left -------------------------------------------------

// Something under a temporary file's name. It is removed only if its writer has certainly ended.
struct Leftover {
  const char* name;
  bool needs_root;
  std::function<void(const Scene&, const std::string& path)> make;
  bool goes;
};
const std::vector<Leftover> leftovers = {
    {"a file without a writer", false,
     [](auto& scene, auto& path) { make_file(path, Bytes(1000), scene.caller, 0600); }, true},
    {"a file without a writer, of another mode", false,
     [](auto& scene, auto& path) { make_file(path, Bytes(1000), scene.caller, 0444); }, true},
    {"a file with another name", false,
     [](auto& scene, auto& path) {
       make_file(path, Bytes(1000), scene.caller, 0600);
       fs::create_hard_link(path, scene.elsewhere() + "/another");
     },
     false},
    {"another user's file", true,
     [](auto&, auto& path) { make_file(path, Bytes(1000), stranger, 0666); }, false},
    {"a folder", false, [](auto& scene, auto& path) { make_folder(path, scene.caller, 0700); },
     false},
    {"a link to the caller's file", false,
     [](auto& scene, auto& path) { fs::create_symlink(scene.precious(), path); }, false},
    {"a FIFO", false, [](auto&, auto& path) { make_fifo(path); }, false},
    {"a socket", false, [](auto&, auto& path) { make_socket(path); }, false},
};

bool exists(const std::string& path) { return fs::exists(fs::symlink_status(path)); }

TEST_F(Stores, OrphansGoWhenItIsOpened) {
  each(leftovers, [&](uid_t caller, const Leftover& leftover) {
    for (const uint64_t capacity : {0, 1000000}) {
      const Scene scene(caller, caller, 0700);
      make_folder(scene.place() + "/ab", caller, 0700);
      const std::string path = scene.place() + "/ab/" + temporary_name;
      leftover.make(scene, path);
      const As self(caller);
      const Store store(scene.place(), capacity);
      EXPECT_EQ(leftover.goes, !exists(path));
      EXPECT_EQ("mine", files::read(scene.precious()));
    }
  });
  say_what_was_left_out();
}

TEST_F(Stores, OrphansBesideASavedFileGoWithTheNextSave) {
  const store::Plan plan;
  const store::Cache cache = store::create(plan);
  each(leftovers, [&](uid_t caller, const Leftover& leftover) {
    for (const mode_t mode : {0700, 01777, 0777}) {
      const Scene scene(caller, caller, mode);
      const std::string path = scene.place() + "/" + temporary_name;
      leftover.make(scene, path);
      const As self(caller);
      const std::string chat = scene.place() + "/chat.pkv";
      const pkv_stream to = store::at_path(chat);
      auto config = made<pkv_file_config>({.durability = PKV_DURABILITY_OFF});
      CHECK(pkv_file_save(cache, 0, nullptr, &config, &to, nullptr));
      EXPECT_EQ(leftover.goes, !exists(path));
      EXPECT_EQ("mine", files::read(scene.precious()));
    }
  });
  say_what_was_left_out();
}

// A temporary file stays, and counts, while a process writes to it.
TEST_F(Stores, WhatIsBeingWrittenCountsAndStays) {
  const Scene scene(me, me, 0700);
  make_folder(scene.place() + "/ab", me, 0700);
  const std::string path = scene.place() + "/ab/" + temporary_name;
  make_file(path, Bytes(1000), me, 0600);
  const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(0, flock(writer, LOCK_EX | LOCK_NB));
  Store store(scene.place(), 1200);
  EXPECT_EQ(1, store.put(key, Bytes(150)));
  Bytes room(1000);
  EXPECT_EQ(1, store.get(key, room)) << "1150 bytes of 1200";
  EXPECT_EQ(1, store.put(other_key, Bytes(151)));
  EXPECT_EQ(0, store.get(key, room) + store.get(other_key, room))
      << "1301 bytes of 1200: down to nine tenths";
  EXPECT_TRUE(exists(path));
  close(writer);
  EXPECT_EQ(1, store.put(key, Bytes(1201)));
  EXPECT_FALSE(exists(path));
}

// A small file system that runs out of bytes, or of files. Only root can make one.
TEST_F(Stores, ASmallDiskKeepsWhatIsNew) {
  for (const char* options : {"size=2m", "size=64m,nr_inodes=80"}) {
    SCOPED_TRACE(options);
    const files::TemporaryDirectory directory;
    if (mount("pagedkv", directory.path().c_str(), "tmpfs", 0, options) != 0)
      GTEST_SKIP() << "no file system can be mounted: nothing was shown about a full disk";
    {
      Store store(directory / "items");
      const Bytes item(100 << 10, 'i');
      for (unsigned char which = 0; which < 40; which++) {
        EXPECT_EQ(1, store.put(which, item)) << int{which};
        Bytes room(item.size());
        EXPECT_EQ(1, store.get(which, room)) << int{which};
      }
      Bytes room(item.size());
      EXPECT_EQ(0, store.get(0, room));
    }
    umount2(directory.path().c_str(), MNT_DETACH);
  }
}

// In a large directory only one save in many reads all names.
TEST_F(Stores, OrphansInALargeDirectoryGoInTheEnd) {
  const store::Plan plan;
  const store::Cache cache = store::create(plan);
  const Scene scene(me, me, 0700);
  for (int i = 0; i < 2000; i++)
    make_file(scene.place() + "/neighbour" + std::to_string(i), {}, me, 0600);
  const auto orphan = [&](int i) {
    return scene.place() + "/.pagedkv-" + std::to_string(1000000000000000 + i) + ".tmp";
  };
  for (int i = 0; i < 20; i++) make_file(orphan(i), {}, me, 0600);
  const std::string chat = scene.place() + "/chat.pkv";
  const pkv_stream to = store::at_path(chat);
  auto config = made<pkv_file_config>({.durability = PKV_DURABILITY_OFF});
  int left = 20;
  for (int saves = 0; saves < 5000 && left > 0; saves++) {
    CHECK(pkv_file_save(cache, 0, nullptr, &config, &to, nullptr));
    left = 0;
    for (int i = 0; i < 20; i++) left += exists(orphan(i));
  }
  EXPECT_EQ(0, left);
}

}  // namespace
}  // namespace others::others_store_test
