package placement

import (
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/entropy"
)

func FuzzSolve(f *testing.F) {
	f.Add(uint8(0), []byte{})
	f.Add(uint8(0xff), []byte("several gangs, each with a topology of its own"))
	f.Add(uint8(0x5a), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Fuzz(func(t *testing.T, flags uint8, data []byte) {
		s := shape{
			classes: 1 + int(flags&3), resources: 1 + int(flags>>2&1), gangs: 1 + int(flags>>3&3),
			topology: flags&32 != 0, crossing: flags&64 != 0, roles: flags&128 != 0,
		}
		c, p := s.from(entropy.New(data, uint64(flags)))
		r := solve(t, c, p)
		// If racks cross zones, even equal members may be placed badly.
		if s.classes == 1 && !s.crossing && !r.Complete && solvable(c, p) {
			t.Errorf("on the cluster %+v\nthe problem %+v\nhas a solution; got %+v", *c, p, r)
		}
	})
}
