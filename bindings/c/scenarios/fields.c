#include "fields.h"

#include <pagedkv/pagedkv.h>
#include <string.h>

#include "../common/util.h"

const cJSON* item_of(const cJSON* object, const char* name) {
  return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char* text_of(const cJSON* object, const char* name) {
  const cJSON* item = item_of(object, name);
  return item != NULL ? item->valuestring : NULL;
}

double real_of(const cJSON* object, const char* name) {
  const cJSON* item = item_of(object, name);
  if (!cJSON_IsNumber(item)) die(EXIT_BAD_INPUT, "there is no number '%s'", name);
  return item->valuedouble;
}

uint64_t number_of(const cJSON* object, const char* name) {
  return (uint64_t)real_of(object, name);
}

double element_of(const cJSON* array, int i) { return cJSON_GetArrayItem(array, i)->valuedouble; }

typedef struct named_value {
  const char* name;
  int value;
} named_value;

static int enum_of(const char* name) {
#define NAMED(x) {#x, x}
  static const named_value values[] = {NAMED(PKV_F32),
                                       NAMED(PKV_F16),
                                       NAMED(PKV_BF16),
                                       NAMED(PKV_INT8),
                                       NAMED(PKV_INT4),
                                       NAMED(PKV_FP8_E4M3),
                                       NAMED(PKV_FP8_E5M2),
                                       NAMED(PKV_STORAGE_PAGED),
                                       NAMED(PKV_STORAGE_CONTIGUOUS),
                                       NAMED(PKV_STORAGE_NONE),
                                       NAMED(PKV_LAYOUT_PACKED),
                                       NAMED(PKV_LAYOUT_PLAIN),
                                       NAMED(PKV_EVICTION_LEARNED),
                                       NAMED(PKV_EVICTION_LRU),
                                       NAMED(PKV_EVICTION_LFU),
                                       NAMED(PKV_PREFIX_SHARE),
                                       NAMED(PKV_PREFIX_MATCH),
                                       NAMED(PKV_PREFIX_OFF)};
#undef NAMED
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (strcmp(values[i].name, name) == 0) return values[i].value;
  die(EXIT_BAD_INPUT, "no enum is called %s", name);
}

const field* find_field(const field* fields, size_t count, const char* name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(fields[i].name, name) == 0) return &fields[i];
  die(EXIT_BAD_INPUT, "no field is called %s here", name);
}

void set_field(void* to, const field* f, const cJSON* item) {
  char* place = (char*)to + f->offset;
  const float real = (float)item->valuedouble;
  const uint64_t wide = (uint64_t)item->valuedouble;
  const int32_t narrow = cJSON_IsString(item) ? enum_of(item->valuestring) : (int32_t)wide;
  if (f->is_float)
    memcpy(place, &real, sizeof real);
  else if (f->size == sizeof wide)
    memcpy(place, &wide, sizeof wide);
  else
    memcpy(place, &narrow, sizeof narrow);
}

uint64_t field_value(const void* from, const field* f) {
  uint64_t wide;
  uint32_t narrow;
  const char* place = (const char*)from + f->offset;
  if (f->size == sizeof wide) return memcpy(&wide, place, sizeof wide), wide;
  return memcpy(&narrow, place, sizeof narrow), narrow;
}
