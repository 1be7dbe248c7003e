// The rows of file.h.
#include <pagedkv/file.h>

#include "matrix.h"

namespace hostile {

namespace {

#ifdef _WIN32  // where no descriptor is taken
constexpr pkv_status not_a_descriptor = PKV_UNSUPPORTED;
#else
constexpr pkv_status not_a_descriptor = PKV_IO;
#endif

pkv_file_config file_config(World&) { return made<pkv_file_config>(); }

// Makes a buffer that a file fits into.
pkv_stream room(World& world) {
  constexpr size_t size = 1 << 17;
  return buffer_stream(world.room(size), size);
}

// Makes a file with one session.
pkv_stream file(World& world) {
  const pkv_file_item item = {world.session, nullptr, 1};
  const pkv_stream to = room(world);
  uint64_t bytes = 0;
  OK(pkv_file_save(world.cache, 1, &item, nullptr, &to, &bytes));
  return buffer_stream(to.data, bytes);
}

// Makes a case for each thing that can be wrong with the config at argument `at`.
std::vector<Case> config_cases(size_t at) {
  const auto in = in_struct<pkv_file_config>(at);
  return {in(WITH(it.prefix_index = 2), invalid),
          in(WITH(it.trust_salts = 2), invalid),
          in(WITH(it.max_tokens = UINT64_MAX), fine),
          in(WITH(it.prefix_index = 1), fine),
          in(WITH(it.fingerprint_size = 1), invalid),
          in(WITH(it.fingerprint = &it, it.fingerprint_size = 65), invalid),
          in(WITH(it.fingerprint = &it, it.fingerprint_size = UINT64_MAX), invalid),
          in(WITH(it.secret_key_size = 16), invalid),
          in(WITH(it.secret_key = "0123456789abcdef", it.secret_key_size = 15), invalid),
          in(WITH(it.secret_key = &it, it.secret_key_size = 65), invalid)};
}

// Makes a case for each thing that can be wrong with the stream at argument `at`.
std::vector<Case> stream_cases(size_t at) {
  const auto in = in_struct<pkv_stream>(at);
  return {in(WITH(it.kind = PKV_STREAM_PATH), invalid),
          in(WITH(it.kind = PKV_STREAM_PATH, it.path = ""), {PKV_IO}),
          in(WITH(it.kind = PKV_STREAM_PATH, it.path = "/tmp"), {PKV_IO}),
          in(WITH(it.kind = PKV_STREAM_PATH, it.path = "/no such directory/file"), {PKV_IO}),
          in(WITH(it.kind = PKV_STREAM_PATH, it.path = "/dev/null"), {PKV_IO}),
          in(WITH(it.kind = PKV_STREAM_DESCRIPTOR, it.descriptor = -1), invalid),
          in(WITH(it.kind = PKV_STREAM_DESCRIPTOR, it.descriptor = 1000), {not_a_descriptor}),
          in(WITH(it.data = nullptr), invalid),
          in(WITH(it.kind = PKV_STREAM_CALLBACKS), invalid)};
}

std::vector<Case> reading_cases(size_t config, size_t stream) {
  std::vector<Case> cases = config_cases(config);
  const auto in = in_struct<pkv_stream>(stream);
  const auto in_config = in_struct<pkv_file_config>(config);
  for (const auto& more :
       {stream_cases(stream),
        std::vector<Case>{
            in(WITH(it.data = nullptr, it.size = 0), {PKV_CORRUPT}),
            in(WITH(it.size--), {PKV_CORRUPT}), in(WITH(it.size++), {PKV_CORRUPT}),
            in(WITH(static_cast<unsigned char*>(it.data)[8] = 9), {PKV_WRONG_VERSION}),
            in(WITH(static_cast<unsigned char*>(it.data)[it.size / 2] ^= 1), {PKV_CORRUPT}),
            in_config(WITH(it.fingerprint = "x", it.fingerprint_size = 1), {PKV_MISMATCH}),
            in_config(WITH(it.secret_key = "0123456789abcdef", it.secret_key_size = 16),
                      {PKV_WRONG_KEY, PKV_UNSUPPORTED})}})
    cases.insert(cases.end(), more.begin(), more.end());
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
  const auto in = in_struct<pkv_file_item>(2);
  const std::vector<Case> more = {
      {"n 0, NULL", set(1, 0, 2, 0), fine},
      {"n SIZE_MAX", set(1, SIZE_MAX), overflow},
      in(WITH(it.session = nullptr), invalid),
      in(WITH(it.snapshot = world.snapshot), invalid),
      in(WITH(it.session = world.closed_session), stale),
      in(WITH(it = {nullptr, world.closed_snapshot, 0}), stale),
      in(WITH(it.session = world.foreign), {PKV_WRONG_CACHE}),
      in(WITH(it.session = world.stepping), busy),
      {"the same session twice",
       [](World& world, Values& values) {
         values[2] =
             bits(world.keep_list(std::vector<pkv_file_item>(2, {world.session, nullptr, 1})));
       },
       fine},
      {"a buffer too small",
       [](World&, Values& values) {
         reinterpret_cast<pkv_stream*>(values[4])->size = 10;
         values[5] = 0;  // Such a failure writes the size.
       },
       {PKV_BUFFER_TOO_SMALL}}};
  save.cases.insert(save.cases.end(), more.begin(), more.end());

  Arg valid_file = config_in<pkv_stream>(file);
  Function load{ROW(pkv_file_load),
                {cache, config, valid_file, number(4), out<pkv_session>(4),
                 optional(out<uint64_t>(4)), out<size_t>()}};
  load.cases = reading_cases(1, 2);
  load.add("capacity SIZE_MAX", set(3, SIZE_MAX), overflow);
  load.add("just enough", set(3, 1), fine);
  load.add("more than is free",
           [](World& world, Values&) {
             pkv_session greedy = nullptr;
             OK(pkv_session_open(world.cache, nullptr, &greedy));
             OK(pkv_session_reserve(greedy, (pool_stats_of(world.cache).free_blocks - 1) * 16));
           },
           {PKV_OUT_OF_BLOCKS});
  Function inspect{ROW(pkv_file_inspect),
                   {config, valid_file, struct_out(sizeof(pkv_file_info))},
                   reading_cases(0, 1)};
  return {save, load, inspect};
}

}  // namespace hostile
