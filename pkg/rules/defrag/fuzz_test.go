package defrag

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// entropy draws from the fuzzer's bytes, so that a small change of them is a small change
// of the problem; when they run out it goes on at random.
type entropy struct {
	bytes []byte
	rest  rand.Source
}

func (e *entropy) Uint64() uint64 {
	if len(e.bytes) < 2 {
		return e.rest.Uint64()
	}
	n := binary.LittleEndian.Uint16(e.bytes)
	e.bytes = e.bytes[2:]
	return uint64(n)<<48 | 1<<47
}

func FuzzBest(f *testing.F) {
	f.Add(uint16(2000), []byte{})
	f.Add(uint16(50), []byte("gangs with members to spare"))
	f.Add(uint16(500), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Fuzz(func(t *testing.T, steps uint16, data []byte) {
		r := rand.New(&entropy{bytes: data, rest: rand.NewPCG(1, uint64(steps))})
		p := random(r)
		for range r.IntN(20) {
			randomPods(r, &p, 1)
			p.Pods[len(p.Pods)-1].Kind = 100 + len(p.Pods)
		}
		p.Budget.Steps = 1 + int(steps)
		// Costs and breaks of any kind: the plan may be dear then, but never wrong.
		for i := range p.Groups {
			p.Groups[i].Break, p.Groups[i].Spare = Cost{int64(r.IntN(5))}, r.IntN(4)-1
		}
		p.Fits = func(int, int) bool { return true }
		result, err := Best(p)
		must.Succeed(t, err)
		if !result.Found {
			return
		}
		if err := p.check(result.Plan); err != nil {
			t.Errorf("%v: %+v", err, result.Plan)
		}
		runs(t, p, result.Plan, r)
	})
}
