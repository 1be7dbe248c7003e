/* Members of JSON objects, and of structs of C by their names. */
#ifndef PKV_SCENARIO_FIELDS_H
#define PKV_SCENARIO_FIELDS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A member of an object; NULL if there is none of this name. */
const cJSON* item_of(const cJSON* object, const char* name);

/* A member that is text; NULL if there is none of this name. */
const char* text_of(const cJSON* object, const char* name);

/* A member that is a number. Both end the program if there is none of this name. */
double real_of(const cJSON* object, const char* name);
uint64_t number_of(const cJSON* object, const char* name);

/* An element of an array that is a number. */
double element_of(const cJSON* array, int i);

/* A number field of a struct: 4 or 8 bytes of an integer or an enum, or a float. */
typedef struct field {
  const char* name;
  size_t offset, size;
  bool is_float;
} field;
#define FIELD(type, name) {#name, offsetof(type, name), sizeof(((type*)NULL)->name), false}
#define FLOAT(type, name) {#name, offsetof(type, name), sizeof(float), true}
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The field of this name. Ends the program if there is none, so that no field is ignored. */
const field* find_field(const field* fields, size_t count, const char* name);

/* Sets a field to a JSON number, or to the enum that is named like "PKV_BF16". */
void set_field(void* to, const field* f, const cJSON* item);
uint64_t field_value(const void* from, const field* f);

#endif
