/* Reading members of JSON objects. */
#ifndef PKV_SCENARIO_JSON_H
#define PKV_SCENARIO_JSON_H

#include <cjson/cJSON.h>
#include <stdint.h>

/* A member of an object; NULL where there is none of this name. */
const cJSON* item_of(const cJSON* object, const char* name);

/* A member that is text; NULL where there is none of this name. */
const char* text_of(const cJSON* object, const char* name);

/* A member that is a number. Both end the program where there is none of this name. */
double real_of(const cJSON* object, const char* name);
uint64_t number_of(const cJSON* object, const char* name);

/* The value of an enum by its name in C, for example "PKV_BF16". Ends the program for an unknown
 * name. */
int enum_of(const char* name);

#endif
