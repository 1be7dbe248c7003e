package pagedkv

import (
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Attend computes attention over the caller's memory and block tables: q is [rows][query
// heads][key dim], out [rows][query heads][value dim], the rows of all sequences. params may be
// nil, and outputs if no others are wanted. The view of a closed cache returns ErrStaleHandle.
func (c *Compute) Attend(
	view KVView, sequences Sequences, q, out Tensor, params *AttentionParams,
	outputs *AttentionOutputs,
) error {
	const op = "attend"
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
		results, err := out.checkBatch(op, "out", rows, sequences.QueryHeads, view.ValueDim)
		if err != nil {
			return err
		}
		variant, err := params.place(op, rows, sequences.QueryHeads, view.KVHeads)
		if err != nil {
			return err
		}
		others, err := outputs.place(op, params, rows, sequences.QueryHeads, view.KVHeads)
		if err != nil {
			return err
		}
		return call(op, &view, func() raw.Status {
			defer runtime.KeepAlive(c)
			return raw.KVAttend(c.raw(), kv, given, variant, queries, results, others)
		})
	})
}

// Attend is Compute.Attend on all CPUs.
func Attend(
	view KVView, sequences Sequences, q, out Tensor, params *AttentionParams,
	outputs *AttentionOutputs,
) error {
	return (*Compute)(nil).Attend(view, sequences, q, out, params, outputs)
}

// PartialAttention is the result of an attention call over some of the positions: outputs
// [rows][heads][dim] and their LSE [rows][heads].
type PartialAttention struct {
	Out Tensor
	LSE []float32
}

// MergeAttention combines results over the same queries and different positions, by their LSE, into
// merged [rows][heads][dim] and mergedLSE [rows][heads], which may be nil. Inputs are first copied
// outside of Go's heap, because C gets a list of pointers.
func MergeAttention(
	parts []PartialAttention, rows, heads, dim int, merged Tensor, mergedLSE []float32,
) error {
	return (*Compute)(nil).MergeAttention(parts, rows, heads, dim, merged, mergedLSE)
}

// MergeAttention is the function MergeAttention with the instruction set of c.
func (c *Compute) MergeAttention(
	parts []PartialAttention, rows, heads, dim int, merged Tensor, mergedLSE []float32,
) error {
	const op = "merge attention"
	n := numbers{op: op}
	rawHeads, rawDim := n.u32("heads", heads), n.u32("dim", dim)
	target, err := merged.check(op, "merged", rows, heads, dim)
	if n.err != nil || err != nil {
		return firstError(n.err, err)
	}
	n.length("mergedLSE", len(mergedLSE), rows, heads)
	size := spaceFor[raw.Tensor](len(parts)) + spaceFor[*float32](len(parts)) + 1
	for _, part := range parts {
		if _, err := part.Out.check(op, "Out", rows, heads, dim); err != nil {
			return err
		}
		if len(part.LSE) != rows*heads && n.err == nil {
			n.err = misuse(
				op, ErrInvalidArgument, "LSE has %d entries: it needs %d rows of %d",
				len(part.LSE), rows, heads,
			)
		}
		size += spaceFor[uint32](part.Out.elements) + spaceFor[float32](len(part.LSE))
	}
	if n.err != nil {
		return n.err
	}
	a, err := newArena(size)
	if err != nil {
		return err
	}
	defer a.free()
	outs, lse := place[raw.Tensor](a, len(parts)), place[*float32](a, len(parts))
	for i, part := range parts {
		outs[i] = raw.Tensor{
			Data:       part.Out.copyTo(a),
			DType:      int32(part.Out.dtype),
			RowStride:  int64(part.Out.rowStride),
			HeadStride: int64(part.Out.headStride),
		}
		lse[i] = first(placed(a, part.LSE))
	}
	return call(op, parts, func() raw.Status {
		defer runtime.KeepAlive(c)
		return raw.AttentionMerge(
			c.raw(), uint64(len(parts)), first(outs), unsafe.Pointer(first(lse)), uint64(rows), rawHeads,
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
