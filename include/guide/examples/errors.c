/* An error is a status and an error message; a failed call has changed nothing in the cache. */
#include "toy.h"

/* What an engine does with a status. Some, such as these four, need their own reaction; for most,
   the hundreds digit is enough. */
static const char* what_to_do(pkv_status status) {
  if (status == PKV_BUSY) return "try again when the other call or the batch has ended";
  if (status == PKV_SUSPENDED) return "resume the session";
  if (status == PKV_TOO_LARGE)
    return "refuse the request"; /* the whole cache could never hold it */
  if (status == PKV_BATCH_TOO_LARGE)
    return "begin fewer sessions at once"; /* the cache could hold each of them, but never all */
  static const char* const advice[] = {"go on",
                                       "correct the call",
                                       "free something and try again",
                                       "the data cannot be used: compute it",
                                       "look at the system",
                                       "report it"};
  return advice[status / 100];
}

static void tell(pkv_status status) {
  printf("%s: %s\n", pkv_status_name(status), what_to_do(status));
  if (status != PKV_OK) printf("  %s\n", pkv_last_error());
}

int main(void) {
  pkv_cache_config config = toy_config();
  pkv_cache cache;
  toy_model.blocks = 4;
  check(pkv_cache_create(&config, &cache));
  pkv_session a, b;
  check(pkv_session_open(cache, NULL, &a));
  check(pkv_session_open(cache, NULL, &b));

  /* [exhaustion] */
  check(pkv_session_reserve(a, 32)); /* two of four blocks of 16 */
  const uint32_t new_tokens = 40;
  pkv_batch batch;
  pkv_status status = pkv_batch_begin(cache, 1, &b, &new_tokens, &batch);
  tell(status);
  if (status == PKV_OUT_OF_BLOCKS) { /* b has none of them, batch is untouched */
    check(pkv_session_trim(a, 0));
    tell(pkv_batch_begin(cache, 1, &b, &new_tokens, &batch));
  }
  tell(pkv_batch_commit(batch, 0, NULL)); /* no layer was written: the batch stays open */
  check(pkv_batch_abort(batch));
  const uint32_t too_many = 100; /* more than the whole cache: nothing that is freed can help */
  tell(pkv_batch_begin(cache, 1, &b, &too_many, &batch));
  const pkv_session both[] = {a, b};
  const uint32_t each[] = {40, 40}; /* three blocks and three, of four */
  tell(pkv_batch_begin(cache, 2, both, each, &batch));
  /* [exhaustion end] */

  /* [misuse] */
  uint64_t length;
  check(pkv_session_close(b));
  /* A handle is a number: an old one is recognised, not followed. */
  tell(pkv_session_get_length(b, &length));
  tell(pkv_session_trim(a, 5));
  config.block_size = 20;
  pkv_cache other;
  tell(pkv_cache_create(&config, &other));
  /* [misuse end] */
  check(pkv_cache_validate(cache));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
