/* Continuous batching: every forward pass takes the next tokens of all running sessions, prompt
 * chunks and decode steps mixed.
 *
 * A sequence's known tokens are its prompt and what was generated. Each pass computes some of the
 * tokens that its session lacks; after the last one, the next token is sampled and becomes known. A
 * preempted session is suspended: it catches up like a long prompt, starting from what the prefix
 * index still has of it. A prompt waits while another sequence computes blocks that it begins with,
 * and then finds them in the index.
 */
#ifndef PKV_GENERATE_SCHEDULER_H
#define PKV_GENERATE_SCHEDULER_H

#include <stdbool.h>

#include "engine.h"
#include "prompts.h"
#include "sampler.h"

typedef enum sequence_state {
  SEQUENCE_WAITING,
  SEQUENCE_RUNNING,
  SEQUENCE_PREEMPTED,
  SEQUENCE_DONE
} sequence_state;

typedef struct sequence {
  sequence_state state;
  int32_t* tokens; /* [limit] known so far: `length` */
  size_t prompt_length, length, limit;
  pkv_session session; /* NULL when it is done */
  size_t held;         /* tokens the session holds */
  sampler sampler;
  double first_token; /* seconds from the start of the run to the first generated token */
  size_t preemptions;
} sequence;

/* A waiting sequence for a prompt. Ends the program if the context is too short. */
sequence sequence_new(const prompts* p, const options* o, size_t context, size_t index);
/* Samples the next token. Returns false if it is the last one. */
bool sequence_continue(sequence* q, const float* logits, size_t vocabulary, double start);

/* The measurements of a run. Sums over passes, for means. */
typedef struct run_totals {
  size_t passes, preemptions, decode_tokens;
  double decode_seconds;                 /* in passes with a decode step */
  uint64_t filled_bytes, reserved_bytes; /* of K and V memory, summed over passes */
  uint64_t tokens, worst_case; /* held by sessions, and what their whole contexts would take; summed
                                  over passes */
  uint64_t peak_blocks, peak_saved_blocks, peak_bytes, copied_blocks;
  uint64_t lookup_tokens, matched_tokens; /* of prompts, and of what preempted sessions knew: looked
                                            for and found in the prefix index */
  uint64_t evicted_tokens;                /* of the prefix index */
  double seconds;
} run_totals;

typedef struct scheduler {
  engine* engine;
  size_t count; /* of sequences, in order of arrival */
  sequence* sequences;
  size_t running_limit, chunk, context;
  step* steps; /* the pass in progress, and the sequences of its steps */
  sequence** owners;
  pkv_session* victims;
  double start;
  run_totals totals;
} scheduler;

/* The number of blocks with which no session ever waits. */
size_t scheduler_ample_blocks(const prompts* p, const options* o, size_t context);
/* The number of blocks, of these, that are only for running sessions: one for each, because a new
 * prompt would otherwise take the last blocks and be preempted at once. The others hold any
 * session.
 */
size_t scheduler_watermark(const prompts* p, const options* o, size_t context, size_t blocks);

/* Ends the program if a session could not even run alone. */
void scheduler_open(scheduler* s, engine* e, const prompts* p, const options* o, size_t context);
void scheduler_close(scheduler* s);

/* Runs one forward pass. False: every session is done. */
bool scheduler_pass(scheduler* s);

#endif
