// Directories by paths. The handle of an open directory keeps others from renaming or deleting it,
// so that its path stays the same directory.
#include <cerrno>

#include "base/directory.h"
#include "base/windows.h"
// After windows.h.
#include <aclapi.h>

namespace pkv::os {

const char path_separators[] = "/\\";

namespace {

std::string child(const std::string& directory, const char* name) {
  return directory + '\\' + name;
}

// Whether a name is one of ours and not a path, a device or a stream.
bool is_plain(std::string_view name) {
  return name.find_first_of(path_separators) == name.npos && !is_reserved(name);
}

// Returns an invalid handle and sets *error if the path is no directory.
Handle open_directory(const std::string& path, Links links, int* error) {
  const DWORD flags =
      FILE_FLAG_BACKUP_SEMANTICS | (links == Links::follow ? 0 : FILE_FLAG_OPEN_REPARSE_POINT);
  Handle handle(CreateFileW(wide_path(path).c_str(), GENERIC_READ | READ_CONTROL,
                            FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr, OPEN_EXISTING, flags,
                            nullptr));
  FILE_ATTRIBUTE_TAG_INFO info{};
  if (!handle ||
      !GetFileInformationByHandleEx(handle.get(), FileAttributeTagInfo, &info, sizeof info)) {
    *error = errno_of();
    return Handle(INVALID_HANDLE_VALUE);
  }
  *error = (info.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 && links == Links::refuse
               ? ELOOP
           : (info.FileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0 ? ENOTDIR
                                                                   : 0;
  return *error == 0 ? std::move(handle) : Handle(INVALID_HANDLE_VALUE);
}

File file_of(Handle handle, const std::string& path) {
  const int descriptor = descriptor_of(std::move(handle));
  if (descriptor < 0) fail_io("cannot open", path, errno);
  return File(descriptor, File::Owner::object, path);
}

// Whether the token of this process has an identifier in a place.
template <class Information>
bool token_has(TOKEN_INFORMATION_CLASS which, PSID sid, PSID (*get)(const Information&)) {
  HANDLE token;
  if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token)) return false;
  const Handle closed_later(token);
  alignas(Information) unsigned char bytes[sizeof(Information) + SECURITY_MAX_SID_SIZE];
  DWORD size = 0;
  return GetTokenInformation(token, which, bytes, sizeof bytes, &size) &&
         EqualSid(get(*reinterpret_cast<const Information*>(bytes)), sid);
}

// Whether an identifier is that of the user, or of what the user's new files belong to.
bool is_self(PSID sid) {
  return token_has<TOKEN_USER>(TokenUser, sid, [](const TOKEN_USER& of) { return of.User.Sid; }) ||
         token_has<TOKEN_OWNER>(TokenOwner, sid, [](const TOKEN_OWNER& of) { return of.Owner; });
}

// Whether an identifier is that of the user or of those who may do everything anyway.
bool is_trusted(PSID sid) {
  return is_self(sid) || IsWellKnownSid(sid, WinLocalSystemSid) ||
         IsWellKnownSid(sid, WinBuiltinAdministratorsSid) ||
         IsWellKnownSid(sid, WinCreatorOwnerSid) || IsWellKnownSid(sid, WinCreatorOwnerRightsSid);
}

bool others_write(PACL list) {
  constexpr DWORD writing = FILE_ADD_FILE | FILE_ADD_SUBDIRECTORY | FILE_DELETE_CHILD | DELETE |
                            WRITE_DAC | WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL;
  if (list == nullptr) return true;  // no list: everybody may do everything
  for (DWORD i = 0; i < list->AceCount; i++) {
    void* entry = nullptr;
    if (!GetAce(list, i, &entry)) return true;
    const auto* const header = static_cast<const ACE_HEADER*>(entry);
    if (header->AceType == ACCESS_DENIED_ACE_TYPE || (header->AceFlags & INHERIT_ONLY_ACE) != 0)
      continue;
    auto* const allowed = static_cast<ACCESS_ALLOWED_ACE*>(entry);
    if (header->AceType != ACCESS_ALLOWED_ACE_TYPE) return true;
    if ((allowed->Mask & writing) != 0 && !is_trusted(&allowed->SidStart)) return true;
  }
  return false;
}

// Returns what keeps a directory from being the user's alone, or nullptr.
const char* fault_of(HANDLE directory) {
  PSID owner = nullptr;
  PACL list = nullptr;
  PSECURITY_DESCRIPTOR security = nullptr;
  if (GetSecurityInfo(directory, SE_FILE_OBJECT,
                      OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &owner, nullptr,
                      &list, nullptr, &security) != ERROR_SUCCESS)
    return "cannot look at the access list of";
  const char* const fault =
      !is_trusted(owner)   ? "another user's directory cannot be used as a store:"
      : others_write(list) ? "other users may write to the directory of a store:"
                           : nullptr;
  LocalFree(security);
  return fault;
}

}  // namespace

Directory Directory::open(const std::string& path, Links links, const char* what,
                          const std::string& shown_path) {
  int error = 0;
  Handle handle = open_directory(path, links, &error);
  if (!handle) fail_io(what, shown_path, error);
  return Directory(file_of(std::move(handle), path), 0);
}

Directory Directory::open_own(const char* path, bool) {
  std::string name = path;
  while (name.size() > 1 && (name.back() == '/' || name.back() == '\\')) name.pop_back();
  if (is_reserved(name.substr(name.find_last_of(path_separators) + 1)))
    fail_io("cannot make the directory", name, EINVAL);
  PrivateSecurity security;
  const bool is_new = CreateDirectoryW(wide_path(name).c_str(), security.get()) != 0;
  if (const DWORD error = GetLastError(); !is_new && error != ERROR_ALREADY_EXISTS) {
    // Parent directories are not made: if a volume is not mounted, the store would end up
    // elsewhere.
    fail_io(error == ERROR_PATH_NOT_FOUND ? "the parent of a store's directory does not exist:"
                                          : "cannot make the directory",
            name, errno_of(error));
  }
  int error = 0;
  Handle handle = open_directory(name, Links::refuse, &error);
  if (!handle)
    fail_io(
        error == ELOOP ? "a symbolic link is not followed to a store:" : "cannot use as a store:",
        name, error);
  if (const char* const fault = fault_of(handle.get()); fault != nullptr)
    fail_io(fault, name, EPERM);
  return Directory(file_of(std::move(handle), name), 0);
}

std::optional<Directory> Directory::find_own(const char* name, int* error) const {
  int ignored;
  int& reason = error != nullptr ? *error : ignored;
  if (!is_plain(name)) return reason = ENOENT, std::nullopt;
  const std::string whole = child(path(), name);
  Handle handle = open_directory(whole, Links::refuse, &reason);
  if (!handle) return std::nullopt;
  if (fault_of(handle.get()) != nullptr) return reason = EPERM, std::nullopt;
  return Directory(file_of(std::move(handle), whole), 0);
}

Directory Directory::find_or_make_own(const std::string& name, bool) const {
  const std::string whole = child(path(), name.c_str());
  int error = 0;
  if (std::optional<Directory> found = find_own(name.c_str(), &error)) return std::move(*found);
  if (error == ENOENT) {
    PrivateSecurity security;
    if (!CreateDirectoryW(wide_path(whole).c_str(), security.get()) &&
        GetLastError() != ERROR_ALREADY_EXISTS)
      fail_io("cannot make the directory", whole, errno_of());
    if (std::optional<Directory> made = find_own(name.c_str(), &error)) return std::move(*made);
  }
  fail_io("cannot use", whole, error);
}

// NTFS writes names to its log in order, so a flushed file also has its name.
void Directory::sync() const {}

bool Directory::for_each_name(const std::function<bool(const char*)>& visit) const {
  WIN32_FIND_DATAW found;
  const HANDLE names = FindFirstFileW((wide_path(path()) + L"\\*").c_str(), &found);
  if (names == INVALID_HANDLE_VALUE) return GetLastError() == ERROR_FILE_NOT_FOUND;
  bool wanted = true;
  do {
    const std::string name = narrow(found.cFileName);
    wanted = name == "." || name == ".." || visit(name.c_str());
  } while (wanted && FindNextFileW(names, &found));
  const bool complete = !wanted || GetLastError() == ERROR_NO_MORE_FILES;
  FindClose(names);
  return complete;
}

std::optional<Directory::Status> Directory::find_file(const char* name) const {
  WIN32_FILE_ATTRIBUTE_DATA data;
  if (!is_plain(name) ||
      !GetFileAttributesExW(wide_path(child(path(), name)).c_str(), GetFileExInfoStandard, &data))
    return std::nullopt;
  constexpr DWORD others = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT;
  if ((data.dwFileAttributes & others) != 0) return std::nullopt;
  const auto joined = [](DWORD high, DWORD low) { return uint64_t{high} << 32 | low; };
  const FILETIME& changed = data.ftLastWriteTime;
  return Status{joined(data.nFileSizeHigh, data.nFileSizeLow),
                std::chrono::nanoseconds(
                    100 * (joined(changed.dwHighDateTime, changed.dwLowDateTime) % (1ull << 56)))};
}

std::optional<File> Directory::open_file(const char* name) const {
  if (!find_file(name)) return std::nullopt;
  Handle handle(CreateFileW(wide_path(child(path(), name)).c_str(),
                            GENERIC_READ | FILE_WRITE_ATTRIBUTES,
                            FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                            OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, nullptr));
  if (!handle) return std::nullopt;
  return file_of(std::move(handle), name);
}

bool Directory::remove_file(const char* name) const {
  return find_file(name) && DeleteFileW(wide_path(child(path(), name)).c_str());
}

void Directory::check_replaceable(const std::string& name) const {
  const std::string whole = child(path(), name.c_str());
  if (GetFileAttributesW(wide_path(whole).c_str()) != INVALID_FILE_ATTRIBUTES &&
      !find_file(name.c_str()))
    fail_io("not a file of the store's owner:", whole, EPERM);
}

}  // namespace pkv::os
