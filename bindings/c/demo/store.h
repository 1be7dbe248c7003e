/* The store behind a cache's memory: a directory, or a Redis or Valkey whose plugin is opened at
 * run time, too. */
#ifndef PKV_GENERATE_STORE_H
#define PKV_GENERATE_STORE_H

#include "../common/pkv_dl.h"

/* where: a directory, or a URL (redis://host:port, valkey://...). Ends the program with a sentence
 * where it cannot be had. */
void store_open(const pkv_dl* lib, const char* where, pkv_store* store);

#endif
