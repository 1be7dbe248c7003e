// Agents: a task is a long context that grows by the results of its tools. While a tool runs, the
// engine knows which tool it is, and so about how long it will take.
#include "generator.h"

namespace pkv::serve {

namespace {

constexpr size_t agent_kinds = 8;
constexpr double task_seconds_apart = 5;
constexpr double another_step = 0.93;  // 14 steps on average
constexpr double longest_result = 16384;

struct Tool {
  double until;  // chosen if a uniform number is below this, and not below that of the tool before
  double seconds;  // median
  double sigma;
  double result_tokens;  // median
};

constexpr Tool tools[] = {
    {0.70, 1.5, 0.6, 400},  // a file or a search
    {0.92, 60, 0.5, 900},   // a build or a test
    {1.00, 240, 0.8, 60},   // the user has to answer
};

void add_task(std::vector<Request>& requests, double arrival, uint64_t task, uint64_t kind,
              Random& random) {
  Random of_kind(kind);  // instructions and descriptions of tools
  std::vector<Segment> context{{kind, of_kind.length(4000, 0.4, 12000)},
                               {mix(task, 1), random.length(300, 0.8, longest_message)}};
  for (;;) {
    requests.push_back(ask(arrival, context, task, random, 150, 0.6));
    Request& step = requests.back();
    if (!random.chance(another_step)) {
      step.expected_return = never_returns;
      return;
    }
    const double chosen = random.uniform();
    const Tool& tool = *std::find_if(std::begin(tools), std::end(tools) - 1,
                                     [&](const Tool& each) { return chosen < each.until; });
    context.push_back({step.answer, step.output});
    context.push_back(
        {mix(task, context.size()), random.length(tool.result_tokens, 1.0, longest_result)});
    step.expected_return = tool.seconds;
    arrival += 0.03 * step.output + random.log_normal(tool.seconds, tool.sigma);
  }
}

}  // namespace

std::vector<Request> generate_agents(size_t count, uint64_t seed) {
  Random random(mix(seed, 1));
  const Zipf kinds(agent_kinds, 1.0);
  return generate_until(count, task_seconds_apart, random,
                        [&](std::vector<Request>& requests, double arrival, uint64_t number) {
                          const uint64_t kind = mix(mix(seed, 2), kinds(random));
                          add_task(requests, arrival, mix(mix(seed, 3), number), kind, random);
                        });
}

}  // namespace pkv::serve
