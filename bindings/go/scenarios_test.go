package pagedkv_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// The scenarios of bindings/scenarios. README.md there says what every step means.

type object map[string]any

type scenario struct {
	Name      string
	Config    object
	Steps     []object
	Tolerance float64
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// enumValues are the values of C's enumerators in the headers, by name.
func enumValues(t *testing.T) map[string]int64 {
	headers, err := filepath.Glob("../../include/pagedkv/*.h")
	if err != nil || len(headers) == 0 {
		t.Fatal("no headers: ", err)
	}
	values, enumerator := map[string]int64{}, regexp.MustCompile(`\b(PKV_\w+) = (-?\d+)`)
	for _, header := range headers {
		text, err := os.ReadFile(header)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range enumerator.FindAllStringSubmatch(string(text), -1) {
			values[found[1]], _ = strconv.ParseInt(found[2], 10, 64)
		}
	}
	return values
}

// field finds the field of a struct that C calls name.
func field(t *testing.T, value reflect.Value, name string) reflect.Value {
	t.Helper()
	found := value.FieldByNameFunc(
		func(own string) bool { return strings.EqualFold(own, strings.ReplaceAll(name, "_", "")) },
	)
	if !found.IsValid() {
		t.Fatalf("%s has no field for %s", value.Type(), name)
	}
	return found
}

type player struct {
	t         *testing.T
	enums     map[string]int64
	cache     *pagedkv.Cache
	config    pagedkv.CacheConfig
	layers    []pagedkv.LayerGroup // by layer
	tolerance float64
	sessions  map[string]*pagedkv.Session
	snapshots map[string]*pagedkv.Snapshot
	device    *device      // nil if no group is opaque
	now       atomic.Int64 // the cache's clock, in milliseconds
}

// fill sets the fields of a Go struct from an object with C's names.
func (p *player) fill(into any, from object) {
	p.t.Helper()
	for name, given := range from {
		target := field(p.t, reflect.ValueOf(into).Elem(), name)
		switch value := given.(type) {
		case string:
			target.SetInt(p.enums[value])
		case []any:
			list := reflect.MakeSlice(target.Type(), len(value), len(value))
			for i, entry := range value {
				list.Index(i).Set(reflect.ValueOf(entry).Convert(target.Type().Elem()))
			}
			target.Set(list)
		case float64:
			if target.Kind() == reflect.Bool {
				target.SetBool(value != 0)
			} else {
				target.Set(reflect.ValueOf(value).Convert(target.Type()))
			}
		default:
			p.t.Fatalf("%s is a %T", name, given)
		}
	}
}

func (p *player) configure(given object) {
	groups, _ := given["groups"].([]any)
	delete(given, "groups")
	for _, group := range groups {
		p.config.Groups = append(p.config.Groups, pagedkv.LayerGroup{})
		p.fill(&p.config.Groups[len(p.config.Groups)-1], group.(map[string]any))
	}
	if prefix, there := given["prefix"].(map[string]any); there {
		delete(given, "prefix")
		p.config.Prefix = &pagedkv.PrefixConfig{}
		p.fill(p.config.Prefix, prefix)
	}
	if _, there := given["store"]; there {
		delete(given, "store")
		p.config.Store = &pagedkv.StoreConfig{Directory: filepath.Join(p.t.TempDir(), "store")}
	}
	p.fill(&p.config, given)
	p.config.Clock = func() time.Duration { return time.Duration(p.now.Load()) * time.Millisecond }
	if p.config.Groups[0].Kind == pagedkv.LayersOpaqueKV {
		p.device = &device{}
		for _, group := range p.config.Groups {
			p.device.slots = append(p.device.slots, make([]uint64, group.Blocks*slotsPerBlock))
		}
		p.config.BlockIO = p.device
	}
	p.layers = make([]pagedkv.LayerGroup, 64)
	next := 0
	for _, group := range p.config.Groups {
		if group.ValueDim == 0 {
			group.ValueDim = group.KeyDim
		}
		for i := 0; i < group.Layers; i++ {
			at := next + i
			if group.LayerIndices != nil {
				at = int(group.LayerIndices[i])
			}
			p.layers[at] = group
		}
		next += group.Layers
	}
	p.layers = p.layers[:next]
}

func number(o object, key string) int { value, _ := o[key].(float64); return int(value) }
func text(o object, key string) string {
	value, _ := o[key].(string)
	return value
}

func spans(given any) []int32 {
	ids := []int32{}
	for _, span := range given.([]any) {
		s := span.([]any)
		for i := uint64(0); i < uint64(s[2].(float64)); i++ {
			ids = append(ids, tokenID(uint64(s[0].(float64)), uint64(s[1].(float64))+i))
		}
	}
	return ids
}

func (p *player) equal(what string, got, want any) {
	p.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("%s: %v, expected %v", what, got, want)
	}
}

func (p *player) near(what string, got float32, want any) {
	p.t.Helper()
	if !(math.Abs(float64(got)-want.(float64)) <= p.tolerance) {
		p.t.Errorf("%s: %v, expected %v", what, got, want)
	}
}

// fields compares the fields that the step names.
func (p *player) fields(step object, figures any) {
	p.t.Helper()
	for name, want := range step["fields"].(map[string]any) {
		got := field(p.t, reflect.ValueOf(figures), name)
		switch value := want.(type) {
		case string:
			p.equal(name, got.Int(), p.enums[value])
		case float64:
			if got.Kind() == reflect.Bool {
				p.equal(name, got.Bool(), value != 0)
			} else {
				p.equal(name, got, int64(value))
			}
		}
	}
}

// status checks the status of a step; true if it succeeded as expected.
func (p *player) status(step object, err error) bool {
	p.t.Helper()
	want := text(step, "status")
	if want == "" && text(step, "do") == "resume" && step["blocks_short"] != nil {
		want = "PKV_OUT_OF_BLOCKS"
	}
	if want == "" {
		if err != nil {
			p.t.Fatalf("unexpected error: %v", err)
		}
		return true
	}
	var e *pagedkv.Error
	if !errors.As(err, &e) || !errors.Is(err, pagedkv.Status(p.enums[want])) {
		p.t.Fatalf("%v, expected %s", err, want)
	}
	if len(e.Sentence) < 10 || !strings.Contains(e.Sentence, " ") {
		p.t.Errorf("no sentence: %q", e.Sentence)
	}
	if short, there := step["blocks_short"]; there {
		p.equal("blocks_short", e.BlocksShort, short)
	}
	return false
}

func TestScenarios(t *testing.T) {
	var file struct{ Scenarios []scenario }
	readJSON(t, "../scenarios/scenarios.json", &file)
	if len(file.Scenarios) == 0 {
		t.Fatal("no scenarios")
	}
	for _, s := range file.Scenarios {
		s := s
		t.Run(s.Name, func(t *testing.T) {
			p := &player{
				t:         t,
				enums:     enumValues(t),
				tolerance: s.Tolerance,
				sessions:  map[string]*pagedkv.Session{},
				snapshots: map[string]*pagedkv.Snapshot{},
			}
			p.configure(s.Config)
			cache, err := pagedkv.NewCache(p.config)
			if err != nil {
				t.Fatal(err)
			}
			p.cache = cache
			for i, step := range s.Steps {
				do, known := actions[text(step, "do")]
				if !known {
					t.Fatalf("step %d is %q: this runner does not know it", i, text(step, "do"))
				}
				do(p, step)
				if t.Failed() {
					t.Fatalf("that was step %d of %q: %v", i, s.Name, step)
				}
			}
			if err := cache.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
