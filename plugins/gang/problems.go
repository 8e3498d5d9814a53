package gang

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// problems are the bad values that wait to be reported. It bounds the reports, which client-go's recorder does not: to
// the recorder each version of a pod is another object, and while it is behind it drops the reports of others.
//   - Per gang and key one report a minute about its pods, which says of how many more of them it holds.
//   - In all problemsAtOnce for each call of take, one of each namespace before two of any.
//
// It is safe for concurrent use.
type problems struct {
	mu sync.Mutex
	// order is the order in which they came; pending has them once each. A pod or PodGroup that is gone takes
	// its problems along, so there are no more than existing objects have.
	order   []problem
	pending map[problem]map[types.UID]gangstate.Report
	// quiet is until when no more is reported of a problem that pods of a gang have.
	quiet map[problem]time.Time
}

// problem is what is reported together: of a PodGroup a bad value, of pods what the pods of a gang have at one key, or
// those of a controller that are in none.
type problem struct {
	gang gangspec.Key
	key  string
	// object and value are those of a PodGroup; empty for pods.
	object types.UID
	value  string
}

// complaint is a bad value to report, and on how many more pods of the gang the key is bad.
type complaint struct {
	gangstate.Report
	more int
}

// problemsAtOnce is how many problems are reported at a time, and repeatedAfter how long pods of a gang are not
// reported anew for a key.
const (
	problemsAtOnce = 5
	repeatedAfter  = time.Minute
)

// note adds problems to report.
func (p *problems) note(reports []gangstate.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range reports {
		one, of := problem{gang: r.Gang, key: r.Problem.Key}, r.Object.UID
		if r.Pod != nil {
			of = r.Pod.UID
			if one.gang == (gangspec.Key{}) {
				one.gang = standIn(r.Pod)
			}
		} else {
			one.object, one.value = r.Object.UID, r.Problem.Value
		}
		if p.pending[one] == nil {
			p.order = append(p.order, one)
			p.pending[one] = map[types.UID]gangstate.Report{}
		}
		p.pending[one][of] = r
	}
}

// standIn returns what a pod that is in no gang is reported with: its controller, or nothing but itself. No gang has
// such a name.
func standIn(pod *v1.Pod) gangspec.Key {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return gangspec.Key{Namespace: pod.Namespace, Name: ref.Kind + "/" + ref.Name}
	}
	return gangspec.Key{Namespace: pod.Namespace, Name: "Pod/" + pod.Name}
}

// take removes and returns problems to report now.
func (p *problems) take(now time.Time) []complaint {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.quiet, func(_ problem, until time.Time) bool { return !now.Before(until) })
	var list []complaint
	served := map[string]bool{} // namespaces
	for _, again := range []bool{false, true} {
		p.order = slices.DeleteFunc(p.order, func(one problem) bool {
			_, quiet := p.quiet[one]
			if quiet || len(list) == problemsAtOnce || !again && served[one.gang.Namespace] {
				return false
			}
			served[one.gang.Namespace] = true
			list = append(list, p.complain(one))
			if one.object == "" {
				p.quiet[one] = now.Add(repeatedAfter)
			}
			delete(p.pending, one)
			return true
		})
	}
	return list
}

// complain returns what to report of a problem: on the first pod by name. mu is held.
func (p *problems) complain(one problem) complaint {
	reports := slices.Collect(maps.Values(p.pending[one]))
	first := slices.MinFunc(reports, func(a, b gangstate.Report) int {
		if a.Pod == nil || b.Pod == nil {
			return 0
		}
		return cmp.Or(cmp.Compare(len(a.Pod.Name), len(b.Pod.Name)), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return complaint{Report: first, more: len(reports) - 1}
}

// forget drops the problems of a pod, or a PodGroup, that is gone. Those of a reserve pod are reported on its
// Reservation, which stays.
func (p *problems) forget(of types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(one problem) bool {
		if r, ok := p.pending[one][of]; ok && (r.Pod == nil || !reservepods.IsReservePod(r.Pod)) {
			delete(p.pending[one], of)
		}
		if len(p.pending[one]) > 0 {
			return false
		}
		delete(p.pending, one)
		return true
	})
}
