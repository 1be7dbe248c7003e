// Other users: their ids in these tests, what they put in the way, and what must be unchanged
// afterwards.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "../support/files.h"
#include "support.h"

namespace others {

namespace fs = std::filesystem;

inline bool is_root() { return getuid() == 0; }

// The user that runs the tests, and two users that need no account.
inline const uid_t me = getuid();
constexpr uid_t somebody = 54321, stranger = 54322;

// Returns the users that the library runs as in turn. Without root this is only the present one.
inline std::vector<uid_t> callers() {
  return is_root() ? std::vector<uid_t>{0, somebody} : std::vector<uid_t>{me};
}

inline void must(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "others: %s: %s\n", what, std::strerror(errno));
  std::abort();
}

// Acts as another user, in all threads of the process, until it is destroyed.
class As {
 public:
  explicit As(uid_t user) {
    if (!is_root() || user == 0) return;
    must(setgroups(0, nullptr) == 0 && setegid(user) == 0 && seteuid(user) == 0,
         "cannot act as another user");
  }
  ~As() {
    if (is_root()) must(seteuid(0) == 0 && setegid(0) == 0, "cannot act as root again");
  }
  As(const As&) = delete;
  As& operator=(const As&) = delete;
};

inline void write_file(const std::string& path, const store::Bytes& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
       "cannot write a file");
  close(file);
}

inline void give(const std::string& path, uid_t owner, mode_t mode) {
  must(!is_root() || lchown(path.c_str(), owner, owner) == 0, "cannot give a file away");
  must(chmod(path.c_str(), mode) == 0, "cannot change a mode");
}

inline void make_file(const std::string& path, const store::Bytes& bytes, uid_t owner,
                      mode_t mode) {
  write_file(path, bytes);
  give(path, owner, mode);
}

inline void make_folder(const std::string& path, uid_t owner, mode_t mode) {
  must(mkdir(path.c_str(), 0700) == 0, "cannot make a directory");
  give(path, owner, mode);
}

inline void make_fifo(const std::string& path) {
  must(mkfifo(path.c_str(), 0666) == 0, "cannot make a FIFO");
}

// The name of a socket must be short, so the path goes through a descriptor of its directory.
inline void make_socket(const std::string& path) {
  const int folder = open(fs::path(path).parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const std::string name =
      "/proc/self/fd/" + std::to_string(folder) + "/" + fs::path(path).filename().string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  must(name.size() < sizeof address.sun_path, "cannot shorten a path");
  std::memcpy(address.sun_path, name.data(), name.size());
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
       "cannot make a socket");
  close(made);
  close(folder);
}

// ---- The contents of a folder
// ------------------------------------------------------------------------------

struct Thing {
  ino_t inode;
  uid_t owner;
  gid_t group;
  mode_t mode;
  // The content of a regular file, or the target of a link.
  std::string content;
  bool operator==(const Thing&) const = default;
};
using Things = std::map<std::string, Thing>;  // Things by their paths.

inline Thing thing_at(const std::string& path) {
  struct stat status;
  must(lstat(path.c_str(), &status) == 0, "cannot look at a file");
  std::string content;
  if (S_ISREG(status.st_mode)) content = files::read(path);
  if (S_ISLNK(status.st_mode)) content = fs::read_symlink(path);
  return {status.st_ino, status.st_uid, status.st_gid, status.st_mode, content};
}

inline Things things_in(const std::string& folder) {
  Things things;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    things[entry.path()] = thing_at(entry.path());
  return things;
}

// ---- A scene ------------------------------------------------------------------------------------

// A folder for one case, which everybody may enter. Things are put in the way at `place`. They may
// lead to the caller's own `elsewhere`, which contains a file and a folder.
class Scene {
 public:
  Scene(uid_t user, uid_t place_owner, mode_t place_mode) : caller(user) {
    // Hundreds of directories are made. That is fast in memory, if the system has such a file
    // system.
    root_ = files::make_directory(access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    must(chmod(root_.c_str(), 0755) == 0, "cannot open a directory to others");
    make_folder(place(), place_owner, place_mode);
    make_folder(elsewhere(), caller, 0700);
    make_file(precious(), {'m', 'i', 'n', 'e'}, caller, 0644);
    make_folder(elsewhere() + "/folder", caller, 0700);
  }
  ~Scene() { fs::remove_all(root_); }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  std::string place() const { return root_ + "/place"; }
  std::string elsewhere() const { return root_ + "/elsewhere"; }
  std::string precious() const { return elsewhere() + "/precious"; }
  Things things() const { return things_in(root_); }

  const uid_t caller;

 private:
  std::string root_;
};

// Owners of what is put in the way.
inline uid_t own(const Scene& scene) { return scene.caller; }
inline uid_t others_own(const Scene&) { return stranger; }

// Something that is in the way at a path.
struct Obstacle {
  const char* name;
  bool needs_root;
  std::function<void(const Scene& scene, const std::string& path)> make;
};

inline const std::vector<Obstacle>& irregular_ones() {
  static const std::vector<Obstacle> all = {
      {"a link to the caller's file", false,
       [](auto& scene, auto& path) { fs::create_symlink(scene.precious(), path); }},
      {"a link to the caller's folder", false,
       [](auto& scene, auto& path) { fs::create_symlink(scene.elsewhere() + "/folder", path); }},
      {"a link into nothing", false,
       [](auto& scene, auto& path) { fs::create_symlink(scene.elsewhere() + "/new", path); }},
      {"a link to itself", false, [](auto&, auto& path) { fs::create_symlink(path, path); }},
      {"a link to a device", false,
       [](auto&, auto& path) { fs::create_symlink("/dev/zero", path); }},
      {"another user's link", true,
       [](auto& scene, auto& path) {
         fs::create_symlink(scene.precious(), path);
         must(lchown(path.c_str(), stranger, stranger) == 0, "cannot give a link away");
       }},
      {"a FIFO", false, [](auto&, auto& path) { make_fifo(path); }},
      {"a socket", false, [](auto&, auto& path) { make_socket(path); }},
      {"a device", true,
       [](auto&, auto& path) {
         must(mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 5)) == 0, "cannot make a device");
       }},
  };
  return all;
}

inline std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", mode & 07777);
  return text;
}

}  // namespace others
