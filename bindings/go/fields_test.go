package pagedkv

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// Every field that a caller sets reaches C. A new C field fails here until a config has it.

type noBlocks struct{}

func (noBlocks) Read(int, []uint32, []uint32, []byte) error { return nil }
func (noBlocks) Write(int, []uint32, []byte) error          { return nil }

// numbered sets each plain field to its own number or text, and flags to true.
func numbered(t *testing.T, config any) {
	t.Helper()
	value := reflect.ValueOf(config).Elem()
	for i := 0; i < value.NumField(); i++ {
		field := value.Field(i)
		switch field.Kind() {
		case reflect.Int, reflect.Int32:
			field.SetInt(int64(3 + i))
		case reflect.Int64:
			field.SetInt(int64(3+i) * int64(time.Second)) // all of them are durations
		case reflect.Uint32, reflect.Uint64:
			field.SetUint(uint64(3 + i))
		case reflect.Float32:
			field.SetFloat(float64(3+i) + 0.5)
		case reflect.Bool:
			field.SetBool(true)
		case reflect.String:
			field.SetString("text of " + value.Type().Field(i).Name)
		case reflect.Struct:
			if _, is := field.Interface().(Secret); is && field.IsZero() {
				field.Set(reflect.ValueOf(NewSecret("text of " + value.Type().Field(i).Name)))
			}
		}
	}
}

// arrived checks that no field of a struct for C is zero, except those that are left out.
func arrived(t *testing.T, placed any, leftOut string) {
	t.Helper()
	out := reflect.ValueOf(placed).Elem()
	seen := map[uint64]string{}
	for i := 0; i < out.NumField(); i++ {
		name := out.Type().Field(i).Name
		if strings.Contains(" Reserved "+leftOut+" ", " "+name+" ") {
			continue
		}
		value := out.Field(i)
		if value.IsZero() {
			t.Errorf("%s.%s is zero, as if it had not been given", out.Type(), name)
		}
		var number uint64
		switch {
		case value.CanUint():
			number = value.Uint()
		case value.CanInt():
			number = uint64(value.Int())
		}
		if other, there := seen[number]; there && number > 2 {
			t.Errorf("%s.%s is %d, which is what %s was given", out.Type(), name, number, other)
		}
		seen[number] = name
	}
}

func TestFieldsOfACache(t *testing.T) {
	check(t, library.Load(""))
	config, group, prefix := CacheConfig{}, LayerGroup{}, PrefixConfig{}
	numbered(t, &config)
	numbered(t, &group)
	numbered(t, &prefix)
	group.LayerIndices = make([]uint32, group.Layers)
	group.KeyRotation = make([]float32, group.KeyDim*group.KeyDim)
	group.ValueRotation = make([]float32, group.ValueDim*group.ValueDim)
	config.Groups, config.Prefix = []LayerGroup{group, group}, &prefix
	config.Logger = func(LogLevel, string) {}
	config.BlockIO = noBlocks{}
	config.Clock = func() time.Duration { return 0 }
	for _, runner := range []Runner{nil, Goroutines(2)} {
		config.Runner = runner
		a, err := newArena(config.arenaSize())
		check(t, err)
		var ends hooks
		out, err := config.place("test", a, &ends)
		check(t, err)
		// The store is opened with the cache; Go has no allocator for C.
		leftOut := "Allocator Store"
		if runner == nil {
			leftOut += " Runner"
		} else {
			leftOut += " Threads"
			given := out.Runner
			if given.Threads != uint32(config.Threads) || given.Run == 0 || given.User == 0 {
				t.Errorf("the runner is %+v", out.Runner)
			}
		}
		arrived(t, out, leftOut)
		for _, g := range unsafe.Slice(out.Groups, out.GroupCount) {
			g := g
			arrived(t, &g, "")
		}
		arrived(t, out.Prefix, "")
		if out.Logger.Log == 0 || out.Logger.User == 0 {
			t.Errorf("the logger is %+v", out.Logger)
		}
		if out.Clock.NowMs == 0 || out.Clock.User == 0 {
			t.Errorf("the clock is %+v", out.Clock)
		}
		ends.forget()
		a.free()
	}
}

func TestFieldsOfSessionsPoolsAndFiles(t *testing.T) {
	check(t, library.Load(""))
	session := SessionConfig{}
	pool := PoolConfig{}
	file := FileConfig{Fingerprint: []byte("one"), SecretKey: NewSecret(make([]byte, 20))}
	numbered(t, &session)
	numbered(t, &pool)
	numbered(t, &file)
	arrived(t, session.place(), "")
	placed, err := pool.place("test")
	check(t, err)
	arrived(t, placed, "Allocator") // which Go does not have
	compute := ComputeConfig{}
	numbered(t, &compute)
	placedCompute, err := compute.place("test")
	check(t, err)
	arrived(t, placedCompute, "Allocator Runner") // hooks are for caches
	arrived(t, file.place(), "")
}

func TestFieldsOfStores(t *testing.T) {
	check(t, library.Load(""))
	config := StoreConfig{Fingerprint: []byte("one"), SecretKey: NewSecret(make([]byte, 20))}
	numbered(t, &config)
	a, err := newArena(config.arenaSize())
	check(t, err)
	defer a.free()
	arrived(t, config.place(a, &raw.Store{}), "")
	arrived(t, config.placeDirectory(), "")
	if library.LoadRedis() != nil {
		t.Skip("PAGEDKV_REDIS_LIBRARY names no library: the fields of Redis were NOT looked at")
	}
	redis := RedisConfig{TLS: &TLSConfig{}}
	numbered(t, &redis)
	numbered(t, redis.TLS)
	placed, texts, err := redis.place("test")
	check(t, err)
	if len(texts) != 9 {
		t.Errorf("%d texts are wiped", len(texts))
	}
	arrived(t, placed, "")
}

func TestFieldsOfAttention(t *testing.T) {
	check(t, library.Load(""))
	params := AttentionParams{
		ALiBiSlopes: make([]float32, 4), SinkLogits: make([]float32, 4),
	}
	numbered(t, &params)
	mask := Mask{
		Bytes: make([]byte, 200), FirstPositions: make([]int64, 2), Positions: make([]int64, 3),
		HeadFactors: make([]float32, 4),
	}
	choice, outputs := ChosenBlocks{}, AttentionOutputs{}
	numbered(t, &mask)
	numbered(t, &choice)
	numbered(t, &outputs)
	// One choice of up to three rows for each sequence.
	choice.Lists = make([]uint32, 2*2*choice.ListBlocks)
	outputs.LSE = make([]float32, 12)
	outputs.Chosen = make([]uint32, 2*2*choice.TopBlocks)
	outputs.Masses = make([]float32, 2*4*outputs.MassBlocks)
	params.Mask, params.ChosenBlocks = &mask, &choice
	params.KVHeadWindows, params.KVHeadSinkTokens = make([]uint32, 2), make([]uint32, 2)
	batch := batchRows{lengths: []uint32{1, 2}}
	placed, err := params.place("test", batch, 4, 2)
	check(t, err)
	arrived(t, placed, "")
	arrived(t, placed.Mask, "")
	arrived(t, placed.ChosenBlocks, "")
	others, err := outputs.place("test", &params, batch, 4, 2)
	check(t, err)
	arrived(t, others, "")
	arrived(t, others.BlockOutputs, "")

	sequences := Sequences{
		QueryHeads: 3, QueryLengths: []uint32{1, 2}, KVLengths: []uint64{4, 5},
		BlockTables: make([]uint32, 8), BlockTableStride: 4,
		FirstRows: make([]uint32, 2), QueryPositions: make([]int64, 3),
	}
	list, rows, err := sequences.place("test")
	check(t, err)
	arrived(t, list, "")
	if rows.total() != 3 {
		t.Errorf("%d rows", rows.total())
	}

	view := KVView{K: MemoryOf(make([]byte, 27)), V: MemoryOf(make([]byte, 28))}
	numbered(t, &view)
	view.KBlockStride, view.KRowStride, view.KHeadStride = 21, 22, 23
	view.VBlockStride, view.VRowStride, view.VHeadStride = 24, 25, 26
	view.KeyRotation = MemoryOf(make([]float32, view.KeyDim*view.KeyDim))
	view.ValueRotation = MemoryOf(make([]float32, view.ValueDim*view.ValueDim))
	kv, err := view.place("test")
	check(t, err)
	arrived(t, kv, "")
	arrived(t, kv.RotationMatrices, "")
}
