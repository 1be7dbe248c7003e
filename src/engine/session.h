// One sequence that grows. Steps go through a Batch, also those of prefill() and push().
#pragma once

#include <memory>

#include "engine/content.h"

namespace pkv {

class Batch;

class Session {
 public:
  explicit Session(Content content);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Cache& cache() const { return content_.cache(); }
  const Content& content() const { return content_; }
  uint64_t length() const { return content_.length(); }
  uint64_t layer_length(uint32_t layer) const;
  uint64_t length_in_flight() const;  // with the step in flight, written or not

  void tokens(uint64_t first, size_t n, int32_t* out) const;
  void set_tokens(uint64_t first, size_t n, const int32_t* tokens);

  void reserve(uint64_t total_tokens);
  void prefill(uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);
  void push(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);
  void trim(uint64_t length);
  Content fork() const;

  // Of one group; throws UNSUPPORTED where storage is contiguous.
  const Sequence& table(uint32_t group) const;
  void slot_mapping(uint32_t group, uint64_t first, size_t n, int64_t* slots) const;
  void materialize(uint32_t layer, uint64_t first, size_t n, const pkv_tensor* k, const pkv_tensor* v) const;

 private:
  friend class Batch;
  enum class Solo { none, prefill, push };

  void check_idle(const char* who) const;  // BUSY while a step is in flight
  void step(Solo kind, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);
  void begin_replacing(size_t n);
  void reserve_more_tokens(uint64_t total);
  void count_tokens();

  Content content_;
  Batch* batch_ = nullptr;       // the step in flight, whoever drives it
  std::unique_ptr<Batch> solo_;  // that step, if prefill() or push() drives it
  Solo solo_kind_ = Solo::none;
  uint64_t counted_tokens_ = 0;  // what the cache's figure has of this session
};

}  // namespace pkv
