/* The functions of Windows that end with A take UTF-8 here: see utf8.rc. */
#include <windows.h>
/* After windows.h. */
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <string.h>

#include "system.h"
#include "util.h"

/* The sentence of Windows for an error. */
static const char* error_text(DWORD error) {
  static char text[256];
  DWORD length = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                                error, 0, text, sizeof text, NULL);
  while (length > 0 && strchr("\r\n. ", text[length - 1]) != NULL) length--;
  text[length] = '\0';
  if (length == 0) snprintf(text, sizeof text, "error %lu", error);
  return text;
}

mapped_file map_file(const char* path, const char* what) {
  mapped_file file = {NULL, 0};
  LARGE_INTEGER size;
  const DWORD attributes = GetFileAttributesA(path);
  if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
    die(EXIT_BAD_INPUT, "the %s %s is not a regular file", what, path);
  const HANDLE handle =
      CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
  if (handle == INVALID_HANDLE_VALUE)
    die(EXIT_BAD_INPUT, "cannot open the %s %s: %s", what, path, error_text(GetLastError()));
  if (GetFileType(handle) != FILE_TYPE_DISK || !GetFileSizeEx(handle, &size))
    die(EXIT_BAD_INPUT, "the %s %s is not a regular file", what, path);
  if (size.QuadPart == 0) die(EXIT_BAD_INPUT, "the %s %s is empty", what, path);
  file.size = (size_t)size.QuadPart;
  const HANDLE mapping = CreateFileMappingA(handle, NULL, PAGE_READONLY, 0, 0, NULL);
  if (mapping != NULL) file.data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  if (file.data == NULL)
    die(EXIT_BAD_INPUT, "cannot map the %s %s (%zu bytes): %s", what, path, file.size,
        error_text(GetLastError()));
  CloseHandle(mapping);
  CloseHandle(handle);
  return file;
}

void unmap_file(mapped_file* file) {
  if (file->data != NULL) UnmapViewOfFile(file->data);
  file->data = NULL;
  file->size = 0;
}

const char library_name[] = "pagedkv.dll";

void* library_open(const char* path) { return LoadLibraryA(path); }
void* library_find(void* library, const char* name) {
  const FARPROC function = GetProcAddress(library, name);
  void* address;
  memcpy(&address, &function, sizeof address);
  return address;
}
const char* library_error(void) { return error_text(GetLastError()); }

size_t folder_length(const char* path) {
  size_t length = strlen(path);
  while (length > 0 && strchr("/\\:", path[length - 1]) == NULL) length--;
  return length;
}

void prepare_output(void) {
  _setmode(_fileno(stdout), _O_BINARY); /* or lines would end with "\r\n" */
  SetConsoleOutputCP(CP_UTF8);
}

int read_byte(void) {
  static char bytes[6]; /* of one letter, or of two units that form none */
  static int count, next;
  const HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
  DWORD mode;
  if (!GetConsoleMode(console, &mode)) return getchar();
  if (next == count) {
    wchar_t units[2];
    DWORD first, second = 0;
    do {
      if (!ReadConsoleW(console, units, 1, &first, NULL) || first == 0) return EOF;
    } while (units[0] == L'\r');
    if (units[0] == 0x1A) return EOF; /* Ctrl-Z */
    if (IS_HIGH_SURROGATE(units[0])) ReadConsoleW(console, units + 1, 1, &second, NULL);
    count = WideCharToMultiByte(CP_UTF8, 0, units, (int)(first + second), bytes, sizeof bytes, NULL,
                                NULL);
    next = 0;
  }
  return (unsigned char)bytes[next++];
}

bool program_path(char* path, size_t size) {
  const DWORD length = GetModuleFileNameA(NULL, path, (DWORD)size);
  return length != 0 && length != size;
}

bool terminal_size(size_t* rows, size_t* columns) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_ERROR_HANDLE), &info)) return false;
  *rows = (size_t)(info.srWindow.Bottom - info.srWindow.Top + 1);
  *columns = (size_t)(info.srWindow.Right - info.srWindow.Left + 1);
  return true;
}
