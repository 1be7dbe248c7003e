/* Members of JSON objects, and fields of structs of C by their names. */
#ifndef PKV_SCENARIO_FIELDS_H
#define PKV_SCENARIO_FIELDS_H

#include <cjson/cJSON.h>
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

/* ---- Fields of structs of C, by the description of the interface (bindings/api) ---- */

/* Takes the description, which must live as long as fields are used. */
void fields_open(const cJSON* description);

/* Sets a field of a struct of this type to a JSON number, or to the enum that is named like
 * "PKV_BF16", or returns these. They end the program if there is no such field or enum, so that
 * none is ignored. */
void set_field(void* to, const char* type, const cJSON* item);
void set_fields(void* to, const char* type, const cJSON* object);
uint64_t value_of(const cJSON* item);
uint64_t field_value(const void* from, const char* type, const char* name);

/* The address of a field. */
void* field_of(void* in, const char* type, const char* name);

#endif
