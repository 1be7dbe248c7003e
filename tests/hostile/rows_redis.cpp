// The rows of redis.h, whose library has a last error of its own.
#include <pagedkv/redis.h>

#include "matrix.h"

namespace hostile {

namespace {

pkv_status last_error() {
  (void)pkv_redis_last_error();
  return PKV_OK;
}

pkv_redis_config unconnected(World&) {
  auto config = made<pkv_redis_config>();
  config.connect_later = 1;
  return config;
}

Case with(const char* name, std::function<void(pkv_redis_config&)> change, Wanted wanted) {
  return {name, within<pkv_redis_config>(0, std::move(change)), std::move(wanted)};
}

}  // namespace

std::vector<Function> redis_rows() {
  // It knows nothing of caches, and so nothing of their hooks.
  static const Library library = {pkv_redis_last_error,
                                  [] {
                                    pkv_redis_config config{};
                                    config.struct_size = 0x5EED;
                                    pkv_store store;
                                    const pkv_status got = pkv_redis_open(&config, &store);
                                    HOSTILE_CHECK(got == PKV_INVALID_ARGUMENT, "it gave %s",
                                                  pkv_status_string(got));
                                  },
                                  false};
  Function open{ROW(pkv_redis_open), {config_in<pkv_redis_config>(unconnected), out<pkv_store>()}};
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  open.cases = {
      // Nothing listens there, so that it is seen at once.
      with("no server", [](auto& c) { c.servers = "127.0.0.1:1,localhost:1", c.connect_later = 0; },
           {PKV_IO}),
      with(
          "no port", [](auto& c) { c.servers = "127.0.0.1:port"; }, invalid),
      with(
          "connect_later 2", [](auto& c) { c.connect_later = 2; }, invalid),
      with(
          "connect_timeout_ms 3600001", [](auto& c) { c.connect_timeout_ms = 3600001; }, invalid),
      with(
          "command_timeout_ms UINT32_MAX", [](auto& c) { c.command_timeout_ms = UINT32_MAX; },
          invalid),
      with(
          "pipeline_bytes 1", [](auto& c) { c.pipeline_bytes = 1; }, invalid),
      with(
          "pipeline_bytes UINT64_MAX", [](auto& c) { c.pipeline_bytes = UINT64_MAX; }, invalid),
      with(
          "servers empty", [](auto& c) { c.servers = ""; }, invalid),
      with("no prefix", [](auto& c) { c.key_prefix = ""; }, {PKV_OK}),
      with(
          "tls 2", [](auto& c) { c.tls = 2; }, invalid),
      with("reserved set", [](auto& c) { c.reserved = 1; }, invalid)};
  open.undo = [](World&, const Values& values) {
    const pkv_store& store = *reinterpret_cast<const pkv_store*>(values[1]);
    store.close(store.user);
  };
  Function told{"pkv_redis_last_error", caller(last_error), {}};
  told.tells_status = false;
  std::vector<Function> rows = {open, told};
  for (Function& row : rows) row.library = &library;
  return rows;
}

}  // namespace hostile
