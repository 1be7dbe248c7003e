// Formats the metrics of a cache. Dashboards depend on their names and labels, so these stay.
#include "engine/cache/metrics.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "base/printf.h"

namespace pkv {
namespace {

// Writes Prometheus text. begin() starts a metric with its HELP and TYPE lines; each value() adds a
// line to it.
class Metrics {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    add("# HELP pagedkv_%s %s\n# TYPE pagedkv_%s %s\n", name, help, name, type);
  }
  void value(uint64_t value) { add("pagedkv_%s %" PRIu64 "\n", name_, value); }
  void value(const char* label, const char* label_value, uint64_t value) {
    add("pagedkv_%s{%s=\"%s\"} %" PRIu64 "\n", name_, label, label_value, value);
  }
  void value(size_t group, const char* state, uint64_t value) {
    add("pagedkv_%s{group=\"%zu\",state=\"%s\"} %" PRIu64 "\n", name_, group, state, value);
  }
  const std::string& text() const { return text_; }

 private:
  [[PKV_PRINTF(2, 3)]] void add(const char* format, ...) {
    char line[256];
    va_list values;
    va_start(values, format);
    const int length = std::vsnprintf(line, sizeof line, format, values);
    va_end(values);
    text_.append(line, std::min<size_t>(static_cast<size_t>(length), sizeof line - 1));
  }

  const char* name_ = "";
  std::string text_;
};

void add_blocks(const Cache& cache, Metrics& metrics) {
  metrics.begin("blocks", "gauge",
                "Blocks by layer group and state; evictable ones are held by the prefix index "
                "alone, and in_use counts pinned ones as well.");
  for (size_t g = 0; g < cache.groups().size(); g++) {
    const memory::PoolStats pool = cache.groups()[g]->pool.stats();
    const uint64_t evictable = cache.evictable(g);
    metrics.value(g, "free", pool.free);
    metrics.value(g, "evictable", evictable);
    metrics.value(g, "in_use", pool.held - std::min(evictable, pool.held));
    metrics.value(g, "retired", pool.retired);
  }
}

uint64_t held_slots(const Cache& cache) {
  uint64_t slots = 0;
  for (const auto& group : cache.groups()) slots += group->pool.stats().held * group->block_size;
  return slots;
}

void add_prefix(const prefix::Figures& figures, uint64_t block_size, Metrics& metrics) {
  metrics.begin("prefix_tokens_total", "counter",
                "Tokens looked for and found in the prefix index.");
  metrics.value("result", "asked", figures.lookup_tokens);
  metrics.value("result", "matched", figures.matched_tokens);
  metrics.begin("prefix_changed_tokens_total", "counter",
                "Tokens the prefix index published, evicted for memory, expelled by quotas and "
                "cleared.");
  metrics.value("event", "published", figures.published * block_size);
  metrics.value("event", "evicted", figures.evicted * block_size);
  metrics.value("event", "expelled", figures.expelled * block_size);
  metrics.value("event", "cleared", figures.cleared * block_size);
  metrics.begin("prefix_cached_tokens", "gauge", "Tokens in the prefix index.");
  metrics.value(figures.cached * block_size);
  metrics.begin("prefix_pinned_tokens", "gauge", "Tokens pinned in the prefix index.");
  metrics.value(figures.pinned * block_size);
}

}  // namespace

std::string format_metrics(const Cache& cache) {
  const pkv_cache_stats stats = cache.stats();
  Metrics metrics;
  add_blocks(cache, metrics);
  if (stats.pages > 0) {
    metrics.begin("pages", "gauge", "Pages of the memory that the groups share.");
    metrics.value("state", "free", stats.free_pages);
    metrics.value("state", "taken", stats.pages - stats.free_pages);
  }
  metrics.begin("slots", "gauge", "Slots of held blocks, and those with a token.");
  metrics.value("state", "held", held_slots(cache));
  metrics.value("state", "filled", stats.filled_slots);
  metrics.begin("mapped_bytes", "gauge", "Bytes of blocks: K, V and states.");
  metrics.value(stats.mapped_bytes);
  metrics.begin("open", "gauge", "Open objects of the cache.");
  metrics.value("kind", "session", stats.sessions);
  metrics.value("kind", "batch", stats.batches);
  metrics.value("kind", "snapshot", stats.snapshots);
  metrics.begin("suspended_sessions", "gauge", "Sessions suspended now.");
  metrics.value(stats.suspended_sessions);
  metrics.begin("suspensions_total", "counter", "Sessions suspended so far.");
  metrics.value(stats.suspensions);
  metrics.begin("steps_total", "counter", "Batches that ended.");
  metrics.value("end", "commit", stats.commits);
  metrics.value("end", "abort", cache.counters().aborts);
  metrics.begin("tokens_total", "counter", "Tokens committed.");
  metrics.value(stats.committed_tokens);
  metrics.begin("copied_blocks_total", "counter", "Blocks copied on write.");
  metrics.value(stats.copied_blocks);
  metrics.begin("block_io_blocks", "gauge", "Blocks that block_io copies now.");
  metrics.value(stats.block_io_blocks);
  metrics.begin("block_io_failures_total", "counter", "Calls of block_io that failed.");
  metrics.value(stats.block_io_failures);
  if (cache.prefix() != nullptr)
    add_prefix(cache.prefix()->figures(), cache.config().block_size, metrics);
  return metrics.text();
}

}  // namespace pkv
