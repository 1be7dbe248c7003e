package pagedkv

import (
	"math"
	"time"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// StoreConfig puts a directory or Redis behind the memory of a cache. Blocks that closed or
// suspended sessions leave in the prefix index are written to it, and read back for a later text
// with the same prefix, also after a restart. It needs StorageInternal and a prefix index. No step
// waits for it.
type StoreConfig struct {
	Directory string // Created if it does not exist.
	// If all files together exceed this, the least recently used are deleted; 0: no limit.
	MaxBytes uint64
	// Whether written data survives a power cut. Default DurabilityOff: some of it may be lost,
	// which only costs hits.
	Durability Durability
	Redis      *RedisConfig // Instead of Directory, MaxBytes and Durability.
	// How long Admit and Resume wait for blocks from the store.
	Wait        time.Duration
	Fingerprint []byte // Names the model, up to 64 bytes.
	// 16 to 64 bytes that encrypt and authenticate stored data. None: checksums.
	SecretKey Secret
	// Buffer memory of each of the two threads; 0: 4 MiB.
	BufferBytes uint64
	// Once this many tokens wait to be written, the blocks of further sessions are not written. 0:
	// those of a quarter of the blocks.
	MaxQueuedTokens uint64
}

func (c *StoreConfig) arenaSize() int {
	if c == nil {
		return 0
	}
	return spaceFor[raw.StoreConfig](1) + spaceFor[raw.Store](1) +
		spaceFor[byte](len(c.Fingerprint)) + spaceFor[byte](len(c.SecretKey.bytes())+1)
}

func (c *StoreConfig) placeDirectory() *raw.DirectoryConfig {
	path := append([]byte(c.Directory), 0)
	out := sized(&raw.DirectoryConfig{})
	out.Path, out.MaxBytes, out.Durability = &path[0], c.MaxBytes, int32(c.Durability)
	return out
}

// openDirectory opens the directory.
func (c *StoreConfig) openDirectory(op string) (*raw.Store, error) {
	directory := c.placeDirectory()
	store := sized(&raw.Store{})
	err := call(op, nil, func() raw.Status { return raw.StoreOpenDirectory(directory, store) })
	return store, err
}

// openStore opens what the config names.
func (c *StoreConfig) openStore(op string) (*raw.Store, error) {
	if c.Redis == nil {
		return c.openDirectory(op)
	}
	if c.Directory != "" {
		return nil, misuse(
			op, ErrInvalidArgument, "a store is a directory or Redis, not both",
		)
	}
	return c.Redis.open(op)
}

// open opens the store and returns C's config.
func (c *StoreConfig) open(a *arena) (*raw.StoreConfig, error) {
	store, err := c.openStore("open store")
	if err != nil {
		return nil, err
	}
	return c.place(a, store), nil
}

// place returns C's config with an open store.
func (c *StoreConfig) place(a *arena, store *raw.Store) *raw.StoreConfig {
	out := sized(first(place[raw.StoreConfig](a, 1)))
	out.Store, out.WaitMs = first(placed(a, []raw.Store{*store})), milliseconds(c.Wait)
	out.Fingerprint = unsafe.Pointer(first(placed(a, c.Fingerprint)))
	out.FingerprintSize = uint64(len(c.Fingerprint))
	if key := c.SecretKey.bytes(); key != nil {
		// One byte more, so that an empty key has an address: it is refused, not left out.
		room := place[byte](a, len(key)+1)
		copy(room, key)
		out.SecretKey, out.SecretKeySize = unsafe.Pointer(&room[0]), uint64(len(key))
	}
	out.BufferBytes, out.MaxQueuedTokens = c.BufferBytes, c.MaxQueuedTokens
	return out
}

// closeUnused closes the store if no cache has taken it.
func closeUnused(config *raw.StoreConfig) {
	if config != nil {
		raw.StoreClose(config.Store)
	}
}

// milliseconds converts a time for C, rounded up.
func milliseconds(d time.Duration) uint32 {
	ms := d / time.Millisecond
	if d < 0 {
		return 0
	}
	if d%time.Millisecond != 0 {
		ms++
	}
	if ms > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(ms)
}

// Store is the store behind a cache's memory. Without one its methods return ErrUnsupported.
type Store struct {
	cache *Cache
}

// Store returns the store of the cache.
func (c *Cache) Store() Store { return Store{c} }

// WaitForPrefetch waits until no prefetch of the text is in progress, and returns how many of its
// tokens are in memory now, in whole blocks.
func (s Store) WaitForPrefetch(salt string, tokens []int32, timeout time.Duration) (int, error) {
	var cached uint64
	err := s.cache.Prefix().texted("prefetch wait", salt, tokens, func(
		cache raw.Cache, text *raw.Prompt,
	) raw.Status {
		return raw.PrefetchWait(cache, text, milliseconds(timeout), &cached, nil)
	})
	return int(cached), err
}

// CancelPrefetch cancels the prefetches that WaitForPrefetch would wait for.
func (s Store) CancelPrefetch(salt string, tokens []int32) error {
	return s.cache.Prefix().texted("prefetch cancel", salt, tokens, raw.PrefetchCancel)
}

// Flush waits until the blocks of earlier sessions are written. It returns how many tokens still
// wait.
func (s Store) Flush(timeout time.Duration) (queued uint64, err error) {
	err = call("store flush", s.cache, func() raw.Status {
		return raw.CacheFlushStore(s.cache.handle, milliseconds(timeout), &queued)
	})
	return queued, err
}

// Stats returns the statistics of the store.
func (s Store) Stats() (StoreStats, error) {
	out := sized(&raw.StoreStats{})
	err := call("store stats", s.cache, func() raw.Status {
		return raw.CacheGetStoreStats(s.cache.handle, out)
	})
	return reported[StoreStats](out), err
}
