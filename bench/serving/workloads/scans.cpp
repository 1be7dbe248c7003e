// One-time scans beside chats: now and then a crowd of long documents comes, each of them once.
#include "generator.h"

namespace pkv::serve {

namespace {

constexpr double scan_every = 60;  // users of the chats
constexpr uint32_t scan_instruction_tokens = 200;
constexpr double another_document = 0.97, document_seconds_apart = 0.5;

}  // namespace

std::vector<Request> generate_scans(size_t count, uint64_t seed) {
  Random random(mix(seed, 12));
  const Chats chats;
  const auto user = [&](std::vector<Request>& requests, double arrival, uint64_t number) {
    add_user(requests, arrival, mix(mix(seed, 13), number), mix(seed, 14), chats, random);
    if (!random.chance(1 / scan_every)) return;
    uint64_t scanned = 0;
    do {
      const uint64_t document = mix(mix(seed, 15), mix(number, scanned++));
      requests.push_back(ask(
          arrival,
          {{mix(seed, 16), scan_instruction_tokens}, {document, random.length(4000, 0.7, 32768)}},
          document, random));
      requests.back().expected_return = never_returns;
      arrival += random.exponential(document_seconds_apart);
    } while (random.chance(another_document));
  };
  return generate_until(count, chats.seconds_apart, random, user);
}

}  // namespace pkv::serve
