#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

static size_t blocks_of(size_t tokens, size_t block_size) {
  return tokens / block_size + (tokens % block_size != 0);
}

static size_t limit_of(const prompts* p, const options* o, size_t context, size_t index) {
  const size_t wanted = p->lengths[index] + o->max_tokens;
  return wanted < context ? wanted : context;
}

/* A prefix shorter than a block would share nothing. */
static size_t root_length(const prompts* p, const options* o) {
  return p->common >= o->block_size ? p->common : 0;
}

size_t scheduler_ample_blocks(const prompts* p, const options* o, size_t context) {
  size_t blocks = blocks_of(root_length(p, o), o->block_size);
  for (size_t i = 0; i < p->count; i++)
    blocks += blocks_of(limit_of(p, o, context, i), o->block_size);
  return blocks;
}

/* ---- Setting up ---- */

sequence sequence_new(const prompts* p, const options* o, size_t context, size_t index) {
  const size_t length = p->lengths[index];
  if (length >= context)
    die(EXIT_BAD_INPUT,
        "prompt %zu has %zu tokens, a session has a context of %zu and must have room for an "
        "answer",
        index + 1, length, context);
  sequence q = {.state = SEQUENCE_WAITING,
                .prompt_length = length,
                .length = length,
                .limit = limit_of(p, o, context, index),
                .sampler = sampler_new(o->temperature, o->top_p, o->seed, index)};
  q.tokens = new_array(q.limit, sizeof *q.tokens);
  memcpy(q.tokens, p->tokens[index], length * sizeof *q.tokens);
  return q;
}

static void check_fits(const scheduler* s, size_t index) {
  const sequence* q = &s->sequences[index];
  const size_t block_size = s->engine->info.block_size, needed = blocks_of(q->limit, block_size);
  if (needed > s->engine->plan.blocks)
    die(EXIT_BAD_INPUT,
        "session %zu can never fit: %zu prompt tokens and %zu more need %zu blocks of %zu, the "
        "cache has %zu",
        index + 1, q->prompt_length, q->limit - q->prompt_length, needed, block_size,
        (size_t)s->engine->plan.blocks);
}

static void open_root(scheduler* s, const prompts* p, size_t length) {
  if (length == 0 || blocks_of(length, s->engine->info.block_size) > s->engine->plan.blocks) return;
  s->root.tokens = p->tokens[0];
  s->root.length = length;
  s->root.state = SEQUENCE_RUNNING;
  engine_check(s->engine, s->engine->lib->session_open(s->engine->cache, NULL, &s->root.session),
               "opening a session");
}

void scheduler_open(scheduler* s, engine* e, const prompts* p, const options* o, size_t context) {
  memset(s, 0, sizeof *s);
  s->engine = e;
  s->count = p->count;
  s->running_limit = o->running;
  s->chunk = o->chunk;
  s->context = context;
  s->sequences = new_array(s->count, sizeof *s->sequences);
  s->steps = new_array(s->count + 1, sizeof *s->steps);
  s->owners = new_array(s->count + 1, sizeof *s->owners);
  for (size_t i = 0; i < s->count; i++) {
    s->sequences[i] = sequence_new(p, o, context, i);
    check_fits(s, i);
  }
  open_root(s, p, root_length(p, o));
  s->start = seconds();
}

static void close_session(scheduler* s, sequence* q) {
  engine_check(s->engine, s->engine->lib->session_close(q->session), "closing a session");
  q->session = NULL;
  q->held = 0;
}

static void close_root(scheduler* s) {
  if (s->root.session != NULL) close_session(s, &s->root);
  s->root.state = SEQUENCE_DONE;
}

static bool has_prefixes(const scheduler* s) { return s->engine->prefixes; }

static pkv_prefix_stats prefix_stats(const scheduler* s) {
  pkv_prefix_stats stats = {.struct_size = sizeof stats};
  if (has_prefixes(s))
    engine_check(s->engine,
                 s->engine->lib->prefix_get_stats(s->engine->cache, NULL, PKV_ALL_SALTS, &stats),
                 "prefix stats");
  return stats;
}

void scheduler_close(scheduler* s) {
  for (size_t i = 0; i < s->count; i++) free(s->sequences[i].tokens);
  free(s->sequences);
  free(s->steps);
  free(s->owners);
}

/* ---- Admission ---- */

static bool root_is_filling(const scheduler* s) {
  return s->root.session != NULL && s->root.held < s->root.length;
}

static pkv_cache_stats cache_stats(const scheduler* s) {
  pkv_cache_stats stats = {.struct_size = sizeof stats};
  engine_check(s->engine, s->engine->lib->cache_get_stats(s->engine->cache, &stats), "stats");
  return stats;
}

/* Blocks that a session with `held` tokens in the cache still needs for all its known tokens and
 * one more. */
static size_t blocks_missing(const scheduler* s, const sequence* q, size_t held) {
  const size_t block_size = s->engine->info.block_size;
  return blocks_of(q->length + 1, block_size) - blocks_of(held, block_size);
}

/* Whether the cache can admit a waiting session beside what the running ones still need for their
 * prompts. How much of the candidate's prompt is cached is not known yet: none is the safe guess.
 * */
static bool has_room(const scheduler* s, const sequence* candidate) {
  size_t needed = blocks_missing(s, candidate, 0);
  for (const sequence* q = s->sequences; q < candidate; q++)
    if (q->state == SEQUENCE_RUNNING) needed += blocks_missing(s, q, q->held);
  const pkv_cache_stats stats = cache_stats(s);
  return needed <= stats.free_blocks + stats.evictable_blocks;
}

/* Takes over what is cached of all its known tokens but the last, whose output it needs. */
static void match_prefix(scheduler* s, sequence* q) {
  const engine* e = s->engine;
  uint64_t matched;
  engine_check(e, e->lib->session_match_prefix(q->session, q->length - 1, q->tokens, &matched),
               "matching a prefix");
  q->held = (size_t)matched;
}

static bool start_session(scheduler* s, sequence* q) {
  const engine* e = s->engine;
  if (has_prefixes(s) || s->root.session == NULL) {
    engine_check(e, e->lib->session_open(e->cache, NULL, &q->session), "opening a session");
    match_prefix(s, q);
  } else {
    const pkv_status status = e->lib->session_fork(s->root.session, &q->session);
    if (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE) return false;
    engine_check(e, status, "fork");
    q->held = s->root.held;
  }
  q->state = SEQUENCE_RUNNING;
  return true;
}

/* Waiting sessions start in order of arrival. One that finds no room holds up those behind it, so
 * that none starves. */
static void admit(scheduler* s) {
  if (root_is_filling(s)) return;
  if (has_prefixes(s))
    close_root(s); /* its blocks stay cached for sessions with the same beginning */
  size_t running = 0;
  for (size_t i = 0; i < s->count && running < s->running_limit; i++) {
    sequence* q = &s->sequences[i];
    if (q->state == SEQUENCE_WAITING) {
      if (running > 0 && !has_room(s, q)) return;
      if (!start_session(s, q)) {
        if (running > 0) return;
        close_root(s);
        start_session(s, q);
      }
    }
    running += q->state == SEQUENCE_RUNNING;
  }
}

/* ---- A pass ---- */

static void add_step(scheduler* s, size_t at, sequence* q, size_t count) {
  const step next = {q->session,
                     q->tokens + q->held,
                     count,
                     q->held,
                     q != &s->root && q->held + count == q->length,
                     NULL};
  s->steps[at] = next;
  s->owners[at] = q;
}

/* One token of each session that decodes, and the next `chunk` tokens of those in prefill, first
 * come first served. */
static size_t plan_pass(scheduler* s) {
  size_t count = 0, chunk = s->chunk;
  if (root_is_filling(s)) {
    const size_t pending = s->root.length - s->root.held;
    add_step(s, count++, &s->root, pending < chunk ? pending : chunk);
    return count;
  }
  for (size_t i = 0; i < s->count; i++) {
    sequence* q = &s->sequences[i];
    if (q->state != SEQUENCE_RUNNING) continue;
    const size_t pending = q->length - q->held;
    if (pending == 1) {
      add_step(s, count++, q, 1);
    } else if (chunk > 0) {
      const size_t part = pending < chunk ? pending : chunk;
      add_step(s, count++, q, part);
      chunk -= part;
    }
  }
  return count;
}

static void preempt(scheduler* s, sequence* q) {
  close_session(s, q);
  q->state = SEQUENCE_WAITING;
  q->preemptions++;
  s->totals.preemptions++;
}

/* After the cache ran out of blocks: the newest session goes back to waiting. The oldest is never
 * preempted, so every run ends.
 */
static void make_room(scheduler* s) {
  sequence *oldest = NULL, *newest = NULL;
  for (size_t i = 0; i < s->count; i++)
    if (s->sequences[i].state == SEQUENCE_RUNNING) {
      newest = &s->sequences[i];
      if (oldest == NULL) oldest = newest;
    }
  if (newest != oldest) {
    preempt(s, newest);
  } else if (s->root.session != NULL) {
    close_root(s);
  } else {
    const pkv_cache_stats stats = cache_stats(s);
    die(EXIT_BAD_INPUT, "a session does not fit even alone: %s; %llu of %llu blocks are free",
        s->engine->lib->last_error(), (unsigned long long)stats.free_blocks,
        (unsigned long long)stats.blocks);
  }
}

bool sequence_continue(sequence* q, const float* logits, size_t vocabulary, double start) {
  const int32_t token = sampler_next(&q->sampler, logits, vocabulary);
  if (q->length == q->prompt_length) q->first_token = seconds() - start;
  q->tokens[q->length++] = token;
  return q->length < q->limit && token != TOKEN_BEGIN && token != TOKEN_END;
}

static void take_token(scheduler* s, sequence* q, const float* logits) {
  if (sequence_continue(q, logits, s->engine->model->vocabulary, s->start)) return;
  close_session(s, q);
  q->state = SEQUENCE_DONE;
}

static void observe(scheduler* s) {
  const engine* e = s->engine;
  run_totals* t = &s->totals;
  pkv_pool_stats pool = {.struct_size = sizeof pool};
  const pkv_cache_stats stats = cache_stats(s);
  engine_check(e, e->lib->cache_get_pool_stats(e->cache, 0, &pool), "stats");
  /* Cached blocks that no session uses do not count: they can be evicted. */
  const pkv_prefix_stats prefix = prefix_stats(s);
  const uint64_t used = stats.used_blocks - stats.evictable_blocks;
  const uint64_t saved = pool.references - prefix.cached_blocks - used;
  const uint64_t bytes = used * e->plan.bytes_per_block;
  const uint64_t filled = stats.filled_slots - stats.evictable_blocks * e->info.block_size;

  t->passes++;
  t->filled_bytes += filled * e->plan.bytes_per_token;
  t->reserved_bytes += bytes;
  for (size_t i = 0; i < s->count; i++)
    if (s->sequences[i].state == SEQUENCE_RUNNING) {
      t->tokens += s->sequences[i].held;
      t->worst_case += s->context;
    }
  if (used > t->peak_blocks) t->peak_blocks = used;
  t->asked_tokens = prefix.asked_tokens;
  t->matched_tokens = prefix.matched_tokens;
  t->evicted_blocks = prefix.evicted_blocks;
  t->copied_blocks = stats.copied_blocks;
  if (saved > t->peak_saved_blocks) t->peak_saved_blocks = saved;
  if (bytes > t->peak_bytes) t->peak_bytes = bytes;
}

static bool all_done(const scheduler* s) {
  for (size_t i = 0; i < s->count; i++)
    if (s->sequences[i].state != SEQUENCE_DONE) return false;
  return true;
}

bool scheduler_pass(scheduler* s) {
  const double start = seconds();
  size_t count, decoded = 0;
  admit(s);
  for (count = plan_pass(s); !engine_forward(s->engine, count, s->steps); count = plan_pass(s))
    make_room(s);
  for (size_t i = 0; i < count; i++) s->owners[i]->held += s->steps[i].count;
  observe(s);
  for (size_t i = 0; i < count; i++) {
    if (!s->steps[i].wants_logits) continue;
    decoded += s->owners[i]->length > s->owners[i]->prompt_length;
    take_token(s, s->owners[i], s->steps[i].logits);
  }
  const double end = seconds();
  s->totals.decode_tokens += decoded;
  if (decoded > 0) s->totals.decode_seconds += end - start;
  s->totals.seconds = end - s->start;
  if (!all_done(s)) return true;
  close_root(s);
  return false;
}
