// A batch as its handle holds it: with the handles of its sessions, whose hold ends with it.
#pragma once

#include <vector>

#include "engine/session/batch.h"

namespace pkv::api {

struct BatchObject {
  BatchObject(Cache& cache, std::span<Session* const> objects, std::span<const uint32_t> new_tokens,
              uint64_t* short_by, std::vector<uint64_t> handles)
      : sessions(std::move(handles)), batch(cache, objects, new_tokens, short_by) {}
  std::vector<uint64_t> sessions;
  Batch batch;
};

}  // namespace pkv::api
