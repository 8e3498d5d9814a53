package gangstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// start is when all stories begin.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	sizeLabel = "size" // what a pod takes of its node; 1 if it does not say
	nodeLabel = "node" // the only node that takes a pod
)

// podOf returns a pod of namespace a whose UID is its name.
func podOf(name string, changes ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start),
		Annotations: values{}, Labels: values{},
	}}
	return edit(pod, changes...)
}

// edit returns a changed copy.
func edit(pod *v1.Pod, changes ...func(*v1.Pod)) *v1.Pod {
	pod = pod.DeepCopy()
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func in(namespace string) func(*v1.Pod) { return func(p *v1.Pod) { p.Namespace = namespace } }

func of(gang string) func(*v1.Pod) { return says(v1alpha1.GangNameAnnotation, gang) }

func says(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

func mutely(key string) func(*v1.Pod) { return func(p *v1.Pod) { delete(p.Annotations, key) } }

func labeled(key, value string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[key] = value } }

func needs(n int) func(*v1.Pod) { return says(minKey, strconv.Itoa(n)) }

func sized(n int) func(*v1.Pod) { return labeled(sizeLabel, strconv.Itoa(n)) }

func only(node string) func(*v1.Pod) { return labeled(nodeLabel, node) }

func as(role string) func(*v1.Pod) { return labeled(v1alpha1.RoleLabel, role) }

func on(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

// bindTo binds a pod, this long after the stories begin.
func bindTo(node string, after time.Duration) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.NodeName = node
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(after))}}
	}
}

// ended makes a pod one that succeeded, so long after the stories begin.
func ended(after time.Duration) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Phase = v1.PodSucceeded
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(start.Add(after))}}}}
	}
}

func urgent(priority int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &priority } }

func aged(age time.Duration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-age)) }
}

func uid(uid string) func(*v1.Pod) { return func(p *v1.Pod) { p.UID = types.UID(uid) } }

func owned(by string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(by), Controller: new(true)}}
	}
}

func gated(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }

func ungated(p *v1.Pod) { p.Spec.SchedulingGates = nil }

// claiming makes a pod ask for claims of these names from templates.
func claiming(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, name := range names {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
		}
	}
}

// naming makes a pod use a claim that others may use, too.
func naming(claims ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, claim := range claims {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		}
	}
}

// made records that the claim of a pod with this name is made; what the claim is called does not
// matter.
func made(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: name})
	}
}

func dying(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(start)) }

// podsNamed returns pods prefix1, prefix2 and so on.
func podsNamed(prefix string, n int, changes ...func(*v1.Pod)) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = podOf(prefix+strconv.Itoa(i+1), changes...)
	}
	return pods
}

// place is where a pod is on its way through the scheduler.
type place int

const (
	parked place = iota // gated, or unschedulable
	queued
	held  // it waits in Permit
	going // a cycle, a binding, or the end of a reservation is under way
	bound
)

// cluster plays the API server and the scheduler for a Gangs, one step at a time: nodes with room
// for a number of pods, a queue, a planner that takes the first node that fits. It tries nothing
// again by itself: a parked pod stays parked until it is activated, or, if it goes alone, until the
// cluster changed.
type cluster struct {
	*watch
	now   time.Time
	room  map[string]int
	pods  map[types.UID]*v1.Pod
	at    map[types.UID]place
	node  map[types.UID]string // what the scheduler's cache knows
	tasks []func()
	// claiming are the claims for which calls are under way, each with the pod that they are for.
	claiming map[types.NamespacedName]types.UID
	refuse   map[types.UID]int  // how often the next bindings of a pod fail
	gatedOut map[types.UID]bool // at another gate
	cycles   map[types.UID]int
	// position is where a pod stands in the queue, since it entered it.
	position map[types.UID]turns.Rank
	cost     time.Duration // of an attempt
	dear     string        // the only group whose attempts cost something; empty for all
	// spoiled is a pod that fails on every node it is planned for.
	nodeless bool // kube-scheduler ends cycles before it asks any plugin
	spoiled  types.UID
	// between is what happens between the visit of a pod and its reservation, once.
	between map[types.UID]func()
	// failed counts the rounds that failed.
	failed int
	// hopeless are the groups that a plan reports as hopeless.
	hopeless map[string]bool
	// attempts are the attempts that were made.
	attempts []attempted
	// turns is where the groups wait for their turns.
	turns *waitingLine
	log   []string
}

type podT = v1.Pod

// attempted is an attempt, and its outcome.
type attempted struct {
	*Attempt
	Outcome
}

// newOpen returns gangs that let members through.
func newOpen(defaults gangspec.Defaults, backoff Backoff) *Gangs {
	s := New(defaults, backoff)
	s.Open(start)
	return s
}

func newCluster(t *testing.T, room map[string]int) *cluster {
	s := newOpen(gangspec.Defaults{WaitTime: 10 * time.Minute}, Backoff{Initial: time.Second, Max: 10 * time.Second})
	c := &cluster{
		now: start, room: room, pods: map[types.UID]*v1.Pod{}, at: map[types.UID]place{}, node: map[types.UID]string{},
		refuse: map[types.UID]int{}, gatedOut: map[types.UID]bool{}, cycles: map[types.UID]int{}, position: map[types.UID]turns.Rank{},
		claiming: map[types.NamespacedName]types.UID{}, between: map[types.UID]func(){},
	}
	c.turns = newLine(s)
	c.watch = newWatch(s, func(format string, args ...any) {
		t.Helper()
		t.Fatalf("after %q: %s", c.log, fmt.Sprintf(format, args...))
	})
	return c
}

// add creates pods, or updates them, and lets the scheduler see them.
func (c *cluster) add(pods ...*v1.Pod) {
	for _, pod := range pods {
		_, known := c.pods[pod.UID]
		c.pods[pod.UID] = pod
		if pod.Spec.NodeName != "" {
			c.at[pod.UID], c.node[pod.UID] = bound, pod.Spec.NodeName
		}
		c.do(c.s.ObservePod(pod, c.now))
		if !known && pod.Spec.NodeName == "" {
			c.at[pod.UID] = parked
			c.offer(pod.UID)
		}
	}
}

// bring adds pods, and lets the scheduler do its work.
func (c *cluster) bring(pods ...*v1.Pod) {
	c.add(pods...)
	c.run()
}

// change updates pods by name prefix.
func (c *cluster) change(prefix string, changes ...func(*v1.Pod)) {
	for _, id := range c.named(prefix) {
		c.add(edit(c.pods[id], changes...))
	}
}

func (c *cluster) named(prefix string) []types.UID {
	var ids []types.UID
	for id, pod := range c.pods {
		if strings.HasPrefix(pod.Name, prefix) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// remove deletes pods by name prefix, and what they take.
func (c *cluster) remove(prefix string) {
	for _, id := range c.named(prefix) {
		wasHeld := c.at[id] == held
		delete(c.pods, id)
		if !wasHeld {
			delete(c.node, id)
			delete(c.at, id)
		}
		c.do(c.s.PodEnded(id, c.now))
		c.changed()
	}
}

// finish ends pods with success.
func (c *cluster) finish(prefix string) {
	for _, id := range c.named(prefix) {
		pod := edit(c.pods[id], ended(c.now.Sub(start)))
		delete(c.pods, id)
		delete(c.node, id)
		delete(c.at, id)
		c.do(c.s.PodEnded(id, c.now))
		c.do(c.s.ObservePod(pod, c.now))
		c.changed()
	}
}

// withdraw calls Withdraw for a claim and a pod that it is reserved for.
func (c *cluster) withdraw(claim types.NamespacedName, from types.UID) {
	may, e := c.s.Withdraw(claim, []types.UID{from}, c.now)
	c.log = append(c.log, fmt.Sprintf("may be taken back: %t", may))
	c.do(e)
}

// during lets something happen in the next cycle of a pod, after its visit.
func (c *cluster) during(id types.UID, what func()) { c.between[id] = what }

func (c *cluster) describe(name string, object *gangspec.PodGroupDescription) {
	if object != nil {
		object.Created = start
	}
	c.do(c.s.Describe(gangspec.Community, gangspec.Key{Namespace: "a", Name: name}, object, c.now))
}

// changed does what the scheduler does when something happened that may help.
func (c *cluster) changed() {
	c.turns.RecordChange(turns.Freed)
	for _, id := range slices.Sorted(maps.Keys(c.at)) {
		if m := c.s.members[id]; c.at[id] == parked && (m == nil || m.gang.hasStarted()) {
			c.offer(id)
		}
	}
}

// grow adds room to a node.
func (c *cluster) grow(node string, n int) {
	c.room[node] += n
	c.changed()
}

// do acts on effects.
func (c *cluster) do(e Effects) { c.doPlan(e, nil) }

func (c *cluster) doPlan(e Effects, accepted map[types.UID]string) {
	c.after(e, accepted)
	c.turns.note(e, c.now)
	c.failed += e.RoundsFailed
	for _, id := range e.Release {
		if c.at[id] == held {
			c.bind(id)
		}
	}
	for _, id := range e.Reject {
		if c.at[id] == held {
			c.unreserve(id)
		}
	}
	for _, pod := range e.Expire {
		if c.pods[pod.UID] != nil {
			c.add(edit(c.pods[pod.UID], says(v1alpha1.TimeoutAnnotation, "true")))
		}
	}
	for _, pod := range e.Activate {
		c.offer(pod.UID)
	}
	for _, p := range e.Problems {
		who := "PodGroup"
		if p.Pod != nil {
			who = p.Pod.Name
		}
		c.log = append(c.log, fmt.Sprintf("event on %s: %s", who, p.Problem))
	}
	if e.Freed {
		c.changed()
	}
}

// offer asks whether a parked pod may enter the active queue.
func (c *cluster) offer(id types.UID) {
	if pod := c.pods[id]; pod != nil && c.at[id] == parked && len(pod.Spec.SchedulingGates) == 0 && c.queue(pod) && !c.gatedOut[id] {
		c.at[id] = queued
		if m := c.s.memberOf(pod); m != nil {
			c.position[id] = m.rank()
		}
	}
}

// before orders pods as the queue does.
func (c *cluster) before(a, b *v1.Pod) bool {
	x, y := c.position[a.UID], c.position[b.UID]
	x.Priority, y.Priority = corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)
	return cmp.Or(x.Compare(y), compareMembers(newMember(a), newMember(b))) < 0
}

// step runs one task or one scheduling cycle.
func (c *cluster) step() bool {
	if len(c.tasks) > 0 {
		task := c.tasks[0]
		c.tasks = c.tasks[1:]
		task()
		return true
	}
	var next *v1.Pod
	for id, at := range c.at {
		pod := c.pods[id]
		if at == queued && (next == nil || c.before(pod, next)) {
			next = pod
		}
	}
	if next == nil {
		return c.retry() && c.step()
	}
	c.at[next.UID] = going
	c.cycles[next.UID]++
	c.cycle(next)
	return true
}

// run steps until nothing moves.
func (c *cluster) run() {
	for n := 0; c.step(); n++ {
		if n > 10000 {
			c.fail("it spins")
		}
	}
}

// retry gives the next group its turn.
func (c *cluster) retry() bool {
	e, ok := c.turns.next(c.now)
	c.do(e)
	return ok
}

// tick lets no time pass, but says that it has, and gives the next group its turn.
func (c *cluster) tick() {
	c.do(c.s.Tick(c.now, c.turns.elsewhere.makes))
	c.retry()
}

// until steps until a member is in a state.
func (c *cluster) until(id types.UID, state State) {
	for c.s.members[id].state != state {
		if !c.step() {
			c.fail("pod %s never gets there", id)
		}
	}
}

// pass lets time pass, second by second.
func (c *cluster) pass(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(time.Second)
		c.do(c.s.Tick(c.now, c.turns.elsewhere.makes))
		c.run()
	}
}

// look notes where the members of all gangs are.
func (c *cluster) look(when string) {
	names := [numStates]string{"pending", "planned", "held", "released", "bound", "returning"}
	var gangs []string
	for _, key := range c.s.keys() {
		var parts []string
		for state, in := range c.s.gangs[key].byState {
			if in.N > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", in.N, names[state]))
			}
		}
		gangs = append(gangs, key.String()+" "+cmp.Or(strings.Join(parts, " "), "empty"))
	}
	c.log = append(c.log, when+": "+strings.Join(gangs, ", "))
}

// outcome lets the scheduler do its work, and notes where the members are then.
func (c *cluster) outcome(when string) {
	c.run()
	c.look(when)
}

// later lets time pass, and notes where the members are then.
func (c *cluster) later(d time.Duration, when string) {
	c.pass(d)
	c.look(when)
}

// why notes what users are told about a gang.
func (c *cluster) why(name string) {
	e, _ := c.s.Explain(gangspec.Key{Namespace: "a", Name: name})
	c.log = append(c.log, fmt.Sprintf("%s: %s", cmp.Or(e.Reason, "nothing to tell"), e.Message))
}
