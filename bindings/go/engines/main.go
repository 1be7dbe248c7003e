// Engines answers a question with a Llama model from a GGUF file: weights are multiplied by Gonum,
// keys, values and attention are libpagedkv's.
//
//	go run . SmolLM2-135M-Instruct.Q4_1.gguf 64 "What is the capital of France?"
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pagedkv/pagedkv/bindings/go"
	"github.com/pagedkv/pagedkv/bindings/go/internal/llama"
)

const usage = "usage: engines MODEL.gguf TOKENS QUESTION..."

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("a model, a number of tokens and a question are needed\n%s", usage)
	}
	limit, err := strconv.Atoi(args[1])
	if err != nil || limit < 1 {
		return fmt.Errorf("%q is no number of tokens\n%s", args[1], usage)
	}
	file, err := openFile(args[0])
	if err != nil {
		return err
	}
	defer file.data.Close()
	words, err := file.words()
	if err != nil {
		return err
	}
	model, err := file.model()
	if err != nil {
		return err
	}
	prompt, err := words.question(strings.Join(args[2:], " "))
	if err != nil {
		return err
	}
	begin := time.Now()
	var first time.Time
	var told string
	answer, err := generate(model, prompt, limit, words.end, func(answer []int32) {
		if first.IsZero() {
			first = time.Now()
		}
		text := words.text(answer)
		if utf8.ValidString(text) {
			fmt.Print(text[len(told):])
			told = text
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf(
		"\n\n%d tokens in, first word after %.2f s, %d tokens out, %.1f tokens per second\n",
		len(prompt), first.Sub(begin).Seconds(), len(answer),
		float64(len(answer)-1)/time.Since(first).Seconds(),
	)
	return nil
}

// generate goes on with the most probable tokens until one of them ends the text. told gets the
// answer so far after each.
func generate(
	model *llama.Model, prompt []int32, limit int, end int32, told func(answer []int32),
) ([]int32, error) {
	if limit > model.Context-len(prompt) {
		return nil, fmt.Errorf(
			"%d tokens of the question and %d of the answer are over the model's %d", len(prompt),
			limit, model.Context,
		)
	}
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{{
			Layers:     model.Layers,
			QueryHeads: model.QueryHeads,
			KVHeads:    model.KVHeads,
			KeyDim:     model.HeadDim,
		}},
		Blocks: uint64(len(prompt)+limit+15) / 16,
	})
	if err != nil {
		return nil, err
	}
	defer cache.Close()
	session, err := cache.OpenSession(nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	var answer []int32
	for tokens, position := prompt, 0; len(answer) < limit; position += len(tokens) {
		if position > 0 {
			tokens = answer[len(answer)-1:]
		}
		next, err := step(model, cache, session, tokens, position)
		if err != nil {
			return nil, err
		}
		if next == end {
			break
		}
		answer = append(answer, next)
		told(answer)
	}
	return answer, nil
}

// step computes tokens that begin at a position, and returns the most probable next one.
func step(
	model *llama.Model, cache *pagedkv.Cache, session *pagedkv.Session, tokens []int32, position int,
) (int32, error) {
	batch, err := cache.Begin(pagedkv.Step{Session: session, NewTokens: len(tokens)})
	if err != nil {
		return 0, err
	}
	positions := make([]int, len(tokens))
	for i := range positions {
		positions[i] = position + i
	}
	x, err := model.Forward(tokens, positions, func(layer int, q, k, v, out []float32) error {
		if err := batch.Write(layer, pagedkv.Float32(k), pagedkv.Float32(v)); err != nil {
			return err
		}
		return batch.Attend(layer, pagedkv.Float32(q), pagedkv.Float32(out), nil)
	})
	best := 0
	if err == nil {
		best, err = llama.Best(model.Logits(x, len(tokens)-1))
	}
	if err == nil {
		err = batch.Commit(tokens) // behind it nothing fails
	}
	if err != nil {
		_ = batch.Close() // takes the step back; the error before says why
		return 0, err
	}
	return int32(best), nil
}
