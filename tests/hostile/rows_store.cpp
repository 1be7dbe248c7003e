// The rows of store.h.
#include <pagedkv/store.h>

#include "../support/files.h"
#include "matrix.h"

namespace hostile {

std::vector<Function> store_rows() {
  const Arg cache = handle(Handle::cache), salt = optional(in<char>({'a'})),
            tokens = in<int32_t>(std::vector<int32_t>(20, 1));
  const auto set = [](size_t at, uint64_t value) {
    return [at, value](World&, Values& values) { values[at] = value; };
  };
  Function prefetch{ROW(pkv_store_prefetch), {cache, salt, number(1), number(20), tokens}};
  Function wait{ROW(pkv_store_wait),
                {cache, salt, number(1), number(20), tokens, number(60000), out<uint64_t>(),
                 optional(out<uint64_t>())}};
  Function cancel{ROW(pkv_store_cancel), {cache, salt, number(1), number(20), tokens}};
  for (Function* row : {&prefetch, &wait, &cancel}) {
    // NULL comes with a size here.
    row->args[1].misuses.front().wanted = {PKV_INVALID_ARGUMENT};
    row->cases = {
        {"salt NULL, size 0", [](World&, Values& values) { values[1] = values[2] = 0; }, {PKV_OK}},
        {"salt too long", set(2, 257), {PKV_TOO_LARGE}},
        {"no tokens", [](World&, Values& values) { values[3] = values[4] = 0; }, {PKV_OK}},
        {"SIZE_MAX tokens", set(3, SIZE_MAX), {PKV_OVERFLOW}}};
  }
  Function flush{ROW(pkv_store_flush), {cache, number(60000), out<uint64_t>()}};
  flush.cases = {{"no time", set(1, 0), {PKV_OK}}};
  Function stats{ROW(pkv_store_get_stats), {cache, struct_out(sizeof(pkv_store_stats))}};

  static const files::TemporaryDirectory folder;
  const auto directory = [](World& world) {
    auto config = made<pkv_directory_config>();
    const char* const path = folder.path().c_str();
    config.path = world.keep_list(std::vector<char>(path, path + folder.path().size() + 1));
    return config;
  };
  Function open{ROW(pkv_store_open_directory),
                {config_in<pkv_directory_config>(directory), out<pkv_store>()}};
  const auto field = [](std::function<void(pkv_directory_config&)> change) {
    return [change](World&, Values& values) {
      change(*reinterpret_cast<pkv_directory_config*>(values[0]));
    };
  };
  open.cases = {
      {"path NULL", field([](auto& c) { c.path = nullptr; }), {PKV_INVALID_ARGUMENT}},
      {"durable 2", field([](auto& c) { c.durable = 2; }), {PKV_INVALID_ARGUMENT}},
      {"a path that is a device", field([](auto& c) { c.path = "/dev/null"; }), {PKV_IO}},
      {"a path that others may write to", field([](auto& c) { c.path = "/tmp"; }), {PKV_IO}},
      {"a path into nothing", field([](auto& c) { c.path = "/nowhere/deep/inside"; }), {PKV_IO}},
      {"an empty path", field([](auto& c) { c.path = ""; }), {PKV_IO}}};
  open.undo = [](World&, const Values& values) {
    const pkv_store& store = *reinterpret_cast<const pkv_store*>(values[1]);
    store.close(store.user);
  };
  return {prefetch, wait, cancel, flush, stats, open};
}

}  // namespace hostile
