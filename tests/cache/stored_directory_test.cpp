// Blocks that leave a cache's memory go to a directory, and come back after a restart.
#include <filesystem>
#include <fstream>

#include "../support/files.h"
#include "tier.h"

namespace cache_test::stored_directory_test {
namespace {

class DirectoryTier : public TierTest {
 protected:
  const files::TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_.path();

  ~DirectoryTier() override { cache_.close(); }
  pkv_store directory(uint64_t capacity = 0) {
    const std::string path = (path_ / "store").string();
    const auto config = made<pkv_directory_config>({.path = path.c_str(), .max_bytes = capacity});
    pkv_store store = made<pkv_store>();
    CHECK(pkv_store_open_directory(&config, &store));
    return store;
  }
  void make_with(pkv_store store, uint64_t blocks) {
    config_.store = &store;
    make(blocks);
  }
  std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
  }
};

TEST_F(DirectoryTier, SurvivesARestart) {
  const Text whole = text(1, 100);
  make_with(directory(), 16);
  serve(whole, "x");
  make_with(directory(), 16);
  EXPECT_EQ(96u, fetch(whole, "x"));
  check_found(whole, 96, "x");
  EXPECT_EQ(12u, files().size());
}

TEST_F(DirectoryTier, TwoCachesShareIt) {
  const Text whole = text(1, 64);
  make_with(directory(), 16);
  pkv_store second = directory();
  config_.store = &second;
  Cache first = std::move(cache_);
  make(16);
  {
    std::swap(first, cache_);
    serve(whole);
    flush();
    std::swap(first, cache_);
  }
  EXPECT_EQ(64u, fetch(whole));
  check_found(whole, 64);
  first.close();
}

TEST_F(DirectoryTier, HasACapacity) {
  make_with(directory(), 16);
  serve(text(1, 64));
  flush();
  const uint64_t bytes = stats().written_bytes;
  make_with(directory(3 * bytes), 16);
  for (int32_t name = 2; name < 12; name++) {
    serve(text(name, 64));
    flush();
  }
  uint64_t size = 0;
  for (const auto& file : files()) size += std::filesystem::file_size(file);
  EXPECT_LE(size, 3 * bytes);
  EXPECT_GT(size, bytes);
  clear();
  EXPECT_EQ(64u, fetch(text(11, 64)));
  EXPECT_EQ(0u, fetch(text(1, 64))) << "the oldest went";
}

TEST_F(DirectoryTier, DamagedFilesAreMisses) {
  const Text whole = text(1, 64);
  make_with(directory(), 16);
  store_away(whole);
  for (const auto& file : files())
    std::ofstream(file, std::ios::in | std::ios::binary).seekp(100).put('!');
  EXPECT_EQ(0u, fetch(whole));
  EXPECT_EQ(files().size() + stats().corrupt_items, stats().written_items)
      << "what is wrong is deleted";
  EXPECT_GE(stats().corrupt_items, 1u);
  for (const auto& file : files()) std::filesystem::remove(file);
  store_away(whole);
  for (const auto& file : files()) std::filesystem::resize_file(file, 100);
  EXPECT_EQ(0u, fetch(whole));
  for (const auto& file : files()) {
    std::filesystem::remove(file);
#ifndef _WIN32  // where links need a privilege, and a directory that is open cannot be removed
    std::filesystem::create_symlink("/dev/zero", file);
#endif
  }
  EXPECT_EQ(0u, fetch(whole));
#ifndef _WIN32
  std::filesystem::remove_all(path_ / "store");
  EXPECT_EQ(0u, fetch(whole));
  serve(text(2, 64));
  flush();
  EXPECT_GE(stats().failures, 1u) << "it cannot be written to";
#endif
}

TEST_F(DirectoryTier, SaysWhyAPathIsRefused) {
  for (const char* path : {"/dev/null", "/nowhere/deep/inside", ""}) {
    const auto config = made<pkv_directory_config>({.path = path});
    pkv_store store = made<pkv_store>();
    REFUSED(PKV_IO, pkv_store_open_directory(&config, &store));
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "errno")) << pkv_last_error();
  }
}

// If a volume is not mounted, the parents of a store's directory are missing, and are not created.
TEST_F(DirectoryTier, OnlyTheLastLevelIsMade) {
  const std::string deep = (path_ / "volume/store").string();
  const auto config = made<pkv_directory_config>({.path = deep.c_str()});
  pkv_store store = made<pkv_store>();
  REFUSED(PKV_IO, pkv_store_open_directory(&config, &store));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "does not exist")) << pkv_last_error();
  EXPECT_FALSE(std::filesystem::exists(path_ / "volume"));
  std::filesystem::create_directory(path_ / "volume");
  CHECK(pkv_store_open_directory(&config, &store));
  CHECK(pkv_store_close(&store));
}

}  // namespace
}  // namespace cache_test::stored_directory_test
