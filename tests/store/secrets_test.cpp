// Keys do not stay in memory. After a save, a load and the end of a cache with a store, no byte of
// this process's memory shows the given key or one derived from it. All readable memory is
// searched: heap, stacks, libraries.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "../support/hints.h"
#include "../support/memory_store.h"
#include "support.h"

#if defined(PKV_WITH_CIPHERS)
#include <sodium.h>
#endif

namespace store::secrets_test {
namespace {

void wipe(void* bytes, size_t n) {
  for (size_t i = 0; i < n; i++) static_cast<volatile unsigned char*>(bytes)[i] = 0;
}

// 32 bytes that are in memory only while they are opened. Otherwise each of them is inverted.
class Hidden {
 public:
  Hidden() = default;
  // Takes the bytes and wipes them.
  explicit Hidden(unsigned char* bytes) {
    for (size_t i = 0; i < size; i++) inverted_[i] = static_cast<unsigned char>(~bytes[i]);
    wipe(bytes, size);
  }
  void open(unsigned char* bytes) const {
    for (size_t i = 0; i < size; i++) bytes[i] = at(i);
  }
  // 16 bytes in a row are found nowhere by chance.
  bool is_part_at(const unsigned char* bytes, size_t first) const {
    for (size_t i = 0; i < 16; i++)
      if (bytes[i] != at(first + i)) return false;
    return true;
  }
  static constexpr size_t size = 32;

 private:
  // Returns one byte at a time. A vector register would hold all of them in the clear, and from
  // there they would get to the stack.
  unsigned char at(size_t i) const {
    return static_cast<unsigned char>(~static_cast<const volatile unsigned char*>(inverted_)[i]);
  }
  unsigned char inverted_[size] = {};
};

// Returns where in memory a part of the secret is, or "".
std::string find(const Hidden& hidden) {
  std::ifstream maps("/proc/self/maps");
  std::ifstream memory("/proc/self/mem", std::ios::binary);
  std::string line, found;
  std::vector<unsigned char> buffer(1 << 20);
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) != 3 || access[0] != 'r' ||
        access[1] != 'w')
      continue;
    for (unsigned long at = begin; at < end; at += buffer.size() - Hidden::size) {
      memory.clear();
      memory.seekg(static_cast<std::streamoff>(at));
      memory.read(reinterpret_cast<char*>(buffer.data()),
                  static_cast<std::streamsize>(std::min<unsigned long>(buffer.size(), end - at)));
      const size_t n = static_cast<size_t>(memory.gcount());
      for (size_t i = 0; i + 16 <= n; i++)
        if (hidden.is_part_at(buffer.data() + i, 0) || hidden.is_part_at(buffer.data() + i, 16))
          found += line + "\n", i = n;
    }
  }
  std::fill(buffer.begin(), buffer.end(), static_cast<unsigned char>(0));
  return found;
}

// Wipes what the test's own calls left below its frame. It is not used after calls of the library,
// which must leave nothing.
[[gnu::noinline]] void wipe_own_stack() {
  unsigned char bytes[1 << 16];
  wipe(bytes, sizeof bytes);
}

class Secrets : public testing::Test {
 protected:
  Secrets() {
    plan_.prefix = true;
    unsigned char key[Hidden::size];
    std::ifstream("/dev/urandom", std::ios::binary)
        .rdbuf()
        ->sgetn(reinterpret_cast<char*>(key), sizeof key);
    key_ = Hidden(key);
    wipe_own_stack();
  }
  void SetUp() override {
    if (std::ifstream("/proc/self/mem").fail()) GTEST_SKIP() << "no /proc/self/mem here to search";
  }
  // Makes a call with the key in a buffer that is wiped afterwards.
  template <class Call>
  void with_key(const Call& call) {
    unsigned char key[Hidden::size];
    key_.open(key);
    call(key);
    wipe(key, sizeof key);
  }
  Plan plan_;
  Hidden key_;
};

TEST_F(Secrets, TheSearchFindsWhatIsThere) {
  std::vector<unsigned char> kept(Hidden::size);
  key_.open(kept.data());
  EXPECT_NE("", find(key_));
  wipe(kept.data(), kept.size());
  wipe_own_stack();
  EXPECT_EQ("", find(key_));
}

// Derives the key of a file from its header, as FORMAT.md says. A separate process does it, so that
// what libsodium leaves on the stack and in vector registers is not mistaken for the library's.
void derive([[maybe_unused]] const unsigned char* key, [[maybe_unused]] const Bytes& file,
            [[maybe_unused]] Hidden& derived) {
#if defined(PKV_WITH_CIPHERS)
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char bytes[Hidden::size];
    crypto_generichash_blake2b_salt_personal(
        bytes, sizeof bytes, file.data(), 48, key, Hidden::size, nullptr,
        reinterpret_cast<const unsigned char*>("pagedkv file key"));
    const Hidden hidden(bytes);
    _exit(::write(ends[1], &hidden, sizeof hidden) == sizeof hidden ? 0 : 1);
  }
  close(ends[1]);
  EXPECT_EQ(static_cast<ssize_t>(sizeof derived), ::read(ends[0], &derived, sizeof derived));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
#endif
}

TEST_F(Secrets, NoKeyOfAFileStays) {
  Bytes file;
  Hidden derived;
  bool possible = true;
  {
    plan_.threads = 2;
    const Cache a = create(plan_), b = create(plan_);
    const Session session = open(a);
    append(a, session, plan_, 100, 1);
    auto config = made<pkv_file_config>();
    with_key([&](const unsigned char* key) {
      config.secret_key = key, config.secret_key_size = Hidden::size;
      const pkv_file_item item{session, nullptr, 1};
      pkv_stream none = stream(PKV_STREAM_BUFFER);
      possible = pkv_file_save(a, 1, &item, &config, &none, nullptr) != PKV_UNSUPPORTED;
      if (!possible) return;
      file = save(a, {session}, &config);
      EXPECT_EQ(1u, inspect(file, &config).encrypted);
      expect_same(session, load(b, file, &config)[0], plan_);
      derive(key, file, derived);
    });
  }
  if (!possible) GTEST_SKIP() << "this build is without libsodium or libcrypto";
  EXPECT_EQ("", find(key_)) << "the caller's key";
  EXPECT_EQ("", find(derived)) << "the key that was derived for the file";
}

TEST_F(Secrets, NoKeyOfAStoreStays) {
  MemoryStore memory;
  pkv_store table = memory.table();
  auto store_config = made<pkv_store_config>({.store = &table});
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = config_of({}, 32);
  config.prefix = &prefix;
  config.store = &store_config;
  pkv_cache made = nullptr;
  pkv_status status = PKV_OK;
  with_key([&](const unsigned char* key) {
    store_config.secret_key = key, store_config.secret_key_size = Hidden::size;
    status = pkv_cache_create(&config, &made);
  });
  if (status == PKV_UNSUPPORTED) GTEST_SKIP() << "this build is without libsodium or libcrypto";
  CHECK(status);
  {
    const Cache cache(made);
    std::vector<int32_t> tokens(64, 5);
    for (int round = 0; round < 2; round++) {
      const Session session = open(cache);
      Plan plan;
      plan.groups = {{}};
      append(cache, session, plan, 64, 1);
      tokens = tokens_of(session, 64);
    }
    uint64_t cached = 0;
    cache_test::flush_store(cache);
    CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    cache_test::prefetch(cache, std::span(tokens).first(64));
    CHECK(pkv_prefetch_wait(cache, TextArg({tokens.data(), 64}), 60000, &cached, nullptr));
    EXPECT_EQ(64u, cached);
    EXPECT_NE("", find(key_)) << "the cache needs it";
  }
  EXPECT_EQ("", find(key_));
}

}  // namespace
}  // namespace store::secrets_test
