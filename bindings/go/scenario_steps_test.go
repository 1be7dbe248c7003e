package pagedkv_test

import (
	"time"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

var actions = map[string]func(*player, object){
	"plan": func(p *player, o object) {
		group := pagedkv.AllGroups
		if o["group"] != nil {
			group = number(o, "group")
		}
		plan, err := pagedkv.ComputeSizes(p.config, group)
		if p.status(o, err) {
			p.fields(o, plan)
		}
	},
	"open": func(p *player, o object) {
		session, err := p.cache.OpenSession(
			&pagedkv.SessionConfig{Priority: int32(number(o, "priority")), Salt: text(o, "salt"),
				PrefixUse: pagedkv.PrefixUse(p.enums[text(o, "prefix_use")])},
		)
		if p.status(o, err) {
			p.sessions[text(o, "session")] = session
		}
	},
	"step": (*player).step,
	"length": func(p *player, o object) {
		length, err := p.session(o).Length()
		if p.status(o, err) {
			p.equal("length", length, o["length"])
		}
	},
	"tokens": func(p *player, o object) {
		want := spans(o["tokens"])
		got := make([]int32, len(want))
		if p.status(o, p.session(o).Tokens(number(o, "first"), got)) {
			p.equal("tokens", got, want)
		}
	},
	"table": (*player).table,
	"read":  (*player).read,
	"info": func(p *player, o object) {
		info, err := p.session(o).Info()
		if p.status(o, err) {
			p.fields(o, info)
		}
	},
	"stats": func(p *player, o object) {
		stats, err := p.cache.Stats()
		if p.status(o, err) {
			p.fields(o, stats)
		}
	},
	"pool_stats": func(p *player, o object) {
		stats, err := p.cache.PoolStats(pagedkv.AllGroups)
		if p.status(o, err) {
			p.fields(o, stats)
		}
	},
	"prefix_stats": func(p *player, o object) {
		stats, err := p.cache.Prefix().StatsOfAll()
		if o["all"] == nil {
			stats, err = p.cache.Prefix().Stats(text(o, "salt"))
		}
		if p.status(o, err) {
			p.fields(o, stats)
		}
	},
	"prefix_clear": func(p *player, o object) {
		if o["all"] != nil {
			p.status(o, p.cache.Prefix().ClearAll())
		} else {
			p.status(o, p.cache.Prefix().Clear(text(o, "salt")))
		}
	},
	"admit": func(p *player, o object) {
		matched, err := p.session(o).Admit(spans(o["tokens"]), 0)
		if p.status(o, err) {
			p.equal("matched", matched, o["matched"])
		}
	},
	"reserve": func(p *player, o object) { p.status(o, p.session(o).Reserve(number(o, "tokens"))) },
	"trim":    func(p *player, o object) { p.status(o, p.session(o).Trim(number(o, "length"))) },
	"fork": func(p *player, o object) {
		fork, err := p.session(o).Fork()
		if p.status(o, err) {
			p.sessions[text(o, "into")] = fork
		}
	},
	"suspend": func(p *player, o object) { p.status(o, p.session(o).Suspend()) },
	"resume": func(p *player, o object) {
		length, total, err := p.session(o).Resume()
		if p.status(o, err) {
			p.equal("length", length, o["length"])
			p.equal("total", total, o["total"])
		}
	},
	"victims": (*player).victims,
	"hint":    (*player).hint,
	"clock": func(p *player, o object) {
		p.now.Store(int64(number(o, "now_ms")))
	},
	"flush": func(p *player, o object) {
		queued, err := p.cache.Store().Flush(time.Minute)
		if p.status(o, err) {
			p.equal("queued", queued, 0)
		}
	},
	"wait": func(p *player, o object) {
		cached, err := p.cache.Store().WaitForPrefetch("", spans(o["tokens"]), time.Minute)
		if p.status(o, err) {
			p.equal("cached", cached, o["cached"])
		}
	},
	"snapshot": func(p *player, o object) {
		frozen, err := p.session(o).Snapshot()
		if p.status(o, err) {
			p.snapshots[text(o, "into")] = frozen
		}
	},
	"fork_snapshot": func(p *player, o object) {
		session, err := p.snapshots[text(o, "snapshot")].Fork()
		if p.status(o, err) {
			p.sessions[text(o, "into")] = session
		}
	},
	"close_snapshot": func(p *player, o object) {
		p.status(o, p.snapshots[text(o, "snapshot")].Close())
	},
	"close":    func(p *player, o object) { p.status(o, p.session(o).Close()) },
	"validate": func(p *player, o object) { p.status(o, p.cache.Validate()) },
}

func (p *player) session(o object) *pagedkv.Session { return p.sessions[text(o, "session")] }

func (p *player) table(o object) {
	table, err := p.session(o).BlockTable(number(o, "group"))
	if !p.status(o, err) {
		return
	}
	gone := 0
	for _, id := range table {
		if id == pagedkv.NoBlockID {
			gone++
		}
	}
	p.equal("entries", len(table), o["count"])
	p.equal("gone", gone, o["gone"])
	if shares, there := o["shares"].([]any); there {
		other, err := p.sessions[shares[0].(string)].BlockTable(number(o, "group"))
		p.status(object{}, err)
		same := 0
		for i := range table {
			if i < len(other) && table[i] == other[i] && table[i] != pagedkv.NoBlockID {
				same++
			}
		}
		p.equal("shared entries", same, shares[1])
	}
}

func (p *player) read(o object) {
	layer, begin, count := number(o, "layer"), number(o, "first"), number(o, "count")
	// a layer that does not exist must be refused, whatever its rows
	shape := p.layers[layer%len(p.layers)]
	k := make([]float32, count*shape.KVHeads*shape.KeyDim)
	v := make([]float32, count*shape.KVHeads*shape.ValueDim)
	if !p.status(o, p.session(o).Read(layer, begin, count, f32(k), f32(v))) {
		return
	}
	for _, entry := range o["values"].([]any) {
		e := entry.([]any)
		rows, dim := k, shape.KeyDim
		if e[0] == "v" {
			rows, dim = v, shape.ValueDim
		}
		row, head, d := int(e[1].(float64))-begin, int(e[2].(float64)), int(e[3].(float64))
		p.near("value", rows[(row*shape.KVHeads+head)*dim+d], e[4])
	}
}

func (p *player) hint(o object) {
	var hint pagedkv.Hint
	for name, value := range o["hint"].(map[string]any) {
		if name == "duration_ms" {
			hint.Duration = time.Duration(value.(float64)) * time.Millisecond
		} else {
			p.fill(&hint, object{name: value})
		}
	}
	if hint.End == 0 && hint.Action != pagedkv.HintExpectReturn {
		hint.End = pagedkv.ToEnd
	}
	var result pagedkv.HintResult
	var err error
	if o["session"] != nil {
		result, err = p.session(o).Hint(hint)
	} else {
		result, err = p.cache.Prefix().Hint(text(o, "salt"), spans(o["tokens"]), hint)
	}
	if p.status(o, err) {
		p.fields(o, result)
	}
}

func (p *player) victims(o object) {
	var steps []pagedkv.Step
	for _, entry := range o["sessions"].([]any) {
		e := entry.([]any)
		steps = append(steps, step(p.sessions[e[0].(string)], int(e[1].(float64))))
	}
	ids, err := p.cache.ChooseVictims(steps...)
	if !p.status(o, err) {
		return
	}
	got := []any{}
	for _, id := range ids {
		for name, session := range p.sessions {
			if session.ID() == id {
				got = append(got, name)
			}
		}
	}
	p.equal("victims", got, o["victims"])
}

// textOf returns a session's tokens, UnknownToken for unknown ids.
func (p *player) textOf(session *pagedkv.Session) []int32 {
	length, err := session.Length()
	if err != nil {
		return nil // the step's own error is more precise
	}
	tokens := make([]int32, length)
	p.status(object{}, session.Tokens(0, tokens))
	return tokens
}

func (p *player) step(o object) {
	var steps []pagedkv.Step
	var ids []int32
	var all []uint64
	for _, entry := range o["sessions"].([]any) {
		e := object(entry.(map[string]any))
		session, fresh := p.session(e), spans(e["tokens"])
		text := p.textOf(session)
		all = append(all, histories(append(text, fresh...))[len(text):]...)
		ids = append(ids, fresh...)
		steps = append(steps, step(session, len(fresh)))
	}
	batch, err := p.cache.Begin(steps...)
	if err != nil {
		p.status(o, err)
		return
	}
	defer batch.Close()
	var params *pagedkv.AttentionParams
	if given, there := o["params"].(map[string]any); there {
		params = &pagedkv.AttentionParams{}
		p.fill(params, given)
	}
	outs, err := p.layersOf(batch, all, params)
	if err == nil && p.device != nil {
		err = p.device.compute(batch, all)
	}
	if err == nil {
		if text(o, "end") == "abort" {
			err = batch.Abort()
		} else {
			err = batch.Commit(ids)
		}
	}
	if !p.status(o, err) {
		return
	}
	for _, s := range steps {
		if p.device != nil {
			p.compareDevice(s.Session)
		}
	}
	wanted, _ := o["out"].([]any)
	for _, entry := range wanted {
		e := entry.([]any)
		row := int(e[0].(float64))
		layer := int(e[1].(float64))
		head := int(e[2].(float64))
		d := int(e[3].(float64))
		shape := p.layers[layer]
		p.near("out", outs[layer][(row*shape.QueryHeads+head)*shape.ValueDim+d], e[4])
	}
}

// layersOf writes and attends every layer.
func (p *player) layersOf(
	batch *pagedkv.Batch, all []uint64, params *pagedkv.AttentionParams,
) ([][]float32, error) {
	if p.config.Storage == pagedkv.StorageExternal {
		return nil, nil
	}
	outs := make([][]float32, len(p.layers))
	for layer, shape := range p.layers {
		k := rowsOf(all, kindK, layer, shape.KVHeads, shape.KeyDim)
		v := rowsOf(all, kindV, layer, shape.KVHeads, shape.ValueDim)
		q := rowsOf(all, kindQ, layer, shape.QueryHeads, shape.KeyDim)
		outs[layer] = make([]float32, len(all)*shape.QueryHeads*shape.ValueDim)
		if err := batch.Write(layer, f32(k), f32(v)); err != nil {
			return nil, err
		}
		out := f32(outs[layer])
		if err := batch.Attend(layer, f32(q), out, params, nil); err != nil {
			return nil, err
		}
	}
	return outs, nil
}
