#include "blocks.h"

#include <algorithm>
#include <unordered_map>

namespace pkv::serve {

namespace {

constexpr uint32_t hash_tokens = 512;    // of a trace's hash ids
constexpr uint32_t derived_tokens = 64;  // of texts without hash ids

std::vector<uint64_t> chain(const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> ids;
  uint64_t state = 0;
  for (size_t i = 0; i < tokens.size(); i++) {
    state = mix(state, static_cast<uint64_t>(tokens[i]));
    if ((i + 1) % derived_tokens == 0) ids.push_back(state);
  }
  return ids;
}

}  // namespace

Blocks blocks_of_trace(const Trace& trace) {
  const bool hashed = std::all_of(trace.requests.begin(), trace.requests.end(),
                                  [](const Request& r) { return r.hashed > 0; });
  Blocks result{hashed ? hash_tokens : derived_tokens, {}, 0, {}, trace.quota};
  std::unordered_map<uint64_t, uint32_t> dense;
  for (const Request& request : trace.requests) {
    std::vector<uint64_t> ids;
    if (hashed)
      for (size_t i = 0; i < request.hashed; i++)
        ids.push_back(mix(i == 0 ? 0 : ids.back(), request.prompt[i].id));
    else
      ids = chain(text_of(request));
    Text text{{},
              hashed ? ids.size() : request.input / derived_tokens,
              request.tenant,
              request.expected_return};
    for (const uint64_t id : ids)
      text.blocks.push_back(dense.emplace(id, static_cast<uint32_t>(dense.size())).first->second);
    result.asked.add(text.asked, result.tokens);
    result.texts.push_back(std::move(text));
  }
  result.distinct = dense.size();
  return result;
}

}  // namespace pkv::serve
