// Hashes with libsodium. In a build without it hash_model() throws, so no key is ever computed.
#include "engine/store/block_keys.h"

#if defined(PKV_WITH_SODIUM)
#include <sodium.h>
#endif

#include "base/status.h"
#include "engine/file/bytes.h"

namespace pkv::store {

namespace {

ContentKey hash([[maybe_unused]] std::span<const unsigned char> bytes,
                [[maybe_unused]] std::span<const unsigned char> secret) noexcept {
  ContentKey key{};
#if defined(PKV_WITH_SODIUM)
  crypto_generichash(key.data(), key.size(), bytes.data(), bytes.size(), secret.data(),
                     secret.size());
#endif
  return key;
}

// Hashes a key and the numbers that come after it: one step to the next key.
template <class Number>
ContentKey extend(const ContentKey& key_so_far, std::span<const Number> suffix) noexcept {
  ContentKey key{};
#if defined(PKV_WITH_SODIUM)
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, key.size());
  crypto_generichash_update(&state, key_so_far.data(), key_so_far.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(suffix.data()),
                            suffix.size_bytes());
  crypto_generichash_final(&state, key.data(), key.size());
#else
  (void)key_so_far, (void)suffix;
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
  return hash(bytes.bytes(), secret.bytes());
}

BlockKeys::BlockKeys(const ContentKey& model, std::string_view salt)
    : chain_(extend(model, std::span(salt))) {}

void BlockKeys::advance(std::span<const int32_t> block) noexcept { chain_ = extend(chain_, block); }

ContentKey BlockKeys::key(uint32_t group) const noexcept {
  return extend(chain_, std::span<const uint32_t>(&group, 1));
}

}  // namespace pkv::store
