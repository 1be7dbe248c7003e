package pagedkv

import (
	"unsafe"

	raw "pagedkv/internal/generated"
)

const (
	// NoWindow is AttentionParams.Window where a query sees all before it, whatever the layer's
	// window.
	NoWindow = -1
	// NoSinks is AttentionParams.Sinks where none are seen, whatever the layer's sinks.
	NoSinks = -1
)

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
	// Gets the log of the sum of exp(score) of every row and query head; nil: not wanted.
	LSE []float32
}

// place gives what C takes. Its pointers go into the caller's slices.
func (p *AttentionParams) place(op string, rows, queryHeads int) (*raw.AttentionParams, error) {
	if p == nil {
		return nil, nil
	}
	out := &raw.AttentionParams{}
	raw.AttentionParamsInit(out, uint64(unsafe.Sizeof(*out)))
	n := numbers{op: op}
	out.Scale, out.Softcap = p.Scale, p.Softcap
	if p.Bidirectional {
		out.Causal = 0
	}
	if p.Window == NoWindow {
		out.Window = 0
	} else if p.Window != 0 {
		out.Window = n.u32("Window", p.Window)
	}
	if p.Sinks == NoSinks {
		out.Sinks = 0
	} else if p.Sinks != 0 {
		out.Sinks = n.u32("Sinks", p.Sinks)
	}
	n.length("ALiBiSlopes", len(p.ALiBiSlopes), 1, queryHeads)
	n.length("SinkLogits", len(p.SinkLogits), 1, queryHeads)
	n.length("Mask", len(p.Mask), rows, p.MaskWords)
	n.length("LSE", len(p.LSE), rows, queryHeads)
	out.ALiBiSlopes, out.SinkLogits = first(p.ALiBiSlopes), first(p.SinkLogits)
	out.Mask = first(p.Mask)
	out.MaskWords = uint64(n.u32("MaskWords", p.MaskWords))
	out.LSE = first(p.LSE)
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

func rowsOrOne(rows int) int {
	if rows == 0 {
		return 1
	}
	return rows
}
