#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "roles.h"

/* Rows that this side had cached and the other end lacks. */
static void send_cached(machine* m, pkv_session session, uint64_t first, uint64_t end) {
  if (first >= end) return;
  m->rows = (size_t)(end - first);
  m->position = first;
  float* k = new_array(2 * m->rows * m->model.kv_dim, sizeof *k);
  float* v = k + m->rows * m->model.kv_dim;
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  for (uint32_t layer = 0; layer < m->model.layers && !m->lost; layer++) {
    check(m, m->lib.session_read(session, layer, first, m->rows, &keys, &values), "read");
    send_layer(m, layer, k, v);
  }
  free(k);
}

/* Computes a prompt from `first` on: where the other end's cache ends, or earlier. */
static void compute(machine* m, stream* to, const frame_prompt* prompt, const int32_t* tokens) {
  uint64_t done;
  pkv_session session = open_session(m, prompt->count, tokens, &done);
  m->to = to;
  m->request = prompt->request;
  m->lost = false;
  send_cached(m, session, prompt->cached, done);
  int32_t best = 0;
  while (done < prompt->count && !m->lost) {
    /* A chunk ends where the other end's cache ends, so that the other end wants all rows of a
     * frame or none. */
    const bool wanted = done >= prompt->cached;
    uint64_t count = (wanted ? prompt->count : prompt->cached) - done;
    if (count > CHUNK) count = CHUNK;
    part next = {session, tokens + done, (size_t)count, (size_t)done, 0};
    m->to = wanted ? to : NULL;
    forward(m, 1, &next);
    best = next.best;
    done += count;
  }
  m->to = NULL;
  const int32_t first_token[2] = {(int32_t)prompt->request, best};
  if (!m->lost) stream_send(to, FRAME_TOKEN, first_token, sizeof first_token, 0, NULL, NULL);
  check(m, m->lib.session_close(session), "a session");
}

static void serve_one(machine* m, int connection, int patience_ms) {
  const char* why = NULL;
  stream* s = stream_open(connection, &m->shape, &why);
  frame got;
  while (s != NULL && why == NULL) {
    const int found = stream_receive(s, patience_ms, &got);
    if (found == 0) why = "nothing was asked for within --patience, and others wait";
    if (found != 1) break;
    frame_prompt prompt;
    why = check_prompt(&got, m->model.vocabulary, m->model.context, &prompt);
    if (why != NULL) break;
    int32_t* tokens = new_array(prompt.count, sizeof *tokens);
    memcpy(tokens, got.body + sizeof prompt, prompt.count * sizeof *tokens);
    compute(m, s, &prompt, tokens);
    free(tokens);
  }
  if (why != NULL) {
    fprintf(stderr, "pkv-handover: a connection is ended: %s\n", why);
    if (s != NULL) stream_send(s, FRAME_REFUSED, why, strlen(why), 0, NULL, NULL);
  }
  stream_close(s);
}

void serve_prompts(machine* m, const char* address, size_t connections, int patience_ms) {
  const char* why;
  const int server = stream_listen(address, &why);
  if (server < 0) die(EXIT_BAD_INPUT, "--listen %s: %s", address, why);
  printf("listening at %s\n", address);
  fflush(stdout);
  for (size_t i = 0; connections == 0 || i < connections; i++) {
    const int connection = accept(server, NULL, NULL);
    if (connection >= 0) serve_one(m, connection, patience_ms);
  }
  close(server);
}
