// The rows of store.h.
#include <pagedkv/store.h>

#include "../support/files.h"
#include "matrix.h"

namespace hostile {

std::vector<Function> store_rows() {
  const Arg cache = handle(Handle::cache);
  Function wait{ROW(pkv_prefetch_wait),
                {cache, text_in('a'), number(60000), out<uint64_t>(), optional(out<uint64_t>())},
                text_cases(1)};
  Function cancel{ROW(pkv_prefetch_cancel), {cache, text_in('a')}, text_cases(1)};
  Function flush{ROW(pkv_cache_flush_store), {cache, number(60000), out<uint64_t>()}};
  flush.cases = {{"no time", set(1, 0), fine}};
  Function stats{ROW(pkv_cache_get_store_stats), {cache, struct_out(sizeof(pkv_store_stats))}};

  static const files::TemporaryDirectory folder;
  const auto directory = [](World& world) {
    auto config = made<pkv_directory_config>();
    const char* const path = folder.path().c_str();
    config.path = world.keep_list(std::vector<char>(path, path + folder.path().size() + 1));
    return config;
  };
  Function open{ROW(pkv_store_open_directory),
                {config_in<pkv_directory_config>(directory), struct_out(sizeof(pkv_store))}};
  const auto in = in_struct<pkv_directory_config>(0);
  open.cases = {in(WITH(it.path = nullptr), invalid), in(WITH(it.path = "/dev/null"), {PKV_IO}),
                in(WITH(it.path = "/tmp"), {PKV_IO}),
                in(WITH(it.path = "/nowhere/deep/inside"), {PKV_IO}),
                in(WITH(it.path = ""), {PKV_IO})};
  open.undo = [](World&, const Values& values) {
    OK(pkv_store_close(reinterpret_cast<pkv_store*>(values[1])));
  };
  const Arg opened = optional(
      config_in<pkv_store>([](World&) { return made<pkv_store>({.close = [](void*) {}}); }));
  Function close{ROW(pkv_store_close), {opened}};
  close.works_in_hooks = true;
  const auto store = in_struct<pkv_store>(0);
  close.cases = {store(WITH(it.close = nullptr), fine), store(WITH(it = {}), fine)};
  return {wait, cancel, flush, stats, open, close};
}

}  // namespace hostile
