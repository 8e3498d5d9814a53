package reservationstate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// made is when the Reservations of the tests are made.
var made = time.Date(2027, 1, 31, 6, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return made.Add(d) }

func at(d time.Duration) *metav1.Time { return new(metav1.NewTime(after(d))) }

type change = func(*v1alpha1.Reservation)

// reserve makes a Reservation for replicas of 2 cpu and 1 GPU.
func reserve(replicas int32, changes ...change) *v1alpha1.Reservation {
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "tonight", UID: "r", Generation: 1, CreationTimestamp: *at(0)}}
	r.Spec.Replicas, r.Spec.TTL, r.Spec.AllocateOnce = replicas, &metav1.Duration{Duration: 24 * time.Hour}, new(true)
	r.Spec.Owners = []v1alpha1.ReservationOwner{{PodGroup: "a/train"}}
	for _, c := range changes {
		c(r)
	}
	return r
}

func again(r *v1alpha1.Reservation)  { r.Spec.AllocateOnce = new(false) }
func ttl(d time.Duration) change     { return func(r *v1alpha1.Reservation) { r.Spec.TTL.Duration = d } }
func expires(d time.Duration) change { return func(r *v1alpha1.Reservation) { r.Spec.Expires = at(d) } }
func starts(d time.Duration) change {
	return func(r *v1alpha1.Reservation) { r.Spec.StartTime = at(d) }
}
func deleted(r *v1alpha1.Reservation) { r.DeletionTimestamp = at(time.Hour) }
func phase(p v1alpha1.ReservationPhase) change {
	return func(r *v1alpha1.Reservation) { r.Status.Phase = p }
}

// tried marks a Reservation as one that a scheduler found no place for.
func tried(r *v1alpha1.Reservation) {
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReservationReasonUnschedulable}}
}

func amount(cpu, gpus int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *apiresource.NewQuantity(cpu, apiresource.DecimalSI), "nvidia.com/gpu": *apiresource.NewQuantity(gpus, apiresource.DecimalSI)}
}

// placed puts a Reservation on nodes, as the scheduler does.
func placed(nodes ...string) change {
	return func(r *v1alpha1.Reservation) {
		for i, node := range nodes {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: int32(i), NodeName: node, Allocatable: amount(2, 1)})
		}
		r.Status.Phase = v1alpha1.ReservationAvailable
	}
}

// user returns a pod on a node that asks for whole cpus and one GPU.
func user(name string, index int32, node string, cpu int64) Consumer {
	return Consumer{
		Namespace: "a", Name: name, UID: types.UID("u-" + name), Created: after(time.Minute), Index: index, Node: node,
		Requests: resource.FromList(amount(cpu, 1)),
	}
}

// usedBefore changes the owners so that none is in the namespace of the users; the status lists some of these.
func usedBefore(users ...Consumer) change {
	return func(r *v1alpha1.Reservation) {
		r.Spec.Owners = []v1alpha1.ReservationOwner{{PodGroup: "b/train"}}
		for _, u := range users {
			r.Status.CurrentOwners = append(r.Status.CurrentOwners, v1alpha1.ReservationConsumer{Namespace: u.Namespace, Name: u.Name, UID: u.UID, Index: u.Index})
		}
	}
}

func ended(c Consumer) Consumer { c.Ended = true; return c }

// outcome is the part of a status that the table looks at.
type outcome struct {
	Phase   v1alpha1.ReservationPhase
	Node    string
	Placed  string // index@node=cpu in use, ! if it is spent
	Owners  int32
	Ready   string
	Message string
	Again   time.Duration // from when it was made; 0 for never
}

func outcomeOf(status v1alpha1.ReservationStatus, again time.Time) outcome {
	o := outcome{Phase: status.Phase, Node: status.NodeName, Owners: status.OwnerCount}
	for _, p := range status.Placements {
		o.Placed += fmt.Sprintf("%d@%s=%s", p.Index, p.NodeName, p.Allocated.Cpu())
		if p.Spent {
			o.Placed += "!"
		}
		o.Placed += " "
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ReservationReady); c != nil {
		o.Ready, o.Message = string(c.Status)+"/"+c.Reason, c.Message
	}
	if !again.IsZero() {
		o.Again = again.Sub(made)
	}
	return o
}

func TestNext(t *testing.T) {
	const day = 24 * time.Hour
	for sentence, c := range map[string]struct {
		r         *v1alpha1.Reservation
		consumers []Consumer
		nodes     map[string]Node
		now       time.Duration
		want      outcome
	}{
		"a new one is pending until its ttl": {
			r: reserve(1), now: time.Second,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "0 of 1 placements are held: condition Scheduled tells why; it waits until 2027-02-01T06:00:00Z", Again: 30 * time.Second},
		},
		"one that no scheduler has tried says so": {
			r: reserve(1), now: 30 * time.Second,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Again: day, Message: "0 of 1 placements are held: no scheduler has tried: see that a lockstep-scheduler runs, and has the profile " +
				`"lockstep-scheduler" that spec.template.spec.schedulerName asks for; it waits until 2027-02-01T06:00:00Z`},
		},
		"one that was tried is looked at when it ends": {
			r: reserve(1, tried), now: time.Hour,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "0 of 1 placements are held: condition Scheduled tells why; it waits until 2027-02-01T06:00:00Z", Again: day},
		},
		"one for ever is looked at when something happens": {
			r: reserve(1, ttl(0), tried), now: 1000 * day,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "0 of 1 placements are held: condition Scheduled tells why; it waits until it is deleted"},
		},
		"of ttl and expires the earlier one counts": {
			r: reserve(1, expires(time.Hour), tried), now: time.Second,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "0 of 1 placements are held: condition Scheduled tells why; it waits until 2027-01-31T07:00:00Z", Again: time.Hour},
		},
		"an expires after the ttl does not count": {
			r: reserve(1, expires(2*day)), now: day,
			want: outcome{Phase: "Failed", Ready: "False/Expired", Message: "it expired at 2027-02-01T06:00:00Z (spec.ttl) without a place: condition Scheduled tells why"},
		},
		"before its startTime it waits for that": {
			r: reserve(1, starts(time.Hour)), now: time.Minute,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "nothing is held before spec.startTime, 2027-01-31T07:00:00Z", Again: time.Hour},
		},
		"the ttl counts from startTime": {
			r: reserve(1, starts(time.Hour), tried), now: day,
			want: outcome{Phase: "Pending", Ready: "False/Pending", Message: "0 of 1 placements are held: condition Scheduled tells why; it waits until 2027-02-01T07:00:00Z", Again: day + time.Hour},
		},
		"a startTime before its creation changes nothing": {
			r: reserve(1, starts(-time.Hour)), now: day,
			want: outcome{Phase: "Failed", Ready: "False/Expired", Message: "it expired at 2027-02-01T06:00:00Z (spec.ttl) without a place: condition Scheduled tells why"},
		},
		"a nanosecond before the end it is not over": {
			r: reserve(1, placed("n1")), now: day - 1,
			want: outcome{Phase: "Available", Node: "n1", Placed: "0@n1=0 ", Ready: "True/Available", Message: "it is held on node n1 until 2027-02-01T06:00:00Z", Again: day},
		},
		"at its end it is": {
			r: reserve(1, placed("n1")), now: day,
			want: outcome{Phase: "Failed", Node: "n1", Placed: "0@n1=0 ", Ready: "False/Expired", Message: "it expired at 2027-02-01T06:00:00Z (spec.ttl): it no longer holds anything"},
		},
		"who uses it then runs on": {
			r: reserve(1, again, placed("n1")), consumers: []Consumer{user("w", 0, "n1", 1)}, now: day,
			want: outcome{Phase: "Failed", Node: "n1", Placed: "0@n1=1 ", Owners: 1, Ready: "False/Expired", Message: "it expired at 2027-02-01T06:00:00Z (spec.ttl): it no longer holds anything; pods that use it run on: 1"},
		},
		"one that was over before it began says so": {
			r: reserve(1, expires(-time.Hour)), now: time.Second,
			want: outcome{Phase: "Failed", Ready: "False/Expired", Message: "spec.expires, 2027-01-31T05:00:00Z, had passed when it was made: make another Reservation with a later one"},
		},
		"several placements have no one node": {
			r:    reserve(2, ttl(0), placed("n1", "n2")),
			want: outcome{Phase: "Available", Placed: "0@n1=0 1@n2=0 ", Ready: "True/Available", Message: "2 placements are held until it is deleted"},
		},
		"a cordoned node holds on, and is named": {
			r: reserve(2, ttl(0), placed("n1", "n2")), nodes: map[string]Node{"n2": NodeCordoned},
			want: outcome{Phase: "Available", Placed: "0@n1=0 1@n2=0 ", Ready: "True/Available", Message: "2 placements are held until it is deleted; cordoned, and still held: node n2: owners can use it after kubectl uncordon"},
		},
		"a node that is not ready, too": {
			r: reserve(2, ttl(0), placed("n1", "n2")), nodes: map[string]Node{"n1": NodeCordoned, "n2": NodeNotReady},
			want: outcome{
				Phase: "Available", Placed: "0@n1=0 1@n2=0 ", Ready: "True/Available",
				Message: "2 placements are held until it is deleted; cordoned, and still held: node n1: owners can use it after kubectl uncordon; " +
					"not ready, and still held: node n2: owners can use it when kubelet reports again; if it does not, delete the node",
			},
		},
		"used once, it has succeeded": {
			r: reserve(1, placed("n1")), consumers: []Consumer{user("w", 0, "n1", 1)},
			want: outcome{Phase: "Succeeded", Node: "n1", Placed: "0@n1=1! ", Owners: 1, Ready: "False/Succeeded", Message: "pod a/w has used it"},
		},
		"used by a pod that has ended meanwhile, too": {
			r: reserve(1, placed("n1")), consumers: []Consumer{ended(user("w", 0, "n1", 1))},
			want: outcome{Phase: "Succeeded", Node: "n1", Placed: "0@n1=0! ", Ready: "False/Succeeded", Message: "it has been used"},
		},
		"what was used in time has succeeded, though nobody looked until it was over": {
			r: reserve(1, placed("n1")), consumers: []Consumer{user("w", 0, "n1", 1)}, now: 2 * day,
			want: outcome{Phase: "Succeeded", Node: "n1", Placed: "0@n1=1! ", Owners: 1, Ready: "False/Succeeded", Message: "pod a/w has used it"},
		},
		"of several each is used once": {
			r: reserve(3, ttl(0), placed("n1", "n2", "n3")), consumers: []Consumer{user("w", 1, "n2", 1)},
			want: outcome{Phase: "Available", Placed: "0@n1=0 1@n2=1! 2@n3=0 ", Owners: 1, Ready: "True/Available", Message: "1 of 3 placements used; the others are held until it is deleted"},
		},
		"all of them used, it has succeeded": {
			r: reserve(2, placed("n1", "n2")), consumers: []Consumer{user("v", 0, "n1", 1), user("w", 1, "n2", 1)},
			want: outcome{Phase: "Succeeded", Placed: "0@n1=1! 1@n2=1! ", Owners: 2, Ready: "False/Succeeded", Message: "all 2 placements have been used"},
		},
		"a pod that is not bound yet uses nothing": {
			r: reserve(1, ttl(0), placed("n1")), consumers: []Consumer{user("w", 0, "", 1)},
			want: outcome{Phase: "Available", Node: "n1", Placed: "0@n1=0 ", Ready: "True/Available", Message: "it is held on node n1 until it is deleted"},
		},
		"a pod on another node uses nothing": {
			r: reserve(1, ttl(0), placed("n1")), consumers: []Consumer{user("w", 0, "n2", 1)},
			want: outcome{Phase: "Available", Node: "n1", Placed: "0@n1=0 ", Ready: "True/Available", Message: "it is held on node n1 until it is deleted"},
		},
		"a pod of a placement that does not exist uses nothing": {
			r: reserve(1, ttl(0), placed("n1")), consumers: []Consumer{user("w", 7, "n1", 1)},
			want: outcome{Phase: "Available", Node: "n1", Placed: "0@n1=0 ", Ready: "True/Available", Message: "it is held on node n1 until it is deleted"},
		},
		"used again and again, it stays, and no more is used than there is": {
			r: reserve(1, ttl(0), again, placed("n1")), consumers: []Consumer{user("v", 0, "n1", 1), user("w", 0, "n1", 8), ended(user("u", 0, "n1", 1))},
			want: outcome{Phase: "Available", Node: "n1", Placed: "0@n1=2 ", Owners: 2, Ready: "True/Available", Message: "it is held on node n1 until it is deleted"},
		},
		"who used it before the owners changed uses it": {
			r:         reserve(1, ttl(0), again, placed("n1"), usedBefore(user("w", 0, "n1", 1))),
			consumers: []Consumer{user("v", 0, "n1", 1), user("w", 0, "n1", 1)},
			want:      outcome{Phase: "Available", Node: "n1", Placed: "0@n1=1 ", Owners: 1, Ready: "True/Available", Message: "it is held on node n1 until it is deleted"},
		},
		"but no other placement, nor does another pod of the name": {
			r:         reserve(2, ttl(0), again, placed("n1", "n2"), usedBefore(user("w", 0, "n1", 1), user("v", 0, "n1", 1))),
			consumers: []Consumer{user("w", 1, "n2", 1), func() Consumer { c := user("v", 0, "n1", 1); c.UID = "other"; return c }()},
			want:      outcome{Phase: "Available", Placed: "0@n1=0 1@n2=0 ", Ready: "True/Available", Message: "2 placements are held until it is deleted"},
		},
		"a node that is gone takes its placement along": {
			r: reserve(3, ttl(0), again, placed("n1", "n2", "n3")), consumers: []Consumer{user("v", 0, "n1", 1), user("w", 1, "n2", 1)}, nodes: map[string]Node{"n2": NodeGone},
			want: outcome{Phase: "Pending", Placed: "0@n1=1 2@n3=0 ", Owners: 1, Ready: "False/NodeLost", Message: "gone: node n2, and 1 of 3 placements with it: another place is sought; 2 are held"},
		},
		"the only node": {
			r: reserve(1, placed("n1")), nodes: map[string]Node{"n1": NodeGone},
			want: outcome{Phase: "Pending", Ready: "False/NodeLost", Message: "gone: node n1, and 1 of 1 placements with it: another place is sought; 0 are held", Again: day},
		},
		"what was used once needs no other place": {
			r: reserve(2, ttl(0), placed("n1", "n2")), consumers: []Consumer{user("w", 1, "n2", 1)}, nodes: map[string]Node{"n2": NodeGone},
			want: outcome{Phase: "Available", Placed: "0@n1=0 1@n2=1! ", Owners: 1, Ready: "True/Available", Message: "1 of 2 placements used; the others are held until it is deleted"},
		},
		"one that waits for finalizers holds nothing": {
			r: reserve(1, placed("n1"), deleted), now: 2 * time.Hour,
			want: outcome{Phase: "Failed", Node: "n1", Placed: "0@n1=0 ", Ready: "False/Deleted", Message: "it is being deleted: it no longer holds anything"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			status, again := Next(c.r, Observed{Consumers: c.consumers, Nodes: c.nodes}, after(c.now))
			if diff := cmp.Diff(c.want, outcomeOf(status, again)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if over := Ended(status.Phase); over != (status.EndTime != nil) {
				t.Errorf("phase %s, end %v", status.Phase, status.EndTime)
			}
		})
	}
}

// TestFinal: a Reservation that has ended stays as it is, whatever happens.
func TestFinal(t *testing.T) {
	for _, p := range []v1alpha1.ReservationPhase{v1alpha1.ReservationSucceeded, v1alpha1.ReservationFailed} {
		r := reserve(1, placed("n1"), phase(p), deleted, ttl(time.Hour))
		r.Status.EndTime = at(time.Hour)
		status, again := Next(r, Observed{Consumers: []Consumer{user("w", 0, "n1", 1)}, Nodes: map[string]Node{"n1": NodeGone}}, after(48*time.Hour))
		if diff := cmp.Diff(r.Status, status); diff != "" || !again.IsZero() {
			t.Errorf("%s: again %v, status (-was +is):\n%s", p, again, diff)
		}
	}
}

// TestNodeLost: the reason why a place is sought stays until one has been found.
func TestNodeLost(t *testing.T) {
	r := reserve(2, placed("n1", "n2"), ttl(0))
	step := func(nodes map[string]Node, want string) {
		t.Helper()
		r.Status, _ = Next(r, Observed{Nodes: nodes}, after(time.Hour))
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationReady)
		if got := fmt.Sprintf("%s %s: %s", r.Status.Phase, c.Reason, c.Message); got != want {
			t.Errorf("it has %q, want %q", got, want)
		}
	}
	lost := "Pending NodeLost: gone: node n2, and 1 of 2 placements with it: another place is sought; 1 are held"
	step(map[string]Node{"n2": NodeGone}, lost)
	step(nil, lost)
	step(map[string]Node{"n1": NodeGone}, "Pending NodeLost: gone: node n1, and 1 of 2 placements with it: another place is sought; 0 are held")
	placed("n3", "n4")(r)
	step(nil, "Available Available: 2 placements are held until it is deleted")
}

// TestAnothersPods: a pod that says that it uses a placement does so only in a namespace of the owners.
func TestAnothersPods(t *testing.T) {
	forged := user("w", 0, "n1", 1)
	forged.Namespace = "b"
	for _, r := range []*v1alpha1.Reservation{reserve(1, placed("n1")), reserve(1, again, placed("n1"))} {
		status, _ := Next(r, Observed{Consumers: []Consumer{forged}}, made)
		if p := status.Placements[0]; status.Phase != v1alpha1.ReservationAvailable || status.OwnerCount != 0 || p.Spent {
			t.Errorf("%s, %d owners, %+v; want nothing used", status.Phase, status.OwnerCount, p)
		}
	}
}

// TestOpenTo: every kind of owner is in one namespace: the one that it names, or for labels that of the template.
func TestOpenTo(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for sentence, c := range map[string]struct {
		owners []v1alpha1.ReservationOwner
		want   string
	}{
		"nobody":                                {nil, ""},
		"labels, in the template's namespace":   {[]v1alpha1.ReservationOwner{{LabelSelector: app}}, "t"},
		"labels, in another":                    {[]v1alpha1.ReservationOwner{{LabelSelector: app, Namespace: "a"}}, "a"},
		"a gang":                                {[]v1alpha1.ReservationOwner{{PodGroup: "a/train"}}, "a"},
		"a controller":                          {[]v1alpha1.ReservationOwner{{Controller: &v1alpha1.ReservationOwnerController{Namespace: "b"}}}, "b"},
		"a pod":                                 {[]v1alpha1.ReservationOwner{{Object: &v1alpha1.ReservationOwnerObject{Namespace: "b"}}}, "b"},
		"two entries":                           {[]v1alpha1.ReservationOwner{{PodGroup: "a/train"}, {LabelSelector: app}}, "at"},
		"an entry that no pod can match at all": {[]v1alpha1.ReservationOwner{{PodGroup: "a/train", LabelSelector: app}}, ""},
	} {
		r := &v1alpha1.Reservation{Spec: v1alpha1.ReservationSpec{Owners: c.owners}}
		r.Spec.Template.Namespace = "t"
		got := ""
		for _, namespace := range []string{"", "a", "b", "t", "default"} {
			if OpenTo(r, namespace) {
				got += namespace
			}
		}
		if got != c.want {
			t.Errorf("%s: open to %q, want %q", sentence, got, c.want)
		}
	}
}

// TestCurrentOwners: the oldest are listed, and all are counted.
func TestCurrentOwners(t *testing.T) {
	r := reserve(1, again, placed("n1"))
	var consumers []Consumer
	for i := range 100 {
		c := user(fmt.Sprintf("w%02d", i), 0, "n1", 1)
		c.Created = after(-time.Duration(i) * time.Second)
		consumers = append(consumers, c)
	}
	status, _ := Next(r, Observed{Consumers: consumers}, made)
	if len(status.CurrentOwners) != 64 || status.OwnerCount != 100 || status.CurrentOwners[0].Name != "w99" {
		t.Errorf("%d of %d listed, %v first; want 64 of 100, w99 first", len(status.CurrentOwners), status.OwnerCount, status.CurrentOwners[0])
	}
}

func TestAllocation(t *testing.T) {
	want := Allocation{Name: "tonight", UID: "x", Index: 3}
	if got := want.String(); got != `{"name":"tonight","uid":"x","index":3}` {
		t.Errorf("written: %s", got)
	}
	if got, ok := AllocationOf(podWith(want.String())); !ok || got != want {
		t.Errorf("read: %+v, %t", got, ok)
	}
	for _, value := range []string{"", "null", "{}", "tonight", `{"name":"a"}`, `{"uid":"x"}`, `{"name":"a","uid":"x","index":-1}`, `{"name":"a","uid":"x","index":9999999999}`} {
		if got, ok := AllocationOf(podWith(value)); ok {
			t.Errorf("a pod with %q uses %+v, want nothing", value, got)
		}
	}
}

// podWith returns a pod with a value of the annotation that says which placement it uses.
func podWith(allocation string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ReservationAllocatedAnnotation: allocation}}}
}

func FuzzAllocationOf(f *testing.F) {
	f.Add(`{"name":"tonight","uid":"x","index":3}`)
	f.Fuzz(func(t *testing.T, value string) {
		a, ok := AllocationOf(podWith(value))
		if !ok {
			return
		}
		if b, ok := AllocationOf(podWith(a.String())); !ok || b != a {
			t.Errorf("%q is %+v, and read again %+v, %t", value, a, b, ok)
		}
	})
}
