// Retrieval: a question comes with two or three documents before it. Some documents are found far
// more often than others, and which ones are found together depends on the first.
#include "generator.h"

namespace pkv::serve {

namespace {

constexpr size_t documents = 3000, neighbours = 12;
constexpr uint32_t instruction_tokens = 256;
constexpr double question_seconds_apart = 0.2, follow_up = 0.15, reading = 30;

}  // namespace

std::vector<Request> generate_retrieval(size_t count, uint64_t seed) {
  Random random(mix(seed, 4));
  const Zipf popular(documents, 0.9), near(neighbours, 1.0);
  const auto document = [&](uint64_t number) {
    Random of_document(mix(mix(seed, 5), number));
    return Segment{mix(mix(seed, 5), number), of_document.length(1500, 0.6, longest_message)};
  };
  const auto question = [&](std::vector<Request>& requests, double arrival, uint64_t number) {
    const uint64_t user = mix(mix(seed, 6), number), first = popular(random);
    std::vector<Segment> prompt{{mix(seed, 7), instruction_tokens}, document(first)};
    for (int more = random.chance(0.5) ? 2 : 1; more > 0; more--)
      prompt.push_back(document(mix(first, near(random)) % documents));
    do {
      prompt.push_back({mix(user, prompt.size()), random.length(40, 0.6, longest_message)});
      requests.push_back(ask(arrival, prompt, user, random));
      const Request& asked = requests.back();
      prompt.push_back({asked.answer, asked.output});
      arrival += 0.03 * asked.output + random.exponential(reading);
    } while (random.chance(follow_up));
  };
  return generate_until(count, question_seconds_apart, random, question);
}

}  // namespace pkv::serve
