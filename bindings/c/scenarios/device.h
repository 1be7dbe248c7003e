/* What stands for a device: the blocks of opaque groups. A slot has the history of its
 * token. */
#ifndef PKV_SCENARIO_DEVICE_H
#define PKV_SCENARIO_DEVICE_H

#include <pagedkv/pagedkv.h>

enum { DEVICE_GROUPS = 4, DEVICE_SLOTS = 256, DEVICE_BLOCK = 16 };

typedef struct device {
  uint64_t slots[DEVICE_GROUPS][DEVICE_SLOTS];
} device;

/* The hooks that copy its blocks. */
pkv_block_io device_block_io(device* d);

#endif
