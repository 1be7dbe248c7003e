package pagedkv

import (
	"runtime"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Compute has the threads, kernels and reusable working memory for calls over the caller's memory.
// All methods but Close may be called from any number of goroutines at once. The methods of a nil
// Compute run on all CPUs.
type Compute struct {
	_      noCopy
	handle raw.Compute
}

func (c *ComputeConfig) place(op string) (*raw.ComputeConfig, error) {
	out := sized(&raw.ComputeConfig{})
	n := numbers{op: op}
	n.fill(c, out)
	return out, n.err
}

// NewCompute starts the threads.
func NewCompute(config ComputeConfig) (*Compute, error) {
	const op = "create compute"
	given, err := config.place(op)
	if err != nil {
		return nil, err
	}
	c := &Compute{}
	err = call(op, nil, func() raw.Status { return raw.ComputeCreate(given, &c.handle) })
	if err != nil {
		return nil, err
	}
	handle := c.handle
	e := ending{close: func() raw.Status { return raw.ComputeDestroy(handle) }}
	runtime.SetFinalizer(c, func(*Compute) { abandon(e) })
	return c, nil
}

// Close ends the threads and frees the memory.
func (c *Compute) Close() error {
	err := call("close compute", c, func() raw.Status { return raw.ComputeDestroy(c.handle) })
	if err == nil {
		runtime.SetFinalizer(c, nil)
	}
	return err
}

// Info returns the threads and the instruction set.
func (c *Compute) Info() (ComputeInfo, error) {
	out := sized(&raw.ComputeInfo{})
	err := call("compute info", c, func() raw.Status { return raw.ComputeGetInfo(c.raw(), out) })
	return reported[ComputeInfo](out), err
}

// raw returns the handle of C; 0 for nil.
func (c *Compute) raw() raw.Compute {
	if c == nil {
		return 0
	}
	return c.handle
}
