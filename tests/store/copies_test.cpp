// Each attribute of a session by each way to copy a session: the copy has the attribute, or starts
// without it if the header says so. A field of pkv_session_config or of pkv_session_info that no
// row names fails the test.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "../support/hints.h"
#include "api/handles.h"
#include "engine/session/session.h"
#include "support.h"

namespace store::copies_test {
namespace {

constexpr uint32_t block = 16, length = 40;
constexpr uint64_t label = 7;

Plan plan() { return Plan{.blocks = 32, .prefix = true}; }

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// ---- Ways to copy -------------------------------------------------------------------------------

enum class Way { fork, snapshot, file, snapshot_file, suspend, index_file };
constexpr Way ways[] = {Way::fork,          Way::snapshot, Way::file,
                        Way::snapshot_file, Way::suspend,  Way::index_file};
constexpr const char* way_names[] = {"fork",
                                     "snapshot",
                                     "file of the session",
                                     "file of a snapshot",
                                     "suspend and resume",
                                     "file of the index"};

// A session, or a copy of one, and the cache in which it is.
struct Copy {
  Cache cache;
  Session session;  // none: only its blocks in the index were copied
  std::string salt;
  uint64_t labelled = 0;
};

Bytes save_one(pkv_cache cache, pkv_session session, pkv_snapshot snapshot) {
  return save(cache, std::vector<pkv_file_item>{{session, snapshot, label}});
}

Copy load_one(const Bytes& file, const std::string& salt, bool index) {
  auto config = made<pkv_file_config>({.prefix_index = index ? 1u : 0u, .trust_salts = 1});
  Copy copy{create(plan()), {}, salt, 0};
  std::vector<uint64_t> labels;
  std::vector<Session> sessions = load(copy.cache, file, &config, &labels);
  if (index) return copy;
  copy.session = std::move(sessions.at(0));
  copy.labelled = labels.at(0);
  return copy;
}

// Saves the blocks that a closed session left in the index.
Bytes save_index(pkv_cache cache, Session& session) {
  session.close();
  auto config = made<pkv_file_config>({.prefix_index = 1});
  return save(cache, std::vector<pkv_session>{}, &config);
}

// The original is closed once it is copied.
Copy copied(Way way, Copy original) {
  Session& session = original.session;
  switch (way) {
    case Way::fork:
      session = fork(session);
      return original;
    case Way::snapshot:
      session = thaw(freeze(session));
      return original;
    case Way::file:
      return load_one(save_one(original.cache, session, nullptr), original.salt, false);
    case Way::snapshot_file:
      return load_one(save_one(original.cache, nullptr, freeze(session)), original.salt, false);
    case Way::suspend: {
      CHECK(pkv_session_suspend(session));
      uint64_t held, total;
      CHECK(pkv_session_resume(session, &held, &total));
      return original;
    }
    case Way::index_file:
      return load_one(save_index(original.cache, session), original.salt, true);
  }
  return original;
}

// ---- Attributes ---------------------------------------------------------------------------------

// Appends remembered tokens and two unique blocks to the copy, closes it, and returns its text.
std::vector<int32_t> ended(Copy& copy) {
  std::vector<int32_t> text;
  for (uint32_t i = 0; i < length; i++) text.push_back(static_cast<int32_t>(1000 + i));
  if (copy.session == nullptr) return text;
  const pkv_session_info info = info_of(copy.session);
  append(copy.cache, copy.session, plan(), static_cast<uint32_t>(info.total - info.length), 1);
  append(copy.cache, copy.session, plan(), 2 * block, 9);
  text = tokens_of(copy.session, length_of(copy.session));
  copy.session.close();
  return text;
}

uint64_t probe(const Copy& copy, const std::string& salt, const std::vector<int32_t>& text) {
  uint64_t found;
  CHECK(pkv_prefix_probe(copy.cache, TextArg(text, salt), &found));
  return found;
}

// Texts of 40 other sessions, more than the cache holds.
void serve_others(const Copy& copy) {
  for (uint64_t other = 100; other < 140; other++)
    append(copy.cache, open_salted(copy.cache, copy.salt), plan(), block, other);
}

bool publishes(Copy& copy) {
  const std::vector<int32_t> text = ended(copy);
  return probe(copy, copy.salt, text) == text.size() / block * block;
}

// Whether the session finds blocks that another one published under its salt.
bool matches(Copy& copy) {
  append(copy.cache, open_salted(copy.cache, copy.salt), plan(), block, 50);
  std::vector<int32_t> text;
  for (uint32_t i = 0; i < block; i++) text.push_back(static_cast<int32_t>(50 * 1000 + i));
  CHECK(pkv_session_trim(copy.session, 0));
  uint64_t matched;
  CHECK(pkv_session_admit(copy.session, text.size(), text.data(), 0, &matched));
  return matched == block;
}

bool separate(Copy& copy) {
  const std::vector<int32_t> text = ended(copy);
  return probe(copy, copy.salt, text) > 0 && probe(copy, "", text) == 0;
}

bool outlasts_others(Copy& copy) {
  const std::vector<int32_t> text = ended(copy);
  serve_others(copy);
  return probe(copy, copy.salt, text) > 0;
}

// The C interface does not return hints: a hint only changes which blocks are likely to be evicted
// first.
uint32_t hint_of(Copy& copy) {
  const pkv::api::Lease lease(reinterpret_cast<uint64_t>(copy.session.get()),
                              pkv::api::Kind::session, pkv::api::Access::get);
  return lease.object<pkv::Session>().content().hold().hints().hint;
}

bool holds_the_rows(Copy& copy) {
  const Cache cache = create(plan());
  const Session same = open(cache);
  append(cache, same, plan(), length, 1);
  expect_same(same, copy.session, plan());
  return !testing::Test::HasFatalFailure();
}

bool knows_the_tokens(Copy& copy) {
  const std::vector<int32_t> tokens = tokens_of(copy.session, info_of(copy.session).total);
  return tokens.size() == length && tokens.front() == 1000 && tokens.back() == 1000 + length - 1;
}

void nothing(pkv_cache, pkv_session) {}

enum class After { kept, reset, refused, none };
using enum After;

struct Row {
  const char* name;
  std::vector<std::string> fields;  // of the two structs, which the row is about
  std::function<void(pkv_session_config&)> config;
  std::function<void(pkv_cache, pkv_session)> give;  // when it has tokens
  std::function<bool(Copy&)> has;
  After after[std::size(ways)];  // in the order of the ways
  // The attribute of a session with default options; the other rows show that `has` can see a
  // difference.
  bool by_default = false;
};

void leave(pkv_session_config&) {}

std::vector<Row> rows() {
  return {
      {"priority",
       {"priority"},
       [](auto& c) { c.priority = 3; },
       nothing,
       [](Copy& copy) { return info_of(copy.session).priority == 3; },
       {kept, kept, kept, kept, kept, none}},
      {"a priority that was set",
       {},
       leave,
       [](pkv_cache, pkv_session session) { CHECK(pkv_session_set_priority(session, -5)); },
       [](Copy& copy) { return info_of(copy.session).priority == -5; },
       {kept, kept, kept, kept, kept, none}},
      {"publishing",
       {"prefix_use"},
       leave,
       nothing,
       publishes,
       {kept, kept, kept, kept, kept, kept},
       true},
      {"publishing nothing: MATCH",
       {},
       [](auto& c) { c.prefix_use = PKV_PREFIX_MATCH; },
       nothing,
       [](Copy& copy) { return !publishes(copy); },
       {kept, kept, kept, kept, kept, kept}},
      {"publishing nothing: OFF",
       {},
       [](auto& c) { c.prefix_use = PKV_PREFIX_OFF; },
       nothing,
       [](Copy& copy) { return !publishes(copy); },
       {kept, kept, kept, kept, kept, kept}},
      {"matching: MATCH",
       {},
       [](auto& c) { c.prefix_use = PKV_PREFIX_MATCH; },
       nothing,
       matches,
       {kept, kept, kept, kept, kept, none},
       true},
      {"matching nothing: OFF",
       {},
       [](auto& c) { c.prefix_use = PKV_PREFIX_OFF; },
       nothing,
       [](Copy& copy) { return !matches(copy); },
       {kept, kept, kept, kept, kept, none}},
      {"salt",
       {"salt", "salt_size"},
       [](auto& c) { c.salt = "tenant", c.salt_size = 6; },
       nothing,
       separate,
       {kept, kept, kept, kept, kept, kept}},
      {"retention",
       {},
       leave,
       [](pkv_cache, pkv_session session) {
         cache_test::hint(session, PKV_HINT_SET_RETENTION, {.retention = PKV_RETENTION_HIGH});
       },
       outlasts_others,
       {kept, kept, kept, kept, kept, kept}},
      {"return hint",
       {},
       leave,
       [](pkv_cache, pkv_session session) {
         cache_test::hint(session, PKV_HINT_EXPECT_RETURN, {.duration_ms = 60000});
       },
       [](Copy& copy) { return hint_of(copy) != 0; },
       {kept, kept, reset, reset, kept, none}},
      {"reserved blocks",
       {"blocks", "exclusive_blocks"},
       leave,
       [](pkv_cache, pkv_session session) { CHECK(pkv_session_reserve(session, 8 * block)); },
       [](Copy& copy) { return info_of(copy.session).blocks == 8; },
       {reset, reset, reset, reset, reset, none}},
      {"keys and values",
       {"length"},
       leave,
       nothing,
       holds_the_rows,
       {kept, kept, kept, kept, none, none},
       true},
      {"token ids",
       {},
       leave,
       nothing,
       knows_the_tokens,
       {kept, kept, kept, kept, kept, none},
       true},
      {"dropped blocks",
       {},
       leave,
       [](pkv_cache, pkv_session session) {
         const uint32_t second = 1;
         CHECK(pkv_session_drop_blocks(session, 0, 1, &second));
       },
       [](Copy& copy) { return block_table(copy.session)[1] == PKV_NO_BLOCK_ID; },
       {kept, kept, kept, kept, reset, none}},
      {"what follows dropped blocks is not published",
       {},
       leave,
       [](pkv_cache, pkv_session session) {
         const uint32_t second = 1;
         CHECK(pkv_session_drop_blocks(session, 0, 1, &second));
       },
       [](Copy& copy) { return probe(copy, copy.salt, ended(copy)) <= block; },
       {kept, kept, kept, kept, reset, kept}},
      {"tokens to be computed again",
       {"total"},
       leave,
       [](pkv_cache cache, pkv_session session) {
         CHECK(pkv_session_suspend(session));
         CHECK(pkv_prefix_clear(cache, nullptr, 0));
         uint64_t held, total;
         CHECK(pkv_session_resume(session, &held, &total));
       },
       [](Copy& copy) {
         const pkv_session_info info = info_of(copy.session);
         return info.length == 0 && info.total == length;
       },
       {reset, reset, kept, reset, kept, none}},
      {"suspension",
       {"suspended"},
       leave,
       [](pkv_cache, pkv_session session) { CHECK(pkv_session_suspend(session)); },
       [](Copy& copy) { return info_of(copy.session).suspended == 1 && knows_the_tokens(copy); },
       {refused, refused, kept, refused, reset, none}},
      {"label",
       {},
       leave,
       nothing,
       [](Copy& copy) { return copy.labelled == label; },
       {none, none, kept, kept, none, none},
       true},
  };
}

Copy open_with(const std::function<void(pkv_session_config&)>& change) {
  auto config = made<pkv_session_config>();
  change(config);
  Copy opened{create(plan()), {}, {static_cast<const char*>(config.salt), config.salt_size}, label};
  pkv_session session;
  CHECK(pkv_session_open(opened.cache, &config, &session));
  opened.session = Session(session);
  append(opened.cache, opened.session, plan(), length, 1);
  return opened;
}

void check_cell(const Row& row, size_t way) {
  Copy original = open_with(row.config);
  row.give(original.cache, original.session);
  if (row.after[way] == refused) {
    pkv_session forked;
    pkv_snapshot taken;
    REFUSED(PKV_SUSPENDED, pkv_session_fork(original.session, &forked));
    REFUSED(PKV_SUSPENDED, pkv_snapshot_take(original.session, &taken));
    return;
  }
  Copy copy = copied(ways[way], std::move(original));
  EXPECT_EQ(row.after[way] == kept, row.has(copy));
  CHECK(pkv_cache_validate(copy.cache));
}

TEST(Copies, EachAttributeIsKeptOrReset) {
  for (const Row& row : rows())
    for (size_t way = 0; way < std::size(ways); way++) {
      if (row.after[way] == none) continue;
      SCOPED_TRACE(std::string(row.name) + ", " + way_names[way]);
      check_cell(row, way);
    }
}

// A session with default options lacks all attributes of the rows.
TEST(Copies, EachAttributeCanBeSeen) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    Copy itself = open_with(leave);
    EXPECT_EQ(row.by_default, row.has(itself));
  }
}

std::set<std::string> fields_of(const std::string& name) {
  const std::string api = text_of(API);
  const size_t begin = api.find("\n   \"name\": \"" + name + "\"");
  const std::string described = api.substr(begin, api.find("\n   \"name\"", begin + 1) - begin);
  std::set<std::string> fields;
  const std::regex field("\"name\": \"(\\w+)\",\\s*\"type\"");
  for (std::sregex_iterator at(described.begin(), described.end(), field), end; at != end; ++at)
    fields.insert((*at)[1]);
  return fields;
}

TEST(Copies, EachFieldHasARow) {
  std::set<std::string> named = {"struct_size", "reserved"};
  for (const Row& row : rows()) named.insert(row.fields.begin(), row.fields.end());
  std::set<std::string> fields = fields_of("pkv_session_config");
  ASSERT_GT(fields.size(), 5u) << "the description was not read";
  fields.merge(fields_of("pkv_session_info"));
  for (const std::string& field : fields)
    EXPECT_TRUE(named.contains(field)) << field << " has no row: do copies of a session keep it?";
  for (const std::string& name : named) EXPECT_TRUE(fields.contains(name)) << name;
}

}  // namespace
}  // namespace store::copies_test
