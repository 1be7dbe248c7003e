package pagedkv

import (
	"reflect"
	"time"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

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

// fill copies the numbers of a config to C's fields of the same names.
func (n *numbers) fill(config, out any) {
	from, to := reflect.ValueOf(config).Elem(), reflect.ValueOf(out).Elem()
	for i := 0; i < from.NumField(); i++ {
		name, value := from.Type().Field(i).Name, from.Field(i)
		switch field := to.FieldByName(name); value.Kind() {
		case reflect.Int:
			field.SetUint(uint64(n.u32(name, int(value.Int()))))
		case reflect.Int32:
			field.SetInt(value.Int())
		case reflect.Uint64:
			field.SetUint(value.Uint())
		case reflect.Bool:
			field.SetUint(uint64(flag(value.Bool())))
		}
	}
}

// reported returns what the library wrote into a struct of C.
func reported[T any](out any) (figures T) {
	to, from := reflect.ValueOf(&figures).Elem(), reflect.ValueOf(out).Elem()
	for i := 0; i < to.NumField(); i++ {
		field, value := to.Field(i), from.FieldByName(to.Type().Field(i).Name)
		if field.Kind() == reflect.Bool {
			field.SetBool(value.Uint() != 0)
		} else {
			field.Set(value.Convert(field.Type()))
		}
	}
	return figures
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
	n.fill(given, out)
	if given.KeyRotation != nil || given.ValueRotation != nil {
		out.RotationMatrices = placedMatrices(a, given.KeyRotation, given.ValueRotation)
	}
	out.LayerIndices = first(placed(a, given.LayerIndices))
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
	n.fill(c, out)
	directory, err := ended(op, "MemoryDirectory", c.MemoryDirectory)
	if n.err == nil {
		n.err = err
	}
	out.MemoryDirectory = first(placed(a, directory))
	if c.Prefix != nil {
		out.Prefix = sized(first(place[raw.PrefixConfig](a, 1)))
		n.fill(c.Prefix, out.Prefix)
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
	if c.Runner != nil {
		out.Runner = first(placed(a, []raw.Runner{hooks.runner(c.Runner, out.Threads)}))
		out.Threads = 0
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
