// Few-shot batches: many short questions behind the same examples, one batch beside others. Some
// sets of examples are used again and again, as those of a benchmark are.
#include "generator.h"

namespace pkv::serve {

namespace {

constexpr size_t recurring_sets = 12;
constexpr double batch_seconds_apart = 25, recurring = 0.35, another_item = 0.98,
                 item_seconds_apart = 1;

}  // namespace

std::vector<Request> generate_few_shot(size_t count, uint64_t seed) {
  Random random(mix(seed, 8));
  const Zipf sets(recurring_sets, 0.8);
  const auto batch = [&](std::vector<Request>& requests, double arrival, uint64_t number) {
    const uint64_t same_examples =
        random.chance(recurring) ? mix(mix(seed, 9), sets(random)) : mix(mix(seed, 10), number);
    Random of_set(same_examples);
    const uint32_t tokens = of_set.length(3000, 0.5, 12000);
    uint64_t item = 0;
    do {
      const uint64_t user = mix(mix(seed, 11), mix(number, item++));
      requests.push_back(
          ask(arrival, {{same_examples, tokens}, {user, random.length(120, 0.7, longest_message)}},
              user, random, 20));
      arrival += random.exponential(item_seconds_apart);
    } while (random.chance(another_item));
  };
  return generate_until(count, batch_seconds_apart, random, batch);
}

}  // namespace pkv::serve
