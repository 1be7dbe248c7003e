package pagedkv_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

const attentionTokens = 37

// begun is a session of the default cache with a batch of tokens, written in both layers.
func begun(t *testing.T, cache *pagedkv.Cache) (*pagedkv.Batch, []uint64) {
	t.Helper()
	rows := histories(numbered(5, attentionTokens))
	batch := begin(t, cache, step(open(t, cache), attentionTokens))
	for layer := 0; layer < 2; layer++ {
		write(t, batch, layer, rows)
	}
	return batch, rows
}

func refused(t *testing.T, err error, status pagedkv.Status, parts ...string) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Errorf("%v, expected %v", err, status)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// maskedBy has one word for each new token.
func maskedBy(words []uint64) *pagedkv.AttentionParams {
	return &pagedkv.AttentionParams{Mask: &pagedkv.Mask{Bits: words, RowStride: 1}}
}

func TestSlicesAreCheckedAgainstShapes(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	batch, rows := begun(t, cache)
	defer batch.Close()
	k := f32(rowsOf(rows, kindK, 0, 2, 32))
	short := f32(make([]float32, attentionTokens*64-1))
	refused(
		t, batch.Write(0, short, k), pagedkv.ErrInvalidArgument,
		"k: 37 rows of 2 heads of 32 reach over 9472 bytes; bytes is 9468",
	)
	refused(t, batch.Write(0, k, short), pagedkv.ErrInvalidArgument, "v: 37 rows")
	refused(
		t, batch.Write(0, k.WithStrides(65, 0), k), pagedkv.ErrInvalidArgument,
		"reach over 9616 bytes; bytes is 9472",
	)
	refused(t, batch.Write(0, f32(nil), k), pagedkv.ErrInvalidArgument, "k: data is NULL for 37 rows")
	refused(t, batch.Write(0, k.WithStrides(-64, 0), k), pagedkv.ErrInvalidArgument, "-64")
	refused(t, batch.Write(0, k.WithStrides(1<<62, 1<<62), k), pagedkv.ErrInvalidArgument, "overlap")
	refused(t, batch.Write(0, k.WithStrides(1<<20, 1<<63-1), k), pagedkv.ErrOverflow, "k: ")
	refused(
		t, batch.Write(0, f32(make([]float32, 37*100)).WithStrides(0, 40), k),
		pagedkv.ErrInvalidArgument, "row_stride is 0 (dense), but head_stride is 40",
	)
	refused(
		t, batch.Write(0, k.WithStrides(1, 1), k), pagedkv.ErrInvalidArgument, "overlap",
	)
	refused(
		t, batch.Write(0, k.WithBatchStride(-1), k), pagedkv.ErrInvalidArgument, "negative stride",
	)
	refused(t, batch.Write(0, k, pagedkv.Tensor{}), pagedkv.ErrInvalidArgument, "v is NULL")
	refused(t, batch.Write(2, k, k), pagedkv.ErrOutOfRange)
	refused(t, batch.Write(1<<32, k, k), pagedkv.ErrOutOfRange, "4294967296")
	q := f32(make([]float32, attentionTokens*128))
	out := f32(make([]float32, attentionTokens*128))
	refused(t, batch.Attend(0, k, out, nil, nil), pagedkv.ErrInvalidArgument, "q: 37 rows of 4 heads")
	refused(t, batch.Attend(0, q, k, nil, nil), pagedkv.ErrInvalidArgument, "out: 37 rows of 4 heads")
	refused(
		t, batch.Attend(0, q, out, nil, &pagedkv.AttentionOutputs{LSE: make([]float32, 147)}),
		pagedkv.ErrInvalidArgument, "LSE has 147", "37 rows of 4",
	)
	refused(
		t, batch.Attend(0, q, out, &pagedkv.AttentionParams{SinkLogits: make([]float32, 3)}, nil),
		pagedkv.ErrInvalidArgument, "SinkLogits has 3",
	)
	refused(
		t,
		batch.Attend(0, q, out, maskedBy(make([]uint64, 36)), nil),
		pagedkv.ErrInvalidArgument, "Bits has 36",
	)
	refused(
		t, batch.Commit(make([]int32, 36)), pagedkv.ErrInvalidArgument,
		"36 entries; the batch has 37 rows",
	)
	refused(t, batch.Commit([]int32{}), pagedkv.ErrInvalidArgument, "0 entries")
	session := open(t, cache)
	extend(t, session, numbered(1, 5))
	refused(
		t, session.Read(0, 0, 5, short, f32(make([]float32, 319))), pagedkv.ErrInvalidArgument,
		"v: 5 rows of 2 heads of 32 reach over 1280 bytes; bytes is 1276",
	)
	refused(t, session.Read(0, 0, -5, k, k), pagedkv.ErrOutOfRange, "-5")
}

func TestStridesAndHalfPrecision(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	const n = 19
	k := rowsOf(histories(numbered(5, n)), kindK, 0, 2, 32)
	v := rowsOf(histories(numbered(5, n)), kindV, 0, 2, 32)
	wide := make([]float32, n*100) // rows of 100, heads of 40
	bf16 := make([]uint16, len(v))
	for i := range k {
		row, head, d := i/64, i/32%2, i%32
		wide[row*100+head*40+d] = k[i]
		bf16[i] = uint16(math.Float32bits(v[i]) >> 16)
	}
	session := open(t, cache)
	batch := begin(t, cache, step(session, n))
	for layer := 0; layer < 2; layer++ {
		must(t, batch.Write(layer, f32(wide).WithStrides(100, 40), pagedkv.BFloat16(bf16)))
	}
	must(t, batch.Commit(nil))
	gotK, gotV := make([]float32, len(k)), make([]float32, len(v))
	must(t, session.Read(1, 0, n, f32(gotK), f32(gotV)))
	ones := make([]uint16, 64)
	for i := range ones {
		ones[i] = 0x3C00 // 1 in binary16
	}
	batch = begin(t, cache, step(session, 1))
	for layer := 0; layer < 2; layer++ {
		must(t, batch.Write(layer, f32(k[:64]), pagedkv.Float16(ones)))
	}
	must(t, batch.Commit(nil))
	for i := range k {
		if gotK[i] != k[i] || gotV[i] != math.Float32frombits(uint32(bf16[i])<<16) {
			t.Fatalf("element %d came back as %v and %v", i, gotK[i], gotV[i])
		}
	}
	last := make([]uint16, 2*64)
	must(t, session.Read(0, n-1, 2, pagedkv.Tensor{}, pagedkv.BFloat16(last)))
	for i := 0; i < 64; i++ {
		if last[i] != bf16[(n-1)*64+i] || last[64+i] != 0x3F80 {
			t.Fatalf("element %d of the last two rows is %#x and %#x", i, last[i], last[64+i])
		}
	}
}

// The same attention in three ways: by the batch, stateless over the cache's own memory, and over a
// copy of it in Go's memory.
func TestStatelessAttention(t *testing.T) {
	for _, layout := range []pagedkv.Layout{pagedkv.LayoutPacked, pagedkv.LayoutPlain} {
		cache := newCache(t, pagedkv.CacheConfig{Layout: layout})
		batch, rows := begun(t, cache)
		q := rowsOf(rows, kindQ, 1, 4, 32)
		want := make([]float32, len(q))
		must(t, batch.Attend(1, f32(q), f32(want), nil, nil))
		_, table, _, err := batch.KVIndices(0, pagedkv.IndexBlocks)
		must(t, err)
		sequences := pagedkv.Sequences{
			QueryHeads:       4,
			QueryLengths:     []uint32{attentionTokens},
			KVLengths:        []uint64{attentionTokens},
			BlockTables:      table,
			BlockTableStride: len(table),
		}

		view, err := cache.KVView(1)
		must(t, err)
		out := make([]float32, len(q))
		must(t, pagedkv.Attend(view, sequences, f32(q), f32(out), nil, nil))
		near(t, "over the cache's memory", out, want)
		must(t, batch.Abort())

		if layout == pagedkv.LayoutPlain {
			own := plainView(rows)
			for i := range table {
				table[i] = uint32(i)
			}
			must(t, pagedkv.Attend(own, sequences, f32(q), f32(out), nil, nil))
			near(t, "over Go's memory", out, want)
			cut := own
			cut.K = pagedkv.MemoryOf(make([]float32, attentionTokens*64-1))
			refused(
				t, pagedkv.Attend(cut, sequences, f32(q), f32(out), nil, nil),
				pagedkv.ErrInvalidArgument, "kv.k: with these strides it reaches over 9472 bytes",
			)
			sequences.BlockTables = table[1:]
			refused(
				t, pagedkv.Attend(own, sequences, f32(q), f32(out), nil, nil),
				pagedkv.ErrInvalidArgument, "BlockTables",
			)
		}
	}
}

// plainView is the rows as one block in Go's memory.
func plainView(rows []uint64) pagedkv.KVView {
	return pagedkv.KVView{
		DType:        pagedkv.F32,
		Layout:       pagedkv.LayoutPlain,
		BlockSize:    attentionTokens,
		KVHeads:      2,
		KeyDim:       32,
		ValueDim:     32,
		Blocks:       1,
		K:            pagedkv.MemoryOf(rowsOf(rows, kindK, 1, 2, 32)),
		V:            pagedkv.MemoryOf(rowsOf(rows, kindV, 1, 2, 32)),
		KBlockStride: attentionTokens * 64,
		KRowStride:   64,
		KHeadStride:  32,
		VBlockStride: attentionTokens * 64,
		VRowStride:   64,
		VHeadStride:  32,
	}
}

func TestPartsAreMerged(t *testing.T) {
	ones, threes := make([]float32, 128), make([]float32, 128)
	for i := range ones {
		ones[i], threes[i] = 1, 3
	}
	parts := []pagedkv.PartialAttention{
		{Out: f32(ones), LSE: make([]float32, 4)}, {Out: f32(threes), LSE: make([]float32, 4)},
	}
	merged, lse := make([]float32, 128), make([]float32, 4)
	must(t, pagedkv.MergeAttention(parts, 1, 4, 32, f32(merged), lse))
	if merged[127] != 2 || math.Abs(float64(lse[3])-math.Ln2) > 1e-6 {
		t.Errorf("merged to %v, with the LSE %v", merged[127], lse[3])
	}
	parts[1].LSE = parts[1].LSE[:3]
	refused(
		t, pagedkv.MergeAttention(parts, 1, 4, 32, f32(merged), nil),
		pagedkv.ErrInvalidArgument, "LSE has 3 entries",
	)
}

// near compares two results, each within 1.2e-4 of exact attention over up to 100 tokens of 32 dims
// (bindings/scenarios/README.md).
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !(math.Abs(float64(got[i])-float64(want[i])) <= 2.4e-4) {
			t.Fatalf("%s: element %d is %v, expected %v", what, i, got[i], want[i])
		}
	}
}

func TestTreesOfSpeculativeTokens(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	session := open(t, cache)
	extend(t, session, numbered(1, 3))
	// Tokens 1 and 2 both follow token 0; the path 0, 2 is kept.
	tokens := []int32{50, 51, 52}
	rows := histories([]int32{1, 2, 3, 50, 51, 52})[3:]
	rows[2] = histories([]int32{1, 2, 3, 50, 52})[4]
	batch := begin(t, cache, step(session, 3))
	defer batch.Close()
	var tree []float32
	for layer := 0; layer < 2; layer++ {
		write(t, batch, layer, rows)
		q := rowsOf(rows, kindQ, layer, 4, 32)
		tree = append(tree, attend(t, batch, layer, q, maskedBy([]uint64{1, 3, 5}))[2*128:]...)
	}
	must(t, batch.Accept(0, []uint32{0, 2}))
	must(t, batch.Commit(tokens))
	path := open(t, cache)
	extend(t, path, []int32{1, 2, 3, 50})
	near(t, "the kept leaf", tree, extend(t, path, []int32{52}))
	near(t, "after it", extend(t, session, []int32{53}), extend(t, path, []int32{53}))
}
