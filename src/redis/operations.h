// What each function of a store (put, touch, get, remove) sends and expects for one item of a
// batch.
#pragma once

#include <pagedkv/store.h>

#include <string>
#include <vector>

#include "redis/client.h"

namespace pkv::redis {

class ItemOperation : public Operation {
 public:
  ItemOperation(const Settings& settings, size_t n, const pkv_store_item* items);

  size_t size() const override { return n_; }
  std::string_view key(size_t item) const override {
    return {keys_.data() + item * key_size_, key_size_};
  }
  size_t request_bytes(size_t) const override { return key_size_; }
  size_t reply_bytes(size_t) const override { return 0; }

 protected:
  const Settings& settings_;

 private:
  const size_t n_, key_size_;
  std::string keys_;  // the keys of all items, each with the prefix
};

class Put : public ItemOperation {
 public:
  // Sets the sizes of the items to 0 until the server has stored them.
  Put(const Settings& settings, size_t n, pkv_store_item* items);
  size_t request_bytes(size_t item) const override {
    return ItemOperation::request_bytes(item) + sizes_[item];
  }
  const char* command() const override { return "SET"; }
  void add_command(size_t item, Pipeline& commands) const override;
  bool handle_reply(size_t item, const redisReply& reply) override;

 private:
  pkv_store_item* items_;
  std::vector<uint64_t> sizes_;
  const std::string ttl_;
};

class Measure : public ItemOperation {
 public:
  Measure(const Settings& settings, size_t n, pkv_store_item* items);
  const char* command() const override { return "STRLEN"; }
  void add_command(size_t item, Pipeline& commands) const override;
  bool handle_reply(size_t item, const redisReply& reply) override;

 private:
  pkv_store_item* items_;
};

// Starts the lifetime of items anew. Sets the size of an item that is gone to 0.
class Prolong : public ItemOperation {
 public:
  Prolong(const Settings& settings, size_t n, pkv_store_item* items);
  const char* command() const override { return "EXPIRE"; }
  void add_command(size_t item, Pipeline& commands) const override;
  bool handle_reply(size_t item, const redisReply& reply) override;

 private:
  pkv_store_item* items_;
  const std::string ttl_;
};

class Get : public ItemOperation {
 public:
  Get(const Settings& settings, size_t n, pkv_store_item* items);
  size_t reply_bytes(size_t item) const override { return room_[item]; }
  const char* command() const override { return "GETRANGE"; }
  void add_command(size_t item, Pipeline& commands) const override;
  bool handle_reply(size_t item, const redisReply& reply) override;
  // The items that are larger than their room. Their sizes are not known yet.
  const std::vector<size_t>& larger() const { return larger_; }

 private:
  pkv_store_item* items_;
  std::vector<uint64_t> room_;
  std::vector<size_t> larger_;
};

class Remove : public ItemOperation {
 public:
  using ItemOperation::ItemOperation;
  const char* command() const override { return "DEL"; }
  void add_command(size_t item, Pipeline& commands) const override;
  bool handle_reply(size_t item, const redisReply& reply) override;
};

}  // namespace pkv::redis
