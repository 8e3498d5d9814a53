package reservations

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func promisedOn(nodes ...string) func(*v1alpha1.Reservation) {
	return func(r *v1alpha1.Reservation) { r.Spec.Replicas, r.Spec.NodeNames = int32(len(nodes)), nodes }
}

// promised returns what the ledger holds for reserve pods alone, in CPUs.
func (s *stage) promised() string {
	var list []string
	for _, e := range s.entries {
		for index := range e.promised {
			if one, ok := s.holds.Hold(promiseID(e.object.UID, index)); ok {
				list = append(list, fmt.Sprintf("%s: %d", one.Node, one.Request[v1.ResourceCPU]/1000))
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// TestPromised: what is promised is held until there is a place for it, and no longer than the Reservation is.
func TestPromised(t *testing.T) {
	ends := func(r *v1alpha1.Reservation) { r.Status.Phase = v1alpha1.ReservationFailed }
	later := func(r *v1alpha1.Reservation) { r.Spec.StartTime = new(metav1.NewTime(begin.Add(time.Hour))) }
	place := func(index int32, node string) func(*v1alpha1.Reservation) {
		return func(r *v1alpha1.Reservation) {
			r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: index, NodeName: node})
		}
	}
	type changes = []func(*v1alpha1.Reservation)
	for sentence, c := range map[string]struct {
		versions       []changes
		promised, held string
	}{
		"nothing without nodes":         {versions: []changes{{}}},
		"from the beginning":            {versions: []changes{{promisedOn("a", "b", "a")}}, promised: "a: 4, a: 4, b: 4"},
		"not before its time":           {versions: []changes{{promisedOn("a"), later}}},
		"one of two has its place":      {versions: []changes{{promisedOn("a", "b")}, {promisedOn("a", "b"), place(1, "b")}}, promised: "a: 4", held: "b: 4"},
		"all have":                      {versions: []changes{{promisedOn("a", "b")}, {promisedOn("a", "b"), place(0, "a"), place(1, "b")}}, held: "a: 4, b: 4"},
		"a place is lost":               {versions: []changes{{promisedOn("a"), place(0, "a")}, {promisedOn("a")}}, promised: "a: 4"},
		"it has ended":                  {versions: []changes{{promisedOn("a", "b")}, {promisedOn("a", "b"), ends}}},
		"known only since it has ended": {versions: []changes{{promisedOn("a", "b"), ends}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			for _, version := range c.versions {
				s.Update(s.make("r", version...))
			}
			if got := s.promised(); got != c.promised {
				t.Errorf("promised: %q, want %q", got, c.promised)
			}
			if got := s.held(); got != c.held {
				t.Errorf("held: %q, want %q", got, c.held)
			}
			s.reservationDeleted("r")
			if !s.holds.Empty() {
				t.Error("something is held for a Reservation that is gone")
			}
		})
	}
}

// TestNothingPromisedInVain: a Reservation that is not being scheduled is promised nothing, whoever writes it;
// once one is sought, its nodes are.
func TestNothingPromisedInVain(t *testing.T) {
	template := func(change func(*v1.PodSpec)) func(*v1alpha1.Reservation) {
		return func(r *v1alpha1.Reservation) { change(&r.Spec.Template.Spec) }
	}
	alone := profile{gangs: func() bool { return false }}
	for sentence, c := range map[string]struct {
		nodes   []string
		change  func(*v1alpha1.Reservation)
		profile profile
		first   string // promised
		// mend ends what hinders the search; nil: nothing can.
		mend func(s *stage)
		then string
	}{
		"nothing hinders":              {nodes: []string{"a", "b"}, profile: yes, first: "a: 4, b: 4"},
		"one, and no plugin for gangs": {nodes: []string{"a"}, profile: alone, first: "a: 4"},
		"several, and no plugin for gangs": {
			nodes: []string{"a", "b"}, profile: alone, mend: func(s *stage) { s.profiles["lockstep-scheduler"] = yes }, then: "a: 4, b: 4",
		},
		"another scheduler's": {
			nodes: []string{"a"}, profile: yes, change: template(func(p *v1.PodSpec) { p.SchedulerName = "another" }),
			mend: func(s *stage) { s.profiles["another"] = yes }, then: "a: 4",
		},
		"there is no such class": {
			nodes: []string{"a"}, profile: yes, change: template(func(p *v1.PodSpec) { p.PriorityClassName = "comes-later" }),
			mend: func(s *stage) {
				class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "comes-later"}}
				_, err := s.client.SchedulingV1().PriorityClasses().Create(s.Context(), class, metav1.CreateOptions{})
				must.Succeed(s, err)
			}, then: "a: 4",
		},
		"it cannot be reserved": {nodes: []string{"a", "a"}, profile: yes, change: template(func(p *v1.PodSpec) {
			p.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1e30")}
		})},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			r := s.make("r", promisedOn(c.nodes...))
			if c.change != nil {
				c.change(r)
			}
			api := seeking(t, r, c.profile, s)
			expect := func(when, want string) {
				t.Helper()
				if got := s.promised(); got != want {
					t.Errorf("%s: promised %q, want %q", when, got, want)
				}
			}
			s.lookNow("r")
			expect("at first", c.first)
			api.change(func(r *v1alpha1.Reservation) { r.Labels = map[string]string{"written": "since"} })
			s.Update(api.object)
			expect("written by somebody", c.first)
			if c.mend == nil {
				return
			}
			c.mend(s)
			s.lookNow("r")
			expect("nothing hinders any longer", c.then)
		})
	}
}

// TestPromisedToReservePods: owners may not use what is promised before there is a place.
func TestPromisedToReservePods(t *testing.T) {
	s := newStage(t)
	r := s.make("r", promisedOn("a"))
	s.Update(r)
	pods := reservePods(r, templateOf(r), []int32{0}, 1)
	if got, want := s.Grants(pods[0]), promiseOf(r.UID); len(got) != 1 || got[0] != want {
		t.Errorf("the reserve pod is granted %v, want %v", got, want)
	}
	if got := s.Grants(owner("o", "4")); slices.Contains(got, promiseOf(r.UID)) {
		t.Errorf("an owner is granted what is only promised: %v", got)
	}
	other := st.MakePod().Namespace("default").Name(reservepods.PodName("other", 0)).Obj()
	if got := s.Grants(other); got != nil {
		t.Errorf("a reserve pod of another Reservation is granted %v", got)
	}
}

// TestPinned: a reserve pod goes to its node, if it may be there by what its template says.
func TestPinned(t *testing.T) {
	terms := func(pod *v1.Pod) (texts []string) {
		for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			text := ""
			for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
				text += fmt.Sprintf("%s %s %s;", e.Key, e.Operator, strings.Join(e.Values, ","))
			}
			texts = append(texts, text)
		}
		return texts
	}
	s := newStage(t)
	r := s.make("r", promisedOn("a", "b"))
	made := reservePods(r, templateOf(r), []int32{0, 1}, 1)
	if diff := cmp.Diff([]string{"metadata.name In b;"}, terms(made[1])); diff != "" {
		t.Error(diff)
	}
	pod := st.MakePod().NodeAffinityIn("zone", []string{"x"}, st.NodeSelectorTypeMatchExpressions).Obj()
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "gpu", Operator: v1.NodeSelectorOpExists}}})
	pinToNode(pod, "a")
	if diff := cmp.Diff([]string{"zone In x;metadata.name In a;", "gpu Exists ;metadata.name In a;"}, terms(pod)); diff != "" {
		t.Error(diff)
	}
}
