package pagedkv

import (
	"runtime"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Memory is the memory of K or V in a KVView: a slice of the caller or a cache's memory.
type Memory struct {
	data  unsafe.Pointer
	bytes uint64
	cache *Cache // the owner of the memory, or nil
}

// MemoryOf returns the memory of a slice of float32 (F32), uint16 (F16, BF16) or bytes (the other
// types).
func MemoryOf[T float32 | uint16 | byte](slice []T) Memory {
	var element T
	return Memory{
		data:  unsafe.Pointer(first(slice)),
		bytes: uint64(len(slice)) * uint64(unsafe.Sizeof(element)),
	}
}

func (m Memory) floats() []float32 {
	return unsafe.Slice((*float32)(m.data), m.bytes/4)
}

// Pointer is the address of the memory. That of a cache is read-only, and valid while the cache is
// open.
func (m Memory) Pointer() unsafe.Pointer { return m.data }

// KVView is K and V of one layer in paged memory. Strides count elements of the type; of Int8 and
// Int4, whose rows end in scales, bytes. Block b begins at b * block stride; in it, with
// LayoutPlain, element (token t, head h, dim d) is at t * row stride + h * head stride + d.
type KVView struct {
	DType      DType
	ValueDType DType // 0: DType.
	Layout     Layout
	BlockSize  int
	KVHeads    int
	KeyDim     int
	ValueDim   int
	Blocks     uint64 // How many blocks the memory holds.
	K          Memory
	Latent     bool   // V is the first ValueDim dims of K.
	V          Memory // The zero Memory with Latent.

	KBlockStride, KRowStride, KHeadStride int64
	VBlockStride, VRowStride, VHeadStride int64

	Rotation Rotation // How the rows in the memory are rotated; those of callers never are.
	// Experimental: orthogonal float32 matrices that rotate rows instead of Rotation,
	// [KeyDim][KeyDim] and [ValueDim][ValueDim]; the zero Memory: K, or V, is not rotated.
	KeyRotation, ValueRotation Memory
}

// Sequences is a ragged set of sequences over one KVView.
type Sequences struct {
	QueryHeads       int
	QueryLengths     []uint32 // Query rows of each; they are the last positions of the sequence.
	KVLengths        []uint64 // Positions of each, the queries' own included.
	BlockTables      []uint32 // [sequences][BlockTableStride] block ids.
	BlockTableStride int
	// The first row of each sequence: after the padding of a padded batch, or counted over all rows.
	// nil: rows follow each other, or have no padding before them.
	FirstRows []uint32
	// The position of each query, if they are not the last ones.
	QueryPositions []int64
}

// KVView returns the memory of one layer of a cache with StorageInternal, read-only, for engines
// with their own kernels.
func (c *Cache) KVView(layer int) (KVView, error) {
	const op = "kv view"
	number, err := unsigned32(op, "layer", layer)
	if err != nil {
		return KVView{}, err
	}
	r := sized(&raw.KVView{})
	err = call(op, c, func() raw.Status { return raw.CacheGetKVView(c.handle, number, r) })
	if err != nil {
		return KVView{}, err
	}
	view := KVView{
		DType: DType(r.DType), ValueDType: DType(r.ValueDType), Layout: Layout(r.Layout),
		BlockSize: int(r.BlockSize),
		KVHeads:   int(r.KVHeads), KeyDim: int(r.KeyDim), ValueDim: int(r.ValueDim),
		Blocks: r.Blocks, Latent: r.Latent != 0,
		KBlockStride: r.KBlockStride, KRowStride: r.KRowStride, KHeadStride: r.KHeadStride,
		VBlockStride: r.VBlockStride, VRowStride: r.VRowStride, VHeadStride: r.VHeadStride,
		Rotation: Rotation(r.Rotation),
	}
	if m := r.RotationMatrices; m != nil && m.Key != nil {
		view.KeyRotation = Memory{unsafe.Pointer(m.Key), matrixBytes(view.KeyDim), c}
	}
	if m := r.RotationMatrices; m != nil && m.Value != nil {
		view.ValueRotation = Memory{unsafe.Pointer(m.Value), matrixBytes(view.ValueDim), c}
	}
	view.K = Memory{r.K, r.KBytes, c}
	if r.V != nil {
		view.V = Memory{r.V, r.VBytes, c}
	}
	return view, nil
}

func matrixBytes(dim int) uint64 { return 4 * uint64(dim) * uint64(dim) }

// shape returns C's view without its memory.
func (v *KVView) shape(n *numbers) *raw.KVView {
	return sized(&raw.KVView{
		DType: int32(v.DType), ValueDType: int32(v.ValueDType), Layout: int32(v.Layout),
		BlockSize: n.u32("BlockSize", v.BlockSize), KVHeads: n.u32("KVHeads", v.KVHeads),
		KeyDim: n.u32("KeyDim", v.KeyDim), ValueDim: n.u32("ValueDim", v.ValueDim),
		Blocks: v.Blocks, Latent: flag(v.Latent),
	})
}

// place returns C's view.
func (v *KVView) place(op string) (*raw.KVView, error) {
	n := numbers{op: op}
	out := v.shape(&n)
	out.K, out.V = v.K.data, v.V.data
	out.KBytes, out.VBytes = v.K.bytes, v.V.bytes
	out.KBlockStride, out.KRowStride, out.KHeadStride = v.KBlockStride, v.KRowStride, v.KHeadStride
	out.VBlockStride, out.VRowStride, out.VHeadStride = v.VBlockStride, v.VRowStride, v.VHeadStride
	v.rotate(out, &n)
	return out, n.err
}

// rotate sets the rotation of C's view.
func (v *KVView) rotate(out *raw.KVView, n *numbers) {
	n.matrix("KeyRotation", int(v.KeyRotation.bytes/4), v.KeyDim)
	n.matrix("ValueRotation", int(v.ValueRotation.bytes/4), int(out.ValueDim))
	out.Rotation = int32(v.Rotation)
	if v.KeyRotation.data != nil || v.ValueRotation.data != nil {
		out.RotationMatrices = sized(&raw.RotationMatrices{
			Key: (*float32)(v.KeyRotation.data), Value: (*float32)(v.ValueRotation.data),
		})
	}
}

func (s *Sequences) place(op string) (*raw.KVSequences, batchRows, error) {
	n := numbers{op: op}
	count := len(s.QueryLengths)
	rows := batchRows{s.QueryLengths, s.FirstRows}
	out := sized(&raw.KVSequences{
		QueryHeads: n.u32("QueryHeads", s.QueryHeads), Count: uint64(count),
		QueryLengths: first(s.QueryLengths), KVLengths: first(s.KVLengths),
		BlockTables:      first(s.BlockTables),
		BlockTableStride: uint64(n.u32("BlockTableStride", s.BlockTableStride)),
		FirstRows:        first(s.FirstRows), QueryPositions: first(s.QueryPositions),
	})
	if n.err != nil {
		return nil, rows, n.err
	}
	if len(s.KVLengths) != count || len(s.BlockTables) < count*s.BlockTableStride {
		return nil, rows, misuse(
			op, ErrInvalidArgument,
			"%d sequences have %d KVLengths and %d entries of BlockTables, with a stride of %d",
			count, len(s.KVLengths), len(s.BlockTables), s.BlockTableStride,
		)
	}
	if s.FirstRows != nil && len(s.FirstRows) != count {
		return nil, rows, misuse(
			op, ErrInvalidArgument, "%d sequences have %d FirstRows", count, len(s.FirstRows),
		)
	}
	if s.QueryPositions != nil && len(s.QueryPositions) != rows.total() {
		return nil, rows, misuse(
			op, ErrInvalidArgument, "%d queries have %d QueryPositions", rows.total(),
			len(s.QueryPositions),
		)
	}
	return out, rows, nil
}

// reading runs a call that reads or writes the memory of a view. If the memory is a cache's, Close
// returns ErrBusy meanwhile.
func (v *KVView) reading(use func() error) error {
	for _, memory := range []Memory{v.K, v.V, v.KeyRotation, v.ValueRotation} {
		if memory.cache != nil {
			// Close never waits for a lock, so taking two locks is safe.
			memory.cache.memory.RLock()
			defer memory.cache.memory.RUnlock()
			if _, err := memory.cache.Info(); err != nil {
				return err // its cache is closed, and the memory is freed
			}
		}
	}
	return use()
}

// writing is reading for a call that writes to the memory.
func (v *KVView) writing(op string, use func() error) error {
	if v.K.cache != nil || v.V.cache != nil {
		return misuse(op, ErrInvalidArgument, "the memory is a cache's, which only batches may write")
	}
	return v.reading(use)
}

// NoSlot is the slot of a padding row: nothing is written or read for it.
const NoSlot int64 = raw.NoSlot

// planned returns C's view with its strides, and the bytes of K and V.
func (v *KVView) planned(op string) (*raw.KVView, uint64, error) {
	n := numbers{op: op}
	out := v.shape(&n)
	if out.ValueDim == 0 {
		out.ValueDim = out.KeyDim
	}
	v.rotate(out, &n)
	if n.err != nil {
		return nil, 0, n.err
	}
	// C writes to this struct, so it must not contain pointers to Go's memory. It gets copies of
	// the matrices.
	key, value := v.KeyRotation.floats(), v.ValueRotation.floats()
	a, err := newArena(matricesSpace(len(key), len(value)))
	if err != nil {
		return nil, 0, err
	}
	defer a.free()
	if out.RotationMatrices != nil {
		out.RotationMatrices = placedMatrices(a, key, value)
	}
	// C computes only sizes here, and no address in Go's memory.
	var bytes uint64
	err = call(op, v, func() raw.Status { return raw.KVViewInit(out, &bytes) })
	out.RotationMatrices = nil
	return out, bytes, err
}

// Init lays out K and V in contiguous memory, as in a cache of the same Layout. It sets the
// strides, and ValueDim and ValueDType if they are 0, and returns the bytes of K and V. With a
// slice of that size it also sets K and, without Latent, V.
func (v *KVView) Init(memory []byte) (int, error) {
	const op = "init"
	var (
		out   *raw.KVView
		bytes uint64
	)
	err := v.reading(func() (err error) {
		out, bytes, err = v.planned(op)
		return err
	})
	if err != nil {
		return 0, err
	}
	if memory != nil && uint64(len(memory)) < bytes {
		return 0, misuse(
			op, ErrInvalidArgument, "K and V take %d bytes, the slice has %d", bytes, len(memory),
		)
	}
	v.ValueDim, v.ValueDType = int(out.ValueDim), DType(out.ValueDType)
	v.KBlockStride, v.KRowStride, v.KHeadStride = out.KBlockStride, out.KRowStride, out.KHeadStride
	v.VBlockStride, v.VRowStride, v.VHeadStride = out.VBlockStride, out.VRowStride, out.VHeadStride
	if memory != nil {
		v.K, v.V = MemoryOf(memory[:bytes]), Memory{}
		if !v.Latent { // V ends where the memory does
			v.V = MemoryOf(memory[bytes-out.VBytes : bytes])
		}
	}
	return int(bytes), nil
}

// Write stores rows of K and V of the last positions of each sequence, or of their QueryPositions:
// k is [rows][KV heads][key dim], v [rows][KV heads][value dim]. The zero Tensor for v: it is in
// the dims of k.
func (c *Compute) Write(view KVView, sequences Sequences, k, v Tensor) error {
	const op = "kv write"
	return view.writing(op, func() error {
		return c.copyPositions(op, raw.KVWrite, view, sequences, k, v)
	})
}

// Read copies K and V of the positions that Write writes to rows of k and v; either may be the zero
// Tensor.
func (c *Compute) Read(view KVView, sequences Sequences, k, v Tensor) error {
	return view.reading(func() error {
		return c.copyPositions("kv read", raw.KVRead, view, sequences, k, v)
	})
}

func (c *Compute) copyPositions(
	op string,
	copyPositions func(
		raw.Compute, *raw.KVView, *raw.KVSequences, *raw.Tensor, *raw.Tensor,
	) raw.Status,
	view KVView, sequences Sequences, k, v Tensor,
) error {
	kv, err := view.place(op)
	if err != nil {
		return err
	}
	given, _, err := sequences.place(op)
	if err != nil {
		return err
	}
	return call(op, &view, func() raw.Status {
		defer runtime.KeepAlive(c)
		return copyPositions(c.raw(), kv, given, k.place(), v.place())
	})
}

// WriteSlots stores a row of k and v in each slot, block * BlockSize + offset; those of NoSlot are
// padding.
func (c *Compute) WriteSlots(view KVView, slots []int64, k, v Tensor) error {
	const op = "kv write"
	return view.writing(op, func() error {
		return c.copySlots(op, raw.KVWriteSlots, view, slots, k, v)
	})
}

// ReadSlots copies K and V of each slot to a row of k and v; either may be the zero Tensor.
func (c *Compute) ReadSlots(view KVView, slots []int64, k, v Tensor) error {
	return view.reading(func() error {
		return c.copySlots("kv read", raw.KVReadSlots, view, slots, k, v)
	})
}

func (c *Compute) copySlots(
	op string,
	copySlots func(raw.Compute, *raw.KVView, uint64, *int64, *raw.Tensor, *raw.Tensor) raw.Status,
	view KVView, slots []int64, k, v Tensor,
) error {
	kv, err := view.place(op)
	if err != nil {
		return err
	}
	return call(op, &view, func() raw.Status {
		defer runtime.KeepAlive(c)
		return copySlots(c.raw(), kv, uint64(len(slots)), first(slots), k.place(), v.place())
	})
}

// Write is Compute.Write on all CPUs.
func Write(view KVView, sequences Sequences, k, v Tensor) error {
	return (*Compute)(nil).Write(view, sequences, k, v)
}

// Read is Compute.Read on all CPUs.
func Read(view KVView, sequences Sequences, k, v Tensor) error {
	return (*Compute)(nil).Read(view, sequences, k, v)
}

// WriteSlots is Compute.WriteSlots on all CPUs.
func WriteSlots(view KVView, slots []int64, k, v Tensor) error {
	return (*Compute)(nil).WriteSlots(view, slots, k, v)
}

// ReadSlots is Compute.ReadSlots on all CPUs.
func ReadSlots(view KVView, slots []int64, k, v Tensor) error {
	return (*Compute)(nil).ReadSlots(view, slots, k, v)
}
