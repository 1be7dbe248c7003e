// One forward pass over many sessions: reserve for all or none, write and attend layer by layer,
// then commit or abort.
#pragma once

#include <pagedkv/batch.h>

#include <optional>
#include <span>
#include <vector>

#include "engine/session/session.h"

namespace pkv {

class Batch : public Step {
 public:
  // Sessions of one cache, each once, none of them in a step. Throws OUT_OF_BLOCKS (and sets
  // *short_by), TOO_LARGE, bad_alloc.
  Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens,
        uint64_t* short_by);
  // Room for a step over so many sessions, without one yet.
  Batch(Cache& cache, size_t sessions);
  // Begins a step of a session that is empty and has all the room it needs: nothing can fail.
  void begin_with_room(Session& session, uint32_t new_tokens) noexcept;
  ~Batch() override;  // aborts what was not committed
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  size_t rows() const { return rows_; }
  bool written(uint32_t layer) const override { return written_[layer]; }
  const char* name() const override { return "batch"; }
  bool complete() const { return first_unwritten() == written_.size(); }

  void write(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);
  void attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
              const pkv_tensor* out);
  // Keeps only these new tokens (rising indices) of one session; then only commit is left. Throws,
  // and nothing is changed then.
  void accept(size_t index, std::span<const uint32_t> kept);
  // tokens may be NULL. Throws INCOMPLETE, INVALID_ARGUMENT, bad_alloc, and is still open then.
  void commit(const int32_t* tokens);

  // Slots of the new tokens of one group; returns how many there are, writes if they fit.
  size_t slot_mapping(uint32_t group, std::span<int64_t> slots) const;
  // Blocks that begin replaced by private ones; returns how many, writes if they fit.
  size_t block_copies(uint32_t group, size_t capacity, uint32_t* from, uint32_t* to) const;
  size_t kv_indices(uint32_t group, pkv_index_unit unit, int64_t* indptr,
                    std::span<int64_t> indices, uint32_t* last_block_length) const;

 private:
  // The new tokens that are kept of a session, and room for their ids.
  struct Accepted {
    std::vector<uint32_t> indices;
    std::vector<int32_t> ids;
  };
  struct Entry {
    Session* session;
    uint64_t start;  // its length before the step
    uint32_t count;
    size_t row;
    std::optional<Accepted> accepted = std::nullopt;
    uint64_t end() const { return start + count; }
    uint64_t kept() const { return accepted ? accepted->indices.size() : count; }
  };

  void reserve(uint64_t* short_by);
  void abort() noexcept;
  size_t first_unwritten() const;
  memory::Group& check_layer(uint32_t layer, LayerPlace* place) const;
  void check_slots(uint32_t group) const;
  void check_open_for(const char* who) const;
  std::span<const int32_t> kept_ids(size_t e, const int32_t* tokens);
  void check_ids(size_t e, std::span<const int32_t> ids) const;

  Cache& cache_;
  std::vector<Entry> entries_;
  // The copies of one write, kept so that only begin needs memory for them.
  std::vector<kernels::CopyTask> tasks_;
  std::vector<bool> written_;  // by layer
  bool accepts_ = false;       // accept() was called
  size_t rows_ = 0;
  bool open_ = false;
};

}  // namespace pkv
