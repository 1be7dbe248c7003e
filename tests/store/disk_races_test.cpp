// Saves while another process changes the directory before any one of their calls on files. The new
// file is complete or the call says IO, nothing else in the directory changes, and no temporary
// file stays.
#include <sys/stat.h>

#include "disk_fixture.h"

namespace store::disk_races_test {
namespace {

const std::string name = "chat.pkv", elsewhere = "elsewhere.pkv";

class Races : public testing::Test {
 protected:
  const Fixture fixture_;
  const std::string path_ = fixture_.directory / name, elsewhere_ = fixture_.directory / elsewhere,
                    orphan_ = fixture_.directory / orphan;
  std::string struck_;  // the call on files before which the directory was changed

  // Saves `other` over a file with `session`, with a change before the k-th call, for each k until
  // the new file has its name.
  template <class Change, class Judge>
  void at_each_call(const Change& change, const Judge& judge) {
    for (const bool unnamed : {true, false}) {
      for (uint64_t k = 1;; k++) {
        fs::remove_all(path_);
        files::write(path_, fixture_.file);
        files::write(elsewhere_, fixture_.file);
        files::write(orphan_, fixture_.file);
        ASSERT_EQ(0, chmod(path_.c_str(), 0640));
        pkv_status status = PKV_INTERNAL;
        const auto act = [&](const std::string&) {
          if (!is_replaced()) change();
          return disk::Fault::none;
        };
        struck_ = at_call(k, unnamed, act,
                          [&] { status = fixture_.save_to(at_path(path_), fixture_.other); });
        SCOPED_TRACE(struck_ + ", call " + std::to_string(k));
        EXPECT_EQ(fixture_.file, content_of(elsewhere_)) << "through a link, perhaps";
        if (status == PKV_OK) {
          EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path_)));
          EXPECT_EQ(fixture_.other_file, content_of(path_));
        } else {
          EXPECT_EQ(PKV_IO, status) << pkv_last_error();
        }
        judge(status);
        if (struck_.empty()) {
          EXPECT_EQ(PKV_OK, status);
          EXPECT_GT(k, 10u) << "calls were made";
          break;
        }
      }
    }
  }
  bool is_replaced() const {
    return fs::is_regular_file(fs::symlink_status(path_)) &&
           content_of(path_) == fixture_.other_file;
  }
  // Checks that only the file and the other one stay. A save that could not begin leaves the
  // orphan.
  void check_names(pkv_status status) const {
    std::set<std::string> names = fixture_.directory.names();
    if (status != PKV_OK) names.erase(orphan);
    EXPECT_EQ((std::set<std::string>{name, elsewhere}), names);
  }
};

TEST_F(Races, TheOldFileIsRemoved) {
  at_each_call([&] { fs::remove(path_); },
               [&](pkv_status status) {
                 EXPECT_EQ(PKV_OK, status) << pkv_last_error();
                 check_names(status);
               });
}

TEST_F(Races, ALinkToAnotherFileTakesItsPlace) {
  at_each_call(
      [&] {
        fs::remove(path_);
        fs::create_symlink(elsewhere_, path_);
      },
      [&](pkv_status status) { check_names(status); });
}

TEST_F(Races, ADirectoryTakesItsPlace) {
  at_each_call(
      [&] {
        fs::remove(path_);
        fs::create_directory(path_);
      },
      [&](pkv_status status) { check_names(status); });
}

TEST_F(Races, AllTemporaryFilesAreRemoved) {
  at_each_call(
      [&] {
        for (const std::string& each : fixture_.directory.names())
          if (each.ends_with(".tmp")) fs::remove(fixture_.directory / each);
      },
      [&](pkv_status status) {
        EXPECT_EQ(status == PKV_OK ? fixture_.other_file : fixture_.file, content_of(path_));
        check_names(status);
      });
}

// A file with an orphan's name and a second name is not the library's.
TEST_F(Races, AnOrphanGetsAnotherName) {
  const std::string second = "second";
  at_each_call(
      [&] {
        if (fs::exists(orphan_)) fs::create_hard_link(orphan_, fixture_.directory / second);
      },
      [&](pkv_status status) {
        EXPECT_EQ(PKV_OK, status) << pkv_last_error();
        // A name that is added just before the removal is not noticed; the file stays under that
        // name.
        if (fs::exists(fixture_.directory / second)) {
          EXPECT_TRUE(fs::exists(orphan_) || struck_ == "unlinkat");
        }
        fs::remove(fixture_.directory / second);
        fs::remove(orphan_);
        check_names(status);
      });
}

TEST_F(Races, AnOrphanBecomesAnotherFile) {
  at_each_call(
      [&] {
        files::write(fixture_.directory / "second", fixture_.file);
        fs::rename(fixture_.directory / "second", orphan_);
      },
      [&](pkv_status status) {
        EXPECT_EQ(PKV_OK, status) << pkv_last_error();
        fs::remove(orphan_);
        check_names(status);
      });
}

}  // namespace
}  // namespace store::disk_races_test
