package pagedkv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Blocks that Go copies on threads of the library: beside the collector, for a cache that nobody
// has any more, and with a panic.

const blockBytes = 4096

// marks is a BlockIO whose blocks are full of one byte each. It may call something first.
type marks struct {
	sync.Mutex
	of    map[uint32]byte
	first func()
}

func (m *marks) Read(_ int, blocks, _ []uint32, to []byte) error {
	m.first()
	m.Lock()
	defer m.Unlock()
	for i, block := range blocks {
		for j := range to[i*blockBytes : (i+1)*blockBytes] {
			to[i*blockBytes+j] = m.of[block]
		}
	}
	return nil
}

func (m *marks) Write(_ int, blocks []uint32, from []byte) error {
	m.first()
	m.Lock()
	defer m.Unlock()
	for i, block := range blocks {
		m.of[block] = from[i*blockBytes]
		for _, other := range from[i*blockBytes : (i+1)*blockBytes] {
			if other != m.of[block] {
				return fmt.Errorf("block %d is torn", block)
			}
		}
	}
	return nil
}

func marked(t testing.TB, folder string, first func()) (*Cache, *marks) {
	t.Helper()
	io := &marks{of: map[uint32]byte{}, first: first}
	cache, err := NewCache(CacheConfig{
		Groups: []LayerGroup{
			{Layers: 1, Kind: LayersOpaqueKV, LayerBytes: blockBytes, Blocks: 8},
		},
		Storage: StorageExternal,
		Prefix:  &PrefixConfig{},
		Store:   &StoreConfig{Directory: folder},
		BlockIO: io,
	})
	check(t, err)
	return cache, io
}

// visit shows the mark of each block of a session, which follows from its text.
func (m *marks) visit(t testing.TB, session *Session, seed int32, visit func(uint32, byte)) {
	t.Helper()
	table, err := session.BlockTable(0)
	check(t, err)
	m.Lock()
	defer m.Unlock()
	for i, block := range table {
		visit(block, byte(1+7*int(seed)+i))
	}
}

// leave computes a text of two blocks, and closes its session.
func (m *marks) leave(t testing.TB, cache *Cache, seed int32) []int32 {
	t.Helper()
	text := make([]int32, 32)
	for i := range text {
		text[i] = 100*seed + int32(i)
	}
	session, err := cache.OpenSession(nil)
	check(t, err)
	batch, err := cache.Begin(Step{session, len(text)})
	check(t, err)
	m.visit(t, session, seed, func(block uint32, mark byte) { m.of[block] = mark })
	check(t, batch.Commit(text))
	check(t, session.Close())
	return text
}

// comeBack lets texts go to the store and come back.
func comeBack(t *testing.T, folder string, first func()) {
	cache, io := marked(t, folder, first)
	defer cache.Close()
	for seed := int32(0); seed < 10; seed++ {
		text := io.leave(t, cache, seed)
		queued, err := cache.Store().Flush(time.Minute)
		check(t, err)
		check(t, cache.Prefix().Clear(""))
		_, err = cache.Prefix().Hint("", text, Hint{Action: HintPrefetch, End: ToEnd})
		check(t, err)
		cached, err := cache.Store().WaitForPrefetch("", text, time.Minute)
		if err != nil || queued != 0 || cached != len(text) {
			t.Errorf("%d blocks wait, %d tokens are back, %v", queued, cached, err)
			return
		}
		session, err := cache.OpenSession(nil)
		check(t, err)
		_, err = session.Admit(text, 0)
		check(t, err)
		io.visit(t, session, seed, func(block uint32, mark byte) {
			if io.of[block] != mark {
				t.Errorf("block %d is %d, not %d", block, io.of[block], mark)
			}
		})
		check(t, session.Close())
	}
}

// deep moves its stack, and leaves garbage.
func deep(n int) int {
	garbage := make([]byte, 64+n%1000)
	if n == 0 {
		return len(garbage)
	}
	return deep(n-1) + int(garbage[0])
}

func TestBlocksAreCopiedBesideTheCollector(t *testing.T) {
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Add(1)
	go func() {
		defer others.Done()
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	}()
	var caches sync.WaitGroup
	for i := 0; i < 3; i++ {
		caches.Add(1)
		go func(folder string) {
			defer caches.Done()
			comeBack(t, folder, func() {
				deep(1000)
				runtime.GC()
				runtime.Gosched()
				deep(1000)
			})
		}(filepath.Join(t.TempDir(), "store"))
	}
	caches.Wait()
	close(done)
	others.Wait()
}

func TestACacheIsForgottenWhileItsBlocksAreCopied(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	before := len(registry.entries)
	func() {
		cache, io := marked(t, folder, func() {
			asked <- struct{}{}
			<-answer
		})
		io.leave(t, cache, 1)
	}()
	<-asked
	closes := func() bool { return attempts.begun.Load() > attempts.ended.Load() }
	becomes(t, "the cache is being closed", closes)
	runtime.GC()
	close(answer)
	becomes(t, "the hooks are forgotten", func() bool {
		registry.RLock()
		defer registry.RUnlock()
		return len(registry.entries) == before
	})
	if files, _ := filepath.Glob(folder + "/*/*.kv"); len(files) != 2 {
		t.Errorf("%d of 2 blocks are written", len(files))
	}
}

// panicsInChild runs a test in a child, which must end with this panic.
func panicsInChild(t *testing.T, message string, use func()) {
	const inChild = "PAGEDKV_TEST_PANIC"
	if os.Getenv(inChild) == message {
		use()
		t.Fatal("it goes on")
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	child.Env = append(os.Environ(), inChild+"="+message)
	output, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic: "+message) {
		t.Errorf("%v: %s", err, output)
	}
}

func TestAPanicInAHookEndsTheProgram(t *testing.T) {
	panicsInChild(t, "a lost device", func() {
		cache, io := marked(t, filepath.Join(t.TempDir(), "store"), func() { panic("a lost device") })
		io.leave(t, cache, 1)
		_, err := cache.Store().Flush(time.Minute)
		t.Fatal("it goes on: ", err)
	})
}

type fatalWriter struct{ *testing.T }

func (w fatalWriter) Write([]byte) (int, error) {
	w.Fatal("a test fails in a hook")
	return 0, nil
}

// Otherwise what the hook's call uses would be busy forever.
func TestAHookThatEndsItsGoroutineEndsTheProgram(t *testing.T) {
	uses := map[string]func(cache *Cache, session *Session) error{
		"writer": func(cache *Cache, session *Session) error {
			_, err := cache.SaveTo(fatalWriter{t}, nil, FileItem{Session: session})
			return err
		},
		"runner": func(cache *Cache, session *Session) error { return fill(cache, session, 512) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			panicsInChild(t, "pagedkv: a hook ended its goroutine", func() {
				cache := small(t, func(c *CacheConfig) {
					c.Runner = func(int, func(task, worker int)) { runtime.Goexit() }
				})
				session, err := cache.OpenSession(nil)
				check(t, err)
				done := make(chan struct{})
				go func() {
					defer close(done)
					t.Error("it returned: ", use(cache, session))
				}()
				<-done
			})
		})
	}
}
