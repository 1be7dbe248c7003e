/* Keys and values of prompts on their way from the process that computes them to the one that
 * decodes: frames on a socket. bindings/python/examples/handover.py speaks the same protocol.
 *
 * A frame is a head of 16 bytes (magic, version, kind, bytes that follow; little endian) and a
 * body. The receiver checks all of it before it takes memory: the other end may be a stranger,
 * another version or another model. Nothing is encrypted, and anyone who can connect can ask for
 * prompts to be computed, so use it only in a network that you trust, or in a tunnel.
 */
#ifndef PKV_HANDOVER_STREAM_H
#define PKV_HANDOVER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum frame_kind {
  FRAME_HELLO = 1,  /* the shape of the sender's rows: stream_shape */
  FRAME_PROMPT = 2, /* to the process that computes: frame_prompt and the tokens */
  FRAME_ROWS = 3,   /* frame_rows; then of each layer all keys and all values */
  FRAME_TOKEN = 4,  /* request and first token after the prompt, int32; all rows were sent */
  FRAME_REFUSED = 5 /* a sentence */
} frame_kind;

/* Both ends must have the same shape, or rows would be misread. */
typedef struct stream_shape {
  uint32_t layers, kv_heads, key_dim, row_bytes;
  uint64_t fingerprint; /* of the model's weights */
} stream_shape;

typedef struct frame_prompt {
  uint32_t request, count;
  uint64_t cached; /* tokens that the asking cache has */
  uint64_t reserved;
} frame_prompt;

/* Rows of `count` positions from `first` on, in `layers` layers from `first_layer` on. */
typedef struct frame_rows {
  uint32_t request, count;
  uint64_t first;
  uint32_t first_layer, layers;
} frame_rows;

typedef struct frame {
  frame_kind kind;
  size_t size;
  const unsigned char* body; /* until the next frame is received */
} frame;

/* A connection. Its own thread sends, so that layers are computed while others travel; the queue
 * for a slow link is bounded. */
typedef struct stream stream;

/* Opens a socket that listens at HOST:PORT, or connects to it. -1: *why says what failed. */
int stream_listen(const char* address, const char** why);
int stream_connect(const char* address, const char** why);

/* Takes over a connected socket and exchanges HELLO frames. NULL: *why says what failed; the socket
 * is closed. stream_close sends what is queued and closes the socket. */
stream* stream_open(int socket, const stream_shape* shape, const char** why);
void stream_close(stream* s);

/* Queues a frame of a head and `count` parts, which are copied; waits while too much is queued.
 * False: the connection is broken, or the other end has taken nothing for 10 s. */
bool stream_send(stream* s, frame_kind kind, const void* head, size_t head_size, size_t count,
                 const void* const* parts, const size_t* sizes);

/* Waits up to this many milliseconds for a whole frame. 1: it is here; 0: not yet; -1: the
 * connection has ended, and stream_error says why. */
int stream_receive(stream* s, int timeout_ms, frame* out);
const char* stream_error(const stream* s);

/* Checks a received frame against the shape. Returns NULL, or a sentence. */
const char* check_prompt(const frame* f, size_t vocabulary, size_t context, frame_prompt* out);
const char* check_rows(const frame* f, const stream_shape* shape, frame_rows* out);

#endif
