// Files that were changed after they were written. Every one is refused, and the cache is
// unchanged. (In llama.cpp a state file threw, 27439, and a failed restore poisoned the cache,
// 27068 and 26777.)
#include <fstream>

#include "../support/files.h"
#include "changed_tables.h"
#include "file.h"
#include "support.h"

namespace store::corrupt_test {
namespace {

constexpr Model elsewhere{.kind = PKV_LAYERS_OPAQUE_KV, .layer_bytes = EngineMemory::block_bytes},
    window_elsewhere{.window = 20,
                     .sinks = 3,
                     .kind = PKV_LAYERS_OPAQUE_KV,
                     .layer_bytes = EngineMemory::block_bytes},
    states_elsewhere{.layers = 2,
                     .kind = PKV_LAYERS_OPAQUE_STATES,
                     .layer_bytes = EngineMemory::block_bytes / 2};

// A cache that has something in it, and a file of about 64 KiB from another cache with sessions
// that share, a salt, a window and an index.
struct Fixture {
  Plan plan;
  pkv_file_config config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
  EngineMemory there{plan.groups.size(), plan.blocks}, here{plan.groups.size(), plan.blocks};
  Cache source = create(with(plan, there)), cache = create(with(plan, here));
  Session own = open_salted(cache, "mine");
  Bytes file;
  State before;

  explicit Fixture(uint32_t tokens = 158,
                   const std::vector<Model>& groups =
                       {{.layers = 1, .query_heads = 2, .kv_heads = 1, .key_dim = 32},
                        {.query_heads = 1, .kv_heads = 1, .key_dim = 16, .window = 20}})
      : plan{.groups = groups, .blocks = 600, .prefix = true} {
    append(cache, own, with(plan, here), 40, 1);
    const Session a = open_salted(source, "a");
    append_in_steps(source, a, with(plan, there), tokens, 2);
    const Session b = fork(a);
    append_in_steps(source, b, with(plan, there), 20, 3);
    file = save(source, {a, b}, &config);
    before = state_of(cache);
    here.any_bytes = true;
  }

  pkv_status load_once(const Bytes& bytes) const { return try_load(cache, buffer(bytes), &config); }
  bool refuses(const Bytes& bytes, pkv_status* status = nullptr) const {
    const pkv_status got = load_once(bytes);
    if (status != nullptr) *status = got;
    return got >= 300 && got < 400 && state_of(cache) == before;
  }
};

void flip_bits(const Fixture& fixture) {
  Bytes bytes = fixture.file;
  // 7 leaves out no byte, and no bit of a byte.
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 7) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    ASSERT_TRUE(fixture.refuses(bytes)) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  CHECK(pkv_cache_validate(fixture.cache));
  EXPECT_EQ(PKV_OK, fixture.load_once(bytes)) << pkv_last_error();
}

TEST(Corrupt, AFlippedBitInEveryByte) {
  const Fixture fixture;
  EXPECT_GT(fixture.file.size(), 60u << 10);
  EXPECT_LT(fixture.file.size(), 70u << 10);
  flip_bits(fixture);
}

TEST(Corrupt, BlocksThatOnlyAnEngineHas) {
  const Fixture fixture(70, {elsewhere, window_elsewhere, states_elsewhere, {}});
  flip_bits(fixture);
  EngineMemory engine(4, 600);
  engine.any_bytes = true;
  const ChangedTables counts = load_changed_tables(
      fixture.file, fixture.config, [&] { return create(with(fixture.plan, engine)); });
  EXPECT_GT(counts.refused, 100u);
  EXPECT_GT(counts.taken, 100u) << "a token, a label, a priority";
}

TEST(Corrupt, EveryTruncationAndWhatFollows) {
  const Fixture fixture;
  pkv_status status;
  for (size_t size = 0; size < fixture.file.size(); size++) {
    ASSERT_TRUE(fixture.refuses(
        Bytes(fixture.file.begin(), fixture.file.begin() + static_cast<std::ptrdiff_t>(size)),
        &status))
        << size << " bytes";
    ASSERT_EQ(PKV_CORRUPT, status) << size << " bytes";
  }
  for (const size_t more : {1, 15, 16, 4096}) {
    Bytes longer = fixture.file;
    longer.resize(longer.size() + more);
    EXPECT_TRUE(fixture.refuses(longer)) << more << " bytes more";
  }
  Bytes twice = fixture.file;
  twice.insert(twice.end(), fixture.file.begin(), fixture.file.end());
  EXPECT_TRUE(fixture.refuses(twice));
  CHECK(pkv_cache_validate(fixture.cache));
}

// Pieces of 256 KiB must be in their places, and of their own file.
TEST(Corrupt, PiecesInAnotherOrderOrOfAnotherFile) {
  Fixture fixture(3500);
  const Fixture other(3501);
  const auto piece = [](size_t i) {
    return store_file::header_bytes + store_file::tag_bytes +
           i * (store_file::piece_bytes + store_file::tag_bytes);
  };
  ASSERT_GT(fixture.file.size(), piece(3));
  Bytes swapped = fixture.file;
  std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(piece(1)),
                   swapped.begin() + static_cast<std::ptrdiff_t>(piece(2)),
                   swapped.begin() + static_cast<std::ptrdiff_t>(piece(2)));
  EXPECT_TRUE(fixture.refuses(swapped));
  Bytes mixed = fixture.file;
  std::copy(other.file.begin() + static_cast<std::ptrdiff_t>(piece(1)),
            other.file.begin() + static_cast<std::ptrdiff_t>(piece(2)),
            mixed.begin() + static_cast<std::ptrdiff_t>(piece(1)));
  EXPECT_TRUE(fixture.refuses(mixed));
  EXPECT_EQ(PKV_OK, fixture.load_once(fixture.file)) << pkv_last_error();
}

TEST(Corrupt, AnyByteOfTheTablesBehindRightTags) {
  const Fixture fixture(70);
  const ChangedTables counts =
      load_changed_tables(fixture.file, fixture.config, [&] { return create(fixture.plan); });
  EXPECT_GT(counts.refused, 100u);
  EXPECT_GT(counts.taken, 100u) << "a token, a label, a priority";
}

TEST(Corrupt, AnyByteOfTheTablesWithDroppedBlocks) {
  const Plan plan;
  const Cache source = create(plan);
  const Session session = open_salted(source, "a");
  append(source, session, plan, 100, 1);
  const uint32_t blocks[] = {1, 2, 4};
  CHECK(pkv_session_drop_blocks(session, 0, 3, blocks));
  const auto config = made<pkv_file_config>();
  const Bytes file = save(source, {session}, &config);
  const ChangedTables counts = load_changed_tables(file, config, [&] { return create(plan); });
  EXPECT_GT(counts.refused, 100u);
  EXPECT_GT(counts.taken, 100u) << "a token, a label, a priority";
}

// Numbers that a reader might multiply, add or trust.
TEST(Corrupt, HostileNumbers) {
  const Fixture fixture(40);
  const auto refused = [&](size_t offset, uint64_t value, size_t size) {
    Bytes bytes = fixture.file;
    std::memcpy(bytes.data() + offset, &value, size);
    store_file::seal(bytes);
    EXPECT_TRUE(fixture.refuses(bytes)) << "offset " << offset << ": " << value;
  };
  for (const uint64_t value : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 61, uint64_t{1} << 62,
                               uint64_t{1} << 63, UINT64_MAX - 64, UINT64_MAX}) {
    refused(store_file::body_bytes_at, value, 8);
    for (size_t part = 0; part < 3; part++) refused(store_file::sizes_at + 8 * part, value, 8);
  }
  // These are the block size, the storage, the fingerprint and the groups.
  for (size_t word = store_file::tables_at; word < store_file::tables_at + 152; word += 4)
    for (const uint64_t value :
         {uint64_t{0x7FFFFFFF}, uint64_t{0x80000000}, uint64_t{0xFFFFFFFF}, uint64_t{0x10000}})
      refused(word, value, 4);
}

// A callback does not announce the size of the file. So the reader must not trust the size in a
// header before the bytes have arrived.
TEST(Corrupt, AStreamThatPromisesMuch) {
  const Fixture fixture(40);
  Bytes bytes(fixture.file.begin(), fixture.file.begin() + store_file::sizes_at);
  const uint64_t huge = uint64_t{1} << 40;
  std::memcpy(bytes.data() + store_file::body_bytes_at, &huge, sizeof huge);
  store_file::seal(bytes);
  struct Reader {
    const Bytes& bytes;
    size_t at = 0;
  } reader{bytes};
  pkv_stream from = stream(PKV_STREAM_CALLBACKS);
  from.user = &reader;
  from.read = [](void* user, void* to, uint64_t n) {
    Reader& self = *static_cast<Reader*>(user);
    const size_t count = std::min<size_t>(n, self.bytes.size() - self.at);
    std::memcpy(to, self.bytes.data() + self.at, count);
    self.at += count;
    return static_cast<int64_t>(count);
  };
  EXPECT_EQ(PKV_CORRUPT, try_load(fixture.cache, from, &fixture.config));
  EXPECT_EQ(fixture.before, state_of(fixture.cache));
}

// ---- Another model, another key -----------------------------------------------------------------

void expect_mismatch(const Plan& from, const Plan& to) {
  const Cache a = create(from), b = create(to);
  const Session session = open(a);
  append(a, session, from, 20, 1);
  EXPECT_EQ(PKV_MISMATCH, try_load(b, buffer(save(a, {session})))) << pkv_last_error();
  EXPECT_EQ(0u, pool_stats_of(b).held_blocks);
}

// Keys, or values, are rotated by a matrix that moves each of 16 dims by `places`.
void rotate_by(Model& model, size_t places, bool values = false) {
  static std::vector<float> all[16];
  static pkv_rotation_matrices of_keys[16], of_values[16];
  std::vector<float>& matrix = all[places];
  matrix.assign(256, 0);
  for (size_t i = 0; i < 16; i++) matrix[i * 16 + (i + places) % 16] = 1;
  of_keys[places] = made<pkv_rotation_matrices>({.key = matrix.data()});
  of_values[places] = made<pkv_rotation_matrices>({.value = matrix.data()});
  model.rotation_matrices = (values ? of_values : of_keys) + places;
}

TEST(Mismatch, OfTheModel) {
  const Plan plan;
  const auto changed = [&](auto change) {
    Plan other = plan;
    change(other.groups[0]);
    return other;
  };
  for (const Plan& other : {changed([](Model& model) { model.layers = 3; }),
                            changed([](Model& model) { model.kv_heads = 4; }),
                            changed([](Model& model) { model.key_dim = 32; }),
                            changed([](Model& model) { model.value_dim = 32; }),
                            changed([](Model& model) { model.window = 64; }),
                            changed([](Model& model) { model.dtype = PKV_INT8; }),
                            changed([](Model& model) { model.value_dtype = PKV_FP8_E4M3; }),
                            changed([](Model& model) { model.kind = PKV_LAYERS_LATENT; }),
                            changed([](Model& model) { model.rotation = hadamard; }),
                            changed([](Model& model) { rotate_by(model, 1); })}) {
    expect_mismatch(plan, other);
    expect_mismatch(other, plan);
  }
  const Plan rotated = changed([](Model& model) { rotate_by(model, 1); });
  for (const Plan& other : {changed([](Model& model) { model.rotation = hadamard; }),
                            changed([](Model& model) { rotate_by(model, 2); }),
                            changed([](Model& model) { rotate_by(model, 1, true); })}) {
    expect_mismatch(rotated, other);
    expect_mismatch(other, rotated);
  }
  Plan none = plan;
  none.storage = PKV_STORAGE_EXTERNAL;
  expect_mismatch(plan, none);
  expect_mismatch(none, plan);
  Plan two = plan;
  two.groups.push_back(two.groups[0]);
  expect_mismatch(plan, two);
}

// The tokens of a window do not fill a larger block, because the other tokens of that block are
// lost.
TEST(Mismatch, OfAWindowAndLargerBlocks) {
  Plan plan, larger;
  plan.groups[0].window = 20;
  larger = plan;
  larger.block_size = 64;
  const Cache a = create(plan), b = create(larger);
  const Session session = open(a);
  append_in_steps(a, session, plan, 110, 1);
  EXPECT_EQ(PKV_MISMATCH, try_load(b, buffer(save(a, {session}))));
  EXPECT_EQ(0u, pool_stats_of(b).held_blocks);
  const Session young = open(a);
  append_in_steps(a, young, plan, 30, 1);
  const std::vector<Session> loaded = load(b, save(a, {young}));
  expect_same(young, loaded[0], larger);
}

TEST(Mismatch, OfTheFingerprint) {
  const Plan plan;
  const Cache cache = create(plan);
  pkv_file_config one = file_config(), other = one, none = one;
  one.fingerprint = "model 1", one.fingerprint_size = 7;
  other.fingerprint = "model 2", other.fingerprint_size = 7;
  const Bytes file = save(cache, std::vector<pkv_session>{}, &one),
              plain = save(cache, std::vector<pkv_session>{});
  EXPECT_EQ(PKV_OK, try_load(cache, buffer(file), &one));
  EXPECT_EQ(PKV_MISMATCH, try_load(cache, buffer(file), &other));
  EXPECT_EQ(PKV_MISMATCH, try_load(cache, buffer(file), &none));
  EXPECT_EQ(PKV_MISMATCH, try_load(cache, buffer(plain), &one));
}

// Sessions and an index in an encrypted file, its key, and a cache that loads it.
struct Encrypted {
  Plan plan{.groups = {{.query_heads = 1, .kv_heads = 1, .key_dim = 16, .dtype = PKV_BF16}},
            .blocks = 20000,
            .prefix = true};
  pkv_file_config right = with_key("a key of 24 secret bytes"),
                  wrong = with_key("a key of 24 secret byteS");
  Cache source = create(plan), cache = create(plan);
  Session session = open_salted(source, "a tenant");
  Bytes file;

  explicit Encrypted(uint32_t tokens = 50) {
    append(source, session, plan, tokens, 77);
    file = save_again();
  }
  static pkv_file_config with_key(const char* key) {
    return made<pkv_file_config>(
        {.prefix_index = 1, .secret_key = key, .secret_key_size = std::strlen(key)});
  }
  Bytes save_again() const { return save(source, {session}, &right); }
  pkv_status load_once(const Bytes& bytes) const { return try_load(cache, buffer(bytes), &right); }
};

class Keys : public testing::Test {
 protected:
  void SetUp() override {
    if (!keys_work()) GTEST_SKIP() << "this build is without libsodium or libcrypto";
  }
};

TEST_F(Keys, AFileIsLoadedWithItsKeyOnly) {
  const Encrypted fixture;
  const pkv_file_info info = inspect(fixture.file, &fixture.right);
  EXPECT_EQ(1u, info.encrypted);
  EXPECT_EQ(1u, info.version);
  EXPECT_EQ(50u, info.tokens);
  expect_same(fixture.session, load(fixture.cache, fixture.file, &fixture.right)[0], fixture.plan);
  EXPECT_EQ(PKV_WRONG_KEY, try_load(fixture.cache, buffer(fixture.file), &fixture.wrong));
  EXPECT_EQ(PKV_WRONG_KEY, try_load(fixture.cache, buffer(fixture.file)));
  EXPECT_EQ(PKV_WRONG_KEY, try_load(fixture.cache, buffer(save(fixture.source, {fixture.session})),
                                    &fixture.right));
  auto refused = made<pkv_file_info>();
  const pkv_stream from = buffer(fixture.file);
  EXPECT_EQ(PKV_WRONG_KEY, pkv_file_inspect(nullptr, &from, &refused));
  EXPECT_EQ(PKV_WRONG_KEY, pkv_file_inspect(&fixture.wrong, &from, &refused));
}

TEST_F(Keys, EveryFlippedBitIsFound) {
  const Encrypted fixture;
  Bytes bytes = fixture.file;
  for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    const pkv_status status = fixture.load_once(bytes);
    ASSERT_TRUE(status >= 300 && status < 400) << "bit " << bit << ": " << pkv_status_name(status);
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  EXPECT_EQ(0u, pool_stats_of(fixture.cache).held_blocks);
  EXPECT_EQ(PKV_OK, fixture.load_once(bytes)) << pkv_last_error();
}

TEST_F(Keys, EveryTruncationAndWhatFollowsIsFound) {
  const Encrypted fixture;
  for (size_t size = 0; size < fixture.file.size(); size++)
    ASSERT_EQ(PKV_CORRUPT,
              fixture.load_once(Bytes(fixture.file.begin(),
                                      fixture.file.begin() + static_cast<std::ptrdiff_t>(size))))
        << size << " bytes";
  Bytes longer = fixture.file;
  longer.push_back(0);
  EXPECT_EQ(PKV_CORRUPT, fixture.load_once(longer));
}

// A file that is cut short ends with a piece that was not written as the last one.
TEST_F(Keys, PiecesBelongToOnePlaceOfOneFile) {
  const Encrypted fixture(12000);
  const auto piece = [](const Bytes& file, size_t i) {
    const size_t stride = store_file::piece_bytes + store_file::tag_bytes,
                 at = store_file::header_bytes + store_file::tag_bytes + i * stride;
    return std::pair(
        file.begin() + static_cast<std::ptrdiff_t>(at),
        file.begin() + static_cast<std::ptrdiff_t>(std::min(file.size(), at + stride)));
  };
  ASSERT_GT(fixture.file.size(), 3 * store_file::piece_bytes);
  Bytes swapped = fixture.file;
  std::swap_ranges(swapped.begin() + (piece(fixture.file, 0).first - fixture.file.begin()),
                   swapped.begin() + (piece(fixture.file, 0).second - fixture.file.begin()),
                   swapped.begin() + (piece(fixture.file, 1).first - fixture.file.begin()));
  EXPECT_EQ(PKV_CORRUPT, fixture.load_once(swapped));
  // No piece fits, even with the same content and the same key.
  const Bytes other = fixture.save_again();
  for (size_t i = 0; i < 4; i++) {
    Bytes mixed = fixture.file;
    std::copy(piece(other, i).first, piece(other, i).second,
              mixed.begin() + (piece(other, i).first - other.begin()));
    EXPECT_EQ(PKV_CORRUPT, fixture.load_once(mixed)) << "piece " << i;
  }
  Bytes shorter = fixture.file;
  shorter.resize(static_cast<size_t>(piece(fixture.file, 2).second - fixture.file.begin()));
  const uint64_t body = 3 * store_file::piece_bytes;
  std::memcpy(shorter.data() + store_file::body_bytes_at, &body, sizeof body);
  EXPECT_EQ(PKV_WRONG_KEY, fixture.load_once(shorter)) << "its header was changed";
  EXPECT_EQ(PKV_OK, fixture.load_once(fixture.file)) << pkv_last_error();
}

// Only the parts that FORMAT.md names are readable.
TEST_F(Keys, NothingIsInTheClear) {
  const Encrypted fixture(3000);
  const Bytes again = fixture.save_again();
  ASSERT_EQ(fixture.file.size(), again.size());
  size_t same = 0;
  for (size_t i = 24; i < fixture.file.size(); i++) same += fixture.file[i] == again[i];
  EXPECT_LT(same, fixture.file.size() / 128) << "one byte in 256 is the same by chance";
  const auto contains = [&](const void* bytes, size_t n) {
    const auto* const first = static_cast<const unsigned char*>(bytes);
    return std::search(fixture.file.begin(), fixture.file.end(), first, first + n) !=
           fixture.file.end();
  };
  EXPECT_FALSE(contains("a tenant", 8));
  const int32_t tokens[] = {77000, 77001};
  EXPECT_FALSE(contains(tokens, sizeof tokens));
  const uint64_t length = 3000;
  EXPECT_FALSE(contains(&length, sizeof length));
  const Bytes plain = save(fixture.source, {fixture.session});
  EXPECT_FALSE(contains(plain.data() + plain.size() - 1000, 64)) << "keys and values";
}

// Without the key anybody can make valid checksums, but not a valid file, not even one that claims
// to need no key.
TEST_F(Keys, ForgedFilesAreRefused) {
  const Encrypted fixture;
  Bytes forged = fixture.file;
  forged[12] = 0;
  std::fill(forged.begin() + 24, forged.begin() + 48, static_cast<unsigned char>(0));
  store_file::seal(forged);
  EXPECT_EQ(PKV_WRONG_KEY, fixture.load_once(forged));
  Bytes unkeyed = fixture.file;
  unkeyed[12] = 0;
  EXPECT_EQ(PKV_CORRUPT, fixture.load_once(unkeyed));
}

// Anyone who can write a file without a key chooses the salts of its texts. So the texts are
// refused, unless the caller trusts salts.
TEST(Salts, OfAFileWithoutAKeyAreNotTrusted) {
  Plan plan{.prefix = true};
  const Cache source = create(plan);
  const Session salted = open_salted(source, "victim"), plain = open_salted(source, "");
  append(source, salted, plan, 40, 1);
  append(source, plain, plan, 40, 2);
  pkv_file_config usual = file_config(), index = usual, trusting = usual, keyed = usual;
  index.prefix_index = trusting.prefix_index = 1;
  trusting.trust_salts = 1;
  keyed.secret_key = "a key of 24 secret bytes", keyed.secret_key_size = 24;
  const Bytes sessions = save(source, {salted, plain}), unsalted = save(source, {plain}),
              cached = save(source, std::vector<pkv_session>{}, &index);

  const Cache cache = create(plan);
  const State before = state_of(cache);
  EXPECT_EQ(PKV_MISMATCH, try_load(cache, buffer(sessions), &usual));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "trust_salts"));
  EXPECT_EQ(PKV_MISMATCH, try_load(cache, buffer(cached), &index));
  EXPECT_EQ(before, state_of(cache));
  EXPECT_EQ(PKV_OK, try_load(cache, buffer(cached), &usual)) << "its entries are not asked for";
  EXPECT_EQ(PKV_OK, try_load(cache, buffer(unsalted), &usual));
  Plan without = plan;
  without.prefix = false;
  EXPECT_EQ(PKV_OK, try_load(create(without), buffer(sessions), &usual)) << "there is no index";
  EXPECT_EQ(PKV_OK, try_load(cache, buffer(sessions), &trusting));
  EXPECT_EQ(PKV_OK, try_load(cache, buffer(cached), &trusting));
  if (keys_work()) {
    EXPECT_EQ(PKV_OK, try_load(cache, buffer(save(source, {salted, plain}, &keyed)), &keyed));
  }
  CHECK(pkv_cache_validate(cache));
}

// A file has the saved length of each chain. The reader checks that it is not too large, and texts
// of the index end there.
TEST(Lengths, AreCheckedAndBelieved) {
  Plan plan{.prefix = true};
  const Cache source = create(plan);
  {
    const Session session = open(source);
    append(source, session, plan, 80, 1);
  }
  auto config = made<pkv_file_config>({.prefix_index = 1});
  const Bytes file = save(source, std::vector<pkv_session>{}, &config);
  const size_t lengths_size_at = store_file::sizes_at + 16, length_at = file.size() - 16 - 64;
  const auto changed = [&](size_t at, uint64_t number) {
    Bytes other = file;
    std::memcpy(other.data() + at, &number, sizeof number);
    store_file::seal(other);
    return other;
  };
  const Cache cache = create(plan);
  for (const uint64_t length : {81ull, ~0ull})
    EXPECT_EQ(PKV_CORRUPT, try_load(cache, buffer(changed(length_at, length)), &config));
  for (const uint64_t size : {0ull, 63ull, 128ull, 1ull << 62, ~0ull})
    EXPECT_EQ(PKV_CORRUPT, try_load(cache, buffer(changed(lengths_size_at, size)), &config));
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
  for (const uint64_t length : {0u, 15u, 40u, 80u}) {
    EXPECT_EQ(PKV_OK, try_load(cache, buffer(changed(length_at, length)), &config))
        << pkv_last_error();
    EXPECT_EQ(length / 16, pool_stats_of(cache).held_blocks);
    CHECK(pkv_cache_validate(cache));
    CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
  }
}

// ---- Room ---------------------------------------------------------------------------------------

// Loads the same bytes from a buffer and from a file.
pkv_status try_both(pkv_cache cache, const Bytes& bytes) {
  const std::string path =
      testing::TempDir() + "pagedkv-room-" + std::to_string(portable::process_id());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const pkv_status status = try_load(cache, at_path(path));
  std::filesystem::remove(path);
  EXPECT_EQ(status, try_load(cache, buffer(bytes)));
  return status;
}

TEST(Room, NotEnoughOfItIsToldAndNothingIsLost) {
  Plan plan, small = plan;
  small.blocks = 8;
  small.prefix = true;
  const Cache a = create(plan), b = create(small);
  const Session session = open(a);
  append(a, session, plan, 100, 1);
  const Bytes file = save(a, {session});
  {
    const Session cached = open(b);
    append(b, cached, small, 64, 2);
  }
  const Session other = open(b);
  append(b, other, small, 32, 3);
  const State before = state_of(b);
  EXPECT_EQ(PKV_OUT_OF_BLOCKS, try_both(b, file));
  EXPECT_EQ(before, state_of(b));
  CHECK(pkv_session_trim(other, 0));
  // Cached blocks would have to be evicted. They must not be evicted for a file that is corrupt
  // after its tables.
  const State cached = state_of(b);
  Bytes broken = file;
  broken[broken.size() - 20]++;
  EXPECT_EQ(PKV_CORRUPT, try_both(b, broken));
  EXPECT_EQ(cached, state_of(b));
  const std::vector<Session> loaded = load(b, file);
  expect_same(session, loaded[0], small);
  CHECK(pkv_cache_validate(b));
  Plan tiny = plan;
  tiny.blocks = 4;
  const Cache c = create(tiny);
  EXPECT_EQ(PKV_TOO_LARGE, try_both(c, file));
}

TEST(Room, OfTheCallersLists) {
  const Plan plan;
  const Cache a = create(plan), b = create(plan);
  const Session one = open(a), two = open(a);
  const Bytes file = save(a, {one, two});
  pkv_session sessions[2] = {};
  size_t count = 9;
  const pkv_stream from = buffer(file);
  EXPECT_EQ(PKV_BUFFER_TOO_SMALL, pkv_file_load(b, nullptr, &from, 1, sessions, nullptr, &count));
  EXPECT_EQ(2u, count);
  EXPECT_EQ(nullptr, sessions[0]);
  EXPECT_EQ(0u, stats_of(b).sessions);
  CHECK(pkv_file_load(b, nullptr, &from, 2, sessions, nullptr, &count));
  EXPECT_EQ(2u, stats_of(b).sessions);
}

// ---- Versions -----------------------------------------------------------------------------------

TEST(Version, ThatIsUnknownIsRefusedWithBothNumbers) {
  const Plan plan;
  const Cache cache = create(plan);
  Bytes file = save(cache, std::vector<pkv_session>{});
  EXPECT_EQ(1, file[8]);
  for (const int version : {0, 2, 255}) {
    file[8] = static_cast<unsigned char>(version);
    store_file::seal(file);
    EXPECT_EQ(PKV_WRONG_VERSION, try_load(cache, buffer(file)));
    EXPECT_EQ("the file has format version " + std::to_string(version) + "; this library knows 1",
              std::string(pkv_last_error()));
  }
}

// The golden files hold what `golden_sessions` makes. PKV_UPDATE_GOLDEN=1 writes them anew.
struct Golden {
  const char* name;
  Plan plan;
  pkv_file_config config = file_config();
};

std::vector<Golden> goldens() {
  Plan quantised = Plan{}.with(PKV_INT8, PKV_INT4), hybrid, ids, mixed, rotated = quantised;
  rotated.groups[0].rotation = hadamard;
  rotated.groups.push_back({.layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16});
  rotate_by(rotated.groups[1], 3);
  hybrid.groups = {{.layers = 1, .query_heads = 2, .kv_heads = 1, .key_dim = 16, .dtype = PKV_BF16},
                   {.layers = 1,
                    .query_heads = 1,
                    .kv_heads = 1,
                    .key_dim = 32,
                    .dtype = PKV_F16,
                    .window = 20,
                    .sinks = 3}};
  hybrid.prefix = true;
  ids.storage = PKV_STORAGE_EXTERNAL;
  mixed.groups = {{}, elsewhere, window_elsewhere, states_elsewhere};
  mixed.prefix = true;
  std::vector<Golden> all = {{"plain", Plan{}}, {"quantised", quantised}, {"hybrid", hybrid},
                             {"ids", ids},      {"rotated", rotated},     {"elsewhere", mixed}};
  for (Golden& golden : all) {
    golden.config.prefix_index = golden.plan.prefix;
    golden.config.trust_salts = 1;
    golden.config.fingerprint = "golden";
    golden.config.fingerprint_size = 6;
  }
  return all;
}

std::vector<Session> golden_sessions(pkv_cache cache, const Plan& plan) {
  std::vector<Session> sessions;
  sessions.push_back(open_salted(cache, "salt", PKV_PREFIX_SHARE, -3));
  append_in_steps(cache, sessions[0], plan, 50, 1);
  sessions.push_back(fork(sessions[0]));
  append_in_steps(cache, sessions[1], plan, 9, 2);
  sessions.push_back(open(cache));
  append(cache, sessions[2], plan, 18, 3);
  CHECK(pkv_session_suspend(sessions[2]));
  return sessions;
}

// Two files with a key are never equal, even with the same content.
void expect_golden(const Golden& golden) {
  const bool keyed = golden.config.secret_key != nullptr;
  const std::string path =
      std::string(GOLDEN) + "/v1-" + golden.name + (keyed ? "-keyed" : "") + ".pkv";
  SCOPED_TRACE(path);
  EngineMemory engines[2] = {{golden.plan.groups.size(), golden.plan.blocks},
                             {golden.plan.groups.size(), golden.plan.blocks}};
  const Plan from = with(golden.plan, engines[0]), to = with(golden.plan, engines[1]);
  const Cache a = create(from), b = create(to);
  const std::vector<Session> expected = golden_sessions(a, from);
  const Bytes now = save(a, {expected[0], expected[1], expected[2]}, &golden.config);
  if (std::getenv("PKV_UPDATE_GOLDEN") != nullptr) files::write(path, now);
  const Bytes file = files::read<Bytes>(path);
  ASSERT_EQ(now.size(), file.size());
  if (!keyed) {
    EXPECT_EQ(now, file) << "what is saved now differs from what was: that is another version";
  }
  const std::vector<Session> loaded = load(b, at_path(path), &golden.config);
  ASSERT_EQ(3u, loaded.size());
  for (size_t i = 0; i < loaded.size(); i++) expect_same(expected[i], loaded[i], to);
  EXPECT_EQ(tokens_of(expected[2], 18), tokens_of(loaded[2], 18));
}

TEST(Golden, FilesAreStillRead) {
  for (const Golden& golden : goldens()) expect_golden(golden);
}

TEST(Golden, EncryptedFilesAreStillRead) {
  if (!keys_work()) GTEST_SKIP() << "this build is without libsodium or libcrypto";
  for (Golden golden : goldens()) {
    if (golden.name == std::string("plain") || golden.name == std::string("quantised"))
      continue;  // Nothing more can be seen of these.
    golden.config.secret_key = "the golden key, 24 bytes", golden.config.secret_key_size = 24;
    expect_golden(golden);
  }
}

}  // namespace
}  // namespace store::corrupt_test
