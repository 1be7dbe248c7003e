#include "device.h"

#include <string.h>

static int32_t read_blocks(void* user, uint32_t group, size_t n, const uint32_t* ids,
                           const uint32_t* tokens, void* to) {
  const device* d = user;
  for (size_t i = 0; i < n; i++)
    memcpy((uint64_t*)to + i * DEVICE_BLOCK, d->slots[group] + (size_t)ids[i] * DEVICE_BLOCK,
           tokens[i] * sizeof(uint64_t));
  return 0;
}

static int32_t write_blocks(void* user, uint32_t group, size_t n, const uint32_t* ids,
                            const void* from) {
  device* d = user;
  for (size_t i = 0; i < n; i++)
    memcpy(d->slots[group] + (size_t)ids[i] * DEVICE_BLOCK,
           (const uint64_t*)from + i * DEVICE_BLOCK, DEVICE_BLOCK * sizeof(uint64_t));
  return 0;
}

pkv_block_io device_block_io(device* d) {
  const pkv_block_io hooks = {
      .struct_size = sizeof hooks, .user = d, .read = read_blocks, .write = write_blocks};
  return hooks;
}
