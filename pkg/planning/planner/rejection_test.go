package planner

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
)

// refuser is a plugin that refuses pods whose annotation names it.
type refuser struct{ name string }

func (pl refuser) Name() string { return pl.name }

func (pl refuser) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pod.Annotations[v1alpha1.ReservationAnnotation] == pl.name {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "refused by "+pl.name)
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

func (refuser) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// TestReasonOfARejection: the reason is that of the plugin whose words the explanation has, whatever else the members
// ask for.
func TestReasonOfARejection(t *testing.T) {
	for sentence, c := range map[string]struct {
		refused []string // by member, the plugin that refuses it
		min     int
		reason  string
	}{
		"a Reservation is awaited":                     {refused: []string{"", ReservationPlugin}, min: 2, reason: v1alpha1.ReasonAwaitingReservation},
		"another plugin refuses":                       {refused: []string{"", "Other"}, min: 2, reason: v1alpha1.ReasonMemberRejected},
		"the Reservation is awaited first":             {refused: []string{ReservationPlugin, "Other"}, min: 2, reason: v1alpha1.ReasonAwaitingReservation},
		"the other one refuses first":                  {refused: []string{"Other", ReservationPlugin}, min: 2, reason: v1alpha1.ReasonMemberRejected},
		"the minimum does without those, but not room": {refused: []string{"", "", "", ReservationPlugin}, min: 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			registry := frameworkruntime.Registry{}
			for _, name := range []string{ReservationPlugin, "Other"} {
				registry[name] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return refuser{name}, nil }
			}
			node := st.MakeNode().Name("node").Capacity(map[v1.ResourceName]string{gpu: "8", v1.ResourcePods: "110"}).Obj()
			s := idle.New(t, idle.Options{Plugins: registry, Snapshot: cache.NewSnapshot(nil, []*v1.Node{node})})
			a := gangOf(0, len(c.refused), nil)
			a.Gangs[0].Min, a.Gangs[0].Spec.Min = c.min, c.min
			for i, by := range c.refused {
				if by != "" {
					a.Gangs[0].Pending[i].Annotations = map[string]string{v1alpha1.ReservationAnnotation: by}
				}
			}
			plan, err := New(s.Framework, ledger.New(), extensionpoints.New()).Plan(t.Context(), a, nil)
			if err != nil {
				t.Fatal(err)
			}
			why := plan.Why[a.Gangs[0].Key]
			if plan.Complete || plan.Reason != c.reason {
				t.Errorf("complete is %t, the reason %q, want %q: %s", plan.Complete, plan.Reason, c.reason, why)
			}
			if named := strings.Contains(why, "refused by "+ReservationPlugin); c.reason != "" && named != (c.reason == v1alpha1.ReasonAwaitingReservation) {
				t.Errorf("the reason is %s, and the explanation says %q", c.reason, why)
			}
		})
	}
}
