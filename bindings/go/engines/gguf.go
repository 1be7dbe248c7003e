package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	gguf "github.com/gpustack/gguf-parser-go"

	"github.com/pagedkv/pagedkv/bindings/go/engines/llama"
)

// names are llama.cpp's names for the tensors of a Llama model.
var names = map[string]string{
	"embedding":      "token_embd.weight",
	"attention_norm": "blk.%d.attn_norm.weight",
	"wq":             "blk.%d.attn_q.weight",
	"wk":             "blk.%d.attn_k.weight",
	"wv":             "blk.%d.attn_v.weight",
	"wo":             "blk.%d.attn_output.weight",
	"ffn_norm":       "blk.%d.ffn_norm.weight",
	"w1":             "blk.%d.ffn_gate.weight",
	"w2":             "blk.%d.ffn_down.weight",
	"w3":             "blk.%d.ffn_up.weight",
	"final_norm":     "output_norm.weight",
}

// file is a GGUF file whose header was read.
type file struct {
	*gguf.GGUFFile
	path string
	data *os.File
}

func openFile(path string) (*file, error) {
	header, err := gguf.ParseGGUFFile(path)
	if err != nil {
		return nil, fmt.Errorf("the model %s: %w", path, err)
	}
	data, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &file{header, path, data}, nil
}

// value returns metadata of a type, or an error if there is none.
func value[T any](f *file, key string, types ...gguf.GGUFMetadataValueType) (T, error) {
	found, ok := f.Header.MetadataKV.Get(key)
	for _, kind := range types {
		if ok && found.ValueType == kind {
			if typed, ok := found.Value.(T); ok {
				return typed, nil
			}
		}
	}
	var none T
	return none, fmt.Errorf("the model %s has no %s that is a %T", f.path, key, none)
}

func (f *file) number(key string) (uint32, error) {
	return value[uint32](f, key, gguf.GGUFMetadataValueTypeUint32)
}

func (f *file) float(key string) (float32, error) {
	return value[float32](f, key, gguf.GGUFMetadataValueTypeFloat32)
}

func (f *file) text(key string) (string, error) {
	return value[string](f, key, gguf.GGUFMetadataValueTypeString)
}

func (f *file) strings(key string) ([]string, error) {
	array, err := value[gguf.GGUFMetadataKVArrayValue](f, key, gguf.GGUFMetadataValueTypeArray)
	if err == nil && array.Type != gguf.GGUFMetadataValueTypeString {
		err = fmt.Errorf("the model %s: %s is not a list of texts", f.path, key)
	}
	if err != nil {
		return nil, err
	}
	return array.ValuesString(), nil
}

// model reads the weights as float32.
func (f *file) model() (*llama.Model, error) {
	family, err := f.text("general.architecture")
	if err != nil {
		return nil, err
	}
	if family != "llama" {
		return nil, fmt.Errorf("the model %s is of the family %s; it must be llama", f.path, family)
	}
	if _, other := f.TensorInfos.Get("output.weight"); other {
		return nil, fmt.Errorf("the model %s has a classifier of its own", f.path)
	}
	embedding, _ := f.TensorInfos.Get(names["embedding"])
	if len(embedding.Dimensions) != 2 {
		return nil, fmt.Errorf("the model %s has no table of embeddings", f.path)
	}
	sizes := llama.Sizes{Vocabulary: int(embedding.Dimensions[1])}
	for key, to := range map[string]*int{
		"llama.embedding_length":        &sizes.Dim,
		"llama.feed_forward_length":     &sizes.Hidden,
		"llama.block_count":             &sizes.Layers,
		"llama.attention.head_count":    &sizes.QueryHeads,
		"llama.attention.head_count_kv": &sizes.KVHeads,
		"llama.context_length":          &sizes.Context,
	} {
		number, err := f.number(key)
		if err != nil {
			return nil, err
		}
		*to = int(number)
	}
	for key, to := range map[string]*float64{
		"llama.rope.freq_base":                   &sizes.RotaryBase,
		"llama.attention.layer_norm_rms_epsilon": &sizes.Epsilon,
	} {
		number, err := f.float(key)
		if err != nil {
			return nil, err
		}
		*to = float64(number)
	}
	return llama.New(sizes, f.tensor)
}

// tensor reads a tensor of any type.
func (f *file) tensor(name string, layer, rows, columns int) ([]float32, error) {
	name = names[name]
	if layer > 0 || name[0] == 'b' {
		name = fmt.Sprintf(name, layer)
	}
	info, found := f.TensorInfos.Get(name)
	if !found {
		return nil, fmt.Errorf("the model %s has no tensor %s", f.path, name)
	}
	elements := uint64(rows) * uint64(columns)
	if info.Elements() != elements || info.Dimensions[0] != uint64(columns) {
		return nil, fmt.Errorf(
			"the model %s: %s has the dims %v, %d x %d are needed", f.path, name, info.Dimensions,
			columns, rows,
		)
	}
	unpack, found := types[info.Type]
	if !found {
		return nil, fmt.Errorf(
			"the model %s: %s is stored as %v; it must be F32, F16, BF16, Q8_0, Q4_0 or Q4_1", f.path,
			name, info.Type,
		)
	}
	if elements%uint64(unpack.elements) != 0 {
		return nil, fmt.Errorf(
			"the model %s: %s has %d elements, in blocks of %d", f.path, name, elements,
			unpack.elements,
		)
	}
	data := make([]byte, elements/uint64(unpack.elements)*uint64(unpack.bytes))
	if _, err := f.data.ReadAt(data, f.TensorDataStartOffset+int64(info.Offset)); err != nil {
		return nil, fmt.Errorf("the model %s is cut short in %s: %w", f.path, name, err)
	}
	tensor := make([]float32, elements)
	for out := tensor; len(out) > 0; out, data = out[unpack.elements:], data[unpack.bytes:] {
		unpack.block(out[:unpack.elements], data[:unpack.bytes])
	}
	return tensor, nil
}

// stored is a type of tensors: each block has this many elements in this many bytes.
type stored struct {
	elements, bytes int
	block           func(out []float32, data []byte)
}

// types are those of ggml's documentation: a Q4 block has the low halves of 16 bytes first, then
// the high ones.
var types = map[gguf.GGMLType]stored{
	gguf.GGMLTypeF32: {1, 4, func(out []float32, data []byte) {
		out[0] = math.Float32frombits(binary.LittleEndian.Uint32(data))
	}},
	gguf.GGMLTypeF16: {1, 2, func(out []float32, data []byte) { out[0] = half(data) }},
	gguf.GGMLTypeBF16: {1, 2, func(out []float32, data []byte) {
		out[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16)
	}},
	gguf.GGMLTypeQ8_0: {32, 34, func(out []float32, data []byte) {
		scale := half(data)
		for i, q := range data[2:] {
			out[i] = scale * float32(int8(q))
		}
	}},
	gguf.GGMLTypeQ4_0: {32, 18, func(out []float32, data []byte) {
		scale := half(data)
		nibbles(out, data[2:], scale, -8*scale)
	}},
	gguf.GGMLTypeQ4_1: {32, 20, func(out []float32, data []byte) {
		nibbles(out, data[4:], half(data), half(data[2:]))
	}},
}

func nibbles(out []float32, data []byte, scale, minimum float32) {
	for i, q := range data {
		out[i] = scale*float32(q&15) + minimum
		out[i+16] = scale*float32(q>>4) + minimum
	}
}

// half reads a 16-bit IEEE 754 number.
func half(data []byte) float32 {
	bits := uint32(binary.LittleEndian.Uint16(data))
	sign, exponent, fraction := bits>>15<<31, bits>>10&31, bits&1023
	switch exponent {
	case 0:
		value := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(value) | sign)
	case 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
