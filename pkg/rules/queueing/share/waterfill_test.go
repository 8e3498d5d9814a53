package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFill(t *testing.T) {
	const all = math.MaxInt64
	for sentence, c := range map[string]struct {
		capacity int64
		claims   []Claim
		want     []int64
	}{
		"equal weights share equally":                  {9, []Claim{{1, 0, 99}, {1, 0, 99}, {1, 0, 99}}, []int64{3, 3, 3}},
		"by weight":                                    {8, []Claim{{3, 0, 99}, {1, 0, 99}}, []int64{6, 2}},
		"what one does not ask for the others have":    {9, []Claim{{1, 0, 10}, {1, 0, 5}, {1, 0, 1}}, []int64{4, 4, 1}},
		"where all is met the rest is left":            {9, []Claim{{1, 0, 3}, {1, 0, 2}}, []int64{3, 2}},
		"a least is had before anything is shared":     {8, []Claim{{1, 6, 99}, {1, 0, 99}}, []int64{6, 2}},
		"and is part of the share":                     {12, []Claim{{1, 2, 99}, {1, 0, 99}}, []int64{6, 6}},
		"leasts beyond the capacity are shared":        {4, []Claim{{1, 6, 99}, {1, 6, 99}, {1, 0, 99}}, []int64{2, 2, 0}},
		"a unit too many goes to the heaviest":         {4, []Claim{{1, 0, 99}, {2, 0, 99}}, []int64{1, 3}},
		"of equals to the first":                       {5, []Claim{{1, 0, 99}, {1, 0, 99}}, []int64{3, 2}},
		"nothing is shared as nothing":                 {0, []Claim{{1, 0, 99}}, []int64{0}},
		"a capacity that is overcommitted is nothing":  {-5, []Claim{{1, 2, 99}}, []int64{0}},
		"nobody has nothing":                           {5, nil, []int64{}},
		"amounts may be as large as there are numbers": {all, []Claim{{1, 0, all}, {math.MaxInt32, all / 2, all}, {1, 0, all}}, []int64{4294967294, 9223372028264841219, 4294967294}},
		"and leasts too":                               {all, []Claim{{1, all, all}, {1, all, all}}, []int64{all/2 + 1, all / 2}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, WaterFill(c.capacity, c.claims)); diff != "" {
				t.Errorf("given (-want +got):\n%s", diff)
			}
		})
	}
}

func randomClaims(r *rand.Rand) (int64, []Claim) {
	var claims []Claim
	for range 1 + r.IntN(6) {
		least := r.Int64N(6) * r.Int64N(2)
		claims = append(claims, Claim{Weight: 1 + r.Int64N(7), Least: least, Most: least + r.Int64N(20)})
	}
	return r.Int64N(60), claims
}

// naive hands out the capacity unit by unit.
func naive(capacity int64, claims []Claim) []int64 {
	given := make([]int64, len(claims))
	from, to := make([]int64, len(claims)), make([]int64, len(claims))
	least := int64(0)
	for i, c := range claims {
		from[i], to[i] = c.Least, c.Most
		least += c.Least
	}
	if least > capacity {
		clear(from)
		for i, c := range claims {
			to[i] = c.Least
		}
		least = 0
	}
	copy(given, from)
	for left := capacity - least; left > 0; left-- {
		best := -1
		for i, c := range claims {
			if given[i] < to[i] && (best < 0 || c.Weight*(given[best]+1) > claims[best].Weight*(given[i]+1)) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		given[best]++
	}
	return given
}

// TestFillHolds compares with filling unit by unit, and with what has to hold of any fair filling: it
// gives as much as can be given, more weight never means less, and the order does not matter.
func TestFillHolds(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		capacity, claims := randomClaims(r)
		got := WaterFill(capacity, claims)
		where := fmt.Sprintf("seed %d: %d among %v", seed, capacity, claims)
		if diff := cmp.Diff(naive(capacity, claims), got); diff != "" {
			t.Fatalf("%s (-unit by unit +got):\n%s", where, diff)
		}
		sum, claimed := int64(0), int64(0)
		for i, c := range claims {
			sum += got[i]
			claimed += c.Most
		}
		if sum != min(capacity, claimed) {
			t.Errorf("%s: %d is given, want %d", where, sum, min(capacity, claimed))
		}
		heavier := slices.Clone(claims)
		i := r.IntN(len(claims))
		heavier[i].Weight += 1 + r.Int64N(3)
		if more := WaterFill(capacity, heavier); more[i] < got[i] {
			t.Errorf("%s: with weight %d claim %d has %d instead of %d", where, heavier[i].Weight, i, more[i], got[i])
		}
		richer := WaterFill(capacity+1, claims)
		for i := range claims {
			if richer[i] < got[i] && sum >= 0 && !short(capacity, claims) {
				t.Errorf("%s: of one unit more claim %d has %d instead of %d", where, i, richer[i], got[i])
			}
		}
		turned := slices.Clone(claims)
		slices.Reverse(turned)
		back := WaterFill(capacity, turned)
		slices.Reverse(back)
		for i := range claims {
			if d := back[i] - got[i]; d < -1 || d > 1 {
				t.Errorf("%s: turned round claim %d has %d instead of %d", where, i, back[i], got[i])
			}
		}
	}
}

// short reports whether there is not enough for every Least.
func short(capacity int64, claims []Claim) bool {
	for _, c := range claims {
		capacity -= c.Least
	}
	return capacity < 0
}

func BenchmarkFill(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	claims := make([]Claim, 1000)
	for i := range claims {
		claims[i] = Claim{Weight: 1 + r.Int64N(10), Most: r.Int64N(1 << 40)}
	}
	for b.Loop() {
		WaterFill(1<<45, claims)
	}
}
