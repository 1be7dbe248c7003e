// Shared by all functions of the C interface: guarded(), in which each of them runs, checks of
// arguments, and leases of the objects behind handles.
#pragma once

#include <pagedkv/session.h>
#include <pagedkv/snapshot.h>

#include <memory>
#include <string_view>
#include <utility>

#include "api/handles.h"
#include "base/checked.h"
#include "base/float_environment.h"
#include "base/guarded.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/structs.h"
#include "engine/cache/cache.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"

namespace pkv::api {

// Stores what pkv_last_error() and pkv_last_error_details() return on this thread, and returns the
// status.
pkv_status keep_error(const pkv_error_details& details, const char* sentence) noexcept;

// Runs the body of an exported function in the default floating-point environment, and refuses
// calls from the caller's own hooks.
template <class Body>
pkv_status guarded(const Body& body) noexcept {
  if (in_hook())
    return keep_error(plain_details(PKV_REENTRANT), "a call from inside a hook of the caller");
  const DefaultFloatEnvironment float_environment;
  return pkv::guarded(keep_error, body);
}

template <class Pointer>
void check_pointer(Pointer pointer, const char* name) {
  if (pointer == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
}

// Checks a list of n elements; it may be NULL if n is 0.
template <class Element>
void check_list(const Element* list, size_t n, const char* name) {
  if (list == nullptr && n > 0) fail(PKV_INVALID_ARGUMENT, "%s is NULL for %zu elements", name, n);
  checked_bytes(n, sizeof(Element), name);
}

// Checks a salt of the prefix index and returns its bytes.
inline std::string_view check_salt(const void* salt, uint64_t size) {
  constexpr uint64_t max_size = 256;
  if (size == PKV_ALL_SALTS)
    fail(PKV_INVALID_ARGUMENT,
         "salt_size is PKV_ALL_SALTS (2^64 - 1); this call is about one salt");
  if (salt == nullptr && size > 0)
    fail(PKV_INVALID_ARGUMENT, "salt is NULL for %llu bytes", llu(size));
  if (size > max_size)
    fail(PKV_INVALID_ARGUMENT, "a salt of %llu bytes; it must have at most %llu", llu(size),
         llu(max_size));
  return {static_cast<const char*>(salt), static_cast<size_t>(size)};
}

// Checks a text and returns its salt and tokens.
inline std::pair<std::string_view, prefix::Tokens> check_text(const pkv_prompt* text,
                                                              const char* name) {
  const pkv_prompt known = read_struct(text, name);
  if (known.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "%s: reserved is %u, not 0", name, known.reserved);
  check_list(known.tokens, known.n, "tokens");
  return {check_salt(known.salt, known.salt_size), prefix::Tokens(known.tokens, known.n)};
}

// Returns the prefix index of a cache. Throws UNSUPPORTED.
inline prefix::Index& index_of(const Cache& cache) {
  if (cache.prefix() == nullptr)
    fail(PKV_UNSUPPORTED, "the cache has no prefix index: its config had none");
  return *cache.prefix();
}

template <class Handle>
uint64_t bits(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

template <class Handle>
Handle handle_from(uint64_t handle) {
  return reinterpret_cast<Handle>(handle);
}

// A lease of an object, by its handle in the C interface.
template <class Handle, Kind kind, class Object>
class LeaseOf : public Lease {
 public:
  explicit LeaseOf(Handle handle, Access access = Access::get)
      : Lease(bits(handle), kind, access) {}
  Object& operator*() const { return object<Object>(); }
  Object* operator->() const { return &object<Object>(); }

  // Makes a handle that owns the object; parent is its cache. The object is freed if that fails.
  static Handle make(std::unique_ptr<Object> object, uint64_t parent = 0) {
    const auto handle = handle_from<Handle>(NewHandle(kind, object.get(), parent).open());
    object.release();
    return handle;
  }
  // Deletes the object and makes its handle stale. A NULL handle has no effect.
  static void close(Handle handle) {
    if (handle != nullptr) LeaseOf(handle, Access::close).destroy();
  }
};

using CacheLease = LeaseOf<pkv_cache, Kind::cache, Cache>;
using SessionLease = LeaseOf<pkv_session, Kind::session, Session>;
using SnapshotLease = LeaseOf<pkv_snapshot, Kind::snapshot, Snapshot>;

// For functions that fill a list in the caller's memory: sets *count to the number of entries
// needed, and throws if the list has room for fewer.
inline void check_capacity(size_t capacity, size_t needed, size_t* count, const char* name) {
  *count = needed;
  if (capacity < needed)
    fail(PKV_BUFFER_TOO_SMALL, "%s: %zu entries are needed, there is room for %zu", name, needed,
         capacity);
}

}  // namespace pkv::api
