package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"k8s.io/utils/ptr"
)

// History is what happens to a cluster, step by step.
type History struct {
	Seed uint64 `json:"seed"`
	// Queued: the scheduler has FairShare.
	Queued bool   `json:"queued,omitempty"`
	Steps  []Step `json:"steps"`
}

// Step is one thing that happens. What it names may be gone by then: then nothing happens.
type Step struct {
	Node   *Node   `json:"node,omitempty"`
	Gang   *Gang   `json:"gang,omitempty"`
	Pod    *Pod    `json:"pod,omitempty"`
	Queue  *Queue  `json:"queue,omitempty"`
	Budget *Budget `json:"budget,omitempty"`
	Late   *Late   `json:"late,omitempty"`
	// Nodes by name.
	Cordon   string `json:"cordon,omitempty"`
	Uncordon string `json:"uncordon,omitempty"`
	Remove   string `json:"remove,omitempty"`
	// Pods by name: one that runs succeeds or fails; any is deleted.
	End    string `json:"end,omitempty"`
	Fail   string `json:"fail,omitempty"`
	Delete string `json:"delete,omitempty"`
	// DeleteGang deletes a gang, and its PodGroup.
	DeleteGang string `json:"deleteGang,omitempty"`
	// Restart: the scheduler ends, and another begins.
	Restart bool `json:"restart,omitempty"`
	// Kill: the scheduler dies at one of its next bindings and evictions of pods, after so many more. Another begins when
	// nothing happens any more.
	Kill *int `json:"kill,omitempty"`
	// Soon: the next step comes so many milliseconds later, not when nothing happens any more.
	Soon *int `json:"soon,omitempty"`
}

// Node is one with GPUs, in a rack.
type Node struct {
	Name string `json:"name"`
	Rack string `json:"rack"`
	GPUs int    `json:"gpus"`
}

// Gang is pods of one size.
type Gang struct {
	Name      string `json:"name"`
	Min       int    `json:"min"`
	Members   int    `json:"members"`
	GPUs      int    `json:"gpus"`
	Priority  int32  `json:"priority,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Required  bool   `json:"required,omitempty"`  // one rack
	Preferred bool   `json:"preferred,omitempty"` // likewise
	NonStrict bool   `json:"nonStrict,omitempty"`
	// PodGroup: it has one; else its pods have annotations.
	PodGroup bool `json:"podGroup,omitempty"`
	// Again: pods that are evicted are made again.
	Again bool `json:"again,omitempty"`
}

// Pod is one in no gang.
type Pod struct {
	Name     string `json:"name"`
	GPUs     int    `json:"gpus"`
	Priority int32  `json:"priority,omitempty"`
	Queue    string `json:"queue,omitempty"`
}

// Queue is one that is made or changed; a capability below 0 is none.
type Queue struct {
	Name       string `json:"name"`
	Parent     string `json:"parent,omitempty"`
	Weight     int32  `json:"weight"`
	Capability int    `json:"capability"`
}

// Budget protects the pods of a gang, or a pod: as many as there are may not be disrupted.
type Budget struct {
	Of string `json:"of"`
}

// Late is one more member of a gang.
type Late struct {
	Gang string `json:"gang"`
	Name string `json:"name"`
}

// makeHistory makes up a history.
func makeHistory(seed uint64) *History {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &History{Seed: seed, Queued: r.IntN(3) == 0}
	m := &maker{Rand: r, h: h}
	for range 2 + r.IntN(3) {
		m.node()
	}
	if h.Queued {
		for range 2 + r.IntN(2) {
			m.queue(fmt.Sprint("q", len(m.queues)))
		}
	}
	for range 8 + r.IntN(18) {
		m.step()
		if s := &h.Steps[len(h.Steps)-1]; s.Soon == nil && r.IntN(4) == 0 {
			s.Soon = ptr.To([]int{0, 0, 20, 150, 2000, 12000}[r.IntN(6)])
		}
	}
	return h
}

// maker makes up steps.
type maker struct {
	*rand.Rand
	h                           *History
	nodes, queues, gangs, names []string
	made                        int
}

func (m *maker) add(s Step) { m.h.Steps = append(m.h.Steps, s) }

func (m *maker) next(prefix string) string { m.made++; return fmt.Sprint(prefix, m.made) }

func (m *maker) one(of []string) string {
	if len(of) == 0 {
		return "none"
	}
	return of[m.IntN(len(of))]
}

func (m *maker) node() {
	n := &Node{Name: m.next("n"), Rack: fmt.Sprint("r", m.IntN(2)), GPUs: []int{1, 2, 4, 4, 8}[m.IntN(5)]}
	m.nodes = append(m.nodes, n.Name)
	m.add(Step{Node: n})
}

func (m *maker) queue(name string) {
	q := &Queue{Name: name, Weight: int32(1 + m.IntN(3)), Capability: -1}
	if m.IntN(3) == 0 {
		q.Capability = 1 + m.IntN(10)
	}
	if !slices.Contains(m.queues, name) {
		m.queues = append(m.queues, name)
	}
	m.add(Step{Queue: q})
}

func (m *maker) anyQueue() string {
	if m.h.Queued {
		return m.one(m.queues)
	}
	return ""
}

func (m *maker) priority() int32 { return int32([]int{0, 0, 0, 10, 100}[m.IntN(5)]) }

// step makes up one of the kinds of steps.
func (m *maker) step() {
	switch n := m.IntN(100); {
	case n < 30:
		g := &Gang{Name: m.next("g"), Min: 1 + m.IntN(5), GPUs: []int{1, 1, 1, 2, 2, 4}[m.IntN(6)], Priority: m.priority(), Queue: m.anyQueue(),
			Required: m.IntN(3) == 0, Preferred: m.IntN(6) == 0, NonStrict: m.IntN(8) == 0, PodGroup: m.IntN(2) == 0, Again: m.IntN(3) == 0}
		g.Members = g.Min
		switch m.IntN(4) {
		case 0:
			g.Members += 1 + m.IntN(3)
		case 1:
			g.Members -= m.IntN(2)
		}
		m.gangs = append(m.gangs, g.Name)
		for i := range g.Members {
			m.names = append(m.names, fmt.Sprint(g.Name, "-", i))
		}
		m.add(Step{Gang: g})
	case n < 48:
		p := &Pod{Name: m.next("p"), GPUs: []int{1, 1, 2, 2, 4}[m.IntN(5)], Priority: m.priority(), Queue: m.anyQueue()}
		m.names = append(m.names, p.Name)
		m.add(Step{Pod: p})
	case n < 54:
		m.node()
	case n < 57:
		m.add(Step{Cordon: m.one(m.nodes)})
	case n < 60:
		m.add(Step{Uncordon: m.one(m.nodes)})
	case n < 62:
		m.add(Step{Remove: m.one(m.nodes)})
	case n < 70:
		m.add(Step{End: m.one(m.names)})
	case n < 74:
		m.add(Step{Fail: m.one(m.names)})
	case n < 80:
		m.add(Step{Delete: m.one(m.names)})
	case n < 86:
		l := &Late{Gang: m.one(m.gangs), Name: m.next("late")}
		m.names = append(m.names, l.Name)
		m.add(Step{Late: l})
	case n < 91:
		m.add(Step{DeleteGang: m.one(m.gangs)})
	case n < 94:
		m.add(Step{Budget: &Budget{Of: m.one(append(slices.Clone(m.gangs), m.names...))}})
	case n < 97 && m.h.Queued:
		m.queue(m.one(m.queues))
	case n < 97:
		m.add(Step{Restart: true})
	default:
		m.add(Step{Kill: ptr.To(m.IntN(4)), Soon: ptr.To(0)})
	}
}
