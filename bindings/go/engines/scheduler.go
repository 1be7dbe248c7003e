package main

import (
	"errors"
	"fmt"
	"strings"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
	"github.com/pagedkv/pagedkv/bindings/go/engines/llama"
)

type state int

const (
	waiting state = iota
	running
	suspended
	done
)

// sequence is one text: its tokens, and how many of them are in the cache. If it ends early, err
// says why.
type sequence struct {
	state   state
	session *pagedkv.Session
	tokens  []int32
	prompt  int
	held    int
	limit   int
	sampler sampler
	err     error
}

// scheduler batches sequences continuously: each pass decodes a token of every running session and
// computes a chunk of each unfinished prompt.
type scheduler struct {
	model     *llama.Model
	cache     *pagedkv.Cache
	sequences []*sequence
	chunk     int
	end       int32  // the token that ends a text
	told      func() // called after each pass
	// A sequence was suspended and none has ended since, so a new one would be suspended next.
	full        bool
	passes      int
	matched     int
	suspensions int
}

// newScheduler makes a cache for the texts. It refuses texts that could exceed the model's context.
func newScheduler(
	model *llama.Model, prompts [][]int32, end int32, o *options,
) (*scheduler, error) {
	s := &scheduler{model: model, chunk: o.chunk, end: end, told: func() {}}
	ample := uint64(0)
	for i, prompt := range prompts {
		if o.limit > model.Context-len(prompt) {
			return nil, fmt.Errorf(
				"%d tokens of the question and %d of the answer are over the model's %d",
				len(prompt), o.limit, model.Context,
			)
		}
		limit := len(prompt) + o.limit
		s.sequences = append(s.sequences, &sequence{
			tokens: prompt, prompt: len(prompt), limit: limit,
			sampler: newSampler(o.temperature, o.topP, o.seed, uint64(i)),
		})
		ample += uint64(limit+15) / 16
	}
	if o.blocks != 0 {
		ample = o.blocks
	}
	var err error
	s.cache, err = pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{{
			Layers: model.Layers, QueryHeads: model.QueryHeads, KVHeads: model.KVHeads,
			KeyDim: model.HeadDim,
		}},
		Blocks: ample,
		Prefix: &pagedkv.PrefixConfig{},
	})
	return s, err
}

// answer returns the tokens after the prompt.
func (q *sequence) answer() []int32 { return q.tokens[q.prompt:] }

// run computes all texts. A text that cannot continue ends with an error; the others continue.
func (s *scheduler) run() error {
	for {
		if err := s.admit(); err != nil {
			return err
		}
		owners, steps := s.plan()
		if len(steps) == 0 {
			return nil
		}
		batch, err := s.cache.Begin(steps...)
		if errors.Is(err, pagedkv.ErrOutOfBlocks) || errors.Is(err, pagedkv.ErrBatchTooLarge) {
			err = s.suspend(steps)
			if err == nil {
				continue
			}
		}
		if errors.Is(err, pagedkv.ErrExhausted) || errors.Is(err, pagedkv.ErrTooLarge) {
			if err := s.fail(longest(owners), err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.forward(batch, owners, steps); err != nil {
			_ = batch.Close() // aborts the step; the earlier error says why
			return err
		}
		s.passes++
		s.told()
	}
}

// longest returns the text that needs the most blocks.
func longest(owners []*sequence) *sequence {
	found := owners[0]
	for _, q := range owners {
		if len(q.tokens) > len(found.tokens) {
			found = q
		}
	}
	return found
}

func (s *scheduler) fail(q *sequence, err error) error {
	q.err, q.state, s.full = err, done, false
	return s.closeDone()
}

// failures says which texts ended early, and why.
func (s *scheduler) failures() error {
	var reasons []string
	for i, q := range s.sequences {
		if q.err != nil {
			reasons = append(reasons, fmt.Sprintf("answer %d: %v", i+1, q.err))
		}
	}
	if reasons == nil {
		return nil
	}
	return errors.New(strings.Join(reasons, "\n"))
}

// admit resumes suspended sequences, in order. It opens a session only if no other one still has
// prompt tokens to compute, so that later ones find the shared prefix in the index.
func (s *scheduler) admit() error {
	if s.full && s.running() > 0 {
		return nil
	}
	s.full = false
	for _, q := range s.sequences {
		switch q.state {
		case suspended:
			length, _, err := q.session.Resume()
			if errors.Is(err, pagedkv.ErrOutOfBlocks) {
				return nil
			}
			if err != nil {
				return err
			}
			q.held, q.state = length, running
		case running:
			if len(q.tokens)-q.held > 1 {
				return nil
			}
		case waiting:
			session, err := s.cache.OpenSession(nil)
			if err != nil {
				return err
			}
			if q.held, err = session.MatchPrefix(q.tokens[:len(q.tokens)-1]); err != nil {
				return err
			}
			q.session, q.state = session, running
			s.matched += q.held
			return nil
		}
	}
	return nil
}

func (s *scheduler) running() int {
	count := 0
	for _, q := range s.sequences {
		if q.state == running {
			count++
		}
	}
	return count
}

func (s *scheduler) plan() (owners []*sequence, steps []pagedkv.Step) {
	chunk := s.chunk
	for _, q := range s.sequences {
		if q.state != running {
			continue
		}
		count := len(q.tokens) - q.held
		if count > 1 {
			if count > chunk {
				count = chunk
			}
			chunk -= count
		}
		if count > 0 {
			owners = append(owners, q)
			steps = append(steps, pagedkv.Step{Session: q.session, NewTokens: count})
		}
	}
	return owners, steps
}

// suspend stops the sessions that the library names, so that the others can continue.
func (s *scheduler) suspend(steps []pagedkv.Step) error {
	victims, err := s.cache.ChooseVictims(steps...)
	if err != nil {
		return fmt.Errorf("an answer does not fit even alone: %w", err)
	}
	for _, victim := range victims {
		for _, q := range s.sequences {
			if q.state == running && q.session.ID() == victim {
				if err := q.session.Suspend(); err != nil {
					return err
				}
				q.state, s.full = suspended, true
				s.suspensions++
			}
		}
	}
	return nil
}

// forward computes the rows of a batch, chooses the next token of every session that is up to date,
// and commits. Until then nothing has changed, so steps that can fail come before the commit.
func (s *scheduler) forward(batch *pagedkv.Batch, owners []*sequence, steps []pagedkv.Step) error {
	var tokens []int32
	var positions []int
	for i, q := range owners {
		tokens = append(tokens, q.tokens[q.held:q.held+steps[i].NewTokens]...)
		for j := 0; j < steps[i].NewTokens; j++ {
			positions = append(positions, q.held+j)
		}
	}
	x, err := s.model.Forward(tokens, positions, func(layer int, q, k, v, out []float32) error {
		if err := batch.Write(layer, pagedkv.Float32(k), pagedkv.Float32(v)); err != nil {
			return err
		}
		return batch.Attend(layer, pagedkv.Float32(q), pagedkv.Float32(out), nil)
	})
	if err != nil {
		return err
	}
	taken := s.choose(x, owners, steps)
	if err := batch.Commit(tokens); err != nil {
		return err
	}
	for i, q := range owners {
		*q = taken[i]
		s.full = s.full && q.state != done
	}
	return s.closeDone()
}

// choose returns the sequences with the state after a step.
func (s *scheduler) choose(x []float32, owners []*sequence, steps []pagedkv.Step) []sequence {
	taken, row := make([]sequence, len(owners)), -1
	for i, q := range owners {
		row += steps[i].NewTokens
		next := *q
		next.held += steps[i].NewTokens
		if next.held == len(next.tokens) {
			token, sampler, err := next.sampler.next(s.model.Logits(x, row))
			if err != nil {
				next.err, next.state = err, done
			} else {
				next.sampler = sampler
				next.take(token, s.end)
			}
		}
		taken[i] = next
	}
	return taken
}

// take appends a token; the one that ends the text is not a part of it.
func (q *sequence) take(token, end int32) {
	if token != end {
		q.tokens = append(q.tokens, token)
	}
	if token == end || len(q.tokens) == q.limit {
		q.state = done
	}
}

// closeDone closes the sessions of finished texts. Their blocks stay cached for texts with the same
// prefix.
func (s *scheduler) closeDone() error {
	for _, q := range s.sequences {
		if q.state == done && q.session != nil {
			if err := q.session.Close(); err != nil {
				return err
			}
			q.session = nil
		}
	}
	return nil
}
