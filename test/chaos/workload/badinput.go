package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// BadInput is objects that make no sense. Some of them the API server refuses.
type BadInput struct {
	Name, Namespace string
	// Kind is what is wrong with it.
	Kind      string
	At, Until time.Duration
	// Objects are in the order of their creation. They are deleted in the opposite order.
	Objects []*unstructured.Unstructured
	// Changes are in order of time.
	Changes []Change
}

// Change is a merge patch of an object.
type Change struct {
	At     time.Duration
	Object int
	Patch  string
}

// BadInputLabel is on all pods of bad input: nobody expects that they are bound.
const BadInputLabel = "chaos.lockstep.dev/bad-input"

// badKinds are the kinds of bad input.
var badKinds = []struct {
	kind string
	in   func(o Options) bool
	make func(b *badMaker)
}{
	{"amounts", always, (*badMaker).badAmounts},
	{"minimums", always, (*badMaker).badMinimum},
	{"names", always, (*badMaker).badName},
	{"JSON", always, (*badMaker).badJSON},
	{"keys", always, (*badMaker).badKey},
	{"groups", always, (*badMaker).badGroups},
	{"PodGroups", always, (*badMaker).badPodGroup},
	{"cycles of queues", withQueues, (*badMaker).queueCycle},
	{"lines of queues", withQueues, (*badMaker).queueLine},
	{"amounts of queues", withQueues, (*badMaker).badQueue},
	{"queues that move", withQueues, (*badMaker).queueThatMoves},
	{"Reservations", func(o Options) bool { return o.Reservations }, (*badMaker).badReservation},
	{"PodMigrations", func(o Options) bool { return o.Moves }, (*badMaker).badMigration},
	{"DefragmentationPlans", func(o Options) bool { return o.Moves }, (*badMaker).badPlan},
}

func always(Options) bool       { return true }
func withQueues(o Options) bool { return o.Queues }

// Bad values, by what they are put into.
var (
	badAmounts  = []string{"1e30", "4611686018427387904", "9223372036854775807", "1E", "1n", "1m", "0", "-1"}
	badTargets  = []string{"cpu", "memory", "ephemeral-storage", string(localcluster.ResourceGPU), "example.com/none"}
	badMinimums = []string{"-1", "-9223372036854775808", "0", "1000", "2147483648", "4611686018427387904", "1e30", " 2", "0x2", "two", "2.5"}
	badNames    = []string{"with spaces ", "tab\t", "line\nbreak ", "\x1b[31mred ", "nul\x00", `"quoted" `, "../../", "%s%d ", "Ümläut ", strings.Repeat("long", 100)}
	badJSON     = []string{`["chaos-a/`, `{"a":`, "null", "[1,2]", `"text"`, strings.Repeat("[", 5000), `{"a":1e400}`, "\x00", "[]]"}
	badJSONKeys = []string{v1alpha1.GroupsAnnotation, v1alpha1.MinByRoleAnnotation, v1alpha1.StagesAnnotation, v1alpha1.NetworkTopologySpecAnnotation, v1alpha1.TopologySlicesAnnotation, v1alpha1.ReservationAnnotation}
	badKeys     = []string{
		"gang.scheduling.koordinator.sh/min-avalable", "gang.scheduling.koordinator.sh/Mode", "gang.scheduling.koordinator.sh/group",
		"scheduling.lockstep.dev/requird-topology", "scheduling.lockstep.dev/", "scheduling.lockstep.dev/no-such-key",
	}
	badTopologies = []string{"no-such-label", "not a label", "a/b/c", "\n", "{}"}
	badResources  = []string{"GPU", "not a name", "nvidia.com/", "a/b/c", "", string(localcluster.ResourceGPU), "cpu"}
)

// Limits of the rate and the life of bad input.
const (
	badOften, badSeldom = 2 * time.Second, 5 * time.Second
	badShort, badLong   = 3 * time.Second, 12 * time.Second
)

// badInputs makes up the bad input of a plan.
func badInputs(o Options, r *rand.Rand) []BadInput {
	var all []BadInput
	if !o.BadInput {
		return nil
	}
	for at := between(r, 0, badSeldom); at < o.Length; at += between(r, badOften, badSeldom) {
		kind := badKinds[r.IntN(len(badKinds))]
		for !kind.in(o) {
			kind = badKinds[r.IntN(len(badKinds))]
		}
		b := &badMaker{r: r, BadInput: BadInput{
			Name: fmt.Sprintf("bad%05d", len(all)), Namespace: Namespaces[r.IntN(len(Namespaces))], Kind: kind.kind, At: at, Until: at + between(r, badShort, badLong),
		}}
		kind.make(b)
		all = append(all, b.BadInput)
	}
	return all
}

type badMaker struct {
	BadInput
	r *rand.Rand
}

// any returns one of several values.
func (b *badMaker) any(values []string) string { return values[b.r.IntN(len(values))] }

// object adds an object with a spec.
func (b *badMaker) object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetName(name)
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	b.Objects = append(b.Objects, u)
	return u
}

// ours adds an object of this project's API that is in no namespace.
func (b *badMaker) ours(kind, name string, spec map[string]any) {
	b.object(v1alpha1.SchemeGroupVersion.String(), kind, "", name, spec)
}

// podSpec returns the spec of a pod that asks for an amount of one resource.
func (b *badMaker) podSpec(resource, amount string) map[string]any {
	asked := map[string]any{resource: amount}
	return map[string]any{
		"schedulerName": SchedulerName, "priorityClassName": ClassName(b.r.IntN(len(Levels))), "terminationGracePeriodSeconds": int64(graceSeconds),
		"containers": []any{map[string]any{
			"name": "worker", "image": "registry.k8s.io/pause:3.10", "resources": map[string]any{"requests": asked, "limits": asked},
		}},
	}
}

// pods adds pods that are alike: each asks for one GPU unless something else is said.
func (b *badMaker) pods(n int, labels, annotations map[string]string, asked ...string) {
	resource, amount := string(localcluster.ResourceGPU), "1"
	if len(asked) == 2 {
		resource, amount = asked[0], asked[1]
	}
	spec := b.podSpec(resource, amount)
	for i := range n {
		pod := b.object("v1", "Pod", b.Namespace, fmt.Sprintf("%s-%d", b.Name, i), spec)
		all := map[string]string{GangLabel: b.Name, BadInputLabel: ""}
		for key, value := range labels {
			all[key] = value
		}
		pod.SetLabels(all)
		pod.SetAnnotations(annotations)
	}
}

// gang returns annotations of a gang of that name and minimum, and another one.
func gang(name, minimum string, more ...string) map[string]string {
	annotations := map[string]string{v1alpha1.GangNameAnnotation: name, v1alpha1.MinAvailableAnnotation: minimum}
	if len(more) == 2 {
		annotations[more[0]] = more[1]
	}
	return annotations
}

func (b *badMaker) badAmounts() {
	n := 1 + b.r.IntN(3)
	var annotations map[string]string
	if n > 1 {
		annotations = gang(b.Name, strconv.Itoa(n))
	}
	b.pods(n, nil, annotations, b.any(badTargets), b.any(badAmounts))
}

func (b *badMaker) badMinimum() { b.pods(1+b.r.IntN(3), nil, gang(b.Name, b.any(badMinimums))) }

func (b *badMaker) badName() { b.pods(2, nil, gang(b.any(badNames)+b.Name, "2")) }

func (b *badMaker) badJSON() { b.pods(2, nil, gang(b.Name, "2", b.any(badJSONKeys), b.any(badJSON))) }

func (b *badMaker) badKey() { b.pods(2, nil, gang(b.Name, "2", b.any(badKeys), b.any(badJSON))) }

// badGroups makes a group of 1 or of 200 gangs that do not exist.
func (b *badMaker) badGroups() {
	names := []string{strconv.Quote(b.Namespace + "/" + b.Name)}
	for i := range []int{1, 199}[b.r.IntN(2)] {
		names = append(names, strconv.Quote(fmt.Sprintf("%s/%s-none-%d", b.Namespace, b.Name, i)))
	}
	b.pods(2, nil, gang(b.Name, "2", v1alpha1.GroupsAnnotation, "["+strings.Join(names, ",")+"]"))
}

func (b *badMaker) badPodGroup() {
	minimum := []int64{-1, 0, 1000, 2147483647}[b.r.IntN(4)]
	group := b.object("scheduling.x-k8s.io/v1alpha1", "PodGroup", b.Namespace, b.Name, map[string]any{"minMember": minimum})
	group.SetAnnotations(map[string]string{b.any(badJSONKeys): b.any(badJSON), v1alpha1.RequiredTopologyAnnotation: b.any(badTopologies)})
	b.pods(2, map[string]string{v1alpha1.PodGroupXLabel: b.Name}, nil)
}

// queue adds a queue and returns its name.
func (b *badMaker) queue(number int, parent string, deserved map[string]any) string {
	name := fmt.Sprintf("%s-%d", b.Name, number)
	spec := map[string]any{"parent": parent}
	if deserved != nil {
		spec["deserved"] = deserved
	}
	b.ours("Queue", name, spec)
	return name
}

func (b *badMaker) queueCycle() {
	length := 1 + b.r.IntN(3)
	for i := range length {
		b.queue(i, fmt.Sprintf("%s-%d", b.Name, (i+1)%length), nil)
	}
	b.pods(1, map[string]string{v1alpha1.QueueLabel: b.Name + "-0"}, nil)
}

func (b *badMaker) queueLine() {
	last := ""
	for i := range 40 {
		last = b.queue(i, last, nil)
	}
	b.pods(1, map[string]string{v1alpha1.QueueLabel: last}, nil)
}

func (b *badMaker) badQueue() {
	name := b.queue(0, "", map[string]any{b.any(badResources): b.any(badAmounts)})
	b.pods(1, map[string]string{v1alpha1.QueueLabel: name}, nil, "cpu", "1m")
}

// queueThatMoves makes a queue that is moved under another parent, under its own child, which has a pod, and back.
func (b *badMaker) queueThatMoves() {
	child := b.queue(1, b.queue(0, "product", nil), nil)
	b.pods(1, map[string]string{v1alpha1.QueueLabel: child}, nil, "cpu", "1m")
	for i, parent := range []string{"guests", child, "product"} {
		at := b.At + time.Duration(i+1)*(b.Until-b.At)/4
		b.Changes = append(b.Changes, Change{At: at, Patch: fmt.Sprintf(`{"spec":{"parent":%q}}`, parent)})
	}
}

func (b *badMaker) badReservation() {
	annotations := map[string]any{}
	spec, replicas := b.podSpec("cpu", "1"), 1+b.r.IntN(3)
	switch b.r.IntN(3) {
	case 0:
		spec, replicas = b.podSpec(b.any(badTargets), b.any(badAmounts)), 64
	case 1:
		annotations[v1alpha1.RequiredTopologyAnnotation] = b.any(badTopologies)
	case 2:
		spec["runtimeClassName"] = b.Name + "-none"
	}
	b.ours("Reservation", b.Name, map[string]any{
		"template": map[string]any{"metadata": map[string]any{"namespace": b.Namespace, "annotations": annotations}, "spec": spec},
		"owners":   []any{map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{GangLabel: b.Name}}}},
		"replicas": int64(replicas), "ttl": "30s",
	})
}

// badMigration moves a pod of another UID, or none, to a node that does not exist, or off one where it is not.
func (b *badMaker) badMigration() {
	if chance(b.r, 50) {
		b.pods(1, nil, nil, "cpu", "1m")
	}
	b.object(v1alpha1.SchemeGroupVersion.String(), "PodMigration", b.Namespace, b.Name, map[string]any{
		"podName": b.Name + "-0", "podUID": b.any([]string{"no-uid", "\n", b.Name}), "podGroup": b.any(badNames), "allowBarePod": true,
		"sourceNode": b.any([]string{"node-0", "no-such-node"}), "targetNode": b.any([]string{"node-1", "none"}), "timeout": "10s",
	})
}

func (b *badMaker) badPlan() {
	amount := map[string]any{b.any(badTargets): b.any(badAmounts)}
	goal := []map[string]any{
		{"shape": map[string]any{"members": int64(64), "more": int64(64), "requests": amount}},
		{"shape": map[string]any{"members": int64(1024), "requests": amount, "topology": "no-such-label"}},
		{"podGroup": b.Namespace + "/" + b.Name + "-none"},
		{"pod": map[string]any{"namespace": b.Namespace, "name": b.Name + "-none", "uid": "no-uid"}},
		{"empty": map[string]any{"unit": "no-such-label", "names": []any{"none"}}},
	}[b.r.IntN(5)]
	b.ours("DefragmentationPlan", b.Name, map[string]any{"mode": b.any([]string{"DryRun", "Execute"}), "approved": true, "holdTime": "10s", "goal": goal})
}
