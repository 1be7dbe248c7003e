package pagedkv

import (
	"runtime"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Block is a reference to one block: its id, and the generation of that id, by which the pool
// recognises stale references.
type Block uint64

// ID returns the id, as in block tables and slots.
func (b Block) ID() uint32 { return uint32(b) }

// PoolConfig describes a pool.
type PoolConfig struct {
	Blocks int // 1 to 2^31 - 1.
}

// Pool allocates reference-counted block ids, for an engine that keeps the bytes elsewhere.
// Everything but Close may be called from any number of goroutines at once; Alloc, Retain and
// Release are lock-free.
type Pool struct {
	_      noCopy
	handle raw.Pool
}

func (c *PoolConfig) place(op string) (*raw.PoolConfig, error) {
	out := sized(&raw.PoolConfig{})
	n := numbers{op: op}
	out.Blocks = n.u32("Blocks", c.Blocks)
	return out, n.err
}

// NewPool creates a pool with all blocks free.
func NewPool(config PoolConfig) (*Pool, error) {
	const op = "create pool"
	given, err := config.place(op)
	if err != nil {
		return nil, err
	}
	p := &Pool{}
	err = call(op, nil, func() raw.Status { return raw.PoolCreate(given, &p.handle) })
	if err != nil {
		return nil, err
	}
	handle := p.handle
	e := ending{close: func() raw.Status { return raw.PoolDestroy(handle) }}
	runtime.SetFinalizer(p, func(*Pool) { abandon(e) })
	return p, nil
}

// Close frees the pool; its blocks become stale.
func (p *Pool) Close() error {
	err := call("close pool", p, func() raw.Status { return raw.PoolDestroy(p.handle) })
	if err == nil {
		runtime.SetFinalizer(p, nil)
	}
	return err
}

// raws returns the blocks as C takes them.
func raws(blocks []Block) *uint64 { return (*uint64)(first(blocks)) }

// Alloc fills blocks with newly allocated ones, each with one reference: all or none.
func (p *Pool) Alloc(blocks []Block) error {
	return call("alloc", p, func() raw.Status {
		return raw.PoolAlloc(p.handle, uint64(len(blocks)), raws(blocks))
	})
}

// Retain adds one reference to each of the blocks, all or none.
func (p *Pool) Retain(blocks ...Block) error {
	return call("retain", p, func() raw.Status {
		return raw.PoolRetain(p.handle, uint64(len(blocks)), raws(blocks))
	})
}

// Release drops one reference of each of the blocks, all or none. A block without references is
// freed.
func (p *Pool) Release(blocks ...Block) error {
	return call("release", p, func() raw.Status {
		return raw.PoolRelease(p.handle, uint64(len(blocks)), raws(blocks))
	})
}

// Stats returns statistics of the pool, which are exact while no other goroutine uses it.
func (p *Pool) Stats() (PoolStats, error) {
	out := sized(&raw.PoolStats{})
	err := call("pool stats", p, func() raw.Status { return raw.PoolGetStats(p.handle, out) })
	return reported[PoolStats](out), err
}

// Validate checks all invariants of the pool. Call it while no other goroutine uses the pool.
func (p *Pool) Validate() error {
	return call("validate pool", p, func() raw.Status { return raw.PoolValidate(p.handle) })
}
