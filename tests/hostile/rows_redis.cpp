// The rows of redis.h, whose library has a last error of its own.
#include <pagedkv/redis.h>

#include "matrix.h"

namespace hostile {

namespace {

pkv_status last_error() {
  (void)pkv_redis_last_error();
  return PKV_OK;
}

pkv_redis_config unconnected(World&) { return made<pkv_redis_config>({.connect_later = 1}); }

}  // namespace

std::vector<Function> redis_rows() {
  // It has no caches, and so no hooks of caches.
  static const Library library = {pkv_redis_last_error,
                                  [] {
                                    pkv_redis_config config{};
                                    config.struct_size = 0x5EED;
                                    pkv_store store = made<pkv_store>();
                                    const pkv_status got = pkv_redis_open(&config, &store);
                                    HOSTILE_CHECK(got == PKV_INVALID_ARGUMENT, "it gave %s",
                                                  pkv_status_name(got));
                                  },
                                  false};
  Function open{ROW(pkv_redis_open),
                {config_in<pkv_redis_config>(unconnected), struct_out(sizeof(pkv_store))}};
  const auto in = in_struct<pkv_redis_config>(0);
  open.cases = {// Nothing listens there, so the failure is immediate.
                in(WITH(it.servers = "127.0.0.1:1,localhost:1", it.connect_later = 0), {PKV_IO}),
                in(WITH(it.servers = "127.0.0.1:port"), invalid),
                in(WITH(it.connect_later = 2), invalid),
                in(WITH(it.connect_timeout_ms = 3600001), invalid),
                in(WITH(it.command_timeout_ms = UINT32_MAX), invalid),
                in(WITH(it.max_pipeline_bytes = 1), invalid),
                in(WITH(it.max_pipeline_bytes = UINT64_MAX), invalid),
                in(WITH(it.servers = ""), invalid),
                in(WITH(it.key_prefix = ""), fine),
                in(WITH(it.tls = 2), invalid),
                in(WITH(it.reserved = 1), invalid)};
  open.undo = [](World&, const Values& values) {
    OK(pkv_store_close(reinterpret_cast<pkv_store*>(values[1])));
  };
  Function told{"pkv_redis_last_error", caller(last_error), {}};
  told.tells_status = false;
  std::vector<Function> rows = {open, told};
  for (Function& row : rows) row.library = &library;
  return rows;
}

}  // namespace hostile
