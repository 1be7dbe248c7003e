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

// Reserves room for `more` further elements; if the vector has to grow, it at least doubles its
// capacity. reserve() alone grows to exactly the size asked for, so reserving one more element at a
// time would copy the vector each time.
template <class Vector>
void reserve_more(Vector& vector, size_t more) {
  if (vector.capacity() - vector.size() < more)
    vector.reserve(std::max(vector.size() + more, vector.capacity() * 2));
}

// Leaves new elements uninitialized, where the standard allocator would set them to 0.
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

// A std::pmr::vector of numbers whose resize() does not initialize new elements. Assigning to or
// inserting into a std::pmr::vector constructs elements one at a time, which for the ids of a long
// text takes four times as long as a memcpy.
template <class Number>
using NumberVector = std::vector<Number, NumberAllocator<Number>>;

// Appends numbers by a memcpy. Allocates nothing if the room was reserved before.
template <class Number>
void append(NumberVector<Number>& vector, std::span<const Number> more) {
  const size_t before = vector.size();
  vector.resize(before + more.size());
  std::copy(more.begin(), more.end(), vector.begin() + static_cast<std::ptrdiff_t>(before));
}

}  // namespace pkv
