package pagedkv

import (
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Attention computes attention over the caller's memory and block tables: q is [rows][query
// heads][key dim], out [rows][query heads][value dim], the rows of all sequences. params may be
// nil. The view of a closed cache returns ErrStaleHandle.
func (c *Compute) Attention(
	view KVView, sequences Sequences, q, out Tensor, params *AttentionParams,
) error {
	const op = "attention"
	return view.reading(func() error {
		kv, err := view.place(op)
		if err != nil {
			return err
		}
		given, rows, err := sequences.place(op)
		if err != nil {
			return err
		}
		queries, err := q.checkBatch(op, "q", rows, sequences.QueryHeads, view.KeyDim)
		if err != nil {
			return err
		}
		outputs, err := out.checkBatch(op, "out", rows, sequences.QueryHeads, view.ValueDim)
		if err != nil {
			return err
		}
		variant, err := params.place(op, rows, sequences.QueryHeads, view.KVHeads)
		if err != nil {
			return err
		}
		return call(op, &view, func() raw.Status {
			defer runtime.KeepAlive(c)
			return raw.Attention(c.raw(), kv, given, variant, queries, outputs)
		})
	})
}

// Attention is Compute.Attention on all CPUs.
func Attention(view KVView, sequences Sequences, q, out Tensor, params *AttentionParams) error {
	return (*Compute)(nil).Attention(view, sequences, q, out, params)
}

// State is the result of an attention call over some of the positions: outputs [rows][heads][dim]
// and their LSE [rows][heads].
type State struct {
	Out Tensor
	LSE []float32
}

// MergeStates combines results over the same queries and different positions, by their LSE, into
// merged [rows][heads][dim] and mergedLSE [rows][heads], which may be nil. Inputs are first copied
// outside of Go's heap, because C gets a list of pointers.
func MergeStates(states []State, rows, heads, dim int, merged Tensor, mergedLSE []float32) error {
	return (*Compute)(nil).MergeStates(states, rows, heads, dim, merged, mergedLSE)
}

// MergeStates is the function MergeStates with the instruction set of c.
func (c *Compute) MergeStates(
	states []State, rows, heads, dim int, merged Tensor, mergedLSE []float32,
) error {
	const op = "merge states"
	n := numbers{op: op}
	rawHeads, rawDim := n.u32("heads", heads), n.u32("dim", dim)
	target, err := merged.check(op, "merged", rows, heads, dim)
	if n.err != nil || err != nil {
		return firstError(n.err, err)
	}
	n.length("mergedLSE", len(mergedLSE), rows, heads)
	size := spaceFor[raw.Tensor](len(states)) + spaceFor[*float32](len(states)) + 1
	for _, state := range states {
		if _, err := state.Out.check(op, "Out", rows, heads, dim); err != nil {
			return err
		}
		if len(state.LSE) != rows*heads && n.err == nil {
			n.err = misuse(
				op, ErrInvalidArgument, "LSE has %d entries: %d rows of %d are needed",
				len(state.LSE), rows, heads,
			)
		}
		size += spaceFor[uint32](state.Out.elements) + spaceFor[float32](len(state.LSE))
	}
	if n.err != nil {
		return n.err
	}
	a, err := newArena(size)
	if err != nil {
		return err
	}
	defer a.free()
	outs, lse := place[raw.Tensor](a, len(states)), place[*float32](a, len(states))
	for i, state := range states {
		outs[i] = raw.Tensor{
			Data:       state.Out.copyTo(a),
			DType:      int32(state.Out.dtype),
			RowStride:  int64(state.Out.rowStride),
			HeadStride: int64(state.Out.headStride),
		}
		lse[i] = first(placed(a, state.LSE))
	}
	return call(op, states, func() raw.Status {
		defer runtime.KeepAlive(c)
		return raw.AttentionMerge(
			c.raw(), uint64(len(states)), first(outs), unsafe.Pointer(first(lse)), uint64(rows), rawHeads,
			rawDim, target, first(mergedLSE),
		)
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies the elements to an arena.
func (t Tensor) copyTo(a *arena) unsafe.Pointer {
	switch {
	case t.elements == 0:
		return nil
	case t.dtype == F32:
		return unsafe.Pointer(first(placed(a, unsafe.Slice((*float32)(t.data), t.elements))))
	}
	return unsafe.Pointer(first(placed(a, unsafe.Slice((*uint16)(t.data), t.elements))))
}
