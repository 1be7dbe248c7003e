#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/system.h"
#include "engine.h"
#include "sampler.h"
#include "text.h"

typedef struct chat {
  const options* o;
  const tokenizer* tokenizer;
  engine engine;
  pkv_session session;
  sampler sampler;
  int32_t* tokens; /* [context] the conversation */
  size_t length;   /* tokens known */
  size_t held;     /* of these, in the session */
  size_t context;
} chat;

static void restart_session(chat* c) {
  engine* e = &c->engine;
  engine_check(e, e->lib->session_close(c->session), "closing a session");
  engine_check(e, e->lib->session_open(e->cache, NULL, &c->session), "opening a session");
  c->held = 0;
}

/* Tokens that an answer may need. */
static size_t answer_room(const chat* c) {
  return c->o->max_tokens < c->context / 4 ? c->o->max_tokens : c->context / 4;
}

/* Forgets the older half of the conversation if `added` tokens and an answer do not fit behind it.
 * The rest moves to other positions, so its keys are computed again. */
static void make_room(chat* c, size_t added) {
  const size_t taken = added + answer_room(c);
  if (c->length + taken <= c->context) return;
  const size_t kept = c->context / 2 < c->context - taken ? c->context / 2 : c->context - taken;
  const size_t forgotten = c->length - kept;
  memmove(c->tokens, c->tokens + forgotten, kept * sizeof *c->tokens);
  c->tokens[0] = TOKEN_BEGIN;
  c->length = kept;
  restart_session(c);
  printf("[the context of %zu tokens is full: the oldest %zu are forgotten]\n", c->context,
         forgotten);
}

/* Brings the session up to date with the known tokens. Returns the scores of the next token, or
 * NULL if there was nothing to do. */
static const float* catch_up(chat* c) {
  step part = {NULL, NULL, 0, 0, false, NULL};
  while (c->held < c->length) {
    const size_t pending = c->length - c->held;
    part.session = c->session;
    part.tokens = c->tokens + c->held;
    part.count = pending < c->o->chunk ? pending : c->o->chunk;
    part.position = c->held;
    part.wants_logits = part.count == pending;
    if (!engine_forward(&c->engine, 1, &part))
      die(EXIT_BAD_INPUT, "the conversation does not fit: %s", c->engine.lib->last_error());
    c->held += part.count;
  }
  return part.logits;
}

static int32_t next_token(chat* c) {
  return sampler_next(&c->sampler, catch_up(c), c->engine.model->vocabulary);
}

static void save(chat* c) {
  catch_up(c);
  engine_save(&c->engine, c->o->save, c->session);
}

/* False: the file has no conversation. */
static bool load(chat* c) {
  const engine* e = &c->engine;
  uint64_t length;
  c->session = engine_load(e, c->o->load);
  if (c->session == NULL) return false;
  engine_check(e, e->lib->session_get_length(c->session, &length), "--load");
  if (length > c->context)
    die(EXIT_BAD_INPUT, "--load: the conversation has %llu tokens, the context %zu",
        (unsigned long long)length, c->context);
  engine_check(e, e->lib->session_get_tokens(c->session, 0, (size_t)length, c->tokens), "--load");
  c->length = c->held = (size_t)length;
  return true;
}

/* How many line ends the conversation ends with. */
static size_t final_newlines(const chat* c) {
  size_t count = 0;
  for (size_t i = c->length; i > 0; i--) {
    const piece p = tokenizer_decode(c->tokenizer, TOKEN_END, c->tokens[i - 1]);
    for (size_t j = p.length; j > 0; j--, count++)
      if (p.bytes[j - 1] != '\n') return count;
  }
  return count;
}

/* Whether the last token is line ends and nothing else. */
static bool ends_line_only(const chat* c) {
  const piece p = tokenizer_decode(c->tokenizer, TOKEN_END, c->tokens[c->length - 1]);
  size_t i = 0;
  while (i < p.length && p.bytes[i] == '\n') i++;
  return i == p.length;
}

/* An answer ends with an empty line, as a speech does. Line ends before its first letter are part
 * of the conversation but are not printed: after a plain sentence the model begins with an empty
 * line. */
static void answer(chat* c) {
  bool begun = false;
  for (size_t n = 0; n < c->o->max_tokens && c->length < c->context; n++) {
    const int32_t token = next_token(c);
    c->tokens[c->length++] = token;
    if (token == TOKEN_BEGIN || token == TOKEN_END) break;
    if (!begun && ends_line_only(c)) continue;
    begun = true;
    text_write(stdout, c->tokenizer, c->tokens, c->length - 1, c->length);
    fflush(stdout);
    if (final_newlines(c) >= 2) break;
  }
  if (final_newlines(c) == 0) putchar('\n');
}

/* `line` begins with a line end, which is left out if the conversation already ends with one. */
static void take_turn(chat* c, const char* line, size_t bytes) {
  int32_t* tokens = new_array(tokenizer_bound(bytes), sizeof *tokens);
  const size_t skip = c->length == 0 || final_newlines(c) > 0;
  const size_t count =
      tokenizer_encode(c->tokenizer, line + skip, bytes - skip, c->length == 0, tokens);
  const size_t max_count = c->context - answer_room(c) - 1;
  if (count > max_count) {
    printf("[not sent: the line has %zu tokens, at most %zu fit beside an answer]\n", count,
           max_count);
  } else {
    make_room(c, count);
    memcpy(c->tokens + c->length, tokens, count * sizeof *tokens);
    c->length += count;
    answer(c);
  }
  free(tokens);
}

static void print_stats(chat* c) {
  const engine* e = &c->engine;
  pkv_cache_stats stats = {.struct_size = sizeof stats};
  pkv_pool_stats pool = {.struct_size = sizeof pool};
  engine_check(e, e->lib->cache_get_stats(e->cache, &stats), "stats");
  engine_check(e, e->lib->cache_get_pool_stats(e->cache, 0, &pool), "stats");
  const double slots = (double)(pool.held_blocks * e->info.block_size);
  printf(
      "[%zu of %zu tokens, %zu computed so far, %llu of %llu blocks, %.0f %% of their slots "
      "filled]\n",
      c->length, c->context, e->rows_forwarded, (unsigned long long)pool.held_blocks,
      (unsigned long long)pool.blocks,
      slots > 0 ? 100.0 * (double)stats.filled_slots / slots : 0.0);
}

static void reset(chat* c) {
  restart_session(c);
  c->length = 0;
  puts("[the conversation is forgotten]");
}

/* False: /quit. */
static bool obey(chat* c, const char* command) {
  if (strcmp(command, "/quit") == 0) return false;
  if (strcmp(command, "/reset") == 0) {
    reset(c);
  } else if (strcmp(command, "/stats") == 0) {
    print_stats(c);
  } else {
    puts("[commands: /reset forgets the conversation, /stats tells what it takes, /quit ends]");
  }
  return true;
}

/* Reads a line of stdin and its '\n' into *line, which grows as needed, and ends it with '\0'.
 * Returns its length, 0 at the end of the file. */
static size_t read_line(char** line, size_t* capacity) {
  size_t length = 0;
  for (int c = 0; c != '\n' && (c = read_byte()) != EOF;) {
    *line = grow_array(*line, capacity, length + 2, 1);
    (*line)[length++] = (char)c;
  }
  if (length > 0) (*line)[length] = '\0';
  return length;
}

static void converse(chat* c) {
  const bool interactive = isatty(STDIN_FILENO);
  char *line = NULL, *turn = NULL;
  size_t capacity = 0, turn_capacity = 0;
  for (;;) {
    if (interactive) fputs("> ", stdout);
    fflush(stdout);
    const size_t length = read_line(&line, &capacity);
    if (length == 0) break;
    const size_t bytes = length - (line[length - 1] == '\n');
    line[bytes] = '\0';
    if (line[0] == '/') {
      if (!obey(c, line)) break;
      continue;
    }
    turn = grow_array(turn, &turn_capacity, bytes + 2, 1);
    turn[0] = '\n';
    memcpy(turn + 1, line, bytes);
    turn[bytes + 1] = '\n';
    take_turn(c, turn, bytes + 2);
  }
  if (interactive) putchar('\n');
  free(line);
  free(turn);
}

void chat_run(const options* o, const pkv_dl* lib, const llama2* model, const tokenizer* t,
              size_t context) {
  chat c = {.o = o, .tokenizer = t, .context = context};
  size_t blocks = context / o->block_size + (context % o->block_size != 0);
  if (o->blocks != 0 && o->blocks < blocks) {
    blocks = o->blocks;
    c.context = blocks * o->block_size;
  }
  engine_open(&c.engine, lib, model, o, blocks, 0, 1, o->chunk);
  c.sampler = sampler_new(o->temperature, o->top_p, o->seed, 0);
  c.tokens = new_array(c.context, sizeof *c.tokens);
  if (o->load == NULL || !load(&c))
    engine_check(&c.engine, lib->session_open(c.engine.cache, NULL, &c.session),
                 "opening a session");
  if (!o->quiet)
    printf(
        "%s cache, context of %zu tokens. The model continues what you type, up to\n"
        "an empty line or %zu tokens. Try \"ROMEO:\". Commands: /reset, /stats, /quit.\n",
        dtype_name(o->dtype), c.context, o->max_tokens);
  converse(&c);
  if (o->save != NULL) save(&c);
  free(c.tokens);
  engine_close(&c.engine);
}
