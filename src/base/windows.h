// For the files of base that call Windows: nobody else includes it.
#pragma once

#include <windows.h>

#include <string>
#include <string_view>
#include <utility>

namespace pkv::os {

// The errno that says the same as an error of Windows, by default that of the last call.
int errno_of(DWORD error = GetLastError());

// The path in UTF-16, as an absolute one that may be longer than 260 characters. Throws IO.
std::wstring wide_path(const std::string& path);
// Back to UTF-8.
std::string narrow(std::wstring_view text);

// Whether a system that follows Windows' rules would take the name for a device, such as NUL, or
// for a stream of another file.
bool is_reserved(std::string_view name);

class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, INVALID_HANDLE_VALUE)) {}
  ~Handle() {
    if (*this) CloseHandle(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  explicit operator bool() const { return handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }
  void release() { handle_ = INVALID_HANDLE_VALUE; }

 private:
  HANDLE handle_;
};

// The system's handle of a descriptor.
HANDLE handle_of(int descriptor);
// A descriptor that owns the handle; -1 and errno if there are too many.
int descriptor_of(Handle handle);

// What files and directories are made with: only this user may read, write and delete them.
class PrivateSecurity {
 public:
  PrivateSecurity();
  ~PrivateSecurity() { LocalFree(attributes_.lpSecurityDescriptor); }
  PrivateSecurity(const PrivateSecurity&) = delete;
  PrivateSecurity& operator=(const PrivateSecurity&) = delete;
  SECURITY_ATTRIBUTES* get() { return &attributes_; }

 private:
  SECURITY_ATTRIBUTES attributes_{sizeof attributes_, nullptr, FALSE};
};

}  // namespace pkv::os
