// The kinds of requests that can be generated, but for chats and agents.
#include "kinds.h"

#include <algorithm>

#include "generator.h"

namespace pkv::serve {

namespace {

// Few-shot batches: many short questions behind the same examples, one batch beside others. Some
// sets of examples are used again and again, like those of a benchmark.
constexpr size_t recurring_sets = 12;
constexpr double batch_seconds_apart = 25, recurring = 0.35, another_item = 0.98,
                 item_seconds_apart = 1;

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

// Retrieval: a question comes with two or three documents before it. Some documents are found far
// more often than others, and the first one decides which others come with it.
constexpr size_t documents = 3000, neighbours = 12;
constexpr uint32_t instruction_tokens = 256;
constexpr double question_seconds_apart = 0.2, follow_up = 0.15, reading = 30;

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

// Scans: chats, and now and then a crowd of long documents, each of which comes once.
constexpr double scan_every = 60;  // users of the chats
constexpr uint32_t scan_instruction_tokens = 200;
constexpr double another_document = 0.97, document_seconds_apart = 0.5;

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

// Tenants: each has a system prompt and users of its own, and some have far more users.
constexpr size_t tenants = 40;

std::vector<Request> generate_tenants(size_t count, uint64_t seed) {
  Random random(mix(seed, 17));
  const Zipf busy(tenants, 1.1);
  const auto user = [&](std::vector<Request>& requests, double arrival, uint64_t number) {
    const uint64_t tenant = mix(mix(seed, 18), busy(random));
    Random of_tenant(tenant);
    Chats chats;
    chats.system_tokens = of_tenant.length(800, 0.7, longest_message);
    chats.thinking = of_tenant.length(30, 0.7, 300);
    const size_t before = requests.size();
    add_user(requests, arrival, mix(mix(seed, 19), number), tenant, chats, random);
    for (size_t i = before; i < requests.size(); i++) requests[i].tenant = tenant;
  };
  return generate_until(count, Chats().seconds_apart, random, user);
}

// Phases: the traffic of a service changes, and comes back: chats, few-shot batches, scans, agents,
// twice.
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

}  // namespace

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
