#include "table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../figures.h"
#include "replay.h"

namespace pkv::serve {

namespace {

struct Row {
  const char* name;
  std::function<Saved(const Blocks&, uint64_t)> replay;
};

Row library(const char* name, const LibraryPolicy& policy) {
  return {name, [policy](const Blocks& blocks, uint64_t capacity) {
            return replay_library(blocks, capacity, policy);
          }};
}

std::vector<Row> rows_for(const Blocks& blocks) {
  std::vector<Row> rows{
      library("default", {}),
      library("LRU", {PKV_EVICTION_LRU}),
      library("default, by time", {PKV_EVICTION_LEARNED, true}),
  };
  if (std::any_of(blocks.texts.begin(), blocks.texts.end(),
                  [](const Text& text) { return text.expected_return > 0; }))
    rows.push_back(library("default, with hints", {PKV_EVICTION_LEARNED, false, true}));
  rows.push_back({"bound", find_bound});
  return rows;
}

// Round numbers from a two-hundredth of all blocks to a half.
std::vector<uint64_t> capacities_for(const Blocks& blocks) {
  std::vector<uint64_t> capacities;
  for (const double part : {200.0, 50.0, 20.0, 8.0, 2.0}) {
    const double exact = std::max(50.0, static_cast<double>(blocks.distinct) / part);
    const double unit = std::pow(10.0, std::floor(std::log10(exact)) - 1);
    const auto rounded = static_cast<uint64_t>(std::round(exact / unit) * unit);
    if (capacities.empty() || rounded > capacities.back()) capacities.push_back(rounded);
  }
  return capacities;
}

double share_of_blocks(const Saved& saved, const Blocks& blocks) {
  return Figures::ratio(static_cast<double>(saved.blocks),
                        static_cast<double>(blocks.asked.blocks));
}

}  // namespace

nlohmann::json compare_policies(const Trace& trace, std::vector<uint64_t> capacities,
                                const std::function<void()>& progress) {
  const Blocks blocks = blocks_of_trace(trace);
  if (capacities.empty()) capacities = capacities_for(blocks);
  nlohmann::json result{{"workload", trace.name},
                        {"requests", trace.requests.size()},
                        {"block_tokens", blocks.tokens},
                        {"asked_blocks", blocks.asked.blocks},
                        {"distinct_blocks", blocks.distinct},
                        {"capacities", capacities},
                        {"rows", nlohmann::json::array()}};
  for (const Row& row : rows_for(blocks)) {
    nlohmann::json shares{{"policy", row.name}};
    for (const uint64_t capacity : capacities) {
      const Saved saved = row.replay(blocks, capacity);
      shares["blocks"].push_back(share_of_blocks(saved, blocks));
      shares["time"].push_back(Figures::ratio(saved.time, blocks.asked.time));
      shares["tokens"].push_back(saved.blocks * blocks.tokens);
    }
    result["rows"].push_back(shares);
    progress();
  }
  return result;
}

std::string policy_table(const nlohmann::json& comparison) {
  const auto& capacities = comparison.at("capacities");
  std::string text = format(
      "\n%s: %zu requests for %zu blocks of %u tokens, %zu of them different\n"
      "%% of prompt blocks found / %% of prefill time saved, by capacity in blocks\n\n%-22s",
      comparison.at("workload").get<std::string>().c_str(), comparison.at("requests").get<size_t>(),
      comparison.at("asked_blocks").get<size_t>(), comparison.at("block_tokens").get<uint32_t>(),
      comparison.at("distinct_blocks").get<size_t>(), "");
  for (const auto& capacity : capacities) text += format("%15zu", capacity.get<size_t>());
  text += '\n';
  for (const auto& row : comparison.at("rows")) {
    text += format("%-22s", row.at("policy").get<std::string>().c_str());
    for (size_t i = 0; i < capacities.size(); i++)
      text += format("   %5.2f / %5.2f", 100 * row.at("blocks")[i].get<double>(),
                     100 * row.at("time")[i].get<double>());
    text += '\n';
  }
  return text;
}

nlohmann::json hits_by_capacity(const Trace& trace) {
  const Blocks blocks = blocks_of_trace(trace);
  nlohmann::json result{{"block_tokens", blocks.tokens},
                        {"asked_blocks", blocks.asked.blocks},
                        {"distinct_blocks", blocks.distinct}};
  const std::pair<const char*, Row> rows[] = {{"default", library("", {})},
                                              {"lru", library("", {PKV_EVICTION_LRU})},
                                              {"belady", {"", find_bound}}};
  for (uint64_t capacity = 100; capacity < 4 * blocks.distinct; capacity *= 10)
    for (const uint64_t c : {capacity, 2 * capacity, 5 * capacity}) {
      if (c >= 2 * blocks.distinct) continue;
      result["capacities"].push_back(c);
      for (const auto& [name, row] : rows)
        result[name].push_back(share_of_blocks(row.replay(blocks, c), blocks));
    }
  return result;
}

}  // namespace pkv::serve
