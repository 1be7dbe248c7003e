package pagedkv

import (
	"math/bits"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

const (
	// NoWindow is AttentionParams.Window where a query sees all before it, whatever the layer's
	// window.
	NoWindow = -1
	// NoSinks is AttentionParams.Sinks where none are seen, whatever the layer's sinks.
	NoSinks = -1
	// NoFirstBlocks is AttentionParams.FirstBlocks where the first block is read only if it is
	// chosen.
	NoFirstBlocks = -1
	// NoLastBlocks is AttentionParams.LastBlocks where of the blocks before those of the step none
	// is read that is not chosen.
	NoLastBlocks = -1
)

// BoolMask is a byte for query i of sequence s and column c, at Data[s * BatchStride + i *
// RowStride + c]; 0 hides. Column c stands for position FirstPositions[s] + c; a negative one is
// padding on the left. Without Data there is no mask.
type BoolMask struct {
	Data        []byte
	Columns     int // They reach the last position of every sequence.
	RowStride   int // 0: all queries of a sequence have the same row.
	BatchStride int // 0: all sequences have the same rows.
	// The position of column 0 in each sequence; nil: 0.
	FirstPositions []int64
}

// place fills in the fields of C, or says why the slice does not hold what they say.
func (m *BoolMask) place(n *numbers, out *raw.AttentionParams, rows batchRows) {
	if n.err != nil {
		return
	}
	if len(m.Data) == 0 {
		if m.Columns != 0 || m.RowStride != 0 || m.BatchStride != 0 || m.FirstPositions != nil {
			n.err = misuse(n.op, ErrInvalidArgument, "BoolMask: there is no Data for its columns")
		}
		return
	}
	count, reach := len(rows.lengths), rows.reach()
	if m.FirstPositions != nil && len(m.FirstPositions) != count {
		n.err = misuse(
			n.op, ErrInvalidArgument, "%d sequences have %d FirstPositions", count,
			len(m.FirstPositions),
		)
		return
	}
	if m.Columns < 0 || m.RowStride < 0 || m.BatchStride < 0 {
		n.err = misuse(
			n.op, ErrInvalidArgument, "BoolMask: %d columns and strides of %d and %d", m.Columns,
			m.RowStride, m.BatchStride,
		)
		return
	}
	needed, fits := extent(
		uint64(count), uint64(reach), uint64(m.Columns), uint64(m.BatchStride), uint64(m.RowStride),
	)
	if !fits || needed > uint64(len(m.Data)) {
		n.err = misuse(
			n.op, ErrInvalidArgument,
			"BoolMask: %d sequences of up to %d rows of %d columns with strides of %d and %d need "+
				"%d bytes, the slice has %d",
			count, reach, m.Columns, m.RowStride, m.BatchStride, needed, len(m.Data),
		)
		return
	}
	out.BoolMask, out.BoolMaskColumns = first(m.Data), uint64(m.Columns)
	out.BoolMaskRowStride, out.BoolMaskBatchStride = int64(m.RowStride), int64(m.BatchStride)
	out.BoolMaskFirstPositions = first(m.FirstPositions)
}

// AttentionParams vary attention. The zero value, and nil, have the defaults.
type AttentionParams struct {
	Scale float32 // Factor of the scores, finite; 0: 1 / sqrt(key dim).
	// A query sees all of its sequence, not just its own position and those before it.
	Bidirectional bool
	// A query sees its own position and Window - 1 before it; 0: the layer's window; NoWindow: all.
	Window int
	// First positions seen whatever the window; 0: the layer's; NoSinks: none.
	Sinks       int
	Softcap     float32 // 0: none.
	ALiBiSlopes []float32
	SinkLogits  []float32 // One per query head, as learned attention sinks.
	// Which new tokens of its own session a new token sees, MaskWords words per row: bit j % 64 of
	// word j / 64 is the session's new token j.
	Mask      []uint64
	MaskWords int
	// A tree of new tokens: the parent of each row, its index among the new tokens of its session,
	// or -1. A token sees itself and its ancestors.
	Parents []int32
	// Which positions each query sees.
	BoolMask BoolMask
	// Gets the log of the sum of exp(score) of every row and query head; nil: not wanted.
	LSE []float32
	// How many blocks each row chooses for each KV head: those whose keys may score highest. It reads
	// these, FirstBlocks, LastBlocks and those with tokens of the step. 0: all. Needs a cache.
	TopBlocks int
	// With chosen blocks, so many first blocks are read, too; 0: one; NoFirstBlocks: none.
	FirstBlocks int
	// With chosen blocks, so many blocks before those of the step are read, too; 0: one;
	// NoLastBlocks: none.
	LastBlocks int
	// The blocks that each row reads for each KV head in place of TopBlocks, BlockListSize indices
	// in the block table, rising, NoBlock after the last; nil: no lists.
	BlockLists    []uint32
	BlockListSize int
	// Gets what TopBlocks chose, TopBlocks entries per row and KV head, as BlockLists has them; nil:
	// not wanted.
	ChosenBlocks []uint32
	// Gets the attention mass of each block of the block table: the weights that the new tokens of a
	// session give to its tokens, BlockMassSize entries per session and query head; nil: not wanted.
	BlockMass     []float32
	BlockMassSize int
	// Only so many last new tokens of each session count for BlockMass; 0: all.
	BlockMassQueries int
	// The window and sinks of each KV head, in place of Window and Sinks: 0 is none. nil: all heads
	// have the same.
	HeadWindows, HeadSinks []uint32
	// The new tokens of a session choose the same TopBlocks, and read them together.
	ChooseTogether bool
}

// place gives what C takes. Its pointers go into the caller's slices.
func (p *AttentionParams) place(
	op string, batch batchRows, queryHeads, kvHeads int,
) (*raw.AttentionParams, error) {
	if p == nil {
		return nil, nil
	}
	rows := batch.total()
	out := &raw.AttentionParams{}
	raw.AttentionParamsInit(out, uint64(unsafe.Sizeof(*out)))
	n := numbers{op: op}
	out.Scale, out.Softcap = p.Scale, p.Softcap
	if p.Bidirectional {
		out.Causal = 0
	}
	out.Window = n.orNone("Window", p.Window, NoWindow, out.Window)
	out.Sinks = n.orNone("Sinks", p.Sinks, NoSinks, out.Sinks)
	out.TopBlocks = n.u32("TopBlocks", p.TopBlocks)
	out.FirstBlocks = n.orNone("FirstBlocks", p.FirstBlocks, NoFirstBlocks, out.FirstBlocks)
	out.LastBlocks = n.orNone("LastBlocks", p.LastBlocks, NoLastBlocks, out.LastBlocks)
	n.length("ALiBiSlopes", len(p.ALiBiSlopes), 1, queryHeads)
	n.length("SinkLogits", len(p.SinkLogits), 1, queryHeads)
	n.length("Mask", len(p.Mask), rows, p.MaskWords)
	if n.err == nil && p.MaskWords != 0 && len(p.Mask) == 0 && rows != 0 {
		n.err = misuse(n.op, ErrInvalidArgument, "MaskWords is %d without a Mask", p.MaskWords)
	}
	n.length("Parents", len(p.Parents), rows, 1)
	n.length("LSE", len(p.LSE), rows, queryHeads)
	p.BoolMask.place(&n, out, batch)
	out.ALiBiSlopes, out.SinkLogits = first(p.ALiBiSlopes), first(p.SinkLogits)
	out.Mask = first(p.Mask)
	out.MaskWords = uint64(n.u32("MaskWords", p.MaskWords))
	out.Parents = first(p.Parents)
	out.LSE = first(p.LSE)
	out.BlockListSize = uint64(n.u32("BlockListSize", p.BlockListSize))
	out.BlockLists = n.blocks("BlockLists", p.BlockLists, rows, kvHeads, out.BlockListSize)
	out.ChosenBlocks = n.blocks(
		"ChosenBlocks", p.ChosenBlocks, rows, kvHeads, uint64(out.TopBlocks),
	)
	size := n.u32("BlockMassSize", p.BlockMassSize)
	n.length("BlockMass", len(p.BlockMass), len(batch.lengths)*queryHeads, int(size))
	out.BlockMass, out.BlockMassSize = first(p.BlockMass), uint64(size)
	out.BlockMassQueries = n.u32("BlockMassQueries", p.BlockMassQueries)
	n.length("HeadWindows", len(p.HeadWindows), 1, kvHeads)
	n.length("HeadSinks", len(p.HeadSinks), 1, kvHeads)
	out.HeadWindows, out.HeadSinks = first(p.HeadWindows), first(p.HeadSinks)
	if p.ChooseTogether {
		out.ChooseTogether = 1
	}
	return out, n.err
}

// length checks a slice that may be left out.
func (n *numbers) length(name string, given, rows, perRow int) {
	if n.err == nil && given != 0 &&
		(perRow < 0 || given/rowsOrOne(rows) != perRow || given%rowsOrOne(rows) != 0) {
		n.err = misuse(
			n.op, ErrInvalidArgument, "%s has %d entries: %d rows of %d are needed", name, given,
			rows, perRow,
		)
	}
}

// orNone gives a number: initial if the given one is 0, and 0 if it is none.
func (n *numbers) orNone(name string, given, none int, initial uint32) uint32 {
	switch given {
	case 0:
		return initial
	case none:
		return 0
	}
	return n.u32(name, given)
}

// blocks checks a slice of perHead indices of blocks per row and KV head, which may be nil. Where
// it has to be empty it is still one for C.
func (n *numbers) blocks(name string, given []uint32, rows, kvHeads int, perHead uint64) *uint32 {
	if given == nil || n.err != nil {
		return nil
	}
	overHeads, perRow := bits.Mul64(uint64(kvHeads), perHead)
	overRows, needed := bits.Mul64(uint64(rows), perRow)
	if kvHeads < 0 || overHeads|overRows != 0 || needed != uint64(len(given)) {
		n.err = misuse(
			n.op, ErrInvalidArgument,
			"%s has %d entries: %d rows of %d KV heads of %d blocks are needed", name, len(given),
			rows, kvHeads, perHead,
		)
	}
	if len(given) == 0 {
		return (*uint32)(unsafe.Pointer(&empty))
	}
	return &given[0]
}

func rowsOrOne(rows int) int {
	if rows == 0 {
		return 1
	}
	return rows
}
