// Reserving memory of std::vector without making growth quadratic.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pkv {

// Reserves room for `more` further elements and at least doubles the capacity when it grows.
// reserve() alone grows to exactly what is asked for, so that a vector that is reserved for one
// more element at a time would be copied each time.
template <class Vector>
void reserve_more(Vector& vector, size_t more) {
  if (vector.capacity() - vector.size() < more)
    vector.reserve(std::max(vector.size() + more, vector.capacity() * 2));
}

}  // namespace pkv
