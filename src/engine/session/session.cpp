// Implements sessions: suspension, the prefix index, steps and trims.
#include "engine/session/session.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/cache/reservation.h"

namespace pkv {

Session::Session(Content content, const Attributes& attributes)
    : content_(std::move(content)),
      attributes_(attributes),
      open_order_(cache().counters().opened_sessions++) {
  cache().counters().tokens += length();
}

Session::~Session() {
  if (suspended())
    drop_remembered();
  else
    pass_on(When::closing);
  cache().counters().tokens -= length();
}

uint64_t Session::layer_length(uint32_t layer) const {
  return length() + (step_ != nullptr && step_->written(layer) ? step_tokens_ : 0);
}

void Session::tokens(uint64_t first, size_t n, int32_t* out) const {
  check_range(first, n, total(), "tokens of the session");
  for (size_t i = 0; i < n; i++)
    out[i] = first + i < length() ? content_.tokens()[first + i] : suspension_.token(first + i);
}

void Session::set_tokens(uint64_t first, size_t n, const int32_t* tokens) {
  check_range(first, n, length(), "tokens of the session");
  const auto begin = content_.tokens().begin() + static_cast<int64_t>(first);
  for (size_t i = 0; i < n; i++)
    if (const int32_t held = begin[static_cast<int64_t>(i)];
        held != PKV_UNKNOWN_TOKEN && held != tokens[i])
      fail(entry_details(PKV_INVALID_ARGUMENT, i), "position %llu holds token %d already, not %d",
           llu(first + i), held, tokens[i]);
  std::copy_n(tokens, n, begin);
  publish(prefix::IfLocked::skip);
}

void Session::check_idle(const char* who) const {
  if (step_ != nullptr) fail(PKV_BUSY, "%s: the session is in a batch", who);
}

void Session::check_ready(const char* who) const {
  check_idle(who);
  if (suspended())
    fail(PKV_SUSPENDED, "%s: the session is suspended, with %zu tokens to compute again", who,
         suspension_.tokens().size());
}

void Session::reserve(uint64_t total_tokens) {
  check_ready("reserve");
  const std::vector<uint64_t> totals(content_.groups(), std::max(total_tokens, length()));
  reserve_blocks(totals, watermark(), Steps::any, Urgency::must_succeed, "reserve");
}

// Lists the tail of a group if what a reservation needs there may be a copy of it.
static void list_tail(size_t group, const memory::StepNeed& need, prefix::OwnBlocks& listed) {
  if (need.fresh_spares > 0 && memory::is_block(need.tail))
    listed.tails.push_back({group, memory::block_id(need.tail), 1, PKV_NO_BLOCK_ID, false});
}

// Takes blocks for totals[g] tokens in all in each group g, and leaves `watermark` blocks free.
// They suffice for steps of any size, or only for one step with all tokens. If it throws, no block
// is taken.
void Session::reserve_blocks(std::span<const uint64_t> totals, uint32_t watermark, Steps steps,
                             Urgency urgency, const char* who) {
  std::vector<memory::StepNeed> needs(totals.size());
  std::vector<uint64_t> counts(totals.size());
  const auto count = [&](size_t g) {
    const memory::BlockTable& table = content_.table(g);
    needs[g] = steps == Steps::any ? table.reserve_need(length(), totals[g])
                                   : table.step_need(length(), totals[g]);
    counts[g] = needs[g].blocks();
  };
  std::vector<uint64_t> required;
  for (size_t g = 0; g < totals.size(); g++) {
    content_.table(g).check_fits(length(), totals[g], who);
    count(g);
    required.push_back(
        content_.table(g).required_with_watermark(watermark, needs[g], length(), totals[g]));
  }
  check_possible(cache(), required, watermark, who);
  const Reservation::Own own = {
      [&] {
        prefix::OwnBlocks listed;
        list_expired(needs, listed);
        for (size_t g = 0; g < totals.size(); g++) list_tail(g, needs[g], listed);
        return listed;
      },
      [&](const prefix::OwnBlocks& listed, std::span<const size_t> tails) {
        release_expired(needs);
        if (!tails.empty()) content_.hold().release_tail();
        for (const size_t i : tails)
          if (cache().prefix() != nullptr)
            cache().prefix()->let_go(listed.tails[i].group, listed.tails[i].id);
        for (const auto& tail : listed.tails)
          if (content_.table(tail.group).group().pool.references(tail.id) == 1) count(tail.group);
        return Reservation::Demand{counts, watermark};
      }};
  Reservation reservation(cache(), counts, watermark, who, own, urgency);
  // All memory is allocated before the first table changes, so that nothing fails half way.
  reserve_ids(*std::max_element(totals.begin(), totals.end()));
  for (size_t g = 0; g < counts.size(); g++) {
    content_.tables()[g]->ensure_spare_capacity(needs[g]);
    content_.tables()[g]->ensure_capacity(needs[g], totals[g]);
  }
  for (size_t g = 0; g < counts.size(); g++)
    content_.tables()[g]->add_reserved(length(), totals[g], needs[g],
                                       reservation.take(g, counts[g]));
}

// Gives the content to the prefix index and the store, except what a hint said to drop when the
// session is closed. Spare blocks are released first: while a session has some, its last state is
// not shared, so that a step can reuse that block (BlockTable::length_to_share()).
void Session::pass_on(When when) noexcept {
  for (const auto& table : content_.tables()) table->release_spares();
  publish(prefix::IfLocked::wait);
  if (when == When::closing) content_.hold().withdraw_dropped();
  write_to_store();
}

// Drops from the prefix index what a hint said to drop. The session is suspended and has nothing
// itself.
void Session::drop_remembered() noexcept {
  const uint32_t from = content_.hold().hints().drop_from;
  if (from == prefix::Use::no_block) return;
  const size_t block_size = cache().config().block_size;
  const prefix::Tokens remembered = suspension_.tokens();
  const size_t known = prefix::known_prefix_length(remembered) / block_size * block_size;
  try {
    cache().prefix()->drop(content_.hold().salt(), remembered.first(known), from);
  } catch (const std::bad_alloc&) {
    // The blocks stay in the index until they are evicted.
  }
}

void Session::suspend() noexcept {
  pass_on(When::suspending);
  cache().counters().tokens -= length();
  suspension_.begin(content_.tokens());
  clear();
}

void Session::resume() {
  check_idle("resume");
  if (!suspended()) return;
  try {
    take_back();
  } catch (...) {
    put_back();
    throw;
  }
  cache().counters().tokens += length();
  has_run_ = true;
  suspension_.end(length());
}

// Takes over what the prefix index has of the remembered tokens, and blocks for the others.
void Session::take_back() {
  const prefix::Tokens remembered = suspension_.tokens();
  const size_t known = prefix::known_prefix_length(remembered);
  const uint64_t matched = take_prefix(remembered.first(known), remembered.size(),
                                       cache().config().watermark, Urgency::must_succeed);
  std::vector<uint64_t> totals;
  for (const auto& group : cache().groups()) {
    const uint64_t window = group->shape.window;
    totals.push_back(window == 0 ? remembered.size()
                                 : std::min<uint64_t>(remembered.size(), length() + window));
  }
  const auto reserve = [&](Steps steps) {
    reserve_blocks(totals, cache().config().watermark, steps, Urgency::must_succeed, "resume");
  };
  try {
    reserve(Steps::any);
  } catch (const Error& error) {
    if (error.status != PKV_TOO_LARGE) throw;
    reserve(Steps::one);  // the pool may still have room for one
  }
  content_.hold().count_match(known, matched);
}

void Session::start_publishing() noexcept {
  attributes_.publishes = true;
  publish(prefix::IfLocked::wait);
}

// Passes all blocks to the store, if there is one, which writes those that the prefix index has.
// The session keeps a copy of the token ids. Without memory for that copy nothing is passed on.
void Session::write_to_store() noexcept {
  if (cache().store() == nullptr || !publishes() || content_.hold().depth() == 0) return;
  try {
    Content rest(cache());
    content_.hold().release_tail();
    rest.hold() = content_.hold().restart();
    rest.tokens() = content_.tokens();
    rest.set_forgotten_from(content_.forgotten_from());
    rest.swap(content_);
    cache().store()->enqueue(std::move(rest), Writing::of_session);
  } catch (const std::bad_alloc&) {
    // The blocks stay in the index until they are evicted.
  }
}

// Releases the tokens, the blocks and the hold. The caller has already subtracted the tokens from
// the cache's count. The hold is released last: the blocks that the index then counts as evictable
// have no other references.
void Session::clear() noexcept {
  content_.tokens().clear();
  for (const auto& table : content_.tables()) table->trim(0);
  retreat(0);
}

// Undoes take_prefix() as if the match had never happened: it does not count as a use.
void Session::put_back() noexcept {
  content_.tokens().clear();
  for (const auto& table : content_.tables()) table->trim(0);
  content_.hold().cancel();
}

// Releases the path in the prefix index beyond a length. If no block before that was dropped, later
// tokens can enter the index again.
void Session::retreat(uint64_t new_length) noexcept {
  if (new_length <= content_.forgotten_from()) content_.set_forgotten_from(UINT64_MAX);
  content_.hold().retreat(new_length);
}

pkv_session_info Session::info() const {
  pkv_session_info info{};
  info.priority = priority();
  info.suspended = suspended();
  info.length = length();
  info.total = total();
  content_.for_each_block([&](size_t, size_t, uint32_t references) {
    info.blocks++;
    info.exclusive_blocks += references == 1;
  });
  for (size_t g = 0; g < content_.groups(); g++) {
    info.blocks += content_.table(g).spare_blocks().size();
    info.exclusive_blocks += content_.table(g).spare_blocks().size();
  }
  return info;
}

// ---- The prefix index ---------------------------------------------------------------------------

// Throws unless the session is empty and all ids of the text that it is admitted with are known.
void Session::check_empty(prefix::Tokens text) const {
  check_ready("admit");
  for (size_t g = 0; g < content_.groups(); g++)
    if (const size_t blocks =
            content_.table(g).blocks().size() + content_.table(g).spare_blocks().size();
        total() > 0 || blocks > 0)
      fail(PKV_INVALID_ARGUMENT,
           "admit: the session is not empty: it has or remembers %llu tokens and holds %zu blocks",
           llu(total()), blocks);
  const size_t known = prefix::known_prefix_length(text);
  if (known < text.size())
    fail(entry_details(PKV_INVALID_ARGUMENT, known), "admit: token %zu is PKV_UNKNOWN_TOKEN",
         known);
}

uint64_t Session::admit(prefix::Tokens text, uint64_t total_tokens) {
  check_empty(text);
  const Urgency urgency = total_tokens > 0 ? urgency_of_request(total_tokens) : Urgency::may_fail;
  uint64_t matched = 0;
  try {
    matched = take_prefix(text, total_tokens, watermark(), urgency);
    if (total_tokens > 0) {
      const std::vector<uint64_t> totals(content_.groups(), std::max(total_tokens, length()));
      reserve_blocks(totals, watermark(), Steps::any, urgency, "admit");
    }
  } catch (...) {
    put_back();
    throw;
  }
  cache().counters().tokens += matched;
  content_.hold().count_match(text.size(), matched);
  return matched;
}

// A request waits, rather than end a pin, for the blocks that the sessions before it have. But a
// request that does not fit beside the pinned blocks, even if everything else is released, would
// wait forever; so it ends pins. The session is empty.
Urgency Session::urgency_of_request(uint64_t total_tokens) const {
  std::vector<uint64_t> counts;
  for (size_t g = 0; g < content_.groups(); g++)
    counts.push_back(content_.table(g).reserve_need(0, total_tokens).blocks());
  return fits_beside_pins(cache(), counts, watermark()) ? Urgency::may_fail : Urgency::must_succeed;
}

// Takes over what the prefix index has of a text, after the store was asked for the rest. If
// `reserved` is not 0, the caller will reserve blocks for that many tokens. If it could not have
// them, the store is not asked: a request may have to wait for many steps, and try in each. The
// session is empty and the text has no PKV_UNKNOWN_TOKEN. The caller counts the tokens in the
// cache's statistics. Throws TOO_LARGE, LIMIT_REACHED, bad_alloc; then the caller must call
// put_back().
uint64_t Session::take_prefix(prefix::Tokens text, uint64_t reserved, uint32_t watermark,
                              Urgency urgency) {
  if (!content_.hold()) return 0;
  reserve_ids(text.size());
  const auto match = [&] {
    const uint64_t matched = cache().prefix()->match(content_.hold(), text, content_.tables());
    append(content_.tokens(), text.first(matched));
    return matched;
  };
  Store* const store = cache().store();
  if (store == nullptr || !store->waits()) return match();
  if (reserved > 0) {
    const uint64_t matched = match(), block_size = cache().config().block_size;
    if (matched / block_size == text.size() / block_size ||
        !can_reserve(reserved, watermark, urgency))
      return matched;
    put_back();
  }
  store->fetch(content_.hold().salt(), text);
  return match();
}

// Returns whether the groups that need every block can have those for `total_tokens` in all. What
// the store has does not change that: its blocks take as much room as computed ones.
bool Session::can_reserve(uint64_t total_tokens, uint32_t watermark, Urgency urgency) const {
  std::vector<uint64_t> counts(content_.groups());
  prefix::OwnBlocks own;
  for (size_t g = 0; g < counts.size(); g++) {
    const memory::BlockTable& table = content_.table(g);
    if (table.group().sparse()) continue;
    const memory::StepNeed need = table.reserve_need(length(), std::max(total_tokens, length()));
    counts[g] = need.blocks();
    list_tail(g, need, own);
  }
  const prefix::Lack lack{counts, watermark, own, urgency == Urgency::must_succeed};
  return price_with_store(cache(), lack).missing == 0;
}

// Puts the full blocks with known ids that are not in the prefix index yet into it. What is skipped
// is left for a later call.
void Session::publish(prefix::IfLocked if_locked) noexcept {
  const prefix::Hold& hold = content_.hold();
  const uint64_t block_size = cache().config().block_size, from = hold.depth() * block_size;
  if (!publishes() || length() < from + block_size) return;
  const prefix::Tokens tokens = content_.tokens();
  if (prefix::known_prefix_length(tokens.subspan(from, block_size)) < block_size) return;
  uint64_t end = std::min(length(), content_.forgotten_from());
  for (const auto& table : content_.tables()) end = std::min(end, table->length_to_share(length()));
  if (end >= from + block_size)
    cache().prefix()->publish(content_.hold(), tokens.first(end), content_.tables(), if_locked);
}

// ---- A step -------------------------------------------------------------------------------------

void Session::prepare_step(uint32_t new_tokens, std::span<const memory::StepNeed> needs) {
  reserve_more(content_.tokens(), new_tokens);
  for (size_t g = 0; g < needs.size(); g++)
    content_.tables()[g]->ensure_capacity(needs[g], length() + new_tokens);
}

void Session::begin(const Step& step, uint32_t new_tokens, std::span<const memory::StepNeed> needs,
                    Reservation& reservation) noexcept {
  for (size_t g = 0; g < needs.size(); g++)
    content_.tables()[g]->begin(length(), length() + new_tokens, needs[g].copies,
                                reservation.take(g, needs[g].blocks()));
  step_ = &step;
  step_tokens_ = new_tokens;
}

void Session::list_expired(std::span<const memory::StepNeed> needs,
                           prefix::OwnBlocks& listed) const {
  for (size_t g = 0; g < needs.size(); g++) {
    const memory::BlockTable& table = content_.table(g);
    const auto [begin, end] = table.expired(length());
    for (size_t i = begin; i < end; i++)
      if (memory::is_block(table.blocks()[i])) listed.expired.push_back({g, table.ids()[i]});
    if (!table.spare_blocks().empty())
      listed.spares.push_back({&table, g, length(), needs[g].spares});
  }
}

void Session::release_expired(std::span<const memory::StepNeed> needs) noexcept {
  for (size_t g = 0; g < needs.size(); g++)
    content_.tables()[g]->release_expired(length(), needs[g].spares);
}

void Session::drop_originals() noexcept {
  for (const auto& table : content_.tables()) table->drop_original();
}

void Session::commit(std::span<const int32_t> ids, uint64_t count,
                     std::span<const uint32_t> kept) noexcept {
  const uint64_t start = length();
  auto& own = content_.tokens();
  if (!ids.empty() && total() == start)  // no id is remembered that could fill a gap
    own.insert(own.end(), ids.begin(), ids.end());
  else
    for (uint64_t i = 0; i < count; i++)
      own.push_back(ids.empty() || ids[i] == PKV_UNKNOWN_TOKEN ? suspension_.token(start + i)
                                                               : ids[i]);
  for (const auto& table : content_.tables()) table->commit(start, start + count, kept);
  step_ = nullptr;
  if (step_tokens_ > 0) content_.hold().release_tail();
  has_run_ = has_run_ || count > 0;
  suspension_.forget_computed(length());
  publish(prefix::IfLocked::skip);
}

void Session::abort() noexcept {
  for (const auto& table : content_.tables()) table->abort();
  step_ = nullptr;
}

// Allocates memory for `total` token ids. Throws TOO_LARGE, bad_alloc.
void Session::reserve_ids(uint64_t total) {
  auto& tokens = content_.tokens();
  if (total > tokens.max_size()) fail(PKV_TOO_LARGE, "%llu tokens in one session", llu(total));
  tokens.reserve(total);
}

void Session::trim(uint64_t new_length) {
  if (new_length > length())
    fail(PKV_OUT_OF_RANGE, "trim to %llu tokens; the session has %llu", llu(new_length),
         llu(length()));
  for (size_t g = 0; g < content_.groups(); g++) content_.table(g).check_trim(g, new_length);
  suspension_.forget();
  if (new_length == 0) has_run_ = false;
  cache().counters().tokens -= length() - new_length;
  content_.tokens().resize(new_length);
  for (const auto& table : content_.tables()) table->trim(new_length);
  retreat(new_length);
  content_.hold().trimmed(static_cast<uint32_t>(ceil_div(new_length, cache().config().block_size)));
}

void Session::drop_blocks(uint32_t group, std::span<const uint32_t> entries) {
  check_ready("drop_blocks");
  check_drop(group, entries);
  if (entries.empty()) return;
  publish(prefix::IfLocked::wait);
  const uint32_t size = cache().config().block_size;
  const uint64_t first = uint64_t{entries.front()} * size;
  content_.tables()[group]->drop(entries);
  if (first >= content_.forgotten_from()) return;
  content_.set_forgotten_from(first);
  content_.hold().withdraw(entries.front());
}

void Session::check_drop(uint32_t group, std::span<const uint32_t> entries) const {
  memory::check_has_rows(table(group).group(), "drop_blocks");
  const uint64_t full = length() / cache().config().block_size;
  for (size_t i = 0; i < entries.size(); i++)
    for_entry(i, [&] {
      if (entries[i] >= full)
        fail(PKV_OUT_OF_RANGE, "drop_blocks: block %u; the session has %llu full ones", entries[i],
             llu(full));
      if (i > 0 && entries[i] <= entries[i - 1])
        fail(PKV_INVALID_ARGUMENT,
             "drop_blocks: block indices must be in ascending order: index %zu is %u, after %u", i,
             entries[i], entries[i - 1]);
    });
}

uint64_t Session::trim_point(uint64_t limit) const {
  uint64_t found = std::min(limit, length());
  for (uint64_t before = found + 1; found != before;) {
    before = found;
    for (size_t g = 0; g < content_.groups(); g++) found = content_.table(g).trim_point(found);
  }
  return found;
}

const memory::BlockTable& Session::table(uint32_t group) const {
  cache().group(group);  // checks the index
  return content_.table(group);
}

}  // namespace pkv
