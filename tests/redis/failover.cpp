// The long form of failover_test.cpp: failover SECONDS [SEED] causes failures in a cluster in
// random order, while caches of three processes keep blocks there. It prints how long the store did
// not work after each kind of event. The exit code is 1 if a token was wrong, or if the store or
// the cluster did not recover.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>

#include "cluster_play.h"
#include "recovery.h"

namespace redis_test {
namespace {

class Failover {
 public:
  explicit Failover(uint64_t seed) : random_(seed), play_(cluster_.addresses(), 3, 2, seed) {}

  void run(double seconds) {
    Recovery recovery(cluster_);
    const std::pair<const char*, std::function<void()>> events[] = {
        {"a master is killed", [&] { cluster_.kill(recovery.master(random_)); }},
        {"a replica is killed", [&] { cluster_.kill(replica()); }},
        {"a master and its replica are killed", [&] { kill_both(recovery.master(random_)); }},
        {"a master is stopped", [&] { stop(recovery.master(random_)); }},
        {"a replica takes over in peace", [&] { take_over(replica()); }},
        {"slots move", [&] { reshard(recovery, false); }},
        {"slots move and a master is killed", [&] { reshard(recovery, true); }},
    };
    const auto begin = Clock::now();
    recovery.measure(begin);
    while (seconds_since(begin) < seconds) {
      const auto& [name, event] = events[random_() % std::size(events)];
      std::printf("%7.1f s: %s: ", seconds_since(begin), name);
      std::fflush(stdout);
      const auto start = Clock::now();
      event();
      try {
        const double time = recovery.measure(start, 20s);
        std::printf("%.2f s\n", time);
        times_[name].push_back(time);
      } catch (const std::runtime_error& error) {
        // For example a slot that was just moving to a server that is gone, or a master whose
        // replica the others refuse, because it had not heard of the epoch that came with a slot.
        std::printf("not by itself: %s\n", error.what());
        by_hand_++;
        cluster_.take_over();
      }
      mend();
      recovery.measure(Clock::now());
    }
  }

  bool report() {
    for (auto& [name, times] : times_) {
      std::sort(times.begin(), times.end());
      std::printf("%s: %zu times, the store works again after %.2f s (median %.2f, most %.2f)\n",
                  name.c_str(), times.size(), times.front(), times[times.size() / 2], times.back());
    }
    std::printf("%d times not before replicas took over and slots were settled by hand\n",
                by_hand_);
    const PlayFigures all = play_.finish();
    std::printf(
        "%llu texts, %llu wrong; %llu of %llu tokens found; %llu items written, %llu asked for, "
        "%llu of these read, %llu not there, %llu corrupt; %llu calls failed; longest step %.1f "
        "ms\n",
        (unsigned long long)all.texts, (unsigned long long)all.wrong, (unsigned long long)all.found,
        (unsigned long long)all.tokens, (unsigned long long)all.written,
        (unsigned long long)all.asked, (unsigned long long)all.read,
        (unsigned long long)(all.asked - all.read), (unsigned long long)all.corrupt,
        (unsigned long long)all.failures, 1e3 * all.longest_step);
    return all.wrong == 0 && all.corrupt == 0 && all.texts > 0;
  }

 private:
  size_t replica() {
    for (;;)
      if (const size_t i = random_() % ReplicatedCluster::servers; !cluster_.is_master(i)) return i;
  }

  // Its slots have no server until both are back, without their data.
  void kill_both(size_t master) {
    const std::string port = std::to_string(cluster_[master].port());
    for (size_t i = 0; i < ReplicatedCluster::servers; i++)
      if (cluster_[i].ask({"ROLE"}).starts_with("slave 127.0.0.1 " + port)) cluster_.kill(i);
    cluster_.kill(master);
    std::this_thread::sleep_for(3s);
    start_all();
  }

  void take_over(size_t replica) {
    cluster_[replica].ask({"CLUSTER", "FAILOVER"});
    for (int i = 0; i < 500 && !cluster_.is_master(replica); i++) std::this_thread::sleep_for(10ms);
  }

  // Long enough for its replica to take its place.
  void stop(size_t master) {
    stopped_ = &cluster_[master];
    stopped_->signal(SIGSTOP);
  }

  void reshard(Recovery& recovery, bool kill) {
    const size_t from = recovery.master(random_);
    size_t to = from;
    while (to == from) to = recovery.master(random_);
    if (!kill) {
      // Servers may not agree yet on what happened before.
      for (int attempt = 0; !cluster_.reshard(from, to, 50 + random_() % 200); attempt++) {
        if (attempt == 20) throw std::runtime_error("no slots can be moved");
        std::this_thread::sleep_for(200ms);
      }
      return;
    }
    std::thread moving([&] { cluster_.reshard(from, to, 400); });
    std::this_thread::sleep_for(300ms + std::chrono::milliseconds(random_() % 1000));
    cluster_.kill(random_() % 2 == 0 ? from : to);
    moving.join();
  }

  void start_all() {
    for (size_t i = 0; i < ReplicatedCluster::servers; i++)
      if (!cluster_.runs(i)) cluster_.start(i);
  }

  void mend() {
    if (stopped_ != nullptr) stopped_->signal(SIGCONT);
    stopped_ = nullptr;
    start_all();
    cluster_.mend();
  }

  ReplicatedCluster cluster_;
  std::mt19937_64 random_;
  ClusterPlay play_;
  Server* stopped_ = nullptr;
  std::map<std::string, std::vector<double>> times_;
  int by_hand_ = 0;
};

}  // namespace
}  // namespace redis_test

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  if (seconds <= 0) {
    std::fprintf(stderr, "usage: failover SECONDS [SEED]\n");
    return 2;
  }
  if (!redis_test::have_server() || !redis_test::have_cli()) {
    std::fprintf(stderr, "redis-server or redis-cli is not installed\n");
    return 77;
  }
  redis_test::Failover failover(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  bool lived = false;
  try {
    failover.run(seconds);
    lived = true;
  } catch (const std::runtime_error& error) {
    std::printf("ended early: %s\n", error.what());
  }
  return failover.report() && lived ? 0 : 1;
}
