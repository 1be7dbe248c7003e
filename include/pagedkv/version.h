/* pagedkv: library version. */
#ifndef PAGEDKV_VERSION_H
#define PAGEDKV_VERSION_H

#include <pagedkv/common.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of these headers. While the major version is 0, the interface may change. */
#define PKV_VERSION_MAJOR 0
#define PKV_VERSION_MINOR 1
#define PKV_VERSION_PATCH 0

/**
 * Returns the version of the loaded library: major * 1000000 + minor * 1000 + patch. Any thread.
 * Since 0.1.
 */
PKV_API uint32_t pkv_version(void);

/**
 * Returns the version of the loaded library, such as "0.1.0". Static storage. Any thread.
 * Since 0.1.
 */
PKV_API const char* pkv_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
