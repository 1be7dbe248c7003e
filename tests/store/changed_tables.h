// Changes every byte of the tables of a file and corrects the tags, so that the reader gets as far
// as the tables.
#pragma once

#include "file.h"
#include "support.h"

namespace store {

struct ChangedTables {
  size_t refused = 0, taken = 0;
};

// Each changed file is loaded into its own cache. It is refused or now means something else, but
// the library never crashes and the cache stays valid.
template <class MakeCache>
ChangedTables load_changed_tables(const Bytes& file, const pkv_file_config& config,
                                  const MakeCache& make_cache) {
  ChangedTables counts;
  uint64_t table_bytes;
  std::memcpy(&table_bytes, file.data() + store_file::sizes_at, sizeof table_bytes);
  for (size_t at = 8; at < store_file::tables_at + table_bytes; at++) {
    for (const unsigned char by : std::initializer_list<unsigned char>{0x01, 0x7F, 0x80, 0xFF}) {
      Bytes bytes = file;
      bytes[at] = static_cast<unsigned char>(bytes[at] ^ by);
      store_file::seal(bytes);
      const Cache fresh = make_cache();
      const pkv_status status = try_load(fresh, buffer(bytes), &config);
      (status == PKV_OK ? counts.taken : counts.refused)++;
      EXPECT_TRUE(status == PKV_OK || (status >= 300 && status < 400))
          << at << ": " << pkv_last_error();
      EXPECT_EQ(PKV_OK, pkv_cache_validate(fresh)) << at << ": " << pkv_last_error();
    }
  }
  return counts;
}

}  // namespace store
