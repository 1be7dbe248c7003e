package pagedkv

import (
	"math/bits"
	"unsafe"

	raw "pagedkv/internal/generated"
	"pagedkv/internal/library"
)

// Memory is where K or V of a KVView lie: a slice of the caller's, or a cache's own.
type Memory struct {
	data  unsafe.Pointer
	bytes uint64
	cache *Cache // whose memory it is
}

// MemoryOf is the memory of a slice of float32 (F32), uint16 (F16, BF16) or bytes (the other
// types).
func MemoryOf[T float32 | uint16 | byte](slice []T) Memory {
	var element T
	return Memory{
		data:  unsafe.Pointer(first(slice)),
		bytes: uint64(len(slice)) * uint64(unsafe.Sizeof(element)),
	}
}

// Pointer is the address of the memory; of a cache's it is read only, and good as long as the cache
// is open.
func (m Memory) Pointer() unsafe.Pointer { return m.data }

// KVView is K and V of one layer in paged memory. Strides count elements of the type; of Int8 and
// Int4, whose rows end in scales, bytes. Block b begins at b * block stride; in it, with
// LayoutPlain, element (token t, head h, dim d) is at t * row stride + h * head stride + d.
type KVView struct {
	DType      DType
	ValueDType DType // 0: DType.
	Layout     Layout
	BlockSize  int
	KVHeads    int
	KeyDim     int
	ValueDim   int
	Blocks     uint64 // How many blocks the memory holds.
	K          Memory
	V          Memory // The zero Memory: V is the first ValueDim dims of K.

	KBlockStride, KRowStride, KHeadStride int64
	VBlockStride, VRowStride, VHeadStride int64
}

// Sequences is a ragged set of sequences over one KVView.
type Sequences struct {
	QueryHeads       int
	QueryLengths     []uint32 // Query rows of each; they are the last positions of the sequence.
	KVLengths        []uint64 // Positions of each, the queries' own included.
	BlockTables      []uint32 // [sequences][BlockTableStride] block ids.
	BlockTableStride int
}

// KVView is the memory of one layer of a paged cache, for engines with kernels of their own. Read
// only.
func (c *Cache) KVView(layer int) (KVView, error) {
	const op = "kv view"
	number, err := unsigned32(op, "layer", layer)
	if err != nil {
		return KVView{}, err
	}
	r := raw.KVView{StructSize: uint32(unsafe.Sizeof(raw.KVView{}))}
	err = call(op, c, func() raw.Status {
		return raw.CacheKVView(c.handle, number, &r)
	})
	if err != nil {
		return KVView{}, err
	}
	view := KVView{
		DType: DType(
			r.DType,
		), ValueDType: DType(r.ValueDType), Layout: Layout(r.Layout), BlockSize: int(r.BlockSize),
		KVHeads: int(r.KVHeads), KeyDim: int(r.KeyDim), ValueDim: int(r.ValueDim), Blocks: r.Blocks,
		KBlockStride: r.KBlockStride, KRowStride: r.KRowStride, KHeadStride: r.KHeadStride,
		VBlockStride: r.VBlockStride, VRowStride: r.VRowStride, VHeadStride: r.VHeadStride,
	}
	view.K = Memory{
		data:  r.K,
		bytes: view.extent(view.DType, view.KeyDim, r.KBlockStride, r.KRowStride, r.KHeadStride),
		cache: c,
	}
	if r.V != nil {
		view.V = Memory{
			data: r.V,
			bytes: view.extent(
				view.ValueDType, view.ValueDim, r.VBlockStride, r.VRowStride, r.VHeadStride,
			),
			cache: c,
		}
	}
	return view, nil
}

const tileTokens = 16

// rowBytes is what dims of a type take in the plain layout, with their scales.
func rowBytes(dtype DType, dims uint64) uint64 {
	switch dtype {
	case F32:
		return 4 * dims
	case F16, BF16:
		return 2 * dims
	case Int8:
		return dims + 4
	case Int4:
		return dims/2 + 2*((dims+31)/32)
	}
	return dims
}

// tileBytes is what a tile of 16 tokens takes in the packed layout.
func tileBytes(dtype DType, dims uint64) uint64 {
	return (tileTokens*rowBytes(dtype, dims) + 63) / 64 * 64
}

// extent is how many bytes K or V reach over; the largest number where that does not fit.
func (v *KVView) extent(dtype DType, dim int, blockStride, rowStride, headStride int64) uint64 {
	rows, last, unit := uint64(v.BlockSize), rowBytes(dtype, uint64(dim)), rowBytes(dtype, 2)/2
	if dtype == Int8 || dtype == Int4 {
		unit = 1
	}
	if v.Layout == LayoutPacked {
		rows, last = rows/tileTokens, tileBytes(dtype, uint64(dim))
	}
	sum := last
	parts := [][2]uint64{
		{v.Blocks, uint64(blockStride)},
		{rows, uint64(rowStride)},
		{uint64(v.KVHeads), uint64(headStride)},
	}
	for _, part := range parts {
		if part[0] == 0 {
			return 0
		}
		over, reach := bits.Mul64(part[0]-1, part[1])
		overBytes, reachBytes := bits.Mul64(reach, unit)
		var carry uint64
		if sum, carry = bits.Add64(sum, reachBytes, 0); over|overBytes|carry != 0 {
			return ^uint64(0)
		}
	}
	return sum
}

// place gives C's view, or says why the memory does not hold it.
func (v *KVView) place(op string) (*raw.KVView, error) {
	n := numbers{op: op}
	out := &raw.KVView{
		StructSize: uint32(
			unsafe.Sizeof(raw.KVView{}),
		), DType: int32(v.DType), ValueDType: int32(v.ValueDType), Layout: int32(v.Layout),
		BlockSize: n.u32(
			"BlockSize", v.BlockSize,
		), KVHeads: n.u32("KVHeads", v.KVHeads), KeyDim: n.u32("KeyDim", v.KeyDim),
		ValueDim: n.u32("ValueDim", v.ValueDim), Blocks: v.Blocks, K: v.K.data, V: v.V.data,
		KBlockStride: v.KBlockStride, KRowStride: v.KRowStride, KHeadStride: v.KHeadStride,
		VBlockStride: v.VBlockStride, VRowStride: v.VRowStride, VHeadStride: v.VHeadStride,
	}
	if n.err != nil {
		return nil, n.err
	}
	valueDType := v.ValueDType
	if valueDType == 0 {
		valueDType = v.DType
	}
	needed := v.extent(v.DType, v.KeyDim, v.KBlockStride, v.KRowStride, v.KHeadStride)
	if needed > v.K.bytes {
		return nil, misuse(
			op, ErrInvalidArgument, "K reaches over %d bytes with these strides, its memory has %d",
			needed, v.K.bytes,
		)
	}
	needed = v.extent(valueDType, v.ValueDim, v.VBlockStride, v.VRowStride, v.VHeadStride)
	if v.V.data != nil && needed > v.V.bytes {
		return nil, misuse(
			op, ErrInvalidArgument, "V reaches over %d bytes with these strides, its memory has %d",
			needed, v.V.bytes,
		)
	}
	return out, nil
}

func (s *Sequences) place(op string) (*raw.AttentionSequences, int, error) {
	n := numbers{op: op}
	count := len(s.QueryLengths)
	out := &raw.AttentionSequences{
		StructSize: uint32(
			unsafe.Sizeof(raw.AttentionSequences{}),
		), QueryHeads: n.u32("QueryHeads", s.QueryHeads), Count: uint64(count),
		QueryLengths: first(
			s.QueryLengths,
		), KVLengths: first(s.KVLengths), BlockTables: first(s.BlockTables),
		BlockTableStride: uint64(n.u32("BlockTableStride", s.BlockTableStride)),
	}
	if n.err != nil {
		return nil, 0, n.err
	}
	if len(s.KVLengths) != count || len(s.BlockTables) < count*s.BlockTableStride {
		return nil, 0, misuse(
			op, ErrInvalidArgument,
			"%d sequences have %d KVLengths and %d entries of BlockTables, with a stride of %d",
			count, len(s.KVLengths), len(s.BlockTables), s.BlockTableStride,
		)
	}
	rows := 0
	for _, length := range s.QueryLengths {
		rows += int(length)
	}
	return out, rows, nil
}

// Attention computes attention over memory and block tables of the caller's: q is [rows][query
// heads][key dim], out [rows][query heads][value dim], the rows of all sequences. params may be
// nil. Runs on all processors; nothing is kept. The view of a closed cache is ErrStaleHandle.
func Attention(view KVView, sequences Sequences, q, out Tensor, params *AttentionParams) error {
	const op = "attention"
	if err := library.Load(""); err != nil {
		return err
	}
	for _, memory := range []Memory{view.K, view.V} {
		if memory.cache != nil {
			// Close does not come in between. It gives way and never waits, so two locks are no
			// danger.
			memory.cache.memory.RLock()
			defer memory.cache.memory.RUnlock()
			if _, err := memory.cache.Info(); err != nil {
				return err // its cache is closed, and the memory gone
			}
		}
	}
	kv, err := view.place(op)
	if err != nil {
		return err
	}
	given, rows, err := sequences.place(op)
	if err != nil {
		return err
	}
	queries, err := q.check(op, "q", rows, sequences.QueryHeads, view.KeyDim)
	if err != nil {
		return err
	}
	outputs, err := out.check(op, "out", rows, sequences.QueryHeads, view.ValueDim)
	if err != nil {
		return err
	}
	variant, err := params.place(op, rows, sequences.QueryHeads)
	if err != nil {
		return err
	}
	return call(op, &view, func() raw.Status {
		return raw.Attention(kv, given, variant, queries, outputs)
	})
}

// State is the result of an attention call over some of the positions: outputs [rows][heads][dim]
// and their LSE [rows][heads].
type State struct {
	Out Tensor
	LSE []float32
}

// MergeStates combines results over the same queries and different positions, by their LSE, into
// merged [rows][heads][dim] and mergedLSE [rows][heads], which may be nil. Inputs are copied to
// memory outside of Go's first, since C is given a list of pointers.
func MergeStates(states []State, rows, heads, dim int, merged Tensor, mergedLSE []float32) error {
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
		return raw.MergeStates(
			uint64(len(states)), first(outs), unsafe.Pointer(first(lse)), uint64(rows), rawHeads,
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
