/* Generated text as a terminal may see it. */
#ifndef PKV_GENERATE_TEXT_H
#define PKV_GENERATE_TEXT_H

#include <stdio.h>

#include "tokenizer.h"

/* Writes the text of tokens [first, end). Control characters of the model's making become '?', lest
 * they command the terminal. */
void text_write(FILE* out, const tokenizer* t, const int32_t* tokens, size_t first, size_t end);

/* The last columns of that text in one line, line ends as blanks; returns the bytes written to line
 * (no more than capacity). */
size_t text_tail(const tokenizer* t, const int32_t* tokens, size_t first, size_t end,
                 size_t columns, char* line, size_t capacity);

#endif
