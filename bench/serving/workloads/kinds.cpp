#include "kinds.h"

#include <algorithm>

#include "generator.h"

namespace pkv::serve {

std::span<const Workload> workloads() {
  static constexpr Workload all[] = {
      {"chats", "users who chat behind one system prompt, and users who ask once", 24000, 0,
       generate_chats},
      {"agents", "tasks with tools, whose contexts grow to tens of thousands of tokens", 3000, 0,
       generate_agents},
      {"retrieval", "questions behind two or three documents of 3,000", 8000, 0,
       generate_retrieval},
      {"few-shot", "batches of questions behind the same examples", 8000, 0, generate_few_shot},
      {"scans", "chats, and now and then long documents that come once", 16000, 0, generate_scans},
      {"tenants", "chats of 40 tenants, each with a quota of a tenth of the cache", 20000, 0.1,
       generate_tenants},
      {"phases", "chats, few-shot batches, scans and agents, one after another, twice", 16000, 0,
       generate_phases},
  };
  return all;
}

const Workload* find_workload(const std::string& name) {
  const auto all = workloads();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Workload& each) { return name == each.name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace pkv::serve
