#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "workloads/kinds.h"

namespace pkv::serve {

namespace {

const char* const description =
    "Replays a trace of requests through continuous batching on libpagedkv and shows what paging "
    "and prefix reuse buy.\n\n"
    "Each step decodes one token of every running session and prefills chunks of those that are "
    "behind; requests start in order\n"
    "of arrival where their prompt fits. When blocks run out, the sessions that the library names "
    "are suspended and resumed later.\n"
    "Time is simulated: it advances by what a step took, or by a cost model.";

const char* const examples = R"(
Traces: JSON lines as of Mooncake (timestamp in ms, input_length, output_length, hash_ids: one per
512 tokens); a CSV as of Azure (TIMESTAMP,ContextTokens,GeneratedTokens; nothing is shared).
Without --trace requests are generated. In `chats` users come at random, five per second on average;
4 of 5 chat, 1 of 5 asks once. A chat begins with a system prompt of 512 tokens that all share and has 4
turns on average (geometric); before the next turn the user reads 0.03 s per token and thinks for
20 s on average (exponential). Lengths are log-normal, median (sigma): questions 60 (0.8) tokens,
answers 120 (0.7), single prompts 400 (1.0). A turn's prompt is all of the chat before it. The other
workloads, in which a client sends what is new to a text of its own as well:
  agents     a task every 5 s of one of 8 kinds (Zipf 1.0), each with instructions of 4000 (0.4)
             tokens; a question of 300 (0.8), then 14 steps on average, each with the result of a
             tool: 70 % return after 1.5 s with 400 tokens, 22 % after 60 s with 900, and 8 % are
             the user, after 240 s with 60 (all log-normal). The hint is the median of the tool.
  retrieval  every 0.2 s an instruction of 256 tokens, then 2 or 3 of 3,000 documents (Zipf 0.9) of
             1500 (0.6) tokens, of which those behind the first one depend on it, then a question;
             15 % ask on.
  few-shot   every 25 s a batch with examples of 3000 (0.5) tokens and 50 questions on average, one
             each second; 35 % of the batches have one of 12 sets of examples, the others a new one.
  scans      chats; after 1 of 60 users there come 33 documents on average, one each half second,
             of 4000 (0.7) tokens behind an instruction of 200; each comes once.
  tenants    chats of 40 tenants (Zipf 1.1), each with a system prompt of 800 (0.7) tokens of its
             own; with --policies each has a quota of a tenth of the cache.
  phases     chats, few-shot, scans and agents, one after another, twice.

Examples:
  Chats with real keys and values in a cache of 67 MB:
    pkv-serve
  Prefix reuse on and off, paged and contiguous, in one table:
    pkv-serve --compare --requests 100 --time-scale 10
  Less memory, and four tenants who share nothing:
    pkv-serve --memory 32M --policy lfu --salts 4
  An hour of a service in seconds:
    pkv-serve --ids-only --trace conversation.jsonl --blocks 320000 --budget 2048 \
      --time-scale 0.5
  Prompts in one process, decoding in another, over loopback sockets, beside two that do both:
    pkv-serve --prefill 1 --decode 1 --requests 60 --time-scale 0.5
  Policies on every workload, and on the half of a trace that nothing was tuned on:
    pkv-serve --policies --workload all --json policies.json
    pkv-serve --policies --trace conversation.jsonl --half 2 --capacities 1000,5000,10000,30000
  Pictures of a run in the folder `out`, from a clone (pkv-serve alone leaves serve.json there):
    bash bench/serve --ids-only --time-scale 1.5 --requests 1000 --pictures out

Ctrl-C ends a run with the summary so far.
Exit codes: 0 done, 2 bad input, 130 interrupted, 1 anything else.)";

// The help tells the names itself.
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

void add_options(CLI::App& app, Options& o) {
  const auto positive = between(uint64_t{1}, uint64_t{1} << 40);
  const auto time = between(1e-6, 1e6), cost = between(0.0, 1e6);

  app.add_option("--trace", o.trace, "File to replay: .csv, anything else is JSON lines")
      ->type_name("FILE")
      ->group("Requests");
  app.add_option("--workload", o.workload, "What is generated, see below (chats); all: --policies")
      ->type_name("chats|agents|retrieval|few-shot|scans|tenants|phases|all")
      ->check(workload_name())
      ->group("Requests");
  app.add_option("--half", o.half, "Only the first or the second half of the requests")
      ->type_name("1|2")
      ->check(between(1u, 2u))
      ->group("Requests");
  app.add_option(
         "--requests", o.requests,
         "At most this many (default: all of the trace; 300 generated, or 3,000 and more with "
         "--policies)")
      ->type_name("N")
      ->check(positive)
      ->group("Requests");
  app.add_option("--seed", o.seed, "Of the generator and of texts (1)")
      ->type_name("N")
      ->group("Requests");
  app.add_option("--time-scale", o.time_scale, "Requests come this many times as fast (1)")
      ->type_name("X")
      ->check(time)
      ->group("Requests");
  app.add_option("--salts", o.salts, "Tenants the requests are spread over; they share nothing (1)")
      ->type_name("N")
      ->check(between(1u, 1u << 20))
      ->group("Requests");

  auto* blocks = app.add_option("--blocks", o.blocks, "Capacity in blocks (2048)")
                     ->type_name("N")
                     ->check(between(uint64_t{1}, uint64_t{0x7FFFFFFF}))
                     ->group("Cache");
  app.add_option("--memory", o.memory, "Capacity in bytes, for example 64M or 40G")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(positive)
      ->excludes(blocks)
      ->group("Cache");
  app.add_option("--block-size", o.block_size, "Tokens per block: a multiple of 16, to 256 (16)")
      ->type_name("N")
      ->group("Cache");
  app.add_option("--policy", o.policy, "Which cached blocks go first (learned)")
      ->type_name("learned|lru|lfu")
      ->transform(names<pkv_eviction>({{"learned", PKV_EVICTION_LEARNED},
                                       {"lru", PKV_EVICTION_LRU},
                                       {"lfu", PKV_EVICTION_LFU}}))
      ->group("Cache");
  app.add_option("--prefix", o.setup.prefix, "Reuse of what ended sessions computed (on)")
      ->type_name("on|off")
      ->transform(names<bool>({{"on", true}, {"off", false}}))
      ->group("Cache");
  app.add_option("--kind", o.setup.kind, "Memory (paged); contiguous is without prefix reuse")
      ->type_name("paged|contiguous")
      ->transform(names<Kind>({{"paged", Kind::paged}, {"contiguous", Kind::contiguous}}))
      ->group("Cache");
  app.add_option(
         "--reserve", o.setup.reserve,
         "What a contiguous session takes: the longest text, or just its own length (longest)")
      ->type_name("longest|oracle")
      ->transform(names<Reserve>({{"longest", Reserve::longest}, {"oracle", Reserve::oracle}}))
      ->group("Cache");
  app.add_option("--context", o.context, "Longest text the service allows (that of the trace)")
      ->type_name("N")
      ->check(positive)
      ->group("Cache");
  app.add_option("--watermark", o.watermark,
                 "Part of the blocks that new sessions leave free (0.01)")
      ->type_name("X")
      ->check(between(0.0, 0.9))
      ->group("Cache");

  app.add_option("--budget", o.budget, "Prefill tokens per step (512)")
      ->type_name("N")
      ->check(between(1u, 1u << 20))
      ->group("Engine");
  app.add_option("--running", o.running, "Sessions that run at once, at most (256)")
      ->type_name("N")
      ->check(between(1u, 1u << 16))
      ->group("Engine");
  app.add_flag("--ids-only", o.ids_only, "Block ids only, no keys and values: an hour in seconds")
      ->group("Engine");
  app.add_flag("--modelled", o.modelled,
               "Time from the cost model although keys and values are real")
      ->group("Engine");
  app.add_option("--step-ms", o.step_ms, "Cost model: milliseconds per step (8)")
      ->type_name("X")
      ->check(cost)
      ->group("Engine");
  app.add_option("--prefill-ms", o.prefill_ms, "... and per prefill token (0.02)")
      ->type_name("X")
      ->check(cost)
      ->group("Engine");
  app.add_option("--decode-ms", o.decode_ms, "... and per decode token (0.05)")
      ->type_name("X")
      ->check(cost)
      ->group("Engine");

  auto* prefill =
      app.add_option("--prefill", o.prefill,
                     "Real time: N processes compute prompts, --decode others decode, and "
                     "keys and values go over sockets; beside as many that do both")
          ->type_name("N")
          ->check(between(1u, 64u))
          ->group("Engine");
  auto* decode = app.add_option("--decode", o.decode, "... and this many decode")
                     ->type_name("M")
                     ->check(between(1u, 64u))
                     ->group("Engine");
  prefill->needs(decode);
  decode->needs(prefill);
  app.add_option("--layers", o.layers, "Layers (4)")
      ->type_name("N")
      ->check(between(1u, 1024u))
      ->group("Geometry");
  app.add_option("--query-heads", o.query_heads, "Query heads (8)")
      ->type_name("N")
      ->check(between(1u, 1024u))
      ->group("Geometry");
  app.add_option("--kv-heads", o.kv_heads, "KV heads (2)")
      ->type_name("N")
      ->check(between(1u, 1024u))
      ->group("Geometry");
  app.add_option("--dim", o.dim, "Of a head: a multiple of 16, to 576 (64)")
      ->type_name("N")
      ->group("Geometry");
  app.add_option("--dtype", o.dtype, "Of stored keys and values (bf16)")
      ->type_name("f32|f16|bf16|int8|int4")
      ->transform(names<pkv_dtype>({{"f32", PKV_F32},
                                    {"f16", PKV_F16},
                                    {"bf16", PKV_BF16},
                                    {"int8", PKV_INT8},
                                    {"int4", PKV_INT4}}))
      ->group("Geometry");
  app.add_option("--threads", o.threads, "That compute attention (all CPUs)")
      ->type_name("N")
      ->check(between(0u, 1024u))
      ->group("Geometry");

  app.add_flag("--compare", o.compare,
               "Prefix on and off, paged and contiguous, at equal memory, in one table")
      ->group("Output");
  app.add_flag("--policies", o.compare_policies,
               "No engine: a table of what each policy of eviction finds, beside those of other "
               "engines and the bound (Belady)")
      ->group("Output");
  app.add_option("--capacities", o.capacities,
                 "Sizes of the cache for --policies, in blocks of the trace's hash ids (512 "
                 "tokens), or else of 64 tokens (1/200 to 1/2 of all)")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(between(uint64_t{2}, uint64_t{1} << 24))
      ->group("Output");
  app.add_option("--json", o.json, "File for all figures")->type_name("FILE")->group("Output");
  app.add_option("--pictures", o.pictures, "Folder for pictures, SVG and PNG; includes --compare")
      ->type_name("DIR")
      ->group("Output");
  app.add_flag("--quiet", o.quiet, "No progress")->group("Output");
}

}  // namespace

bool parse(int argc, char** argv, Options& options) {
  CLI::App app(description, "pkv-serve");
  app.footer(examples);
  app.get_formatter()->column_width(24);
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw InputError(error.what());
  }
  if (options.prefill > 0 && (options.ids_only || options.modelled || options.compare ||
                              !options.pictures.empty() || options.setup.kind == Kind::contiguous))
    throw InputError(
        "--prefill and --decode run in real time on paged keys and values: without --ids-only, "
        "--modelled, --compare, --pictures and --kind contiguous");
  if (options.workload == "all" && !options.compare_policies)
    throw InputError("--workload all needs --policies");
  if (!options.capacities.empty() && !options.compare_policies)
    throw InputError("--capacities needs --policies");
  Setup& setup = options.setup;
  if (setup.kind == Kind::contiguous) setup.prefix = false;
  setup.name = setup.kind == Kind::contiguous ? "contiguous"
               : setup.prefix                 ? "paged, prefix on"
                                              : "paged, prefix off";
  options.compare = options.compare || !options.pictures.empty();
  options.modelled = options.modelled || options.ids_only;
  if (options.blocks == 0 && options.memory == 0) options.blocks = 2048;
  return true;
}

}  // namespace pkv::serve
