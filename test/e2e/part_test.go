package e2e

import (
	"fmt"
	"testing"
)

// part is one of equal parts of a list, as a flag: 2/3 are the 2nd, the 5th, and so on. The zero value has nothing.
type part struct{ k, of int }

// String implements flag.Value.
func (p *part) String() string { return fmt.Sprintf("%d/%d", p.k, p.of) }

// Set implements flag.Value.
func (p *part) Set(text string) error {
	var got part
	if n, err := fmt.Sscanf(text, "%d/%d", &got.k, &got.of); err != nil || n != 2 || got.k < 1 || got.k > got.of {
		return fmt.Errorf("want a part such as 1/3, got %q", text)
	}
	*p = got
	return nil
}

// has reports whether the part has the element at an index of the list; a negative one is of none.
func (p *part) has(i int) bool { return i >= 0 && p.of > 0 && i%p.of == p.k-1 }

func TestPart(t *testing.T) {
	for i := range 7 {
		parts := 0
		for k := 1; k <= 3; k++ {
			var p part
			if err := p.Set(fmt.Sprintf("%d/3", k)); err != nil {
				t.Fatal(err)
			}
			if p.has(i) {
				parts++
			}
		}
		if none := (&part{}); parts != 1 || none.has(i) {
			t.Errorf("element %d is in %d of three parts, want 1, and not in the zero part", i, parts)
		}
	}
	for _, text := range []string{"", "1", "0/3", "4/3", "a/b"} {
		if err := (&part{}).Set(text); err == nil {
			t.Errorf("%q is a part, want an error", text)
		}
	}
}
