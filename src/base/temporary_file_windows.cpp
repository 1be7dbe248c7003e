// A temporary file has a random name, and its open handle, which shares no writing, is the lock.
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/temporary_file.h"
#include "base/windows.h"

namespace pkv::os {

namespace {

std::string child(const Directory& directory, const std::string& name) {
  return directory.path() + '\\' + name;
}

// Lets the name of an open file go, or gives it another one. The Ex classes act as POSIX does, also
// while others read the old file; before Windows 10 1709, and in Wine, there are only the others.
bool rename_by(HANDLE file, const std::wstring& to) {
  constexpr auto rename_info_ex = static_cast<FILE_INFO_BY_HANDLE_CLASS>(22);
  constexpr DWORD replace_as_posix = 0x1 | 0x2;  // FILE_RENAME_REPLACE_IF_EXISTS, POSIX_SEMANTICS
  const size_t size = sizeof(FILE_RENAME_INFO) + to.size() * sizeof(wchar_t);
  const auto bytes = std::make_unique<unsigned char[]>(size);
  auto* const info = reinterpret_cast<FILE_RENAME_INFO*>(bytes.get());
  info->FileNameLength = static_cast<DWORD>(to.size() * sizeof(wchar_t));
  std::memcpy(info->FileName, to.data(), info->FileNameLength);
  std::memcpy(bytes.get(), &replace_as_posix, sizeof replace_as_posix);
  if (SetFileInformationByHandle(file, rename_info_ex, info, static_cast<DWORD>(size))) return true;
  std::memset(bytes.get(), 0, sizeof replace_as_posix);
  info->ReplaceIfExists = TRUE;
  return SetFileInformationByHandle(file, FileRenameInfo, info, static_cast<DWORD>(size)) != 0;
}

bool remove_by(HANDLE file) {
  FILE_DISPOSITION_INFO info{TRUE};
  return SetFileInformationByHandle(file, FileDispositionInfo, &info, sizeof info) != 0;
}

}  // namespace

bool remove_orphan(const Directory& directory, const char* name) {
  if (!is_temporary_name(name) || !directory.find_file(name)) return false;
  // Shares nothing: it cannot be opened while its writer has it open.
  const Handle file(CreateFileW(wide_path(child(directory, name)).c_str(),
                                DELETE | FILE_READ_ATTRIBUTES, 0, nullptr, OPEN_EXISTING,
                                FILE_FLAG_OPEN_REPARSE_POINT, nullptr));
  BY_HANDLE_FILE_INFORMATION info;
  return file && GetFileInformationByHandle(file.get(), &info) && info.nNumberOfLinks == 1 &&
         remove_by(file.get());
}

TemporaryFile::TemporaryFile(const Directory& directory, std::string path)
    : directory_(directory), path_(std::move(path)), file_(create()) {}

TemporaryFile::~TemporaryFile() {
  if (!name_.empty()) remove_by(handle_of(file_.descriptor()));
}

File TemporaryFile::create() {
  for (;;)
    if (std::optional<File> named = create_named()) return std::move(*named);
}

// Returns nothing if the name is taken.
std::optional<File> TemporaryFile::create_named() {
  std::string name = random_name(path_);
  PrivateSecurity security;
  Handle handle(CreateFileW(wide_path(child(directory_, name)).c_str(),
                            GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_READ, security.get(),
                            CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!handle && GetLastError() == ERROR_FILE_EXISTS) return std::nullopt;
  if (!handle) fail_io("cannot create a file beside", path_, errno_of());
  const HANDLE file = handle.get();
  const int descriptor = descriptor_of(std::move(handle));
  if (descriptor < 0) {
    const int error = errno;
    remove_by(file);
    fail_io("cannot create a file beside", path_, error);
  }
  name_ = std::move(name);
  return File(descriptor, File::Owner::object, path_);
}

void TemporaryFile::publish(const std::string& name) {
  if (is_reserved(name)) fail_io("cannot replace", path_, EINVAL);
  if (!rename_by(handle_of(file_.descriptor()), wide_path(child(directory_, name))))
    fail_io("cannot replace", path_, errno_of());
  name_.clear();
}

// ---- Rights -------------------------------------------------------------------------------------

// A new file has the access list that it was made with, which is the user's alone.
Rights private_rights() { return {}; }

Rights rights_to_keep(const Directory& directory, const std::string& name,
                      const std::string& path) {
  const std::wstring old = wide_path(child(directory, name));
  const DWORD attributes = GetFileAttributesW(old.c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) return {};
  if ((attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0)
    fail_io("a symbolic link is not followed:", path, ELOOP);
  if ((attributes & FILE_ATTRIBUTE_DIRECTORY) != 0) fail_io("cannot replace", path, EISDIR);
  return {};
}

void set_rights(const File&, Rights, const std::string&) {}

}  // namespace pkv::os
