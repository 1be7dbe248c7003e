// Generate writes text with a Llama model for many sessions at once, with all keys, values and
// attention in libpagedkv.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
	"github.com/pagedkv/pagedkv/bindings/go/internal/llama"
)

// prompts are the values of a flag that may be repeated.
type prompts []string

func (p *prompts) String() string        { return strings.Join(*p, "\n") }
func (p *prompts) Set(text string) error { *p = append(*p, text); return nil }

const opening = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" +
	"All:\nSpeak, speak.\n\n" +
	"First Citizen:\nYou are all resolved rather to die than to famish?\n\n"

var scenes = []string{
	"ROMEO:\nBut soft, what light",
	"JULIET:\nMy only love",
	"CORIOLANUS:\nMy wars",
	"KING RICHARD III:\nA horse, a horse",
}

type options struct {
	model, tokenizer, library, tokensOut string
	prompts                              prompts
	sessions, maxTokens, chunk           int
	blocks, seed                         uint64
	temperature, topP                    float64
}

func main() {
	o := options{}
	flag.StringVar(
		&o.model, "model", "bench/data/tiny-shakespeare.bin",
		"checkpoint in the format of llama2.c",
	)
	flag.StringVar(
		&o.tokenizer, "tokenizer", "",
		"its tokenizer (default FILE.tokenizer.bin beside FILE.bin, or tokenizer.bin there)",
	)
	flag.StringVar(
		&o.library, "library", "",
		"libpagedkv.so.0 (default: PAGEDKV_LIBRARY, or where the dynamic linker finds it)",
	)
	flag.Var(&o.prompts, "prompt", "text to go on with; may be given more than once")
	flag.IntVar(&o.sessions, "sessions", 0, "texts at once (default: one per prompt)")
	flag.IntVar(&o.maxTokens, "max-tokens", 160, "tokens per text")
	flag.IntVar(&o.chunk, "chunk", 64, "prompt tokens per step")
	flag.Uint64Var(
		&o.blocks, "blocks", 0, "blocks of 16 tokens in the cache (default: enough for all)",
	)
	flag.Float64Var(&o.temperature, "temperature", 0, "0: always the best token")
	flag.Float64Var(&o.topP, "top-p", 0.9, "sample from the best tokens of so much probability")
	flag.Uint64Var(&o.seed, "seed", 1, "of the draws")
	flag.StringVar(
		&o.tokensOut, "tokens-out", "",
		"file for the generated tokens, a line per session, instead of texts",
	)
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func (o *options) tokenizerPath() string {
	if o.tokenizer != "" {
		return o.tokenizer
	}
	beside := strings.TrimSuffix(o.model, ".bin") + ".tokenizer.bin"
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return filepath.Join(filepath.Dir(o.model), "tokenizer.bin")
}

func run(o *options) error {
	if o.chunk < 1 || o.maxTokens < 1 || o.sessions < 0 {
		return fmt.Errorf(
			"-chunk %d, -max-tokens %d and -sessions %d: at least 1, 1 and 0 are needed", o.chunk,
			o.maxTokens, o.sessions,
		)
	}
	if !(o.temperature >= 0 && o.temperature <= 100) || !(o.topP >= 0 && o.topP <= 1) {
		return fmt.Errorf(
			"-temperature %v and -top-p %v: 0 to 100 and 0 to 1 are possible", o.temperature,
			o.topP,
		)
	}
	if o.library != "" {
		if err := pagedkv.Load(o.library); err != nil {
			return err
		}
	}
	model, err := llama.Open(o.model)
	if err != nil {
		return err
	}
	tokenizer, err := llama.OpenTokenizer(o.tokenizerPath(), model.Vocabulary)
	if err != nil {
		return err
	}
	s, err := newScheduler(o, model, tokenizer)
	if err != nil {
		return err
	}
	defer s.cache.Close()
	if err := s.run(); err != nil {
		return err
	}
	if err := s.cache.Validate(); err != nil {
		return err
	}
	if o.tokensOut != "" {
		if err := writeTokens(o.tokensOut, s.sequences); err != nil {
			return err
		}
		return s.failures()
	}
	for i, q := range s.sequences {
		fmt.Printf("---- session %d ----\n%s\n", i+1, tokenizer.Decode(q.tokens))
	}
	fmt.Printf(
		"---- %d sessions, %d steps, %d prompt tokens found cached, %d suspensions\n",
		len(s.sequences), s.passes, s.matched, s.suspensions,
	)
	return s.failures()
}

func newScheduler(o *options, model *llama.Model, tokenizer *llama.Tokenizer) (*scheduler, error) {
	texts := o.prompts
	if len(texts) == 0 {
		for _, scene := range scenes {
			texts = append(texts, opening+scene)
		}
	}
	if o.sessions == 0 {
		o.sessions = len(texts)
	}
	s := &scheduler{model: model, chunk: o.chunk}
	ample := uint64(0)
	for i := 0; i < o.sessions; i++ {
		tokens, err := tokenizer.Encode(texts[i%len(texts)])
		if err != nil {
			return nil, err
		}
		if len(tokens) >= model.Context {
			return nil, fmt.Errorf(
				"prompt %d has %d tokens, the model's context is %d", i+1, len(tokens),
				model.Context,
			)
		}
		limit := model.Context
		if o.maxTokens < limit-len(tokens) {
			limit = len(tokens) + o.maxTokens
		}
		s.sequences = append(
			s.sequences,
			&sequence{tokens: tokens, prompt: len(tokens), limit: limit,
				sampler: newSampler(o.temperature, o.topP, o.seed, uint64(i))},
		)
		ample += uint64(limit+15) / 16
	}
	if o.blocks == 0 {
		o.blocks = ample
	}
	var err error
	s.cache, err = pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{
			{
				Layers:     model.Layers,
				QueryHeads: model.QueryHeads,
				KVHeads:    model.KVHeads,
				KeyDim:     model.HeadDim,
			},
		},
		Blocks: o.blocks,
		Prefix: &pagedkv.PrefixConfig{},
	})
	return s, err
}

func writeTokens(path string, sequences []*sequence) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for _, q := range sequences {
		fmt.Fprintln(out, strings.Trim(fmt.Sprint(q.tokens[q.prompt:]), "[]"))
	}
	if err := out.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
