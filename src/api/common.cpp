// The C functions of errors and versions, and each thread's last error.
#include <pagedkv/pagedkv.h>

#include <cstdio>

#include "api/boundary.h"

namespace pkv::api {

namespace {
thread_local constinit Error last_error{plain_details(PKV_OK), ""};
}

pkv_status keep_error(const pkv_error_details& details, const char* sentence) noexcept {
  static_cast<pkv_error_details&>(last_error) = details;
  std::snprintf(last_error.text, sizeof last_error.text, "%s", sentence);
  return details.status;
}

}  // namespace pkv::api

const char* pkv_last_error(void) { return pkv::api::last_error.text; }

const pkv_error_details* pkv_last_error_details(void) { return &pkv::api::last_error; }

const char* pkv_status_name(pkv_status status) {
  switch (status) {
#define PKV_NAME(name) \
  case name:           \
    return #name
    PKV_NAME(PKV_OK);
    PKV_NAME(PKV_INVALID_ARGUMENT);
    PKV_NAME(PKV_OUT_OF_RANGE);
    PKV_NAME(PKV_OVERFLOW);
    PKV_NAME(PKV_BUFFER_TOO_SMALL);
    PKV_NAME(PKV_STALE_HANDLE);
    PKV_NAME(PKV_NOT_HELD);
    PKV_NAME(PKV_WRONG_CACHE);
    PKV_NAME(PKV_REENTRANT);
    PKV_NAME(PKV_WRONG_PROCESS);
    PKV_NAME(PKV_UNSUPPORTED);
    PKV_NAME(PKV_INCOMPLETE);
    PKV_NAME(PKV_TOO_LARGE);
    PKV_NAME(PKV_BATCH_TOO_LARGE);
    PKV_NAME(PKV_OUT_OF_BLOCKS);
    PKV_NAME(PKV_OUT_OF_MEMORY);
    PKV_NAME(PKV_LIMIT_REACHED);
    PKV_NAME(PKV_BUSY);
    PKV_NAME(PKV_SUSPENDED);
    PKV_NAME(PKV_CORRUPT);
    PKV_NAME(PKV_WRONG_VERSION);
    PKV_NAME(PKV_MISMATCH);
    PKV_NAME(PKV_WRONG_KEY);
    PKV_NAME(PKV_IO);
    PKV_NAME(PKV_INTERNAL);
#undef PKV_NAME
  }
  return "PKV_UNKNOWN_STATUS";
}

uint32_t pkv_version(void) {
  return PKV_VERSION_MAJOR * 1000000 + PKV_VERSION_MINOR * 1000 + PKV_VERSION_PATCH;
}
