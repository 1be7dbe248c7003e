#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* ---- The file ---- */

static size_t read_piece(const char* path, const mapped_file* file, size_t offset, size_t id,
                         size_t longest, piece* out) {
  int32_t length;
  if (file->size - offset < sizeof(float) + sizeof length)
    die(EXIT_BAD_INPUT, "the tokenizer %s is cut short: it ends before token %zu", path, id);
  memcpy(&out->score, file->data + offset, sizeof(float));
  memcpy(&length, file->data + offset + sizeof(float), sizeof length);
  offset += sizeof(float) + sizeof length;
  if (length < 0 || (size_t)length > longest)
    die(EXIT_BAD_INPUT,
        "the tokenizer %s is not one: token %zu has a length of %d, the longest has %zu", path, id,
        length, longest);
  if ((size_t)length > file->size - offset)
    die(EXIT_BAD_INPUT, "the tokenizer %s is cut short: it ends within token %zu", path, id);
  out->bytes = (const char*)file->data + offset;
  out->length = (size_t)length;
  return offset + out->length;
}

/* The byte that a piece like "<0x41>" stands for, or -1. */
static int byte_of(const piece* p) {
  static const char digits[] = "0123456789ABCDEF";
  if (p->length != 6 || memcmp(p->bytes, "<0x", 3) != 0 || p->bytes[5] != '>') return -1;
  const char* high = memchr(digits, p->bytes[3], 16);
  const char* low = memchr(digits, p->bytes[4], 16);
  return high == NULL || low == NULL ? -1 : (int)((high - digits) * 16 + (low - digits));
}

static int compare_spelling(const piece* a, const piece* b) {
  const int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
  return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static const piece* sort_pieces; /* qsort hands no context to its comparison */

static int compare_ids(const void* a, const void* b) {
  const int32_t x = *(const int32_t*)a, y = *(const int32_t*)b;
  const int order = compare_spelling(&sort_pieces[x], &sort_pieces[y]);
  return order != 0 ? order : (x > y) - (x < y);
}

void tokenizer_open(tokenizer* t, const char* path, size_t vocabulary) {
  uint32_t longest;
  memset(t, 0, sizeof *t);
  t->file = map_file(path, "tokenizer");
  if (t->file.size < sizeof longest)
    die(EXIT_BAD_INPUT, "the tokenizer %s is cut short: %zu bytes", path, t->file.size);
  memcpy(&longest, t->file.data, sizeof longest);
  if (vocabulary <= TOKEN_END)
    die(EXIT_BAD_INPUT, "a vocabulary of %zu has no room for the marks of begin and end",
        vocabulary);
  t->vocabulary = vocabulary;
  t->pieces = new_array(vocabulary, sizeof *t->pieces);
  t->sorted = new_array(vocabulary, sizeof *t->sorted);

  size_t offset = sizeof longest;
  for (size_t id = 0; id < vocabulary; id++) {
    offset = read_piece(path, &t->file, offset, id, longest, &t->pieces[id]);
    if (t->pieces[id].length > t->longest) t->longest = t->pieces[id].length;
  }
  if (offset != t->file.size)
    die(EXIT_BAD_INPUT,
        "the tokenizer %s is not the model's: it continues after the model's %zu tokens", path,
        vocabulary);

  for (size_t i = 0; i < vocabulary; i++) t->sorted[i] = (int32_t)i;
  sort_pieces = t->pieces;
  qsort(t->sorted, vocabulary, sizeof *t->sorted, compare_ids);
  for (size_t i = 0; i < 256; i++) t->byte_ids[i] = -1;
  for (size_t id = 0; id < vocabulary; id++) {
    const int byte = byte_of(&t->pieces[id]);
    if (byte >= 0) t->byte_ids[byte] = (int32_t)id;
  }
}

void tokenizer_close(tokenizer* t) {
  free(t->pieces);
  free(t->sorted);
  unmap_file(&t->file);
}

/* ---- Text to tokens ---- */

/* The token spelled like this, or -1. */
static int32_t find_piece(const tokenizer* t, const char* bytes, size_t length) {
  const piece wanted = {bytes, length, 0};
  size_t low = 0, high = t->vocabulary;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = compare_spelling(&wanted, &t->pieces[t->sorted[middle]]);
    if (order == 0) return t->sorted[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return -1;
}

/* Bytes of the UTF-8 character at text: its lead byte and up to three that continue it. */
static size_t character_length(const char* text, size_t bytes) {
  size_t length = 1;
  while (length < 4 && length < bytes && ((unsigned char)text[length] & 0xC0) == 0x80) length++;
  return length;
}

static size_t encode_characters(const tokenizer* t, const char* text, size_t bytes,
                                int32_t* tokens) {
  size_t count = 0;
  for (size_t i = 0; i < bytes;) {
    const size_t length = character_length(text + i, bytes - i);
    const int32_t id = find_piece(t, text + i, length);
    for (size_t byte = 0; byte < (id < 0 ? length : 1); byte++) {
      tokens[count] = id >= 0 ? id : t->byte_ids[(unsigned char)text[i + byte]];
      if (tokens[count] < 0)
        die(EXIT_BAD_INPUT, "the tokenizer has no token for the byte 0x%02X",
            (unsigned char)text[i + byte]);
      count++;
    }
    i += length;
  }
  return count;
}

/* The token that joins two neighbours, or -1. */
static int32_t join(const tokenizer* t, int32_t left, int32_t right, char* scratch) {
  const piece *a = &t->pieces[left], *b = &t->pieces[right];
  if (a->length + b->length > t->longest) return -1;
  memcpy(scratch, a->bytes, a->length);
  memcpy(scratch + a->length, b->bytes, b->length);
  return find_piece(t, scratch, a->length + b->length);
}

/* joined[i] joins tokens i and i + 1; a merge changes only the two beside it. */
static size_t merge(const tokenizer* t, int32_t* tokens, size_t count) {
  if (count < 2) return count;
  int32_t* joined = new_array(count, sizeof *joined);
  char* scratch = new_array(t->longest + 1, 1);
  for (size_t i = 0; i + 1 < count; i++) joined[i] = join(t, tokens[i], tokens[i + 1], scratch);
  for (;;) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; i++)
      if (joined[i] >= 0 &&
          (best == count || t->pieces[joined[i]].score > t->pieces[joined[best]].score))
        best = i;
    if (best == count) break;
    tokens[best] = joined[best];
    memmove(tokens + best + 1, tokens + best + 2, (count - best - 2) * sizeof *tokens);
    memmove(joined + best, joined + best + 1, (count - best - 2) * sizeof *joined);
    count--;
    if (best > 0) joined[best - 1] = join(t, tokens[best - 1], tokens[best], scratch);
    if (best + 1 < count) joined[best] = join(t, tokens[best], tokens[best + 1], scratch);
  }
  free(joined);
  free(scratch);
  return count;
}

size_t tokenizer_bound(size_t bytes) { return bytes + 2; }

size_t tokenizer_encode(const tokenizer* t, const char* text, size_t bytes, bool begins,
                        int32_t* tokens) {
  size_t count = 0;
  const int32_t space = find_piece(t, " ", 1);
  if (begins) tokens[count++] = TOKEN_BEGIN;
  const size_t first = count;
  if (begins && bytes > 0 && space >= 0) tokens[count++] = space;
  count += encode_characters(t, text, bytes, tokens + count);
  return first + merge(t, tokens + first, count - first);
}

/* ---- Tokens to text ---- */

piece tokenizer_decode(const tokenizer* t, int32_t previous, int32_t token) {
  static const piece nothing = {"", 0, 0};
  static char bytes[256];
  if (token == TOKEN_BEGIN || token == TOKEN_END) return nothing;
  piece p = t->pieces[token];
  const int byte = byte_of(&p);
  if (byte >= 0) {
    bytes[byte] = (char)byte;
    p.bytes = &bytes[byte];
    p.length = 1;
  } else if (previous == TOKEN_BEGIN && p.length > 0 && p.bytes[0] == ' ') {
    p.bytes++;
    p.length--;
  }
  return p;
}
