// The object behind a batch handle: the batch and the handles of its sessions, which the batch
// releases when it ends. It has its own file because destroying a cache also ends batches.
#pragma once

#include <vector>

#include "engine/cache/cache.h"
#include "engine/session/batch.h"

namespace pkv::api {

struct BatchObject {
  BatchObject(Cache& cache, std::span<Session* const> objects, std::span<const uint32_t> new_tokens,
              uint64_t* short_by, std::vector<uint64_t> handles)
      : sessions(std::move(handles)),
        batch(cache, objects, new_tokens, short_by),
        counted(cache.counters().batches) {}
  std::vector<uint64_t> sessions;
  Batch batch;
  const Counted counted;
};

}  // namespace pkv::api
