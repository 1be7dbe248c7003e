#include "fields.h"

#include <stdbool.h>
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

/* ---- Fields of structs ---- */

static const cJSON* interface;

void fields_open(const cJSON* description) { interface = description; }

/* The element of a list whose "name" this is, or NULL. */
static const cJSON* named(const cJSON* list, const char* name) {
  const cJSON* item;
  cJSON_ArrayForEach(item, list) {
    if (strcmp(text_of(item, "name"), name) == 0) return item;
  }
  return NULL;
}

static int enum_of(const char* name) {
  const cJSON* type;
  cJSON_ArrayForEach(type, item_of(interface, "enums")) {
    const cJSON* constant = named(item_of(type, "constants"), name);
    if (constant != NULL) return (int)real_of(constant, "value");
  }
  die(EXIT_BAD_INPUT, "no enum is called %s", name);
}

static const cJSON* find_field(const char* type, const char* name) {
  const cJSON* field = named(item_of(named(item_of(interface, "structs"), type), "fields"), name);
  if (field == NULL) die(EXIT_BAD_INPUT, "no field of %s is called %s", type, name);
  return field;
}

void* field_of(void* in, const char* type, const char* name) {
  return (char*)in + number_of(find_field(type, name), "offset");
}

static bool is_wide(const cJSON* field) { return number_of(field, "size") == sizeof(uint64_t); }

uint64_t value_of(const cJSON* item) {
  const int64_t value =
      cJSON_IsString(item) ? enum_of(item->valuestring) : (int64_t)item->valuedouble;
  return (uint64_t)value;
}

void set_field(void* to, const char* type, const cJSON* item) {
  const cJSON* field = find_field(type, item->string);
  void* place = field_of(to, type, item->string);
  if (strcmp(text_of(field, "c"), "float") == 0)
    *(float*)place = (float)item->valuedouble;
  else if (is_wide(field))
    *(uint64_t*)place = (uint64_t)item->valuedouble;
  else
    *(int32_t*)place = (int32_t)value_of(item);
}

void set_fields(void* to, const char* type, const cJSON* object) {
  const cJSON* item;
  cJSON_ArrayForEach(item, object) set_field(to, type, item);
}

uint64_t field_value(const void* from, const char* type, const char* name) {
  const cJSON* field = find_field(type, name);
  const char* place = (const char*)from + number_of(field, "offset");
  return is_wide(field) ? *(const uint64_t*)place : *(const uint32_t*)place;
}
