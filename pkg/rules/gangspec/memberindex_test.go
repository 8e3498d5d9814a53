package gangspec

import (
	"math/rand/v2"
	"testing"
)

// TestCompareNaturalIsAnOrder: it has to be one, or sorting members could fail.
func TestCompareNaturalIsAnOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	word := func() string {
		b := make([]byte, rng.IntN(5))
		for i := range b {
			b[i] = "01-a9"[rng.IntN(5)]
		}
		return string(b)
	}
	for range 20000 {
		a, b, c := word(), word(), word()
		if CompareNatural(a, b) != -CompareNatural(b, a) || (CompareNatural(a, b) == 0) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
		if CompareNatural(a, b) < 0 && CompareNatural(b, c) < 0 && CompareNatural(a, c) >= 0 {
			t.Fatalf("%q before %q before %q", a, b, c)
		}
	}
}

func TestCompareNatural(t *testing.T) {
	order := []string{"", "a", "a-1", "a-2", "a-10", "a-10-b", "b", "r1", "r01", "r2", "r10", "rack"}
	for i, a := range order {
		for j, b := range order {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := CompareNatural(a, b); got != want && !(a == "r1" && b == "r01") && !(a == "r01" && b == "r1") {
				t.Errorf("comparing %q with %q: %d, want %d", a, b, got, want)
			}
		}
	}
	if CompareNatural("r1", "r01") == 0 {
		t.Error("r1 and r01 are one name")
	}
}
