// Files of other users at the paths that the library reads and writes: each function that takes a
// path, in each kind of directory, with each kind of thing in the way, as root and as an ordinary
// user.
#include "others.h"

#include <sys/xattr.h>

#include <fstream>

namespace others::others_test {
namespace {

using namespace store;

// ---- The table ----------------------------------------------------------------------------------

// A directory. Its names belong to the caller if nobody else can rename a file of theirs to them.
struct Place {
  const char* name;
  enum { caller, root, other } owner;
  mode_t mode;
  bool names_are_own;
};
const Place places[] = {
    {"the caller's", Place::caller, 0700, true},
    {"the caller's, readable", Place::caller, 0755, true},
    {"the caller's, with a group that may write", Place::caller, 0775, false},
    {"the caller's, open to all", Place::caller, 0777, false},
    {"the caller's, sticky", Place::caller, 01777, true},
    {"root's, sticky", Place::root, 01777, true},
    {"root's, open to all", Place::root, 0777, false},
    {"another user's, sticky", Place::other, 01777, false},
    {"another user's, open to all", Place::other, 0777, false},
};

// A file in the way: its owner and mode, and the mode that a new file takes over where names belong
// to the caller.
struct Old {
  const char* name;
  bool needs_root;
  std::function<void(const Scene&, const std::string& path, const Bytes& bytes)> make;
  mode_t kept;
};

template <class Owner>
Old file(const char* name, bool needs_root, Owner owner, mode_t mode, mode_t kept = 0600) {
  return {name, needs_root,
          [=](auto& scene, auto& path, auto& bytes) { make_file(path, bytes, owner(scene), mode); },
          kept};
}

const std::vector<Old> olds = {
    file("the caller's", false, own, 0640, 0640),
    file("the caller's, with nothing", false, own, 0600, 0600),
    file("the caller's, writable by all", false, own, 0666, 0666),
    file("the caller's, set-user-id", false, own, 04755, 0755),
    file("the caller's, set-group-id and sticky", false, own, 03711, 0711),
    {"the caller's, with another name", false,
     [](auto& scene, auto& path, auto& bytes) {
       make_file(path, bytes, scene.caller, 0644);
       fs::create_hard_link(path, scene.elsewhere() + "/another");
     },
     0600},
    file("another user's", true, others_own, 0600),
    file("another user's, readable", true, others_own, 0644),
    file("another user's, writable by all", true, others_own, 0666),
    file("another user's, set-user-id", true, others_own, 04777),
    file("another user's, all bits", true, others_own, 07777),
    {"another user's, with another name", true,
     [](auto& scene, auto& path, auto& bytes) {
       make_file(path, bytes, stranger, 04777);
       fs::create_hard_link(path, scene.elsewhere() + "/another");
     },
     0600},
};

// A function that reads or writes the file at a path.
struct Function {
  const char* name;
  bool writes;
  std::function<pkv_status(const Cache& cache, pkv_session session, const std::string& path)> call;
};
const Function functions[] = {
    {"pkv_file_save", true,
     [](auto& cache, auto session, auto& path) {
       const pkv_file_item item = {session, nullptr, 100};
       const pkv_stream to = at_path(path);
       auto config = made<pkv_file_config>();
       config.durability = PKV_DURABILITY_OFF;  // Durability is not the question here.
       return pkv_file_save(cache, 1, &item, &config, &to, nullptr);
     }},
    {"pkv_file_load", false,
     [](auto& cache, auto, auto& path) { return try_load(cache, at_path(path)); }},
    {"pkv_file_inspect", false,
     [](auto&, auto, auto& path) {
       pkv_file_info info{};
       info.struct_size = sizeof info;
       const pkv_stream from = at_path(path);
       return pkv_file_inspect(nullptr, &from, &info);
     }},
};

// ---- Expectations ---------------------------------------------------------------------------

class Files : public testing::Test {
 protected:
  Plan plan_;
  Cache cache_ = create(plan_);
  Session session_ = open(cache_);
  Bytes file_;
  int left_out_ = 0;

  Files() {
    append(cache_, session_, plan_, 20, 1);
    file_ = save(cache_, {session_});
  }

  void each_place(const std::function<void(uid_t caller, const Place& place, uid_t owner)>& visit) {
    for (const uid_t caller : callers())
      for (const Place& place : places) {
        const uid_t owner = place.owner == Place::caller ? caller
                            : place.owner == Place::root ? 0
                                                         : stranger;
        const testing::ScopedTrace trace(
            __FILE__, __LINE__,
            "as user " + std::to_string(caller) + ", " + place.name + " directory");
        if (!is_root() && owner != me) left_out_++;
        if (is_root() || owner == me) visit(caller, place, owner);
      }
  }
  template <class Some, class Visit>
  void each(const Some& some, const Visit& visit) {
    for (const auto& one : some) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, one.name);
      if (one.needs_root && !is_root()) left_out_++;
      if (!one.needs_root || is_root()) visit(one);
    }
  }
  void say_what_was_left_out() const {
    if (left_out_ > 0)
      GTEST_SKIP() << left_out_ << " cases with files of other users need root; the rest passed";
  }

  pkv_status call(const Function& function, const Scene& scene, const std::string& path) {
    const As caller(scene.caller);
    return function.call(cache_, session_, path);
  }

  void expect_refused(pkv_status status, const Things& before, const Scene& scene) {
    EXPECT_EQ(PKV_IO, status);
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "errno")) << pkv_last_error();
    EXPECT_TRUE(before == scene.things()) << "something was changed";
  }

  // Checks that a new file instead of the old one is the only difference.
  void expect_saved(pkv_status status, const Things& before, const Scene& scene,
                    const std::string& path, mode_t mode) {
    ASSERT_EQ(PKV_OK, status) << pkv_last_error();
    Things after = scene.things(), expected = before;
    const Thing made = after[path];
    EXPECT_TRUE(S_ISREG(made.mode));
    EXPECT_EQ(octal(mode), octal(made.mode));
    EXPECT_EQ(scene.caller, made.owner);
    EXPECT_TRUE(made.content == std::string(file_.begin(), file_.end()));
    EXPECT_EQ(1u, fs::hard_link_count(path));
    after.erase(path), expected.erase(path);
    EXPECT_TRUE(expected == after) << "something else was changed";
  }
};

bool may_read(const Scene& scene, const Thing& file) {
  return scene.caller == 0 || file.owner == scene.caller || (file.mode & S_IROTH) != 0;
}

// In a sticky directory only the owner of a file, the directory's owner and root replace it.
bool may_replace(const Scene& scene, const Place& place, uid_t owner_of_place, const Thing& file) {
  return (place.mode & S_ISVTX) == 0 || scene.caller == 0 || scene.caller == owner_of_place ||
         scene.caller == file.owner;
}

TEST_F(Files, NothingThereYet) {
  each_place([&](uid_t caller, const Place& place, uid_t owner) {
    for (const Function& function : functions) {
      SCOPED_TRACE(function.name);
      const Scene scene(caller, owner, place.mode);
      const std::string path = scene.place() + "/chat.pkv";
      const Things before = scene.things();
      const pkv_status status = call(function, scene, path);
      if (function.writes) expect_saved(status, before, scene, path, 0600);
      if (!function.writes) expect_refused(status, before, scene);
    }
  });
  say_what_was_left_out();
}

TEST_F(Files, FilesInTheWay) {
  each_place([&](uid_t caller, const Place& place, uid_t owner) {
    each(olds, [&](const Old& old) {
      for (const Function& function : functions) {
        SCOPED_TRACE(function.name);
        const Scene scene(caller, owner, place.mode);
        const std::string path = scene.place() + "/chat.pkv";
        old.make(scene, path, file_);
        const Things before = scene.things();
        const Thing& there = before.at(path);
        const bool may =
            function.writes ? may_replace(scene, place, owner, there) : may_read(scene, there);
        const pkv_status status = call(function, scene, path);
        if (!may) {
          expect_refused(status, before, scene);
        } else if (function.writes) {
          expect_saved(status, before, scene, path, place.names_are_own ? old.kept : 0600);
        } else {
          EXPECT_EQ(PKV_OK, status) << pkv_last_error();
          EXPECT_TRUE(before == scene.things());
        }
      }
    });
  });
  say_what_was_left_out();
}

TEST_F(Files, OtherThingsInTheWay) {
  each_place([&](uid_t caller, const Place& place, uid_t owner) {
    each(irregular_ones(), [&](const Obstacle& obstacle) {
      for (const Function& function : functions) {
        SCOPED_TRACE(function.name);
        const Scene scene(caller, owner, place.mode);
        const std::string path = scene.place() + "/chat.pkv";
        obstacle.make(scene, path);
        const Things before = scene.things();
        expect_refused(call(function, scene, path), before, scene);
      }
    });
  });
  say_what_was_left_out();
}

// The group's bits were meant for the old file's group. Without that group they would let others
// in.
TEST_F(Files, TheGroupsBitsGoWithTheGroup) {
  if (!is_root()) GTEST_SKIP() << "only root gives a file to any group";
  for (const uid_t caller : callers()) {
    SCOPED_TRACE(caller);
    const Scene scene(caller, caller, 0755);
    const std::string path = scene.place() + "/chat.pkv";
    make_file(path, file_, caller, 0600);
    must(chown(path.c_str(), caller, stranger) == 0 && chmod(path.c_str(), 0754) == 0,
         "cannot set a group");
    ASSERT_EQ(PKV_OK, call(functions[0], scene, path)) << pkv_last_error();
    const Thing made = thing_at(path);
    EXPECT_EQ(caller == 0 ? stranger : caller, made.group)
        << "an ordinary user cannot give it to a foreign group";
    EXPECT_EQ(caller == 0 ? "0754" : "0700", octal(made.mode));
  }
}

// With an access control list the group's bits are a mask for the rights of named users.
TEST_F(Files, AnAccessControlListIsNoModeForTheGroup) {
  const Scene scene(me, me, 0755);
  const std::string path = scene.place() + "/chat.pkv";
  make_file(path, file_, me, 0600);
  struct [[gnu::packed]] Entry {
    uint16_t tag, permissions;
    uint32_t id;
  };
  struct [[gnu::packed]] {
    uint32_t version = 2;
    Entry owner{0x01, 6, ~0u}, user{0x02, 4, stranger}, group{0x04, 0, ~0u}, mask{0x10, 4, ~0u},
        rest{0x20, 4, ~0u};
  } list;
  if (setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0)
    GTEST_SKIP() << "no access control lists on this file system: " << std::strerror(errno);
  ASSERT_EQ("0644", octal(thing_at(path).mode));
  ASSERT_EQ(PKV_OK, call(functions[0], scene, path)) << pkv_last_error();
  EXPECT_EQ("0600", octal(thing_at(path).mode));
  EXPECT_LT(getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0), 0);
}

}  // namespace
}  // namespace others::others_test
