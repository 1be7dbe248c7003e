// Tries every number that the interface takes, by its description (numbers.py), at 0, 1, its valid
// value and one beside it, 2^31, 2^32, 2^58, 2^61, 2^63 and 2^64 - 1. No call may crash, or return
// PKV_OK with a part unread. A value that an enum or a reserved field does not have is refused.
//
// Each call is made in two kinds of memory. In the first, the memory of its arguments ends at an
// inaccessible page, so a read or write beyond the given size is a signal. There a number is valid,
// or smaller, or beyond any memory (2^58), which must be refused before memory is accessed. In the
// second, 64 GiB of zeros follow that memory, and a number up to 2^32 may be true. Functions that
// take a cache, a session or a batch are called on caches of every kind, too: no loop may run as
// often as a number says, since a call that does not return ends the test.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "../support/rounds.h"
#include "matrix.h"

namespace hostile::numbers_test {
namespace {

struct Number {
  const char* path;
  size_t parameter;
  bool by_value;
  // Offsets of the pointers that lead to it.
  std::vector<size_t> through;
  size_t offset, size;
  bool is_signed;
  // Values that an enum does not have, or that a reserved field must not have.
  std::vector<int64_t> wrong;
};

struct Described {
  const char* name;
  std::vector<pkv_status> statuses;
  std::vector<Number> numbers;
};

const std::vector<Described> described = {
#include "numbers.inc"
};

// ---- Valid numbers -----------------------------------------------------------------------

// A number of a function. "" stands for all functions.
struct Exception {
  const char* function;
  const char* path;
  const char* reason;
  uint64_t max = 0;
};

// Numbers for which any value is valid, so PKV_OK says nothing about memory.
const Exception anything[] = {
    {"", "config.prefix[0].max_pinned_tokens", "a limit"},
    {"", "config.prefix[0].max_tokens_per_salt", "a limit"},
    {"", "config.prefix[0].active_parameters", "a number of multiplications"},
    {"", "config.store[0].max_queued_tokens", "a limit"},
    {"", "config.max_tokens", "a limit"},
    {"pkv_prefix_set_quota", "tokens", "a limit"},
    {"pkv_session_get_trim_point", "limit", "a limit"},
    {"", "hint.duration_ms", "a limit"},
    {"pkv_hint_session", "hint.first", "a position"},
    {"", "hint.end", "a position, or the end"},
    {"", "outputs.block_outputs[0].mass_queries", "a limit"},
    {"", "kv.k_bytes", "a limit"},
    {"", "kv.v_bytes", "a limit"},
    {"", "k.bytes", "a limit"},
    {"", "v.bytes", "a limit"},
    {"", "q.bytes", "a limit"},
    {"", "out.bytes", "a limit"},
    {"", "outs.bytes", "a limit"},
    {"", "merged.bytes", "a limit"},
    {"pkv_store_open_directory", "config.max_bytes", "a limit"},
    {"pkv_kv_attend", "kv.k_row_stride", "a block of the view is one tile"},
    {"pkv_kv_attend", "kv.v_row_stride", "a block of the view is one tile"},
    {"", "params.mask[0].first_positions[0]", "a position"},
    {"", "params.mask[0].positions[0]", "a position"},
    {"pkv_batch_attend", "params.mask[0].batch_stride", "there is one session"},
    {"pkv_batch_write", "k.batch_stride", "as above"},
    {"pkv_batch_write", "v.batch_stride", "as above"},
    {"pkv_batch_attend", "q.batch_stride", "as above"},
    {"pkv_batch_attend", "out.batch_stride", "as above"},
    {"", "sequences.query_positions[0]", "a position"},
    {"pkv_kv_write_slots", "slots", "2^64 - 1 is PKV_NO_SLOT"},
    {"pkv_kv_read_slots", "slots", "as above"},
    {"pkv_kv_view_init", "kv.k_block_stride", "written by the call"},
    {"pkv_kv_view_init", "kv.k_row_stride", "as above"},
    {"pkv_kv_view_init", "kv.k_head_stride", "as above"},
    {"pkv_kv_view_init", "kv.v_block_stride", "as above"},
    {"pkv_kv_view_init", "kv.v_row_stride", "as above"},
    {"pkv_kv_view_init", "kv.v_head_stride", "as above"},
    {"pkv_prefix_get_stats", "salt_size", "2^64 - 1 is PKV_ALL_SALTS"},
    {"pkv_prefix_clear", "salt_size", "2^64 - 1 is PKV_ALL_SALTS"},
    {"pkv_prefix_read_events", "next", "a number of an event, of which none is there"},
    {"pkv_file_save", "items.label", "the caller's own"},
    {"pkv_file_save", "to.size", "no more of the buffer is written than the file takes"},
};

// Numbers that are true up to `max` only. If that is 0, they are not true beyond the valid value.
const Exception bounded[] = {
    {"", "n", "tokens and items are worked through one by one", uint64_t{1} << 24},
    {"", "prompt.n", "as above", uint64_t{1} << 24},
    {"pkv_attention_merge", "rows", "rows are worked through one by one", uint64_t{1} << 16},
    {"", "k.row_stride", "30 rows lie in 64 GiB", uint64_t{1} << 24},
    {"", "v.row_stride", "as above", uint64_t{1} << 24},
    {"", "q.row_stride", "as above", uint64_t{1} << 24},
    {"", "out.row_stride", "as above", uint64_t{1} << 24},
    {"", "outs.row_stride", "as above", uint64_t{1} << 24},
    {"", "merged.row_stride", "as above", uint64_t{1} << 24},
    {"", "k.head_stride", "as above", uint64_t{1} << 24},
    {"", "v.head_stride", "as above", uint64_t{1} << 24},
    {"", "q.head_stride", "as above", uint64_t{1} << 24},
    {"", "out.head_stride", "as above", uint64_t{1} << 24},
    {"", "outs.head_stride", "as above", uint64_t{1} << 24},
    {"", "merged.head_stride", "as above", uint64_t{1} << 24},
    {"", "sequences.count", "sequences are worked through one by one", uint64_t{1} << 24},
    {"", "sequences.query_lengths[0]", "with positions of their own: as above", uint64_t{1} << 12},
    {"", "sequences.first_rows[0]", "64 GiB", uint64_t{1} << 24},
    {"pkv_batch_attend", "params.mask[0].row_stride", "64 GiB", uint64_t{1} << 24},
    {"", "outputs.block_outputs[0].mass_blocks", "64 GiB", uint64_t{1} << 24},
    {"", "params.chosen_blocks[0].top_blocks", "what is chosen is written", uint64_t{1} << 16},
    {"pkv_kv_write", "kv.k_row_stride", "blocks lie in 64 GiB", uint64_t{1} << 24},
    {"pkv_kv_write", "kv.v_row_stride", "as above", uint64_t{1} << 24},
    {"pkv_kv_read", "kv.k_row_stride", "as above", uint64_t{1} << 24},
    {"pkv_kv_read", "kv.v_row_stride", "as above", uint64_t{1} << 24},
    {"pkv_kv_read", "kv.kv_heads", "heads are worked through", uint64_t{1} << 16},
    {"pkv_kv_read_slots", "kv.kv_heads", "as above", uint64_t{1} << 16},
    {"pkv_kv_write_slots", "rows", "as above", uint64_t{1} << 16},
    {"pkv_kv_read_slots", "rows", "as above", uint64_t{1} << 16},
    {"", "q.batch_stride", "sequences lie in 64 GiB", uint64_t{1} << 24},
    {"", "out.batch_stride", "as above", uint64_t{1} << 24},
    {"", "k.batch_stride", "as above", uint64_t{1} << 24},
    {"", "v.batch_stride", "as above", uint64_t{1} << 24},
};

// Fields that a call does not read.
const Exception unread[] = {
    {"pkv_cache_get_kv_view", "out.rotation_matrices[0].reserved", "the call replaces the pointer"},
    {"pkv_store_close", "store.reserved", "only `close` is called"},
};

const Exception* find_in(std::span<const Exception> list, const Described& function,
                         const Number& number) {
  for (const Exception& each : list)
    if ((each.function[0] == 0 || std::strcmp(each.function, function.name) == 0) &&
        std::strcmp(each.path, number.path) == 0)
      return &each;
  return nullptr;
}

// ---- Calls --------------------------------------------------------------------------------------

// What the matrix leaves out of a valid call, so that every number is reached. A number is tried in
// the first variant that reaches it. The last variant is the matrix's own call.
using Variant = std::function<void(World&, Values&)>;

void add_params(World& world, pkv_attention_params& params) {
  params.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
  params.sink_logits = world.keep_list(std::vector<float>(query_heads, 1));
}

// Puts structs of the matrix into the parameters.
template <auto... make>
void add(World& world, pkv_attention_params& params) {
  (make(world, params), ...);
}

// Asks for the blocks that are chosen, or for masses, of the outputs.
void add_chosen(World& world, pkv_attention_outputs& outputs) {
  want_blocks(world, outputs).chosen = world.keep_list(std::vector<uint32_t>(4 * kv_heads));
}

// Makes both changes.
Variant both(Variant one, Variant other) {
  return [one = std::move(one), other = std::move(other)](World& world, Values& values) {
    one(world, values), other(world, values);
  };
}

void add_head_windows(World& world, pkv_attention_params& params) {
  params.kv_head_windows = world.keep_list<uint32_t>({3, 0});
  params.kv_head_sink_tokens = world.keep_list<uint32_t>({1, 2});
}

void add_masses(World& world, pkv_attention_outputs& outputs) { weigh(world, outputs); }

void add_matrices(World& world, pkv_kv_view& kv) { kv.rotation_matrices = &unit_matrices(world); }

void add_positions(World& world, pkv_kv_sequences& sequences) {
  sequences.first_rows = world.keep_list<uint32_t>({0, 3});
  sequences.query_positions = world.keep_list<int64_t>({17, 18, 19, 4});
}

void add_key(World& world, pkv_file_config& config) {
  config.fingerprint = world.keep_list(std::vector<char>{'m', 'o', 'd', 'e'});
  config.fingerprint_size = 4;
  config.secret_key = world.keep_list(std::vector<char>(16, 'k'));
  config.secret_key_size = 16;
}

void add_store(World& world, pkv_cache_config& config) {
  auto prefix = made<pkv_prefix_config>();
  config.prefix = world.keep(prefix);
  pkv_store table = world.items.table();
  auto store =
      made<pkv_store_config>({.store = world.keep(table),
                              .fingerprint = world.keep_list(std::vector<char>{'m', 'o', 'd', 'e'}),
                              .fingerprint_size = 4,
                              .secret_key = world.keep_list(std::vector<char>(16, 'k')),
                              .secret_key_size = 16});
  config.store = world.keep(store);
}

template <class Config>
void add_runner(World& world, Config& config) {
  pkv_runner runner{};
  runner.run = [](void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
  };
  runner.threads = 1;
  config.runner = world.keep(runner);
  config.threads = 0;
}

void fill_group(World& world, pkv_cache_config& config) {
  pkv_layer_group group = config.groups[0];
  group.layer_indices = world.keep_list<uint32_t>({0, 1});
  group.rotation_matrices = &unit_matrices(world);
  config.groups = world.keep(group);
  config.group_count = 1;
}

void use_block_io(World& world, pkv_cache_config& config) {
  pkv_layer_group group = made<pkv_layer_group>({.layers = config.groups[0].layers,
                                                 .kind = PKV_LAYERS_OPAQUE_KV,
                                                 .layer_bytes = 50,
                                                 .blocks = config.groups[0].blocks});
  pkv_block_io io = forgetful_device;
  config.groups = world.keep(group);
  config.group_count = 1;
  config.block_io = world.keep(io);
}

template <class Struct>
Variant changed(size_t at, void (*change)(World&, Struct&)) {
  return [at, change](World& world, Values& values) {
    change(world, *reinterpret_cast<Struct*>(values[at]));
  };
}

std::vector<Variant> variants_of(const std::string& name) {
  static const std::map<std::string, std::vector<Variant>> more = {
      {"pkv_batch_attend",
       {changed(2, add_params), changed(2, add<see_bytes>),
        both(changed(2, add<choose_top>), changed(5, add_chosen)),
        changed(2, add<choose_lists, see_bits>),
        both(changed(2, add<see_tree>), changed(5, add_masses)), changed(2, add_head_windows)}},
      {"pkv_kv_attend",
       {changed(3, add_params), changed(3, add<see_bytes>),
        both(changed(3, add<choose_top>), changed(6, add_chosen)),
        changed(3, add<choose_lists, see_bits>),
        both(changed(3, add<see_tree>), changed(6, add_masses)), changed(3, add_head_windows),
        changed(2, add_positions), changed(1, add_matrices)}},
      {"pkv_kv_write", {changed(2, add_positions), changed(1, add_matrices)}},
      {"pkv_kv_read", {changed(2, add_positions), changed(1, add_matrices)}},
      {"pkv_kv_write_slots", {changed(1, add_matrices)}},
      {"pkv_kv_read_slots", {changed(1, add_matrices)}},
      {"pkv_kv_view_init", {changed(0, add_matrices)}},
      {"pkv_file_save", {changed(3, add_key)}},
      {"pkv_session_open",
       {changed<pkv_session_config>(1,
                                    [](World& world, pkv_session_config& config) {
                                      config.salt = world.keep_list(std::vector<char>{'s'});
                                      config.salt_size = 1;
                                    })}},
      {"pkv_cache_create",
       {changed(0, add_store), changed(0, add_runner<pkv_cache_config>), changed(0, fill_group),
        changed(0, use_block_io)}},
      {"pkv_cache_compute_sizes",
       {changed(0, add_store), changed(0, add_runner<pkv_cache_config>), changed(0, fill_group),
        changed(0, use_block_io)}},
      {"pkv_compute_create", {changed(0, add_runner<pkv_compute_config>)}},
      // The call replaces them.
      {"pkv_cache_get_kv_view", {changed(2, add_matrices)}},
  };
  std::vector<Variant> all;
  if (const auto found = more.find(name); found != more.end()) all = found->second;
  all.push_back([](World&, Values&) {});
  return all;
}

// Numbers that are ignored while this pointer of the same struct is NULL.
const struct {
  const char* path;
  size_t pointer;
} of_pointers[] = {
    {"params.chosen_blocks[0].list_blocks", offsetof(pkv_chosen_blocks, lists)},
    {"outputs.block_outputs[0].mass_blocks", offsetof(pkv_block_outputs, masses)},
    {"outputs.block_outputs[0].mass_queries", offsetof(pkv_block_outputs, masses)},
};

// Memory that the library is to fill, made by World::room().
constexpr uint64_t unwritten = 0xA5A5A5A5A5A5A5A5;

// Returns the place of a number in a call, or NULL if a pointer on the way, or one without which
// the number is ignored, is NULL.
void* place(const Number& number, Values& values) {
  if (number.by_value) return &values[number.parameter];
  uint64_t at = values[number.parameter];
  for (const size_t offset : number.through)
    if (at != 0) std::memcpy(&at, reinterpret_cast<const void*>(at + offset), sizeof at);
  if (at == 0 || at == unwritten) return nullptr;
  for (const auto& each : of_pointers) {
    uint64_t pointer = 0;
    if (std::strcmp(each.path, number.path) != 0) continue;
    std::memcpy(&pointer, reinterpret_cast<const void*>(at + each.pointer), sizeof pointer);
    if (pointer == 0) return nullptr;
  }
  return reinterpret_cast<void*>(at + number.offset);
}

uint64_t load(const Number& number, const void* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, number.size);
  return value;
}

constexpr uint64_t beyond_memory = uint64_t{1} << 58;

std::set<uint64_t> values_for(const Number& number, uint64_t valid, bool exact,
                              const Exception* bound) {
  const uint64_t max = number.size == 4 ? UINT32_MAX : UINT64_MAX;
  std::set<uint64_t> all = {0, valid};
  if (valid > 0) all.insert({1, valid - 1});
  if (!exact) {
    const uint64_t limit = bound != nullptr ? std::max(bound->max, valid) : UINT64_MAX;
    for (const uint64_t value :
         {uint64_t{1}, valid + 1, uint64_t{1} << 16, uint64_t{1} << 24, uint64_t{INT32_MAX},
          uint64_t{1} << 31, uint64_t{UINT32_MAX}, uint64_t{1} << 32})
      if (value <= max && value <= limit) all.insert(value);
  }
  if (exact)
    for (const int64_t wrong : number.wrong) all.insert(static_cast<uint64_t>(wrong) & max);
  if (number.size == 8)
    all.insert({beyond_memory, uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX});
  return all;
}

// ---- Checks -------------------------------------------------------------------------------------

// The number that is being tried, in memory that the parent can read after the child has ended.
struct Progress {
  size_t number;  // Counts the function's numbers.
  bool reached[1024];
  char text[256];
};

#ifdef _WIN32
Progress& progress() {
  static Progress of_this_process;  // There are no children.
  return of_this_process;
}
// Windows promises no more memory than it has.
constexpr bool have_vast_rooms = false;
#else
constexpr bool have_vast_rooms = true;
Progress& progress() {
  static auto* const shared = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}
#endif

bool told(const Described& function, pkv_status status) {
  // Any call may return these.
  for (const pkv_status each :
       {PKV_OK, PKV_INVALID_ARGUMENT, PKV_OVERFLOW, PKV_OUT_OF_MEMORY, PKV_STALE_HANDLE})
    if (each == status) return true;
  return std::find(function.statuses.begin(), function.statuses.end(), status) !=
         function.statuses.end();
}

class Calls {
 public:
  Calls(const Described& of, const Function& row, const Variant& variant, pkv_storage storage)
      : described_(of), row_(row), variant_(variant), storage_(storage) {
    renew();
  }
  ~Calls() { world_.release(); }  // The child ends here.

  void* find(const Number& number) { return place(number, values_); }

  void attempt(const Number& number, uint64_t value) {
    void* const at = find(number);
    const uint64_t before = load(number, at);
    std::memcpy(at, &value, number.size);
    world_->remember();
    const pkv_status got = row_.call(values_);
    if (row_.tells_status && is_wrong(number, value)) check_refused(number, got);
    if (row_.tells_status) check(number, value, got);
    if (got != PKV_OK) {
      std::memcpy(at, &before, number.size);
      return;
    }
    if (row_.undo) row_.undo(*world_, values_);
    end();
    renew();
  }
  void end() {
    world_->validate();
    world_->close();
    world_.reset();
  }

 private:
  void renew() {
    world_ = std::make_unique<World>(storage_);
    values_ = valid_values(row_, *world_);
    variant_(*world_, values_);
  }

  // Caches of other kinds may refuse the call before they look at the value.
  bool is_wrong(const Number& number, uint64_t value) const {
    if (storage_ != PKV_STORAGE_INTERNAL || World::layers_keep != Layers::plain ||
        find_in(unread, described_, number) != nullptr)
      return false;
    return std::find(number.wrong.begin(), number.wrong.end(),
                     static_cast<int32_t>(static_cast<uint32_t>(value))) != number.wrong.end();
  }
  // An unknown value of an enum is refused by a sentence with the names of those that are known.
  void check_refused(const Number& number, pkv_status got) const {
    expect(PKV_INVALID_ARGUMENT, got, "a value that this version does not know");
    const std::string sentence = pkv_last_error();
    HOSTILE_CHECK(number.wrong.size() == 1 || sentence.find(" is none of ") != sentence.npos,
                  "the sentence has no names: \"%s\"", sentence.c_str());
  }

  void check(const Number& number, uint64_t value, pkv_status got) {
    const bool any = find_in(anything, described_, number) != nullptr;
    HOSTILE_CHECK(told(described_, got), "%s, which it does not document: %s", pkv_status_name(got),
                  pkv_last_error());
    HOSTILE_CHECK(got != PKV_OK || number.size < 8 || value < beyond_memory || any,
                  "PKV_OK for what no memory holds; if any value is good, say so in `anything` of "
                  "numbers_test.cpp");
    if (got == PKV_OK) return;
    HOSTILE_CHECK(sentence_tells(pkv_last_error()), "the sentence is \"%s\"", pkv_last_error());
    // These two write how much is needed.
    if (got != PKV_BUFFER_TOO_SMALL && got != PKV_OUT_OF_BLOCKS) world_->check_memory();
    world_->check_state();
    world_->validate();
  }

  const Described& described_;
  const Function& row_;
  const Variant& variant_;
  const pkv_storage storage_;
  std::unique_ptr<World> world_;
  Values values_;
};

const Function* row_of(const std::string& name) {
  for (const Function& row : all_rows())
    if (row.name == name) return &row;
  return nullptr;
}

// Tries all values of a number, in one variant of the call.
void try_values(const Described& function, const Number& number, Calls& calls, bool exact) {
  const uint64_t valid = load(number, calls.find(number));
  const uint64_t filler = number.size == 4 ? unwritten & UINT32_MAX : unwritten;
  // The library is to write this number.
  if (valid == filler && !number.by_value) return;
  for (const uint64_t value :
       values_for(number, valid, exact, find_in(bounded, function, number))) {
    std::snprintf(progress().text, sizeof progress().text, "%s = %llu (valid: %llu)%s", number.path,
                  static_cast<unsigned long long>(value), static_cast<unsigned long long>(valid),
                  exact ? ", exact room" : "");
    calls.attempt(number, value);
  }
}

// Tries all numbers of a function from progress().number on that no variant before this one
// reached.
void try_numbers(const Described& function, const Function& row, const Variant& variant, bool exact,
                 pkv_storage storage = PKV_STORAGE_INTERNAL) {
  memory::largest = size_t{64} << 20;
  World::rooms_lie = exact ? World::Rooms::exact : World::Rooms::vast;
  warm_up();
  Calls calls(function, row, variant, storage);
  for (size_t& i = progress().number; i < function.numbers.size(); i++) {
    const Number& number = function.numbers[i];
    if (progress().reached[i] || calls.find(number) == nullptr) continue;
    try_values(function, number, calls, exact);
    progress().reached[i] = true;
  }
  calls.end();
}

class Numbers : public testing::TestWithParam<const Described*> {
 protected:
  // Runs in children, each of which ends with the first number that fails.
  static void try_all(const Described& function, const Function& row, bool exact,
                      pkv_storage storage = PKV_STORAGE_INTERNAL) {
    ASSERT_LE(function.numbers.size(), std::size(progress().reached));
    std::memset(&progress(), 0, sizeof(Progress));
    for (const Variant& variant : variants_of(function.name))
      for (progress().number = 0; progress().number < function.numbers.size();
           progress().number++) {
        const std::string failed =
            in_child([&] { try_numbers(function, row, variant, exact, storage); }, 120);
        if (failed.empty()) break;
        ADD_FAILURE() << function.name << ", " << progress().text << ": " << failed;
        progress().reached[progress().number] = true;
      }
  }
};

TEST_P(Numbers, AreRefusedOrRight) {
  const Described& function = *GetParam();
  const Function* const row = row_of(function.name);
  ASSERT_NE(row, nullptr) << function.name
                          << " has no valid call: add a row for it to the rows_*.cpp of its header";
  try_all(function, *row, true);
  if (have_vast_rooms) try_all(function, *row, false);
  for (size_t i = 0; i < function.numbers.size(); i++)
    EXPECT_TRUE(progress().reached[i])
        << function.name << ": no valid call leads to " << function.numbers[i].path
        << "; add one to variants_of() in numbers_test.cpp";
}

// On caches of other kinds. A valid call may be refused there, for what its group does not have.
TEST_P(Numbers, ReturnOnCachesOfEveryKind) {
  const Function* const row = row_of(GetParam()->name);
  ASSERT_NE(row, nullptr);
  if (!row->takes(Handle::cache) && !row->takes(Handle::session) && !row->takes(Handle::batch))
    return;
  for (const Layers kind :
       {Layers::window, Layers::sinks, Layers::states, Layers::mixed, Layers::group_memory}) {
    // These two are parts of Layers::mixed.
    if (pkv::test::number_in("PKV_ROUNDS", 1) == 1 &&
        (kind == Layers::window || kind == Layers::states))
      continue;
    SCOPED_TRACE(name_of(kind));
    World::layers_keep = kind;
    try_all(*GetParam(), *row, true);
    World::layers_keep = Layers::plain;
  }
  SCOPED_TRACE(name_of(Place(PKV_STORAGE_EXTERNAL)));
  try_all(*GetParam(), *row, true, PKV_STORAGE_EXTERNAL);
}

std::vector<const Described*> pointers() {
  std::vector<const Described*> result;
  for (const Described& function : described) result.push_back(&function);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Functions, Numbers, testing::ValuesIn(pointers()),
                         [](const testing::TestParamInfo<const Described*>& one) {
                           return one.param->name;
                         });

}  // namespace
}  // namespace hostile::numbers_test
