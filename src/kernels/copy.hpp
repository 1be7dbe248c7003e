// Rows in and out of a sequence. Plain: each row is converted straight to its place. Packed: K of a whole tile is transposed,
// single tokens are scattered, so that only their own slots are written.
#pragma once

#include "kernels/convert.hpp"
#include "kernels/softmax.hpp"
#include "kernels/transpose.hpp"

namespace pkv {

template <class Isa, pkv_dtype dtype>
struct PlainCopy {
  static void store(const CopyTask& task) {
    for_each_row(task, [](const RowsView& rows, const unsigned char* row, unsigned char* place, uint32_t dim) {
      convert_to<Isa, dtype>(rows.dtype, row, place, dim);
    });
  }
  static void load(const CopyTask& task) {
    for_each_row(task, [](const RowsView& rows, unsigned char* row, const unsigned char* place, uint32_t dim) {
      convert_from<Isa, dtype>(place, rows.dtype, row, dim);
    });
  }

 private:
  template <class Visit>
  static void for_each_row(const CopyTask& task, Visit visit) {
    const KvView& kv = task.kv;
    for (uint64_t i = 0; i < task.count; i++) {
      const Slot slot = slot_of(kv, task.first + i);
      for (uint32_t head = 0; task.k.data != nullptr && head < kv.kv_heads; head++)
        visit(task.k, caller_row<Isa>(task.k, i, head), kv.k + k_offset(kv, slot.block, slot.offset, head), kv.key_dim);
      for (uint32_t head = 0; task.v.data != nullptr && head < kv.kv_heads; head++)
        visit(task.v, caller_row<Isa>(task.v, i, head), kv.v + v_offset(kv, slot.block, slot.offset, head), kv.value_dim);
    }
  }
};

// A token's elements in a packed tile are units of `bytes` bytes: one element, or a bf16 pair of dims (K).
template <class Isa, unsigned bytes>
void scatter(const unsigned char* row, uint32_t units, unsigned char* to, size_t stride) {
  for (uint32_t i = 0; i < units; i++) __builtin_memcpy(to + i * stride, row + i * bytes, bytes);
}
template <class Isa, unsigned bytes>
void gather(const unsigned char* from, size_t stride, uint32_t units, unsigned char* row) {
  for (uint32_t i = 0; i < units; i++) __builtin_memcpy(row + i * bytes, from + i * stride, bytes);
}

// How the rows of a tile lie in the packed layout.
template <class Isa, pkv_dtype dtype>
struct PackedRows {
  static constexpr unsigned bytes = Elements<Isa, dtype>::bytes;
  static constexpr unsigned pair = dtype == PKV_BF16 ? 2 : 1;
  static constexpr unsigned k_unit = pair * bytes;

  // rows[t], of the stored type, for the tokens in range.
  static void store_k(const unsigned char* const* rows, TokenRange range, uint32_t dim, unsigned char* tile) {
    if (range.whole_tile()) {
      store_whole_k(rows, dim, tile);
      return;
    }
    for (uint32_t t = range.begin; t < range.end; t++)
      scatter<Isa, k_unit>(rows[t], dim / pair, tile + t * k_unit, tile_tokens * k_unit);
  }

  static void load_k(const unsigned char* tile, uint32_t token, uint32_t dim, unsigned char* row) {
    gather<Isa, k_unit>(tile + token * k_unit, tile_tokens * k_unit, dim / pair, row);
  }

  static void store_v(const unsigned char* const* rows, TokenRange range, uint32_t dim, unsigned char* tile) {
    for (uint32_t t = range.begin; t < range.end; t++) {
      if (pair == 2 && t % 2 == 0 && t + 1 < range.end) {
        interleave(rows[t], rows[t + 1], dim, tile + packed_v_index(pair, dim, t, 0) * bytes);
        t++;
      } else {
        scatter<Isa, bytes>(rows[t], dim, tile + packed_v_index(pair, dim, t, 0) * bytes, pair * bytes);
      }
    }
  }

  static void load_v(const unsigned char* tile, uint32_t token, uint32_t dim, unsigned char* row) {
    gather<Isa, bytes>(tile + packed_v_index(pair, dim, token, 0) * bytes, pair * bytes, dim, row);
  }

 private:
  static void store_whole_k(const unsigned char* const* rows, uint32_t dim, unsigned char* tile) {
    if constexpr (k_unit == 4) {
      transpose<Isa>(rows, dim * bytes / 4, tile);
    } else {  // binary16: columns of pairs of dims, then the pairs apart
      for (uint32_t word = 0; word < dim / 2; word += 4) {
        alignas(64) unsigned char pairs[4 * tile_tokens * 4];
        transpose_four_words<Isa>(rows, word, pairs);
        for (unsigned i = 0; i < 4; i++) split(pairs + i * tile_tokens * 4, tile + (word + i) * 2 * tile_tokens * 2);
      }
    }
  }

  static void split(const unsigned char* pairs, unsigned char* to) {
    constexpr unsigned lanes = Words<Isa>::size;
    for (unsigned t = 0; t < tile_tokens; t += lanes) {
      const Words<Isa> words = load_words<Isa>(pairs + t * 4);
      Isa::narrow(to + t * 2, words & Words<Isa>(0xFFFFu));
      Isa::narrow(to + (tile_tokens + t) * 2, words >> 16);
    }
  }

  static void interleave(const unsigned char* even, const unsigned char* odd, uint32_t dim, unsigned char* to) {
    for (uint32_t d = 0; d < dim; d += Words<Isa>::size) {
      const Words<Isa> words = Isa::widen(even + d * 2) | (Isa::widen(odd + d * 2) << 16);
      words.store_unaligned(reinterpret_cast<uint32_t*>(to + d * 4));
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct PackedCopy {
  using Rows = PackedRows<Isa, dtype>;

  static void store(const CopyTask& task) {
    for_each_tile(task, [&](Slot tile, TokenRange range, uint64_t first_row) {
      const KvView& kv = task.kv;
      for (uint32_t head = 0; head < kv.kv_heads; head++) {
        if (task.k.data != nullptr) {
          const Staged rows(task.k, first_row, head, range, kv.key_dim);
          Rows::store_k(rows.row, range, kv.key_dim, kv.k + k_offset(kv, tile.block, tile.offset, head));
        }
        if (task.v.data != nullptr) {
          const Staged rows(task.v, first_row, head, range, kv.value_dim);
          Rows::store_v(rows.row, range, kv.value_dim, kv.v + v_offset(kv, tile.block, tile.offset, head));
        }
      }
    });
  }

  static void load(const CopyTask& task) {
    for_each_tile(task, [&](Slot tile, TokenRange range, uint64_t first_row) {
      const KvView& kv = task.kv;
      alignas(64) unsigned char row[max_dim * Rows::bytes];
      for (uint32_t t = range.begin; t < range.end; t++) {
        const uint64_t to = first_row + (t - range.begin);
        for (uint32_t head = 0; task.k.data != nullptr && head < kv.kv_heads; head++) {
          Rows::load_k(kv.k + k_offset(kv, tile.block, tile.offset, head), t, kv.key_dim, row);
          convert_from<Isa, dtype>(row, task.k.dtype, caller_row<Isa>(task.k, to, head), kv.key_dim);
        }
        for (uint32_t head = 0; task.v.data != nullptr && head < kv.kv_heads; head++) {
          Rows::load_v(kv.v + v_offset(kv, tile.block, tile.offset, head), t, kv.value_dim, row);
          convert_from<Isa, dtype>(row, task.v.dtype, caller_row<Isa>(task.v, to, head), kv.value_dim);
        }
      }
    });
  }

 private:
  // The caller's rows for the tokens of a tile, in the stored type: where they lie if they have it, else converted.
  struct Staged {
    Staged(const RowsView& rows, uint64_t first_row, uint32_t head, TokenRange range, uint32_t dim) {
      for (uint32_t t = range.begin; t < range.end; t++) {
        row[t] = caller_row<Isa>(rows, first_row + (t - range.begin), head);
        if (rows.dtype == dtype) continue;
        convert_to<Isa, dtype>(rows.dtype, row[t], converted[t], dim);
        row[t] = converted[t];
      }
    }
    const unsigned char* row[tile_tokens];
    alignas(64) unsigned char converted[tile_tokens][max_dim * Rows::bytes];
  };

  template <class Visit>
  static void for_each_tile(const CopyTask& task, Visit visit) {
    for (uint64_t done = 0; done < task.count;) {
      const Slot slot = slot_of(task.kv, task.first + done);
      const uint32_t begin = static_cast<uint32_t>(slot.offset % tile_tokens);
      const uint64_t left = task.count - done;
      const uint32_t end = left < tile_tokens - begin ? begin + static_cast<uint32_t>(left) : tile_tokens;
      visit(Slot{slot.block, slot.offset / tile_tokens}, TokenRange{begin, end}, done);
      done += end - begin;
    }
  }
};

}  // namespace pkv
