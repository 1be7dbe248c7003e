/* Generated text, made safe for a terminal. */
#ifndef PKV_GENERATE_TEXT_H
#define PKV_GENERATE_TEXT_H

#include <stdio.h>

#include "tokenizer.h"

/* Writes the text of tokens [first, end). Control characters that the model wrote become '?', so
 * that they cannot control the terminal. */
void text_write(FILE* out, const tokenizer* t, const int32_t* tokens, size_t first, size_t end);

/* Writes the last columns of that text as one line, with blanks for line ends. Returns the number
 * of bytes written to `line`, at most capacity. */
size_t text_tail(const tokenizer* t, const int32_t* tokens, size_t first, size_t end,
                 size_t columns, char* line, size_t capacity);

#endif
