#include "json.h"

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

typedef struct named_value {
  const char* name;
  int value;
} named_value;

int enum_of(const char* name) {
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
