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

uint64_t open_handle(World& world, Handle kind) {
  switch (kind) {
    case Handle::pool:
      return bits(world.pool);
    case Handle::cache:
      return bits(world.cache);
    case Handle::session:
      return bits(world.session);
    case Handle::batch:
      return bits(world.batch);
    case Handle::snapshot:
      return bits(world.snapshot);
    case Handle::compute:
      return bits(world.compute);
    case Handle::none:
      break;
  }
  return 0;
}

uint64_t closed_handle(World& world, Handle kind) {
  switch (kind) {
    case Handle::pool:
      return bits(world.closed_pool);
    case Handle::cache:
      return bits(world.closed_cache);
    case Handle::session:
      return bits(world.closed_session);
    case Handle::batch:
      return bits(world.closed_batch);
    case Handle::snapshot:
      return bits(world.closed_snapshot);
    case Handle::compute:
      return bits(world.closed_compute);
    case Handle::none:
      break;
  }
  return 0;
}

Misuse null_is(Wanted wanted) {
  return {"NULL", [](World&, uint64_t& value) { value = 0; }, std::move(wanted)};
}

Misuse replaced(const std::string& name, uint64_t by, Wanted wanted) {
  return {name, [by](World&, uint64_t& value) { value = by; }, std::move(wanted)};
}

pkv_tensor& tensor_at(uint64_t value) { return *reinterpret_cast<pkv_tensor*>(value); }

Misuse bad_tensor(const std::string& name, std::function<void(pkv_tensor&)> change, Wanted wanted) {
  return {name, [change](World&, uint64_t& value) { change(tensor_at(value)); }, std::move(wanted)};
}

void set_size(uint64_t at, uint32_t size) {
  std::memcpy(reinterpret_cast<void*>(at), &size, sizeof size);
}

// This is more than any struct and any size of wrong_sizes() that could be written.
constexpr size_t struct_room = 4200;

}  // namespace

Arg handle(Handle kind, bool closes) {
  Arg arg{[kind](World& world) { return open_handle(world, kind); }, {}, kind};
  arg.misuses = {
      null_is({closes ? PKV_OK : PKV_INVALID_ARGUMENT}),
      {"closed",
       [kind](World& world, uint64_t& value) { value = closed_handle(world, kind); },
       {PKV_STALE_HANDLE}},
      {"next generation",
       [](World&, uint64_t& value) { value += uint64_t{1} << 32; },
       {PKV_STALE_HANDLE}},
      {"other index", [](World&, uint64_t& value) { value ^= 0x300; }, {PKV_STALE_HANDLE}},
      {"index without slot",
       [](World&, uint64_t& value) { value |= 0xFFFFFF; },
       {PKV_STALE_HANDLE}},
      {"spare bits set", [](World&, uint64_t& value) { value |= 0x5000000; }, {PKV_STALE_HANDLE}},
      {"address of a variable",
       [](World& world, uint64_t& value) { value = bits(&world); },
       {PKV_STALE_HANDLE}}};
  for (const uint64_t pattern :
       {uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{0xDEADBEEFDEADBEEF}})
    arg.misuses.push_back(replaced(format("bits %#llx", static_cast<unsigned long long>(pattern)),
                                   pattern, {PKV_STALE_HANDLE}));
  for (const Handle another : {Handle::pool, Handle::cache, Handle::session, Handle::batch,
                               Handle::snapshot, Handle::compute})
    if (another != kind)
      arg.misuses.push_back(
          {format("handle of kind %d", static_cast<int>(another)),
           [another](World& world, uint64_t& value) { value = open_handle(world, another); },
           {PKV_STALE_HANDLE}});
  return arg;
}

Arg number(uint64_t value) {
  return {[value](World&) { return value; }, {}};
}

Arg index(uint64_t valid, uint64_t limit) {
  Arg arg = number(valid);
  for (const uint64_t beyond : {limit, limit + 1, uint64_t{INT32_MAX}, uint64_t{UINT32_MAX}})
    arg.misuses.push_back(replaced(format("index %llu", static_cast<unsigned long long>(beyond)),
                                   beyond, {PKV_OUT_OF_RANGE}));
  return arg;
}

Arg enumeration(int64_t valid, std::vector<int64_t> unknown) {
  Arg arg = number(static_cast<uint64_t>(valid));
  for (const int64_t value : unknown)
    arg.misuses.push_back(replaced(format("enum %lld", static_cast<long long>(value)),
                                   static_cast<uint64_t>(value), {PKV_INVALID_ARGUMENT}));
  return arg;
}

Arg pointer(std::function<uint64_t(World&)> value) {
  return {std::move(value), {null_is({PKV_INVALID_ARGUMENT})}};
}

Arg optional(Arg arg) {
  for (Misuse& misuse : arg.misuses)
    if (misuse.name == "NULL") misuse.wanted = {PKV_OK};
  return arg;
}

Arg rows(size_t count, size_t heads) {
  // There is one float more than is needed, for the rows that begin one byte later.
  Arg arg =
      pointer([=](World& world) { return bits(world.keep(world.rows(count * heads * dim + 1))); });
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, range = {PKV_OUT_OF_RANGE};
  // The stride from row to row does not matter if there is one row.
  const Wanted far = count > 1 ? Wanted{PKV_OVERFLOW} : Wanted{PKV_OK};
  const std::vector<Misuse> more = {
      bad_tensor(
          "data NULL", [](pkv_tensor& t) { t.data = nullptr; }, invalid),
      bad_tensor(
          "dtype 0", [](pkv_tensor& t) { t.dtype = static_cast<pkv_dtype>(0); }, invalid),
      bad_tensor(
          "dtype unknown", [](pkv_tensor& t) { std::memset(&t.dtype, 0x7F, sizeof t.dtype); },
          invalid),
      bad_tensor(
          "dtype int8, only stored", [](pkv_tensor& t) { t.dtype = PKV_INT8; }, invalid),
      bad_tensor(
          "dtype fp8, only stored", [](pkv_tensor& t) { t.dtype = PKV_FP8_E4M3; }, invalid),
      bad_tensor(
          "batch_rows 1", [](pkv_tensor& t) { t.batch_rows = 1; }, invalid),
      bad_tensor(
          "row_stride -1", [](pkv_tensor& t) { t.row_stride = -1; }, range),
      bad_tensor(
          "head_stride -1", [](pkv_tensor& t) { t.head_stride = -1; }, range),
      bad_tensor(
          "row_stride INT64_MIN", [](pkv_tensor& t) { t.row_stride = INT64_MIN; }, range),
      bad_tensor(
          "head_stride INT64_MIN", [](pkv_tensor& t) { t.head_stride = INT64_MIN; }, range),
      bad_tensor(
          "row_stride INT64_MAX", [](pkv_tensor& t) { t.row_stride = INT64_MAX; }, far),
      bad_tensor("head_stride INT64_MAX", [](pkv_tensor& t) { t.head_stride = INT64_MAX; },
                 {PKV_OVERFLOW}),
      bad_tensor("head_stride INT64_MAX / 3", [](pkv_tensor& t) { t.head_stride = INT64_MAX / 3; },
                 {PKV_OVERFLOW}),
      bad_tensor(
          "heads overlap", [](pkv_tensor& t) { t.head_stride = 1; }, invalid),
      bad_tensor("one byte off", [](pkv_tensor& t) { t.data = static_cast<char*>(t.data) + 1; },
                 {PKV_OK}),
  };
  arg.misuses.insert(arg.misuses.end(), more.begin(), more.end());
  return arg;
}

namespace {

// Sizes that no version of a struct has had, which is `size` bytes now.
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
                           [wrong](World&, uint64_t& at) { set_size(at, wrong); },
                           {PKV_INVALID_ARGUMENT}});
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
  // The bytes behind it are poison, which must not be read.
  arg.misuses.push_back({"poison behind it",
                         [size](World&, uint64_t& at) {
                           std::memset(reinterpret_cast<unsigned char*>(at) + size, 0xEE,
                                       struct_room - size);
                         },
                         {PKV_OK}});
  return arg;
}

Arg struct_out(uint32_t size) {
  Arg arg = pointer([size](World& world) {
    const uint64_t at = bits(world.room(struct_room));
    set_size(at, size);
    return at;
  });
  add_wrong_sizes(arg, size);
  arg.misuses.push_back({format("struct_size %u", size),
                         [](World&, uint64_t&) {},
                         {PKV_OK},
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
    for (const auto& part :
         {plain_rows(), pool_rows(), cache_rows(), session_rows(), batch_rows(), attention_rows(),
          compute_rows(), kv_rows(), snapshot_rows(), prefix_rows(), file_rows(), store_rows()})
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
