package pagedkv_test

import (
	"testing"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// means are the first outputs of rows of one head of 16 dims.
func means(out []float32, rows ...int) []float32 {
	found := []float32{}
	for _, row := range rows {
		found = append(found, out[row*16])
	}
	return found
}

func same(t *testing.T, found []float32, wanted ...float32) {
	t.Helper()
	for i, want := range wanted {
		if len(found) != len(wanted) || found[i] != want {
			t.Fatalf("%v, expected %v", found, wanted)
		}
	}
}

// Keys are equal, so attention gives means of the values, which are row numbers.
func TestMemoryOfOnesOwn(t *testing.T) {
	compute, err := pagedkv.NewCompute(pagedkv.ComputeConfig{Threads: 1})
	must(t, err)
	defer compute.Close()
	info, err := compute.Info()
	must(t, err)
	if info.Threads != 1 {
		t.Errorf("%d threads", info.Threads)
	}
	for _, layout := range []pagedkv.Layout{pagedkv.LayoutPacked, pagedkv.LayoutPlain} {
		view := pagedkv.KVView{
			Layout: layout, DType: pagedkv.F16, BlockSize: 16, KVHeads: 1, KeyDim: 16, Blocks: 4,
		}
		size, err := view.Init(nil)
		must(t, err)
		refused(t, errorOf(view.Init(make([]byte, size-1))), pagedkv.ErrInvalidArgument, "the slice has")
		_, err = view.Init(make([]byte, size))
		must(t, err)
		sequences := pagedkv.Sequences{
			QueryHeads: 1, QueryLengths: []uint32{3, 1}, KVLengths: []uint64{3, 1},
			BlockTables: []uint32{2, 1}, BlockTableStride: 1,
		}
		keys, values, out := make([]float32, 64), make([]float32, 64), make([]float32, 64)
		for i := range values {
			values[i] = float32(i / 16)
		}
		k, v, to := f32(keys), f32(values), f32(out)
		must(t, compute.Write(view, sequences, k, v))
		must(t, compute.Attend(view, sequences, k, to, nil, nil))
		same(t, means(out, 0, 1, 2, 3), 0, 0.5, 1, 3)

		tree := pagedkv.AttentionParams{Mask: &pagedkv.Mask{Parents: []int32{-1, 0, -1, -1}}}
		must(t, compute.Attend(view, sequences, k, to, &tree, nil))
		same(t, means(out, 0, 1, 2, 3), 0, 0.5, 2, 3)
		mask := pagedkv.Mask{Bytes: []byte{0, 1, 1, 1}, Columns: 3, BatchStride: 1}
		masked := pagedkv.AttentionParams{Mask: &mask}
		must(t, compute.Attend(view, sequences, k, to, &masked, nil))
		same(t, means(out, 0, 1, 2, 3), 0, 1, 1.5, 3)
		// exp(-100) is as good as nothing.
		for _, added := range []pagedkv.Mask{
			{Float32: []float32{-50, 0, 0, 0}, HeadFactors: []float32{2}, Columns: 3, BatchStride: 1},
			{Float16: []uint16{0xFC00, 0, 0, 0}, Columns: 3, BatchStride: 1},
		} {
			masked.Mask = &added
			must(t, compute.Attend(view, sequences, k, to, &masked, nil))
			same(t, means(out, 0, 1, 2, 3), 0, 1, 1.5, 3)
		}
		for _, wrong := range []struct {
			mask     pagedkv.Mask
			sentence string
		}{
			{pagedkv.Mask{Bytes: mask.Bytes[:3], Columns: 3, BatchStride: 1}, "needs 4 elements"},
			{pagedkv.Mask{Float32: []float32{0}, Columns: 3, BatchStride: 1}, "needs 4 elements"},
			{pagedkv.Mask{Float16: []uint16{0}, Bytes: mask.Bytes}, "2 of them"},
			{
				pagedkv.Mask{Bytes: mask.Bytes, HeadFactors: []float32{1, 2}}, "HeadFactors has 2",
			},
			{
				pagedkv.Mask{Bytes: mask.Bytes, HeadFactors: []float32{1}, Columns: 3, BatchStride: 1},
				"head_factors are for kinds F16 and F32",
			},
			{pagedkv.Mask{Columns: 3, BatchStride: 1}, "0 of them are given"},
			{pagedkv.Mask{Bytes: mask.Bytes, Parents: []int32{-1, 0, -1, -1}}, "2 of them"},
			{pagedkv.Mask{Bits: []uint64{}, RowStride: 1}, "Bits has 0 entries"},
			{pagedkv.Mask{Parents: []int32{-1}}, "Parents has 1 entries"},
			{
				pagedkv.Mask{Bits: []uint64{1, 3, 7, 1}, RowStride: 1, Positions: []int64{1}},
				"Positions has 1 entries",
			},
			{
				pagedkv.Mask{Parents: []int32{-1, 0, -1, -1}, Positions: []int64{0, 1, 0, 0}},
				"positions are for kind TREE_BITS",
			},
			{pagedkv.Mask{Bytes: mask.Bytes, RowStride: -1}, "strides of 0 and -1"},
			{pagedkv.Mask{Bytes: mask.Bytes, FirstPositions: []int64{0}}, "1 FirstPositions"},
			{pagedkv.Mask{Parents: []int32{-1, 0, -1, -1}, RowStride: 1}, "row_stride is 1"},
		} {
			masked.Mask = &wrong.mask
			refused(
				t, compute.Attend(view, sequences, k, to, &masked, nil), pagedkv.ErrInvalidArgument,
				wrong.sentence,
			)
		}

		// The same padded on the left, [2][3][1][16].
		left := sequences
		left.FirstRows = []uint32{0, 2}
		wide, wideOut := make([]float32, 96), make([]float32, 96)
		copy(wide, values[:48])
		copy(wide[80:], values[48:])
		zeros := f32(make([]float32, 96)).WithBatchStride(48)
		must(t, pagedkv.WriteSlots(view, []int64{32, pagedkv.NoSlot, 33, 34}, k, k))
		must(t, pagedkv.Write(view, left, zeros, f32(wide).WithBatchStride(48)))
		must(t, pagedkv.Attend(view, left, zeros, f32(wideOut).WithBatchStride(48), nil, nil))
		same(t, means(wideOut, 0, 1, 2, 3, 5), 0, 0.5, 1, 0, 3)
		refused(
			t, pagedkv.Write(view, left, zeros, f32(wide[1:]).WithBatchStride(48)),
			pagedkv.ErrInvalidArgument, "v: 6 rows", "bytes is 380",
		)
		left.FirstRows = left.FirstRows[:1]
		refused(
			t, pagedkv.Write(view, left, zeros, zeros), pagedkv.ErrInvalidArgument, "1 FirstRows",
		)

		// Queries at given positions, and rows that are read back.
		first := sequences
		first.QueryPositions = []int64{1, 1, 0, 0}
		must(t, pagedkv.Attend(view, first, k, to, nil, nil))
		same(t, means(out, 0, 1, 2, 3), 0.5, 0.5, 0, 3)
		must(t, pagedkv.ReadSlots(view, []int64{34, 16}, pagedkv.Tensor{}, f32(out[:32])))
		same(t, means(out, 0, 1), 2, 3)
		refused(
			t, pagedkv.WriteSlots(view, []int64{0, 64, 1, 2}, k, v), pagedkv.ErrOutOfRange, "64",
		)
	}
	empty := pagedkv.KVView{DType: pagedkv.F32, BlockSize: 16}
	refused(t, errorOf(empty.Init(nil)), pagedkv.ErrInvalidArgument)
}

func TestValuesInsideKeys(t *testing.T) {
	view := pagedkv.KVView{
		DType: pagedkv.F32, BlockSize: 16, KVHeads: 1, KeyDim: 32, ValueDim: 16, Blocks: 1,
		Latent: true,
	}
	size, err := view.Init(nil)
	must(t, err)
	if size != 16*32*4 {
		t.Errorf("keys take %d bytes", size)
	}
	_, err = view.Init(make([]byte, size))
	must(t, err)
	sequences := pagedkv.Sequences{
		QueryHeads: 1, QueryLengths: []uint32{2}, KVLengths: []uint64{2},
		BlockTables: []uint32{0}, BlockTableStride: 1,
	}
	keys, out := make([]float32, 2*32), make([]float32, 2*16)
	keys[32] = 1
	must(t, pagedkv.Write(view, sequences, f32(keys), pagedkv.Tensor{}))
	must(t, pagedkv.Attend(view, sequences, f32(make([]float32, 2*32)), f32(out), nil, nil))
	same(t, means(out, 0, 1), 0, 0.5)
	view.Latent = false
	refused(
		t, pagedkv.Write(view, sequences, f32(keys), pagedkv.Tensor{}), pagedkv.ErrInvalidArgument,
		"v is NULL, and latent is 0",
	)
}

func TestRotations(t *testing.T) {
	exchange := make([]float32, 256)
	for i := 0; i < 16; i++ {
		exchange[i*16+(i+8)%16] = 1
	}
	group := pagedkv.LayerGroup{
		Layers: 1, QueryHeads: 1, KVHeads: 1, KeyDim: 16, KeyRotation: exchange, Blocks: 4,
	}
	cache, err := pagedkv.NewCache(pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{group}})
	must(t, err)
	seen, err := cache.KVView(0)
	must(t, err)
	if seen.KeyRotation.Pointer() == nil || seen.ValueRotation.Pointer() != nil {
		t.Errorf("the rotation of %+v", seen)
	}
	row := f32(make([]float32, 16))
	one := pagedkv.Sequences{
		QueryHeads: 1, QueryLengths: []uint32{1}, KVLengths: []uint64{1},
		BlockTables: []uint32{0}, BlockTableStride: 1,
	}
	for _, err := range []error{
		pagedkv.Write(seen, one, row, row), pagedkv.WriteSlots(seen, []int64{0}, row, row),
	} {
		refused(t, err, pagedkv.ErrInvalidArgument, "a cache's, which only batches may write")
	}
	must(t, pagedkv.ReadSlots(seen, []int64{0}, row, pagedkv.Tensor{}))
	must(t, pagedkv.Read(seen, one, row, pagedkv.Tensor{}))
	must(t, cache.Close())
	group.KeyDim = 32
	config := pagedkv.CacheConfig{Groups: []pagedkv.LayerGroup{group}}
	refused(
		t, errorOf(pagedkv.NewCache(config)), pagedkv.ErrInvalidArgument,
		"KeyRotation has 256 elements, not 32 * 32",
	)
}

func TestBatchesTakePaddedRows(t *testing.T) {
	cache := newCache(t, pagedkv.CacheConfig{})
	batch := begin(t, cache, step(open(t, cache), 2), step(open(t, cache), 1))
	defer batch.Close()
	refused(
		t, batch.SetFirstRows([]uint32{0}), pagedkv.ErrInvalidArgument,
		"1 entries; the batch has 2 sessions",
	)
	must(t, batch.SetFirstRows([]uint32{0, 1}))
	values := make([]float32, 4*64)
	for i := range values {
		values[i] = float32(i / 64)
	}
	k, v := f32(make([]float32, 4*64)).WithBatchStride(2*64), f32(values).WithBatchStride(2*64)
	must(t, batch.Write(0, k, v))
	refused(t, batch.Write(0, k, f32(values[1:]).WithBatchStride(2*64)), pagedkv.ErrInvalidArgument)
	q, out := make([]float32, 4*128), make([]float32, 4*128)
	must(t, batch.Attend(0, f32(q).WithBatchStride(2*128), f32(out).WithBatchStride(2*128), nil, nil))
	same(t, []float32{out[0], out[128], out[256], out[384]}, 0, 0.5, 0, 3)

	// The same as [2][sessions][heads][dim].
	apart := func(rows []float32, width int) pagedkv.Tensor {
		return f32(rows).WithStrides(2*width, 0).WithBatchStride(width)
	}
	for i := range values[128:192] {
		values[128+i] = 1
	}
	must(t, batch.Write(0, apart(make([]float32, 4*64), 64), apart(values, 64)))
	must(t, batch.Attend(0, apart(q, 128), apart(out, 128), nil, nil))
	same(t, []float32{out[0], out[256], out[384]}, 0, 0.5, 3)
	must(t, batch.SetFirstRows(nil))
}
