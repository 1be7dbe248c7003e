/* A conversation with the model in one session that is kept between turns. */
#ifndef PKV_GENERATE_CHAT_H
#define PKV_GENERATE_CHAT_H

#include "../common/pkv_dl.h"
#include "llama2.h"
#include "options.h"
#include "tokenizer.h"

/* Reads lines from stdin until /quit or its end. */
void chat_run(const options* o, const pkv_dl* lib, const llama2* model, const tokenizer* t,
              size_t context);

#endif
