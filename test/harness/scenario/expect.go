package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// defaultWithin is how long an expectation may take to hold.
	defaultWithin = 30 * time.Second
	// expectPoll is the interval of looking at what is not watched.
	expectPoll = 200 * time.Millisecond
)

// expect waits until everything in e holds, then runs on as long as e says.
func (r *run) expect(ctx context.Context, e *Expect) error {
	if err := r.hold(ctx, e); err != nil {
		return err
	}
	if e.Elapsed != nil {
		took := time.Since(r.since(e.Elapsed.Since))
		if took < e.Elapsed.AtLeast.Duration {
			return failures{fmt.Sprintf("elapsed: everything holds after %s, want %s at the earliest", took.Round(time.Millisecond), e.Elapsed.AtLeast.Duration)}
		}
		if most := e.Elapsed.AtMost.Duration; most > 0 && took > most {
			return failures{fmt.Sprintf("elapsed: everything holds only after %s, want %s at the latest", took.Round(time.Millisecond), most)}
		}
	}
	if e.StableFor == 0 {
		return nil
	}
	if err := r.stayStable(ctx, e); err != nil {
		return err
	}
	problems, err := r.problems(ctx, e)
	if err == nil && len(problems) > 0 {
		err = failures(append(problems, fmt.Sprintf("held before, but no longer after %d rounds", e.StableFor)))
	}
	return err
}

// hold waits until everything holds. An invariant that is broken ends the wait.
func (r *run) hold(ctx context.Context, e *Expect) error {
	within := r.patience(cmp.Or(e.Within.Duration, defaultWithin))
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		r.rec.Lock()
		changed, broken := r.rec.Next(), r.rec.violations()
		r.rec.Unlock()
		if len(broken) > 0 {
			return failures(broken)
		}
		problems, err := r.problems(ctx, e)
		if err != nil {
			return err
		}
		if len(problems) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return failures(append(problems, context.Cause(ctx).Error()))
		case err := <-r.died:
			return failures(append(problems, err.Error()))
		case <-deadline.C:
			return failures(append(problems, fmt.Sprintf("still so after %s", within)))
		case <-changed:
		case <-time.After(expectPoll):
		}
	}
}

// since returns the begin of a named step, or of the last action.
func (r *run) since(step string) time.Time {
	if step == "" {
		return r.lastAction
	}
	return r.steps[step]
}

// problems returns what of an expectation does not hold now, in got and want.
func (r *run) problems(ctx context.Context, e *Expect) ([]string, error) {
	out := r.watched(e)
	if len(out) > 0 {
		return out, nil // spares the requests
	}
	for i := range e.Objects {
		problems, err := r.checkObject(ctx, &e.Objects[i])
		if err != nil {
			return nil, err
		}
		out = append(out, problems...)
	}
	if len(e.Writes) == 0 {
		return out, nil
	}
	problems, err := r.checkWrites(e.Writes)
	return append(out, problems...), err
}

// watched checks what the recorder knows.
func (r *run) watched(e *Expect) []string {
	r.rec.Lock()
	defer r.rec.Unlock()
	out := r.checkGangs(e)
	for i := range e.Pods {
		out = append(out, r.checkPods(&e.Pods[i])...)
	}
	for i := range e.Placement {
		out = append(out, r.checkPlacement(&e.Placement[i])...)
	}
	for i := range e.Events {
		out = append(out, r.checkEvent(&e.Events[i])...)
	}
	for _, pattern := range keys(e.Evictions) {
		want := e.Evictions[pattern]
		if names := r.evicted(pattern); !want.Has(len(names)) {
			out = append(out, fmt.Sprintf("evictions of %s: got %d %v, want %s", pattern, len(names), names, want))
		}
	}
	for i := range e.BoundOrder {
		out = append(out, r.checkOrder(&e.BoundOrder[i])...)
	}
	for _, p := range r.rec.pods {
		if !p.boundAt.IsZero() && globAny(e.NeverBound, p.name) {
			out = append(out, fmt.Sprintf("never bound: pod %s was bound to %s", p.name, p.pod.Spec.NodeName))
		}
	}
	return append(out, r.checkStock(e.SameNodesAsStock)...)
}

// boundOf counts the bound members of a gang.
func (r *run) boundOf(key string) int {
	return len(r.rec.live(func(p *podRecord) bool { return p.gang == key && p.bound() }))
}

func (r *run) checkGangs(e *Expect) []string {
	var out []string
	for _, pattern := range keys(e.Bound) {
		want := e.Bound[pattern]
		for _, key := range r.plan.gangsNamed(pattern) {
			if n := r.boundOf(key); !want.Has(n) {
				out = append(out, fmt.Sprintf("gang %s: got %d bound, want %s", key, n, want))
			}
		}
	}
	for _, pattern := range keys(e.Whole) {
		want, whole := e.Whole[pattern], 0
		for _, key := range r.plan.gangsNamed(pattern) {
			switch n := r.boundOf(key); {
			case n >= r.plan.gangs[key].Min:
				whole++
			case n > 0:
				out = append(out, fmt.Sprintf("gang %s: got %d bound, want none or %d", key, n, r.plan.gangs[key].Min))
			}
		}
		if !want.Has(whole) {
			out = append(out, fmt.Sprintf("whole gangs among %s: got %d, want %s", pattern, whole, want))
		}
	}
	return out
}

func (r *run) checkPods(x *PodsExpect) []string {
	pods := r.rec.live(func(p *podRecord) bool { return globAny(x.Pods, p.name) })
	slices.SortFunc(pods, func(a, b *podRecord) int { return cmp.Compare(a.name, b.name) })
	var out []string
	what := strings.Join(x.Pods, ", ")
	if want := x.Exist; want != nil && !want.Has(len(pods)) {
		out = append(out, fmt.Sprintf("pods %s: got %d, want %s", what, len(pods), want))
	} else if want == nil && len(pods) == 0 {
		out = append(out, fmt.Sprintf("pods %s: there are none", what))
	}
	if x.Bound != nil {
		bound := 0
		for _, p := range pods {
			if p.bound() {
				bound++
			}
		}
		if !x.Bound.Has(bound) {
			out = append(out, fmt.Sprintf("pods %s: got %d bound, want %s", what, bound, x.Bound))
		}
	}
	matching := 0
	for _, p := range pods {
		problems := checkPod(x, p.pod)
		if len(problems) == 0 {
			matching++
		}
		for _, problem := range problems {
			if x.Matching == nil {
				out = append(out, "pod "+p.name+": "+problem)
			}
		}
	}
	if x.Matching != nil && !x.Matching.Has(matching) {
		out = append(out, fmt.Sprintf("pods %s: got %d of which that is true, want %s", what, matching, x.Matching))
	}
	return out
}

// checkPod checks what has to be true of each pod.
func checkPod(x *PodsExpect, pod *v1.Pod) []string {
	var out []string
	differs := func(what, got, want string) { out = append(out, fmt.Sprintf("%s: got %q, want %s", what, got, want)) }
	if len(x.Nodes) > 0 && !globAny(x.Nodes, fullName(pod.Spec.NodeName)) {
		differs("node", pod.Spec.NodeName, fmt.Sprint(x.Nodes))
	}
	if len(x.Nominated) > 0 && !globAny(x.Nominated, fullName(pod.Status.NominatedNodeName)) {
		differs("nominated node", pod.Status.NominatedNodeName, fmt.Sprint(x.Nominated))
	}
	if x.Phase != "" && string(pod.Status.Phase) != x.Phase {
		differs("phase", string(pod.Status.Phase), x.Phase)
	}
	if x.Reason != nil || x.Message != nil {
		out = append(out, checkCondition(pod, ConditionExpect{
			Type: string(v1.PodScheduled), Status: "False", Reason: x.Reason, Message: x.Message,
		})...)
	}
	for _, c := range x.Conditions {
		out = append(out, checkCondition(pod, c)...)
	}
	for _, key := range keys(x.Annotations) {
		want := x.Annotations[key]
		if value, ok := pod.Annotations[key]; !ok || !want.Matches(value) {
			differs("annotation "+key, value, want.String())
		}
	}
	for _, key := range x.WithoutAnnotations {
		if value, ok := pod.Annotations[key]; ok {
			differs("annotation "+key, value, "no such annotation")
		}
	}
	for _, key := range keys(x.Labels) {
		want := x.Labels[key]
		if value, ok := pod.Labels[key]; !ok || !want.Matches(value) {
			differs("label "+key, value, want.String())
		}
	}
	return out
}

func checkCondition(pod *v1.Pod, x ConditionExpect) []string {
	c := conditionOf(pod, v1.PodConditionType(x.Type))
	if c == nil {
		return []string{fmt.Sprintf("condition %s: there is none; want %s %s %s", x.Type, x.Status, x.Reason, x.Message)}
	}
	if x.Status != "" && string(c.Status) != x.Status || !x.Reason.Matches(c.Reason) || !x.Message.Matches(c.Message) {
		return []string{fmt.Sprintf("condition %s: got %s %q %q, want %s %q %q",
			x.Type, c.Status, c.Reason, c.Message, x.Status, x.Reason.String(), x.Message.String())}
	}
	return nil
}

// evicted lists the pods that match and that were deleted by others than the scenario.
func (r *run) evicted(pattern string) []string {
	var names []string
	for _, p := range r.rec.pods {
		if p.evicted && glob(pattern, p.name) {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}
