// How a new file replaces an old one: it is written as a temporary file, which gets its real name
// when it is complete.
#include "base/file_replacement.h"

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/os.h"

namespace pkv::os {

namespace {

constexpr std::string_view name_prefix = ".pagedkv-", name_suffix = ".tmp";
constexpr size_t name_digits = 16;

uint64_t random_number(const std::string& path) {
  uint64_t number = 0;
  if (const int error = fill_random(&number, sizeof number); error != 0)
    fail_io("no random number for", path, error);
  return number;
}

}  // namespace

std::string random_name(const std::string& path) {
  char text[40];
  std::snprintf(text, sizeof text, ".pagedkv-%016llx.tmp", llu(random_number(path)));
  return text;
}

bool is_temporary_name(const char* name) {
  const std::string_view whole = name;
  if (whole.size() != name_prefix.size() + name_digits + name_suffix.size()) return false;
  return whole.starts_with(name_prefix) && whole.ends_with(name_suffix) &&
         whole.substr(name_prefix.size(), name_digits).find_first_not_of("0123456789abcdef") ==
             whole.npos;
}

namespace {

// Removes the temporary files that killed processes left in a directory. In a directory with many
// names only one save in 64 does this, so that most saves do not pay for unrelated files.
void remove_orphans(const Directory& directory) {
  constexpr size_t max_names = 1024, full_scan_interval = 64;
  size_t seen = 0;
  directory.for_each_name([&](const char* name) {
    remove_orphan(directory, name);
    return ++seen != max_names || random_number(directory.path()) % full_scan_interval == 0;
  });
}

}  // namespace

FileReplacement::Target FileReplacement::find(const char* path) {
  const std::string whole = path;
  const size_t slash = whole.find_last_of(path_separators);
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : whole.substr(0, slash);
  Target target{whole, slash == std::string::npos ? whole : whole.substr(slash + 1),
                Directory::open(directory, Links::follow, "cannot open the directory of", whole),
                private_rights()};
  if (target.name.empty() || target.name == "." || target.name == "..")
    fail_io("cannot replace", whole, EISDIR);
  target.rights = rights_to_keep(target.directory, target.name, whole);
  return target;
}

FileReplacement::FileReplacement(const char* path, bool durable)
    : durable_(durable), target_(find(path)), temporary_(target_.directory, target_.path) {
  remove_orphans(target_.directory);
}

FileReplacement::FileReplacement(Directory directory, std::string name, bool durable)
    : durable_(durable),
      target_{directory.path() + '/' + name, std::move(name), std::move(directory),
              private_rights()},
      temporary_(target_.directory, target_.path) {}

void FileReplacement::commit() {
  set_rights(temporary_.file(), target_.rights, target_.path);
  if (durable_) temporary_.file().sync();
  temporary_.publish(target_.name);
  if (durable_) target_.directory.sync();
}

}  // namespace pkv::os
