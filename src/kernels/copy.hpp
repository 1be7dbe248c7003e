// Copies rows into and out of a sequence, for all stored dtypes and both layouts.
#pragma once

#include "kernels/rotation.hpp"
#include "kernels/tile_reader.hpp"

namespace pkv::kernels {

// Copies K or V of one sequence.
template <class Isa>
class Copy {
 public:
  Copy(const KvView& kv, const SideView& side, const SetOps& ops, Side which)
      : kv_(kv), side_(side), ops_(*ops_of(ops, side.dtype).stored), which_(which) {}

  void store(uint64_t first, uint64_t count, const RowsView& from) const {
    const bool keeps_bits = from.dtype == side_.dtype && !rotates(side_.rotation);
    for_each_run(first, count, [&](Slot slot, TokenRange range, uint64_t row) {
      for (uint32_t head = 0; head < kv_.kv_heads; head++) {
        if (kv_.layout == PKV_LAYOUT_PLAIN) {
          const unsigned char* const given = caller_row(from, row, head);
          unsigned char* const to = row_address(side_, slot, head);
          is_converted(side_) ? put_elements(from.dtype, given, to) : encode(from.dtype, given, to);
          continue;
        }
        alignas(64) unsigned char encoded[tile_tokens][max_dim * 4];
        const unsigned char* rows[tile_tokens];
        for (uint32_t t = range.begin; t < range.end; t++) {
          const unsigned char* given = caller_row(from, row + (t - range.begin), head);
          rows[t] = given;
          if (keeps_bits) continue;
          encode(from.dtype, given, encoded[t]);
          rows[t] = encoded[t];
        }
        (which_ == Side::k ? ops_.pack_k : ops_.pack_v)(rows, range, side_.dim,
                                                        row_address(side_, slot, head));
      }
    });
  }

  // Copies the first `dims` dims of each row to a caller's rows.
  void load(uint64_t first, uint64_t count, uint32_t dims, const RowsView& to) const {
    for_each_run(first, count, [&](Slot slot, TokenRange range, uint64_t row) {
      for (uint32_t t = range.begin; t < range.end; t++, row++) {
        for (uint32_t head = 0; head < kv_.kv_heads; head++) {
          alignas(64) unsigned char stored[max_dim * 4], whole[max_dim * 4];
          unsigned char* const given = caller_row(to, row, head);
          if (is_converted(side_)) {
            get_elements(row_address(side_, slot, head), dims, to.dtype, given);
            continue;
          }
          decode(stored_row(slot, t, head, stored), to.dtype, dims == side_.dim ? given : whole);
          if (dims != side_.dim) __builtin_memcpy(given, whole, dims * dtype_bytes(to.dtype));
        }
      }
    });
  }

  // Copies from another sequence, or from this one, whose rows have the same dtype.
  void transfer(uint64_t first, uint64_t count, const Copy& source, uint64_t source_first) const {
    const uint32_t bytes = row_bytes(side_.dtype, side_.dim);
    for_each_run(first, count, [&](Slot slot, TokenRange range, uint64_t row) {
      for (uint32_t head = 0; head < kv_.kv_heads; head++) {
        alignas(64) unsigned char stored[tile_tokens][max_dim * 4];
        const unsigned char* rows[tile_tokens];
        for (uint32_t t = range.begin; t < range.end; t++) {
          const uint64_t position = source_first + row + (t - range.begin);
          const uint32_t token =
              static_cast<uint32_t>(slot_of(source.kv_, position).offset % tile_tokens);
          rows[t] = source.stored_row(row_of(source.kv_, position), token, head, stored[t]);
        }
        unsigned char* const at = row_address(side_, slot, head);
        if (kv_.layout == PKV_LAYOUT_PLAIN)
          __builtin_memmove(at, rows[range.begin], bytes);
        else
          (which_ == Side::k ? ops_.pack_k : ops_.pack_v)(rows, range, side_.dim, at);
      }
    });
  }

 private:
  // Converts a caller's row to a stored row. Rotation stays out of line, so that groups without a
  // rotation do not pay for its working memory.
  void encode(pkv_dtype from_dtype, const unsigned char* from, unsigned char* to) const {
    if (rotates(side_.rotation))
      encode_rotated(from_dtype, from, to);
    else
      ops_.encode(from_dtype, from, side_.dim, to);
  }
  [[gnu::noinline]] void encode_rotated(pkv_dtype from_dtype, const unsigned char* from,
                                        unsigned char* to) const {
    alignas(64) float row[max_dim];
    rotate_given<Isa>(side_.rotation, from_dtype, from, side_.dim, row);
    ops_.encode(PKV_F32, reinterpret_cast<const unsigned char*>(row), side_.dim, to);
  }

  // Converts a stored row to a caller's.
  void decode(const unsigned char* from, pkv_dtype to_dtype, unsigned char* to) const {
    if (rotates(side_.rotation))
      decode_rotated(from, to_dtype, to);
    else
      ops_.decode(from, side_.dim, to_dtype, to);
  }
  [[gnu::noinline]] void decode_rotated(const unsigned char* from, pkv_dtype to_dtype,
                                        unsigned char* to) const {
    alignas(64) float row[max_dim];
    auto* const bytes = reinterpret_cast<unsigned char*>(row);
    ops_.decode(from, side_.dim, PKV_F32, bytes);
    rotate_back<Isa>(side_.rotation, side_.dim, row);
    convert_to_rows<Isa, PKV_F32>(bytes, to_dtype, to, side_.dim);
  }

  // The same for rows that are converted. Those of blocks are only read.
  [[gnu::noinline]] void put_elements(pkv_dtype from_dtype, const unsigned char* from,
                                      unsigned char* to) const {
    const auto [dtype, dim] = side_.in_memory;
    if (from_dtype == dtype) {
      __builtin_memcpy(to, from, size_t{dim} * dtype_bytes(dtype));
      return;
    }
    alignas(64) unsigned char copy[max_dim * 4];
    alignas(64) float row[max_dim];
    convert_from_rows<Isa, PKV_F32>(from_dtype, whole_row(from, from_dtype, dim, copy),
                                    reinterpret_cast<unsigned char*>(row), side_.dim);
    put_row<Isa>(row, dim, dtype, to);
  }
  [[gnu::noinline]] void get_elements(const unsigned char* from, uint32_t dims, pkv_dtype to_dtype,
                                      unsigned char* to) const {
    if (to_dtype == side_.in_memory.dtype) {
      __builtin_memcpy(to, from, size_t{dims} * dtype_bytes(to_dtype));
      return;
    }
    alignas(64) float row[max_dim];
    read_row<Isa>(side_.in_memory, from, row);
    if (rotates(side_.rotation)) rotate_back<Isa>(side_.rotation, side_.dim, row);
    put_row<Isa>(row, dims, to_dtype, to);
  }

  const unsigned char* stored_row(Slot slot, uint32_t token, uint32_t head,
                                  unsigned char* buffer) const {
    const unsigned char* const at = row_address(side_, slot, head);
    if (kv_.layout == PKV_LAYOUT_PLAIN) return at;
    (which_ == Side::k ? ops_.row_of_k : ops_.row_of_v)(at, token, side_.dim, buffer);
    return buffer;
  }

  // Calls visit(at, tokens, before) for each run of positions [first, first + count): a part of a
  // tile in the packed layout, a token in the plain one. `at` is what row_of() returns for the run,
  // `tokens` is its range in the tile, and `before` the number of positions in earlier runs.
  template <class Visit>
  void for_each_run(uint64_t first, uint64_t count, const Visit& visit) const {
    for (uint64_t done = 0; done < count;) {
      const uint32_t begin = static_cast<uint32_t>(slot_of(kv_, first + done).offset % tile_tokens);
      const uint64_t left = count - done;
      const uint32_t room = kv_.layout == PKV_LAYOUT_PACKED ? tile_tokens - begin : 1;
      const uint32_t n = left < room ? static_cast<uint32_t>(left) : room;
      visit(row_of(kv_, first + done), TokenRange{begin, begin + n}, done);
      done += n;
    }
  }

  const KvView& kv_;
  const SideView side_;
  const StoredOps& ops_;
  const Side which_;
};

template <class Isa>
void store(const CopyTask& task, const SetOps& ops) {
  if (task.k.data != nullptr)
    Copy<Isa>(task.kv, task.kv.k, ops, Side::k).store(task.first, task.count, task.k);
  if (task.v.data != nullptr && task.kv.v.data != nullptr)
    Copy<Isa>(task.kv, task.kv.v, ops, Side::v).store(task.first, task.count, task.v);
}

template <class Isa>
void load(const CopyTask& task, const SetOps& ops) {
  if (task.k.data != nullptr)
    Copy<Isa>(task.kv, task.kv.k, ops, Side::k)
        .load(task.first, task.count, format_of(task.kv.k).dim, task.k);
  if (task.v.data == nullptr) return;
  const bool latent = task.kv.v.data == nullptr;
  Copy<Isa>(task.kv, latent ? task.kv.k : task.kv.v, ops, latent ? Side::k : Side::v)
      .load(task.first, task.count, format_of(task.kv.v).dim, task.v);
}

template <class Isa>
void transfer(const TransferTask& task, const SetOps& ops) {
  const auto side = [&](const SideView& to, const SideView& from, Side which) {
    if (to.data == nullptr || from.data == nullptr) return;
    Copy<Isa>(task.to, to, ops, which)
        .transfer(task.to_first, task.count, Copy<Isa>(task.from, from, ops, which),
                  task.from_first);
  };
  side(task.to.k, task.from.k, Side::k);
  side(task.to.v, task.from.v, Side::v);
}

}  // namespace pkv::kernels
