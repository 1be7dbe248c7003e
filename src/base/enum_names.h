// The names of the values of an enum of the C interface, for error messages.
#pragma once

namespace pkv {

class EnumNames {
 public:
  // The names of the values from `first` on.
  template <class... Names>
  constexpr explicit EnumNames(int first, Names... names)
      : first_(first), end_(first + int{sizeof...(names)}), names_{names...} {}

  constexpr int last() const { return end_ - 1; }
  constexpr bool has(int value) const { return value >= first_ && value < end_; }
  constexpr const char* of(int value) const {
    return has(value) ? names_[value - first_] : "unknown";
  }
  // Throws INVALID_ARGUMENT, with all names, unless the enum has the value of this field.
  void check(int value, const char* owner, const char* field) const;

 private:
  static constexpr int most = 10;
  int first_, end_;
  const char* names_[most];
};

}  // namespace pkv
