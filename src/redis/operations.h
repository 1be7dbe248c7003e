// What the functions of a store do with each item.
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
  size_t bytes_sent(size_t) const override { return key_size_; }
  size_t bytes_back(size_t) const override { return 0; }

 protected:
  const Settings& settings_;

 private:
  const size_t n_, key_size_;
  std::string keys_;  // of all items, with the prefix
};

class Put : public ItemOperation {
 public:
  Put(const Settings& settings, size_t n, const pkv_store_item* items);
  size_t bytes_sent(size_t item) const override {
    return ItemOperation::bytes_sent(item) + items_[item].size;
  }
  void ask(size_t item, Pipeline& commands) const override;
  bool take(size_t item, const redisReply& reply) override;

 private:
  const pkv_store_item* items_;
  const std::string ttl_;
};

class Probe : public ItemOperation {
 public:
  Probe(const Settings& settings, size_t n, pkv_store_item* items);
  void ask(size_t item, Pipeline& commands) const override;
  bool take(size_t item, const redisReply& reply) override;

 private:
  pkv_store_item* items_;
};

class Get : public ItemOperation {
 public:
  Get(const Settings& settings, size_t n, pkv_store_item* items);
  size_t bytes_back(size_t item) const override { return room_[item]; }
  void ask(size_t item, Pipeline& commands) const override;
  bool take(size_t item, const redisReply& reply) override;
  // Items that are larger than their room, by how much is not known yet.
  const std::vector<size_t>& larger() const { return larger_; }

 private:
  pkv_store_item* items_;
  std::vector<uint64_t> room_;
  std::vector<size_t> larger_;
};

class Drop : public ItemOperation {
 public:
  using ItemOperation::ItemOperation;
  void ask(size_t item, Pipeline& commands) const override;
  bool take(size_t item, const redisReply& reply) override;
};

}  // namespace pkv::redis
