// The C functions of keys and values in the caller's memory (pkv_kv_).
#include <pagedkv/kv.h>

#include <span>

#include "api/boundary.h"
#include "api/compute_object.h"
#include "engine/rows/kv_slots.h"
#include "engine/rows/kv_view.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_kv_view_init(pkv_kv_view* kv, uint64_t* bytes) {
  return guarded([&] {
    check_pointer(bytes, "bytes");
    const pkv_kv_view given = read_struct(kv, "kv");
    uint64_t size = 0;
    const pkv_kv_view planned = rows::plan_view(given, &size);
    fill_struct(kv, planned, "kv");
    *bytes = size;
  });
}

pkv_status pkv_kv_write_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                              const int64_t* slots, const pkv_tensor* k, const pkv_tensor* v) {
  return guarded([&] {
    const ComputeLease lease(compute);
    check_list(slots, rows, "slots");
    rows::write_slots(lease->workers(), lease->kernels(), read_struct(kv, "kv"),
                      std::span(slots, rows), k, v);
  });
}

pkv_status pkv_kv_write(pkv_compute compute, const pkv_kv_view* kv,
                        const pkv_kv_sequences* sequences, const pkv_tensor* k,
                        const pkv_tensor* v) {
  return guarded([&] {
    const ComputeLease lease(compute);
    rows::write_sequences(lease->workers(), lease->kernels(), read_struct(kv, "kv"),
                          read_struct(sequences, "sequences"), k, v);
  });
}

pkv_status pkv_kv_read(pkv_compute compute, const pkv_kv_view* kv,
                       const pkv_kv_sequences* sequences, const pkv_tensor* k,
                       const pkv_tensor* v) {
  return guarded([&] {
    const ComputeLease lease(compute);
    rows::read_sequences(lease->workers(), lease->kernels(), read_struct(kv, "kv"),
                         read_struct(sequences, "sequences"), k, v);
  });
}

pkv_status pkv_kv_read_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                             const int64_t* slots, const pkv_tensor* k, const pkv_tensor* v) {
  return guarded([&] {
    const ComputeLease lease(compute);
    check_list(slots, rows, "slots");
    rows::read_slots(lease->workers(), lease->kernels(), read_struct(kv, "kv"),
                     std::span(slots, rows), k, v);
  });
}
