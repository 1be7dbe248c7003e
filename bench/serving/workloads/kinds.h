// The kinds of requests that can be generated.
#pragma once

#include <span>

#include "../trace.h"

namespace pkv::serve {

struct Workload {
  const char* name;
  const char* what;  // for the help
  size_t requests;   // of a table of policies: 10 to 40 million tokens
  double quota;      // of a tenant, as a part of the cache; 0: tenants share all
  std::vector<Request> (*generate)(size_t requests, uint64_t seed);
};

std::span<const Workload> workloads();
// Returns nullptr if there is no workload of that name.
const Workload* find_workload(const std::string& name);

}  // namespace pkv::serve
