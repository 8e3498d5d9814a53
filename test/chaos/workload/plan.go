package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Options say what a plan is for.
type Options struct {
	Seed uint64
	// Length is how long gangs come and faults happen.
	Length time.Duration
	// Queues puts every gang into one of the Queues.
	Queues bool
	// Reservations makes capacity be held for many of them.
	Reservations bool
	// Moves adds services, whose pods may be moved, and faults of the components that move them.
	Moves bool
	// BadInput adds objects that make no sense.
	BadInput bool
	// Steady is for a long run: the load stays the same, and faults are rare, most of all those that end processes.
	Steady bool
	// Nodes are in racks of NodesPerRack, with GPUs each.
	Nodes, NodesPerRack, GPUs int
	// NodesStay: no node is deleted.
	NodesStay bool
}

// Plan is what happens, apart from what the scheduler makes of it.
type Plan struct {
	Options Options
	// Works are in the order in which they come.
	Works []Work
	// Faults hit processes, one after the other. NodeFaults hit nodes, beside them.
	Faults     []Fault
	NodeFaults []Fault
	// BadInputs are in the order in which they come.
	BadInputs []BadInput
}

// Deed is what a user, or chance, does to a gang.
type Deed string

// The deeds. A member that is deleted or fails is replaced: by its owner, or by AddMember.
const (
	Create       Deed = "create"
	Delete       Deed = "delete"
	DeleteMember Deed = "delete a member"
	FailMember   Deed = "fail a member"
	AddMember    Deed = "add a member"
	SetMinimum   Deed = "set the minimum"
	DropPodGroup Deed = "delete the PodGroup"
	MakePodGroup Deed = "make the PodGroup"
	Reserve      Deed = "reserve"
	Unreserve    Deed = "delete the Reservation"
)

// Step is one deed, at a time since the begin of the run.
type Step struct {
	At time.Duration
	Do Deed
	// Gang is which gang of the work, Member which of its members that are there, counted around.
	Gang, Member int
	// Minimum is the new one.
	Minimum int
}

// Work is one gang, or a group of gangs that start together, from its creation to its deletion.
type Work struct {
	Gangs []Gang
	// Reservation is for the first of them; nil for none.
	Reservation *Reservation
	// Steps are in order of time. The last deletes it.
	Steps []Step
}

// Bounds of the load: what is asked for as a part of all GPUs.
const (
	leastLoad, mostLoad = 0.6, 1.6
	steadyLoad          = 0.95
	// wave is how long the load takes from low to high and back.
	wave = 50 * time.Second
	// pace is the interval of looking whether there is enough load, and perPace how many works may come then.
	pace    = 500 * time.Millisecond
	perPace = 4
)

// Make makes the plan of a seed.
func Make(o Options) Plan {
	p := Plan{Options: o}
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, stream)) }
	p.Works = makeWorks(o, random(1))
	p.Faults = processFaults(o, random(2))
	p.NodeFaults = nodeFaults(o, random(3))
	p.BadInputs = badInputs(o, random(4))
	return p
}

// target returns the load that is aimed at: it begins high enough that gangs have to be preempted soon.
func (o Options) target(at time.Duration) float64 {
	if o.Steady {
		return steadyLoad
	}
	middle, swing := (leastLoad+mostLoad)/2, (mostLoad-leastLoad)/2
	return middle + swing*math.Sin(2*math.Pi*at.Seconds()/wave.Seconds())
}

// Load returns what is asked for at a moment as a part of all GPUs, if all pods that end by themselves have
// waited for their nodes for as long as startWait.
func (p *Plan) Load(at time.Duration) float64 {
	gpus := 0
	for i := range p.Works {
		if w := &p.Works[i]; w.begin() <= at && at < w.expectedEnd() {
			gpus += w.gpus()
		}
	}
	return float64(gpus) / float64(p.Options.Nodes*p.Options.GPUs)
}

// startWait is how long gangs are taken to wait on average.
const startWait = 4 * time.Second

// expectedEnd returns when the work asks for nothing any more.
func (w *Work) expectedEnd() time.Duration {
	end := w.end()
	if completes := w.Gangs[0].Completes; completes > 0 {
		end = min(end, w.begin()+startWait+completes)
	}
	return end
}

func (w *Work) begin() time.Duration { return w.Steps[0].At }
func (w *Work) end() time.Duration   { return w.Steps[len(w.Steps)-1].At }

func (w *Work) gpus() int {
	n := 0
	for i := range w.Gangs {
		n += w.Gangs[i].Size * w.Gangs[i].GPUs
	}
	return n
}

func makeWorks(o Options, r *rand.Rand) []Work {
	p, current := Plan{Options: o}, Plan{Options: o}
	for at := time.Duration(0); at < o.Length; at += pace {
		current.Works = slices.DeleteFunc(current.Works, func(w Work) bool { return w.expectedEnd() <= at })
		for range perPace {
			if current.Load(at) >= o.target(at) {
				break
			}
			w := makeWork(o, r, len(p.Works))
			w.plan(r, at)
			if o.Reservations {
				w.reserve(r)
			}
			p.Works, current.Works = append(p.Works, w), append(current.Works, w)
		}
	}
	slices.SortStableFunc(p.Works, func(a, b Work) int { return cmp.Compare(a.begin(), b.begin()) })
	return p.Works
}

// between returns a duration in [from, to).
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from))).Truncate(time.Millisecond)
}

// chance reports true in so many percent of all cases.
func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// plan makes up the life of a work that comes at that time.
func (w *Work) plan(r *rand.Rand, at time.Duration) {
	life := between(r, 15*time.Second, 50*time.Second)
	if completes := w.Gangs[0].Completes; completes > 0 {
		life = 2*completes + between(r, 10*time.Second, 20*time.Second)
	}
	end := at + life
	w.Steps = []Step{{At: at, Do: Create}}
	for i := range w.Gangs {
		w.mishaps(r, i, at, end)
	}
	w.Steps = append(w.Steps, Step{At: end, Do: Delete})
	w.sort()
}

// step adds a step to a plan.
func (w *Work) step(s Step) {
	w.Steps = append(w.Steps, s)
	w.sort()
}

func (w *Work) sort() {
	slices.SortStableFunc(w.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// mishaps makes up what happens to a gang between its creation and its deletion.
func (w *Work) mishaps(r *rand.Rand, i int, begin, end time.Duration) {
	g := &w.Gangs[i]
	if g.Join == None {
		return
	}
	step := func(at time.Duration, s Step) time.Duration {
		if s.At, s.Gang = at, i; at < end {
			w.Steps = append(w.Steps, s)
		}
		return at
	}
	sometime := func() time.Duration { return between(r, begin+time.Second, end) }
	for range r.IntN(3) { // 0 to 2 members are lost
		lost := Step{Do: DeleteMember, Member: r.IntN(g.Size)}
		if chance(r, 40) && g.Completes == 0 {
			lost.Do = FailMember
		}
		at := step(sometime(), lost)
		if g.Owner == Bare {
			step(at+between(r, 300*time.Millisecond, 4*time.Second), Step{Do: AddMember})
		}
	}
	if g.Owner == Bare && chance(r, 15) {
		step(sometime(), Step{Do: AddMember})
	}
	if g.Join != PodGroup {
		return
	}
	if chance(r, 25) {
		step(sometime(), Step{Do: SetMinimum, Minimum: 1 + r.IntN(g.Size)})
	}
	if chance(r, 15) {
		at := step(sometime(), Step{Do: DropPodGroup})
		step(at+between(r, 500*time.Millisecond, 3*time.Second), Step{Do: MakePodGroup})
	}
}

// String summarises a plan.
func (p *Plan) String() string {
	gangs, members, reservations := 0, 0, 0
	for i := range p.Works {
		if p.Works[i].Reservation != nil {
			reservations++
		}
		for _, g := range p.Works[i].Gangs {
			gangs++
			members += g.Size
		}
	}
	return fmt.Sprintf("seed %d, %s: %d works with %d gangs and single pods, %d pods, %d Reservations, %d times bad input; up to %d faults of processes and %d of nodes",
		p.Options.Seed, p.Options.Length, len(p.Works), gangs, members, reservations, len(p.BadInputs), len(p.Faults), len(p.NodeFaults))
}
