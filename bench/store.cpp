// Measures saving and loading against plain writes and reads of as many bytes: through the page
// cache, without waiting for the disk.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "fixture.h"
#include "stored.h"

namespace pkv::bench {

namespace {

constexpr size_t usual_piece = 256 << 10;

[[noreturn]] void stop(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Writes a new file and replaces the old one with it, as a save does.
void write_plain(const std::string& path, const std::vector<char>& bytes,
                 size_t piece = usual_piece) {
  const std::string fresh = path + ".new";
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (size_t at = 0; at < bytes.size(); at += piece)
    if (::write(file, bytes.data() + at, std::min(piece, bytes.size() - at)) < 0) stop("write");
  close(file);
  if (rename(fresh.c_str(), path.c_str()) != 0) stop("rename");
}

void read_plain(const std::string& path, std::vector<char>& bytes, size_t piece = usual_piece) {
  const int file = open(path.c_str(), O_RDONLY);
  for (size_t at = 0; at < bytes.size(); at += piece)
    if (::read(file, bytes.data() + at, std::min(piece, bytes.size() - at)) < 0) stop("read");
  close(file);
}

struct Case {
  const char* name;
  pkv_dtype dtype;
  pkv_layout layout;
  bool keyed;
};

void close_all(const std::vector<pkv_session>& sessions) {
  for (const pkv_session session : sessions) check(pkv_session_close(session));
}

class Files {
 public:
  explicit Files(const Case& one)
      : filled_({.dtype = one.dtype, .sessions = 4, .layout = one.layout}) {
    config_.durability = PKV_DURABILITY_OFF;
    if (one.keyed) config_.secret_key = "a key of 24 secret bytes", config_.secret_key_size = 24;
    path_ = folder_.file("ours");
    stream_.kind = PKV_STREAM_PATH;
    stream_.path = path_.c_str();
    for (const pkv_session session : filled_.sessions()) items_.push_back({session, nullptr, 0});
    save();
    plain_.assign(bytes_, 1);
    write_plain(folder_.file("plain"), plain_);
  }

  void save() {
    check(
        pkv_file_save(filled_.cache(), items_.size(), items_.data(), &config_, &stream_, &bytes_));
  }
  void write_as_many() { write_plain(folder_.file("plain"), plain_); }
  void load() {
    size_t count = 0;
    loaded_.resize(items_.size());
    check(pkv_file_load(filled_.cache(), &config_, &stream_, loaded_.size(), loaded_.data(),
                        nullptr, &count));
  }
  const std::vector<pkv_session>& originals() { return filled_.sessions(); }
  const std::vector<pkv_session>& loaded() const { return loaded_; }
  void read_as_many() { read_plain(folder_.file("plain"), plain_); }
  double bytes() const { return static_cast<double>(bytes_); }

 private:
  Folder folder_;
  Filled filled_;
  pkv_file_config config_ = made<pkv_file_config>();
  pkv_stream stream_ = made<pkv_stream>();
  std::string path_;
  std::vector<pkv_file_item> items_;
  std::vector<pkv_session> loaded_;
  std::vector<char> plain_;
  uint64_t bytes_ = 0;
};

void report_files(benchmark::State& state, const Files& files, double ours, double plain) {
  report(state, "GB/s", "plain_GB/s", files.bytes() / 1e9, ours, plain);
}

void save(benchmark::State& state, const Case& one) {
  Files files(one);
  const auto [ours, plain] = in_turns(state, [&] { files.save(); }, [&] { files.write_as_many(); });
  report_files(state, files, ours, plain);
}

// Loads into blocks that held the sessions that were saved.
void load(benchmark::State& state, const Case& one) {
  Files files(one);
  close_all(files.originals());
  const auto load_and_close = [&] {
    const double seconds = seconds_of([&] { files.load(); });
    close_all(files.loaded());
    return seconds;
  };
  const auto [ours, plain] = in_turns(state, load_and_close, [&] { files.read_as_many(); });
  report_files(state, files, ours, plain);
}

void register_directory() {
  const auto folder = std::make_shared<Folder>();
  const OpenStore open = [folder] {
    const std::string path = folder->file("store");
    auto config = made<pkv_directory_config>();
    config.path = path.c_str();
    config.max_bytes = uint64_t{2} << 30;
    pkv_store store = made<pkv_store>();
    check(pkv_store_open_directory(&config, &store));
    return store;
  };
  const std::string plain = folder->file("plain");
  register_stored("directory", open,
                  {[=](auto& bytes, size_t piece) {
                     return seconds_of([&] { write_plain(plain, bytes, piece); });
                   },
                   [=](auto& bytes, size_t piece) {
                     write_plain(plain, bytes, piece);
                     return seconds_of([&] { read_plain(plain, bytes, piece); });
                   }});
}

}  // namespace

void register_store() {
  register_first_token_from_file();
  register_directory();
  static constexpr Case cases[] = {{"bf16", PKV_BF16, PKV_LAYOUT_PACKED, false},
                                   {"int8", PKV_INT8, PKV_LAYOUT_PACKED, false},
                                   {"bf16/plain layout", PKV_BF16, PKV_LAYOUT_PLAIN, false},
                                   {"bf16/key", PKV_BF16, PKV_LAYOUT_PACKED, true}};
  for (const Case& one : cases) {
    add(std::string("save/") + one.name, save, one);
    add(std::string("load/") + one.name, load, one);
  }
}

}  // namespace pkv::bench
