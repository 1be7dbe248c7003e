#include "engine/prefix/ordered_policy.h"

namespace pkv::prefix {

namespace {

bool matched_less_often(const Node& a, const Node& b) {
  if (a.retention == b.retention && a.matches != b.matches) return a.matches < b.matches;
  return used_longer_ago(a, b);
}

}  // namespace

bool used_longer_ago(const Node& a, const Node& b) {
  return a.retention != b.retention ? a.retention < b.retention : a.last_use < b.last_use;
}

OrderedPolicy::OrderedPolicy(bool by_frequency, std::pmr::memory_resource& memory)
    : candidates_(by_frequency ? matched_less_often : used_longer_ago, &Node::place, memory) {}

}  // namespace pkv::prefix
