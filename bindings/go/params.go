package pagedkv

import (
	"math/bits"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

const (
	// NoSinkTokens as AttentionParams.SinkTokens means none, even if the layer has some.
	NoSinkTokens = -1
	// NoHeadSinkTokens means the same in AttentionParams.KVHeadSinkTokens.
	NoHeadSinkTokens uint32 = raw.NoSinkTokens
	// NoFirstBlocks as ChosenBlocks.FirstBlocks: the first block is read only if it is chosen.
	NoFirstBlocks = -1
	// NoLastBlocks as ChosenBlocks.LastBlocks: blocks before those of the step are read only if
	// they are chosen.
	NoLastBlocks = -1
)

// Mask says which positions each query sees, in addition to the causal rule and the window. Exactly
// one of its first five fields is set.
type Mask struct {
	// Which new tokens of its own session a new token sees, RowStride words per row: bit j % 64 of
	// word j / 64 is the session's new token j.
	Bits []uint64
	// A tree of new tokens: the parent of each row, its index among the new tokens of its session,
	// or -1. A token sees itself and its ancestors; windows, sinks and slopes count from its depth.
	Parents []int32
	// A byte for query i of sequence s and column c, at [s * BatchStride + i * RowStride + c]; 0
	// hides. Column c stands for position FirstPositions[s] + c; a negative one is padding on the
	// left.
	Bytes []byte
	// Numbers in the places of Bytes, IEEE binary16 or float32, that are added to scores. -infinity
	// hides. HeadFactors, one for each query head, multiply them; nil: 1.
	Float16     []uint16
	Float32     []float32
	HeadFactors []float32

	// With Bits, the position of each row's token in its text; needed with a window or slopes.
	Positions []int64

	RowStride   int // Of Bits, and of Bytes or numbers; 0: all queries of a sequence share a row.
	BatchStride int // Of Bytes or numbers; 0: all sequences have the same.
	Columns     int // Of Bytes or numbers: they reach the last position of every sequence.
	// With Bytes or numbers, the position of column 0 in each sequence; nil: 0.
	FirstPositions []int64
}

// place returns the mask of C after checking its slices.
func (m *Mask) place(n *numbers, batch batchRows, queryHeads int) *raw.Mask {
	if m == nil {
		return nil
	}
	out := sized(&raw.Mask{
		RowStride: int64(m.RowStride), BatchStride: int64(m.BatchStride),
		Columns: uint64(n.u32("Columns", m.Columns)), FirstPositions: first(m.FirstPositions),
		Positions: first(m.Positions), HeadFactors: first(m.HeadFactors),
	})
	n.length("HeadFactors", len(m.HeadFactors), 1, queryHeads)
	if m.Positions != nil {
		n.exactly("Positions", len(m.Positions), batch.total(), 1)
	}
	given := 0
	if m.Bits != nil {
		given++
		out.Kind, out.Data = int32(MaskTreeBits), unsafe.Pointer(firstOrEmpty(m.Bits))
		n.exactly("Bits", len(m.Bits), batch.total(), m.RowStride)
	}
	if m.Parents != nil {
		given++
		out.Kind, out.Data = int32(MaskTreeParents), unsafe.Pointer(firstOrEmpty(m.Parents))
		n.exactly("Parents", len(m.Parents), batch.total(), 1)
	}
	if m.Bytes != nil {
		given++
		out.Kind, out.Data = int32(MaskBytes), unsafe.Pointer(firstOrEmpty(m.Bytes))
		m.checkColumns(n, batch, len(m.Bytes))
	}
	if m.Float16 != nil {
		given++
		out.Kind, out.Data = int32(MaskF16), unsafe.Pointer(firstOrEmpty(m.Float16))
		m.checkColumns(n, batch, len(m.Float16))
	}
	if m.Float32 != nil {
		given++
		out.Kind, out.Data = int32(MaskF32), unsafe.Pointer(firstOrEmpty(m.Float32))
		m.checkColumns(n, batch, len(m.Float32))
	}
	if given != 1 && n.err == nil {
		n.err = misuse(
			n.op, ErrInvalidArgument,
			"a Mask has one of Bits, Parents, Bytes, Float16 and Float32: %d of them are given", given,
		)
	}
	return out
}

// checkColumns checks Bytes or numbers; `given` is the length of their slice.
func (m *Mask) checkColumns(n *numbers, batch batchRows, given int) {
	count, reach := len(batch.lengths), batch.reach()
	needed, fits := extent(
		[2]uint64{uint64(count), uint64(m.BatchStride)},
		[2]uint64{uint64(reach), uint64(m.RowStride)}, [2]uint64{uint64(m.Columns), 1},
	)
	switch {
	case n.err != nil:
	case m.FirstPositions != nil && len(m.FirstPositions) != count:
		n.err = misuse(
			n.op, ErrInvalidArgument, "%d sequences have %d FirstPositions", count,
			len(m.FirstPositions),
		)
	case m.RowStride < 0 || m.BatchStride < 0:
		n.err = misuse(
			n.op, ErrInvalidArgument, "a Mask has strides of %d and %d", m.BatchStride, m.RowStride,
		)
	case !fits || needed > uint64(given):
		n.err = misuse(
			n.op, ErrInvalidArgument,
			"a Mask of %d sequences of up to %d rows of %d columns with strides of %d and %d "+
				"needs %d elements, the slice has %d",
			count, reach, m.Columns, m.BatchStride, m.RowStride, needed, given,
		)
	}
}

// choices returns how often blocks are chosen for a KV head.
func (c *ChosenBlocks) choices(batch batchRows) int {
	count, tokens := uint64(0), uint64(1)
	if c.TokensPerChoice > 0 {
		tokens = uint64(c.TokensPerChoice)
	}
	for _, queries := range batch.lengths {
		count += (uint64(queries) + tokens - 1) / tokens
	}
	return int(count)
}

func (c *ChosenBlocks) place(n *numbers, batch batchRows, kvHeads int) *raw.ChosenBlocks {
	if c == nil {
		return nil
	}
	out := sized(&raw.ChosenBlocks{
		TopBlocks:       n.u32("TopBlocks", c.TopBlocks),
		FirstBlocks:     n.orNone("FirstBlocks", c.FirstBlocks, NoFirstBlocks),
		LastBlocks:      n.orNone("LastBlocks", c.LastBlocks, NoLastBlocks),
		TokensPerChoice: n.u32("TokensPerChoice", c.TokensPerChoice),
		ListBlocks:      n.u32("ListBlocks", c.ListBlocks),
	})
	out.Lists = n.blocks("Lists", c.Lists, c.choices(batch), kvHeads, c.ListBlocks)
	return out
}

// place returns the params of C, which point into the caller's slices.
func (p *AttentionParams) place(
	op string, batch batchRows, queryHeads, kvHeads int,
) (*raw.AttentionParams, error) {
	if p == nil {
		return nil, nil
	}
	n := numbers{op: op}
	out := sized(&raw.AttentionParams{
		Scale: p.Scale, Bidirectional: flag(p.Bidirectional), Window: n.u32("Window", p.Window),
		SinkTokens: raw.NoSinkTokens, Softcap: p.Softcap, KVHeadWindows: first(p.KVHeadWindows),
		KVHeadSinkTokens: first(p.KVHeadSinkTokens), ALiBiSlopes: first(p.ALiBiSlopes),
		SinkLogits: first(p.SinkLogits),
	})
	if p.SinkTokens != NoSinkTokens {
		out.SinkTokens = n.u32("SinkTokens", p.SinkTokens)
	}
	n.length("KVHeadWindows", len(p.KVHeadWindows), 1, kvHeads)
	n.length("KVHeadSinkTokens", len(p.KVHeadSinkTokens), 1, kvHeads)
	n.length("ALiBiSlopes", len(p.ALiBiSlopes), 1, queryHeads)
	n.length("SinkLogits", len(p.SinkLogits), 1, queryHeads)
	out.Mask = p.Mask.place(&n, batch, queryHeads)
	out.ChosenBlocks = p.ChosenBlocks.place(&n, batch, kvHeads)
	return out, n.err
}

// AttentionOutputs receive results of attention besides its outputs. nil: not wanted.
type AttentionOutputs struct {
	LSE []float32 // The log of the sum of exp(score) of every row and query head.

	// Experimental:

	// The blocks that TopBlocks chose, in the form of Lists, TopBlocks entries per choice and KV
	// head.
	Chosen []uint32
	// The attention mass of each block of the block table, MassBlocks entries per session and query
	// head: the weights that the new tokens of the session give to its tokens. Not with
	// ChosenBlocks.
	Masses      []float32
	MassBlocks  int // The number of blocks of the longest session, or more.
	MassQueries int // Only this many last new tokens of each session count in Masses; 0: all.
}

// place returns the outputs of C for a call with these params. They point into the caller's slices.
func (o *AttentionOutputs) place(
	op string, params *AttentionParams, batch batchRows, queryHeads, kvHeads int,
) (*raw.AttentionOutputs, error) {
	if o == nil {
		return nil, nil
	}
	n := numbers{op: op}
	blocks := sized(&raw.BlockOutputs{
		MassBlocks:  uint64(n.u32("MassBlocks", o.MassBlocks)),
		MassQueries: n.u32("MassQueries", o.MassQueries),
	})
	out := sized(&raw.AttentionOutputs{LSE: first(o.LSE), BlockOutputs: blocks})
	n.length("LSE", len(o.LSE), batch.total(), queryHeads)
	choices, top := 0, 0
	if params != nil && params.ChosenBlocks != nil {
		choices, top = params.ChosenBlocks.choices(batch), params.ChosenBlocks.TopBlocks
	}
	blocks.Chosen = n.blocks("Chosen", o.Chosen, choices, kvHeads, top)
	if o.Masses != nil {
		n.exactly("Masses", len(o.Masses), len(batch.lengths)*queryHeads, o.MassBlocks)
		blocks.Masses = firstOrEmpty(o.Masses)
	}
	return out, n.err
}

// length checks the length of an optional slice.
func (n *numbers) length(name string, given, rows, perRow int) {
	if given != 0 {
		n.exactly(name, given, rows, perRow)
	}
}

func (n *numbers) exactly(name string, given, rows, perRow int) {
	over, needed := bits.Mul64(uint64(rows), uint64(perRow))
	if n.err == nil && (perRow < 0 || over != 0 || needed != uint64(given)) {
		n.err = misuse(
			n.op, ErrInvalidArgument, "%s has %d entries: %d rows of %d are needed", name, given,
			rows, perRow,
		)
	}
}

// orNone returns 1 if the given number is 0, and 0 if it is none.
func (n *numbers) orNone(name string, given, none int) uint32 {
	switch given {
	case 0:
		return 1
	case none:
		return 0
	}
	return n.u32(name, given)
}

// blocks checks a slice of perHead indices of blocks per choice and KV head, which may be nil.
func (n *numbers) blocks(name string, given []uint32, choices, kvHeads, perHead int) *uint32 {
	if given == nil || n.err != nil {
		return nil
	}
	overHeads, perChoice := bits.Mul64(uint64(kvHeads), uint64(perHead))
	overChoices, needed := bits.Mul64(uint64(choices), perChoice)
	if kvHeads < 0 || overHeads|overChoices != 0 || needed != uint64(len(given)) {
		n.err = misuse(
			n.op, ErrInvalidArgument,
			"%s has %d entries: %d choices of %d KV heads of %d blocks are needed", name, len(given),
			choices, kvHeads, perHead,
		)
	}
	return firstOrEmpty(given)
}

// firstOrEmpty returns the address of a slice's elements; nil only for nil, because C distinguishes
// an empty list from none.
func firstOrEmpty[T any](slice []T) *T {
	if slice != nil && len(slice) == 0 {
		return (*T)(unsafe.Pointer(&empty))
	}
	return first(slice)
}
