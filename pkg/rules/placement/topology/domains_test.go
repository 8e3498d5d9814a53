package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDomains(t *testing.T) {
	racks := []string{"b", "a", "", "b", "a", "-"}
	label := func(node int) (string, bool) { return racks[node], racks[node] != "-" }
	for sentence, c := range map[string]struct {
		within []int
		want   []Domain
	}{
		"no nodes, no domains": {nil, nil},
		"nodes that share a value are a domain; one without the label is in none": {
			[]int{0, 1, 3, 4, 5}, []Domain{{"a", []int{1, 4}}, {"b", []int{0, 3}}},
		},
		"an empty value is a value":              {[]int{2, 0}, []Domain{{"", []int{2}}, {"b", []int{0}}}},
		"only the given nodes count":             {[]int{3}, []Domain{{"b", []int{3}}}},
		"nodes stay in the order they are given": {[]int{4, 3, 1, 0}, []Domain{{"a", []int{4, 1}}, {"b", []int{3, 0}}}},
		"nodes without the label make none":      {[]int{5}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Domains(c.within, label)); diff != "" {
				t.Errorf("domains (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	tightest := func(need int) func([]Ranked) { return func(d []Ranked) { TightestFirst(d, need) } }
	domain := func(value string, slots int) Ranked { return Ranked{Domain: Domain{Value: value}, Slots: slots} }
	list := func() []Ranked {
		return []Ranked{domain("e", 1), domain("d", 8), domain("c", 4), domain("b", 0), domain("a", 8), domain("f", 2)}
	}
	for sentence, c := range map[string]struct {
		order func([]Ranked)
		want  []string
	}{
		"the tightest that takes the gang leads, then the roomiest of the rest": {tightest(3), []string{"c", "a", "d", "f", "e", "b"}},
		"all take a gang that needs nothing":                                    {tightest(0), []string{"b", "e", "f", "c", "a", "d"}},
		"none takes a gang that is too large":                                   {tightest(9), []string{"a", "d", "c", "f", "e", "b"}},
		"room for exactly the gang is enough":                                   {tightest(4), []string{"c", "a", "d", "f", "e", "b"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			domains := list()
			c.order(domains)
			var got []string
			for _, d := range domains {
				got = append(got, d.Value)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}
