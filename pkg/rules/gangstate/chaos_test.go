package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// chaos feeds a Gangs anything that users, the API server and the scheduler might do, in an order
// that bytes decide. The scheduler keeps its own rules, no others: a pod is visited in its cycle,
// reserved after a visit, and so on, with anything in between. The watch checks the state after
// every input.
type chaos struct {
	*watch
	now   time.Time
	bytes []byte
	pods  map[types.UID]*v1.Pod // by what the API server has
	at    map[types.UID]stage
	node  map[types.UID]string
	// verdict is what the last cycle of a pod was for.
	verdict map[types.UID]Verdict
	plans   []*Attempt
	marks   []types.UID
	made    int
	// ahead are the pods whose claims are being allocated or reserved.
	ahead map[types.UID]bool
	// withdrawn are the claims whose allocation is being taken back, and from which pods; losing are the pods that
	// are in a cycle that knows of an allocation that has been taken back, or will be.
	withdrawn map[types.NamespacedName][]types.UID
	losing    map[types.UID]bool
	// turns is where the groups wait for their turns.
	turns *waitingLine
	// checks are made after each input, beside those of the watch.
	checks []func()
	// holders are the groups in whose name the ledger holds the places of members.
	holders map[types.UID]string
	// objects are the PodGroups.
	objects map[gangspec.Key]map[gangspec.Kind]*gangspec.PodGroupDescription
	trace   []string
}

// stage is where the scheduler has a pod.
type stage int

const (
	out     stage = iota // not in the active queue
	active               // in it
	leading              // in its cycle, which plans
	visited              // in its cycle, with a node
	reserved
	waiting
	refused // it waited and was rejected
	binding
	done
)

func newChaos(t testing.TB, bytes []byte) *chaos {
	c := &chaos{
		now: start, bytes: bytes, pods: map[types.UID]*v1.Pod{}, at: map[types.UID]stage{}, node: map[types.UID]string{}, verdict: map[types.UID]Verdict{},
		ahead: map[types.UID]bool{}, withdrawn: map[types.NamespacedName][]types.UID{}, losing: map[types.UID]bool{},
		objects: map[gangspec.Key]map[gangspec.Kind]*gangspec.PodGroupDescription{}, holders: map[types.UID]string{},
	}
	s := newOpen(gangspec.Defaults{WaitTime: 20 * time.Second}, Backoff{Initial: time.Second, Max: 4 * time.Second})
	c.turns = newLine(s)
	c.turns.elsewhere = elsewhere{making: map[string]bool{}, promised: map[string]bool{}}
	c.watch = newWatch(s, func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(c.trace, "\n"))
	})
	if c.pick(4) == 1 {
		c.say("closed")
		s.closed = true
	}
	return c
}

// pick returns a number below n, from the bytes.
func (c *chaos) pick(n int) int {
	if len(c.bytes) == 0 {
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return int(b) % n
}

func oneOf[T any](c *chaos, values ...T) T { return values[c.pick(len(values))] }

// in picks one of the pods in a stage.
func (c *chaos) in(stages ...stage) (types.UID, bool) {
	var ids []types.UID
	for _, id := range slices.Sorted(maps.Keys(c.at)) {
		if slices.Contains(stages, c.at[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", false
	}
	return ids[c.pick(len(ids))], true
}

func (c *chaos) say(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

func (c *chaos) do(e Effects) { c.doPlan(e, nil) }

func (c *chaos) doPlan(e Effects, accepted map[types.UID]string) {
	c.after(e, accepted)
	c.turns.note(e, c.now)
	for _, hold := range e.Rehold {
		c.holders[hold.Pod.UID] = hold.Holder
	}
	for _, check := range c.checks {
		check()
	}
	for _, id := range e.Release {
		if c.at[id] == waiting {
			c.at[id] = binding
		}
	}
	for _, id := range e.Reject {
		if c.at[id] == waiting {
			c.at[id] = refused
		}
	}
	for _, pod := range e.Expire {
		c.marks = append(c.marks, pod.UID)
	}
	for _, pod := range e.Activate {
		c.offer(pod.UID)
	}
	if e.Freed {
		c.turns.RecordChange(turns.Freed)
	}
}

func (c *chaos) offer(id types.UID) {
	if pod := c.pods[id]; pod != nil && c.at[id] == out && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && c.queue(pod) {
		c.at[id] = active
	}
}

func (c *chaos) see(pod *v1.Pod) {
	_, known := c.pods[pod.UID]
	c.pods[pod.UID] = pod
	if pod.Spec.NodeName != "" {
		c.at[pod.UID] = done
	}
	if c.refused[pod.UID] != nil {
		c.refused[pod.UID] = pod
	}
	c.do(c.s.ObservePod(pod, c.now))
	if !known && pod.Spec.NodeName == "" {
		c.at[pod.UID] = out
		c.offer(pod.UID)
	}
}

// move puts a pod into a gang, out of one, or from one into another, by one of the ways or several.
func (c *chaos) move(p *v1.Pod) {
	set := func(all map[string]string, key string) {
		if name := oneOf(c, "", "x", "y", "job.train"); name != "" {
			all[key] = name
		} else {
			delete(all, key)
		}
	}
	switch c.pick(6) {
	case 0, 1:
		set(p.Annotations, v1alpha1.GangNameAnnotation)
	case 2:
		delete(p.Annotations, v1alpha1.GangNameAnnotation)
		set(p.Labels, v1alpha1.PodGroupLabel)
	case 3:
		set(p.Labels, v1alpha1.PodGroupNameLabel)
	case 4:
		mutely(v1alpha1.GangNameAnnotation)(p)
		byJob(oneOf[types.UID](c, "job", "again"))(p)
	case 5:
		mutely(v1alpha1.GangAnnotation)(p)
	}
}

// spec changes something that a pod says of its gang.
func (c *chaos) spec(p *v1.Pod) {
	set := func(key, value string) {
		if value == "-" {
			delete(p.Annotations, key)
		} else {
			p.Annotations[key] = value
		}
	}
	set(minKey, oneOf(c, "2", "3", "1", "-", "no"))
	set(modeKey, oneOf(c, "-", "NonStrict", "no"))
	set(groupsKey, oneOf(c, "-", "-", `["a/x","a/y"]`, `["a/x","a/y","a/job.train"]`, `["a/job.train"]`, `["a/none"]`))
	set(policyKey, oneOf(c, "-", "-", "waiting-and-running", "only-waiting"))
	set(rolesKey, oneOf(c, "-", "-", `{"r":1}`, `{"r":1,"s":1}`))
	set(waitKey, oneOf(c, "-", "3s", "1h"))
	set(totalKey, oneOf(c, "-", "-", "4"))
}

func (c *chaos) create() {
	if len(c.pods) >= 12 {
		return
	}
	c.made++
	pod := podOf(fmt.Sprintf("p%d", c.made), of(oneOf(c, "x", "y", "job.train")), needs(2), as(oneOf(c, "", "r", "s")),
		urgent(oneOf[int32](c, 0, 5)), aged(oneOf(c, 0, time.Minute, -c.now.Sub(start))), owned(oneOf(c, "job", "again")))
	if c.pick(4) == 1 {
		mutely(v1alpha1.GangNameAnnotation)(pod)
		byJob(oneOf[types.UID](c, "job", "again"))(pod)
	}
	if c.pick(2) == 1 {
		c.spec(pod)
	}
	if c.pick(3) == 1 {
		naming(oneOf(c, "mine", "ours"))(pod)
	}
	switch c.pick(6) {
	case 1:
		inAttempt(oneOf(c, "0", "1", "2"))(pod)
	case 2:
		byGroup(oneOf(c, "0", "1"))(pod)
	}
	switch c.pick(8) {
	case 1:
		gated(pod)
	case 2:
		pod.Spec.NodeName = "n"
	case 3: // from a release that was interrupted, or from before
		bindTo("n", c.now.Sub(start))(pod)
	}
	c.say("create %s %v %v on %q", pod.Name, pod.Annotations, pod.Labels, pod.Spec.NodeName)
	c.see(pod)
}

func (c *chaos) somePod() (*v1.Pod, bool) {
	if len(c.pods) == 0 {
		return nil, false
	}
	ids := slices.Sorted(maps.Keys(c.pods))
	return c.pods[ids[c.pick(len(ids))]], true
}

func (c *chaos) update() {
	pod, ok := c.somePod()
	if !ok {
		return
	}
	pod = edit(pod)
	switch c.pick(9) {
	case 0:
		c.spec(pod)
	case 1:
		c.move(pod)
	case 2:
		as(oneOf(c, "", "r", "s"))(pod)
	case 3:
		ungated(pod)
	case 4:
		dying(pod)
	case 5:
		mutely(v1alpha1.TimeoutAnnotation)(pod)
	case 6:
		says(v1alpha1.TimeoutAnnotation, "true")(pod)
	case 7:
		if c.at[pod.UID] < reserved { // another scheduler binds it
			pod.Spec.NodeName = "m"
		}
	case 8:
		inAttempt(oneOf(c, "0", "1", "2"))(pod)
	}
	c.say("update %s %v %v on %q dying %t", pod.Name, pod.Annotations, pod.Labels, pod.Spec.NodeName, pod.DeletionTimestamp != nil)
	c.see(pod)
}

func (c *chaos) remove() {
	pod, ok := c.somePod()
	if !ok {
		return
	}
	delete(c.pods, pod.UID)
	if at := c.at[pod.UID]; at < leading || at == done {
		delete(c.at, pod.UID)
	}
	c.say("remove %s", pod.Name)
	c.do(c.s.PodEnded(pod.UID, c.now))
	if pod.Spec.NodeName != "" && c.pick(2) == 1 {
		c.say("%s succeeded", pod.Name)
		c.do(c.s.ObservePod(edit(pod, ended(c.now.Sub(start)-oneOf(c, 0, 10*time.Second, 2*time.Minute))), c.now))
	}
}

func (c *chaos) forget() {
	ids := slices.Sorted(maps.Keys(c.s.succeeded))
	if len(ids) == 0 {
		return
	}
	id := ids[c.pick(len(ids))]
	c.say("forget %s", id)
	c.do(c.s.ForgetSucceeded(podOf(string(id)), c.now))
}

func (c *chaos) describe() {
	key, kind := gangspec.Key{Namespace: "a", Name: oneOf(c, "x", "y", "job.train")}, oneOf(c, gangspec.Community, gangspec.Native)
	var object *gangspec.PodGroupDescription
	if c.pick(3) > 0 {
		said := podOf("")
		c.spec(said)
		object = &gangspec.PodGroupDescription{Created: start, Min: oneOf[int32](c, 2, 1, 3, -1), Owner: oneOf[types.UID](c, "", "job", "again"), Annotations: said.Annotations}
		delete(object.Annotations, minKey)
	}
	c.say("describe %s, kind %d: %+v", key, kind, object)
	if c.objects[key] == nil {
		c.objects[key] = map[gangspec.Kind]*gangspec.PodGroupDescription{}
	}
	c.objects[key][kind] = object
	c.do(c.s.Describe(kind, key, object, c.now))
}
