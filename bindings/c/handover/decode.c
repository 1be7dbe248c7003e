#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roles.h"

enum { FRAMES_A_STEP = 16 };

/* A step of a prompt whose layers are arriving. */
typedef struct arrival {
  stream* from;
  pkv_batch batch; /* NULL: none is open */
  frame_rows next; /* what has to come next */
  size_t missing;  /* prompts whose first token is not here */
} arrival;

static void take(text* t, int32_t token) {
  const double now = seconds();
  if (t->length == t->prompt)
    t->first = now - t->asked;
  else if (now - t->last > t->longest)
    t->longest = now - t->last;
  t->last = now;
  t->tokens[t->length++] = token;
  t->running = true;
}

/* Writes the layers of a frame; the last layer ends the step. Returns NULL, or what is wrong. */
static const char* take_rows(machine* m, arrival* a, const frame* got, size_t count, text* texts) {
  frame_rows rows;
  const char* wrong = check_rows(got, &m->shape, &rows);
  if (wrong != NULL) return wrong;
  if (rows.request >= count || texts[rows.request].length != texts[rows.request].prompt)
    return "rows that nobody asked for";
  text* t = &texts[rows.request];
  if (a->batch == NULL) {
    if (rows.first_layer != 0 || rows.first != t->held || rows.count > t->prompt - t->held)
      return "rows that do not follow those before";
    if (m->lib.batch_begin(m->cache, 1, &t->session, &rows.count, NULL, &a->batch) != PKV_OK)
      return m->lib.last_error();
    a->next = rows;
  }
  if (rows.request != a->next.request || rows.first != a->next.first ||
      rows.count != a->next.count || rows.first_layer != a->next.first_layer)
    return "layers that do not follow those before";
  const size_t floats = rows.count * m->model.kv_dim;
  float* aligned = new_array(2 * floats * rows.layers, sizeof *aligned);
  memcpy(aligned, got->body + sizeof rows, 2 * floats * rows.layers * sizeof *aligned);
  for (uint32_t i = 0; i < rows.layers && wrong == NULL; i++) {
    const pkv_tensor k = {.data = aligned + 2 * i * floats, .dtype = PKV_F32};
    const pkv_tensor v = {.data = aligned + (2 * i + 1) * floats, .dtype = PKV_F32};
    if (m->lib.batch_write(a->batch, rows.first_layer + i, &k, &v) != PKV_OK)
      wrong = m->lib.last_error();
  }
  free(aligned);
  if (wrong != NULL) return wrong;
  a->next.first_layer += rows.layers;
  if (a->next.first_layer < m->shape.layers) return NULL;
  if (m->lib.batch_commit(a->batch, t->tokens + t->held) != PKV_OK) return m->lib.last_error();
  a->batch = NULL;
  t->held += rows.count;
  return NULL;
}

static const char* take_token(machine* m, arrival* a, const frame* got, size_t count, text* texts) {
  int32_t said[2];
  if (got->size != sizeof said) return "a first token of the wrong size";
  memcpy(said, got->body, sizeof said);
  if (said[0] < 0 || (size_t)said[0] >= count) return "a first token that nobody asked for";
  text* t = &texts[said[0]];
  if (t->running || t->length != t->prompt || t->held != t->prompt || a->batch != NULL)
    return "a first token before all rows";
  if (said[1] < 0 || (size_t)said[1] >= m->model.vocabulary) return "a token beyond the vocabulary";
  a->missing--;
  take(t, said[1]);
  return NULL;
}

/* The connection has ended: undoes the step whose layers did not all arrive. */
static void go_on_alone(machine* m, arrival* a, const char* why) {
  fprintf(stderr, "pkv-handover: continues alone: %s\n", why);
  if (a->batch != NULL) check(m, m->lib.batch_abort(a->batch), "abort");
  stream_close(a->from);
  memset(a, 0, sizeof *a);
}

/* Takes frames that arrive within the time, but only some, so that running texts do not wait long.
 * False: nothing arrived. */
static bool receive(machine* m, arrival* a, int timeout_ms, size_t count, text* texts) {
  frame got;
  int found;
  int left = FRAMES_A_STEP;
  while (a->from != NULL && left > 0 && (found = stream_receive(a->from, timeout_ms, &got)) != 0) {
    const char* wrong = NULL;
    char sentence[200];
    if (found < 0)
      wrong = stream_error(a->from);
    else if (got.kind == FRAME_ROWS)
      wrong = take_rows(m, a, &got, count, texts);
    else if (got.kind == FRAME_TOKEN)
      wrong = take_token(m, a, &got, count, texts);
    else {
      const int begun = snprintf(sentence, sizeof sentence, "the other end refuses: ");
      const size_t size = got.size < 150 ? got.size : 150;
      for (size_t i = 0; i < size; i++) /* a terminal gets no commands from strangers */
        sentence[begun + (int)i] =
            (char)(got.body[i] < 32 || got.body[i] > 126 ? '?' : got.body[i]);
      sentence[begun + (int)size] = 0;
      wrong = got.kind == FRAME_REFUSED ? sentence : "a frame that does not belong here";
    }
    if (wrong != NULL) go_on_alone(m, a, wrong);
    left--;
    timeout_ms = 0;
  }
  return left < FRAMES_A_STEP;
}

static void ask(arrival* a, uint32_t request, text* t) {
  const frame_prompt head = {request, (uint32_t)t->prompt, t->held, 0};
  const void* tokens = t->tokens;
  const size_t size = t->prompt * sizeof *t->tokens;
  stream_send(a->from, FRAME_PROMPT, &head, sizeof head, 1, &tokens, &size);
  a->missing++;
}

/* One token of each running text and, without another process, a chunk of the next prompt. */
static void step(machine* m, bool alone, size_t count, text* texts, size_t most) {
  part parts[MOST_TEXTS];
  text* of[MOST_TEXTS];
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (texts[i].running) {
      of[n] = &texts[i];
      parts[n++] = (part){texts[i].session, &texts[i].tokens[texts[i].held], 1, texts[i].held, 0};
    }
  for (size_t i = 0; i < count && alone; i++)
    if (!texts[i].running && texts[i].length == texts[i].prompt) {
      text* t = &texts[i];
      if (t->held == t->prompt) /* all rows arrived, but no token: compute the last row again */
        check(m, m->lib.session_trim(t->session, --t->held), "trim");
      const size_t left = t->prompt - t->held;
      of[n] = t;
      parts[n++] = (part){t->session, &t->tokens[t->held], left < CHUNK ? left : CHUNK, t->held, 0};
      break;
    }
  if (n == 0) return;
  forward(m, n, parts);
  for (size_t i = 0; i < n; i++) {
    text* t = of[i];
    t->held += parts[i].count;
    if (t->held == t->length) take(t, parts[i].best);
    if (t->length == t->prompt + most) {
      t->running = false;
      check(m, m->lib.session_close(t->session), "a session");
    }
  }
}

void decode_texts(machine* m, const char* address, size_t count, text* texts, size_t most,
                  int patience_ms) {
  arrival a;
  memset(&a, 0, sizeof a);
  if (address != NULL) {
    const char* why;
    const int connection = stream_connect(address, &why);
    if (connection < 0) die(EXIT_BAD_INPUT, "--connect %s: %s", address, why);
    a.from = stream_open(connection, &m->shape, &why);
    if (a.from == NULL) die(EXIT_BAD_INPUT, "--connect %s: %s", address, why);
  }
  for (uint32_t i = 0; i < count; i++) {
    uint64_t held;
    texts[i].session = open_session(m, texts[i].prompt, texts[i].tokens, &held);
    texts[i].held = (size_t)held;
    texts[i].asked = seconds();
    if (a.from != NULL) ask(&a, i, &texts[i]);
  }
  for (size_t left = count; left > 0;) {
    bool running = false;
    for (size_t i = 0; i < count; i++) running = running || texts[i].running;
    if (a.from != NULL) {
      const bool waits = !running && a.missing > 0;
      if (!receive(m, &a, waits ? patience_ms : 0, count, texts) && waits)
        go_on_alone(m, &a, "the other end is silent");
    }
    if (a.from != NULL && a.missing == 0) { /* others may ask now */
      stream_close(a.from);
      a.from = NULL;
    }
    step(m, a.from == NULL, count, texts, most);
    left = 0;
    for (size_t i = 0; i < count; i++) left += texts[i].length < texts[i].prompt + most;
  }
  stream_close(a.from);
}
