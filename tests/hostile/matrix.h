// The matrix (function x misuse) has a row for each function of the C interface. A row has the
// arguments of a valid call, each with its possible misuses.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "world.h"

namespace hostile {

// Arguments: pointers, handles and numbers alike.
using Values = std::vector<uint64_t>;
using Wanted = std::vector<pkv_status>;

inline const Wanted fine{PKV_OK}, invalid{PKV_INVALID_ARGUMENT}, range{PKV_OUT_OF_RANGE},
    overflow{PKV_OVERFLOW}, too_large{PKV_TOO_LARGE}, unsupported{PKV_UNSUPPORTED}, busy{PKV_BUSY},
    stale{PKV_STALE_HANDLE};

template <class T>
uint64_t bits(T value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uint64_t>(value);
  else
    return static_cast<uint64_t>(value);
}

template <class T>
T from_bits(uint64_t value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(value);
  else
    return static_cast<T>(value);
}

// Returns a value that the enum does not have, as a caller in C may pass one.
template <class Enum>
void set_enum(Enum& field, int32_t value) {
  static_assert(sizeof field == sizeof value);
  std::memcpy(&field, &value, sizeof value);
}

// The change that a misuse makes to the arguments of a call.
using Change = std::function<void(World&, Values&)>;

// Replaces argument `at` with `by`.
inline Change set(size_t at, uint64_t by) {
  return [=](World&, Values& values) { values[at] = by; };
}

inline Change set(size_t at, uint64_t by, size_t another, uint64_t also) {
  return [=](World&, Values& values) { values[at] = by, values[another] = also; };
}

// Changes the struct that argument `at` points to.
template <class Struct>
Change within(size_t at, std::function<void(World&, Struct&)> change) {
  return [at, change = std::move(change)](World& world, Values& values) {
    change(world, *reinterpret_cast<Struct*>(values[at]));
  };
}

template <class Struct>
Change within(size_t at, std::function<void(Struct&)> change) {
  return within<Struct>(at, [change = std::move(change)](World&, Struct& value) { change(value); });
}

enum class Handle { none, pool, cache, session, batch, snapshot, compute };

struct Misuse {
  std::string name;
  std::function<void(World&, uint64_t&)> apply;
  Wanted wanted;
  // A further check of the argument.
  std::function<void(uint64_t)> after = {};
};

struct Arg {
  std::function<uint64_t(World&)> value;
  std::vector<Misuse> misuses;
  Handle handle = Handle::none;
};

struct Case {
  std::string name;
  Change apply;
  Wanted wanted;
};

// The name and the change of a case: code that changes `it`, the struct of an argument, and may use
// the memory of `world`.
#define WITH(...) \
  #__VA_ARGS__, [=]([[maybe_unused]] World& world, [[maybe_unused]] auto& it) { __VA_ARGS__; }

// Makes cases that change the struct of argument `at`.
template <class Struct>
auto in_struct(size_t at) {
  return [at](std::string name, std::function<void(World&, Struct&)> change, Wanted wanted) {
    return Case{std::move(name), within<Struct>(at, std::move(change)), std::move(wanted)};
  };
}

// The properties of a library that tests of its boundary need.
struct Library {
  const char* (*last_error)();
  // Leaves a sentence that no later call will have.
  void (*fail)();
  // Refuses calls from inside the hooks of a cache.
  bool has_hooks;
};
extern const Library pagedkv_library;

struct Function {
  std::string name;
  std::function<pkv_status(const Values&)> call;
  std::vector<Arg> args;
  // Misuse of more than one argument.
  std::vector<Case> cases = {};
  // Closes what a valid call made outside of the world's caches.
  std::function<void(World&, const Values&)> undo = {};
  // NULL is OK, and a forked child may call it.
  bool closes = false;
  bool tells_status = true;
  bool works_in_hooks = false;
  const Library* library = &pagedkv_library;

  void add(std::string case_name, Change apply, Wanted wanted) {
    cases.push_back({std::move(case_name), std::move(apply), std::move(wanted)});
  }
  bool takes(Handle handle) const;
  bool takes_handle() const;
};

template <class... A, size_t... I>
pkv_status apply(pkv_status (*function)(A...), const Values& values, std::index_sequence<I...>) {
  return function(from_bits<A>(values[I])...);
}

template <class... A>
std::function<pkv_status(const Values&)> caller(pkv_status (*function)(A...)) {
  return [function](const Values& values) {
    return apply(function, values, std::index_sequence_for<A...>{});
  };
}

#define ROW(function) #function, hostile::caller(function)

// ---- Arguments ------------------------------------------------------------------------------

Arg handle(Handle kind, bool closes = false);
Arg number(uint64_t value);
// Makes an index below a limit.
Arg index(uint64_t valid, uint64_t limit);
Arg pointer(std::function<uint64_t(World&)> value);
// Makes an argument that may be NULL.
Arg optional(Arg arg);
Arg rows(size_t count, size_t heads, size_t sequences = 0);

template <class T>
Arg out(size_t count = 1) {
  return pointer([count](World& world) { return bits(world.room(count * sizeof(T))); });
}

template <class T>
Arg in(std::vector<T> values) {
  return pointer([values](World& world) { return bits(world.keep_list(values)); });
}

// Makes a struct that the caller fills.
Arg struct_in(std::function<std::vector<unsigned char>(World&)> make, uint32_t size);

template <class Struct>
Arg config_in(std::function<Struct(World&)> make) {
  return struct_in(
      [make](World& world) {
        const Struct value = make(world);
        const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
        return std::vector<unsigned char>(bytes, bytes + sizeof value);
      },
      sizeof(Struct));
}

// Makes a text of 20 tokens with a salt of one byte.
Arg text_in(char salt);
// Makes the cases of such a text, which is argument `at`.
std::vector<Case> text_cases(size_t at);

// Makes a struct that the library fills.
Arg struct_out(uint32_t size);

// ---- The rows -------------------------------------------------------------------------------

std::vector<Function> plain_rows();
std::vector<Function> pool_rows();
std::vector<Function> cache_rows();
std::vector<Function> session_rows();
std::vector<Function> batch_rows();
std::vector<Function> attention_rows();
std::vector<Function> compute_rows();
std::vector<Function> kv_rows();
std::vector<Function> snapshot_rows();
std::vector<Function> prefix_rows();
std::vector<Function> hint_rows();
std::vector<Function> file_rows();
std::vector<Function> store_rows();
std::vector<Function> redis_rows();
// Makes a case for each parameter and output of attention that can be wrong. The parameters are
// argument `at`, and the outputs the third after it.
std::vector<Case> attention_cases(size_t at);
Arg attention_outputs();
// Structs for parameters of attention: right for the calls of the matrix, which have up to 4 rows
// in 2 sequences of up to 20 tokens.
pkv_mask& see_bits(World& world, pkv_attention_params& params);
pkv_mask& see_tree(World& world, pkv_attention_params& params);
pkv_mask& see_bytes(World& world, pkv_attention_params& params);
pkv_mask& add_halves(World& world, pkv_attention_params& params);
pkv_mask& add_floats(World& world, pkv_attention_params& params);
pkv_chosen_blocks& choose_top(World& world, pkv_attention_params& params);
pkv_chosen_blocks& choose_lists(World& world, pkv_attention_params& params);
pkv_block_outputs& want_blocks(World& world, pkv_attention_outputs& outputs);
pkv_block_outputs& weigh(World& world, pkv_attention_outputs& outputs);
// Matrices that change nothing, for keys and values of 16 dims.
pkv_rotation_matrices& unit_matrices(World& world);
// Each function that a library exports.
const std::vector<Function>& all_rows();
// The same, for a test that has the function as a parameter, and the name of such a test.
std::vector<const Function*> row_pointers();
std::string row_name(const testing::TestParamInfo<const Function*>& row);

Values valid_values(const Function& function, World& world);

}  // namespace hostile
