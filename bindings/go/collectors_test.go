package pagedkv

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Objects that are collected where they cannot be closed: while hooks run, while other goroutines
// use them. The library's next call closes them, and nothing is lost.

func small(t testing.TB, change func(*CacheConfig)) *Cache {
	t.Helper()
	layers := LayerGroup{Layers: 1, QueryHeads: 8, KVHeads: 8, KeyDim: 64, Blocks: 256}
	config := CacheConfig{Groups: []LayerGroup{layers}, Threads: 2}
	if change != nil {
		change(&config)
	}
	cache, err := NewCache(config)
	check(t, err)
	return cache
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var rows = make([]float32, 512*8*64)

func fill(cache *Cache, session *Session, tokens int) error {
	batch, err := cache.Begin(Step{session, tokens})
	if err != nil {
		return err
	}
	some := Float32(rows[:tokens*8*64])
	if err := batch.Write(0, some, some); err != nil {
		return err
	}
	return batch.Commit(nil)
}

func opened(t testing.TB, cache *Cache, tokens int) *Session {
	t.Helper()
	session, err := cache.OpenSession(nil)
	check(t, err)
	check(t, fill(cache, session, tokens))
	return session
}

// isEmpty returns whether nothing of the cache is open.
func isEmpty(cache *Cache) bool {
	stats, err := cache.Stats()
	pools, _ := cache.PoolStats(AllGroups)
	open := uint64(stats.Sessions+stats.Snapshots+stats.Batches) + pools.HeldBlocks
	return err == nil && open == 0 && waiting.count.Load() == 0
}

// becomes waits until a condition holds that finalizers bring about.
func becomes(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); runtime.Gosched() {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
	}
}

// forget makes an object of each kind that nobody keeps, and gives the handles of what no cache
// lists.
func forget(t testing.TB, watched *Cache) (caches []raw.Cache, pool raw.Pool) {
	t.Helper()
	session := opened(t, watched, 20)
	_, err := session.Snapshot()
	check(t, err)
	_, err = watched.Begin(Step{session, 30})
	check(t, err)
	lonely, err := NewPool(PoolConfig{Blocks: 8})
	check(t, err)
	hooked := small(t, func(c *CacheConfig) { c.Logger = func(LogLevel, string) {} })
	opened(t, hooked, 20)
	viewed := small(t, nil)
	_, err = viewed.KVView(0)
	check(t, err)
	return []raw.Cache{hooked.handle, viewed.handle}, lonely.handle
}

func gone(caches []raw.Cache, pool raw.Pool) bool {
	for _, cache := range caches {
		if Status(raw.CacheGetStats(cache, &raw.CacheStats{StructSize: 1})) != ErrStaleHandle {
			return false
		}
	}
	return Status(raw.PoolGetStats(pool, &raw.PoolStats{StructSize: 1})) == ErrStaleHandle
}

// sentinel tells by its finalizer that the collector has been here.
type sentinel struct{ _ [16]byte }

// collect collects in a hook, until finalizers have run.
func collect() {
	var ran atomic.Bool
	func() {
		runtime.SetFinalizer(&sentinel{}, func(*sentinel) { ran.Store(true) })
	}()
	for deadline := time.Now().Add(10 * time.Second); !ran.Load() && time.Now().Before(deadline); {
		runtime.GC()
	}
}

// A cache may be closed while the collector closes its sessions.
func TestClosesBesideTheCollector(t *testing.T) {
	for i := 0; i < 100; i++ {
		cache := small(t, nil)
		for n := 0; n < 200; n++ {
			_, err := cache.OpenSession(nil)
			check(t, err)
		}
		done := make(chan struct{})
		go func() {
			runtime.GC()
			close(done)
		}()
		for stats, _ := cache.Stats(); stats.Sessions == 200; stats, _ = cache.Stats() {
			runtime.Gosched()
		}
		check(t, cache.Close())
		<-done
	}
}

type collecting struct{ stream bytes.Buffer }

func (c *collecting) Read(to []byte) (int, error) {
	collect()
	return c.stream.Read(to)
}

func (c *collecting) Write(from []byte) (int, error) {
	collect()
	return c.stream.Write(from)
}

func TestWhatIsCollectedInAHookIsClosed(t *testing.T) {
	var collects atomic.Bool
	runner := func(tasks int, run func(task, worker int)) {
		if collects.Load() {
			collect()
		}
		for i := 0; i < tasks; i++ {
			run(i, 0)
		}
	}
	cache := small(t, func(c *CacheConfig) { c.Runner = runner })
	defer cache.Close()
	session := opened(t, cache, 20)
	batch, err := cache.Begin(Step{opened(t, cache, 1), 512})
	check(t, err)
	check(t, batch.Write(0, Float32(rows), Float32(rows)))
	hook := &collecting{}
	for _, hooked := range []struct {
		name string
		call func() error
	}{
		{"runner", func() error {
			return batch.Attend(0, Float32(rows), Float32(make([]float32, len(rows))), nil, nil)
		}},
		{"writer", func() error {
			_, err := cache.SaveTo(hook, nil, FileItem{Session: session})
			return err
		}},
		{"reader", func() error {
			_, err := Inspect(hook, nil)
			return err
		}},
	} {
		watched := small(t, nil)
		caches, pool := forget(t, watched)
		collects.Store(true)
		check(t, hooked.call())
		collects.Store(false)
		becomes(t, hooked.name, func() bool { return isEmpty(watched) && gone(caches, pool) })
		check(t, watched.Validate())
		check(t, watched.Close())
	}
}

func TestWhatIsAbandonedInAHookIsClosedByTheNextCall(t *testing.T) {
	watched := small(t, nil)
	defer watched.Close()
	session := opened(t, watched, 20)
	batch, err := watched.Begin(Step{session, 30})
	check(t, err)
	released, refused := 0, []error{}
	hook := writer(func() {
		refused = append(refused, session.Close(), batch.Abort())
		abandon(ending{close: func() raw.Status { return raw.SessionClose(session.handle) }})
		abandon(ending{
			func() raw.Status { return raw.BatchAbort(batch.handle) },
			func() { released++ },
		})
	})
	other := small(t, nil)
	defer other.Close()
	_, err = other.SaveTo(&hook, nil, FileItem{Session: opened(t, other, 20)})
	check(t, err)
	for _, err := range refused {
		if !errors.Is(err, ErrReentrant) {
			t.Errorf("a call in a hook: %v", err)
		}
	}
	if waiting.count.Load() == 0 || released != 0 {
		t.Errorf("%d wait, %d were released", waiting.count.Load(), released)
	}
	if !isEmpty(watched) || released != 1 {
		t.Errorf("%d wait, %d were released", waiting.count.Load(), released)
	}
}

// writer is called for the first bytes.
type writer func()

func (w *writer) Write(from []byte) (int, error) {
	if *w != nil {
		(*w)()
		*w = nil
	}
	return len(from), nil
}

// A session that its finalizer finds in use is closed later. It is used here by its handle alone.
func TestWhatIsBusyWhenItIsCollectedIsClosedByALaterCall(t *testing.T) {
	cache := small(t, nil)
	defer cache.Close()
	var batch raw.Batch
	func() {
		handle, tokens := opened(t, cache, 20).handle, uint32(1)
		status := raw.BatchBegin(cache.handle, 1, &handle, &tokens, &batch)
		if status != raw.OK {
			t.Fatal(Status(status))
		}
	}()
	becomes(t, "the finalizer", func() bool { return waiting.count.Load() == 1 })
	stats, err := cache.Stats()
	check(t, err)
	if stats.Sessions != 1 {
		t.Errorf("%d sessions while a batch has one", stats.Sessions)
	}
	if status := raw.BatchAbort(batch); status != raw.OK {
		t.Fatal(Status(status))
	}
	if !isEmpty(cache) {
		t.Error("the next call has not closed the session")
	}
}

// ---- Views

func attend(view KVView) error {
	table := make([]uint32, 32)
	for i := range table {
		table[i] = uint32(i)
	}
	sequences := Sequences{
		QueryHeads: 8, QueryLengths: []uint32{64}, KVLengths: []uint64{512},
		BlockTables: table, BlockTableStride: 32,
	}
	out := make([]float32, 64*8*64)
	return Attend(view, sequences, Float32(rows[:len(out)]), Float32(out), nil, nil)
}

func TestAViewKeepsItsCache(t *testing.T) {
	view, err := small(t, nil).KVView(0)
	check(t, err)
	for i := 0; i < 3; i++ {
		runtime.GC()
		check(t, attend(view))
	}
	check(t, view.K.cache.Close())
	if err := attend(view); !errors.Is(err, ErrStaleHandle) {
		t.Errorf("the view of a closed cache: %v", err)
	}
}

func TestViewsRaceWithClose(t *testing.T) {
	for round := 0; round < 60; round++ {
		cache := small(t, nil)
		view, err := cache.KVView(0)
		check(t, err)
		var group sync.WaitGroup
		for g := 0; g < 3; g++ {
			group.Add(1)
			go func() {
				defer group.Done()
				err := attend(view)
				for err == nil {
					err = attend(view)
				}
				if !errors.Is(err, ErrStaleHandle) {
					t.Error(err)
				}
			}()
		}
		err = cache.Close()
		for errors.Is(err, ErrBusy) {
			runtime.Gosched()
			err = cache.Close()
		}
		check(t, err)
		group.Wait()
	}
}

// ---- Many goroutines

// rounds of the long form: tests/README.md has the command.
func rounds(t *testing.T) int {
	if text := os.Getenv("PAGEDKV_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		check(t, err)
		return n
	}
	return 3
}

// Goroutines forget objects while others look into all sessions, which are busy meanwhile.
func TestManyGoroutinesForgetEverything(t *testing.T) {
	for round := rounds(t); round > 0; round-- {
		cache := small(t, func(c *CacheConfig) { c.Groups[0].Blocks = 4096 })
		var group sync.WaitGroup
		for g := 0; g < 4; g++ {
			group.Add(1)
			go func(g int) {
				defer group.Done()
				for i := 0; i < 40; i++ {
					forgetOne(t, cache, g+i)
				}
			}(g)
		}
		group.Wait()
		becomes(t, "everything closed", func() bool { return isEmpty(cache) })
		check(t, cache.Validate())
		check(t, cache.Close())
	}
}

func forgetOne(t *testing.T, cache *Cache, kind int) {
	session, err := cache.OpenSession(nil)
	if err == nil {
		err = fill(cache, session, 20)
	}
	if err == nil {
		switch kind % 5 {
		case 0:
			_, err = cache.ChooseVictims(Step{session, 1})
		case 1:
			_, err = session.Snapshot()
		case 2:
			_, err = session.Fork()
		case 3:
			_, err = cache.Begin(Step{session, 30})
		case 4:
			runtime.GC()
			err = session.Close()
		}
	}
	if err != nil && !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
}
