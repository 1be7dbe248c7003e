// Adds up what sessions need from the pools.
#include "engine/session/needs.h"

namespace pkv {

void Needs::add(const Session& session, uint32_t new_tokens) {
  const uint64_t start = session.length(), end = start + new_tokens;
  for (size_t g = 0; g < blocks.size(); g++)
    add(session, g, end, session.content().sequences()[g].blocks_needed(start, end));
}

void Needs::add(const Session& session, size_t group, uint64_t end, uint64_t lacking) {
  session.content().sequences()[group].check_fits(session.length(), end, "begin");
  blocks[group] += lacking;
  if (session.length() == 0 && lacking > 0) watermark = session.cache().config().watermark;
}

}  // namespace pkv
