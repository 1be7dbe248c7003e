// Kills processes that save over and over: kill RUNS. After each death the file must be the last
// one whose save had returned, or the one after it, and complete. Every second process must give
// its temporary files names; the next save removes those that are left. Exits with 0, or with a
// sentence.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "../support/files.h"
#include "disk.h"
#include "support.h"

using namespace store;

namespace {

const Plan plan = {.groups = {{.layers = 2, .query_heads = 4, .kv_heads = 2, .key_dim = 64}},
                   .blocks = 128};
// About two pieces.
constexpr uint32_t max_tokens = 600;

uint32_t tokens_of_version(uint64_t version) {
  return 1 + static_cast<uint32_t>(version * 37 % max_tokens);
}

void fill(pkv_cache cache, pkv_session session, uint64_t version) {
  append(cache, session, plan, tokens_of_version(version), 1 + version % 1000);
}

// Saves versions from `first` on, one after another. It writes each number to `told` when its save
// has returned.
[[noreturn]] void save_for_ever(const std::string& path, uint64_t first, int told) {
  const Cache cache = create(plan);
  auto config = made<pkv_file_config>();
  for (uint64_t version = first;; version++) {
    const Session session = open(cache);
    fill(cache, session, version);
    const pkv_file_item item = {session, nullptr, version};
    const pkv_stream to = at_path(path);
    config.durability = version % 2 != 0 ? PKV_DURABILITY_OFF : PKV_DURABILITY_ON;
    CHECK(pkv_file_save(cache, 1, &item, &config, &to, nullptr));
    if (write(told, &version, sizeof version) != sizeof version) _exit(1);
  }
}

[[noreturn]] void stop(const std::string& sentence) {
  std::fprintf(stderr, "kill: %s\n", sentence.c_str());
  std::exit(1);
}

auto files_in(const std::string& directory) {
  using Names = std::filesystem::directory_iterator;
  return std::distance(Names(directory), Names());
}

// Returns the version that a file has, or 0 if there is none.
uint64_t version_at(const std::string& path, pkv_cache cache) {
  if (!std::filesystem::exists(path)) return 0;
  std::vector<uint64_t> labels;
  const std::vector<Session> loaded = load(cache, at_path(path), nullptr, &labels);
  const Session expected = open(cache);
  fill(cache, expected, labels.at(0));
  const uint64_t length = length_of(expected);
  if (length_of(loaded[0]) != length || tokens_of(loaded[0], length) != tokens_of(expected, length))
    stop("other tokens than were saved");
  for (uint32_t layer = 0; layer < plan.layers(); layer++)
    if (!(materialize(loaded[0], layer, plan.groups[0], 0, length) ==
          materialize(expected, layer, plan.groups[0], 0, length)))
      stop("other keys and values than were saved");
  return labels[0];
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  const std::string directory = files::make_directory(), path = directory + "/chat.pkv";
  const Cache cache = create(plan);
  Random random(1);
  uint64_t version = 0, new_ones = 0, in_the_middle = 0, orphans = 0;
  for (uint64_t run = 0; run < runs; run++) {
    int told[2];
    if (pipe2(told, O_CLOEXEC) != 0) stop("no pipe");
    const pid_t child = fork();
    if (child == 0) {
      disk::no_unnamed_files = run % 2 == 1;
      save_for_ever(path, version + 1, told[1]);
    }
    close(told[1]);
    uint64_t returned = version;
    if (read(told[0], &returned, sizeof returned) != sizeof returned)
      stop("run " + std::to_string(run) + ": the process ended by itself");
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(8000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) stop("run " + std::to_string(run) + ": the process ended by itself");
    uint64_t one = 0;
    while (read(told[0], &one, sizeof one) == sizeof one) returned = one;
    close(told[0]);
    orphans += files_in(directory) > 1;
    const uint64_t found = version_at(path, cache);
    if (found != returned && found != returned + 1)
      stop("run " + std::to_string(run) + ": version " + std::to_string(returned) +
           " was saved, the file has " + std::to_string(found));
    new_ones += found - version;
    in_the_middle += found == returned + 1;
    version = found;
  }
  CHECK(pkv_cache_validate(cache));
  const pkv_stream to = at_path(path);
  CHECK(pkv_file_save(cache, 0, nullptr, nullptr, &to, nullptr));
  if (files_in(directory) != 1) stop("temporary files are left");
  std::filesystem::remove_all(directory);
  std::printf(
      "%llu processes killed, %llu files saved, %llu of them by a save that never "
      "returned; ",
      (unsigned long long)runs, (unsigned long long)new_ones, (unsigned long long)in_the_middle);
  std::printf("%llu left a temporary file, none is left now\n", (unsigned long long)orphans);
  return new_ones > 0 ? 0 : 1;
}
