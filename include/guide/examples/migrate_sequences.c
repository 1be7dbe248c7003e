/* Sequences by number, with the calls of llama.cpp's llama_memory_* and llama_state_seq_*. */
#include <stdbool.h>

#include "toy.h"

enum { SEQUENCES = 4, LETTERS_MORE = 16 };

/* [memory] */
static pkv_session sequences[SEQUENCES]; /* llama_seq_id is the index */

/* llama_memory_seq_rm(mem, id, p0, -1). It fails if tokens before p0 have left a window. */
static bool seq_rm(int id, uint64_t p0) { return pkv_session_trim(sequences[id], p0) == PKV_OK; }

/* llama_memory_seq_cp(mem, from, to, -1, -1) */
static void seq_cp(int from, int to) {
  check(pkv_session_close(sequences[to]));
  check(pkv_session_fork(sequences[from], &sequences[to])); /* shares blocks, copies none */
}

/* llama_memory_seq_pos_max: -1 if the sequence is empty */
static int64_t seq_pos_max(int id) {
  uint64_t length;
  check(pkv_session_get_length(sequences[id], &length));
  return (int64_t)length - 1;
}
/* [memory end] */

/* [state] */
static const pkv_file_config model = {
    .struct_size = sizeof model, .fingerprint = "toy model 1", .fingerprint_size = 11};

/* llama_state_seq_save_file */
static void seq_save_file(pkv_cache cache, int id, const char* path) {
  const pkv_file_item item = {.session = sequences[id]};
  const pkv_stream file = {.struct_size = sizeof file, .kind = PKV_STREAM_PATH, .path = path};
  check(pkv_file_save(cache, 1, &item, &model, &file, NULL)); /* with the token ids */
}

/* llama_state_seq_load_file */
static size_t seq_load_file(pkv_cache cache, int id, const char* path, size_t capacity,
                            int32_t* tokens) {
  const pkv_stream file = {.struct_size = sizeof file, .kind = PKV_STREAM_PATH, .path = path};
  pkv_session loaded;
  size_t count;
  uint64_t length, label;
  check(pkv_file_load(cache, &model, &file, 1, &loaded, &label, &count));
  check(pkv_session_get_length(loaded, &length));
  if (length > capacity) exit(EXIT_FAILURE);
  check(pkv_session_get_tokens(loaded, 0, length, tokens));
  check(pkv_session_close(sequences[id]));
  sequences[id] = loaded;
  return length;
}
/* [state end] */

/* llama_decode until the text has some more letters. */
static void decode(pkv_cache cache, int id, text* t) {
  const text* texts[] = {t};
  for (int i = 0; i < LETTERS_MORE; i++) {
    float p[1][LETTERS];
    check(toy_forward(cache, 1, &sequences[id], texts, p));
    t->tokens[t->length++] = most_likely(p[0]);
  }
}

static pkv_cache create(void) {
  const pkv_cache_config config = toy_config();
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  for (int id = 0; id < SEQUENCES; id++) check(pkv_session_open(cache, NULL, &sequences[id]));
  return cache;
}

/* Whether sequence 3, which begins empty, gives the same text. */
static bool same_alone(pkv_cache cache, const text* t) {
  text alone = *t;
  alone.length -= LETTERS_MORE;
  check(pkv_session_trim(sequences[3], 0));
  decode(cache, 3, &alone);
  return memcmp(alone.tokens, t->tokens, t->length * sizeof *t->tokens) == 0;
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "seq.pkv";
  pkv_cache cache = create();
  text first = {0}, second = {0};
  add(&first, "she sells sea shells on the sea shore. s");
  second = first;
  decode(cache, 0, &first);
  print("0: ", &first, 0);

  seq_cp(0, 1); /* a second question with the same beginning */
  const size_t shared = 24;
  if (!seq_rm(1, shared) || seq_pos_max(1) != (int64_t)shared - 1) return EXIT_FAILURE;
  second.length = shared;
  add(&second, "a beach. she s");
  decode(cache, 1, &second);
  print("1: ", &second, 0);
  bool same = same_alone(cache, &first) && same_alone(cache, &second);

  seq_save_file(cache, 1, path);
  check(pkv_cache_destroy(cache));
  cache = create();
  text loaded = {0};
  loaded.length = seq_load_file(cache, 2, path, MAX_TEXT, loaded.tokens);
  printf("2: %zu tokens from the file\n", loaded.length);
  loaded.tokens[loaded.length] = second.tokens[loaded.length];
  loaded.length++; /* the last letter was not decoded yet */
  decode(cache, 2, &loaded);
  print("2: ", &loaded, 0);
  same = same && same_alone(cache, &loaded);
  printf("the same text as without these calls: %s\n", same ? "yes" : "no");
  check(pkv_cache_destroy(cache));
  return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
