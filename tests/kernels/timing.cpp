#include "timing.h"

#include <chrono>
#include <cstdio>
#include <limits>

#include "reference.h"
#include "run.h"

namespace pkv::kernels::test {

namespace {

constexpr uint32_t timed_dim = 128, timed_heads = 4;

using pkv::test::name_of;

// Returns the time of the fastest run within a fifth of a second.
template <class Run>
double seconds(const Run& run) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity(), total = 0;
  while (total < 0.2) {
    const auto start = Clock::now();
    run();
    const double one = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, one);
    total += one;
  }
  return best;
}

// Attention of the last queries of a sequence, by attend() alone.
struct Timed {
  Timed(pkv_dtype dtype, uint32_t kv_heads, uint32_t queries, uint64_t length, Random& random)
      : sequence({PKV_LAYOUT_PACKED, dtype, dtype, kv_heads, timed_heads, timed_dim, timed_dim, 16,
                  true, false, length},
                 random, 0),
        call(call_of(sequence.shape, length - queries, queries, {0, length})) {
    sequence.fill(random);
    q = random_queries(sequence.shape, queries, random);
  }

  double run(const Table& kernels) {
    Part part(kernels, sequence, call, call.begin(), call.end(), q);
    return seconds([&] { part.attend(); });
  }

  // Returns the stored bytes of K and V of a token: elements and scales.
  double bytes_per_token() const {
    double bytes = 0;
    for (const Side side : sides) {
      const unsigned scale_bits =
          sequence.scales(side) == 0 ? 0 : bits_of(sequence.scale_dtype(side));
      bytes += sequence.shape.kv_heads *
               (timed_dim * bits_of(sequence.dtype(side)) + sequence.scales(side) * scale_bits) /
               8.0;
    }
    return bytes;
  }

  double visible_pairs() const {  // Pairs of a query head and a token that it sees.
    double tokens = 0;
    for (uint32_t i = 0; i < call.queries; i++) tokens += static_cast<double>(call.view(i).end);
    return tokens * timed_heads * sequence.shape.kv_heads;
  }

  Sequence sequence;
  Call call;
  std::vector<float> q;
};

}  // namespace

void print_times() {
  constexpr uint64_t decode_tokens = 4096, prefill_tokens = 1024;
  constexpr uint32_t decode_heads = 8, prefill_queries = 128;
  std::printf(
      "decode: 1 query, %llu tokens, %u KV heads; prefill: the last %u queries of %llu tokens, 1 "
      "KV head\n",
      (unsigned long long)decode_tokens, decode_heads, prefill_queries,
      (unsigned long long)prefill_tokens);
  std::printf("%u query heads per KV head, dim %u, packed; GFLOP/s of what causal queries see\n",
              timed_heads, timed_dim);
  std::printf("%-14s %-9s %16s %10s %17s\n", "isa", "dtype", "decode ns/token", "GB/s",
              "prefill GFLOP/s");
  for (const pkv_dtype dtype : stored_dtypes) {
    Random random(61);
    Timed decode(dtype, decode_heads, 1, decode_tokens, random),
        prefill(dtype, 1, prefill_queries, prefill_tokens, random);
    for (const NamedTable& table : tables()) {
      const double token = decode.run(*table.kernels) / decode_tokens;
      const double flops = 4.0 * timed_dim * prefill.visible_pairs() / prefill.run(*table.kernels);
      std::printf("%-14s %-9s %16.1f %10.2f %17.2f\n", table.name, name_of(dtype), token * 1e9,
                  decode.bytes_per_token() / token * 1e-9, flops * 1e-9);
    }
  }
}

}  // namespace pkv::kernels::test
