package gpucards

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBest(t *testing.T) {
	for sentence, c := range map[string]struct {
		free   Free
		memory int64
		want   int // -1: none
	}{
		"the fullest card with room":             {Free{8192, 4096, 6144}, 3000, 1},
		"a card that it fills to the end":        {Free{8192, 4096}, 4096, 1},
		"the first of two that are alike":        {Free{8192, 8192}, 1, 0},
		"not one that is too full":               {Free{8192, 4096}, 4097, 0},
		"never two cards added up":               {Free{4096, 4096}, 8192, -1},
		"an oversold card has no room":           {Free{-1, 0, 1}, 1, 2},
		"a node without cards takes nobody":      {nil, 1, -1},
		"the largest amount there is":            {Free{math.MaxInt64}, math.MaxInt64, 0},
		"all cards are full":                     {Free{0, 0}, 1, -1},
		"the small card where cards differ":      {Free{81920, 16384}, 16384, 1},
		"the large card where the pod needs one": {Free{81920, 16384}, 16385, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, ok := c.free.Best(c.memory)
			if got != c.want || ok != (c.want >= 0) {
				t.Errorf("Best is %d, %t, want %d", got, ok, c.want)
			}
		})
	}
}

func TestLay(t *testing.T) {
	type result struct {
		Free  Free
		Cards []int
	}
	for sentence, c := range map[string]struct {
		sizes []int64
		pods  []Pod
		want  result
	}{
		"nobody": {[]int64{8}, nil, result{Free{8}, []int{}}},
		"pods stay on their cards, though they would fit on one": {
			[]int64{8, 8}, []Pod{{4, 0}, {4, 1}}, result{Free{4, 4}, []int{0, 1}},
		},
		"who has a card goes before who came earlier": {
			[]int64{8, 8}, []Pod{{6, Open}, {4, 0}}, result{Free{4, 2}, []int{1, 0}},
		},
		"open pods pack in the order given": {
			[]int64{8, 8}, []Pod{{4, Open}, {3, Open}, {5, Open}}, result{Free{1, 3}, []int{0, 0, 1}},
		},
		"and differently in another order": {
			[]int64{8, 8}, []Pod{{5, Open}, {3, Open}, {4, Open}}, result{Free{0, 4}, []int{0, 0, 1}},
		},
		"who may be anywhere counts everywhere": {
			[]int64{8, 8}, []Pod{{3, Anywhere}, {6, Open}}, result{Free{-1, -1}, []int{Anywhere, Anywhere}},
		},
		"an open pod that no card has room for counts everywhere": {
			[]int64{8, 8}, []Pod{{4, 0}, {4, 1}, {8, Open}}, result{Free{-4, -4}, []int{0, 1, Anywhere}},
		},
		"cards may be oversold already": {
			[]int64{8, 8}, []Pod{{8, 0}, {8, 0}, {8, Open}}, result{Free{-8, 0}, []int{0, 0, 1}},
		},
		"amounts beyond counting": {
			[]int64{1, 1}, []Pod{{math.MaxInt64, 0}, {math.MaxInt64, 0}, {math.MaxInt64, 0}}, result{Free{math.MinInt64, 1}, []int{0, 0, 0}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			free, cards := Lay(c.sizes, c.pods)
			if diff := cmp.Diff(c.want, result{free, cards}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLayAgainstOracle lays random pods on random cards, and checks with sums that are recomputed each time.
func TestLayAgainstOracle(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		sizes := make([]int64, 1+rng.IntN(4))
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(12)
		}
		pods := make([]Pod, rng.IntN(8))
		for i := range pods {
			pods[i] = Pod{Memory: 1 + rng.Int64N(9), Card: rng.IntN(len(sizes)+4) - 2}
			if pods[i].Card >= len(sizes) {
				pods[i].Card = Open // most of them
			}
			if rng.IntN(20) == 0 {
				pods[i].Memory = math.MaxInt64 - rng.Int64N(3)
			}
		}
		free, cards := Lay(sizes, pods)
		wantFree, wantCards := oracle(sizes, pods)
		if diff := cmp.Diff(wantCards, cards); diff != "" {
			t.Fatalf("seed %d: %v on cards of %v are on other cards (-want +got):\n%s", seed, pods, sizes, diff)
		}
		if diff := cmp.Diff(wantFree, free); diff != "" {
			t.Fatalf("seed %d: %v on cards of %v leave other memory (-want +got):\n%s", seed, pods, sizes, diff)
		}
	}
}

// oracle tries every card for each open pod, and adds up what is on a card each time.
func oracle(sizes []int64, pods []Pod) (Free, []int) {
	cards, placed := make([]int, len(pods)), make([]bool, len(pods))
	left := func(card int) *big.Int {
		sum := big.NewInt(sizes[card])
		for i, p := range pods {
			if placed[i] && (cards[i] == card || cards[i] == Anywhere) {
				sum.Sub(sum, big.NewInt(p.Memory))
			}
		}
		return sum
	}
	for i, p := range pods {
		cards[i], placed[i] = p.Card, p.Card != Open
	}
	for i, p := range pods {
		if placed[i] {
			continue
		}
		best := Anywhere
		for card := range sizes {
			if left(card).Cmp(big.NewInt(p.Memory)) >= 0 && (best == Anywhere || left(card).Cmp(left(best)) < 0) {
				best = card
			}
		}
		cards[i], placed[i] = best, true
	}
	free := make(Free, len(sizes))
	for card := range sizes {
		free[card] = math.MinInt64
		if sum := left(card); sum.IsInt64() {
			free[card] = sum.Int64()
		}
	}
	return free, cards
}
