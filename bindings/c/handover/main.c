/* pkv-handover: one process computes prompts, another one decodes. Keys and values go through a
 * socket while later layers are still being computed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roles.h"

static const char usage[] =
    "usage: pkv-handover prefill --listen HOST:PORT [--group N] [--connections N]\n"
    "       pkv-handover decode --connect HOST:PORT [--prompt TEXT]...\n"
    "       pkv-handover alone [--prompt TEXT]...\n"
    "\n"
    "  --model FILE      a checkpoint of llama2.c, with FILE.tokenizer.bin beside FILE.bin\n"
    "  --library FILE    libpagedkv\n"
    "  --group N         layers that go into one frame (1); 0: all of them, at the end\n"
    "  --connections N   ends after this many (0: never)\n"
    "  --prompt TEXT     may be repeated; default: some scenes\n"
    "  --max-tokens N    to generate for each (64)\n"
    "  --patience MS     of silence after which `decode` computes the prompts itself, and "
    "`prefill`\n"
    "                    serves the next connection: it serves one at a time (10000)\n"
    "  --tokens-out FILE writes the generated token ids, one text per line\n"
    "\n"
    "Nothing is encrypted: listen on loopback or a network that you trust. Exit codes: 0 done, 1 "
    "bad\n"
    "input or no connection, 2 bad options.\n";

typedef struct handover_options {
  const char *role, *listen, *connect, *model, *library, *tokens_out;
  const char* prompts[MOST_TEXTS];
  size_t count, most, group, connections, patience;
} handover_options;

static size_t number(const char* name, const char* value, size_t largest) {
  char* end;
  errno = 0;
  const unsigned long long parsed = strtoull(value, &end, 10);
  if (*value < '0' || *value > '9' || *end != 0 || errno != 0 || parsed > largest)
    die(EXIT_BAD_OPTION, "%s %s: a number from 0 to %zu is needed", name, value, largest);
  return (size_t)parsed;
}

static handover_options parse(int argc, char** argv) {
  handover_options o;
  memset(&o, 0, sizeof o);
  o.model = PKV_DEFAULT_MODEL;
  o.most = 64, o.group = 1, o.patience = 10000;
  if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    fputs(usage, stdout);
    exit(0);
  }
  if (argc < 2) die(EXIT_BAD_OPTION, "prefill, decode or alone? See --help");
  o.role = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const char* name = argv[i];
    if (i + 1 == argc) die(EXIT_BAD_OPTION, "%s: a value is missing, or see --help", name);
    const char* value = argv[i + 1];
    if (strcmp(name, "--listen") == 0)
      o.listen = value;
    else if (strcmp(name, "--connect") == 0)
      o.connect = value;
    else if (strcmp(name, "--model") == 0)
      o.model = value;
    else if (strcmp(name, "--library") == 0)
      o.library = value;
    else if (strcmp(name, "--tokens-out") == 0)
      o.tokens_out = value;
    else if (strcmp(name, "--group") == 0)
      o.group = number(name, value, 4096);
    else if (strcmp(name, "--connections") == 0)
      o.connections = number(name, value, 1u << 30);
    else if (strcmp(name, "--max-tokens") == 0)
      o.most = number(name, value, 1u << 20);
    else if (strcmp(name, "--patience") == 0)
      o.patience = number(name, value, 1u << 30);
    else if (strcmp(name, "--prompt") != 0)
      die(EXIT_BAD_OPTION, "no option %s: see --help", name);
    else if (o.count == MOST_TEXTS)
      die(EXIT_BAD_OPTION, "more than %d prompts", MOST_TEXTS);
    else
      o.prompts[o.count++] = value;
  }
  return o;
}

static void default_prompts(handover_options* o) {
  static const char* const scenes[] = {
      "ROMEO:\n", "JULIET:\n", "First Citizen:\nBefore we proceed any further, hear me speak.\n",
      ("First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n"
       "First Citizen:\nYou are all resolved rather to die than to famish?\n")};
  o->count = sizeof scenes / sizeof *scenes;
  memcpy(o->prompts, scenes, sizeof scenes);
}

static text make_text(const machine* m, const char* prompt, size_t most) {
  text t;
  memset(&t, 0, sizeof t);
  const size_t bytes = strlen(prompt);
  t.tokens = new_array(tokenizer_bound(bytes) + most, sizeof *t.tokens);
  t.prompt = t.length = tokenizer_encode(&m->words, prompt, bytes, true, t.tokens);
  if (t.prompt + most > m->model.context)
    die(EXIT_BAD_INPUT, "a prompt of %zu tokens and %zu more: the model's context is %zu", t.prompt,
        most, m->model.context);
  return t;
}

static void write_tokens(const char* path, size_t count, const text* texts) {
  FILE* file = fopen(path, "w");
  if (file == NULL) die(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno));
  for (size_t i = 0; i < count; i++)
    for (size_t j = texts[i].prompt; j < texts[i].length; j++)
      fprintf(file, "%d%c", texts[i].tokens[j], j + 1 == texts[i].length ? '\n' : ' ');
  if (fclose(file) != 0) die(EXIT_BAD_INPUT, "%s: %s", path, strerror(errno));
}

static void show(const machine* m, const text* t) {
  for (size_t i = 1; i < t->length; i++) {
    const piece p = tokenizer_decode(&m->words, t->tokens[i - 1], t->tokens[i]);
    fwrite(p.bytes, 1, p.length, stdout);
  }
  printf(
      "\n---- %zu tokens of prompt, the first token after %.1f ms, others at most %.1f ms apart\n",
      t->prompt, 1e3 * t->first, 1e3 * t->longest);
}

int main(int argc, char** argv) {
  handover_options o = parse(argc, argv);
  const bool decodes = strcmp(o.role, "decode") == 0, alone = strcmp(o.role, "alone") == 0;
  if (!decodes && !alone && strcmp(o.role, "prefill") != 0)
    die(EXIT_BAD_OPTION, "%s: prefill, decode or alone?", o.role);
  if (decodes && o.connect == NULL) die(EXIT_BAD_OPTION, "decode needs --connect HOST:PORT");
  if (!decodes && !alone && o.listen == NULL)
    die(EXIT_BAD_OPTION, "prefill needs --listen HOST:PORT");
  if (o.most == 0) die(EXIT_BAD_OPTION, "--max-tokens 0: nothing to do");
  machine m;
  machine_open(&m, o.library, o.model, (uint32_t)o.group);
  if (!decodes && !alone) {
    serve_prompts(&m, o.listen, o.connections, (int)o.patience);
    machine_close(&m);
    return 0;
  }
  if (o.count == 0) default_prompts(&o);
  text texts[MOST_TEXTS];
  for (size_t i = 0; i < o.count; i++) texts[i] = make_text(&m, o.prompts[i], o.most);
  decode_texts(&m, decodes ? o.connect : NULL, o.count, texts, o.most, (int)o.patience);
  if (o.tokens_out != NULL) write_tokens(o.tokens_out, o.count, texts);
  for (size_t i = 0; i < o.count; i++) {
    show(&m, &texts[i]);
    free(texts[i].tokens);
  }
  machine_close(&m);
  return 0;
}
