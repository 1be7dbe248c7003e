// The rows of file.h.
#include <pagedkv/file.h>

#include "matrix.h"

namespace hostile {

namespace {

pkv_file_config file_config(World&) { return made<pkv_file_config>(); }

pkv_stream buffer(void* data, uint64_t size) {
  auto stream = made<pkv_stream>();
  stream.kind = PKV_STREAM_BUFFER;
  stream.data = data;
  stream.size = size;
  return stream;
}

// Makes a buffer that a file fits into.
pkv_stream room(World& world) {
  constexpr size_t size = 1 << 17;
  return buffer(world.room(size), size);
}

// Makes a file with one session.
pkv_stream file(World& world) {
  const pkv_file_item item = {world.session, nullptr, 1};
  const pkv_stream to = room(world);
  uint64_t bytes = 0;
  OK(pkv_file_save(world.cache, 1, &item, nullptr, &to, &bytes));
  return buffer(to.data, bytes);
}

template <class Struct>
std::function<void(World&, Values&)> field(size_t at, std::function<void(World&, Struct&)> change) {
  return [at, change](World& world, Values& values) {
    change(world, *reinterpret_cast<Struct*>(values[at]));
  };
}

// Makes a case for each thing that can be wrong with the config at argument `at`.
std::vector<Case> config_cases(size_t at) {
  const auto with = [at](std::function<void(pkv_file_config&)> change) {
    return field<pkv_file_config>(at,
                                  [change](World&, pkv_file_config& config) { change(config); });
  };
  return {
      {"prefix_index 2", with([](auto& c) { c.prefix_index = 2; }), {PKV_INVALID_ARGUMENT}},
      {"skip_fsync 2", with([](auto& c) { c.skip_fsync = 2; }), {PKV_INVALID_ARGUMENT}},
      {"trust_salts 2", with([](auto& c) { c.trust_salts = 2; }), {PKV_INVALID_ARGUMENT}},
      {"prefix_index", with([](auto& c) { c.prefix_index = 1; }), {PKV_OK}},
      {"fingerprint NULL", with([](auto& c) { c.fingerprint_size = 1; }), {PKV_INVALID_ARGUMENT}},
      {"fingerprint too long",
       with([](auto& c) { c.fingerprint = &c, c.fingerprint_size = 65; }),
       {PKV_TOO_LARGE}},
      {"fingerprint UINT64_MAX long",
       with([](auto& c) { c.fingerprint = &c, c.fingerprint_size = UINT64_MAX; }),
       {PKV_TOO_LARGE}},
      {"key NULL", with([](auto& c) { c.key_size = 16; }), {PKV_INVALID_ARGUMENT}},
      {"key too short",
       with([](auto& c) { c.key = "0123456789abcdef", c.key_size = 15; }),
       {PKV_INVALID_ARGUMENT}},
      {"key too long", with([](auto& c) { c.key = &c, c.key_size = 65; }), {PKV_TOO_LARGE}}};
}

// Makes a case for each thing that can be wrong with the stream at argument `at`.
std::vector<Case> stream_cases(size_t at) {
  const auto with = [at](std::function<void(pkv_stream&)> change) {
    return field<pkv_stream>(at, [change](World&, pkv_stream& stream) { change(stream); });
  };
  return {{"unknown kind", with([](auto& s) { set_enum(s.kind, 5); }), {PKV_INVALID_ARGUMENT}},
          {"no kind", with([](auto& s) { set_enum(s.kind, 0); }), {PKV_INVALID_ARGUMENT}},
          {"stream: reserved set", with([](auto& s) { s.reserved = 1; }), {PKV_INVALID_ARGUMENT}},
          {"path NULL", with([](auto& s) { s.kind = PKV_STREAM_PATH; }), {PKV_INVALID_ARGUMENT}},
          {"path empty", with([](auto& s) { s.kind = PKV_STREAM_PATH, s.path = ""; }), {PKV_IO}},
          {"path of a directory",
           with([](auto& s) { s.kind = PKV_STREAM_PATH, s.path = "/tmp"; }),
           {PKV_IO}},
          {"path in no directory",
           with([](auto& s) { s.kind = PKV_STREAM_PATH, s.path = "/no such directory/file"; }),
           {PKV_IO}},
          {"path of a device",
           with([](auto& s) { s.kind = PKV_STREAM_PATH, s.path = "/dev/null"; }),
           {PKV_IO}},
          {"negative descriptor",
           with([](auto& s) { s.kind = PKV_STREAM_DESCRIPTOR, s.descriptor = -1; }),
           {PKV_INVALID_ARGUMENT}},
          {"closed descriptor",
           with([](auto& s) { s.kind = PKV_STREAM_DESCRIPTOR, s.descriptor = 1000; }),
           {PKV_IO}},
          {"data NULL", with([](auto& s) { s.data = nullptr; }), {PKV_INVALID_ARGUMENT}},
          {"callbacks NULL",
           with([](auto& s) { s.kind = PKV_STREAM_CALLBACKS; }),
           {PKV_INVALID_ARGUMENT}}};
}

std::vector<Case> reading_cases(size_t config, size_t stream) {
  std::vector<Case> cases = config_cases(config);
  const std::vector<Case> more = stream_cases(stream);
  cases.insert(cases.end(), more.begin(), more.end());
  const auto with = [stream](std::function<void(pkv_stream&)> change) {
    return field<pkv_stream>(stream, [change](World&, pkv_stream& from) { change(from); });
  };
  cases.push_back(
      {"an empty buffer", with([](auto& s) { s.data = nullptr, s.size = 0; }), {PKV_CORRUPT}});
  cases.push_back({"cut short", with([](auto& s) { s.size--; }), {PKV_CORRUPT}});
  cases.push_back({"a byte too many", with([](auto& s) { s.size++; }), {PKV_CORRUPT}});
  cases.push_back({"another version",
                   with([](auto& s) { static_cast<unsigned char*>(s.data)[8] = 9; }),
                   {PKV_VERSION}});
  cases.push_back({"a flipped bit",
                   with([](auto& s) { static_cast<unsigned char*>(s.data)[s.size / 2] ^= 1; }),
                   {PKV_CORRUPT}});
  cases.push_back(
      {"another fingerprint",
       field<pkv_file_config>(config,
                              [](World&, auto& c) { c.fingerprint = "x", c.fingerprint_size = 1; }),
       {PKV_MISMATCH}});
  cases.push_back(
      {"a key that the file does not need",
       field<pkv_file_config>(config,
                              [](World&, auto& c) { c.key = "0123456789abcdef", c.key_size = 16; }),
       {PKV_MISMATCH, PKV_UNSUPPORTED}});
  return cases;
}

}  // namespace

std::vector<Function> file_rows() {
  const Arg cache = handle(Handle::cache);
  const Arg config = optional(config_in<pkv_file_config>(file_config));
  const auto items = [](World& world) {
    return bits(world.keep_list(
        std::vector<pkv_file_item>{{world.session, nullptr, 1}, {nullptr, world.snapshot, 2}}));
  };
  Function save{ROW(pkv_file_save),
                {cache, number(2), pointer(items), config, config_in<pkv_stream>(room),
                 optional(out<uint64_t>())}};
  save.cases = config_cases(3);
  for (Case& one : stream_cases(4)) save.cases.push_back(std::move(one));
  const auto item = [](std::function<void(World&, pkv_file_item&)> change) {
    return field<pkv_file_item>(2, change);
  };
  const std::vector<Case> more = {
      {"n 0, NULL", [](World&, Values& values) { values[1] = values[2] = 0; }, {PKV_OK}},
      {"n SIZE_MAX", [](World&, Values& values) { values[1] = SIZE_MAX; }, {PKV_OVERFLOW}},
      {"neither session nor snapshot",
       item([](World&, auto& i) { i.session = nullptr; }),
       {PKV_INVALID_ARGUMENT}},
      {"session and snapshot",
       item([](World& world, auto& i) { i.snapshot = world.snapshot; }),
       {PKV_INVALID_ARGUMENT}},
      {"a closed session",
       item([](World& world, auto& i) { i.session = world.closed_session; }),
       {PKV_STALE_HANDLE}},
      {"a closed snapshot",
       item([](World& world, auto& i) { i = {nullptr, world.closed_snapshot, 0}; }),
       {PKV_STALE_HANDLE}},
      {"a session of another cache",
       item([](World& world, auto& i) { i.session = world.foreign; }),
       {PKV_WRONG_CACHE}},
      {"a session in a batch",
       item([](World& world, auto& i) { i.session = world.stepping; }),
       {PKV_BUSY}},
      {"the same session twice",
       [](World& world, Values& values) {
         values[2] =
             bits(world.keep_list(std::vector<pkv_file_item>(2, {world.session, nullptr, 1})));
       },
       {PKV_OK}},
      {"a buffer too small",
       [](World& world, Values& values) {
         reinterpret_cast<pkv_stream*>(values[4])->size = 10;
         values[5] = 0;  // Such a failure writes the size.
         (void)world;
       },
       {PKV_BUFFER_TOO_SMALL}}};
  save.cases.insert(save.cases.end(), more.begin(), more.end());

  Arg valid_file = config_in<pkv_stream>(file);
  Function load{ROW(pkv_file_load),
                {cache, config, valid_file, number(4), out<pkv_session>(4),
                 optional(out<uint64_t>(4)), out<size_t>()}};
  load.cases = reading_cases(1, 2);
  load.cases.push_back(
      {"capacity SIZE_MAX", [](World&, Values& values) { values[3] = SIZE_MAX; }, {PKV_OVERFLOW}});
  load.cases.push_back({"just enough", [](World&, Values& values) { values[3] = 1; }, {PKV_OK}});
  load.cases.push_back(
      {"more than is free",
       [](World& world, Values&) {
         pkv_session greedy = nullptr;
         OK(pkv_session_open(world.cache, nullptr, &greedy));
         OK(pkv_session_reserve(greedy, (stats_of(world.cache).free_blocks - 1) * 16));
       },
       {PKV_OUT_OF_BLOCKS}});
  Function inspect{ROW(pkv_file_inspect),
                   {config, valid_file, struct_out(sizeof(pkv_file_info))},
                   reading_cases(0, 1)};
  return {save, load, inspect};
}

}  // namespace hostile
