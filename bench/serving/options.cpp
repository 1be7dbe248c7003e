#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

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
Without --trace requests are generated: users come at random, five per second on average; 4 of 5
chat, 1 of 5 asks once. A chat begins with a system prompt of 512 tokens that all share and has 4
turns on average (geometric); before the next turn the user reads 0.03 s per token and thinks for
20 s on average (exponential). Lengths are log-normal, median (sigma): questions 60 (0.8) tokens,
answers 120 (0.7), single prompts 400 (1.0). A turn's prompt is all of the chat before it.

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

void add_options(CLI::App& app, Options& o) {
  const auto positive = between(uint64_t{1}, uint64_t{1} << 40);
  const auto time = between(1e-6, 1e6), cost = between(0.0, 1e6);

  app.add_option("--trace", o.trace, "File to replay: .csv, anything else is JSON lines")
      ->type_name("FILE")
      ->group("Requests");
  app.add_option("--requests", o.requests,
                 "At most so many (default: all of the trace, 300 generated)")
      ->type_name("N")
      ->check(positive)
      ->group("Requests");
  app.add_option("--seed", o.seed, "Of the generator and of texts (1)")
      ->type_name("N")
      ->group("Requests");
  app.add_option("--time-scale", o.time_scale, "Requests come so many times as fast (1)")
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
  app.add_option("--policy", o.policy, "Which cached blocks go first (default)")
      ->type_name("default|lru|lfu")
      ->transform(names<pkv_eviction>({{"default", PKV_EVICTION_DEFAULT},
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
                     "Real time: so many processes compute prompts, --decode others decode, and "
                     "keys and values go over sockets; beside as many that do both")
          ->type_name("N")
          ->check(between(1u, 64u))
          ->group("Engine");
  auto* decode = app.add_option("--decode", o.decode, "... and so many decode")
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
  app.add_option("--threads", o.threads, "That compute attention (all processors)")
      ->type_name("N")
      ->check(between(0u, 1024u))
      ->group("Geometry");

  app.add_flag("--compare", o.compare,
               "Prefix on and off, paged and contiguous, at equal memory, in one table")
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
