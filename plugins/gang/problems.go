package gang

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// problems are the bad values that are still to be reported. It is safe for concurrent use.
type problems struct {
	mu sync.Mutex
	// order is the order in which they came; pending has them once each. A pod or PodGroup that is gone takes
	// its problems along, so there are no more than existing objects have.
	order   []problem
	pending map[problem]gang.Report
}

// problem is a bad value of a pod, or of a PodGroup, by its UID.
type problem struct {
	of         types.UID
	key, value string
}

// note adds problems to report.
func (p *problems) note(reports []gang.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range reports {
		one := problem{of: r.Object.UID, key: r.Problem.Key, value: r.Problem.Value}
		if r.Pod != nil {
			one.of = r.Pod.UID
		}
		if _, known := p.pending[one]; !known {
			p.order = append(p.order, one)
		}
		p.pending[one] = r
	}
}

// problemsAtOnce is how many problems are reported at a time: the recorder of events drops what
// comes faster than it writes.
const problemsAtOnce = 100

// take removes and returns problems to report.
func (p *problems) take() []gang.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []gang.Report
	n := 0
	for ; n < len(p.order) && len(list) < problemsAtOnce; n++ {
		if r, ok := p.pending[p.order[n]]; ok {
			list = append(list, r)
			delete(p.pending, p.order[n])
		}
	}
	p.order = p.order[n:]
	return list
}

// forget drops the problems of a pod, or a PodGroup, that is gone.
func (p *problems) forget(of types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(one problem) bool {
		if one.of == of {
			delete(p.pending, one)
		}
		return one.of == of
	})
}
