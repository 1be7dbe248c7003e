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

	"github.com/pagedkv/pagedkv/bindings/go/internal/llama"
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
	limit := 8
	if testing.Short() {
		known.Prompts = known.Prompts[:2]
	}
	for _, chat := range known.Prompts {
		prompt, err := words.question(chat.Text)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(prompt, chat.Prompt) {
			t.Errorf("%q has the tokens %v, not %v", chat.Text, chat.Prompt, prompt)
			continue
		}
		answer, err := generate(model, prompt, limit, words.end, func([]int32) {})
		if err != nil {
			t.Fatal(err)
		}
		want := chat.Answer[:min(limit, len(chat.Answer))]
		if len(want) > 0 && want[len(want)-1] == words.end {
			want = want[:len(want)-1]
		}
		if !reflect.DeepEqual(answer, want) {
			t.Errorf("%q is answered by %v, not %v", chat.Text, answer, want)
		}
	}
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

func TestProductsAreThoseOfFloat64(t *testing.T) {
	const inputs, columns = 70, 33
	w, x := make([]float32, columns*inputs), make([]float32, 3*inputs)
	for i := range w {
		w[i] = float32(i%17) - 8
	}
	for i := range x {
		x[i] = float32(i%11) - 5
	}
	for rows := 1; rows <= 3; rows += 2 {
		out := make([]float32, rows*columns)
		out[0] = 1e9 // what was there does not count
		multiply(out, x[:rows*inputs], w, inputs)
		for i, got := range out {
			want := 0.0
			for j := 0; j < inputs; j++ {
				want += float64(x[i/columns*inputs+j]) * float64(w[i%columns*inputs+j])
			}
			if float64(got) != want { // small integers: every sum is exact
				t.Fatalf("%d rows: [%d] is %v, not %v", rows, i, got, want)
			}
		}
	}
}

func TestLogitsThatAreNaNEndTheAnswer(t *testing.T) {
	sizes := llama.Sizes{
		Dim: 16, Hidden: 16, Layers: 1, QueryHeads: 1, KVHeads: 1, Vocabulary: 9, Context: 64,
		RotaryBase: 10000, Epsilon: 1e-5,
	}
	model, err := llama.New(sizes, func(name string, _, rows, columns int) ([]float32, error) {
		tensor := make([]float32, rows*columns)
		for i := range tensor {
			tensor[i] = float32(math.NaN())
		}
		return tensor, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	told := func([]int32) { t.Error("there is an answer") }
	for limit, sentence := range map[int]string{
		3: "is NaN", math.MaxInt: "over the model's 64", 64: "over the model's 64",
	} {
		_, err := generate(model, []int32{3, 4}, limit, 1, told)
		if err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%d tokens: %v, not %q", limit, err, sentence)
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
		"are needed":             {"a.gguf", "3"},
		"no number of tokens":    {"a.gguf", "many", "Why?"},
		"no such file":           {filepath.Join(directory, "none.gguf"), "3", "Why?"},
		"the model " + garbage:   {garbage, "3", "Why?"},
		`"0" is no number of to`: {garbage, "0", "Why?"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v: %v, not %q", args, err, sentence)
		}
	}
}
