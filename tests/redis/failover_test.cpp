// Masters of a cluster are killed, replicas take their place and slots move while the caches of two
// processes keep blocks there. failover.cpp is the long form.
#include "cluster_play.h"
#include "recovery.h"

namespace redis_test::failover_test {
namespace {

class RedisFailover : public WithServers {
 protected:
  void SetUp() override {
    WithServers::SetUp();
    if (!IsSkipped() && !have_cli()) GTEST_SKIP() << "there is no redis-cli or valkey-cli";
  }
};

TEST_F(RedisFailover, NoTokenIsWrongWhateverAClusterGoesThrough) {
  ReplicatedCluster cluster;
  ClusterPlay play(cluster.addresses(), 2, 2, 1);
  Recovery recovery(cluster);
  recovery.measure(Clock::now());

  // The servers need 1.5 s to miss one, and up to 1 s to elect another.
  const auto after = [&](const char* what, const std::function<void()>& event) {
    const auto begin = Clock::now();
    event();
    std::printf("%s: puts and gets work again after %.2f s\n", what, recovery.measure(begin));
  };
  // The first server is the one that is first asked for the slots.
  after("a master is killed", [&] { cluster.kill(0); });
  after("it is back", [&] { cluster.start(0); });
  cluster.wait_until_healthy();
  const size_t from = *cluster.owner("{0}:", 0), to = from == 1 ? 2 : 1;
  after("slots move", [&] { EXPECT_TRUE(cluster.reshard(from, to, 100)); });
  after("the replica of a master takes over in peace", [&] {
    for (size_t i = 0; i < ReplicatedCluster::servers; i++)
      if (!cluster.is_master(i)) {
        EXPECT_EQ(cluster[i].ask({"CLUSTER", "FAILOVER"}), "OK");
        break;
      }
  });

  const PlayFigures figures = play.finish();
  std::printf(
      "%llu texts, %llu of %llu tokens found, %llu of %llu items read, longest step %.1f ms\n",
      (unsigned long long)figures.texts, (unsigned long long)figures.found,
      (unsigned long long)figures.tokens, (unsigned long long)figures.read,
      (unsigned long long)figures.asked, 1e3 * figures.longest_step);
  EXPECT_EQ(figures.wrong, 0u);
  EXPECT_EQ(figures.corrupt, 0u);
  EXPECT_GT(figures.texts, 100u);
  EXPECT_GT(figures.read, 0u);
  EXPECT_GT(figures.written, 0u);
}

}  // namespace
}  // namespace redis_test::failover_test
