/* A tokenizer in the llama2.c layout: the longest token's length, then per token a score (fp32), a
 * length (int32) and its bytes.
 *
 * Text becomes one token per character, or per byte (<0xXX>) if the vocabulary lacks the character.
 * Then neighbours are joined, those with the best score first, until no more can be (byte-pair
 * encoding).
 */
#ifndef PKV_GENERATE_TOKENIZER_H
#define PKV_GENERATE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/system.h"
#include "../common/util.h"

enum { TOKEN_BEGIN = 1, TOKEN_END = 2 };

typedef struct piece {
  const char* bytes; /* not terminated */
  size_t length;
  float score;
} piece;

typedef struct tokenizer {
  size_t vocabulary;
  size_t longest;        /* bytes of the longest piece */
  piece* pieces;         /* [vocabulary] as spelled in the file */
  int32_t* sorted;       /* [vocabulary] ids by spelling */
  int32_t byte_ids[256]; /* the piece <0xXX> of a raw byte, -1 where there is none */
  mapped_file file;
} tokenizer;

/* Ends the program with a sentence if the file is not a tokenizer with this many tokens. */
void tokenizer_open(tokenizer* t, const char* path, size_t vocabulary);
void tokenizer_close(tokenizer* t);

/* Returns the most tokens that tokenizer_encode writes for a text of `bytes` bytes. */
size_t tokenizer_bound(size_t bytes);

/* Writes the tokens of a text and returns their number. With `begins`, the text begins a sequence:
 * TOKEN_BEGIN comes first (and the space that SentencePiece vocabularies put before a text). */
size_t tokenizer_encode(const tokenizer* t, const char* text, size_t bytes, bool begins,
                        int32_t* tokens);

/* The bytes a token adds to a text after the token `previous`; none for the marks of begin and end.
 */
piece tokenizer_decode(const tokenizer* t, int32_t previous, int32_t token);

#endif
