/* pagedkv: the C interface for C++17 and later. Objects own their handles and can be moved, lists
 * are spans, and failed calls throw. Header-only: it needs only the C headers and the library.
 * (Over 800 lines: one file is easier to include, and most functions forward one call.)
 *
 *   pagedkv::LayerGroup model;                          fields as in pkv_layer_group
 *   model.layers = 2, model.blocks = 64;                ...
 *   pagedkv::CacheConfig config;                        fields as in pkv_cache_config
 *   config.groups = &model;
 *   pagedkv::Cache cache(config);
 *   pagedkv::Session session = cache.open();
 *   pagedkv::Batch batch = cache.begin({session}, {20});
 *   for (uint32_t layer = 0; layer < 2; layer++) {
 *     batch.write(layer, k, v);                         vectors, arrays or pointers of float
 *     batch.attend(layer, q, out);
 *   }
 *   batch.commit(tokens);
 *
 * Names follow the C interface: pkv_session_trim(session, n) is session.trim(n), and
 * pkv_session_get_length is session.length(). The documentation of the C functions applies. Structs
 * that may grow have a type here whose constructor sets struct_size, and all other fields to 0, the
 * default. Lists whose length the library determines are returned as vectors.
 *
 * OWNERSHIP. The destructor of an object closes its handle; a Batch that was not committed is
 * aborted. Objects may outlive their cache: their handles are then stale, and calls on them throw
 * PKV_STALE_HANDLE. What is destroyed or assigned while it cannot be closed (a session whose batch
 * is open, an object that another thread uses) is closed the next time that an object is.
 *
 * ERRORS. A status other than PKV_OK is thrown as an Error, with the message of pkv_last_error().
 * Engines expect to run out of blocks: try_begin, try_resume and try_admit return
 * nothing instead of throwing.
 * close() returns its status. An object converts to its handle, so you can also pass it to any C
 * function, which returns its status and throws nothing: pkv_session_trim(session, n).
 *
 * EXPERIMENTAL is what wraps experimental.h, and may change with it: BlockOutputs, ChosenBlocks,
 * RotationMatrices and Session::drop_blocks.
 *
 * Threads: as in the C interface. An Error is thrown on the thread whose call failed.
 */
#ifndef PAGEDKV_HPP
#define PAGEDKV_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "pagedkv.hpp needs C++17"
#endif

#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pagedkv {

/* ---- Errors ---------------------------------------------------------------------------------*/

/** The error message and details of a failed call. */
class Error : public std::runtime_error {
 public:
  /** Takes the details and error message of a failed call. */
  Error(const pkv_error_details& details, const std::string& sentence)
      : std::runtime_error(sentence), details_(details) {}

  /** Returns the status of the call. */
  pkv_status status() const noexcept { return details_.status; }

  /** Returns the name of the status, such as "PKV_OUT_OF_BLOCKS". */
  const char* name() const noexcept { return pkv_status_name(details_.status); }

  /** Returns the details: how many blocks are missing, for example. */
  const pkv_error_details& details() const noexcept { return details_; }

 private:
  pkv_error_details details_;
};

/** Throws an Error. If exceptions are disabled, aborts the program. */
[[noreturn]] inline void fail(const pkv_error_details& details, const std::string& sentence) {
#if defined(__cpp_exceptions)
  throw Error(details, sentence);
#else
  static_cast<void>(details), static_cast<void>(sentence);
  std::abort();
#endif
}

/** Throws an Error that concerns no group, no entry of a list and no blocks. */
[[noreturn]] inline void fail(pkv_status status, const std::string& sentence) {
  fail(pkv_error_details{status, UINT32_MAX, UINT64_MAX, 0, 0, 0}, sentence);
}

/** Throws an Error unless the status, of the last call of pagedkv.h on this thread, is PKV_OK. */
inline void check(pkv_status status) {
  if (status != PKV_OK) fail(*pkv_last_error_details(), pkv_last_error());
}

/* ---- Lists and rows -------------------------------------------------------------------------*/

/**
 * A list in the caller's memory, like std::span of C++20: made from anything with data() and size()
 * and, if its elements are const, from a braced list that lives during the call. It is the same
 * type in every version of C++, so parts of a program may be compiled for different versions (but
 * all with the same headers of pagedkv).
 */
template <class T>
class Span {
  template <class List>
  using Element = std::remove_pointer_t<decltype(std::declval<List&>().data())>;
  template <class From>
  static constexpr bool same = std::is_convertible_v<From (*)[], T (*)[]>;

 public:
  /** An empty list. */
  constexpr Span() noexcept = default;

  /** A list of size elements at data. */
  constexpr Span(T* data, size_t size) noexcept : data_(data), size_(size) {}

  /** The elements of an array. */
  template <size_t N>
  constexpr Span(T (&array)[N]) noexcept : data_(array), size_(N) {}

  /** The elements of a vector, a std::array, a std::span or a string. */
  template <class List, class = std::enable_if_t<same<Element<List>>>,
            class = decltype(std::declval<List&>().size())>
  constexpr Span(List&& list) noexcept : data_(list.data()), size_(list.size()) {}

  /** A braced list, which must live as long as the span: for arguments of calls. */
  template <class U = T, class = std::enable_if_t<std::is_const_v<U>>>
  constexpr Span(std::initializer_list<std::remove_const_t<U>> list) noexcept
      : Span(list.begin(), list.size()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

/**
 * The pkv_dtype of a C++ type. Specialise it for 16-bit types, which C++17 does not have:
 * template <> inline constexpr pkv_dtype pagedkv::dtype_of<half> = PKV_F16;
 */
template <class T>
inline constexpr pkv_dtype dtype_of = pkv_dtype(0);
/** float is F32. */
template <>
inline constexpr pkv_dtype dtype_of<float> = PKV_F32;

namespace detail {

/** The element type of an array of arrays. */
template <class T>
using Element = std::remove_const_t<std::remove_all_extents_t<T>>;

template <class T>
inline constexpr bool is_element = dtype_of<Element<T>> != pkv_dtype(0);

/** The element type of a list; const if it is read-only. */
template <class List>
using ElementOf = std::remove_pointer_t<decltype(std::declval<List&>().data())>;

/** Returns dense rows in a list, and how far it reaches; an empty list has no rows. */
template <class List, class T = ElementOf<const List>>
pkv_tensor tensor_of(const List& list) {
  const void* const data = list.size() == 0 ? nullptr : list.data();
  return {const_cast<void*>(data), dtype_of<Element<T>>, 0, 0, 0, 0, list.size() * sizeof(T)};
}

}  // namespace detail

/** Rows to read, dense unless strides are given: see pkv_tensor. */
class ConstTensor {
 public:
  /** Dense rows at data, or an array of arrays. */
  template <class T, class = std::enable_if_t<detail::is_element<T>>>
  ConstTensor(const T* data) : ConstTensor(data, dtype_of<detail::Element<T>>) {}

  /** Dense rows in a vector, a std::array or a std::span. */
  template <class List, class T = detail::ElementOf<const List>,
            class = std::enable_if_t<detail::is_element<T>>>
  ConstTensor(const List& list) : tensor_(detail::tensor_of(list)) {}

  /** Rows of any pkv_dtype; strides count elements. */
  ConstTensor(const void* data, pkv_dtype dtype, int64_t row_stride = 0, int64_t head_stride = 0,
              int64_t batch_stride = 0)
      : tensor_{const_cast<void*>(data), dtype, 0, row_stride, head_stride, batch_stride, 0} {}

  /** Rows described by a pkv_tensor. */
  explicit ConstTensor(const pkv_tensor& tensor) : tensor_(tensor) {}

  const pkv_tensor* get() const noexcept { return &tensor_; }

 private:
  pkv_tensor tensor_;
};

/** Rows to write, dense unless strides are given: see pkv_tensor. */
class Tensor {
 public:
  /** Dense rows at data, or an array of arrays. */
  template <class T, class = std::enable_if_t<detail::is_element<T> && !std::is_const_v<T>>>
  Tensor(T* data) : Tensor(data, dtype_of<detail::Element<T>>) {}

  /** Dense rows in a vector, a std::array or a std::span. */
  template <class List, class T = detail::ElementOf<List>,
            class = std::enable_if_t<detail::is_element<T> && !std::is_const_v<T>>>
  Tensor(List&& list) : tensor_(detail::tensor_of(list)) {}

  /** Rows of any pkv_dtype; strides count elements. */
  Tensor(void* data, pkv_dtype dtype, int64_t row_stride = 0, int64_t head_stride = 0,
         int64_t batch_stride = 0)
      : tensor_{data, dtype, 0, row_stride, head_stride, batch_stride, 0} {}

  /** Rows described by a pkv_tensor. */
  explicit Tensor(const pkv_tensor& tensor) : tensor_(tensor) {}

  /** Converts to rows to read. */
  operator ConstTensor() const { return ConstTensor(tensor_); }

  const pkv_tensor* get() const noexcept { return &tensor_; }

 private:
  pkv_tensor tensor_;
};

/* ---- Configs --------------------------------------------------------------------------------*/

/** Parts of the classes below. */
namespace detail {

/** A struct that may grow, with its struct_size set; all other fields are 0, the default. */
template <class T>
struct Config : T {
  Config() : T() { T::struct_size = sizeof(T); }
};

/** Returns a struct that a call fills in. */
template <class T, class Call>
T filled(Call call) {
  Config<T> out;
  check(call(static_cast<T*>(&out)));
  return out;
}

/** Returns a value that a call writes through a pointer. */
template <class T, class Call>
T told(Call call) {
  T out{};
  check(call(&out));
  return out;
}

/** Returns a list whose length the call determines; calls again if it has grown meanwhile. */
template <class T, class Call>
std::vector<T> listed(Call call) {
  std::vector<T> list(16);
  size_t count = 0;
  pkv_status status;
  while ((status = call(list.size(), list.data(), &count)) == PKV_BUFFER_TOO_SMALL)
    list.resize(count);
  check(status);
  list.resize(count);
  return list;
}

/** Throws if two lists differ in length, which the C interface cannot check. */
inline void same_size(const char* what, size_t size, size_t expected) {
  if (size != expected)
    fail(PKV_INVALID_ARGUMENT, std::string(what) + ": " + std::to_string(size) +
                                   " entries are given, not " + std::to_string(expected));
}

/** Returns a list of n elements for a call to fill. Throws if no call takes this many. */
template <class T>
std::vector<T> room_for(const char* what, size_t n) {
  if (n > UINT32_MAX)
    fail(PKV_TOO_LARGE,
         std::string(what) + " of " + std::to_string(n) + " entries; at most 2^32 - 1 at once");
  return std::vector<T>(n);
}

/** Returns whether an object cannot be closed now: a batch, a call or a hook uses it. */
inline bool is_in_use(pkv_status status) { return status == PKV_BUSY || status == PKV_REENTRANT; }

/** A handle whose owner is gone, but that was in use then. */
class Unclosed {
 public:
  using Close = pkv_status (*)(void* handle);

  /** Closes a handle now, or when a later object is closed. */
  static void add(void* handle, Close close) noexcept {
    if (auto* const left = new (std::nothrow) Unclosed{handle, close}) push(left);
  }
  /** Closes those handles that are no longer in use. */
  static void close_all() noexcept {
    if (first_.load(std::memory_order_relaxed) == nullptr) return;
    for (Unclosed *left = first_.exchange(nullptr), *next; left != nullptr; left = next) {
      next = left->next_;
      if (is_in_use(left->close_(left->handle_)))
        push(left);
      else
        delete left;
    }
  }

 private:
  Unclosed(void* handle, Close close) noexcept : handle_(handle), close_(close) {}
  static void push(Unclosed* left) noexcept {
    left->next_ = first_.load();
    while (!first_.compare_exchange_weak(left->next_, left)) {
    }
  }

  static inline std::atomic<Unclosed*> first_{nullptr};
  void* const handle_;
  const Close close_;
  Unclosed* next_ = nullptr;
};

/**
 * Owns a handle and closes it once. Converts to the handle, for C calls. A session that is
 * destroyed while its batch is open, and an object that another thread or a hook uses, are closed
 * when a later object is.
 */
template <class Handle, pkv_status (*close_handle)(Handle)>
class Owner {
 public:
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      end();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  /** Returns the handle; NULL after a move, release() or close(). */
  Handle get() const noexcept { return handle_; }
  operator Handle() const& noexcept { return handle_; }
  operator Handle() const&& = delete;

  /** Returns the handle, which the caller must then close. */
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

  /** Closes the handle and returns the status; keeps it if that is BUSY or REENTRANT. */
  pkv_status close() noexcept {
    const pkv_status status = handle_ == nullptr ? PKV_OK : close_handle(handle_);
    if (!is_in_use(status)) closed();
    return status;
  }

 protected:
  Owner() noexcept = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  ~Owner() { end(); }

  /** Notes that the handle was closed, which may have been all that kept others open. */
  void closed() noexcept {
    handle_ = nullptr;
    Unclosed::close_all();
  }

  Handle handle_ = nullptr;

 private:
  void end() noexcept {
    if (!is_in_use(close())) return;
    Unclosed::add(release(),
                  [](void* handle) { return close_handle(static_cast<Handle>(handle)); });
  }
};

/** Returns a text for the C interface, which points to the ids and the salt. */
inline pkv_prompt text_of(Span<const int32_t> ids, std::string_view salt) {
  return {sizeof(pkv_prompt), 0,          salt.empty() ? nullptr : salt.data(),
          salt.size(),        ids.data(), ids.size()};
}

}  // namespace detail

using AttentionOutputs = detail::Config<pkv_attention_outputs>;
using AttentionParams = detail::Config<pkv_attention_params>;
using BlockIo = detail::Config<pkv_block_io>;
using BlockOutputs = detail::Config<pkv_block_outputs>;
using KvSequences = detail::Config<pkv_kv_sequences>;
using CacheConfig = detail::Config<pkv_cache_config>;
using ComputeConfig = detail::Config<pkv_compute_config>;
using DirectoryConfig = detail::Config<pkv_directory_config>;
using FileConfig = detail::Config<pkv_file_config>;
using LayerGroup = detail::Config<pkv_layer_group>;
using Mask = detail::Config<pkv_mask>;
using PoolConfig = detail::Config<pkv_pool_config>;
using PrefixConfig = detail::Config<pkv_prefix_config>;
using RotationMatrices = detail::Config<pkv_rotation_matrices>;
using SessionConfig = detail::Config<pkv_session_config>;
using StoreConfig = detail::Config<pkv_store_config>;

/** What to do with a range of a text or session: see hint.h. */
struct Hint : detail::Config<pkv_hint> {
  explicit Hint(pkv_hint_action chosen, uint64_t duration = 0) {
    action = chosen;
    end = chosen == PKV_HINT_EXPECT_RETURN ? 0 : PKV_TO_END;
    duration_ms = duration;
  }
};

/** Experimental: which blocks queries read. By default these include the first and the last one. */
struct ChosenBlocks : detail::Config<pkv_chosen_blocks> {
  ChosenBlocks() { first_blocks = last_blocks = 1; }
};

/* ---- Sessions, snapshots, batches -----------------------------------------------------------*/

class Snapshot;

/** What pkv_session_resume returns: compute K and V of positions [length, total) again. */
struct Resumed {
  uint64_t length = 0; /**< Tokens that have K and V. */
  uint64_t total = 0;  /**< All tokens, including the remembered ones. */
};

/** One sequence: see session.h. */
class Session : public detail::Owner<pkv_session, pkv_session_close> {
 public:
  /** No session, until one is moved here. */
  Session() noexcept = default;
  /** Takes a handle of the C interface. */
  explicit Session(pkv_session handle) noexcept : Owner(handle) {}

  uint64_t length() const {
    return detail::told<uint64_t>([&](auto* out) { return pkv_session_get_length(handle_, out); });
  }
  pkv_session_info info() const {
    return detail::filled<pkv_session_info>(
        [&](auto* out) { return pkv_session_get_info(handle_, out); });
  }

  void tokens(uint64_t first, Span<int32_t> ids) const {
    check(pkv_session_get_tokens(handle_, first, ids.size(), ids.data()));
  }
  /** Returns all ids: of committed tokens, and those that suspend() remembered. */
  std::vector<int32_t> tokens() const {
    std::vector<int32_t> ids(info().total);
    if (!ids.empty()) tokens(0, ids);
    return ids;
  }
  void set_tokens(uint64_t first, Span<const int32_t> ids) {
    check(pkv_session_set_tokens(handle_, first, ids.size(), ids.data()));
  }
  void reserve(uint64_t total_tokens) { check(pkv_session_reserve(handle_, total_tokens)); }
  void set_priority(int32_t priority) { check(pkv_session_set_priority(handle_, priority)); }
  /** Gives a hint about the session: see hint.h. */
  pkv_hint_result hint(const Hint& hint) const {
    return detail::filled<pkv_hint_result>(
        [&](auto* out) { return pkv_hint_session(handle_, &hint, out); });
  }

  void read(uint32_t layer, uint64_t first, size_t n, const Tensor& k, const Tensor& v) const {
    check(pkv_session_read(handle_, layer, first, n, k.get(), v.get()));
  }

  /** Copies a state, layer_bytes bytes. */
  void state(uint32_t layer, uint64_t tokens, Span<unsigned char> state) const {
    check(pkv_session_get_state(handle_, layer, tokens, state.size(), state.data()));
  }

  void trim(uint64_t length) { check(pkv_session_trim(handle_, length)); }
  uint64_t trim_point(uint64_t limit) const {
    return detail::told<uint64_t>(
        [&](auto* out) { return pkv_session_get_trim_point(handle_, limit, out); });
  }
  /** Experimental. */
  void drop_blocks(uint32_t group, Span<const uint32_t> indices) {
    check(pkv_session_drop_blocks(handle_, group, indices.size(), indices.data()));
  }
  Session fork() const {
    return Session(
        detail::told<pkv_session>([&](auto* out) { return pkv_session_fork(handle_, out); }));
  }
  /** Takes a snapshot: pkv_snapshot_take. */
  Snapshot snapshot() const;

  void suspend() { check(pkv_session_suspend(handle_)); }
  Resumed resume() {
    Resumed resumed;
    check(pkv_session_resume(handle_, &resumed.length, &resumed.total));
    return resumed;
  }
  /** As resume(). Out of blocks: returns nothing; pkv_last_error_details says how many. */
  std::optional<Resumed> try_resume() {
    Resumed resumed;
    const pkv_status status = pkv_session_resume(handle_, &resumed.length, &resumed.total);
    if (status == PKV_OUT_OF_BLOCKS) return std::nullopt;
    check(status);
    return resumed;
  }

  /** Takes the longest cached prefix of a prompt, reserves blocks for total_tokens in all (0:
   * none), and returns the length of the prefix. */
  uint64_t admit(Span<const int32_t> ids, uint64_t total_tokens = 0) {
    return detail::told<uint64_t>([&](auto* out) {
      return pkv_session_admit(handle_, ids.size(), ids.data(), total_tokens, out);
    });
  }
  /** As admit(). Out of blocks: returns nothing; pkv_last_error_details says how many. */
  std::optional<uint64_t> try_admit(Span<const int32_t> ids, uint64_t total_tokens) {
    uint64_t matched = 0;
    const pkv_status status =
        pkv_session_admit(handle_, ids.size(), ids.data(), total_tokens, &matched);
    if (status == PKV_OUT_OF_BLOCKS) return std::nullopt;
    check(status);
    return matched;
  }

  std::vector<uint32_t> block_table(uint32_t group = 0) const {
    return detail::listed<uint32_t>([&](size_t capacity, auto* ids, size_t* count) {
      return pkv_session_get_block_table(handle_, group, capacity, ids, count);
    });
  }
};

/** A frozen session: see snapshot.h. */
class Snapshot : public detail::Owner<pkv_snapshot, pkv_snapshot_close> {
 public:
  /** No snapshot, until one is moved here. */
  Snapshot() noexcept = default;
  /** Takes a handle of the C interface. */
  explicit Snapshot(pkv_snapshot handle) noexcept : Owner(handle) {}

  /** Opens a session with the content of the snapshot. */
  Session fork() const {
    return Session(
        detail::told<pkv_session>([&](auto* out) { return pkv_snapshot_fork(handle_, out); }));
  }
};

inline Snapshot Session::snapshot() const {
  return Snapshot(
      detail::told<pkv_snapshot>([&](auto* out) { return pkv_snapshot_take(handle_, out); }));
}

/** One forward pass over many sessions: see batch.h. Its destructor aborts it. */
class Batch : public detail::Owner<pkv_batch, pkv_batch_abort> {
 public:
  /** What kv_indices() returns. */
  struct Indices {
    std::vector<uint32_t> indptr;  /**< Where the indices of each session begin, and the end. */
    std::vector<uint32_t> indices; /**< Block ids or slots. */
    std::vector<uint32_t> last_block_lengths; /**< Tokens in the last block of each session. */
  };

  /** What states() returns. */
  struct States {
    std::vector<const void*> before; /**< The current state of each session; null: no token yet. */
    std::vector<void*> after;        /**< Where to write the states of state_blocks(). */
  };
  /** What state_blocks() returns. */
  struct StateBlocks {
    std::vector<uint32_t> before; /**< The block of each session; PKV_NO_BLOCK_ID: no token yet. */
    std::vector<uint32_t> indptr; /**< Where the kept states of each session begin, and the end. */
    std::vector<uint32_t> tokens; /**< The new token after which each state is kept. */
    std::vector<uint32_t> after;  /**< The blocks of these states. */
  };

  /** No batch, until one is moved here. */
  Batch() noexcept = default;
  /** Takes the handle of a batch, and the number of new tokens of each session. */
  Batch(pkv_batch handle, Span<const uint32_t> new_tokens)
      : Owner(handle), sessions_(new_tokens.size()) {
    for (uint32_t n : new_tokens) rows_ += n;
  }

  /** Returns the number of sessions. */
  size_t sessions() const noexcept { return sessions_; }
  /** Returns the number of new tokens of all sessions. */
  size_t rows() const noexcept { return rows_; }
  void set_first_rows(Span<const uint32_t> first_rows) {
    check(pkv_batch_set_first_rows(handle_, first_rows.size(),
                                   first_rows.empty() ? nullptr : first_rows.data()));
  }

  void write(uint32_t layer, const ConstTensor& k, const ConstTensor& v) {
    check(pkv_batch_write(handle_, layer, k.get(), v.get()));
  }
  /** Without V, in a latent group. */
  void write(uint32_t layer, const ConstTensor& k) {
    check(pkv_batch_write(handle_, layer, k.get(), nullptr));
  }
  void attend(uint32_t layer, const ConstTensor& q, const Tensor& out,
              const pkv_attention_params& params = AttentionParams(),
              const pkv_attention_outputs& outputs = AttentionOutputs()) {
    check(pkv_batch_attend(handle_, layer, &params, q.get(), out.get(), &outputs));
  }

  /** Returns addresses in the cache's memory, valid until the batch ends. */
  States states(uint32_t layer) const {
    States out;
    out.before.resize(sessions_);
    out.after = detail::listed<void*>([&](size_t capacity, auto* after, size_t* count) {
      return pkv_batch_get_states(handle_, layer, out.before.data(), capacity, after, count);
    });
    return out;
  }
  StateBlocks state_blocks(uint32_t group) const {
    StateBlocks out;
    out.before.resize(sessions_);
    out.indptr.resize(sessions_ + 1);
    out.after = detail::listed<uint32_t>([&](size_t capacity, auto* after, size_t* count) {
      out.tokens.resize(capacity);
      return pkv_batch_get_state_blocks(handle_, group, out.before.data(), out.indptr.data(),
                                        capacity, out.tokens.data(), after, count);
    });
    out.tokens.resize(out.after.size());
    return out;
  }

  void accept(size_t session, Span<const uint32_t> kept) {
    check(pkv_batch_accept(handle_, session, kept.size(), kept.data()));
  }
  /** Ends the step; tokens has an id for each row. If it throws, the batch is still open. */
  void commit(Span<const int32_t> tokens) {
    detail::same_size("commit", tokens.size(), rows_);  // C takes an empty list for none
    ended(pkv_batch_commit(handle_, tokens.size(), tokens.data()));
  }
  /** Ends the step without ids. */
  void commit() { ended(pkv_batch_commit(handle_, 0, nullptr)); }
  /** Ends the step as if it had never begun. */
  void abort() { ended(pkv_batch_abort(handle_)); }

  std::vector<int64_t> slot_mapping(uint32_t group = 0) const {
    return detail::listed<int64_t>([&](size_t capacity, auto* slots, size_t* count) {
      return pkv_batch_get_slot_mapping(handle_, group, capacity, slots, count);
    });
  }
  /** Returns pairs of a shared block and the block that replaces it. */
  std::vector<std::pair<uint32_t, uint32_t>> block_copies(uint32_t group = 0) const {
    std::vector<uint32_t> to;
    const auto from = detail::listed<uint32_t>([&](size_t capacity, auto* blocks, size_t* count) {
      to.resize(capacity);
      return pkv_batch_get_block_copies(handle_, group, capacity, blocks, to.data(), count);
    });
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (size_t i = 0; i < from.size(); i++) pairs.emplace_back(from[i], to[i]);
    return pairs;
  }
  Indices kv_indices(uint32_t group, pkv_index_unit unit) const {
    Indices out;
    out.indptr.resize(sessions_ + 1);
    out.last_block_lengths.resize(sessions_);
    out.indices = detail::listed<uint32_t>([&](size_t capacity, auto* indices, size_t* count) {
      return pkv_batch_get_kv_indices(handle_, group, unit, out.indptr.data(), capacity, indices,
                                      count, out.last_block_lengths.data());
    });
    return out;
  }

 private:
  void ended(pkv_status status) {
    check(status);
    closed();
  }
  size_t sessions_ = 0, rows_ = 0;
};

/* ---- Stores and files -----------------------------------------------------------------------*/

/** A store, until a cache takes it: see store.h. pkv_redis_open also opens one. */
class Store {
 public:
  /** No store, until one is moved here. */
  Store() noexcept = default;
  /** Takes a store of the C interface. */
  explicit Store(const pkv_store& store) noexcept : store_(store) {}
  /** Opens a directory: pkv_store_open_directory. */
  explicit Store(const DirectoryConfig& config)
      : store_(detail::filled<pkv_store>(
            [&](auto* out) { return pkv_store_open_directory(&config, out); })) {}
  Store(Store&& other) noexcept : store_(std::exchange(other.store_, {})) {}
  Store& operator=(Store&& other) noexcept {
    std::swap(store_, other.store_);
    return *this;
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() { pkv_store_close(&store_); }

  pkv_store* get() noexcept { return &store_; }

 private:
  pkv_store store_{};
};

/** Where the bytes of a file come from or go to: see pkv_stream. */
struct Stream : detail::Config<pkv_stream> {
  /** A file by its path, a string that must live as long as the stream. */
  static Stream file(const char* path) {
    Stream stream;
    stream.kind = PKV_STREAM_PATH, stream.path = path;
    return stream;
  }
  /** A file by its path, a string that must live as long as the stream. */
  static Stream file(const std::string& path) { return file(path.c_str()); }
  /** An open descriptor. */
  static Stream fd(int descriptor) {
    Stream stream;
    stream.kind = PKV_STREAM_DESCRIPTOR, stream.descriptor = descriptor;
    return stream;
  }
  /** Memory to save to. */
  static Stream to_buffer(Span<unsigned char> bytes) {
    Stream stream;
    stream.kind = PKV_STREAM_BUFFER, stream.data = bytes.data(), stream.size = bytes.size();
    return stream;
  }
  /** Memory to load from. */
  static Stream from_buffer(Span<const unsigned char> bytes) {
    return to_buffer({const_cast<unsigned char*>(bytes.data()), bytes.size()});
  }
};

/** A loaded session, and the label with which it was saved. */
struct Loaded {
  Session session;    /**< The session. */
  uint64_t label = 0; /**< Its label. */
};

/** Returns the properties of a file. */
inline pkv_file_info inspect(const pkv_stream& from, const FileConfig& config = {}) {
  return detail::filled<pkv_file_info>(
      [&](auto* out) { return pkv_file_inspect(&config, &from, out); });
}

/* ---- Caches ---------------------------------------------------------------------------------*/

/** The KV cache of a model: see cache.h. Salts are bytes; an empty salt is none. */
class Cache : public detail::Owner<pkv_cache, pkv_cache_destroy> {
 public:
  /** No cache, until one is moved here. */
  Cache() noexcept = default;
  /** Takes a handle of the C interface. */
  explicit Cache(pkv_cache handle) noexcept : Owner(handle) {}
  /** Creates a cache. */
  explicit Cache(const pkv_cache_config& config) { check(pkv_cache_create(&config, &handle_)); }
  /**
   * Creates a cache with a store, which it takes; needs config.prefix. If it throws, the caller
   * still has the store.
   */
  Cache(pkv_cache_config config, Store&& store, StoreConfig store_config = {}) {
    store_config.store = store.get();
    config.store = &store_config;
    check(pkv_cache_create(&config, &handle_));
  }

  /** Returns the sizes of a cache with this config. */
  static pkv_cache_sizes sizes(const pkv_cache_config& config, uint32_t group = PKV_ALL_GROUPS) {
    return detail::filled<pkv_cache_sizes>(
        [&](auto* out) { return pkv_cache_compute_sizes(&config, group, out); });
  }

  pkv_cache_info info() const {
    return detail::filled<pkv_cache_info>(
        [&](auto* out) { return pkv_cache_get_info(handle_, out); });
  }
  pkv_cache_stats stats() const {
    return detail::filled<pkv_cache_stats>(
        [&](auto* out) { return pkv_cache_get_stats(handle_, out); });
  }
  pkv_pool_stats pool_stats(uint32_t group = PKV_ALL_GROUPS) const {
    return detail::filled<pkv_pool_stats>(
        [&](auto* out) { return pkv_cache_get_pool_stats(handle_, group, out); });
  }
  /** Returns the statistics in Prometheus's text format. */
  std::string metrics() const {
    const auto text = detail::listed<char>([&](size_t capacity, auto* bytes, size_t* size) {
      return pkv_cache_format_metrics(handle_, capacity, bytes, size);
    });
    return std::string(text.data());
  }
  void validate() const { check(pkv_cache_validate(handle_)); }
  pkv_kv_view kv_view(uint32_t layer) const {
    return detail::filled<pkv_kv_view>(
        [&](auto* out) { return pkv_cache_get_kv_view(handle_, layer, out); });
  }

  /** Opens an empty session. */
  Session open() {
    return Session(detail::told<pkv_session>(
        [&](auto* out) { return pkv_session_open(handle_, nullptr, out); }));
  }
  Session open(const pkv_session_config& config) {
    return Session(detail::told<pkv_session>(
        [&](auto* out) { return pkv_session_open(handle_, &config, out); }));
  }

  /** Begins a step: new_tokens[i] new tokens of sessions[i]. */
  Batch begin(Span<const pkv_session> sessions, Span<const uint32_t> new_tokens) {
    detail::same_size("begin", new_tokens.size(), sessions.size());
    return Batch(detail::told<pkv_batch>([&](auto* out) {
                   return pkv_batch_begin(handle_, sessions.size(), sessions.data(),
                                          new_tokens.data(), out);
                 }),
                 new_tokens);
  }
  /** As begin(). Out of blocks: returns nothing; pkv_last_error_details says how many. */
  std::optional<Batch> try_begin(Span<const pkv_session> sessions,
                                 Span<const uint32_t> new_tokens) {
    detail::same_size("try_begin", new_tokens.size(), sessions.size());
    pkv_batch batch = nullptr;
    const pkv_status status =
        pkv_batch_begin(handle_, sessions.size(), sessions.data(), new_tokens.data(), &batch);
    if (status == PKV_OUT_OF_BLOCKS) return std::nullopt;
    check(status);
    return std::make_optional<Batch>(batch, new_tokens);
  }
  /** Returns sessions to suspend so that begin() with the others gets its blocks. */
  std::vector<pkv_session> choose_victims(Span<const pkv_session> sessions,
                                          Span<const uint32_t> new_tokens) const {
    detail::same_size("choose_victims", new_tokens.size(), sessions.size());
    return detail::listed<pkv_session>([&](size_t capacity, auto* victims, size_t* count) {
      return pkv_batch_choose_victims(handle_, sessions.size(), sessions.data(), new_tokens.data(),
                                      capacity, victims, count);
    });
  }

  /** The prefix index: see prefix.h. */
  uint64_t probe_prefix(Span<const int32_t> ids, std::string_view salt = {}) const {
    const pkv_prompt text = detail::text_of(ids, salt);
    return detail::told<uint64_t>([&](auto* out) { return pkv_prefix_probe(handle_, &text, out); });
  }
  /** Gives a hint about a text: see hint.h. */
  pkv_hint_result hint(const Hint& hint, Span<const int32_t> ids, std::string_view salt = {}) {
    const pkv_prompt text = detail::text_of(ids, salt);
    return detail::filled<pkv_hint_result>(
        [&](auto* out) { return pkv_hint_prompt(handle_, &text, &hint, out); });
  }
  /** For all salts. */
  pkv_prefix_stats prefix_stats() const {
    return detail::filled<pkv_prefix_stats>(
        [&](auto* out) { return pkv_prefix_get_stats(handle_, nullptr, PKV_ALL_SALTS, out); });
  }
  pkv_prefix_stats prefix_stats(std::string_view salt) const {
    return detail::filled<pkv_prefix_stats>(
        [&](auto* out) { return pkv_prefix_get_stats(handle_, bytes(salt), salt.size(), out); });
  }
  /** For all salts. */
  void clear_prefixes() { check(pkv_prefix_clear(handle_, nullptr, PKV_ALL_SALTS)); }
  void clear_prefixes(std::string_view salt) {
    check(pkv_prefix_clear(handle_, bytes(salt), salt.size()));
  }
  void set_prefix_quota(std::string_view salt, uint64_t tokens) {
    check(pkv_prefix_set_quota(handle_, bytes(salt), salt.size(), tokens));
  }
  /** Copies the events that begin at number next, advances next, and returns how many were copied.
   */
  size_t read_prefix_events(uint64_t& next, Span<pkv_prefix_event> events,
                            uint64_t* lost = nullptr) {
    size_t count = 0;
    check(pkv_prefix_read_events(handle_, &next, events.size(), events.data(), &count, lost));
    return count;
  }

  /** The store of the cache: see store.h. */
  pkv_store_stats store_stats() const {
    return detail::filled<pkv_store_stats>(
        [&](auto* out) { return pkv_cache_get_store_stats(handle_, out); });
  }
  /** Waits for prefetches of a prompt, and returns how many of its tokens are in memory. */
  uint64_t wait_for_prefetch(Span<const int32_t> ids, uint32_t timeout_ms,
                             std::string_view salt = {}) {
    const pkv_prompt text = detail::text_of(ids, salt);
    return detail::told<uint64_t>(
        [&](auto* out) { return pkv_prefetch_wait(handle_, &text, timeout_ms, out, nullptr); });
  }
  void cancel_prefetch(Span<const int32_t> ids, std::string_view salt = {}) {
    const pkv_prompt text = detail::text_of(ids, salt);
    check(pkv_prefetch_cancel(handle_, &text));
  }
  /** Waits for blocks to be written, and returns how many tokens still are not. */
  uint64_t flush_store(uint32_t timeout_ms) {
    return detail::told<uint64_t>(
        [&](auto* out) { return pkv_cache_flush_store(handle_, timeout_ms, out); });
  }

  /** Saves items and, if the config says so, the prefix index. Returns the file's size. */
  uint64_t save(const pkv_stream& to, Span<const pkv_file_item> items,
                const FileConfig& config = {}) {
    return detail::told<uint64_t>([&](auto* out) {
      return pkv_file_save(handle_, items.size(), items.data(), &config, &to, out);
    });
  }
  /** Saves sessions. Their labels are their indices in the list. */
  uint64_t save(const pkv_stream& to, Span<const pkv_session> sessions,
                const FileConfig& config = {}) {
    std::vector<pkv_file_item> items;
    for (pkv_session session : sessions) items.push_back({session, nullptr, items.size()});
    return save(to, items, config);
  }
  /** Opens every item of a file. A stream that cannot be read twice needs a capacity. */
  std::vector<Loaded> load(const pkv_stream& from, const FileConfig& config = {},
                           size_t capacity = 16) {
    auto sessions = detail::room_for<pkv_session>("load", capacity);
    std::vector<uint64_t> labels(capacity);
    std::vector<Loaded> loaded;
    size_t count = 0;
    pkv_status status;
    const auto once = [&] {
      loaded.reserve(sessions.size());
      return pkv_file_load(handle_, &config, &from, sessions.size(), sessions.data(), labels.data(),
                           &count);
    };
    if ((status = once()) == PKV_BUFFER_TOO_SMALL &&
        (from.kind == PKV_STREAM_PATH || from.kind == PKV_STREAM_BUFFER)) {
      sessions.resize(count), labels.resize(count);
      status = once();
    }
    check(status);
    loaded.resize(count);
    for (size_t i = 0; i < count; i++)
      loaded[i].session = Session(sessions[i]), loaded[i].label = labels[i];
    return loaded;
  }

 private:
  static const void* bytes(std::string_view salt) { return salt.empty() ? nullptr : salt.data(); }
};

/* ---- Without a cache ------------------------------------------------------------------------*/

/** An allocator of block ids: see pool.h. */
class Pool : public detail::Owner<pkv_pool, pkv_pool_destroy> {
 public:
  /** No pool, until one is moved here. */
  Pool() noexcept = default;
  /** Takes a handle of the C interface. */
  explicit Pool(pkv_pool handle) noexcept : Owner(handle) {}
  /** Creates a pool. */
  explicit Pool(const pkv_pool_config& config) { check(pkv_pool_create(&config, &handle_)); }
  /** Creates a pool of this many blocks. */
  explicit Pool(uint32_t blocks) {
    PoolConfig config;
    config.blocks = blocks;
    check(pkv_pool_create(&config, &handle_));
  }

  void alloc(Span<pkv_block_ref> blocks) {
    check(pkv_pool_alloc(handle_, blocks.size(), blocks.data()));
  }
  std::vector<pkv_block_ref> alloc(size_t n) {
    auto blocks = detail::room_for<pkv_block_ref>("alloc", n);
    alloc(Span<pkv_block_ref>(blocks));
    return blocks;
  }
  void retain(Span<const pkv_block_ref> blocks) {
    check(pkv_pool_retain(handle_, blocks.size(), blocks.data()));
  }
  /** Releases a reference to each block: pkv_pool_release. (release() returns the handle.) */
  void free(Span<const pkv_block_ref> blocks) {
    check(pkv_pool_release(handle_, blocks.size(), blocks.data()));
  }
  pkv_pool_stats stats() const {
    return detail::filled<pkv_pool_stats>(
        [&](auto* out) { return pkv_pool_get_stats(handle_, out); });
  }
  void validate() const { check(pkv_pool_validate(handle_)); }
};

/** Threads and kernels of the functions below: see compute.h. NULL instead: all CPUs. */
class Compute : public detail::Owner<pkv_compute, pkv_compute_destroy> {
 public:
  /** Creates one with the defaults. */
  Compute() { check(pkv_compute_create(nullptr, &handle_)); }
  /** Takes a handle of the C interface. */
  explicit Compute(pkv_compute handle) noexcept : Owner(handle) {}
  /** Creates one. */
  explicit Compute(const pkv_compute_config& config) {
    check(pkv_compute_create(&config, &handle_));
  }

  pkv_compute_info info() const {
    return detail::filled<pkv_compute_info>(
        [&](auto* out) { return pkv_compute_get_info(handle_, out); });
  }
};

/** Returns a runner over the OpenMP threads of the process. */
inline pkv_runner openmp_runner() {
  return detail::told<pkv_runner>([](auto* out) { return pkv_openmp_runner(out); });
}

/** K and V of one layer in the caller's memory: see kv.h. */
struct KvView : detail::Config<pkv_kv_view> {
  /** Lays out the view in this memory (NULL: only computes), and returns its size in bytes. */
  uint64_t init(void* memory = nullptr) {
    k = memory;
    return detail::told<uint64_t>([&](auto* out) { return pkv_kv_view_init(this, out); });
  }
};

/** Computes attention over the caller's memory. */
inline void kv_attend(pkv_compute compute, const pkv_kv_view& kv, const pkv_kv_sequences& sequences,
                      const ConstTensor& q, const Tensor& out,
                      const pkv_attention_params& params = AttentionParams(),
                      const pkv_attention_outputs& outputs = AttentionOutputs()) {
  check(pkv_kv_attend(compute, &kv, &sequences, &params, q.get(), out.get(), &outputs));
}

/** Writes rows to the last positions of sequences, or to their query_positions. */
inline void kv_write(pkv_compute compute, const pkv_kv_view& kv, const pkv_kv_sequences& sequences,
                     const ConstTensor& k, const ConstTensor& v) {
  check(pkv_kv_write(compute, &kv, &sequences, k.get(), v.get()));
}

/** Copies the last positions of sequences, or their query_positions, to rows. */
inline void kv_read(pkv_compute compute, const pkv_kv_view& kv, const pkv_kv_sequences& sequences,
                    const Tensor& k, const Tensor& v) {
  check(pkv_kv_read(compute, &kv, &sequences, k.get(), v.get()));
}

/** Writes rows to slots. */
inline void kv_write_slots(pkv_compute compute, const pkv_kv_view& kv, Span<const int64_t> slots,
                           const ConstTensor& k, const ConstTensor& v) {
  check(pkv_kv_write_slots(compute, &kv, slots.size(), slots.data(), k.get(), v.get()));
}

/** Copies slots to rows. */
inline void kv_read_slots(pkv_compute compute, const pkv_kv_view& kv, Span<const int64_t> slots,
                          const Tensor& k, const Tensor& v) {
  check(pkv_kv_read_slots(compute, &kv, slots.size(), slots.data(), k.get(), v.get()));
}

/** Merges results of the same queries over different positions; merged_lse may be NULL. */
inline void attention_merge(pkv_compute compute, Span<const ConstTensor> outs,
                            Span<const float* const> lse, size_t rows, uint32_t heads, uint32_t dim,
                            const Tensor& merged, float* merged_lse = nullptr) {
  detail::same_size("attention_merge", lse.size(), outs.size());
  std::vector<pkv_tensor> tensors;
  for (const ConstTensor& out : outs) {
    tensors.push_back(*out.get());
  }
  check(pkv_attention_merge(compute, tensors.size(), tensors.data(), lse.data(), rows, heads, dim,
                            merged.get(), merged_lse));
}

/** Returns the hashes that prefix events have for the full blocks of a prompt. */
inline std::vector<uint64_t> hash_blocks(Span<const int32_t> ids, uint32_t block_size,
                                         std::string_view salt = {}) {
  if (block_size == 0) fail(PKV_INVALID_ARGUMENT, "hash_blocks: block_size is 0");
  std::vector<uint64_t> hashes(ids.size() / block_size);
  const pkv_prompt text = detail::text_of(ids, salt);
  check(pkv_prefix_hash_blocks(&text, block_size, hashes.data()));
  return hashes;
}

}  // namespace pagedkv

#endif
