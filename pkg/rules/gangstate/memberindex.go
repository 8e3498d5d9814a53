package gangstate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// index is the number that a member carries.
type index struct {
	known bool
	n     int
	// series is the series of the number: its controller and its kind of replica; empty if the
	// numbers are those of the whole gang.
	series string
}

// seriesIndexes are the labels that number the pods of one controller.
var seriesIndexes = [...]string{batchv1.JobCompletionIndexAnnotation, v1alpha1.TrainingReplicaIndexLabel, appsv1.PodIndexLabel}

// memberIndex is what the number of a member may be, under any key.
var memberIndex = keys.ValueOf(v1alpha1.NetworkTopologyIndexAnnotation)

func indexOf(pod *v1.Pod) index {
	if n, ok := readIndex(pod.Annotations[v1alpha1.NetworkTopologyIndexAnnotation]); ok {
		return index{known: true, n: n}
	}
	if n, ok := readIndex(pod.Labels[v1alpha1.LeaderWorkerIndexLabel]); ok {
		return index{known: true, n: n}
	}
	for _, label := range seriesIndexes {
		if n, ok := readIndex(pod.Labels[label]); ok {
			series := pod.Labels[v1alpha1.TrainingReplicaTypeLabel] + "/" + roleOf(pod)
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
				series = owner.Name + "/" + series
			}
			return index{known: true, n: n, series: series}
		}
	}
	return index{}
}

func readIndex(value string) (int, bool) {
	if value == "" {
		return 0, false // an error costs more than all else here
	}
	n, err := memberIndex.ParseInteger(value)
	return n, err == nil
}

// compareRanks orders members of one priority: 1. those without an index first, which lead the
// others if there are any; 2. series; 3. index.
func compareRanks(a, b index) int {
	return cmp.Or(compareLast(a.known, b.known), compareNatural(a.series, b.series), cmp.Compare(a.n, b.n))
}

// compareNatural orders names with the numbers in them by value: train-2 before train-10.
func compareNatural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if !isDigit(a[i]) || !isDigit(b[j]) {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		x, y := digits(a[i:]), digits(b[j:])
		i, j = i+len(x), j+len(y)
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), cmp.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the digits that a text begins with.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// numbering is the series in which members of a gang are numbered. A series that has no members for a while keeps its
// place, or the others would change their numbers: until another one begins.
type numbering map[string]*numbered

// numbered is how many numbers a series has had, and how many members have one now.
type numbered struct{ size, members int }

func (n numbering) add(i index) {
	if !i.known {
		return
	}
	if n[i.series] == nil {
		maps.DeleteFunc(n, func(_ string, of *numbered) bool { return of.members == 0 })
		n[i.series] = &numbered{}
	}
	of := n[i.series]
	of.size, of.members = max(of.size, i.n+1), of.members+1
}

func (n numbering) remove(i index) {
	if i.known {
		n[i.series].members--
	}
}

// number records the number that a member carries.
func (s *Gangs) number(m *member) {
	m.gang.numbers.add(m.index)
	key := v1alpha1.NetworkTopologyIndexAnnotation
	if _, ok := readIndex(m.pod.Annotations[key]); !ok && m.pod.Annotations[key] != "" {
		s.report(m.gang, m.pod, &m.gang.toldOf, KeyProblem{
			Key: key, Value: m.pod.Annotations[key], Want: memberIndex.Want, Used: "what the labels of the pod say, or its place in order",
		})
	}
}

// bases returns where each series begins: one comes after the other by name.
func (n numbering) bases() map[string]int {
	bases, next := make(map[string]int, len(n)), 0
	for _, series := range slices.SortedFunc(maps.Keys(n), compareNatural) {
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
		if !m.index.known {
			continue
		}
		ok = true
		n := bases[m.index.series] + m.index.n
		for used[n] {
			n++ // two members carry one number, or another series is in the way
		}
		used[n], rank[m.uid()] = true, n
		next = max(next, n+1)
	}
	for _, m := range members {
		if _, ranked := rank[m.uid()]; !ranked {
			rank[m.uid()] = next
			next++
		}
	}
	return rank, ok
}
