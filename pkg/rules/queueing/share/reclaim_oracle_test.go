package share

import (
	order "cmp"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// world is a small cluster in which queues take back what is theirs. Jobs are single pods that never end.
type world struct {
	nodes  []int64
	queues map[string]Queue
	jobs   []worldJob
	// started counts the jobs that were placed, and evicted those that made way.
	started, evicted int
}

type worldJob struct {
	queue string
	size  int64
	// node is where it runs; waits or absent.
	node, since int
}

const (
	waits  = -1
	absent = -2
)

func (w *world) String() string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		q := w.queues[name]
		text = append(text, fmt.Sprintf("%s below %q weight %d deserved %v", name, q.Parent, q.Weight, q.Deserved))
	}
	for i, j := range w.jobs {
		text = append(text, fmt.Sprintf("job %d of %s: %d on node %d", i, j.queue, j.size, j.node))
	}
	return fmt.Sprintf("nodes %v\n%s", w.nodes, strings.Join(text, "\n"))
}

// shares returns what queues deserve with the jobs that have come.
func (w *world) shares() map[string]Share {
	total, queues := int64(0), maps.Clone(w.queues)
	for _, node := range w.nodes {
		total += node
	}
	for name, q := range queues {
		q.Request = Vector{}
		for _, j := range w.jobs {
			if j.queue == name && j.node != absent {
				q.Request[gpu] += j.size
			}
		}
		queues[name] = q
	}
	return Deserve(gpus(total), queues)
}

// running returns what each queue and all below it have.
func (w *world) running() map[string]int64 {
	sums := map[string]int64{}
	for _, j := range w.jobs {
		for at := j.queue; at != "" && j.node >= 0; at = w.queues[at].Parent {
			sums[at] += j.size
		}
	}
	return sums
}

func (w *world) standings() map[string]Balance {
	all, shares, running := map[string]Balance{}, w.shares(), w.running()
	for name, q := range w.queues {
		path, _ := Ancestors(w.queues, name)
		all[name] = Balance{Path: path, Running: gpus(running[name]), Deserved: shares[name].Deserved, Stated: q.Deserved, Contested: shares[name].Contested}
	}
	return all
}

func (w *world) free(node int) int64 {
	left := w.nodes[node]
	for _, j := range w.jobs {
		if j.node == node {
			left -= j.size
		}
	}
	return left
}

// waiting returns the jobs that may be placed: those of the queue that is served least first, none of a queue that has
// its share.
func (w *world) waiting() []int {
	running, shares := w.running(), w.shares()
	var list []int
	for i, j := range w.jobs {
		if j.node == waits && running[j.queue] < shares[j.queue].Fair[gpu] {
			list = append(list, i)
		}
	}
	served := func(name string) float64 { return float64(running[name]) / float64(w.queues[name].Weight) }
	slices.SortStableFunc(list, func(i, j int) int {
		one, _ := Ancestors(w.queues, w.jobs[i].queue)
		two, _ := Ancestors(w.queues, w.jobs[j].queue)
		return Compare(one, two, func(a, b string) int { return order.Or(order.Compare(served(a), served(b)), order.Compare(a, b)) })
	})
	return list
}

func (w *world) start(job, node int) {
	w.started++
	w.jobs[job].node, w.jobs[job].since = node, w.started
}

// admit places the first job that fits somewhere.
func (w *world) admit() bool {
	for _, i := range w.waiting() {
		for node := range w.nodes {
			if w.free(node) >= w.jobs[i].size {
				w.start(i, node)
				return true
			}
		}
	}
	return false
}

// reclaim makes way for the first job that may take something back, and places it.
func (w *world) reclaim() bool {
	for _, i := range w.waiting() {
		for _, parts := range []bool{false, true} {
			if victims, node := w.victims(i, parts); victims != nil {
				for _, v := range victims {
					w.jobs[v].node = waits
					w.evicted++
				}
				w.start(i, node)
				return true
			}
		}
	}
	return false
}

// overshooting returns the running jobs with which their queues have more than they deserve, added up in the order in
// which they started.
func (w *world) overshooting() map[int]bool {
	shares, all := w.shares(), map[int]bool{}
	for i, job := range w.jobs {
		sum := int64(0)
		for _, other := range w.jobs {
			if other.node >= 0 && other.queue == job.queue && other.since <= job.since {
				sum += other.size
			}
		}
		if job.node >= 0 && sum > shares[job.queue].Deserved[gpu] {
			all[i] = true
		}
	}
	return all
}

// overshootingFor returns the same as the rules have it for a claim.
func (w *world) overshootingFor(r *Reclaim) map[int]bool {
	jobs, all := map[string][]Job{}, map[int]bool{}
	for i, job := range w.jobs {
		if job.node >= 0 {
			started := time.Unix(int64(job.since), 0)
			jobs[job.queue] = append(jobs[job.queue], Job{Name: fmt.Sprint(i), Started: started, Amount: gpus(job.size)})
		}
	}
	for queue, list := range jobs {
		for name := range r.Overshooting(queue, list) {
			i, _ := strconv.Atoi(name)
			all[i] = true
		}
	}
	return all
}

// victims returns jobs on a node that the rules grant and whose place is enough: those that overshoot before others,
// the fewest, and of all such sets the first.
func (w *world) victims(job int, parts bool) (best []int, on int) {
	standings := w.standings()
	r := NewReclaim(map[string]Vector{w.jobs[job].queue: gpus(w.jobs[job].size)}, standings, nil)
	if r == nil {
		return nil, 0
	}
	overshooting := w.overshootingFor(r)
	inside := func(list []int) (n int) {
		for _, i := range list {
			if !overshooting[i] {
				n++
			}
		}
		return n
	}
	for node := range w.nodes {
		var here []int
		for i, j := range w.jobs {
			if j.node == node && r.Permits(j.queue) && r.Excess(j.queue) > 1 {
				here = append(here, i)
			}
		}
		slices.SortFunc(here, func(a, b int) int { return order.Compare(w.jobs[b].since, w.jobs[a].since) })
		for set := 1; set < 1<<len(here); set++ {
			budget, room, granted := r.Budget(standings, parts), w.free(node), true
			var victims []int
			for k, i := range here {
				if set&(1<<k) != 0 {
					granted = granted && budget.Take(w.jobs[i].queue, gpus(w.jobs[i].size), overshooting[i])
					victims, room = append(victims, i), room+w.jobs[i].size
				}
			}
			better := best == nil ||
				order.Or(order.Compare(inside(victims), inside(best)), order.Compare(len(victims), len(best))) < 0
			if granted && room >= w.jobs[job].size && better {
				best, on = victims, node
			}
		}
	}
	return best, on
}

// play lets the jobs come one by one in an order, each once all is at rest.
func (w *world) play(t *testing.T, arrivals []int, check func(before *world)) bool {
	t.Helper()
	for i := range w.jobs {
		w.jobs[i].node = absent
	}
	for _, i := range arrivals {
		w.jobs[i].node = waits
		gone := map[int]bool{}
		for range 100 {
			for w.admit() {
			}
			before := &world{nodes: w.nodes, queues: w.queues, jobs: slices.Clone(w.jobs)}
			if !w.reclaim() {
				break
			}
			for k := range w.jobs {
				if before.jobs[k].node >= 0 && w.jobs[k].node == waits {
					if gone[k] {
						t.Errorf("order %v: job %d goes twice after job %d has come\n%v", arrivals, k, i, w)
					}
					gone[k] = true
				}
			}
			if check != nil {
				check(before)
			}
		}
		if w.reclaim() {
			t.Errorf("order %v: no rest after job %d\n%v", arrivals, i, w)
			return false
		}
	}
	return true
}

// permutations calls do with every order of n things.
func permutations(n int, do func([]int)) {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	var from func(k int)
	from = func(k int) {
		if k == n {
			do(slices.Clone(list))
			return
		}
		for i := k; i < n; i++ {
			list[k], list[i] = list[i], list[k]
			from(k + 1)
			list[k], list[i] = list[i], list[k]
		}
	}
	from(0)
}

// randomWorld returns a small world in which no more is stated than there is.
func randomWorld(r *rand.Rand, jobs int, node, size func() int64) *world {
	w := &world{queues: map[string]Queue{}}
	total := int64(0)
	for range 1 + r.IntN(3) {
		w.nodes = append(w.nodes, node())
		total += w.nodes[len(w.nodes)-1]
	}
	var leaves []string
	for i := range 2 + r.IntN(4) {
		q := Queue{Name: fmt.Sprint("q", i), Weight: 1 + r.Int64N(2)*r.Int64N(2)}
		if i > 1 && r.IntN(2) == 0 {
			q.Parent = fmt.Sprint("q", r.IntN(2))
		}
		w.queues[q.Name] = q
	}
	stated := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(w.queues)) {
		q := w.queues[name]
		limit := total
		if up, ok := w.queues[q.Parent]; ok {
			limit = up.Deserved[gpu]
		}
		if n := r.Int64N(limit/2 + 1); r.IntN(2) == 0 && stated[q.Parent]+n <= limit {
			q.Deserved = gpus(n)
			stated[q.Parent] += n
			w.queues[name] = q
		}
	}
	for name := range w.queues {
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.queues)), func(q Queue) bool { return q.Parent == name }) {
			leaves = append(leaves, name)
		}
	}
	slices.Sort(leaves)
	for range jobs {
		w.jobs = append(w.jobs, worldJob{queue: leaves[r.IntN(len(leaves))], size: size()})
	}
	return w
}

// neglected returns a job that waits although its queue, and those above it, would have no more than they deserve with
// it, and others on a node have more than they deserve: by giving place none of them comes below what it deserves, or a
// single one by less than the job asks for. Tried are all sets of jobs on a node.
func (w *world) neglected() string {
	running, shares := w.running(), w.shares()
	deserved := func(at string) int64 { return shares[at].Deserved[gpu] }
	for i, job := range w.jobs {
		path, _ := Ancestors(w.queues, job.queue)
		if job.node != waits || slices.ContainsFunc(path, func(at string) bool { return running[at]+job.size > deserved(at) }) {
			continue
		}
		for node := range w.nodes {
			for set := range 1 << len(w.jobs) {
				room, lost, fine := w.free(node), map[string]int64{}, true
				for k, other := range w.jobs {
					if set&(1<<k) == 0 {
						continue
					}
					theirs, _ := Ancestors(w.queues, other.queue)
					fine = fine && other.node == node && other.queue != job.queue
					room += other.size
					for _, at := range theirs {
						if slices.Contains(path, at) {
							break
						}
						fine = fine && running[at]-lost[at] > deserved(at)
						lost[at] += other.size
					}
				}
				short := int64(0)
				for at, amount := range lost {
					short += max(deserved(at)-running[at]+amount, 0)
				}
				if fine && room >= job.size && (short == 0 || short < job.size && bits.OnesCount(uint(set)) == 1) {
					return fmt.Sprintf("job %d of %s waits, though jobs %b could make way on node %d: it has %d and deserves %d\n%v", i, job.queue, set, node, running[job.queue], deserved(job.queue), w)
				}
			}
		}
	}
	return ""
}

// checkTaken checks one decision by what queues had before and have now.
func (w *world) checkTaken(t *testing.T, arrivals []int, before *world) {
	t.Helper()
	shares, had, has := before.shares(), before.running(), w.running()
	var gained string
	need := int64(0)
	for i, j := range w.jobs {
		if before.jobs[i].node == waits && j.node >= 0 {
			gained, need = j.queue, j.size
		}
	}
	if deserves := shares[gained].Deserved[gpu]; shares[gained].Contested[gpu] && has[gained] > deserves {
		t.Errorf("order %v: %s has reclaimed up to %d, it deserves %d\n%v", arrivals, gained, has[gained], deserves, w)
	}
	for at := gained; at != ""; at = w.queues[at].Parent {
		outside, lacked := int64(0), max(shares[at].Deserved[gpu]-had[at], 0)
		for i, j := range w.jobs {
			if before.jobs[i].node >= 0 && j.node == waits && !w.below(j.queue, at) {
				outside += j.size
			}
		}
		if shares[at].Contested[gpu] && has[at] > shares[at].Deserved[gpu] && outside > lacked {
			t.Errorf("order %v: %d are taken from outside %s, which lacked %d\n%v", arrivals, outside, at, lacked, w)
		}
	}
	short := int64(0)
	for name, q := range w.queues {
		deserves := shares[name].Deserved[gpu]
		if _, parent := w.children(name); parent || has[name] >= had[name] || has[name] >= deserves {
			continue
		}
		if had[name] <= deserves {
			t.Errorf("order %v: %s had %d of the %d that it deserves, and has %d\n%v", arrivals, name, had[name], deserves, has[name], w)
		}
		if _, stated := q.Deserved[gpu]; !stated {
			short += deserves - has[name]
		}
	}
	w.checkWhoGoes(t, arrivals, before)
	if short > 0 && short >= need {
		t.Errorf("order %v: queues come below what they deserve by %d for a job of %d\n%v", arrivals, short, need, w)
	}
}

// checkWhoGoes checks that no job went that was inside its queue's share if one does that overshoots it: one whose end
// lets the same job start on its node, and whose queue, and those above it that the two do not share, have more than
// they deserve and come below that by less than the job asks for, where that is not stated.
func (w *world) checkWhoGoes(t *testing.T, arrivals []int, before *world) {
	t.Helper()
	shares, running, overshooting := before.shares(), before.running(), before.overshooting()
	var job worldJob
	inside := -1
	for i, j := range w.jobs {
		switch was := before.jobs[i].node; {
		case was == waits && j.node >= 0:
			job = j
		case was >= 0 && j.node == waits && !overshooting[i]:
			inside = i
		}
	}
	for i := range overshooting {
		short := int64(0)
		x, fine := before.jobs[i], inside >= 0 && before.jobs[i].queue != job.queue
		for at := x.queue; at != "" && !w.below(job.queue, at); at = w.queues[at].Parent {
			left := running[at] - shares[at].Deserved[gpu]
			fine = fine && left > 0
			if _, stated := w.queues[at].Deserved[gpu]; !stated {
				short = max(short, x.size-left)
			}
		}
		for at := job.queue; at != ""; at = w.queues[at].Parent {
			fine = fine && running[at]+job.size <= shares[at].Deserved[gpu]
		}
		if fine && short < job.size && before.free(x.node)+x.size >= job.size {
			t.Errorf("order %v: job %d goes, though job %d overshoots the share of %s\n%v", arrivals, inside, i, x.queue, before)
		}
	}
}

func (w *world) below(name, above string) bool {
	for ; name != "" && name != above; name = w.queues[name].Parent {
	}
	return name == above
}

func (w *world) children(of string) (names []string, any bool) {
	for name, q := range w.queues {
		if q.Parent == of {
			names = append(names, name)
		}
	}
	return names, len(names) > 0
}

// TestReclaimComesToRest: whatever the sizes of jobs, and in whatever order they come, queues take back what is theirs
// and then nothing moves; nothing is taken that the rules do not allow, and no job waits that is owed its place. The
// job goes first with which a queue got more than it deserves, if that is enough.
func TestReclaimComesToRest(t *testing.T) {
	gave := 0
	for seed := range uint64(90) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := oneNode(r)
		if seed < 60 {
			w = randomWorld(r, 3+r.IntN(3), func() int64 { return 4 + r.Int64N(8) }, func() int64 { return 1 + r.Int64N(6) })
		}
		permutations(len(w.jobs), func(arrivals []int) {
			if t.Failed() {
				return
			}
			rested := w.play(t, arrivals, func(before *world) {
				w.checkTaken(t, arrivals, before)
				for i := range before.overshooting() {
					if w.jobs[i].node == waits {
						gave++
					}
				}
			})
			if wrong := w.neglected(); rested && wrong != "" {
				t.Errorf("seed %d, order %v: %s", seed, arrivals, wrong)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if gave < 100 {
		t.Errorf("%d jobs that overshoot gave back: that tells little", gave)
	}
}

// oneNode returns a world of one node, whose queues state what they deserve.
func oneNode(r *rand.Rand) *world {
	w := &world{nodes: []int64{4 + r.Int64N(3)}, queues: map[string]Queue{}}
	for i, left := 0, w.nodes[0]; i < 2+r.IntN(2); i++ {
		q := Queue{Name: fmt.Sprint("q", i), Weight: 1, Deserved: gpus(1 + r.Int64N(max(left/2, 1)))}
		left -= q.Deserved[gpu]
		w.queues[q.Name] = q
	}
	for i := range 5 {
		w.jobs = append(w.jobs, worldJob{queue: fmt.Sprint("q", i%len(w.queues)), size: 1 + r.Int64N(3)})
	}
	return w
}

// TestReclaimWhateverTheOrder: where all jobs are of one size, every queue has what it deserves in whole jobs, in
// whatever order they come.
func TestReclaimWhateverTheOrder(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		size := 2 + r.Int64N(3)
		w := randomWorld(r, 4+r.IntN(2), func() int64 { return size * (1 + r.Int64N(2)) }, func() int64 { return size })
		placed := map[string]bool{}
		permutations(len(w.jobs), func(arrivals []int) {
			if t.Failed() || !w.play(t, arrivals, nil) {
				return
			}
			shares, running := w.shares(), w.running()
			all := int64(0)
			for name := range w.queues {
				if _, parent := w.children(name); parent {
					continue
				}
				all += running[name]
				if owed := shares[name].Deserved[gpu] / size * size; running[name] < owed {
					t.Errorf("seed %d, order %v: %s has %d of the %d that it deserves\n%v", seed, arrivals, name, running[name], owed, w)
				}
			}
			placed[fmt.Sprint(all)] = true
		})
		if len(placed) > 1 {
			t.Errorf("seed %d: how much runs depends on the order: %v", seed, placed)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// TestOvershooting: jobs count in the order in which they started, each resource for itself, and one that overshoots
// goes only while its queue has more than it deserves.
func TestOvershooting(t *testing.T) {
	const cpu = v1.ResourceCPU
	at := func(name string, second int64, amount Vector) Job {
		return Job{Name: name, Started: time.Unix(second, 0), Amount: amount}
	}
	deserved, contested := Vector{gpu: 2, cpu: 3}, map[v1.ResourceName]bool{gpu: true}
	standings := map[string]Balance{
		"a": {
			Path: []string{"a"}, Running: Vector{gpu: 5, cpu: 9}, Deserved: deserved, Stated: deserved, Contested: contested,
		},
		"b": {Path: []string{"b"}, Running: Vector{}, Deserved: Vector{gpu: 9}, Contested: contested},
	}
	r := NewReclaim(map[string]Vector{"b": gpus(1)}, standings, nil)
	if r == nil {
		t.Fatal("no claim")
	}
	for sentence, c := range map[string]struct {
		jobs []Job
		want map[string]bool
	}{
		"the one that goes beyond the share, and all after it": {
			[]Job{at("x", 3, gpus(2)), at("y", 1, gpus(1)), at("z", 2, gpus(2))}, map[string]bool{"z": true, "x": true},
		},
		"not one that makes the share full": {
			[]Job{at("x", 1, gpus(1)), at("y", 2, gpus(1))}, map[string]bool{},
		},
		"one whose start is not known began long ago": {
			[]Job{at("x", 1, gpus(2)), {Name: "y", Amount: gpus(2)}}, map[string]bool{"x": true},
		},
		"of two that started together the second by name": {
			[]Job{at("y", 1, gpus(2)), at("x", 1, gpus(2))}, map[string]bool{"y": true},
		},
		"not by what is not needed, nor one that has nothing": {
			[]Job{at("x", 1, Vector{cpu: 8}), at("y", 2, gpus(3)), at("z", 3, Vector{cpu: 1})}, map[string]bool{"y": true},
		},
	} {
		if got := r.Overshooting("a", c.jobs); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
	b := r.Budget(standings, false)
	for i, step := range []struct {
		amount          int64
		overshoots, may bool
	}{{4, false, false}, {4, true, true}, {1, true, false}, {1, false, false}} {
		if may := b.Take("a", gpus(step.amount), step.overshoots); may != step.may {
			t.Errorf("step %d: granted %v, want %v", i, may, step.may)
		}
	}
}
