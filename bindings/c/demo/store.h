/* The store behind a cache: a directory, or a Redis or Valkey server, whose plugin is also opened
 * at run time. */
#ifndef PKV_GENERATE_STORE_H
#define PKV_GENERATE_STORE_H

#include "../common/pkv_dl.h"

/* where: a directory, or a URL (redis://host:port, valkey://...). Ends the program with a sentence
 * if it cannot be opened. */
void store_open(const pkv_dl* lib, const char* where, pkv_store* store);

#endif
