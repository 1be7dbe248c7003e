#pragma once

#include <algorithm>
#include <cstddef>

namespace pkv {

// Room for `more` further elements, growing geometrically: reserve() alone gives just what it is
// asked for, and a vector that is reserved for one more element at a time would be copied each
// time.
template <class Vector>
void reserve_more(Vector& vector, size_t more) {
  if (vector.capacity() - vector.size() < more)
    vector.reserve(std::max(vector.size() + more, vector.capacity() * 2));
}

}  // namespace pkv
