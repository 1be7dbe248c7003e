#include "plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

namespace ggml_pagedkv {

namespace {

constexpr uint16_t minus_infinity = 0xFC00, sign = 0x8000;

// The cells that a row sees, one bit each.
using Bits = std::vector<uint64_t>;

// A row of a mask.
struct Row {
  Bits seen;
  bool adds = false;  // it has other values than 0 and -infinity
};

// Reads a row of a mask, or without one sees all.
Row read_row(const uint16_t* row, int64_t cells) {
  Row result{Bits(static_cast<size_t>((cells + 63) / 64))};
  for (int64_t begin = 0; begin < cells; begin += 64) {
    const int64_t n = std::min<int64_t>(64, cells - begin);
    uint64_t word = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
    const uint16_t* const values = row != nullptr ? row + begin : nullptr;
    unsigned any = 0, all = 0xFFFF;
    for (int64_t i = 0; i < n && values != nullptr; i++) any |= values[i], all &= values[i];
    // Nearly always all of them are the same.
    if (any == minus_infinity && all == minus_infinity) {
      word = 0;
    } else if ((any & ~unsigned{sign}) != 0) {
      for (int64_t i = 0; i < n; i++) {
        if (values[i] == minus_infinity)
          word &= ~(uint64_t{1} << i);
        else
          result.adds |= (values[i] & ~unsigned{sign}) != 0;
      }
    }
    result.seen[static_cast<size_t>(begin / 64)] = word;
  }
  return result;
}

const uint16_t* row_of(const Mask& mask, int64_t stream, int64_t row) {
  if (mask.data == nullptr) return nullptr;
  return mask.data + stream * mask.stream_stride + row * mask.row_stride;
}

// Calls f(cell) for each set bit of the words word(0), word(1), ...
template <class Word, class F>
void for_each_bit(size_t words, Word word, F f) {
  for (size_t w = 0; w < words; w++)
    for (uint64_t left = word(w); left != 0; left &= left - 1)
      f(static_cast<uint32_t>(w * 64 + static_cast<size_t>(std::countr_zero(left))));
}

// Rows that follow each other and see much the same cells.
class Group {
 public:
  Group(int64_t first_row, size_t cells)
      : first_row_(first_row), seen_((cells + 63) / 64), entry_of_(cells, none) {}

  // Adds the next row, if what it sees is what the row before it saw and more, or if one cell came
  // and one left. Otherwise it changes nothing and returns false.
  bool add(const Row& row) {
    const Bits& seen = row.seen;
    int lost = 0, gained = 0;
    for (size_t w = 0; w < seen.size(); w++) {
      lost += std::popcount(seen_[w] & ~seen[w]);
      gained += std::popcount(seen[w] & ~seen_[w]);
    }
    if (lost > 1 || (lost == 1 && gained != 1)) return false;
    for_each_bit(
        seen.size(), [&](size_t w) { return seen_[w] & ~seen[w]; },
        [&](uint32_t cell) {
          entries_[entry_of_[cell]].end = rows_;
          loses_ = true;
        });
    for_each_bit(
        seen.size(), [&](size_t w) { return seen[w] & ~seen_[w]; },
        [&](uint32_t cell) {
          if (entry_of_[cell] != none) {
            entries_[entry_of_[cell]].end = forever;
            masked_ = true;
            return;
          }
          entry_of_[cell] = static_cast<uint32_t>(entries_.size());
          entries_.push_back({rows_, forever, cell});
        });
    seen_ = seen;
    masked_ |= row.adds;
    rows_++;
    return true;
  }

  // Adds the group to the calls. `seen_by_all` are the cells that each row of the stream sees.
  void finish(int64_t stream, const Mask& mask, const Bits& seen_by_all, Plan& plan) {
    if (rows_ == 0) return;
    uint32_t window = 0;
    bool masked = masked_;
    if (!loses_) {
      // A prefix that sequences share is read once, if it is where their tables begin.
      const auto is_shared = [&](const Entry& entry) {
        return (seen_by_all[entry.cell / 64] >> (entry.cell % 64) & 1) != 0;
      };
      std::vector<Entry> ordered;
      std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(ordered), is_shared);
      std::remove_copy_if(entries_.begin(), entries_.end(), std::back_inserter(ordered), is_shared);
      entries_ = std::move(ordered);
    } else if (!masked) {
      std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        return std::pair(a.first, a.end) < std::pair(b.first, b.end);
      });
      window = find_window();
      masked = window == 0;
    }
    Call& call = call_for(mask.joined ? 0 : stream, window, masked, plan);
    const int64_t first = first_row_ + (mask.joined ? stream * mask.rows : 0);
    call.first_rows.push_back(static_cast<uint32_t>(first));
    call.query_lengths.push_back(static_cast<uint32_t>(rows_));
    call.kv_lengths.push_back(entries_.size());
    add_table(call, stream * mask.stream_blocks);
    int64_t seen = 0;
    for (int64_t row = 0; row < rows_; row++) {
      while (seen < size() && at(seen).first <= row) seen++;
      call.query_positions.push_back((masked ? size() : seen) - 1);
      const uint16_t* const values = row_of(mask, stream, first_row_ + row);
      for (int64_t i = 0; i < size() && masked; i++) call.mask.push_back(values[at(i).cell]);
    }
  }

 private:
  static constexpr uint32_t none = UINT32_MAX;
  static constexpr int64_t forever = INT64_MAX;

  struct Entry {
    int64_t first, end;  // the rows that see the cell: [first, end)
    uint32_t cell;
  };

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  const Entry& at(int64_t i) const { return entries_[static_cast<size_t>(i)]; }

  // Returns the window with which each row sees the right ones of the sorted entries, or 0 if there
  // is none.
  uint32_t find_window() const {
    int64_t begin = 0, end = 0, width = 0, widest_at_start = 0;
    for (int64_t i = 1; i < size(); i++)
      if (at(i).end < at(i - 1).end) return 0;
    for (int64_t row = 0; row < rows_; row++) {
      while (end < size() && at(end).first <= row) end++;
      while (begin < end && at(begin).end <= row) begin++;
      if (begin == 0) {
        widest_at_start = end;
      } else if (width == 0) {
        width = end - begin;
      } else if (width != end - begin) {
        return 0;
      }
    }
    return widest_at_start <= width ? static_cast<uint32_t>(width) : 0;
  }

  // Returns the call of the plan that a sequence with this window is part of.
  static Call& call_for(int64_t stream, uint32_t window, bool masked, Plan& plan) {
    if (!masked)
      for (Call& call : plan.calls)
        if (call.stream == stream && call.window == window && call.mask.empty()) return call;
    plan.calls.emplace_back();
    plan.calls.back().stream = stream;
    plan.calls.back().window = window;
    return plan.calls.back();
  }

  void add_table(Call& call, int64_t first_block) const {
    const size_t sequences = call.kv_lengths.size() - 1;
    if (entries_.size() > call.block_table_stride) {
      std::vector<uint32_t> wider(sequences * entries_.size());
      for (size_t s = 0; s < sequences; s++)
        std::copy_n(call.block_tables.data() + s * call.block_table_stride, call.block_table_stride,
                    wider.data() + s * entries_.size());
      call.block_tables = std::move(wider);
      call.block_table_stride = entries_.size();
    }
    for (const Entry& entry : entries_)
      call.block_tables.push_back(static_cast<uint32_t>(first_block + entry.cell));
    call.block_tables.resize((sequences + 1) * call.block_table_stride);
  }

  int64_t first_row_, rows_ = 0;
  Bits seen_;                       // by the last row
  std::vector<uint32_t> entry_of_;  // by cell
  std::vector<Entry> entries_;
  bool loses_ = false;  // a row sees less than the one before it
  bool masked_ =
      false;  // a row adds to scores, or sees a cell again that one before it did not see
};

void plan_stream(const Mask& mask, int64_t stream, Plan& plan) {
  const auto cells = static_cast<size_t>(mask.cells);
  std::vector<Row> rows;
  Bits seen_by_all((cells + 63) / 64, ~uint64_t{0});
  for (int64_t r = 0; r < mask.rows; r++) {
    rows.push_back(read_row(row_of(mask, stream, r), mask.cells));
    for (size_t w = 0; w < seen_by_all.size(); w++) seen_by_all[w] &= rows.back().seen[w];
  }
  Group group(0, cells);
  for (int64_t r = 0; r < mask.rows; r++) {
    const Row& row = rows[static_cast<size_t>(r)];
    const bool sees =
        std::any_of(row.seen.begin(), row.seen.end(), [](uint64_t word) { return word != 0; });
    if (!sees) plan.unseeing.push_back(stream * mask.rows + r);
    if (sees && group.add(row)) continue;
    group.finish(stream, mask, seen_by_all, plan);
    group = Group(sees ? r : r + 1, cells);
    if (sees) group.add(row);
  }
  group.finish(stream, mask, seen_by_all, plan);
}

}  // namespace

bool Plan::is_of(const Mask& other) const {
  if (mask != other) return false;
  if (mask.data == nullptr) return true;
  const auto cells = static_cast<size_t>(mask.cells);
  const uint16_t* kept = bytes.data();
  for (int64_t stream = 0; stream < mask.streams; stream++)
    for (int64_t r = 0; r < mask.rows; r++, kept += cells)
      if (std::memcmp(kept, row_of(mask, stream, r), cells * sizeof *kept) != 0) return false;
  return true;
}

Plan make_plan(const Mask& mask) {
  Plan plan;
  plan.mask = mask;
  for (int64_t stream = 0; stream < mask.streams; stream++) plan_stream(mask, stream, plan);
  for (int64_t stream = 0; stream < mask.streams && mask.data != nullptr; stream++)
    for (int64_t r = 0; r < mask.rows; r++) {
      const uint16_t* const row = row_of(mask, stream, r);
      plan.bytes.insert(plan.bytes.end(), row, row + mask.cells);
    }
  return plan;
}

const Plan& Plans::of(const Mask& mask) {
  for (const Plan& plan : plans_)
    if (plan.is_of(mask)) return plan;
  // The mask of a new batch is where that of the last one was.
  for (Plan& plan : plans_)
    if (plan.mask.data == mask.data) return plan = make_plan(mask);
  if (plans_.size() < max_plans) return plans_.emplace_back(make_plan(mask));
  oldest_ = (oldest_ + 1) % max_plans;
  return plans_[oldest_] = make_plan(mask);
}

}  // namespace ggml_pagedkv
