// Long vectors of numbers: growth that is not quadratic, and copies that are a memcpy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace pkv {

// Reserves room for `more` further elements and at least doubles the capacity when it grows.
// reserve() alone grows to exactly what is asked for, so that a vector that is reserved for one
// more element at a time would be copied each time.
template <class Vector>
void reserve_more(Vector& vector, size_t more) {
  if (vector.capacity() - vector.size() < more)
    vector.reserve(std::max(vector.size() + more, vector.capacity() * 2));
}

// Leaves new elements as they are in memory where others set them to 0.
template <class Number>
class NumberAllocator : public std::pmr::polymorphic_allocator<Number> {
 public:
  using std::pmr::polymorphic_allocator<Number>::polymorphic_allocator;
  template <class Element>
  void construct(Element*) noexcept {}
  template <class Element, class... Arguments>
  void construct(Element* place, Arguments&&... arguments) noexcept {
    ::new (static_cast<void*>(place)) Element(std::forward<Arguments>(arguments)...);
  }
  template <class Element>
  void destroy(Element*) noexcept {}
  NumberAllocator select_on_container_copy_construction() const { return {}; }
};

// A std::pmr::vector of integers whose resize() does not initialize new elements. An assignment or
// insertion into a std::pmr::vector constructs its elements one at a time, which takes four times
// as long as a memcpy for the ids of a long text.
template <class Number>
using NumberVector = std::vector<Number, NumberAllocator<Number>>;

// Appends numbers by a memcpy. It allocates no memory if it was reserved before.
template <class Number>
void append(NumberVector<Number>& vector, std::span<const Number> more) {
  const size_t before = vector.size();
  vector.resize(before + more.size());
  std::copy(more.begin(), more.end(), vector.begin() + static_cast<std::ptrdiff_t>(before));
}

}  // namespace pkv
