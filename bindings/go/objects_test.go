package pagedkv_test

import (
	"errors"
	"go/ast"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

func plainModel(blocks uint64) []pagedkv.LayerGroup {
	return []pagedkv.LayerGroup{
		{Layers: 2, QueryHeads: 4, KVHeads: 2, KeyDim: 32, Blocks: blocks},
	}
}

// newCache makes a cache. Groups that do not say how many blocks they have get 32.
func newCache(t testing.TB, config pagedkv.CacheConfig) *pagedkv.Cache {
	t.Helper()
	if config.Groups == nil {
		config.Groups = plainModel(32)
	}
	for i := range config.Groups {
		if config.Groups[i].Blocks == 0 {
			config.Groups[i].Blocks = 32
		}
	}
	cache, err := pagedkv.NewCache(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cache.Close(); err != nil && !errors.Is(err, pagedkv.ErrStaleHandle) {
			t.Error(err)
		}
	})
	return cache
}

func open(t testing.TB, cache *pagedkv.Cache) *pagedkv.Session {
	t.Helper()
	session, err := cache.OpenSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errorOf drops the other result of a call.
func errorOf[T any](_ T, err error) error { return err }

var f32 = pagedkv.Float32

func step(session *pagedkv.Session, newTokens int) pagedkv.Step {
	return pagedkv.Step{Session: session, NewTokens: newTokens}
}

func begin(t testing.TB, cache *pagedkv.Cache, steps ...pagedkv.Step) *pagedkv.Batch {
	t.Helper()
	batch, err := cache.Begin(steps...)
	must(t, err)
	return batch
}

// write stores keys and values in one layer of the default cache.
func write(t testing.TB, batch *pagedkv.Batch, layer int, histories []uint64) {
	t.Helper()
	k, v := rowsOf(histories, kindK, layer, 2, 32), rowsOf(histories, kindV, layer, 2, 32)
	must(t, batch.Write(layer, f32(k), f32(v)))
}

// attend returns the outputs of one layer of the default cache.
func attend(
	t testing.TB, batch *pagedkv.Batch, layer int, q []float32, params *pagedkv.AttentionParams,
) []float32 {
	t.Helper()
	out := make([]float32, len(q))
	must(t, batch.Attend(layer, f32(q), f32(out), params, nil))
	return out
}

// numbered gives the ids seed, seed + 1, ...
func numbered(seed int32, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = seed + int32(i)
	}
	return ids
}

// extend commits tokens to one session of the default cache and returns the outputs of both layers.
func extend(t testing.TB, session *pagedkv.Session, tokens []int32) []float32 {
	t.Helper()
	length, err := session.Length()
	must(t, err)
	text := make([]int32, length, length+len(tokens))
	must(t, session.Tokens(0, text))
	rows := histories(append(text, tokens...))[length:]
	batch := begin(t, session.Cache(), step(session, len(tokens)))
	defer batch.Close()
	var outs []float32
	for layer := 0; layer < 2; layer++ {
		write(t, batch, layer, rows)
		outs = append(outs, attend(t, batch, layer, rowsOf(rows, kindQ, layer, 4, 32), nil)...)
	}
	must(t, batch.Commit(tokens))
	return outs
}

func TestErrorsAreStatusesAndFamilies(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{Groups: plainModel(2)})
	session := open(t, cache)
	_, err := cache.Begin(step(session, 1000))
	if !errors.Is(err, pagedkv.ErrTooLarge) || !errors.Is(err, pagedkv.ErrMisuse) {
		t.Errorf("too large: %v", err)
	}
	if errors.Is(err, pagedkv.ErrUnavailable) || errors.Is(err, pagedkv.ErrOutOfBlocks) ||
		errors.Is(err, fs.ErrClosed) {
		t.Errorf("too large is taken for something else: %v", err)
	}
	extend(t, session, numbered(1, 20))
	_, err = cache.Begin(step(open(t, cache), 17))
	var e *pagedkv.Error
	if !errors.As(err, &e) || e.Status != pagedkv.ErrOutOfBlocks || e.BlocksShort != 2 ||
		e.Group != 0 || e.Index != -1 {
		t.Errorf("out of blocks: %#v", err)
	}
	if !strings.Contains(err.Error(), "PKV_OUT_OF_BLOCKS") ||
		!strings.ContainsAny(e.Sentence, "0123456789") {
		t.Errorf("no sentence with numbers: %v", err)
	}
	for _, err := range []error{session.Trim(-1), session.Reserve(-1), session.Tokens(-1, nil)} {
		if !errors.Is(err, pagedkv.ErrOutOfRange) || !strings.Contains(err.Error(), "-1") {
			t.Errorf("a negative number: %v", err)
		}
		if !errors.As(err, &e) || e.Group != -1 || e.Index != -1 {
			t.Errorf("not of a list: %#v", err)
		}
	}
	must(t, session.Suspend())
	_, err = cache.Begin(step(open(t, cache), 1), step(session, 1))
	if !errors.As(err, &e) || e.Status != pagedkv.ErrSuspended || e.Index != 1 || e.Group != -1 {
		t.Errorf("the second session is suspended: %#v", err)
	}
	if name := pagedkv.Status(7).Error(); name != "status 7" {
		t.Errorf("an unknown status is called %q", name)
	}
}

func TestWhatIsClosedIsStale(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	session := open(t, cache)
	extend(t, session, numbered(1, 20))
	frozen, err := session.Snapshot()
	must(t, err)
	batch := begin(t, cache, step(session, 1))
	if err := session.Close(); !errors.Is(err, pagedkv.ErrBusy) {
		t.Errorf("a session in a batch: %v", err)
	}
	must(t, batch.Close())
	must(t, batch.Close())
	must(t, session.Close())
	must(t, frozen.Close())
	_, lengthErr := session.Length()
	_, openErr := frozen.Fork()
	_, beginErr := cache.Begin(step(session, 1))
	for i, err := range []error{
		session.Close(), lengthErr, session.Trim(0), frozen.Close(), openErr, batch.Commit(nil),
		batch.Abort(), beginErr,
	} {
		if !errors.Is(err, pagedkv.ErrStaleHandle) || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
	view, err := cache.KVView(0)
	must(t, err)
	must(t, cache.Close())
	_, statsErr := cache.Stats()
	viewErr := pagedkv.Attend(view, pagedkv.Sequences{QueryHeads: 4}, f32(nil), f32(nil), nil, nil)
	for i, err := range []error{cache.Close(), statsErr, viewErr} {
		if !errors.Is(err, pagedkv.ErrStaleHandle) {
			t.Errorf("call %d after the cache's Close: %v", i, err)
		}
	}
	var never pagedkv.Session
	if err := never.Trim(0); !errors.Is(err, pagedkv.ErrInvalidArgument) {
		t.Errorf("a session that never was: %v", err)
	}
}

func TestForgottenObjectsAreClosed(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	func() {
		session := open(t, cache)
		extend(t, session, numbered(1, 20))
		_, err := session.Snapshot()
		must(t, err)
		_, err = cache.Begin(step(session, 1))
		must(t, err)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		stats, err := cache.Stats()
		pools, _ := cache.PoolStats(pagedkv.AllGroups)
		if err == nil && stats.Sessions+stats.Snapshots+stats.Batches == 0 &&
			pools.HeldBlocks == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %+v, %v", stats, err)
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{
		Groups: plainModel(256), Prefix: &pagedkv.PrefixConfig{}, Threads: 2,
	})
	want := extend(t, open(t, cache), numbered(100, 40))
	shared := open(t, cache)
	var busy int64
	var group sync.WaitGroup
	for g := 0; g < 8; g++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := 0; round < 5; round++ {
				session, err := cache.OpenSession(nil)
				if err != nil {
					t.Error(err)
					return
				}
				for i, got := range extend(t, session, numbered(100, 40)) {
					if got != want[i] {
						t.Errorf("output %d is %v, alone it is %v", i, got, want[i])
						return
					}
				}
				// All goroutines use one session at once; each second caller gets an error.
				if err := shared.Reserve(32); errors.Is(err, pagedkv.ErrBusy) {
					atomic.AddInt64(&busy, 1)
				} else if err != nil {
					t.Error(err)
				}
				if _, err := session.BlockTable(9); !errors.Is(err, pagedkv.ErrOutOfRange) ||
					!strings.Contains(err.Error(), "9") {
					t.Errorf("another goroutine's sentence: %v", err)
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	must(t, cache.Validate())
	t.Logf("%d calls met another on the same session", busy)
}

func TestGoVetRefusesCopiesOfOwners(t *testing.T) {
	owners := 0
	for _, spec := range types(t) {
		fields, is := spec.Type.(*ast.StructType)
		if !is {
			continue
		}
		owns, uncopied := false, false
		for _, field := range fields.Fields.List {
			kind, _ := field.Type.(*ast.Ident)
			owns = owns || len(field.Names) > 0 && field.Names[0].Name == "handle"
			uncopied = uncopied || kind != nil && kind.Name == "noCopy"
		}
		if owns {
			owners++
		}
		if owns && !uncopied {
			t.Errorf("%s has a handle and no field of the type noCopy", spec.Name.Name)
		}
	}
	if owners < 6 {
		t.Errorf("%d types with a handle were found", owners)
	}
}
