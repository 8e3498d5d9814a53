package invariant

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

var begin = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// story gives a checker what happens, at moments in seconds from the begin.
type story struct {
	t     *testing.T
	check *Checker
	last  time.Time
	pods  map[string]*v1.Pod
	uids  int
}

// tell begins a story: four nodes of 8 GPUs in two racks, and all is well.
func tell(t *testing.T, configure ...func(*Config)) *story {
	t.Helper()
	var config Config
	for _, f := range configure {
		f(&config)
	}
	s := &story{t: t, check: New(config), last: begin, pods: map[string]*v1.Pod{}}
	s.at(0, PodsListed{}, Health{})
	for i := range 4 {
		s.at(0, NodeSeen{s.node(i, false)})
	}
	return s
}

// at makes the checker observe something, with a tick every 100 ms until then.
func (s *story) at(seconds float64, observations ...Observation) *story {
	moment := begin.Add(time.Duration(seconds * float64(time.Second)))
	for next := s.last.Add(100 * time.Millisecond); next.Before(moment); next = next.Add(100 * time.Millisecond) {
		s.check.Observe(next, Tick{})
	}
	for _, o := range observations {
		s.check.Observe(moment, o)
	}
	s.check.Observe(moment, Tick{})
	s.last = moment
	return s
}

func (s *story) node(i int, cordoned bool) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n" + strconv.Itoa(i), Labels: map[string]string{"rack": "r" + strconv.Itoa(i/2)}},
		Spec:       v1.NodeSpec{Unschedulable: cordoned},
		Status:     v1.NodeStatus{Allocatable: v1.ResourceList{gpu: resource.MustParse("8"), v1.ResourceCPU: resource.MustParse("32"), v1.ResourcePods: resource.MustParse("5")}},
	}
}

// with changes a pod that is being made.
type with func(*v1.Pod)

func annotated(pairs ...string) with {
	return func(p *v1.Pod) {
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func asking(gpus int) with {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[gpu] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
}

func priority(n int32) with { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func badInput(p *v1.Pod) { p.Labels[keyBadInput] = "" }

func inQueue(name string) with { return func(p *v1.Pod) { p.Labels[keyQueue] = name } }

func inGroup(name string) with { return func(p *v1.Pod) { p.Labels[keyGroupX] = name } }

// gangPods returns the observations of members a/NAME-0 and so on of a gang by annotation.
func (s *story) gangPods(name string, members, minimum int, changes ...with) []Observation {
	var out []Observation
	for i := range members {
		changes := append([]with{annotated(keyGang, name, keyMin, strconv.Itoa(minimum))}, changes...)
		out = append(out, s.pod(fmt.Sprintf("%s-%d", name, i), changes...))
	}
	return out
}

// pod makes a pod of 2 GPUs.
func (s *story) pod(name string, changes ...with) Observation {
	s.uids++
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(fmt.Sprintf("%s#%d", name, s.uids)), Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}}},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	}
	asking(2)(p)
	for _, change := range changes {
		change(p)
	}
	s.pods[name] = p
	return PodSeen{p}
}

// changed returns the observation of a pod after a change.
func (s *story) changed(name string, change func(*v1.Pod)) Observation {
	p := s.pods[name].DeepCopy()
	change(p)
	s.pods[name] = p
	return PodSeen{p}
}

func (s *story) bound(name string, node int) Observation {
	return s.changed(name, func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n"+strconv.Itoa(node), v1.PodRunning })
}

func (s *story) deleting(name string) Observation {
	return s.changed(name, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: begin} })
}

func (s *story) marked(name string) Observation {
	return s.changed(name, func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: "preempting"}}
	})
}

func (s *story) phase(name string, phase v1.PodPhase) Observation {
	return s.changed(name, func(p *v1.Pod) { p.Status.Phase = phase })
}

func (s *story) nominated(name string, node int) Observation {
	return s.changed(name, func(p *v1.Pod) { p.Status.NominatedNodeName = "n" + strconv.Itoa(node) })
}

func (s *story) gone(name string) Observation {
	p := s.pods[name]
	delete(s.pods, name)
	return PodGone{p}
}

// evicted returns the observations of a pod that the scheduler deletes for another.
func (s *story) evicted(name, preemptor string) []Observation {
	uid := s.pods[name].UID
	return []Observation{s.marked(name), s.deleting(name), Told{&v1.Event{
		Reason: reasonPreempted, InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "a", Name: name, UID: uid},
		Related: &v1.ObjectReference{Kind: "Pod", Namespace: "a", Name: preemptor, UID: s.pods[preemptor].UID},
	}}}
}

// listed returns the observation of all pods, after a cut watch.
func (s *story) listed() Observation {
	var all []*v1.Pod
	for _, p := range s.pods {
		all = append(all, p)
	}
	return PodsListed{all}
}

// found returns the violations, one a line, without what was last seen.
func (s *story) found() string {
	var out []string
	for _, v := range s.check.Violations() {
		out = append(out, fmt.Sprintf("%s: %s: %s", v.Invariant, v.Object, v.Text))
	}
	return strings.Join(out, "\n")
}

// want checks that there is one violation, which begins like this, or none.
func (s *story) want(want string) {
	s.t.Helper()
	found := s.found()
	if want == "" && found != "" || want != "" && (!strings.HasPrefix(found, want) || strings.Contains(found, "\n")) {
		s.t.Errorf("found:\n%s\nwant:\n%s", found, want)
	}
}

// tale is what happens in a story, and the violation that is to be found, as want takes it.
type tale struct {
	tell func(s *story)
	want string
}

// judge gives each tale to a checker of its own.
func judge(t *testing.T, tales map[string]tale) {
	t.Helper()
	for name, c := range tales {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			c.tell(s)
			s.want(c.want)
		})
	}
}
