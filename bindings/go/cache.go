package pagedkv

import (
	"runtime"
	"sync"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// AllGroups asks ComputeSizes and PoolStats for all layer groups together.
const AllGroups = -1

// Cache is the KV memory of a model. See CacheConfig.
type Cache struct {
	_      noCopy
	handle raw.Cache
	shapes []shape
	hooks  hooks
	memory sync.RWMutex // read-locked by calls that get its address, locked by Close
}

// ComputeSizes returns the memory that a cache of this config would need, in one layer group or in
// AllGroups. Nothing is allocated.
func ComputeSizes(config CacheConfig, group int) (CacheSizes, error) {
	const op = "compute sizes"
	n := numbers{op: op}
	which := n.groups(group)
	if n.err != nil {
		return CacheSizes{}, n.err
	}
	plan := sized(&raw.CacheSizes{})
	var ends hooks
	defer ends.forget()
	config.Store = nil // the plan does not count its memory
	err := config.use(op, &ends, func(c *raw.CacheConfig) raw.Status {
		return raw.CacheComputeSizes(c, which, plan)
	})
	return reported[CacheSizes](plan), err
}

// NewCache creates a cache. Memory is touched when blocks are first used, unless the config sets
// Prefault.
func NewCache(config CacheConfig) (*Cache, error) {
	c := &Cache{}
	err := config.use("create cache", &c.hooks, func(given *raw.CacheConfig) raw.Status {
		status := raw.CacheCreate(given, &c.handle)
		if status != raw.OK {
			closeUnused(given.Store)
		}
		return status
	})
	if err != nil {
		c.hooks.forget()
		return nil, err
	}
	c.shapes = config.shapes()
	handle, ends := c.handle, c.hooks
	e := ending{func() raw.Status { return raw.CacheDestroy(handle) }, ends.forget}
	// Closing may wait for a store, which must not delay other finalizers.
	runtime.SetFinalizer(c, func(*Cache) { go abandon(e) })
	return c, nil
}

// use calls the library with C's form of the config.
func (c *CacheConfig) use(
	op string, hooks *hooks, function func(*raw.CacheConfig) raw.Status,
) error {
	if err := library.Load(""); err != nil {
		return err
	}
	a, err := newArena(c.arenaSize())
	if err != nil {
		return err
	}
	defer a.free()
	given, err := c.place(op, a, hooks)
	if err == nil && c.Store != nil {
		given.Store, err = c.Store.open(a)
	}
	if err != nil {
		return err
	}
	return call(op, c, func() raw.Status { return function(given) })
}

// Close closes the cache with its sessions, batches and snapshots. It returns ErrBusy while
// Attention reads its memory through a KVView.
func (c *Cache) Close() error {
	const op = "close cache"
	if !c.memory.TryLock() {
		return misuse(
			op, ErrBusy, "another goroutine closes the cache, or reads its memory through a KVView",
		)
	}
	defer c.memory.Unlock()
	err := closePatiently(func() error {
		return call(op, c, func() raw.Status { return raw.CacheDestroy(c.handle) })
	})
	if err == nil {
		runtime.SetFinalizer(c, nil)
		c.hooks.forget()
		shown.release(func(b *Batch) bool { return b.cache == c })
	}
	return err
}

// Info returns the cache's settings, with defaults filled in.
func (c *Cache) Info() (CacheInfo, error) {
	out := sized(&raw.CacheInfo{})
	err := call("cache info", c, func() raw.Status { return raw.CacheGetInfo(c.handle, out) })
	return reported[CacheInfo](out), err
}

// Stats returns statistics over all groups, which are exact while no other goroutine uses the
// cache.
func (c *Cache) Stats() (CacheStats, error) {
	out := sized(&raw.CacheStats{})
	err := call("cache stats", c, func() raw.Status { return raw.CacheGetStats(c.handle, out) })
	return reported[CacheStats](out), err
}

// PoolStats returns statistics of the blocks of one group, or of AllGroups.
func (c *Cache) PoolStats(group int) (PoolStats, error) {
	n := numbers{op: "pool stats"}
	which := n.groups(group)
	out := sized(&raw.PoolStats{})
	err := n.call(c, func() raw.Status { return raw.CacheGetPoolStats(c.handle, which, out) })
	return reported[PoolStats](out), err
}

// Metrics returns the statistics of the cache in the text format of Prometheus.
func (c *Cache) Metrics() (string, error) {
	n := numbers{op: "metrics"}
	text, err := list(n, c, func(capacity uint64, text *byte, size *uint64) raw.Status {
		status := raw.CacheFormatMetrics(c.handle, capacity, text, size)
		if status == raw.BufferTooSmall {
			*size += *size / 8 // counts change while others use the cache
		}
		return status
	})
	if err != nil {
		return "", err
	}
	return string(text[:len(text)-1]), nil
}

// Validate checks all invariants. Call it while no other goroutine uses the cache.
func (c *Cache) Validate() error {
	return call("validate", c, func() raw.Status { return raw.CacheValidate(c.handle) })
}

// shape returns the shape of a layer; false if there is no such layer, which the library reports.
func (c *Cache) shape(layer int) (shape, bool) {
	if layer < 0 || layer >= len(c.shapes) {
		return shape{}, false
	}
	return c.shapes[layer], true
}
