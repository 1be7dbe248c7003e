package pagedkv_test

import (
	"encoding/binary"
	"sync"

	pagedkv "github.com/pagedkv/pagedkv/bindings/go"
)

// device has the blocks of opaque groups, of which each slot has the history of its
// token.
type device struct {
	sync.Mutex
	slots [][]uint64 // by group
}

const slotsPerBlock = 16

func (d *device) Read(group int, blocks, tokens []uint32, to []byte) error {
	d.Lock()
	defer d.Unlock()
	for i, block := range blocks {
		for j := 0; j < int(tokens[i]); j++ {
			binary.LittleEndian.PutUint64(
				to[8*(i*slotsPerBlock+j):], d.slots[group][int(block)*slotsPerBlock+j])
		}
	}
	return nil
}

func (d *device) Write(group int, blocks []uint32, from []byte) error {
	d.Lock()
	defer d.Unlock()
	for i, block := range blocks {
		for j := 0; j < slotsPerBlock; j++ {
			d.slots[group][int(block)*slotsPerBlock+j] =
				binary.LittleEndian.Uint64(from[8*(i*slotsPerBlock+j):])
		}
	}
	return nil
}

// compute writes the histories of a step's new tokens, as kernels would.
func (d *device) compute(batch *pagedkv.Batch, fresh []uint64) error {
	for group := range d.slots {
		from, to, err := batch.BlockCopies(group)
		if err != nil {
			return err
		}
		slots, err := batch.SlotMapping(group)
		if err != nil {
			return err
		}
		d.Lock()
		for i := range from {
			old := d.slots[group][int(from[i])*slotsPerBlock:][:slotsPerBlock]
			copy(d.slots[group][int(to[i])*slotsPerBlock:], old)
		}
		for i, slot := range slots {
			d.slots[group][slot] = fresh[i]
		}
		d.Unlock()
	}
	return nil
}

// compareDevice compares the slots of a session with its tokens.
func (p *player) compareDevice(session *pagedkv.Session) {
	want := histories(p.textOf(session))
	p.device.Lock()
	defer p.device.Unlock()
	for group, slots := range p.device.slots {
		table, err := session.BlockTable(group)
		p.status(object{}, err)
		for i, history := range want {
			block := table[i/slotsPerBlock]
			if block != pagedkv.NoBlockID {
				p.equal("history", slots[int(block)*slotsPerBlock+i%slotsPerBlock], history)
			}
		}
	}
}
