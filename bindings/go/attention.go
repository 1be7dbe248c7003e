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
			return raw.KVAttend(c.raw(), kv, given, variant, q.place(), out.place(), others)
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
	rawRows, rawHeads, rawDim := n.u64("rows", rows), n.u32("heads", heads), n.u32("dim", dim)
	n.length("mergedLSE", len(mergedLSE), rows, heads)
	size := spaceFor[raw.Tensor](len(parts)) + spaceFor[*float32](len(parts)) + 1
	for _, part := range parts {
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
		if out := part.Out.place(); out != nil {
			outs[i] = *out
			outs[i].Data = part.Out.copyTo(a)
		}
		lse[i] = first(placed(a, part.LSE))
	}
	return call(op, parts, func() raw.Status {
		defer runtime.KeepAlive(c)
		return raw.AttentionMerge(
			c.raw(), uint64(len(parts)), first(outs), unsafe.Pointer(first(lse)), rawRows, rawHeads,
			rawDim, merged.place(), first(mergedLSE),
		)
	})
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
