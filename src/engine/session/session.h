// One sequence that grows step by step. It can be matched with the prefix index, trimmed, forked,
// suspended and resumed.
#pragma once

#include <pagedkv/session.h>

#include <algorithm>

#include "engine/cache/reservation.h"
#include "engine/session/content.h"
#include "engine/session/step.h"
#include "engine/session/suspension.h"

namespace pkv {

class Session {
 public:
  explicit Session(Content content, const Attributes& attributes = {});
  // Publishes what is new and passes the content to the store.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Cache& cache() const { return content_.cache(); }
  const Content& content() const { return content_; }
  // Committed tokens.
  uint64_t length() const { return content_.length(); }
  // Tokens with K and V in a layer whose rows the library keeps: those of a step in flight count
  // once the layer is written.
  uint64_t layer_length(uint32_t layer) const;

  // Copies the ids of tokens [first, first + n) to `out`. Those that a suspended session has yet to
  // compute again count. Throws OUT_OF_RANGE.
  void tokens(uint64_t first, size_t n, int32_t* out) const;
  // Sets ids that are PKV_UNKNOWN_TOKEN. Throws OUT_OF_RANGE, or INVALID_ARGUMENT if an id differs
  // from the known one at its position; then none is set.
  void set_tokens(uint64_t first, size_t n, const int32_t* tokens);

  // Takes blocks for `total_tokens` in all. Throws BUSY, SUSPENDED, OUT_OF_BLOCKS, TOO_LARGE,
  // bad_alloc; then none is taken.
  void reserve(uint64_t total_tokens);
  // Takes over the longest cached beginning of a text from the prefix index, reserves blocks for
  // `total_tokens` in all (0: none), and returns how many tokens it took over. The session must be
  // empty. Throws BUSY, SUSPENDED, INVALID_ARGUMENT, LIMIT_REACHED, TOO_LARGE, OUT_OF_BLOCKS,
  // bad_alloc; then the session is still empty.
  uint64_t admit(prefix::Tokens text, uint64_t total_tokens);
  // Drops all tokens beyond `length`, and remembered ones. Throws OUT_OF_RANGE if the session is
  // shorter or lacks something that its next token needs; then nothing has changed.
  void trim(uint64_t length);
  // Returns the longest length, up to `limit`, that trim() can cut to.
  uint64_t trim_point(uint64_t limit) const;
  // Releases blocks of one group, given by their entries in its block table in ascending order;
  // later tokens do not see their positions. Throws BUSY, SUSPENDED, OUT_OF_RANGE (a block that the
  // session does not fill), INVALID_ARGUMENT, UNSUPPORTED; then none is released.
  void drop_blocks(uint32_t group, std::span<const uint32_t> entries);
  // What hints set in the hold; they may do so while other threads call getters.
  prefix::Hold& hold() { return content_.hold(); }
  // Releases all blocks but remembers the token ids.
  void suspend() noexcept;
  // Takes over what the prefix index has of the remembered tokens and reserves blocks for the rest;
  // the caller computes positions [length(), total()) again. Throws BUSY, OUT_OF_BLOCKS, TOO_LARGE,
  // LIMIT_REACHED, bad_alloc; then the session stays suspended.
  void resume();
  // What it remembers from before it was suspended; nothing once length() has reached that.
  const Suspension& suspension() const { return suspension_; }
  Suspension& suspension() { return suspension_; }
  bool suspended() const { return suspension_.lasts(); }
  // Returns length(), or the number of remembered tokens if that is larger.
  uint64_t total() const { return std::max<uint64_t>(length(), suspension_.tokens().size()); }
  // Publishes the full blocks to the prefix index, and those of later commits, too.
  void start_publishing() noexcept;

  const Attributes& attributes() const { return attributes_; }
  // Returns whether full blocks with known ids go into the prefix index.
  bool publishes() const { return content_.hold() && attributes_.publishes; }
  int32_t priority() const { return attributes_.priority; }
  void set_priority(int32_t priority) { attributes_.priority = priority; }
  // The blocks that must stay free when this session takes some: one that has not run, whatever it
  // has from a match, a fork or a file, leaves them for those that have.
  uint32_t watermark() const { return has_run_ ? 0 : cache().config().watermark; }
  // How many sessions of the cache were opened before this one.
  uint64_t open_order() const { return open_order_; }
  bool in_step() const { return step_ != nullptr; }
  // Throws BUSY while a step is in flight. `who` is the name of the call, for the sentence.
  void check_idle(const char* who) const;
  // Throws BUSY while a step is in flight, and SUSPENDED.
  void check_ready(const char* who) const;
  pkv_session_info info() const;

  // ---- A step: its driver calls these for each of its sessions ----------------------------------

  // Allocates the memory that begin() and commit() need besides blocks. `needs` has one entry per
  // layer group. Throws bad_alloc; then nothing has changed.
  void prepare_step(uint32_t new_tokens, std::span<const memory::StepNeed> needs);
  // Begins a step and takes the blocks that it needs out of the reservation.
  void begin(const Step& step, uint32_t new_tokens, std::span<const memory::StepNeed> needs,
             Reservation& reservation) noexcept;
  // K and V of one layer, with room for those of the new tokens.
  kernels::KvView view(LayerPlace place) const {
    return content_.kv_table(place.group).view(place.layer);
  }
  // Releases what is kept only for convenience: blocks that left the window in the last step, which
  // a trim of that step needs, and spare blocks that neither `needs` nor later steps take. Call it
  // when blocks are short.
  void release_expired(std::span<const memory::StepNeed> needs) noexcept;
  // Adds what that would release to a list.
  void list_expired(std::span<const memory::StepNeed> needs, prefix::OwnBlocks& listed) const;
  // Releases the shared blocks that copies replaced. The step can then only be committed.
  void drop_originals() noexcept;
  // Ends the step and keeps `count` of its new tokens: those whose indices are in `kept`, or the
  // first ones if that is empty. `ids` holds the ids of the tokens that stay, or nothing if none is
  // known; for a PKV_UNKNOWN_TOKEN the session takes the id that it remembers. The caller counts
  // the tokens in the cache's statistics, once for all sessions of the step.
  void commit(std::span<const int32_t> ids, uint64_t count,
              std::span<const uint32_t> kept) noexcept;
  // Ends the step, drops its new tokens and puts the shared blocks back that copies replaced.
  void abort() noexcept;

  // The block table of one group. Throws OUT_OF_RANGE.
  const memory::BlockTable& table(uint32_t group) const;

 private:
  enum class When { suspending, closing };
  enum class Steps { any, one };  // the steps that a reservation must suffice for

  void check_drop(uint32_t group, std::span<const uint32_t> entries) const;
  void retreat(uint64_t new_length) noexcept;
  void reserve_blocks(std::span<const uint64_t> totals, uint32_t watermark, Steps steps,
                      Urgency urgency, const char* who);
  Urgency urgency_of_request(uint64_t total_tokens) const;
  void take_back();
  void check_empty(prefix::Tokens text) const;
  void put_back() noexcept;
  void reserve_ids(uint64_t total);
  void clear() noexcept;
  void pass_on(When when) noexcept;
  void drop_remembered() noexcept;
  void publish(prefix::IfLocked if_locked) noexcept;
  void write_to_store() noexcept;
  uint64_t take_prefix(prefix::Tokens text, uint64_t reserved, uint32_t watermark, Urgency urgency);
  bool can_reserve(uint64_t total_tokens, uint32_t watermark, Urgency urgency) const;

  Content content_;
  Suspension suspension_{cache()};
  // True from the first commit that kept tokens, or the first resume, until the session is trimmed
  // to 0.
  bool has_run_ = false;
  Attributes attributes_;
  const uint64_t open_order_;
  const Step* step_ = nullptr;  // in flight
  uint32_t step_tokens_ = 0;    // the new tokens of step_
  const Counted counted_{cache().counters().sessions};
};

}  // namespace pkv
