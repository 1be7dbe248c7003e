// Kills processes that write to a directory store: kill_store RUNS. In each run two processes work
// in one directory. One dies, a third process opens the directory, and the other one, which must
// not notice, dies later. Then the directory opens, each item in it is whole and of the version
// that was written last (or whose writing the death cut off), no temporary file is left, and all
// items together keep to the capacity. Exits with 0, or with a sentence.
#include <fcntl.h>
#include <pagedkv/store.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>

#include "../support/files.h"
#include "disk.h"
#include "support.h"

namespace {

using store::Bytes;
using store::Random;
namespace fs = std::filesystem;

constexpr uint64_t keys = 64, max_words = 4096, capacity = 512 << 10;

[[noreturn]] void stop(const std::string& sentence) {
  std::fprintf(stderr, "kill_store: %s\n", sentence.c_str());
  std::exit(1);
}

// ---- Items --------------------------------------------------------------------------------------

// Makes words that depend only on key and version, and so does their number.
std::vector<uint64_t> content_of(uint64_t key, uint64_t version) {
  Random random(version * keys + key);
  std::vector<uint64_t> words(2 + random.below(max_words - 2));
  for (uint64_t& word : words) word = random.below(UINT64_MAX);
  words[0] = key, words[1] = version;
  return words;
}

class Store {
 public:
  Store(const std::string& path, uint64_t limit, bool durable) {
    auto config =
        made<pkv_directory_config>({.durability = durable ? PKV_DURABILITY_ON : PKV_DURABILITY_OFF,
                                    .path = path.c_str(),
                                    .max_bytes = limit});
    CHECK(pkv_store_open_directory(&config, &table_));
  }
  ~Store() { pkv_store_close(&table_); }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void put(uint64_t key, uint64_t version) {
    std::vector<uint64_t> words = content_of(key, version);
    pkv_store_item item = item_of(key, words);
    const int64_t stored = table_.put(table_.user, 1, &item);
    if (stored != 1) stop("a put fails: " + std::to_string(stored));
  }
  void remove(uint64_t key) {
    std::vector<uint64_t> none;
    const pkv_store_item item = item_of(key, none);
    table_.remove(table_.user, 1, &item);
  }
  // Returns 0 if there is none.
  uint64_t version_of(uint64_t key) {
    std::vector<uint64_t> words(max_words + 1);
    pkv_store_item item = item_of(key, words);
    if (table_.get(table_.user, 1, &item) == 0) return 0;
    words.resize(item.size / sizeof(uint64_t));
    const bool whole = item.size % sizeof(uint64_t) == 0 && words.size() >= 2 &&
                       words == content_of(key, words[1]);
    if (!whole)
      stop("item " + std::to_string(key) + " is not whole: " + std::to_string(item.size) +
           " bytes");
    return words[1];
  }

 private:
  static pkv_store_item item_of(uint64_t key, std::vector<uint64_t>& words) {
    pkv_store_item item{};
    // Shards have several items.
    std::memset(item.name, static_cast<int>(key % 8), sizeof item.name);
    item.name[31] = static_cast<unsigned char>(key);
    item.data = words.data();
    item.size = words.size() * sizeof(uint64_t);
    return item;
  }
  pkv_store table_ = made<pkv_store>();
};

// ---- Writers ------------------------------------------------------------------------------------

// A writer's message before and after it changes an item. Version 0 means that the item is removed.
struct Step {
  uint64_t key, version, done;
};

struct Run {
  std::string path;
  uint64_t number, limit;
  bool durable, unnamed;
};

[[noreturn]] void write_for_ever(const Run& run, uint64_t half, int told) {
  disk::no_unnamed_files = !run.unnamed;
  Store store(run.path, run.limit, run.durable);
  Random random(run.number * 2 + half);
  for (uint64_t version = (run.number + 1) << 20;; version++) {
    Step step{half * keys / 2 + random.below(keys / 2), random.below(8) == 0 ? 0 : version, 0};
    if (write(told, &step, sizeof step) != sizeof step) _exit(1);
    step.version == 0 ? store.remove(step.key) : store.put(step.key, step.version);
    step.done = 1;
    if (write(told, &step, sizeof step) != sizeof step) _exit(1);
    store.version_of(random.below(keys));
  }
}

// The versions that an item may have.
using Allowed = std::array<std::set<uint64_t>, keys>;

class Writer {
 public:
  Writer(const Run& run, uint64_t half) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) stop("no pipe");
    child_ = fork();
    if (child_ == 0) write_for_ever(run, half, ends[1]);
    close(ends[1]);
    told_ = ends[0];
  }
  void wait_for_a_step(Allowed& allowed) {
    if (!hear(allowed)) stop("a process ended by itself");
  }
  void kill(Allowed& allowed) {
    ::kill(child_, SIGKILL);
    int status = 0;
    waitpid(child_, &status, 0);
    if (!WIFSIGNALED(status)) stop("a process ended by itself");
    while (hear(allowed)) steps++;
    close(told_);
  }
  uint64_t steps = 0;

 private:
  bool hear(Allowed& allowed) {
    Step step;
    if (read(told_, &step, sizeof step) != sizeof step) return false;
    if (step.done != 0) allowed[step.key].clear();
    allowed[step.key].insert(step.version);
    return true;
  }
  pid_t child_;
  int told_;
};

// ---- What is left -------------------------------------------------------------------------------

struct Left {
  uint64_t bytes = 0, temporaries = 0, items = 0;
};

Left left_in(const std::string& path) {
  Left left;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    left.bytes += entry.file_size();
    entry.path().extension() == ".tmp" ? left.temporaries++ : left.items++;
  }
  return left;
}

void check(const Run& run, Allowed& allowed) {
  Store store(run.path, run.limit, false);
  const Left left = left_in(run.path);
  if (left.temporaries != 0) stop("temporary files are left");
  if (run.limit != 0 && left.bytes > run.limit)
    stop("there are " + std::to_string(left.bytes) + " bytes");
  for (uint64_t key = 0; key < keys; key++) {
    const uint64_t version = store.version_of(key);
    const bool evicted = version == 0 && run.limit != 0;
    if (!evicted && allowed[key].count(version) == 0)
      stop("run " + std::to_string(run.number) + ": item " + std::to_string(key) + " has version " +
           std::to_string(version));
    allowed[key] = {version};
  }
}

void pause(Random& random, uint64_t max_us) {
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(max_us)));
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  const std::string directory = files::make_directory(), path = directory + "/store";
  Random random(1);
  Allowed allowed;
  for (std::set<uint64_t>& versions : allowed) versions = {0};
  uint64_t steps = 0, temporaries = 0, items = 0;
  for (uint64_t number = 0; number < runs; number++) {
    const Run run{path, number, number % 2 == 0 ? 0 : capacity, number % 16 == 5, number % 4 < 2};
    Writer one(run, 0), other(run, 1);
    one.wait_for_a_step(allowed);
    other.wait_for_a_step(allowed);
    pause(random, 4000);
    one.kill(allowed);
    {
      const Store third(path, run.limit, false);
    }
    pause(random, 1000);
    other.kill(allowed);
    const Left left = left_in(path);
    temporaries += left.temporaries;
    items += left.items;
    check(run, allowed);
    steps += one.steps + other.steps;
  }
  fs::remove_all(directory);
  std::printf(
      "%llu processes killed in %llu steps, %llu items on average; %llu temporary files were left, "
      "and are gone\n",
      (unsigned long long)runs * 2, (unsigned long long)steps / 2,
      (unsigned long long)(items / runs), (unsigned long long)temporaries);
  return steps > 0 && items > 0 ? 0 : 1;
}
