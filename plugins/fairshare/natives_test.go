package fairshare

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// nativeGroup knows one native PodGroup, default/train, which may change.
type nativeGroup struct {
	noGangs
	says *gangspec.PodGroupDescription
}

func (n *nativeGroup) GangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, _, member := gangspec.GangOf(pod, func(gangspec.Key) *gangspec.PodGroupDescription { return n.says })
	return key, member
}

var basic = &gangspec.PodGroupDescription{Basic: true, Min: 1}

// naming makes a pod name that PodGroup.
func naming(p *v1.Pod) *v1.Pod {
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
	return p
}

// TestBasicPodsOvershootOneByOne: each pod of a native PodGroup with the basic policy is a job of its own.
func TestBasicPodsOvershootOneByOne(t *testing.T) {
	since := func(p *v1.Pod, second int64) *v1.Pod {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(second, 0)}}
		return naming(p)
	}
	for sentence, c := range map[string]struct {
		says *gangspec.PodGroupDescription
		want []types.UID
	}{
		"the basic policy": {basic, []types.UID{"y"}},
		"a gang":           {&gangspec.PodGroupDescription{Min: 2}, []types.UID{"x", "y"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 5, 9, queueing.Queue{Name: "a", Deserved: gpus(2)}, queueing.Queue{Name: "b", Deserved: gpus(2)})
			d.gangs = &nativeGroup{says: c.says}
			preemptor := pod("b1", "b", 1, "")
			d.seeAll(since(pod("x", "a", 1, "all"), 1), since(pod("y", "a", 2, "all"), 2), preemptor, pod("rest", "b", 1, "all"), pod("more", "a", 5, ""))
			got := d.overshooting(d.claim(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1}, queueing.Needs{"b": gpus(1)}), nil)
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("overshooting (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBasicPreemptorHasItself: by drf, a preemptor has what the others of its PodGroup have only if that makes a gang
// of them.
func TestBasicPreemptorHasItself(t *testing.T) {
	for sentence, c := range map[string]struct {
		says *gangspec.PodGroupDescription
		want string
	}{
		"the basic policy": {basic, ": g1 g2 g3 | g1 g3"},
		"a gang":           {&gangspec.PodGroupDescription{Min: 2}, ":  | "},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a", Deserved: gpus(16)})
			d.gangs = &nativeGroup{says: c.says}
			d.args.Tiers = []config.PolicyTier{named(config.PolicyDRF)}
			victims := []*v1.Pod{inGang(pod("g1", "a", 2, "all"), "g"), inGang(pod("g2", "a", 2, "all"), "g"), inGang(pod("g3", "a", 1, "all"), "g")}
			preemptor := naming(pod("p", "a", 2, ""))
			d.seeAll(append(slices.Clone(victims), naming(pod("other", "a", 4, "all")), preemptor)...)
			round := d.rounds(extensionpoints.Gang{Pods: []*v1.Pod{preemptor}, Min: 1})[0]
			if got := judged(round.Tiers[0], round, victims); got != c.want {
				t.Errorf("it may preempt%s, want%s", got, c.want)
			}
		})
	}
}

// TestPodsLeaveTheirGang: a pod that came before its PodGroup is counted in no gang from when that turns out to be
// none, and in one again when another has its name.
func TestPodsLeaveTheirGang(t *testing.T) {
	d := newDispatcher(t, 20, 9, queueing.Queue{Name: "a"})
	group := &nativeGroup{}
	d.gangs = group
	d.seeAll(naming(pod("p", "a", 2, "")))
	key := gangspec.Key{Namespace: "default", Name: "train"}
	for _, step := range []struct {
		says *gangspec.PodGroupDescription
		want string
	}{{nil, key.In(profile)}, {basic, ""}, {&gangspec.PodGroupDescription{Min: 2}, key.In(profile)}} {
		group.says = step.says
		d.gangMoved(profile, key)
		if got, _ := d.book.Counted("p"); got.Gang != step.want {
			t.Errorf("with %+v it is in gang %q, want %q", step.says, got.Gang, step.want)
		}
	}
}
