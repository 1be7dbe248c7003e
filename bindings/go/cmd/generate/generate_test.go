package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
	"github.com/pagedkv/pagedkv/bindings/go/internal/llama"
)

const data = "../../../../bench/data/"

// generated runs the demo and gives the tokens of each session.
func generated(t *testing.T, o options) [][]string {
	t.Helper()
	o.model, o.tokensOut = data+"tiny-shakespeare.bin", filepath.Join(t.TempDir(), "tokens")
	if o.chunk == 0 {
		o.chunk = 64
	}
	if err := run(&o); err != nil {
		t.Fatal(err)
	}
	return linesOf(t, o.tokensOut)
}

func linesOf(t *testing.T, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

func TestGreedyTextIsTheExpectedOne(t *testing.T) {
	var expected struct{ Tokens []int }
	text, err := os.ReadFile(data + "tiny-shakespeare.expected.json")
	if err == nil {
		err = json.Unmarshal(text, &expected)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(strings.Trim(fmt.Sprint(expected.Tokens[1+len("ROMEO:\n"):]), "[]"))
	got := generated(t, options{prompts: prompts{"ROMEO:\n"}, maxTokens: len(want)})
	if len(want) != 160 || !reflect.DeepEqual(got, [][]string{want}) {
		t.Errorf("other tokens than expected: %v", got)
	}
}

var texts = prompts{opening + scenes[0], opening + scenes[1], scenes[2], "ROMEO:\n"}

// The texts follow from prompts and seed alone, not from how the work is cut or who is stopped for
// want of blocks.
func TestScheduleDoesNotShow(t *testing.T) {
	model, err := llama.Open(data + "tiny-shakespeare.bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float64{0, 0.9} {
		o := options{
			prompts:     texts,
			sessions:    4,
			maxTokens:   12,
			temperature: temperature,
			topP:        0.9,
			seed:        1,
		}
		want := generated(t, o)
		if program := os.Getenv("PAGEDKV_GENERATE"); program != "" {
			if got := generatedByC(t, program, o); !reflect.DeepEqual(got, want) {
				t.Errorf("temperature %v: C generates %v, Go %v", temperature, got, want)
			}
		}
		o.chunk, o.blocks = 19, 14
		o.model = data + "tiny-shakespeare.bin"
		tokenizer, err := llama.OpenTokenizer(o.tokenizerPath(), model.Vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newScheduler(&o, model, tokenizer)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.run(); err != nil || s.suspensions == 0 || s.matched == 0 {
			t.Errorf(
				"%d suspensions, %d tokens matched, %v: so few blocks are to make some",
				s.suspensions, s.matched, err,
			)
		}
		for i, q := range s.sequences {
			got := strings.Fields(strings.Trim(fmt.Sprint(q.tokens[q.prompt:]), "[]"))
			if !reflect.DeepEqual(got, want[i]) {
				t.Errorf(
					"temperature %v, session %d in few blocks: %v, expected %v", temperature, i,
					got, want[i],
				)
			}
		}
		if err := s.cache.Close(); err != nil {
			t.Error(err)
		}
	}
}

func generatedByC(t *testing.T, program string, o options) [][]string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "tokens")
	arguments := []string{
		"--quiet",
		"--model",
		data + "tiny-shakespeare.bin",
		"--tokens-out",
		out,
		"--sessions",
		fmt.Sprint(o.sessions),
		"--max-tokens",
		fmt.Sprint(o.maxTokens),
		"--temperature",
		fmt.Sprint(o.temperature),
		"--seed",
		fmt.Sprint(o.seed),
	}
	for _, text := range o.prompts {
		arguments = append(arguments, "--prompt", text)
	}
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return linesOf(t, out)
}

// Each call that computes logits gives a NaN once: the text that it was for ends, with the tokens
// that it had, and the others get those that they have without it.
func TestLogitsThatAreNaNEndOneText(t *testing.T) {
	sizes := llama.Sizes{
		Dim: 16, Hidden: 16, Layers: 1, QueryHeads: 1, KVHeads: 1, Vocabulary: 9, Context: 64,
		RotaryBase: 10000, Epsilon: 1e-5,
	}
	model, err := llama.New(sizes, func(_ string, _, rows, columns int) ([]float32, error) {
		tensor := make([]float32, rows*columns)
		for i := range tensor {
			tensor[i] = float32(i%5) - 2
		}
		return tensor, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	matmul, calls, bad := model.Matmul, 0, 0
	model.Matmul = func(out, x, w []float32, inputs int) {
		matmul(out, x, w, inputs)
		if len(out) == sizes.Vocabulary {
			if calls++; calls == bad {
				out[7] = float32(math.NaN())
			}
		}
	}
	run := func() *scheduler {
		calls = 0
		return runTexts(t, model, []int32{3, 4}, []int32{4, 5, 6, 7}, []int32{8})
	}
	whole := run()
	if err := whole.failures(); err != nil {
		t.Fatal(err)
	}
	for last := calls; bad < last; {
		bad++
		s, failed := run(), 0
		for i, q := range s.sequences {
			want := whole.sequences[i].tokens
			if q.err != nil {
				failed++
				want = want[:len(q.tokens)]
			}
			if !reflect.DeepEqual(q.tokens, want) || q.session != nil {
				t.Errorf("call %d: %+v, expected %v", bad, q, want)
			}
		}
		err := s.failures()
		if failed != 1 || !strings.Contains(err.Error(), "logit 7 of the model's 9 is NaN") {
			t.Errorf("call %d: %d texts failed: %v", bad, failed, err)
		}
	}
}

// runTexts continues texts by five tokens each.
func runTexts(t *testing.T, model *llama.Model, texts ...[]int32) *scheduler {
	t.Helper()
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{
		Groups: []pagedkv.LayerGroup{{Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16}}, Blocks: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	s := &scheduler{model: model, cache: cache, chunk: 64}
	for i, text := range texts {
		s.sequences = append(s.sequences, &sequence{
			tokens: text, prompt: len(text), limit: len(text) + 5,
			sampler: newSampler(0.8, 1, 1, uint64(i)),
		})
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if err := cache.Validate(); err != nil {
		t.Error(err)
	}
	return s
}

// A text that never fits ends with its reason, and the others are generated.
func TestATextThatIsTooLongEndsAlone(t *testing.T) {
	short := prompts{"ROMEO:\n", scenes[2]}
	want := generated(t, options{prompts: short, maxTokens: 8})
	o := options{
		model: data + "tiny-shakespeare.bin", tokensOut: filepath.Join(t.TempDir(), "tokens"),
		prompts: prompts{short[0], opening + scenes[0], short[1]}, maxTokens: 8, chunk: 64, blocks: 3,
	}
	err := run(&o)
	if err == nil || !strings.HasPrefix(err.Error(), "session 2: ") ||
		strings.Contains(err.Error(), "session 3") {
		t.Error(err)
	}
	got := linesOf(t, o.tokensOut)
	if len(got) != 3 || !reflect.DeepEqual([][]string{got[0], got[2]}, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

func TestBadInputIsASentence(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.bin")
	if err := os.WriteFile(empty, make([]byte, 40), 0o600); err != nil {
		t.Fatal(err)
	}
	model := data + "tiny-shakespeare.bin"
	short, long := prompts{"ROMEO:\n"}, prompts{strings.Repeat("x", 600)}
	for part, o := range map[string]options{
		"no such file":               {model: "none.bin", chunk: 1, maxTokens: 1},
		"number 0 of its sizes is 0": {model: empty, chunk: 1, maxTokens: 1},
		"cut short":                  {model: model, tokenizer: empty, chunk: 1, maxTokens: 1},
		"-chunk 0":                   {model: model, maxTokens: 1},
		"-temperature NaN":           {model: model, chunk: 1, maxTokens: 1, temperature: math.NaN()},
		"-temperature -1":            {model: model, chunk: 1, maxTokens: 1, temperature: -1},
		"-top-p NaN":                 {model: model, chunk: 1, maxTokens: 1, topP: math.NaN()},
		"in one session":             {model: model, chunk: 8, maxTokens: 60, blocks: 2, prompts: short},
		"the model's cont":           {model: model, chunk: 8, maxTokens: 1, prompts: long},
	} {
		if err := run(&o); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
