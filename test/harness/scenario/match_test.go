package scenario

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCounts(t *testing.T) {
	cases := map[string]struct {
		in   string
		want []int // of 0 to 5
	}{
		"a number is exact":            {`3`, []int{3}},
		"a number may be a string":     {`"3"`, []int{3}},
		"a lower bound":                {`">=4"`, []int{4, 5}},
		"an upper bound":               {`"<=1"`, []int{0, 1}},
		"a range has both ends":        {`"2..4"`, []int{2, 3, 4}},
		"a choice":                     {`"0 or 4"`, []int{0, 4}},
		"a choice may hold a bound":    {`"0 or >=4"`, []int{0, 4, 5}},
		"words are refused":            {`"some"`, nil},
		"an open range is refused":     {`"2.."`, nil},
		"an empty string is refused":   {`""`, nil},
		"a number and junk is refused": {`"3x"`, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var count Count
			if err := json.Unmarshal([]byte(c.in), &count); (err != nil) != (c.want == nil) {
				t.Fatalf("error %v, want one: %t", err, c.want == nil)
			} else if err != nil {
				return
			}
			var got []int
			for n := range 6 {
				if count.Has(n) {
					got = append(got, n)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("numbers that are right (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGlob(t *testing.T) {
	cases := map[string]struct {
		pattern, name string
		want          bool
	}{
		"no namespace means default":          {"a-*", "default/a-0", true},
		"no namespace is not every namespace": {"a-*", "team/a-0", false},
		"a star stays in its part":            {"*", "default/a", true},
		"every namespace":                     {"*/*", "team/a", true},
		"the whole name has to match":         {"a", "default/ab", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := glob(c.pattern, c.name); got != c.want {
				t.Errorf("glob(%q, %q) = %t, want %t", c.pattern, c.name, got, c.want)
			}
		})
	}
}
