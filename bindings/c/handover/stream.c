#include "stream.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../common/util.h"

enum {
  VERSION = 1,
  QUEUE_FRAMES = 4,
  READ_AT_ONCE = 1 << 20,
  SILENCE_MS = 10000 /* to connect, to say hello, and of a send that moves nothing */
};
static const char magic[4] = {'p', 'k', 'v', 'H'};
static const uint64_t longest_frame = (uint64_t)1 << 30;
static const uint32_t longest_text = 1u << 20;

typedef struct frame_head {
  char magic[4];
  uint16_t version, kind;
  uint64_t size;
} frame_head;

typedef struct packet {
  unsigned char* data;
  size_t size;
} packet;

struct stream {
  int socket;
  stream_shape shape;
  char error[200];
  unsigned char* buffer; /* received bytes that are not used yet */
  size_t capacity, filled, used;

  pthread_t sender;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  packet queue[QUEUE_FRAMES]; /* of the frames that wait, the first one is at `head` */
  size_t head, waiting;
  bool closing, broken;
};

/* ---- Sockets */

typedef int use_address(int socket, const struct sockaddr* address, socklen_t size);

static int open_socket(const char* address, bool listens, const char** why) {
  const char* colon = strrchr(address, ':');
  char host[256];
  if (colon == NULL || colon == address || (size_t)(colon - address) >= sizeof host) {
    *why = "an address is HOST:PORT";
    return -1;
  }
  memcpy(host, address, (size_t)(colon - address));
  host[colon - address] = 0;
  struct addrinfo wanted, *found;
  memset(&wanted, 0, sizeof wanted);
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = listens ? AI_PASSIVE : 0;
  const int refused = getaddrinfo(host, colon + 1, &wanted, &found);
  if (refused != 0) {
    *why = gai_strerror(refused);
    return -1;
  }
  int made = -1;
  *why = "nobody is there";
  for (const struct addrinfo* one = found; one != NULL && made < 0; one = one->ai_next) {
    made = socket(one->ai_family, SOCK_STREAM, 0);
    if (made < 0) continue;
    const int yes = 1;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const struct timeval limit = {SILENCE_MS / 1000, 0}; /* connect() obeys it as well */
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    use_address* use = listens ? bind : connect;
    if (use(made, one->ai_addr, one->ai_addrlen) != 0 || (listens && listen(made, 16) != 0)) {
      *why = errno == EINPROGRESS ? "10 s have passed without an answer" : strerror(errno);
      close(made);
      made = -1;
    }
  }
  freeaddrinfo(found);
  return made;
}

int stream_listen(const char* address, const char** why) { return open_socket(address, true, why); }

int stream_connect(const char* address, const char** why) {
  return open_socket(address, false, why);
}

/* ---- Sending */

static bool send_all(int socket, const unsigned char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(socket, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= (size_t)sent;
  }
  return true;
}

static void* send_waiting(void* user) {
  stream* s = user;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (s->waiting == 0 && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
    if (s->waiting == 0) break;
    const packet next = s->queue[s->head];
    const bool broken = s->broken;
    pthread_mutex_unlock(&s->lock);
    const bool sent = !broken && send_all(s->socket, next.data, next.size);
    free(next.data);
    pthread_mutex_lock(&s->lock);
    s->broken = !sent;
    s->head = (s->head + 1) % QUEUE_FRAMES;
    s->waiting--;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

bool stream_send(stream* s, frame_kind kind, const void* head, size_t head_size, size_t count,
                 const void* const* parts, const size_t* sizes) {
  size_t size = head_size;
  for (size_t i = 0; i < count; i++) size += sizes[i];
  packet made = {new_array(1, sizeof(frame_head) + size), sizeof(frame_head) + size};
  frame_head first = {{0}, VERSION, (uint16_t)kind, size};
  memcpy(first.magic, magic, sizeof magic);
  memcpy(made.data, &first, sizeof first);
  unsigned char* at = made.data + sizeof first;
  memcpy(at, head, head_size);
  at += head_size;
  for (size_t i = 0; i < count; at += sizes[i], i++) memcpy(at, parts[i], sizes[i]);

  pthread_mutex_lock(&s->lock);
  while (s->waiting == QUEUE_FRAMES && !s->broken) pthread_cond_wait(&s->changed, &s->lock);
  const bool works = !s->broken;
  if (works) s->queue[(s->head + s->waiting++) % QUEUE_FRAMES] = made;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  if (!works) free(made.data);
  return works;
}

/* ---- Receiving */

const char* stream_error(const stream* s) { return s->error; }

static int fail(stream* s, const char* sentence) {
  if (s->error[0] == 0) snprintf(s->error, sizeof s->error, "%s", sentence);
  return -1;
}

/* 1: a whole frame is in the buffer. */
static int next_frame(stream* s, frame* out) {
  frame_head head;
  if (s->filled - s->used < sizeof head) return 0;
  memcpy(&head, s->buffer + s->used, sizeof head);
  if (memcmp(head.magic, magic, sizeof magic) != 0 || head.version != VERSION)
    return fail(s, "what came is no frame of this version");
  if (head.kind < FRAME_HELLO || head.kind > FRAME_REFUSED || head.size > longest_frame)
    return fail(s, "a frame of an unknown kind, or longer than 1 GiB");
  if (s->filled - s->used - sizeof head < head.size) return 0;
  out->kind = (frame_kind)head.kind;
  out->size = (size_t)head.size;
  out->body = s->buffer + s->used + sizeof head;
  s->used += sizeof head + out->size;
  return 1;
}

int stream_receive(stream* s, int timeout_ms, frame* out) {
  const double end = seconds() + 1e-3 * timeout_ms;
  for (;;) {
    if (s->error[0] != 0) return -1;
    const int found = next_frame(s, out);
    if (found != 0) return found;
    if (s->used > 0) { /* the frames before are no longer needed */
      memmove(s->buffer, s->buffer + s->used, s->filled - s->used);
      s->filled -= s->used;
      s->used = 0;
    }
    struct pollfd ready = {s->socket, POLLIN, 0};
    const double left = end - seconds();
    const int polled = poll(&ready, 1, left > 0 ? 1 + (int)(1e3 * left) : 0);
    if (polled == 0) return 0;
    if (polled < 0 && errno == EINTR) continue;
    /* Memory grows with the bytes that arrived, not with those that were promised. */
    s->buffer = grow_array(s->buffer, &s->capacity, s->filled + READ_AT_ONCE, 1);
    const ssize_t got = recv(s->socket, s->buffer + s->filled, READ_AT_ONCE, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(s, strerror(errno));
    if (got == 0) return fail(s, "the other end closed the connection");
    s->filled += (size_t)got;
  }
}

/* ---- Opening */

stream* stream_open(int socket, const stream_shape* shape, const char** why) {
  static char sentence[260];
  stream* s = new_array(1, sizeof *s);
  s->socket = socket;
  s->shape = *shape;
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const struct timeval limit = {SILENCE_MS / 1000, 0};
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  if (pthread_create(&s->sender, NULL, send_waiting, s) != 0)
    die(EXIT_BAD_INPUT, "no thread can be started");
  frame hello;
  stream_shape other;
  if (!stream_send(s, FRAME_HELLO, shape, sizeof *shape, 0, NULL, NULL) ||
      stream_receive(s, SILENCE_MS, &hello) != 1) {
    snprintf(sentence, sizeof sentence, "the other end says no hello: %s",
             s->error[0] ? s->error : "10 s have passed (it serves one connection at a time)");
  } else if (hello.kind != FRAME_HELLO || hello.size != sizeof other) {
    snprintf(sentence, sizeof sentence, "the other end begins with something else than its shape");
  } else {
    memcpy(&other, hello.body, sizeof other);
    if (memcmp(&other, shape, sizeof other) == 0) return s;
    snprintf(sentence, sizeof sentence,
             "the other end has another model, or stores another type: %u layers, %u KV heads of "
             "%u dims, %u bytes each",
             other.layers, other.kv_heads, other.key_dim, other.row_bytes);
  }
  *why = sentence;
  stream_close(s);
  return NULL;
}

void stream_close(stream* s) {
  if (s == NULL) return;
  pthread_mutex_lock(&s->lock);
  s->closing = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->sender, NULL);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  close(s->socket);
  free(s->buffer);
  free(s);
}

/* ---- Contents of frames */

const char* check_prompt(const frame* f, size_t vocabulary, size_t context, frame_prompt* out) {
  if (f->kind != FRAME_PROMPT || f->size < sizeof *out) return "a prompt was expected";
  memcpy(out, f->body, sizeof *out);
  if (out->count == 0 || out->count > context || out->cached >= out->count ||
      f->size != sizeof *out + sizeof(int32_t) * (size_t)out->count)
    return "a prompt that is empty, longer than the model's context or cached as a whole";
  for (size_t i = 0; i < out->count; i++) {
    int32_t token;
    memcpy(&token, f->body + sizeof *out + i * sizeof token, sizeof token);
    if (token < 0 || (size_t)token >= vocabulary) return "a token that the model does not know";
  }
  return NULL;
}

const char* check_rows(const frame* f, const stream_shape* shape, frame_rows* out) {
  if (f->kind != FRAME_ROWS || f->size < sizeof *out) return "rows were expected";
  memcpy(out, f->body, sizeof *out);
  if (out->count == 0 || out->count > longest_text) return "no rows, or too many";
  if (out->layers == 0 || out->first_layer >= shape->layers ||
      out->layers > shape->layers - out->first_layer)
    return "rows of layers that the model does not have";
  const uint64_t row = (uint64_t)2 * shape->kv_heads * shape->key_dim * shape->row_bytes;
  if (f->size - sizeof *out != row * out->count * out->layers) return "rows cut short";
  return NULL;
}
