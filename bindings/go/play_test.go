package pagedkv_test

import (
	"errors"
	"math"
	"math/rand"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// Random use of a cache against a naive model: lists of token ids, and attention by its definition.

const (
	playQueryHeads = 2
	playKVHeads    = 1
	playDim        = 16
	playBlocks     = 20
	playSessions   = 6
	playLongest    = 90
	// Scores are below 4 * sqrt(16) = 16 and off by at most (16 + 2) 2^-24 * 16 < 2e-5, with them
	// the logarithms of weights; outputs are means of values within [-1, 1], off by twice that and
	// by 2^-24 for each of up to 90 tokens. A wrong token moves an output by about 1e-2.
	playTolerance = 1e-4
)

type playSession struct {
	handle *pagedkv.Session
	text   []int32
	// tokens at the end of text that a suspension took, and that are to be computed again
	lost int
}

type play struct {
	t         *testing.T
	input     []byte
	cache     *pagedkv.Cache
	sessions  []*playSession
	snapshots []*pagedkv.Snapshot
	frozen    [][]int32
	fresh     int32
}

// next byte of the input, below limit; zeros after its end.
func (p *play) next(limit int) int {
	if len(p.input) == 0 {
		return 0
	}
	value := int(p.input[0])
	p.input = p.input[1:]
	return value % limit
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *play) pick() *playSession {
	if len(p.sessions) == 0 {
		return nil
	}
	return p.sessions[p.next(len(p.sessions))]
}

func (p *play) add(handle *pagedkv.Session, text []int32) {
	p.sessions = append(p.sessions, &playSession{handle: handle, text: append([]int32{}, text...)})
}

func (p *play) open() {
	if len(p.sessions) == playSessions {
		return
	}
	handle, err := p.cache.OpenSession(nil)
	p.must(err)
	p.add(handle, nil)
	if s := p.sessions[len(p.sessions)-1]; p.next(2) == 1 && len(p.frozen) > 0 {
		text := p.frozen[p.next(len(p.frozen))]
		matched, err := handle.MatchPrefix(text)
		p.must(err)
		if matched > len(text) {
			p.t.Fatalf("%d of %d tokens matched", matched, len(text))
		}
		s.text = append(s.text, text[:matched]...)
	}
}

// step gives up to three sessions new tokens.
func (p *play) step() {
	var steps []pagedkv.Step
	var chosen []*playSession
	var ids []int32
	for i := 0; i <= p.next(3) && i < len(p.sessions); i++ {
		s := p.sessions[i]
		n := p.next(40)
		if n > playLongest-len(s.text) {
			n = playLongest - len(s.text)
		}
		if s.lost > 0 {
			n = s.lost // once more what was there
		}
		tokens := make([]int32, n)
		for j := range tokens {
			p.fresh++
			tokens[j] = p.fresh % 1000
		}
		copy(tokens, s.text[len(s.text)-s.lost:])
		steps = append(steps, step(s.handle, n))
		chosen = append(chosen, s)
		ids = append(ids, tokens...)
	}
	batch, err := p.cache.Begin(steps...)
	var e *pagedkv.Error
	if errors.As(err, &e) && (e.Status == pagedkv.ErrSuspended ||
		e.Status == pagedkv.ErrOutOfBlocks && e.BlocksShort > 0) {
		return
	}
	p.must(err)
	p.compute(batch, steps, chosen, ids)
	if p.next(8) == 1 {
		p.must(batch.Abort())
		return
	}
	p.must(batch.Commit(ids))
	for i, s := range chosen {
		s.text = append(s.text[:len(s.text)-s.lost], ids[:steps[i].NewTokens]...)
		ids, s.lost = ids[steps[i].NewTokens:], 0
	}
}

func (p *play) compute(
	batch *pagedkv.Batch, steps []pagedkv.Step, chosen []*playSession, ids []int32,
) {
	var k, v, q []float32
	var want []float64
	for i, s := range chosen {
		held := len(s.text) - s.lost
		whole := histories(append(append([]int32{}, s.text[:held]...), ids[:steps[i].NewTokens]...))
		ids = ids[steps[i].NewTokens:]
		allK := rowsOf(whole, kindK, 0, playKVHeads, playDim)
		allV := rowsOf(whole, kindV, 0, playKVHeads, playDim)
		queries := rowsOf(whole[held:], kindQ, 0, playQueryHeads, playDim)
		k = append(k, allK[held*playKVHeads*playDim:]...)
		v = append(v, allV[held*playKVHeads*playDim:]...)
		q = append(q, queries...)
		want = append(
			want,
			naiveAttention(queries, allK, allV, playQueryHeads, playKVHeads, playDim)...)
	}
	out := make([]float32, len(want))
	p.must(batch.Write(0, f32(k), f32(v)))
	p.must(batch.Attend(0, f32(q), f32(out), nil))
	for i := range want {
		if !(math.Abs(float64(out[i])-want[i]) <= playTolerance) {
			p.t.Fatalf("output %d is %v, expected %v", i, out[i], want[i])
		}
	}
}

func (p *play) close() {
	if s := p.pick(); s != nil {
		p.must(s.handle.Close())
		if err := s.handle.Close(); !errors.Is(err, pagedkv.ErrStaleHandle) {
			p.t.Fatalf("the second Close: %v", err)
		}
		for i := range p.sessions {
			if p.sessions[i] == s {
				p.sessions = append(p.sessions[:i], p.sessions[i+1:]...)
				return
			}
		}
	}
}

func (p *play) fork() {
	if s := p.pick(); s != nil && s.lost == 0 && len(p.sessions) < playSessions {
		handle, err := s.handle.Fork()
		p.must(err)
		p.add(handle, s.text)
	}
}

func (p *play) trim() {
	if s := p.pick(); s != nil && s.lost == 0 {
		length := p.next(len(s.text) + 1)
		p.must(s.handle.Trim(length))
		s.text = s.text[:length]
		if err := s.handle.Trim(length + 1); !errors.Is(err, pagedkv.ErrOutOfRange) {
			p.t.Fatalf("a trim to more than there is: %v", err)
		}
	}
}

func (p *play) suspend() {
	s := p.pick()
	if s == nil || s.lost > 0 {
		return
	}
	p.must(s.handle.Suspend())
	length, total, err := s.handle.Resume()
	if errors.Is(err, pagedkv.ErrOutOfBlocks) {
		p.must(s.handle.Trim(0)) // forgets
		s.text = nil
		return
	}
	p.must(err)
	if total != len(s.text) || length > total {
		p.t.Fatalf("resumed at %d of %d, the text has %d", length, total, len(s.text))
	}
	s.lost = total - length
}

func (p *play) snapshot() {
	if s := p.pick(); s != nil && s.lost == 0 && len(p.snapshots) < 3 {
		frozen, err := s.handle.Snapshot()
		p.must(err)
		p.snapshots = append(p.snapshots, frozen)
		p.frozen = append(p.frozen, append([]int32{}, s.text...))
	} else if len(p.snapshots) > 0 && len(p.sessions) < playSessions {
		handle, err := p.snapshots[0].Open()
		p.must(err)
		p.add(handle, p.frozen[0])
		p.must(p.snapshots[0].Close())
		p.snapshots, p.frozen = p.snapshots[1:], p.frozen[1:]
	}
}

// check compares lengths and texts of all sessions with the model's.
func (p *play) check() {
	for _, s := range p.sessions {
		length, err := s.handle.Length()
		p.must(err)
		got := make([]int32, len(s.text))
		p.must(s.handle.Tokens(0, got))
		if length != len(s.text)-s.lost {
			p.t.Fatalf("a session of %d tokens, expected %d", length, len(s.text)-s.lost)
		}
		for i := range got {
			if got[i] != s.text[i] {
				p.t.Fatalf("token %d is %d, expected %d", i, got[i], s.text[i])
			}
		}
	}
}

func runPlay(t *testing.T, input []byte) {
	config := pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{Layers: 1, QueryHeads: playQueryHeads, KVHeads: playKVHeads, KeyDim: playDim},
		},
		Blocks:  playBlocks,
		Threads: 1,
	}
	if len(input) > 0 && input[0]%2 == 1 {
		config.Prefix = &pagedkv.PrefixConfig{}
	}
	cache, err := pagedkv.NewCache(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: t, input: input, cache: cache}
	actions := []func(){
		p.open,
		p.step,
		p.step,
		p.step,
		p.close,
		p.fork,
		p.trim,
		p.suspend,
		p.snapshot,
	}
	p.open()
	for steps := 0; len(p.input) > 0 && steps < 300; steps++ {
		actions[p.next(len(actions))]()
		p.check()
	}
	p.must(cache.Validate())
	p.must(cache.Close())
}

func TestRandomUse(t *testing.T) {
	seeds := int64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := int64(0); seed < seeds; seed++ {
		input := make([]byte, 400)
		rand.New(rand.NewSource(seed)).Read(input)
		runPlay(t, input)
		if t.Failed() {
			t.Fatalf("that was seed %d", seed)
		}
	}
}

func FuzzUse(f *testing.F) {
	f.Add([]byte{1, 1, 0, 30, 5, 0, 2, 1, 39, 7, 0, 4, 0, 0, 1, 0, 1, 1, 20})
	f.Add([]byte{0, 1, 0, 39, 8, 0, 8, 6, 0, 17, 3, 0, 20, 8, 0, 2, 2, 9, 9})
	f.Add([]byte{1, 1, 0, 33, 7, 0, 1, 0, 5, 4, 0, 0, 1, 0, 6, 0, 3})
	f.Fuzz(runPlay)
}
