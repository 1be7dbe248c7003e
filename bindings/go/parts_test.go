package pagedkv_test

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func TestPool(t *testing.T) {
	pool, err := pagedkv.NewPool(pagedkv.PoolConfig{Blocks: 4})
	must(t, err)
	blocks := make([]pagedkv.Block, 3)
	must(t, pool.Alloc(blocks))
	if ids := []uint32{blocks[0].ID(), blocks[1].ID(), blocks[2].ID()}; !reflect.DeepEqual(
		ids, []uint32{0, 1, 2},
	) {
		t.Errorf("a fresh pool gave %v", ids)
	}
	refused(t, pool.Alloc(make([]pagedkv.Block, 2)), pagedkv.ErrOutOfBlocks)
	must(t, pool.Retain(blocks[0], blocks[1]))
	must(t, pool.Release(blocks[0]))
	stats, err := pool.Stats()
	must(t, err)
	if stats.Blocks != 4 || stats.HeldBlocks != 3 || stats.SharedBlocks != 1 ||
		stats.References != 4 {
		t.Errorf("%+v", stats)
	}
	refused(t, pool.Release(blocks[2], blocks[2]), pagedkv.ErrNotHeld)
	must(t, pool.Release(blocks[1], blocks[2]))
	must(t, pool.Release(blocks[1]))
	refused(t, pool.Release(blocks[2]), pagedkv.ErrNotHeld)
	refused(t, pool.Retain(blocks[2]), pagedkv.ErrNotHeld)
	must(t, pool.Validate())
	must(t, pool.Close())
	refused(t, pool.Close(), pagedkv.ErrStaleHandle)
	_, err = pagedkv.NewPool(pagedkv.PoolConfig{Blocks: -4})
	refused(t, err, pagedkv.ErrOutOfRange, "Blocks is -4")
}

func TestDurationsOfHints(t *testing.T) {
	var now atomic.Int64
	cache := newCache(t, pagedkv.CacheConfig{
		Prefix: &pagedkv.PrefixConfig{},
		Clock:  func() time.Duration { return time.Duration(now.Load()) },
	})
	prefix, text := cache.Prefix(), numbered(10, 32)
	session := open(t, cache)
	extend(t, session, text)
	must(t, session.Close())
	pin := pagedkv.Hint{Action: pagedkv.HintPin, End: pagedkv.ToEnd, Duration: time.Microsecond}
	must(t, errorOf(prefix.Hint("", text, pin)))
	now.Store(int64(time.Millisecond))
	unpinned, err := prefix.Hint("", text, pagedkv.Hint{Action: pagedkv.HintUnpin, End: pagedkv.ToEnd})
	if err != nil || unpinned.Outcome != pagedkv.HintOutcomeMissing {
		t.Errorf("a short pin has not ended: %+v, %v", unpinned, err)
	}
	pin.Duration = -1
	err = errorOf(prefix.Hint("", text, pin))
	refused(t, err, pagedkv.ErrOutOfRange, "duration is -1ns, and must not be negative")
}

func TestPrefixIndex(t *testing.T) {
	var now atomic.Int64
	cache := newCache(t, pagedkv.CacheConfig{
		Prefix: &pagedkv.PrefixConfig{MaxEvents: 64, MaxPinnedTokens: 32},
		Clock:  func() time.Duration { return time.Duration(now.Load()) },
	})
	prefix, text := cache.Prefix(), numbered(10, 40)
	session, err := cache.OpenSession(&pagedkv.SessionConfig{Salt: "a"})
	must(t, err)
	extend(t, session, text)
	must(t, session.Close())

	pin := pagedkv.Hint{Action: pagedkv.HintPin, End: pagedkv.ToEnd, Duration: time.Second}
	pinned, err := prefix.Hint("a", text, pin)
	must(t, err)
	if pinned != (pagedkv.HintResult{Outcome: pagedkv.HintOutcomeDone, Tokens: 32}) {
		t.Errorf("pinned %+v", pinned)
	}
	pinned, err = prefix.Hint("b", text, pin)
	must(t, err)
	if pinned.Outcome != pagedkv.HintOutcomeMissing {
		t.Errorf("pinned %+v of another salt", pinned)
	}
	must(t, prefix.ClearAll())
	stats, err := prefix.Stats("a")
	must(t, err)
	if stats.CachedTokens != 32 || stats.PinnedTokens != 32 || stats.PublishedTokens != 32 {
		t.Errorf("%+v", stats)
	}
	now.Store(int64(time.Second))
	unpinned, err := prefix.Hint("a", text, pagedkv.Hint{Action: pagedkv.HintUnpin, End: 32})
	if err != nil || unpinned.Outcome != pagedkv.HintOutcomeMissing {
		t.Errorf("the pin has not ended: %+v, %v", unpinned, err)
	}
	must(t, prefix.SetQuota("a", 16))
	all, err := prefix.StatsOfAll()
	must(t, err)
	if all.CachedTokens != 16 || all.ExpelledTokens != 16 {
		t.Errorf("%+v", all)
	}
	must(t, prefix.SetQuota("a", 0))
	must(t, prefix.Clear("a"))

	hashes, err := pagedkv.HashBlocks("a", 16, text)
	must(t, err)
	var next uint64
	events := make([]pagedkv.PrefixEvent, 3)
	var got []pagedkv.PrefixEvent
	for n := 1; n > 0; {
		var lost uint64
		if n, lost, err = prefix.Events(&next, events); err != nil || lost != 0 {
			t.Fatalf("%d lost, %v", lost, err)
		}
		got = append(got, events[:n]...)
	}
	want := []pagedkv.PrefixEvent{
		{Hash: hashes[0], Kind: pagedkv.PrefixEventPublished},
		{Hash: hashes[1], Position: 16, Kind: pagedkv.PrefixEventPublished},
		{Hash: hashes[1], Position: 16, Kind: pagedkv.PrefixEventExpelled},
		{Hash: hashes[0], Kind: pagedkv.PrefixEventCleared},
	}
	if len(hashes) != 2 || len(got) != len(want) || next != got[0].Number+4 {
		t.Fatalf("%d hashes, %d events, next %d", len(hashes), len(got), next)
	}
	for i := range want {
		want[i].Number = got[0].Number + uint64(i)
		if want[i].Parent = got[0].Parent; want[i].Position == 16 {
			want[i].Parent = hashes[0]
		}
		if got[i] != want[i] {
			t.Errorf("event %d is %+v, expected %+v", i, got[i], want[i])
		}
	}
	refused(t, errorOf(pagedkv.HashBlocks("a", 0, text)), pagedkv.ErrInvalidArgument)
	_, _, err = newCache(t, pagedkv.CacheConfig{}).Prefix().Events(&next, events)
	refused(t, err, pagedkv.ErrUnsupported)
}

func TestRunnerComputesTheSameBits(t *testing.T) {
	want := extend(t, open(t, newCache(t, pagedkv.CacheConfig{Threads: 2})), numbered(1, 200))
	cache := newCache(t, pagedkv.CacheConfig{Threads: 2, Runner: pagedkv.Goroutines(2)})
	if got := extend(t, open(t, cache), numbered(1, 200)); !reflect.DeepEqual(got, want) {
		t.Error("goroutines compute other bits than the library's threads")
	}
	var tasks, backwards int
	runner := func(n int, run func(task, worker int)) {
		tasks += n
		for i := n - 1; i >= 0; i-- {
			run(i, 0)
			backwards++
		}
	}
	got := extend(
		t, open(t, newCache(t, pagedkv.CacheConfig{Threads: 1, Runner: runner})), numbered(1, 200),
	)
	if !reflect.DeepEqual(got, want) || tasks == 0 || backwards != tasks {
		t.Errorf("a runner of its own ran %d of %d tasks", backwards, tasks)
	}
}

func TestFiguresOfACache(t *testing.T) {
	config := pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{
		{
			Layers:       2,
			LayerIndices: []uint32{0, 2},
			QueryHeads:   4,
			KVHeads:      2,
			KeyDim:       32,
			DType:        pagedkv.BF16,
			Blocks:       6,
		},
		{
			Layers:       1,
			LayerIndices: []uint32{1},
			QueryHeads:   2,
			KVHeads:      1,
			KeyDim:       16,
			Window:       16,
			Blocks:       5,
		},
	}, ISA: pagedkv.ISAScalar, Threads: 1}
	cache := newCache(t, config)
	info, err := cache.Info()
	must(t, err)
	want := pagedkv.CacheInfo{
		Storage:    pagedkv.StorageInternal,
		Layout:     pagedkv.LayoutPacked,
		BlockSize:  16,
		GroupCount: 2,
		Layers:     3,
		Threads:    1,
		ISA:        pagedkv.ISAScalar,
	}
	if info != want || info.ISA.String() != "scalar" {
		t.Errorf("%+v, %v", info, info.ISA)
	}
	stats, err := cache.PoolStats(1)
	must(t, err)
	if stats.Blocks != 5 || stats.FreeBlocks != 5 {
		t.Errorf("%+v", stats)
	}
	stats, err = cache.PoolStats(pagedkv.AllGroups)
	must(t, err)
	if stats.Blocks != 11 || stats.FreeBlocks != 11 {
		t.Errorf("%+v", stats)
	}
	plan, err := pagedkv.ComputeSizes(config, 0)
	must(t, err)
	if plan.Blocks != 6 || plan.BytesPerToken != 2*2*2*32*2 {
		t.Errorf("%+v", plan)
	}
	metrics, err := cache.Metrics()
	must(t, err)
	if !strings.HasPrefix(metrics, "# ") || !strings.HasSuffix(metrics, "\n") ||
		!strings.Contains(metrics, "blocks") {
		t.Errorf("%q", metrics)
	}
	config.Groups[0].LayerIndices = config.Groups[0].LayerIndices[:1]
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrInvalidArgument, "2 layers", "names 1")
	config.Groups[0].LayerIndices = []uint32{0, 1}
	refused(t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrInvalidArgument, "layer 1")
	if _, err := pagedkv.NewCache(pagedkv.CacheConfig{}); !errors.Is(err, pagedkv.ErrMisuse) {
		t.Errorf("a cache of nothing: %v", err)
	}
}

func TestHintsOfSessions(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{Prefix: &pagedkv.PrefixConfig{}})
	session := open(t, cache)
	returns := pagedkv.Hint{Action: pagedkv.HintExpectReturn}
	for _, duration := range []time.Duration{0, time.Millisecond, time.Hour, pagedkv.Never} {
		returns.Duration = duration
		must(t, errorOf(session.Hint(returns)))
	}
	batch := begin(t, cache, step(session, 1))
	high := pagedkv.Hint{Action: pagedkv.HintSetRetention, End: pagedkv.ToEnd,
		Retention: pagedkv.RetentionHigh}
	if result, err := session.Hint(high); err != nil || result.Outcome != pagedkv.HintOutcomeDone {
		t.Errorf("%+v, %v", result, err)
	}
	must(t, batch.Close())
	high.First, high.End = 2, 1
	refused(t, errorOf(session.Hint(high)), pagedkv.ErrInvalidArgument, "after its end")
	pin := pagedkv.Hint{Action: pagedkv.HintPin}
	refused(t, errorOf(session.Hint(pin)), pagedkv.ErrInvalidArgument, "end is 0")
	refused(t, errorOf(session.Hint(pagedkv.Hint{First: -1})), pagedkv.ErrOutOfRange, "first is -1")
	must(t, session.Close())
	refused(t, errorOf(session.Hint(returns)), pagedkv.ErrStaleHandle)
	refused(t, errorOf(new(pagedkv.Session).Hint(returns)), pagedkv.ErrInvalidArgument)
}
