// One forward pass over many sessions. The batch reserves blocks for all sessions or for none; then
// its caller writes and attends layer by layer, and at the end commits or aborts.
#pragma once

#include <pagedkv/batch.h>

#include <optional>
#include <span>
#include <vector>

#include "engine/attention/chosen_blocks.h"
#include "engine/rows/rows.h"
#include "engine/session/session.h"

namespace pkv {

class Needs;

// The caller's lists that pkv_batch_get_state_blocks fills; before and after may be NULL.
struct StateBlocks {
  uint32_t* before;  // [sessions]
  uint32_t* indptr;  // [sessions + 1]
  uint32_t* tokens;  // [capacity], as `after`
  uint32_t* after;
  size_t capacity;
};

class Batch final : public Step {
 public:
  // Begins a step in every session. The sessions must belong to `cache`, be listed once each and be
  // in no step; session i gets new_tokens[i] new tokens. Throws OUT_OF_BLOCKS, TOO_LARGE,
  // BATCH_TOO_LARGE, OVERFLOW, BUSY, SUSPENDED, bad_alloc; then no session has begun.
  Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens);
  // Aborts the step unless it was committed.
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  bool written(uint32_t layer) const override { return written_[layer]; }
  size_t sessions() const { return members_.size(); }
  // The new tokens of all sessions.
  size_t rows() const { return batch_rows_.rows(); }

  // Sets where the rows of each session begin in tensors; NULL: one session after the other.
  void set_first_rows(const uint32_t* first_rows);
  // Stores K and V of the new tokens in one layer. Throws OUT_OF_RANGE, UNSUPPORTED,
  // INVALID_ARGUMENT, OVERFLOW; then nothing is written, unless the caller's runner failed.
  void write(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);
  // Attends with the queries of the new tokens in one layer. Throws as write() does, INCOMPLETE
  // while the layer is not written, and bad_alloc; then `out` is untouched, unless the caller's
  // runner failed.
  void attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
              const pkv_tensor* out, const pkv_attention_outputs* outputs);
  // Keeps only the listed new tokens of session `index` (indices in ascending order), as after the
  // verification of drafts. Only accept(), commit() and abort are possible from then on. Throws
  // OUT_OF_RANGE, UNSUPPORTED, INCOMPLETE, INVALID_ARGUMENT, bad_alloc; then nothing has changed.
  void accept(size_t index, std::span<const uint32_t> kept);
  // Ends the step: the new tokens become part of their sessions. `tokens` holds an id for each row
  // or is NULL. Throws INCOMPLETE, INVALID_ARGUMENT; then the step is still open.
  void commit(const int32_t* tokens);

  // The queries below throw OUT_OF_RANGE for an unknown layer or group, and UNSUPPORTED where
  // the group does not have what they return.

  // Writes pointers to the states of one layer: before[i] to the state of session i, NULL if it has
  // no token yet; `after` to those that the step keeps, in the order of state_blocks(), if they
  // fit. Returns how many states the step keeps.
  size_t states(uint32_t layer, const void** before, std::span<void*> after) const;
  // Writes which states of a group the step keeps, if the lists have room. Returns how many there
  // are.
  size_t state_blocks(uint32_t group, const StateBlocks& out) const;

  // Writes the slots of the new tokens in one group if they fit. Returns how many there are.
  size_t slot_mapping(uint32_t group, std::span<int64_t> slots) const;
  // Writes the pairs of a shared block and the private copy by which the step replaced it, if they
  // fit. Returns how many there are.
  size_t block_copies(uint32_t group, std::span<uint32_t> from, std::span<uint32_t> to) const;
  // Writes the blocks or slots that each session reads, as compressed rows (indptr and indices), if
  // they fit into `indices`. Returns how many there are. Also throws OVERFLOW.
  size_t kv_indices(uint32_t group, pkv_index_unit unit, uint32_t* indptr,
                    std::span<uint32_t> indices, uint32_t* last_block_length) const;

 private:
  // The new tokens that accept() kept of a session.
  struct Accepted {
    std::vector<uint32_t> indices;
    std::vector<int32_t> ids;  // filled by commit(), allocated before so that it cannot fail
  };
  struct Member {
    Session* session;
    uint64_t start;    // the session's length before the step
    uint32_t count;    // how many new tokens it has
    size_t first_row;  // the row of the first of them, among the rows of all sessions
    std::optional<Accepted> accepted = std::nullopt;
    uint64_t end() const { return start + count; }
    uint64_t kept_count() const { return accepted ? accepted->indices.size() : count; }
    std::span<const uint32_t> kept() const {
      return accepted ? std::span<const uint32_t>(accepted->indices) : std::span<const uint32_t>();
    }
  };

  void begin();
  void let_go(const Needs& needs, const prefix::OwnBlocks& listed, std::span<const size_t> tails);
  void abort() noexcept;
  size_t first_unwritten() const;
  memory::Group& group_with_rows(uint32_t layer, const char* who) const;
  void check_has_slots(uint32_t group) const;
  size_t count_states(uint32_t group) const;
  void check_none_accepted(const char* who) const;
  std::span<const rows::Sequence> sequences(uint32_t layer);
  void compute_bounds() noexcept;
  attention::ChoosingLayer choosing_layer(const attention::AttendCall& call, uint32_t layer,
                                          memory::Group& group) const;
  static std::span<const int32_t> kept_ids(Member& member, const int32_t* tokens);
  void check_ids(size_t index, std::span<const int32_t> ids) const;

  Cache& cache_;
  std::vector<Member> members_;
  // The copies of one write. The vector is reserved by the constructor, so that write() needs no
  // memory for it.
  std::vector<kernels::CopyTask> tasks_;
  std::vector<bool> written_;         // by layer; those that the engine writes count as written
  std::vector<uint32_t> first_rows_;  // by session, as the caller set them; empty: not set
  rows::BatchRows batch_rows_;        // which rows of tensors each session has
  // The sessions with new tokens, and their K and V in the layer that sequences() returned last.
  std::vector<rows::Sequence> sequences_;
  std::optional<uint32_t> viewed_layer_;
  bool has_accepted_ = false;  // accept() was called for some session
  size_t copies_ = 0;          // how many shared tails the step copied
  bool open_ = false;          // begun, and neither committed nor aborted
};

}  // namespace pkv
