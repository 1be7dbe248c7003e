#include "text.h"

#include <string.h>

static char printable(char c) {
  const unsigned char byte = (unsigned char)c;
  return (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7F ? '?' : c;
}

void text_write(FILE* out, const tokenizer* t, const int32_t* tokens, size_t first, size_t end) {
  for (size_t i = first; i < end; i++) {
    const piece p = tokenizer_decode(t, i > 0 ? tokens[i - 1] : TOKEN_BEGIN, tokens[i]);
    for (size_t j = 0; j < p.length; j++) fputc(printable(p.bytes[j]), out);
  }
}

size_t text_tail(const tokenizer* t, const int32_t* tokens, size_t first, size_t end,
                 size_t columns, char* line, size_t capacity) {
  /* Walks backwards until there are enough columns; bytes that continue a UTF-8 character take
   * none. */
  size_t begin = capacity, used = 0;
  for (size_t i = end; i > first && used < columns; i--) {
    const piece p = tokenizer_decode(t, i > 1 ? tokens[i - 2] : TOKEN_BEGIN, tokens[i - 1]);
    for (size_t j = p.length; j > 0 && used < columns && begin > 0; j--) {
      const char c = p.bytes[j - 1];
      line[--begin] = c == '\n' || c == '\t' ? ' ' : printable(c);
      used += ((unsigned char)c & 0xC0) != 0x80;
    }
  }
  memmove(line, line + begin, capacity - begin);
  return capacity - begin;
}
