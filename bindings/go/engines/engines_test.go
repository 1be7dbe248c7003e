package main

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pagedkv/pagedkv/bindings/go/engines/llama"
)

// The tokens that transformers gives for the same weights in float32.
const expected = "../../rust/engines/pagedkv-candle/tests/smollm2.json"

func TestTokensAreThoseOfGenerate(t *testing.T) {
	path := os.Getenv("PAGEDKV_SMOLLM2")
	if path == "" {
		t.Skip("SKIP: PAGEDKV_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	text, err := os.ReadFile(expected)
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Prompts []struct {
			Text           string
			Prompt, Answer []int32
		}
	}
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	file, words := open(t, path)
	model, err := file.model()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		known.Prompts = known.Prompts[:2]
	}
	o := options{limit: 8, chunk: 512}
	prompts := make([][]int32, len(known.Prompts))
	for i, chat := range known.Prompts {
		if prompts[i], err = words.question(chat.Text); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(prompts[i], chat.Prompt) {
			t.Fatalf("%q has the tokens %v, not %v", chat.Text, chat.Prompt, prompts[i])
		}
	}
	s := runTexts(t, model, prompts, words.end, &o)
	if err := s.failures(); err != nil || s.matched == 0 {
		t.Errorf("%d tokens matched, %v", s.matched, err)
	}
	for i, chat := range known.Prompts {
		want := chat.Answer[:min(o.limit, len(chat.Answer))]
		if len(want) > 0 && want[len(want)-1] == words.end {
			want = want[:len(want)-1]
		}
		if answer := s.sequences[i].answer(); !reflect.DeepEqual(answer, want) {
			t.Errorf("%q is answered by %v, not %v", chat.Text, answer, want)
		}
	}
}

// runTexts computes texts at once.
func runTexts(
	t *testing.T, model *llama.Model, prompts [][]int32, end int32, o *options,
) *scheduler {
	t.Helper()
	s, err := newScheduler(model, prompts, end, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.cache.Close()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if err := s.cache.Validate(); err != nil {
		t.Error(err)
	}
	return s
}

func open(t *testing.T, path string) (*file, *words) {
	t.Helper()
	file, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.data.Close() })
	words, err := file.words()
	if err != nil {
		t.Fatal(err)
	}
	return file, words
}

func TestBlocksOfTensors(t *testing.T) {
	scale, minimum := []byte{0x00, 0x38}, []byte{0x00, 0xC0} // 0.5 and -2
	halves := make([]byte, 16)
	for i := range halves {
		halves[i] = byte(i) | byte(15-i)<<4
	}
	out := make([]float32, 32)
	types[8].block(out, append(scale[:2:2], 2, 0xFE)) // Q8_0
	if out[0] != 1 || out[1] != -1 {
		t.Error("Q8_0:", out[:2])
	}
	types[2].block(out, append(scale[:2:2], halves...)) // Q4_0
	if out[0] != -4 || out[15] != 3.5 || out[16] != 3.5 || out[31] != -4 {
		t.Error("Q4_0:", out)
	}
	types[3].block(out, append(append(scale[:2:2], minimum...), halves...)) // Q4_1
	if out[0] != -2 || out[15] != 5.5 || out[16] != 5.5 || out[31] != -2 {
		t.Error("Q4_1:", out)
	}
	for bits, want := range map[uint16]float32{
		0x0001: 1.0 / (1 << 24), 0x83FF: -1023.0 / (1 << 24), 0x0400: 1.0 / (1 << 14),
		0x7BFF: 65504, 0xFC00: float32(math.Inf(-1)), 0x8000: float32(math.Copysign(0, -1)),
	} {
		got := half(binary.LittleEndian.AppendUint16(nil, bits))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("%#04x is %v, not %v", bits, got, want)
		}
	}
}

// none is a token that ends no text.
const none = -1

// smallModel is a random model: its tokens mean nothing, but depend on all tokens before them.
func smallModel(t *testing.T) *llama.Model {
	t.Helper()
	model, err := llama.New(llama.Sizes{
		Dim: 16, Hidden: 16, Layers: 1, QueryHeads: 1, KVHeads: 1, Vocabulary: 9, Context: 64,
		RotaryBase: 10000, Epsilon: 1e-5,
	}, func(_ string, _, rows, columns int) ([]float32, error) {
		tensor := make([]float32, rows*columns)
		for i := range tensor {
			tensor[i] = float32(i%5) - 2
		}
		return tensor, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// text has 40 tokens that all texts share, and some of its own.
func text(own ...int32) []int32 {
	var tokens []int32
	for i := range int32(40) {
		tokens = append(tokens, i*i%9)
	}
	return append(tokens, own...)
}

// The texts depend only on prompts and seed, not on how the work is divided, nor on which texts are
// suspended because blocks run out.
func TestScheduleDoesNotShow(t *testing.T) {
	model := smallModel(t)
	prompts := [][]int32{text(3, 4), text(4, 5, 6, 7), {8}, text()}
	for _, temperature := range []float64{0, 0.9} {
		o := options{limit: 20, chunk: 64, temperature: temperature, topP: 0.9, seed: 1}
		want := runTexts(t, model, prompts, none, &o)
		o.chunk, o.blocks = 19, 5
		s := runTexts(t, model, prompts, none, &o)
		if s.suspensions == 0 || s.matched == 0 {
			t.Errorf("%d suspensions, %d tokens matched", s.suspensions, s.matched)
		}
		for i, q := range s.sequences {
			if expected := want.sequences[i].tokens; !reflect.DeepEqual(q.tokens, expected) {
				t.Errorf("temperature %v: %v, expected %v", temperature, q.tokens, expected)
			}
		}
	}
}

// Each call that computes logits returns a NaN once. The text of that call ends with the tokens
// that it had, and the other texts do not change.
func TestLogitsThatAreNaNEndOneText(t *testing.T) {
	model := smallModel(t)
	matmul, calls, bad := model.Matmul, 0, 0
	model.Matmul = func(out, x, w []float32, inputs int) {
		matmul(out, x, w, inputs)
		if len(out) == model.Vocabulary {
			if calls++; calls == bad {
				out[7] = float32(math.NaN())
			}
		}
	}
	run := func() *scheduler {
		calls = 0
		o := options{limit: 5, chunk: 64, temperature: 0.8, topP: 1, seed: 1}
		return runTexts(t, model, [][]int32{{3, 4}, {4, 5, 6, 7}, {8}}, none, &o)
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

// A text that never fits ends with its reason, and the others are computed.
func TestATextThatIsTooLongEndsAlone(t *testing.T) {
	model, short := smallModel(t), [][]int32{{3, 4}, {8}}
	o := options{limit: 8, chunk: 64}
	want := runTexts(t, model, short, none, &o).sequences
	o.blocks = 2
	s := runTexts(t, model, [][]int32{short[0], text(), short[1]}, none, &o)
	err := s.failures()
	if err == nil || !strings.HasPrefix(err.Error(), "answer 2: ") ||
		strings.Contains(err.Error(), "answer 3") {
		t.Error(err)
	}
	for i, q := range want {
		if got := s.sequences[2*i]; !reflect.DeepEqual(got.tokens, q.tokens) {
			t.Errorf("%v, expected %v", got.tokens, q.tokens)
		}
	}
}

func TestAnswersOverTheContextAreRefused(t *testing.T) {
	for _, limit := range []int{63, math.MaxInt} {
		_, err := newScheduler(smallModel(t), [][]int32{{3, 4}}, none, &options{limit: limit})
		if err == nil || !strings.Contains(err.Error(), "over the model's 64") {
			t.Errorf("%d tokens: %v", limit, err)
		}
	}
}

func TestWrongFilesAndArguments(t *testing.T) {
	directory := t.TempDir()
	garbage := filepath.Join(directory, "garbage.gguf")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("GGUFx", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for sentence, args := range map[string][]string{
		"are needed":                {"a.gguf", "3"},
		"not a number of tokens":    {"a.gguf", "many", "Why?"},
		"no such file":              {filepath.Join(directory, "none.gguf"), "3", "Why?"},
		"the model " + garbage:      {garbage, "3", "Why?"},
		`"0" is not a number of to`: {garbage, "0", "Why?"},
		"-chunk is 0":               {"-chunk", "0", garbage, "1", "Why?"},
		"-temperature is NaN":       {"-temperature", "NaN", garbage, "1", "Why?"},
		"-temperature is -1":        {"-temperature", "-1", garbage, "1", "Why?"},
		"-top-p is NaN":             {"-top-p", "NaN", garbage, "1", "Why?"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v: %v, not %q", args, err, sentence)
		}
	}
}
