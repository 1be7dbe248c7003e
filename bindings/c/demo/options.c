#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"

static const char help[] =
    "Generates text with a Llama model for many sessions at once. All keys, values and attention "
    "live in libpagedkv,\n"
    "which is opened at run time.\n"
    "\n"
    "usage: pkv-generate [options]\n"
    "\n"
    "  model\n"
    "    --model FILE         checkpoint in the llama2.c layout (default: the tiny Shakespeare "
    "model that comes with it)\n"
    "    --tokenizer FILE     its tokenizer (default: FILE.tokenizer.bin beside FILE.bin, else "
    "tokenizer.bin there)\n"
    "    --library FILE       libpagedkv (default: $PAGEDKV_LIBRARY, the build tree, the installed "
    "one)\n"
    "  what to generate\n"
    "    --sessions N         sessions at once (default 16, or one per --prompt)\n"
    "    --prompt TEXT        may be repeated; sessions take the prompts in turn (default: "
    "built-in scenes)\n"
    "    --max-tokens N       tokens to generate per session, or per answer in a chat (default "
    "160)\n"
    "    --context N          positions a session may have (default: the model's context)\n"
    "    --temperature T      0, the default, always takes the best token\n"
    "    --top-p P            with a temperature: draw from the likeliest tokens of this "
    "probability (default 0.9)\n"
    "    --seed S             of the draws (default 1)\n"
    "    --chat               talk to the model; its session is kept between turns. /reset, "
    "/stats, /quit. When\n"
    "                         the context is full, the older half of the conversation is "
    "forgotten.\n"
    "  KV cache\n"
    "    --dtype f32|f16|bf16 of stored keys and values (default f32)\n"
    "    --block-size N       tokens per block, a multiple of 16 (default 16)\n"
    "    --blocks N           capacity (default: enough for every session). With fewer, sessions "
    "wait for blocks,\n"
    "                         and the newest is preempted when they run out; its text stays the "
    "same.\n"
    "    --no-prefix          no prefix index: what sessions share is forked, and what is "
    "preempted is computed again\n"
    "    --isa NAME           scalar, sse2, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx, "
    "neon, neon_dot or neon_bf16\n"
    "                         (default: the best there is)\n"
    "    --threads N          that compute attention (default: one per CPU)\n"
    "    --save FILE          at the end, write the conversation (--chat) or what the prefix index "
    "has cached\n"
    "    --store WHERE        keep what sessions leave in a directory or a server "
    "(redis://host:port), and take from\n"
    "                         there what earlier runs left\n"
    "    --load FILE          at the beginning, continue what was saved, instead of computing it "
    "again\n"
    "  scheduling\n"
    "    --chunk N            prompt tokens that one forward pass takes in beside the decode steps "
    "(default 32)\n"
    "    --running N          sessions that hold blocks at once; the others wait (default: all)\n"
    "  output\n"
    "    --compare            run again with plain arrays, and check that the tokens are the "
    "same\n"
    "    --tokens-out FILE    write the generated token ids, one session per line\n"
    "    --json FILE          write the figures of the summary\n"
    "    --quiet              no progress and no texts\n"
    "    --help\n"
    "\n"
    "examples\n"
    "  pkv-generate --prompt 'ROMEO:' --prompt 'JULIET:' --max-tokens 300\n"
    "  pkv-generate --sessions 64 --blocks 200      # memory for a quarter of them: waiting and "
    "preemption\n"
    "  pkv-generate --compare --sessions 32         # the same texts from a paged cache and from "
    "plain arrays\n"
    "  pkv-generate --chat --temperature 0.8        # for example: ROMEO:\n";

/* One row per option. min and max bound a NUMBER; other kinds ignore them. */
typedef enum kind { NUMBER, SEED, REAL, TEXT, FLAG, DTYPE, PROMPT, HELP } kind;
typedef struct rule {
  const char* name;
  kind kind;
  void* target;
  size_t min, max;
} rule;

const char* dtype_name(pkv_dtype dtype) {
  return dtype == PKV_F32 ? "f32" : dtype == PKV_F16 ? "f16" : "bf16";
}

static size_t parse_number(const rule* r, const char* text) {
  char* end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < r->min ||
      value > r->max)
    die(EXIT_BAD_OPTION, "--%s takes a whole number from %zu to %zu, not '%s'", r->name, r->min,
        r->max, text);
  return (size_t)value;
}

static uint64_t parse_seed(const char* text) {
  char* end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
    die(EXIT_BAD_OPTION, "--seed takes a whole number below 2^64, not '%s'", text);
  return value;
}

/* A temperature may be anything from 0 on; a probability ends at max. */
static double parse_real(const rule* r, const char* text) {
  char* end;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= (double)r->min && value <= (double)r->max))
    die(EXIT_BAD_OPTION, "--%s takes a number from %zu to %zu, not '%s'", r->name, r->min, r->max,
        text);
  return value;
}

static pkv_dtype parse_dtype(const char* text) {
  for (pkv_dtype dtype = PKV_F32; dtype <= PKV_BF16; dtype++)
    if (strcmp(text, dtype_name(dtype)) == 0) return dtype;
  die(EXIT_BAD_OPTION, "--dtype takes f32, f16 or bf16, not '%s'", text);
}

static void apply(const rule* r, options* o, const char* value) {
  switch (r->kind) {
    case NUMBER:
      *(size_t*)r->target = parse_number(r, value);
      break;
    case SEED:
      *(uint64_t*)r->target = parse_seed(value);
      break;
    case REAL:
      *(double*)r->target = parse_real(r, value);
      break;
    case TEXT:
      *(const char**)r->target = value;
      break;
    case FLAG:
      *(bool*)r->target = true;
      break;
    case DTYPE:
      *(pkv_dtype*)r->target = parse_dtype(value);
      break;
    case PROMPT:
      o->prompts[o->prompt_count++] = value;
      break;
    case HELP:
      fputs(help, stdout);
      exit(EXIT_SUCCESS);
  }
}

static void check_together(options* o, int argc, char** argv) {
  if (optind < argc)
    die(EXIT_BAD_OPTION, "'%s' is not an option; a prompt goes after --prompt", argv[optind]);
  if (o->block_size % 16 != 0)
    die(EXIT_BAD_OPTION, "--block-size takes a multiple of 16, not %zu", o->block_size);
  if (o->chat && o->compare) die(EXIT_BAD_OPTION, "--chat and --compare exclude each other");
  if (o->chat && (o->prompt_count > 0 || o->tokens_out != NULL || o->json != NULL))
    die(EXIT_BAD_OPTION, "--chat has no use for --prompt, --tokens-out and --json");
  if (o->store != NULL && (o->compare || o->no_prefix))
    die(EXIT_BAD_OPTION, "--store needs the prefix index, and has no use for --compare");
  if ((o->save != NULL || o->load != NULL) && o->compare)
    die(EXIT_BAD_OPTION, "--compare has no use for --save and --load");
  if (o->sessions == 0) o->sessions = o->prompt_count > 0 ? o->prompt_count : 16;
  if (o->sessions < o->prompt_count)
    die(EXIT_BAD_OPTION, "--sessions %zu is less than the %zu prompts", o->sessions,
        o->prompt_count);
  if (o->running == 0 || o->running > o->sessions) o->running = o->sessions;
}

options options_parse(int argc, char** argv) {
  enum { MANY = 1 << 20, HUGE_COUNT = 1 << 30 };
  options o = {.model = PKV_DEFAULT_MODEL,
               .dtype = PKV_F32,
               .max_tokens = 160,
               .chunk = 32,
               .block_size = 16,
               .temperature = 0,
               .top_p = 0.9,
               .seed = 1};
  const rule rules[] = {
      {"model", TEXT, &o.model, 0, 0},
      {"tokenizer", TEXT, &o.tokenizer, 0, 0},
      {"library", TEXT, &o.library, 0, 0},
      {"sessions", NUMBER, &o.sessions, 1, 4096},
      {"prompt", PROMPT, NULL, 0, 0},
      {"max-tokens", NUMBER, &o.max_tokens, 1, MANY},
      {"context", NUMBER, &o.context, 2, MANY},
      {"temperature", REAL, &o.temperature, 0, 100},
      {"top-p", REAL, &o.top_p, 0, 1},
      {"seed", SEED, &o.seed, 0, 0},
      {"chat", FLAG, &o.chat, 0, 0},
      {"dtype", DTYPE, &o.dtype, 0, 0},
      {"block-size", NUMBER, &o.block_size, 16, 256},
      {"blocks", NUMBER, &o.blocks, 1, HUGE_COUNT},
      {"isa", TEXT, &o.isa, 0, 0},
      {"threads", NUMBER, &o.threads, 1, 1024},
      {"chunk", NUMBER, &o.chunk, 1, 4096},
      {"running", NUMBER, &o.running, 1, 4096},
      {"no-prefix", FLAG, &o.no_prefix, 0, 0},
      {"compare", FLAG, &o.compare, 0, 0},
      {"tokens-out", TEXT, &o.tokens_out, 0, 0},
      {"json", TEXT, &o.json, 0, 0},
      {"save", TEXT, &o.save, 0, 0},
      {"load", TEXT, &o.load, 0, 0},
      {"store", TEXT, &o.store, 0, 0},
      {"quiet", FLAG, &o.quiet, 0, 0},
      {"help", HELP, NULL, 0, 0},
  };
  enum { RULES = sizeof rules / sizeof *rules };
  struct option names[RULES + 1];
  memset(names, 0, sizeof names);
  for (int i = 0; i < RULES; i++) {
    names[i].name = rules[i].name;
    names[i].has_arg =
        rules[i].kind == FLAG || rules[i].kind == HELP ? no_argument : required_argument;
    names[i].val = i;
  }

  o.prompts = new_array((size_t)argc, sizeof *o.prompts);
  for (int i; (i = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (i == '?') exit(EXIT_BAD_OPTION); /* getopt has said what is wrong */
    apply(&rules[i], &o, optarg);
  }
  check_together(&o, argc, argv);
  return o;
}

void options_free(options* o) { free(o->prompts); }
