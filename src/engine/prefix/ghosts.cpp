#include "engine/prefix/ghosts.h"

#include <utility>

namespace pkv::prefix {

void Ghosts::remember(uint64_t hash, History history) noexcept {
  if (table_.empty()) {
    try {
      table_.resize(sets_);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  auto& ghosts = table_[set(hash)];
  for (size_t i = ways - 1; i > 0; i--) ghosts[i] = ghosts[i - 1];
  ghosts[0] = static_cast<Ghost>(hash << 10) | uint32_t{history.turn} << 5 | history.uses;
}

History Ghosts::recall(uint64_t hash) noexcept {
  if (table_.empty()) return {};
  auto& ghosts = table_[set(hash)];
  const Ghost tag = static_cast<Ghost>(hash << 10);
  size_t place = ways;
  for (size_t i = ways; i-- > 0;)
    // The compiler makes this free of branches, since there is nearly always no ghost.
    if ((ghosts[i] ^ tag) >> 10 == 0 && ghosts[i] != 0) place = i;
  if (place == ways) return {};
  const Ghost ghost = std::exchange(ghosts[place], 0);
  return {static_cast<uint8_t>(ghost & 31), static_cast<uint8_t>(ghost >> 5 & 31)};
}

}  // namespace pkv::prefix
