#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/system.h"
#include "text.h"

static const double redraw_seconds = 1.0 / 15, plain_seconds = 1.0;

/* One frame, written at once so that the picture does not flicker. */
typedef struct frame {
  char* bytes;
  size_t length, capacity;
  size_t lines, columns;
} frame;

static void append(frame* f, const char* bytes, size_t length) {
  f->bytes = grow_array(f->bytes, &f->capacity, f->length + length, 1);
  memcpy(f->bytes + f->length, bytes, length);
  f->length += length;
}

/* Formats at most `columns` columns of ASCII. */
static void put(frame* f, size_t columns, const char* format, ...)
    __attribute__((PRINTF_FORMAT(3, 4)));
static void put(frame* f, size_t columns, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const size_t fits = columns < sizeof text - 1 ? columns : sizeof text - 1;
  append(f, text, (size_t)length < fits ? (size_t)length : fits);
}

static void end_line(frame* f) {
  append(f, "\x1b[K\n", 4); /* wipes what an earlier frame left there */
  f->lines++;
}

static void paint(frame* f, const progress* p, const char* code) {
  if (p->colour) append(f, code, strlen(code));
}

static const char* state_name(const sequence* q) {
  if (q->state == SEQUENCE_WAITING) return "waiting";
  if (q->state == SEQUENCE_PREEMPTED) return "preempted";
  if (q->state == SEQUENCE_DONE) return "done";
  return q->length - q->held > 1 ? "prefill" : "running";
}

static const char* state_colour(const sequence* q) {
  if (q->state == SEQUENCE_WAITING) return "\x1b[2m";
  if (q->state == SEQUENCE_PREEMPTED) return "\x1b[31m";
  if (q->state == SEQUENCE_DONE) return "\x1b[1m";
  return q->length - q->held > 1 ? "\x1b[33m" : "\x1b[32m";
}

static void draw_session(frame* f, const progress* p, size_t index) {
  enum { LEFT = 27 };
  const sequence* q = &p->scheduler->sequences[index];
  char tail[1024];
  put(f, f->columns, "%4zu  ", index + 1);
  paint(f, p, state_colour(q));
  put(f, f->columns - 6, "%-9s", state_name(q));
  paint(f, p, "\x1b[0m");
  put(f, f->columns - 15, "%5zu/%-4zu  ", q->length - q->prompt_length,
      q->limit - q->prompt_length);
  if (f->columns > LEFT)
    append(f, tail,
           text_tail(p->tokenizer, q->tokens, 1, q->length, f->columns - LEFT, tail, sizeof tail));
  end_line(f);
}

static pkv_pool_stats pool_stats(const progress* p) {
  const engine* e = p->scheduler->engine;
  pkv_pool_stats stats = {.struct_size = sizeof stats};
  engine_check(e, e->lib->cache_get_pool_stats(e->cache, 0, &stats), "stats");
  return stats;
}

/* '=' for blocks that the prefix index or several sessions hold, '#' for the others in use. */
static void draw_pool(frame* f, const progress* p) {
  const pkv_pool_stats stats = pool_stats(p);
  const size_t width = f->columns > 76 ? (f->columns - 68 < 64 ? f->columns - 68 : 64) : 8;
  const size_t shared =
      (size_t)(((double)stats.shared_blocks / (double)stats.blocks) * (double)width + 0.5);
  const size_t used =
      (size_t)(((double)stats.held_blocks / (double)stats.blocks) * (double)width + 0.5);
  put(f, f->columns, "blocks [");
  for (size_t i = 0; i < width; i++) append(f, i < shared ? "=" : i < used ? "#" : ".", 1);
  put(f, f->columns - 8 - width, "] %llu of %llu, %llu also cached or shared (=)",
      (unsigned long long)stats.held_blocks, (unsigned long long)stats.blocks,
      (unsigned long long)stats.shared_blocks);
  end_line(f);
}

static void draw_heading(frame* f, const progress* p, size_t hidden) {
  const scheduler* s = p->scheduler;
  const run_totals* t = &s->totals;
  paint(f, p, "\x1b[1m");
  put(f, f->columns, "%zu sessions, pass %zu, %.0f tokens/s, %zu preemptions", s->count, t->passes,
      t->decode_seconds > 0 ? (double)t->decode_tokens / t->decode_seconds : 0.0, t->preemptions);
  if (hidden > 0) put(f, f->columns > 60 ? f->columns - 60 : 0, " (%zu not shown)", hidden);
  paint(f, p, "\x1b[0m");
  end_line(f);
}

/* If not all sessions fit, running ones come first. */
static void draw_sessions(frame* f, const progress* p, size_t room) {
  const scheduler* s = p->scheduler;
  size_t busy = 0, drawn = 0;
  for (size_t i = 0; i < s->count; i++) busy += s->sequences[i].state == SEQUENCE_RUNNING;
  size_t idle = busy < room ? room - busy : 0;
  for (size_t i = 0; i < s->count && drawn < room; i++) {
    if (s->sequences[i].state != SEQUENCE_RUNNING) {
      if (idle == 0) continue;
      idle--;
    }
    draw_session(f, p, i);
    drawn++;
  }
}

static void rewind_to_first_line(frame* f, progress* p) {
  char up[32];
  if (p->lines_drawn > 0)
    append(f, up, (size_t)snprintf(up, sizeof up, "\x1b[%zuA\r", p->lines_drawn));
  p->lines_drawn = 0;
}

static void wipe_below(frame* f) { append(f, "\x1b[J", 3); }

static void flush_frame(frame* f) {
  fwrite(f->bytes, 1, f->length, stderr);
  fflush(stderr);
  free(f->bytes);
}

static void draw(progress* p) {
  size_t rows = 24, columns = 80;
  (void)terminal_size(&rows, &columns);
  const size_t room = rows > 4 ? rows - 3 : 1; /* heading, bar, and the line of the cursor */
  const size_t count = p->scheduler->count;
  frame f = {NULL, 0, 0, 0, columns > 20 ? columns - 1 : 19};
  rewind_to_first_line(&f, p);
  draw_heading(&f, p, count > room ? count - room : 0);
  draw_sessions(&f, p, room);
  draw_pool(&f, p);
  wipe_below(&f);
  p->lines_drawn = f.lines;
  flush_frame(&f);
}

static void report_line(progress* p, double now) {
  const scheduler* s = p->scheduler;
  size_t running = 0, done = 0;
  for (size_t i = 0; i < s->count; i++) {
    const sequence* q = &s->sequences[i];
    running += q->state == SEQUENCE_RUNNING;
    done += q->state == SEQUENCE_DONE;
    if (q->state != SEQUENCE_DONE || p->reported[i]) continue;
    p->reported[i] = true;
    fprintf(stderr, "session %zu: done, %zu tokens\n", i + 1, q->length - q->prompt_length);
  }
  if (now - p->last_update < plain_seconds) return;
  p->last_update = now;
  fprintf(stderr, "pass %zu, %zu running, %zu done of %zu, %llu blocks held\n", s->totals.passes,
          running, done, s->count, (unsigned long long)pool_stats(p).held_blocks);
}

void progress_open(progress* p, const scheduler* s, const tokenizer* t, bool silent) {
  const char* kind = getenv("TERM");
  memset(p, 0, sizeof *p);
  p->scheduler = s;
  p->tokenizer = t;
  p->silent = silent;
  p->terminal = isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
  p->colour = p->terminal && getenv("NO_COLOR") == NULL;
  p->reported = new_array(s->count, sizeof *p->reported);
  p->last_update = seconds();
  if (!silent && p->terminal) draw(p);
}

void progress_update(progress* p) {
  if (p->silent) return;
  const double now = seconds();
  if (!p->terminal) {
    report_line(p, now);
  } else if (now - p->last_update >= redraw_seconds) {
    p->last_update = now;
    draw(p);
  }
}

void progress_close(progress* p) {
  if (!p->silent && p->terminal) {
    frame f = {NULL, 0, 0, 0, 0};
    rewind_to_first_line(&f, p);
    wipe_below(&f);
    flush_frame(&f);
  }
  free(p->reported);
}
