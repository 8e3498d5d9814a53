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
	Queued bool `json:"queued,omitempty"`
	// Grace is how many seconds pods take to end that the scheduler evicts.
	Grace int    `json:"grace,omitempty"`
	Steps []Step `json:"steps"`
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
	// Clear: all pods, PodGroups and budgets are deleted, and no node is cordoned.
	Clear bool `json:"clear,omitempty"`
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
	Waits     string `json:"waits,omitempty"` // its waiting time
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

// Queue is one that is made or changed.
type Queue struct {
	Name       string `json:"name"`
	Parent     string `json:"parent,omitempty"`
	Weight     int32  `json:"weight"`
	Capability *int   `json:"capability,omitempty"`
	Deserved   *int   `json:"deserved,omitempty"`
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

// makeHistory makes up a history: a cluster, and in it one situation after the other, with anything else in between.
func makeHistory(seed uint64) *History {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &History{Seed: seed, Queued: r.IntN(5) < 2, Grace: []int{0, 10}[r.IntN(2)]}
	m := &maker{Rand: r, h: h}
	for range 2 + r.IntN(2) {
		m.node()
	}
	if h.Queued {
		m.tree()
	}
	situations := []func(){m.line, m.preemption, m.hold, m.line, m.preemption}
	if h.Queued {
		situations = []func(){m.line, m.reclaim, m.reclaim, m.reclaim}
	}
	r.Shuffle(len(situations), func(i, k int) { situations[i], situations[k] = situations[k], situations[i] })
	for _, situation := range situations[:3] {
		m.add(Step{Clear: true, Soon: ptr.To(1000)})
		m.gangs, m.names, m.jobs = nil, nil, nil
		situation()
		for range r.IntN(4) {
			m.step()
			m.soon([]int{0, 20, 150, 2000, 12000}[r.IntN(5)])
		}
		m.rest()
	}
	return h
}

// maker makes up steps.
type maker struct {
	*rand.Rand
	h           *History
	nodes       []*Node
	gangs       []string // since all was cleared
	names, jobs []string // likewise of all pods, and of gangs and pods in none
	queues      []*Queue
	made        int
}

func (m *maker) add(s Step) { m.h.Steps = append(m.h.Steps, s) }

// last returns the last step.
func (m *maker) last() *Step { return &m.h.Steps[len(m.h.Steps)-1] }

// soon lets the next step come so many milliseconds later.
func (m *maker) soon(ms int) { m.last().Soon = &ms }

// rest lets the scheduler come to rest first.
func (m *maker) rest() { m.last().Soon = nil }

func (m *maker) next(prefix string) string { m.made++; return fmt.Sprint(prefix, m.made) }

func (m *maker) one(of []string) string {
	if len(of) == 0 {
		return "none"
	}
	return of[m.IntN(len(of))]
}

func (m *maker) maybe(oneIn int) bool { return m.IntN(oneIn) == 0 }

func (m *maker) node() {
	n := &Node{Name: m.next("n"), Rack: fmt.Sprint("r", m.IntN(2)), GPUs: []int{2, 4, 4, 6}[m.IntN(4)]}
	m.nodes = append(m.nodes, n)
	m.add(Step{Node: n, Soon: ptr.To(0)})
}

// slots returns how many pods of a size the empty cluster takes.
func (m *maker) slots(size int) (n int) {
	for _, node := range m.nodes {
		n += node.GPUs / size
	}
	return n
}

// tree makes queues: some state what they deserve, and some are below another one, which may have a ceiling.
func (m *maker) tree() {
	parent, left := "", m.slots(1)
	states := m.maybe(2)
	if !states && m.maybe(2) {
		parent = m.next("q")
		m.queue(&Queue{Name: parent, Weight: 1, Capability: ptr.To(1 + m.IntN(left))})
	}
	for range 2 + m.IntN(2) {
		q := &Queue{Name: m.next("q"), Parent: parent, Weight: int32(1 + m.IntN(3))}
		if states {
			q.Deserved = ptr.To(max(0, m.IntN(left+3)-2))
			left -= *q.Deserved
		}
		if m.maybe(6) {
			q.Capability = ptr.To(1 + m.IntN(8))
			if states {
				*q.Capability += *q.Deserved
			}
		}
		m.queue(q)
		if m.maybe(2) {
			parent = ""
		}
	}
}

func (m *maker) queue(q *Queue) {
	m.queues = append(m.queues, q)
	m.add(Step{Queue: q, Soon: ptr.To(0)})
}

func (m *maker) anyQueue() string {
	if !m.h.Queued {
		return ""
	}
	return m.queues[m.IntN(len(m.queues))].Name
}

func (m *maker) priority() int32 { return []int32{0, 0, 10}[m.IntN(3)] }

func (m *maker) gang(g *Gang) {
	g.Name, g.PodGroup = m.next("g"), m.maybe(2)
	m.gangs, m.jobs = append(m.gangs, g.Name), append(m.jobs, g.Name)
	for i := range g.Members {
		m.names = append(m.names, fmt.Sprint(g.Name, "-", i))
	}
	m.add(Step{Gang: g, Soon: ptr.To(0)})
}

func (m *maker) pod(p *Pod) {
	p.Name = m.next("p")
	m.names, m.jobs = append(m.names, p.Name), append(m.jobs, p.Name)
	m.add(Step{Pod: p, Soon: ptr.To(0)})
}

// fill fills the cluster, but for so many slots, with jobs of pods of a size.
func (m *maker) fill(size, leave int, priority func() int32, queue string) {
	for left := m.slots(size) - leave; left > 0; {
		members := 1
		if m.maybe(4) {
			members = min(left, 2+m.IntN(3))
			m.gang(&Gang{Min: max(1, members-m.IntN(3)), Members: members, GPUs: size, Priority: priority(), Queue: queue, Again: m.maybe(6)})
		} else {
			m.pod(&Pod{GPUs: size, Priority: priority(), Queue: queue})
		}
		left -= members
	}
	m.rest()
}

// free ends a job that may run.
func (m *maker) free(job string) {
	if slices.Contains(m.gangs, job) {
		m.add(Step{DeleteGang: job})
	} else {
		m.add([]Step{{End: job}, {Fail: job}, {Delete: job}}[m.IntN(3)])
	}
}

func constant(priority int32) func() int32 { return func() int32 { return priority } }

// line: jobs that evict nothing wait in line, for room that comes bit by bit.
func (m *maker) line() {
	size, queue := 1+m.IntN(2), m.anyQueue()
	m.fill(size, m.IntN(2), constant(100), queue)
	running := slices.Clone(m.jobs)
	for range 4 + m.IntN(2) {
		if m.maybe(3) {
			m.pod(&Pod{GPUs: size, Priority: m.priority(), Queue: queue})
		} else {
			g := &Gang{Min: 1 + m.IntN(2), GPUs: size, Priority: m.priority(), Queue: queue, Required: m.maybe(4), Preferred: m.maybe(8)}
			g.Members = g.Min + m.IntN(2)
			m.gang(g)
		}
		m.soon(1500)
		if m.maybe(8) {
			queue = m.anyQueue()
		}
	}
	m.rest()
	m.Shuffle(len(running), func(i, k int) { running[i], running[k] = running[k], running[i] })
	for _, job := range running[:min(4, len(running))] {
		m.free(job)
	}
}

// preemption: room for something important is made among jobs of different cost.
func (m *maker) preemption() {
	size, queue := 1+m.IntN(2), m.anyQueue()
	priority := m.priority
	if m.maybe(2) {
		priority = constant(0)
	}
	m.fill(size, m.IntN(2), priority, queue)
	if m.maybe(2) { // of the youngest, which go first
		for _, job := range m.jobs[len(m.jobs)/2:] {
			m.add(Step{Budget: &Budget{Of: job}, Soon: ptr.To(0)})
		}
		m.soon(2000)
	}
	for range 1 + m.IntN(2) {
		if m.maybe(4) {
			queue = m.anyQueue()
		}
		important := []int32{100, 10, 0}[min(m.IntN(4), m.IntN(4), 2)]
		if m.maybe(2) {
			m.pod(&Pod{GPUs: size * []int{1, 2, 2, 4}[m.IntN(4)], Priority: important, Queue: queue})
		} else {
			count := 1 + m.IntN(5)
			m.gang(&Gang{Min: count, Members: count, GPUs: size, Priority: important, Queue: queue, Required: m.maybe(3), Preferred: m.maybe(6), NonStrict: m.maybe(8)})
		}
		if m.maybe(2) { // while it waits for what makes way
			m.soon(3000)
			m.pod(&Pod{GPUs: size, Queue: queue})
		}
		m.rest()
	}
}

// hold: a gang holds what fits, though others wait for it, until the rest fits, or its time is up.
func (m *maker) hold() {
	size, queue := 1+m.IntN(2), m.anyQueue()
	fits := 1 + m.IntN(2)
	m.fill(size, fits, constant(100), queue)
	running := slices.Clone(m.jobs)
	count := min(fits+1+m.IntN(2), m.slots(size))
	m.gang(&Gang{Min: count, Members: count, GPUs: size, Priority: m.priority(), Queue: queue, NonStrict: !m.maybe(4), Required: m.maybe(6), Waits: []string{"", "", "45s"}[m.IntN(3)]})
	m.rest()
	for range 1 + m.IntN(2) {
		m.pod(&Pod{GPUs: size, Queue: queue})
	}
	m.rest()
	m.free(m.one(running))
}

// reclaim: jobs of other queues come to a cluster that one has filled.
func (m *maker) reclaim() {
	size, one := 1+m.IntN(2), m.anyQueue()
	m.fill(size, m.IntN(2), m.priority, one)
	for range 3 {
		queue := m.anyQueue()
		if queue == one {
			queue = m.anyQueue()
		}
		if m.maybe(2) {
			m.pod(&Pod{GPUs: size, Priority: m.priority(), Queue: queue})
		} else {
			count := 1 + m.IntN(4)
			m.gang(&Gang{Min: count, Members: count + m.IntN(2), GPUs: size, Priority: m.priority(), Queue: queue})
		}
		m.rest()
	}
}

// step makes up one of the kinds of steps.
func (m *maker) step() {
	var nodes []string
	for _, n := range m.nodes {
		nodes = append(nodes, n.Name)
	}
	switch n := m.IntN(100); {
	case n < 20:
		g := &Gang{Min: 1 + m.IntN(5), GPUs: []int{1, 1, 1, 2, 2, 4}[m.IntN(6)], Priority: []int32{0, 0, 0, 10, 100}[m.IntN(5)], Queue: m.anyQueue(),
			Required: m.maybe(3), Preferred: m.maybe(6), NonStrict: m.maybe(8), Again: m.maybe(3)}
		g.Members = g.Min
		switch m.IntN(4) {
		case 0:
			g.Members += 1 + m.IntN(3)
		case 1:
			g.Members -= m.IntN(2)
		}
		m.gang(g)
	case n < 32:
		m.pod(&Pod{GPUs: []int{1, 1, 2, 2, 4}[m.IntN(5)], Priority: []int32{0, 0, 0, 10, 100}[m.IntN(5)], Queue: m.anyQueue()})
	case n < 37 && len(m.nodes) < 4:
		m.node()
	case n < 42:
		m.add(Step{Cordon: m.one(nodes)})
	case n < 46:
		m.add(Step{Uncordon: m.one(nodes)})
	case n < 49 && len(m.nodes) > 2:
		i := m.IntN(len(m.nodes))
		m.add(Step{Remove: m.nodes[i].Name})
		m.nodes = slices.Delete(m.nodes, i, i+1)
	case n < 59:
		m.add(Step{End: m.one(m.names)})
	case n < 65:
		m.add(Step{Fail: m.one(m.names)})
	case n < 72:
		m.add(Step{Delete: m.one(m.names)})
	case n < 80:
		l := &Late{Gang: m.one(m.gangs), Name: m.next("late")}
		m.names = append(m.names, l.Name)
		m.add(Step{Late: l})
	case n < 86:
		m.add(Step{DeleteGang: m.one(m.gangs)})
	case n < 89:
		m.add(Step{Budget: &Budget{Of: m.one(m.jobs)}})
	case n < 93 && m.h.Queued:
		q := *m.queues[m.IntN(len(m.queues))]
		q.Weight = int32(1 + m.IntN(3))
		m.add(Step{Queue: &q})
	case n < 95:
		m.add(Step{Restart: true})
	default:
		m.add(Step{Kill: ptr.To(m.IntN(4))})
	}
}
