/* pkv-generate: generates text with a Llama model in many sessions at once, with all K, V and
 * attention in libpagedkv. See --help. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/system.h"
#include "arrays.h"
#include "chat.h"
#include "progress.h"
#include "report.h"

/* FILE.tokenizer.bin beside FILE.bin, or tokenizer.bin in the same folder. */
static char* default_tokenizer(const char* model) {
  static const char suffix[] = ".bin", own[] = ".tokenizer.bin", common[] = "tokenizer.bin";
  const size_t length = strlen(model);
  const size_t stem =
      length >= strlen(suffix) && strcmp(model + length - strlen(suffix), suffix) == 0
          ? length - strlen(suffix)
          : length;
  char* path = new_array(length + sizeof own + sizeof common, 1);
  memcpy(path, model, stem);
  strcpy(path + stem, own);
  if (access(path, R_OK) == 0) return path;
  strcpy(path + folder_length(model), common);
  return path;
}

static run_result run(const options* o, const pkv_dl* lib, const llama2* model, const tokenizer* t,
                      const prompts* p, size_t context) {
  engine e;
  scheduler s;
  progress display;
  const size_t blocks = o->blocks != 0 ? o->blocks : scheduler_ample_blocks(p, o, context);
  const size_t watermark = o->blocks != 0 ? scheduler_watermark(p, o, context, blocks) : 0;
  engine_open(&e, lib, model, o, blocks, watermark, o->sessions, o->sessions + o->chunk);
  if (o->load != NULL) {
    const pkv_session saved = engine_load(&e, o->load);
    engine_check(&e, lib->session_close(saved),
                 "closing a conversation that was saved"); /* its text stays cached */
  }
  scheduler_open(&s, &e, p, o, context);
  progress_open(&display, &s, t, o->quiet);
  while (scheduler_pass(&s)) progress_update(&display);
  progress_update(&display);
  progress_close(&display);
  engine_check(&e, lib->cache_validate(e.cache), "the cache is not sound after the run");
  if (o->save != NULL) engine_save(&e, o->save, NULL);
  run_result result = report_new(s.sequences, s.count, &s.totals);
  result.memory = "paged";
  result.dtype = o->dtype;
  result.isa = lib->isa_name(e.info.isa);
  result.blocks = e.plan.blocks;
  result.block_size = e.info.block_size;
  result.library_seconds = e.library_seconds;
  s.count = 0; /* the result has the sequences now */
  s.sequences = NULL;
  scheduler_close(&s);
  engine_close(&e);
  return result;
}

static void run_all(const options* o, const pkv_dl* lib, const llama2* model, const tokenizer* t,
                    size_t context) {
  const size_t count = o->compare ? 2 : 1;
  run_result results[2];
  FILE *tokens_out = report_open(o->tokens_out), *json = report_open(o->json);
  prompts p = prompts_new(o, t);
  results[0] = run(o, lib, model, t, &p, context);
  if (o->compare) results[1] = arrays_run(o, lib, model, &p, context);

  if (!o->quiet && !o->compare) report_texts(&results[0], t, p.common);
  report_summary(results, count);
  if (tokens_out != NULL) report_tokens(&results[0], tokens_out, o->tokens_out);
  if (json != NULL) report_json(results, count, json, o->json);
  const size_t difference = count == 2 ? report_difference(&results[0], &results[1]) : 0;
  if (count == 2 && difference == 0) puts("The tokens of all sessions are the same.");

  prompts_free(&p);
  for (size_t i = 0; i < count; i++) report_free(&results[i]);
  if (difference != 0)
    die(EXIT_BAD_INPUT, "session %zu has other tokens with arrays than in a paged cache",
        difference);
}

int main(int argc, char** argv) {
  prepare_output();
  options o = options_parse(argc, argv);
  pkv_dl lib;
  llama2 model;
  tokenizer t;
  char* beside = o.tokenizer == NULL ? default_tokenizer(o.model) : NULL;
  pkv_dl_open(&lib, o.library);
  llama2_open(&model, o.model);
  tokenizer_open(&t, beside != NULL ? beside : o.tokenizer, model.vocabulary);
  const size_t context = o.context != 0 ? o.context : model.context;

  if (o.chat)
    chat_run(&o, &lib, &model, &t, context);
  else
    run_all(&o, &lib, &model, &t, context);

  if (fflush(stdout) != 0) die(EXIT_BAD_INPUT, "cannot write the output: %s", strerror(errno));
  tokenizer_close(&t);
  llama2_close(&model);
  free(beside);
  options_free(&o);
  return EXIT_SUCCESS;
}
