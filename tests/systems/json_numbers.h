// Numbers out of the small JSON files of the test data, by key: a list or a single one. Keys are
// looked for in order of the text.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace systems {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<double> json_numbers(const std::string& text, const std::string& key) {
  const size_t at = text.find('"' + key + '"');
  if (at == std::string::npos) throw std::runtime_error("no key " + key);
  const size_t colon = text.find(':', at), begin = text.find_first_not_of(" \n\r\t", colon + 1);
  const bool list = text[begin] == '[';
  const size_t end = text.find_first_of(list ? "]" : ",}", begin);
  std::string numbers = text.substr(begin + list, end - begin - list);
  for (char& c : numbers)
    if (c == ',') c = ' ';
  std::istringstream list_text(numbers);
  std::vector<double> result{std::istream_iterator<double>(list_text), {}};
  if (!list_text.eof()) throw std::runtime_error("not only numbers at key " + key);
  return result;
}

inline double json_number(const std::string& text, const std::string& key) {
  return json_numbers(text, key).at(0);
}

}  // namespace systems
