package gangstate

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// visit begins a cycle of a pod.
func (c *chaos) visit(id types.UID) {
	pod := c.pods[id]
	if pod == nil {
		delete(c.at, id)
		return
	}
	if pod.DeletionTimestamp != nil {
		c.at[id] = out
		return // the scheduler skips it
	}
	v := c.watch.visit(pod)
	c.losing[id] = c.loses(id)
	c.say("visit %s: %d %s", id, v.Verdict, v.Node)
	c.verdict[id] = v.Verdict
	switch v.Verdict {
	case Wait:
		c.park(id)
	case Outside, Alone:
		c.at[id], c.node[id] = visited, "n"
	case Follow:
		c.at[id], c.node[id] = visited, v.Node
	case Lead:
		c.turns.Begin(v.Group, c.now)
		c.at[id] = leading
		c.plans = append(c.plans, v.Attempt)
	}
	c.do(Effects{})
}

// begin begins a cycle that knows of all that has happened.
func (c *chaos) begin(id types.UID) {
	c.turns.BeginCycle()
	c.visit(id)
}

// park ends a cycle that came to nothing.
func (c *chaos) park(id types.UID) {
	pod := c.pods[id]
	if pod == nil {
		delete(c.at, id)
		delete(c.cycling, id)
		return
	}
	c.at[id] = out
	if v := c.verdict[id]; c.ended(pod, v == Alone || v == Outside) {
		c.offer(id)
	}
}

// plan ends an attempt. all places all members; otherwise bytes decide.
func (c *chaos) plan(all bool) {
	if len(c.plans) == 0 {
		return
	}
	a := c.plans[0]
	c.plans = c.plans[1:]
	o := Outcome{Nodes: map[types.UID]string{}, Complete: true, Why: map[gangspec.Key]string{}}
	needs := a.Gangs
	if a.Fresh != nil && c.pick(2) == 1 {
		o.FromScratch, needs = true, a.Fresh.Gangs
	}
	for _, need := range needs {
		fit, roles := 0, maps.Clone(need.MinByRole)
		for _, pod := range need.Pending {
			if all || c.pick(4) > 0 {
				o.Nodes[pod.UID] = "n"
				roles = less(roles, gangspec.RoleOf(pod))
				fit++
				o.Fit++
			}
		}
		if fit < need.Min || len(roles) > 0 {
			o.Complete, o.Why[need.Key] = false, "no room"
		}
	}
	var yield []string
	if !all {
		o.Complete = o.Complete || c.pick(8) == 1 // planners err
		if rivals := outranked(c.s, a); o.Complete && len(rivals) > 0 {
			yield = rivals[:c.pick(len(rivals)+1)]
		}
		o.Cost = oneOf(c, 0, 100*time.Millisecond)
		o.Hopeless, o.Coupled = c.pick(4) == 1, c.pick(4) == 1
		if !o.Complete {
			o.Shape = turns.Shape{Key: uint64(c.pick(3)), Members: c.pick(3)}
		}
	}
	c.say("plan of %s by %s: %v, complete: %t, %v yield", a.Group, a.Leader, slices.Sorted(maps.Keys(o.Nodes)), o.Complete, yield)
	accepted, e := c.s.Planned(a, o, c.now)
	for id := range accepted {
		c.holders[id] = a.Group
	}
	c.doPlan(e, accepted)
	c.do(c.s.Yield(yield))
	if c.at[a.Leader] != leading {
		return // it is gone
	}
	if node := accepted[a.Leader]; node != "" && o.Complete {
		c.at[a.Leader], c.node[a.Leader] = visited, node
		return
	}
	c.park(a.Leader)
}

func (c *chaos) reserve(id types.UID) {
	c.say("reserve %s", id)
	c.at[id], c.reserving[id] = reserved, true
	c.do(c.s.Reserved(id, c.node[id], c.now))
}

func (c *chaos) permit(id types.UID) {
	wait, _, e := c.s.Permitted(id, c.now)
	c.say("permit %s: wait %t", id, wait)
	delete(c.reserving, id)
	c.ahead[id] = c.s.members[id] != nil && len(c.s.members[id].claims()) > 0
	if c.at[id] = binding; wait {
		c.at[id] = waiting
	}
	c.do(e)
}

// through makes the calls for the claims of a pod. It may come late, or not at all.
func (c *chaos) through(id types.UID) {
	if c.ahead[id] {
		delete(c.ahead, id)
		c.say("through %s", id)
		c.do(c.s.Through(id))
	}
}

// loses reports whether a claim is being taken back from a pod.
func (c *chaos) loses(id types.UID) bool {
	for _, from := range c.withdrawn {
		if slices.Contains(from, id) {
			return true
		}
	}
	return false
}

// withdraw takes the allocation of a claim back from some pods, or ends that.
func (c *chaos) withdraw() {
	claim := types.NamespacedName{Namespace: "a", Name: oneOf(c, "mine", "ours", "made")}
	if _, begun := c.withdrawn[claim]; begun {
		c.withdrawnAll(claim)
		return
	}
	var from []types.UID
	for _, id := range slices.Sorted(maps.Keys(c.pods)) {
		if c.pick(3) == 1 {
			from = append(from, id)
		}
	}
	may, e := c.s.Withdraw(claim, from, c.now)
	c.say("withdraw %s from %v: %t", claim.Name, from, may)
	if may {
		c.withdrawn[claim] = from
		for _, id := range from {
			if c.at[id] >= reserved {
				c.fail("claim %s is withdrawn from pod %s, which is on its way", claim.Name, id)
			}
			c.losing[id] = c.at[id] == leading || c.at[id] == visited
		}
	}
	c.do(e)
}

func (c *chaos) withdrawnAll(claims ...types.NamespacedName) {
	for _, claim := range claims {
		c.say("withdrawn %s", claim.Name)
		delete(c.withdrawn, claim)
		c.do(c.s.Withdrawn(claim, c.now))
	}
}

func (c *chaos) unfit(id types.UID) {
	c.say("unfit %s", id)
	if c.verdict[id] != Alone && c.verdict[id] != Outside {
		c.do(c.s.Unreserved(id, c.now))
	}
	c.park(id)
}

func (c *chaos) unreserve(id types.UID) {
	c.say("unreserve %s", id)
	delete(c.reserving, id)
	c.do(c.s.Unreserved(id, c.now))
	c.park(id)
}

func (c *chaos) bind(id types.UID) {
	c.say("bind %s", id)
	pod := c.pods[id]
	if pod == nil || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		c.unreserve(id)
		return
	}
	c.at[id] = done
	if c.losing[id] && c.s.members[id] != nil {
		c.fail("pod %s is bound with a claim of which the allocation was taken back", id)
	}
	c.do(c.s.BoundTo(id, c.now))
	if c.pick(2) == 1 {
		c.see(edit(pod, on(c.node[id])))
	} else {
		c.pods[id] = edit(pod, on(c.node[id])) // the informer is late
	}
}

func (c *chaos) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.say("%s pass", d)
	c.do(c.s.Tick(c.now, c.turns.elsewhere.makes))
}

// retry gives the next group its turn.
func (c *chaos) retry() bool {
	e, ok := c.turns.next(c.now)
	if ok {
		name, _ := c.turns.Turn()
		c.say("turn of %s", name)
	}
	c.do(e)
	return ok
}

// happen lets something happen elsewhere.
func (c *chaos) happen() {
	group := oneOf(c, "a/x", "a/y", "a/job.train")
	switch c.pick(10) {
	case 0:
		c.turns.RecordChange(turns.Freed)
	case 1:
		c.turns.RecordChange(turns.NodesChanged)
	case 2:
		c.turns.RecordChange(turns.PodsMoved)
	case 3:
		c.turns.BeginCycle()
	case 4:
		c.turns.elsewhere.making[group] = !c.turns.elsewhere.making[group]
	case 5:
		c.turns.elsewhere.promised[group] = !c.turns.elsewhere.promised[group]
	case 6:
		if name, begun := c.turns.Turn(); !begun {
			c.turns.PassOver(name)
		}
	case 7:
		c.retry()
	default:
		c.withdraw()
	}
}

func (c *chaos) mark() {
	for _, id := range c.marks {
		if pod := c.pods[id]; pod != nil {
			c.say("mark %s", id)
			c.see(edit(pod, says(v1alpha1.TimeoutAnnotation, "true")))
		}
	}
	c.marks = nil
}

// step is one input. Inputs that move the scheduler on come more often than what users do.
func (c *chaos) step() {
	on := func(f func(types.UID), stages ...stage) {
		if id, ok := c.in(stages...); ok {
			f(id)
		}
	}
	switch c.pick(24) {
	case 0, 1, 2, 3:
		c.create()
	case 4:
		c.update()
	case 5:
		c.remove()
	case 6:
		c.describe()
	case 7:
		c.forget()
	case 8, 9, 10:
		on(c.visit, active)
	case 11:
		on(c.visit, out, active) // the queue had it from before
	case 12, 13:
		c.plan(false)
	case 14, 15:
		on(c.reserve, visited)
	case 16, 17:
		on(c.permit, reserved)
	case 18:
		on(c.unfit, visited)
		on(c.through, waiting, binding)
	case 19:
		on(c.unreserve, reserved, waiting, refused, binding)
	case 20, 21:
		on(c.bind, binding)
	case 22:
		c.mark()
		c.pass(oneOf(c, time.Second, 100*time.Millisecond, 5*time.Second, time.Minute))
	case 23:
		if c.pick(4) == 1 {
			c.say("open")
			c.do(c.s.Open(c.now))
			return
		}
		c.say("something happens")
		c.happen()
	}
}

// settleDown lets the scheduler do its work, with room for all pods and no interference, and then
// lets some time pass, until nothing moves any more.
func (c *chaos) settleDown() {
	c.say("settle down")
	c.bytes, c.turns.elsewhere = nil, elsewhere{}
	c.turns.BeginCycle()
	c.do(c.s.Open(c.now))
	c.withdrawnAll(slices.SortedFunc(maps.Keys(c.withdrawn), func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })...)
	for quiet, minutes := 0, 0; quiet < 3; quiet++ {
		if minutes++; minutes > 100 {
			c.fail("it does not settle down")
		}
		for _, id := range slices.Sorted(maps.Keys(c.pods)) {
			c.see(c.pods[id]) // what the informer was late with
			if m := c.s.members[id]; m == nil || m.gang.hasStarted() {
				c.offer(id) // the queue knows by itself what helps pods that go alone
			}
		}
		c.mark()
		c.turns.RecordChange(turns.NodesChanged)
		c.turns.BeginCycle()
		c.pass(time.Minute)
		for rounds := 0; c.work(); rounds++ {
			if quiet = 0; rounds > 1000 {
				c.fail("it spins")
			}
		}
	}
}

// work does one thing as the scheduler would without being disturbed.
func (c *chaos) work() bool {
	if len(c.plans) > 0 {
		c.plan(true)
		return true
	}
	for _, move := range []struct {
		from stage
		do   func(types.UID)
	}{{visited, c.reserve}, {reserved, c.permit}, {refused, c.unreserve}, {binding, c.bind}, {active, c.begin}} {
		if id, ok := c.in(move.from); ok {
			move.do(id)
			return true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.ahead)) {
		if c.at[id] == waiting && c.ahead[id] {
			c.through(id)
			return true
		}
	}
	return c.retry()
}

// checkLiveness checks that no pod is stuck that could go: there is room for all.
func (c *chaos) checkLiveness() {
	for id, at := range c.at {
		if at == waiting {
			c.fail("pod %s waits for ever", id)
		}
	}
	for _, g := range c.s.gangs {
		if n := g.byState[Planned].N + g.byState[Held].N + g.byState[Released].N + g.byState[Returning].N; n > 0 {
			c.fail("gang %s is stuck on its way: %v", g.key, g.byState)
		}
		if able := c.s.isComplete(g.group); (able || g.hasStarted()) && g.coming.N > 0 {
			c.fail("gang %s could go and does not: %d pending", g.key, g.coming.N)
		}
	}
}

// end takes everything away; nothing may be left.
func (c *chaos) end(t testing.TB) {
	t.Helper()
	for id := range c.pods {
		c.after(c.s.PodEnded(id, c.now), nil)
	}
	checkNothingLeft(t, c.watch, c.now)
}

func play(t testing.TB, bytes []byte) { newChaos(t, bytes).play(t) }

func (c *chaos) play(t testing.TB) {
	for range 400 {
		if len(c.bytes) == 0 {
			break
		}
		c.step()
	}
	c.settleDown()
	c.checkLiveness()
	c.end(t)
}

func TestChaos(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		bytes := make([]byte, 20+random.IntN(600))
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		if play(t, bytes); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzChaos(f *testing.F) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		bytes := make([]byte, 200)
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) { play(t, bytes) })
}
