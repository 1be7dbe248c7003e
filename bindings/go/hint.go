package pagedkv

import (
	"math"
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Never is the duration of a HintExpectReturn whose text will not continue.
const Never = time.Duration(math.MaxInt64)

// ToEnd is the End of a Hint that means the end of the text; of a session, also of what it gets
// later.
const ToEnd = math.MaxInt

// Hint says what to do with the cached blocks of tokens [First, End) of a text or a session.
type Hint struct {
	Action    HintAction
	First     int           // of HintSetRetention, HintDemote and HintDrop
	End       int           // 1 or more, or ToEnd; of HintExpectReturn 0
	Retention Retention     // of HintSetRetention and HintPrefetch
	Duration  time.Duration // 0: without an end; others last at least a millisecond
}

func (h *Hint) place(op string) (*raw.Hint, error) {
	n := numbers{op: op}
	out := sized(&raw.Hint{})
	out.Action, out.Retention = int32(h.Action), int32(h.Retention)
	out.First, out.End = n.u64("first", h.First), n.u64("end", h.End)
	out.DurationMs = n.milliseconds("duration", h.Duration)
	if h.Duration == Never {
		out.DurationMs = raw.ReturnNever
	}
	if h.End == ToEnd {
		out.End = raw.ToEnd
	}
	return out, n.err
}

// Hint gives a hint about a text and returns what came of it.
func (p Prefix) Hint(salt string, tokens []int32, hint Hint) (HintResult, error) {
	given, err := hint.place("hint")
	if err != nil {
		return HintResult{}, err
	}
	out := sized(&raw.HintResult{})
	err = p.texted("hint", salt, tokens, func(cache raw.Cache, text *raw.Prompt) raw.Status {
		return raw.HintPrompt(cache, text, given, out)
	})
	return reported[HintResult](out), err
}

// Hint gives a hint about the session and returns what came of it.
func (s *Session) Hint(hint Hint) (HintResult, error) {
	given, err := hint.place("hint")
	if err != nil {
		return HintResult{}, err
	}
	out := sized(&raw.HintResult{})
	err = call("hint", s, func() raw.Status { return raw.HintSession(s.handle, given, out) })
	return reported[HintResult](out), err
}
