package defrag

import (
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/entropy"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func FuzzBest(f *testing.F) {
	f.Add(uint16(2000), []byte{})
	f.Add(uint16(50), []byte("gangs with members to spare"))
	f.Add(uint16(500), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Fuzz(func(t *testing.T, steps uint16, data []byte) {
		r := entropy.New(data, uint64(steps))
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
		result, err := CheapestMoves(p)
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
