/* A chat and a system prompt go into a file; another process, whose cache has other blocks,
 * continues where they were. */
#include "toy.h"

enum { CHAT = 17, PROMPT = 18 }; /* labels of our own */

static void go_on(pkv_cache cache, pkv_session session, text* t, size_t letters) {
  const text* texts[] = {t};
  for (size_t i = 0; i < letters; i++) {
    float p[1][LETTERS];
    check(toy_forward(cache, 1, &session, texts, p));
    t->tokens[t->length++] = most_likely(p[0]);
  }
}

/* [save] */
static void save(pkv_cache cache, pkv_session chat, pkv_snapshot prompt, const char* path) {
  const pkv_file_item items[] = {{.session = chat, .label = CHAT},
                                 {.snapshot = prompt, .label = PROMPT}};
  /* Stands for a hash of the weights, so that another model refuses the file. */
  const pkv_file_config config = {
      .struct_size = sizeof config, .fingerprint = "toy model 1", .fingerprint_size = 11};
  const pkv_stream file = {.struct_size = sizeof file, .kind = PKV_STREAM_PATH, .path = path};
  check(pkv_file_save(cache, 2, items, &config, &file, NULL)); /* what both share is written once */
}
/* [save end] */

/* [load] */
static pkv_session load(pkv_cache cache, const char* path) {
  const pkv_file_config config = {
      .struct_size = sizeof config, .fingerprint = "toy model 1", .fingerprint_size = 11};
  const pkv_stream file = {.struct_size = sizeof file, .kind = PKV_STREAM_PATH, .path = path};
  pkv_session sessions[8];
  uint64_t labels[8];
  size_t count;
  check(pkv_file_load(cache, &config, &file, 8, sessions, labels,
                      &count)); /* all of them or, with an error, none */
  pkv_session chat = NULL;
  for (size_t i = 0; i < count; i++) {
    uint64_t length;
    check(pkv_session_get_length(sessions[i], &length));
    printf("session %llu: %llu tokens\n", (unsigned long long)labels[i],
           (unsigned long long)length);
    if (labels[i] == CHAT) chat = sessions[i];
  }
  return chat;
}
/* [load end] */

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "chat.pkv";
  pkv_cache_config config = toy_config();
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  text t = {0};
  add(&t, "a sailor went to sea, sea, sea to see what he could see, see, see. but a");
  pkv_session chat;
  check(pkv_session_open(cache, NULL, &chat));
  go_on(cache, chat, &t, 1);
  pkv_snapshot prompt;
  check(pkv_snapshot_take(chat, &prompt)); /* frozen; the session continues */
  go_on(cache, chat, &t, 20);
  save(cache, chat, prompt, path);
  text went_on = t;
  go_on(cache, chat, &went_on, 20);
  print("before the restart: ", &went_on, t.length);
  check(pkv_cache_destroy(cache));

  config.block_size = 32; /* a file fits blocks of any size, and either layout */
  check(pkv_cache_create(&config, &cache));
  chat = load(cache, path);
  go_on(cache, chat, &t, 20);
  print("after it:           ", &t, t.length - 20);
  check(pkv_cache_destroy(cache));
  return memcmp(t.tokens, went_on.tokens, t.length * sizeof *t.tokens) == 0 ? EXIT_SUCCESS
                                                                            : EXIT_FAILURE;
}
