package queueing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// names are the names of the phases.
var names = [...]string{"outside", "waiting", "admitted", "failed"}

// checkJobs checks that each job is in exactly one phase, with what belongs to that and no more.
func checkJobs(b *Book, fail func(string, ...any)) {
	listed := map[*job]int{}
	for _, q := range b.queues {
		for _, l := range q.waiting {
			for _, j := range slices.Concat(l.fresh.Items, slices.Collect(maps.Values(l.started))) {
				listed[j]++
			}
		}
	}
	for j := range b.urgent {
		listed[j]++
	}
	counted, admitted := 0, 0
	for name, j := range b.jobs {
		admitted += count(j.phase == Admitted)
		counted += len(j.counted)
		active := j.phase == Waiting || j.phase == Admitted
		switch {
		case j.Name != name:
			fail("job %s is known as %s", j.Name, name)
		case listed[j] != count(j.phase == Waiting):
			fail("job %s is %s, and in %d lists", name, names[j.phase], listed[j])
		case active && j.Options == nil:
			fail("job %s is %s, and asks for nothing", name, names[j.phase])
		case (j.turn.overLimit || j.turn.pods != nil || j.turn.lacks != nil || j.turn.left+j.turn.held != 0) && j.phase != Admitted:
			fail("job %s is %s, and has what belongs to its turn", name, names[j.phase])
		case (j.deserved != nil) != (j.phase == Failed):
			fail("job %s is %s, its queue deserved %v", name, names[j.phase], j.deserved)
		case (b.timed[name] == j) != (j.phase != Outside || !j.tried.IsZero()):
			fail("job %s is %s, and time moves it: %v", name, names[j.phase], b.timed[name] == j)
		case b.timed[name] == nil && len(j.counted) == 0:
			fail("job %s is kept for nothing", name)
		}
		for pod := range j.counted {
			if b.usages[pod].Job != name {
				fail("pod %s is part of job %q and counted in %s", pod, b.usages[pod].Job, name)
			}
		}
	}
	for name, j := range b.jobs {
		if u := b.usages[j.Pod]; j.phase == Waiting && (u.Job != name || !u.placed() && u.Demand != Full) {
			fail("job %s waits with pod %s, which is part of job %s and asks for %d", name, j.Pod, u.Job, u.Demand)
		}
	}
	for pod, u := range b.usages {
		if u.Job != "" {
			counted--
		} else if u.refused && u.Runs {
			fail("pod %s runs and is refused", pod)
		}
	}
	if admitted != b.admitted || counted != 0 || len(b.timed) > len(b.jobs) {
		fail("%d jobs have their turn, counted as %d; %d pods are in no job that they name", admitted, b.admitted, -counted)
	}
}

// storyPod is a pod, and where the scheduler has it.
type storyPod struct {
	// gang is the gang that it is in; empty for none. job is what it came with last.
	name, gang, job string
	usage           Usage
	// there: the API server has it; told: the book was told of it. gate: it was refused, and
	// nothing but a call brings it back. cycle: it is in its cycle.
	there, told, gate, cycle bool
}

// story makes pods come, be placed, fail and go, in a random order.
type story struct {
	*rand.Rand
	t      *testing.T
	b      *Book
	now    time.Time
	window int
	pods   []*storyPod
	// ending are the victims of jobs.
	ending map[hold.Holder]int
	before map[string]Phase
	moved  map[[2]Phase]int
	trace  []string
}

func (s *story) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter:\n%v", fmt.Sprintf(format, args...), s.trace[max(0, len(s.trace)-15):])
}

func (s *story) pod(name string) *storyPod {
	return s.pods[slices.IndexFunc(s.pods, func(p *storyPod) bool { return p.name == name })]
}

func (s *story) waits(name string) bool { p := s.pod(name); return p.there && !p.usage.Runs }

func (s *story) at() Moment {
	return Moment{Now: s.now, Synced: true, IsWaiting: s.waits, WaitsForRoom: yes, IsComplete: yes}
}

// do carries out the effects of an input, and checks what must be true after it.
func (s *story) do(what string, e called) {
	s.trace = append(s.trace, fmt.Sprintf("%s: %+v\n", what, e))
	checkJobs(s.b, s.fail)
	s.checkTurns(len(e.Began))
	for _, name := range e.Call {
		if !s.waits(name) {
			s.fail("pod %s is called and does not wait", name)
		}
		s.pod(name).gate = false
	}
	if again := s.b.Look(s.at()); len(again.Call)+len(again.Began) > 0 {
		s.fail("turns that could have begun did not: %+v", again)
	}
	for _, p := range s.pods {
		if phase := s.b.Phase(p.job); p.told && s.waits(p.name) && !s.comes(p) && phase != Waiting {
			s.fail("pod %s waits to be called, and its job is %s", p.name, names[phase])
		}
	}
}

// comes reports whether something brings a pod to the gate without a call: the scheduler if it was not refused there,
// Gang if it stands for a gang.
func (s *story) comes(p *storyPod) bool { return !p.gate || p.together() }

// together reports whether it came as its gang did: as long as none of that runs.
func (p *storyPod) together() bool { return p.gang != "" && p.job == p.gang }

// jobOf returns the job that a pod comes with.
func (s *story) jobOf(p *storyPod) string {
	alone := func(one *storyPod) bool { return one.gang == p.gang && one.there && one.usage.Runs }
	switch {
	case p.gang == "":
		return p.name
	case slices.ContainsFunc(s.pods, alone):
		return p.gang + "/" + p.name
	}
	return p.gang
}

// checkTurns checks that a job that was admitted just now keeps the limits of its queue.
func (s *story) checkTurns(began int) {
	most, fresh := map[string]int64{}, 0
	phases := map[string]Phase{}
	for name, j := range s.b.jobs {
		phases[name] = j.phase
		if j.phase == Admitted && s.before[name] != Admitted {
			fresh++
			for name, need := range j.need() {
				if !j.turn.overLimit {
					most[name] = max(most[name], need[gpu])
				}
			}
		}
	}
	for name := range s.before {
		phases[name] = s.b.Phase(name)
	}
	for name, phase := range phases {
		if from := s.before[name]; from != phase {
			s.moved[[2]Phase{from, phase}]++
		}
	}
	s.before = phases
	if fresh != began || fresh > 0 && s.b.admitted > s.window {
		s.fail("%d turns began, and %d are told of; %d of %d", fresh, began, s.b.admitted, s.window)
	}
	for name, need := range most {
		q := s.b.queues[name]
		if fair := s.b.Shares()[name].Fair[gpu]; q.mine[gpu]-need >= fair && s.b.overLimit == 0 {
			s.fail("queue %s has %d with a job of %d that was admitted last; its share is %d", name, q.mine[gpu], need, fair)
		}
		if ceiling, limited := q.spec.Capability[gpu]; limited && q.used[gpu] > ceiling && s.b.overLimit == 0 {
			s.fail("queue %s uses %d, its ceiling is %d", name, q.used[gpu], ceiling)
		}
	}
}

// count counts a pod in its present state.
func (s *story) count(p *storyPod) {
	before, _ := s.b.Counted(p.name)
	p.usage.Demand = before.Demand
	s.b.Count(p.name, p.usage)
}

// offered returns what a pod of a job offers: all of it that waits.
func (s *story) offered(speaker *storyPod) Job {
	speaker.job = s.jobOf(speaker)
	j := Job{Name: speaker.job, Queue: speaker.usage.Queue, Pod: speaker.name, Together: speaker.together(), Priority: speaker.usage.Priority, Created: start, Options: []Needs{{}}, Holders: []hold.Holder{{Group: speaker.job}}}
	for _, p := range s.pods {
		if of := p == speaker || speaker.together() && p.gang == speaker.gang; of && p.there && p.told && !p.usage.placed() {
			p.job, p.usage.Job = j.Name, j.Name
			s.count(p)
			j.Pods = append(j.Pods, p.name)
			j.Options[0].Add(p.usage.Queue, p.usage.Amount, 1)
		}
	}
	return j
}

// come makes a pod come to the gate.
func (s *story) come(p *storyPod) {
	p.usage.Held = false // that was given back
	s.count(p)
	p.job, p.gate = s.jobOf(p), false
	if s.b.Phase(p.job) != Admitted {
		s.do("come "+p.name+" of "+p.job, s.b.Come(s.offered(p), s.at()))
	}
	p.cycle = s.b.Phase(p.job) == Admitted
	p.gate = !p.cycle
}

// place gives a pod a node.
func (s *story) place(p *storyPod) {
	p.cycle, p.usage.Runs, p.usage.Held = false, true, false
	s.count(p)
	s.do("place "+p.name, s.b.Look(s.at()))
}

func (s *story) failed(p *storyPod) {
	p.cycle, p.usage.Runs, p.usage.Held = false, false, false
	s.count(p)
	if s.IntN(3) == 0 {
		s.b.RecordFinding(p.name, s.IntN(2) == 0, s.IntN(4) == 0)
	}
	p.job = s.jobOf(p)
	e := s.b.failNow(p.name, Failure{Job: p.job, Together: p.together(), Hopeless: s.IntN(8) == 0}, s.at())
	s.do("fail "+p.name, e)
	if phase := s.b.Phase(p.job); e.Again && phase != Waiting && phase != Admitted {
		p.gate = true
		s.b.Offer(s.offered(p), s.at())
		s.do("again "+p.name, s.b.Look(s.at()))
	}
}

func (s *story) end(p *storyPod) {
	p.there = false
	if s.IntN(3) > 0 { // otherwise that is heard of later
		s.hear(p)
	}
}

func (s *story) hear(p *storyPod) {
	p.told = false
	s.do("gone "+p.name, s.b.goneNow(p.name, s.at()))
}

func (s *story) create() {
	n := len(s.pods)
	p := &storyPod{name: fmt.Sprint("p", n), there: true, told: true}
	p.usage = Usage{Queue: []string{"default", "a", "b"}[s.IntN(3)], Amount: gpus(1 + s.Int64N(4)), Priority: int32(s.IntN(2))}
	if s.IntN(2) == 0 {
		p.gang = fmt.Sprint("g", n/8) // a gang may be in several queues
	}
	s.pods = append(s.pods, p)
	s.count(p)
	s.come(p)
}

func (s *story) limit(window int) {
	s.window = window
	s.b.limits = Limits{Window: window, MaxBypass: 3, BypassHold: 20 * time.Second}
}

// describe changes the total, or the queues.
func (s *story) describe() {
	q := Queue{Name: []string{"default", "a", "b"}[s.IntN(3)], Weight: 1 + s.Int64N(3), Closed: s.IntN(6) == 0}
	if s.IntN(2) == 0 {
		q.Capability = gpus(4 + s.Int64N(8))
	}
	switch s.IntN(3) {
	case 0:
		s.b.SetTotal(gpus(8 + s.Int64N(16)))
	case 1:
		s.b.SetQueues(q)
	case 2:
		s.limit(1 + s.IntN(6))
	}
	s.do("describe", s.b.Look(s.at()))
}

func (s *story) one() {
	if len(s.pods) == 0 || s.IntN(7) == 0 {
		s.create()
		return
	}
	p := s.pods[max(0, len(s.pods)-1-s.IntN(24))]
	switch n := s.IntN(20); {
	case n == 0:
		s.describe()
	case n < 4:
		s.now = s.now.Add(time.Duration(s.IntN(15)) * time.Second)
		s.tick()
	case n == 4 && p.there:
		s.ending[hold.Holder{Group: p.job}] = count(s.IntN(3) == 0)
		s.do("victims of "+p.job, s.b.Look(s.at()))
	case !p.there && p.told:
		s.hear(p)
	case !p.there:
	case n == 5 || n < 8 && p.usage.Runs:
		s.end(p)
	case p.cycle && n < 12, p.usage.Runs && n == 8:
		s.failed(p)
	case p.cycle && n == 12:
		p.usage.Held = !p.usage.Held
		s.count(p)
		s.do("hold "+p.name, s.b.Look(s.at()))
	case p.cycle:
		s.place(p)
	case !p.usage.Runs && s.comes(p):
		s.come(p)
	}
}

// tick lets the book look at the time, and checks that a pod that waits speaks for each gang in its turn of which
// nothing is held.
func (s *story) tick() {
	s.do("tick", s.b.tickNow(s.at()))
	for name, j := range s.b.jobs {
		if j.phase == Admitted && j.Together && j.turn.held == 0 && (!s.waits(j.Pod) || s.b.usages[j.Pod].Job != name) {
			s.fail("gang %s is admitted, and %s speaks for it, which waits: %v, for %q", name, j.Pod, s.waits(j.Pod), s.b.usages[j.Pod].Job)
		}
	}
}

// finish gives all room: each pod is placed then, by nothing but calls and the scheduler's own retries.
func (s *story) finish() {
	s.limit(2)
	s.b.SetTotal(gpus(1 << 30))
	for _, name := range []string{"default", "a", "b"} {
		s.b.SetQueues(Queue{Name: name, Weight: 1})
	}
	clear(s.ending)
	for _, p := range s.pods {
		if !p.there && p.told {
			s.hear(p)
		}
	}
	for range 40 {
		s.now = s.now.Add(longestTurn + time.Second)
		s.tick()
		for _, p := range s.pods {
			if p.there && !p.usage.Runs && s.comes(p) {
				s.come(p)
			}
			for _, one := range s.pods { // members follow
				if same := one == p || p.together() && one.gang == p.gang; same && p.cycle && one.there && !one.usage.Runs {
					one.gate = false
					s.place(one)
				}
			}
		}
	}
	for _, p := range s.pods {
		if p.there && !p.usage.Runs {
			why := s.b.Why(p.job, true).Message
			s.fail("pod %s of job %s, which is %s (%s), is left behind", p.name, p.job, names[s.b.Phase(p.job)], why)
		}
	}
}

// TestStory: whatever happens to jobs, each is in one phase, no turn exceeds a limit, and what waits is called; once
// all pods are gone nothing is left of them.
func TestStory(t *testing.T) {
	moved := map[[2]Phase]int{}
	for seed := range uint64(150) {
		s := &story{Rand: rand.New(rand.NewPCG(seed, 11)), t: t, b: newBook(tier), now: start, before: map[string]Phase{}, moved: moved, trace: []string{fmt.Sprint("seed ", seed, "\n")}}
		s.ending = map[hold.Holder]int{}
		s.b.victims = func(of hold.Holder) int { return s.ending[of] }
		s.limit(5)
		s.describe()
		for range 250 {
			s.one()
		}
		s.finish()
		for _, p := range s.pods {
			if p.told {
				p.there = false
				s.hear(p)
			}
		}
		s.do("tick", s.b.tickNow(s.at()))
		for what, n := range map[string]int{
			"jobs": len(s.b.jobs), "usages": len(s.b.usages), "timed": len(s.b.timed), "missed": len(s.b.missed), "members": len(s.b.members),
			"promised": len(s.b.promised), "running": len(s.b.running), "urgent": len(s.b.urgent), "crowded": s.b.overLimit, "turns": s.b.admitted,
		} {
			if n != 0 {
				s.fail("%d %s are left of nothing", n, what)
			}
		}
	}
	for _, to := range [][2]Phase{{Outside, Waiting}, {Outside, Admitted}, {Outside, Failed}, {Waiting, Outside}, {Waiting, Admitted}, {Waiting, Failed}, {Admitted, Outside}, {Admitted, Failed}, {Failed, Waiting}, {Failed, Admitted}, {Failed, Outside}} {
		if moved[to] < 20 {
			t.Errorf("%d jobs went from %s to %s, which tells little", moved[to], names[to[0]], names[to[1]])
		}
	}
	if n := moved[[2]Phase{Admitted, Waiting}]; n > 0 {
		t.Errorf("%d jobs wait again at once after their turn", n)
	}
}
