#include "generator.h"

namespace pkv::serve {

Request ask(double arrival, std::vector<Segment> prompt, uint64_t user, Random& random,
            double answer_median, double answer_sigma) {
  Request request;
  request.arrival = arrival;
  for (const Segment& segment : prompt) request.input += segment.length;
  request.prompt = std::move(prompt);
  request.output = random.length(answer_median, answer_sigma, longest_message);
  request.answer = mix(user, request.prompt.size());
  request.tenant = user;
  return request;
}

void add_user(std::vector<Request>& requests, double arrival, uint64_t user, uint64_t system,
              const Chats& chats, Random& random) {
  if (random.chance(chats.single)) {
    requests.push_back(
        ask(arrival, {{mix(user, 0), random.length(400, 1.0, longest_message)}}, user, random));
    return;
  }
  std::vector<Segment> chat{{system, chats.system_tokens}};
  do {
    chat.push_back({mix(user, chat.size()), random.length(60, 0.8, longest_message)});
    requests.push_back(ask(arrival, chat, user, random));
    const Request& turn = requests.back();
    chat.push_back({turn.answer, turn.output});
    arrival += 0.03 * turn.output + random.exponential(chats.thinking);
  } while (random.chance(chats.another_turn));
}

std::vector<Request> generate_chats(size_t count, uint64_t seed) {
  Random random(mix(seed, 0));
  const Chats chats;
  return generate_until(count, chats.seconds_apart, random,
                        [&](std::vector<Request>& requests, double arrival, uint64_t user) {
                          add_user(requests, arrival, mix(seed, user), mix(seed, 0), chats, random);
                        });
}

}  // namespace pkv::serve
