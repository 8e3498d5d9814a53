package gangstate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// numbering is the series in which members of a gang are numbered. A series that has no members for a while keeps its
// place, or the others would change their numbers: until another one begins.
type numbering map[string]*numbered

// numbered is how many numbers a series has had, and how many members have one now.
type numbered struct{ size, members int }

func (n numbering) add(i gangspec.Index) {
	if !i.Known {
		return
	}
	if n[i.Series] == nil {
		maps.DeleteFunc(n, func(_ string, of *numbered) bool { return of.members == 0 })
		n[i.Series] = &numbered{}
	}
	of := n[i.Series]
	of.size, of.members = max(of.size, i.N+1), of.members+1
}

func (n numbering) remove(i gangspec.Index) {
	if i.Known {
		n[i.Series].members--
	}
}

// number records the number that a member carries.
func (s *Gangs) number(m *member) {
	m.gang.numbers.add(m.index)
	if problem := gangspec.IndexProblem(m.pod); problem != nil {
		s.report(m.gang, m.pod, &m.gang.toldOf, *problem)
	}
}

// bases returns where each series begins: one comes after the other by name.
func (n numbering) bases() map[string]int {
	bases, next := make(map[string]int, len(n)), 0
	for _, series := range slices.SortedFunc(maps.Keys(n), gangspec.CompareNatural) {
		bases[series] = next
		next += n[series].size
	}
	return bases
}

// ranks numbers the members of a gang, which are in order, for a layout: by the indexes that they
// carry, one series after the other, and then those without. ok is false if no member carries any:
// then a member that replaces a lost one does not have its number.
func ranks(members []*member, n numbering) (rank map[types.UID]int, ok bool) {
	rank = make(map[types.UID]int, len(members))
	next := 0
	bases, used := n.bases(), map[int]bool{}
	for _, m := range members {
		if !m.index.Known {
			continue
		}
		ok = true
		n := bases[m.index.Series] + m.index.N
		for used[n] {
			n++ // two members carry one number, or another series is in the way
		}
		used[n], rank[m.uid()] = true, n
		next = max(next, n+1)
	}
	number := func(counts func(*member) bool) {
		for _, m := range members {
			if _, ranked := rank[m.uid()]; !ranked && counts(m) {
				rank[m.uid()] = next
				next++
			}
		}
	}
	number(func(m *member) bool { return m.placed() || m.coming() })
	number(func(*member) bool { return true }) // such as those with scheduling gates
	return rank, ok
}
