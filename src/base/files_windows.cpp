// Files by handles of Windows, and what all its files of this room share.
#include "base/windows.h"
// After windows.h.
#include <fcntl.h>
#include <io.h>
#include <sddl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "base/files.h"

namespace pkv::os {

// ---- Shared -------------------------------------------------------------------------------------

int errno_of(DWORD error) {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_BAD_NETPATH:
    case ERROR_BAD_NET_NAME:
      return ENOENT;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION:
    case ERROR_WRITE_PROTECT:
      return EACCES;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return EEXIST;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
      return ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_COMMITMENT_LIMIT:
      return ENOMEM;
    case ERROR_TOO_MANY_OPEN_FILES:
      return EMFILE;
    case ERROR_INVALID_HANDLE:
      return EBADF;
    case ERROR_DIRECTORY:
      return ENOTDIR;
    case ERROR_FILENAME_EXCED_RANGE:
      return ENAMETOOLONG;
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA:
      return EPIPE;
    case ERROR_INVALID_NAME:
    case ERROR_INVALID_PARAMETER:
    case ERROR_NEGATIVE_SEEK:
      return EINVAL;
    default:
      return EIO;
  }
}

std::wstring wide_path(const std::string& path) {
  const int size = static_cast<int>(std::min<size_t>(path.size(), 32767));
  const int length =
      MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.data(), size, nullptr, 0);
  if (path.empty() || length <= 0 || path.size() > 32767) fail_io("not a path:", path, EINVAL);
  std::wstring text(static_cast<size_t>(length), L'\0');
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path.data(), size, text.data(), length);
  // Names of devices are refused before, because paths with this prefix are not searched for them.
  if (text.starts_with(L"\\\\")) return text;
  std::wstring whole(32767, L'\0');
  const DWORD n =
      GetFullPathNameW(text.c_str(), static_cast<DWORD>(whole.size()), whole.data(), nullptr);
  if (n == 0 || n >= whole.size()) fail_io("not a path:", path, errno_of());
  whole.resize(n);
  return whole.starts_with(L"\\\\") ? whole : L"\\\\?\\" + whole;
}

std::string narrow(std::wstring_view text) {
  const int size = static_cast<int>(text.size());
  const int length =
      WideCharToMultiByte(CP_UTF8, 0, text.data(), size, nullptr, 0, nullptr, nullptr);
  std::string result(static_cast<size_t>(length), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), size, result.data(), length, nullptr, nullptr);
  return result;
}

bool is_reserved(std::string_view name) {
  if (name.find(':') != name.npos || name.ends_with('.') || name.ends_with(' ')) return true;
  std::string base(name.substr(0, name.find('.')));
  while (base.ends_with(' ')) base.pop_back();
  std::ranges::transform(base, base.begin(), [](unsigned char c) { return std::toupper(c); });
  if (base.size() == 4 && (base.starts_with("COM") || base.starts_with("LPT")))
    return std::isdigit(static_cast<unsigned char>(base[3])) != 0;
  constexpr std::array devices = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"};
  return std::ranges::find(devices, base) != devices.end();
}

HANDLE handle_of(int descriptor) { return reinterpret_cast<HANDLE>(_get_osfhandle(descriptor)); }

int descriptor_of(Handle handle) {
  const int descriptor = _open_osfhandle(reinterpret_cast<intptr_t>(handle.get()), _O_BINARY);
  if (descriptor >= 0) handle.release();
  return descriptor;
}

namespace {

// The identifier of this process's user, as in SDDL. Empty if the system refuses.
std::wstring own_identifier() {
  HANDLE token;
  if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token)) return {};
  const Handle closed_later(token);
  alignas(TOKEN_USER) unsigned char bytes[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
  DWORD size = 0;
  wchar_t* text = nullptr;
  if (!GetTokenInformation(token, TokenUser, bytes, sizeof bytes, &size) ||
      !ConvertSidToStringSidW(reinterpret_cast<const TOKEN_USER*>(bytes)->User.Sid, &text))
    return {};
  std::wstring result = text;
  LocalFree(text);
  return result;
}

}  // namespace

// SDDL: a protected list whose only entry gives all rights to the user, also in what a directory
// gets later. (Wine does not know the identifier of a file's owner, OW.)
PrivateSecurity::PrivateSecurity() {
  const std::wstring list = L"D:P(A;OICI;FA;;;" + own_identifier() + L")";
  if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(
          list.c_str(), SDDL_REVISION_1, &attributes_.lpSecurityDescriptor, nullptr))
    fail(io_details(errno_of()), "cannot make an access list (errno %d)", errno_of());
}

// ---- File ---------------------------------------------------------------------------------------

namespace {

bool is_regular(HANDLE handle) { return GetFileType(handle) == FILE_TYPE_DISK; }

}  // namespace

File::File(int descriptor, Owner owner) noexcept
    : descriptor_(descriptor), owner_(owner), signal_(0) {}

File::~File() {
  if (owner_ == Owner::object && descriptor_ >= 0) _close(descriptor_);
}

size_t File::read(void* to, size_t n) {
  size_t done = 0;
  while (done < n) {
    DWORD got = 0;
    const auto wanted = static_cast<DWORD>(std::min<size_t>(n - done, 1 << 30));
    if (!ReadFile(handle_of(descriptor_), static_cast<char*>(to) + done, wanted, &got, nullptr) &&
        GetLastError() != ERROR_BROKEN_PIPE)
      fail_io("cannot read", name_, errno_of());
    if (got == 0) break;
    done += got;
  }
  return done;
}

void File::write(const void* from, size_t n) {
  size_t done = 0;
  while (done < n) {
    DWORD written = 0;
    const auto wanted = static_cast<DWORD>(std::min<size_t>(n - done, 1 << 30));
    if (!WriteFile(handle_of(descriptor_), static_cast<const char*>(from) + done, wanted, &written,
                   nullptr))
      fail_io("cannot write", name_, errno_of());
    if (written == 0) fail_io("cannot write", name_, EIO);
    done += written;
  }
}

int File::allocate(uint64_t size) {
  FILE_END_OF_FILE_INFO end{};
  end.EndOfFile.QuadPart = static_cast<int64_t>(size);
  return SetFileInformationByHandle(handle_of(descriptor_), FileEndOfFileInfo, &end, sizeof end)
             ? 0
             : errno_of();
}

void File::sync() const {
  if (!FlushFileBuffers(handle_of(descriptor_))) fail_io("cannot sync", name_, errno_of());
}

std::optional<uint64_t> File::remaining() const {
  LARGE_INTEGER size;
  const HANDLE handle = handle_of(descriptor_);
  if (!is_regular(handle) || !GetFileSizeEx(handle, &size)) return std::nullopt;
  const uint64_t whole = static_cast<uint64_t>(size.QuadPart), at = position();
  return whole > at ? whole - at : 0;
}

uint64_t File::position() const {
  LARGE_INTEGER at;
  if (!SetFilePointerEx(handle_of(descriptor_), {}, &at, FILE_CURRENT))
    fail_io("cannot tell the position in", name_, errno_of());
  return static_cast<uint64_t>(at.QuadPart);
}

void File::seek(uint64_t position) {
  LARGE_INTEGER to;
  to.QuadPart = static_cast<int64_t>(position);
  if (!SetFilePointerEx(handle_of(descriptor_), to, nullptr, FILE_BEGIN))
    fail_io("cannot seek in", name_, errno_of());
}

void File::touch(std::chrono::nanoseconds time) const noexcept {
  // In units of 100 ns since 1601.
  const auto ticks = static_cast<uint64_t>(time.count() / 100) + 116'444'736'000'000'000;
  const FILETIME at{static_cast<DWORD>(ticks), static_cast<DWORD>(ticks >> 32)};
  (void)SetFileTime(handle_of(descriptor_), nullptr, nullptr, &at);
}

File open_to_read(const char* path) {
  const std::string whole = path;
  if (is_reserved(whole.substr(whole.find_last_of("/\\") + 1)))
    fail_io("not a regular file:", whole, EINVAL);
  Handle handle(CreateFileW(wide_path(whole).c_str(), GENERIC_READ,
                            FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                            OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, nullptr));
  if (!handle) {
    const int error = errno_of();
    const DWORD attributes = GetFileAttributesW(wide_path(whole).c_str());
    const bool directory =
        attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    fail_io(directory ? "cannot read" : "cannot open", whole, directory ? EISDIR : error);
  }
  FILE_ATTRIBUTE_TAG_INFO info{};
  if (!GetFileInformationByHandleEx(handle.get(), FileAttributeTagInfo, &info, sizeof info))
    fail_io("cannot look at", whole, errno_of());
  if ((info.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0)
    fail_io("a symbolic link is not followed:", whole, ELOOP);
  if (!is_regular(handle.get())) fail_io("not a regular file:", whole, EINVAL);
  const int descriptor = descriptor_of(std::move(handle));
  if (descriptor < 0) fail_io("cannot open", whole, errno);
  return File(descriptor, File::Owner::object, whole);
}

File file_of(int descriptor) {
  fail(PKV_UNSUPPORTED,
       "stream: descriptor %d belongs to a C library, and on Windows each program and library may "
       "have its own: pass read and write functions",
       descriptor);
}

}  // namespace pkv::os
