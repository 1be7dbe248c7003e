// Tenants: each has a system prompt and users of its own, some tenants have far more of them.
#include "generator.h"

namespace pkv::serve {

namespace {

constexpr size_t tenants = 40;

}  // namespace

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

}  // namespace pkv::serve
