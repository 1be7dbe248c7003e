// Hashes with libsodium. In a build without it hash_model() throws, so no key is ever computed.
#include "engine/store/block_keys.h"

#if defined(PKV_WITH_SODIUM)
#include <sodium.h>
#endif

#include "base/status.h"
#include "engine/file/bytes.h"

namespace pkv::store {

namespace {

using Bytes = std::span<const unsigned char>;

ContentKey hash([[maybe_unused]] Bytes first, [[maybe_unused]] Bytes second,
                [[maybe_unused]] Bytes secret) noexcept {
  ContentKey key{};
#if defined(PKV_WITH_SODIUM)
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret.data(), secret.size(), key.size());
  crypto_generichash_update(&state, first.data(), first.size());
  crypto_generichash_update(&state, second.data(), second.size());
  crypto_generichash_final(&state, key.data(), key.size());
#endif
  return key;
}

}  // namespace

ContentKey hash_model(uint32_t block_size, std::span<const file::SavedGroup> groups,
                      std::span<const unsigned char> fingerprint, const Secret& secret) {
#if defined(PKV_WITH_SODIUM)
  if (sodium_init() < 0) fail(PKV_UNSUPPORTED, "libsodium could not be initialised");
#else
  fail(PKV_UNSUPPORTED,
       "a store is given, but this build is without libsodium, which names its blocks");
#endif
  file::ByteWriter bytes;
  bytes.put(file::format_version);
  bytes.put(block_size);
  bytes.put(static_cast<uint32_t>(fingerprint.size()));
  bytes.put_all(fingerprint);
  for (const file::SavedGroup& group : groups) file::put_group(bytes, group);
  return hash(bytes.bytes(), {}, secret.bytes());
}

ContentKey extend(const ContentKey& key, std::span<const unsigned char> bytes) noexcept {
  return hash(key, bytes, {});
}

}  // namespace pkv::store
