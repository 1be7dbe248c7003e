#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "workloads/kinds.h"

namespace pkv::serve {

namespace {

const char* const description =
    "Replays a trace of requests through continuous batching on libpagedkv and shows what paging "
    "and prefix reuse gain.\n\n"
    "Each step decodes one token of every running session and prefills chunks of those that are "
    "behind; requests start in order\n"
    "of arrival if their prompt fits. When blocks run out, the sessions that the library chooses "
    "are suspended and resumed later.\n"
    "Time is simulated: it advances by the time that a step took, or by a cost model.";

const char* const examples = R"(
Traces: JSON lines like Mooncake's (timestamp in ms, input_length, output_length, hash_ids: one per
512 tokens); a CSV like Azure's (TIMESTAMP,ContextTokens,GeneratedTokens; nothing is shared).
Without --trace requests are generated. In `chats` users come at random, five per second on average;
4 of 5 chat, 1 of 5 asks once. A chat begins with a system prompt of 512 tokens that all chats share
and has 4 turns on average (geometric); before the next turn the user reads 0.03 s per token and
thinks for 20 s on average (exponential). Lengths are log-normal, median (sigma): questions 60 (0.8)
tokens, answers 120 (0.7), single prompts 400 (1.0). The prompt of a turn is the whole chat before
it. The other workloads:
  agents     a task every 5 s of one of 8 kinds (Zipf 1.0), each with instructions of 4000 (0.4)
             tokens; a question of 300 (0.8), then 14 steps on average, each with the result of a
             tool: 70 % return after 1.5 s with 400 tokens, 22 % after 60 s with 900, and 8 % are
             the user, after 240 s with 60 (all log-normal). The hint is the median of the tool.
  retrieval  every 0.2 s an instruction of 256 tokens, then 2 or 3 of 3,000 documents (Zipf 0.9) of
             1500 (0.6) tokens, where the first one decides which others come, then a question;
             15 % ask again.
  few-shot   every 25 s a batch with examples of 3000 (0.5) tokens and 50 questions on average, one
             each second; 35 % of the batches have one of 12 sets of examples, the others a new one.
  scans      chats; after 1 of 60 users there come 33 documents on average, one each half second,
             of 4000 (0.7) tokens behind an instruction of 200 tokens; each comes once.
  tenants    chats of 40 tenants (Zipf 1.1), each with a system prompt of 800 (0.7) tokens of its
             own; with --policies each has a quota of a tenth of the cache.
  phases     chats, few-shot, scans and agents, one after another, twice.

Examples:
  Chats with real keys and values in a cache of 67 MB:
    pkv-serve
  Prefix reuse on and off, and without paging, in one table:
    pkv-serve --compare --requests 100 --time-scale 10
  Less memory, and four tenants that share nothing:
    pkv-serve --memory 32M --policy lru --salts 4
  An hour of a service in seconds:
    pkv-serve --ids-only --trace conversation.jsonl --blocks 320000 --budget 2048 \
      --time-scale 0.5
  Policies on every workload, and on the half of a trace that was not used for tuning:
    pkv-serve --policies --workload all --json policies.json
    pkv-serve --policies --trace conversation.jsonl --half 2 --capacities 1000,5000,10000,30000
  Pictures of a run in the folder `out`, from a clone (pkv-serve alone leaves serve.json there):
    bash bench/serve --ids-only --time-scale 1.5 --requests 1000 --pictures out

Ctrl-C ends a run with the summary so far.
Exit codes: 0 done, 2 bad input, 130 interrupted, 1 anything else.)";

// The help lists the names by itself.
template <class T>
CLI::Validator names(std::map<std::string, T> values) {
  return CLI::CheckedTransformer(values, CLI::ignore_case).description("");
}

template <class T>
CLI::Validator between(T low, T high) {
  return CLI::Range(low, high).description("");
}

CLI::Validator workload_name() {
  return CLI::Validator(
      [](const std::string& name) {
        return name == "all" || find_workload(name) != nullptr ? std::string()
                                                               : "there is no workload " + name;
      },
      "");
}

// Options that the help shows together.
class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}
  template <class Value>
  CLI::Option* add(const char* option, Value& value, const char* values, const char* help) {
    return app_.add_option(option, value, help)->type_name(values)->group(name_);
  }
  template <class Value>
  CLI::Option* add(const char* option, Value& value, const char* values, const char* help,
                   const CLI::Validator& allowed) {
    return add(option, value, values, help)->transform(allowed);
  }
  void add_flag(const char* option, bool& value, const char* help) {
    app_.add_flag(option, value, help)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* const name_;
};

void add_requests(Group group, Options& o) {
  group.add("--trace", o.trace, "FILE", "File to replay: .csv, anything else is JSON lines");
  group.add("--workload", o.workload, "chats|agents|retrieval|few-shot|scans|tenants|phases|all",
            "Kind of requests to generate, see below (chats); all: --policies", workload_name());
  group.add("--half", o.half, "1|2", "Only the first or the second half of the requests",
            between(1u, 2u));
  group.add("--requests", o.requests, "N",
            "At most this many (default: all of the trace; 300 generated, or 3,000 and more with "
            "--policies)",
            between(uint64_t{1}, uint64_t{1} << 40));
  group.add("--seed", o.seed, "N", "Seed of the generator and of texts (1)");
  group.add("--time-scale", o.time_scale, "X", "Requests come this many times as fast (1)",
            between(1e-6, 1e6));
  group.add("--salts", o.salts, "N", "Number of tenants, who share nothing with each other (1)",
            between(1u, 1u << 20));
}

void add_cache(Group group, Options& o) {
  auto* blocks = group.add("--blocks", o.blocks, "N", "Capacity in blocks (2048)",
                           between(uint64_t{1}, uint64_t{0x7FFFFFFF}));
  group
      .add("--memory", o.memory, "SIZE", "Capacity in bytes, for example 64M or 40G",
           CLI::AsSizeValue(false).description(""))
      ->check(between(uint64_t{1}, uint64_t{1} << 40))
      ->excludes(blocks);
  group.add("--block-size", o.block_size, "N", "Tokens per block: a multiple of 16, to 256 (16)");
  group.add("--policy", o.policy, "learned|lru", "Policy that evicts cached blocks (learned)",
            names<pkv_eviction>({{"learned", PKV_EVICTION_LEARNED}, {"lru", PKV_EVICTION_LRU}}));
  group.add("--prefix", o.setup.prefix, "on|off", "Reuse of what ended sessions computed (on)",
            names<bool>({{"on", true}, {"off", false}}));
  group.add(
      "--reserve", o.setup.reserve, "none|longest|oracle",
      "What a session reserves: nothing, or as without paging and prefix reuse, the longest "
      "text or its own length (none)",
      names<Reserve>(
          {{"none", Reserve::none}, {"longest", Reserve::longest}, {"oracle", Reserve::oracle}}));
  group.add("--context", o.context, "N", "Longest text that is allowed (that of the trace)",
            between(uint64_t{1}, uint64_t{1} << 40));
  group.add("--watermark", o.watermark, "X",
            "Part of the blocks that new sessions leave free (0.01)", between(0.0, 0.9));
}

void add_engine(Group group, Options& o) {
  const auto cost = between(0.0, 1e6);
  group.add("--budget", o.budget, "N", "Prefill tokens per step (512)", between(1u, 1u << 20));
  group.add("--running", o.running, "N", "Sessions that run at once, at most (256)",
            between(1u, 1u << 16));
  group.add_flag("--ids-only", o.ids_only,
                 "Block ids only, no keys and values: an hour in seconds");
  group.add_flag("--modelled", o.modelled,
                 "Time from the cost model although keys and values are real");
  group.add("--step-ms", o.step_ms, "X", "Cost model: milliseconds per step (8)", cost);
  group.add("--prefill-ms", o.prefill_ms, "X", "... and per prefill token (0.02)", cost);
  group.add("--decode-ms", o.decode_ms, "X", "... and per decode token (0.05)", cost);
}

void add_geometry(Group group, Options& o) {
  const auto count = between(1u, 1024u);
  group.add("--layers", o.layers, "N", "Layers (4)", count);
  group.add("--query-heads", o.query_heads, "N", "Query heads (8)", count);
  group.add("--kv-heads", o.kv_heads, "N", "KV heads (2)", count);
  group.add("--dim", o.dim, "N", "Dims of a head: a multiple of 16, to 576 (64)");
  group.add("--dtype", o.dtype, "f32|f16|bf16|int8|int4", "Type of stored keys and values (bf16)",
            names<pkv_dtype>({{"f32", PKV_F32},
                              {"f16", PKV_F16},
                              {"bf16", PKV_BF16},
                              {"int8", PKV_INT8},
                              {"int4", PKV_INT4}}));
  group.add("--threads", o.threads, "N", "Threads that compute attention (all CPUs)",
            between(0u, 1024u));
}

void add_output(Group group, Options& o) {
  group.add_flag("--compare", o.compare,
                 "Prefix on and off, and reserved, at equal memory, in one table");
  group.add_flag(
      "--policies", o.compare_policies,
      "No engine: a table of the blocks that each policy of eviction finds, beside the bound "
      "(Belady)");
  group
      .add("--capacities", o.capacities, "N,N,...",
           "Sizes of the cache for --policies, in blocks of the trace's hash ids (512 tokens), or "
           "else of 64 tokens (1/200 to 1/2 of all)",
           between(uint64_t{2}, uint64_t{1} << 24))
      ->delimiter(',');
  group.add("--json", o.json, "FILE", "File for all figures");
  group.add("--pictures", o.pictures, "DIR",
            "Folder for pictures, SVG and PNG; includes --compare");
  group.add_flag("--quiet", o.quiet, "No progress");
}

}  // namespace

bool parse(int argc, char** argv, Options& options) {
  CLI::App app(description, "pkv-serve");
  app.footer(examples);
  app.get_formatter()->column_width(24);
  add_requests({app, "Requests"}, options);
  add_cache({app, "Cache"}, options);
  add_engine({app, "Engine"}, options);
  add_geometry({app, "Geometry"}, options);
  add_output({app, "Output"}, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw InputError(error.what());
  }
  if (options.workload == "all" && !options.compare_policies)
    throw InputError("--workload all needs --policies");
  if (!options.capacities.empty() && !options.compare_policies)
    throw InputError("--capacities needs --policies");
  Setup& setup = options.setup;
  if (setup.reserve != Reserve::none) setup.prefix = false;
  setup.name = setup.reserve == Reserve::longest  ? "reserved, longest"
               : setup.reserve == Reserve::oracle ? "reserved, oracle"
               : setup.prefix                     ? "prefix on"
                                                  : "prefix off";
  options.compare = options.compare || !options.pictures.empty();
  options.modelled = options.modelled || options.ids_only;
  if (options.blocks == 0 && options.memory == 0) options.blocks = 2048;
  return true;
}

}  // namespace pkv::serve
