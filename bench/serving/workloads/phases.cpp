// Phases: what a service does changes, and comes back: chats, few-shot batches, scans, agents,
// twice.
#include "generator.h"

namespace pkv::serve {

std::vector<Request> generate_phases(size_t count, uint64_t seed) {
  constexpr size_t rounds = 2;
  using Generate = std::vector<Request> (*)(size_t, uint64_t);
  struct Phase {
    Generate generate;
    size_t weight;  // its part of the requests: those of agents are longer
  };
  constexpr Phase phases[] = {
      {generate_chats, 10}, {generate_few_shot, 6}, {generate_scans, 8}, {generate_agents, 2}};
  constexpr size_t weights = 26;
  std::vector<Request> requests;
  double begin = 0;
  for (size_t round = 0; round < rounds; round++)
    for (const Phase& phase : phases) {
      std::vector<Request> part =
          phase.generate(count * phase.weight / weights / rounds + 1, mix(seed, round));
      for (Request& request : part) request.arrival += begin;
      begin = part.back().arrival;
      requests.insert(requests.end(), part.begin(), part.end());
    }
  requests.resize(count);
  return requests;
}

}  // namespace pkv::serve
