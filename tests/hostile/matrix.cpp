#include "matrix.h"

#include <algorithm>
#include <cstring>

namespace hostile {

bool Function::takes(Handle kind) const {
  return std::any_of(args.begin(), args.end(),
                     [kind](const Arg& arg) { return arg.handle == kind; });
}

bool Function::takes_handle() const {
  return std::any_of(args.begin(), args.end(),
                     [](const Arg& arg) { return arg.handle != Handle::none; });
}

namespace {

// One handle of each kind, in the order of `Handle`.
uint64_t open_handle(World& world, Handle kind) {
  const uint64_t handles[] = {0,
                              bits(world.pool),
                              bits(world.cache),
                              bits(world.session),
                              bits(world.batch),
                              bits(world.snapshot),
                              bits(world.compute)};
  return handles[static_cast<size_t>(kind)];
}

uint64_t closed_handle(World& world, Handle kind) {
  const uint64_t handles[] = {0,
                              bits(world.closed_pool),
                              bits(world.closed_cache),
                              bits(world.closed_session),
                              bits(world.closed_batch),
                              bits(world.closed_snapshot),
                              bits(world.closed_compute)};
  return handles[static_cast<size_t>(kind)];
}

Misuse null_is(Wanted wanted) {
  return {"NULL", [](World&, uint64_t& value) { value = 0; }, std::move(wanted)};
}

Misuse replaced(const std::string& name, uint64_t by, Wanted wanted) {
  return {name, [by](World&, uint64_t& value) { value = by; }, std::move(wanted)};
}

void set_size(uint64_t at, uint32_t size) {
  std::memcpy(reinterpret_cast<void*>(at), &size, sizeof size);
}

// This is larger than any struct and any size of wrong_sizes() that could be written.
constexpr size_t struct_room = 4200;

}  // namespace

Arg handle(Handle kind, bool closes) {
  Arg arg{[kind](World& world) { return open_handle(world, kind); }, {}, kind};
  arg.misuses = {
      null_is({closes ? PKV_OK : PKV_INVALID_ARGUMENT}),
      {"closed", [kind](World& world, uint64_t& value) { value = closed_handle(world, kind); },
       stale},
      {"next generation", [](World&, uint64_t& value) { value += uint64_t{1} << 32; }, stale},
      {"other index", [](World&, uint64_t& value) { value ^= 0x300; }, stale},
      {"index without slot", [](World&, uint64_t& value) { value |= 0xFFFFFF; }, stale},
      {"spare bits set", [](World&, uint64_t& value) { value |= 0x5000000; }, stale},
      {"address of a variable", [](World& world, uint64_t& value) { value = bits(&world); },
       stale}};
  for (const uint64_t pattern :
       {uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{0xDEADBEEFDEADBEEF}})
    arg.misuses.push_back(
        replaced(format("bits %#llx", static_cast<unsigned long long>(pattern)), pattern, stale));
  for (const Handle another : {Handle::pool, Handle::cache, Handle::session, Handle::batch,
                               Handle::snapshot, Handle::compute})
    if (another != kind)
      arg.misuses.push_back(
          {format("handle of kind %d", static_cast<int>(another)),
           [another](World& world, uint64_t& value) { value = open_handle(world, another); },
           stale});
  return arg;
}

Arg number(uint64_t value) {
  return {[value](World&) { return value; }, {}};
}

Arg index(uint64_t valid, uint64_t limit) {
  Arg arg = number(valid);
  for (const uint64_t beyond : {limit, limit + 1, uint64_t{INT32_MAX}, uint64_t{UINT32_MAX}})
    arg.misuses.push_back(
        replaced(format("index %llu", static_cast<unsigned long long>(beyond)), beyond, range));
  return arg;
}

Arg pointer(std::function<uint64_t(World&)> value) {
  return {std::move(value), {null_is(invalid)}};
}

Arg optional(Arg arg) {
  for (Misuse& misuse : arg.misuses)
    if (misuse.name == "NULL") misuse.wanted = fine;
  return arg;
}

Arg rows(size_t count, size_t heads, size_t sequences) {
  // There is one float more than is needed, for the rows that begin one byte later.
  Arg arg =
      pointer([=](World& world) { return bits(world.keep(world.rows(count * heads * dim + 1))); });
  const auto add = [&](const char* name, std::function<void(World&, pkv_tensor&)> change,
                       const Wanted& wanted) {
    arg.misuses.push_back({name,
                           [change = std::move(change)](World& world, uint64_t& value) {
                             change(world, *reinterpret_cast<pkv_tensor*>(value));
                           },
                           wanted});
  };
  add(WITH(it.data = nullptr), invalid);
  add(WITH(set_enum(it.dtype, 0)), invalid);
  add(WITH(it.dtype = PKV_INT8), invalid);
  add(WITH(it.dtype = PKV_FP8_E4M3), invalid);
  add(WITH(it.row_stride = -1), invalid);
  add(WITH(it.head_stride = -1), invalid);
  add(WITH(it.batch_stride = -1), invalid);
  add(WITH(it.row_stride = INT64_MIN), invalid);
  add(WITH(it.head_stride = INT64_MIN), invalid);
  add(WITH(it.batch_stride = INT64_MIN), invalid);
  add(WITH(it.bytes = count * heads * dim * sizeof(float)), fine);
  add(WITH(it.bytes = 1), invalid);
  add(WITH(it.bytes = UINT64_MAX), fine);
  // The stride from row to row does not matter if there is one row.
  add(WITH(it.row_stride = INT64_MAX), count > 1 ? overflow : fine);
  // Nor does the stride from sequence to sequence if there is one.
  add(WITH(it.batch_stride = 1), sequences == 1 ? fine : invalid);
  const auto wide = static_cast<int64_t>(heads * dim);
  add(WITH(it.row_stride = dim, it.head_stride = INT64_MAX), overflow);
  add(WITH(it.row_stride = dim, it.head_stride = INT64_MAX / 3), overflow);
  add(WITH(it.row_stride = it.head_stride = 1), invalid);
  // Dense rows of heads that are not dense.
  add(WITH(it.head_stride = 1), invalid);
  add(WITH(it.head_stride = 2 * dim), invalid);
  add(WITH(it.head_stride = INT64_MAX), invalid);
  add(WITH(it.row_stride = wide, it.head_stride = dim), fine);
  add(WITH(it.data = static_cast<char*>(it.data) + 1), fine);  // One byte off.
  return arg;
}

namespace {

// Sizes that no version of a struct of now `size` bytes has had.
std::vector<uint32_t> wrong_sizes(uint32_t size) {
  std::vector<uint32_t> wrong;
  for (uint32_t i = 0; i <= size + 64; i++)
    if (i != size) wrong.push_back(i);
  for (const uint32_t far : {4096u, 4100u, 4104u, 0x80000000u, UINT32_MAX}) wrong.push_back(far);
  return wrong;
}

void add_wrong_sizes(Arg& arg, uint32_t size) {
  for (const uint32_t wrong : wrong_sizes(size))
    arg.misuses.push_back({format("struct_size %u", wrong),
                           [wrong](World&, uint64_t& at) { set_size(at, wrong); }, invalid});
}

void check_untouched(uint64_t at, size_t from) {
  for (size_t i = from; i < struct_room; i++)
    HOSTILE_CHECK(reinterpret_cast<unsigned char*>(at)[i] == 0xA5,
                  "byte %zu lies beyond struct_size %zu and was written", i, from);
}

}  // namespace

Arg struct_in(std::function<std::vector<unsigned char>(World&)> make, uint32_t size) {
  Arg arg = pointer([make](World& world) {
    const std::vector<unsigned char> bytes = make(world);
    unsigned char* const at = world.room(struct_room, 0);
    std::copy(bytes.begin(), bytes.end(), at);
    return bits(at);
  });
  add_wrong_sizes(arg, size);
  // The bytes after it are poison, which must not be read.
  arg.misuses.push_back({"poison behind it",
                         [size](World&, uint64_t& at) {
                           std::memset(reinterpret_cast<unsigned char*>(at) + size, 0xEE,
                                       struct_room - size);
                         },
                         fine});
  return arg;
}

Arg text_in(char salt) {
  return pointer([salt](World& world) {
    const std::vector<int32_t> tokens(20, 1);
    return bits(
        world.keep(pkv_prompt{sizeof(pkv_prompt), 0, world.keep_list(std::vector<char>{salt}), 1,
                              world.keep_list(tokens), tokens.size()}));
  });
}

std::vector<Case> text_cases(size_t at) {
  const auto in = in_struct<pkv_prompt>(at);
  return {in(WITH(it.struct_size = 0), invalid),
          in(WITH(it.struct_size++), invalid),
          in(WITH(it.reserved = 1), invalid),
          in(WITH(it.salt = nullptr), invalid),
          in(WITH(it.salt = nullptr, it.salt_size = 0), fine),
          in(WITH(it.salt_size = 257), invalid),
          in(WITH(it.salt_size = SIZE_MAX - 1), invalid),
          in(WITH(it.salt_size = PKV_ALL_SALTS), invalid),
          in(WITH(it.tokens = nullptr), invalid),
          in(WITH(it.tokens = nullptr, it.n = 0), fine),
          in(WITH(it.n = SIZE_MAX), overflow)};
}

Arg struct_out(uint32_t size) {
  Arg arg = pointer([size](World& world) {
    const uint64_t at = bits(world.room(struct_room));
    set_size(at, size);
    return at;
  });
  add_wrong_sizes(arg, size);
  arg.misuses.push_back({format("struct_size %u", size), [](World&, uint64_t&) {}, fine,
                         [size](uint64_t at) {
                           HOSTILE_CHECK(*reinterpret_cast<uint32_t*>(at) == size,
                                         "struct_size was changed");
                           check_untouched(at, size);
                         }});
  return arg;
}

const Library pagedkv_library = {
    pkv_last_error,
    [] { WANT(PKV_STALE_HANDLE, pkv_pool_destroy(from_bits<pkv_pool>(0x5EED5EED))); }, true};

const std::vector<Function>& all_rows() {
  static const std::vector<Function> all = [] {
    std::vector<Function> result;
    for (const auto& part : {plain_rows(), pool_rows(), cache_rows(), session_rows(), batch_rows(),
                             attention_rows(), compute_rows(), kv_rows(), snapshot_rows(),
                             prefix_rows(), hint_rows(), file_rows(), store_rows()})
      result.insert(result.end(), part.begin(), part.end());
#ifdef WITH_REDIS
    for (const Function& row : redis_rows()) result.push_back(row);
#endif
    return result;
  }();
  return all;
}

std::vector<const Function*> row_pointers() {
  std::vector<const Function*> result;
  for (const Function& function : all_rows()) result.push_back(&function);
  return result;
}

std::string row_name(const testing::TestParamInfo<const Function*>& row) { return row.param->name; }

Values valid_values(const Function& function, World& world) {
  Values values;
  for (const Arg& arg : function.args) values.push_back(arg.value(world));
  return values;
}

}  // namespace hostile
