#include "apart_process.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "cache.h"

namespace pkv::serve {

namespace {

using Clock = std::chrono::steady_clock;

// The head of a message. Both ends are processes of this run, so only lengths are checked.
struct Head {
  enum Kind : uint32_t { ask, rows, token } kind;
  uint32_t request;
  uint32_t count, layer;  // rows: how many positions, and the layer
  uint64_t first;         // rows: the first position; ask: how many tokens are cached there
};

void send_all(int socket, const void* data, size_t size) {
  auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(socket, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw std::runtime_error("the other process is gone");
    at += sent;
    size -= static_cast<size_t>(sent);
  }
}

// The receiving side of a connection.
class Inbox {
 public:
  explicit Inbox(int socket, size_t row_bytes) : socket_(socket), row_bytes_(row_bytes) {}
  int socket() const { return socket_; }
  bool closed() const { return closed_; }

  // Reads all that has arrived, without waiting.
  void fill() {
    data_.erase(data_.begin(), data_.begin() + static_cast<ptrdiff_t>(used_));
    used_ = 0;
    const size_t filled = data_.size();
    data_.resize(filled + (size_t{1} << 20));
    const ssize_t got = recv(socket_, data_.data() + filled, size_t{1} << 20, MSG_DONTWAIT);
    closed_ = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    data_.resize(filled + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }

  // The next whole message, which stays until it is dropped; its body is aligned for floats.
  bool peek(Head& head, const float** body) {
    if (data_.size() - used_ < sizeof head) return false;
    std::memcpy(&head, data_.data() + used_, sizeof head);
    size_ = sizeof head + (head.kind == Head::rows ? 2 * row_bytes_ * head.count : 0);
    if (data_.size() - used_ < size_) return false;
    *body = reinterpret_cast<const float*>(data_.data() + used_ + sizeof head);
    return true;
  }
  void drop() { used_ += size_; }

 private:
  const int socket_;
  const size_t row_bytes_;
  std::vector<char> data_;
  size_t used_ = 0, size_ = 0;
  bool closed_ = false;
};

void wait_for(std::vector<Inbox>& inboxes, int milliseconds) {
  std::vector<pollfd> polled;
  for (const Inbox& inbox : inboxes)
    polled.push_back({inbox.closed() ? -1 : inbox.socket(), POLLIN, 0});
  poll(polled.data(), polled.size(), milliseconds);
  for (size_t i = 0; i < inboxes.size(); i++)
    if (polled[i].revents != 0) inboxes[i].fill();
}

std::vector<Inbox> inboxes_of(const Options& options, const std::vector<int>& sockets) {
  std::vector<Inbox> inboxes;
  for (const int socket : sockets)
    inboxes.emplace_back(socket, size_t{options.kv_heads} * options.dim * sizeof(float));
  return inboxes;
}

// One thread for each process unless the user says otherwise: they share the CPUs.
Options options_of(Options options) {
  if (options.threads == 0) options.threads = 1;
  return options;
}

// ---- Decode ----

struct Sequence {
  const Request* request = nullptr;
  uint32_t number = 0;
  pkv_session session = nullptr;
  std::vector<int32_t> tokens;
  uint64_t held = 0;
  uint32_t generated = 0;
  double arrival = 0, last = 0;
  pkv_batch arriving = nullptr;  // a step whose layers are on their way
};

class Decoder {
 public:
  Decoder(const Options& options, const Trace& trace, Share share, const std::vector<int>& prefill,
          Clock::time_point begin)
      : options_(options_of(options)),
        cache_(options_, options_.setup, trace),
        begin_(begin),
        inboxes_(inboxes_of(options_, prefill)) {
    for (size_t i = share.index; i < trace.requests.size(); i += share.count) {
      due_.push_back(std::make_unique<Sequence>());
      due_.back()->request = &trace.requests[i];
      due_.back()->number = static_cast<uint32_t>(i);
    }
  }

  ApartFigures run() {
    while (!due_.empty() || !asked_.empty() || !running_.empty()) {
      begin_requests();
      wait_for(inboxes_, running_.empty() && (!inboxes_.empty() || prompts_.empty()) ? 1 : 0);
      for (Inbox& inbox : inboxes_) take_all(inbox);
      step();
    }
    for (const Inbox& inbox : inboxes_) close(inbox.socket());
    check(pkv_cache_validate(cache_.handle()), "validation");
    return std::move(figures_);
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Begins the requests whose time has come, in order, while there is room for all of their text.
  void begin_requests() {
    while (!due_.empty() && due_.front()->request->arrival <= now()) {
      Sequence& q = *due_.front();
      if (cache_.open(*q.request, &q.session) != PKV_OK) return;
      q.tokens = text_of(*q.request);
      if (options_.setup.prefix)
        check(pkv_session_admit(q.session, q.request->input - 1, q.tokens.data(), 0, &q.held),
              "match");
      const pkv_status status = pkv_session_reserve(q.session, q.request->length());
      if (status == PKV_OUT_OF_BLOCKS) {
        check(pkv_session_close(q.session), "close");
        return;
      }
      check(status, "reserve");
      q.arrival = q.request->arrival;
      if (inboxes_.empty()) {
        prompts_.push_back(&q);
      } else {
        const Head head{Head::ask, q.number, 0, 0, q.held};
        send_all(inboxes_[q.number % inboxes_.size()].socket(), &head, sizeof head);
      }
      asked_.push_back(std::move(due_.front()));
      due_.pop_front();
    }
  }

  Sequence& asked(uint32_t number) {
    for (const auto& q : asked_)
      if (q->number == number) return *q;
    throw std::logic_error("rows of a request that was not asked for");
  }

  void take_all(Inbox& inbox) {
    Head head;
    const float* body;
    while (inbox.peek(head, &body)) {
      Sequence& q = asked(head.request);
      if (head.kind == Head::token) {
        start(q);
      } else {
        take_rows(q, head, body);
      }
      inbox.drop();
    }
    if (inbox.closed() && (!asked_.empty() || !due_.empty()))
      throw std::runtime_error("a process that computes prompts is gone");
  }

  // The first layer begins a step, the last one ends it.
  void take_rows(Sequence& q, const Head& head, const float* body) {
    if (head.layer == 0) {
      if (head.first != q.held) throw std::logic_error("rows that do not follow those before");
      check(pkv_batch_begin(cache_.handle(), 1, &q.session, &head.count, &q.arriving), "begin");
    }
    const size_t floats = size_t{head.count} * options_.kv_heads * options_.dim;
    const pkv_tensor k{const_cast<float*>(body), PKV_F32, 0, 0, 0};
    const pkv_tensor v{const_cast<float*>(body) + floats, PKV_F32, 0, 0, 0};
    check(pkv_batch_write(q.arriving, head.layer, &k, &v), "write");
    if (head.layer + 1 < options_.layers) return;
    check(pkv_batch_commit(q.arriving, head.count, q.tokens.data() + q.held), "commit");
    q.held += head.count;
  }

  void start(Sequence& q) {
    const auto same = [&](const auto& one) { return one.get() == &q; };
    const auto place = std::find_if(asked_.begin(), asked_.end(), same);
    running_.push_back(std::move(*place));
    asked_.erase(place);
    took_token(q);
  }

  void took_token(Sequence& q) {
    const double time = now();
    if (q.generated++ == 0)
      figures_.first_token_seconds.push_back(static_cast<float>(time - q.arrival));
    else
      figures_.wait_seconds.push_back(static_cast<float>(time - q.last));
    q.last = time;
    figures_.tokens++;
  }

  // One token of each running session and, where prompts are computed here, a chunk of them.
  void step() {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    std::vector<int32_t> tokens;
    const auto add = [&](const Sequence& q, uint64_t count) {
      sessions.push_back(q.session);
      counts.push_back(static_cast<uint32_t>(count));
      const auto at = q.tokens.begin() + static_cast<ptrdiff_t>(q.held);
      tokens.insert(tokens.end(), at, at + static_cast<ptrdiff_t>(count));
    };
    std::erase_if(running_, [&](const auto& q) { return ended(*q); });
    for (const auto& q : running_) add(*q, 1);
    std::vector<Sequence*> chunks;
    size_t budget = options_.budget;
    for (size_t i = 0; i < prompts_.size() && budget > 0; i++) {
      const uint64_t count =
          std::min<uint64_t>(budget, prompts_[i]->request->input - prompts_[i]->held);
      add(*prompts_[i], count);
      chunks.push_back(prompts_[i]);
      budget -= count;
    }
    if (sessions.empty()) return;
    double seconds;
    if (cache_.step(sessions, counts, tokens.data(), &seconds) != PKV_OK)
      throw std::logic_error("a step has no blocks although they were reserved");
    for (const auto& q : running_) q->held++, took_token(*q);
    for (size_t i = 0; i < chunks.size(); i++) {
      chunks[i]->held += counts[running_before(chunks.size(), counts.size()) + i];
      if (chunks[i]->held < chunks[i]->request->input) continue;
      std::erase(prompts_, chunks[i]);
      start(*chunks[i]);
    }
  }

  static size_t running_before(size_t chunks, size_t all) { return all - chunks; }

  bool ended(Sequence& q) {
    if (q.generated < q.request->output) return false;
    check(pkv_session_close(q.session), "close");
    figures_.requests++;
    return true;
  }

  const Options options_;
  Cache cache_;
  const Clock::time_point begin_;
  std::vector<Inbox> inboxes_;
  std::deque<std::unique_ptr<Sequence>> due_;
  std::vector<std::unique_ptr<Sequence>> asked_, running_;
  std::deque<Sequence*> prompts_;  // those that are computed here
  ApartFigures figures_;
};

// ---- Prefill ----

class Prefiller {
 public:
  Prefiller(const Options& options, const Trace& trace, const std::vector<int>& sockets)
      : options_(options_of(options)),
        trace_(trace),
        cache_(options_, options_.setup, trace),
        inboxes_(inboxes_of(options_, sockets)) {}

  ApartFigures run() {
    std::deque<std::pair<int, Head>> asked;
    for (;;) {
      wait_for(inboxes_, asked.empty() ? -1 : 0);
      Head head;
      const float* body;
      for (Inbox& inbox : inboxes_)
        for (; inbox.peek(head, &body); inbox.drop()) asked.emplace_back(inbox.socket(), head);
      if (!asked.empty()) {
        compute(asked.front().first, asked.front().second);
        asked.pop_front();
      } else if (std::all_of(inboxes_.begin(), inboxes_.end(),
                             [](const Inbox& inbox) { return inbox.closed(); })) {
        return std::move(figures_);
      }
    }
  }

 private:
  void send_layer(int to, const Head& head, const float* k, const float* v) {
    const size_t size = size_t{head.count} * options_.kv_heads * options_.dim * sizeof(float);
    send_all(to, &head, sizeof head);
    send_all(to, k, size);
    send_all(to, v, size);
    figures_.sent_bytes += 2 * size;
  }

  // Sends the rows that are cached here and not there.
  void send_cached(int to, pkv_session session, const Head& ask, uint64_t end) {
    if (ask.first >= end) return;
    const auto count = static_cast<uint32_t>(end - ask.first);
    const size_t floats = size_t{count} * options_.kv_heads * options_.dim;
    std::vector<float> rows(2 * floats);
    const pkv_tensor k{rows.data(), PKV_F32, 0, 0, 0}, v{rows.data() + floats, PKV_F32, 0, 0, 0};
    for (uint32_t layer = 0; layer < options_.layers; layer++) {
      check(pkv_session_read(session, layer, ask.first, count, &k, &v), "read");
      send_layer(to, {Head::rows, ask.request, count, layer, ask.first}, rows.data(),
                 rows.data() + floats);
    }
  }

  // Sends each layer while the next one is computed: the socket's buffer holds the rows that the
  // other process has not read yet.
  void compute(int to, const Head& ask) {
    const Request& request = trace_.requests[ask.request];
    const std::vector<int32_t> tokens = text_of(request);
    pkv_session session;
    if (cache_.open(request, &session) != PKV_OK) throw std::runtime_error("no room for a session");
    uint64_t held = 0;
    if (options_.setup.prefix)
      check(pkv_session_admit(session, request.input - 1, tokens.data(), 0, &held), "match");
    send_cached(to, session, ask, held);
    while (held < request.input) {
      // The other process needs all of a chunk or none of it.
      const uint64_t end = held < ask.first ? ask.first : request.input;
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(options_.budget, end - held));
      const bool wanted = held >= ask.first;
      double seconds;
      const Cache::LayerWritten send = [&](uint32_t layer, const float* rows) {
        send_layer(to, {Head::rows, ask.request, count, layer, held}, rows, rows);
      };
      if (cache_.step({&session, 1}, {&count, 1}, tokens.data() + held, &seconds,
                      wanted ? &send : nullptr) != PKV_OK)
        throw std::runtime_error("a prompt does not fit: more --blocks");
      held += count;
    }
    const Head token{Head::token, ask.request, 0, 0, 0};
    send_all(to, &token, sizeof token);
    check(pkv_session_close(session), "close");
  }

  const Options options_;
  const Trace& trace_;
  Cache cache_;
  std::vector<Inbox> inboxes_;
  ApartFigures figures_;
};

}  // namespace

ApartFigures play_decode(const Options& options, const Trace& trace, Share share,
                         const std::vector<int>& prefill, Clock::time_point begin) {
  return Decoder(options, trace, share, prefill, begin).run();
}

ApartFigures play_prefill(const Options& options, const Trace& trace,
                          const std::vector<int>& sockets) {
  return Prefiller(options, trace, sockets).run();
}

std::pair<int, int> loopback_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  if (server < 0 || client < 0 || bind(server, any, size) != 0 || listen(server, 1) != 0 ||
      getsockname(server, any, &size) != 0 || connect(client, any, size) != 0)
    throw std::runtime_error(std::string("no connection on 127.0.0.1: ") + std::strerror(errno));
  const int accepted = accept(server, nullptr, nullptr);
  close(server);
  if (accepted < 0)
    throw std::runtime_error(std::string("no connection on 127.0.0.1: ") + std::strerror(errno));
  const int yes = 1;
  for (const int end : {client, accepted})
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return {accepted, client};
}

}  // namespace pkv::serve
