package pagedkv

import (
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// LayerGroup describes layers with the same shape. A plain model is one group; hybrid models have
// one for each shape or window. Fields that its Kind does not use stay 0: of states, heads, dims,
// types, Window, Sinks and Rotation; of opaque layers, KVHeads, types and Rotation.
type LayerGroup struct {
	Layers int
	Kind   LayerKind // What the layers keep; 0: keys and values.
	// The numbers of the layers in the model, Layers of them; nil: those after the previous
	// groups'.
	LayerIndices []uint32
	QueryHeads   int // A multiple of KVHeads.
	KVHeads      int
	KeyDim       int   // Head dim of queries and keys; a multiple of 16, 16 to 576.
	ValueDim     int   // Head dim of values and outputs; 0: KeyDim.
	DType        DType // Of stored keys and values; 0: F32.
	ValueDType   DType // Of stored values; 0: DType.
	// A token sees itself and Window - 1 before it; 0: all. Blocks that leave the window are freed.
	Window int
	// With a window: the first tokens, which stay visible and in memory.
	Sinks    int
	Blocks   uint64   // Blocks of this group. Set it in all groups, or MemoryBytes of the config.
	Rotation Rotation // How rows are rotated before they are stored.
	// Experimental: orthogonal matrices that rotate rows instead of Rotation, [KeyDim][KeyDim] and
	// [ValueDim][ValueDim]; nil: K, or V, is not rotated.
	KeyRotation, ValueRotation []float32
	// Of states and opaque layers: the bytes of a layer in a block, which are its state (see
	// Batch.States), or what the engine keeps of BlockSize tokens.
	LayerBytes uint64
	// With states: a step that reaches past a multiple of this many tokens keeps the state there,
	// for as long as the session has that token. A multiple of the block size; 0: no such
	// checkpoints.
	CheckpointTokens int
	// With states: a step of at most this many new tokens of a session keeps the state after each
	// of them until its Commit, so that Accept can end at any; up to 256.
	MaxDraftTokens int
}

// PrefixConfig makes a cache keep the blocks of ended sessions, for new ones that begin with the
// same tokens: see Prefix.
type PrefixConfig struct {
	Eviction Eviction // Which unused cached blocks are evicted first.
	// At most this many block positions are pinned at once; 0: a quarter of the largest group.
	MaxPinnedBlocks uint64
	// At most this many are cached of one salt, unless Prefix.SetQuota sets another limit; 0: none.
	MaxBlocksPerSalt uint64
	MaxEvents        int // How many events are kept for Prefix.Events; 0: none.
	// Parameters of the model that are used for each token: blocks are weighed by the time that they
	// save, which grows with their position. 0: all weigh the same.
	ActiveParameters uint64
}

// CacheConfig describes a cache. A field that is 0 has its default.
type CacheConfig struct {
	Storage   Storage // Default StoragePaged.
	Layout    Layout  // Default LayoutPacked.
	BlockSize int     // Tokens per block: a multiple of 16, 16 to 256. Default 16.
	Groups    []LayerGroup
	// A budget for K, V and states, instead of Blocks of all groups: every group gets the same
	// number of blocks, as many as fit; or, with GroupsShareMemory, as many as it needs at the time.
	MemoryBytes       uint64
	GroupsShareMemory bool // The groups share MemoryBytes.
	// Keys and values, and states, are in an unnamed file in this directory, and the OS keeps as much
	// of it in memory as fits: for texts that are larger than memory and read by chosen blocks. Needs
	// StoragePaged. "": memory.
	MemoryDirectory string
	// Threads that compute attention, including the caller's; 0: one per CPU.
	Threads   int
	ISA       ISA // Default: the best this CPU has.
	HugePages HugePages
	Prefault  bool // Touch all memory at once, so that no later call meets a page fault.
	// Blocks of each group reserved for sessions that already have tokens.
	WatermarkBlocks int
	Prefix          *PrefixConfig // nil: no prefix index
	Store           *StoreConfig  // nil: no store behind the memory.
	// A runner that computes attention instead of the library's threads; Threads then says how many
	// workers it has.
	Runner Runner
	Logger Logger // nil: silence.
	// Copies blocks of opaque groups, which need it.
	BlockIO BlockIO
	Clock   Clock // Of durations of hints, for tests; nil: the system's.
}

// numbers converts the numbers of a call or a config for C, and keeps the first error.
type numbers struct {
	op  string
	err error
}

func (n *numbers) u32(name string, number int) uint32 {
	value, err := unsigned32(n.op, name, number)
	if n.err == nil {
		n.err = err
	}
	return value
}

func (n *numbers) u64(name string, number int) uint64 {
	value, err := unsigned64(n.op, name, number)
	if n.err == nil {
		n.err = err
	}
	return value
}

// groups converts the index of a group, or AllGroups.
func (n *numbers) groups(group int) uint32 {
	if group == AllGroups {
		return raw.AllGroups
	}
	return n.u32("group", group)
}

// milliseconds rounds up, because 0 often means something else.
func (n *numbers) milliseconds(name string, d time.Duration) uint64 {
	if d < 0 && n.err == nil {
		n.err = misuse(n.op, ErrOutOfRange, "%s is %v, and must not be negative", name, d)
	}
	ms := uint64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// call is the function call, unless a number does not fit.
func (n *numbers) call(owner any, function func() raw.Status) error {
	if n.err != nil {
		return n.err
	}
	return call(n.op, owner, function)
}

// matrix checks the size of a matrix, which may be left out.
func (n *numbers) matrix(name string, elements, dim int) {
	if elements != 0 && elements != dim*dim && n.err == nil {
		n.err = misuse(
			n.op, ErrInvalidArgument, "%s has %d elements, not %d * %d", name, elements, dim, dim,
		)
	}
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

// placedMatrices copies the matrices of a rotation to an arena with matricesSpace bytes.
func placedMatrices(a *arena, key, value []float32) *raw.RotationMatrices {
	out := sized(first(place[raw.RotationMatrices](a, 1)))
	out.Key, out.Value = first(placed(a, key)), first(placed(a, value))
	return out
}

func matricesSpace(key, value int) int {
	return spaceFor[raw.RotationMatrices](1) + spaceFor[float32](key) + spaceFor[float32](value)
}

func (n *numbers) group(a *arena, given *LayerGroup, out *raw.LayerGroup) {
	if given.LayerIndices != nil && len(given.LayerIndices) != given.Layers && n.err == nil {
		n.err = misuse(
			n.op, ErrInvalidArgument, "a group has %d layers, and LayerIndices names %d",
			given.Layers, len(given.LayerIndices),
		)
	}
	valueDim := given.ValueDim
	if valueDim == 0 {
		valueDim = given.KeyDim
	}
	n.matrix("KeyRotation", len(given.KeyRotation), given.KeyDim)
	n.matrix("ValueRotation", len(given.ValueRotation), valueDim)
	out.Rotation = int32(given.Rotation)
	if given.KeyRotation != nil || given.ValueRotation != nil {
		out.RotationMatrices = placedMatrices(a, given.KeyRotation, given.ValueRotation)
	}
	out.Layers, out.Kind = n.u32("Layers", given.Layers), int32(given.Kind)
	out.LayerIndices = first(placed(a, given.LayerIndices))
	out.QueryHeads = n.u32("QueryHeads", given.QueryHeads)
	out.KVHeads = n.u32("KVHeads", given.KVHeads)
	out.KeyDim = n.u32("KeyDim", given.KeyDim)
	out.ValueDim = n.u32("ValueDim", given.ValueDim)
	out.DType, out.ValueDType = int32(given.DType), int32(given.ValueDType)
	out.Window = n.u32("Window", given.Window)
	out.Sinks = n.u32("Sinks", given.Sinks)
	out.Blocks = given.Blocks
	out.LayerBytes = given.LayerBytes
	out.CheckpointTokens = n.u32("CheckpointTokens", given.CheckpointTokens)
	out.MaxDraftTokens = n.u32("MaxDraftTokens", given.MaxDraftTokens)
}

func (n *numbers) prefix(a *arena, given *PrefixConfig) *raw.PrefixConfig {
	out := sized(first(place[raw.PrefixConfig](a, 1)))
	out.Eviction = int32(given.Eviction)
	out.MaxPinnedBlocks = given.MaxPinnedBlocks
	out.MaxBlocksPerSalt = given.MaxBlocksPerSalt
	out.MaxEvents = n.u32("MaxEvents", given.MaxEvents)
	out.ActiveParameters = given.ActiveParameters
	return out
}

func (c *CacheConfig) arenaSize() int {
	size := spaceFor[raw.CacheConfig](1) + spaceFor[raw.PrefixConfig](1) +
		spaceFor[raw.Logger](1) + spaceFor[raw.Runner](1) + spaceFor[raw.BlockIO](1) +
		spaceFor[raw.Clock](1) +
		spaceFor[raw.LayerGroup](len(c.Groups)) + c.Store.arenaSize() +
		spaceFor[byte](len(c.MemoryDirectory)+1)
	for i := range c.Groups {
		size += spaceFor[uint32](len(c.Groups[i].LayerIndices)) +
			matricesSpace(len(c.Groups[i].KeyRotation), len(c.Groups[i].ValueRotation))
	}
	return size
}

// place builds C's config in an arena of arenaSize bytes.
func (c *CacheConfig) place(op string, a *arena, hooks *hooks) (*raw.CacheConfig, error) {
	n := numbers{op: op}
	out := sized(first(place[raw.CacheConfig](a, 1)))
	groups := place[raw.LayerGroup](a, len(c.Groups))
	for i := range groups {
		n.group(a, &c.Groups[i], sized(&groups[i]))
	}
	out.GroupCount, out.Groups = uint32(len(groups)), first(groups)
	out.Storage, out.Layout = int32(c.Storage), int32(c.Layout)
	out.BlockSize = n.u32("BlockSize", c.BlockSize)
	out.MemoryBytes, out.GroupsShareMemory = c.MemoryBytes, flag(c.GroupsShareMemory)
	directory, err := ended(op, "MemoryDirectory", c.MemoryDirectory)
	if n.err == nil {
		n.err = err
	}
	out.MemoryDirectory = first(placed(a, directory))
	out.ISA, out.HugePages = int32(c.ISA), int32(c.HugePages)
	out.Prefault = flag(c.Prefault)
	out.WatermarkBlocks = n.u32("WatermarkBlocks", c.WatermarkBlocks)
	if c.Prefix != nil {
		out.Prefix = n.prefix(a, c.Prefix)
	}
	if c.Logger != nil {
		out.Logger = first(placed(a, []raw.Logger{hooks.logger(c.Logger)}))
	}
	if c.BlockIO != nil {
		out.BlockIO = first(placed(a, []raw.BlockIO{hooks.blockIO(c.BlockIO, c.Groups)}))
	}
	if c.Clock != nil {
		out.Clock = first(placed(a, []raw.Clock{hooks.clock(c.Clock)}))
	}
	threads := n.u32("Threads", c.Threads)
	if c.Runner != nil {
		out.Runner = first(placed(a, []raw.Runner{hooks.runner(c.Runner, threads)}))
	} else {
		out.Threads = threads
	}
	return out, n.err
}

// shape is the shape of a layer, to check rows and states.
type shape struct {
	queryHeads, kvHeads, keyDim, valueDim int
	group                                 int
	stateBytes                            uint64 // 0: the layer keeps no states
}

// shapes returns the shape of each layer of a config that the library accepted.
func (c *CacheConfig) shapes() []shape {
	total := 0
	for i := range c.Groups {
		total += c.Groups[i].Layers
	}
	shapes := make([]shape, total)
	before := 0
	for i := range c.Groups {
		g := &c.Groups[i]
		one := shape{g.QueryHeads, g.KVHeads, g.KeyDim, g.ValueDim, i, 0}
		if g.Kind == LayersStates {
			one.stateBytes = g.LayerBytes
		}
		if one.valueDim == 0 {
			one.valueDim = one.keyDim
		}
		for j := 0; j < g.Layers; j++ {
			if g.LayerIndices != nil {
				shapes[g.LayerIndices[j]] = one
			} else {
				shapes[before+j] = one
			}
		}
		before += g.Layers
	}
	return shapes
}
