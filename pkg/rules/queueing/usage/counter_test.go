package usage

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// objects are what exists: the input of a count.
type objects struct {
	nodes map[string]*v1.Node
	pods  map[types.UID]*v1.Pod
	held  map[hold.ID]*v1.Pod
	// claims are how many devices each claim has; unlimited is whether that is bounded by what nodes have.
	claims    map[string]int64
	unlimited bool
}

// device is the resource that all devices count as.
const device = v1.ResourceName("example.com/device")

// classes is the one class of all devices.
type classes struct{}

func (classes) ResourceOf(string) v1.ResourceName              { return device }
func (classes) Renamed(amount resource.Vector) resource.Vector { return amount }

const ours = "ours"

// caller finds the queue of a pod in its label.
type caller struct{}

func (caller) Ours(schedulerName string) bool { return schedulerName == ours }
func (caller) QueueOf(pod *v1.Pod) string     { return pod.Labels[v1alpha1.QueueLabel] }
func (caller) GangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, _, named := gangspec.KeyOf(pod)
	return key, named
}
func (caller) HeldChanged()     {}
func (caller) Recounted(string) {}

// assumed is an annotation of pods with the node that the scheduler has given to them, which no pod names yet.
const assumed = "assumed"

// nodeOf returns the node that a pod has.
func nodeOf(pod *v1.Pod) string { return cmp.Or(pod.Spec.NodeName, pod.Annotations[assumed]) }

// counted is a counter with what it counts into.
type counted struct {
	*Counter
	book  *queueing.Book
	nodes *pools.Cluster
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	nodes, err := pools.New([]config.Pool{{Name: "big", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "big"}}}})
	must.Succeed(t, err)
	book := queueing.NewBook(v1alpha1.DefaultQueue, nil)
	book.SetQueues(queueing.Queue{Name: "a", Weight: 1}, queueing.Queue{Name: "b", Weight: 1})
	return &counted{Counter: New(caller{}, book, nodes, deviceclaims.New(classes{})), book: book, nodes: nodes}
}

// countPod counts a pod as scheduler and controller do.
func (c *counted) countPod(pod *v1.Pod) {
	if pod.Spec.SchedulerName != ours {
		c.SetForeign(pod)
		return
	}
	c.Count(pod, Place{Node: nodeOf(pod), Runs: nodeOf(pod) != ""}, "")
}

// gone ends what is counted of a pod.
func (c *counted) gone(uid types.UID) {
	c.Drop(uid)
	c.book.PodEnded(string(uid), queueing.Moment{})
}

// again counts pods again that have moved with their node.
func (c *counted) again(o *objects, uids map[types.UID]bool) {
	for uid := range uids {
		c.countPod(o.pods[uid])
	}
}

// all counts everything, in a random order.
func (c *counted) all(r *rand.Rand, o *objects) {
	var do []func()
	for _, node := range o.nodes {
		do = append(do, func() { c.again(o, c.SetNode(node)) })
	}
	for _, pod := range o.pods {
		do = append(do, func() { c.countPod(pod) })
	}
	for id, pod := range o.held {
		do = append(do, func() { c.SetHeld(id, pod, pod.Spec.NodeName, resource.OfPod(pod)) })
	}
	for name, count := range o.claims {
		do = append(do, func() { c.ClaimsChanged(c.claims.Set(claimOf(name, count))) })
	}
	do = append(do, c.StartHeld, func() { c.setUnlimited(o) })
	r.Shuffle(len(do), func(i, j int) { do[i], do[j] = do[j], do[i] })
	for _, one := range do {
		one()
	}
}

func (c *counted) setUnlimited(o *objects) {
	names := map[v1.ResourceName]bool{}
	if o.unlimited {
		names[device] = true
	}
	c.SetUnlimited(names)
}

// uses are what is counted: the usage of each pod and each hold, and what the nodes share.
func (c *counted) uses(o *objects) map[string]string {
	uses := map[string]string{"total": c.nodes.Total().String()}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(o.pods)), toUIDs(o.held)) {
		if of, ok := c.book.Counted(string(id)); ok {
			uses[string(id)] = fmt.Sprint(of.Queue, " ", of.Runs, " ", of.Amount, " ", of.Or)
		}
	}
	for name, s := range c.book.Standings() {
		uses["queue "+name] = s.Running.String()
	}
	return uses
}

// running returns what a queue uses, of all resources together: its pods that have a node, and what is held on nodes
// that exist, of which one for each pod that moves counts only beyond the pod.
func (o *objects) running(queue string) (sum int64) {
	is := func(pod *v1.Pod) bool {
		return pod != nil && pod.Spec.SchedulerName == ours && nodeOf(pod) != "" && pod.Labels[v1alpha1.QueueLabel] == queue
	}
	for _, pod := range o.pods {
		if is(pod) {
			has := o.has(pod)
			sum += has[v1.ResourceCPU] + has[device]
		}
	}
	taken := map[*v1.Pod]bool{}
	for _, id := range slices.Sorted(maps.Keys(o.held)) {
		as := o.held[id]
		if !is(as) || o.nodes[as.Spec.NodeName] == nil {
			continue
		}
		counts := size(as)
		if pod := o.pods[types.UID(as.Annotations[v1alpha1.InPlaceOfAnnotation])]; is(pod) && !taken[pod] {
			counts, taken[pod] = max(0, counts-o.has(pod)[v1.ResourceCPU]), true
		}
		sum += counts
	}
	return sum
}

// has returns what a pod that has a node counts for: no more than its node has where the pod names that.
func (o *objects) has(pod *v1.Pod) resource.Vector {
	if pod.Spec.NodeName == "" {
		return o.asks(pod)
	}
	has := resource.Vector{}
	if node := o.nodes[pod.Spec.NodeName]; node != nil {
		most := resource.OfNode(node)
		for name, amount := range o.asks(pod) {
			if name != device || !o.unlimited {
				amount = min(amount, most[name])
			}
			has[name] = amount
		}
	}
	return has
}

// asks returns what a pod asks for: with the devices of its claim, if it is the first on a node that names it, or none
// is.
func (o *objects) asks(pod *v1.Pod) resource.Vector {
	asks := resource.OfPod(pod)
	claimOf := func(pod *v1.Pod) string {
		if len(pod.Spec.ResourceClaims) == 0 || pod.Spec.SchedulerName != ours && pod.Spec.NodeName == "" {
			return ""
		}
		return *pod.Spec.ResourceClaims[0].ResourceClaimName
	}
	claim, first := claimOf(pod), true
	for _, other := range o.pods {
		if claimOf(other) == claim && other.Spec.NodeName != "" {
			first = first && pod.Spec.NodeName != "" && pod.UID <= other.UID
		}
	}
	if claim != "" && first {
		asks[device] += o.claims[claim]
	}
	return asks
}

func size(pod *v1.Pod) (sum int64) {
	for _, amount := range resource.OfPod(pod) {
		sum += amount
	}
	return sum
}

func toUIDs(held map[hold.ID]*v1.Pod) (uids []types.UID) {
	for id := range held {
		uids = append(uids, types.UID(id))
	}
	return uids
}

// change changes an object at random, and counts it.
func (c *counted) change(r *rand.Rand, o *objects, version int) {
	switch name := fmt.Sprint("n", r.IntN(2)); r.IntN(11) {
	case 0:
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": []string{"big", "small"}[r.IntN(2)]}}}
		node.Spec.Unschedulable = r.IntN(3) == 0
		node.Status.Allocatable = cpus(8 + r.IntN(8))
		node.Status.Allocatable[device] = *apiresource.NewQuantity(r.Int64N(4), apiresource.DecimalSI)
		o.nodes[name] = node
		c.again(o, c.SetNode(node))
	case 1:
		delete(o.nodes, name)
		c.again(o, c.DropNode(name))
	case 2, 3:
		id := hold.ID(fmt.Sprint("h", r.IntN(3)))
		pod := podOf(r, string(id), version)
		pod.Annotations = map[string]string{v1alpha1.InPlaceOfAnnotation: fmt.Sprint("p", r.IntN(4))}
		if before := o.held[id]; before != nil { // of what is held, only amount and node change
			requests := pod.Spec.Containers
			pod = before.DeepCopy()
			pod.Spec.Containers = requests
		}
		pod.Spec.NodeName = name // the node that is held
		o.held[id] = pod
		c.SetHeld(id, pod, pod.Spec.NodeName, resource.OfPod(pod))
	case 4:
		id := hold.ID(fmt.Sprint("h", r.IntN(3)))
		delete(o.held, id)
		c.DropHeld(id)
	case 6:
		claim := fmt.Sprint("c", r.IntN(2))
		o.claims[claim] = 1 + r.Int64N(3)
		c.ClaimsChanged(c.claims.Set(claimOf(claim, o.claims[claim])))
	case 7:
		claim := fmt.Sprint("c", r.IntN(2))
		delete(o.claims, claim)
		c.ClaimsChanged(c.claims.Drop(types.NamespacedName{Namespace: "ns", Name: claim}))
	case 8:
		o.unlimited = r.IntN(3) == 0
		c.setUnlimited(o)
	case 5:
		uid := types.UID(fmt.Sprint("p", r.IntN(4)))
		delete(o.pods, uid)
		c.gone(uid)
	default:
		uid := fmt.Sprint("p", r.IntN(4))
		pod := podOf(r, uid, version)
		if before := o.pods[types.UID(uid)]; before != nil {
			pod.Spec.SchedulerName = before.Spec.SchedulerName // it does not change
		}
		if r.IntN(2) == 0 || pod.Spec.SchedulerName != ours {
			pod.Spec.NodeName = fmt.Sprint("n", r.IntN(2))
		} else if r.IntN(3) == 0 {
			pod.Annotations = map[string]string{assumed: fmt.Sprint("n", r.IntN(2))}
		}
		o.pods[types.UID(uid)] = pod
		c.countPod(pod)
	}
}

func cpus(n int) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *apiresource.NewQuantity(int64(n), apiresource.DecimalSI)}
}

func podOf(r *rand.Rand, uid string, version int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: uid, UID: types.UID(uid), ResourceVersion: fmt.Sprint(version),
		Labels: map[string]string{v1alpha1.QueueLabel: []string{"a", "b"}[r.IntN(2)]},
	}}
	pod.Spec.SchedulerName = []string{ours, ours, ours, "another"}[r.IntN(4)]
	pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpus(r.IntN(5))}}}
	if r.IntN(2) == 0 {
		pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "devices", ResourceClaimName: new(fmt.Sprint("c", r.IntN(2)))}}
	}
	if r.IntN(3) == 0 {
		pod.Spec.NodeSelector = map[string]string{"pool": "big"}
	}
	return pod
}

func claimOf(name string, count int64) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "devices", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "class", Count: count}}}
	return claim
}

// TestWhatExistsDecides: after any changes, the counter says what one says that counts the present objects from
// scratch, in any order; and when all is gone nothing is counted.
func TestWhatExistsDecides(t *testing.T) {
	inPlace, sizes := 0, map[int]bool{}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 5))
		o := &objects{nodes: map[string]*v1.Node{}, pods: map[types.UID]*v1.Pod{}, held: map[hold.ID]*v1.Pod{}, claims: map[string]int64{}}
		c := newCounted(t)
		c.StartHeld()
		for version := range 40 {
			c.change(r, o, version)
			fresh := newCounted(t)
			fresh.all(r, o)
			if diff := gocmp.Diff(fresh.uses(o), c.uses(o)); diff != "" {
				t.Fatalf("seed %d, after change %d (-from scratch +as it was told):\n%s", seed, version, diff)
			}
			for name, s := range c.book.Standings() {
				var sum int64
				for _, amount := range s.Running {
					sum += amount
				}
				if want := o.running(name); sum != want {
					t.Fatalf("seed %d, after change %d: queue %s uses %d, want %d", seed, version, name, sum, want)
				}
			}
			inPlace += len(c.inPlace)
			sizes[len(c.pods)] = true
		}
		for uid := range o.pods {
			c.gone(uid)
		}
		for id := range o.held {
			c.DropHeld(id)
		}
		if n := len(c.pods) + len(c.onNode) + len(c.ofClass) + len(c.holds.all) + len(c.moving) + len(c.inPlace) + len(c.foreign); n > 0 {
			t.Fatalf("seed %d: %d entries are left of nothing", seed, n)
		}
		for name, s := range c.book.Standings() {
			if !s.Running.Zero() {
				t.Fatalf("seed %d: queue %s uses %s of nothing", seed, name, s.Running)
			}
		}
	}
	if inPlace == 0 || len(sizes) < 4 {
		t.Errorf("%d holds in place of pods and %d numbers of pods show little", inPlace, len(sizes))
	}
}

// TestDemandOfMembers: a member asks for nothing before its gang is complete, which then names its job.
func TestDemandOfMembers(t *testing.T) {
	member := func() *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "p", Annotations: map[string]string{v1alpha1.GangNameAnnotation: "x"}},
			Spec:       v1.PodSpec{SchedulerName: ours},
		}
	}
	single := member()
	single.Annotations = nil
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		at   Place
		jobs []string
		want queueing.DemandScope
	}{
		"a pod in no gang":                {pod: single, jobs: []string{""}},
		"a member of an incomplete gang":  {pod: member(), jobs: []string{""}, want: queueing.Hopeless},
		"a member whose gang is in a job": {pod: member(), jobs: []string{"job"}},
		"one that was in a job before":    {pod: member(), jobs: []string{"job", ""}},
		"one that has a place":            {pod: member(), at: Place{Node: "n0", Promised: true}, jobs: []string{""}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newCounted(t)
			for _, job := range c.jobs {
				s.Count(c.pod, c.at, job)
			}
			if u := s.usageOf("p"); u.Demand != c.want {
				t.Errorf("its demand is %d, want %d", u.Demand, c.want)
			}
		})
	}
}

// dissolving is a caller whose gangs may all be none.
type dissolving struct {
	caller
	dissolved *bool
}

func (d dissolving) GangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, named := d.caller.GangOf(pod)
	return key, named && !*d.dissolved
}

// TestClaimOfAGangThatDissolves: a claim that two pods share that wait counts for one of them as long as they are in a
// gang, and for both when they are in none, in whichever order they are counted again.
func TestClaimOfAGangThatDissolves(t *testing.T) {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
				Labels:      map[string]string{v1alpha1.QueueLabel: "a"},
				Annotations: map[string]string{v1alpha1.GangNameAnnotation: "x"}},
			Spec: v1.PodSpec{SchedulerName: ours,
				ResourceClaims: []v1.PodResourceClaim{{Name: "devices", ResourceClaimName: new("c")}}},
		}
	}
	for _, order := range [][]*v1.Pod{{pod("p0"), pod("p1")}, {pod("p1"), pod("p0")}} {
		c, dissolved := newCounted(t), false
		c.Counter = New(dissolving{dissolved: &dissolved}, c.book, c.nodes, deviceclaims.New(classes{}))
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
		node.Status.Allocatable = v1.ResourceList{device: *apiresource.NewQuantity(8, apiresource.DecimalSI)}
		c.SetNode(node)
		c.ClaimsChanged(c.claims.Set(claimOf("c", 4)))
		for i, want := range []int64{4, 8, 4} {
			dissolved = i == 1
			for _, one := range order {
				c.countPod(one)
			}
			if got := c.usageOf("p0").Amount[device] + c.usageOf("p1").Amount[device]; got != want {
				t.Errorf("%s first, dissolved: %t: they ask for %d, want %d", order[0].Name, dissolved, got, want)
			}
		}
	}
}
