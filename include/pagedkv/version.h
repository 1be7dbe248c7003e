/* pagedkv: library version. */
#ifndef PAGEDKV_VERSION_H
#define PAGEDKV_VERSION_H

#include <pagedkv/common.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of these headers. What was built for 1.x runs with every later 1.y. */
#define PKV_VERSION_MAJOR 1
#define PKV_VERSION_MINOR 0
#define PKV_VERSION_PATCH 0

/**
 * Returns the version of the loaded library: major * 1000000 + minor * 1000 + patch. Any thread.
 * Since 1.0.
 */
PKV_API uint32_t pkv_version(void);

#ifdef __cplusplus
}
#endif
#endif
