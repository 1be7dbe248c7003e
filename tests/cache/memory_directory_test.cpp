// Keys and values in a file: the file, what is read from it, and what is refused. Tests that run on
// all kinds of memory show that results are the same as in memory.
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "../support/cache.h"
#include "../support/files.h"
#include "../support/rows.h"

namespace cache_test::memory_directory_test {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t block_size = 64, blocks = 256;

ModelConfig in_file(const Model& model, const char* directory) {
  ModelConfig config = config_of(model, blocks);
  config.block_size = block_size;
  config.memory_directory = directory;
  return config;
}

// The files that this process has open in a directory, as /proc shows them.
std::vector<std::string> open_files(const std::string& directory) {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(directory + "/") != std::string::npos) found.push_back(line);
  return found;
}

TEST(MemoryDirectory, TheFileHasNoNameAndEndsWithTheCache) {
  for (const char* parent : {".", "/dev/shm"}) {
    if (!fs::is_directory(parent)) continue;
    const files::TemporaryDirectory directory(fs::absolute(parent));
    const std::string path = fs::canonical(directory.path()).string();
    const size_t before = portable::count_descriptors();
    {
      const Cache cache = create(in_file({2, 4, 2, 32}, path.c_str()));
      EXPECT_TRUE(fs::is_empty(path));
      EXPECT_EQ(1u, open_files(path).size());
      EXPECT_EQ(before, portable::count_descriptors());
      // All of its room is taken at once, so a disk that fills up later does no harm.
      EXPECT_EQ(stats_of(cache).mapped_bytes,
                sizes_of(in_file({2, 4, 2, 32}, path.c_str())).memory_bytes);
    }
    EXPECT_EQ(0u, open_files(path).size());
    EXPECT_TRUE(fs::is_empty(path));
  }
}

// The flags of the mapping of keys and values: "dc" if fork() leaves it out, "dd" if core dumps do.
std::string flags_of_memory(pkv_cache cache) {
  pkv_kv_view view;
  view.struct_size = sizeof view;
  CHECK(pkv_cache_get_kv_view(cache, 0, &view));
  const auto address = reinterpret_cast<uintptr_t>(view.k);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin, end;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= address && address < end;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line + " ";
  }
  return "";
}

TEST(MemoryDirectory, ChildrenAndCoreDumpsHaveNothingOfIt) {
  const files::TemporaryDirectory directory(fs::absolute("."));
  const std::string path = fs::canonical(directory.path()).string();
  const Cache in_memory = create(config_of({2, 4, 2, 32}, blocks));
  EXPECT_NE(std::string::npos, flags_of_memory(in_memory).find(" dd "));
  Cache cache = create(in_file({2, 4, 2, 32}, path.c_str()));
  EXPECT_NE(std::string::npos, flags_of_memory(cache).find(" dd "));
  EXPECT_NE(std::string::npos, flags_of_memory(cache).find(" dc "));
  const Session session = open(cache);
  const pid_t child = ::fork();
  if (child == 0) {
    // The child can still close the cache that it inherited.
    const bool none = open_files(path).empty();
    uint64_t length;
    const bool right = pkv_session_get_length(session, &length) == PKV_WRONG_PROCESS &&
                       pkv_session_close(session) == PKV_OK && pkv_cache_destroy(cache) == PKV_OK;
    _exit(none && right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  CHECK(pkv_cache_validate(cache));
}

// The resident pages of the memory of layer 0.
class Pages {
 public:
  Pages(pkv_cache cache, const pkv_cache_config& config) {
    pkv_kv_view view;
    view.struct_size = sizeof view;
    CHECK(pkv_cache_get_kv_view(cache, 0, &view));
    begin_ = const_cast<void*>(view.k);
    size_ = sizes_of(config).memory_bytes;
  }
  // Drops all pages. Returns whether that worked; some file systems do not drop pages.
  bool drop() const {
    for (int i = 0; i < 50; i++) {
      if (msync(begin_, size_, MS_SYNC) != 0 || madvise(begin_, size_, MADV_PAGEOUT) != 0)
        return false;
      if (count() < total() / 8) return true;
      usleep(20'000);  // they are being written
    }
    return false;
  }
  size_t count() const {
    std::vector<unsigned char> states(total());
    if (mincore(begin_, size_, states.data()) != 0) throw std::runtime_error("mincore");
    return static_cast<size_t>(
        std::count_if(states.begin(), states.end(), [](unsigned char s) { return s & 1; }));
  }
  size_t total() const { return (size_ + page_ - 1) / page_; }

 private:
  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* begin_;
  size_t size_;
};

// A decode step over a long text. Returns the output of its only layer.
Rows decode(pkv_cache cache, pkv_session session, const Model& model, uint32_t top_blocks) {
  Random random(7);
  Batch batch = begin(cache, {session}, {1});
  KeysValues rows = random_rows(model, 1, random);
  write(batch, 0, model, rows);
  Rows q(1, model.query_heads, model.key_dim), out(1, model.query_heads, model.values());
  q.fill(random);
  AttentionParams params;
  if (top_blocks != 0) params.choose(top_blocks);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  return out;
}

TEST(MemoryDirectory, OnlyWhatIsChosenIsRead) {
  const Model model{1, 8, 8, 128, 128, PKV_BF16};
  const Cache memory = create(in_file(model, nullptr)), file = create(in_file(model, "."));
  const Session in_memory = open(memory), in_the_file = open(file);
  for (const auto& [cache, session] : {std::pair<pkv_cache, pkv_session>{memory, in_memory},
                                       std::pair<pkv_cache, pkv_session>{file, in_the_file}}) {
    Random random(3);
    for (int i = 0; i < 15; i++) step(cache, session, model, 1024, random);
  }
  constexpr uint32_t top = 8, others = 3;  // the first block, the last one, and that of the step
  const Rows expected = decode(memory, in_memory, model, top);
  const Pages pages(file, in_file(model, "."));
  if (!pages.drop()) GTEST_SKIP() << "this file system does not drop pages";
  const size_t before = pages.count();
  EXPECT_TRUE(expected == decode(file, in_the_file, model, top));
  // A KV head reads 64 tokens of K and V: 8 pages.
  const size_t chosen = size_t{top + others} * model.kv_heads * 8, read = pages.count() - before;
  EXPECT_GE(read, chosen / 2);
  EXPECT_LE(read, chosen * 3);
  EXPECT_LT(read, pages.total() / 4);
  EXPECT_TRUE(decode(memory, in_memory, model, 0) == decode(file, in_the_file, model, 0));
}

TEST(MemoryDirectory, RefusalsAreSentences) {
  const files::TemporaryDirectory directory(fs::current_path());
  const std::string path = directory.path();
  std::ofstream(path + "/file") << "x";
  fs::create_directory_symlink(path, path + "/link");
  const Model model{1, 1, 1, 16};
  pkv_cache cache = nullptr;
  const auto refused = [&](pkv_status status, const pkv_cache_config& config, const char* words) {
    REFUSED(status, pkv_cache_create(&config, &cache));
    EXPECT_EQ(nullptr, cache);
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), words)) << pkv_last_error();
  };
  const auto with = [&](const std::string& name) {
    static std::string kept;
    return in_file(model, (kept = name).c_str());
  };
  refused(PKV_IO, with(path + "/none"), "No such file or directory");
  refused(PKV_IO, with(path + "/file"), "Not a directory");
  refused(PKV_IO, with(path + "/link"), "memory_directory: cannot open");
  refused(PKV_IO, with(path + "/link/"), "memory_directory: cannot open");
  ModelConfig config = with(path);
  config.model.layers = config.model.query_heads = config.model.kv_heads = 64;
  config.model.key_dim = config.model.value_dim = 512;
  config.model.blocks = 1u << 16;
  refused(PKV_IO, config, "cannot take 70368744177664 bytes in");
  config = with("");
  refused(PKV_INVALID_ARGUMENT, config, "memory_directory is an empty string");
  config = with(path);
  config.huge_pages = PKV_HUGE_PAGES_REQUIRE;
  refused(PKV_UNSUPPORTED, config, "huge pages");
  config = with(path);
  config.storage = PKV_STORAGE_EXTERNAL;
  refused(PKV_UNSUPPORTED, config, "memory_directory: all blocks are in the engine's memory");
  config.memory_directory = nullptr;
  config.prefault = 1;
  refused(PKV_UNSUPPORTED, config, "prefault: all blocks are in the engine's memory");
  config.prefault = 0;
  config.huge_pages = PKV_HUGE_PAGES_REQUIRE;
  refused(PKV_UNSUPPORTED, config, "huge_pages REQUIRE: all blocks are in the engine's memory");
  fs::remove(path + "/file");
  fs::remove(path + "/link");
  EXPECT_TRUE(fs::is_empty(path));
}

// A file system of its own in a directory, which only root can make.
class Device {
 public:
  explicit Device(const char* options)
      : mounted_(mount("pagedkv", directory_.path().c_str(), "tmpfs", 0, options) == 0) {}
  ~Device() {
    if (mounted_) umount2(directory_.path().c_str(), MNT_DETACH);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  bool is_mounted() const { return mounted_; }
  const std::string& path() const { return directory_.path(); }

 private:
  const files::TemporaryDirectory directory_;
  const bool mounted_;
};

// All room was taken at once, so a device that is full later does not affect the existing cache; it
// refuses the next one.
TEST(MemoryDirectory, AFullDeviceRefusesTheNextCache) {
  const Device device("size=1m");
  if (!device.is_mounted()) GTEST_SKIP() << "only root can make a small file system";
  const Model model{1, 4, 2, 32};
  ModelConfig config = in_file(model, device.path().c_str());
  config.model.blocks = 16;
  const uint64_t bytes = sizes_of(config).memory_bytes;
  ASSERT_GT(bytes, uint64_t{1} << 18);
  ASSERT_LE(bytes, uint64_t{1} << 19);
  Random random(1);
  pkv_cache refused = nullptr;
  {
    const Cache cache = create(config);
    std::ofstream(device.path() + "/full") << std::string(1 << 20, 'x');  // as much as fits
    REFUSED(PKV_IO, pkv_cache_create(&config, &refused));
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "No space left on device (errno 28)"))
        << pkv_last_error();
    const Session session = open(cache);
    for (int i = 0; i < 16; i++) step(cache, session, model, block_size, random);
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_EQ(nullptr, refused);
  const Cache after = create(config);
}

}  // namespace
}  // namespace cache_test::memory_directory_test
